"""Random calls of the handlers in each installed module, without Python and XLA.

test_sanitized.py compiles the handlers with sanitizers for similar calls, which takes long. Here
each operand and result lies between guard pages.
"""

import functools
import os
import secrets
import subprocess
import sys

import jax
import pytest

import sanitized
from linalg._core import targets

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(sys.platform != "linux", reason="maps memory as Linux does")]
ALL_DTYPES = True

VALUES = sanitized.ROOT / "tests/values"
# Set this to hours for a long run.
SECONDS = int(os.environ.get("LINALG_FUZZ_SECONDS", "5"))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
  """Returns a function that calls a module with elements of a dtype."""

  @functools.cache
  def of(dtype):
    compiler = sanitized.Sanitizer(
        tmp_path_factory.mktemp(dtype.name), None, "-fPIC", "-DLINALG_TEST_MODULE",
        f"-DLINALG_TEST_ELEMENT={sanitized.ELEMENTS[dtype.name]}", "-isystem",
        jax.ffi.include_dir())
    return compiler.make("calls.so", VALUES / "handlers_alone.cc", options=["-shared"])

  return of


def _run(library, level, *arguments, timeout=300):
  program = sanitized.ROOT / "tests/support/random_calls.py"
  return subprocess.run(
      [sys.executable, program, library, *map(str, arguments)], capture_output=True, text=True,
      env=os.environ | {"LINALG_ISA": level, "JAX_PLATFORMS": "cpu"}, check=False, timeout=timeout)


def _done(done):
  assert done.returncode == 0 and done.stdout.endswith("done\n"), (
      done.stdout[-2000:] + done.stderr[-5000:])
  assert "never" not in done.stdout, done.stdout


@pytest.mark.timeout(1200 + SECONDS)
@pytest.mark.parametrize("level", targets.usable_levels())
def test_random_calls(library, level, dtype, tmp_path):
  """Catches reads or writes outside operands and results, and bits that depend on threads or old
  memory.

  The calls include those that the fuzzer keeps. LINALG_FUZZ_SECONDS sets the duration, and a
  failure prints the seed of the call.
  """
  run = functools.partial(_run, library(dtype), level)
  seed = secrets.randbits(40)
  short = run(60, seed, "--overflow")
  assert short.returncode != 0 and "memory was touched" in short.stderr, short.stderr[-5000:]
  _done(run("--corpus", *sanitized.corpus(tmp_path / "corpus").iterdir()))
  _done(run(SECONDS, seed, timeout=SECONDS + 300))
