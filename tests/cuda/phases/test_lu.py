"""LU factors, and results computed from them."""

import numpy as np
import pytest
import scipy.linalg

import linalg
import matrices
from linalg._catalogue import checks
from phases import TEAMS, call, in_all_orders, integers, padded

pytestmark = pytest.mark.extended


@pytest.mark.parametrize(
    "shape", [(0, 0), (0, 3), (3, 0), (1, 1), (5, 5), (17, 6), (6, 17), (64, 64), (65, 65),
              (100, 33), (33, 100), (96, 128), (128, 128)], ids=str)
def test_lu(library, dtype, shape, rng):
  m, n = shape
  a = matrices.general(rng, (), m, n, dtype)

  def run(team, order):
    packed, pivots, rows, again = padded(a), integers(min(m, n)), integers(m), integers(m)
    info = call(
        library, "lu", dtype, team, order, m, n, packed, packed.shape[1], pivots, rows, again)
    return info, packed[:, :n], pivots, rows, again

  expected = linalg.lu(a)
  for info, packed, pivots, permutation, again in in_all_orders(run):
    assert info == 0
    np.testing.assert_array_equal(permutation, again)
    np.testing.assert_array_equal(pivots, expected[1])
    np.testing.assert_array_equal(permutation, expected[2])
    l = np.tril(checks.wide(packed)[:, : min(m, n)], -1) + np.eye(m, min(m, n))
    u = np.triu(checks.wide(packed)[: min(m, n)])
    assert checks.factorisation(a[permutation], l @ u, checks.eps(packed)) <= 10


@pytest.mark.parametrize("team", TEAMS)
def test_lu_info(library, dtype, team, rng):
  n = 18  # three panels, the last one partial
  a = matrices.general(rng, (), n, n, dtype)
  for k in range(n):
    for spoilt, expected in ((0, k + 1), (np.nan, -1)):
      given = a.copy()
      given[:, k] = spoilt
      packed, pivots, rows, again = padded(given), integers(n), integers(n), integers(n)
      info = call(
          library, "lu", dtype, team, 0, n, n, packed, packed.shape[1], pivots, rows, again)
      assert info == expected
      assert np.all((pivots >= np.arange(n)) & (pivots < n))
      np.testing.assert_array_equal(np.sort(rows), np.arange(n))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 33, 100])
def test_determinant(library, dtype, n, rng):
  a = matrices.well_conditioned(rng, (), n, dtype) * 1e3
  a = a.astype(dtype)

  def run(team, order):
    given, det, sign = padded(a), np.zeros(1, dtype), np.zeros(1, dtype)
    logarithm = np.zeros(1, det.real.dtype)
    call(
        library, "determinant", dtype, team, order, n, given, given.shape[1], det, sign, logarithm)
    return det, sign, logarithm

  expected_sign, expected = np.linalg.slogdet(checks.wide(a))
  for det, sign, logarithm in in_all_orders(run):
    tolerance = 100 * checks.eps(det) * max(n, 1)
    np.testing.assert_allclose(sign[0], expected_sign, atol=tolerance)
    np.testing.assert_allclose(logarithm[0], expected, rtol=tolerance, atol=tolerance)
    with np.errstate(over="ignore"):
      assert np.isfinite(det[0]) == (expected < np.log(np.finfo(dtype).max))


@pytest.mark.parametrize("n", [1, 2, 5, 33, 65, 128])
@pytest.mark.parametrize("cols", [1, 7, 40])
def test_solve(library, dtype, n, cols, rng):
  a = matrices.well_conditioned(rng, (), n, dtype)[rng.permutation(n)]  # rows are exchanged
  b = matrices.general(rng, (), n, cols, dtype)

  def run(team, order):
    given, rhs, x = padded(a), padded(b), padded(b)
    info = call(library, "solve", dtype, team, order, n, given, given.shape[1], cols, rhs,
                 rhs.shape[1], x)
    return info, x[:, :cols]

  for info, x in in_all_orders(run):
    assert info == 0
    assert checks.solution(a, x, b) <= 10


@pytest.mark.parametrize("n", [1, 2, 5, 33, 65, 127])
def test_inverse(library, dtype, n, rng):
  a = matrices.well_conditioned(rng, (), n, dtype)[rng.permutation(n)]

  def run(team, order):
    given, inverse = padded(a), padded(a)
    info = call(library, "inverse", dtype, team, order, n, given, given.shape[1], inverse)
    return info, inverse[:, :n]

  for info, inverse in in_all_orders(run):
    assert info == 0
    assert checks.solution(a, inverse, np.eye(n, dtype=dtype)) <= 10


@pytest.mark.parametrize("value, expected", [(0, 3), (np.nan, -1)])
def test_singular(library, dtype, value, expected, rng):
  """Solutions with a singular matrix are NaN throughout."""
  n = 5
  a = matrices.general(rng, (), n, n, dtype)
  a[:, 2] = value
  for name in ("solve", "inverse"):
    given, result = padded(a), padded(a)
    rhs = (n, padded(a, fill=1), given.shape[1]) if name == "solve" else ()
    info = call(library, name, dtype, 4, 0, n, given, given.shape[1], *rhs, result)
    assert info == expected
    assert np.isnan(result[:, :n]).all()


@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("n, cols", [(13, 7), (70, 1)])
def test_lu_solve(library, dtype, trans, n, cols, rng):
  a = matrices.well_conditioned(rng, (), n, dtype)[rng.permutation(n)]
  packed, pivots = scipy.linalg.lu_factor(a)
  b = matrices.general(rng, (), n, cols, dtype)

  def run(team, order):
    given, x = padded(packed), padded(b)
    call(library, "lu_solve", dtype, team, order, n, given, given.shape[1],
          pivots.astype(np.int32), trans > 0, trans == 2, cols, x, x.shape[1])
    return (x[:, :cols],)

  for (x,) in in_all_orders(run):
    assert checks.solution((a, a.T, a.conj().T)[trans], x, b) <= 10


@pytest.mark.parametrize("back", [False, True])
def test_pivots(library, back, rng):
  n = 12
  pivots = rng.integers(-1, n + 1, n).astype(np.int32)  # some exchange nothing
  b = rng.standard_normal((n, 5)).astype(np.float32)
  expected = b.copy()
  for k in reversed(range(n)) if back else range(n):
    if 0 <= pivots[k] < n:
      expected[[k, pivots[k]]] = expected[[pivots[k], k]]

  def run(team, order):
    a, x = padded(np.eye(n, dtype=np.float32)), padded(b)
    call(library, "lu_solve", np.float32, team, order, n, a, a.shape[1], pivots, back, 0, 5, x,
          x.shape[1])
    return (x[:, :5],)

  for (x,) in in_all_orders(run):
    np.testing.assert_array_equal(x, expected)
