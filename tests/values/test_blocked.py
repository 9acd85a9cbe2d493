"""Matrices too large for one per lane, on both sides of each cut-off and of the edges of tiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import matrices
from sharded import same_bits

# About the cut-offs to and from tiles; where rows, registers and panels of a tile end.
EDGES = (41, 48, 49, 57, 60, 61, 64, 67, 72, 96, 97, 130)
LARGEST = 512
pytestmark = pytest.mark.all_dtypes


def _positive_definite(rng, lead, n, dtype):
  a = matrices.well_conditioned(rng, lead, n, dtype)
  return (a @ a.conj().swapaxes(-1, -2) / n + np.eye(n)).astype(dtype)


def _double(a):
  return np.asarray(a).astype(np.result_type(a.dtype, np.float64))


def _close(actual, expected, n, dtype):
  error = np.abs(_double(actual) - _double(expected)).max()
  assert error <= 4 * n * np.finfo(dtype).eps * np.abs(expected).max()


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize("n", [*EDGES, LARGEST, LARGEST + 1])
def test_cholesky(dtype, n, lower, rng):
  a = _positive_definite(rng, (), n, dtype)
  factor = np.asarray(linalg.cholesky(a, upper=not lower))
  np.testing.assert_array_equal(factor, np.tril(factor) if lower else np.triu(factor))
  diagonal = factor.diagonal()
  assert (np.real(diagonal) > 0).all() and (np.imag(diagonal) == 0).all()
  x = _double(factor)
  _close(x @ x.conj().T if lower else x.conj().T @ x, a, n, dtype)


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize("n", [61, 67, 97])
def test_cholesky_reads_one_triangle(dtype, n, lower, rng):
  """Catches a tile that reaches over the diagonal, or beyond the matrix."""
  a = _positive_definite(rng, (3,), n, dtype)
  half = (np.tril if lower else np.triu)(a)
  unread = (np.triu if lower else np.tril)(np.full_like(a, np.nan), 1 if lower else -1)
  spoilt = half + unread
  if np.iscomplexobj(a):
    spoilt[:, range(n), range(n)] += np.array(3j, dtype)
  factor = linalg.cholesky(spoilt, upper=not lower, symmetrize_input=False)
  same_bits([factor], [np.asarray(linalg.cholesky(half, upper=not lower, symmetrize_input=False))])
  x = _double(factor)
  adjoint = x.conj().swapaxes(-1, -2)
  _close(x @ adjoint if lower else adjoint @ x, a, n, dtype)


@pytest.mark.parametrize("n", [61, 64, 130])
def test_cholesky_of_a_leading_block(dtype, n, rng):
  """Catches rounding that depends on the size, or on where a tile ends."""
  a = _positive_definite(rng, (), 200, dtype)
  whole = np.asarray(linalg.cholesky(a))
  same_bits([linalg.cholesky(a[:n, :n])], [whole[:n, :n]])


@pytest.mark.parametrize("poison", [-1, 0, np.nan, np.inf])
def test_info_of_cholesky(dtype, poison, rng):
  """The first pivot that is not positive: in the first row, inside a tile, at its ends, the last;
  and the neighbours in the batch keep their bits."""
  n = 67
  places = [0, 5, 7, 8, 31, 63, 64, n - 1]
  a = _positive_definite(rng, (len(places) + 1,), n, dtype)
  clean = np.asarray(linalg.cholesky(a[-1]))
  for matrix, place in zip(a, places, strict=False):
    matrix[place, place] = poison
  factor, info = linalg.cholesky_ex(a)
  np.testing.assert_array_equal(info, [*(place + 1 for place in places), 0])
  lower = np.tril(np.ones((n, n), bool))
  assert np.isnan(np.asarray(factor)[:-1, lower]).all()
  assert (np.asarray(factor)[:-1, ~lower] == 0).all()
  same_bits([factor[-1]], [clean])


def test_cholesky_of_subnormal_numbers(rng):
  """Of entries near the end of the range, and with factors below it."""
  n = 65
  for dtype in (np.float32, np.float64):
    tiny = np.finfo(dtype).tiny
    a = np.full((n, n), tiny, dtype) + np.diag(np.linspace(1, 2, n)).astype(dtype)
    x = _double(linalg.cholesky(a))
    assert (x[1:, 0] == tiny / x[0, 0]).all()
    a[1:, 0] = a[0, 1:] = tiny / 8
    x = np.asarray(linalg.cholesky(a))
    assert (x[1:, 0] == dtype(tiny / 8)).all()


@pytest.mark.parametrize("n", [65, 100])
@pytest.mark.parametrize("name", ["cholesky"])
def test_same_bits_in_any_batch(dtype, name, n, rng):
  """Catches a workspace that remembers the matrix before."""
  function = jax.jit({"cholesky": linalg.cholesky}[name])
  a = _positive_definite(rng, (40,), n, dtype)
  whole = np.asarray(function(a))
  for i in (0, 17, 39):
    same_bits([function(jnp.asarray(a[i]))], [whole[i]])
  same_bits([function(a[:3])], [whole[:3]])
