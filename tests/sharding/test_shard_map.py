"""Manual sharding: `jax.shard_map` with every check on, and `jax.pmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import cases
import linalg
import matrices
import selection
from quick import quick_compile, quick_jit
from sharded import (
  BATCH,
  KINDS,
  SECOND_BATCH,
  N,
  close,
  collectives,
  compile_local,
  energy,
  make_mesh,
  no_collectives,
  place,
  same_bits,
  sharded_like,
  split,
  unsharded,
)

COMPILES = True
ONE_IN = 3


@selection.in_turn(1)
@selection.one_dtype
@KINDS
def test_manual(case, dtype, kind, rng):
  """Catches a result whose type does not vary over the axes that its operand varies over."""
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (BATCH,), N, N, dtype)
  sharded = place(operands, mesh, "x")
  function = jax.shard_map(case.results, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
  results = compile_local(function, sharded)(*sharded)
  same_bits(results, unsharded(case, operands))
  sharded_like(results, mesh, "x")


@selection.in_turn(1)
@KINDS
def test_partial_manual(case, kind, rng):
  """One axis is manual, and one is left to the compiler.

  Catches a rule that knows only one of them.
  """
  mesh = make_mesh((4, 2), ("x", "y"), kind)
  operands = case.operands(rng, (BATCH, SECOND_BATCH), N, N, np.float64)
  sharded = place(operands, mesh, "x", "y")
  manual = lambda f: jax.shard_map(
      f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
  if collectives(quick_compile(manual(jnp.sin), sharded[:1]).as_text()):
    pytest.skip("this jax's shard_map gathers over Explicit axes that are not manual")
  function = manual(case.results)
  results = compile_local(function, sharded)(*sharded)
  same_bits(results, unsharded(case, operands))
  sharded_like(results, mesh, "x", "y")


def test_vmap_and_scan(case, rng):
  """Catches types that differ between iterations of vmap and scan around and in shard_map."""
  mesh = make_mesh()
  operands = case.operands(rng, (3, BATCH), N, N, np.float64)
  sharded = place(operands, mesh, None, "x")
  expected = unsharded(case, operands)

  def scan(*operands):
    first = case.results(*(x[0] for x in operands))
    return jax.lax.scan(lambda carry, x: (case.results(*x), carry), first, operands)

  def everything(*operands):
    manual = lambda f, spec: jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)
    outer = jax.vmap(manual(case.results, P("x")))(*operands)
    inner = manual(jax.vmap(case.results), P(None, "x"))(*operands)
    looped = jax.shard_map(
        scan, mesh=mesh, in_specs=P(None, "x"), out_specs=(P("x"), P(None, "x")))(*operands)
    return outer, inner, looped

  outer, inner, (last, before) = compile_local(everything, sharded)(*sharded)
  same_bits(outer, expected)
  same_bits(inner, expected)
  same_bits(last, [x[2] for x in expected])
  same_bits(before, [np.stack([x[0], x[0], x[1]]) for x in expected])


@cases.each(cases.DIFFERENTIABLE_CASES)
def test_gradients(case, rng):
  """Catches a tangent that does not vary over its primal's axes, for grad inside and outside."""
  mesh = make_mesh()
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  sharded = place(operands, mesh, "x")

  def manual(function):
    return jax.shard_map(function, mesh=mesh, in_specs=P("x"), out_specs=P("x"))

  def inside(*operands):
    x, merge = split(operands)
    return jax.grad(lambda x: jnp.sum(energy(case, 1, *merge(x))))(x)

  def outside(*operands):
    x, merge = split(operands)
    return jax.grad(lambda x: jnp.sum(manual(lambda *y: energy(case, 1, *y))(*merge(x))))(x)

  both = lambda *operands: (manual(inside)(*operands), outside(*operands))
  first, second = compile_local(both, sharded)(*sharded)
  close(first, second)
  close(first, quick_compile(inside, operands)(*operands))


def test_abstract_mesh(case, rng):
  """Catches a rule that needs a concrete mesh for types or for lowering."""
  concrete = make_mesh(kind=AxisType.Explicit)
  mesh = concrete.abstract_mesh
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  types = [
      jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, P("x")))
      for x in operands]
  manual = jax.shard_map(case.results, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
  for function in (case.results, manual):
    for result in jax.eval_shape(function, *types):
      assert tuple(result.sharding.spec)[:1] == ("x",)
  traced = jax.jit(manual).trace(*types)
  assert "linalg_" in traced.lower(lowering_platforms=("cpu",)).as_text()
  sharded = place(operands, concrete, "x")
  same_bits(quick_jit(manual)(*sharded), unsharded(case, operands))


SOLVES = {
    "solve": linalg.solve,
    "triangular_solve": lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True),
    "cho_solve": lambda a, b: linalg.cho_solve((a, True), b),
    "lu_solve": lambda a, b: linalg.lu_solve((a, np.arange(N, dtype=np.int32)), b),
}


@pytest.mark.parametrize("name", SOLVES)
def test_replicated_operand(name, rng):
  """Catches a matrix on all devices whose type differs from that of varying right-hand sides.

  The gradient of the matrix is a sum over the devices. It takes one all-reduce and nothing else.
  """
  solve = SOLVES[name]
  mesh = make_mesh()
  a = matrices.well_conditioned(rng, (), N, np.float64)
  b = rng.standard_normal((BATCH, N, 2))
  manual = jax.shard_map(solve, mesh=mesh, in_specs=(P(), P("x")), out_specs=P("x"))
  operands = (*place((a,), mesh), *place((b,), mesh, "x"))
  same_bits(compile_local(manual, operands)(*operands), quick_jit(solve)(a, b))

  def gradient(solve):
    return jax.grad(lambda a, b: jnp.sum(jnp.sin(solve(a, b))))

  compiled = quick_compile(gradient(manual), operands)
  assert collectives(compiled.as_text()) == {"all-reduce"}
  close(compiled(*operands), quick_jit(gradient(solve))(a, b))


@selection.in_turn(1)
def test_oracle_in_the_program(case, dtype, rng):
  """SciPy, called back from every device, agrees with the operation on that device's matrices.

  Catches shards that are exchanged, and right results of the wrong matrices.
  """
  mesh = make_mesh()
  operands = case.operands(rng, (BATCH,), N, N, dtype)
  if case.unordered:
    # SciPy orders results its own way, so the residuals are compared instead.
    function = jax.shard_map(case.results, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    compiled = quick_compile(function, place(operands, mesh, "x"))
    no_collectives(compiled.as_text())
    results = compiled(*place(operands, mesh, "x"))
    assert case.ratio(operands, [np.asarray(x) for x in results]) <= case.limit
    return
  called = []

  def host(*operands):
    operands = [np.asarray(x) for x in operands]
    called.append(len(operands[0]))
    rows = [case.expected(*(x[i] for x in operands)) for i in range(len(operands[0]))]
    return tuple(np.stack(column) for column in zip(*rows, strict=True))

  def local_type(x):
    varying = getattr(jax.typeof(x), "manual_axis_type", None)  # jax >= 0.11
    if varying is not None:
      return jax.ShapeDtypeStruct(x.shape, x.dtype, manual_axis_type=varying)
    return jax.ShapeDtypeStruct(x.shape, x.dtype, vma=jax.typeof(x).vma)

  def local(*operands):
    results = case.invariant(case.results(*operands))
    cast = lambda *x: tuple(
        np.asarray(y, r.dtype) for y, r in zip(host(*x), results, strict=True))
    expected = jax.pure_callback(cast, tuple(map(local_type, results)), *operands)
    axes = lambda x: tuple(range(1, x.ndim))
    return [
        (jnp.max(abs(x - y), axis=axes(x)), jnp.max(abs(y), axis=axes(x), initial=1))
        for x, y in zip(results, expected, strict=True)]

  function = jax.shard_map(local, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
  compiled = quick_compile(function, place(operands, mesh, "x"))
  no_collectives(compiled.as_text())
  for error, scale in compiled(*place(operands, mesh, "x")):
    np.testing.assert_array_less(error, 200 * np.finfo(dtype).eps * np.asarray(scale))
  assert called == [BATCH // 8] * 8


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pmap(case, rng):
  """Catches a call that cannot be lowered, or batched, in a program of replicas."""
  if not hasattr(jax, "pmap"):
    pytest.skip("this JAX has no pmap")
  operands = case.operands(rng, (8, 3), N, N, np.float64)
  results = jax.pmap(case.results)(*operands)
  same_bits(results, unsharded(case, operands))
  for x in results:
    assert len(x.sharding.device_set) == 8
