"""`schur`, `sqrtm` and `funm` have no derivative.

Issue: 38831, and 16579
Kind: gradients
Before: NotImplementedError, since JAX has no rule for `schur`.
After: All three have derivatives, which for `sqrtm` and `funm` are right at equal eigenvalues
  too.
Limits: A Schur form at equal eigenvalues has a derivative only where the loss does not see the
  basis.
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import linalg
import linalg.scipy

jax.config.update("jax_enable_x64", True)

WEIGHTS = np.random.default_rng(0).standard_normal((3, 3))


def main() -> None:
  root, direction = np.random.default_rng(1).standard_normal((2, 3, 3))
  a = root @ root.T + np.eye(3) + np.triu(root)
  step = 1e-6 * direction
  rsqrt = lambda x: scipy.linalg.inv(scipy.linalg.sqrtm(x))
  pairs = {
      "sqrtm": (lambda x: jnp.real(linalg.sqrtm(x)), lambda x: np.real(scipy.linalg.sqrtm(x))),
      "schur": (
          lambda x: jnp.real(jnp.sum(linalg.schur(x, output="complex")[0] ** 2)),
          lambda x: np.real(np.sum(scipy.linalg.schur(x, output="complex")[0] ** 2))),
      "funm": (
          lambda x: jnp.real(jnp.asarray(linalg.scipy.funm(x, lambda w: w**-0.5))),
          lambda x: np.real(rsqrt(x)))}
  for name, (ours, scipys) in pairs.items():
    loss = lambda f, x: (WEIGHTS * f(x)).sum()  # noqa: E731
    slope = (loss(scipys, a + step) - loss(scipys, a - step)) / 2e-6
    gradient = jax.grad(lambda x: loss(ours, x))(jnp.asarray(a))  # noqa: B023
    found = np.sum(gradient * direction)
    print(f"{name}: slope by differences {slope:.6f}, linalg {found:.6f}")
    assert np.isclose(found, slope, rtol=1e-5)


if __name__ == "__main__":
  main()
