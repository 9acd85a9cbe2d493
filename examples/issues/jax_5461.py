"""`eigh` has no second matrix: A v = w B v.

Issue: 5461
Kind: missing
Before: NotImplementedError in jax 0.10. It is there in jax 0.12.
After: `linalg.eigh_generalized` and `linalg.scipy.eigh` take batches of all three types, and have
  derivatives.
Limits: A pencil whose B is not positive definite needs `linalg.scipy.eig(a, b)` or `qz`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg

jax.config.update("jax_enable_x64", True)


def pencils(batch=1000, n=6, dtype="float64"):
  a, root = np.random.default_rng(0).standard_normal((2, batch, n, n))
  definite = root @ root.swapaxes(-1, -2) + np.eye(n)
  return jnp.asarray(a + a.swapaxes(-1, -2), dtype), jnp.asarray(definite, dtype)


def by_hand(a, b):
  """The steps that a program on JAX writes out."""
  l = jnp.linalg.cholesky(b)
  solve = lambda x: jax.lax.linalg.triangular_solve(l, x, left_side=True, lower=True)
  w, u = jnp.linalg.eigh(solve(solve(a).mT))
  v = jax.lax.linalg.triangular_solve(l, u, left_side=True, lower=True, transpose_a=True)
  return w, v


TIMED = {
    f"1000 pencils of {n}, {dtype}": (
        by_hand, linalg.eigh_generalized, lambda n=n, dtype=dtype: pencils(n=n, dtype=dtype))
    for n in (6, 16) for dtype in ("float32", "float64")}


def main() -> None:
  a, b = pencils(20)
  w, v = linalg.eigh_generalized(a, b)
  scale = np.max(np.abs(a)) * np.max(np.abs(v))
  assert np.max(np.abs(a @ v - (b @ v) * w[:, None])) < 1e-12 * scale
  assert np.max(np.abs(v.mT @ b @ v - np.eye(6))) < 1e-11
  # dw = vᵀ (dA - w dB) v
  da, db = jnp.ones_like(a), jnp.zeros_like(b)
  dw = jax.jvp(lambda a, b: linalg.eigh_generalized(a, b)[0], (a, b), (da, db))[1]
  np.testing.assert_allclose(dw, jnp.sum(v, axis=-2) ** 2, rtol=1e-7, atol=1e-9)
  print("20 pencils and their derivatives")


if __name__ == "__main__":
  main()
