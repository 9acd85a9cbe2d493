"""Each fallback, for platforms without a handler, computes the same function as the handler."""

import functools
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import matrices
from linalg.ffi import Operation
from quick import quick_jit
from sharded import close
from target_table import TARGETS

ONE_IN = 5


def _operations():
  """Operations that have handlers, by their names in their modules.

  The handlers of derivative rules are compared with their formula in derivatives/test_linear.py,
  those of Kalman filters in test_kalman.py and test_kalman_derivatives.py. Fallbacks of pencils and
  of reordered forms have another order of eigenvalues: test_pencils.py. Parts of a spectrum are in
  test_subset.py, and some rows of eigenvectors in test_tridiagonal.py.
  """
  handled = {
      x for x in cases.targets("cpu")
      if not x.endswith(("_jvp", "_vjp", "_generalized", "_reorder", "_qz", "_rows"))
      and not x.startswith("linalg_kalman_") and "_subset" not in x}
  modules = [
      module for name, module in sorted(sys.modules.items())
      if name.startswith(("linalg._", "linalg.scipy._", "linalg.structured._"))]
  for name, value in (item for module in modules for item in vars(module).items()):
    several = isinstance(value, tuple) and hasattr(value, "_fields")
    members = {f"{name}.{x}": getattr(value, x) for x in value._fields} if several else {}
    for key, x in ({name: value} | members).items():
      if isinstance(x, Operation) and x.name in handled:
        yield key, x


OPERATIONS = dict(_operations())
N = 5


@functools.cache
def _case(name):
  operation = OPERATIONS[name]
  if operation.name in WITHIN:
    return cases.named(WITHIN[operation.name][0])
  return cases.calling(operation.name, operation._rules.ranks)


def _variants():
  for name, operation in OPERATIONS.items():
    flags = [key for key, value in operation.attributes.items() if isinstance(value, bool)]
    for values in itertools.product((False, True), repeat=len(flags)):
      attributes = dict(zip(flags, values, strict=True))
      yield pytest.param(
          name, attributes, id="-".join([name, *(k for k, v in attributes.items() if v)]))


def _triangle_and_diagonals(rng, a):
  """More diagonals than a register has lanes, with equal elements.

  In a batch, all diagonals of the first matrix are alike, and the second matrix has too few
  eigenvectors.
  """
  x = np.diagonal(a, 0, -2, -1)[..., None, :] + matrices.general(
      rng, a.shape[:-2], 19, a.shape[-1], a.dtype)
  x[..., ::4] = 2
  tolerance = np.full_like(a[..., 0, 0].real, np.inf)
  if x.ndim > 2:
    x[:1] = x[:1, ..., :1, :]
    tolerance[1:2] = 1e-3
  return np.triu(a), x, np.cos(x), tolerance


def _triangle_and_roots(rng, a):
  t = np.triu(a) + 2 * np.eye(a.shape[-1], dtype=a.dtype)
  return t, np.sqrt(np.abs(np.diagonal(t, 0, -2, -1))).astype(a.dtype)


def _factor_in_chunks(rng, a, lower, b):
  """A factor, since the handler does not read what is zero there."""
  return *map(np.array, OPERATIONS["_chunks_p"](a, lower)[:3]), b


# For an operation that no program of a case calls: the case to take operands from, and how.
WITHIN = {
    "linalg_block_tridiagonal_chunks": (
        "block_tridiagonal_cholesky", lambda rng, *operands: operands[:2]),
    "linalg_block_tridiagonal_chunks_solve": (
        "block_tridiagonal_cholesky", _factor_in_chunks),
    "linalg_block_tridiagonal_factor_solve": (
        "block_tridiagonal_cholesky", lambda rng, *operands: operands),
    "linalg_block_tridiagonal_inverse_blocks": (
        "block_tridiagonal_cholesky", lambda rng, *operands: operands[:2]),
    "linalg_inverse_permutation": ("lu_pivots_to_permutation", lambda rng, p: (p, p)),
    "linalg_positive_solve_logdet_factor": (
        "solve_logdet_pos", lambda rng, *operands: operands),
    "linalg_triangular_sqrt": ("sqrtm", _triangle_and_roots),
    "linalg_parlett": ("funm", _triangle_and_diagonals)}


def _operands_of_call(name, operands):
  """The operands with which a program of the case calls the operation."""
  found = []
  call = Operation.__call__

  def record(self, *operands, **attributes):
    if self is OPERATIONS[name]:
      found.append(operands)
    return call(self, *operands, **attributes)

  with pytest.MonkeyPatch.context() as patch, jax.disable_jit():
    patch.setattr(Operation, "__call__", record)
    _case(name).results(*operands)
  return tuple(map(np.array, found[0]))


def _operands(name, attributes, batch, shape, dtype, rng):
  target = OPERATIONS[name].name
  operands = _case(name).operands(rng, batch, *shape, dtype)
  if target in WITHIN:
    operands = WITHIN[target][1](rng, *operands)
  elif len(operands) != len(TARGETS[target].operands):
    operands = _operands_of_call(name, operands)
  operands = tuple(
      x.real if token[0] == "R" else x
      for token, x in zip(TARGETS[target].operands, operands, strict=True))
  if not attributes.get("left_side", attributes.get("left", True)):
    *factors, beside = operands
    operands = (*factors, beside.swapaxes(-1, -2))
  return operands


def _both(name, attributes, operands):
  """Returns the results of the fallback and of the handler, compiled."""
  operation = OPERATIONS[name]
  attributes = operation.attributes | attributes
  if name == "lu_pivots_to_permutation_p":
    attributes["permutation_size"] = N + 1

  @quick_jit
  def both(*operands):
    fallback = operation._rules.fallback(*operands, **attributes)
    handler = operation(*operands, **attributes)
    handler = list(handler) if isinstance(handler, tuple) else [handler]
    return _determined(name, list(fallback)), _determined(name, handler)

  return both(*operands)


def _determined(name, results):
  """Results without the choices that an algorithm is free to make. The last one, info, stays."""
  if name == "parlett_p":  # NaN must be in the same places
    results = [jnp.nan_to_num(x, nan=7) for x in results]
  *results, last = results
  return [*_case(name).invariant(tuple(results)), last]


def _check(name, attributes, operands, dtype):
  fallback, handler = _both(name, attributes, operands)
  assert [(x.shape, x.dtype) for x in fallback] == [(x.shape, x.dtype) for x in handler]
  close(fallback, handler, 200 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name, attributes", list(_variants()))
def test_values(name, attributes, rng):
  """Catches a triangle, transposition or conjugate that only one of the two takes account of."""
  operands = _operands(name, attributes, (3,), (N, N), np.complex128, rng)
  _check(name, attributes, operands, np.complex128)


@pytest.mark.parametrize("name", OPERATIONS)
@cases.each_dtype(np.float64, np.float32)
def test_real_values(name, dtype, rng):
  """Catches a fallback that is right for complex matrices alone, or for one batch dimension."""
  attributes = dict(OPERATIONS[name].attributes)
  operands = _operands(name, attributes, (2, 3), (N, N), dtype, rng)
  _check(name, attributes, operands, dtype)


def _is_rectangular(name):
  return TARGETS[OPERATIONS[name].name].operands == ("Tmn",) and _case(name).rectangular


@pytest.mark.parametrize("name", list(filter(_is_rectangular, OPERATIONS)))
@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (0, 3), (3, 0), (0, 0)], ids=str)
def test_rectangles(name, shape, rng):
  """Catches a fallback that is right for square matrices alone."""
  if name.startswith("qr_pivoted") and 0 in shape:
    pytest.skip("jax.lax.linalg.qr pivots no columns of an empty matrix")
  operands = (matrices.general(rng, (3,), *shape, np.float64),)
  _check(name, {}, operands, np.float64)


def _has_info(name):
  target = TARGETS[OPERATIONS[name].name]
  return target.operands in (("Tnn",), ("Tmn",)) and target.results[-1] == "I"


@pytest.mark.parametrize("name", list(filter(_has_info, OPERATIONS)))
def test_failures(name, rng):
  """Fallback and handler fail on the same matrices. Other results are untouched."""
  operands = _operands(name, {}, (4,), (N, N), np.float64, rng)
  fails = next(x.fails for x in cases.CATALOGUE if _case(name) in x.cases)
  operands[0][1] = np.nan if fails and np.isnan(fails.entry) else 0
  fallback, handler = _both(name, {}, operands)
  np.testing.assert_array_equal(np.asarray(fallback[-1]) != 0, [False, True, False, False])
  np.testing.assert_array_equal(np.asarray(handler[-1]) != 0, [False, True, False, False])
  good = [0, 2, 3]
  close([np.asarray(x)[good] for x in fallback], [np.asarray(x)[good] for x in handler], 1e-13)
  if name != "lu_p":
    for x in map(np.asarray, (*fallback[:-1], *handler[:-1])):
      assert np.isnan(x[1]).any() or not x.any()  # a square U has no further columns


@pytest.mark.parametrize("name", ["triangular_solve_p", "cholesky_solve_p", "lu_solve_p"])
def test_shared_factor(name, rng):
  """Catches a fallback that refuses a factor without batch dimensions."""
  attributes = {"left_side": True} if name == "triangular_solve_p" else {}
  *factor, b = _operands(name, {"left_side": True}, (3, 2), (N, N), np.float64, rng)
  _check(name, attributes, [*(x[0, 0] for x in factor), b], np.float64)
