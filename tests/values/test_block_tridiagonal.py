"""Block-tridiagonal systems: factors and their methods, failures, bits, and wrong operands."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import matrices
import sharded
from linalg import structured
from linalg._catalogue import structured as operands
from linalg.structured import _block_tridiagonal_operations as operations
from linalg.structured import _partition as partition
from quick import quick_jit

EPS = np.finfo(np.float64).eps


def _definite(rng, batch, steps, d, dtype=np.float64):
  return operands.definite(rng, batch, steps, d, np.dtype(dtype))


def _general(rng, batch, steps, d, dtype=np.float64):
  return operands.general(rng, batch, steps, d, np.dtype(dtype))


def _dense(diagonal, lower):
  diagonal = (diagonal + diagonal.swapaxes(-1, -2).conj()) / 2
  return operands.dense(lower, diagonal, lower.swapaxes(-1, -2).conj())


@quick_jit
def _everything(diagonal, lower, b):
  factor = structured.block_tridiagonal_cholesky(diagonal, lower)
  return {
      "solve": factor.solve(b), "logdet": factor.logdet(), "inverse": factor.inverse_blocks(),
      "half": factor.solve_half(b), "back": factor.solve_half(b, adjoint=True),
      "factors": factor.factors, "matrix": factor.matrix(), "info": factor.info,
      "at once": structured.block_tridiagonal_solve_logdet(diagonal, lower, b)}


SIZES = [(1, 1), (7, 1), (5, 2), (9, 3), (6, 4), (3, 5), (2, 17)]
LARGE = [pytest.param(*x, marks=pytest.mark.extended) for x in [(3, 8), (2, 32), (3, 33), (64, 2)]]


@pytest.mark.parametrize("steps, d", SIZES + LARGE)
def test_factor(steps, d, rng):
  """Every method, for the sizes that the handlers distinguish, in full and partial groups."""
  diagonal, lower, b = _definite(rng, (11,), steps, d, np.complex128 if d == 3 else np.float64)
  found = jax.device_get(_everything(diagonal, lower, b))
  a, n = _dense(diagonal, lower), steps * d
  np.testing.assert_allclose(found["matrix"], a, rtol=1e-15)
  assert not found["info"].any()
  adjoint = lambda x: x.swapaxes(-1, -2).conj()
  zero = np.zeros_like(lower)
  l = operands.dense(found["factors"][1], found["factors"][0], zero)
  assert np.array_equal(l, np.tril(l))
  scale = np.abs(a).max() * n * EPS
  assert np.abs(l @ adjoint(l) - a).max() < scale
  columns = b.reshape(11, n, -1)
  for name, matrix in (("solve", a), ("half", l), ("back", adjoint(l))):
    x = found[name].reshape(columns.shape)
    assert np.abs(matrix @ x - columns).max() < 10 * scale * np.abs(x).max(), name
  np.testing.assert_allclose(found["logdet"], np.linalg.slogdet(a)[1], rtol=n * 10 * EPS)
  # A tridiagonal system with one right-hand side has a recursion of its own.
  tolerance = 10 * n * EPS if d == 1 else 0
  np.testing.assert_allclose(found["at once"][0], found["solve"], tolerance, tolerance)
  np.testing.assert_allclose(found["at once"][1], found["logdet"], tolerance)
  inverse = np.linalg.inv(a).reshape(11, steps, d, steps, d)
  for t in range(steps):
    np.testing.assert_allclose(found["inverse"][0][:, t], inverse[:, t, :, t], atol=1e-13)
    if t + 1 < steps:
      np.testing.assert_allclose(found["inverse"][1][:, t], inverse[:, t + 1, :, t], atol=1e-13)


@pytest.mark.parametrize("steps, d", SIZES + LARGE)
def test_general(steps, d, rng):
  lower, diagonal, upper, b = _general(
      rng, (11,), steps, d, np.complex128 if d == 3 else np.float64)
  x, info = structured.block_tridiagonal_solve_ex(lower, diagonal, upper, b)
  a = operands.dense(lower, diagonal, upper)
  columns = b.reshape(11, steps * d, -1)
  residual = a @ np.asarray(x).reshape(columns.shape) - columns
  assert np.abs(residual).max() < 100 * steps * d * EPS * np.abs(a).max() * np.abs(x).max()
  assert not np.any(info)


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_bits(d, rng):
  """A system has the same bits alone, in a group that is not full, and in a large batch."""
  args = _definite(rng, (19,), 8, d, np.complex64 if d == 3 else np.float64)
  if d == 1:
    args = *args[:2], args[2][..., :1]
  several = jax.device_get(_everything(*args))
  general = _general(rng, (19,), 8, d, np.float32 if d == 3 else np.float64)
  solutions = np.asarray(structured.block_tridiagonal_solve(*general))
  for some in (slice(0, 1), slice(3, 8), slice(7, 16)):
    alone = _everything(*(x[some] for x in args))
    for x, y in zip(jax.tree.leaves(alone), jax.tree.leaves(several), strict=True):
      np.testing.assert_array_equal(x, y[some])
    alone = structured.block_tridiagonal_solve(*(x[some] for x in general))
    np.testing.assert_array_equal(alone, solutions[some])


@pytest.mark.parametrize("d", [2, 5])
def test_failures(d, rng):
  """`info` tells the leading minor, all of that system is NaN, and neighbours keep their bits."""
  diagonal, lower, b = _definite(rng, (9,), 4, d)
  clean = jax.device_get(_everything(diagonal, lower, b))
  diagonal[4, 2, 1, 1] = -1
  diagonal[6, 0, 0, 0] = np.nan
  found = jax.device_get(_everything(diagonal, lower, b))
  factor = structured.block_tridiagonal_cholesky(diagonal, lower)
  info = np.zeros(9, int)
  info[[4, 6]] = 2 * d + 2, 1
  np.testing.assert_array_equal(factor.info, info)
  block, minor = factor.failed_at()
  assert (block[4], minor[4], block[6], minor[6], minor[0]) == (2, 2, 0, 1, 0)
  others = info == 0
  for name in ("solve", "logdet", "inverse", "half", "back", "factors", "at once"):
    for x, y in zip(jax.tree.leaves(found[name]), jax.tree.leaves(clean[name]), strict=True):
      np.testing.assert_array_equal(x[others], y[others])
      assert np.isnan(x[~others]).all()
  at_once = structured.block_tridiagonal_solve_logdet_ex(diagonal, lower, b)
  np.testing.assert_array_equal(at_once[2], info)
  with pytest.raises(linalg.LinAlgError, match=rf"index \(4\).* order {2 * d + 2} "):
    linalg.checked(structured.block_tridiagonal_cholesky)(diagonal, lower)


def test_singular_leading_block(rng):
  """Elimination by blocks fails where a pivot is exactly 0, and `info` says so. Near to that, the
  residual does. The matrix itself is well conditioned."""
  lower, diagonal, upper, b = _general(rng, (3,), 4, 2)
  lower += 2 * np.eye(2)
  upper += 2 * np.eye(2)
  diagonal[0, 0] = np.ones((2, 2))
  diagonal[1, 0] = np.array([[1, 1], [1, 1 + 1e-12]])
  x, info = structured.block_tridiagonal_solve_ex(lower, diagonal, upper, b)
  a = operands.dense(lower, diagonal, upper)
  assert np.linalg.cond(a).max() < 1e3
  np.testing.assert_array_equal(info, [2, 0, 0])
  assert np.isnan(x[0]).all()
  columns = b.reshape(3, 8, -1)
  residual = np.abs(a @ np.asarray(x).reshape(columns.shape) - columns).max((1, 2))
  assert residual[1] > 1e4 * EPS
  assert residual[2] < 1e3 * EPS
  with pytest.raises(linalg.LinAlgError, match=r"index \(0\) is singular: pivot 2 "):
    linalg.checked(structured.block_tridiagonal_solve)(lower, diagonal, upper, b)


def test_nan_in_a_general_system(rng):
  args = _general(rng, (9,), 4, 3)
  clean = np.asarray(structured.block_tridiagonal_solve(*args))
  args[1][4, 2, 0, 1] = np.nan
  x, info = structured.block_tridiagonal_solve_ex(*args)
  others = np.arange(9) != 4
  np.testing.assert_array_equal(info, np.where(others, 0, -1))
  np.testing.assert_array_equal(x[others], clean[others])
  assert np.isnan(x[4]).all()


def test_failures_of_general_systems(rng):
  """`info` has the row of the first failure, in every step."""
  steps, d = 7, 2
  lower, diagonal, upper, b = _general(rng, (steps + 1,), steps, d)
  for t in range(steps):
    diagonal[t, t] = lower[t, max(t - 1, 0)] = upper[t, min(t, steps - 2)] = 0
  diagonal[0, 0] = diagonal[2, 3:] = np.nan
  x, info = structured.block_tridiagonal_solve_ex(lower, diagonal, upper, b)
  np.testing.assert_array_equal(info, [-1, *(d * np.arange(1, steps) + 1), 0])
  assert np.isnan(x[:-1]).all() and not np.isnan(x[-1]).any()


def test_steps_of_long_systems():
  """The handler and the rules divide the same systems."""
  header = (pathlib.Path(__file__).parents[2] / "kernels/block_tridiagonal_shape.h").read_text()
  assert f"kLongSteps = {partition.LONG};" in header


def test_long_general_system():
  """It needs leading minors that are not singular, as a shorter one does, and no others."""
  rng = np.random.default_rng(0)
  for steps in (partition.LONG - 1, partition.LONG):
    diagonal = np.zeros((steps, 1, 1))
    diagonal[0] = 1
    beside = np.ones((steps - 1, 1, 1))
    x = rng.integers(-9, 9, (steps, 1)).astype(float)
    b = x * diagonal[..., 0]
    b[1:] += x[:-1]
    b[:-1] += x[1:]
    found, info = structured.block_tridiagonal_solve_ex(beside, diagonal, beside, b)
    assert info == 0
    np.testing.assert_array_equal(found, x)


def test_vectors(rng):
  """A vector of right-hand sides, and an operand without a batch that serves all."""
  diagonal, lower, b = _definite(rng, (5,), 4, 2)
  factor = structured.block_tridiagonal_cholesky(diagonal[0], lower[0])
  vector = factor.solve(b[0, ..., 0])
  assert vector.shape == (4, 2)
  np.testing.assert_array_equal(vector, factor.solve(b[0, ..., :1])[..., 0])
  several = factor.solve(b)
  at_once = structured.block_tridiagonal_solve_logdet
  x, logdet = at_once(diagonal[0], lower[0], b)
  np.testing.assert_array_equal(x, several)
  assert logdet.shape == (5,)
  np.testing.assert_array_equal(
      jax.vmap(at_once, in_axes=(None, None, 0))(diagonal[0], lower[0], b)[0], several)
  ones = at_once(diagonal[:1, None], lower[:1], b)
  assert ones[0].shape == (1, *b.shape) and ones[1].shape == (1, 5)
  np.testing.assert_array_equal(ones[0][0], several)
  mapped = jax.vmap(lambda factor, b: factor.solve(b), in_axes=(None, 0))(factor, b)
  np.testing.assert_array_equal(mapped, several)
  np.testing.assert_array_equal(several[0], factor.solve(b[0]))
  solve = structured.block_tridiagonal_solve
  upper = lower.swapaxes(-1, -2)
  one = solve(lower[0], diagonal[0], upper[0], b[0])
  np.testing.assert_array_equal(solve(lower[0], diagonal[0], upper[0], b)[0], one)
  np.testing.assert_array_equal(
      jax.vmap(solve, in_axes=(0, None, 0, None))(lower, diagonal[0], upper, b[0])[0], one)


def test_one_factor_is_not_copied(rng):
  """A factor without a batch is an operand of the handler as it is."""
  diagonal, lower, b = _definite(rng, (5,), 4, 3)
  factor = structured.block_tridiagonal_cholesky(diagonal[0], lower[0])
  text = jax.jit(lambda f, b: f.solve(b)).lower(factor, b).as_text()
  assert "4x3x2xf64" in text and "5x4x3x3xf64" not in text


def test_factor_is_a_pytree(rng):
  """Programs take factors and return them, and `vmap` maps them."""
  diagonal, lower, b = _definite(rng, (3,), 4, 2)
  direct = structured.block_tridiagonal_cholesky(diagonal, lower)
  mapped = jax.jit(jax.vmap(structured.block_tridiagonal_cholesky))(diagonal, lower)
  assert jax.tree.structure(mapped) == jax.tree.structure(direct)
  np.testing.assert_array_equal(
      jax.jit(jax.vmap(lambda f, b: f.solve(b)))(mapped, b), direct.solve(b))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision(dtype, rng):
  diagonal, lower, b = (jnp.asarray(x, dtype) for x in _definite(rng, (3,), 4, 2, np.float32))
  factor = structured.block_tridiagonal_cholesky(diagonal, lower)
  wide = structured.block_tridiagonal_cholesky(
      diagonal.astype(jnp.float32), lower.astype(jnp.float32))
  pairs = [
      (factor.solve(b), wide.solve(b.astype(jnp.float32))), (factor.logdet(), wide.logdet()),
      (factor.inverse_blocks()[1], wide.inverse_blocks()[1])]
  for x, y in pairs:
    assert x.dtype == dtype
    np.testing.assert_array_equal(x, y.astype(dtype))
  upper = lower.mT
  x = structured.block_tridiagonal_solve(lower, diagonal, upper, b)
  wide = structured.block_tridiagonal_solve(
      *(y.astype(jnp.float32) for y in (lower, diagonal, upper, b)))
  assert x.dtype == dtype
  np.testing.assert_array_equal(x, wide.astype(dtype))


def test_dtypes_of_right_hand_sides(rng):
  """They promote as in jax.numpy."""
  diagonal, lower, b = _definite(rng, (), 4, 2, np.float32)
  factor = structured.block_tridiagonal_cholesky(diagonal, lower)
  for dtype in (np.int64, np.int32, np.bool_, jnp.float16, np.float64, np.complex64):
    given = jnp.asarray(b * 4).astype(dtype)
    with jax.numpy_dtype_promotion("standard"):
      x, half = factor.solve(given), factor.solve_half(given)
      expected = jnp.promote_types(np.float32, dtype)
      same = factor.solve(given.astype(expected))
    assert x.dtype == half.dtype == expected, dtype
    np.testing.assert_array_equal(x, same)


def test_sampling(rng):
  """L⁻ᴴ z has covariance A⁻¹, and its derivative is that of the factor."""
  diagonal, lower, _ = _definite(rng, (), 3, 2, np.complex128)
  eye = np.eye(6).reshape(3, 2, 6).astype(diagonal.dtype)
  half = structured.block_tridiagonal_cholesky(diagonal, lower).solve_half(eye, adjoint=True)
  half = np.asarray(half).reshape(6, 6)
  np.testing.assert_allclose(
      half @ half.conj().T, np.linalg.inv(_dense(diagonal, lower)), atol=1e-14)


def test_no_steps():
  factor = structured.block_tridiagonal_cholesky(np.zeros((5, 0, 2, 2)), np.zeros((5, 0, 2, 2)))
  assert factor.solve(np.zeros((5, 0, 2, 3))).shape == (5, 0, 2, 3)
  np.testing.assert_array_equal(factor.logdet(), np.zeros(5))
  assert factor.matrix().shape == (5, 0, 0)
  x, info = structured.block_tridiagonal_solve_ex(
      np.zeros((0, 2, 2)), np.zeros((0, 2, 2)), np.zeros((0, 2, 2)), np.zeros((0, 2)))
  assert x.shape == (0, 2) and info == 0


def test_wrong_operands():
  """One error, which names the operand and the shape that was expected."""
  d, e, b = np.zeros((4, 2, 2)), np.zeros((3, 2, 2)), np.zeros((4, 2))
  factor = structured.block_tridiagonal_cholesky(d, e)
  cholesky, solve = structured.block_tridiagonal_cholesky, structured.block_tridiagonal_solve
  for call, words in (
      (lambda: cholesky(d[0], e), r"diagonal an array of shape \(..., T, d, d\), got \(2, 2\)"),
      (lambda: cholesky(d[..., :1], e), r"diagonal .*got \(4, 2, 1\)"),
      (lambda: cholesky(d, d), r"lower .*\(..., 3, 2, 2\), got \(4, 2, 2\)"),
      (lambda: cholesky(np.stack([d] * 5), np.stack([e] * 6)), r"dimensions of lower, \(6,\)"),
      (lambda: factor.solve(b[0]), r"b an array .*\(T, d\) = \(4, 2\).*got \(2,\)"),
      (lambda: factor.solve(b.T), r"b an array .*got \(2, 4\)"),
      (lambda: factor.solve_half(np.zeros((3, 2, 1))), r"solve_half.*got \(3, 2, 1\)"),
      (lambda: structured.block_tridiagonal_solve_logdet(d, e, b[1:]), r"logdet.* b an array"),
      (lambda: solve(e, d, d, b), r"upper .*\(..., 3, 2, 2\), got \(4, 2, 2\)"),
      (lambda: solve(d, d, e, b), r"lower .*got \(4, 2, 2\)"),
      (lambda: solve(e, d, e, b[:3]), r"b an array .*got \(3, 2\)")):
    with pytest.raises(ValueError, match=words):
      call()
  with pytest.raises(TypeError, match="numbers"):
    factor.solve(np.array([["a"]]))


@pytest.fixture
def in_chunks(monkeypatch):
  """Divides systems from 16 steps on."""
  monkeypatch.setattr(partition, "LONG", 16)
  jax.clear_caches()
  yield
  jax.clear_caches()


def _solve_in_halves(diagonal, lower, b):
  factor = structured.block_tridiagonal_cholesky(diagonal, lower)
  half = factor.solve_half(b)
  return factor.solve_half(half, adjoint=True), factor


@pytest.mark.parametrize("steps, d, dtype", [
    (16, 1, np.float64), (19, 3, np.complex128),
    pytest.param(33, 2, np.float64, marks=pytest.mark.extended)])
def test_chunks(steps, d, dtype, in_chunks, rng):
  """Systems in chunks have the results of the others, whether or not chunks are full."""
  definite = _definite(rng, (2,), steps, d, dtype)
  b = definite[-1]
  x, factor = _solve_in_halves(*definite)
  a = _dense(*definite[:2])
  n = steps * d
  inverse = np.linalg.inv(a)
  np.testing.assert_allclose(
      np.asarray(x).reshape(2, n, -1), inverse @ b.reshape(2, n, -1), atol=1e-13)
  np.testing.assert_allclose(factor.solve(b), x, atol=1e-13)
  np.testing.assert_allclose(factor.logdet(), np.linalg.slogdet(a)[1], rtol=1e-13)
  inverse = inverse.reshape(2, steps, d, steps, d)
  on, below = factor.inverse_blocks()
  t = np.arange(steps)
  np.testing.assert_allclose(on, np.moveaxis(inverse[:, t, :, t], 0, 1), atol=1e-13)
  expected = np.moveaxis(inverse[:, t[1:], :, t[:-1]], 0, 1)
  np.testing.assert_allclose(below, expected, atol=1e-13)


def test_failures_in_chunks(in_chunks, rng):
  """`info` has the row of a failure in a chunk, and in a separator."""
  steps, d = 18, 2
  diagonal, lower, b = _definite(rng, (steps + 1,), steps, d)
  for t in range(steps):
    diagonal[t, t, 1, 1] = -5
  x, factor = _solve_in_halves(diagonal, lower, b)
  np.testing.assert_array_equal(factor.info, [*(d * np.arange(steps) + 2), 0])
  assert np.isnan(x[:-1]).all() and not np.isnan(x[-1]).any()
  for y in (factor.logdet(), *factor.inverse_blocks(), factor.solve_half(b)):
    assert np.isnan(y[:-1]).all() and not np.isnan(y[-1]).any()


def test_first_failure_in_chunks(in_chunks, rng):
  """It is reported as in a system that is not divided."""
  steps, d = 18, 2
  width = partition.chunk_width(steps)
  diagonal, lower, _ = _definite(rng, (3,), steps, d)
  diagonal[0, width + 1, 1, 1] = np.nan  # in chunk 1, and in a separator
  diagonal[1, width - 1, 0, 0] = diagonal[2, width - 1, 0, 0] = np.nan
  diagonal[:2, 2 * width + 1, 0, 0] = -5
  factor = structured.block_tridiagonal_cholesky(diagonal, lower)
  short = partition.HANDLERS.factor(diagonal, lower)[-1]
  np.testing.assert_array_equal(factor.info, short)
  with jax.numpy_rank_promotion("raise"):
    found = jax.jit(lambda *blocks: partition.factor(partition.SCANS, *blocks)[-1])(diagonal, lower)
  np.testing.assert_array_equal(found, short)


@pytest.mark.extended
def test_derivatives_in_chunks(monkeypatch, rng):
  """JVP and VJP of a divided system are those of one that is not."""
  definite = _definite(rng, (2,), 17, 2)
  tangents = tuple(rng.standard_normal(x.shape) for x in definite)

  def results(diagonal, lower, b):
    factor = structured.block_tridiagonal_cholesky(diagonal, lower)
    return factor.solve(b), factor.solve_half(factor.solve_half(b), adjoint=True), (
        factor.logdet()), factor.inverse_blocks()

  def both():
    jax.clear_caches()
    forward = jax.jvp(results, definite, tangents)
    cotangents = jax.tree.map(jnp.cos, forward[0])
    return forward, jax.vjp(results, *definite)[1](cotangents)

  whole = quick_jit(both)()
  monkeypatch.setattr(partition, "LONG", 16)
  divided = quick_jit(lambda: both())()
  jax.clear_caches()
  for x, y in zip(jax.tree.leaves(divided), jax.tree.leaves(whole), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-12)


def test_right_hand_sides_choose_the_handler():
  """A pass that keeps the factors in the caches is for few columns."""
  text = lambda k: jax.jit(structured.block_tridiagonal_solve_logdet).lower(
      np.zeros((8, 1000, 2, 2)), np.zeros((8, 999, 2, 2)), np.zeros((8, 1000, 2, k))).as_text()
  target = "linalg_block_tridiagonal_solve_logdet"
  assert f"@{target}" in text(1) and f"@{target}" not in text(256)


@pytest.mark.cpu
def test_gradients_choose_the_handler():
  """That by A is one handler, and that by b alone needs no inverse."""

  def loss(*operands):
    x, logdet = structured.block_tridiagonal_solve_logdet(*operands)
    return jnp.sum(x) + jnp.sum(logdet)

  operands = np.zeros((8, 10, 2, 2)), np.zeros((8, 9, 2, 2)), np.zeros((8, 10, 2, 1))
  text = lambda *by: jax.jit(jax.grad(loss, by)).lower(*operands).as_text()
  target, inverse = (
      f"@linalg_block_tridiagonal_{x}" for x in ("solve_logdet_vjp", "inverse_blocks"))
  assert target in text(0, 1, 2) and inverse not in text(0, 1, 2)
  assert target not in text(2) and inverse not in text(2)


def test_tridiagonal_failures():
  """Systems of one row to a block: the first pivot that is not positive, and NaN."""
  diagonal = np.full((11, 9, 1, 1), 4.0)
  diagonal[3, 2], diagonal[3, 5], diagonal[7, 4], diagonal[8, 0] = -4, -1, np.nan, 0
  lower = np.ones((11, 8, 1, 1))
  x, logdet, info = structured.block_tridiagonal_solve_logdet_ex(
      diagonal, lower, np.ones((11, 9, 1, 1)))
  np.testing.assert_array_equal(info, [0, 0, 0, 3, 0, 0, 0, 5, 1, 0, 0])
  failed = np.asarray(info) != 0
  assert np.isnan(x[failed]).all() and np.isnan(logdet[failed]).all()
  np.testing.assert_array_equal(x[~failed], np.broadcast_to(x[0], (8, 9, 1, 1)))
  np.testing.assert_allclose(logdet[~failed], np.linalg.slogdet(_dense(diagonal, lower)[0])[1])


def test_large_groups(rng):
  """Systems that are too large for lanes run alone, and have the bits of others."""
  lower, diagonal, upper, _ = _general(rng, (8,), 4000, 1)
  b = rng.standard_normal((8, 4000, 1, 300))
  x = structured.block_tridiagonal_solve(lower, diagonal, upper, b)
  few = structured.block_tridiagonal_solve(lower, diagonal, upper, b[..., :2])
  np.testing.assert_array_equal(x[..., :2], few)


def test_bits_in_chunks(in_chunks, rng):
  diagonal, lower, b = _definite(rng, (9,), 17, 2)
  several = jax.tree.leaves(_solve_in_halves(diagonal, lower, b))
  for some in (slice(0, 1), slice(3, 6)):
    alone = jax.tree.leaves(_solve_in_halves(diagonal[some], lower[some], b[some]))
    for x, y in zip(alone, several, strict=True):
      np.testing.assert_array_equal(x, y[some])


_DIVIDED = """
import hashlib, os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[1])])
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from linalg import structured
rng = np.random.default_rng(0)
diagonal = 6 * np.eye(3) + 0.1 * rng.standard_normal((20000, 3, 3))
lower, b = rng.random((19999, 3, 3)), rng.standard_normal((20000, 3))
factor = structured.block_tridiagonal_cholesky(diagonal, lower)
results = (factor.factors, factor.logdet(), factor.solve(b), factor.inverse_blocks(),
           structured.block_tridiagonal_solve_logdet(diagonal, lower, b))
assert factor.info == 0
print(*[hashlib.sha256(np.asarray(x).tobytes()).hexdigest() for x in jax.tree.leaves(results)])
"""


@pytest.mark.extended
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_bits_of_threads():
  """A divided system has the same bits on one thread and on two."""
  found = [
      subprocess.run([sys.executable, "-c", _DIVIDED, str(threads)], capture_output=True,
                     text=True, check=True).stdout for threads in (1, 2)]
  assert found[0] == found[1] != ""


@pytest.mark.extended
def test_long_system(rng):
  """A system of very many steps: a residual, and log det against the sum of the pivots."""
  steps = 1_000_000
  diagonal = np.broadcast_to(np.array([[4.0, 1.0], [1.0, 3.0]]), (steps, 2, 2))
  lower = np.broadcast_to(-0.5 * np.eye(2), (steps - 1, 2, 2))
  b = rng.standard_normal((steps, 2))
  factor = structured.block_tridiagonal_cholesky(diagonal, lower)
  x = np.asarray(factor.solve(b))
  residual = np.einsum("tij,tj->ti", diagonal, x) - b
  residual[1:] -= 0.5 * x[:-1]
  residual[:-1] -= 0.5 * x[1:]
  assert np.abs(residual).max() < 1e-14
  # The pivots of a long chain of equal blocks converge to S = D - S⁻¹ / 4.
  s = diagonal[0]
  logdet = 0.0
  for _ in range(200):
    logdet += np.linalg.slogdet(s)[1]
    s = diagonal[0] - np.linalg.inv(s) / 4
  logdet += (steps - 200) * np.linalg.slogdet(s)[1]
  np.testing.assert_allclose(factor.logdet(), logdet, rtol=1e-12)


@pytest.mark.cpu  # elsewhere the methods of a factor are called
@pytest.mark.parametrize("steps, d, columns, dtype", [
    (4160, 3, 1, np.float64),
    pytest.param(4096, 2, 1, np.float64, marks=pytest.mark.extended),
    pytest.param(4097, 1, 1, np.float64, marks=pytest.mark.extended),
    pytest.param(8255, 2, 3, np.complex128, marks=pytest.mark.extended),  # no rest after chunks
    pytest.param(5000, 8, 2, np.float32, marks=pytest.mark.extended),
    pytest.param(4500, 5, 1, np.complex64, marks=pytest.mark.extended)])
def test_long_systems_in_one_call(steps, d, columns, dtype, rng):
  """Solutions without a factor: residuals, the bits of each system alone, and failures."""
  diagonal, lower, _ = _definite(rng, (4,), steps, d, dtype)
  b = rng.standard_normal((4, steps, d, columns)).astype(dtype)
  run = jax.jit(structured.block_tridiagonal_solve_logdet_ex)
  text = run.lower(diagonal, lower, b).as_text()
  assert "@linalg_block_tridiagonal_solve_logdet" in text and "_chunks" not in text
  x, logdet, info = found = jax.device_get(run(diagonal, lower, b))
  assert not info.any()
  times = lambda a, x: np.einsum("...ij,...jk->...ik", a, x)
  residual = times((diagonal + diagonal.swapaxes(-1, -2).conj()) / 2, x) - b
  residual[:, 1:] += times(lower, x[:, :-1])
  residual[:, :-1] += times(lower.swapaxes(-1, -2).conj(), x[:, 1:])
  eps = np.finfo(dtype).eps
  assert np.abs(residual).max() < 50 * d * eps * np.abs(diagonal).max() * np.abs(x).max()
  factor = structured.block_tridiagonal_cholesky(diagonal, lower)
  np.testing.assert_allclose(logdet, factor.logdet(), rtol=50 * eps)
  for y, known in zip(run(*(y[1:2] for y in (diagonal, lower, b))), found, strict=True):
    np.testing.assert_array_equal(y, known[1:2])

  width = partition.chunk_width(steps)
  diagonal[0, 3 * width - 1, 0, 0] = diagonal[3, steps - 1, d - 1, d - 1] = -5  # 0 is a separator
  diagonal[1, 2 * width + 1, 0, 0] = np.nan
  spoilt = run(diagonal, lower, b)
  factor = structured.block_tridiagonal_cholesky(diagonal, lower)
  np.testing.assert_array_equal(spoilt[2], factor.info)
  np.testing.assert_array_equal(
      factor.info, [(3 * width - 1) * d + 1, (2 * width + 1) * d + 1, 0, steps * d])
  for y, known in zip(spoilt, found, strict=True):
    np.testing.assert_array_equal(y[2], known[2])
  for y in spoilt[:2]:
    assert np.isnan(y[np.array([0, 1, 3])]).all()


def _results_in_chunks(diagonal, lower, b, x_bar, logdet_bar):
  """Every handler that divides systems, and the inverse that other platforms compute."""
  (l, below, fill), logdet, info = partition.OF_CHUNKS[0](diagonal, lower)
  half = partition.OF_CHUNKS[1](l, below, fill, b, forward=True, back=False)
  x, at_once, at_once_info = operations.solve_logdet_p(diagonal, lower, b)
  return {
      "solve": partition.OF_CHUNKS[1](l, below, fill, b), "logdet": logdet, "info": info,
      "back": partition.OF_CHUNKS[1](l, below, fill, half, forward=False, back=True),
      "inverse": operations._inverse_of_long(diagonal, lower, l, below, fill),
      "products": partition.inverse(partition.HANDLERS, l, below, fill),
      "at once": (x, at_once, at_once_info),
      "cotangents": operations.solve_logdet_vjp_p(diagonal, lower, x, x_bar, logdet_bar)}


def _results_in_turn(diagonal, lower, b, x_bar, logdet_bar):
  l, below, logdet, info = partition.HANDLERS.factor(diagonal, lower)
  x = partition.HANDLERS.solve(l, below, b, forward=True, back=True)
  inverse = partition.HANDLERS.inverse(l, below)
  return {
      "solve": x, "logdet": logdet, "info": info, "back": x, "inverse": inverse,
      "products": inverse, "at once": (x, logdet, info),
      "cotangents": operations.solve_logdet_vjp_p._rules.fallback(
          diagonal, lower, x, x_bar, logdet_bar)}


# The last chunk has 1 step, as many as the others, none, or some.
CHUNKS = [(4096, 1, 2, np.float64), (4159, 3, 1, np.complex64), (8255, 2, 1, np.float32),
          (4160, 4, 1, np.float64)]
CHUNKS += [pytest.param(*x, marks=pytest.mark.extended) for x in [
    (4096, 1, 1, np.float32), (1 << 17, 1, 1, np.float64), (8255, 1, 1, np.complex128),
    (4097, 2, 3, np.complex128), (20000, 2, 1, np.float64), (8255, 3, 1, np.float64),
    (4159, 4, 2, np.complex64), (5000, 5, 1, np.complex128), (4096, 8, 1, np.float64),
    (4500, 8, 0, np.float32), (4159, 16, 1, np.float32), (4100, 32, 3, np.float64)]]


@pytest.mark.cpu  # elsewhere the same formulas call other handlers
@pytest.mark.parametrize("steps, d, columns, dtype", CHUNKS)
def test_handlers_of_chunks(steps, d, columns, dtype, monkeypatch, rng):
  """They have the results of handlers that take the steps in turn, and bits without neighbours."""
  batch = 1 if steps * d > 100_000 else 3
  diagonal, lower, _ = _definite(rng, (batch,), steps, d, dtype)
  b, x_bar = (matrices.general(rng, (batch, steps), d, columns, np.dtype(dtype)) for _ in range(2))
  given = diagonal, lower, b, x_bar, rng.standard_normal(batch).astype(diagonal.real.dtype)
  divided = jax.device_get(jax.jit(_results_in_chunks)(*given))
  monkeypatch.setattr(partition, "LONG", steps + 1)
  expected = jax.device_get(jax.jit(_results_in_turn)(*given))
  monkeypatch.undo()
  tolerance = 300 * d * np.finfo(dtype).eps
  for name, known in expected.items():
    for x, y in zip(jax.tree.leaves(divided[name]), jax.tree.leaves(known), strict=True):
      scale = np.abs(y).max(initial=1)
      np.testing.assert_allclose(x / scale, y / scale, 0, tolerance, err_msg=name)
  if batch == 1:
    return
  alone = jax.device_get(jax.jit(_results_in_chunks)(*(x[:1] for x in given)))
  diagonal[2, steps // 2, d - 1, d - 1] = -5
  spoilt = jax.device_get(jax.jit(_results_in_chunks)(*given))
  assert spoilt["info"][2] == spoilt["at once"][2][2] != 0
  for name, known in divided.items():
    leaves = (jax.tree.leaves(x) for x in (alone[name], spoilt[name], known))
    for of_one, x, y in zip(*leaves, strict=True):
      np.testing.assert_array_equal(of_one[0], y[0], err_msg=name)
      np.testing.assert_array_equal(x[:2], y[:2], err_msg=name)
      assert x.dtype == np.int32 or np.isnan(x[2]).all(), name


@pytest.mark.extended
def test_derivatives_of_long_systems(rng):
  """Tangents and gradients agree, and second derivatives with differences of gradients."""
  point = _definite(rng, (), partition.LONG, 2)
  along, across = ([rng.standard_normal(x.shape) for x in point] for _ in range(2))
  inner = lambda x, y: sum(map(jnp.vdot, x, y))

  def loss(*operands):
    x, logdet = structured.block_tridiagonal_solve_logdet(*operands)
    return jnp.sum(jnp.sin(x)) + logdet

  @jax.jit
  def derivatives(point):
    gradient = lambda *x: jax.grad(loss, (0, 1, 2))(*x)
    first, second = jax.jvp(gradient, point, along)
    return jax.jvp(loss, point, along)[1], inner(first, along), inner(second, across)

  moved = lambda step: [x + step * dx for x, dx in zip(point, across, strict=True)]
  tangent, by_gradient, second = derivatives(list(point))
  np.testing.assert_allclose(tangent, by_gradient, rtol=1e-11)
  ahead, behind = (derivatives(moved(step))[1] for step in (1e-5, -1e-5))
  np.testing.assert_allclose(second, (ahead - behind) / 2e-5, rtol=1e-6)


@pytest.mark.cpu
@sharded.KINDS
def test_sharded_long_systems(kind, rng):
  """The methods of a factor and the gradient divide the systems where they are."""
  diagonal, lower, b = _definite(rng, (sharded.BATCH,), partition.LONG, 1, np.float32)

  def loss(*operands):
    x, logdet = structured.block_tridiagonal_solve_logdet(*operands)
    return jnp.sum(x) + jnp.sum(logdet)

  def run(diagonal, lower, b):
    factor = structured.block_tridiagonal_cholesky(diagonal, lower)
    return factor.solve(b), factor.inverse_blocks(), jax.grad(loss, (0, 1, 2))(diagonal, lower, b)

  expected = jax.jit(run)(diagonal, lower, b)
  mesh = sharded.make_mesh(kind=kind)
  placed = jax.device_put(
      (diagonal, lower, b), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
  with jax.set_mesh(mesh):
    compiled = jax.jit(run).lower(*placed).compile()
    assert not sharded.collectives(compiled.as_text())
    found = compiled(*placed)
  for x, known in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    assert x.sharding.spec[0] == "x"
    np.testing.assert_array_equal(x, known)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_gradient_without_right_hand_sides(d, rng):
  """The gradient of log det A is the inverse's blocks, also if b has no columns."""
  diagonal = np.tile(4 * np.eye(d), (5, 9, 1, 1))
  lower = 0.3 * rng.standard_normal((5, 8, d, d))

  def logdet(diagonal, lower, columns):
    b = jnp.zeros((5, 9, d, columns))
    return jnp.sum(structured.block_tridiagonal_solve_logdet(diagonal, lower, b)[1])

  none, one = (
      jax.grad(logdet, argnums=(0, 1))(diagonal, lower, columns) for columns in (0, 1))
  for x, y in zip(none, one, strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-14)
