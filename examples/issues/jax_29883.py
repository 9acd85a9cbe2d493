"""`slogdet`, `det` and `solve` raise on a mesh with Explicit axes.

Issue: 29883
Kind: sharding
Before: An error when the issue was filed, in July 2025, and mended since. `cholesky`, `qr` and
  `inv` still raise in jax 0.12.
After: All functions keep the sharding of the batch, and move nothing between devices.
Limits: Each matrix must lie on one device. `accelerate()` mends JAX's `qr`, not `cholesky` and
  `inv`.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import linalg  # noqa: E402
import linalg.distributed as dist  # noqa: E402


def main() -> None:
  mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Explicit,))
  with jax.set_mesh(mesh):
    a = jax.random.normal(jax.random.key(0), (8, 5, 5), out_sharding=P("i"))
    a = a @ a.mT + jnp.eye(5)
    for name in ("slogdet", "det", "solve", "cholesky", "qr", "eigh", "svd"):
      function = getattr(linalg, name)
      operands = (a, a[..., 0]) if name == "solve" else (a,)
      program = jax.jit(jax.vmap(function)).lower(*operands).compile()
      assert not dist.report(program).collectives
      for leaf in jax.tree.leaves(program(*operands)):
        assert jax.typeof(leaf).sharding.spec[0] == "i"
    with linalg.accelerated():
      q, _ = jax.jit(jnp.linalg.qr)(a)
    assert jax.typeof(q).sharding.spec[0] == "i"
    print("seven functions keep the sharding; nothing moves")


if __name__ == "__main__":
  main()
