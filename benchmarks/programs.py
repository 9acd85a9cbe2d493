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
  cho_solve: Callable[..., jax.Array]
  cho_logdet: Callable[..., jax.Array]
  solve_triangular: Callable[..., jax.Array]
  inverse_root: Callable[..., jax.Array]  # A^(-1/4)
  jittered: Callable[..., jax.Array]  # the factor with the least jitter
  solve_logdet: Callable[..., tuple[jax.Array, jax.Array]]  # A⁻¹ b and log det A


def _stock_inverse_root(a):
  w, v = jnp.linalg.eigh(a)
  return jnp.matmul(v * jnp.maximum(w, 1e-30)[..., None, :] ** -0.25, v.mT)


def _stock_logdet(c_and_lower):
  diagonal = jnp.diagonal(c_and_lower[0], axis1=-2, axis2=-1)
  return 2 * jnp.sum(jnp.log(diagonal), axis=-1)


def _stock_jittered(a):
  """Factors the whole batch again, with ten times the jitter for those that failed, until none
  fails."""
  scale = jnp.mean(jnp.diagonal(a, axis1=-2, axis2=-1), axis=-1)
  eye = jnp.eye(a.shape[-1], dtype=a.dtype)
  least = 1e-12 if a.dtype == jnp.float64 else 1e-6
  failed = lambda l: jnp.isnan(l[..., 0, 0])

  def again(state):
    i, jitter, _ = state
    l = jnp.linalg.cholesky(a + jitter[..., None, None] * eye)
    return i + 1, jnp.where(failed(l), jnp.maximum(10 * jitter, least * scale), jitter), l

  start = again((0, jnp.zeros_like(scale), a))
  return jax.lax.while_loop(lambda s: (s[0] < 10) & failed(s[2]).any(), again, start)[2]


def _solve_logdet_of(cholesky, cho_solve, cho_logdet):
  """The solution and the logarithm by separate functions."""

  def solve_logdet(a, b):
    factor = (cholesky(a), True)
    return cho_solve(factor, b), cho_logdet(factor)

  return solve_logdet


def _our_solve_logdet(a, b):
  x, _, logdet, _ = linalg.solve_logdet(a, b, assume_a="pos")
  return x, logdet


OURS = Library(
    linalg.matmul, linalg.cholesky, linalg.cho_solve, linalg.cho_logdet, linalg.solve_triangular,
    functools.partial(linalg.inverse_pth_root, p=4), lambda a: linalg.cholesky_jittered(a).factor,
    _our_solve_logdet)
_STOCK_FACTOR = jnp.linalg.cholesky, jax.scipy.linalg.cho_solve, _stock_logdet
STOCK = Library(
    jnp.matmul, *_STOCK_FACTOR, jax.scipy.linalg.solve_triangular, _stock_inverse_root,
    _stock_jittered, _solve_logdet_of(*_STOCK_FACTOR))


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


def _density_operands(n, rng, batch):
  g = rng.normal(size=(batch, n, n))
  return {"k": g @ g.swapaxes(-1, -2) / n + np.eye(n), "y": rng.normal(size=(batch, n, 1))}


def log_density(la: Library, operands: dict[str, jax.Array]) -> jax.Array:
  """The logarithms of the densities N(y; 0, K) but for a constant, summed."""
  x, logdet = la.solve_logdet(operands["k"], operands["y"])
  return -0.5 * (jnp.sum(operands["y"] * x) + jnp.sum(logdet))


def log_density_apart(la: Library, operands: dict[str, jax.Array]) -> jax.Array:
  """`log_density` by `cholesky`, `cho_solve` and `cho_logdet` of both libraries."""
  apart = _solve_logdet_of(la.cholesky, la.cho_solve, la.cho_logdet)
  return log_density(la._replace(solve_logdet=apart), operands)


def _jittered_operands(failures, rng, batch):
  """Matrices of which so many in the batch are indefinite by rounding."""
  g = rng.normal(size=(batch, POINTS, POINTS))
  a = g @ g.swapaxes(-1, -2) / POINTS + np.eye(POINTS)
  a[:failures] = 1 - 1e-11 * np.eye(POINTS)
  return {"a": a}


def jittered(la: Library, operands: dict[str, jax.Array]) -> jax.Array:
  """Factors of covariance matrices, with the least jitter that each needs."""
  return la.jittered(operands["a"])


PROGRAMS = {
    "kalman": Program(kalman_filter, _kalman_operands),
    "gaussian_process": Program(gaussian_process, _process_operands),
    "shampoo": Program(shampoo_step, _shampoo_operands, differentiable=False),
    **{f"jittered_{failures}": Program(
        jittered, functools.partial(_jittered_operands, failures), differentiable=False)
       for failures in (0, 1, 40)},
    **{f"{name}_{n}": Program(value, functools.partial(_density_operands, n))
       for name, value in (("density", log_density), ("density_apart", log_density_apart))
       for n in (4, 8, 16, 32)}}


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
