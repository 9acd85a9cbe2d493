"""Small matrices whose rows or columns are in a warp's registers have the same bits as in teams."""

import numpy as np
import pytest

import matrices
from linalg._catalogue import checks
from phases import call, integers, padded

pytestmark = pytest.mark.extended

SIZES = (0, 1, 2, 7, 9, 13, 16, 17, 24, 25, 32, 33, 64)
ORDERS = (0, 1, 2)


def _warp_team(library, dtype, n):
  """Returns the team size that CUDA's handlers use for matrices of order n."""
  size = call(library, "warp_threads", dtype, n)
  if size == 0:
    pytest.skip(f"no warp holds such rows of {dtype}")
  return size


def _spoilt(a):
  """Returns the matrix, some that cannot be factored, and some whose pivots have similar sizes."""
  n = len(a)
  yield a
  yield np.zeros_like(a)
  yield np.eye(n, dtype=a.dtype)[::-1].copy()
  yield np.sign(a.real).astype(a.dtype)
  for k in {0, n // 2, n - 1} if n else ():
    beside = (complex(np.nan, np.inf), complex(np.inf, np.nan)) if np.iscomplexobj(a) else ()
    for value in (0, np.nan, np.inf, *beside):
      given = a.copy()
      given[:, k] = value
      yield given
      given = a.copy()
      given[k, k] = value
      yield given


@pytest.mark.parametrize("lower, symmetrize", [(1, 0), (0, 0), (1, 1), (0, 1)])
@pytest.mark.parametrize("n", SIZES)
def test_cholesky(library, dtype, n, lower, symmetrize, rng):
  team = _warp_team(library, dtype, n)
  for a in _spoilt(matrices.positive_definite(rng, (), n, dtype)):
    given, expected = padded(a), padded(a)
    info = call(library, "cholesky", dtype, 8, 0, n, given, given.shape[1], lower, symmetrize,
                expected)
    for order in ORDERS:
      given, factor = padded(a), padded(a)
      assert info == call(library, "row_cholesky", dtype, team, order, n, given, given.shape[1],
                          lower, symmetrize, factor)
      np.testing.assert_array_equal(factor[:, :n], expected[:, :n])


@pytest.mark.parametrize("n", SIZES)
def test_lu(library, dtype, n, rng):
  team = _warp_team(library, dtype, n)
  for shape in {(n, n), (n, max(n - 3, 0)), (max(n - 3, 0), n)}:
    for a in _spoilt(matrices.general(rng, (), n, n, dtype)):
      m, cols = shape
      a = a[:m, :cols]
      count = min(shape)
      expected, steps, rows, again = padded(a), integers(count), integers(m), integers(m)
      info = call(library, "lu", dtype, 8, 0, m, cols, expected, expected.shape[1], steps, rows,
                  again)
      for order in ORDERS:
        given, packed, det = padded(a), padded(a), np.zeros(1, dtype)
        pivots, permutation = integers(count), integers(m)
        assert info == call(library, "row_lu", dtype, team, order, m, cols, given, given.shape[1],
                            pivots, permutation, packed, det)
        np.testing.assert_array_equal(packed[:, :cols], expected[:, :cols])
        np.testing.assert_array_equal(pivots, steps)
        np.testing.assert_array_equal(permutation, rows)


@pytest.mark.parametrize("n", SIZES)
def test_determinant(library, dtype, n, rng):
  team = _warp_team(library, dtype, n)
  a = matrices.well_conditioned(rng, (), n, dtype)[rng.permutation(n)]
  a = (a * 2.0 ** -np.round(np.linalg.slogdet(checks.wide(a))[1] / max(n, 1))).astype(dtype)
  given, packed, det = padded(a), padded(a), np.zeros(1, dtype)
  call(library, "row_lu", dtype, team, 0, n, n, given, given.shape[1], integers(n), integers(n),
       packed, det)
  expected = np.linalg.det(checks.wide(a))
  np.testing.assert_allclose(det[0], expected, rtol=100 * checks.eps(det) * max(n, 1))


@pytest.mark.parametrize("cols", [1, 2, 7, 40])
@pytest.mark.parametrize("n", SIZES)
def test_solve(library, dtype, n, cols, rng):
  team = _warp_team(library, dtype, n)
  b = matrices.general(rng, (), n, cols, dtype)
  for a in _spoilt(matrices.well_conditioned(rng, (), n, dtype)[rng.permutation(n)]):
    given, rhs, expected = padded(a), padded(b), padded(b)
    info = call(library, "solve", dtype, 8, 0, n, given, given.shape[1], cols, rhs, rhs.shape[1],
                expected)
    for order in ORDERS:
      given, x = padded(a), padded(b)
      assert info == call(library, "row_solve", dtype, team, order, n, given, given.shape[1], cols,
                          rhs, rhs.shape[1], x)
      if info:
        assert np.isnan(x[:, :cols]).all()
      else:
        np.testing.assert_array_equal(x[:, :cols], expected[:, :cols])


@pytest.mark.parametrize("n", SIZES)
def test_inverse(library, dtype, n, rng):
  team = _warp_team(library, dtype, n)
  for a in _spoilt(matrices.well_conditioned(rng, (), n, dtype)[rng.permutation(n)]):
    given, expected = padded(a), padded(a)
    info = call(library, "inverse", dtype, 8, 0, n, given, given.shape[1], expected)
    for order in ORDERS:
      given, inverse = padded(a), padded(a)
      assert info == call(library, "row_inverse", dtype, team, order, n, given, given.shape[1],
                          inverse)
      if info:
        assert np.isnan(inverse[:, :n]).all()
      else:
        np.testing.assert_array_equal(inverse[:, :n], expected[:, :n])
