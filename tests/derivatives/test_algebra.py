"""The matrix algebra of the derivative rules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from linalg._core import algebra
from linalg._functions import hermitian_functions, sqrtm
from quick import optimised_jit


@pytest.mark.parametrize("value", [1.0, np.nan, np.inf])
def test_zeros_like(value, dtype):
  """Zeros, for any values of the array: in a scan, NaN would spread to every sum."""
  a = jnp.full((2, 3, 3), value, dtype)
  for zeros in (algebra.zeros_like(a), jax.jit(algebra.zeros_like)(a)):
    assert zeros.dtype == dtype
    np.testing.assert_array_equal(zeros, np.zeros((2, 3, 3)))


def test_zeros_like_have_the_sharding():
  mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
  with jax.set_mesh(mesh):
    a = jax.device_put(np.full((16, 2), np.nan), jax.NamedSharding(mesh, PartitionSpec("x")))
    assert jax.typeof(algebra.zeros_like(a)) == jax.typeof(a)
    same = jax.shard_map(
        lambda a: jax.lax.scan(lambda c, _: (c + a, None), algebra.zeros_like(a), None, 1)[0],
        out_specs=PartitionSpec("x"), in_specs=PartitionSpec("x"))(jnp.ones_like(a))
    np.testing.assert_array_equal(same, np.ones((16, 2)))


def test_diagonals():
  """Diagonals beside the main one end with zeros, with strides and as sums."""
  a = np.arange(1.0, 33).reshape(2, 4, 4)
  for offset in (-4, -1, 0, 1, 2):
    expected = np.zeros((2, 4))
    found = np.diagonal(a, offset, -2, -1)
    expected[:, : found.shape[-1]] = found
    for function in (algebra.diagonal_of, algebra.stored_diagonal):
      np.testing.assert_array_equal(function(jnp.asarray(a), offset), expected)
      assert function(jnp.ones((2, 0, 0)), offset).shape == (2, 0)


def test_columns_before_one_of_nan_have_a_root():
  """The recurrence for the root of a triangle begins with zeros, not with NaN."""
  t = np.triu(np.ones((3, 3), np.complex128)) + np.eye(3)
  t[:, 2] = np.nan
  root = np.asarray(sqrtm.root_of_triangle(jnp.asarray(t)))
  np.testing.assert_allclose(root[:2, :2] @ root[:2, :2], t[:2, :2], atol=1e-14)
  assert np.isnan(root[:, 2]).any()


def test_none_is_zero():
  x, y = jnp.arange(3.0), jnp.ones(3)
  np.testing.assert_array_equal(algebra.minus(None, y), -y)
  np.testing.assert_array_equal(algebra.minus(x, y), x - y)
  np.testing.assert_array_equal(algebra.plus(None, y), y)
  np.testing.assert_array_equal(algebra.plus(x, y), x + y)
  zeros = algebra.without_none((x, y), (None, y))
  jax.tree.map(functools.partial(np.testing.assert_array_equal), zeros, [0 * x, y])


@pytest.mark.extended
def test_eigenvalues_that_the_program_computes():
  """XLA fuses products and differences of them, so equal values differ at some places."""
  rng = np.random.default_rng(0)
  a, b = (rng.standard_normal((8, 8)) + 1j * rng.standard_normal((8, 8)) for _ in range(2))
  _, s, vh = np.linalg.svd(a)
  f = hermitian_functions._inverse_root(4)

  def slopes(eigenvalues, s):
    root = lambda a: hermitian_functions._operation(0)(
        a.conj().T @ a, eigenvalues(s), vh.conj().T, f=f)
    loss = lambda a: jnp.sum(jnp.abs(root(a)) ** 3)
    return jax.jvp(jax.grad(loss), (a,), (b,))

  found = optimised_jit(functools.partial(slopes, lambda s: s**2))(s)
  expected = optimised_jit(functools.partial(slopes, lambda s: s))(s**2)
  for x, y in zip(found, expected, strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9 * np.abs(y).max())
