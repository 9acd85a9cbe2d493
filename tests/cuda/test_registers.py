"""Compiled kernels stay within their registers, and their passes do not divide per element.

ptxas reports the registers when it compiles the kernels.
"""

import pathlib
import re
import shutil
import subprocess

import jax
import pytest

pytestmark = pytest.mark.extended

ROOT = pathlib.Path(__file__).parents[2]
SOURCES = sorted(path.name for path in (ROOT / "kernels/cuda").glob("*.cu"))


def _compile(source, output, *options):
  """Returns nvcc's messages, with the flags of the build."""
  nvcc = shutil.which("nvcc")
  if nvcc is None:
    pytest.skip("needs nvcc")
  command = [
      nvcc, *options, "-arch=sm_90", "-std=c++20", "-O3", "--expt-relaxed-constexpr",
      "-fmad=false", "-diag-suppress", "1675", "-I", str(ROOT), "-isystem", jax.ffi.include_dir(),
      str(ROOT / "kernels/cuda" / source), "-o", str(output)]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  return done.stderr


@pytest.fixture(params=SOURCES)
def resources(request, tmp_path):
  """Returns ptxas's report for each kernel of a source: (name, registers, stack, spill stores)."""
  said = _compile(request.param, tmp_path / "out.cubin", "-cubin", "-Xptxas", "-v")
  found = re.findall(
      r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores.*?"
      r"Used (\d+) registers", said, re.S)
  return [(name, int(registers), int(stack), int(spilt)) for name, stack, spilt, registers in found]


# Several blocks must fit the registers of a multiprocessor. Launch bounds enforce this for most
# kernels. The excess spills to slow memory, so at most a few words that ptxas chose may spill.
MOST_REGISTERS = 128
MOST_STACK_BYTES, MOST_SPILT_BYTES = 16, 20
# Warps that hold rows of 33 to 64 numbers may use all registers of a thread.
LONG_ROWS = re.compile(r"RunWarps.*Li64E")


def test_registers(resources):
  assert resources
  for name, registers, stack, spilt in resources:
    if not LONG_ROWS.search(name):
      assert registers <= MOST_REGISTERS, f"{name}: {registers} registers"
    assert stack <= MOST_STACK_BYTES, f"{name}: {stack} bytes of local memory"
    assert spilt <= MOST_SPILT_BYTES, f"{name}: {spilt} bytes spilt"


@pytest.mark.parametrize("source", ["cholesky.cu", "lu.cu"])
def test_passes_do_not_divide(source, tmp_path):
  """A 64-bit division is a call of some seventy instructions, many times a pass's work per element.

  Each thread makes one division, for the number of its iterations.
  """
  _compile(source, tmp_path / "out.ptx", "-ptx")
  text = (tmp_path / "out.ptx").read_text()
  entries = re.findall(r"\.entry (\w*(?:RunForEach|RunTranspose)\w*)\((.*?)\n}", text, re.S)
  assert entries
  for name, body in entries:
    divisions = re.findall(r"\b(?:div|rem)\.[su]64", body)
    assert len(divisions) <= 1, f"{name}: {len(divisions)} divisions"


def test_pairs_have_no_remainders(tmp_path):
  """Pairs in a round of Jacobi's method are found by two comparisons, not two remainders.

  Each kernel of teams still has two remainders, by which a thread finds its place.
  """
  _compile("svd.cu", tmp_path / "out.ptx", "-ptx")
  text = (tmp_path / "out.ptx").read_text()
  entries = re.findall(r"\.entry (\w*RunTeams\w*TeamSvd\w*)\((.*?)\n}", text, re.S)
  assert entries
  for name, body in entries:
    assert len(re.findall(r"\brem\.", body)) <= 2, name
