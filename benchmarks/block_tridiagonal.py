"""Times a solve and log det of positive definite block-tridiagonal systems, and their gradient.

  pip install solvax lineax
  python benchmarks/block_tridiagonal.py --output benchmarks/results/FILE.json
  python benchmarks/block_tridiagonal.py --quick --rows 2,4 --shapes 256x100

The contenders take turns: `block_tridiagonal_solve_logdet` ("ours"), the methods of a factor, a
`lax.scan` on stock JAX under `vmap`, and other libraries' solvers where they are installed. These
give no log det. Neither do `block_tridiagonal_solve` ("ours, general") and, for blocks of one row,
`tridiagonal_solve`. lineax's solver is for blocks of one row, too. A long system is timed on one
thread and on two.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import linalg
from contenders import Benchmark, Contender, Parameters, add_options, parse, run
from linalg.structured import (
  block_tridiagonal_cholesky,
  block_tridiagonal_solve,
  block_tridiagonal_solve_logdet,
)

PROGRAM = "block-tridiagonal solve and log det"
WITH_LOGDET = ("ours", "by factor", "stock scan")


def general(diagonal, lower, b):
  return block_tridiagonal_solve(lower, diagonal, lower.mT, b), jnp.zeros(())


def tridiagonal(diagonal, lower, b):
  """For blocks of one row."""
  below = jnp.pad(lower[:, 0, 0], (1, 0))
  x = linalg.tridiagonal_solve(below, diagonal[:, 0, 0], jnp.roll(below, -1), b)
  return x, jnp.zeros(())


def by_factor(diagonal, lower, b):
  factor = block_tridiagonal_cholesky(diagonal, lower)
  return factor.solve(b), factor.logdet()


def stock(diagonal, lower, b):
  """Our algorithm, as a scan."""
  solve = jax.scipy.linalg.solve_triangular
  d = diagonal.shape[-1]

  def forward(carry, blocks):
    l, y = carry
    own, beside, b = blocks
    below = solve(l, beside.T, lower=True).T
    l = jnp.linalg.cholesky(own - below @ below.T, symmetrize_input=False)
    y = solve(l, b - below @ y, lower=True)
    return (l, y), (l, below, y)

  def back(carry, blocks):
    x, after = carry
    l, below, y = blocks
    x = solve(l, y - after.T @ x, lower=True, trans=1)
    return (x, below), x

  zero = jnp.zeros((d, d), diagonal.dtype)
  beside = jnp.concatenate([zero[None], lower])
  start = (jnp.eye(d, dtype=diagonal.dtype), jnp.zeros(d, diagonal.dtype))
  _, (l, below, y) = jax.lax.scan(forward, start, (diagonal, beside, b))
  _, x = jax.lax.scan(back, (start[1], zero), (l, below, y), reverse=True)
  return x, 2 * jnp.sum(jnp.log(jnp.diagonal(l, axis1=-2, axis2=-1)))


def lineax(diagonal, lower, b):
  """For blocks of one row."""
  import lineax as lx  # type: ignore[import-not-found]

  operator = lx.TridiagonalLinearOperator(diagonal[:, 0, 0], lower[:, 0, 0], lower[:, 0, 0])
  return lx.linear_solve(operator, b[:, 0], lx.Tridiagonal()).value[:, None], jnp.zeros(())


def _solvax(solve):
  def run(diagonal, lower, b):
    import solvax  # type: ignore[import-not-found]

    zero = jnp.zeros_like(diagonal[:1])
    below, above = jnp.concatenate([zero, lower]), jnp.concatenate([lower.mT, zero])
    return solve(solvax, below, diagonal, above, b), jnp.zeros(())

  return run


solvax_thomas = _solvax(lambda solvax, *operands: solvax.block_thomas(*operands))
solvax_cyclic = _solvax(
    lambda solvax, *blocks_and_b: solvax.block_thomas_solve(
        solvax.block_cyclic_reduction_factor(*blocks_and_b[:3]), blocks_and_b[3]))


def contenders(row: Parameters) -> dict[str, Contender]:
  found = {"ours": Contender(block_tridiagonal_solve_logdet)}
  if not row["threads"]:
    found |= {
        "by factor": Contender(by_factor), "ours, general": Contender(general),
        "stock scan": Contender(stock),
        "solvax, cyclic": Contender(solvax_cyclic, library="solvax"),
        "solvax": Contender(solvax_thomas, library="solvax")}
    if row["d"] == 1:
      found |= {
          "tridiagonal_solve": Contender(tridiagonal),
          "lineax": Contender(lineax, library="lineax")}
  wrap = value_and_gradient if row["gradient"] else jax.vmap
  return {name: x._replace(function=wrap(x.function)) for name, x in found.items()}


def value_and_gradient(function):
  def loss(*operands):
    x, logdet = jax.vmap(function)(*operands)
    return jnp.sum(x**2) + jnp.sum(logdet)

  return jax.value_and_grad(loss, (0, 1, 2))


def compared(row: Parameters, name: str, results: Any) -> list[Any]:
  """The solution, or the gradient of those that have the log det."""
  if not row["gradient"]:
    return [results[0]]
  if name not in WITH_LOGDET:
    return []
  value, (diagonal, lower, b) = results
  return [value, diagonal + diagonal.mT, lower, b]  # a scan reads one triangle of each block


def make_operands(row: Parameters) -> list[jax.Array]:
  batch, steps, d = row["batch"], row["steps"], row["d"]
  rng = np.random.default_rng(0)
  diagonal = np.broadcast_to((4.0 + d) * np.eye(d), (batch, steps, d, d))
  lower = 0.3 * rng.standard_normal((batch, steps - 1, d, d))
  right = rng.standard_normal((batch, steps, d))
  return [jnp.asarray(x, row["dtype"]) for x in (diagonal, lower, right)]


def make_rows(args: argparse.Namespace) -> list[Parameters]:
  def rows(shapes, sizes, threads=None):
    return [
        {"program": PROGRAM, "d": int(d), "batch": batch, "steps": steps, "dtype": args.dtype,
         "threads": threads, "gradient": gradient}
        for batch, steps in (map(int, shape.split("x")) for shape in shapes.split(",") if shape)
        for d in sizes.split(",") for gradient in (False, True)[: 1 if args.values_only else 2]]

  return rows(args.shapes, args.rows) + [
      row for d in args.rows.split(",") for threads in (1, 2)
      for row in rows(args.long_shapes, d, threads)]


def main() -> None:
  parser = argparse.ArgumentParser(
      description="Times solves and log determinants of block-tridiagonal systems.")
  parser.add_argument("--rows", default="1,2,4,8", help="of a block")
  parser.add_argument("--shapes", default="256x100,1x1000", help="batch x steps")
  parser.add_argument("--long-shapes", default="1x100000", metavar="SHAPES",
                      help="those that are timed on one thread and on two")
  parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
  parser.add_argument("--values-only", action="store_true", help="no gradients")
  add_options(parser)
  args = parse(parser)
  # solvax 0.34 unrolls the steps, and compiles for minutes.
  benchmark = Benchmark(
      "block_tridiagonal.py", contenders, make_operands, compared,
      effort=lambda row: row["steps"])
  run(benchmark, make_rows(args), args, ("lineax", "solvax"))


if __name__ == "__main__":
  main()
