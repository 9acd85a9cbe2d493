"""The algorithms that a team of CUDA threads runs, on the CPU: by threads at the same time.

tests/cuda/phases runs one thread after another, which cannot show that a barrier is missing
between what every thread reads for itself and the next phase, which writes it. ThreadSanitizer
reports two accesses without a barrier in between, in whatever order they came.
"""

import os
import pathlib
import platform
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.extended

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = ["-std=c++20", "-O1", "-g", "-fsanitize=thread", "-pthread", "-ffp-contract=off"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-psabi"]
ELEMENTS = {"float32": "float", "complex128": "linalg::Complex<double>"}
EXIT_CODE = 66


def _run(command):
  options = f"halt_on_error=1:exitcode={EXIT_CODE}"
  return subprocess.run(
      command, env=os.environ | {"TSAN_OPTIONS": options}, capture_output=True, text=True,
      check=False, timeout=550)


def _compiler_and_prefix(folder):
  """The compiler, and what a program made with the sanitizer is to be started by."""
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  source, program = folder / "nothing.cc", folder / "nothing"
  source.write_text("int main() {}")
  made = _run([compiler, *FLAGS, str(source), "-o", str(program)])
  if made.returncode != 0:
    pytest.skip(f"needs a compiler with ThreadSanitizer: {made.stderr[-500:]}")
  # It finds no place for its tables where addresses are very random.
  setarch = shutil.which("setarch")
  prefixes = [[], [setarch, platform.machine(), "-R"]] if setarch else [[]]
  for prefix in prefixes:
    started = _run([*prefix, str(program)])
    if started.returncode == 0:
      return compiler, prefix
  return pytest.skip(f"ThreadSanitizer does not start here: {started.stderr[-500:]}")


def test_races(dtype, tmp_path):
  compiler, prefix = _compiler_and_prefix(tmp_path)
  program = tmp_path / "team_races"
  element = f"-DLINALG_TEST_ELEMENT={ELEMENTS[dtype.name]}"
  subprocess.run(
      [compiler, *FLAGS, *WARNINGS, "-I", str(ROOT), element,
       str(ROOT / "tests/cuda/team_races.cc"), "-o", str(program)], check=True)
  racing = _run([*prefix, str(program), "--race"])
  assert racing.returncode == EXIT_CODE and "data race" in racing.stderr, racing.stderr
  done = _run([*prefix, str(program)])
  assert done.returncode == 0, done.stderr[-10000:]
