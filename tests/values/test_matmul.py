"""Handlers' products of small matrices: values, bits, derivatives and sharding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import derivatives
import linalg
from linalg._catalogue import matrices
from linalg._factorizations import matmul
from quick import optimised_jit
from sharded import moves_nothing

ALL_DTYPES = True
ONE_IN = 3
# Rows fill one or several registers, or lack one element. Blocks of rows overlap.
SIZES = [
    (1, 4, 1), (4, 1, 4), (2, 4, 3), (4, 4, 4), (5, 6, 7), (7, 5, 6), (8, 8, 8), (9, 7, 17),
    (16, 3, 16), (17, 33, 15), (12, 64, 31), (4, 0, 5), (0, 4, 5), (4, 5, 0)]
BATCHES = [((16,), (16,)), ((), (19,)), ((37,), ())]
OPERATIONS = {
    "plain": (matmul.matmul_p.plain, False, False),
    "transpose_a": (matmul.matmul_p.transpose_a, True, False),
    "transpose_b": (matmul.matmul_p.transpose_b, False, True),
}


def _operands(rng, batches, m, depth, n, dtype):
  return (
      matrices.general(rng, batches[0], m, depth, dtype),
      matrices.general(rng, batches[1], depth, n, dtype))


def _turn(x, transpose):
  return np.ascontiguousarray(np.swapaxes(x, -1, -2)) if transpose else x


def _is_a_call(function, *operands):
  text = jax.jit(function).lower(*operands).compile().as_text()
  return "custom_call_target=\"linalg_matmul" in text


@pytest.mark.parametrize("operation", OPERATIONS)
def test_values(operation, dtype, rng):
  """Products agree with NumPy's relative to |A| |B|. Sizes, layouts and shared operands vary."""
  several = [_operands(rng, BATCHES[sum(sizes) % 3], *sizes, dtype) for sizes in SIZES]
  multiply, transpose_a, transpose_b = OPERATIONS[operation]
  found = jax.jit(lambda several: [multiply(a, b) for a, b in several])(
      [(_turn(a, transpose_a), _turn(b, transpose_b)) for a, b in several])
  wide = np.result_type(dtype, np.float64)
  for sizes, (a, b), c in zip(SIZES, several, jax.device_get(found), strict=True):
    expected = a.astype(wide) @ b.astype(wide)
    assert c.dtype == dtype and c.shape == expected.shape
    bound = 2 * (sizes[1] + 1) * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b))
    assert np.all(np.abs(c - expected) <= bound), sizes


@pytest.mark.parametrize("conjugate", [(True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_conjugates(operation, conjugate, rng):
  """Either operand may be conjugated, in every layout. Real operands do not change."""
  for dtype in (np.complex64, np.complex128, np.float32):
    a, b = _operands(rng, ((9,), (9,)), 5, 6, 7, dtype)
    multiply, transpose_a, transpose_b = OPERATIONS[operation]
    c = multiply(
        _turn(a, transpose_a), _turn(b, transpose_b), conjugate_a=conjugate[0],
        conjugate_b=conjugate[1])
    expected = (a.conj() if conjugate[0] else a) @ (b.conj() if conjugate[1] else b)
    np.testing.assert_allclose(c, expected, rtol=0, atol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    "turns", [{}, {"adjoint_a": True}, {"adjoint_b": True}, {"transpose_a": True}], ids=str)
def test_products_of_rules(turns, rng):
  """Products in derivative rules have right values and second derivatives, at all sizes."""
  for dtype, n in ((np.float64, 4), (np.complex128, 4), (np.complex128, 65)):
    a, b = (matrices.general(rng, (2,), n, n, dtype) for _ in range(2))
    left = np.swapaxes(a, -1, -2) if "adjoint_a" in turns or "transpose_a" in turns else a
    left = left.conj() if "adjoint_a" in turns else left
    right = np.swapaxes(b, -1, -2).conj() if "adjoint_b" in turns else b
    np.testing.assert_allclose(matmul.product(a, b, **turns), left @ right, rtol=1e-9, atol=1e-9)
    if n == 4:
      derivatives.check(lambda a, b: [matmul.product(a, b, **turns)], (a, b), rng)


def test_the_handlers_are_called(dtype, rng):
  """Handlers compute only what they are faster at. Otherwise the other tests would see XLA's
  products."""
  a, b = _operands(rng, ((16,), (16,)), 5, 5, 5, dtype)
  assert _is_a_call(linalg.matmul, a, b)
  assert _is_a_call(jax.vmap(linalg.matmul), a, b)
  assert _is_a_call(linalg.matmul, a[0], b[0])
  assert _is_a_call(linalg.matmul, a[:, :3, :3], b[:, :3, :3]) == (dtype.kind == "c")
  assert not _is_a_call(linalg.matmul, *_operands(rng, ((16,), (16,)), 65, 5, 5, dtype))
  assert not _is_a_call(lambda a, b: linalg.matmul(a, b, precision="highest"), a, b)


def test_bits_do_not_depend_on_the_batch(dtype, rng):
  several = [_operands(rng, ((40,), (40,)), *sizes, dtype) for sizes in SIZES[:-3]]
  found = optimised_jit(lambda several: [
      [linalg.matmul(a[some], b[some]) for some in (slice(None), slice(7, 30), 7)]
      for a, b in several])(several)
  for whole, part, one in jax.device_get(found):
    np.testing.assert_array_equal(part, whole[7:30])
    np.testing.assert_array_equal(one, whole[7])


def test_other_operands(rng, standard_promotion):
  """Operands that the handlers do not take are computed as in jax.numpy."""
  a, b = _operands(rng, ((16,), (16,)), 4, 4, 4, np.float32)
  for x, y in (
      (a, b[0, :, 0]), (a[0, 0], b), (a.astype(np.int32), b.astype(np.int32)),
      (a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)), (a, b.astype(np.float64))):
    ours, stock = linalg.matmul(x, y), jnp.matmul(x, y)
    assert ours.dtype == stock.dtype
    np.testing.assert_array_equal(ours, stock)
  with pytest.raises((TypeError, ValueError)):
    linalg.matmul(a, b[:, :3])


@pytest.mark.parametrize("batches", BATCHES, ids=str)
def test_derivatives(batches, rng):
  """Derivatives are right in both modes to second order, including a shared operand."""
  for dtype in (np.float64, np.complex128):
    a, b = _operands(rng, batches, 4, 3, 2, dtype)
    # The stencil adds a dimension to each operand.
    full = [x.ndim for x in (a, b)]
    by_stencil = lambda a, b: (
        linalg.matmul(a, b) if [a.ndim, b.ndim] == full else jax.vmap(linalg.matmul)(a, b))
    derivatives.check(by_stencil, (a, b), rng)


def test_sharded(rng, dtype):
  """A batch stays on its devices, forward and backward."""
  mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
  a, b = (
      jax.device_put(x, NamedSharding(mesh, PartitionSpec("x")))
      for x in _operands(rng, ((32,), (32,)), 5, 6, 4, dtype))

  def value_and_gradients(a, b):
    c, transpose = jax.vjp(linalg.matmul, a, b)
    return c, *transpose(c)

  compiled = jax.jit(value_and_gradients).lower(a, b).compile()
  text = compiled.as_text()
  assert text.count("custom_call_target=\"linalg_matmul") == 3
  moves_nothing(text)
  c = compiled(a, b)[0]
  assert c.sharding.spec[0] == "x"
  np.testing.assert_allclose(c, np.asarray(a) @ np.asarray(b), rtol=1e-5, atol=1e-5)


def test_a_constant_beside_a_sharded_operand(rng):
  """Catches a result that takes its mesh from the constant, which has none.

  Functions jitted after it could not be mapped over a sharded batch.
  """
  mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
  a, b = _operands(rng, ((), (16,)), 4, 4, 4, np.float32)
  sharded = jax.device_put(b, NamedSharding(mesh, PartitionSpec("x")))
  one = jax.jit(lambda b: jnp.where(b > 0, linalg.matmul(jnp.asarray(a), b), jnp.float32(0)))
  found = jax.jit(jax.vmap(one))(sharded)
  assert found.sharding.spec[0] == "x"
  np.testing.assert_array_equal(found, jax.vmap(one)(b))


@pytest.mark.parametrize("adjoint_a", [False, True])
def test_congruence(dtype, adjoint_a, rng):
  """Products, broadcasting and the added term agree with NumPy."""
  a = matrices.general(rng, (7,), *((3, 5) if adjoint_a else (5, 3)), dtype)
  x, q = matrices.general(rng, (), 3, 3, dtype), matrices.general(rng, (2, 1), 5, 5, dtype)
  call = functools.partial(linalg.congruence, adjoint_a=adjoint_a)
  outer = a.conj().swapaxes(-1, -2) if adjoint_a else a
  expected = outer @ x @ outer.conj().swapaxes(-1, -2)
  limit = 8 * np.finfo(dtype).eps * np.abs(expected).max()
  np.testing.assert_allclose(call(a, x), expected, atol=limit)
  np.testing.assert_allclose(call(a, x, q), expected + q, atol=limit)
  assert _is_a_call(call, a, x)


def test_errors_of_congruence(rng):
  a = np.ones((4, 3, 2))
  with pytest.raises(ValueError, match=r"congruence\(\): a \(4, 3, 2\) and x \(3, 3\)"):
    linalg.congruence(a, np.ones((3, 3)))
  with pytest.raises(ValueError, match=r"x \(2, 2\) and q \(2, 2\)"):
    linalg.congruence(a, np.ones((2, 2)), np.ones((2, 2)))
  with pytest.raises(ValueError, match=r"congruence\(\) must have shape \[..., m, n\], got \(2,\)"):
    linalg.congruence(a, np.ones(2))
