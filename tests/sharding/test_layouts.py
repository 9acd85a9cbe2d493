"""A sharded batch is factored without collectives, and has the bits of an unsharded batch.

Each test compiles an operation for eight devices, reads the program, and compares its results with
the same function of unsharded operands.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import selection
from quick import quick_compile, quick_jit
from sharded import (
  BATCH,
  KINDS,
  SECOND_BATCH,
  N,
  compile_local,
  make_mesh,
  nothing_global,
  place,
  same_bits,
  sharded_like,
  unsharded,
  with_kinds,
)

COMPILES = True
ONE_IN = 3

# (mesh, batch, its sharding)
LAYOUTS = {
    "x": ((8,), (BATCH,), ("x",)),
    "xy": ((4, 2), (BATCH,), (("x", "y"),)),
    "x_of_xy": ((4, 2), (BATCH,), ("x",)),
    "x,y": ((4, 2), (BATCH, SECOND_BATCH), ("x", "y")),
    "None,x": ((8,), (3, BATCH), (None, "x")),
    "x,None,y": ((4, 2), (BATCH, 3, SECOND_BATCH), ("x", None, "y")),
}


def _mesh(shape, kind):
  return make_mesh(shape, ("x", "y")[: len(shape)], kind)


@selection.in_turn(2)
@with_kinds("layout", LAYOUTS)
def test_layouts(case, layout, kind, rng):
  """Catches a Shardy rule or a batch count that is right for one batch dimension only."""
  shape, batch, spec = LAYOUTS[layout]
  mesh = _mesh(shape, kind)
  operands = case.operands(rng, batch, N, N, np.float64)
  sharded = place(operands, mesh, *spec)
  results = compile_local(case.results, sharded)(*sharded)
  same_bits(results, unsharded(case, operands))
  sharded_like(results, mesh, *spec)


@selection.in_turn(1)
@KINDS
def test_dtypes(case, dtype, kind, rng):
  """Catches complex arithmetic around a call that is not partitioned as the call is."""
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (BATCH,), 4, 4, dtype)
  sharded = place(operands, mesh, "x")
  results = compile_local(case.results, sharded)(*sharded)
  same_bits(results, unsharded(case, operands))
  sharded_like(results, mesh, "x")


def test_gspmd(case, rng):
  """XLA's older partitioner reads the number of batch dimensions, and no Shardy rule."""
  mesh = make_mesh()
  operands = case.operands(rng, (BATCH,), N, N, np.float32)
  sharded = place(operands, mesh, "x")
  shardy = jax.config.jax_use_shardy_partitioner
  jax.config.update("jax_use_shardy_partitioner", False)
  try:
    results = compile_local(case.results, sharded)(*sharded)
  finally:
    jax.config.update("jax_use_shardy_partitioner", shardy)
  same_bits(results, unsharded(case, operands))
  sharded_like(results, mesh, "x")


@selection.in_turn(1)
@KINDS
@pytest.mark.parametrize("shape", [(7, 4), (4, 7)])
def test_rectangular(case, shape, kind, rng):
  """Catches a rule in which m and n are one dimension."""
  if not case.rectangular:
    pytest.skip("a square operation")
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (BATCH,), *shape, np.complex64)
  sharded = place(operands, mesh, "x")
  results = compile_local(case.results, sharded)(*sharded)
  same_bits(results, unsharded(case, operands))
  sharded_like(results, mesh, "x")


def test_uneven_batch(case, rng):
  """XLA pads 29 matrices over 8 devices. The padding reaches the handler as matrices."""
  mesh = make_mesh()
  sharding = NamedSharding(mesh, P("x"))
  operands = case.operands(rng, (29,), N, N, np.float64)

  def function(*operands):
    # The operands are sharded here. The results are as long as the operands, so they must leave the
    # program replicated, after the call.
    operands = jax.lax.with_sharding_constraint(operands, sharding)
    return jax.lax.with_sharding_constraint(case.results(*operands), sharding)

  compiled = quick_compile(function, operands)
  text = compiled.as_text()
  calls = [line for line in text.splitlines() if 'custom_call_target="linalg_' in line]
  assert calls
  nothing_global("\n".join(calls), 29)
  same_bits(compiled(*operands), unsharded(case, operands))


@selection.in_turn(1)
@with_kinds("axis", [0, 1, 2])
def test_vmap(case, axis, kind, rng):
  """Catches a batching rule that leaves the mapped dimension, or its sharding, where it was."""
  mesh = make_mesh(kind=kind)
  in_axes = tuple(min(axis, rank) for rank in case.ranks)
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  moved = [np.moveaxis(x, 0, dim) for x, dim in zip(operands, in_axes, strict=True)]
  sharded = [
      jax.device_put(x, NamedSharding(mesh, P(*(None,) * dim, "x")))
      for x, dim in zip(moved, in_axes, strict=True)]
  results = compile_local(jax.vmap(case.results, in_axes), sharded)(*sharded)
  same_bits(results, unsharded(case, operands))
  sharded_like(results, mesh, "x")


@selection.in_turn(1)
@KINDS
def test_nested_vmap(case, kind, rng):
  """Catches a count of batch dimensions that one vmap makes right and the next one stale."""
  mesh = _mesh((4, 2), kind)
  operands = case.operands(rng, (BATCH, SECOND_BATCH), N, N, np.float64)
  sharded = place(operands, mesh, "x", "y")

  def function(*operands):
    inner_x = jax.vmap(jax.vmap(case.results), in_axes=1)
    return jax.vmap(jax.vmap(case.results))(*operands), inner_x(*operands)

  straight, swapped = compile_local(function, sharded)(*sharded)
  expected = unsharded(case, operands)
  same_bits(straight, expected)
  same_bits(swapped, [np.swapaxes(x, 0, 1) for x in expected])
  sharded_like(straight, mesh, "x", "y")
  sharded_like(swapped, mesh, "y", "x")


def test_vmap_with_spmd_axis_name(case, rng):
  """Catches a constraint on the unmapped dimensions that unshards the mapped one."""
  mesh = _mesh((4, 2), AxisType.Auto)
  inner = NamedSharding(mesh, P("y"))
  operands = case.operands(rng, (BATCH, SECOND_BATCH), N, N, np.float64)
  sharded = place(operands, mesh, "x", "y")

  def function(*operands):
    return case.results(*jax.lax.with_sharding_constraint(operands, inner))

  results = compile_local(jax.vmap(function, spmd_axis_name="x"), sharded)(*sharded)
  same_bits(results, unsharded(case, operands))
  sharded_like(results, mesh, "x", "y")


def _scan(case, operands):
  return jax.lax.scan(lambda carry, x: (carry, case.results(*x)), None, operands)[1]


def _while(case, operands):
  def body(i, results):
    del results
    return case.results(*(jax.lax.dynamic_index_in_dim(x, i, 0, False) for x in operands))

  first = case.results(*(x[0] for x in operands))
  return jax.lax.fori_loop(1, jnp.argmax(jnp.arange(3)) + 1, body, first)


def _cond(case, operands):
  first, _, last = ([x[i] for x in operands] for i in range(3))
  return jax.lax.cond(
      jnp.argmax(jnp.arange(3)) == 2, case.results, lambda *x: case.results(*last), *first)


def _checkpoint(case, operands):
  return jax.checkpoint(case.results)(*operands)


# By default, only one loop and one branch run in each mode.
@selection.in_turn(1)
@with_kinds("body", [_while, _scan, _cond, _checkpoint])
def test_bodies(case, body, kind, rng):
  """Catches a collective in the body of a loop or of a branch."""
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (3, BATCH), N, N, np.float64)
  sharded = place(operands, mesh, None, "x")
  results = compile_local(lambda *x: body(case, x), sharded)(*sharded)
  same_bits(results, quick_compile(lambda *x: body(case, x), operands)(*operands))
  sharded_like(results, mesh, *((None, "x") if body in (_scan, _checkpoint) else ("x",)))


@selection.in_turn(1)
@KINDS
def test_eager(case, kind, rng):
  """Catches a call outside jit that gathers; and one under disable_jit that cannot be made."""
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  sharded = place(operands, mesh, "x")
  expected = unsharded(case, operands)
  results = case.results(*sharded)
  same_bits(results, expected)
  sharded_like(results, mesh, "x")
  with jax.disable_jit(), jax.set_mesh(mesh):  # an eager where needs the mesh, jax 0.10
    results = case.results(*sharded)
  same_bits(results, expected)
  sharded_like(results, mesh, "x")


@selection.in_turn(1)
@with_kinds("batch, n", [(0, N), (BATCH, 0)])
def test_empty(case, batch, n, kind, rng):
  """Catches a rule with a dimension of no elements, and a handler that reads one."""
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (batch,), n, n, np.float64)
  sharded = place(operands, mesh, "x")
  with jax.set_mesh(mesh):
    results = quick_jit(case.results)(*sharded)
  same_bits(results, case.results(*operands))
  if kind == AxisType.Explicit:  # an operand without elements has no sharding in Auto mode
    sharded_like(results, mesh, "x")


@selection.in_turn(1)
@KINDS
def test_one_matrix_of_nan(case, kind, rng):
  """Catches a failure that spreads: to the other matrices of its device, or to other devices."""
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  clean = unsharded(case, operands)
  spoilt = tuple(np.array(x) for x in operands)
  for x in spoilt:
    x[7] = np.nan if x.dtype == np.float64 else 0
  sharded = place(spoilt, mesh, "x")
  results = compile_local(case.results, sharded)(*sharded)
  others = np.arange(BATCH) != 7
  same_bits([np.asarray(x)[others] for x in results], [np.asarray(x)[others] for x in clean])
  same_bits(results, unsharded(case, spoilt))


def test_shardings_of_jit(case, rng):
  """The layout is given by in_shardings and out_shardings, by a mesh in context, or by types that
  are lowered ahead of time."""
  mesh = make_mesh()
  sharding = NamedSharding(mesh, P("x"))
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  expected = unsharded(case, operands)

  compiled = compile_local(case.results, operands, in_shardings=sharding, out_shardings=sharding)
  results = compiled(*place(operands, mesh, "x"))
  same_bits(results, expected)
  sharded_like(results, mesh, "x")

  with jax.set_mesh(mesh):
    results = quick_jit(case.results, in_shardings=P("x"), out_shardings=P("x"))(*operands)
    same_bits(results, expected)
    sharded_like(results, mesh, "x")

  types = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding) for x in operands]
  same_bits(compile_local(case.results, types)(*place(operands, mesh, "x")), expected)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_donation(case, rng):
  """Catches a handler that writes a result before it has read the operand in the same memory."""
  mesh = make_mesh()
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  sharded = place(operands, mesh, "x")
  everything = tuple(range(len(operands)))
  compiled = compile_local(case.results, sharded, donate_argnums=everything)
  results = compiled(*sharded)
  same_bits(results, unsharded(case, operands))
  sharded_like(results, mesh, "x")


@selection.in_turn(1)
@pytest.mark.parametrize("spec", [(None, "x"), (None, None, "x"), (None, "x", "y"), ("x", "y")],
                         ids=str)
def test_sharded_matrix_dimension(case, spec, rng):
  """In Auto mode XLA gathers the matrices: catches a handler that gets a part of one."""
  mesh = _mesh((4, 2), AxisType.Auto)
  operands = case.operands(rng, (BATCH,), 8, 8, np.float64)
  sharded = [
      jax.device_put(x, NamedSharding(mesh, P(*spec[: x.ndim])))
      for x in operands if all(size % 4 == 0 for size in x.shape)]
  sharded += list(operands[len(sharded) :])
  same_bits(quick_jit(case.results)(*sharded), unsharded(case, operands))


def test_two_meshes_share_a_program(case, rng, monkeypatch):
  """Catches devices in the traced or lowered program: a second mesh of one shape retraces
  nothing."""
  from linalg._core import primitive

  lowered, traced = [], []
  partitioning = primitive._partitioning_attributes
  monkeypatch.setattr(
      primitive, "_partitioning_attributes",
      lambda *x: lowered.append(x) or partitioning(*x))

  def function(*operands):
    traced.append(None)
    return case.results(*operands)

  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  devices = jax.devices()
  once = None
  jitted = jax.jit(function)
  for order in (devices, devices[::-1]):
    sharded = place(operands, make_mesh(devices=order), "x")
    jitted(*sharded)
    once = once or len(lowered)
  assert len(traced) == 1
  assert once and len(lowered) == once
