"""Factors of large matrices, for `tests/values/test_large.py`: to be run in a process of its own.

  python large_scenarios.py results.npz [one]

If the file exists, the bits of the results are compared with it; if not, they are written to it.
`one` leaves the process one processor.
"""

import os
import pathlib
import sys

import jax
import numpy as np

import linalg


def results():
  jax.config.update("jax_enable_x64", True)
  rng, n = np.random.default_rng(0), 640
  for dtype in (np.float32, np.complex128):
    a = rng.standard_normal((2, n, n)).astype(dtype)
    a[1] += np.eye(n)
    s = (a @ a.conj().swapaxes(-1, -2) / n + np.eye(n)).astype(dtype)
    for name, value in (
        ("cholesky", linalg.cholesky(s[0])), ("upper", linalg.cholesky(s[1], upper=True)),
        ("lu", linalg.lu_factor(a[0])[0]), ("wide", linalg.lu_factor(a[0, :500])[0]),
        ("tall", linalg.lu_factor(a[0, :, :500])[0]), ("inv", linalg.inv(a[1])),
        ("solve", linalg.solve(a[0], s[0, :, :200])), ("two", linalg.solve(a, s)),
        ("q", linalg.qr(a[0])[0]), ("r", linalg.qr(a[0], "r")),
        ("wide r", linalg.qr(a[0, :300])[1]), ("tall q", linalg.qr(a[0, :, :300], "complete")[0]),
        ("reflectors", linalg.householder_product(a[0, :, :300] / 100, a[0, 0, :300])),
        ("triangular", linalg.triangular_solve(s[0], a[0], lower=True)),
        ("from the right", linalg.triangular_solve(s[0], a[0], left_side=False)),
        ("factored", linalg.lu_solve(linalg.lu_factor(a[1]), s[0], 1)),
        ("eigenvectors", linalg.eigh(s[0])[1]), ("eigenvalues", linalg.eigvalsh(s[0])),
        ("singular vectors", linalg.svd(a[0, :600])[0]), ("svdvals", linalg.svdvals(a[0])),
        ("tridiagonal", linalg.eigh_tridiagonal(a[0, 0].real + 0 * a[0, 0], a[0, 1, 1:])[1])):
      yield f"{name} {np.dtype(dtype)}", np.asarray(value)


def main(path):
  found = dict(results())
  if not path.exists():
    np.savez(path, **found)
  expected = np.load(path)
  for name, value in found.items():
    assert value.tobytes() == expected[name].tobytes(), name
  print("done")


if __name__ == "__main__":
  if sys.argv[2:] == ["one"]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
  main(pathlib.Path(sys.argv[1]))
