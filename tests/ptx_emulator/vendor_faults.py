"""Errors of the vendor's LU, Cholesky and SVD, as vendor.cc simulates them, do not reach results.

Only tests/ptx_emulator collects this file. The sizes are those of the vendor's Cholesky. Little
shared memory makes them those of the vendor's LU too.
"""

import numpy as np
import pytest
import scipy.linalg

import linalg
import matrices
from linalg._catalogue import checks


@pytest.fixture
def little_shared_memory(monkeypatch):
  monkeypatch.setenv("LINALG_PTX_SHARED", "3")


def _graded(a):
  """Returns the matrices with graded columns from the second on.

  The second has columns so small that their pivots' reciprocals overflow. The third has them after
  a zero column.
  """
  a[2, :, 3] = 0
  a[1:3, :, a.shape[-1] // 2:] *= np.finfo(a.dtype).smallest_subnormal * 2.0**14
  return a


@pytest.mark.usefixtures("little_shared_memory")
@pytest.mark.parametrize("shape", [(140, 140), (160, 130), (130, 160)], ids=str)
def test_lu(shape, dtype, rng):
  a = _graded(matrices.general(rng, (4,), *shape, dtype))
  lu, _, permutation, info = (np.asarray(x) for x in linalg.lu_ex(a))
  np.testing.assert_array_equal(info, [0, 0, 4, 0])
  k = min(shape)
  lower = np.tril(checks.wide(lu)[..., :k], -1) + np.eye(shape[0], k)
  assert np.all(np.abs(lower) <= 2)
  product = lower @ np.triu(checks.wide(lu)[..., :k, :])
  for x, y, order in zip(a, product, permutation, strict=True):
    # Errors are per column: a small column has a small error, down to the spacing of subnormals.
    x = checks.wide(x)[order]
    scale = np.abs(x).max(0) * np.finfo(dtype).eps + np.finfo(dtype).smallest_subnormal
    assert np.all(np.abs(x - y) <= 10 * k * scale)


@pytest.mark.usefixtures("little_shared_memory")
def test_determinant(dtype, rng):
  # The small columns have 14 bits. The error of the logarithm is about 2^-14 times the norm of the
  # unscaled matrix's inverse. It reaches 0.4 for a condition number of 7e4.
  a = _graded(matrices.well_conditioned(rng, (4,), 140, dtype))
  sign, logarithm = linalg.slogdet(a)
  up = 2.0 ** -np.finfo(dtype).minexp
  scaled = checks.wide(a)
  scaled[1, :, 70:] *= up
  expected_sign, expected = np.linalg.slogdet(scaled)
  expected[1] -= 70 * np.log(up)
  expected[2], expected_sign[2] = -np.inf, 0
  np.testing.assert_allclose(logarithm, expected, rtol=0, atol=0.01)
  np.testing.assert_allclose(sign, expected_sign, rtol=0, atol=0.1)


@pytest.mark.usefixtures("little_shared_memory")
def test_solve_and_inv(dtype, rng):
  """The results are right, or the info reports the failure."""
  a = _graded(matrices.general(rng, (4,), 140, 140, dtype))
  b = matrices.general(rng, (4,), 140, 3, dtype)
  for x, info, right in (
      (*linalg.solve_ex(a, b), b), (*linalg.inv_ex(a), np.broadcast_to(np.eye(140), a.shape))):
    np.testing.assert_array_equal(np.asarray(info) != 0, [False, True, True, False])
    np.testing.assert_array_equal(np.isnan(x).all((-2, -1)), [False, True, True, False])
    good = [0, 3]
    assert checks.solution(a[good], np.asarray(x)[good], right[good].astype(dtype)) <= 30


@pytest.mark.usefixtures("little_shared_memory")
def test_info(dtype, rng):
  """info is the first zero or NaN pivot, from the factors."""
  a = matrices.general(rng, (4,), 140, 140, dtype)
  a[1, :, 40] = a[1, :, 60] = 0
  a[2, 139, 139] = np.nan
  np.testing.assert_array_equal(linalg.lu_ex(a)[-1], [0, 41, -1, 0])


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(lower, dtype, rng):
  """Covers a NaN of the operand, which the routine's info does not report."""
  n, eps = 140, np.finfo(dtype).eps
  a = np.tile(np.eye(n, dtype=dtype), (6, 1, 1))
  a[1] = a[2] = matrices.positive_definite(rng, (), n, dtype)
  a[2, 100, 3] = a[2, 3, 100] = np.nan
  a[3, 50, 50] = np.nan
  a[4, 20, 20] = -1
  a[4, 60, 60] = np.nan  # is never reached
  # This pivot of 8 eps has no rounding.
  a[5, 100, 3] = a[5, 3, 100] = 0.5
  a[5, 100, 100] = 0.25 + 8 * eps
  found = [linalg.cholesky_ex(x, upper=not lower) for x in a]
  factor, info = (np.stack([np.asarray(x[i]) for x in found]) for i in range(2))
  np.testing.assert_array_equal(info, [0, 0, 101, 51, 21, 0])
  for x, l, failed in zip(a, factor, info, strict=True):
    if failed:
      assert np.isnan(l[np.tril_indices(n)[::1 if lower else -1]]).all()
      continue
    l = checks.wide(l)
    product = l @ np.conj(l.mT) if lower else np.conj(l.mT) @ l
    assert np.abs(product - x).max() <= 10 * n * eps * np.abs(x).max()


def _of_lapack(a):
  """Returns U and Vᴴ of a matrix or of the transpose of a wide one, as Xgesvd gets it."""
  wide = a.shape[0] < a.shape[1]
  u, _, vh = scipy.linalg.svd(a.T if wide else a)
  return (vh.T, u.T) if wide else (u, vh)


def _two_at_a_time(function, a):
  """Larger batches go by panels."""
  return [np.concatenate(x) for x in zip(function(a[:2]), function(a[2:]), strict=True)]


@pytest.mark.parametrize("dtype, shape, full", [
    ("float32", (192, 195), False), ("float64", (160, 160), False), ("complex64", (163, 160), True),
    ("complex128", (75, 66), True), ("complex128", (66, 75), False)], ids=str)
def test_svd(dtype, shape, full, rng):
  """Xgesvd takes the matrices whose singular values Xgesvdp has moved, or that it fails for.

  Vectors of the two routines differ by their sign in vendor.cc.
  """
  a = matrices.general(rng, (4,), *shape, np.dtype(dtype))
  a[0, :, 1], a[0, 1] = a[0, :, 0], a[0, 0]
  a[1], a[2, 4, 5] = 2, np.nan
  u, s, vh, info = _two_at_a_time(lambda a: linalg.svd_ex(a, full_matrices=full), a)
  np.testing.assert_array_equal(info, [0, 0, -1, 0])
  for x in (u, s, vh):
    np.testing.assert_array_equal(np.isnan(x).reshape(4, -1).any(-1), info != 0)
  for i in np.flatnonzero(info == 0):
    k = min(shape)
    product = checks.wide(u[i][:, :k]) * s[i] @ checks.wide(vh[i][:k])
    assert checks.factorisation(a[i], product, checks.eps(u)) <= 30
    assert checks.orthogonality(u[i]) <= 30
    assert checks.orthogonality(checks.adjoint(vh[i])) <= 30
  for i, polar in ((0, False), (3, True)):
    expected = _of_lapack(a[i])
    for found, theirs in ((u[i][:, 0], expected[0][:, 0]), (vh[i][0], expected[1][0])):
      assert (np.real(np.vdot(theirs, found)) < 0) == polar
  values, info_of_values = _two_at_a_time(linalg.svdvals_ex, a)
  np.testing.assert_array_equal(info_of_values, info)
  np.testing.assert_allclose(
      values[info == 0], s[info == 0], rtol=0, atol=10 * checks.eps(u) * s[0, 0])
  alone = linalg.svd_ex(a[3:], full_matrices=full)
  for x, y in zip((u, s, vh, info), alone, strict=True):
    np.testing.assert_array_equal(x[3], y[0])
