"""Programs of each family of functions: exported and read back, and with donated operands."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import linalg.distributed as dist
import matrices
from one_matrix import AXES, close, mesh_of
from quick import quick_jit
from sharded import KINDS

N = 24

# The operand's shape, its sharding, the call, and the call for an array on one device.
CASES = {
    "tall": (
        (64, 4), P(("x", "y"), None), lambda a: tuple(dist.qr(a, axes=("x", "y"))), linalg.qr),
    "least squares": (
        (64, 4), P(("x", "y"), None), lambda a: dist.lstsq(a, a @ jnp.ones(4), axes=("x", "y"))[0],
        lambda a: linalg.lstsq(a, a @ jnp.ones(4))[0]),
    "positive": (
        (N, N), P("x", "y"), lambda a: dist.inv(a, assume_a="pos", axes=AXES),
        lambda a: linalg.inv(jnp.tril(a) + jnp.tril(a, -1).T)),
    "general": (
        (N, N), P("x", "y"),
        lambda a: (dist.inv(a, axes=AXES), dist.solve(a, jnp.ones(N), axes=AXES)),
        lambda a: (linalg.inv(a), linalg.solve(a, jnp.ones(N)))),
    "triangular": (
        (N, N), P("x", "y"), lambda a: dist.solve_triangular(a, jnp.ones(N), axes=AXES),
        lambda a: linalg.solve_triangular(a, jnp.ones(N))),
    "stack": (
        (8, 16, 16), P(None, "x", "y"), dist.batched(linalg.svdvals, axes=AXES), linalg.svdvals),
}


def operand(name, kind, rng):
  shape, spec, *_ = CASES[name]
  host = matrices.general(rng, shape[:-2], *shape[-2:], np.float64)
  if shape[-2] == shape[-1]:
    host = host + shape[-1] * np.eye(shape[-1])
  mesh, _ = mesh_of("both", kind)
  return host, jax.device_put(host, NamedSharding(mesh, spec))


def check(found, host, name):
  expected = jax.tree.leaves(quick_jit(CASES[name][3])(host))
  for mine, theirs in zip(jax.tree.leaves(found), expected, strict=True):
    close(mine, theirs, np.float64, 1e5)


@pytest.mark.extended
@KINDS
@pytest.mark.parametrize("name", CASES)
def test_export(name, kind, rng):
  host, x = operand(name, kind, rng)
  with jax.set_mesh(x.sharding.mesh):
    exported = jax.export.export(
        jax.jit(CASES[name][2]), disabled_checks=linalg.export_disabled_checks())(x)
    again = jax.export.deserialize(exported.serialize())
    assert again.nr_devices == 8
    found = quick_jit(again.call)(x)
  check(found, host, name)


@pytest.mark.extended
@KINDS
@pytest.mark.parametrize("name", ["tall", "positive", "general"])
def test_donation(name, kind, rng):
  """An operand with a result's shape is donated: its memory is reused, and nothing reads it
  after."""
  host, x = operand(name, kind, rng)
  with jax.set_mesh(x.sharding.mesh):
    found = quick_jit(CASES[name][2], donate_argnums=0)(x)
  assert x.is_deleted()
  check(found, host, name)
