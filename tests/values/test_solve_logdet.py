"""solve_logdet: x and log |det A| are those of solve and slogdet, from one factorization."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import cases
import derivatives
import linalg
import selection
from linalg._catalogue import matrices

ONE_IN = 3

KINDS = pytest.mark.parametrize("assume_a", ["gen", "pos"])


def _systems(rng, batch, n, k, dtype, assume_a):
  make = matrices.positive_definite if assume_a == "pos" else matrices.well_conditioned
  return make(rng, batch, n, dtype), matrices.general(rng, batch, n, k, dtype)


def _targets(function, *operands):
  text = jax.jit(function).lower(*operands).compile().as_text()
  return sorted(
      line.partition('custom_call_target="')[2].partition('"')[0] for line in text.splitlines()
      if 'custom_call_target="linalg' in line)


@selection.all_dtypes
@KINDS
@pytest.mark.parametrize("n, k", [(0, 2), (1, 1), (2, 1), (3, 2), (5, 0), (8, 3), (33, 1), (70, 5)])
def test_agrees_with_solve_and_slogdet(n, k, assume_a, dtype, rng):
  a, b = _systems(rng, (11,), n, k, dtype, assume_a)
  x, sign, logabsdet, info = linalg.solve_logdet(a, b, assume_a=assume_a)
  assert (x.dtype, sign.dtype, logabsdet.dtype) == (a.dtype, a.dtype, a.real.dtype)
  expected = linalg.slogdet(a)
  bound = 4 * (n + 1) * np.finfo(dtype).eps
  np.testing.assert_allclose(
      x, linalg.solve(a, b, assume_a=assume_a), rtol=0, atol=100 * bound)
  np.testing.assert_allclose(sign, expected.sign, rtol=0, atol=bound)
  np.testing.assert_allclose(
      logabsdet, expected.logabsdet, rtol=bound, atol=bound)
  np.testing.assert_array_equal(info, 0)


@pytest.mark.cpu
def test_bits_of_small_general_systems(dtype, rng):
  """Where one matrix is in each lane, they are those of `solve` and `slogdet`."""
  for n in (3, 8, 20):
    a, b = _systems(rng, (19,), n, 2, dtype, "gen")
    found = linalg.solve_logdet(a, b)
    np.testing.assert_array_equal(found.x, linalg.solve(a, b))
    expected = linalg.slogdet(a)
    np.testing.assert_array_equal(found.sign, expected.sign)
    np.testing.assert_array_equal(found.logabsdet, expected.logabsdet)


@pytest.mark.parametrize("assume_a", [
    pytest.param("gen", marks=pytest.mark.cpu),  # a GPU sums logarithms by XLA
    "pos"])
@pytest.mark.parametrize("n", [4, 20, 70])
def test_bits_do_not_depend_on_the_batch(n, assume_a, dtype, rng):
  """Neither do they on a neighbour that fails, which is NaN alone."""
  a, b = _systems(rng, (21,), n, 2, dtype, assume_a)
  a[7] = np.nan
  a[9] = -np.eye(n) if assume_a == "pos" else 0
  whole = linalg.solve_logdet(a, b, assume_a=assume_a)
  np.testing.assert_array_equal(np.flatnonzero(whole.info), [7, 9])
  assert np.isnan(whole.x[7]).all() and np.isnan(whole.x[9]).all()
  assert np.isnan(whole.logabsdet[7]) and np.isnan(whole.sign[7])
  expected = np.nan if assume_a == "pos" else -np.inf
  np.testing.assert_array_equal(whole.logabsdet[9], expected)
  for some in (slice(6, 8), slice(8, 9), slice(3, 20)):
    part = linalg.solve_logdet(a[some], b[some], assume_a=assume_a)
    for x, y in zip(part, whole, strict=True):
      np.testing.assert_array_equal(x, y[some])


@pytest.mark.parametrize("assume_a, words", [
    ("gen", "is singular: pivot 2 "), ("pos", "is not positive definite: .* of order 2 ")])
def test_checked(assume_a, words):
  a = np.stack([np.eye(3), np.diag([1.0, 0, 1])])
  call = linalg.checked(lambda a, b: linalg.solve_logdet(a, b, assume_a=assume_a))
  with pytest.raises(linalg.LinAlgError, match=rf"^solve_logdet: .*\(1\) {words}"):
    call(a, np.ones(3))


@pytest.mark.parametrize("diagonal, expected", [
    ([1e-320, 1e300, 1e-300, 4], np.log(1e-320) + np.log(4)), ([1e300] * 80, 80 * np.log(1e300)),
    ([1e-300] * 300, -300 * np.log(1e300)), ([np.inf, 2, 3, 4], np.inf)])
def test_logarithm_out_of_range(diagonal, expected):
  """The determinant is out of range, the logarithm is not."""
  a = np.broadcast_to(np.diag(diagonal), (9, len(diagonal), len(diagonal)))
  found = linalg.solve_logdet(a, np.ones(len(diagonal)), assume_a="pos")
  np.testing.assert_allclose(found.logabsdet, expected, rtol=1e-14)


@KINDS
def test_one_matrix_serves_all(assume_a, rng):
  """A matrix without a batch is factored once, also under vmap, and has one determinant."""
  a, b = _systems(rng, (6,), 5, 2, np.float64, assume_a)
  call = lambda a, b: linalg.solve_logdet(a, b, assume_a=assume_a)
  expected = call(np.broadcast_to(a[0], a.shape), b)
  found = call(a[0], b)
  assert found.logabsdet.shape == found.sign.shape == found.info.shape == ()
  mapped = jax.vmap(call, in_axes=(None, 0))(a[0], b)
  for results in (found, mapped):
    for x, y in zip(results, expected, strict=True):
      np.testing.assert_allclose(np.broadcast_to(x, y.shape), y, rtol=1e-13)
  of_a = jax.vmap(call, in_axes=(0, None))(a, b[0])
  np.testing.assert_array_equal(of_a.x, call(a, np.broadcast_to(b[0], b.shape)).x)
  np.testing.assert_array_equal(call(a, b[0, :, 0]).x[..., None], call(a, b[0, :, :1]).x)
  gradient = jax.grad(lambda a: jnp.sum(call(a, b).x) + call(a, b).logabsdet)
  whole = jax.grad(
      lambda a: jnp.sum(call(a, b).x) + jnp.mean(call(a, b).logabsdet))(
          np.broadcast_to(a[0], a.shape))
  np.testing.assert_allclose(gradient(a[0]), np.sum(whole, axis=0), rtol=1e-11)


def test_the_hermitian_part_counts(dtype, rng):
  a, b = _systems(rng, (5,), 6, 1, dtype, "pos")
  skew = matrices.general(rng, (5,), 6, 6, dtype)
  found = linalg.solve_logdet(a + skew - skew.mT.conj(), b, assume_a="pos")
  expected = linalg.solve_logdet(a, b, assume_a="pos")
  for x, y in zip(found, expected, strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=100 * np.finfo(dtype).eps)


@cases.each_double
@KINDS
def test_derivatives(assume_a, dtype, rng):
  """To second order, by A and by b."""
  a, b = _systems(rng, (2,), 4, 2, dtype, assume_a)

  def call(a, b):
    x, sign, logabsdet, _ = linalg.solve_logdet(a, b, assume_a=assume_a)
    return (x, logabsdet) if assume_a == "pos" else (x, sign, logabsdet)

  derivatives.check(call, (a, b), rng, 1e-7)


@KINDS
def test_derivatives_of_one_matrix(assume_a, rng):
  """To second order, of operations that factor it once."""
  a, b = _systems(rng, (), 3, 1, np.float64, assume_a)
  b = np.stack([b, 2 * b])

  def call(a, b):
    x, _, logabsdet, _ = linalg.solve_logdet(a[..., None, :, :], b, assume_a=assume_a)
    return x, logabsdet

  derivatives.check(call, (a, b), rng, 1e-7)


def test_gradient_of_a_log_density_takes_two_calls(rng):
  """One handler for the value, and one for both cotangents. Larger sizes take the formula."""
  k, y = _systems(rng, (3,), 6, 1, np.float64, "pos")

  def density(k, y):
    x, _, logdet, _ = linalg.solve_logdet(k, y, assume_a="pos")
    return -0.5 * (jnp.sum(x * y) + jnp.sum(logdet))

  gradient = jax.grad(density)
  assert _targets(gradient, k, y) == [
      "linalg_positive_solve_logdet_factor", "linalg_positive_solve_logdet_vjp"]
  inverse = np.linalg.inv(k)
  x = inverse @ y
  np.testing.assert_allclose(gradient(k, y), 0.5 * (x @ x.mT - inverse), rtol=1e-9, atol=1e-12)
  large = np.zeros((3, 60, 60)), np.zeros((3, 60, 1))
  assert "linalg_positive_solve_logdet_vjp" not in _targets(gradient, *large)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@KINDS
def test_half_precision(assume_a, dtype, rng):
  a, b = _systems(rng, (3,), 4, 1, np.float32, assume_a)
  found = linalg.solve_logdet(a.astype(dtype), b.astype(dtype), assume_a=assume_a)
  assert found.x.dtype == found.sign.dtype == found.logabsdet.dtype == dtype
  np.testing.assert_allclose(
      found.logabsdet.astype(np.float32), np.linalg.slogdet(a)[1], rtol=0.02, atol=0.02)


@pytest.mark.cpu
@KINDS
def test_sharded_gradient(assume_a, rng):
  """Explicit meshes: no collective, and the gradient is sharded like the batch."""
  mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
  whole = _systems(rng, (16,), 4, 1, np.float64, assume_a)
  a, b = (jax.device_put(x, NamedSharding(mesh, PartitionSpec("x"))) for x in whole)

  def loss(a, b):
    x, _, logabsdet, _ = linalg.solve_logdet(a, b, assume_a=assume_a)
    return x, logabsdet

  def gradient(a, b):
    results, pullback = jax.vjp(loss, a, b)
    return pullback(results)

  compiled = jax.jit(gradient).lower(a, b).compile()
  assert "all-" not in compiled.as_text()
  for x, y in zip(compiled(a, b), jax.jit(gradient)(*whole), strict=True):
    assert x.sharding.spec[0] == "x"
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("operands, options, words", [
    ((np.eye(2), np.ones(2)), {"assume_a": "sym"}, "assume_a to be one of"),
    ((np.ones((2, 3)), np.ones(2)), {}, r"must have shape \[..., n, n\]"),
    ((np.eye(3), np.ones(2)), {}, "Incompatible shapes for arguments to solve_logdet"),
    ((np.ones((4, 3, 3)), np.ones((4, 3))), {}, "A batch of vectors is not told from a matrix"),
])
def test_wrong_arguments(operands, options, words):
  with pytest.raises(ValueError, match=words):
    linalg.solve_logdet(*operands, **options)
