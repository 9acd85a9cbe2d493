"""Failures on a GPU: `info`, and NaN for the matrix that fails alone."""

import functools

import jax
import jax.ffi
import numpy as np
import pytest

import linalg
import linalg.scipy
import matrices
from gpu_calls import put, results_of
from linalg._catalogue import checks

pytestmark = pytest.mark.gpu
ALL_DTYPES = True


@pytest.mark.parametrize("n", [3, 10, 40, 80, 140])
@pytest.mark.parametrize("batch", [3, 40])
def test_a_bad_matrix_is_alone(case, dtype, n, batch, rng):
  """NaN in one matrix does not change the bits of the others."""
  operands = case.operands(rng, (batch,), n, n, dtype)
  spoilt = [x.copy() for x in operands]
  for x in spoilt:
    x[1] = np.nan if x.dtype.kind in "fc" else -1
  for x, y in zip(results_of(case, operands), results_of(case, spoilt), strict=True):
    assert np.delete(x, 1, 0).tobytes() == np.delete(y, 1, 0).tobytes()


@pytest.mark.parametrize("n", [2, 10, 40, 80, 140])
def test_cholesky_info(dtype, n, rng):
  a = matrices.positive_definite(rng, (4,), n, dtype)
  a[1, n - 1, n - 1] = -1
  a[2, 0, 0] = np.nan
  for options in ({}, {"upper": True}, {"symmetrize_input": False}):
    factor, info = linalg.cholesky_ex(*put((a,)), **options)
    np.testing.assert_array_equal(info, [0, n, 1, 0])
    np.testing.assert_array_equal(np.isnan(factor).any((-2, -1)), [False, True, True, False])


# Panels of one column and of all, of one tile of rows and of several.
@pytest.mark.parametrize("n, upper, symmetrize", [
    (129, False, True), (200, True, False), (512, False, False), (1024, True, True),
    (1024, False, True)])
def test_cholesky_by_panels(dtype, n, upper, symmetrize, rng):
  """Failures in several panels do not change the bits of the other matrices."""
  a = matrices.positive_definite(rng, (5,), n, dtype)
  a[1, n - 1, n - 1] = a[2, 100, 100] = -1
  a[2, 40, 3] = a[2, 3, 40] = np.nan
  a[3, 0, 0] = 0
  rows, cols = np.indices((n, n))
  above = cols < rows if upper else cols > rows
  given = a if symmetrize else np.where(above, np.nan, a).astype(dtype)
  factors = jax.jit(functools.partial(
      linalg.cholesky_ex, upper=upper, symmetrize_input=symmetrize))
  factor, info = (np.asarray(x) for x in factors(*put((given,))))
  np.testing.assert_array_equal(info, [0, n, 41, 1, 0])
  assert not factor[:, above].any()
  np.testing.assert_array_equal(np.isnan(factor[:, ~above]).all(1), info != 0)
  good = [0, 4]
  for k in (1, 2, 3):
    given[k] = given[0]
  again, info = (np.asarray(x) for x in factors(*put((given,))))
  assert not info.any()
  for k in (1, 2, 3):
    np.testing.assert_array_equal(again[k], again[0])
  np.testing.assert_array_equal(factor[good], again[good])
  l = checks.wide(factor[good])
  l = checks.adjoint(l) if upper else l
  assert checks.factorisation(a[good], l @ checks.adjoint(l), checks.eps(factor)) <= 10


@pytest.mark.parametrize("n", [2, 10, 40, 80, 140])
def test_lu_info(dtype, n, rng):
  a = matrices.general(rng, (4,), n, n, dtype)
  a[1, :, n // 2] = 0
  a[2, n - 1, n - 1] = np.nan
  b = matrices.general(rng, (len(a),), n, 2, dtype)
  expected = [0, n // 2 + 1, -1, 0]
  np.testing.assert_array_equal(linalg.lu_ex(*put((a,)))[-1], expected)
  for x, info in (linalg.solve_ex(*put((a, b))), linalg.inv_ex(*put((a,)))):
    np.testing.assert_array_equal(info, expected)
    np.testing.assert_array_equal(np.isnan(x).all((-2, -1)), [False, True, True, False])
  det = np.asarray(linalg.det(*put((a,))))
  assert det[1] == 0 and np.isnan(det[2])


@pytest.mark.parametrize("n", [2, 10, 40, 80])
def test_eigh_info(dtype, n, rng):
  a = matrices.hermitian(rng, (3,), n, dtype)
  a[1, n - 1, 0] = a[1, 0, n - 1] = np.inf
  for uplo in "LU":
    w, v, info = linalg.eigh_ex(*put((a,)), uplo, symmetrize_input=False)
    np.testing.assert_array_equal(info, [0, -1, 0])
    np.testing.assert_array_equal(np.isnan(w).all(-1), [False, True, False])
    assert checks.orthogonality(np.asarray(v)[[0, 2]]) <= 60


@pytest.mark.parametrize("n", [2, 10, 40, 80])
def test_svd_and_eig_info(dtype, n, rng):
  a = matrices.general(rng, (3,), n, n, dtype)
  a[1, n - 1, 0] = np.nan
  for *results, info in (linalg.svd_ex(*put((a,))), linalg.eig_ex(*put((a,)))):
    np.testing.assert_array_equal(info, [0, -1, 0])
    for x in results:
      np.testing.assert_array_equal(np.isnan(x).reshape(3, -1).all(-1), [False, True, False])


@pytest.mark.parametrize("n", [65, 20_001])
def test_tridiagonal_info(dtype, n):
  """Matrices that are singular, singular but for rounding, or hold NaN."""
  dl, d, du = (np.tile(np.asarray(x, dtype), (4, n)) for x in (-1, 2, -1))
  d[1, [0, -1]] = 1
  d[2], dl[2] = 0, 1
  d[3, n // 2] = np.nan
  x, info = linalg.tridiagonal_solve_ex(*put((dl, d, du, np.ones((4, n, 2), dtype))))
  np.testing.assert_array_equal(info, [0, n, n, -1])
  np.testing.assert_array_equal(np.isnan(x).all((1, 2)), [False, True, True, True])
  # Perturbed pivots give the null vector of ones, and finite solutions of the others.
  x, info = map(np.asarray, linalg.tridiagonal_solve_ex(
      *put((dl, d, du, np.ones((4, n, 2), dtype))), perturb_singular=True))
  np.testing.assert_array_equal(info, [0, 0, 0, -1])
  assert np.isfinite(x[:3]).all() and np.isnan(x[3]).all()
  if n == 65:
    np.testing.assert_allclose(x[1] / x[1, :1], 1, atol=100 * n * n * np.finfo(dtype).eps)
