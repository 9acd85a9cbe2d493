"""C++ programs built with sanitizers, or for valgrind, for tests that run them."""

import concurrent.futures
import os
import pathlib
import platform
import shutil
import subprocess

import pytest

import target_table

ROOT = pathlib.Path(__file__).parents[2]
# The dtypes that handlers_alone.cc is compiled for.
ELEMENTS = {
    "float32": "float", "float64": "double", "complex64": "std::complex<float>",
    "complex128": "std::complex<double>"}
# The exit status of a program in which ThreadSanitizer finds a race.
_RACE = 66
# The compiler decides whether stack frames are kept to detect use after return. Clang keeps them.
# GCC 12 would align them to 32 bytes, and its own stores of 64 bytes would fault.
_OPTIONS = {
    "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=1",
    "UBSAN_OPTIONS": "abort_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": f"halt_on_error=1:exitcode={_RACE}",
}
# The flags of the modules, except for optimization.
_FLAGS = [
    "-std=c++20", "-O1", "-g1", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
    "-pthread", "-I", str(ROOT)]
_WARNINGS = ["-Wall", "-Wextra", "-Wno-psabi", "-Wno-maybe-uninitialized"]


def _run(*command, timeout=500, **environment):
  return subprocess.run(
      [str(x) for x in command], env=os.environ | _OPTIONS | environment, capture_output=True,
      text=True, check=False, timeout=timeout)


class Sanitizer:
  """Makes programs with `address,undefined` or `thread` in a folder, and runs them.

  Without `kinds`, they are for valgrind. The test is skipped where no compiler supports the
  sanitizer. `fuzzer` needs Clang, which gives the program a main function.
  """

  def __init__(self, folder, kinds, *flags, compiler="c++"):
    found = shutil.which(compiler)
    if found is None:
      pytest.skip(f"needs a C++ compiler, {compiler}")
    self._folder = folder
    self._compile = [found, *flags, *_FLAGS]
    self._link = []
    if kinds:
      main = kinds.replace("fuzzer", "fuzzer-no-link")
      self._compile += [f"-fsanitize={main}", "-fno-sanitize-recover=all"]
      self._link = [f"-fsanitize={kinds}"]
    self._compile += _WARNINGS if compiler == "c++" else ["-w"]
    source, program = folder / "nothing.cc", folder / "nothing"
    source.write_text("int main() {}")
    made = _run(*self._compile, source, "-o", program)
    if made.returncode != 0:
      pytest.skip(f"needs a compiler with {kinds}: {made.stderr[-500:]}")
    # ThreadSanitizer finds no space for its tables where addresses are very random.
    setarch = shutil.which("setarch")
    for self._prefix in ([], [setarch, platform.machine(), "-R"] if setarch else []):
      started = _run(*self._prefix, program)
      if started.returncode == 0:
        return
    pytest.skip(f"the sanitizer does not start here: {started.stderr[-500:]}")

  def compile(self, name, *sources):
    """The object files of these sources, which are compiled in parallel."""
    folder = self._folder / name
    folder.mkdir()

    def compile(i):
      made = _run(*self._compile, "-c", sources[i], "-o", folder / f"{i}.o", timeout=3000)
      assert made.returncode == 0, made.stderr[-5000:]
      return folder / f"{i}.o"

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
      return list(pool.map(compile, range(len(sources))))

  def make(self, name, *sources, objects=(), options=()):
    """The program of these sources and of existing object files."""
    folder = self._folder / name
    objects = [*self.compile(name, *sources), *objects]
    linked = _run(*self._compile, *self._link, *options, *objects, "-ldl", "-o", folder / name)
    assert linked.returncode == 0, linked.stderr[-5000:]
    return folder / name

  def run(self, program, *arguments, prefix=(), **options):
    return _run(*self._prefix, *prefix, program, *arguments, **options)


def check_race(done):
  """Checks a program that has a race, to show that races are detected."""
  assert done.returncode == _RACE and "data race" in done.stderr, (
      done.stdout[-2000:] + done.stderr[-5000:])


def corpus(folder):
  """A folder with a file for each kept call, and for each first byte alone.

  libFuzzer keeps calls that reach new code. The first byte selects the target, so none is left out.
  A line of the file names the target, because that byte counts the rows of kernels/handlers.h.
  """
  folder.mkdir()
  rows = list(target_table.TARGETS)
  calls = {f"{byte:02x}" for byte in range(256)}
  for line in (ROOT / "tests/values/fuzzer_corpus.txt").read_text().splitlines():
    target, _, rest = line.partition(" ")
    calls.add(f"{rows.index(target):02x}{rest}")
  for call in calls:
    (folder / call).write_bytes(bytes.fromhex(call))
  return folder
