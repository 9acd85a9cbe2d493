"""The algorithms in tiles under AddressSanitizer and UndefinedBehaviourSanitizer: they touch
nothing beside operands and workspaces, and do nothing that C++ does not define."""

import os
import pathlib
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.extended

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = [
    "-std=c++20", "-O1", "-g1", "-march=native", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
    "-Wno-psabi", "-I", str(ROOT)]


def _run(*command):
  options = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
  return subprocess.run(
      command, env=os.environ | options, capture_output=True, text=True, check=False, timeout=500)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  folder = tmp_path_factory.mktemp("sanitized")
  nothing = folder / "nothing.cc"
  nothing.write_text("int main() {}")
  made = _run(compiler, *FLAGS, str(nothing), "-o", str(folder / "nothing"))
  if made.returncode != 0:
    pytest.skip(f"needs a compiler with AddressSanitizer: {made.stderr[-500:]}")
  sources = [ROOT / "tests/values/tiles_alone.cc", *sorted((ROOT / "kernels/blocked").glob("*.cc"))]
  done = _run(compiler, *FLAGS, *map(str, sources), "-o", str(folder / "tiles"))
  assert done.returncode == 0, done.stderr[-5000:]
  return str(folder / "tiles")


def test_it_would_be_seen(program):
  done = _run(program, "--overflow")
  assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr, done.stderr[-5000:]


@pytest.mark.parametrize("first, last", [(1, 24), (25, 40), (64, 68), (129, 130)])
def test_tiles(program, first, last):
  done = _run(program, str(first), str(last))
  assert done.returncode == 0 and done.stdout == "done\n", done.stderr[-10000:]
