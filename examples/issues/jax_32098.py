"""A call by `jax.ffi.ffi_call` gathers a sharded batch.

Issue: 32098
Kind: sharding
Before: XLA replicates the operands of a custom call, unless it is told which dimensions are
  batch.
After: A handler that is called by `linalg.ffi` is split along the batch, on Auto and on Explicit
  axes.
Limits: It takes a handler that treats leading dimensions as a batch: [handlers of your
  own](handlers.md).
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import linalg.distributed as dist  # noqa: E402
import linalg.ffi  # noqa: E402

# Both functions call this C++ handler. It makes the permutation of LU's row exchanges.
TARGET, ROWS = "linalg_lu_pivots_to_permutation", 5


def by_jax(pivots):
  call = jax.ffi.ffi_call(
      TARGET, jax.ShapeDtypeStruct(pivots.shape, jnp.int32), vmap_method="broadcast_all")
  return call(pivots, permutation_size=np.int64(ROWS))


def by_linalg(pivots):
  return linalg.lu_pivots_to_permutation(pivots, ROWS)


def main() -> None:
  mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))
  with jax.set_mesh(mesh):
    pivots = jnp.broadcast_to(jnp.array([4, 1, 3, 3, 4], jnp.int32), (8, ROWS))
    pivots = jax.device_put(pivots, NamedSharding(mesh, P("i")))
    before, after = (
        jax.jit(function).lower(pivots).compile() for function in (by_jax, by_linalg))
    print(f"jax.ffi.ffi_call: {dict(dist.report(before).collectives)}, "
          f"linalg.ffi: {dict(dist.report(after).collectives)}")
    assert np.array_equal(before(pivots), after(pivots))
    assert not dist.report(after).collectives


if __name__ == "__main__":
  main()
