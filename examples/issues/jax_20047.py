"""A matrix of a batch has other bits than the same matrix alone.

Issue: 20047
Kind: failures
Before: JAX promises no bits. In jax 0.10.2 on a CPU, `solve` agrees at the sizes that we tried, and
  `slogdet` does not for 50 matrices of n = 100.
After: A matrix has the same bits in any batch on a CPU, in every function with a handler.
Limits: On GPUs the path, and so the bits, may depend on the batch. [Some composed
  functions](details.md#the-same-bits-in-any-batch) differ too.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg

BATCH = 33


def main() -> None:
  functions = {
      "solve": lambda a: linalg.solve(a, a[..., :2]), "inv": linalg.inv, "slogdet": linalg.slogdet,
      "cholesky": lambda a: linalg.cholesky(linalg.matmul(a, a.mT)), "qr": linalg.qr,
      "eigh": linalg.eigh, "svd": linalg.svd}

  def everything(a):
    return [jax.tree.leaves(function(a)) for function in functions.values()]

  for n in (3, 16, 100):
    a = jnp.asarray(np.random.default_rng(n).standard_normal((BATCH, n, n)), "float32")
    together, alone = everything(a), everything(a[BATCH // 2])
    for name, batch, one in zip(functions, together, alone, strict=True):
      for x, y in zip(batch, one, strict=True):
        assert np.array_equal(x[BATCH // 2], y), (name, n)
  print(f"{len(functions)} functions: the same bits alone and among {BATCH}")


if __name__ == "__main__":
  main()
