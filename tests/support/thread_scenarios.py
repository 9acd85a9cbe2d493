"""Programs that `values/test_threads.py` runs in processes of their own, under a time limit.

The scenario and the number of virtual devices are arguments.
"""

import ctypes
import os
import pathlib
import sys
import threading

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
  """Independent calls: nothing orders them, so all may wait for the same threads."""
  return (
      linalg.cholesky(a), linalg.lu(a)[0], linalg.qr(a).Q, linalg.eigh(a).eigenvalues,
      linalg.inv(a), linalg.det(a), linalg.solve(a, a), linalg.eigvalsh(a))


def check(a, results):
  """The factor and the inverse of a batch, in full."""
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
  """Many Python threads at once; the first calls of the process are among them."""
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
  """Batches beside one large matrix, which may use the threads of OpenBLAS."""
  # Of a size that is LAPACK's.
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


SCENARIOS = (one_program, python_threads, large_and_small, users_thread_count)

if __name__ == "__main__":
  {f.__name__: f for f in SCENARIOS}[sys.argv[1]]()
  print("done", flush=True)
