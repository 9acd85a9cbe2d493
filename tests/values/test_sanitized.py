"""What sanitizers find in the algorithms in tiles, in the handlers, and in how these share threads.

The programs touch nothing beside operands and workspaces, do nothing that C++ does not define, and
have no two threads at one place in memory.
"""

import os
import pathlib
import secrets

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


@pytest.mark.timeout(7200 + SECONDS)
@pytest.mark.all_dtypes
def test_handlers(tmp_path, dtype):
  """Calls of random shapes, layouts, attributes and bits, another series at each run.

  LINALG_FUZZ_SECONDS says for how long; a failure tells the call's seed.
  """
  library = _openblas()
  sanitizer = sanitized.Sanitizer(
      tmp_path, "address,undefined", "-march=native",
      f"-DLINALG_TEST_ELEMENT={ELEMENTS[dtype.name]}",
      "-I", str(sanitized.ROOT / "tests/support/one_dtype"), *XLA)
  program = sanitizer.make("handlers", ALONE / "handlers_alone.cc", *HANDLERS, *TILES)
  environment = {"LINALG_TEST_LAPACK": str(library), "OPENBLAS_NUM_THREADS": "1"}
  seed = secrets.randbits(40)
  short = sanitizer.run(program, SECONDS, seed, "--overflow", **environment)
  assert short.returncode != 0 and "heap-buffer-overflow" in short.stderr, short.stderr[-5000:]
  done = sanitizer.run(program, SECONDS, seed, timeout=SECONDS + 100, **environment)
  _done(done)
  assert "never" not in done.stdout, done.stdout
