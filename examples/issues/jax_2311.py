"""The gradient of a truncated SVD is NaN where singular values that are left out are zero.

Issue: 2311
Kind: gradients
Before: NaN, although the loss does not depend on the vectors of the zeros.
After: `linalg.svd` gives the gradient of the truncated matrix.
Limits: A vector of a singular value that is 0 has no derivative of its own.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg

jax.config.update("jax_enable_x64", True)

TARGET = np.random.default_rng(0).standard_normal((5, 5))


def misfit(svd, a):
  """The distance of the best approximation of rank 2 from a target."""
  u, s, vh = svd(a, full_matrices=False)
  return jnp.sum(((u[:, :2] * s[:2]) @ vh[:2] - TARGET) ** 2)


def main() -> None:
  a = jnp.diag(jnp.array([3.0, 2.0, 0.0, 0.0, 0.0]))
  direction = np.random.default_rng(1).standard_normal((5, 5))
  step = 1e-6 * direction
  slope = float(misfit(np.linalg.svd, a + step) - misfit(np.linalg.svd, a - step)) / 2e-6
  stock = jax.grad(lambda a: misfit(jnp.linalg.svd, a))(a)
  ours = jax.grad(lambda a: misfit(linalg.svd, a))(a)
  print(f"slope by differences {slope:.6f}, linalg {np.sum(ours * direction):.6f}, "
        f"JAX {np.sum(stock * direction):.6f}")
  assert np.isclose(np.sum(ours * direction), slope, rtol=1e-6)


if __name__ == "__main__":
  main()
