"""The errors of functions of linalg.distributed, and what they say: see support/estimates.py."""


import jax
import numpy as np
import pytest

import cases
import kinds
import linalg.distributed as dist
from estimates import Row, check, lstsq_excess, promises
from linalg._catalogue import CATALOGUE, checks
from long_double import adjoint, size, wide
from matrices import general
from one_matrix import AXES, PANEL, mesh_of
from quick import quick_jit

ONE_IN = 2

SQUARE, TALL = {"axes": AXES, "panel": PANEL}, {"axes": ("x", "y")}
QUICK = {("solve_ex", np.complex128), ("randomized_svd", np.float64)}


def _and_columns(a):
  return a, general(np.random.default_rng(6), a.shape[:-2], a.shape[-2], 2, a.dtype)


def _tall(a):
  """Eight rows for each column."""
  return np.concatenate([(-1) ** i * a for i in range(8)], -2)


def _factor_excess(operands, results):
  (a,), (l, info) = operands, results
  if info != 0:
    return 0.0
  return checks.factorisation(a, wide(l) @ adjoint(wide(l)), checks.eps(l)) / 30


def _solution_excess(operands, results):
  a, b = operands if len(operands) == 2 else (*operands, np.eye(len(operands[0])))
  x, info = results
  return 0.0 if info != 0 else checks.solution(a, x, b) / 30


def _pairs_excess(operands, results):
  (a,), (w, v, info) = operands, results
  if info != 0:
    return 0.0
  v, ulp = wide(v), checks.eps(v)
  residual = checks.factorisation(a, (v * wide(w)) @ adjoint(v), ulp)
  return max(residual, checks.factorisation(np.eye(len(a)), adjoint(v) @ v, ulp)) / 30


def _triplets_excess(operands, results):
  (a,), (u, s, vh, info) = operands, results
  if info != 0:
    return 0.0
  ulp, u, vh, eye = checks.eps(u), wide(u), wide(vh), np.eye(len(a))
  vectors = (adjoint(u) @ u, vh @ adjoint(vh))
  return max(
      checks.factorisation(a, (u * wide(s)) @ vh, ulp),
      *(checks.factorisation(eye, x, ulp) for x in vectors)) / 30


def _error_excess(operands, results):
  """The distance of A from its singular values and vectors, over `error`."""
  (a,), (u, s, vh, error) = operands, map(wide, results)
  if not np.isfinite(a).all():
    return 0.0 if np.isnan(error) else np.inf
  rest = wide(a) - (u * s) @ vh
  scale = size(rest)
  true = scale * np.sqrt(np.sum(np.abs(rest / scale) ** 2)) if scale else scale
  rounding = max(a.shape) * float(np.finfo(a.dtype).eps) * size(s)
  return float(true / (error + rounding)) if true else 0.0


def _and_info(factor, b):
  return factor.solve(b), factor.info


# The calls take one matrix.
ROWS = {
    "cholesky_ex": Row(lambda a: dist.cholesky_ex(a, **SQUARE), _factor_excess, kinds.POSITIVE),
    "cho_factor": Row(lambda a, b: _and_info(dist.cho_factor(a, **SQUARE), b), _solution_excess,
                      kinds.POSITIVE, _and_columns),
    "lu_factor": Row(lambda a, b: _and_info(dist.lu_factor(a, **SQUARE), b), _solution_excess,
                     operands=_and_columns),
    "solve_ex": Row(
        lambda a, b: dist.solve_ex(a, b, **SQUARE), _solution_excess, operands=_and_columns),
    "inv_ex": Row(lambda a: dist.inv_ex(a, **SQUARE), _solution_excess),
    "eigh_ex": Row(lambda a: dist.eigh_ex(a, axes=AXES), _pairs_excess, kinds.HERMITIAN),
    "svd_ex": Row(lambda a: dist.svd_ex(a, axes=AXES), _triplets_excess),
    "lstsq": Row(lambda a, b: dist.lstsq(a, b, **TALL), lstsq_excess,
                 operands=lambda a: _and_columns(_tall(a))),
    "randomized_svd": Row(
        lambda a: dist.randomized_svd(a, 2, jax.random.key(0), **TALL), _error_excess,
        operands=lambda a: (_tall(a),)),
}
# Functions whose docstrings have such words in another sense.
OTHERS = {
    "qr": "says which signs a matrix of full rank has",
    "gram_inverse_pth_root": "is NaN where the rank is too low"}


def _each():
  return [
      pytest.param(name, dtype, id=f"{name}-{dtype.__name__}",
                   marks=() if (name, dtype) in QUICK else pytest.mark.extended)
      for name in ROWS for dtype in cases.DTYPES]


@pytest.mark.parametrize("name, dtype", _each())
def test_estimates(name, dtype):
  """The true error never exceeds ten times what the results promise."""
  mesh, _ = mesh_of("both")
  with jax.set_mesh(mesh):
    program = quick_jit(ROWS[name].call)

    def call(*stacks):
      results = [jax.device_get(tuple(program(*one))) for one in zip(*stacks, strict=True)]
      return map(np.stack, zip(*results, strict=True))

    check(ROWS[name], 7, dtype, call)


def test_the_table_is_complete():
  """It has all functions whose docstrings promise an estimate."""
  promising = {
      name for x in CATALOGUE if x.module == "linalg.distributed" for name in x.names
      if promises(getattr(dist, name))}
  assert promising == set(ROWS) | set(OTHERS)
