"""Times Kalman filters and smoothers, with gradients, and the time to compile them.

  pip install dynamax
  python benchmarks/kalman.py
  python benchmarks/kalman.py --shared
  python benchmarks/kalman.py --function smoother --batch 0 --steps 1000

The contenders take turns: `linalg.structured`, a `lax.scan` on stock JAX in dynamax's form under
`vmap`, that scan under `linalg.accelerate(products=True)`, and dynamax where it is installed.
Each series has a transition of its own. Under --shared, one model serves all: a scan computes
the covariances once. The gradient is that of the sum of all results by all parameters.
"""

import argparse
import functools
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import linalg
from linalg.structured import kalman_filter, kalman_smoother
from run import describe_run, installed, measure, summarise, write

NAMES = (
    "transition", "transition_covariance", "observation", "observation_covariance", "initial_mean",
    "initial_covariance")


def _in_order(parameters):
  return [parameters[name] for name in NAMES]


def model(n: int, m: int, dtype: Any) -> dict[str, jax.Array]:
  rng = np.random.default_rng(0)
  f = rng.standard_normal((n, n))
  q, r = rng.standard_normal((n, n)), rng.standard_normal((m, m))
  parameters = (
      0.95 * f / np.linalg.norm(f, 2), 0.1 * q @ q.T + 0.1 * np.eye(n),
      rng.standard_normal((m, n)), 0.1 * r @ r.T + 0.1 * np.eye(m), np.zeros(n), np.eye(n))
  return {name: jnp.asarray(x, dtype) for name, x in zip(NAMES, parameters, strict=True)}


def _solve(a, b):
  """dynamax's `psd_solve`."""
  a = (a + a.T) / 2 + 1e-9 * jnp.eye(len(a), dtype=a.dtype)
  return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b)


def _log_density(v, s):
  l = jnp.linalg.cholesky(s)
  white = jax.scipy.linalg.solve_triangular(l, v, lower=True)
  return -white @ white / 2 - jnp.log(jnp.diagonal(l)).sum() - len(v) * jnp.log(2 * jnp.pi) / 2


def scan_filter(y, parameters):
  """dynamax's `lgssm_filter`, without inputs and offsets."""
  f, q, h, r, mean, cov = _in_order(parameters)

  def step(carry, y):
    likelihood, mean, cov = carry
    v, s = y - h @ mean, r + h @ cov @ h.T
    likelihood += _log_density(v, s)
    gain = _solve(s, h @ cov).T
    mean, cov = mean + gain @ v, cov - gain @ s @ gain.T
    cov = (cov + cov.T) / 2
    return (likelihood, f @ mean, f @ cov @ f.T + q), (mean, cov)

  (likelihood, *_), (means, covs) = jax.lax.scan(step, (jnp.zeros((), y.dtype), mean, cov), y)
  return means, covs, likelihood


def scan_smoother(y, parameters):
  """dynamax's `lgssm_smoother`, without the covariances of neighbours."""
  f, q = _in_order(parameters)[:2]
  means, covs, likelihood = scan_filter(y, parameters)

  def step(later, filtered):
    mean, cov = filtered
    ahead = f @ cov @ f.T + q
    gain = _solve(ahead, f @ cov).T
    smoothed = mean + gain @ (later[0] - f @ mean), cov + gain @ (later[1] - ahead) @ gain.T
    return smoothed, smoothed

  last = means[-1], covs[-1]
  _, found = jax.lax.scan(step, last, (means[:-1], covs[:-1]), reverse=True)
  return *(jnp.concatenate([x, y[None]]) for x, y in zip(found, last, strict=True)), likelihood


def _dynamax(function, y, parameters):
  from dynamax.linear_gaussian_ssm import (  # type: ignore[import-not-found]
      ParamsLGSSM,
      ParamsLGSSMDynamics,
      ParamsLGSSMEmissions,
      ParamsLGSSMInitial,
      lgssm_filter,
      lgssm_smoother,
  )

  f, q, h, r, mean, cov = _in_order(parameters)
  zeros = lambda *shape: jnp.zeros(shape, y.dtype)
  found = (lgssm_filter if function == "filter" else lgssm_smoother)(
      ParamsLGSSM(
          ParamsLGSSMInitial(mean, cov), ParamsLGSSMDynamics(f, zeros(len(f)), zeros(len(f), 0), q),
          ParamsLGSSMEmissions(h, zeros(len(h)), zeros(len(h), 0), r)), y)
  if function == "filter":
    return found.filtered_means, found.filtered_covariances, found.marginal_loglik
  return found.smoothed_means, found.smoothed_covariances, found.marginal_loglik


def contenders(
    function: str, axes: dict[Any, Any], batched: bool
) -> dict[str, tuple[Callable[..., Any], bool]]:
  """Each contender, and whether it is accelerated."""
  over = lambda f: jax.vmap(f, in_axes=(0, axes)) if batched else f
  ours = kalman_filter if function == "filter" else kalman_smoother
  scan = over(scan_filter if function == "filter" else scan_smoother)
  found = {
      "ours": (lambda y, parameters: ours(y, **parameters)[:3], False),
      "scan": (scan, False), "scan, accelerated": (scan, True)}
  if installed("dynamax"):
    found["dynamax"] = over(functools.partial(_dynamax, function)), False
  return found


def _total(run, y, parameters):
  return sum(x.sum() for x in run(y, parameters))


def main() -> None:
  parser = argparse.ArgumentParser(description="Times Kalman filters and smoothers.")
  parser.add_argument("--function", choices=("filter", "smoother"), default="filter")
  parser.add_argument("--states", type=int, default=4)
  parser.add_argument("--seen", type=int, default=2, help="components of an observation")
  parser.add_argument("--batch", type=int, default=256, help="0 for a single series")
  parser.add_argument("--steps", type=int, default=500)
  parser.add_argument("--shared", action="store_true", help="one model for all series")
  parser.add_argument("--dtype", default="float64")
  parser.add_argument("--values-only", action="store_true", help="no gradients")
  parser.add_argument("--rounds", type=int, default=7)
  parser.add_argument("--seconds", type=float, default=20, help="at most, for one row")
  parser.add_argument("--output", type=pathlib.Path, help="a JSON file for the times")
  args = parser.parse_args()
  jax.config.update("jax_enable_x64", args.dtype == "float64")
  parameters = model(args.states, args.seen, args.dtype)
  shape = (args.batch,) * (args.batch > 0) + (args.steps, args.seen)
  y = jnp.asarray(np.random.default_rng(1).standard_normal(shape), args.dtype)
  axes = dict.fromkeys(NAMES)
  if args.batch and not args.shared:
    noise = np.random.default_rng(2).standard_normal((args.batch, args.states, args.states))
    parameters["transition"] += 0.01 * jnp.asarray(noise, args.dtype)
    axes["transition"] = 0
  table = Table(title=f"{args.function}, {args.states} states, {args.dtype}{list(shape)}")
  for column in ("", "ms", "scan / this", "ms to compile", "scan / this", "difference"):
    table.add_column(column, justify="right")
  cells = []
  for gradient in (False, True)[: 1 if args.values_only else 2]:
    calls, compile_ms, results = {}, {}, {}
    for name, (run, accelerated) in contenders(
        args.function, axes, args.batch > 0).items():
      function = jax.value_and_grad(functools.partial(_total, run), 1) if gradient else run
      with linalg.accelerated(accelerated, products=True):
        jax.clear_caches()
        start = time.perf_counter()
        compiled = jax.jit(function).lower(y, parameters).compile()
        compile_ms[name] = 1e3 * (time.perf_counter() - start)
      calls[name] = functools.partial(
          lambda f, *operands: jax.block_until_ready(f(*operands)), compiled, y, parameters)
      # The gradient by a covariance is symmetric in ours, where only that part has a meaning.
      results[name] = [
          np.asarray(x + x.mT if x.ndim > 1 and x.shape[-1] == x.shape[-2] else x)
          for x in jax.tree.leaves(calls[name]())]
    samples = measure(calls, args.rounds, args.seconds)
    cells.append({
        "program": f"Kalman {args.function}", "states": args.states, "seen": args.seen,
        "batch": args.batch, "steps": args.steps, "dtype": args.dtype, "shared": args.shared,
        "gradient": gradient} | summarise(samples) | {
            "ms_to_compile": {name: round(x) for name, x in compile_ms.items()}})
    for name in calls:
      times = summarise({"ours": samples[name], "scan": samples["scan"]})
      difference = max(
          float(np.max(np.abs(x - known)) / np.max(np.abs(known)))
          for x, known in zip(results[name], results["scan"], strict=True))
      table.add_row(
          f"{name}, gradient" if gradient else name, f"{1e3 * times['seconds']['ours']:.3g}",
          f"{times['speedup']['scan']['median']:.2f}", f"{compile_ms[name]:.0f}",
          f"{compile_ms['scan'] / compile_ms[name]:.2f}", f"{difference:.0e}")
  Console(width=120).print(table)
  if args.output:
    write(args.output, describe_run("kalman.py", ["dynamax"]), cells)


if __name__ == "__main__":
  main()
