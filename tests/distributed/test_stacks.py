"""Stacks whose matrix dimensions are sharded, and what `report` counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import linalg.distributed as dist
import matrices
import selection
from sharded import KINDS, make_mesh

extended = pytest.mark.extended
SPECS = {
    "rows": P(None, "x", None), "columns": P(None, None, "y"), "both": P(None, "x", "y"),
    "rows twice": P(None, ("x", "y"), None), "turned": P(None, "y", "x")}


def place(x, spec, kind=AxisType.Explicit):
  return jax.device_put(x, NamedSharding(make_mesh((4, 2), ("x", "y"), kind), spec))


@selection.in_turn(1, "spec")
@KINDS
@pytest.mark.parametrize("spec", [
    x if x in ("rows", "both") else pytest.param(x, marks=extended) for x in SPECS])
@pytest.mark.parametrize("length", [5, pytest.param(8, marks=extended)])
def test_results(spec, length, kind, rng):
  """Bits are those of the batch. A matrix is sharded like its stack, and a vector is on all
  devices."""
  a = matrices.positive_definite(rng, (length,), 8, np.float64)
  x = place(a, SPECS[spec], kind)
  w, v = dist.batched(linalg.eigh)(x)
  expected = linalg.eigh(a)
  np.testing.assert_array_equal(w, expected.eigenvalues)
  np.testing.assert_array_equal(v, expected.eigenvectors)
  assert v.sharding.is_equivalent_to(x.sharding, 3) and w.sharding.is_fully_replicated


def test_each_device_works_on_its_share(rng):
  """Two exchanges of a share each. A device that does not compute a matrix does not hold it."""
  a = matrices.positive_definite(rng, (16,), 8, np.float64)
  x = place(a, P(None, "x", "y"))
  program = jax.jit(dist.batched(lambda a: linalg.inverse_pth_root(a, 4))).lower(x).compile()
  found = dist.report(program)
  assert found.collectives == {"all-to-all": 4}
  assert found.moved == 4 * a.nbytes // 8
  assert "f64[16,8,8]" not in program.as_text()
  np.testing.assert_array_equal(program(x), linalg.inverse_pth_root(a, 4))


def test_derivatives(rng):
  a = matrices.positive_definite(rng, (5,), 8, np.float64)
  x = place(a, P(None, "x", "y"))
  loss = lambda f: lambda a: jnp.sum(f(a) ** 3)
  expected = jax.grad(loss(linalg.cholesky))(a)
  found = jax.jit(jax.grad(loss(dist.batched(linalg.cholesky))))(x)
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.max(np.abs(expected)))


def test_inside_jit_on_auto_axes(rng):
  """axes= gives the stack's sharding there; without it, the stack would be gathered."""
  a = matrices.positive_definite(rng, (16,), 8, np.float64)
  x = place(a, P(None, "x", "y"), AxisType.Auto)
  loss = lambda a: jnp.sum(dist.batched(linalg.cholesky, axes=(("x",), ("y",)))(a) ** 3)
  with jax.set_mesh(x.sharding.mesh):
    program = jax.jit(jax.value_and_grad(loss)).lower(x).compile()
    with pytest.raises(ValueError, match=r"cannot be known .* axes=\(rows, columns\)"):
      jax.jit(dist.batched(linalg.cholesky))(x)
  found = dist.report(program)
  assert set(found.collectives) <= {"all-to-all", "all-reduce"}
  assert found.moved <= 8 * a.nbytes // 8 + 64
  assert "f64[16,8,8]" not in program.as_text()
  expected = jax.value_and_grad(lambda a: jnp.sum(linalg.cholesky(a) ** 3))(a)
  for mine, theirs in zip(program(x), expected, strict=True):
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12 * np.max(np.abs(theirs)))


def test_rectangular_results(rng):
  """A result is sharded where the devices divide it; others are on all."""
  a = matrices.general(rng, (4,), 16, 6, np.float64)
  x = place(a, P(None, "x", None))
  q, r = dist.batched(lambda a: tuple(linalg.qr(a)))(x)
  for mine, theirs in zip((q, r), linalg.qr(a), strict=True):
    np.testing.assert_array_equal(mine, theirs)
  assert q.sharding.is_equivalent_to(x.sharding, 3) and r.sharding.is_fully_replicated


def test_errors(rng):
  call = dist.batched(linalg.polar)
  with pytest.raises(ValueError, match="needs a mesh"):
    call(jnp.ones((2, 2, 2)))
  with pytest.raises(ValueError, match="is a batch: call the function"):
    call(place(np.ones((8, 8, 8)), P("x", None, None)))
  with pytest.raises(ValueError, match="dimension 2 of the stack, .* multiple of the 4 devices"):
    dist.batched(linalg.qr, axes=(None, "x"))(place(np.ones((8, 8, 6)), P(), AxisType.Auto))
  with pytest.raises(linalg.ffi.ShardingTypeError, match="jax.sharding.reshard"):
    dist.batched(linalg.qr, axes=(None, "x"))(place(np.ones((8, 8, 8)), P(None, "x")))
  with pytest.raises(ValueError, match=r"\[k, m, n\]"):
    call(place(np.ones((8, 8)), P("x", None)))


@pytest.mark.parametrize("dtype,size", [(np.float32, 4), (np.complex128, 16), (np.int8, 1)])
def test_report_of_a_loop(dtype, size):
  """Iterations of a loop count, and so do the bytes of a device's result."""
  mesh = make_mesh()
  x = jax.device_put(np.ones((8, 4), dtype), NamedSharding(mesh, P("x")))

  def body(x):
    turn = lambda _, x: jax.lax.ppermute(x, "x", [(i, (i + 1) % 8) for i in range(8)])
    return jax.lax.fori_loop(0, 5, turn, x)

  program = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
  found = dist.report(program.lower(x).compile())
  assert found.collectives == {"collective-permute": 5} and found.unknown_loops == 0
  assert found.moved == 5 * 4 * size
  assert found.arguments == found.results == 4 * size


def test_report_of_an_unknown_loop():
  mesh = make_mesh()
  x = jax.device_put(np.ones(8, np.float32), NamedSharding(mesh, P("x")))

  def body(x):
    return jax.lax.while_loop(
        lambda x: jax.lax.psum(jnp.sum(x), "x") < 1e6, lambda x: 2 * x, x)

  program = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
  found = dist.report(program.lower(x).compile())
  assert found.unknown_loops >= 1 and found.collectives["all-reduce"] >= 1
