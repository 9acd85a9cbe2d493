"""Selections from the package's catalogue for the tests."""

import functools
import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
from linalg._catalogue import (
  CATALOGUE,
  COMPOSED,
  DECOMPOSITIONS,
  DTYPES,
  SCIPY,
  STRUCTURED,
  TABLE,
  Case,
  Function,
)
from linalg._core import targets as _targets

__all__ = [
    "CASES", "CATALOGUE", "COMPOSED", "DTYPES", "OF_SCIPY", "OF_THE_PACKAGE", "SCIPY", "STRUCTURED",
    "TABLE", "Case", "Function", "calling", "each", "each_double", "each_dtype", "each_function",
    "each_in_double", "failing", "failing_matrix", "function", "gradients", "has_handlers", "named",
    "of_inexact", "tangents", "targets", "targets_in", "targets_of", "with_handlers"]

CASES = DECOMPOSITIONS
# Public functions that concern the package, not matrices.
OF_THE_PACKAGE = {x.name for x in CATALOGUE if x.kind.page == "package"}
# Functions of linalg.scipy that are neither JAX's nor another form of one in `linalg`.
OF_SCIPY = {x.name for x in CATALOGUE if x.module == "linalg.scipy" and x.cases}
RECTANGULAR_CASES = tuple(case for case in CASES if case.rectangular)
DIFFERENTIABLE_CASES = tuple(case for case in CASES if case.differentiable)


def each(some):
  """Parametrises a test with some cases."""
  return pytest.mark.parametrize("case", some, ids=lambda case: case.name)


def each_function(some):
  """A test for each of some functions of the catalogue."""
  return pytest.mark.parametrize("function", some, ids=lambda function: function.full_name)


def each_dtype(quick, *for_longer_runs):
  """A test for each of these dtypes, not conftest.py's. All but the first are extended."""
  return pytest.mark.parametrize(
      "dtype", [quick, *(pytest.param(x, marks=pytest.mark.extended) for x in for_longer_runs)],
      ids=lambda dtype: np.dtype(dtype).name)


# The real case follows the complex one, where conjugation does nothing.
each_double = each_dtype(np.complex128, np.float64)
# Functions whose rule for real numbers is another one.
OTHER_RULES_IF_REAL = {"hessenberg", "schur"}


def each_in_double(some):
  """A test of each case with complex and real numbers, where it takes them.

  Real ones run by default only if their rule differs, or if there are no others.
  """

  def in_double(case, dtype):
    quick = (
        dtype is np.complex128 or function(case) in OTHER_RULES_IF_REAL
        or np.complex128 not in case.dtypes)
    return pytest.param(
        case, dtype, id=f"{dtype.__name__}-{case.name}",
        marks=() if quick else pytest.mark.extended)

  both = itertools.product(some, (np.complex128, np.float64))
  return pytest.mark.parametrize("case, dtype", [
      in_double(case, dtype) for case, dtype in both if dtype in case.dtypes])


def named(name: str) -> Case:
  (case,) = (case for case in TABLE if case.name == name)
  return case


def function(case: Case) -> str:
  """The public function that the case belongs to."""
  return next(x.name for x in CATALOGUE if case in x.cases)


def failing(function: Function, a) -> Any:
  """The first result of the call that `fails` of a record describes, for a stack of matrices."""
  call = function.fails.call
  if call is None:
    leaves, structure = jax.tree.flatten(function.arguments or (np.eye(3),) * function.required())
    leaves[next(i for i, x in enumerate(leaves) if np.ndim(x) == 2)] = a
    return jax.tree.leaves(function.function(*structure.unflatten(leaves)))[0]
  return jax.tree.leaves(call(a))[0]


def failing_matrix(function: Function) -> np.ndarray:
  """The matrix for which that call fails."""
  a = np.eye(3)
  a[1, 1] = function.fails.entry
  return a


def of_inexact(function, operands):
  """The function restricted to operands and results that have derivatives, and these operands."""
  moving = [k for k, x in enumerate(operands) if np.issubdtype(x.dtype, np.inexact)]

  def restricted(*inexact):
    given = dict(zip(moving, inexact, strict=True))
    results = jax.tree.leaves(function(*(given.get(k, x) for k, x in enumerate(operands))))
    return [x for x in results if jnp.issubdtype(x.dtype, jnp.inexact)]

  return restricted, [operands[k] for k in moving]


def tangents(case, *operands):
  """The case's derivative in forward mode, along its operands."""
  function, inexact = of_inexact(case.results, operands)
  return jax.jvp(function, inexact, inexact)[1]


def gradients(case, *operands):
  """The case's derivative in reverse mode, of its own results."""
  function, inexact = of_inexact(case.results, operands)
  results, transpose = jax.vjp(function, *inexact)
  return transpose(results)


# Read at import, before tests register targets of their own.
_OWN = {
    name for check in linalg.export_disabled_checks()
    if (name := check.is_custom_call()) is not None and name.startswith("linalg_")}


def targets(platform: str) -> set[str]:
  """The package's own targets that are registered for a platform."""
  return {x for x in _OWN if platform in _targets.platforms(x)}


def targets_in(function, *operands) -> set[str]:
  """The targets that the function's program calls, on any platform."""
  return set(re.findall(r"\blinalg_\w+", str(jax.make_jaxpr(function)(*operands))))


@functools.cache
def _program(name: str):
  """The program of a case for a batch of three 4 by 4 matrices."""
  operands = named(name).operands(np.random.default_rng(0), (3,), 4, 4, np.dtype(np.float32))
  return jax.make_jaxpr(named(name).results)(*operands)


def targets_of(case: Case) -> set[str]:
  """The targets that a program of the case calls."""
  return set(re.findall(r"\blinalg_\w+", str(_program(case.name))))


def calling(target: str, ranks: tuple[int, ...]) -> Case:
  """The case of a target whose operands have these ranks.

  That is the case with the longest name that the target's name begins with, or else the first one
  that calls no other target.
  """
  some = (*CASES, *SCIPY, *STRUCTURED)
  begins = [
      case for case in some
      if f"{target}_".startswith(f"linalg_{case.name}_") and case.ranks == ranks]
  if begins:
    return max(begins, key=lambda case: len(case.name))
  return next(case for case in some if targets_of(case) == {target})


def has_handlers(case: Case, platform: str) -> bool:
  return bool(targets_of(case) & targets(platform))


def with_handlers(platform: str) -> list[Case]:
  return [case for case in CASES if has_handlers(case, platform)]
