"""Tridiagonal matrices that need pivoting or scaling, or that have singular parts; eigenvectors."""

import numpy as np
import pytest
import scipy.linalg

import linalg
import matrices
from linalg._factorizations.eigh_tridiagonal import eigh_tridiagonal_rows_p

ONE_IN = 3


def _multiply(dl, d, du, x):
  """Returns A x of matrices or of their magnitudes, in double precision."""
  y = d[..., None] * x
  y[..., 1:, :] += dl[..., 1:, None] * x[..., :-1, :]
  y[..., :-1, :] += du[..., :-1, None] * x[..., 1:, :]
  return y


def _check(dl, d, du, b, x):
  """Checks each row relative to the row's elements and to x."""
  eps = np.finfo(np.asarray(x).dtype).eps
  dl, d, du, x = (np.asarray(a, np.complex128) for a in (dl, d, du, x))
  residual = np.abs(_multiply(dl, d, du, x) - b)
  rows = _multiply(*(np.abs(a) for a in (dl, d, du)), np.ones((*d.shape, 1)))
  assert np.all(residual <= 30 * eps * rows * np.abs(x).max((-2, -1), keepdims=True))


def _random(rng, batch, n, dtype, cols=2):
  diagonals = [matrices.general(rng, (batch,), 1, n, dtype)[:, 0] for _ in range(3)]
  return *diagonals, matrices.general(rng, (batch,), n, cols, dtype)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 63, 64, 65, 400])
def test_tridiagonal_solve(n, dtype, rng):
  """Some zeros on the diagonal need pivoting; a system has the same bits in every batch."""
  batch = 19
  dl, d, du, b = _random(rng, batch, n, dtype)
  if n > 1:
    d[:, : n - 1 : 3] = 0
  x, info = linalg.tridiagonal_solve_ex(dl, d, du, b)
  assert not np.any(info)
  _check(dl, d, du, b, x)
  for i in range(batch):
    np.testing.assert_array_equal(linalg.tridiagonal_solve(dl[i], d[i], du[i], b[i]), x[i])


# (lower, diagonal, upper) for n rows. The whole is well-conditioned. Some have parts that are
# singular, or whose solutions grow.
LONG = {
    "no diagonal": lambda n: (np.ones(n), np.zeros(n), np.ones(n)),
    "exchanges": lambda n: (np.arange(n) % 2, np.zeros(n), np.arange(1, n + 1) % 2),
    "growing": lambda n: (np.full(n, -0.9), np.full(n, 0.9), np.ones(n)),
    "growing backwards": lambda n: (np.ones(n), np.full(n, 0.9), np.full(n, -0.9)),
    "oscillating": lambda n: (np.ones(n), np.full(n, -1.2345), np.ones(n)),
    "advection": lambda n: (-np.ones(n), np.full(n, 1e-3), np.ones(n)),
    "Laplacian": lambda n: (-np.ones(n), np.full(n, 2.0), -np.ones(n)),
    "triangular": lambda n: (np.full(n, 0.7), np.ones(n), np.zeros(n)),
    "graded": lambda n: np.outer([1, -3, 1.5], np.logspace(0, -20, n)),
}


@pytest.mark.parametrize("n", [64, 1000, 4098])
@pytest.mark.parametrize("kind", LONG)
def test_long_tridiagonal_systems(kind, n, dtype, rng):
  dl, d, du = (np.asarray(x, dtype) for x in LONG[kind](n))
  b = matrices.general(rng, (), n, 3, dtype)
  x, info = linalg.tridiagonal_solve_ex(dl, d, du, b)
  assert info == 0
  _check(dl, d, du, b, x)


@pytest.mark.parametrize("batch, n", [(4096, 64), (4097, 64), (1, 100_003)])
def test_many_and_large_tridiagonal_systems(batch, n, rng):
  dl, d, du, b = _random(rng, batch, n, np.float32, cols=1)
  d += np.copysign(3, d)
  x, info = linalg.tridiagonal_solve_ex(dl, d, du, b)
  assert not np.any(info)
  _check(dl, d, du, b, x)


def test_singular_tridiagonal_systems(rng):
  """info names the zero pivot, NaN stays in its system, and perturbation makes x finite."""
  d = np.tile([1.0, 0, 2], (3, 1))
  dl, du = np.zeros((3, 3)), np.zeros((3, 3))
  d[0, 1] = 1
  d[2, 0] = np.nan
  x, info = linalg.tridiagonal_solve_ex(dl, d, du, np.ones((3, 3, 1)))
  np.testing.assert_array_equal(info, [0, 2, -1])
  assert np.isfinite(x[0]).all() and np.isnan(x[1:]).all()
  perturbed = linalg.tridiagonal_solve(dl[:2], d[:2], du[:2], np.ones((2, 3, 1)),
                                       perturb_singular=True)
  assert np.isfinite(perturbed).all()
  with pytest.raises(linalg.LinAlgError, match=r"index \(1\) is singular: pivot 2"):
    linalg.checked(linalg.tridiagonal_solve)(dl[:2], d[:2], du[:2], np.ones((2, 3, 1)))


@pytest.mark.parametrize("n", [65, 1001, 20_001])
def test_singular_long_tridiagonal_systems(n, dtype):
  """Algorithms for long systems find every zero pivot that elimination finds."""
  k = n // 3
  dl, d, du = (np.tile(np.asarray(x, dtype), (6, 1)) for x in LONG["Laplacian"](n))
  d[1, [0, -1]] = 1  # constants are null vectors of the first k rows alone
  d[2, [0, k - 1]], dl[2, k], du[2, k - 1] = 1, 0, 0
  du[3, k - 1] = d[3, k] = dl[3, k + 1] = 0
  d[4], dl[4] = 0, 1
  d[5, k] = np.nan
  dl[:, 0] = du[:, -1] = np.nan  # not read
  x, info = linalg.tridiagonal_solve_ex(dl, d, du, np.ones((6, n, 2), dtype))
  assert info[0] == 0 and np.isfinite(x[0]).all()
  np.testing.assert_array_equal(info[1:], [n, k, k + 1, n, -1])
  assert np.isnan(x[1:]).all()
  perturbed = linalg.tridiagonal_solve(
      dl[:5], d[:5], du[:5], np.ones((5, n, 2), dtype), perturb_singular=True)
  assert np.isfinite(perturbed).all()


@pytest.mark.parametrize("n", [21, 65, 1001])
def test_inverse_iteration(n, dtype, rng):
  """Perturbed systems give null vectors, and solve systems that are within rounding of theirs."""
  eps, k = np.finfo(dtype).eps, n // 2
  dl, d, du = (np.tile(np.asarray(x, dtype), (5, 1)) for x in LONG["Laplacian"](n))
  of_middle = np.sin(k * np.pi * np.arange(1, n + 1) / (n + 1))
  d[0] -= np.asarray(2 - 2 * np.cos(k * np.pi / (n + 1)), d.real.dtype)
  d[1, [0, -1]] = 1  # constants are null vectors
  d[2, k] = dl[2, k] = du[2, k] = 0  # a row of zeros in a matrix of another scale
  scale = np.array([1, 1, 2.0**-40, 2.0**40, 1], d.real.dtype)[:, None]
  dl, d, du = dl * scale, d * scale, du * scale
  dl[4] = d[4] = du[4] = 0
  b = matrices.general(rng, (5,), n, 2, dtype)
  x, info = map(np.asarray, linalg.tridiagonal_solve_ex(dl, d, du, b, perturb_singular=True))
  np.testing.assert_array_equal(info, 0)
  assert np.isfinite(x[:4]).all()
  wide = [np.asarray(y, np.result_type(dtype, np.float64)) for y in (dl, d, du, x)]
  residuals = np.abs(_multiply(*wide) - b)
  for i in range(4):
    largest = np.abs(d[i]).max() * np.abs(wide[3][i]).max()
    assert residuals[i].max() <= 30 * n**0.5 * eps * largest
  for vector, found in ((of_middle, x[0]), (np.ones(n), x[1])):
    for y in found.T:
      cosine = abs(np.vdot(vector, y)) / np.linalg.norm(vector) / np.linalg.norm(y)
      assert 1 - cosine <= (30 * n * n * eps) ** 2 + n * eps


def _check_eigenvalues(d, e, scale=1.0):
  """Compared with the matrix whose off-diagonal elements are real and positive."""
  w = np.asarray(linalg.eigh_tridiagonal(d, e, eigvals_only=True)).astype(np.float64) / scale
  assert np.all(np.diff(w) >= 0)
  expected = scipy.linalg.eigvalsh_tridiagonal(
      np.real(d).astype(np.float64) / scale, np.abs(e).astype(np.float64) / scale)
  tolerance = 4 * len(d) * np.finfo(d.dtype).eps * np.abs(expected).max()
  np.testing.assert_allclose(w, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("n", [2, 21, 64, 65, 301])
@pytest.mark.parametrize("kind", ["clusters", "zero", "equal", "split", "graded"])
def test_tridiagonal_eigenvalues(kind, n, dtype, rng):
  d, e = {
      "clusters": lambda: (np.abs(np.arange(n) - n // 2), np.ones(n - 1)),  # Wilkinson's matrix
      "zero": lambda: (np.zeros(n), np.zeros(n - 1)),
      "equal": lambda: (np.ones(n), np.zeros(n - 1)),
      "split": lambda: (np.arange(n) % 5, np.arange(n - 1) % 3),
      "graded": lambda: (np.logspace(0, -30, n), np.logspace(-1, -31, n)[1:]),
  }[kind]()
  phases = np.exp(1j * np.arange(n - 1)) if dtype.kind == "c" else np.ones(n - 1)
  _check_eigenvalues(d.astype(dtype), (e * phases).astype(dtype))


@pytest.mark.parametrize("exponent", [-0.95, -0.5, 0.5, 0.95])
def test_tridiagonal_eigenvalues_out_of_range_when_squared(exponent, dtype, rng):
  n, scale = 40, float(2.0 ** np.floor(exponent * np.log2(float(np.finfo(dtype).max))))
  d = matrices.general(rng, (), 1, n, dtype)[0].real
  e = matrices.general(rng, (), 1, n - 1, dtype)[0]
  _check_eigenvalues((scale * d).astype(dtype), (scale * e).astype(dtype), scale)


@pytest.mark.parametrize("n", [1, 5, 100, 500])
def test_some_rows_of_the_eigenvectors(n, rng):
  """They are rows of one orthogonal matrix, whose merges were made from them alone."""
  d, e = rng.standard_normal(n), rng.standard_normal(n - 1)
  count = -(-n // 3)
  rows = [np.arange(count, dtype=np.int32) + i * count for i in range(3)]
  parts = [eigh_tridiagonal_rows_p(d, e, x) for x in rows]
  w, v = np.asarray(parts[0][0]), np.concatenate([x[1] for x in parts])
  assert v.shape == (3 * count, n) and not v[n:].any()
  for x in parts:
    np.testing.assert_array_equal(x[0], w)
  t, v = np.diag(d) + np.diag(e, 1) + np.diag(e, -1), v[:n]
  scale = 30 * n * np.finfo(float).eps
  assert np.max(np.abs(v.T @ v - np.eye(n))) <= scale
  assert np.max(np.abs(t @ v - v * w)) <= scale * max(np.max(np.abs(w)), 1)
  w_alone, none, _ = eigh_tridiagonal_rows_p(d, e, np.zeros(0, np.int32))
  assert none.shape == (0, n)
  np.testing.assert_array_equal(w_alone, eigh_tridiagonal_rows_p(d, e, rows[0])[0])
