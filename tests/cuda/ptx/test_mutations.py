"""What runs the PTX finds faults: each is put into a kernel of Cholesky's, and must be caught."""

import ctypes
import itertools
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

pytestmark = pytest.mark.extended

HERE = pathlib.Path(__file__).parent
# Kernels of float32, the number of rows that they are launched for, and batches that give a block
# several teams where it may have them.
ALONE = ("RunAlone.*SmallCholeskyIfE", 5, 1100)
WARPS = ("RunWarps.*WarpCholeskyIfLi32E", 20, 3)
TEAMS = ("RunTeams.*TeamCholeskyIfE", 33, 521)
_names = (f"linalg_cholesky_mutant_{i}" for i in itertools.count())


def _cholesky(folder, batch, n):
  """The largest error of L Lᵀ in terms of the precision."""
  rng = np.random.default_rng(0)
  x = rng.standard_normal((batch, n, n), dtype=np.float32)
  a = x @ x.swapaxes(1, 2) + n * np.eye(n, dtype=np.float32)
  library = ctypes.CDLL(str(folder / "libcuda_on_cpu.so"))
  library.on_cpu.restype = ctypes.c_void_p
  name = next(_names)
  jax.ffi.register_ffi_target(
      name, jax.ffi.pycapsule(library.on_cpu(b"linalg_cholesky")), platform="cpu")
  call = jax.ffi.ffi_call(name, (
      jax.ShapeDtypeStruct(a.shape, a.dtype), jax.ShapeDtypeStruct((batch,), np.int32)))
  factor, info = (np.asarray(x) for x in call(a, lower=True, symmetrize=False))
  assert not info.any()
  wide = factor.astype(float)
  return np.abs(wide @ wide.swapaxes(1, 2) - a).max() / np.abs(a).max() / np.finfo(np.float32).eps


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("kernel", "n", "batch"), [ALONE, WARPS, TEAMS])
def test_nothing_found_without_a_fault(kernel, n, batch, quick_library):
  assert _cholesky(quick_library, batch, n) <= 10


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("where", "fault", "number", "message"), [
    (ALONE, "no_barrier", 0, "nobody wrote|a race"),
    (ALONE, "no_barrier", 1, "nobody wrote|a race"),
    (ALONE, "no_wait_for_copies", 0, "nobody wrote"),
    (ALONE, "eight_bytes_too_little", 0, "out of bounds"),
    (ALONE, "one_too_many", 2, "out of bounds"),
    (WARPS, "no_barrier", 0, "nobody wrote|a race"),
    (WARPS, "no_barrier", 1, "nobody wrote|a race"),
    (WARPS, "half_a_warp", 0, "without the thread itself"),
    (WARPS, "half_a_warp_shuffles", -1, "without the thread itself|the mask lacks"),
    # Every third one is that of a team of 32 threads, and not all of these are on its way.
    (TEAMS, "no_barrier", 1, "nobody wrote|a race"),
    (TEAMS, "no_barrier", 10, "nobody wrote|a race"),
    (TEAMS, "no_barrier", 7, "nobody wrote|a race"),
    (TEAMS, "eight_bytes_too_little", 0, "out of bounds"),
    (TEAMS, "next_element", 0, ""),
])
def test_mutants_are_caught(where, fault, number, message, quick_library, tmp_path):
  kernel, n, batch = where
  mutant = tmp_path / "mutant"
  subprocess.run(
      [sys.executable, HERE / "mutate.py", quick_library, mutant, kernel, fault,
       str(number)],
      check=True)
  said, error = "", 0.0
  try:
    error = _cholesky(mutant, batch, n)
  except jax.errors.JaxRuntimeError as failure:
    said = str(failure)
  if message:
    assert re.search(message, said), f"{said}, error {error}"
  else:
    assert said or error > 1000
