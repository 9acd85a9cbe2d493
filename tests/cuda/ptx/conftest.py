"""The libraries that build.py makes, once for all tests, and the suites run with them."""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
PLUGIN = ROOT / "tests/cuda/on_cpu"


@pytest.fixture(scope="session")
def build(tmp_path_factory):
  """A function of names of kernels/cuda/*.cu, that gives the folder of their library.

  LINALG_PTX names one that has been made of all of them, for those who run the tests often.
  """
  if made := os.environ.get("LINALG_PTX"):
    return lambda *names: pathlib.Path(made)
  if shutil.which("nvcc") is None:
    pytest.skip("needs nvcc, which makes the PTX")
  if shutil.which("c++") is None:
    pytest.skip("needs a C++ compiler, c++")
  base = tmp_path_factory.getbasetemp()
  if "PYTEST_XDIST_WORKER" in os.environ:
    base = base.parent  # that of all workers, one of which builds

  def make(*names):
    folder = base / "-".join(["ptx", *names])
    with folder.with_suffix(".lock").open("w") as lock:
      fcntl.flock(lock, fcntl.LOCK_EX)
      if not (folder / "compile").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, HERE / "build.py", folder, jax.ffi.include_dir(), *names],
            capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-5000:]
    return folder

  return make


@pytest.fixture(scope="session")
def quick_library(build):
  """Of the files that each run of CI has time for."""
  return build("cholesky", "eigh", "lu", "qr")


@pytest.fixture
def run_suites():
  """Runs pytest on files with the handlers of a library, and returns what is to be said of it."""
  def run(folder, *arguments, **settings):
    paths = [str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "CUDA_ON_CPU": str(folder / "libcuda_on_cpu.so"), "PYTHONPATH": os.pathsep.join(paths)}
    environment |= {f"LINALG_PTX_{name.upper()}": str(x) for name, x in settings.items()}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "plugin", "-n", "0", "-q", "--no-header", "-p",
         "no:cacheprovider", *map(str, arguments)],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False)

  return run
