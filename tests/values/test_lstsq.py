"""Least squares and pseudo-inverses of any shape and rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import derivatives
import linalg
import matrices
from quick import quick_jit

ONE_IN = 2

# (m, n, rank)
SYSTEMS = ((5, 3, 3), (3, 5, 3), (4, 4, 2), (5, 3, 2), (3, 6, 1))


def _of_rank(rng, rank, m, n, dtype):
  values = np.array([2.0, 2.0, 1.0][:rank] + [0.0] * (min(m, n) - rank))
  return matrices.with_singular_values(rng, values, m, n, dtype).astype(dtype)


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_against_numpy(system, dtype, rng):
  """Batches of tall, wide and rank-deficient systems agree with NumPy one by one."""
  m, n, rank = system
  a = np.stack([_of_rank(rng, rank, m, n, dtype) for _ in range(3)])
  b = matrices.general(rng, (3,), m, 2, dtype)
  rcond = 1e-4

  @quick_jit
  def all_of(a, b):
    ranks = linalg.matrix_rank(a, rtol=rcond), linalg.matrix_rank(a, tol=1.5)
    return linalg.lstsq(a, b, rcond), linalg.pinv(a, rtol=rcond), ranks

  (x, residuals, ranks, s), inverse, (relative, absolute) = jax.device_get(all_of(a, b))
  assert residuals.shape == (3, 2) and s.shape == (3, min(m, n))
  np.testing.assert_array_equal(ranks, [rank] * 3)
  tolerance = 300 * np.finfo(dtype).eps
  for i in range(3):
    expected, _, _, values = np.linalg.lstsq(a[i], b[i], rcond)
    np.testing.assert_allclose(x[i], expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(s[i], values, rtol=0, atol=tolerance)
    distance = np.sum(np.abs(b[i] - a[i] @ expected) ** 2, axis=0)
    np.testing.assert_allclose(residuals[i], distance, rtol=0, atol=30 * tolerance)
  np.testing.assert_allclose(inverse, np.linalg.pinv(a, rcond), rtol=0, atol=tolerance)
  np.testing.assert_array_equal(relative, [rank] * 3)
  np.testing.assert_array_equal(absolute, [min(rank, 2)] * 3)


@pytest.mark.parametrize("low", [jnp.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
def test_default_cut_off_of_half_precision(low, rng):
  """The default tolerance is NumPy's in float32: max(m, n) eps, and ten times that for `pinv`."""
  for n in (5, 65):
    spectrum = np.geomspace(1, 0.01, n)
    a = jnp.asarray(matrices.with_singular_values(rng, spectrum, n, n, np.dtype(np.float64)), low)
    b = jnp.asarray(matrices.general(rng, (), n, 1, np.dtype(np.float64)), low)
    wide_a, wide_b = (np.asarray(x.astype(jnp.float32)) for x in (a, b))
    eps = np.finfo(np.float32).eps
    x, _, rank, _ = linalg.lstsq(a, b)
    expected, _, expected_rank, _ = np.linalg.lstsq(wide_a, wide_b, rcond=None)
    inverse = np.linalg.pinv(wide_a, rtol=10 * n * eps)
    assert int(rank) == expected_rank == int(linalg.matrix_rank(a)) == n
    for found, right in ((x, expected), (linalg.pinv(a), inverse)):
      assert found.dtype == low
      np.testing.assert_allclose(
          np.asarray(found.astype(jnp.float32)), right, rtol=0,
          atol=2 * float(jnp.finfo(low).eps) * np.abs(right).max())


@pytest.mark.extended
@cases.each_double
@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_derivatives_at_constant_rank(system, dtype, rng):
  """Derivatives are right to second order.

  The matrices are products, so that their rank stays constant.
  """
  m, n, rank = system
  left = matrices.general(rng, (), m, rank, dtype)
  right = matrices.general(rng, (), rank, n, dtype)
  b = matrices.general(rng, (), m, 2, dtype)

  def function(left, right, b):
    a = left @ right
    return linalg.lstsq(a, b, 1e-8)[0], linalg.pinv(a, 1e-8)

  derivatives.check(function, (left, right, b), rng, tolerance=1e-6)


@pytest.mark.parametrize("shape", [
    (5, 3), *(pytest.param(x, marks=pytest.mark.extended) for x in ((3, 3), (3, 5)))], ids=str)
def test_derivatives_at_equal_singular_values(shape, rng):
  """Stock JAX differentiates an SVD, which gives NaN at the identity."""
  a = 2.0 * np.eye(*shape)
  b = rng.standard_normal((shape[0], 2))
  derivatives.check(
      lambda a, b: (*linalg.lstsq(a, b)[:2], linalg.pinv(a)), (a, b), rng, tolerance=1e-7)


@pytest.mark.parametrize("dtype, large", [
    (np.float32, 2.0**60), (np.float64, 2.0**510)], ids=["float32", "float64"])
def test_first_derivatives_of_scaled_matrices(dtype, large, rng):
  """No product of two inverses leaves the range: for A / c they are those of A, times c."""
  values = np.array([1, 0.5, 0.1, 0.01])
  tall = matrices.with_singular_values(rng, values, 6, 4, np.float64).astype(dtype)
  square = matrices.with_singular_values(rng, np.append(values[:3], 0), 4, 4, np.float64)
  hermitian = square @ square.T
  b = rng.standard_normal((6, 2)).astype(dtype)
  step, hermitian_step = (rng.standard_normal(x.shape).astype(dtype) for x in (tall, hermitian))
  hermitian_step += hermitian_step.T
  functions = (
      (linalg.pinv, tall, step), (linalg.pinv, tall.T, step.T),
      (lambda a: linalg.lstsq(a, b)[0], tall, step),
      (lambda a: linalg.lstsq(a, b[:4])[0], tall.T, step.T),
      (lambda a: linalg.pinv(a, 1e-4, hermitian=True), hermitian.astype(dtype), hermitian_step))

  @quick_jit
  def derivatives(c):
    return [jax.jvp(f, (a / c,), (da / c,))[1] / c for f, a, da in functions]

  expected = derivatives(dtype(1))
  for scale in (dtype(large), dtype(1 / large)):
    for found, right in zip(derivatives(scale), expected, strict=True):
      tolerance = 1e5 * np.finfo(dtype).eps * np.abs(right).max()
      np.testing.assert_allclose(found, right, rtol=0, atol=tolerance)


def test_batches_of_vectors(rng):
  """A `b` of shape (..., m) is a batch of vectors for A (..., m, n).

  Batches of matrices broadcast.
  """
  a, b = rng.standard_normal((7, 5, 3)), rng.standard_normal((7, 5))
  x, residuals, ranks, s = linalg.lstsq(a, b)
  assert [y.shape for y in (x, residuals, ranks, s)] == [(7, 3), (7, 1), (7,), (7, 3)]
  columns = linalg.lstsq(a, b[..., None])[0]
  np.testing.assert_array_equal(x, columns[..., 0])
  one = linalg.lstsq(a[0], rng.standard_normal((7, 5, 2)))[0]
  assert one.shape == (7, 3, 2)
  with pytest.raises(ValueError, match="lstsq: a and b must have shapes"):
    linalg.lstsq(a, b[:, :4])


def test_numpy_residuals(rng):
  """The residuals are empty, as NumPy's are, if the rank is below n or the matrix is not tall."""
  a, b = rng.standard_normal((5, 3)), rng.standard_normal((5, 2))
  assert linalg.lstsq(a, b, numpy_resid=True)[1].shape == (2,)
  assert linalg.lstsq(a[:3], b[:3], numpy_resid=True)[1].shape == (0,)
  assert linalg.lstsq(np.ones((5, 3)), b, numpy_resid=True)[1].shape == (0,)


def test_one_matrix_that_is_not_finite(rng):
  """Only the system with NaN has NaN results.

  The SVD of stock JAX and of LAPACK may never return.
  """
  a, b = rng.standard_normal((4, 5, 3)), rng.standard_normal((4, 5, 2))
  clean = linalg.lstsq(a, b)[0], linalg.pinv(a)
  a[2, 1, 1] = np.inf
  spoilt = linalg.lstsq(a, b)[0], linalg.pinv(a)
  for x, y in zip(spoilt, clean, strict=True):
    assert np.isnan(x[2]).all()
    np.testing.assert_array_equal(np.delete(x, 2, 0), np.delete(y, 2, 0))


def test_options_of_rank_and_tolerance():
  a = jnp.diag(jnp.array([1.0, 1e-3, 0.0]))
  assert linalg.matrix_rank(a) == linalg.matrix_rank(a, hermitian=True) == 2
  assert linalg.lstsq(a, jnp.ones(3), 1e-2)[2] == 1
  assert linalg.lstsq(a, jnp.ones(3), -1)[2] == 2
  np.testing.assert_allclose(linalg.pinv(a, 1e-2), np.diag([1.0, 0, 0]), atol=1e-15)
  np.testing.assert_allclose(
      linalg.pinv(jnp.diag(jnp.array([-2.0, 1.0])), hermitian=True), np.diag([-0.5, 1]))
  for call in (lambda: linalg.pinv(a, 0.1, rcond=0.1),
               lambda: linalg.matrix_rank(a, 0.1, tol=0.1)):
    with pytest.raises(ValueError, match="only one of"):
      call()
  assert jax.grad(lambda a: jnp.sum(linalg.pinv(a)))(jnp.zeros((2, 3))).shape == (2, 3)
