"""benchmarks/crossovers/: each file names constants that exist, and each row what it measured."""

import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "crossovers"
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}
MEASURED = {"machine", "date", "command", "operation", "compares"}
ESTIMATED = {"estimate", "operation", "compares", "note"}
OPTIONAL = {"dtype", "n", "shape", "batch", "rhs", "threads", "quiet", "ratio", "seconds", "note"}


def _is_number(value):
  """Whether this is a number or a range of them, or one that nobody wrote down."""
  if isinstance(value, list):
    return len(value) == 2 and all(map(_is_number, value)) and value[0] <= value[1]
  return value == "not recorded" or isinstance(value, int | float) and value >= 0


@pytest.mark.parametrize("name", FILES)
def test_file(name):
  found = json.loads(FILES[name].read_text())
  assert found.keys() == {"constants", "source", "rows"}
  sources = "".join((ROOT / path).read_text() for path in found["source"].split(", "))
  for constant in found["constants"]:
    assert re.search(rf"\b{constant}\b", sources), constant
  assert found["rows"]
  for row in found["rows"]:
    required = ESTIMATED if row.get("estimate") else MEASURED
    assert required <= row.keys() <= required | OPTIONAL, row
    assert len(row["compares"]) == 2, row
    assert row.keys() & {"ratio", "seconds", "estimate"}, row
    assert all(map(_is_number, [row.get("ratio", 1), *row.get("seconds", [])])), row


def test_files_that_sources_name():
  """Each file that a comment of the kernels names is there."""
  sources = [path.read_text() for path in (ROOT / "kernels").rglob("*") if path.is_file()]
  named = {name for text in sources for name in re.findall(r"\b(c(?:pu|uda)_\w+)\.json", text)}
  assert named <= FILES.keys()
