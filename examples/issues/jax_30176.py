"""Linear algebra refuses bfloat16 and float16.

Issue: 30176
Kind: missing
Before: NotImplementedError or TypeError, and each program casts on its own.
After: All functions take half precision, compute in float32, and round the results.
Limits: JAX refuses on purpose, so that no cast is hidden. `accelerate()` leaves that as it is.
"""

import jax.numpy as jnp
import numpy as np

import linalg


def main() -> None:
  a = jnp.asarray(np.random.default_rng(0).standard_normal((10, 6, 4)), "bfloat16")
  q, r = linalg.qr(a)
  assert q.dtype == r.dtype == a.dtype
  exact = np.asarray(a, "float64")
  error = np.max(np.abs(np.asarray(q, "float64") @ np.asarray(r, "float64") - exact))
  print(f"10 factorisations in bfloat16, error {error:.0e}")
  assert error < 0.02 * np.max(np.abs(exact))


if __name__ == "__main__":
  main()
