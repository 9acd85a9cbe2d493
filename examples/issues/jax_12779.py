"""There is no LDL factorisation of indefinite matrices.

Issue: 12779
Kind: missing
Before: No such function.
After: `linalg.scipy.ldl` is SciPy's `ldl`, in batches and with derivatives.
Limits: It suits many small matrices. One large matrix takes longer than LAPACK.
"""

import jax.numpy as jnp
import numpy as np

import linalg.scipy


def main() -> None:
  root = np.random.default_rng(0).standard_normal((20, 6, 6))
  a = jnp.asarray(root + root.swapaxes(-1, -2), "float32")
  l, d, permutation = linalg.scipy.ldl(a)
  assert np.max(np.abs(l @ d @ l.mT - a)) < 1e-5 * np.max(np.abs(a))
  rows = np.take_along_axis(np.asarray(l), np.asarray(permutation)[..., None], axis=-2)
  assert np.array_equal(rows, np.tril(rows))
  negative = lambda x: np.sum(np.linalg.eigvalsh(x) < 0, axis=-1)
  assert np.array_equal(negative(np.asarray(d)), negative(np.asarray(a)))
  print("20 indefinite matrices, and D has their inertia")


if __name__ == "__main__":
  main()
