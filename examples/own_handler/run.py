"""A handler of your own: tridiagonal systems, sharded, differentiable and without a gather.

  python examples/own_handler/run.py

builds tridiagonal.cc with CMake, registers its handler and makes a JAX function of it. CMake is
taken from the PATH or from the PyPI package `cmake`, and so is ninja if there is one.
"""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import linalg

HERE = pathlib.Path(__file__).parent
COLLECTIVES = (
    r" (all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute|reduce-scatter)"
    r"(-start)?\(")


def build() -> pathlib.Path:
  """Compiles the handler, if it has changed, and returns the shared library."""
  path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
  cmake = shutil.which("cmake", path=path)
  if cmake is None:
    sys.exit("This example needs CMake: install it, or run `pip install cmake ninja`.")
  folder = HERE / "build"
  configure = [
      cmake, "--fresh", "-S", str(HERE), "-B", str(folder), f"-DPython_EXECUTABLE={sys.executable}"]
  if ninja := shutil.which("ninja", path=path):
    configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
  for command in (configure, [cmake, "--build", str(folder)]):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
  return next(folder.glob("libtridiagonal.*"))


library = ctypes.CDLL(str(build()))
linalg.ffi.register_target("tridiagonal_solve", jax.ffi.pycapsule(library.tridiagonal_solve))


def multiply(matrix, x):
  """A x, for the tridiagonal A that the solver takes."""
  lower, diagonal, upper = matrix
  below = jnp.pad(x[..., :-1], [(0, 0)] * (x.ndim - 1) + [(1, 0)])
  above = jnp.pad(x[..., 1:], [(0, 0)] * (x.ndim - 1) + [(0, 1)])
  return lower * below + diagonal * x + upper * above


def solve_jvp(primals, tangents):
  # A dx = db - dA x. A tangent that is None is zero; info has none.
  *matrix, _ = primals
  *dmatrix, db = tangents
  x, info = solve_p(*primals)
  rhs = jnp.zeros_like(x) if db is None else db
  if any(d is not None for d in dmatrix):
    zero = jnp.zeros_like(x)
    rhs = rhs - multiply([zero if d is None else d for d in dmatrix], x)
  dx, _ = solve_p(*matrix, rhs)
  return (x, info), (dx, None)


def solve_transpose(cotangents, operands):
  # Linear in b alone: its cotangent solves with Aᵀ, whose outer diagonals change places.
  lower, diagonal, upper, _ = operands
  ct, _ = cotangents
  ct_b, _ = solve_p(jnp.roll(upper, 1, axis=-1), diagonal, jnp.roll(lower, -1, axis=-1), ct)
  return None, None, None, ct_b


solve_p = linalg.ffi.operation(
    "tridiagonal_solve",
    "n, n, n, n -> n, ()",
    [3, jnp.int32],  # x has the dtype of operand 3; info is int32
    jvp=solve_jvp,
    transpose=solve_transpose)


def solve(lower, diagonal, upper, b):
  """The solution of tridiagonal systems, and info."""
  lower, diagonal, upper, b = jnp.broadcast_arrays(lower, diagonal, upper, b)
  dtype = jnp.result_type(lower, diagonal, upper, b, jnp.float32)
  return solve_p(*(x.astype(dtype) for x in (lower, diagonal, upper, b)))


def loss(*operands):
  x, _ = solve(*operands)
  return jnp.sum(x**2, axis=-1)


def expect(what: str, ok) -> None:
  print(f"{'ok    ' if ok else 'FAILED'}  {what}")
  if not ok:
    sys.exit(1)


def no_collectives(function, operands) -> bool:
  compiled = jax.jit(function).lower(*operands).compile()
  return not re.search(COLLECTIVES, compiled.as_text() or "")


def main() -> None:
  jax.config.update("jax_enable_x64", True)
  mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Explicit,))
  jax.set_mesh(mesh)
  batch, n = 64 * mesh.size, 100
  rng = np.random.default_rng(0)
  lower, upper, b = rng.standard_normal((3, batch, n))
  diagonal = 4 + rng.random((batch, n))
  sharding = NamedSharding(mesh, PartitionSpec("batch"))
  operands = [jax.device_put(x, sharding) for x in (lower, diagonal, upper, b)]
  b_type = jax.typeof(operands[3])
  print(f"{batch} systems with n={n} on {mesh.size} devices; the type of b is {b_type}")

  x, info = jax.jit(solve)(*operands)
  bands = zip(np.roll(upper, 1, axis=-1), diagonal, np.roll(lower, -1, axis=-1), b, strict=True)
  expected = np.array([scipy.linalg.solve_banded((1, 1), band[:3], band[3]) for band in bands])
  error = np.abs(x - expected).max()
  expect(f"SciPy finds the same, to {error:.1e}", error < 1e-13)
  expect("info is 0 everywhere", not info.any())
  expect("the solution has the type of b, sharding included", jax.typeof(x) == b_type)

  grads = jax.jit(jax.grad(lambda *args: loss(*args).sum(), argnums=(0, 1, 2, 3)))
  direction = rng.standard_normal((4, batch, n))
  step = 1e-6
  slope = sum((np.asarray(g) * d).sum() for g, d in zip(grads(*operands), direction, strict=True))
  ahead, behind = (
      float(loss(*(np.asarray(x) + s * d for x, d in zip(operands, direction, strict=True))).sum())
      for s in (step, -step))
  difference = (ahead - behind) / (2 * step)
  expect(f"the gradient is the slope: {slope:.6f}, {difference:.6f}",
         np.isclose(slope, difference, rtol=1e-5))

  one_system = lambda l, d, u, b: solve(l, d, u, b)[0]
  expect("vmap gives the batch", np.array_equal(jax.vmap(one_system)(*operands), x))

  per_system = jax.vmap(jax.grad(loss, argnums=(0, 1, 2, 3)))
  expect("no collective in the solve", no_collectives(solve, operands))
  expect("nor in its gradient", no_collectives(per_system, operands))

  diagonal[5, 0] = 0
  x, info = jax.jit(solve)(operands[0], jax.device_put(diagonal, sharding), *operands[2:])
  failed = np.isnan(x).any(axis=-1)
  expect("a zero pivot spoils its own system alone, which has info = 1",
         np.array_equal(failed, np.arange(batch) == 5) and np.array_equal(failed, info))


if __name__ == "__main__":
  main()
