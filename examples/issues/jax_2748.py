"""Eigenvectors of a general matrix have no derivative.

Issue: 2748
Kind: gradients
Before: NotImplementedError, except for eigenvalues.
After: `linalg.eig` has the derivatives of vectors of length 1, right for losses that do not see
  their phase.
Limits: At equal eigenvalues of a defective matrix the derivative is infinite.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg

jax.config.update("jax_enable_x64", True)


def weight(eig, a):
  """The squared modulus of a component of the vector of the largest eigenvalue."""
  w, v = eig(a)
  return jnp.abs(v[0, jnp.argmax(jnp.real(w))]) ** 2


def main() -> None:
  a = np.random.default_rng(0).uniform(size=(4, 4))  # positive, so the largest is real and single
  direction = np.random.default_rng(1).standard_normal((4, 4))
  step = 1e-6 * direction
  slope = float(weight(np.linalg.eig, a + step) - weight(np.linalg.eig, a - step)) / 2e-6
  ours = jax.grad(lambda a: weight(linalg.eig, a))(jnp.asarray(a))
  print(f"slope by differences {slope:.6f}, linalg {np.sum(ours * direction):.6f}")
  assert np.isclose(np.sum(ours * direction), slope, rtol=1e-6)


if __name__ == "__main__":
  main()
