"""Programs that `api/test_faults.py` runs in processes of their own, under a time limit.

The scenario is the first argument, and its arguments follow. A scenario that crashes ends only its
own process.
"""

import ctypes
import functools
import itertools
import multiprocessing
import os
import pathlib
import sys
import threading
import time

import quick

os.environ.setdefault("XLA_FLAGS", quick.FLAGS)

import jax  # noqa: E402
import numpy as np  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

import linalg  # noqa: E402

RNG = np.random.default_rng(0)
# Orders of matrices that go to lanes, to tiles and to LAPACK. Batches are large enough for several
# threads where that is quick.
BATCHES = {4: 4000, 33: 150, 130: 5, 520: 1}
# These use LAPACK from lower orders on, and take seconds at the highest.
LONG = ("eig", "schur", "svd", "hessenberg", "qr_pivoted")
REFUSALS = (jax.errors.JaxRuntimeError, ValueError)  # by the wait, or by the call


def cases_of(dtype):
  """(case, n, its compiled program, operands) of all handlers."""
  import cases

  for case in cases.with_handlers("cpu"):
    for n, batch in BATCHES.items():
      short = n <= 130 or not case.name.startswith(LONG)
      if short and dtype in map(np.dtype, case.dtypes):
        operands = case.operands(RNG, (batch,), n, n, dtype)
        yield case, n, jax.jit(case.results), operands


def others_of(dtype):
  """(name, n, its compiled program, operands) for the handlers that `cases_of` does not call.

  Other functions, derivatives or JAX's sort call them. Together these programs call each handler,
  in lanes and, where it has tiles, in tiles.
  """
  import cases

  rest = cases.targets("cpu").difference(*map(cases.targets_of, cases.with_handlers("cpu")))
  left = set(rest)
  for case, mode in itertools.product(cases.TABLE, (_results, cases.tangents, cases.gradients)):
    program = functools.partial(mode, case)
    for n in (4, 33):
      operands = case.operands(RNG, (BATCHES[n],), n, n, dtype)
      called = rest & cases.targets_in(program, *operands)
      if n == 4 and not called & left:
        break
      left -= called
      if called:
        yield f"{mode.__name__.strip('_')} of {case.name}", n, jax.jit(program), operands
  assert left == {"linalg_inverse_permutation"}, left
  keys = RNG.integers(0, 9, (100, 4)).astype(np.int32)  # sorting each row allocates
  with linalg.accelerated():
    program = jax.jit(jax.lax.sort_key_val).lower(keys, keys).compile()
    yield "inverse_permutation", 4, program, (keys, keys)


def _results(case, *operands):
  return case.results(*operands)


def positive_definite(*batch, n=24):
  a = RNG.standard_normal((*batch, n, n))
  return a @ a.swapaxes(-1, -2) + n * np.eye(n)


def run(program, operands):
  return [np.asarray(x) for x in program(*operands)]


def same(results, expected):
  for x, y in zip(results, expected, strict=True):
    np.testing.assert_array_equal(x, y)


def works():
  """Calls a batch in lanes, a matrix in tiles, and one for LAPACK."""
  for a in (positive_definite(100), positive_definite(1, n=600)):
    factor = np.asarray(linalg.cholesky(a))
    np.testing.assert_allclose(factor @ factor.swapaxes(-1, -2), a, rtol=0, atol=1e-9)
  w, v = map(np.asarray, linalg.eigh(a))
  np.testing.assert_allclose((v * w[..., None, :]) @ v.swapaxes(-1, -2), a, rtol=0, atol=1e-8)


def no_memory(dtype):
  """Each allocation of each handler fails in turn, alone and with all later ones.

  The call raises an error that says so, or is right without that memory. The next call is right.
  """
  from linalg._core import targets

  process = ctypes.CDLL(None)
  process.fail_allocations.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_long]
  process.stop_failing.restype = ctypes.c_long
  library = f"_cpu_{targets.isa}.".encode()
  everything = 2**62
  refused = survived = 0
  dtype = np.dtype(dtype)
  of_cases = ((case.name, *rest) for case, *rest in cases_of(dtype))
  for name, n, program, operands in itertools.chain(of_cases, others_of(dtype)):
    expected = run(program, operands)
    for k in range(1, 1000):
      failed = []
      for last in (k, everything):
        process.fail_allocations(library, k, last)
        try:
          found = run(program, operands)
          failed.append(process.stop_failing())
          same(found, expected)
          survived += failed[-1] > 0
        except REFUSALS as error:
          failed.append(process.stop_failing())
          message = f"{name}, n = {n}, allocation {k}: {error}"
          assert failed[-1] > 0 and str(error).startswith("RESOURCE_EXHAUSTED"), message
          refused += 1
      same(run(program, operands), expected)
      if not any(failed):
        break
    else:
      raise AssertionError(f"{name}: allocations without end")
  print(f"{refused} calls refused, {survived} without that memory")
  assert refused > 0 and survived > 0


def no_scipy():
  """SciPy is not imported before the first call of a handler.

  That call says that it is missing, and the next one works if it is there.
  """
  import importlib.abc

  class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
      if name.startswith("scipy"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

  sys.meta_path.insert(0, Absent())
  for _ in range(2):
    try:
      linalg.cholesky(np.eye(3))
    except ImportError as error:
      assert error.name is not None and error.name.startswith("scipy"), error
    else:
      raise AssertionError("it did not ask for SciPy")
  sys.meta_path.pop(0)
  works()


def broken_scipy():
  """A SciPy that lacks a routine: an error names it, and no missing function is called."""
  import scipy.linalg.cython_lapack as lapack

  routine = lapack.__pyx_capi__.pop("zgees")
  for _ in range(2):
    try:
      linalg.cholesky(np.eye(3))
    except RuntimeError as error:
      assert "scipy.linalg has no routine zgees" in str(error), error
    else:
      raise AssertionError("it did not miss the routine")
  lapack.__pyx_capi__["zgees"] = routine
  works()


def other_lapack(*paths):
  """Residuals are within their limits with a LAPACK other than OpenBLAS.

  It comes from shared libraries.
  """
  import scipy.linalg.cython_blas as blas
  import scipy.linalg.cython_lapack as lapack

  libraries = [ctypes.CDLL(path, ctypes.RTLD_GLOBAL) for path in paths]
  api = ctypes.pythonapi
  api.PyCapsule_New.restype = ctypes.py_object
  api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
  api.PyCapsule_GetName.restype = ctypes.c_char_p
  api.PyCapsule_GetName.argtypes = [ctypes.py_object]
  names = []  # capsules do not copy them
  replaced = 0
  for module in (lapack, blas):
    for name, capsule in module.__pyx_capi__.items():
      routine = next((x for y in libraries if (x := getattr(y, f"{name}_", None))), None)
      if routine is not None:
        names.append(api.PyCapsule_GetName(capsule))
        address = ctypes.cast(routine, ctypes.c_void_p)
        module.__pyx_capi__[name] = api.PyCapsule_New(address, names[-1], None)
        replaced += 1
  assert replaced > 500, replaced
  from linalg._core import targets

  assert targets.blas_threads() == 0
  worst = {}
  for dtype in (np.float32, np.complex128):
    for case, n, program, operands in cases_of(np.dtype(dtype)):
      key = case.name, n, dtype.__name__
      worst[key] = case.ratio(operands, run(program, operands))
      assert worst[key] <= case.limit, (key, worst[key])
  key = max(worst, key=worst.__getitem__)
  print(f"{replaced} routines; the worst residual is {worst[key]:.3g}, of", *key)


def writes_nothing():
  """Imports and calls open no file to write: home and disk may be read-only."""
  written = []

  def audit(event, arguments):
    if event == "open" and isinstance(arguments[2], int):
      if arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        written.append(arguments[0])
    elif event in ("os.mkdir", "os.rename", "os.remove"):
      written.append(arguments[0])

  sys.addaudithook(audit)
  works()
  assert not written, written


def interrupted():
  """Ctrl-C during long calls is a KeyboardInterrupt, and calls go on after it."""
  import _thread

  program = jax.jit(lambda a: linalg.eigh(a).eigenvalues)
  a = positive_definite(20, n=200)
  expected = run(lambda a: [program(a)], [a])
  for _ in range(3):
    threading.Timer(0.2, _thread.interrupt_main).start()
    start = time.monotonic()
    try:
      while time.monotonic() - start < 60:
        np.asarray(program(a))
    except KeyboardInterrupt:
      pass
    else:
      raise AssertionError("not interrupted")
    same(run(lambda a: [program(a)], [a]), expected)
  works()


def _child(queue):
  works()
  queue.put("done")


def child_process(method):
  """Handlers work in a child process.

  The parent has used handlers (spawn), or has only imported them (fork).
  """
  if method == "spawn":
    works()
  context = multiprocessing.get_context(method)
  queue = context.Queue()
  child = context.Process(target=_child, args=(queue,))
  child.start()
  assert queue.get(timeout=100) == "done"
  child.join()
  assert child.exitcode == 0


def shutdown():
  """The interpreter ends while handlers work."""
  programs = [jax.jit(f) for f in (linalg.eigh, linalg.eig, linalg.cholesky)]
  operands = [positive_definite(*batch, n=n) for batch, n in (((300,), 50), ((), 600))]
  for program in programs:
    for a in operands:
      program(a)


def one_processor(path):
  """Every handler gives the results in the file when it has fewer resources.

  A handler gets one processor, half of one processor's time, or no threads of XLA. If the file does
  not exist, it is written with results and operands.
  """
  known = np.load(path) if pathlib.Path(path).exists() else None
  found = {}
  for case, n, program, operands in cases_of(np.dtype(np.float64)):
    # A single large matrix may use BLAS threads. Operands come from NumPy, and BLAS may have made
    # them.
    if n > 256:
      continue
    name = f"{case.name}, n = {n}"
    if known is not None:
      operands = [known[f"{name}, operand {i}"] for i in range(len(operands))]
    found |= {f"{name}, operand {i}": x for i, x in enumerate(operands)}
    found |= {f"{name}, result {i}": x for i, x in enumerate(run(program, operands))}
  if known is None:
    np.savez(path, **found)
    return
  assert found.keys() == set(known.files)
  for name, x in found.items():
    np.testing.assert_array_equal(x, known[name], err_msg=name)


def _repeated(block, count):
  """`count` copies of a block of memory in sequence, using the memory of one."""
  libc = ctypes.CDLL(None, use_errno=True)
  libc.mmap.restype = ctypes.c_void_p
  libc.mmap.argtypes = [
      ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
  file = os.memfd_create("block")
  os.write(file, block.tobytes())
  size = block.nbytes
  none, shared, fixed, anonymous = 0, 1, 0x10, 0x22 | 0x4000
  first = libc.mmap(None, size * count, none, anonymous, -1, 0)
  for i in range(count):
    assert libc.mmap(first + i * size, size, 3, shared | fixed, file, 0) == first + i * size
  memory = (ctypes.c_char * (size * count)).from_address(first)
  return np.frombuffer(memory, block.dtype).reshape(count * len(block), *block.shape[1:])


def large_operands(kind):
  """Operands of more than 2³¹ elements, which repeat one block of matrices."""
  n = 4
  block = positive_definite(2**18, n=n).astype(np.float32)
  a = _repeated(block, 2**9 + 1)
  assert a.size > 2**31
  if kind == "operands":
    for function in (linalg.det, linalg.slogdet, linalg.eigvalsh, linalg.svdvals):
      expected = jax.tree.leaves(jax.jit(function)(block))
      for x, y in zip(jax.tree.leaves(jax.jit(function)(a)), expected, strict=True):
        x = np.asarray(x).reshape(-1, *y.shape)
        assert (x == np.asarray(y)).all(), function.__name__
        del x
  elif kind == "results":
    expected = np.asarray(linalg.cholesky(block))
    for part in np.asarray(linalg.cholesky(a)).reshape(-1, *expected.shape):
      np.testing.assert_array_equal(part, expected)
  else:
    # One matrix: LAPACK's integers have 32 bits.
    column = a.reshape(-1, 1)
    for function in (linalg.svdvals, lambda a: linalg.qr(a, mode="r")):
      try:
        np.asarray(jax.jit(function)(column))
      except REFUSALS as error:
        assert "too large for 32-bit integers" in str(error), error
      else:
        raise AssertionError("sizes that LAPACK cannot take were not refused")


SCENARIOS = (
    no_memory, no_scipy, broken_scipy, other_lapack, writes_nothing, interrupted, child_process,
    shutdown, one_processor, large_operands, works)

if __name__ == "__main__":
  {f.__name__: f for f in SCENARIOS}[sys.argv[1]](*sys.argv[2:])
  print("done", flush=True)
