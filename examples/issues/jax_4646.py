"""The derivative of a single eigenvector is NaN where two other eigenvalues are equal.

Issue: 4646
Kind: gradients
Before: NaN, although the eigenvector in question is smooth.
After: `linalg.eigh` gives its derivative.
Limits: Equal eigenvalues' own vectors have no derivative: `linalg.eigh_gauge_error` tells if a
  loss needs them.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg


def ratio(eigh, a):
  """Two components of the last eigenvector, whatever its sign."""
  last = eigh(a)[1][:, 2]
  return last[0] / last[2]


def main() -> None:
  a = jnp.diag(jnp.array([1.0, 1.0, 4.0]))
  stock = jax.grad(lambda a: ratio(jnp.linalg.eigh, a))(a)
  ours = jax.grad(lambda a: ratio(linalg.eigh, a))(a)
  # dv = v₀ (v₀ᵀ dA v) / (4 - 1), and only the symmetric part of dA counts.
  exact = np.zeros((3, 3))
  exact[0, 2] = exact[2, 0] = 1 / 6
  print(f"JAX has {np.sum(np.isnan(stock))} NaN of 9, linalg {np.sum(np.isnan(ours))}")
  np.testing.assert_allclose(ours, exact, atol=1e-6)


if __name__ == "__main__":
  main()
