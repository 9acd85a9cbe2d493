"""Times Kalman filters and smoothers, with gradients, and the time to compile them.

  pip install dynamax
  python benchmarks/kalman.py --output benchmarks/results/FILE.json
  python benchmarks/kalman.py --quick --functions smoother --shapes 1x1000

The contenders take turns: `linalg.structured`, a `lax.scan` on stock JAX in dynamax's form under
`vmap`, that scan under `linalg.accelerate(products=True)`, and dynamax where it is installed, which
is accelerated too. Each series has a transition of its own. In the function "filter, one model",
one model serves all. The gradient is that of the sum of all results by all parameters.
"""

import argparse
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from contenders import Benchmark, Contender, Parameters, add_options, parse, run
from linalg.structured import kalman_filter, kalman_smoother

ONE_MODEL = "filter, one model"
FUNCTIONS = ("filter", ONE_MODEL, "smoother")
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


def _is_shared(row: Parameters) -> bool:
  return row["function"] == ONE_MODEL


def contenders(row: Parameters) -> dict[str, Contender]:
  function = row["function"].partition(",")[0]
  axes = dict.fromkeys(NAMES)
  if not _is_shared(row):
    axes["transition"] = 0
  over = lambda f: jax.vmap(f, in_axes=(0, axes)) if row["batch"] > 1 else f
  ours = kalman_filter if function == "filter" else kalman_smoother
  scan = over(scan_filter if function == "filter" else scan_smoother)
  dynamax = over(functools.partial(_dynamax, function))
  found = {
      "ours": Contender(lambda y, parameters: ours(y, **parameters)[:3]),
      "scan": Contender(scan), "scan, accelerated": Contender(scan, accelerated=True),
      "dynamax": Contender(dynamax, library="dynamax"),
      "dynamax, accelerated": Contender(dynamax, accelerated=True, library="dynamax")}
  if not row["gradient"]:
    return found

  def value_and_gradient(function):
    return jax.value_and_grad(
        lambda y, parameters: sum(x.sum() for x in function(y, parameters)), 1)

  return {name: x._replace(function=value_and_gradient(x.function)) for name, x in found.items()}


def compared(row: Parameters, name: str, results: Any) -> list[Any]:
  # The gradient by a covariance is symmetric in ours, where only that part has a meaning.
  return [
      x + x.mT if x.ndim > 1 and x.shape[-1] == x.shape[-2] else x
      for x in jax.tree.leaves(results)]


def make_operands(row: Parameters) -> tuple[jax.Array, dict[str, jax.Array]]:
  n, batch, dtype = row["states"], row["batch"], row["dtype"]
  parameters = model(n, row["seen"], dtype)
  shape = (batch,) * (batch > 1) + (row["steps"], row["seen"])
  y = jnp.asarray(np.random.default_rng(1).standard_normal(shape), dtype)
  if batch > 1 and not _is_shared(row):
    noise = np.random.default_rng(2).standard_normal((batch, n, n))
    parameters["transition"] += 0.01 * jnp.asarray(noise, dtype)
  return y, parameters


def make_rows(args: argparse.Namespace) -> list[Parameters]:
  return [
      {"program": "Kalman", "function": function, "states": args.states, "seen": args.seen,
       "batch": batch, "steps": steps, "dtype": args.dtype, "gradient": gradient}
      for function in args.functions
      for batch, steps in (map(int, shape.split("x")) for shape in args.shapes.split(","))
      if batch > 1 or function != ONE_MODEL
      for gradient in (False, True)[: 1 if args.values_only else 2]]


def main() -> None:
  parser = argparse.ArgumentParser(description="Times Kalman filters and smoothers.")
  parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=FUNCTIONS)
  parser.add_argument("--states", type=int, default=4)
  parser.add_argument("--seen", type=int, default=2, help="components of an observation")
  parser.add_argument("--shapes", default="256x500,1x1000", help="batch x steps")
  parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
  parser.add_argument("--values-only", action="store_true", help="no gradients")
  add_options(parser, rounds=7)
  args = parse(parser)
  # dynamax adds 1e-9 to a matrix before it factors it.
  run(Benchmark("kalman.py", contenders, make_operands, compared), make_rows(args), args,
      ["dynamax"])


if __name__ == "__main__":
  main()
