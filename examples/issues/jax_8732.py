"""The gradient of SVD is NaN where two singular values are equal.

Issue: 8732
Kind: gradients
Before: NaN, as for the orthogonal factor of a rotation, whose singular values are all 1.
After: `linalg.svd` and `linalg.polar` are right for U Vᴴ and for every function of the whole
  matrix.
Limits: Single vectors of equal singular values have no derivative.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg

WEIGHTS = np.arange(9.0).reshape(3, 3)


def nearest_rotation(svd, a):
  u, _, vh = svd(a, full_matrices=False)
  return jnp.sum(WEIGHTS * (u @ vh))


def main() -> None:
  angle = 0.3
  c, s = np.cos(angle), np.sin(angle)
  a = jnp.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
  stock = jax.grad(lambda a: nearest_rotation(jnp.linalg.svd, a))(a)
  ours = jax.grad(lambda a: nearest_rotation(linalg.svd, a))(a)
  # At a rotation Q, dQ = (dA - Q dAᵀ Q) / 2.
  exact = (WEIGHTS - a @ WEIGHTS.T @ a) / 2
  print(f"JAX has {np.sum(np.isnan(stock))} NaN of 9, linalg {np.sum(np.isnan(ours))}")
  np.testing.assert_allclose(ours, exact, atol=1e-5)
  polar = jax.grad(lambda a: jnp.sum(WEIGHTS * linalg.polar(a)[0]))(a)
  np.testing.assert_allclose(polar, exact, atol=1e-5)


if __name__ == "__main__":
  main()
