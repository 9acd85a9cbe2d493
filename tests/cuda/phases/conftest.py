"""Runs the algorithms of a team of CUDA threads on the CPU, one thread after another.

They are compiled here from the headers of the CUDA module, and run in several orders. A result that
depends on the order is a race. kernels/team/team.h defines a phase.
"""

import ctypes
import fcntl
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="session")
def library(tmp_path_factory):
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  folder = tmp_path_factory.getbasetemp()
  if "PYTEST_XDIST_WORKER" in os.environ:
    folder = folder.parent  # Workers share this folder, and one of them compiles.
  path = folder / "libteam_phases.so"
  flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-psabi"]
  with (folder / "team_phases.lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not path.exists():
      subprocess.run(
          [compiler, *flags, "-shared", "-fPIC", "-I", str(ROOT),
           str(ROOT / "tests/cuda/team_phases.cc"), "-o", str(path)], check=True)
  return ctypes.CDLL(str(path))
