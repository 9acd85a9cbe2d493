"""The sizes at which CPU handlers change algorithm: the constants of kernels/cpu/tuning.h.

Tests read them here, so that no test misses a cut-off that has moved.
"""

import pathlib
import re

_CPU = pathlib.Path(__file__).parents[2] / "kernels" / "cpu"
_TUNING = (_CPU / "tuning.h").read_text()
CONSTANTS = {
    name: int(value) << int(shift or 0)
    for name, value, shift in re.findall(r"\b(k\w+) = (\d+)(?: << (\d+))?[,;]", _TUNING)}


def in_tiles() -> set[str]:
  """The names of the operations of kernels/cpu that have a path in tiles."""
  found = set()
  for file in (*_CPU.glob("*.cc"), *_CPU.glob("*.h")):
    problems = re.split(r"\bstruct (\w+)Problem\b", file.read_text())
    for name, body in zip(problems[1::2], problems[2::2], strict=True):
      if "void RunInTiles(" in body:
        found.add(re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower())
  return found


def _sides(name: str) -> tuple[int, int]:
  """The last order before the cut-off and the first after it."""
  first = CONSTANTS[name] - name.startswith("kLeast")
  return first, first + 1


def about(*names: str) -> tuple[int, ...]:
  """The orders on both sides of some cut-offs."""
  return tuple(sorted({n for name in names for n in _sides(name)}))


def all_orders() -> tuple[int, ...]:
  """The orders below and above every cut-off of orders, except the largest ones."""
  return tuple(sorted({
      CONSTANTS[name] + step for name in CONSTANTS for step in (-1, 0, 1)
      if re.match(r"k(Lane|Tile|Least|Jacobi)", name) and CONSTANTS[name] <= 1024
      and not re.search(r"(Bytes|Operations|Rows|Rhs|Columns)$", name)}))
