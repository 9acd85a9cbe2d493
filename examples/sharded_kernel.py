"""Gaussian-process regression with a kernel matrix that no device holds.

  python examples/sharded_kernel.py

The kernel matrix is made where it is used. Its rows are sharded over one axis of a mesh of eight
devices, and its columns over the other. The log marginal likelihood takes one Cholesky factor,
which stays on the devices that made it, and the hyperparameters climb its gradient. The program's
traffic and memory are printed beside those of JAX's own functions. Their program is compiled but
not run.
"""

import os
import sys
import time

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import linalg.distributed as dist

POINTS = 1024
STEPS = 8
LEARNING_RATE = 0.3
NOISE = 0.05
AXES = ("x",), ("y",)


def covariance(theta, rows, columns):
  """Squared exponential, with noise; theta = log(signal variance, length scale)."""
  variance, length = jnp.exp(theta)
  distance = rows[:, None] - columns[None, :]
  return variance * jnp.exp(-((distance / length) ** 2) / 2) + NOISE * (distance == 0)


def log_likelihood(theta, rows, columns, y):
  """log p(y | theta); Rasmussen and Williams (2006), eq. 2.30."""
  factor = dist.cho_factor(covariance(theta, rows, columns), axes=AXES)
  return -(y @ factor.solve(y) + factor.logdet() + len(y) * jnp.log(2 * jnp.pi)) / 2


def stock_log_likelihood(theta, rows, columns, y):
  l = jnp.linalg.cholesky(covariance(theta, rows, columns))
  weights = jax.scipy.linalg.cho_solve((l, True), y)
  return -(y @ weights) / 2 - jnp.sum(jnp.log(jnp.diagonal(l))) - len(y) * jnp.log(2 * jnp.pi) / 2


def report(name, compiled, share):
  found = dist.report(compiled)
  print(f"{name}: a device receives {found.moved / share:.1f} shares of the matrix and holds "
        f"{(found.arguments + found.results + found.temporaries) / share:.1f}")


def main() -> None:
  jax.config.update("jax_enable_x64", True)
  mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
  jax.set_mesh(mesh)
  rng = np.random.default_rng(0)
  points = np.sort(rng.uniform(0, 10, POINTS))
  y = np.sin(3 * points) + NOISE**0.5 * rng.standard_normal(POINTS)
  rows, columns, y = (
      jax.device_put(x, NamedSharding(mesh, PartitionSpec(axis)))
      for x, axis in ((points, "x"), (points, "y"), (y, None)))

  share = POINTS**2 * 8 / mesh.size
  theta = jnp.log(jnp.array([1.0, 2.0]))
  operands = theta, rows, columns, y
  step = jax.jit(jax.value_and_grad(log_likelihood)).lower(*operands).compile()
  report("value and gradient", step, share)
  stock = jax.jit(stock_log_likelihood).lower(*operands).compile()
  report("JAX's functions, the value alone", stock, share)

  value, gradient = step(*operands)
  check(theta, points, np.asarray(y), value, gradient)
  begin = time.perf_counter()
  for _ in range(STEPS):
    theta = theta + LEARNING_RATE * gradient / jnp.linalg.norm(gradient)
    value, gradient = step(theta, rows, columns, y)
  variance, length = np.exp(np.asarray(theta))
  print(f"{STEPS} steps took {time.perf_counter() - begin:.1f} s: log p {float(value):.2f}, signal "
        f"{variance:.3f}, length {length:.3f}")


def check(theta, points, y, value, gradient) -> None:
  """The check is by NumPy on the host, and by a difference."""

  def expected(theta):
    variance, length = np.exp(theta)
    distance = points[:, None] - points[None]
    kernel = variance * np.exp(-((distance / length) ** 2) / 2) + NOISE * (distance == 0)
    logdet = np.linalg.slogdet(kernel)[1]
    return -(y @ np.linalg.solve(kernel, y) + logdet + len(y) * np.log(2 * np.pi)) / 2

  theta = np.asarray(theta)
  print(f"log p of NumPy {expected(theta):.8f}, here {float(value):.8f}")
  step = 1e-5 * np.eye(2)
  slopes = [(expected(theta + h) - expected(theta - h)) / 2e-5 for h in step]
  if not (np.isclose(value, expected(theta), rtol=1e-9)
          and np.allclose(gradient, slopes, rtol=1e-4)):
    sys.exit(f"FAILED: the gradient is {gradient}, by differences {slopes}")


if __name__ == "__main__":
  main()
