"""`eigh` of a batch corrupts the heap on a CPU with some hundred cores.

Issue: 39292
Kind: failures
Before: Threads of XLA's pool call LAPACK at once, and each call wakes OpenBLAS's own threads.
After: Both `linalg.eigh` and, accelerated, `jnp.linalg.eigh` run without LAPACK at these sizes.
Limits: The crash needs more cores than we have, so no run here shows it.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg

jax.config.update("jax_enable_x64", True)


def main() -> None:
  a = np.random.default_rng(0).standard_normal((144, 63, 63))
  a = jnp.asarray(a + a.swapaxes(-1, -2))
  with linalg.accelerated():
    accelerated = jax.jit(jnp.linalg.eigh).lower(a).compile()
  for name, program in {
      "linalg": jax.jit(linalg.eigh).lower(a).compile(), "accelerated": accelerated}.items():
    w, v = program(a)
    assert np.max(np.abs(a @ v - v * w[:, None])) < 1e-12 * np.max(np.abs(w))
    assert "lapack_" not in str(program.as_text())
    print(f"{name}: 144 matrices of 63 without LAPACK")


if __name__ == "__main__":
  main()
