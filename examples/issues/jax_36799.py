"""A `lax.scan` over 3 by 3 matrices in float64 runs ten times slower on a CPU than it did.

Issue: 36799
Kind: speed
Before: Each step of a Gaussian process in state-space form is a handful of operations of a few
  numbers.
After: `linalg.structured.kalman_filter` runs all steps in one call. `block_tridiagonal_cholesky`
  does so for block-tridiagonal matrices.
Limits: A scan that only multiplies 3 by 3 matrices, as the issue's own program, is as slow as
  before. `accelerate()` does not help it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import linalg
import linalg.structured

jax.config.update("jax_enable_x64", True)

STEP, LENGTH, NOISE = 0.1, 1.0, 0.1


def matern(distance):
  """Matérn's kernel of order 5/2."""
  x = np.sqrt(5) * np.abs(distance) / LENGTH
  return (1 + x + x**2 / 3) * np.exp(-x)


def model():
  """The process as a model of three states; Hartikainen and Särkkä (2010)."""
  rate = np.sqrt(5) / LENGTH
  drift = np.array([[0, 1, 0], [0, 0, 1], [-(rate**3), -3 * rate**2, -3 * rate]])
  transition = scipy.linalg.expm(drift * STEP)
  middle = rate**2 / 3
  stationary = np.array([[1, 0, -middle], [0, middle, 0], [-middle, 0, rate**4]])
  return {
      "transition": transition,
      "transition_covariance": stationary - transition @ stationary @ transition.T,
      "observation": np.array([[1.0, 0, 0]]), "observation_covariance": NOISE * np.eye(1),
      "initial_mean": np.zeros(3), "initial_covariance": stationary}


def by_scan(y):
  m = jax.tree.map(jnp.asarray, model())
  f, h = m["transition"], m["observation"]

  def step(carry, y):
    mean, covariance, total = carry
    s = h @ covariance @ h.T + m["observation_covariance"]
    gain = jnp.linalg.solve(s, h @ covariance).T
    residual = y - h @ mean
    mean = f @ (mean + gain @ residual)
    covariance = covariance - gain @ h @ covariance
    covariance = f @ covariance @ f.T + m["transition_covariance"]
    logdet = jnp.linalg.slogdet(2 * jnp.pi * s)[1]
    quadratic = residual @ jnp.linalg.solve(s, residual)
    return (mean, covariance, total - 0.5 * (quadratic + logdet)), None

  start = m["initial_mean"], m["initial_covariance"], jnp.zeros(())
  return jax.lax.scan(step, start, y)[0][2]


def by_call(y):
  return linalg.structured.kalman_filter(y, **model()).log_likelihood


def observations(steps=2000):
  time = STEP * np.arange(steps)
  noise = 0.3 * np.random.default_rng(0).standard_normal(steps)
  return (jnp.asarray(np.sin(time) + noise)[:, None],)


TIMED = {
    "log likelihood of 2000 points, float64": (by_scan, by_call, observations),
    "gradient, 2000 points, float64": (jax.grad(by_scan), jax.grad(by_call), observations)}


def main() -> None:
  (y,) = observations(200)
  time = STEP * np.arange(len(y))
  covariance = matern(time[:, None] - time) + NOISE * np.eye(len(y))
  weights = np.linalg.solve(covariance, y)
  exact = -0.5 * (np.sum(y * weights) + np.linalg.slogdet(2 * np.pi * covariance)[1])
  program = jax.jit(by_call).lower(y).compile()
  assert np.isclose(program(y), exact, rtol=1e-9)
  assert np.isclose(jax.jit(by_scan)(y), exact, rtol=1e-9)
  assert " while(" not in str(program.as_text())
  np.testing.assert_allclose(jax.grad(by_call)(y), -weights, rtol=1e-7, atol=1e-9)
  print(f"log likelihood {program(y):.6f}, by a dense matrix {exact:.6f}; no loop in the program")


if __name__ == "__main__":
  main()
