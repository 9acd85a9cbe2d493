"""What sanitizers and valgrind find in the algorithms in tiles, in the handlers, and in how these
share threads.

The programs touch nothing beside operands and workspaces, do nothing that C++ does not define, and
have no two threads at one place in memory.
"""

import os
import pathlib
import platform
import secrets
import shutil

import jax
import pytest

import sanitized

pytestmark = pytest.mark.extended

ALONE = pathlib.Path(__file__).parent
KERNELS = sanitized.ROOT / "kernels"
TILES = sorted((KERNELS / "blocked").glob("*.cc"))
# The Python modules are no handlers.
HANDLERS = [x for x in sorted((KERNELS / "cpu").glob("*.cc")) if x.stem not in ("module", "isa")]
ELEMENTS = {
    "float32": "float", "float64": "double", "complex64": "std::complex<float>",
    "complex128": "std::complex<double>"}
XLA = ("-isystem", jax.ffi.include_dir())
# Hours on demand.
SECONDS = int(os.environ.get("LINALG_FUZZ_SECONDS", "60"))


def _done(done):
  assert done.returncode == 0 and done.stdout.endswith("done\n"), (
      done.stdout[-2000:] + done.stderr[-10000:])


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
  sanitizer = sanitized.Sanitizer(
      tmp_path_factory.mktemp("tiles"), "address,undefined", "-march=native")
  program = sanitizer.make("tiles", ALONE / "tiles_alone.cc", *TILES)
  return lambda *arguments: sanitizer.run(program, *map(str, arguments))


def test_it_would_be_seen(tiles):
  done = tiles("--overflow")
  assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr, done.stderr[-5000:]


@pytest.mark.parametrize("first, last", [(1, 24), (25, 40), (64, 68), (129, 130)])
def test_tiles(tiles, first, last):
  _done(tiles(first, last))


def test_blocks(tiles):
  _done(tiles("--blocks"))


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kinds", ["thread", "address,undefined"])
def test_tasks(tmp_path, kinds):
  """Catches tasks of Cholesky, LU, QR or substitution that touch what others write, and memory of
  one call that another has while it is used."""
  sanitizer = sanitized.Sanitizer(tmp_path, kinds, "-march=native")
  program = sanitizer.make("tiles", ALONE / "tiles_alone.cc", *TILES)
  _done(sanitizer.run(program, "--threads", timeout=1500))


@pytest.mark.parametrize("kinds", ["thread", "address,undefined"])
def test_threads(tmp_path, kinds):
  """Catches a helper of a call that outlives it, or what it writes that the caller may not see."""
  sanitizer = sanitized.Sanitizer(tmp_path, kinds, *XLA)
  program = sanitizer.make("threads", ALONE / "threads_alone.cc", KERNELS / "cpu/blas_threads.cc")
  if kinds == "thread":
    racing = sanitizer.run(program, "--race")
    assert racing.returncode == sanitized.RACE and "data race" in racing.stderr, racing.stderr
  for _ in range(20):
    _done(sanitizer.run(program, timeout=60))


def _openblas():
  """SciPy's, as a library."""
  import scipy

  folder = pathlib.Path(scipy.__file__).parents[1] / "scipy.libs"
  for library in folder.glob("libscipy_openblas*.so"):
    return library
  return pytest.skip(f"needs the OpenBLAS of SciPy's wheels in {folder}")


class Handlers:
  """The program that calls the handlers of a dtype."""

  def __init__(self, folder, dtype, kinds, *flags, compiler="c++"):
    self._environment = {"LINALG_TEST_LAPACK": str(_openblas()), "OPENBLAS_NUM_THREADS": "1"}
    self._sanitizer = sanitized.Sanitizer(
        folder, kinds, f"-DLINALG_TEST_ELEMENT={ELEMENTS[dtype.name]}", "-I",
        str(sanitized.ROOT / "tests/support/one_dtype"), *XLA, *flags, compiler=compiler)
    self._program = self._sanitizer.make(
        "handlers", ALONE / "handlers_alone.cc", *HANDLERS, *TILES)

  def run(self, *arguments, **options):
    return self._sanitizer.run(self._program, *arguments, **options, **self._environment)


@pytest.mark.timeout(7200 + SECONDS)
@pytest.mark.all_dtypes
def test_handlers(tmp_path, dtype):
  """Calls of random shapes, layouts, attributes and bits, another series at each run.

  LINALG_FUZZ_SECONDS says for how long; a failure tells the call's seed.
  """
  handlers = Handlers(tmp_path, dtype, "address,undefined", "-march=native")
  seed = secrets.randbits(40)
  short = handlers.run(SECONDS, seed, "--overflow")
  assert short.returncode != 0 and "heap-buffer-overflow" in short.stderr, short.stderr[-5000:]
  done = handlers.run(SECONDS, seed, timeout=SECONDS + 100)
  _done(done)
  assert "never" not in done.stdout, done.stdout


@pytest.mark.timeout(7200 + SECONDS)
@pytest.mark.all_dtypes
def test_fuzzer(tmp_path, dtype):
  """Calls that libFuzzer makes of what it has found, by the code that they reach.

  LINALG_TEST_CLANG names a Clang that has it; the calls that reach what none before them did are
  added to those in the folder that LINALG_FUZZ_CORPUS names.
  """
  compiler = os.environ.get("LINALG_TEST_CLANG", "clang++")
  handlers = Handlers(
      tmp_path, dtype, "fuzzer,address,undefined", "-march=native", "-DLINALG_TEST_FUZZER",
      compiler=compiler)
  found = pathlib.Path(os.environ.get("LINALG_FUZZ_CORPUS", tmp_path / "found"))
  found.mkdir(exist_ok=True)
  done = handlers.run(
      found, f"-max_total_time={SECONDS}", "-timeout=60", "-max_len=512",
      f"-artifact_prefix={found}/", timeout=SECONDS + 500)
  assert done.returncode == 0 and "DONE" in done.stderr, done.stderr[-10000:]


@pytest.mark.timeout(7200 + SECONDS)
@pytest.mark.all_dtypes
def test_memcheck(tmp_path, dtype):
  """Catches numbers that are read before they are written, which no sanitizer of GCC's does."""
  valgrind = shutil.which("valgrind")
  if valgrind is None:
    pytest.skip("needs valgrind")
  if platform.machine() != "x86_64":
    pytest.skip("needs x86-64, of which the level is chosen that valgrind knows")
  handlers = Handlers(tmp_path, dtype, None, "-march=x86-64-v3")
  memcheck = [
      valgrind, "--quiet", "--error-exitcode=9", "--exit-on-first-error=yes",
      f"--suppressions={sanitized.ROOT / 'tests/support/valgrind.supp'}"]
  seed = secrets.randbits(40)
  short = handlers.run(SECONDS, seed, "--overflow", prefix=memcheck)
  assert short.returncode != 0 and "Invalid write" in short.stderr, short.stderr[-5000:]
  _done(handlers.run(SECONDS, seed, prefix=memcheck, timeout=SECONDS + 500))
