"""The process that `distributed/test_many_devices.py` starts, with 64 virtual devices.

It checks programs for more devices than the tests have. Programs are compiled and counted, and
small ones are run.
"""

import math
import os

import quick

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=64"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import linalg.distributed as dist  # noqa: E402
from one_matrix import counted  # noqa: E402
from sharded import make_mesh  # noqa: E402

jax.config.update("jax_enable_x64", True)

PROGRAMS = {
    "cholesky": dist.cholesky,
    "gradient": jax.grad(lambda a: jnp.sum(dist.cholesky(a) ** 2)),
    "eigh": lambda a: tuple(dist.eigh(a)), "eigvalsh": dist.eigvalsh}


def placed(rows, columns):
  mesh = make_mesh(
      (rows, columns), ("x", "y"), AxisType.Explicit, devices=jax.devices()[: rows * columns])
  return mesh, NamedSharding(mesh, P("x", "y"))


def count(name, rows, columns, n, shares, words, gathered=math.inf):
  devices = rows * columns
  found = counted(PROGRAMS[name], placed(rows, columns)[1], n)
  assert all(x <= most for x, most in zip(found, (shares, words, gathered), strict=True)), (
      name, devices, n, found)
  print(
      f"counted {name} on {devices} devices, n = {n}: {', '.join(f'{x:.3f}' for x in found)}",
      flush=True)
  return found[1]


def check_results(rows, columns, n, rng):
  """Checks a size that is a multiple of neither the panels nor the blocks of the grid."""
  mesh, sharding = placed(rows, columns)
  a = rng.standard_normal((n, n))
  a = a @ a.T + n * np.eye(n)
  with jax.set_mesh(mesh):
    l = quick.quick_jit(dist.cholesky)(jax.device_put(a, sharding))
  np.testing.assert_allclose(l, np.linalg.cholesky(a), rtol=0, atol=1e-11)
  print(f"computed on {rows * columns} devices, n = {n}", flush=True)


def check_bits(rng):
  """L has the bits of one device, at one panel width, where the products are large."""
  n, expected = 1024, None
  a = rng.standard_normal((n, n))
  a = a @ a.T + n * np.eye(n)
  for rows, columns in ((1, 1), (4, 4), (8, 2), (16, 1)):
    mesh, sharding = placed(rows, columns)
    with jax.set_mesh(mesh):
      l = np.asarray(quick.optimised_jit(lambda a: dist.cholesky(a, panel=64))(
          jax.device_put(a, sharding)))
    expected = l if expected is None else expected
    np.testing.assert_array_equal(l, expected, f"{rows} x {columns}")
  print("the same bits on 16 devices", flush=True)


def main():
  rng = np.random.default_rng(0)
  check_results(8, 4, 232, rng)
  check_bits(rng)
  count("cholesky", 8, 4, 8200, 4.5, 1.85)
  count("gradient", 8, 4, 8200, 5.5, 7.3)
  count("cholesky", 8, 8, 16384, 4.5, 1.6, 1.3)
  # Narrow panels: L receives less than with wide ones.
  forward = count("cholesky", 8, 8, 16424, 4.5, 1.5, 1.2)
  count("gradient", 8, 8, 16424, 5.2, 4 * forward)
  # Eigenvectors are in a grid on so many devices.
  count("eigh", 8, 8, 65536, 6, 8)
  count("eigvalsh", 8, 8, 65536, 5, 5)


if __name__ == "__main__":
  main()
