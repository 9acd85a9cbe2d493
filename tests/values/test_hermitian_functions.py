"""Roots of gradient statistics: zero, semidefinite, and indefinite by rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import derivatives
import linalg
import matrices
from quick import quick_jit

ONE_IN = 2

USUAL = {"ridge_epsilon": 1e-6, "epsilon": 1e-12}
DTYPES = pytest.mark.parametrize(
    "dtype", [jnp.bfloat16, np.float32, np.float64], ids=lambda dtype: np.dtype(dtype).name)
POWERS = pytest.mark.parametrize("p", [1, 2, 4, -2])


def _finite_derivatives(function, a):
  direction = jnp.eye(a.shape[-1], dtype=a.dtype)

  @quick_jit
  def values(a):
    gradient = jax.grad(lambda a: jnp.sum(function(a).astype(jnp.float32)))(a)
    return *jax.jvp(function, (a,), (direction,)), gradient

  for x in values(a):
    assert np.isfinite(np.asarray(x, np.float64)).all()


@DTYPES
@POWERS
def test_zero_matrix(p, dtype):
  """The diagonal is epsilon^(-1/p); without epsilon there is no root."""
  options = (USUAL, {"ridge_epsilon": 1e-6}, {})
  root, *others = quick_jit(
      lambda a: [linalg.inverse_pth_root(a, p, **some) for some in options])(
          jnp.zeros((2, 3, 3), dtype))
  expected = np.broadcast_to(1e-12 ** (-1 / p) * np.eye(3), (2, 3, 3))
  np.testing.assert_allclose(np.asarray(root, float), expected, rtol=float(jnp.finfo(dtype).eps))
  for other in others:
    assert np.isnan(np.asarray(other, float)).all()


@DTYPES
def test_derivatives_at_zero(dtype):
  """Derivatives are finite for an epsilon whose powers are in range."""
  _finite_derivatives(
      lambda a: linalg.inverse_pth_root(a, 4, ridge_epsilon=1e-6, epsilon=1e-3),
      jnp.zeros((3, 3), dtype))


def test_derivative_at_zero_is_that_of_the_shifted_root():
  epsilon = 0.5
  direction = np.diag([1.0, 2, 3])
  slope = jax.jvp(
      lambda a: linalg.inverse_pth_root(a, 2, epsilon=epsilon), (np.zeros((3, 3)),),
      (direction,))[1]
  np.testing.assert_allclose(slope, -0.5 * epsilon**-1.5 * direction, rtol=1e-12, atol=1e-12)


@POWERS
def test_indefinite_by_rounding(p, rng):
  """A rank-one matrix rounded to bfloat16: eigenvalues below 0 count as 0."""
  g = rng.standard_normal((16, 12, 1))
  a = jnp.asarray(g @ g.mT, jnp.bfloat16)
  wide = np.asarray(a, np.float64)
  w, v = np.linalg.eigh(wide)
  assert (w[:, 0] < -1e-3).all()
  function = quick_jit(lambda a: linalg.inverse_pth_root(a, p, **USUAL))
  root = function(a)
  assert root.dtype == jnp.bfloat16
  assert np.isfinite(np.asarray(root, float)).all()
  shift = 1e-6 * w[:, -1:] + 1e-12
  values = (np.maximum(w, 0) + shift) ** (-1 / p)
  expected = (v * values[:, None, :]) @ v.mT
  np.testing.assert_allclose(
      function(wide), expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
  _finite_derivatives(lambda a: linalg.inverse_pth_root(a, p, ridge_epsilon=1e-2), a[0])


def test_derivatives_of_a_clamped_matrix(rng):
  """Derivatives are exact to second order where no eigenvalue is at the bound.

  Eigenvalues may be below it.
  """
  a = matrices.with_eigenvalues(rng, np.array([-0.3, -0.1, 1.0, 2]), np.float64)
  derivatives.check(
      lambda a: (linalg.inverse_pth_root(a, 3, ridge_epsilon=0.1, epsilon=0.2),), (a,), rng,
      tolerance=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda dtype: dtype.__name__)
def test_positive_definite_matrices(dtype, rng):
  """The root is that of the shifted matrix; each matrix of a batch has its own shift."""
  a = matrices.positive_definite(rng, (3,), 5, dtype)
  ridge = np.array([0.1, 0.2, 0.3], dtype)
  root = linalg.inverse_pth_root(a, 2, ridge_epsilon=ridge, epsilon=dtype(0.5))
  shift = ridge * np.linalg.eigvalsh(a)[:, -1] + 0.5
  shifted = a + shift[:, None, None] * np.eye(5)
  np.testing.assert_allclose(
      np.asarray(root, float) @ np.asarray(root) @ shifted, np.broadcast_to(np.eye(5), a.shape),
      atol=200 * np.finfo(dtype).eps)


def test_range():
  """A shift that is tiny against the largest eigenvalue does not leave the range."""
  a = np.diag(np.array([1e30, 1e25, 1], np.float32))
  root = np.diag(linalg.inverse_pth_root(a, 2, epsilon=1e-30))
  np.testing.assert_allclose(root[:2], [1e-15, 10**-12.5], rtol=1e-5)
  assert np.isfinite(root).all()


def test_nan_stays_with_its_matrix():
  a = np.stack([np.eye(2), np.full((2, 2), np.nan), 2 * np.eye(2)])
  root = np.asarray(linalg.inverse_pth_root(a, 2, **USUAL))
  assert np.isnan(root[1]).all()
  assert np.isfinite(root[[0, 2]]).all()


def test_no_root_of_order_zero():
  with pytest.raises(ValueError, match="p to inverse_pth_root"):
    linalg.inverse_pth_root(np.eye(2), 0)
