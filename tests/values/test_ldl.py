"""LDLᴴ factors of indefinite matrices."""

import numpy as np
import pytest
import scipy.linalg

import cases
import derivatives
import linalg.scipy
import matrices


def _indefinite(rng, n, dtype, hermitian):
  """Five matrices: random, with a zero diagonal, diagonal, zero, and of rank one."""
  a = matrices.general(rng, (5,), n, n, dtype)
  a = a + np.swapaxes(a.conj() if hermitian else a, -1, -2)
  a[1][np.diag_indices(n)] = 0
  a[2] = np.diag(np.arange(n))
  a[3] = 0
  x = 2.0 ** np.arange(n)  # powers of two, so that no pivot is a rounding error
  a[4] = np.outer(x, x)
  return a


@cases.each_double
def test_ldl(dtype, rng):
  """The factors and pivots are SciPy's. One triangle is read. NaN stays in its matrix."""
  for n, hermitian, lower in (
      (2, True, True), (7, True, True), (7, True, False), (7, False, True), (7, False, False)):
    a = _indefinite(rng, n, dtype, hermitian)
    unread = np.tri(n, k=-1, dtype=bool)
    given = np.where(unread.T if lower else unread, np.nan, a)
    l, d, order = map(
        np.asarray, linalg.scipy.ldl(given, lower=lower, hermitian=hermitian))
    for one, *found in zip(a, l, d, order, strict=True):
      expected = scipy.linalg.ldl(one, lower=lower, hermitian=hermitian)
      for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-12)
    turned = np.swapaxes(l.conj() if hermitian else l, -1, -2)
    np.testing.assert_allclose(l @ d @ turned, a, rtol=0, atol=1e-12)
  swap = linalg.scipy.ldl(np.array([[0, 1], [1, 0]], dtype))
  for x, y in zip(swap, (np.eye(2), np.eye(2)[::-1], np.arange(2)), strict=True):
    np.testing.assert_array_equal(x, y)
  a[0, 3, 3] = np.inf
  again = linalg.scipy.ldl(a, lower=lower, hermitian=hermitian)
  assert np.isnan(again[0][0]).all() and np.isnan(again[1][0]).all()
  for x, y in zip(again, (l, d, order), strict=True):
    np.testing.assert_array_equal(x[1:], y[1:])
  with pytest.raises(linalg.LinAlgError, match=r"ldl: the matrix at index \(0\) has no factors"):
    linalg.checked(linalg.scipy.ldl)(a)


@cases.each_dtype(np.complex128, np.float32)
def test_ldl_keeps_small_blocks_beside_large_ones(dtype):
  """Pivots of both orders keep their digits at both ends of the range."""
  x = 1e20 if dtype == np.float32 else 1e200
  swap = np.array([[0, 1], [1, 0]])
  a = np.stack([
      np.diag([x, -1 / x, 1, -x]), scipy.linalg.block_diag(x * swap, swap / x),
      scipy.linalg.block_diag(x, swap / x, -1), np.finfo(dtype).max / 4 * np.eye(4)]).astype(dtype)
  l, d, _ = linalg.scipy.ldl(a)
  np.testing.assert_array_equal(l, np.broadcast_to(np.eye(4), l.shape))
  np.testing.assert_array_equal(d, a)
  # The Schur complement of the second pivot is -3 y.
  for y in (x, 1 / x):
    b = y * np.array([[0, 1, 1], [1, 0, 1], [1, 1, -1]])
    l, d, _ = linalg.scipy.ldl(b.astype(dtype))
    np.testing.assert_array_equal(l, [[1, 0, 0], [0, 1, 0], [1, 1, 1]])
    np.testing.assert_allclose(np.diagonal(d), [0, 0, -3 * y], rtol=1e-6)


@cases.each_dtype(np.complex128, np.complex64, np.float64, np.float32)
@pytest.mark.parametrize("n", [33, pytest.param(130, marks=pytest.mark.extended)])
def test_ldl_of_larger_matrices(n, dtype, rng):
  """The residual is small and the pivots are SciPy's, for Hermitian and symmetric matrices."""
  for hermitian in (True, False) if np.issubdtype(dtype, np.complexfloating) else (True,):
    turned = lambda x, hermitian=hermitian: np.swapaxes(x.conj() if hermitian else x, -1, -2)
    a = matrices.general(rng, (2,), n, n, dtype)
    a = a + turned(a)
    l, d, order = linalg.scipy.ldl(a, hermitian=hermitian)
    l, d = (np.asarray(x).astype(np.result_type(dtype, np.float64)) for x in (l, d))
    error = np.max(np.abs(l @ d @ turned(l) - a)) / np.max(np.abs(a))
    assert error < 3 * n * np.finfo(dtype).eps
    np.testing.assert_array_equal(order[0], scipy.linalg.ldl(a[0], hermitian=hermitian)[2])


@pytest.mark.extended
@cases.each_double
def test_derivatives_of_ldl(dtype, rng):
  """The matrices have pivots of order 2, either triangle, or are complex symmetric."""
  for hermitian, lower in ((True, True), (True, False), (False, True)):
    a = _indefinite(rng, 4, dtype, hermitian)[1]
    derivatives.check(
        lambda a, lower=lower, hermitian=hermitian: linalg.scipy.ldl(
            a, lower=lower, hermitian=hermitian)[:2], (a,), rng, tolerance=1e-6)
