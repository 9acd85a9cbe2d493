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
