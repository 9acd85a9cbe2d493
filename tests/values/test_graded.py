"""Matrices whose rows or columns differ widely in scale."""

import numpy as np
import pytest
import scipy.linalg

import linalg
import matrices
from linalg._catalogue import checks
from quick import quick_jit
from sharded import same_bits

ALL_DTYPES = True
ONE_IN = 3
# LAPACK computes the last size.
EIGENVALUE_SIZES = (3, 7, 20, 66)
# Large enough that several threads share it.
SHARED = 520


def _graded_rows(rng, batch, n, dtype, decades):
  """Random matrices whose rows are scaled by random powers of ten."""
  a = rng.standard_normal((batch, n, n))
  if np.issubdtype(dtype, np.complexfloating):
    a = a + 1j * rng.standard_normal((batch, n, n))
  return (a * 10.0 ** rng.integers(-decades, decades + 1, (batch, n, 1))).astype(dtype)


def _wide(x):
  x = np.asarray(x)
  return x.astype(np.clongdouble if np.iscomplexobj(x) else np.longdouble)


def _decades(dtype):
  return 18 if np.finfo(dtype).bits == 32 else 150


def _check_similarity(a, t, z, limit):
  """Z is unitary and Z T Zᴴ is A, to `limit` n eps."""
  limit = limit * a.shape[-1] * float(np.finfo(a.dtype).eps)
  a, t, z = map(_wide, (a, t, z))
  adjoint = z.conj().swapaxes(-1, -2)
  assert np.max(np.abs(adjoint @ z - np.eye(a.shape[-1]))) <= limit
  residual = np.max(np.abs(z @ t @ adjoint - a), axis=(-1, -2))
  assert np.max(residual / np.max(np.abs(a), axis=(-1, -2))) <= limit


@pytest.mark.parametrize("n", EIGENVALUE_SIZES)
def test_schur_vectors_are_unitary(dtype, n, rng):
  """SciPy fails some of these, because gees divides subnormal numbers by their modulus."""
  a = _graded_rows(rng, 6000 // n, n, dtype, _decades(dtype))
  t, z = linalg.schur(a)
  _check_similarity(a, t, z, 16)


@pytest.mark.parametrize("n", EIGENVALUE_SIZES)
def test_hessenberg_vectors_are_unitary(dtype, n, rng):
  a = _graded_rows(rng, 2000 // n, n, dtype, _decades(dtype))
  h, q = linalg.hessenberg(a, calc_q=True)
  _check_similarity(a, h, q, 8)


@pytest.mark.parametrize("n", EIGENVALUE_SIZES)
def test_eigenvalues_of_graded_rows(dtype, n, rng):
  """Each eigenvalue is that of a matrix near the balanced A. SciPy's are far from it in some cases.
  Each vector has length 1."""
  a = _graded_rows(rng, max(1, 200 // n - 2), n, dtype, _decades(dtype))
  values, left, right = map(np.asarray, linalg.eig(a, left=True))
  unit = n * float(np.finfo(dtype).eps)
  for vectors in (left, right):
    assert np.max(np.abs(np.linalg.norm(checks.wide(vectors), axis=-2) - 1)) <= unit
  balanced = np.stack([scipy.linalg.matrix_balance(checks.wide(x))[0] for x in a])
  size = np.linalg.norm(balanced, 2, (-2, -1))[:, None]
  for w in (values, np.asarray(linalg.eigvals(a))):
    shifted = balanced[:, None] - checks.wide(w)[..., None, None] * np.eye(n)
    smallest = np.linalg.svd(shifted, compute_uv=False)[..., -1]
    assert np.max(smallest / size) <= 8 * unit


# Rows, columns or both scale down to subnormal numbers, and pivots have no reciprocal. The larger
# sizes are computed in tiles.
GRADINGS = ["columns", "rows", "both", "last_column", "last_rows", "whole"]


def _graded(rng, grading, n, dtype):
  """Returns a matrix with entries up to about 1, and the scale of its smallest rows and columns."""
  finfo = np.finfo(dtype)
  lowest = finfo.minexp - finfo.nmant + 12
  a = rng.standard_normal((n, n))
  if np.issubdtype(dtype, np.complexfloating):
    a = a + 1j * rng.standard_normal((n, n))
  rows, cols = np.zeros(n), np.zeros(n)
  if grading == "columns":
    cols = rng.integers(lowest, 1, n)
  elif grading == "rows":
    rows = rng.integers(lowest, 1, n)
  elif grading == "both":
    rows, cols = rng.integers(lowest // 2, 1, (2, n))
  elif grading == "last_column":
    cols[-1] = lowest
  elif grading == "last_rows":
    rows[n // 2 :] = lowest
  else:
    rows[:] = lowest
  exponents = (rows[:, None] + cols).astype(int)
  parts = (np.ldexp(a.real, exponents), np.ldexp(a.imag, exponents))
  return (parts[0] + 1j * parts[1] if np.iscomplexobj(a) else parts[0]).astype(dtype)


def _excess(error, scale, n, dtype):
  """Returns the worst error in units of n eps times its entry's scale + the smallest subnormal."""
  finfo = np.finfo(dtype)
  unit = n * (float(finfo.eps) * scale + np.longdouble(finfo.smallest_subnormal))
  return float(np.max(np.abs(error) / unit))


@pytest.mark.parametrize("grading", GRADINGS)
@pytest.mark.parametrize("n", [5, 33, 70])
def test_lu_of_graded_matrices(grading, n, dtype, rng):
  """Each entry of P A - L U is small against the entry of |L| |U|, though pivots are subnormal."""
  a = _graded(rng, grading, n, dtype)
  packed, _, permutation, info = linalg.lu_ex(a)
  assert info == 0
  packed = _wide(packed)
  l, u = np.tril(packed, -1) + np.eye(n), np.triu(packed)
  # Partial pivoting compares |re| + |im|, by which a multiplier is at most 1.
  assert np.max(np.abs(l)) <= 1.5
  error = l @ u - _wide(a)[np.asarray(permutation)]
  assert _excess(error, np.abs(l) @ np.abs(u), n, dtype) <= 4


@pytest.mark.parametrize("grading", GRADINGS)
@pytest.mark.parametrize("n", [5, 33, 70])
def test_solutions_of_graded_systems(grading, n, dtype, rng):
  """The residual is small against |A| |x|, for x as large as the range allows, in one and many
  columns."""
  a = _graded(rng, grading, n, dtype)
  for cols in (1, 3):
    b = (a @ rng.standard_normal((n, cols))).astype(dtype)
    x, info = linalg.solve_ex(a, b)
    assert info == 0
    error = _wide(a) @ _wide(x) - _wide(b)
    _, _, permutation = linalg.lu(a)
    packed = np.abs(_wide(linalg.lu(a)[0]))
    reach = (np.tril(packed, -1) + np.eye(n)) @ np.triu(packed) @ np.abs(_wide(x))
    unit = np.empty_like(reach)
    unit[np.asarray(permutation)] = reach
    assert _excess(error, unit + np.abs(b), n, dtype) <= 8


def _wide_slogdet(a):
  """Returns phase and logarithm, by elimination in long double."""
  rest, phase, logarithm = _wide(a), 1.0, np.longdouble(0)
  for k in range(len(a)):
    pivot = k + np.argmax(np.abs(rest[k:, k]))
    if pivot != k:
      rest[[k, pivot]] = rest[[pivot, k]]
      phase = -phase
    size = np.abs(rest[k, k])
    phase, logarithm = phase * rest[k, k] / size, logarithm + np.log(size)
    rest[k + 1 :] -= np.outer(rest[k + 1 :, k] / rest[k, k], rest[k])
  return phase, logarithm


@pytest.mark.parametrize("grading", GRADINGS)
@pytest.mark.parametrize("n", [5, 33, 70])
def test_determinants_of_graded_matrices(grading, n, dtype, rng):
  """Compared with elimination in long double; rows subnormal in the matrix's dtype hold few
  digits."""
  a = _graded(rng, grading, n, dtype)
  sign, logabsdet = linalg.slogdet(a)
  expected_sign, expected = _wide_slogdet(a)
  assert abs(complex(sign) - complex(expected_sign)) <= 0.25
  assert abs(float(logabsdet) - float(expected)) <= 0.25


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("n", [5, 33, 70])
def test_determinant_with_pivots_beyond_reciprocals(n, place, dtype, rng):
  """Some columns have pivots whose reciprocal overflows; as many others bring the product into
  range."""
  finfo = np.finfo(dtype)
  tiny, large = finfo.minexp - 4 - 14 * (finfo.bits == 64), finfo.maxexp - 8
  exponents = np.zeros(n, int)
  exponents[:2], exponents[-2:] = (tiny, large) if place == "first" else (large, tiny)
  a = matrices.unitary(rng, n, dtype)
  a = (_wide(a) * np.ldexp(np.longdouble(1), exponents)).astype(dtype)
  phase, logarithm = _wide_slogdet(a)
  expected = phase * np.exp(logarithm)
  assert finfo.tiny < abs(expected) < 1
  # A tiny column is subnormal, so it is rounded to a multiple of the smallest subnormal.
  unit = float(finfo.eps) + np.ldexp(float(finfo.smallest_subnormal), -tiny)
  for actual in (linalg.det(a), linalg.det(np.stack([a] * 17))[16]):
    assert abs(_wide(actual) - expected) <= 8 * n * unit * abs(expected)


@pytest.mark.parametrize("n", [5, 33, 70])
def test_inverse_beside_overflow(n, dtype, rng):
  """A unitary matrix with one subnormal column: a row of the inverse is barely in range."""
  tiny = np.ldexp(1.0, np.finfo(dtype).minexp - 1)
  a = matrices.unitary(rng, n, dtype)
  scales = np.where(np.arange(n) == n // 2, tiny, 1)
  inverse, info = linalg.inv_ex((a * scales).astype(dtype))
  assert info == 0
  unscaled = _wide(inverse) * scales[:, None]
  np.testing.assert_allclose(unscaled, a.conj().T, rtol=0, atol=30 * n * np.finfo(dtype).eps)


def test_subnormal_pivots_of_large_matrices(dtype, rng):
  """Columns are divided by subnormal pivots too. OpenBLAS's getrf skips them silently."""
  n = SHARED
  a = _graded(rng, "columns", n, dtype)
  packed, _, permutation, info = linalg.lu_ex(a)
  assert info == 0
  l = np.tril(packed, -1)
  assert np.max(np.abs(l)) <= 1.5
  l = checks.wide(l + np.eye(n, dtype=dtype))
  u = checks.wide(np.triu(packed))
  # Powers of two scale the columns, which changes no digit of a normal number.
  exponents = -np.frexp(np.max(np.abs(u), axis=0))[1]
  scales = np.ldexp(np.longdouble(1), exponents)
  u, rows = (checks.wide((scales * x).astype(u.dtype)) for x in (u, a[np.asarray(permutation)]))
  floor = (scales * np.finfo(dtype).smallest_subnormal).astype(float)
  error = np.abs(l @ u - rows) / (float(np.finfo(dtype).eps) * np.abs(l) @ np.abs(u) + floor)
  assert np.max(error) <= 4 * n

  b = (a @ rng.standard_normal((n, 2))).astype(dtype)
  x, info = linalg.solve_ex(a, b)
  assert info == 0
  # A x is A S (S⁻¹ x) for the column scaling S.
  x = checks.wide((_wide(x) / scales[:, None]).astype(u.dtype))
  reach = np.abs(l) @ (np.abs(u) @ np.abs(x)) + np.abs(checks.wide(b))[np.asarray(permutation)]
  error = np.abs(rows @ x - checks.wide(b)[np.asarray(permutation)])
  assert np.max(error / (reach + float(np.finfo(dtype).smallest_subnormal))) <= (
      8 * n * float(np.finfo(dtype).eps))

  sign, logabsdet = linalg.slogdet(a)
  diagonal = np.diagonal(u)
  expected = np.sum(np.log(np.abs(diagonal))) - np.log(2) * np.sum(exponents)
  np.testing.assert_allclose(logabsdet, expected, rtol=1e-5)
  parity = np.linalg.det(np.eye(n)[np.asarray(permutation)])
  assert abs(complex(sign) - parity * np.prod(diagonal / np.abs(diagonal))) <= 1e-3


@pytest.mark.parametrize("left_side", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("lower", [False, True], ids=["upper", "lower"])
@pytest.mark.parametrize("n", [5, 40])
def test_triangle_with_tiny_diagonal(n, lower, left_side, dtype, rng):
  """The reciprocal of the diagonal, or of a part of it on the way, is out of range."""
  finfo = np.finfo(dtype)
  a = matrices.unitary(rng, n, dtype)
  a = (np.tril(a, -1) if lower else np.triu(a, 1)) / n + np.eye(n)
  k = n // 2
  a[k] = a[:, k] = 0
  for pivot in (64 * float(finfo.smallest_subnormal), float(finfo.max) / 1.5):
    a[k, k] = pivot * (1 - 1j) if np.iscomplexobj(a) else pivot
    for transpose in (False, True):
      for conjugate in (False, True):
        x = matrices.unitary(rng, n, dtype)[:3]
        x = x.T if left_side else x
        op = a.T if transpose else a
        op = op.conj() if conjugate else op
        b = (_wide(op) @ x if left_side else _wide(x) @ op).astype(dtype)
        actual = linalg.triangular_solve(
            a.astype(dtype), b, left_side=left_side, lower=lower, transpose_a=transpose,
            conjugate_a=conjugate)
        # A subnormal right-hand side holds few digits.
        atol = np.where(np.arange(n) == k, 2.0**-6 if pivot < 1 else 0, 0) + 30 * n * finfo.eps
        error = np.abs(np.asarray(actual) - x)
        assert np.all(error <= (atol[:, None] if left_side else atol))


@pytest.mark.parametrize("solve", [
    lambda a, b: linalg.triangular_solve(a, b, left_side=True),
    lambda a, b: linalg.tridiagonal_solve(0 * a[..., 0], a[..., 0], 0 * a[..., 0], b),
], ids=["triangular", "tridiagonal"])
@pytest.mark.parametrize("dtype, most", [(np.complex64, 37), (np.complex128, 306)])
def test_complex_pivots_of_every_size(solve, dtype, most, rng):
  """Catches a reciprocal that overflows in |x|², and one that depends on its neighbours' sizes."""
  exponents = np.linspace(-most, most, 2 * most + 1)
  unit = lambda: np.exp(2j * np.pi * rng.random(len(exponents)))
  pivots = (10.0**exponents * unit()).astype(dtype)
  pivots.real[::5] *= 1e-3
  pivots.imag[1::5] = 0
  expected = unit()
  a, b = pivots[:, None, None], (checks.wide(pivots) * expected).astype(dtype)[:, None, None]
  solve = quick_jit(solve)
  x = solve(a, b)
  np.testing.assert_allclose(x[:, 0, 0], expected, rtol=8 * np.finfo(dtype).eps)
  some = range(0, len(a), 7)
  same_bits([solve(a[i : i + 1], b[i : i + 1]) for i in some], [x[i : i + 1] for i in some])
