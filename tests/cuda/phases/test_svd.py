"""Singular values and vectors."""

import numpy as np
import pytest

import matrices
from linalg._catalogue import checks
from phases import call, in_all_orders, padded

pytestmark = pytest.mark.extended


def _run_svd(library, a, width, vectors=True):
  m, n = a.shape

  def run(team, order):
    given = np.full((m, width), np.nan, a.dtype)
    given[:, :n] = a
    given, v, s = padded(given), np.full((n, n), np.nan, a.dtype), np.zeros(n, a.real.dtype)
    info = call(
        library, "svd", a.dtype, team, order, m, n, width, vectors, given, given.shape[1], v, s)
    return info, given[:, :width], s, v

  return in_all_orders(run)


def _check_svd(a, u, s, v):
  s, product = checks.wide(s), checks.wide(u)[:, : len(s)] * checks.wide(s)
  assert np.all(s >= 0) and np.all(np.diff(s) <= 0)
  assert checks.orthogonality(u) <= 30
  assert checks.orthogonality(v) <= 30
  assert checks.factorisation(a, product @ checks.adjoint(checks.wide(v)), checks.eps(v)) <= 30


@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 2), (3, 1), (5, 5), (9, 4), (33, 33), (64, 20), (64, 64), (130, 7)],
    ids=str)
@pytest.mark.parametrize("full", [True, False])
def test_svd(library, dtype, shape, full, rng):
  m, n = shape
  a = matrices.general(rng, (), m, n, dtype)
  for info, u, s, v in _run_svd(library, a, m if full else n):
    assert info == 0
    _check_svd(a, u, s, v)
  expected = np.linalg.svd(checks.wide(a), compute_uv=False)
  for info, _, s, _ in _run_svd(library, a, n, vectors=False):
    assert info == 0
    np.testing.assert_allclose(s, expected, rtol=0, atol=10 * m * checks.eps(a) * expected[0])


@pytest.mark.parametrize("kind", [
    "zero", "identity", "repeated", "graded", "huge", "tiny", "ones", "empty columns", "low rank"])
@pytest.mark.parametrize("shape", [(12, 12), (17, 6)], ids=str)
def test_svd_of_special_matrices(library, dtype, kind, shape, rng):
  """Matrices whose columns have no direction, or whose squares leave the range of the dtype."""
  m, n = shape
  limits = np.finfo(dtype)
  general = matrices.general(rng, (), m, n, dtype)
  u, v = np.linalg.qr(general)[0], np.linalg.qr(general[:n])[0]
  a = {
      "zero": lambda: np.zeros((m, n)),
      "identity": lambda: np.eye(m, n),
      "repeated": lambda: (u * np.repeat([3, 2, 1], n // 3)) @ v,
      "graded": lambda: (u * np.logspace(0, -30, n)) @ v,
      "huge": lambda: general * float(limits.max / 1e3),
      "tiny": lambda: general * float(limits.tiny * 1e3),
      "ones": lambda: np.ones((m, n)),
      "empty columns": lambda: general * (np.arange(n) % 2),
      "low rank": lambda: general[:, :2] @ general[:2],
  }[kind]().astype(dtype)
  scale = 2.0 ** -np.frexp(np.abs(a).max())[1] if a.any() else 1.0
  for info, u, s, v in _run_svd(library, a, m):
    assert info == 0
    _check_svd(checks.wide(a) * scale, u, checks.wide(s) * scale, v)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_svd_of_what_is_not_finite(library, dtype, value, rng):
  a = matrices.general(rng, (), 5, 3, dtype)
  a[3, 1] = value
  for info, *_ in _run_svd(library, a, 3):
    assert info == -1
