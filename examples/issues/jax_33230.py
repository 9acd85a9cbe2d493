"""`inv` of a sharded batch raises on a mesh with Explicit axes.

Issue: 33230
Kind: sharding
Before: ShardingTypeError under `vmap`, and ValueError without.
After: `linalg.inv` keeps the sharding, and moves nothing between devices.
Limits: `accelerate()` cannot help: JAX raises while it traces, before anything is lowered. Inside
  `shard_map`, JAX's `inv` works, and is accelerated.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import linalg  # noqa: E402
import linalg.distributed as dist  # noqa: E402


def outcome(function, a) -> str:
  try:
    return str(jax.typeof(jax.jit(function)(a)))
  except Exception as error:  # noqa: BLE001 (its class is not public)
    return type(error).__name__


def main() -> None:
  mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Explicit,))
  with jax.set_mesh(mesh):
    a = jax.random.normal(jax.random.key(0), (8, 5, 5), out_sharding=P("i"))
    print(f"JAX: inv {outcome(jnp.linalg.inv, a)}, vmap {outcome(jax.vmap(jnp.linalg.inv), a)}")
    inside = jax.shard_map(jnp.linalg.inv, in_specs=P("i"), out_specs=P("i"))
    with linalg.accelerated():
      accelerated = jax.jit(inside).lower(a).compile()
    assert "linalg_lu" in str(accelerated.as_text())
    for function in (linalg.inv, jax.vmap(linalg.inv)):
      program = jax.jit(function).lower(a).compile()
      inverse = program(a)
      assert jax.typeof(inverse).sharding.spec[0] == "i"
      assert not dist.report(program).collectives
      np.testing.assert_allclose(np.asarray(a) @ np.asarray(inverse) - np.eye(5), 0, atol=1e-4)
    print(f"linalg: {jax.typeof(inverse)}, nothing moves")


if __name__ == "__main__":
  main()
