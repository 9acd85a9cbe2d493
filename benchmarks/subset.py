"""Times a part of a spectrum against the whole decomposition, which is then cut.

  python benchmarks/subset.py
  python benchmarks/subset.py --operations svd --n 256 --batch 16

prints, for the values of each operation and for gradients, the median times of both, and the median
over rounds of the part's time over the whole's.
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import linalg
from run import measure, summarise

OPERATIONS = ("eigh", "eigvalsh", "svd", "svdvals")


def decompose(operation, chosen, part, a):
  """The chosen values, and vectors where the operation has them."""
  how = {"subset_by_index": chosen} if part else {}
  cut = slice(None) if part else slice(*chosen)
  if operation == "eigh":
    w, v = linalg.eigh(a, **how)
    return w[..., cut], v[..., cut]
  if operation == "svd":
    u, s, vh = linalg.svd(a, full_matrices=False, **how)
    return s[..., cut], u[..., cut], vh[..., cut, :]
  function = linalg.eigvalsh if operation == "eigvalsh" else linalg.svdvals
  return (function(a, **how)[..., cut],)


def loss(decomposition, a):
  w, *vectors = decomposition(a)
  return jnp.sum(w) + sum(jnp.sum(jnp.sin(jnp.arange(v.size).reshape(v.shape)) * v**2)
                          for v in vectors)


def main() -> None:
  parser = argparse.ArgumentParser(description="Times a part of a spectrum.")
  parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
  parser.add_argument("--n", type=int, default=1024)
  parser.add_argument("--batch", type=int, default=1)
  parser.add_argument("--count", type=int, default=16, help="of the largest values")
  parser.add_argument("--dtypes", nargs="+", choices=["float32", "float64"], default=["float64"])
  parser.add_argument("--rounds", type=int, default=9)
  parser.add_argument("--seconds", type=float, default=30, help="at most, for one row")
  args = parser.parse_args()
  jax.config.update("jax_enable_x64", True)
  table = Table(title=f"{args.count} of {args.n}, batch {args.batch}")
  for column in ("program", "dtype", "part, ms", "whole, ms", "part / whole"):
    table.add_column(column, justify="left" if column == "program" else "right", no_wrap=True)
  for operation in args.operations:
    for dtype in args.dtypes:
      a = np.random.default_rng(0).standard_normal((args.batch, args.n, args.n)).astype(dtype)
      a = jnp.asarray(a if operation.startswith("svd") else a + a.swapaxes(-1, -2))
      of_eigh = operation.startswith("eig")
      chosen = (args.n - args.count, args.n) if of_eigh else (0, args.count)
      for gradient in (False, True):
        contestants = {}
        for name in ("ours", "whole"):
          function = functools.partial(decompose, operation, chosen, name == "ours")
          function = jax.jit(
              jax.value_and_grad(functools.partial(loss, function)) if gradient else function)
          contestants[name] = functools.partial(
              lambda function, a: jax.block_until_ready(function(a)), function, a)
        found = summarise(measure(contestants, args.rounds, args.seconds))
        part, whole = (f"{1e3 * found['seconds'][x]:.3g}" for x in ("ours", "whole"))
        table.add_row(
            f"value and grad {operation}" if gradient else operation, dtype, part, whole,
            f"{1 / found['speedup']['whole']['median']:.2f}")
  Console().print(table)


if __name__ == "__main__":
  main()
