"""`inv` of many 3 by 3 matrices is 30 times slower than a formula written by hand.

Issue: 11321
Kind: speed
Before: `inv` solves with the identity, by several operations over the batch.
After: `linalg.inv` is one call of a handler. It is as accurate as LU with pivots, for any n.
Limits: One matrix at a time gains little. [When not to use this](when_not.md) has figures.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg


def matrices(dtype="float32", batch=10000, n=3):
  return (jnp.asarray(np.random.default_rng(0).standard_normal((batch, n, n)), dtype),)


def by_hand(a):
  """The adjugate over the determinant, for n = 3."""
  rows = [a[..., i, :] for i in range(3)]
  columns = [jnp.cross(rows[i - 2], rows[i - 1]) for i in range(3)]
  determinant = jnp.sum(rows[0] * columns[0], axis=-1)
  return jnp.stack(columns, axis=-1) / determinant[..., None, None]


TIMED = {
    "by hand instead of JAX, 10000 matrices of 3, float32": (by_hand, linalg.inv, matrices),
    **{f"10000 matrices of {n}, {dtype}": (
        jnp.linalg.inv, linalg.inv, lambda n=n, dtype=dtype: matrices(dtype, n=n))
       for n in (3, 6) for dtype in ("float32", "float64")}}


def main() -> None:
  (a,) = matrices()
  program = jax.jit(linalg.inv).lower(a).compile()
  exact = np.linalg.inv(np.asarray(a, np.float64))
  error = np.linalg.norm(program(a) - exact, axis=(-2, -1)) / np.linalg.norm(exact, axis=(-2, -1))
  assert np.all(error < 10 * np.finfo(np.float32).eps * np.linalg.cond(np.asarray(a, np.float64)))
  calls = str(program.as_text()).count(" custom-call(")
  assert calls == 1
  np.testing.assert_allclose(by_hand(a[:9]), exact[:9], rtol=1e-2)
  print(f"linalg.inv is {calls} call of a handler; largest error {np.max(error):.0e}")


if __name__ == "__main__":
  main()
