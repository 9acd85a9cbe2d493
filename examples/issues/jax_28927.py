"""`sqrtm` and `schur` do not run on GPUs, and loop over entries on CPUs.

Issue: 28927, and 28925
Kind: speed
Before: On CUDA an error, since JAX has no `schur` there. On CPUs a loop over the entries of a
  triangle.
After: `linalg.sqrtm` and `linalg.schur` run in batches on CPUs and on NVIDIA GPUs, with
  derivatives.
Limits: Under `accelerate()`, JAX's own `sqrtm` gains half as much in batches, and nothing for one
  matrix of n = 100.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg


def matrices(batch, n, dtype="float32"):
  a = np.random.default_rng(0).standard_normal((batch, n, n))
  return (jnp.asarray(a @ a, dtype),)


TIMED = {
    f"{batch} of {n}, {dtype}": (
        jax.vmap(jax.scipy.linalg.sqrtm), linalg.sqrtm,
        lambda batch=batch, n=n, dtype=dtype: matrices(batch, n, dtype))
    for batch, n in ((64, 8), (16, 32), (1, 100)) for dtype in ("float32", "float64")}


def main() -> None:
  (a,) = matrices(16, 8)
  root = linalg.sqrtm(a)
  error = np.linalg.norm(root @ root - a, axis=(-2, -1)) / np.linalg.norm(root, axis=(-2, -1)) ** 2
  assert np.max(error) < 1e-5
  t, z = linalg.schur(a)
  assert np.max(np.abs(z @ t @ z.mT - a)) < 1e-4 * np.max(np.abs(a))
  program = jax.jit(linalg.schur).lower(a).compile()
  assert "lapack_" not in str(program.as_text())
  print(f"16 roots, largest error {np.max(error):.0e}")


if __name__ == "__main__":
  main()
