"""Eigenvalues and Schur form of matrices that are hard for the QR iteration.

The usual shifts do not move orthogonal matrices such as cyclic shifts. Jordan blocks have one
eigenvalue and one eigenvector. A slow matrix, or one that is not finite, shares a register with
other matrices.
"""

import jax
import numpy as np
import pytest
import scipy.linalg

import linalg
from linalg._catalogue import checks
from quick import quick_jit
from sharded import same_bits

ALL_DTYPES = True
ONE_IN = 3

# The largest size for the kernels in lanes is 64, and the smallest size for LAPACK is 65.
SIZES = [1, 2, 3, 5, 8, 20, 64, 65]


# The last cases of _matrices are graded. Their eigenvalues are near those of the balanced matrix,
# but their residuals are not small: test_graded.py.
GRADED = 3


def _matrices(n, dtype, rng):
  orthogonal = np.linalg.qr(rng.standard_normal((n, n)))[0]
  grades = 10.0 ** -np.minimum(np.arange(n), 12)
  companion = np.eye(n, k=-1)
  companion[0] = -np.arange(1, n + 1)
  blocks = np.kron(np.eye((n + 1) // 2), np.array([[0, 1], [-1, 0]]))[:n, :n]
  kinds = [
      np.zeros((n, n)), np.ones((n, n)), np.roll(np.eye(n), 1, 0), 2 * np.eye(n) + np.eye(n, k=-1),
      2 * np.eye(n) + np.eye(n, k=1), companion, orthogonal, orthogonal - orthogonal.T, blocks,
      -blocks[::-1], np.tril(rng.standard_normal((n, n))),
      rng.permutation(np.triu(rng.standard_normal((n, n)))), rng.standard_normal((n, n)),
      blocks @ np.diag(grades),
      grades[:, None] * rng.standard_normal((n, n)), rng.standard_normal((n, n)) * grades[::-1],
  ]
  a = np.stack(kinds).astype(dtype)
  if np.iscomplexobj(a):
    a *= np.exp(1j * rng.standard_normal((len(kinds), 1, 1))).astype(dtype)
  return a


def _largest(x):
  return np.max(np.abs(checks.wide(x)), axis=(-1, -2))


@pytest.mark.parametrize("n", SIZES)
def test_residuals(n, dtype, rng):
  a = _matrices(n, dtype, rng)
  unit = n * float(np.finfo(dtype).eps) * np.maximum(_largest(a), np.finfo(dtype).tiny)
  wide = checks.wide(a)

  t, z, info = linalg.schur_ex(a)
  np.testing.assert_array_equal(info, 0)
  t, z = checks.wide(t), checks.wide(z)
  assert np.max(_largest(z @ t @ checks.adjoint(z) - wide) / unit) <= 10
  assert np.max(_largest(checks.adjoint(z) @ z - np.eye(n))) <= 10 * n * np.finfo(dtype).eps

  values, left, right = (checks.wide(x) for x in linalg.eig(a, left=True))
  for vectors in (left, right):
    lengths = np.linalg.norm(vectors, axis=-2)
    assert np.max(np.abs(lengths - 1)) <= n * np.finfo(dtype).eps
  residual = _largest(wide @ right - right * values[:, None]) / unit
  assert np.max(residual[:-GRADED]) <= 10
  adjoint = checks.adjoint(left)
  residual = _largest(adjoint @ wide - values[..., None] * adjoint) / unit
  assert np.max(residual[:-GRADED]) <= 10


@pytest.mark.parametrize("n", SIZES)
def test_schur_form_of_real_matrices_is_standard(n, dtype, rng):
  """T has zeros below the diagonal, except in 2 x 2 blocks with equal diagonals and a complex
  pair."""
  t = np.asarray(linalg.schur(_matrices(n, dtype, rng))[0])
  below = np.diagonal(t, -1, -2, -1)
  np.testing.assert_array_equal(np.tril(t, -2), 0)
  if np.iscomplexobj(t):
    np.testing.assert_array_equal(below, 0)
    return
  assert not np.any((below[:, 1:] != 0) & (below[:, :-1] != 0))
  for matrix, k in np.argwhere(below != 0):
    (a, b), (c, d) = t[matrix, k : k + 2, k : k + 2]
    assert a == d and (b < 0) != (c < 0)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 17, 33])
def test_triangles_have_their_eigenvalues(n, dtype, rng):
  """A permutation isolates the eigenvalues of a triangle, in any row order, without rounding."""
  lower = np.tril(rng.integers(1, 100, (7, n, n))).astype(dtype)
  order = rng.permutation(n)
  for a in (lower, lower.swapaxes(-1, -2), lower[:, order][:, :, order]):
    expected = np.sort(np.diagonal(a, 0, -2, -1).real, axis=-1)
    for values in (linalg.eigvals(a), linalg.eig(a)[0]):
      values = np.asarray(values)
      np.testing.assert_array_equal(values.imag, 0)
      np.testing.assert_array_equal(np.sort(values.real, axis=-1), expected)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 17, 40])
def test_a_matrix_alone_and_among_others(n, dtype, rng):
  """Hard matrices and some that are not finite, alone, rotated, and in batches with remainders:
  same bits."""
  a = np.concatenate([_matrices(n, dtype, rng)] * 3)
  a[4, -1, 0], a[20, 0, 0] = np.nan, np.inf

  a[-1] = np.where(a[-1] == 0, -0.0, a[-1])

  def results(x):
    return (*linalg.eig(x, left=True), *linalg.eigvals_ex(x), *linalg.schur_ex(x),
            *linalg.svdvals_ex(x), *linalg.hessenberg(x, calc_q=True),
            *linalg.qr(x, pivoting=True))

  places, counts = (0, 4, 5, 20, 44), (3, 9, 17)
  rolled = np.roll(a, 5, 0)
  whole, alone, batches = jax.jit(lambda a, rolled: (
      results(a), [results(a[i]) for i in places], [results(rolled[:count]) for count in counts])
  )(a, rolled)
  whole = [np.asarray(x) for x in whole]
  for i, found in zip(places, alone, strict=True):
    same_bits(found, [x[i] for x in whole])
  for count, found in zip(counts, batches, strict=True):
    same_bits(found, [np.roll(x, 5, 0)[:count] for x in whole])


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 1), (1, 4), (7, 5), (24, 24), (25, 25),
                                   (32, 32), (33, 33), (32, 3), (3, 33)], ids=str)
def test_singular_values(shape, dtype, rng):
  """Values are within n eps of NumPy's in float64, for full rank, low rank and both gradings."""
  n = min(shape)
  grades = 10.0 ** -np.minimum(np.arange(shape[1]), 12)
  full = rng.standard_normal((9, *shape))
  kinds = [full[0], full[1][:, :1] @ full[1][:1], np.eye(*shape), full[2] * grades,
           full[3] * grades[::-1], np.zeros(shape), np.ones(shape), np.triu(full[4]),
           1e-30 * full[5], 1e30 * full[6]]
  a = np.stack(kinds).astype(dtype)
  if np.iscomplexobj(a):
    a *= np.exp(1j * rng.standard_normal(a.shape)).astype(dtype)
  values, info = linalg.svdvals_ex(a)
  np.testing.assert_array_equal(info, 0)
  expected = np.linalg.svd(checks.wide(a), compute_uv=False)
  unit = n * float(np.finfo(dtype).eps) * expected[:, :1]
  assert np.max(np.abs(checks.wide(values) - expected) / np.maximum(unit, 1e-300)) <= 3
  assert np.all(np.diff(values) <= 0)


@pytest.mark.parametrize("n", [9, 17, 32])
def test_singular_values_of_every_condition(n, dtype, rng):
  """Values of bidiagonal matrices have relative precision, also where their squares would not.

  Matrices with values too small to come from their squares lie among others. Larger matrices of
  double precision are not in lanes, and only the largest values have relative precision.
  """
  n = n if np.finfo(dtype).bits == 32 else min(n, 24)
  small = 10.0 ** -np.linspace(0, 30 if np.finfo(dtype).bits == 32 else 250, 48)
  d = 1 + rng.random((48, n))
  d[np.arange(48), rng.integers(n, size=48)] *= small
  e = 0.1 * rng.standard_normal((48, n - 1)) * np.minimum(d[:, 1:], d[:, :-1])
  a = np.zeros((48, n, n))
  a[:, np.arange(n), np.arange(n)] = d
  a[:, np.arange(n - 1), np.arange(1, n)] = e
  a = a.astype(dtype)
  expected = np.stack([
      scipy.linalg.svd(checks.wide(x), compute_uv=False, lapack_driver="gesvd") for x in a])
  batch, alone = quick_jit(lambda a: (linalg.svdvals(a), [linalg.svdvals(x) for x in a[::5]]))(a)
  np.testing.assert_allclose(batch, expected, rtol=10 * n * np.finfo(dtype).eps)
  same_bits(alone, list(batch[::5]))


def test_signs_of_zeros_decide_nothing(dtype, rng):
  """A single matrix skips steps that do nothing.

  In a batch it takes them, and they turn -0 into 0.
  """
  o = -0.0
  first = np.array([[o, o, 0, 1], [o, 0, -1, o], [o, -1, o, o], [-1, o, o, 0]])
  others = [np.eye(4)[rng.permutation(4)] for _ in range(63)]
  a = np.stack([first, *others]).astype(dtype)
  for function in (linalg.schur, lambda a: linalg.eig(a, left=True)):
    same_bits(function(a[0]), [x[0] for x in function(a)])


@pytest.mark.parametrize("n", [9, 16, 24])
def test_small_singular_values(n, dtype, rng):
  """Each singular value of graded columns is accurate to its own scale, as LAPACK's are.

  The reduction keeps the grading from the size on where no row rotations are used. Subnormal
  matrices of rank 1 are exact.
  """
  decades = 12 / n if np.finfo(dtype).bits == 32 else 100 / n
  a = (rng.standard_normal((5, n, n)) * 10.0 ** (-decades * np.arange(n))).astype(dtype)
  values = checks.wide(linalg.svdvals(a))
  expected = np.stack([
      scipy.linalg.svd(checks.wide(x), compute_uv=False, lapack_driver="gesvd") for x in a])
  np.testing.assert_allclose(values, expected, rtol=200 * n * np.finfo(dtype).eps)

  smallest = np.finfo(dtype).smallest_subnormal
  ones = np.full((n, n), 4 * smallest, dtype)
  values = np.asarray(linalg.svdvals(ones))
  assert abs(float(values[0]) / float(smallest) - 4 * n) <= 1
  np.testing.assert_array_equal(values[1:], 0)
