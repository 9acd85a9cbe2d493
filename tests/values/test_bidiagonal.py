"""Some rows of the singular vectors of bidiagonal matrices, which one handler makes alone."""

import numpy as np
import pytest

import cases
from linalg._factorizations.bidiagonal_svd import bidiagonal_svd_rows_p

# Matrices whose merges deflate, wholly or in part.
TYPES = {
    "random": lambda d, e: (d, e),
    "zero": lambda d, e: (0 * d, 0 * e),
    "identity": lambda d, e: (0 * d + 1, 0 * e),
    "ones": lambda d, e: (0 * d + 1, 0 * e - 1),
    "zeros on the diagonal": lambda d, e: (np.where(np.arange(len(d)) % 3, d, 0), e),
    "graded": lambda d, e: tuple(
        x * 10.0 ** -np.linspace(0, 20, len(d))[: len(x)] for x in (d, e)),
}


def rows_of(n, count):
  """Parts of the rows, of which the last may reach beyond the matrix."""
  share = -(-n // count)
  return [np.arange(share, dtype=np.int32) + i * share for i in range(count)]


@cases.each_dtype(np.float64, np.float32)
@pytest.mark.parametrize("n", [1, 5, 13, 100, 300])
def test_some_rows_of_the_singular_vectors(n, dtype, rng):
  """They are rows of two orthogonal matrices, whose merges were made from them alone."""
  d, e = rng.standard_normal(n), rng.standard_normal(n - 1)
  eps = np.finfo(dtype).eps
  for change in TYPES.values():
    diagonal, beside = (x.astype(dtype) for x in change(d, e))
    left, right = rows_of(n, 3), rows_of(n, 4)
    parts = [bidiagonal_svd_rows_p(diagonal, beside, left[i % 3], right[i]) for i in range(4)]
    s = np.asarray(parts[0][0], np.float64)
    for found, _, _, info in parts:
      np.testing.assert_array_equal(found, s)
      assert info == 0
    u = np.concatenate([np.asarray(x[1], np.float64) for x in parts[:3]])
    v = np.concatenate([np.asarray(x[2], np.float64) for x in parts])
    assert not u[n:].any() and not v[n:].any()
    u, v, b = u[:n], v[:n], np.diag(diagonal) + np.diag(beside, 1)
    b, limit = b.astype(np.float64), 30 * max(n, 10) * eps
    size = max(np.max(np.abs(b)), np.finfo(np.float64).tiny)
    assert (np.diff(s) <= 0).all() and (s >= 0).all()
    for x in (u, v):
      assert np.max(np.abs(x.T @ x - np.eye(n))) <= limit
    assert np.max(np.abs((u * s) @ v.T - b)) <= limit * size
    np.testing.assert_allclose(s, np.linalg.svd(b, compute_uv=False), rtol=0, atol=limit * size)
    alone = bidiagonal_svd_rows_p(diagonal, beside, left[0][:0], right[0][:0])
    np.testing.assert_array_equal(alone[0], s)
    assert alone[1].shape == alone[2].shape == (0, n)


def test_nan_in_a_batch(rng):
  """A matrix that is not finite is NaN, and the other keeps its bits."""
  d, e = rng.standard_normal((2, 20)), rng.standard_normal((2, 19))
  rows = np.broadcast_to(np.arange(7, dtype=np.int32), (2, 7))
  good = bidiagonal_svd_rows_p(d, e, rows, rows)
  e[1, 3] = np.nan
  bad = bidiagonal_svd_rows_p(d, e, rows, rows)
  np.testing.assert_array_equal(bad[3], [0, -1])
  for x, y in zip(good[:3], bad[:3], strict=True):
    np.testing.assert_array_equal(x[0], y[0])
    assert np.isnan(y[1]).all()
