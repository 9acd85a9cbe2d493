"""Handlers share one pool of threads and one OpenBLAS: they neither hang nor change a result."""

import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

import linalg
import matrices
import selection
from sharded import make_mesh, place, same_bits

ONE_IN = 3

SCRIPT = pathlib.Path(__file__).parents[1] / "support/thread_scenarios.py"
SECONDS = 120
# Duration of the test of many programs; set it to hours for a long run.
MANY_SECONDS = int(os.environ.get("LINALG_THREADS_SECONDS", "60"))


def _run(scenario, devices, *arguments, seconds=SECONDS, **environment):
  inherited = {
      key: value for key, value in os.environ.items()
      if key not in ("XLA_FLAGS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
  try:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), scenario, str(devices), *map(str, arguments)],
        env=inherited | environment, capture_output=True, text=True, timeout=seconds, check=False)
  except subprocess.TimeoutExpired:
    pytest.fail(f"{scenario} on {devices} devices was not done after {seconds} s: a deadlock")
  assert done.returncode == 0, done.stderr
  if done.stdout.startswith("SKIP"):
    pytest.skip(done.stdout.strip())
  print(done.stdout)  # for `-rP`
  assert "done" in done.stdout


@pytest.mark.parametrize("openblas", [
    pytest.param({}, id="unset"),
    pytest.param({"OPENBLAS_NUM_THREADS": "4"}, id="OPENBLAS_NUM_THREADS",
                 marks=pytest.mark.extended)])
@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.extended), 8])
@pytest.mark.parametrize("scenario", ["one_program", "python_threads"])
def test_no_deadlock(scenario, devices, openblas):
  """Catches a handler that waits for threads that wait for it."""
  _run(scenario, devices, **openblas)


@pytest.mark.extended
@pytest.mark.timeout(600 + MANY_SECONDS)
def test_many_programs_at_once():
  """Catches bits or hangs that depend on which Python thread calls which program.

  16 threads call 30 programs on eight devices, and half of the programs then run collectives.
  LINALG_THREADS_SECONDS sets the duration.
  """
  _run("many_programs", 8, MANY_SECONDS, seconds=MANY_SECONDS + 300)


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_batches_then_collectives():
  """Catches devices that wait for threads which are all held by devices waiting for them.

  There are 50 runs, and each ends within a minute.
  """
  _run("batches_then_collectives", 8, 50, 60, seconds=500)


def test_large_matrix_beside_batches():
  """Catches threads of OpenBLAS and of the pool that wait for each other or share memory."""
  _run("large_and_small", 2)


@pytest.mark.extended
def test_users_thread_count():
  """Catches a handler that does not restore the user's number of OpenBLAS threads."""
  _run("users_thread_count", 1)


def _alone_and_in_batches(case, dtype, n, sizes, rng):
  """Makes several calls in one program, because compiling one program is faster."""
  operands = case.operands(rng, (max(sizes),), n, n, dtype)
  places = (0, 1, 2, -1)

  @jax.jit
  def function(*operands):
    alone = [case.results(*(x[i] for x in operands)) for i in places]
    return alone, [case.results(*(x[:size] for x in operands)) for size in sizes]

  alone, batches = function(*operands)
  same_bits(function(*operands), (alone, batches))
  for size, results in zip(sizes, batches, strict=True):
    for i, one in zip(places, alone, strict=True):
      if i < size if i >= 0 else size == max(sizes):
        same_bits([np.asarray(x)[i] for x in results], one)


@selection.in_turn(1)
@selection.one_dtype
@pytest.mark.parametrize("n", [1, 5, 33])
def test_batch_invariance(case, dtype, n, rng):
  """Catches bits that depend on a matrix's neighbours, its place, or the threads."""
  _alone_and_in_batches(case, dtype, n, (1, 2, 3, 7, 17, 70), rng)


# Sizes near one and two registers of lanes at every level. Longer runs take all other sizes.
@pytest.mark.parametrize("sizes", [
    pytest.param((*range(1, 10), *range(15, 18), *range(31, 36)), id="about a register"),
    pytest.param((*range(10, 15), *range(18, 31)), id="others", marks=pytest.mark.extended)])
def test_batch_invariance_of_every_size(case, sizes, rng):
  """Catches a batch size at which another path, or a remainder, gives other bits."""
  operands = case.operands(rng, (35,), 4, 4, np.float32)
  whole, *batches = jax.jit(
      lambda *operands: [
          case.results(*(x[:size] for x in operands)) for size in (35, *sizes)])(*operands)
  for size, results in zip(sizes, batches, strict=True):
    same_bits(results, [np.asarray(x)[:size] for x in whole])


@pytest.mark.extended
@pytest.mark.parametrize("n", [64, 200])
def test_batch_invariance_of_large_matrices(case, dtype, n, rng):
  """Catches a path inside one matrix that only a single matrix takes."""
  _alone_and_in_batches(case, dtype, n, (1, 2, 5), rng)


def test_same_bits_from_run_to_run(case, rng):
  """Catches sums whose order depends on which thread was first."""
  operands = case.operands(rng, (100,), 40, 40, np.float64)
  function = jax.jit(case.results)
  first = [np.asarray(x) for x in function(*operands)]
  for _ in range(5):
    same_bits(function(*operands), first)


def test_one_large_matrix_on_each_device(rng):
  """Catches BLAS threads, and so other bits, on the device that runs first."""
  mesh = make_mesh()
  n = 520  # LAPACK factors this size
  a = matrices.positive_definite(rng, (8,), n, np.float64)
  (sharded,) = place((a,), mesh, "x")
  function = jax.jit(linalg.eigh)
  expected = function(a)
  for _ in range(3):
    same_bits(function(sharded), expected)
