"""A copy of a library of build.py with a fault in one of its kernels.

  python tests/cuda/ptx/mutate.py FOLDER NEW_FOLDER KERNEL FAULT [NUMBER]

KERNEL is a regular expression for the kernel's name, FAULT the name of a function below, and NUMBER
says which of the places where it could be. Prints the line of the PTX that was changed.
"""

import pathlib
import re
import shutil
import sys

import parse
import translate


def _statements(kernel, pattern):
  return [x for x in kernel.body
          if isinstance(x, parse.Statement) and re.fullmatch(pattern, x.opcode)]


def no_barrier(kernel, number):
  statement = _statements(kernel, r"bar\.(warp\.)?sync")[number]
  kernel.body.remove(statement)
  return statement.line


def no_wait_for_copies(kernel, number):
  statement = _statements(kernel, r"cp\.async\.wait_all")[number]
  kernel.body.remove(statement)
  return statement.line


def half_a_warp(kernel, number):
  """In the mask of a barrier, whatever it was."""
  statement = _statements(kernel, r"bar\.warp\.sync")[number]
  statement.operands[-1] = "65535"
  return statement.line


def half_a_warp_shuffles(kernel, number):
  statement = _statements(kernel, r"(shfl|redux|vote)\.sync.*")[number]
  statement.operands[-1] = "65535"
  return statement.line


def eight_bytes_too_little(kernel, number):
  """All of its arrays begin 8 bytes later in the shared memory that the launch asks for."""
  kernel.shared = {name: begin + 8 for name, begin in kernel.shared.items()}
  return 0


def one_too_many(kernel, number):
  """In a comparison, as of a loop's counter with its end."""
  statement = _statements(kernel, r"setp\.(lt|ge)\.[su]32")[number]
  statement.opcode = statement.opcode.replace(".lt.", ".le.").replace(".ge.", ".gt.")
  return statement.line


def next_element(kernel, number):
  """Of shared memory, in the place of the one meant."""
  statement = _statements(kernel, r"(ld|st)\.shared\.f32")[number]
  place = 1 if statement.opcode.startswith("ld") else 0
  base, offset = re.fullmatch(r"\[(%\w+)(?:\+(-?\d+))?\]", statement.operands[place]).groups()
  statement.operands[place] = f"[{base}+{int(offset or 0) + 4}]"
  return statement.line


def main(folder, new, pattern, fault, number="0"):
  new.mkdir()
  for path in folder.iterdir():
    # Compiled kernels are linked with the library that they were made for.
    if path.suffix == ".cc" or path.name in ("compile", "kernels.txt", "libcuda_on_cpu.so"):
      shutil.copy(path, new)
  listed = dict(x.split() for x in (new / "kernels.txt").read_text().splitlines())
  (name,) = [x for x in listed if re.search(pattern, x)]
  source, _, place = listed[name].rpartition("_")
  kernel = list(parse.parse((folder / f"{source}.ptx").read_text()))[int(place)]
  print(globals()[fault](kernel, int(number)))
  (new / f"{listed[name]}.cc").write_text(translate.translate(kernel))


if __name__ == "__main__":
  main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), *sys.argv[3:])
