"""Banded matrices with any number of diagonals, compared with SciPy, and their failures."""

from typing import Any

import jax
import numpy as np
import pytest
import scipy.linalg

import cases
import linalg
import linalg.scipy
import matrices
import selection

ONE_IN = 3

# Numbers of diagonals below and above the main one: none, few, and more than most matrices have.
BANDS = [(0, 0), (1, 1), (2, 0), (0, 3), (3, 5), (9, 4), (20, 30)]


def _rows(n, below, above):
  """Returns the row of A that each element of the diagonals is in."""
  return np.arange(n) + np.arange(-above, below + 1)[:, None]


def _spoilt(ab, above):
  """Puts NaN in the unused corners of the diagonals."""
  row = _rows(ab.shape[-1], ab.shape[-2] - above - 1, above)
  return np.where((row >= 0) & (row < ab.shape[-1]), ab, np.array(np.nan, ab.dtype))


def _dense(ab, above):
  count, n = ab.shape[-2:]
  a = np.zeros((*ab.shape[:-2], n, n), ab.dtype)
  for t in range(count):
    for j in range(n):
      if 0 <= j + t - above < n:
        a[..., j + t - above, j] = ab[..., t, j]
  return a


def _positive(rng, batch, n, width, dtype, lower):
  """Returns (diagonals, dense) of a positive definite matrix."""
  l = _dense(matrices.general(rng, batch, width + 1, n, dtype), 0)
  a = l @ np.swapaxes(l, -1, -2).conj() + np.eye(n, dtype=dtype)
  ab = np.zeros((*batch, width + 1, n), dtype)
  for t in range(min(width + 1, n)):
    if lower:
      ab[..., t, : n - t] = np.diagonal(a, -t, -2, -1)
    else:
      ab[..., width - t, t:] = np.diagonal(a, t, -2, -1)
  return ab, a


def _check_solution(a, b, x):
  eps = np.finfo(np.asarray(x).dtype).eps
  a, x = np.asarray(a, np.complex128), np.asarray(x, np.complex128)
  residual = np.abs(a @ x - b)
  rows = np.abs(a).sum(-1, keepdims=True)
  largest = np.abs(x).max((-2, -1), keepdims=True, initial=0)
  assert np.all(residual <= 100 * eps * (rows.max(-2, keepdims=True, initial=0) * largest + 1))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("bands", BANDS, ids=str)
def test_solve_banded(bands, n, dtype, rng):
  """Normal elements need pivoting; the remainder of a batch has the same bits as the rest."""
  below, above = bands
  batch = 11
  ab = matrices.general(rng, (batch,), below + above + 1, n, dtype)
  ab[:, above, ::3] = 0
  b = matrices.general(rng, (batch,), n, 2, dtype)
  if below == above == 0 or (n > 0 and 0 in bands):
    ab[:, above] = 2 + np.abs(ab[:, above])  # a triangular one would be singular
  if n == 1:
    ab[:, above] = 1
  x = np.asarray(linalg.scipy.solve_banded(bands, _spoilt(ab, above), b))
  a = _dense(ab, above)
  _check_solution(a, b, x)
  for i in (0, batch - 1):
    np.testing.assert_array_equal(
        linalg.scipy.solve_banded(bands, ab[i], b[i]), x[i])
  if 0 < max(bands) < n:
    wide = ab.astype(np.result_type(dtype, np.float64))
    expected = np.stack([
        scipy.linalg.solve_banded(bands, *one) for one in zip(wide, b, strict=True)])
    condition = np.linalg.cond(a.astype(wide.dtype)).max()
    np.testing.assert_allclose(
        x, expected, rtol=0, atol=30 * condition * np.finfo(dtype).eps * np.abs(expected).max())


@selection.one_dtype
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("width", [0, 1, 3, 12])
def test_positive_definite(width, n, lower, dtype, rng):
  """The factor has 0 in its corners, and both solves accept SciPy's factor."""
  batch = 11
  ab, a = _positive(rng, (batch,), n, width, dtype, lower)
  above = 0 if lower else width
  b = matrices.general(rng, (batch,), n, 2, dtype)
  spoilt = _spoilt(ab, above)
  factor = np.asarray(linalg.scipy.cholesky_banded(spoilt, lower=lower))
  assert factor.shape == ab.shape and factor.dtype == dtype
  outside = np.isnan(_spoilt(np.ones_like(factor), above))
  assert not factor[outside].any()
  dense = _dense(factor, above)
  adjoint = np.swapaxes(dense, -1, -2).conj()
  product = dense @ adjoint if lower else adjoint @ dense
  eps = np.finfo(dtype).eps
  np.testing.assert_allclose(
      product, a, rtol=0, atol=30 * eps * np.abs(a).max(initial=0) * (width + 1))
  _check_solution(a, b, linalg.scipy.solveh_banded(spoilt, b, lower=lower))
  x = np.asarray(linalg.scipy.cho_solve_banded((_spoilt(factor, above), lower), b))
  _check_solution(a, b, x)
  for i in (0, batch - 1):
    np.testing.assert_array_equal(
        linalg.scipy.cholesky_banded(ab[i], lower=lower), factor[i])
    np.testing.assert_array_equal(
        linalg.scipy.cho_solve_banded((factor[i], lower), b[i]), x[i])
  if n > width:
    theirs = scipy.linalg.cholesky_banded(ab[0], lower=lower)
    np.testing.assert_allclose(
        np.where(outside[0], 0, theirs), factor[0], rtol=0,
        atol=30 * eps * np.linalg.cond(a[0]) * np.abs(factor[0]).max())


def test_pivoting():
  """Only an exchange of rows gets past a zero or a tiny number on the diagonal."""
  n = 50
  for tiny in (0, 1e-200):
    ab = np.zeros((4, n))
    ab[1], ab[2], ab[3] = tiny, 1, 0.5  # l = 2, u = 1
    ab[0] = 1
    b = np.arange(n, dtype=float)
    x = linalg.scipy.solve_banded((2, 1), ab, b)
    np.testing.assert_allclose(_dense(ab, 1) @ x, b, atol=1e-10)


@pytest.mark.parametrize("batch", [1, 9])
def test_long_systems(batch, rng):
  """Systems with too many rows for any cache; normal elements need pivoting."""
  n, bands = 100_003, (2, 1)
  ab = matrices.general(rng, (batch,), 4, n, np.float64)
  b = matrices.general(rng, (batch,), n, 1, np.float64)
  x = np.asarray(linalg.scipy.solve_banded(bands, ab, b))
  eps = np.finfo(np.float64).eps
  for one, y, side in zip(ab, x, b, strict=True):
    product, size = np.zeros(n), np.zeros(n)
    for t in range(4):
      row = np.arange(n) + t - 1
      inside = (row >= 0) & (row < n)
      np.add.at(product, row[inside], (one[t] * y[:, 0])[inside])
      np.add.at(size, row[inside], abs(one[t] * y[:, 0])[inside])
    error = np.abs(product - side[:, 0])
    assert np.all(error <= 1e3 * eps * np.maximum(size.max(), np.abs(y).max()))
    assert np.isfinite(y).all()
  h = np.zeros((batch, 3, n))
  h[:, 0], h[:, 1] = 3, -1
  solution = np.asarray(linalg.scipy.solveh_banded(h, b, lower=True))
  np.testing.assert_allclose(solution, np.stack([
      scipy.linalg.solveh_banded(one, y, lower=True) for one, y in zip(h, b, strict=True)]),
      rtol=0, atol=1e-13)


def test_failures(rng):
  """Only the failing matrix is NaN and its neighbours keep their bits; `checked` says which and
  where."""
  ab = matrices.general(rng, (5,), 4, 6, np.float64)
  ab[:, 1] += 9
  good = np.asarray(linalg.scipy.solve_banded((2, 1), ab, np.ones(6)[:, None]))
  ab[1, :, 2], ab[2, 1, 4] = 0, np.nan
  ab[4, 0, 5] = np.nan  # no pivot depends on it
  x = np.asarray(linalg.scipy.solve_banded((2, 1), ab, np.ones(6)[:, None]))
  np.testing.assert_array_equal(np.isnan(x).all((1, 2)), [False, True, True, False, True])
  np.testing.assert_array_equal(x[[0, 3]], good[[0, 3]])
  with pytest.raises(
      linalg.LinAlgError, match=r"solve_banded: the matrix at index \(1\) is singular: pivot 3"):
    linalg.checked(lambda ab: linalg.scipy.solve_banded((2, 1), ab, np.ones(6)))(ab[:2])

  for lower in (False, True):
    ab, _ = _positive(rng, (4,), 6, 2, np.float64, lower)
    clean = np.asarray(linalg.scipy.solveh_banded(ab, np.ones(6), lower=lower))
    ab[1, 0 if lower else 2, 3], ab[2, 1, 4] = -1, np.nan
    factor = np.asarray(linalg.scipy.cholesky_banded(ab, lower=lower))
    x = np.asarray(linalg.scipy.solveh_banded(ab, np.ones(6), lower=lower))
    np.testing.assert_array_equal(np.isnan(factor).all((1, 2)), [False, True, True, False])
    np.testing.assert_array_equal(np.isnan(x).all(1), [False, True, True, False])
    np.testing.assert_array_equal(x[[0, 3]], clean[[0, 3]])
    for function in (
        linalg.scipy.cholesky_banded, lambda ab: linalg.scipy.solveh_banded(ab, np.ones(6))):
      if not lower:
        with pytest.raises(linalg.LinAlgError, match=r"index \(1\) is not positive .* order 4"):
          linalg.checked(function)(ab)


@cases.each_double
def test_corners(dtype, rng):
  """Elements outside A may be NaN: gradients have the same bits, and are 0 there."""
  n, below, above = 7, 2, 3
  ab = matrices.general(rng, (3,), below + above + 1, n, dtype)
  ab[:, above] += 9
  b = matrices.general(rng, (3,), n, 2, dtype)
  positive, _ = _positive(rng, (3,), n, 2, dtype, lower=False)
  loss = lambda x: (abs(x) ** 2).sum()
  for function, operand, upper in (
      (lambda ab: linalg.scipy.solve_banded((below, above), ab, b), ab, above),
      (linalg.scipy.cholesky_banded, positive, 2),
      (lambda ab: linalg.scipy.solveh_banded(ab, b), positive, 2),
      (lambda cb: linalg.scipy.cho_solve_banded((cb, False), b), positive, 2)):
    gradient = jax.grad(lambda x, function=function: loss(function(x)))
    spoilt = _spoilt(operand, upper)
    found = np.asarray(gradient(spoilt))
    np.testing.assert_array_equal(found, gradient(operand))
    assert not found[np.isnan(spoilt)].any() and np.isfinite(found).all()


def test_broadcast(rng):
  """One matrix serves a batch of right-hand sides, and a batch of matrices takes one vector."""
  ab = matrices.general(rng, (3,), 3, 5, np.float64)
  ab[:, 1] += 9
  b = matrices.general(rng, (3,), 5, 1, np.float64)
  solve = lambda ab, b: np.asarray(linalg.scipy.solve_banded((1, 1), ab, b))
  assert solve(ab[0], b).shape == (3, 5, 1)
  np.testing.assert_array_equal(solve(ab[0], b)[2], solve(ab[0], b[2]))
  assert solve(ab, b[0, :, 0]).shape == (3, 5)
  np.testing.assert_array_equal(solve(ab, b[0, :, 0])[1], solve(ab[1], b[0, :, 0]))
  assert solve(ab.astype(int), np.ones(5, int)).dtype == np.float64


def test_errors():
  solve: Any = linalg.scipy.solve_banded
  ab, b = np.ones((3, 4)), np.ones(4)
  for l_and_u in ((1,), (-1, 3), (1.5, 0.5), 2):
    with pytest.raises(ValueError, match="l_and_u of solve_banded"):
      solve(l_and_u, ab, b)
  with pytest.raises(ValueError, match=r"ab to solve_banded\(\) must have l \+ u \+ 1 = 4 rows"):
    solve((1, 2), ab, b)
  with pytest.raises(ValueError, match=r"ab to solve_banded\(\) must have shape"):
    solve((1, 1), b, b)
  with pytest.raises(ValueError, match=r"cb to cho_solve_banded\(\) must have shape"):
    linalg.scipy.cho_solve_banded((b, True), b)
  with pytest.raises(ValueError, match=r"the diagonals \(3, 4\) and b \(5,\)"):
    solve((1, 1), ab, np.ones(5))
  with pytest.raises(ValueError, match="A batch of vectors is not told from a matrix"):
    linalg.scipy.solveh_banded(np.ones((3, 2, 4)), np.ones((3, 4)))
  with pytest.raises(ValueError, match=r"cholesky_banded\(\) must have shape.*diagonal"):
    linalg.scipy.cholesky_banded(np.ones((0, 4)))


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (1, 0)], ids=str)
def test_no_rows(shape):
  """SciPy takes a matrix of order 0 without diagonals, as well as with one."""
  ab = np.zeros(shape)
  factor = linalg.scipy.cholesky_banded(ab)
  assert factor.shape == shape
  for solve in (lambda b: linalg.scipy.cho_solve_banded((factor, False), b),
                lambda b: linalg.scipy.solveh_banded(ab, b)):
    assert solve(np.zeros(0)).shape == (*shape[:-2], 0)
    assert solve(np.zeros((0, 3))).shape == (*shape[:-2], 0, 3)
