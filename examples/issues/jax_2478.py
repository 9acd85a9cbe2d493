"""Functions of matrices of `scipy.linalg` are missing.

Issue: 2478, and 5024
Kind: missing
Before: No `logm`, no `fractional_matrix_power`, and a `sqrtm` without a derivative.
After: `linalg.scipy` has them, with `cosm` and the like, in batches and with derivatives.
Limits: Results that may be complex are complex for every matrix, since a compiled program cannot
  choose.
"""

import jax.numpy as jnp
import numpy as np
import scipy.linalg

import linalg.scipy


def main() -> None:
  root = np.random.default_rng(0).standard_normal((4, 4))
  a = root @ root.T + np.eye(4)
  for name, arguments in {
      "logm": (), "fractional_matrix_power": (0.3,), "cosm": ()}.items():
    ours = getattr(linalg.scipy, name)(jnp.asarray(a, "float32"), *arguments)
    exact = getattr(scipy.linalg, name)(a, *arguments)
    error = np.linalg.norm(ours - exact) / np.linalg.norm(exact)
    print(f"{name}: {error:.0e} from SciPy's")
    assert error < 1e-4


if __name__ == "__main__":
  main()
