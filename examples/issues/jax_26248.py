"""The gradient of `norm` at zero is NaN.

Issue: 26248, and 3058, 4177, 21723
Kind: gradients
Before: NaN, also where the norm is squared or multiplied by 0 afterwards.
After: `linalg.norm` has the subgradient 0 there, and does not overflow on the way.
Limits: The norm is not smooth at 0. A loss that needs more than a subgradient there has none.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg


def main() -> None:
  zero = jnp.zeros(3)
  stock, ours = (
      jax.grad(lambda scale: norm(scale * zero))(1.3)  # noqa: B023
      for norm in (jnp.linalg.norm, linalg.norm))
  print(f"JAX {stock}, linalg {ours}")
  assert ours == 0
  assert np.array_equal(jax.grad(lambda x: linalg.norm(x) ** 2)(zero), zero)
  huge = jnp.full(4, 1e30)
  np.testing.assert_allclose(linalg.norm(huge), 2e30, rtol=1e-6)


if __name__ == "__main__":
  main()
