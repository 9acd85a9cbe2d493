"""One large matrix that several devices share is gathered on each of them.

Issue: 13087, and 16597, 24309
Kind: sharding
Before: XLA gathers the matrix, so its size is bounded by one device, and all devices do the same
  work.
After: `linalg.distributed` factors it where it lies: Cholesky, LU, QR, SVD and `eigh`.
Limits: [The limits](distributed_limits.md) list what is missing, and what to use instead.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import linalg.distributed as dist  # noqa: E402

ROWS, COLUMNS, N = 1024, 16, 256


def main() -> None:
  mesh = jax.make_mesh((4,), ("rows",), axis_types=(AxisType.Auto,))
  with jax.set_mesh(mesh):
    a = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype("float32")
    sharded = jax.device_put(a, NamedSharding(mesh, P("rows", None)))
    ours = jax.jit(lambda a: dist.svd(a, axes="rows")).lower(sharded).compile()
    stock = jax.jit(lambda a: jnp.linalg.svd(a, full_matrices=False)).lower(sharded).compile()
    u, s, vh = ours(sharded)
    np.testing.assert_allclose((np.asarray(u) * s) @ np.asarray(vh), a, atol=1e-4)
    moved = {name: dist.report(x).moved for name, x in (("JAX", stock), ("linalg", ours))}
    print(f"SVD of {ROWS} by {COLUMNS}: a device receives {moved} bytes")
    assert moved["linalg"] < a.nbytes / 4 < a.nbytes <= moved["JAX"]

    root = np.random.default_rng(0).standard_normal((N, N)).astype("float32")
    h = root + root.T
    sharded = jax.device_put(h, NamedSharding(mesh, P("rows", None)))
    program = jax.jit(lambda a: dist.eigh(a, axes="rows")).lower(sharded).compile()
    w, v = program(sharded)
    assert "rows" in v.sharding.spec
    error = np.max(np.abs(h @ np.asarray(v) - np.asarray(v) * w)) / np.max(np.abs(w))
    print(f"eigh of {N}, rows sharded: residual {error:.0e}")
    assert error < 1e-4


if __name__ == "__main__":
  main()
