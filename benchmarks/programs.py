r"""Times whole programs with this package and with stock JAX in turn.

  python benchmarks/programs.py --programs kalman --batch 4096
  python benchmarks/programs.py --programs density_4 density_8 density_16 density_32 \
    --dtypes float64 --output benchmarks/results/FILE.json

The densities are those of log N(y; 0, K). They are computed by `solve_logdet`, and by `cholesky`,
`cho_solve` and `cho_logdet` ("apart"). A gradient is computed with its value.
"""

import argparse
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import linalg
from contenders import Benchmark, Contender, Parameters, add_options, parse, run


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
APART = OURS._replace(
    solve_logdet=_solve_logdet_of(linalg.cholesky, linalg.cho_solve, linalg.cho_logdet))
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
    **{f"density_{n}": Program(log_density, functools.partial(_density_operands, n))
       for n in (4, 8, 16, 32)}}


def contenders(row: Parameters) -> dict[str, Contender]:
  value = PROGRAMS[row["program"]].value
  libraries = {"ours": OURS, "stock": STOCK} | ({"apart": APART} if value is log_density else {})

  def contender(library):
    function = functools.partial(value, library)
    return Contender(jax.value_and_grad(function) if row["gradient"] else function)

  return {name: contender(library) for name, library in libraries.items()}


def make_operands(row: Parameters) -> list[Any]:
  made = PROGRAMS[row["program"]].operands(np.random.default_rng(0), row["batch"])
  return [jax.tree.map(lambda x: jnp.asarray(x, row["dtype"]), made)]


def compared(row: Parameters, name: str, results: Any) -> list[Any]:
  """Gradients by a matrix are symmetric in ours, where only that part has a meaning."""
  return [
      x + x.mT if row["gradient"] and x.ndim > 1 and x.shape[-1] == x.shape[-2] else x
      for x in jax.tree.leaves(results)]


def make_rows(args: argparse.Namespace) -> list[Parameters]:
  return [
      {"program": name, "batch": args.batch, "dtype": dtype, "gradient": gradient}
      for name in args.programs for dtype in args.dtypes
      for gradient in ((False, True) if PROGRAMS[name].differentiable else (False,))]


def main() -> None:
  parser = argparse.ArgumentParser(description="Times programs on linalg and on stock JAX.")
  parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
  parser.add_argument("--batch", type=int, default=4096)
  parser.add_argument("--dtypes", nargs="+", choices=["float32", "float64"], default=["float32"])
  add_options(parser)
  args = parse(parser)
  # Jittered factors and roots differ by what the libraries add to a matrix.
  benchmark = Benchmark("programs.py", contenders, make_operands, compared, tolerance=0.1)
  run(benchmark, make_rows(args), args)


if __name__ == "__main__":
  main()
