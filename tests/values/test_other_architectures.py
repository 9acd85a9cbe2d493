"""The kernels' arithmetic on arm64, which this machine does not have.

Its instructions are read in a disassembly. Where an emulator exists, its results are compared with
this machine's.
"""

import functools
import os
import pathlib
import platform
import re
import shutil
import subprocess

import jax
import pytest

pytestmark = pytest.mark.extended

ROOT = pathlib.Path(__file__).parents[2]
SOURCE = pathlib.Path(__file__).with_name("fused_products.cc")
ARM = "aarch64-linux-gnu-"
NOT_SUPPORTED = 77


def _tool(*names: str) -> str:
  """Returns the first of the tools that exists."""
  found = next(filter(None, map(shutil.which, names)), None)
  if found is None:
    pytest.skip(f"needs {names[0]}")
  return found


def _flags() -> list[str]:
  """Returns the flags that CMake compiles every level with."""
  text = (ROOT / "CMakeLists.txt").read_text()
  options = re.search(r"target_compile_options\(\s*\$\{module\} PRIVATE (-O3[^)]*)\)", text)
  assert options is not None
  assert "-ffp-contract=off" in options[1]
  # flags that only one compiler takes are left out
  words = (x for x in options[1].split() if not x.startswith("$"))
  return ["-std=c++20", *words, "-Wno-psabi"]


def _compile(compiler, *options, output):
  subprocess.run(
      [_tool(compiler), *_flags(), *options, "-I", str(ROOT), "-isystem", jax.ffi.include_dir(),
       str(SOURCE), "-o", str(output)], check=True)
  return output


@pytest.fixture(scope="module")
def arm_program(tmp_path_factory):
  output = tmp_path_factory.mktemp("arm64") / "fused_products"
  return _compile(f"{ARM}g++", "-static", output=output)


def _instructions(program) -> dict[str, list[str]]:
  """Returns the names of each function's instructions."""
  text = subprocess.run(
      [_tool(f"{ARM}objdump"), "-d", "-C", "--no-show-raw-insn", str(program)],
      check=True, capture_output=True, text=True).stdout
  functions = re.findall(r"^[0-9a-f]+ <(.*)>:\n((?:.+\n)+)", text, re.MULTILINE)
  return {
      name: re.findall(r"^\s*[0-9a-f]+:\t(\S+)", body, re.MULTILINE) for name, body in functions}


def test_sanitizers_on_arm64(tmp_path):
  """Catches errors in lanes that AddressSanitizer and UndefinedBehaviourSanitizer see on arm64."""
  emulator = _tool("qemu-aarch64", "qemu-aarch64-static")
  program = _compile(
      f"{ARM}g++", "-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
      output=tmp_path / "sanitized")
  root = f"/usr/{ARM.rstrip('-')}"  # Debian's path of the libraries
  # The leak search stops threads as a debugger does, which the emulator does not support.
  run = functools.partial(
      subprocess.run, check=False, capture_output=True, text=True,
      env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "QEMU_LD_PREFIX": root})
  done = run([emulator, program])
  assert done.returncode == 0, done.stderr[-5000:]
  assert done.stdout.splitlines()[-1] == "before: 0, within: 1, after: 0"
  short = run([emulator, program, "--overflow"])
  assert short.returncode != 0 and "heap-buffer-overflow" in short.stderr, short.stderr[-5000:]


def test_products_are_fused_on_arm64(arm_program):
  """Catches a product and a sum that are rounded separately, as without a fused instruction."""
  functions = _instructions(arm_program)
  separate = {"fmul", "fadd", "fsub"}
  fused = {name: body for name, body in functions.items() if name.startswith("Fused")}
  assert len(fused) == 5
  for name, body in fused.items():
    assert {"fmadd", "fmla"} & set(body), (name, body)
    assert not separate & set(body), (name, body)
  (cholesky,) = (
      body for name, body in functions.items() if "PrintCholesky<float __vector(4)>" in name)
  # The sums of blocks and the scaling by reciprocals are not fused, but have lower order.
  count = {name: cholesky.count(name) for name in ("fmla", "fmls", "fadd", "fmul")}
  assert count["fmla"] + count["fmls"] > 100, count
  assert count["fadd"] + count["fmul"] < count["fmla"] + count["fmls"], count
  assert "fsqrt" in cholesky


def test_bits_on_arm64(arm_program, tmp_path):
  """arm64 gives the bits of x86-64-v3, and keeps subnormal numbers inside a handler."""
  emulator = _tool("qemu-aarch64", "qemu-aarch64-static")
  actual = subprocess.run([emulator, str(arm_program)], check=True, capture_output=True, text=True)
  assert actual.stdout.splitlines()[-1] == "before: 0, within: 1, after: 0"
  if platform.machine() != "x86_64":
    pytest.skip("compares with x86-64-v3, which this machine does not run")
  # Products are fused explicitly, so the optimisation level makes no difference.
  here = _compile("g++", "-march=x86-64-v3", "-O1", output=tmp_path / "fused_products")
  expected = subprocess.run([here], check=False, capture_output=True, text=True)
  if expected.returncode == NOT_SUPPORTED:
    pytest.skip("compares with x86-64-v3, which this machine does not run")
  assert expected.returncode == 0
  assert actual.stdout == expected.stdout
