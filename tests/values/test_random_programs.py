"""Random programs of several functions agree with many digits: `random_programs.py`."""

import dataclasses

import numpy as np
import pytest

import random_programs

# One seed of each mode, that compiles quickly, and those of programs that once failed.
QUICK = (15, 21, 30, 38, 91, 94, 104, 131)
# Steps that call no function of the package.
ELEMENTWISE = {"normalise", "shift", "hermitian part"}
FAILED = ()


@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("seed", [
    *QUICK, *(pytest.param(x, marks=pytest.mark.extended) for x in (*FAILED, *range(1000, 1150)))])
def test_programs(seed):
  found = random_programs.check(seed)
  assert np.isfinite(found) or seed not in QUICK


def test_quick_seeds():
  """They have every mode, and each composes three functions or more, for some matrices."""
  programs = [random_programs.make(seed) for seed in QUICK]
  assert {x.mode for x in programs} == set(random_programs.MODES)
  for x in programs:
    assert x.n > 1 and all(x.batch) and len([y for y in x.steps if y not in ELEMENTWISE]) > 2, x


def test_a_derivative_that_does_not_exist():
  """The polar factor is unitary. At it, second derivatives of singular vectors are NaN."""
  assert random_programs.meets_equal_values(random_programs.make(110))
  assert not random_programs.meets_equal_values(random_programs.make(QUICK[0]))


def test_errors_are_seen(monkeypatch):
  """A relative error of 1e-6 in an element of one step fails in double precision."""
  seed = next(
      x for x in range(1000) if (program := random_programs.make(x)).dtype == np.float64
      and program.mode == "eager" and "solve" in program.steps)
  step = random_programs.STEPS["solve"]
  wrong = dataclasses.replace(
      step, call=lambda la, x, c: step.call(la, x, c).at[..., 0, 0].multiply(1 + 1e-6))
  monkeypatch.setitem(random_programs.STEPS, "solve", wrong)
  with pytest.raises(AssertionError, match="roundings"):
    random_programs.check(seed)
