"""Derivatives of determinants at singular matrices, and where products are out of range."""

import jax
import numpy as np
import pytest

import cases
import linalg
import matrices
from quick import quick_jit

COMPILES = True
ONE_IN = 3


def _adjugate(a):
  """Returns the adjugate from cofactors, which is right for every rank."""
  n = a.shape[-1]
  result = np.empty_like(a)
  for i, j in np.ndindex(n, n):
    minor = np.delete(np.delete(a, i, 0), j, 1)
    result[j, i] = (-1) ** (i + j) * (np.linalg.det(minor) if n > 1 else 1)
  return result


def _gradient_of_det(a):
  holomorphic = np.iscomplexobj(a)
  return np.asarray(quick_jit(jax.vmap(jax.grad(linalg.det, holomorphic=holomorphic)))(a))


def _assert_adjugate(gradient, a):
  for one, g in zip(a, gradient, strict=True):
    expected = _adjugate(one).T
    scale = max(np.abs(expected).max(), np.abs(one).max() ** (len(one) - 1))
    np.testing.assert_allclose(g, expected, rtol=0, atol=1e-12 * scale)


@cases.each_double
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_det_whose_last_pivot_is_zero(n, dtype, rng):
  """det(A) A⁻¹ is 0 * inf where A is singular, but the adjugate is finite."""
  a = matrices.general(rng, (5,), n, n, dtype)
  a[0, :, -1] = 0
  a[1, -1] = 0
  if n > 1:
    # The integers are small, so that the elimination is exact.
    a[2] = np.triu(np.ones((n, n)))
    a[2, -1] = a[2, 0]
    a[3] = np.diag(np.arange(n)[::-1])[::-1]
  else:
    a[2:4] = 0
  _assert_adjugate(_gradient_of_det(a), a)


@cases.each_double
@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_det_of_any_zero_pivot(n, dtype, rng):
  """A matrix of rank n - 1 has a nonzero adjugate, wherever the zero pivot is."""
  a = matrices.general(rng, (n,), n, n, dtype)
  for k in range(n):
    a[k, :, k] = 0
  _assert_adjugate(_gradient_of_det(a), a)


@cases.each_double
@pytest.mark.parametrize("n", [2, 3, 5])
def test_det_of_lower_rank(n, dtype, rng):
  """At rank n - 2 the gradient is zero, also for n = 2, where it is an empty sum of products."""
  a = np.zeros((2, n, n), dtype)
  a[1, :, : n - 2] = matrices.general(rng, (), n, n - 2, dtype)
  _assert_adjugate(_gradient_of_det(a), a)


@cases.each_double
@pytest.mark.parametrize("n", [4, 6, 20])
def test_det_of_nilpotent_matrices(n, dtype, rng):
  """The rank is n - 1, and every pivot is zero."""
  del rng
  _assert_adjugate(_gradient_of_det(np.eye(n, k=1, dtype=dtype)[None]), np.eye(n, k=1)[None])


@pytest.mark.parametrize(
    "dtype, large", [(np.float32, 1e10), (np.float64, 1e20)], ids=["float32", "float64"])
def test_det_of_graded_matrices(dtype, large):
  """A number that is tiny beside the largest pivot is not tiny beside the others."""
  gradient = jax.grad(linalg.det)(np.diag(np.array([large, 1 / large, 1, 0], dtype)))
  np.testing.assert_allclose(gradient, np.diag([0, 0, 0, 1]), rtol=1e-6)


def test_third_derivative_of_det(rng):
  """At equal singular values, det(I + t B) has the coefficients of B's characteristic
  polynomial."""
  b = rng.standard_normal((4, 4))
  along = lambda t: linalg.det(np.eye(4) + t * b)
  expected = -6 * np.poly(b)[3]
  np.testing.assert_allclose(jax.grad(jax.grad(jax.grad(along)))(0.0), expected, rtol=1e-12)


@cases.each_double
def test_det_of_numerical_rank(dtype, rng):
  """Near a singular matrix 1 / pivot is huge, but its product with the determinant is not."""
  a = matrices.general(rng, (4,), 5, 5, dtype)
  a[:, :, 1] = a[:, :, 0] * 3 - a[:, :, 4] / 7
  gradient = _gradient_of_det(a)
  for one, g in zip(a, gradient, strict=True):
    expected = _adjugate(one).T
    np.testing.assert_allclose(g, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def _hessian_of_det(a):
  """Returns the Hessian from minors of order n - 2, which is right for every rank."""
  n = a.shape[-1]
  result = np.zeros((n,) * 4, a.dtype)
  for i, j, k, l in np.ndindex(n, n, n, n):
    if i != k and j != l:
      minor = np.delete(np.delete(a, (i, k), 0), (j, l), 1)
      sign = (-1) ** (i + j + k + l) * (1 if (i < k) == (j < l) else -1)
      result[i, j, k, l] = sign * (np.linalg.det(minor) if n > 2 else 1)
  return result


@cases.each_double
@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev], ids=lambda outer: outer.__name__)
@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_second_derivative_of_det(n, outer, dtype, rng):
  """The derivative is right at every rank: the rule never divides by a zero singular value."""
  holomorphic = np.iscomplexobj(dtype())
  hessian = quick_jit(jax.vmap(outer(
      jax.grad(linalg.det, holomorphic=holomorphic), holomorphic=holomorphic)))
  a = np.stack([
      matrices.general(rng, (), n, rank, dtype) @ matrices.general(rng, (), rank, n, dtype)
      for rank in range(n + 1)])
  a[1] = np.eye(n)
  a[-2, :, -1] = 0
  for one, actual in zip(a, hessian(a), strict=True):
    scale = np.abs(one).max() ** (n - 2)
    np.testing.assert_allclose(actual, _hessian_of_det(one), rtol=0, atol=1e-11 * scale)


def test_second_derivative_of_det_out_of_range():
  """The product of all entries except two is in range, but some partial products are not."""
  a = np.diag(np.array(10 * [1e4] + 20 * [1e-2] + [3, 0], np.float32))
  corner = np.zeros_like(a)
  corner[-1, -1] = 1
  _, change = quick_jit(lambda a, da: jax.jvp(jax.grad(linalg.det), (a,), (da,)))(a, corner)
  np.testing.assert_allclose(change[-2, -2], 1, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda dtype: dtype.__name__)
def test_gradient_of_det_out_of_range(dtype):
  """The gradient is in range, but intermediate products of pivots are not."""
  large = 2.0 ** int(np.log2(float(np.finfo(dtype).max)) * 0.6)
  top = np.finfo(dtype).max / 2
  for diagonal in ([large, large, 1 / large, 1 / large], [1 / large, large, 1 / large, large],
                   [top, 1, 1 / large, 1]):
    diagonal = np.array(diagonal, dtype)
    gradient = np.diag(jax.grad(linalg.det)(np.diag(diagonal)))
    expected = np.prod(np.longdouble(diagonal)) / diagonal
    np.testing.assert_allclose(gradient, expected.astype(dtype), rtol=16 * np.finfo(dtype).eps)
