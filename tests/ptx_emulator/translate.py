"""Translates PTX files to C++, a file for each kernel, and writes a list of the kernels.

  python tests/ptx_emulator/translate.py FOLDER cholesky.ptx lu.ptx

`FOLDER/kernels.txt` has a line for each kernel: its name, and the name of its file without `.cc`.
The file's name is that of the PTX and a number, because kernels' names are too long for files.
"""

import pathlib
import re
import sys

import instructions
import parse


def translate(kernel: parse.Kernel) -> str:
  body = instructions.Body(kernel)
  lines = []
  for item in kernel.body:
    if isinstance(item, parse.Label):
      lines.append(f"{instructions.label(item.name)}:;")
    elif isinstance(item, parse.Registers):
      lines.append(body.declare(item))
    elif isinstance(item, parse.Statement):
      lines.append(body.statement(item))
    else:
      if item == "{":
        body.begin()
      else:
        body.end()
      lines.append(item)
  text = "\n".join(lines)
  return f"""#include "translated.h"

using namespace ptx;

static void Run(Thread& t) {{
{text}
}}

extern "C" const Kernel kernel = {{&Run, {kernel.shared_bytes}, {kernel.most_threads}}};
"""


def main(folder: pathlib.Path, sources: list[pathlib.Path]) -> None:
  listed, shapes = [], {}
  for source in sources:
    for i, kernel in enumerate(parse.parse(source.read_text())):
      name, text = f"{source.stem}_{i}", translate(kernel)
      (folder / f"{name}.cc").write_text(text)
      listed.append(f"{kernel.name} {name}\n")
      # A linker would take one of them for both. Numbers of registers and labels may differ.
      shape = re.sub(r"\d+", "", text)
      if shapes.setdefault(kernel.name, shape) != shape:
        raise ValueError(f"another file has a different kernel of this name: {kernel.name}")
  (folder / "kernels.txt").write_text("".join(listed))


if __name__ == "__main__":
  main(pathlib.Path(sys.argv[1]), [pathlib.Path(x) for x in sys.argv[2:]])
