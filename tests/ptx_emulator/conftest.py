"""Builds the library of build.py once for all tests, and runs suites with it."""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import pytest

import ptx_library
import ptx_suites as suites

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
  """Returns the folder that all workers share."""
  base = tmp_path_factory.getbasetemp()
  return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def library(shared_folder):
  """Returns the folder of build.py's library; LINALG_PTX names an existing one."""
  if made := os.environ.get("LINALG_PTX"):
    return pathlib.Path(made)
  if shutil.which("nvcc") is None:
    pytest.skip("needs nvcc, which makes the PTX")
  if shutil.which("c++") is None:
    pytest.skip("needs a C++ compiler, c++")
  folder = shared_folder / "ptx"
  with folder.with_suffix(".lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not (folder / "compile").exists():
      shutil.rmtree(folder, ignore_errors=True)
      done = subprocess.run(
          [sys.executable, HERE / "build.py", folder, jax.ffi.include_dir()],
          capture_output=True, text=True, check=False)
      assert done.returncode == 0, done.stderr[-5000:]
  return folder


@pytest.fixture(scope="session")
def handlers(library):
  return ptx_library.load(library)


@pytest.fixture
def launched(shared_folder):
  return suites.Launched(shared_folder / "ptx-launched")


@pytest.fixture
def run_suites(library):
  """Runs test files with the library's handlers and requires that they pass.

  It records under a name which kernels they launch.
  """
  def run(name, files, chosen, launched, **settings):
    paths = [
        str(HERE), str(HERE / "support"), str(ROOT / "tests/support"),
        *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "LINALG_PTX": str(library), "PYTHONPATH": os.pathsep.join(paths),
        "LINALG_PTX_LAUNCHED": str(launched.file(name))}
    environment |= {f"LINALG_PTX_{key.upper()}": str(value) for key, value in settings.items()}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "plugin", "-n", "2", "-q", "--no-header", "-p",
         "no:cacheprovider", "-m", "extended or not extended", "-k", chosen, *files],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    launched.ended(name)

  return run


@pytest.fixture
def run_suite(run_suites):
  """Runs one of suites.SUITES."""
  def run(suite, chosen, launched, **settings):
    run_suites(suite, [suites.SUITES[suite]], chosen, launched, **settings)

  return run
