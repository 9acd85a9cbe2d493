"""Times a part of a spectrum against the whole decomposition, which is then cut.

  python benchmarks/subset.py
  python benchmarks/subset.py --operations svd --n 256 --batch 16
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np

import linalg
from contenders import Benchmark, Contender, Parameters, add_options, parse, run

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


def contenders(row: Parameters) -> dict[str, Contender]:
  operation, n, count = row["operation"], row["n"], row["count"]
  chosen = (n - count, n) if operation.startswith("eig") else (0, count)

  def contender(part):
    function = functools.partial(decompose, operation, chosen, part)
    return Contender(
        jax.value_and_grad(functools.partial(loss, function)) if row["gradient"] else function)

  return {"ours": contender(True), "whole": contender(False)}


def compared(row: Parameters, name: str, results: object) -> list[jax.Array]:
  """The values. Vectors have signs of their own."""
  return [] if row["gradient"] else jax.tree.leaves(results)[:1]


def make_operands(row: Parameters) -> list[jax.Array]:
  n = row["n"]
  a = np.random.default_rng(0).standard_normal((row["batch"], n, n)).astype(row["dtype"])
  is_svd = row["operation"].startswith("svd")
  return [jnp.asarray(a if is_svd else a + a.swapaxes(-1, -2))]


def make_rows(args: argparse.Namespace) -> list[Parameters]:
  return [
      {"program": "part of a spectrum", "operation": operation, "n": args.n, "batch": args.batch,
       "count": args.count, "dtype": dtype, "gradient": gradient}
      for operation in args.operations for dtype in args.dtypes for gradient in (False, True)]


def main() -> None:
  parser = argparse.ArgumentParser(description="Times a part of a spectrum.")
  parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
  parser.add_argument("--n", type=int, default=1024)
  parser.add_argument("--batch", type=int, default=1)
  parser.add_argument("--count", type=int, default=16, help="of the largest values")
  parser.add_argument("--dtypes", nargs="+", choices=["float32", "float64"], default=["float64"])
  add_options(parser)
  args = parse(parser)
  run(Benchmark("subset.py", contenders, make_operands, compared), make_rows(args), args)


if __name__ == "__main__":
  main()
