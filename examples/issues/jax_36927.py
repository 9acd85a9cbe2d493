"""`solve` for batches of small systems on a CPU takes 2.6 times as long since jax 0.10.

Issue: 36927
Kind: speed
Before: LU factors, pivots and two triangular solves are several operations over the batch.
After: `linalg.solve` is one call of a handler that solves one system in each lane of a register.
Limits: `accelerate()` keeps JAX's operations, each by a handler, and gains half as much.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg

BATCH, N = 86268, 3


def systems(dtype, batch=BATCH):
  rng = np.random.default_rng(0)
  root = rng.standard_normal((batch, N, N))
  a = root @ root.swapaxes(-1, -2) + 0.01 * np.eye(N)
  return jnp.asarray(a, dtype), jnp.asarray(rng.standard_normal((batch, N, 1)), dtype)


def gradient(solve):
  return jax.grad(lambda a, b: jnp.sum(solve(a, b) ** 2), argnums=(0, 1))


TIMED = {
    f"{kind}{BATCH} systems of 3, {dtype}": (
        of(jnp.linalg.solve), of(linalg.solve), lambda dtype=dtype: systems(dtype))
    for kind, of in (("", lambda f: f), ("gradient, ", gradient))
    for dtype in ("float32", "float64")}


def main() -> None:
  a, b = systems("float32", 1000)
  program = jax.jit(linalg.solve).lower(a, b).compile()
  exact = np.linalg.solve(np.asarray(a, np.float64), np.asarray(b, np.float64))
  condition = np.linalg.cond(np.asarray(a, np.float64))
  with linalg.accelerated():
    accelerated = jax.jit(jnp.linalg.solve)(a, b)
  for x in (program(a, b), accelerated):
    error = np.linalg.norm(x - exact, axis=(-2, -1)) / np.linalg.norm(exact, axis=(-2, -1))
    assert np.all(error < 10 * np.finfo(np.float32).eps * condition)
  calls = str(program.as_text()).count(" custom-call(")
  assert calls == 1
  print(f"linalg.solve is {calls} call of a handler")


if __name__ == "__main__":
  main()
