"""Principal components of data that no device holds, and how they move with the data.

  python examples/principal_components.py

Samples lie on eight devices. The components come from a random sketch of the data, so only a few
columns travel. A gradient through them tells how much each sample moves the explained variance.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import linalg.distributed as dist  # noqa: E402

SAMPLES, FEATURES, COMPONENTS = 8192, 256, 4


def explained(samples: jax.Array) -> tuple[jax.Array, dist.RandomizedSVDResult]:
  """The share of the variance that the first components explain, and the components."""
  centred = samples - jnp.mean(samples, axis=0, keepdims=True)
  found = dist.randomized_svd(centred, COMPONENTS, jax.random.key(0), axes="samples")
  return jnp.sum(found.S**2) / jnp.sum(centred**2), found


def main() -> None:
  rng = np.random.default_rng(0)
  data = rng.standard_normal((SAMPLES, COMPONENTS)) @ rng.standard_normal((COMPONENTS, FEATURES))
  data = (data + 0.5 * rng.standard_normal(data.shape)).astype(np.float32)

  mesh = jax.make_mesh((jax.device_count(),), ("samples",), axis_types=(AxisType.Auto,))
  with jax.set_mesh(mesh):
    samples = jax.device_put(data, NamedSharding(mesh, P("samples", None)))
    program = jax.jit(jax.value_and_grad(explained, has_aux=True)).lower(samples).compile()
    (share, components), influence = program(samples)
    stock = jax.jit(lambda a: jnp.linalg.svd(a, full_matrices=False)).lower(samples).compile()

  _, s, vh = np.linalg.svd(data - data.mean(0), full_matrices=False)
  expected = np.sum(s[:COMPONENTS] ** 2) / np.sum(s**2)
  left_out = np.linalg.norm(s[COMPONENTS:])
  print(f"explained by {COMPONENTS} components: {share:.4f}, by NumPy {expected:.4f}")
  print(f"left out: {components.error:.3f}, by the best components {left_out:.3f}")
  print(f"most influential sample: {int(jnp.argmax(jnp.sum(influence**2, axis=1)))}")
  print(f"value and gradient: {dist.report(program).moved / 1e3:.0f} kB received by a device")
  print(f"jax.numpy.linalg.svd alone: {dist.report(stock).moved / 1e3:.0f} kB")
  angles = np.linalg.svd(np.asarray(components.Vh) @ vh[:COMPONENTS].T, compute_uv=False)
  assert abs(share - expected) < 1e-4
  assert np.all(angles > 0.999)
  assert dist.report(program).moved < dist.report(stock).moved / 10


if __name__ == "__main__":
  main()
