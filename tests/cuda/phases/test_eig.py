"""Hessenberg and Schur forms, eigenvalues and eigenvectors of general matrices."""

import numpy as np
import pytest
import scipy.linalg

import matrices
from linalg._catalogue import checks
from phases import call, in_all_orders, padded

pytestmark = pytest.mark.extended


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33, 64])
def test_hessenberg(library, dtype, n, rng):
  a = matrices.general(rng, (), n, n, dtype)

  def run(team, order):
    given = padded(a)
    h, q = np.empty_like(given), np.empty_like(given)
    call(library, "hessenberg", dtype, team, order, n, given, given.shape[1], h, q)
    return h[:, :n], q[:, :n]

  expected = scipy.linalg.hessenberg(checks.wide(a))
  for h, q in in_all_orders(run):
    assert not np.tril(h, -2).any()
    assert checks.orthogonality(q) <= 10
    product = checks.wide(q) @ checks.wide(h) @ checks.adjoint(checks.wide(q))
    assert checks.factorisation(a, product, checks.eps(a)) <= 10
    assert not np.diagonal(h, -1).imag.any()
    np.testing.assert_allclose(np.sign(np.diagonal(h, -1).real[:-1]),
                               np.sign(np.diagonal(expected, -1).real[:-1]))


def _windows(windows):
  """The name and arguments of a function with windows: "small" ones, or "full" ones of CUDA."""
  return ("", ()) if windows is None else ("_windows", (windows == "small",))


def _schur(library, a, team, order, windows=None):
  n = len(a)
  given = padded(a)
  t, z = np.zeros_like(given), np.zeros_like(given)
  suffix, chosen = _windows(windows)
  info = call(library, f"schur{suffix}", a.dtype, team, order, n, given, given.shape[1], *chosen, t,
              z)
  return info, t[:, :n], z[:, :n]


def _run_schur(library, a, windows=None):
  return in_all_orders(lambda team, order: _schur(library, a, team, order, windows))


def _eig(library, a, team, order, vectors=True, windows=None):
  n = len(a)
  complex_dtype = np.result_type(a.dtype, np.complex64)
  given = padded(a)
  values, (left, right) = np.zeros(n, complex_dtype), np.zeros((2, n, n), complex_dtype)
  suffix, chosen = _windows(windows)
  info = call(library, f"eig{suffix}", a.dtype, team, order, n, given, given.shape[1], *chosen,
              vectors, values, left, right)
  return (info, values, left, right) if vectors else (info, values)


def _run_eig(library, a, vectors=True, windows=None):
  return in_all_orders(lambda team, order: _eig(library, a, team, order, vectors, windows))


def _general(kind, n, dtype, rng):
  """Matrices that are hard for eig: block, defective, unbalanced or spoilt by balancing.

  Others have equal eigenvalues or need an exceptional shift.
  """
  limits = np.finfo(dtype)
  a = matrices.general(rng, (), n, n, dtype)
  scales = np.logspace(-4, 4, n)
  return {
      "general": lambda: a,
      "zero": lambda: np.zeros((n, n)),
      "identity": lambda: np.eye(n),
      "ones": lambda: np.ones((n, n)),
      "upper": lambda: np.triu(a),
      "lower": lambda: np.tril(a, -1) / 4 + np.diag(1 + np.arange(n) / n),
      "skew": lambda: a - a.T,
      "orthogonal": lambda: np.linalg.qr(a)[0],
      "cyclic": lambda: np.roll(np.eye(n), 1, axis=0),
      "rotations": lambda: np.kron(np.eye(n), [[0, 1], [-1, 0]])[:n, :n],
      "jordan": lambda: np.eye(n) / 2 + np.eye(n, k=1),
      "companion": lambda: scipy.linalg.companion(np.poly(np.linspace(1, 2, n))),
      "unbalanced": lambda: scales[:, None] * a / scales,
      "isolated": lambda: np.tril(a, -1) + np.diag(np.logspace(0, -20, n)),
      "rank": lambda: np.linalg.qr(a[:, :2] @ a[:2])[1].T,
      "frank": lambda: np.triu(n - np.maximum.outer(np.arange(n), np.arange(n)), -1),
      "huge": lambda: a * float(limits.max / 1e3),
      "tiny": lambda: a * float(limits.tiny * 1e3),
  }[kind]().astype(dtype)


GENERAL = (
    "general", "zero", "identity", "ones", "upper", "lower", "skew", "orthogonal", "cyclic",
    "rotations", "jordan", "companion", "unbalanced", "isolated", "rank", "frank", "huge", "tiny")


def _scale(a):
  return 2.0 ** -np.frexp(np.abs(a).max())[1] if a.any() else 1.0


def _check_schur(a, info, t, z):
  scale = _scale(a)
  assert info == 0
  assert checks.orthogonality(z) <= 30
  wide = checks.wide(t) * scale
  product = checks.wide(z) @ wide @ checks.adjoint(checks.wide(z))
  assert checks.factorisation(checks.wide(a) * scale, product, checks.eps(a)) <= 30
  below = np.diagonal(t, -1)
  assert not np.tril(t, -2).any()
  assert not (below[1:] * below[:-1]).any()
  if np.iscomplexobj(a):
    assert not below.any()
  else:
    (first,) = np.nonzero(below)
    assert np.all(t[first, first] == t[first + 1, first + 1])
    assert np.all(wide[first, first + 1] * wide[first + 1, first] < 0)


def _check_values(a, info, values):
  scale = _scale(a)
  assert info == 0
  trace = np.trace(checks.wide(a) * scale)
  assert abs(checks.wide(values).sum() * scale - trace) <= 30 * len(a) * checks.eps(a)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("kind", GENERAL)
def test_schur(library, dtype, n, kind, rng):
  a = _general(kind, n, dtype, rng)
  for info, t, z in _run_schur(library, a):
    _check_schur(a, info, t, z)
  for info, values in _run_eig(library, a, vectors=False):
    _check_values(a, info, values)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("kind", GENERAL)
def test_eigenvectors(library, dtype, n, kind, rng):
  a = _general(kind, n, dtype, rng)
  scale = _scale(a)
  wide = checks.wide(a) * scale
  for info, values, left, right in _run_eig(library, a):
    assert info == 0
    w = checks.wide(values) * scale
    for matrix, lambdas, vectors in (
        (wide, w, checks.wide(right)), (checks.adjoint(wide), np.conj(w), checks.wide(left))):
      residual = np.abs(matrix @ vectors - vectors * lambdas).max()
      size = max(np.abs(matrix).sum(axis=0).max(), np.finfo(np.float64).tiny)
      assert residual <= 30 * n * checks.eps(a) * size
      np.testing.assert_allclose(
          np.linalg.norm(vectors, axis=0), 1, rtol=0, atol=30 * checks.eps(a))
      sizes = np.abs(vectors)
      largest = sizes >= (1 - 10 * checks.eps(a)) * sizes.max(axis=0)  # up to rounding
      assert np.all(np.any(largest & (vectors.imag == 0), axis=0))
    if not np.iscomplexobj(a):  # complex eigenvalues are in pairs, and real ones have real vectors
      np.testing.assert_array_equal(np.sort_complex(values), np.sort_complex(values.conj()))
      assert not right[:, values.imag == 0].imag.any()


@pytest.mark.parametrize("n", [1, 2, 9, 33])
def test_eigenvalues_of_permuted_triangles(library, dtype, n, rng):
  """The eigenvalues are the diagonal's elements, to the last bit."""
  order = rng.permutation(n)
  a = np.triu(matrices.general(rng, (), n, n, dtype))[order][:, order]
  for info, values, *_ in _run_eig(library, a):
    assert info == 0
    np.testing.assert_array_equal(np.sort_complex(values), np.sort_complex(np.diagonal(a)))


@pytest.mark.parametrize("n", [3, 10])
def test_balance(library, dtype, n, rng):
  """Rounding of the largest elements would lose the eigenvalues unless D spans thirty decades."""
  del rng
  a = np.eye(n, k=1, dtype=dtype)
  a[-1, 0] = 1e-30
  for info, values, *_ in _run_eig(library, a):
    assert info == 0
    np.testing.assert_allclose(np.abs(values), 1e-30 ** (1 / n), rtol=100 * checks.eps(a))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_schur_of_what_is_not_finite(library, dtype, value, rng):
  a = matrices.general(rng, (), 5, 5, dtype)
  a[3, 1] = value
  for info, *results in (*_run_schur(library, a), *_run_eig(library, a)):
    assert info == -1
    assert all(np.isnan(x).all() for x in results)


# Spectra that deflate at once, late, or in clusters.
COMPLEX = (
    *GENERAL, "hessenberg", "graded rows", "graded columns", "clustered", "defective", "normal",
    "blocks")


def _complex(kind, n, dtype, rng):
  a = matrices.general(rng, (), n, n, np.complex128)
  if kind == "companion":  # with the coefficients of `_general` it would overflow
    return scipy.linalg.companion(np.append(1, a[0])).astype(dtype)
  if kind in GENERAL:
    return _general(kind, n, dtype, rng)
  q, steps = np.linalg.qr(a)[0], np.arange(n) // 8 + 1.0
  grades = np.logspace(0, -12, n)
  return {
      "hessenberg": lambda: np.triu(a, -1),
      "graded rows": lambda: grades[:, None] * a,
      "graded columns": lambda: a * grades,
      "clustered": lambda: q * steps @ q.conj().T + 1e-10 * a,
      "defective": lambda: q @ (np.diag(steps) + np.eye(n, k=1)) @ q.conj().T,
      "normal": lambda: q * a[0] @ q.conj().T,
      "blocks": lambda: np.kron(np.eye(n), np.ones((11, 11)))[:n, :n] * a,
  }[kind]().astype(dtype)


with_complex = pytest.mark.parametrize("dtype", [np.complex64, np.complex128])


@with_complex
@pytest.mark.parametrize("n", [1, 8, 9, 12, 17, 33])
@pytest.mark.parametrize("kind", COMPLEX)
def test_schur_with_small_windows(library, dtype, n, kind, rng):
  """Windows have 8 rows, so that many chains pass through several of them."""
  a = _complex(kind, n, dtype, rng)
  for info, t, z in _run_schur(library, a, "small"):
    _check_schur(a, info, t, z)
  for info, values in _run_eig(library, a, vectors=False, windows="small"):
    _check_values(a, info, values)
  for info, values, _, right in _run_eig(library, a, windows="small"):
    _check_values(a, info, values)
    wide, vectors = checks.wide(a) * _scale(a), checks.wide(right)
    residual = np.abs(wide @ vectors - vectors * (checks.wide(values) * _scale(a))).max()
    assert residual <= 30 * n * checks.eps(a) * max(np.abs(wide).sum(axis=0).max(), 1e-300)


@with_complex
@pytest.mark.parametrize("n", [65, 129, 256])
@pytest.mark.parametrize("kind", COMPLEX)
def test_schur_with_windows(library, dtype, n, kind, rng):
  """The windows of CUDA's jobs. Orders of the threads are those of small windows."""
  a = _complex(kind, n, dtype, rng)
  _check_schur(a, *_schur(library, a, 32, 0, "full"))


@with_complex
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_windows_of_what_is_not_finite(library, dtype, value, rng):
  a = matrices.general(rng, (), 20, 20, dtype)
  a[3, 1] = value
  for info, *results in _run_schur(library, a, "small"):
    assert info == -1
    assert all(np.isnan(x).all() for x in results)
