"""Second derivatives of singular values are NaN for matrices of very small or large scale.

Issue: 40185
Kind: gradients
Before: NaN at a scale of 1e-20 in float32, since squares of singular values underflow.
After: `linalg.svd` gives the second derivative, which is 1e20 times that of the matrix of usual
  scale.
Limits: At equal singular values second derivatives are NaN.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg


def main() -> None:
  a = jnp.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]], "float32")
  total = lambda svd: jax.hessian(lambda a: jnp.sum(svd(a, compute_uv=False)))
  usual = total(linalg.svd)(a)
  small = total(linalg.svd)(1e-20 * a) * 1e-20
  stock = total(jnp.linalg.svd)(1e-20 * a) * 1e-20
  print(f"largest entry {np.max(np.abs(usual)):.4f}; at a scale of 1e-20 linalg "
        f"{np.max(np.abs(small)):.4f}, JAX {np.max(np.abs(stock)):.4f}")
  np.testing.assert_allclose(small, usual, atol=1e-4)


if __name__ == "__main__":
  main()
