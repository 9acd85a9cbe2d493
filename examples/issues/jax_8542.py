"""QR of a batch takes as long as one matrix after the other.

Issue: 8542, and 15803 about batches of 256 by 32
Kind: speed
Before: LAPACK factors one matrix at a time, and makes Q in a second call. So did cuSOLVER when
  the issue was filed.
After: One call factors the batch, one matrix per lane on a CPU, and with kernels of its own on
  NVIDIA GPUs.
Limits: [Speed on GPUs](cuda_speed.md) says at which sizes cuSOLVER is as fast.
"""

import jax
import jax.numpy as jnp
import numpy as np

import linalg


def matrices(shape, dtype="float32"):
  return (jnp.asarray(np.random.default_rng(0).standard_normal(shape), dtype),)


def gradient(qr):
  return jax.grad(lambda a: jnp.sum(qr(a)[1] ** 2))


TIMED = {
    **{f"{kind}4096 of 12 by 6, {dtype}": (
        of(jnp.linalg.qr), of(linalg.qr), lambda dtype=dtype: matrices((4096, 12, 6), dtype))
       for kind, of in (("", lambda f: f), ("gradient, ", gradient))
       for dtype in ("float32", "float64")},
    "100 of 256 by 32, float32": (
        jnp.linalg.qr, linalg.qr, lambda: matrices((100, 256, 32)))}


def main() -> None:
  (a,) = matrices((500, 12, 6))
  program = jax.jit(linalg.qr).lower(a).compile()
  q, r = program(a)
  eps = np.finfo(np.float32).eps
  assert np.max(np.abs(q @ r - a)) < 50 * eps * np.max(np.abs(a))
  assert np.max(np.abs(q.mT @ q - np.eye(6))) < 50 * eps
  assert str(program.as_text()).count(" custom-call(") == 1
  with linalg.accelerated():
    names = str(jax.jit(jnp.linalg.qr).lower(a).compile().as_text())
  assert "linalg_" in names and "lapack_" not in names
  print("500 factorisations in one call, and none by LAPACK when accelerated")


if __name__ == "__main__":
  main()
