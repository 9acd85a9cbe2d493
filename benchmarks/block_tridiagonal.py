"""Times a solve and log det of positive definite block-tridiagonal systems, and their gradient.

  python benchmarks/block_tridiagonal.py --rows 2,4,8 --shapes 256x100,1x1000

The contenders take turns: `block_tridiagonal_solve_logdet`, the methods of a factor, a `lax.scan`
on stock JAX under `vmap`, and solvax's and lineax's solvers where they are installed. These two
give no log det, so they solve alone.
"""

import argparse
import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from linalg.structured import block_tridiagonal_cholesky, block_tridiagonal_solve_logdet
from run import measure, summarise


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


def solvax(diagonal, lower, b):
  import solvax  # type: ignore[import-not-found]

  zero = jnp.zeros_like(diagonal[:1])
  below, above = jnp.concatenate([zero, lower]), jnp.concatenate([lower.mT, zero])
  return solvax.block_thomas(below, diagonal, above, b), jnp.zeros(())


def contenders(d: int) -> dict[str, Callable[..., Any]]:
  found = {"ours": block_tridiagonal_solve_logdet, "by factor": by_factor, "stock scan": stock}
  for name, function in (("lineax", lineax), ("solvax", solvax)):
    if importlib.util.find_spec(name) is not None and (d == 1 or name != "lineax"):
      found[name] = function
  return found


def value_and_gradient(function):
  def loss(*operands):
    x, logdet = jax.vmap(function)(*operands)
    return jnp.sum(x**2) + jnp.sum(logdet)

  return jax.value_and_grad(loss, (0, 1, 2))


def make_operands(batch: int, steps: int, d: int) -> list[jax.Array]:
  rng = np.random.default_rng(0)
  diagonal = np.broadcast_to((4.0 + d) * np.eye(d), (batch, steps, d, d))
  lower = 0.3 * rng.standard_normal((batch, steps - 1, d, d))
  return [jnp.asarray(x) for x in (diagonal, lower, rng.standard_normal((batch, steps, d)))]


def compare(batch: int, steps: int, d: int, gradient: bool, rounds: int, seconds: float):
  """The summary of the times, after a check that the solutions agree."""
  operands = make_operands(batch, steps, d)
  calls, solutions = {}, {}
  for name, function in contenders(d).items():
    program = jax.jit(value_and_gradient(function) if gradient else jax.vmap(function))
    solutions[name] = jax.tree.leaves(program(*operands))[0]
    calls[name] = functools.partial(
        lambda program: jax.block_until_ready(program(*operands)), program)
  if not gradient:
    for name, x in solutions.items():
      np.testing.assert_allclose(x, solutions["ours"], rtol=1e-6, atol=1e-9, err_msg=name)
  return summarise(measure(calls, rounds, seconds))


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--rows", default="2,4,8", help="of a block")
  parser.add_argument("--shapes", default="256x100,1x1000", help="batch x steps")
  parser.add_argument("--rounds", type=int, default=9)
  parser.add_argument("--seconds", type=float, default=20, help="at most, for one row")
  args = parser.parse_args()
  jax.config.update("jax_enable_x64", True)
  table = Table(title=f"float64, jax {jax.__version__}; ratio: a contender's time over ours")
  for column in ("d", "batch", "steps", "gradient", "ours, ms", "ratios"):
    table.add_column(column, justify="right", no_wrap=True)
  for shape in args.shapes.split(","):
    batch, steps = map(int, shape.split("x"))
    for d in map(int, args.rows.split(",")):
      for gradient in (False, True):
        found = compare(batch, steps, d, gradient, args.rounds, args.seconds)
        ratios = ", ".join(f"{name} {x['median']:.1f}" for name, x in found["speedup"].items())
        table.add_row(
            str(d), str(batch), str(steps), "yes" if gradient else "no",
            f"{1e3 * found['seconds']['ours']:.3g}", ratios)
  Console().print(table)


if __name__ == "__main__":
  main()
