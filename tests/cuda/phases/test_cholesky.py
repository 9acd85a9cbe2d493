"""Cholesky factors, and solves with them."""

import numpy as np
import pytest
import scipy.linalg

import matrices
from linalg._catalogue import checks
from phases import TEAMS, call, in_all_orders, padded

pytestmark = pytest.mark.extended


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 17, 33, 64, 100, 127, 128])
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(library, dtype, n, lower, rng):
  a = matrices.positive_definite(rng, (), n, dtype)
  triangle = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
  given = np.where(triangle, a, np.nan)  # elements that must not be read are NaN
  given = given.astype(dtype)

  def run(team, order):
    matrix, factor = padded(given), padded(given)
    info = call(
        library, "cholesky", dtype, team, order, n, matrix, matrix.shape[1], lower, 0, factor)
    return info, factor[:, :n]

  for info, factor in in_all_orders(run):
    assert info == 0
    assert not factor[~triangle].any()
    l = checks.wide(factor) if lower else checks.adjoint(checks.wide(factor))
    assert checks.factorisation(a, l @ checks.adjoint(l), checks.eps(factor)) <= 10


@pytest.mark.parametrize("below", [0, 1, 70])
@pytest.mark.parametrize("n", [16, 32])
def test_panel(library, dtype, n, below, rng):
  """The rows below a diagonal block become rows of the factor."""
  a = matrices.positive_definite(rng, (), n + below, dtype)[:, :n]
  given = np.where(np.tri(n + below, n, dtype=bool), a, 0)

  def run(team, order):
    panel = padded(given)
    info = call(
        library, "cholesky_panel", dtype, team, order, n + below, n, panel, panel.shape[1])
    return info, panel[n:, :n]

  expected = np.linalg.cholesky(checks.wide(a[:n]))
  for info, rows in in_all_orders(run):
    assert info == 0
    product = checks.wide(rows) @ checks.adjoint(expected)
    error = np.abs(product - a[n:]).max(initial=0)
    assert error <= 10 * n * checks.eps(rows) * np.abs(a).max()


def test_infinite_pivot(library, dtype, rng):
  """The column below an infinite pivot is 0, as in LAPACK's factor."""
  n = 18
  a = matrices.positive_definite(rng, (), n, dtype)
  for k in (0, 7, n - 1):
    given = a.copy()
    given[k, k] = np.inf
    for team in TEAMS:
      matrix, factor = padded(given), padded(given)
      assert call(
          library, "cholesky", dtype, team, 0, n, matrix, matrix.shape[1], 1, 1, factor) == 0
      assert factor[k, k] == np.inf and not factor[k + 1 : n, k].any()
      rest = np.delete(np.delete(factor[:, :n], k, 0), k, 1)
      expected = np.linalg.cholesky(np.delete(np.delete(a, k, 0), k, 1))
      assert np.max(np.abs(rest - expected)) <= 10 * n * checks.eps(a) * np.max(np.abs(expected))


@pytest.mark.parametrize("value", [-1, 0, np.nan])
def test_cholesky_failure(library, dtype, value, rng):
  n = 18  # three panels, the last one partial
  a = matrices.positive_definite(rng, (), n, dtype)
  for k in range(n):
    given = a.copy()
    given[k, k] = value
    for team in TEAMS:
      matrix, factor = padded(given), padded(given)
      info = call(
          library, "cholesky", dtype, team, 0, n, matrix, matrix.shape[1], 1, 1, factor)
      assert info == k + 1
      np.testing.assert_array_equal(np.isnan(factor[:, :n]), np.tri(n, dtype=bool))


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n, cols", [(13, 7), (70, 1)])
def test_cholesky_solve(library, dtype, lower, n, cols, rng):
  a = matrices.positive_definite(rng, (), n, dtype)
  factor = scipy.linalg.cholesky(a, lower=lower)
  factor[np.tri(n, k=-1, dtype=bool).T if lower else np.tri(n, k=-1, dtype=bool)] = np.nan
  b = matrices.general(rng, (), n, cols, dtype)

  def run(team, order):
    given, x = padded(factor), padded(b)
    call(library, "cholesky_solve", dtype, team, order, n, given, given.shape[1], lower, cols, x,
          x.shape[1])
    return (x[:, :cols],)

  for (x,) in in_all_orders(run):
    assert checks.solution(a, x, b) <= 10
