"""QR factors."""

import numpy as np
import pytest
import scipy.linalg

import matrices
from linalg._catalogue import checks
from phases import TEAMS, call, in_all_orders, integers, padded

pytestmark = pytest.mark.extended


def _run_qr(library, a, q_cols, pivoting):
  m, n = a.shape
  dtype = a.dtype

  def run(team, order):
    given = np.zeros((m, max(n, q_cols)), dtype)
    given[:, :n] = a
    packed = padded(given)
    r, taus = np.empty_like(packed), np.zeros(min(m, n), dtype)
    columns = integers(n) if pivoting else None
    call(
        library, "qr", dtype, team, order, m, n, q_cols, packed, packed.shape[1], r, taus, columns)
    return packed[:, :q_cols], r[:, :n], taus, np.arange(n) if columns is None else columns

  return in_all_orders(run)


SHAPES = [(1, 1), (2, 2), (5, 5), (9, 4), (4, 9), (33, 33), (64, 20), (130, 7), (0, 3), (3, 0)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("pivoting", [False, True])
def test_qr(library, dtype, shape, complete, pivoting, rng):
  m, n = shape
  a = matrices.general(rng, (), m, n, dtype)
  q_cols = m if complete else min(m, n)
  if a.size:
    (raw, taus), *others = scipy.linalg.qr(a, mode="raw", pivoting=pivoting)
  for q, packed, scales, order in _run_qr(library, a, q_cols, pivoting):
    r = np.triu(packed[:q_cols])
    assert checks.orthogonality(q) <= 10
    product = checks.wide(q) @ checks.wide(r)
    assert checks.factorisation(a[:, order], product, checks.eps(a)) <= 10
    if a.size:
      tolerance = 100 * checks.eps(a) * max(m, n)
      np.testing.assert_allclose(packed, raw, atol=tolerance * np.abs(raw).max())
      np.testing.assert_allclose(scales, taus, atol=tolerance)
      if pivoting:
        np.testing.assert_array_equal(order, others[-1])


@pytest.mark.parametrize("exponent", [-1, 1])
@pytest.mark.parametrize("pivoting", [False, True])
def test_qr_of_extremes(library, dtype, exponent, pivoting, rng):
  """Columns whose squares leave the range of the dtype, zero columns, and graded ones."""
  limits = np.finfo(dtype)
  largest = np.sqrt(limits.max) if exponent > 0 else limits.tiny / limits.eps
  a = matrices.general(rng, (), 9, 6, dtype)
  a *= np.asarray(largest if exponent < 0 else limits.max / 1e3, a.real.dtype)
  a[:, 2] = 0
  a[:, 4] *= limits.eps
  for q, packed, _, order in _run_qr(library, a, 6, pivoting):
    r = np.triu(packed[:6])
    assert checks.orthogonality(q) <= 10
    scale = 2.0 ** -np.frexp(np.abs(a).max())[1]
    product = checks.wide(q) @ (checks.wide(r) * scale)
    assert checks.factorisation(checks.wide(a[:, order]) * scale, product, checks.eps(a)) <= 10
    if pivoting:
      diagonal = np.abs(np.diagonal(r)).astype(np.float64)
      assert np.all(diagonal[1:] <= diagonal[:-1] * (1 + 10 * checks.eps(a)))


def _run_panel(library, a, given=None):
  """Returns (factors, taus, V, U) of a panel, or those of given factors and taus."""
  m, n = a.shape

  def run(team, order):
    packed, taus = padded(a), np.zeros(n, a.dtype) if given is None else given.copy()
    v, u = np.empty_like(a), np.empty_like(a)
    call(library, "panel", a.dtype, team, order, m, n, given is not None, packed,
         packed.shape[1], taus, v, u)
    return packed[:, :n], taus, v, u

  # A team has at least a thread for each column.
  return in_all_orders(run, [team for team in TEAMS if team >= n])


@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (40, 3), (33, 16), (200, 32)], ids=str)
def test_panel(library, dtype, shape, rng):
  m, n = shape
  a = matrices.general(rng, (), m, n, dtype)
  (raw, expected), _ = scipy.linalg.qr(a, mode="raw")
  tolerance = 100 * checks.eps(a) * m
  for packed, taus, v, u in _run_panel(library, a):
    np.testing.assert_allclose(packed, raw, atol=tolerance * np.abs(raw).max())
    np.testing.assert_allclose(taus, expected, atol=tolerance)
    np.testing.assert_array_equal(v, np.tril(packed, -1) + np.eye(m, n, dtype=dtype))
    v, u = checks.wide(v), checks.wide(u)
    q = np.eye(m) - u @ v.conj().T
    assert checks.orthogonality(q.astype(dtype)) <= 10
    product = q[:, :n] @ checks.wide(np.triu(packed[:n]))
    assert checks.factorisation(a, product, checks.eps(a)) <= 10
    for _, _, same, again in _run_panel(library, packed, taus):
      np.testing.assert_array_equal(same, v)
      np.testing.assert_allclose(again, u, atol=tolerance)


@pytest.mark.parametrize("exponent", [-1, 1])
def test_panel_of_extremes(library, dtype, exponent, rng):
  """Columns of very different norms, zero columns, and a column that is reflected already."""
  limits = np.finfo(dtype)
  a = matrices.general(rng, (), 40, 8, dtype)
  a *= np.asarray(limits.tiny / limits.eps if exponent < 0 else limits.max / 1e3, a.real.dtype)
  a[:, 2] = a[1:, 0] = 0
  a[:, 4] *= limits.eps
  a[:, 5] /= a.real.dtype.type(np.sqrt(np.abs(a[0, 5])))
  for packed, taus, v, u in _run_panel(library, a):
    scale = 2.0 ** -np.frexp(np.abs(a).max())[1]
    q = np.eye(40) - checks.wide(u) @ checks.wide(v).conj().T
    assert checks.orthogonality(q.astype(dtype)) <= 10
    product = q[:, :8] @ (checks.wide(np.triu(packed[:8])) * scale)
    for j in range(8):
      # Each column has its own error.
      column = checks.wide(a[:, [j]]) * scale
      size = 2.0 ** -np.frexp(np.abs(column).max() or 1)[1]
      assert checks.factorisation(column * size, product[:, [j]] * size, checks.eps(a)) <= 50
    assert taus[2] == 0 and (taus[0] == 0 or np.iscomplexobj(a))
