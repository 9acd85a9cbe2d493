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


def _run_schur(library, a):
  n = len(a)

  def run(team, order):
    given = padded(a)
    t, z = np.zeros_like(given), np.zeros_like(given)
    info = call(library, "schur", a.dtype, team, order, n, given, given.shape[1], t, z)
    return info, t[:, :n], z[:, :n]

  return in_all_orders(run)


def _run_eig(library, a, vectors=True):
  n = len(a)
  complex_dtype = np.result_type(a.dtype, np.complex64)

  def run(team, order):
    given = padded(a)
    values, (left, right) = np.zeros(n, complex_dtype), np.zeros((2, n, n), complex_dtype)
    info = call(library, "eig", a.dtype, team, order, n, given, given.shape[1], vectors, values,
                 left, right)
    return (info, values, left, right) if vectors else (info, values)

  return in_all_orders(run)


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


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("kind", GENERAL)
def test_schur(library, dtype, n, kind, rng):
  a = _general(kind, n, dtype, rng)
  scale = 2.0 ** -np.frexp(np.abs(a).max())[1] if a.any() else 1.0
  for info, t, z in _run_schur(library, a):
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
  for info, values in _run_eig(library, a, vectors=False):
    assert info == 0
    trace = np.trace(checks.wide(a) * scale)
    assert abs(checks.wide(values).sum() * scale - trace) <= 30 * n * checks.eps(a)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("kind", GENERAL)
def test_eigenvectors(library, dtype, n, kind, rng):
  a = _general(kind, n, dtype, rng)
  scale = 2.0 ** -np.frexp(np.abs(a).max())[1] if a.any() else 1.0
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
