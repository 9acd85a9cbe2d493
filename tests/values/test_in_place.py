"""Results in their operands' memory have the same bits; donated operands are overwritten, others
kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import linalg
import matrices
from sharded import KINDS, compile_local, make_mesh, place, same_bits

ONE_DTYPE = True
ONE_IN = 3
# Sizes in lanes, in tiles and, on a GPU, for vendor routines. Batches fill whole registers, or
# leave a remainder for every width.
SIZES = [3, 8, 33, 70, 140]
BATCHES = [7, 37, *(pytest.param(x, marks=pytest.mark.extended) for x in (1, 16))]


def _lu_factor(a, overwrite):
  return linalg.lu_factor(a, overwrite_a=overwrite)[0]


def _cho_factor(a, overwrite):
  return linalg.cho_factor(a, lower=True, overwrite_a=overwrite)[0]


def _solves(factor, pivots):
  return {
      "cho_solve": lambda b, overwrite: linalg.cho_solve((factor, True), b, overwrite_b=overwrite),
      "lu_solve": lambda b, overwrite: linalg.lu_solve((factor, pivots), b, overwrite_b=overwrite),
      "solve_triangular": lambda b, overwrite: linalg.solve_triangular(
          factor, b, lower=True, overwrite_b=overwrite)}


FACTORISATIONS = {"cho_factor": _cho_factor, "lu_factor": _lu_factor}
FUNCTIONS = [*FACTORISATIONS, "cho_solve", "lu_solve", "solve_triangular"]


def _problem(name, rng, batch, n, dtype):
  """Returns a function of the overwritable operand and of whether it is overwritten, and the
  operand."""
  a = matrices.positive_definite(rng, batch, n, dtype)
  if name in FACTORISATIONS:
    return FACTORISATIONS[name], jnp.asarray(a)
  factor = np.linalg.cholesky(a)
  pivots = np.broadcast_to(np.arange(n, dtype=np.int32)[::-1].clip(n // 2), (*batch, n))
  return _solves(factor, pivots)[name], jnp.asarray(matrices.general(rng, batch, n, 2, dtype))


each_function = pytest.mark.parametrize("name", FUNCTIONS)


@each_function
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("batch", BATCHES)
def test_donated(name, batch, n, dtype, rng):
  """Catches a matrix that is factored twice, where the last register overlaps the one before."""
  function, operand = _problem(name, rng, (batch,), n, dtype)
  expected = function(operand, False)
  address = operand.unsafe_buffer_pointer()
  actual = jax.jit(function, static_argnums=1, donate_argnums=0)(operand, True)
  assert actual.unsafe_buffer_pointer() == address
  assert operand.is_deleted()
  same_bits(actual, expected)


@each_function
def test_kept(name, rng):
  """An operand that belongs to the caller, or is needed later, is not overwritten."""
  function, operand = _problem(name, rng, (5,), 4, np.float64)
  before = np.array(operand)
  expected = function(operand, False)
  same_bits(function(operand, True), expected)
  same_bits(operand, before)
  twice = jax.jit(lambda x: (function(2 * x, True), 2 * x))
  same_bits(twice(operand)[1], 2 * before)


@each_function
def test_derivatives(name, rng):
  function, operand = _problem(name, rng, (5,), 4, np.float64)
  loss = lambda x, overwrite: jnp.sum(jnp.sin(function(x, overwrite)))
  same_bits(jax.grad(loss)(operand, True), jax.grad(loss)(operand, False))
  mapped = jax.vmap(jax.grad(loss), in_axes=(0, None))
  if name in FACTORISATIONS:
    same_bits(mapped(operand, True), mapped(operand, False))


@KINDS
@pytest.mark.parametrize("name", FACTORISATIONS)
def test_sharded(name, kind, rng):
  """Each shard is factored in its own memory."""
  mesh = make_mesh(kind=kind)
  function, operand = _problem(name, rng, (24,), 5, np.float64)
  expected = function(operand, False)
  with jax.set_mesh(mesh):
    # A computed array is in JAX's own memory.
    placed = jax.jit(lambda x: x + 0)(*place((np.asarray(operand),), mesh, "x"))
    compiled = compile_local(lambda a: function(a, True), (placed,), donate_argnums=0)
    addresses = [shard.data.unsafe_buffer_pointer() for shard in placed.addressable_shards]
    actual = compiled(placed)
    assert [x.data.unsafe_buffer_pointer() for x in actual.addressable_shards] == addresses
  assert actual.sharding.spec[0] == P("x")[0]
  same_bits(actual, expected)
