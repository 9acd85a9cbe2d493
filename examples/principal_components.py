"""Principal components of tall data that no device holds, and how they move with the data.

  python examples/principal_components.py

Samples lie on eight devices. The components come from R of TSQR, so that a small triangle is all
that travels; and a gradient through them tells how much each sample moves the explained variance.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import linalg.distributed as dist  # noqa: E402

SAMPLES, FEATURES, COMPONENTS = 32768, 32, 4


def explained(samples: jax.Array) -> jax.Array:
  """The share of the variance that the first components explain."""
  centred = samples - jnp.mean(samples, axis=0, keepdims=True)
  variances = dist.svdvals(centred, axes="samples") ** 2
  return jnp.sum(variances[:COMPONENTS]) / jnp.sum(variances)


def main() -> None:
  rng = np.random.default_rng(0)
  data = rng.standard_normal((SAMPLES, COMPONENTS)) @ rng.standard_normal((COMPONENTS, FEATURES))
  data = (data + 0.5 * rng.standard_normal(data.shape)).astype(np.float32)

  mesh = jax.make_mesh((jax.device_count(),), ("samples",), axis_types=(AxisType.Auto,))
  with jax.set_mesh(mesh):
    samples = jax.device_put(data, NamedSharding(mesh, P("samples", None)))
    program = jax.jit(jax.value_and_grad(explained)).lower(samples).compile()
    share, influence = program(samples)
    stock = jax.jit(lambda a: jnp.linalg.svd(a, full_matrices=False)).lower(samples).compile()

  s = np.linalg.svd(data - data.mean(0), compute_uv=False) ** 2
  expected = s[:COMPONENTS].sum() / s.sum()
  print(f"explained by {COMPONENTS} components: {share:.4f}, by NumPy {expected:.4f}")
  print(f"most influential sample: {int(jnp.argmax(jnp.sum(influence**2, axis=1)))}")
  print(f"value and gradient: {dist.report(program).moved / 1e3:.0f} kB received by a device")
  print(f"jax.numpy.linalg.svd alone: {dist.report(stock).moved / 1e3:.0f} kB")
  assert abs(share - expected) < 1e-4
  assert dist.report(program).moved < dist.report(stock).moved / 10


if __name__ == "__main__":
  main()
