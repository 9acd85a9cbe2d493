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


def _run_gram(library, gram, sweeps):
  n = len(gram)

  def run(team, order):
    left, rotation = padded(gram), np.full((n, n | 1), np.nan, gram.dtype)
    found = call(
        library, "gram", gram.dtype, team, order, n, sweeps, left, left.shape[1], rotation)
    return found, left[:, :n], rotation[:, :n]

  return in_all_orders(run)


@pytest.mark.parametrize("n", [2, 6, 32])
def test_rotations_from_products(library, dtype, n, rng):
  """Enough sweeps make the rows orthogonal, and the rotations' product is unitary."""
  x = matrices.general(rng, (), n, 2 * n, dtype)
  x[n - 1] *= 1e-3
  for found, left, rotation in _run_gram(library, x @ x.conj().T, 8):
    assert found
    assert checks.orthogonality(rotation) <= 10
    rows = checks.wide(rotation) @ checks.wide(x)
    norms = np.linalg.norm(rows, axis=1)
    products = rows @ rows.conj().T / np.outer(norms, norms)
    assert np.abs(products - np.eye(n)).max() <= 100 * n * checks.eps(x)
    expected = np.linalg.svd(checks.wide(x), compute_uv=False)
    np.testing.assert_allclose(np.sort(norms)[::-1], expected, rtol=1e4 * checks.eps(x))
    np.testing.assert_allclose(
        np.sort(np.diagonal(left).real)[::-1], expected**2, rtol=1e4 * checks.eps(x))


def test_rotations_of_few_sweeps(library, dtype, rng):
  """The largest product falls with the sweeps. Small products need one rotation."""
  x = matrices.general(rng, (), 16, 40, dtype)
  largest = [1.0]
  for sweeps in (1, 3):
    for found, _, rotation in _run_gram(library, x @ x.conj().T, sweeps):
      rows = checks.wide(rotation) @ checks.wide(x)
      norms = np.linalg.norm(rows, axis=1)
      products = np.abs(rows @ rows.conj().T) / np.outer(norms, norms) - np.eye(16)
      assert found
    largest.append(products.max())
    assert largest[-1] < largest[-2] / 2
  small = np.eye(16, dtype=dtype) + np.sqrt(checks.eps(x)).astype(x.real.dtype) / 8
  for found, left, _ in _run_gram(library, small.astype(dtype), 2):
    assert not found
    assert np.abs(left - np.diag(np.diagonal(left))).max() <= 100 * checks.eps(x)


def test_rows_without_a_direction(library, dtype, rng):
  """Zero rows are not rotated, and identities need no rotation."""
  x = matrices.general(rng, (), 8, 8, dtype)
  x[[2, 7]] = 0
  for _, _, rotation in _run_gram(library, x @ x.conj().T, 8):
    np.testing.assert_array_equal(rotation[[2, 7]], np.eye(8)[[2, 7]])
    assert checks.orthogonality(rotation) <= 10
  for found, _, rotation in _run_gram(library, np.diag(np.arange(1, 9)).astype(dtype), 2):
    assert not found
    np.testing.assert_array_equal(rotation, np.eye(8))
