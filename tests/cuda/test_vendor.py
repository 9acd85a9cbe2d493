"""cuSOLVER's and cuBLAS's functions are called as NVIDIA's headers declare them.

The module is built without these headers, which the wheels of the libraries have:

  pip install nvidia-cusolver nvidia-cublas nvidia-cuda-runtime
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NEEDED = ("cusolverDn.h", "cublas_v2.h", "cuda_runtime_api.h", "cuComplex.h")


def _folders():
  """Where headers of CUDA may be: those that are named, of the wheels, of a toolkit beside nvcc."""
  yield from filter(None, os.environ.get("LINALG_CUDA_HEADERS", "").split(os.pathsep))
  spec = importlib.util.find_spec("nvidia")
  for folder in (spec and spec.submodule_search_locations) or ():
    yield f"{folder}/cu13/include"
  yield from ("/usr/local/cuda-13.0/include", "/usr/local/cuda/include")


@pytest.fixture
def compile():
  """Of a copy of vendor.h, what the compiler says."""
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  folders = [pathlib.Path(x) for x in _folders()]
  for header in NEEDED:
    if not any((folder / header).exists() for folder in folders):
      pytest.skip(f"needs NVIDIA's {header}: pip install nvidia-cusolver nvidia-cublas, or their"
                  " folders in LINALG_CUDA_HEADERS")

  def compile(root):
    system = [x for folder in folders for x in ("-isystem", str(folder))]
    done = subprocess.run(
        [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-I", str(root), *system,
         str(ROOT / "tests/cuda/vendor_prototypes.cc")],
        capture_output=True, text=True, check=False)
    return done.stderr

  return compile


def test_prototypes(compile):
  assert compile(ROOT) == ""


@pytest.mark.parametrize(("found", "instead", "said"), [
    ("int jobvl, int jobvr, int64_t n", "int jobvl, int jobvr, int n", "cusolverDnXgeev"),
    ("const T* alpha,\n              const T* a", "T alpha,\n              const T* a", "trsm"),
    ("kLower = 0, kUpper = 1", "kLower = 1, kUpper = 0", "CUBLAS_FILL_MODE_LOWER"),
])
def test_differences_are_found(found, instead, said, compile, tmp_path):
  header = tmp_path / "kernels/cuda/vendor.h"
  header.parent.mkdir(parents=True)
  text = (ROOT / "kernels/cuda/vendor.h").read_text()
  assert found in text
  header.write_text(text.replace(found, instead))
  assert said in compile(tmp_path)
