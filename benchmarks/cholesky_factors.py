"""Times changes of a Cholesky factor, and the gradient of what is computed from them.

  pip install cholops
  python benchmarks/cholesky_factors.py --shapes 32x1,32x1024,256x1,256x1024

The contenders take turns: the methods of `CholeskyFactor` ("ours"), a factorisation of the changed
matrix ("again"), and cholops where it is installed. A gradient is that of log det and bᵀ A⁻¹ b of
the changed matrix, by the factor before and by the added column.
"""

# pyright: reportMissingImports=false

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import linalg
from contenders import Benchmark, Contender, Parameters, add_options, parse, run

CHANGES = {
    "append": lambda factor, index, column, diagonal: factor.append(column, diagonal),
    "delete": lambda factor, index, column, diagonal: factor.delete(index),
    "update": lambda factor, index, column, diagonal: factor.update(column)}


def _ours(change, lower, index, column, diagonal):
  return CHANGES[change](linalg.CholeskyFactor.from_factor((lower, True)), index, column, diagonal)


def _cholops(change, lower, index, column, diagonal):
  import cholops

  factor = cholops.Cholesky.from_factor(lower)
  if change == "update":
    return factor.rank1_positive(column)
  return CHANGES[change](factor, index, column, diagonal)


def _again(change, lower, index, column, diagonal):
  a = lower @ lower.T
  if change == "append":
    a = jnp.block([[a, column[:, None]], [column[None], diagonal[None, None]]])
  elif change == "delete":
    keep = jnp.arange(len(a) - 1)
    keep = keep + (keep >= index)
    a = a[keep][:, keep]
  else:
    a = a + column[:, None] * column
  return linalg.factorize_cholesky(a)


def program(function, change: str, gradient: bool):
  """The changed factors, or the gradient of a function of them."""

  def value(lower, index, column, diagonal, b):
    factor = function(change, lower, index, column, diagonal)
    b = b[:-1] if change == "delete" else b if change == "update" else jnp.append(b, 0.5)
    return factor.logdet() + factor.quadratic(b)

  def changed(lower, index, column, diagonal, b):
    del b
    return function(change, lower, index, column, diagonal)

  if not gradient:
    return jax.vmap(changed, (0, None, 0, 0, 0))
  return jax.vmap(jax.grad(value, (0, 2)), (0, None, 0, 0, 0))


def contenders(row: Parameters) -> dict[str, Contender]:
  make = lambda function: program(function, row["change"], row["gradient"])
  return {
      "ours": Contender(make(_ours)), "again": Contender(make(_again)),
      "cholops": Contender(make(_cholops), library="cholops")}


def compared(row: Parameters, name: str, results: Any) -> list[Any]:
  """Another parametrisation of the same function: gradients by lower triangles agree."""
  return [jnp.tril(results[0])] if row["gradient"] else []


def make_operands(row: Parameters) -> list[Any]:
  n, batch = row["n"], row["batch"]
  rng = np.random.default_rng(0)
  lower = np.tril(rng.standard_normal((batch, n, n))) / np.sqrt(n) + 3 * np.eye(n)
  column = rng.standard_normal((batch, n)) / np.sqrt(n)
  b = rng.standard_normal((batch, n))
  operands = lower, column, np.full(batch, 9.0), b
  lower, column, diagonal, b = (jnp.asarray(x, row["dtype"]) for x in operands)
  return [lower, jnp.int32(n // 3), column, diagonal, b]


def make_rows(args: argparse.Namespace) -> list[Parameters]:
  return [
      {"program": "change of a Cholesky factor", "change": change, "n": n, "batch": batch,
       "dtype": args.dtype, "gradient": gradient}
      for n, batch in (map(int, shape.split("x")) for shape in args.shapes.split(","))
      for change in args.changes for gradient in (False, True)]


def main() -> None:
  parser = argparse.ArgumentParser(description="Times changes of Cholesky factors.")
  parser.add_argument("--shapes", default="32x1,32x1024,256x1,256x1024", help="n x batch")
  parser.add_argument("--changes", nargs="+", choices=CHANGES, default=[*CHANGES])
  parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
  add_options(parser)
  args = parse(parser)
  run(Benchmark("cholesky_factors.py", contenders, make_operands, compared), make_rows(args), args,
      ["cholops"])


if __name__ == "__main__":
  main()
