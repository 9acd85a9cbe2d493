"""One of the processes that `sharding/test_processes.py` starts.

The arguments are its number, their count and the address. Each process holds four devices and a
part of one global batch, and checks that part with SciPy.
"""

import itertools
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax  # noqa: E402
import numpy as np  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_collectives_implementation", "gloo")

import cases  # noqa: E402
from sharded import (  # noqa: E402
    BATCH,
    AxisType,
    NamedSharding,
    P,
    compile_local,
    energy,
    make_mesh,
    quick_compile,
)

N = 4


def place_globally(x, sharding):
  """Every process makes the same array and keeps its own part of it."""
  return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def check_local_shards(case, operands, results):
  dtype = operands[0].dtype if operands[0].dtype.kind in "fc" else np.dtype(np.float64)
  for position, result in enumerate(results):
    assert len(result.addressable_shards) == 4
    for shard in result.addressable_shards:
      data, first = np.asarray(shard.data), shard.index[0].start
      assert len(data) == BATCH // 8
      for i, actual in enumerate(data):
        expected = case.expected(*(x[first + i] for x in operands))[position]
        scale = np.max(np.abs(expected), initial=1)
        np.testing.assert_allclose(
            actual, expected, rtol=0, atol=200 * np.finfo(dtype).eps * scale, err_msg=case.name)


def check_local_residuals(case, operands, results):
  """Checks residuals where SciPy returns results in another order."""
  for shards in zip(*(x.addressable_shards for x in results), strict=True):
    rows = shards[0].index[0]
    assert all(shard.index[0] == rows and len(shard.data) == BATCH // 8 for shard in shards)
    ratio = case.ratio([x[rows] for x in operands], [np.asarray(shard.data) for shard in shards])
    assert ratio <= case.limit, (case.name, ratio)


def main(process, processes, address):
  jax.distributed.initialize(address, processes, process)
  assert (jax.process_count(), jax.device_count(), jax.local_device_count()) == (2, 8, 4)
  rng = np.random.default_rng(0)
  shardings = [
      NamedSharding(make_mesh(kind=kind), P("x")) for kind in (AxisType.Auto, AxisType.Explicit)]
  for sharding, case in zip(itertools.cycle(shardings), cases.CASES, strict=False):
    operands = case.operands(rng, (BATCH,), N, N, np.complex128)
    arrays = [place_globally(x, sharding) for x in operands]
    if case.unordered:
      check_local_residuals(case, operands, compile_local(case.results, arrays)(*arrays))
    else:
      invariant = lambda *x: case.invariant(case.results(*x))
      check_local_shards(case, operands, compile_local(invariant, arrays)(*arrays))

  # Collectives between the processes work, so the absence of any above is no accident.
  case = cases.named("cholesky")
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  arrays = [place_globally(x, sharding) for x in operands]

  def loss(*operands):
    return jax.numpy.sum(energy(case, 1, *operands))

  compiled = quick_compile(jax.value_and_grad(loss), arrays)
  assert "all-reduce" in compiled.as_text()
  value, gradient = compiled(*arrays)
  expected = jax.jit(jax.value_and_grad(loss))(*operands)
  np.testing.assert_allclose(value, expected[0], rtol=1e-12)
  for shard in gradient.addressable_shards:
    np.testing.assert_allclose(shard.data, expected[1][shard.index], rtol=0, atol=1e-11)
  print(f"process {process} checked {len(cases.CASES)} operations", flush=True)


if __name__ == "__main__":
  main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
