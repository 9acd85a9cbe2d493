"""Singular values and vectors of shapes, ranks and batches that the tables of cases do not
cover."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import matrices
import selection
from linalg._catalogue import checks

ONE_IN = 3

SHAPES = [(1, 1), (3, 3), (9, 9), (24, 24), (32, 32), (33, 33), (5, 1), (1, 5), (20, 7), (7, 20)]


def _residual(a, u, s, vh):
  k = s.shape[-1]
  product = checks.wide(u)[..., :k] * checks.wide(s)[..., None, :] @ checks.wide(vh)[..., :k, :]
  return max(
      checks.orthogonality(u), checks.orthogonality(checks.adjoint(np.asarray(vh))),
      checks.factorisation(a, product, checks.eps(u)))


def _of_rank(rng, batch, shape, rank, dtype):
  """Returns a product of matrices with `rank` columns and rows."""
  left = matrices.general(rng, (batch,), shape[0], rank, dtype)
  return (left @ matrices.general(rng, (batch,), rank, shape[1], dtype)).astype(dtype)


@pytest.mark.parametrize("full_matrices", [False, True], ids=["thin", "full"])
@pytest.mark.parametrize("shape", [(6, 6), (9, 5), (5, 9), (40, 40)], ids=str)
def test_ranks(shape, full_matrices, dtype, rng):
  """Lanes differ in rank: zero columns leave no direction for a singular vector."""
  a = np.concatenate([_of_rank(rng, 2, shape, rank, dtype) for rank in range(min(shape) + 1)])
  a[1, 0, 0] = 3  # this matrix is zero elsewhere
  a = np.concatenate([a, np.ones((1, *shape), dtype), np.eye(*shape, dtype=dtype)[None]])
  u, s, vh = linalg.svd(a, full_matrices)
  assert _residual(a, u, s, vh) <= 50
  assert np.all(np.asarray(s) >= 0)
  assert np.all(np.diff(s) <= 0)
  np.testing.assert_allclose(
      linalg.svdvals(a), s, rtol=0, atol=30 * np.finfo(dtype).eps * np.max(s))


@pytest.mark.parametrize("full_matrices", [False, True], ids=["thin", "full"])
@pytest.mark.parametrize(
    ("shape", "batch"),
    [((70, 66), 24), ((66, 70), 24), ((70, 66), 2), ((66, 70), 2), ((1030, 70), 2),
     ((70, 1030), 2)], ids=str)
def test_large(shape, batch, full_matrices, dtype, rng):
  """Both sides of every crossover of the CUDA handlers; one matrix is not finite."""
  a = matrices.general(rng, (batch,), *shape, dtype)
  a[0, 1, 2] = np.inf
  u, s, vh, info = linalg.svd_ex(a, full_matrices)
  np.testing.assert_array_equal(info, np.where(np.arange(batch) == 0, -1, 0))
  for x in (u, s, vh):
    assert np.isnan(np.asarray(x)[0]).all()
  assert _residual(a[1:], u[1:], s[1:], vh[1:]) <= 50
  np.testing.assert_allclose(
      linalg.svdvals(a)[1:], s[1:], rtol=0, atol=30 * np.finfo(dtype).eps * np.max(s[1:]))


@selection.one_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_do_not_depend_on_the_batch(shape, dtype, rng):
  """A single matrix occupies one lane; in a batch it shares registers of several widths."""
  a = matrices.general(rng, (37,), *shape, dtype)
  a[3] = 0
  a[7] *= 2.0**40
  functions = (
      lambda a: tuple(linalg.svd(a)), lambda a: tuple(linalg.svd(a, full_matrices=False)),
      lambda a: (linalg.svdvals(a),))
  for function in functions:
    whole = function(a)
    for part in (slice(0, 1), slice(3, 4), slice(7, 8), slice(30, 37), slice(2, 21)):
      for x, y in zip(whole, function(a[part]), strict=True):
        assert np.asarray(x)[part].tobytes() == np.asarray(y).tobytes()


@pytest.mark.parametrize("n", [4, 6])
def test_graded_rows_have_the_same_bits_in_any_batch(n, dtype, rng):
  """Matrices with short rows are in lanes that wait while others rotate. Seven matrices run one by
  one."""
  a = matrices.general(rng, (700,), n, n, dtype)
  a = (a * 10.0 ** rng.integers(-4, 5, (700, n, 1))).astype(dtype)
  whole = linalg.svd(a)
  parts = [linalg.svd(part) for part in a.reshape(100, 7, n, n)]
  for x, *found in zip(whole, *parts, strict=True):
    assert np.asarray(x).tobytes() == np.concatenate(found).tobytes()


def test_graded(dtype):
  """Singular values far below rounding of the largest are those of a diagonal matrix."""
  finfo = np.finfo(dtype)
  values = (float(finfo.max) ** 0.5 * float(finfo.eps) ** np.arange(3.0)).astype(finfo.dtype)
  a = np.diag(values).astype(dtype)
  u, s, vh = linalg.svd(a)
  np.testing.assert_allclose(s, values, rtol=4 * float(finfo.eps))
  np.testing.assert_allclose(np.abs(u), np.eye(3), atol=4 * float(finfo.eps))
  np.testing.assert_allclose(np.abs(vh), np.eye(3), atol=4 * float(finfo.eps))


@pytest.mark.parametrize("exponent", [-60, 60])
def test_scaled_by_a_power_of_two(exponent, dtype, rng):
  """The vectors keep their bits, and the values are scaled."""
  a = matrices.general(rng, (5,), 6, 6, dtype)
  u, s, vh = linalg.svd(a)
  scaled = linalg.svd((a * 2.0**exponent).astype(dtype))
  np.testing.assert_array_equal(scaled.U, u)
  np.testing.assert_array_equal(scaled.S, s * 2.0**exponent)
  np.testing.assert_array_equal(scaled.Vh, vh)


@pytest.mark.parametrize("n", [5, 40])
def test_hermitian(n, dtype, rng):
  """eigh computes it: the signs of the eigenvalues go to Vh."""
  a = matrices.hermitian(rng, (4,), n, dtype)
  u, s, vh = linalg.svd(a, hermitian=True)
  assert _residual(a, u, s, vh) <= 60
  assert np.all(np.diff(s) <= 0)
  # A different algorithm computes eigenvalues alone.
  np.testing.assert_allclose(
      linalg.svd(a, compute_uv=False, hermitian=True), s, rtol=0,
      atol=30 * np.finfo(dtype).eps * np.max(s))


def test_subset_by_index(rng):
  a = matrices.general(rng, (3,), 6, 4, np.float64)
  whole = linalg.svd(a, full_matrices=False)
  u, s, vh = linalg.svd(a, full_matrices=False, subset_by_index=(1, 3))
  np.testing.assert_array_equal(u, whole.U[..., 1:3])
  np.testing.assert_array_equal(s, whole.S[..., 1:3])
  np.testing.assert_array_equal(vh, whole.Vh[..., 1:3, :])
  np.testing.assert_array_equal(
      linalg.svd(a, compute_uv=False, subset_by_index=(0, 2)), linalg.svdvals(a)[..., :2])
  assert linalg.svd(a, subset_by_index=(0, 4)).U.shape == (3, 6, 6)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)], ids=str)
def test_empty(shape):
  """The square factors of an empty matrix are identities."""
  m, n = shape
  u, s, vh = linalg.svd(np.zeros((2, *shape)))
  np.testing.assert_array_equal(u, np.broadcast_to(np.eye(m), (2, m, m)))
  np.testing.assert_array_equal(vh, np.broadcast_to(np.eye(n), (2, n, n)))
  assert s.shape == (2, 0)
  assert linalg.svd(np.zeros((2, *shape)), full_matrices=False).U.shape == (2, m, 0)


def test_large_batch(rng):
  """Every thread has work, and the last register is not full."""
  a = matrices.general(rng, (70_001,), 3, 3, np.float32)
  assert _residual(a, *jax.jit(linalg.svd)(a)) <= 50


def test_eigenvectors_are_normalised(rng):
  """The derivative keeps length 1 and a real largest element, as LAPACK does, in both modes."""
  a = matrices.general(rng, (3,), 4, 4, np.float64)
  direction = matrices.general(rng, (3,), 4, 4, np.float64)
  for call in (lambda a: linalg.eig(a).eigenvectors, lambda a: linalg.eig(a, left=True)[1]):
    v, dv = jax.jvp(call, (a,), (direction,))
    np.testing.assert_allclose(jnp.sum(v.conj() * dv, axis=-2).real, 0, atol=1e-12)
    largest = np.abs(v).argmax(-2, keepdims=True)
    assert np.abs(np.take_along_axis(np.asarray(dv), largest, -2).imag).max() <= 1e-12
