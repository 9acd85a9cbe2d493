"""Eigenproblems of larger Hermitian matrices: panels of the reduction, and joins of halves."""

import numpy as np
import pytest
import scipy.linalg

import matrices
from linalg._catalogue import checks
from phases import call, in_all_orders, padded

pytestmark = pytest.mark.extended


@pytest.mark.parametrize("n, width", [(1, 4), (2, 4), (3, 2), (7, 3), (40, 8), (70, 32), (90, 16)])
def test_reduction(library, dtype, n, width, rng):
  a = matrices.hermitian(rng, (), n, dtype)
  a /= dtype.type(2.0 ** np.frexp(np.abs(a).max())[1])

  def run(team, order):
    given, q = padded(a), np.empty((n, n | 1), dtype)
    d, e = np.zeros(n), np.zeros(max(n - 1, 1))
    call(library, "reduction", dtype, team, order, n, width, given, given.shape[1], d, e,
         q)
    return d, e, q[:, :n]

  for d, e, q in in_all_orders(run, (1, 4, 128, 256)):
    t = np.diag(d) + np.diag(e[: n - 1], 1) + np.diag(e[: n - 1], -1)
    assert checks.orthogonality(q) <= 30
    wide = checks.wide(q)
    assert checks.factorisation(a, wide @ t @ checks.adjoint(wide), checks.eps(q)) <= 30


def _halves(rng, half, kind):
  """The tridiagonal matrix, and the element in its middle."""
  d, e = rng.standard_normal(2 * half), rng.standard_normal(2 * half - 1)
  if kind == "zero":
    e[half - 1] = 0
  elif kind == "tiny":
    e[half - 1] = 1e-20
  elif kind == "equal":
    d[:], e[:] = 1, 0.5
  elif kind == "wilkinson":
    d, e = np.abs(np.arange(2 * half) - half + 0.5), np.ones(2 * half - 1)
  elif kind == "identity":
    d[:], e[:] = 1, 0
    e[half - 1] = 0.25
  elif kind == "graded":
    scales = np.logspace(0, -12, 2 * half)
    d, e = d * scales, e * scales[1:]
  elif kind == "negative":
    e[half - 1] = -3
  elif kind == "subnormal":
    d, e = 1e-312 * d, 1e-312 * e
    d[0] = 1
  elif kind == "cluster":
    d = 1 + 1e-10 * d
    e = 1e-10 * e
  return d, e


@pytest.mark.parametrize("half", [1, 2, 5, 30])
@pytest.mark.parametrize("kind", [
    "general", "zero", "tiny", "equal", "wilkinson", "identity", "graded", "negative", "cluster",
    "subnormal"])
def test_join(library, dtype, half, kind, rng):
  """Eigenvalues and vectors of a tridiagonal matrix from those of its halves."""
  real = np.finfo(dtype).dtype
  d, e = _halves(rng, half, kind)
  t = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
  rho = e[half - 1]
  cut = d.copy()
  cut[half - 1 : half + 1] -= abs(rho)
  parts = [scipy.linalg.eigh(
      np.diag(cut[s]) + np.diag(e[s][: half - 1], 1) + np.diag(e[s][: half - 1], -1))
      for s in (slice(half), slice(half, None))]
  values = np.concatenate([w for w, _ in parts])
  vectors = np.ascontiguousarray([v for _, v in parts], real)

  def run(team, order):
    joined, found = np.empty((2 * half, 2 * half), real), values.copy()
    kept = call(library, "merge", dtype, team, order, half, np.array([rho]), found, vectors, joined)
    return kept, found, joined

  for kept, w, v in in_all_orders(run):
    assert kept == 0 if kind in ("zero", "tiny", "subnormal") else kept > 0
    assert np.all(np.diff(w) >= 0)
    assert checks.orthogonality(v) <= 30
    wide = checks.wide(v)
    assert checks.factorisation(t, (wide * w) @ wide.T, checks.eps(v)) <= 30


BAD = {
    "NaN": [np.nan], "NaNs": [np.nan, -np.nan, np.nan], "infinities": [np.inf, -np.inf],
    "overflow": [1.7e308, -1.7e308, 1.7e308],
    "all": [np.nan, np.inf, 1e300, -np.inf, np.nan, 0.0, -0.0]}


def _spoil(x, bad, rng):
  flat = x.reshape(-1)
  flat[rng.choice(flat.size, min(len(bad), flat.size), replace=False)] = bad[: flat.size]


@pytest.mark.parametrize("half", [1, 2, 5, 30])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("where", ["values", "rho", "vectors", "everywhere"])
def test_join_of_any_numbers(library, dtype, half, bad, where, rng):
  """Places and rows stay permutations, so no index is out of bounds."""
  real = np.finfo(dtype).dtype
  for _ in range(10):
    rho = np.array([rng.standard_normal()])
    values = rng.standard_normal((2, half))
    vectors = np.stack([np.linalg.qr(x)[0] for x in rng.standard_normal((2, half, half))])
    vectors = np.ascontiguousarray(vectors, real)
    for name, x in (("values", values), ("rho", rho), ("vectors", vectors)):
      if where in (name, "everywhere"):
        with np.errstate(over="ignore"):
          _spoil(x, BAD[bad], rng)
    values = np.sort(values).reshape(-1)  # NaN last

    def run(team, order, rho=rho, values=values, vectors=vectors):
      joined, found = np.empty((2 * half, 2 * half), real), values.copy()
      return call(
          library, "merge", dtype, team, order, half, rho, found, vectors, joined), found

    for kept, w in in_all_orders(run, (1, 128)):
      assert kept >= 0
      numbers = w[~np.isnan(w)]
      assert np.all(numbers[1:] >= numbers[:-1])
      assert np.isnan(w[len(numbers):]).all()


def _divide(library, dtype, n, most, d, e, team=32, order=0):
  w, v = np.empty(n), np.empty((n, n), np.finfo(dtype).dtype)
  left = call(library, "divided", dtype, team, order, n, most, d, e, w, v)
  return left, w, v


@pytest.mark.parametrize("n, most", [(33, 32), (70, 8)])
@pytest.mark.parametrize("bad", BAD)
def test_any_numbers(library, dtype, n, most, bad, rng):
  """Leaves and all joins of a matrix that holds NaN or infinities."""
  for _ in range(5):
    d, e = rng.standard_normal(n), rng.standard_normal(n - 1)
    _spoil(d, BAD[bad][::2], rng)
    _spoil(e, BAD[bad][1::2] or BAD[bad], rng)
    left, _, _ = _divide(library, dtype, n, most, d, e)
    assert left >= 0


SPECTRA = ["general", "zero", "equal", "wilkinson", "identity", "glued", "graded", "reversed",
           "cluster", "geometric", "split", "subnormal"]


def _tridiagonal(rng, n, kind):
  """Diagonals of a tridiagonal matrix of a norm near 1."""
  d, e = rng.standard_normal(n), rng.standard_normal(n - 1)
  if kind == "zero":
    d, e = 0 * d, 0 * e
  elif kind == "equal":
    d[:], e[:] = 1, 0.5
  elif kind == "wilkinson":
    d, e = np.abs(np.arange(n) - (n - 1) / 2) / n, np.ones(n - 1) / n
  elif kind == "identity":
    d[:], e = 1, 1e-18 * e
  elif kind == "glued":  # copies of a Wilkinson matrix, with small elements between
    d, e = np.abs(np.arange(n) % 21 - 10.0) / 16, np.ones(n - 1) / 16
    e[20::21] = 1e-8
  elif kind in ("graded", "reversed"):
    scales = np.logspace(0, -40, n)
    d, e = d * scales, e * np.sqrt(scales[1:] * scales[:-1])
    if kind == "reversed":
      d, e = d[::-1], e[::-1]
  elif kind == "cluster":
    d, e = 1 + 1e-12 * d, 1e-12 * e
  elif kind == "geometric":
    d, e = np.logspace(0, -16, n), 0.1 * np.logspace(0, -16, n)[1:]
  elif kind == "split":
    e[rng.random(n - 1) < 0.3] = 0
  elif kind == "subnormal":
    d, e = 1e-312 * d, 1e-312 * e
    d[0] = 1
  scale = max(np.abs(d).max(), np.abs(e).max(initial=0))
  if scale > 1:
    d, e = d / scale, e / scale
  return np.ascontiguousarray(d), np.ascontiguousarray(e)


def _check_divided(d, e, left, w, v):
  t = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
  wide = checks.wide(v)
  assert left == 0
  assert np.all(np.diff(w) >= 0)
  assert checks.orthogonality(v) <= 30
  assert checks.factorisation(t, (wide * w) @ wide.T, checks.eps(v)) <= 30
  exact = scipy.linalg.eigvalsh_tridiagonal(d, e)
  np.testing.assert_allclose(w, exact, rtol=0, atol=30 * np.sqrt(len(d)) * checks.eps(v))


# Leaves without padding, with a row of it, and of padding only: the last of n = 33.
@pytest.mark.parametrize("n, most", [(2, 1), (32, 8), (33, 5), (63, 8), (70, 32)])
@pytest.mark.parametrize("kind", SPECTRA)
def test_divided(library, dtype, n, most, kind, rng):
  d, e = _tridiagonal(rng, n, kind)
  for found in in_all_orders(
      lambda team, order: _divide(library, dtype, n, most, d, e, team, order), (1, 128)):
    _check_divided(d, e, *found)


# At n = 513 to 527 the last leaf is padding only.
@pytest.mark.parametrize("n", [129, 513, 527, 1000, 1024])
@pytest.mark.parametrize("kind", SPECTRA)
def test_large_divided(library, n, kind, rng):
  """In float64, with the leaves of a GPU."""
  d, e = _tridiagonal(rng, n, kind)
  _check_divided(d, e, *_divide(library, np.complex128, n, 32, d, e))
