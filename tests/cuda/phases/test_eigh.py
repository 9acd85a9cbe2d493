"""Eigenvalues and eigenvectors of Hermitian matrices."""

import numpy as np
import pytest
import scipy.linalg

import matrices
from linalg._catalogue import checks
from phases import call, in_all_orders, padded

pytestmark = pytest.mark.extended


def _run_eigh(library, a, lower=True, symmetrize=True, vectors=True, most=None):
  n, dtype = len(a), a.dtype
  most = n * n + 8 * n if most is None else most

  def run(team, order):
    given = padded(a)
    v, w = np.full_like(given, np.nan), np.zeros(n, a.real.dtype)
    info = call(library, "eigh", dtype, team, order, n, given, given.shape[1], lower, symmetrize,
                 vectors, most, v, w)
    return info, w, v[:, :n]

  return in_all_orders(run)


def _check_eigh(a, w, v):
  w, wide_v = checks.wide(w), checks.wide(v)
  assert np.all(np.diff(w) >= 0)
  assert checks.orthogonality(v) <= 30
  assert checks.factorisation(a, (wide_v * w) @ checks.adjoint(wide_v), checks.eps(v)) <= 30


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 17, 33, 64, 65, 100, 128])
def test_eigh(library, dtype, n, rng):
  a = matrices.hermitian(rng, (), n, dtype)
  for (info, w, v), (without, values, _) in zip(
      _run_eigh(library, a), _run_eigh(library, a, vectors=False), strict=True):
    assert info == without == 0
    _check_eigh(a, w, v)
    np.testing.assert_array_equal(values, w)
    np.testing.assert_allclose(
        values, np.linalg.eigvalsh(checks.wide(a)), rtol=0,
        atol=10 * max(n, 1) * checks.eps(a) * max(1, np.abs(w).max(initial=0)))


@pytest.mark.parametrize("n", [3, 33])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_eigh_without_room(library, dtype, n, rows, rng):
  """When the record of rotations is full, the iteration applies it and continues."""
  a = matrices.hermitian(rng, (), n, dtype)
  expected = [(w, v) for _, w, v in _run_eigh(library, a)]
  for (info, w, v), (w_at_once, v_at_once) in zip(
      _run_eigh(library, a, most=rows * n), expected, strict=True):
    assert info == 0
    np.testing.assert_array_equal(w, w_at_once)
    np.testing.assert_array_equal(v, v_at_once)


@pytest.mark.parametrize("lower", [True, False])
def test_eigh_reads_one_triangle(library, dtype, lower, rng):
  n = 6
  a = matrices.hermitian(rng, (), n, dtype)
  given = a.copy()
  given[np.tri(n, k=-1, dtype=bool).T if lower else np.tri(n, k=-1, dtype=bool)] = np.nan
  for info, w, v in _run_eigh(library, given, lower, symmetrize=False):
    assert info == 0
    _check_eigh(a, w, v)


@pytest.mark.parametrize("n", [12, 65])
@pytest.mark.parametrize("kind", [
    "zero", "identity", "repeated", "cluster", "graded", "graded rows", "huge", "tiny", "ones",
    "rank", "wilkinson", "blocks"])
def test_eigh_of_special_matrices(library, dtype, kind, n, rng):
  limits = np.finfo(dtype)
  general = matrices.general(rng, (), n, n, dtype)
  q = np.linalg.qr(general)[0]
  scales = np.logspace(0, -20, n)
  a = {
      "zero": lambda: np.zeros((n, n)),
      "identity": lambda: np.eye(n),
      "repeated": lambda: (q * (1 + np.arange(n) // 4)) @ q.conj().T,
      "cluster": lambda: (q * (1 + limits.eps * np.arange(n))) @ q.conj().T,
      "graded": lambda: (q * np.logspace(0, -12, n)) @ q.conj().T,
      "graded rows": lambda: scales[:, None] * (general + general.conj().T) * scales,
      "huge": lambda: matrices.hermitian(rng, (), n, dtype) * float(limits.max / 1e3),
      "tiny": lambda: matrices.hermitian(rng, (), n, dtype) * float(limits.tiny * 1e3),
      "ones": lambda: np.ones((n, n)),
      "rank": lambda: general[:, :1] @ general[:, :1].conj().T,
      "wilkinson": lambda: (
          np.diag(np.abs(np.arange(n) - (n - 1) / 2)) + np.eye(n, k=1) + np.eye(n, k=-1)),
      "blocks": lambda: np.kron(np.eye(n), [[0, 1], [1, 0]])[:n, :n],
  }[kind]().astype(dtype)
  a = (a / 2 + a.conj().T / 2).astype(dtype)
  scale = 2.0 ** -np.frexp(np.abs(a).max())[1] if a.any() else 1.0
  for info, w, v in _run_eigh(library, a):
    assert info == 0
    _check_eigh(checks.wide(a) * scale, checks.wide(w) * scale, v)


@pytest.mark.parametrize("n", [16, 64, 128])
def test_eigenvalues_lose_no_more_than_lapacks(library, n, rng):
  """Rounding errors of the sweeps do not accumulate in float32 eigenvalues.

  Divide and conquer is the reference, as in tests/values/test_eigenvalue_errors.py.
  """
  errors = []
  for _ in range(20):
    a = matrices.hermitian(rng, (), n, np.float32)
    exact = np.linalg.eigvalsh(checks.wide(a))
    *_, (_, w, _) = _run_eigh(library, a)
    errors.append([np.max(np.abs(checks.wide(x) - exact)) for x in (w, scipy.linalg.eigh(
        a, driver="evd")[0])])
  ours, lapacks = np.mean(errors, axis=0)
  assert ours <= 1.25 * lapacks


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_eigh_of_what_is_not_finite(library, dtype, value, rng):
  a = matrices.hermitian(rng, (), 5, dtype)
  a[3, 1] = a[1, 3] = value
  for info, w, v in _run_eigh(library, a):
    assert info == -1
    assert np.isnan(w).all() and np.isnan(v).all()
