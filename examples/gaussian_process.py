"""Gaussian-process regression: many hyperparameters at once, each on the device that holds it.

  python examples/gaussian_process.py

A batch of hyperparameters is sharded over the devices. Each has its own covariance matrix and
Cholesky factor, and follows the gradient of its log marginal likelihood for a few steps. The
devices do not communicate. Data and check are scikit-learn's.
"""

import os
import re
import sys
import time
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import linalg

TRAINING_POINTS = 128
STARTS_PER_DEVICE = 8
STEPS = 40
LEARNING_RATE = 0.1
COLLECTIVES = (
    r" (all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute|reduce-scatter)"
    r"(-start)?\(")


def load_data():
  """Standardised inputs and targets, for training and for testing."""
  data: Any = load_diabetes()
  x, y = data.data, data.target
  order = np.random.default_rng(0).permutation(len(y))
  x, y = x[order] / x.std(axis=0), (y[order] - y.mean()) / y.std()
  return x[:TRAINING_POINTS], y[:TRAINING_POINTS], x[TRAINING_POINTS:], y[TRAINING_POINTS:]


def squared_distances(x, z):
  return ((x[:, None, :] - z[None, :, :]) ** 2).sum(-1)


def covariance(theta, distances):
  """Signal covariance; theta = log(signal variance, length scale, noise variance)."""
  variance, length, _ = jnp.exp(theta)
  return variance * jnp.exp(-distances / (2 * length**2))


def factor(theta, distances):
  noise = jnp.exp(theta[2]) * jnp.eye(len(distances))
  return linalg.cho_factor(covariance(theta, distances) + noise)


def log_marginal_likelihood(theta, distances, y):
  """log p(y | theta), of one theta; Rasmussen and Williams (2006), eq. 2.30."""
  factors = factor(theta, distances)
  weights = linalg.cho_solve(factors, y)
  return (-y @ weights - linalg.cho_logdet(factors) - len(y) * jnp.log(2 * jnp.pi)) / 2


def predict(theta, x, y, new_x):
  weights = linalg.cho_solve(factor(theta, squared_distances(x, x)), y)
  return covariance(theta, squared_distances(new_x, x)) @ weights


def adam_step(grads, state, step):
  """One ascent step of every theta; Kingma and Ba, arXiv:1412.6980."""
  thetas, mean, square = state
  mean = 0.9 * mean + 0.1 * grads
  square = 0.99 * square + 0.01 * grads**2
  update = (mean / (1 - 0.9**step)) / (jnp.sqrt(square / (1 - 0.99**step)) + 1e-8)
  return thetas + LEARNING_RATE * update, mean, square


def check_against_sklearn(theta, x, y, value, grad) -> None:
  kernel = ConstantKernel() * RBF() + WhiteKernel()
  model: Any = GaussianProcessRegressor(kernel, alpha=0).set_params(optimizer=None).fit(x, y)
  expected, expected_grad = model.log_marginal_likelihood(theta, eval_gradient=True)
  print(f"scikit-learn at {np.round(theta, 3)}: {expected:.10f}; here: {value:.10f}")
  np.testing.assert_allclose(value, expected, rtol=1e-10)
  np.testing.assert_allclose(grad, expected_grad, rtol=1e-6, atol=1e-8)


def print_table(starts, values, thetas, final_values, errors) -> None:
  table = Table(box=None, header_style="bold", pad_edge=False)
  for title in ("start", "log p", "signal", "length", "noise", "log p", "test error"):
    table.add_column(title, justify="right")
  for i in np.argsort(-final_values)[:8]:
    table.add_row(
        "(" + ", ".join(f"{p:.2f}" for p in np.exp(starts[i])) + ")", f"{values[i]:.2f}",
        *(f"{p:.3f}" for p in np.exp(thetas[i])), f"{final_values[i]:.4f}", f"{errors[i]:.3f}")
  Console().print(table)


def main() -> None:
  jax.config.update("jax_enable_x64", True)
  mesh = jax.make_mesh((jax.device_count(),), ("start",), axis_types=(AxisType.Explicit,))
  jax.set_mesh(mesh)
  x, y, test_x, test_y = load_data()
  distances = np.asarray(squared_distances(x, x))
  starts = np.random.default_rng(1).uniform(
      np.log([0.1, 0.3, 0.01]), np.log([10, 30, 1]), (STARTS_PER_DEVICE * mesh.size, 3))

  value_and_grad = jax.vmap(
      jax.value_and_grad(lambda theta: log_marginal_likelihood(theta, distances, y)))
  thetas = jax.device_put(starts, PartitionSpec("start"))
  state = (thetas, jnp.zeros_like(thetas), jnp.zeros_like(thetas))
  climb = jax.jit(lambda state, i: adam_step(value_and_grad(state[0])[1], state, i))
  step = climb.lower(state, 1.0).compile()
  collectives = re.findall(COLLECTIVES, step.as_text() or "")
  print(f"{len(starts)} hyperparameters on {mesh.size} devices: {jax.typeof(thetas)}; "
        f"{len(collectives)} collectives in the compiled step")

  first, first_grads = jax.jit(value_and_grad)(thetas)
  check_against_sklearn(starts[0], x, y, np.asarray(first)[0], np.asarray(first_grads)[0])

  begin = time.perf_counter()
  for i in range(1, STEPS + 1):
    state = step(state, float(i))
  thetas = state[0]
  values, _ = jax.jit(value_and_grad)(thetas)
  predictions = jax.jit(jax.vmap(lambda theta: predict(theta, x, y, test_x)))(thetas)
  errors = np.sqrt(np.mean((np.asarray(predictions) - test_y) ** 2, axis=-1))
  print(f"{STEPS} steps took {time.perf_counter() - begin:.1f} s; the best, with the "
        "root-mean-square error on the other points (their standard deviation being 1):")
  print_table(starts, np.asarray(first), np.asarray(thetas), np.asarray(values), errors)
  if collectives:
    sys.exit("FAILED: the compiled step holds collectives")


if __name__ == "__main__":
  main()
