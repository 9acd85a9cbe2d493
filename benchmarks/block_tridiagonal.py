"""Times a solve and log det of positive definite block-tridiagonal systems, and their gradient.

  pip install solvax lineax
  python benchmarks/block_tridiagonal.py --rows 2,4,8 --shapes 256x100,1x1000

The contenders take turns: `block_tridiagonal_solve_logdet` ("ours"), the methods of a factor, a
`lax.scan` on stock JAX under `vmap`, and other libraries' solvers where they are installed. These
give no log det. Neither do `block_tridiagonal_solve` ("ours, general") and, for blocks of one row,
`tridiagonal_solve`. lineax's solver is for blocks of one row, too.
"""

import argparse
import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import linalg
from linalg.structured import (
  block_tridiagonal_cholesky,
  block_tridiagonal_solve,
  block_tridiagonal_solve_logdet,
)
from run import describe_run, installed, measure, summarise, write

LIBRARIES = ("lineax", "solvax")
MOST_UNROLLED = 128  # steps; solvax 0.34 unrolls those of block_thomas, and compiles for minutes


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


def contenders(d: int, steps: int) -> dict[str, Callable[..., Any]]:
  found = {
      "ours": block_tridiagonal_solve_logdet, "by factor": by_factor, "ours, general": general,
      "stock scan": stock}
  if d == 1:
    found["tridiagonal_solve"] = tridiagonal
    if installed("lineax"):
      found["lineax"] = lineax
  if installed("solvax"):
    found["solvax, cyclic"] = solvax_cyclic
    if steps <= MOST_UNROLLED:
      found["solvax"] = solvax_thomas
  return found


def value_and_gradient(function):
  def loss(*operands):
    x, logdet = jax.vmap(function)(*operands)
    return jnp.sum(x**2) + jnp.sum(logdet)

  return jax.value_and_grad(loss, (0, 1, 2))


def make_operands(batch: int, steps: int, d: int, dtype: str) -> list[jax.Array]:
  rng = np.random.default_rng(0)
  diagonal = np.broadcast_to((4.0 + d) * np.eye(d), (batch, steps, d, d))
  lower = 0.3 * rng.standard_normal((batch, steps - 1, d, d))
  right = rng.standard_normal((batch, steps, d))
  return [jnp.asarray(x, dtype) for x in (diagonal, lower, right)]


def compare(batch: int, steps: int, d: int, gradient: bool, args: argparse.Namespace):
  """The summary of the times, after a check that the solutions agree."""
  operands = make_operands(batch, steps, d, args.dtype)
  calls, solutions = {}, {}
  some = {k: v for k, v in contenders(d, steps).items() if k not in args.without}
  for name, function in some.items():
    program = jax.jit(value_and_gradient(function) if gradient else jax.vmap(function))
    solutions[name] = jax.tree.leaves(program(*operands))[0]
    calls[name] = functools.partial(
        lambda program: jax.block_until_ready(program(*operands)), program)
  if not gradient:
    for name, x in solutions.items():
      tolerance = 1e7 * np.finfo(args.dtype).eps
      np.testing.assert_allclose(
          x, solutions["ours"], rtol=tolerance, atol=1e-3 * tolerance, err_msg=name)
  return summarise(measure(calls, args.rounds, args.seconds, args.slow_call))


def main() -> None:
  parser = argparse.ArgumentParser(
      description="Times solves and log determinants of block-tridiagonal systems.")
  parser.add_argument("--rows", default="2,4,8", help="of a block")
  parser.add_argument("--shapes", default="256x100,1x1000", help="batch x steps")
  parser.add_argument("--without", nargs="+", default=[], help="contenders to leave out")
  parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
  parser.add_argument("--values-only", action="store_true", help="no gradients")
  parser.add_argument("--slow-call", type=float, default=math.inf, metavar="SECONDS",
                      help="time a contender once if its call takes longer")
  parser.add_argument("--rounds", type=int, default=9)
  parser.add_argument("--seconds", type=float, default=20, help="at most, for one row")
  parser.add_argument("--output", type=pathlib.Path, help="a JSON file for the times")
  args = parser.parse_args()
  jax.config.update("jax_enable_x64", True)
  table = Table(title=f"{args.dtype}, jax {jax.__version__}; ratio: a contender's time over ours")
  for column in ("d", "batch", "steps", "gradient", "ours, ms", "ratios"):
    table.add_column(column, justify="right", no_wrap=True)
  cells = []
  for shape in args.shapes.split(","):
    batch, steps = map(int, shape.split("x"))
    for d in map(int, args.rows.split(",")):
      for gradient in (False, True)[: 1 if args.values_only else 2]:
        found = compare(batch, steps, d, gradient, args)
        cells.append({
            "program": "block-tridiagonal solve and log det", "rows": d, "batch": batch,
            "steps": steps, "dtype": args.dtype, "gradient": gradient} | found)
        ratios = ", ".join(f"{name} {x['median']:.1f}" for name, x in found["speedup"].items())
        table.add_row(
            str(d), str(batch), str(steps), "yes" if gradient else "no",
            f"{1e3 * found['seconds']['ours']:.3g}", ratios)
  Console(width=160).print(table)
  if args.output:
    write(args.output, describe_run("block_tridiagonal.py", LIBRARIES), cells)


if __name__ == "__main__":
  main()
