"""Random programs of several functions agree with many digits: `random_programs.py`."""

import dataclasses

import numpy as np
import pytest

import random_programs

# One seed of each mode, that compiles quickly, and those of programs that once failed.
QUICK = (2, 15, 21, 23, 30, 38, 40, 104)
FAILED = ()


@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("seed", [
    *QUICK, *(pytest.param(x, marks=pytest.mark.extended) for x in (*FAILED, *range(1000, 1150)))])
def test_programs(seed):
  random_programs.check(seed)


def test_modes():
  """The quick seeds have every mode."""
  assert {random_programs.make(seed).mode for seed in QUICK} == set(random_programs.MODES)


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
