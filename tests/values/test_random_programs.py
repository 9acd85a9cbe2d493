"""Random programs of several functions agree with many digits: `random_programs.py`."""

import dataclasses

import numpy as np
import pytest

import random_programs

# One seed of each mode, or two, that compiles quickly.
QUICK = (26, 32, 48, 67, 104, 234, 321, 353)
# Steps that call no function of the package.
ELEMENTWISE = {"normalise", "shift", "hermitian part"}


@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("seed", [
    *QUICK, *(pytest.param(x, marks=pytest.mark.extended) for x in range(1000, 1150))])
def test_programs(seed):
  found = random_programs.check(seed)
  assert np.isfinite(found) or seed not in QUICK


def test_quick_seeds():
  """They have every mode, and each composes three functions or more, for some matrices."""
  programs = [random_programs.make(seed) for seed in QUICK]
  assert {x.mode for x in programs} == set(random_programs.MODES)
  for x in programs:
    assert x.n > 1 and all(x.batch) and len([y for y in x.steps if y not in ELEMENTWISE]) > 2, x


def _program(mode, dtype, *steps):
  batch = (2,) if mode == "sharded" else ()
  return random_programs.Program(7, mode, np.dtype(dtype), batch, 3, steps)


# Steps that give the matrices that others take.
_BEFORE = {
    "any": (), "general": (), "positive": ("gram",), "hermitian": ("hermitian part",),
    "lower": ("gram", "cholesky")}


@pytest.mark.extended
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("mode", ["sharded", "second derivative"])
@pytest.mark.parametrize("name", random_programs.STEPS)
def test_each_step(name, mode):
  """Alone, in double precision."""
  step = random_programs.STEPS[name]
  program = _program(mode, np.float64, *_BEFORE[step.takes], name)
  found = random_programs.error(program)
  assert found <= random_programs.LIMIT, program


def test_a_derivative_that_does_not_exist():
  """The polar factor is unitary. At it, second derivatives of singular vectors are NaN."""
  program = _program("second derivative", np.float64, "polar", "polar of svd")
  assert random_programs.meets_equal_values(program)
  assert not random_programs.meets_equal_values(random_programs.make(QUICK[0]))


@pytest.mark.usefixtures("standard_promotion")
def test_errors_are_seen(monkeypatch):
  """A relative error of 1e-6 in an element of one step fails in double precision."""
  program = _program("eager", np.float64, "gram", "solve", "lu")
  assert random_programs.error(program) < 10
  step = random_programs.STEPS["solve"]
  wrong = dataclasses.replace(
      step, call=lambda la, x, c: step.call(la, x, c).at[..., 0, 0].multiply(1 + 1e-6))
  monkeypatch.setitem(random_programs.STEPS, "solve", wrong)
  assert random_programs.error(program) > random_programs.LIMIT
