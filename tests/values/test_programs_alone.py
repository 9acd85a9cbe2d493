"""The programs that sanitizers run are C++ still: their own suites run seldom."""

import pathlib
import shutil
import subprocess

import jax
import pytest

import sanitized


@pytest.mark.parametrize(
    "source", sorted(pathlib.Path(__file__).parent.glob("*_alone.cc")), ids=lambda path: path.stem)
def test_program_compiles(source):
  """Catches an algorithm that takes other arguments than the program gives."""
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  made = subprocess.run(
      [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-psabi", "-I",
       str(sanitized.ROOT), "-isystem", jax.ffi.include_dir(), "-DLINALG_TEST_ELEMENT=float",
       str(source)], capture_output=True, text=True, check=False)
  assert made.returncode == 0, made.stderr[-5000:]
