"""The translation of PTX to C++ rejects unknown instructions, and has PTX's arithmetic."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
KERNEL = """
.version 9.0
.target sm_80
.address_size 64
.visible .entry some_kernel(
  .param .u64 some_kernel_param_0
)
{{
  .reg .b32 %r<3>;
  .reg .f32 %f<3>;
  .reg .pred %p<3>;
  {}
  ret;
}}
"""


def _translate(statement, folder, *others):
  sources = []
  for i, x in enumerate((statement, *others)):
    sources.append(folder / (f"other{i}.ptx" if i else "some.ptx"))
    sources[-1].write_text(KERNEL.format(x))
  return subprocess.run(
      [sys.executable, HERE / "translate.py", folder, *sources], capture_output=True, text=True,
      check=False)


def test_known_opcode(tmp_path):
  done = _translate("@!%p1 add.s32 %r1, %r2, -1;", tmp_path)
  assert done.returncode == 0, done.stderr
  assert "if (!r_p1) { r_r1 = " in (tmp_path / "some_0.cc").read_text()
  assert (tmp_path / "kernels.txt").read_text() == "some_kernel some_0\n"


def test_different_kernels_of_one_name_are_an_error(tmp_path):
  """A linker would take one for both. One that two files share differs in registers' numbers."""
  done = _translate("add.s32 %r1, %r2, -1;", tmp_path, "add.s32 %r2, %r1, -1;")
  assert done.returncode == 0, done.stderr
  done = _translate("add.s32 %r1, %r2, -1;", tmp_path, "sub.s32 %r1, %r2, -1;")
  assert done.returncode != 0
  assert "a different kernel of this name: some_kernel" in done.stderr


@pytest.mark.parametrize("statement", [
    "tanh.approx.f32 %f1, %f2;",
    "add.ftz.f32 %f1, %f2, %f2;",  # a modifier that changes the result
    "add.rn.sat.f32 %f1, %f2, %f2;",
    "setp.lt.and.s32 %p1, %r1, %r2, %p2;",
    "shfl.sync.up.b32 %r1, %r2, 1, 0, -1;",
    "ld.volatile.shared.f32 %f1, [%r1];",
    "atom.global.add.u32 %r1, [%r1], 1;",
    "bar.arrive 1, 64;",
])
def test_unknown_opcodes_are_named(statement, tmp_path):
  done = _translate(statement, tmp_path)
  assert done.returncode != 0
  assert f"line 12 of some_kernel: tests/ptx_emulator knows no opcode {statement.split()[0]}" in (
      done.stderr)


@pytest.mark.parametrize("text", ["call.uni some_function;", ".local .b8 stack[16];"])
def test_unknown_syntax_is_an_error(text, tmp_path):
  done = _translate(text, tmp_path)
  assert done.returncode != 0
  assert text.split()[0] in done.stderr


def test_arithmetic(tmp_path):
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  program = tmp_path / "arithmetic"
  subprocess.run(
      [compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined",
       "-fno-sanitize-recover=all", "-I", HERE.parents[1], HERE / "arithmetic_test.cc", "-o",
       program], check=True)
  done = subprocess.run([program], capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.extended
def test_nothing_is_byte_by_byte(library):
  """Catches a shared-memory access of unknown alignment, which the compiler splits into bytes."""
  for path in sorted(library.glob("*.ptx")):
    found = re.findall(r"\b(?:ld|st)\.shared\.[bsu]8\b", path.read_text())
    assert not found, f"{path.name}: {len(found)} accesses to a byte"
