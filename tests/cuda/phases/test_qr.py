"""QR factors."""

import numpy as np
import pytest
import scipy.linalg

import matrices
from linalg._catalogue import checks
from phases import call, in_all_orders, integers, padded

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
