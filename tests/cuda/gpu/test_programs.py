"""Transformed, sharded, donated and recorded programs on a GPU.

The single device also serves as a mesh.
"""

import functools
import re

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import linalg.scipy
import matrices
from gpu_calls import gpus, on_cpu, put, results_of
from linalg._catalogue import checks
from sharded import no_collectives

pytestmark = pytest.mark.gpu
ALL_DTYPES = True


@pytest.mark.parametrize("n", [6, 40, 80, 140])
def test_vmap_and_jit(case, n, rng):
  operands = case.operands(rng, (3, 4), n, n, np.float64)
  mapped = jax.jit(jax.vmap(case.results, in_axes=1, out_axes=1))(*put(operands))
  for x, y in zip(mapped, results_of(case, operands), strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-9 * np.max(np.abs(y), initial=1))


def test_sharded(case, rng):
  mesh = jax.make_mesh((1,), ("x",), devices=gpus()[:1])
  operands = case.operands(rng, (8,), 6, 6, np.float64)
  sharded = tuple(jax.device_put(x, NamedSharding(mesh, P("x"))) for x in operands)
  compiled = jax.jit(case.results).lower(*sharded).compile()
  no_collectives(compiled.as_text())
  for x, y in zip(compiled(*sharded), results_of(case, operands), strict=True):
    np.testing.assert_array_equal(x, y)


def test_donated(dtype, rng):
  """Factors and solutions are written to the memory of donated operands."""
  for n in (4, 40, 80, 140):
    a = matrices.positive_definite(rng, (5,), n, dtype)
    b = matrices.general(rng, (5,), n, 3, dtype)
    factor = lambda a: linalg.cho_factor(a, lower=True, overwrite_a=True)[0]
    l = jax.jit(factor, donate_argnums=0)(*put((a,)))
    np.testing.assert_array_equal(l, linalg.cho_factor(*put((a,)), lower=True)[0])
    lu, pivots = jax.jit(
        lambda a: linalg.lu_factor(a, overwrite_a=True), donate_argnums=0)(*put((a,)))
    solve = lambda b: linalg.lu_solve((lu, pivots), b, overwrite_b=True)
    x = np.asarray(jax.jit(solve, donate_argnums=0)(*put((b,))))
    assert checks.solution(a, x, b) <= 30


def _permutation(pivots, size):
  order = np.tile(np.arange(size, dtype=np.int32), (len(pivots), 1))
  for row, steps in zip(order, pivots, strict=True):
    for k, pivot in enumerate(steps):
      row[[k, pivot]] = row[[pivot, k]]
  return order


def test_program_can_be_captured(rng):
  """A recorded CUDA graph is replayed on other numbers, in other memory.

  Each call of lu_pivots_to_permutation depends on the one before, and the operands of all runs stay
  alive.
  """
  n, calls = 40, 12

  @functools.partial(jax.jit, compiler_options={"xla_gpu_graph_min_graph_size": 1})
  def function(pivots):
    results = []
    for _ in range(calls):
      results.append(linalg.lu_pivots_to_permutation(pivots, n))
      least = jnp.arange(n, dtype=jnp.int32)
      pivots = jnp.maximum(results[-1], jnp.broadcast_to(least, pivots.shape))
    return results

  runs = []
  for _ in range(8):
    pivots = rng.integers(np.arange(n), n, (64, n), dtype=np.int32)
    (placed,) = put((pivots,))
    runs.append((placed, function(placed)))
    for actual in runs[-1][1]:
      expected = _permutation(pivots, n)
      np.testing.assert_array_equal(actual, expected)
      pivots = np.maximum(expected, np.arange(n, dtype=np.int32))


@pytest.mark.parametrize("n", [4, 40])
@jax.default_matmul_precision("highest")
def test_recorded_chain(dtype, n, rng):
  """A chain of handlers that are recorded up to a size; each waits for the one before."""
  @functools.partial(jax.jit, compiler_options={"xla_gpu_graph_min_graph_size": 1})
  def function(a, b):
    for _ in range(3):
      b = linalg.solve(a, b)
      q, r = linalg.qr(b)
      b = linalg.triangular_solve(linalg.cholesky(linalg.matmul(b, b.conj().mT)), q, left_side=True)
      b = linalg.inv(linalg.matmul(b, r))
    return b

  def operands():
    near = lambda: matrices.unitary(rng, n, dtype) + matrices.general(
        rng, (64,), n, n, dtype) / (4 * n)
    return near().astype(dtype), near().astype(dtype)

  called = set(re.findall(r"@linalg_(\w+)_captured\(", function.lower(*put(operands())).as_text()))
  assert called == {"cholesky", "inv", "qr", "solve", "triangular_solve"}
  runs = [(given := operands(), function(*put(given))) for _ in range(8)]
  for given, found in runs:
    expected = np.asarray(on_cpu(function, given))
    scale = np.max(np.abs(expected), (-2, -1), keepdims=True)
    assert np.all(np.abs(np.asarray(found) - expected) <= 1e3 * np.finfo(dtype).eps * scale)
