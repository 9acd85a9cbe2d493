"""The gradient through `eigh` of a complex matrix is NaN at equal eigenvalues.

Issue: 669, and 10527
Kind: gradients
Before: NaN in every entry, at an identity matrix as at a molecule with degenerate orbitals.
After: `linalg.eigh` has the exact gradient where the loss sees an eigenspace and not its basis.
Limits: A function of the matrix, V f(w) Vᴴ, needs `linalg.funm_hermitian`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg

jax.config.update("jax_enable_x64", True)

COUPLING = np.array([[0, 1j, 2], [-1j, 0, 3], [2, 3, 0]])


def energy(eigh, a):
  """The two lowest orbitals, of equal energy, in a field."""
  occupied = eigh(a)[1][:, :2]
  return jnp.sum(COUPLING * (occupied @ occupied.conj().T)).real


def main() -> None:
  a = jnp.diag(jnp.array([1.0, 1.0, 3.0])).astype("complex128")
  root = np.random.default_rng(0).standard_normal((2, 3, 3))
  direction = root[0] + root[0].T + 1j * (root[1] - root[1].T)
  step = 1e-6 * direction
  slope = float(energy(np.linalg.eigh, a + step) - energy(np.linalg.eigh, a - step)) / 2e-6
  stock, ours = (jax.grad(lambda a: energy(eigh, a))(a)  # noqa: B023
                 for eigh in (jnp.linalg.eigh, linalg.eigh))
  print(f"slope by differences {slope:.6f}, linalg {np.sum(ours * direction).real:.6f}, "
        f"JAX {np.sum(stock * direction).real:.6f}")
  assert np.isclose(np.sum(ours * direction).real, slope, rtol=1e-6)


if __name__ == "__main__":
  main()
