"""The full SVD, and so the null space of a wide matrix, has no derivative.

Issue: 508
Kind: gradients
Before: NotImplementedError for `full_matrices=True`.
After: `linalg.svd` has the derivative of the space that the additional vectors span.
Limits: Which basis spans it is arbitrary, so a loss must not depend on the basis.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg

jax.config.update("jax_enable_x64", True)

WEIGHTS = np.random.default_rng(0).standard_normal((4, 4))


def along_null_space(svd, a):
  null = svd(a)[2][2:]
  return jnp.sum(WEIGHTS * (null.T @ null))


def main() -> None:
  a, direction = np.random.default_rng(1).standard_normal((2, 2, 4))
  step = 1e-6 * direction
  value = lambda a: float(along_null_space(np.linalg.svd, a))
  slope = (value(a + step) - value(a - step)) / 2e-6
  ours = jax.grad(lambda a: along_null_space(linalg.svd, a))(jnp.asarray(a))
  print(f"slope by differences {slope:.6f}, linalg {np.sum(ours * direction):.6f}")
  assert np.isclose(np.sum(ours * direction), slope, rtol=1e-6)


if __name__ == "__main__":
  main()
