"""The handlers of kernels/cuda on the CPU, through the suites of the handlers for it.

All but the launch of kernels, the barriers and NVIDIA's libraries is what a GPU runs: which path a
matrix takes, its way to shared memory and back, the arithmetic, NaN and info, and what the vendor's
routines are asked for. tests/cuda/on_cpu has what stands in for the rest.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import jax
import pytest

pytestmark = pytest.mark.extended

ROOT = pathlib.Path(__file__).parents[2]
STAND_IN = ROOT / "tests/cuda/on_cpu"
SUITES = (
    "values/test_factorisations.py", "values/test_failures.py", "values/test_extremes.py",
    "values/test_in_place.py", "values/test_matmul.py", "values/test_svd.py",
    "values/test_tridiagonal.py", "values/test_banded.py", "derivatives/test_linear.py")
# Stock JAX's residuals on the CPU are no measure: there LAPACK sums block by block, which rounds
# less than the teams' sums. The gates of the other tests hold.
# Nor have a value and its derivative the same bits where the derivative's handler is one that no
# program for CUDA calls: those of det and slogdet beyond their size for CUDA.
CHOSEN = (
    "not float64 and not complex64 and not gradients and not no_worse_than_stock"
    " and not (test_value_with_its_derivative and 33)")


@pytest.mark.timeout(900)
def test_suites(tmp_path):
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  library = tmp_path / "libcuda_on_cpu.so"
  flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]
  subprocess.run(
      [compiler, *flags, "-shared", "-fPIC", "-I", str(STAND_IN), "-I", str(ROOT),
       "-isystem", jax.ffi.include_dir(), "-include", str(STAND_IN / "cuda_runtime_api.h"),
       str(STAND_IN / "handlers.cc"), "-o", str(library)], check=True)
  paths = [str(STAND_IN), *filter(None, [os.environ.get("PYTHONPATH")])]
  done = subprocess.run(
      [sys.executable, "-m", "pytest", "-p", "plugin", "-n", "0", "-q", "--no-header",
       "-p", "no:cacheprovider", "-k", CHOSEN,
       *(str(ROOT / "tests" / suite) for suite in SUITES), str(STAND_IN / "vendor_faults.py")],
      env=os.environ | {"CUDA_ON_CPU": str(library), "PYTHONPATH": os.pathsep.join(paths)},
      cwd=ROOT, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
