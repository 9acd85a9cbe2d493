"""Times whole programs with this package and with stock JAX in turn.

  python benchmarks/programs.py --programs kalman --batch 4096

prints, for the values and for the gradients, the median times, and the median over rounds of stock
JAX's time over this package's.
"""

import argparse
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import linalg
from run import measure, summarise


class Library(NamedTuple):
  """The functions of one library that the programs call."""

  matmul: Callable[..., jax.Array]
  cholesky: Callable[..., jax.Array]
  solve_triangular: Callable[..., jax.Array]
  inverse_root: Callable[..., jax.Array]  # A^(-1/4)


def _stock_inverse_root(a):
  w, v = jnp.linalg.eigh(a)
  return jnp.matmul(v * jnp.maximum(w, 1e-30)[..., None, :] ** -0.25, v.mT)


OURS = Library(
    linalg.matmul, linalg.cholesky, linalg.solve_triangular,
    functools.partial(linalg.inverse_pth_root, p=4))
STOCK = Library(
    jnp.matmul, jnp.linalg.cholesky, jax.scipy.linalg.solve_triangular, _stock_inverse_root)


class Program(NamedTuple):
  value: Callable[..., jax.Array]  # (library, operands): a number to differentiate, or a result
  operands: Callable[[np.random.Generator, int], Any]  # (rng, batch)
  differentiable: bool = True


STATE, OBSERVED, STEPS = 6, 3, 20


def _kalman_operands(rng, batch):
  rotation = np.linalg.qr(rng.normal(size=(batch, STATE, STATE)))[0]
  return {
      "transition": 0.95 * rotation,
      "observation": rng.normal(size=(batch, OBSERVED, STATE)),
      "noise": np.broadcast_to(0.1 * np.eye(STATE), (batch, STATE, STATE)).copy(),
      "measured": rng.normal(size=(STEPS, batch, OBSERVED, 1))}


def kalman_filter(la: Library, operands: dict[str, jax.Array]) -> jax.Array:
  """The log likelihoods of a batch of linear Gaussian state-space models, summed."""
  f, h, q = operands["transition"], operands["observation"], operands["noise"]
  eye = jnp.broadcast_to(jnp.eye(STATE, dtype=f.dtype), f.shape)
  r = jnp.eye(OBSERVED, dtype=f.dtype)

  def step(carry, y):
    mean, covariance, total = carry
    mean = la.matmul(f, mean)
    covariance = la.matmul(la.matmul(f, covariance), f.mT) + q
    cross = la.matmul(h, covariance)
    l = la.cholesky(la.matmul(cross, h.mT) + r)
    gain = la.solve_triangular(l, cross, lower=True)  # K = gainᵀ L⁻¹
    white = la.solve_triangular(l, y - la.matmul(h, mean), lower=True)
    mean = mean + la.matmul(gain.mT, white)
    covariance = covariance - la.matmul(gain.mT, gain)
    diagonal = jnp.diagonal(l, axis1=-2, axis2=-1)
    return (mean, covariance, total - jnp.sum(jnp.log(diagonal)) - 0.5 * jnp.sum(white**2)), None

  start = (jnp.zeros_like(f[..., :1]), eye, jnp.zeros((), f.dtype))
  return jax.lax.scan(step, start, operands["measured"])[0][2]


POINTS = 24


def _process_operands(rng, batch):
  return {
      "length": 1 + rng.random(batch), "noise": 0.1 + rng.random(batch),
      "x": np.sort(rng.random((batch, POINTS)) * 10), "y": rng.normal(size=(batch, POINTS, 1))}


def gaussian_process(la: Library, operands: dict[str, jax.Array]) -> jax.Array:
  """The log marginal likelihoods of a batch of Gaussian processes, summed."""
  x = operands["x"] / operands["length"][:, None]
  kernel = jnp.exp(-0.5 * (x[:, :, None] - x[:, None, :]) ** 2)
  l = la.cholesky(kernel + operands["noise"][:, None, None] * jnp.eye(POINTS, dtype=x.dtype))
  white = la.solve_triangular(l, operands["y"], lower=True)
  return -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diagonal(l, axis1=-2, axis2=-1)))


BLOCK = 16


def _shampoo_operands(rng, batch):
  gradient, left, right = rng.normal(size=(3, batch, BLOCK, BLOCK))
  definite = lambda x: x @ x.swapaxes(-1, -2) + np.eye(BLOCK)
  return {"gradient": gradient, "left": definite(left), "right": definite(right)}


def shampoo_step(la: Library, operands: dict[str, jax.Array]) -> jax.Array:
  """The preconditioned gradients of a batch of blocks of parameters."""
  g = operands["gradient"]
  left = operands["left"] + la.matmul(g, g.mT)
  right = operands["right"] + la.matmul(g.mT, g)
  return la.matmul(la.matmul(la.inverse_root(left), g), la.inverse_root(right))


PROGRAMS = {
    "kalman": Program(kalman_filter, _kalman_operands),
    "gaussian_process": Program(gaussian_process, _process_operands),
    "shampoo": Program(shampoo_step, _shampoo_operands, differentiable=False)}


def compare(program: Program, batch: int, dtype: Any, gradient: bool, rounds: int, seconds: float):
  """The summary of the times, and the largest difference of results over the largest entry."""
  operands = jax.tree.map(
      lambda x: jnp.asarray(x, dtype), program.operands(np.random.default_rng(0), batch))
  contestants, results = {}, {}
  for name, library in (("ours", OURS), ("stock", STOCK)):
    function = functools.partial(program.value, library)
    function = jax.jit(jax.grad(function) if gradient else function)
    contestants[name] = functools.partial(
        lambda function: jax.block_until_ready(function(operands)), function)
    results[name] = jax.tree.leaves(function(operands))
  difference = max(
      float(jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y)))
      for x, y in zip(results["ours"], results["stock"], strict=True))
  return summarise(measure(contestants, rounds, seconds)), difference


def main() -> None:
  parser = argparse.ArgumentParser(description="Times programs on linalg and on stock JAX.")
  parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
  parser.add_argument("--batch", type=int, default=4096)
  parser.add_argument("--dtypes", nargs="+", choices=["float32", "float64"], default=["float32"])
  parser.add_argument("--rounds", type=int, default=9)
  parser.add_argument("--seconds", type=float, default=20, help="at most, for one row")
  args = parser.parse_args()
  jax.config.update("jax_enable_x64", True)
  table = Table(title=f"batch {args.batch}, jax {jax.__version__}")
  for column in ("program", "dtype", "ours, ms", "stock, ms", "stock / ours", "difference"):
    table.add_column(column, justify="left" if column == "program" else "right", no_wrap=True)
  for name in args.programs:
    program = PROGRAMS[name]
    for dtype in args.dtypes:
      for gradient in (False, True) if program.differentiable else (False,):
        found, difference = compare(
            program, args.batch, np.dtype(dtype), gradient, args.rounds, args.seconds)
        ours, stock = (f"{1e3 * found['seconds'][x]:.3g}" for x in ("ours", "stock"))
        table.add_row(
            f"grad {name}" if gradient else name, dtype, ours, stock,
            f"{found['speedup']['stock']['median']:.2f}", f"{difference:.0e}")
  Console().print(table)


if __name__ == "__main__":
  main()
