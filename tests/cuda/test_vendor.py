"""Calls of cuSOLVER and cuBLAS match the declarations in NVIDIA's headers.

The module is built without these headers, and most machines lack them. vendor_declarations.inc
holds their declarations, and is compared with the headers where they exist.
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
HEADERS = ("cusolverDn.h", "cublas_v2.h", "cuda_runtime_api.h", "cuComplex.h", "library_types.h")


def _load_tool():
  spec = importlib.util.spec_from_file_location(
      "vendor_declarations", ROOT / "tools/vendor_declarations.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


vendor_declarations = _load_tool()
pytestmark = pytest.mark.skipif(
    shutil.which("c++") is None, reason="needs a C++ compiler, c++")


def _folders():
  """Returns folders that may hold CUDA's headers: named ones, wheels, or a toolkit beside nvcc."""
  yield from filter(None, os.environ.get("LINALG_CUDA_HEADERS", "").split(os.pathsep))
  spec = importlib.util.find_spec("nvidia")
  for folder in (spec and spec.submodule_search_locations) or ():
    yield f"{folder}/cu13/include"
  yield from ("/usr/local/cuda-13.0/include", "/usr/local/cuda/include")


@pytest.fixture
def folders():
  found = [pathlib.Path(x) for x in _folders()]
  for header in HEADERS:
    if not any((folder / header).exists() for folder in found):
      pytest.skip(f"needs NVIDIA's {header}: pip install nvidia-cusolver nvidia-cublas, or their"
                  " folders in LINALG_CUDA_HEADERS")
  return found


@pytest.fixture
def stand_ins(tmp_path):
  """Returns a folder with headers of NVIDIA's names, all with the stored declarations."""
  folder = tmp_path / "include"
  folder.mkdir()
  declarations = vendor_declarations.DECLARATIONS.read_text()
  (folder / "declarations.h").write_text(
      f"#pragma once\n#include <cstddef>\n#include <cstdint>\n{declarations}")
  for header in HEADERS:
    (folder / header).write_text("#include <declarations.h>\n")
  return folder


def _compile(root, *folders):
  """Compiles the prototypes beside a copy of vendor.h, and returns the compiler's messages."""
  system = [x for folder in folders for x in ("-isystem", str(folder))]
  done = subprocess.run(
      ["c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-I", str(root), *system,
       str(vendor_declarations.PROTOTYPES)],
      capture_output=True, text=True, check=False)
  return done.stderr


def test_prototypes(stand_ins):
  assert _compile(ROOT, stand_ins) == ""


def test_prototypes_of_the_headers(folders):
  assert _compile(ROOT, *folders) == ""


def test_declarations_are_those_of_the_headers(folders):
  assert _unversioned(vendor_declarations.declarations(folders)) == _unversioned(
      vendor_declarations.DECLARATIONS.read_text())


def _unversioned(declarations):
  return [line for line in declarations.splitlines() if not line.startswith("#define")]


def test_declarations_of_the_stand_ins(stand_ins):
  """Parsing the stored declarations as headers returns them unchanged."""
  assert vendor_declarations.declarations([stand_ins]) == (
      vendor_declarations.DECLARATIONS.read_text())


@pytest.mark.parametrize(("found", "instead", "said"), [
    ("int jobvl, int jobvr, int64_t n", "int jobvl, int jobvr, int n", "cusolverDnXgeev"),
    ("const T* alpha,\n              const T* a", "T alpha,\n              const T* a", "trsm"),
    ("kLower = 0, kUpper = 1", "kLower = 1, kUpper = 0", "CUBLAS_FILL_MODE_LOWER"),
])
def test_differences_are_found(found, instead, said, stand_ins, tmp_path):
  header = tmp_path / "kernels/cuda/vendor.h"
  header.parent.mkdir(parents=True)
  text = (ROOT / "kernels/cuda/vendor.h").read_text()
  assert found in text
  header.write_text(text.replace(found, instead))
  assert said in _compile(tmp_path, stand_ins)
