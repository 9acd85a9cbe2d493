"""Parses the kernels of a PTX file that nvcc writes: parameters, shared memory, statements."""

import dataclasses
import re
from collections.abc import Iterator


@dataclasses.dataclass
class Statement:
  """An instruction `@predicate opcode operands;`.

  The predicate is optional. `line` is its line in the file.
  """

  line: int
  predicate: str
  opcode: str
  operands: list[str]


@dataclasses.dataclass
class Registers:
  """The type of registers, and their names without `%`."""

  type: str
  names: list[str]


@dataclasses.dataclass
class Label:
  name: str


# `{` and `}` are scopes of registers.
Item = Statement | Registers | Label | str


@dataclasses.dataclass
class Kernel:
  name: str
  parameters: list[str]
  most_threads: int  # per block
  shared: dict[str, int]  # offset of each array in shared memory
  shared_bytes: int  # without the dynamic array, which begins here
  body: list[Item]


class UnknownSyntax(Exception):
  pass


_ITEM = re.compile(r"\s*(?:([{}])|([$\w]+):|([^;]+);)")
_STATEMENT = re.compile(r"(@!?%\w+\s+)?([a-z][\w.]*)(?:\s+(.*)|)", re.S)
_SHARED = re.compile(r"\.shared \.align (\d+) \.b8 ([\w$]+)\[(\d+)\]")
_DYNAMIC = re.compile(r"\.extern \.shared \.align (\d+) \.b8 ([\w$]+)\[\];")
_ENTRY = re.compile(r"(?:\.visible |\.weak )?\.entry ([\w$]+)\(")
_PARAMETER = re.compile(r"\.param (?:\.align \d+ )?\.\w+ ([\w$]+)(?:\[\d+\])?")
# File-level lines outside kernels.
_HEAD = re.compile(r"\.(version|target|address_size) .*")
_BOUNDS = re.compile(r"\.maxntid (\d+), 1, 1|\.minnctapersm \d+|\)|")
# The largest alignment that a dynamic array may need. The size of other arrays is rounded up to it.
_ALIGNMENT = 16


def split_operands(text: str) -> list[str]:
  """Splits at commas outside braces and brackets."""
  return [x.strip() for x in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+", text)]


def parse(text: str) -> Iterator[Kernel]:
  lines = [re.sub(r"//.*", "", line).strip() for line in text.split("\n")]
  dynamic: list[str] = []
  i = 0
  while i < len(lines):
    line = lines[i]
    i += 1
    if found := _DYNAMIC.fullmatch(line):
      if int(found[1]) > _ALIGNMENT:
        raise UnknownSyntax(line)
      dynamic.append(found[2])
    elif found := _ENTRY.match(line):
      name, parameters, most_threads = found[1], [], 1024
      rest = line[found.end():]
      while rest != "{":
        if found := _PARAMETER.fullmatch(rest.rstrip(",)")):
          parameters.append(found[1])
        elif found := _BOUNDS.fullmatch(rest):
          most_threads = int(found[1] or most_threads)
        else:
          raise UnknownSyntax(f"line {i}: {rest}")
        rest = lines[i]
        i += 1
      end = lines.index("}", i)
      while lines[i:end].count("{") != lines[i:end].count("}"):
        end = lines.index("}", end + 1)
      yield _kernel(name, parameters, most_threads, dynamic, lines[i:end], i)
      i = end + 1
    elif line and not _HEAD.fullmatch(line):
      raise UnknownSyntax(f"line {i}: {line}")


def _kernel(name, parameters, most_threads, dynamic, lines, first) -> Kernel:
  shared: dict[str, int] = {}
  size = 0
  body: list[Item] = []
  for line, item in _items("\n".join(lines), first):
    if not isinstance(item, str) or item in "{}":
      body.append(item)
    elif found := _SHARED.fullmatch(item):
      alignment = int(found[1])
      shared[found[2]] = (size + alignment - 1) // alignment * alignment
      size = shared[found[2]] + int(found[3])
    elif item.startswith(".reg"):
      body.append(_registers(item))
    elif not item.startswith(".pragma"):
      raise UnknownSyntax(f"line {line}: {item}")
  size = (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
  return Kernel(
      name, parameters, most_threads, shared | dict.fromkeys(dynamic, size), size, body)


def _items(text: str, first: int) -> Iterator[tuple[int, Item]]:
  """Yields lines and items; directives are their text."""
  at, line = 0, first + 1
  text = text.rstrip()
  while at < len(text):
    found = _ITEM.match(text, at)
    if found is None:
      raise UnknownSyntax(f"line {line}: {text[at:at + 200]}")
    brace, label, statement = found.groups()
    start = found.start(found.lastindex)
    line += text.count("\n", at, start)
    if brace:
      yield line, brace
    elif label:
      yield line, Label(label)
    elif statement[0] == ".":
      yield line, " ".join(statement.split())
    elif parts := _STATEMENT.fullmatch(statement.strip()):
      predicate, opcode, operands = parts.groups()
      yield line, Statement(
          line, (predicate or "").strip(), opcode, split_operands(operands or ""))
    else:
      raise UnknownSyntax(f"line {line}: {statement}")
    line += text.count("\n", start, found.end())
    at = found.end()


def _registers(item: str) -> Registers:
  _, kind, *rest = item.split()
  names = []
  for name in "".join(rest).split(","):
    found = re.fullmatch(r"%?(\w+)(?:<(\d+)>)?", name)
    if found is None:
      raise UnknownSyntax(item)
    names += [f"{found[1]}{i}" for i in range(int(found[2]))] if found[2] else [found[1]]
  return Registers(kind[1:], names)
