"""Sanitizers and valgrind on the algorithms in tiles, the handlers, and their use of threads.

The programs touch only operands and workspaces, have no undefined behaviour, and have no data
races.
"""

import functools
import os
import pathlib
import platform
import re
import secrets
import shutil

import jax
import pytest

import sanitized
import selection

ALONE = pathlib.Path(__file__).parent
KERNELS = sanitized.ROOT / "kernels"
TILES = sorted((KERNELS / "blocked").glob("*.cc"))
# The Python modules are no handlers.
HANDLERS = [x for x in sorted((KERNELS / "cpu").glob("*.cc")) if x.stem not in ("module", "isa")]
XLA = ("-isystem", jax.ffi.include_dir())
# Set this to hours for a long run.
SECONDS = int(os.environ.get("LINALG_FUZZ_SECONDS", "60"))
# The first test of a program compiles it, which takes minutes, or longer beside other work.
pytestmark = [pytest.mark.extended, pytest.mark.timeout(7200 + SECONDS)]


def _done(done):
  assert done.returncode == 0 and done.stdout.endswith("done\n"), (
      done.stdout[-2000:] + done.stderr[-10000:])


def _done_with_every_target(done):
  _done(done)
  assert "never" not in done.stdout, done.stdout


class Tiles:
  """Compiles the algorithms in tiles once per set of sanitizers, for all programs that use it."""

  def __init__(self, folder, kinds, march="native", compiler="c++"):
    self.kinds, self.flags, self.compiler = kinds, (f"-march={march}",), compiler
    self._folder = folder
    self.objects = self._compile("objects", *TILES)

  def _compile(self, name, *sources):
    compiled = self.sanitizer(self._folder).compile(name, *sources)
    return dict(zip((x.name for x in sources), compiled))

  def sanitizer(self, folder, *flags):
    return sanitized.Sanitizer(folder, self.kinds, *flags, *self.flags, compiler=self.compiler)

  @functools.cached_property
  def _alone(self):
    return self._compile("alone", ALONE / "tiles_alone.cc")

  def program(self, folder, *changed):
    """Builds tiles_alone.cc with these sources instead of the originals of their names."""
    # Changed headers are in the folder, which is searched before the project's.
    sanitizer = self.sanitizer(folder, "-I", str(folder))
    names = {x.name for x in changed}
    others = [x for name, x in (self.objects | self._alone).items() if name not in names]
    program = sanitizer.make("tiles", *changed, objects=others)
    return lambda *arguments, **options: sanitizer.run(program, *map(str, arguments), **options)


@pytest.fixture(scope="module")
def tiles_with(tmp_path_factory):
  """Compiles the algorithms in tiles with sanitizers, or without them for valgrind."""
  return functools.cache(
      lambda *arguments: Tiles(tmp_path_factory.mktemp("tiles"), *arguments))


@pytest.fixture
def tiles(tmp_path, tiles_with):
  return tiles_with("address,undefined").program(tmp_path)


def test_an_overflow_of_tiles_would_be_seen(tiles):
  done = tiles("--overflow")
  assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr, done.stderr[-5000:]


@pytest.mark.parametrize("first, last", [(1, 24), (25, 40), (64, 68), (129, 130)])
def test_tiles(tiles, first, last):
  _done(tiles(first, last))


def test_blocks(tiles):
  _done(tiles("--blocks"))


@pytest.mark.parametrize("kinds", ["thread", "address,undefined"])
def test_tasks(tmp_path, tiles_with, kinds):
  """Catches tasks that touch memory others write, and memory that two calls use at once.

  The tasks are those of factorisations, substitution and spectra.
  """
  _done(tiles_with(kinds).program(tmp_path)("--threads", timeout=1500))


# The lines that keep tasks apart, and a mistake to put in place of each.
RACES = {
    "cholesky, a step ahead on columns of a piece": (
        "blocked/cholesky.cc", "run_tasks, next_last, n_,", "run_tasks, last, n_,"),
    "cholesky, a step ahead in the memory of this one": (
        "blocked/cholesky.cc", "blocks_[(step + 1) % 2]", "blocks_[step % 2]"),
    "cholesky, products that wait for no division": (
        "blocked/cholesky.cc", "{ SubtractProducts(n_, j, end, block); },",
        "{ DivideColumns(j, end, block); SubtractProducts(n_, j, end, block); },"),
    "cholesky's derivative, one piece's columns for all": (
        "blocked/cholesky_derivative.cc",
        "Reversed(n_, x.At(0, begin))", "Reversed(n_, x)"),
    "lu, a step ahead on columns of a piece": (
        "blocked/lu.cc", "run_tasks, next.last, cols_,", "run_tasks, next.first, cols_,"),
    "lu, zeros in columns of other pieces": (
        "blocked/lu.cc", "count = end == n ? work.ld - begin : end - begin;",
        "count = work.ld - begin;"),
    "qr, a step ahead on columns of a piece": (
        "blocked/qr.cc", "run_tasks, next.last, cols_,", "run_tasks, next.first, cols_,"),
    "qr, a step ahead in the memory of this one": (
        "blocked/qr.cc", "vectors_[first / block_size_ % 2]", "vectors_[0]"),
    "q, a step ahead on columns of a piece": (
        "blocked/qr.cc", "run_tasks, first + own, q_cols_,", "run_tasks, first, q_cols_,"),
    "substitution, one piece's columns for all": (
        "blocked/substitution.cc", "piece = x.At(0, begin);", "piece = x;"),
    "eigh, one vector for all pieces of a pass": (
        "blocked/tridiagonalise.h", "sums = others(piece);", "sums = others(0);"),
    "svd, one vector for all pieces of a pass": (
        "blocked/bidiagonalise.h", ".sum = sum_of(piece)", ".sum = sum_of(0)"),
    "halves, columns of other pieces": (
        "blocked/halves_merge.h", "MakeColumns(first, last); });", "MakeColumns(0, last); });"),
    "memory that is taken without a lock": (
        "kept_memory.h", "const std::lock_guard<std::mutex> lock(mutex_);\n      for", "for"),
}


def _users(file):
  """Returns the sources to recompile for a changed file, which are those that include it, even
  indirectly."""
  texts = {x: x.read_text() for x in [
      ALONE / "tiles_alone.cc", *(KERNELS / "blocked").iterdir(), *KERNELS.glob("*.h")]}
  users, new = set(), {KERNELS / file}
  while new:
    users |= new
    lines = [f'#include "{x.relative_to(sanitized.ROOT)}"' for x in new]
    new = {x for x, text in texts.items() if any(line in text for line in lines)} - users
  return [x for x in users if x.suffix == ".cc"]


@pytest.mark.parametrize("file, text, wrong", RACES.values(), ids=RACES)
def test_a_race_would_be_seen(tmp_path, tiles_with, file, text, wrong):
  """Catches tasks that test_tasks no longer runs concurrently, or in which it cannot see a race."""
  right = (KERNELS / file).read_text()
  assert right.count(text) == 1, f"{file} has {right.count(text)} times {text!r}"
  changed = tmp_path / "kernels" / file
  changed.parent.mkdir(parents=True)
  changed.write_text(right.replace(text, wrong))
  sources = (changed if x.name == changed.name else x for x in _users(file))
  sanitized.check_race(tiles_with("thread").program(tmp_path, *sources)("--threads", timeout=1500))


@pytest.mark.parametrize("kinds", ["thread", "address,undefined"])
def test_threads(tmp_path, kinds):
  """Catches a helper that outlives its call, or whose writes the caller may not see."""
  sanitizer = sanitized.Sanitizer(tmp_path, kinds, *XLA)
  program = sanitizer.make("threads", ALONE / "threads_alone.cc", KERNELS / "cpu/blas_threads.cc")
  if kinds == "thread":
    racing = sanitizer.run(program, "--race")
    sanitized.check_race(racing)
  for _ in range(20):
    _done(sanitizer.run(program, timeout=60))


def _openblas():
  """Returns SciPy's OpenBLAS as a library."""
  import scipy

  folder = pathlib.Path(scipy.__file__).parents[1] / "scipy.libs"
  for library in folder.glob("libscipy_openblas*.so"):
    return library
  return pytest.skip(f"needs the OpenBLAS of SciPy's wheels in {folder}")


class Handlers:
  """Builds the program that calls the handlers of a dtype."""

  def __init__(self, folder, dtype, tiles, *flags):
    self._environment = {"LINALG_TEST_LAPACK": str(_openblas()), "OPENBLAS_NUM_THREADS": "1"}
    self._sanitizer = tiles.sanitizer(
        folder, f"-DLINALG_TEST_ELEMENT={sanitized.ELEMENTS[dtype.name]}", "-I",
        str(sanitized.ROOT / "tests/support/one_dtype"), *XLA, *flags)
    self._program = self._sanitizer.make(
        "handlers", ALONE / "handlers_alone.cc", *HANDLERS, objects=tiles.objects.values())

  def run(self, *arguments, **options):
    return self._sanitizer.run(self._program, *arguments, **options, **self._environment)


@pytest.fixture(scope="module")
def sanitized_handlers(tmp_path_factory, tiles_with):
  """Builds the program of a dtype with AddressSanitizer and UndefinedBehaviourSanitizer."""
  return functools.cache(lambda dtype: Handlers(
      tmp_path_factory.mktemp(dtype.name), dtype, tiles_with("address,undefined")))


@selection.all_dtypes
def test_corpus(tmp_path, sanitized_handlers, dtype):
  """Runs the calls that the fuzzer keeps, of every target, without the fuzzer."""
  kept = sanitized.corpus(tmp_path / "corpus")
  done = sanitized_handlers(dtype).run("--corpus", *kept.iterdir())
  _done_with_every_target(done)


@selection.all_dtypes
def test_handlers(sanitized_handlers, dtype):
  """Calls with random shapes, layouts, attributes and bits, different at each run.

  LINALG_FUZZ_SECONDS sets the duration, and a failure prints the seed of the call.
  """
  handlers = sanitized_handlers(dtype)
  seed = secrets.randbits(40)
  short = handlers.run(SECONDS, seed, "--overflow")
  # The sanitizer does not describe a register that is stored across the end.
  assert short.returncode != 0 and re.search(
      "AddressSanitizer: (heap-buffer-overflow|unknown-crash)", short.stderr), short.stderr[-5000:]
  done = handlers.run(SECONDS, seed, timeout=SECONDS + 300)
  _done_with_every_target(done)


@selection.all_dtypes
def test_calls_with_thread_sanitizer(tmp_path, tiles_with, dtype):
  """Catches threads of a call that share memory which each should own, in kept and in random
  calls."""
  handlers = Handlers(tmp_path, dtype, tiles_with("thread"))
  seed = secrets.randbits(40)
  racing = handlers.run(SECONDS, seed, "--race")
  sanitized.check_race(racing)
  kept = sanitized.corpus(tmp_path / "corpus")
  for done in (handlers.run("--corpus", *kept.iterdir()),
               handlers.run(SECONDS, seed, timeout=SECONDS + 300)):
    _done_with_every_target(done)


@selection.all_dtypes
def test_fuzzer(tmp_path, tiles_with, dtype):
  """libFuzzer makes calls from its findings, guided by the code that they reach.

  LINALG_TEST_CLANG names a Clang with libFuzzer. LINALG_FUZZ_CORPUS names a folder of inputs. The
  fuzzer starts with the kept calls and that folder, and adds inputs to it that reach new code.
  """
  compiler = os.environ.get("LINALG_TEST_CLANG", "clang++")
  tiles = tiles_with("fuzzer,address,undefined", "native", compiler)
  handlers = Handlers(tmp_path, dtype, tiles, "-DLINALG_TEST_FUZZER")
  found = pathlib.Path(os.environ.get("LINALG_FUZZ_CORPUS", tmp_path / "found"))
  found.mkdir(exist_ok=True)
  done = handlers.run(
      found, sanitized.corpus(tmp_path / "corpus"), f"-max_total_time={SECONDS}", "-timeout=60",
      "-max_len=512", "-len_control=0", f"-artifact_prefix={found}/", timeout=SECONDS + 500)
  assert done.returncode == 0 and "DONE" in done.stderr, done.stderr[-10000:]


@selection.all_dtypes
def test_memcheck(tmp_path, tiles_with, dtype):
  """Catches reads of uninitialised numbers, which no sanitizer of GCC does."""
  valgrind = shutil.which("valgrind")
  if valgrind is None:
    pytest.skip("needs valgrind")
  if platform.machine() != "x86_64":
    pytest.skip("needs x86-64, of which the level is chosen that valgrind knows")
  handlers = Handlers(tmp_path, dtype, tiles_with(None, "x86-64-v3"))
  memcheck = [
      valgrind, "--quiet", "--error-exitcode=9", "--exit-on-first-error=yes",
      f"--suppressions={sanitized.ROOT / 'tests/support/valgrind.supp'}"]
  seed = secrets.randbits(40)
  short = handlers.run(SECONDS, seed, "--overflow", prefix=memcheck)
  assert short.returncode != 0 and "Invalid write" in short.stderr, short.stderr[-5000:]
  _done(handlers.run(SECONDS, seed, prefix=memcheck, timeout=SECONDS + 500))
