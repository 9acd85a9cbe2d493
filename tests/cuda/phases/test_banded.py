"""Cholesky factors of banded matrices, and solves with them, in a window that moves along the
diagonal."""

import numpy as np
import pytest

import matrices
from phases import call, in_all_orders

pytestmark = pytest.mark.extended

# Matrices within one window, of several, and bands wider than the matrix. A ring has 32 columns
# for up to 17 diagonals.
SHAPES = [(0, 1), (1, 1), (1, 4), (5, 7), (31, 2), (40, 1), (100, 3), (150, 17), (90, 20), (70, 66)]


def _columns(rng, n, width, dtype):
  """The columns of a positive definite matrix from the diagonal down, 0 below the last row."""
  l = np.tril(np.triu(matrices.general(rng, (), n, n, dtype), 1 - width))
  a = (l @ l.conj().T + np.eye(n, dtype=dtype)).astype(dtype)
  columns = np.zeros((n, width), dtype)
  for i in range(min(width, n)):
    columns[: n - i, i] = np.diagonal(a, -i)
  return columns, a


def _dense(columns):
  n, width = columns.shape
  l = np.zeros((n, n), columns.dtype)
  for i in range(min(width, n)):
    l[range(i, n), range(n - i)] = columns[: n - i, i]
  return l


def _factor(library, columns):
  n, width = columns.shape

  def run(team, order):
    factor = np.full_like(columns, 7)
    info = call(library, "banded_cholesky", columns.dtype, team, order, n, width, columns, factor)
    return info, factor

  return in_all_orders(run)


def _check_same_bytes(found, expected):
  """Tells a negative zero from a positive one."""
  np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("n, width", SHAPES)
def test_factors_are_those_of_one_thread(library, dtype, n, width, rng):
  columns, a = _columns(rng, n, width, dtype)
  expected = columns.copy()
  assert call(library, "thread_banded_cholesky", dtype, n, width, expected) == 0
  for info, factor in _factor(library, columns):
    assert info == 0
    _check_same_bytes(factor, expected)
  l = _dense(expected).astype(np.complex128)
  eps = np.finfo(dtype).eps
  np.testing.assert_allclose(
      l @ l.conj().T, a, rtol=0, atol=10 * width * eps * np.abs(a).max(initial=1))


@pytest.mark.parametrize("n, width", [(1, 1), (40, 1), (100, 3), (70, 66)])
@pytest.mark.parametrize("value", [0, -1, np.nan])
def test_failures(library, dtype, n, width, value, rng):
  """info is the first minor that is not positive, wherever it is in a run of columns."""
  for row in {0, n // 2, n - 1}:
    columns, _ = _columns(rng, n, width, dtype)
    columns[row, 0] = value
    for info, factor in _factor(library, columns):
      assert info == row + 1
      assert np.isnan(factor).all()


@pytest.mark.parametrize("cols", [1, 3])
@pytest.mark.parametrize("n, width", SHAPES)
def test_solutions_are_those_of_one_thread(library, dtype, n, width, cols, rng):
  columns, a = _columns(rng, n, width, dtype)
  call(library, "thread_banded_cholesky", dtype, n, width, columns)
  b = matrices.general(rng, (), n, cols, dtype)
  expected = b.copy()
  call(library, "thread_banded_solve", dtype, n, width, columns, cols, expected)

  def run(team, order):
    x = np.full_like(b, np.nan)
    call(library, "banded_solve", dtype, team, order, n, width, columns, cols, b, x)
    return (x,)

  for (x,) in in_all_orders(run):
    _check_same_bytes(x, expected)
  wide = expected.astype(np.complex128)
  scale = np.abs(a).sum(1).max(initial=1) * np.abs(wide).max(initial=1)
  assert np.abs(a @ wide - b).max(initial=0) <= 10 * width * np.finfo(dtype).eps * scale
