"""The table of targets in kernels/handlers.h, which also has the notation of operands."""

import pathlib
import re
from typing import Any, NamedTuple

import numpy as np

_TABLE = (pathlib.Path(__file__).parents[2] / "kernels" / "handlers.h").read_text()
_ROW = re.compile(
    r'visit\((?P<name>linalg_\w+), (?P<backends>kBoth|CpuOnly\("[^"]+"\)), '
    r'"(?P<operands>[^">]+) > (?P<results>[^"]+)"(?P<attributes>(?:, "\w+")*)\)')


class Target(NamedTuple):
  """A row of the table."""

  cuda: bool
  operands: tuple[str, ...]
  results: tuple[str, ...]
  attributes: tuple[str, ...]


# In the table's order.
TARGETS = {
    row["name"]: Target(
        row["backends"] == "kBoth", tuple(row["operands"].split()), tuple(row["results"].split()),
        tuple(re.findall(r"\w+", row["attributes"])))
    for row in _ROW.finditer(re.sub(r'"\s+"', "", re.sub(r"\s*\\\n\s*", " ", _TABLE)))}

# Values for the attributes that count. The others are of type bool.
ATTRIBUTES = {"count": np.int64(2), "start": np.int64(1)}

DOUBLE = {"T": np.float64, "R": np.float64, "C": np.complex128, "I": np.int32}


def sizes(m: int, n: int, k: int) -> dict[str, int]:
  """The size that each letter stands for. P, which only has a lower bound, is k."""
  short = min(m, n)
  return {
      "m": m, "n": n, "k": k, "X": short, "Q": short, "V": short, "H": max(m - 1, 0),
      "J": max(n - 1, 0), "P": k,
      "W": k + 1, "S": n, "U": k}


def types(
    tokens: tuple[str, ...], b: int, m: int, n: int, k: int
) -> list[tuple[tuple[int, ...], Any]]:
  """The shapes and dtypes of operands or results in double precision, for a batch of b."""
  size = sizes(m, n, k)
  return [
      ((*((b,) * (not x.endswith("!"))), *(size[letter] for letter in x[1:].rstrip("!"))),
       DOUBLE[x[0]])
      for x in tokens]


def rank(token: str) -> int:
  """The number of core dimensions of an operand or result."""
  return len(token[1:].rstrip("!"))
