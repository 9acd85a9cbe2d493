"""Norms and condition numbers where stock JAX overflows, underflows or has a NaN gradient."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import linalg
import matrices
from quick import quick_jit

ONE_IN = 3

VECTOR_ORDERS = (None, 1, 2, 3, 0.5, -1, -2, -2.5, 0, np.inf, -np.inf)
MATRIX_ORDERS = (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)


@cases.each_double
@pytest.mark.parametrize("keepdims", [False, True])
def test_against_numpy(keepdims, dtype, rng):
  """Norms of every order are right, along every axis and pair of axes."""
  x = matrices.general(rng, (3,), 4, 5, dtype)
  options = [*itertools.product(VECTOR_ORDERS, (0, -1, (1,))),
             *itertools.product(MATRIX_ORDERS, ((0, 1), (2, 0), (-1, -2)))]
  norms = quick_jit(lambda x: [linalg.norm(x, *some, keepdims) for some in options])
  for some, norm in zip(options, norms(x), strict=True):
    expected = np.linalg.norm(x, *some, keepdims)
    np.testing.assert_allclose(norm, expected, rtol=1e-13, err_msg=str(some))
  np.testing.assert_allclose(
      linalg.norm(x, keepdims=keepdims), np.linalg.norm(x, keepdims=keepdims), rtol=1e-14)


@pytest.mark.parametrize("dtype, scale", [
    (np.float32, 1e30), (np.float32, 1e-30), (np.float64, 1e200), (np.float64, 1e-200),
    (np.complex128, 1e200), (np.complex128, 1e-200)], ids=str)
def test_range(dtype, scale):
  """Catches squares and powers that leave the range of the dtype."""
  x = np.full(5, scale, dtype)
  orders = (None, 2, 3, 0.5, -1, -2.5, np.inf, -np.inf, 1)
  matrix_orders = [order for order in MATRIX_ORDERS if order != -2]
  norms, matrix_norms, gradient = quick_jit(lambda x, a: (
      [linalg.norm(x, order) for order in orders],
      [linalg.matrix_norm(a, ord=order) for order in matrix_orders],
      jax.grad(linalg.norm)(x.real)))(x, np.full((3, 4), scale, dtype))
  for order, norm in zip(orders, norms, strict=True):
    expected = np.linalg.norm(np.ones(5), order) * scale
    np.testing.assert_allclose(norm, expected, rtol=1e-6)
  for order, norm in zip(matrix_orders, matrix_norms, strict=True):
    expected = np.linalg.norm(np.ones((3, 4)), order) * scale
    np.testing.assert_allclose(norm, expected, rtol=1e-5)
  np.testing.assert_allclose(gradient, 5**-0.5, rtol=1e-6)


@pytest.mark.parametrize("order", VECTOR_ORDERS)
def test_gradient_at_zero(order):
  """The gradient is a subgradient, never NaN, at the zero vector and at a vector with a zero
  entry."""
  gradient = jax.grad(lambda x: linalg.norm(x, order))
  points = (np.zeros(3), np.array([0.0, 1.0, 2.0]), np.zeros(3, complex))
  found = quick_jit(lambda points: [gradient(x) for x in points])(points)
  for x in found:
    assert np.isfinite(x).all()
  if order is None:
    assert not np.any(found[0])


@pytest.mark.parametrize("order", MATRIX_ORDERS)
def test_gradient_of_matrix_norms(order):
  """Finite at equal singular values and at singular matrices, and exact where a gradient exists."""
  gradient = quick_jit(jax.grad(lambda a: linalg.norm(a, order)))
  for a in (np.zeros((3, 3)), np.eye(3), np.ones((3, 3))):
    assert np.isfinite(gradient(a)).all()
  if order == "nuc":
    np.testing.assert_allclose(gradient(np.eye(3)), np.eye(3), atol=1e-14)


def test_factorizations_of_the_nuclear_norm(rng):
  """A value takes singular values only; its derivatives of any order share one factorization."""
  nuclear = lambda a: linalg.matrix_norm(a, ord="nuc")
  along = lambda a: jax.jvp(nuclear, (a,), (a[::-1],))
  for shape in ((4, 3), (3, 4)):
    a = rng.standard_normal(shape)
    for function, vectors, values in (
        (nuclear, 0, 1), (jax.value_and_grad(nuclear), 1, 0), (along, 1, 0),
        (lambda a: jax.jvp(along, (a,), (a,)), 1, 0)):
      text = str(jax.make_jaxpr(function)(a))
      counts = [len(re.findall(rf"= {name}\b", text)) for name in ("linalg_svd", "linalg_svdvals")]
      assert counts == [vectors, values]
    # d²f(A)² = 2 (df)² + 2 f d²f, and f is of degree 1: along A itself d²f is 0.
    square = lambda a: nuclear(a) ** 2
    slope = lambda x: jax.jvp(square, (x,), (a,))[1]
    np.testing.assert_allclose(
        jax.jvp(slope, (a,), (a,))[1], 2 * np.linalg.norm(a, "nuc") ** 2, rtol=1e-12)
  assert jax.grad(nuclear)(np.ones((0, 3))).shape == (0, 3)


def test_special_values():
  """NaN stays NaN, and infinity stays infinity."""
  assert np.isnan(linalg.norm(jnp.array([1.0, np.nan])))
  for order in (None, 1, 3, 0.5, np.inf):
    assert linalg.norm(jnp.array([1.0, -np.inf]), order) == np.inf
  assert linalg.norm(jnp.array([0.0, 2.0]), -1) == 0


def test_errors():
  x = jnp.ones((2, 3, 4))
  for call in (
      lambda: linalg.norm(x, axis=(0, 1, 2)), lambda: linalg.norm(x, axis=(1, 1)),
      lambda: linalg.norm(x, axis=3), lambda: linalg.norm(x, 3, axis=(0, 1)),
      lambda: linalg.norm(x, "fro", axis=0), lambda: linalg.vector_norm(x, ord="inf"),
      lambda: linalg.matrix_norm(x[0, 0]), lambda: linalg.cond(x[0, 0]),
      lambda: linalg.cond(x, 1), lambda: linalg.cond(jnp.ones((0, 0)))):
    with pytest.raises(ValueError):
      call()


@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, np.inf, -np.inf, "fro"])
def test_cond_at_degenerate_matrices(p):
  """Infinite at singular matrices; gradients are finite there and at equal singular values."""
  cond = quick_jit(jax.value_and_grad(lambda a: linalg.cond(a, p)))
  for a in (np.zeros((3, 3)), np.ones((3, 3)), np.eye(3), 2 * np.eye(3)):
    value, gradient = cond(a)
    assert not np.isnan(value)
    assert np.isfinite(gradient).all()
  if p != -2:
    assert cond(np.zeros((3, 3)))[0] == np.inf
  assert np.isnan(cond(np.full((3, 3), np.nan))[0])


@pytest.mark.parametrize("p", [None, -2, 1, -1, np.inf, -np.inf, "fro"])
def test_cond_at_the_ends_of_the_range(p):
  """The reciprocal of a scale must not be flushed to zero."""
  a = np.array([[1, 0.25], [0.5, 0.75]])
  for dtype in (np.float32, np.float64):
    for scale in (0.9 * np.finfo(dtype).max, 16 * np.finfo(dtype).tiny):
      found = linalg.cond(jnp.asarray(a * float(scale), dtype), p)
      np.testing.assert_allclose(found, np.linalg.cond(a, p), rtol=1e-5, err_msg=str(scale))
