"""Random programs of several functions, compared with the same programs in many digits.

    python tests/support/random_programs.py --seconds 3600 --first-seed 0

A seed makes a program: its steps, shapes, dtype and mode. The command prints the seeds of programs
that fail. Small matrices are compared with mpmath, larger ones in single precision with NumPy in
double precision.

The tolerance is the change of the result when each step's result is rounded in the reference too.
Programs whose result roundings change beyond recognition are left out.
"""

import argparse
import dataclasses
import functools
import os
import sys
import time

if __name__ == "__main__":
  import quick

  os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
  os.environ["XLA_FLAGS"] = " ".join((
      os.environ.get("XLA_FLAGS", ""), quick.FLAGS, "--xla_force_host_platform_device_count=8"))
  import jax

  jax.config.update("jax_enable_x64", True)
  jax.config.update("jax_platforms", "cpu")

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import many_digits
import matrices
import random_scipy_steps
import random_steps
from linalg._catalogue import checks
from quick import quick_jit
from random_arithmetic import Double, Many

MODES = ("jit", "eager", "vmap", "gradient", "second derivative", "sharded", "accelerated")
LIMIT = 100  # roundings
VACUOUS = 1e-2  # of the result: a tolerance as large as this shows nothing

STEPS = random_steps.STEPS | random_scipy_steps.STEPS
IS_ALSO = {
    "general": {"general"}, "hermitian": {"general", "hermitian"},
    "positive": {"general", "hermitian", "positive"}, "lower": {"general", "lower"}}
ROUGH = {"inv", "inv of positive", "inverse power", "matrix_power", "congruence", "gram",
          "square of lower", "solve", "pinv", "lstsq", "sylvester", "lyapunov", "logm", "logarithm",
          "factorize_cholesky", "factorize_lu", "factorize_qr", "solve_logdet", "square by eig",
          "border of Cholesky", "qz", "ordqz", "qr_update", "qr_insert", "khatri_rao", "funm",
          "lu_solve", "solve_banded", "solveh_banded", "cho_solve_banded", "solve_toeplitz"}
# Steps that give real numbers in every dtype.
GIVES_REAL = {
    "slogdet", "norm", "nuclear norm", "cond", "vector_norm", "eigvalsh", "svdvals", "eigvals",
    "cho_logdet", "kalman_filter", "part of eigvalsh", "part of svdvals", "eigvals of a pencil",
    "eigh_generalized", "eigh_tridiagonal", "eigvals_banded", "subspace_angles"}


@dataclasses.dataclass(frozen=True)
class Program:
  """A program that a seed makes. The constants are square matrices, one for each step."""

  seed: int
  mode: str
  dtype: np.dtype
  batch: tuple[int, ...]
  n: int
  steps: tuple[str, ...]

  def __str__(self):
    return (f"seed {self.seed}: {self.mode}, {self.dtype.name}, {self.batch}, n = {self.n}, "
            + ", ".join(self.steps))

  @functools.cached_property
  def data(self):
    """The operand, a direction, and the constants."""
    rng = np.random.default_rng((self.seed, 1))
    some = lambda batch: matrices.well_conditioned(rng, batch, self.n, self.dtype)
    scale = self.dtype.type(1 / np.sqrt(self.n + 1))
    constants = [scale * some(()) for _ in self.steps]
    operand = scale * some(self.batch)
    direction = matrices.general(rng, self.batch, self.n, self.n, self.dtype)
    return operand, direction, constants

  @property
  def in_double(self):
    """Whether double precision is enough for the reference."""
    return self.n > 5

  def call(self, x, library=linalg):
    for name, c in zip(self.steps, self.data[2], strict=True):
      step = STEPS[name]
      x = step.call(library if step.stock else linalg, x, jnp.asarray(c))
    return x

  def reference(self, x, noise=None):
    """The result for one matrix. `noise`: one matrix per step, by which its result is rounded."""
    b = Double if self.in_double else Many
    wide = checks.wide if self.in_double else many_digits.exact
    for k, (name, c) in enumerate(zip(self.steps, self.data[2], strict=True)):
      if noise is not None:
        # The second term moves small singular values, the first one small elements.
        x = x + x @ noise[k] + x * noise[k]
      x = STEPS[name].reference(b, x, wide(c))
    return np.asarray(x)


def make(seed) -> Program:
  """The program of a seed."""
  rng = np.random.default_rng((seed, 0))
  mode = MODES[rng.integers(len(MODES))]
  derived = mode in ("gradient", "second derivative")
  dtype = np.dtype([np.float32, np.float64, np.complex64, np.complex128][rng.integers(4)])
  large = np.finfo(dtype).eps > 1e-10 and not derived and rng.random() < 0.5
  n = int(rng.integers(6, 41) if large else rng.integers(1, 6))
  batches = [(2,), (4,), (2, 3)] if mode in ("sharded", "vmap") else [(), (1,), (3,), (2, 2), (0,)]
  batch = batches[rng.integers(len(batches))]
  count = int(rng.integers(3, 7))
  kind, steps = "general", []
  while len([x for x in steps if x != "normalise"]) < count:
    last = len([x for x in steps if x != "normalise"]) == count - 1
    fits = [
        name for name, step in STEPS.items()
        if step.takes in IS_ALSO[kind] and (last or step.gives != "end")
        and not (step.real and dtype.kind == "c")
        and not (derived and step.loops and rng.random() < 0.8)]
    name = fits[rng.integers(len(fits))]
    steps.append(name)
    kind = STEPS[name].gives
    if name in ROUGH and kind != "end":
      steps.append("normalise")
  return Program(seed, mode, dtype, batch, n, tuple(steps))


def _mesh():
  return jax.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:2])


def _found(program):
  """The results of the program: the value, and the derivative along the direction if it has one."""
  x, dx, _ = program.data
  if program.mode == "eager":
    return [program.call(jnp.asarray(x))]
  if program.mode == "vmap":
    axis = (program.seed // 7) % (len(program.batch) + 1)
    call = quick_jit(jax.vmap(program.call, in_axes=axis))
    return [call(np.moveaxis(x, 0, axis))]
  if program.mode == "sharded":
    mesh = _mesh()
    placed = jax.device_put(x, NamedSharding(mesh, P("x")))
    compiled = quick_jit(program.call).lower(placed).compile()
    text = compiled.as_text()
    for name in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
      if name in text:
        raise AssertionError(f"the program has the collective {name}")
    return [compiled(placed)]
  if program.mode == "accelerated":
    with linalg.accelerated():
      return [quick_jit(lambda x: program.call(x, jnp.linalg))(x)]
  if program.mode == "jit":
    return [quick_jit(program.call)(x)]

  along = lambda x: jax.jvp(program.call, (x,), (dx,))[1]
  pair = lambda y, dy: jnp.sum((y * dy).real, axis=tuple(range(len(program.batch), y.ndim)))

  def derivatives(x):
    y, dy = jax.jvp(program.call, (x,), (dx,))
    ct = _cotangent(program, y.shape[len(program.batch):], y.dtype)
    ct = jnp.broadcast_to(ct, y.shape)
    gradient = jax.grad(lambda x: jnp.sum((ct * program.call(x)).real))
    if program.mode == "gradient":
      return y, dy, pair(gradient(x), dx)
    _, second = jax.jvp(along, (x,), (dx,))
    _, turned = jax.jvp(gradient, (x,), (dx,))
    return y, second, pair(turned, dx)

  return quick_jit(derivatives)(x)


def _cotangent(program, core, dtype):
  rng = np.random.default_rng((program.seed, 2))
  return matrices.general(rng, (), 1, int(np.prod(core)), np.dtype(dtype)).reshape(core)


def _expected(program, i, noise):
  """The exact results for one matrix of the batch."""
  x, dx = (y[i] for y in program.data[:2])
  if program.in_double:
    return [program.reference(checks.wide(x), noise)]
  x, dx = many_digits.exact(x), many_digits.exact(dx)
  if program.mode not in ("gradient", "second derivative"):
    return [program.reference(x, noise)]
  h = many_digits.STEP
  before, here, after = (program.reference(x + k * h * dx, noise) for k in (-1, 0, 1))
  slope = (
      (after - before) / (2 * h) if program.mode == "gradient" else
      (after - 2 * here + before) / h**2)
  ct = many_digits.exact(_cotangent(program, here.shape, _result_dtype(program)))
  return [here, slope, np.asarray(np.sum(Many.real(ct * slope)))]


def _result_dtype(program):
  real = np.finfo(program.dtype).dtype
  return real if program.steps[-1] in GIVES_REAL else program.dtype


def error(program) -> float:
  """The largest error, in roundings; NaN if roundings make the result meaningless.

  It is NaN too for a second derivative that does not exist: see `meets_equal_values`.
  """
  found = [np.asarray(x) for x in jax.device_get(_found(program))]
  rng = np.random.default_rng((program.seed, 3))
  eps = float(np.finfo(program.dtype).eps)
  worst = 0.0
  with mpmath.workdps(many_digits.DIGITS):
    for i in np.ndindex(program.batch):
      signs = lambda: np.sign(rng.standard_normal((program.n, program.n)))
      rounding = lambda: signs() + 1j * signs() if program.dtype.kind == "c" else signs()
      noises = [[eps * rounding() for _ in program.steps] for _ in range(2)]
      try:
        exact = _expected(program, i, None)
      except ZeroDivisionError:  # a matrix of zeros is normalised
        return np.nan
      if not program.in_double:
        noises = [[many_digits.exact(e) for e in noise] for noise in noises]
      near = [_expected(program, i, noise) for noise in noises]
      # A derivative may be 0 where the result is not, and so may a logarithm. The derivative is of
      # this size before terms cancel.
      order = ("gradient", "second derivative").index(program.mode) + 1 if len(exact) > 1 else 0
      x, dx = (np.linalg.norm(y[i]) for y in program.data[:2])
      uncancelled = float(np.abs(many_digits.rounded(exact[0])).max(initial=0.1)) * (
          dx / x) ** order if order else 0
      for k, y in enumerate(exact):
        wide = many_digits.rounded if not program.in_double else np.asarray
        norm = lambda z: float(np.abs(wide(z)).max(initial=0))
        # Subtract in many digits: the difference may be far below the result.
        x = checks.wide(found[k][i])
        difference = norm(x - y if program.in_double else many_digits.exact(x) - y)
        size = norm(y)
        unit = max(norm(z[k] - y) for z in near) + eps * (size + 1e-3 + uncancelled * (k > 0))
        if not np.isfinite(x).all():
          expected = program.mode == "second derivative" and meets_equal_values(program)
          return np.nan if expected else np.inf
        if unit > VACUOUS * max(size, 1e-3):
          return np.nan
        worst = max(worst, difference / unit)
  return worst


# Relative gaps between singular values, or eigenvalues, that count as equal.
_EQUAL = 1e-6
# Steps that return functions of separate vectors or values. Their second derivatives are NaN where
# two values are equal.
_OF_VALUES = {"polar of svd", "modulus of svd", "through eigh", "cond", "svdvals", "eigvalsh",
              "eigvals", "part of eigh", "part of eigvalsh", "part of svd", "part of svdvals",
              "square by eig", "schur", "sorted schur", "subspace_angles"}


def meets_equal_values(program) -> bool:
  """Whether a step of _OF_VALUES takes a matrix that has two equal singular values."""
  for x in np.reshape(program.data[0], (-1, program.n, program.n)):
    x = checks.wide(x)
    for name, c in zip(program.steps, program.data[2], strict=True):
      if name in _OF_VALUES:
        s = np.linalg.svd(x, compute_uv=False)
        if np.any(s[:-1] - s[1:] <= _EQUAL * s[0]):
          return True
      x = np.asarray(STEPS[name].reference(Double, x, checks.wide(c)))
  return False


def check(seed) -> float:
  """The error of a seed's program. Raises AssertionError if it is too large."""
  program = make(seed)
  found = error(program)
  assert not found > LIMIT, f"{program}: {found:.3g} roundings"
  return found


def main():
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--seconds", type=float, default=60)
  parser.add_argument("--first-seed", type=int, default=0)
  parser.add_argument("--seeds", type=int, nargs="*", help="these alone")
  options = parser.parse_args()
  end = time.monotonic() + options.seconds
  seeds = iter(options.seeds or range(options.first_seed, sys.maxsize))
  count = vacuous = 0
  failed = []
  for seed in seeds:
    if time.monotonic() > end:
      break
    try:
      found = check(seed)
      vacuous += np.isnan(found)
      if options.seeds:
        print(make(seed), found, flush=True)
    except Exception as wrong:  # any fault of a program is a finding
      failed.append(seed)
      print(f"{make(seed)}\n  {type(wrong).__name__}: {str(wrong)[:500]}", flush=True)
    count += 1
    if count % 50 == 0:
      print(f"{count} programs to seed {seed}, {vacuous} without meaning, failed: {failed}",
            flush=True)
      jax.clear_caches()
  print(f"{count} programs, {vacuous} without meaning, failed: {failed}")
  sys.exit(bool(failed))


if __name__ == "__main__":
  main()
