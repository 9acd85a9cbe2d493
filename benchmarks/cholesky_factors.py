"""Times changes of a Cholesky factor, and the gradient of what is computed from them.

  pip install cholops
  python benchmarks/cholesky_factors.py --shapes 32x1,32x1024,256x1,256x1024

The contenders take turns: the methods of `CholeskyFactor` ("ours"), a factorisation of the changed
matrix ("again"), and cholops where it is installed. A gradient is that of log det and bᵀ A⁻¹ b of
the changed matrix, by the factor before and by the added column.
"""

# pyright: reportMissingImports=false

import argparse
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import linalg
from run import describe_run, installed, measure, summarise, write

LIBRARIES = ("cholops",)
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


def contenders():
  found = {"ours": _ours, "again": _again}
  if installed("cholops"):
    found["cholops"] = _cholops
  return found


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
    return jax.jit(jax.vmap(changed, (0, None, 0, 0, 0)))
  return jax.jit(jax.vmap(jax.grad(value, (0, 2)), (0, None, 0, 0, 0)))


def make_operands(n: int, batch: int, dtype: str) -> list[Any]:
  rng = np.random.default_rng(0)
  lower = np.tril(rng.standard_normal((batch, n, n))) / np.sqrt(n) + 3 * np.eye(n)
  column = rng.standard_normal((batch, n)) / np.sqrt(n)
  b = rng.standard_normal((batch, n))
  operands = lower, column, np.full(batch, 9.0), b
  lower, column, diagonal, b = (jnp.asarray(x, dtype) for x in operands)
  return [lower, jnp.int32(n // 3), column, diagonal, b]


def compare(n: int, batch: int, change: str, gradient: bool, args: argparse.Namespace):
  operands = make_operands(n, batch, args.dtype)
  calls, results = {}, {}
  for name, function in contenders().items():
    if name in args.without:
      continue
    compiled = program(function, change, gradient)
    results[name] = compiled(*operands)
    calls[name] = functools.partial(lambda f: jax.block_until_ready(f(*operands)), compiled)
  if gradient:
    for name, found in results.items():
      # Another parametrisation of the same function: gradients by lower triangles agree.
      np.testing.assert_allclose(
          np.tril(found[0]), np.tril(results["ours"][0]), rtol=1e-3, atol=1e-4, err_msg=name)
  return summarise(measure(calls, args.rounds, args.seconds))


def main() -> None:
  parser = argparse.ArgumentParser(description="Times changes of Cholesky factors.")
  parser.add_argument("--shapes", default="32x1,32x1024,256x1,256x1024", help="n x batch")
  parser.add_argument("--changes", nargs="+", choices=CHANGES, default=[*CHANGES])
  parser.add_argument("--without", nargs="+", default=[], help="contenders to leave out")
  parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
  parser.add_argument("--rounds", type=int, default=9)
  parser.add_argument("--seconds", type=float, default=20, help="at most, for one row")
  parser.add_argument("--output", type=pathlib.Path, help="a JSON file for the times")
  args = parser.parse_args()
  jax.config.update("jax_enable_x64", True)
  table = Table(title=f"{args.dtype}, jax {jax.__version__}; ratio: a contender's time over ours")
  for column in ("change", "n", "batch", "gradient", "ours, ms", "ratios"):
    table.add_column(column, justify="right", no_wrap=True)
  cells = []
  for shape in args.shapes.split(","):
    n, batch = map(int, shape.split("x"))
    for change in args.changes:
      for gradient in (False, True):
        found = compare(n, batch, change, gradient, args)
        cells.append({
            "program": f"cholesky {change}", "n": n, "batch": batch, "dtype": args.dtype,
            "gradient": gradient} | found)
        ratios = ", ".join(f"{name} {x['median']:.2f}" for name, x in found["speedup"].items())
        table.add_row(change, str(n), str(batch), "yes" if gradient else "no",
                      f"{1e3 * found['seconds']['ours']:.3g}", ratios)
  Console(width=120).print(table)
  if args.output:
    write(args.output, describe_run("cholesky_factors.py", LIBRARIES), cells)


if __name__ == "__main__":
  main()
