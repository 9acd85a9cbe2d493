"""One of the processes that `distributed/test_processes.py` starts.

The arguments are its number, their count, the address, and the names of the functions. Each process
holds two devices, and a part of matrices that all of them share.
"""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_collectives_implementation", "gloo")

from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import linalg.distributed as dist  # noqa: E402
from linalg.distributed import _cyclic, _polar_cyclic  # noqa: E402
from quick import quick_compile  # noqa: E402
from sharded import make_mesh  # noqa: E402

N, ROWS = 24, 64
AXES = ("x",), ("y",)


def square(a):
  """Functions of a positive definite matrix: a solve, a determinant and L."""
  b = jnp.ones(N)
  factor = dist.cho_factor(a, axes=AXES)
  l = factor.lower()
  x = dist.solve_triangular(l, b, lower=True, axes=AXES)
  return b @ factor.solve(b) + factor.logdet() + jnp.sum(l**3) + jnp.sum(x**3)


def expected_square(a):
  a = jnp.tril(a) + jnp.tril(a, -1).T
  b, l = jnp.ones(N), jnp.linalg.cholesky(a, symmetrize_input=False)
  x = jax.scipy.linalg.solve_triangular(l, b, lower=True)
  return b @ jnp.linalg.solve(a, b) + jnp.linalg.slogdet(a)[1] + jnp.sum(l**3) + jnp.sum(x**3)


def general(a):
  """Functions of any matrix, by its LU factors."""
  factor = dist.lu_factor(a, axes=AXES)
  return jnp.sum(factor.solve(jnp.ones(N)) ** 3) + factor.slogdet().logabsdet


def expected_general(a):
  return jnp.sum(jnp.linalg.solve(a, jnp.ones(N)) ** 3) + jnp.linalg.slogdet(a)[1]


def spectrum(a):
  """Functions of a Hermitian matrix: eigenvalues, projectors and an inverse root."""
  w, v = dist.eigh(a, axes=AXES)
  root = dist.inverse_pth_root(a, 4, axes=AXES)
  return jnp.sum(jnp.sin(w)) + jnp.sum(jnp.abs(v[:, :4]) ** 4) + jnp.sum(root**3)


def expected_spectrum(a):
  w, v = jnp.linalg.eigh(a)
  root = (v * w**-0.25) @ v.T
  return jnp.sum(jnp.sin(w)) + jnp.sum(jnp.abs(v[:, :4]) ** 4) + jnp.sum(root**3)


def factors(a):
  """QR factors, polar factors, and singular values and vectors of a square matrix."""
  q, r = dist.qr(a, axes=AXES)
  u, p = dist.polar(a, axes=AXES)
  left, s, right = dist.svd(a, axes=AXES)
  return sum(jnp.sum(jnp.sin(x)) for x in (q, r, u, p, left**2, right**2)) + jnp.sum(jnp.sin(s))


def expected_factors(a):
  q, r = jnp.linalg.qr(a)
  left, s, right = jnp.linalg.svd(a)
  u, p = left @ right, right.T @ (s[:, None] * right)
  return sum(jnp.sum(jnp.sin(x)) for x in (q, r, u, p, left**2, right**2)) + jnp.sum(jnp.sin(s))


def batch(a):
  """A batch on one axis of the mesh, and the matrices on the other."""
  return jnp.sum(dist.svdvals(a, axes="y") ** 3)


def expected_batch(a):
  return jnp.sum(jnp.linalg.svd(a, compute_uv=False) ** 3)


def tall(a):
  s = dist.randomized_svd(a, 2, jax.random.key(0), axes=("x", "y")).S
  q, r = dist.qr(a, axes=("x", "y"))
  return jnp.sum(s**3) + jnp.sum(jnp.sin(q)) + jnp.sum(r**3)


def expected_tall(a):
  s = jnp.linalg.svd(a, compute_uv=False)[:2]
  q, r = jnp.linalg.qr(a)
  return jnp.sum(s**3) + jnp.sum(jnp.sin(q)) + jnp.sum(r**3)


def stack(a):
  return jnp.sum(dist.batched(jnp.linalg.cholesky, axes=AXES)(a) ** 3)


def expected_stack(a):
  return jnp.sum(jnp.linalg.cholesky(a) ** 3)


def main(process, processes, address, names):
  jax.distributed.initialize(address, processes, process)
  assert (jax.process_count(), jax.device_count(), jax.local_device_count()) == (4, 8, 2)
  _cyclic._PHASES = _polar_cyclic._PHASES = 1  # programs compile faster
  rng = np.random.default_rng(0)
  x = rng.standard_normal((4, N, N))
  positive = x @ x.swapaxes(1, 2) + N * np.eye(N)
  cases = (
      (square, expected_square, positive[0], P("x", "y")),
      (general, expected_general, x[0] + N * np.eye(N)[::-1], P("x", "y")),
      (spectrum, expected_spectrum, positive[1], P("x", "y")),
      (tall, expected_tall, rng.standard_normal((ROWS, 3)), P(("x", "y"), None)),
      (factors, expected_factors, x[0] + N * np.eye(N), P("x", "y")),
      (batch, expected_batch, x, P("x", "y", None)),
      (stack, expected_stack, positive[:3], P(None, "x", "y")))
  for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = make_mesh((4, 2), ("x", "y"), kind)
    for function, expected, host, spec in cases:
      if function.__name__ not in names:
        continue
      a = jax.make_array_from_callback(
          host.shape, NamedSharding(mesh, spec), lambda index, host=host: host[index])
      with jax.set_mesh(mesh):
        value, gradient = quick_compile(jax.value_and_grad(function), (a,))(a)
      expected_value, expected_gradient = jax.jit(jax.value_and_grad(expected))(host)
      np.testing.assert_allclose(value, expected_value, rtol=1e-11)
      assert len(gradient.addressable_shards) == 2
      for shard in gradient.addressable_shards:
        np.testing.assert_allclose(
            shard.data, np.asarray(expected_gradient)[shard.index], rtol=0, atol=1e-9)
      print(f"process {process} checked {function.__name__} on {kind.name} axes", flush=True)


if __name__ == "__main__":
  main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
