"""Programs that `values/test_threads.py` runs in processes of their own, under a time limit.

The arguments are the scenario, the number of virtual devices, and the arguments of the scenario.
"""

import ctypes
import faulthandler
import itertools
import os
import pathlib
import sys
import threading
import time

import quick

DEVICES = int(sys.argv[2])
os.environ["XLA_FLAGS"] = f"{quick.FLAGS} --xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import numpy as np  # noqa: E402

jax.config.update("jax_enable_x64", True)

import linalg  # noqa: E402

MATRICES = 400  # of 24 by 24: some milliseconds, so that every call asks for threads
RNG = np.random.default_rng(0)


def positive_definite(*batch, n=24):
  a = RNG.standard_normal((*batch, n, n))
  return a @ a.swapaxes(-1, -2) + n * np.eye(n)


def operations(a):
  """Independent calls. Nothing orders them, so all may wait for the same threads."""
  return (
      linalg.cholesky(a), linalg.lu(a)[0], linalg.qr(a).Q, linalg.eigh(a).eigenvalues,
      linalg.inv(a), linalg.det(a), linalg.solve(a, a), linalg.eigvalsh(a))


def check(a, results):
  """Checks the factor and the inverse of a batch, in full."""
  factor, inverse = np.asarray(results[0]), np.asarray(results[4])
  scale = 1e-10 * np.max(np.abs(a))
  np.testing.assert_allclose(factor @ factor.swapaxes(-1, -2), a, rtol=0, atol=scale)
  np.testing.assert_allclose(a @ inverse, np.broadcast_to(np.eye(a.shape[-1]), a.shape), atol=1e-8)


def one_program():
  """Many independent calls in one program, on one device or on each of several."""
  operands = [positive_definite(MATRICES) for _ in range(8)]
  mesh = jax.make_mesh((DEVICES,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
  sharding = jax.sharding.NamedSharding(mesh, jax.P("x"))
  sharded = [jax.device_put(a, sharding) for a in operands]
  program = jax.jit(lambda *operands: [operations(a) for a in operands])
  for _ in range(3):
    for a, results in zip(operands, program(*sharded), strict=True):
      check(a, results)


def python_threads():
  """Many Python threads at once, which also make the first calls of the process."""
  failures = []

  def work(i):
    try:
      device = jax.devices()[i % DEVICES]
      a = positive_definite(MATRICES)
      results = [jax.jit(operations)(jax.device_put(a, device)) for _ in range(3)]
      for result in results:
        check(a, result)
    except BaseException as error:
      failures.append(error)

  threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  if failures:
    raise failures[0]


def large_and_small():
  """Batches run at the same time as one large matrix, which may use the threads of OpenBLAS."""
  # The size of `large` is LAPACK's.
  large, small = positive_definite(n=520), positive_definite(MATRICES)

  def work(a):
    program = jax.jit(operations)
    for _ in range(3):
      check(a, program(a))

  threads = [threading.Thread(target=work, args=(a,)) for a in (large, small, large, small)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  check(large, jax.jit(lambda a, b: (operations(a), operations(b)))(large, small)[0])


def _openblas():
  """(get, set) of the number of threads of the OpenBLAS that SciPy has loaded."""
  import scipy.linalg.lapack  # noqa: F401

  maps = pathlib.Path("/proc/self/maps").read_text()
  paths = {line.split()[-1] for line in maps.splitlines() if "openblas" in line}
  for path in sorted(paths, key=lambda path: "scipy" not in path):
    library = ctypes.CDLL(path)
    for prefix in ("scipy_openblas", "openblas"):
      for suffix in ("", "64_"):
        get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
        if get is not None:
          return get, getattr(library, f"{prefix}_set_num_threads{suffix}")
  return None


def users_thread_count():
  """The number of threads that the user gave OpenBLAS is the same after as before."""
  if sys.platform != "linux" or (functions := _openblas()) is None:
    print("SKIP: no OpenBLAS found in this process")
    return
  get, set_ = functions
  for users in (2, 1):
    set_(users)
    for run in (python_threads, large_and_small):
      before = get()
      assert before == users, (before, users)
      run()
      assert get() == users, f"{run.__name__} left {get()} threads of {users}"


# The first orders go to lanes and to tiles. The last is LAPACK's where that is quick.
ORDERS = {5: 400, 33: 40, 130: 8}
PROGRAMS = 30


def _programs(sharding):
  """Programs of different operations, orders and dtypes.

  Each program works on a batch that all devices share, and on one device. Every second program
  continues with collectives on the results.
  """
  import cases
  from sharded import collectives

  everywhere = jax.sharding.NamedSharding(sharding.mesh, jax.P())
  choices = itertools.cycle(itertools.product(ORDERS.items(), (np.float32, np.complex128)))
  some = itertools.cycle(x for x in cases.with_handlers("cpu") if not x.slow)
  for i, case, ((n, batch), dtype) in zip(range(PROGRAMS), some, choices):
    dtype = dtype if np.dtype(dtype) in map(np.dtype, case.dtypes) else np.float64

    def gathered(*operands, case=case):
      results = case.results(*operands)
      sums = [abs(x).sum() for x in results]
      return jax.lax.with_sharding_constraint((results, sums), everywhere)

    operands = case.operands(RNG, (batch,), n, n, dtype)
    device = jax.devices()[i % DEVICES]
    shared = jax.device_put(operands, sharding)
    program = jax.jit(gathered if i % 2 else case.results).lower(*shared).compile()
    assert bool(collectives(program.as_text())) == bool(i % 2), case.name
    yield f"{case.name}, n = {n}, {np.dtype(dtype)}", [
        (program, shared), (jax.jit(case.results), jax.device_put(operands, device))]


def _bytes(results):
  return [np.asarray(x).tobytes() for x in jax.tree.leaves(results)]


def many_programs(seconds):
  """Threads call all programs repeatedly, each in an order of its own.

  Every result has the bits that it has where nothing else runs.
  """
  mesh = jax.make_mesh((DEVICES,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
  programs = dict(_programs(jax.sharding.NamedSharding(mesh, jax.P("x"))))
  assert len(programs) == PROGRAMS
  expected = {}
  for name, ways in programs.items():
    expected[name] = [_bytes(program(*operands)) for program, operands in ways]
    whole, alone = expected[name]
    assert whole[:len(alone)] == alone, f"{name}: other bits on {DEVICES} devices than on one"
  end = time.monotonic() + float(seconds)
  failures, calls = [], [0] * 16

  def work(thread):
    order = np.random.default_rng(thread)
    names = list(programs)
    try:
      while not failures:
        order.shuffle(names)
        for name in names:
          for way, (program, operands) in enumerate(programs[name]):
            if time.monotonic() > end:
              return
            assert _bytes(program(*operands)) == expected[name][way], f"{name}: other bits"
            calls[thread] += 1
    except BaseException as error:
      failures.append(error)

  threads = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  if failures:
    raise failures[0]
  print(f"{sum(calls)} calls, {min(calls)} to {max(calls)} of each thread")
  assert min(calls) > 0, calls


def batches_then_collectives(runs, seconds):
  """Devices work on their parts of batches and then wait for each other, run after run.

  Each run has a time limit. A run that exceeds it ends the process, and reports where each thread
  is.
  """
  import linalg.distributed as dist

  mesh = jax.make_mesh((DEVICES,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
  by_batch, by_rows = jax.P("x", None, None), jax.P(None, "x", None)

  def turned(f):
    """Turns a batch; an all-to-all distributes its results by rows."""
    return jax.jit(lambda a: jax.sharding.reshard(f(a), by_rows))

  def vectors(a):
    return linalg.eigh(a).eigenvectors

  calls = (
      (turned(vectors), by_batch), (turned(lambda a: linalg.qr(a).Q), by_batch),
      (turned(linalg.inv), by_batch), (jax.jit(dist.batched(vectors)), by_rows),
      (jax.jit(dist.batched(linalg.cholesky)), by_rows))
  a = positive_definite(MATRICES)
  with jax.set_mesh(mesh):
    places = {
        spec: jax.device_put(a, jax.NamedSharding(mesh, spec)) for spec in (by_batch, by_rows)}
    expected = [_bytes(call(places[spec])) for call, spec in calls]
    for run in range(int(runs)):
      faulthandler.dump_traceback_later(float(seconds), exit=True)
      found = [call(places[spec]) for call, spec in calls]  # all begin before any is waited for
      assert [_bytes(x) for x in found] == expected, f"run {run}: other bits"
      faulthandler.cancel_dump_traceback_later()
      print(f"run {run}")


SCENARIOS = (
    one_program, python_threads, large_and_small, users_thread_count, many_programs,
    batches_then_collectives)

if __name__ == "__main__":
  {f.__name__: f for f in SCENARIOS}[sys.argv[1]](*sys.argv[3:])
  print("done", flush=True)
