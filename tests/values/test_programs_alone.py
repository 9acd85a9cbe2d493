"""The programs that sanitizers run still compile, because those suites run seldom."""

import pathlib
import shutil
import subprocess

import jax
import pytest

import sanitized

pytestmark = pytest.mark.extended


@pytest.mark.parametrize(
    "source", sorted(pathlib.Path(__file__).parent.glob("*_alone.cc")), ids=lambda path: path.stem)
def test_program_compiles(source):
  """Catches an algorithm whose arguments differ from those that the program passes."""
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  headers = pathlib.Path(jax.ffi.include_dir())
  if "#define XLA_FFI_API_MINOR 3\n" not in (headers / "xla/ffi/api/c_api.h").read_text():
    pytest.skip("needs the headers that handlers are built with: jaxlib 0.10.2's, of API 0.3")
  made = subprocess.run(
      [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-psabi", "-I",
       str(sanitized.ROOT), "-isystem", str(headers), "-DLINALG_TEST_ELEMENT=float",
       str(source)], capture_output=True, text=True, check=False)
  assert made.returncode == 0, made.stderr[-5000:]
