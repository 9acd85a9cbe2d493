"""benchmarks/crossovers/: each file names existing constants, and each row has its measurement."""

import importlib.util
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "crossovers"
README = (FOLDER / "README.md").read_text()
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}
MEASURED = {"machine", "date", "operation", "compares"}
ESTIMATED = {"estimate", "operation", "compares", "note"}
OPTIONAL = {
    "command", "dtype", "n", "shape", "batch", "rhs", "threads", "quiet", "ratio", "seconds",
    "note"}


def _is_old(date):
  """Whether a row of that date, or range of dates, may lack its command."""
  last = date[-1] if isinstance(date, list) else date
  return last == "not recorded" or last <= "2026-11-26"


def _is_number(value):
  """Whether this is a number, a range, or a missing value."""
  if isinstance(value, list):
    known = [x for x in value if x != "not recorded"]
    return len(value) == 2 and all(map(_is_number, value)) and known == sorted(known)
  return value == "not recorded" or isinstance(value, int | float) and value >= 0


def _check(found):
  assert found.keys() == {"constants", "source", "rows"}
  sources = "".join((ROOT / path).read_text() for path in found["source"].split(", "))
  for constant in found["constants"]:
    assert re.search(rf"\b{constant}\b", sources), constant
  assert found["rows"]
  for row in found["rows"]:
    required = ESTIMATED if row.get("estimate") else MEASURED
    assert required <= row.keys() <= required | OPTIONAL, row
    assert len(row["compares"]) == 2, row
    assert row.keys() & {"command", "estimate"} or _is_old(row["date"]), row
    assert row.keys() & {"ratio", "seconds", "estimate"}, row
    assert all(map(_is_number, [row.get("ratio", 1), *row.get("seconds", [])])), row


@pytest.mark.parametrize("name", FILES)
def test_file(name):
  _check(json.loads(FILES[name].read_text()))


def test_files_that_sources_name():
  """Every file that a comment of the kernels names exists."""
  sources = [path.read_text() for path in (ROOT / "kernels").rglob("*") if path.is_file()]
  named = {name for text in sources for name in re.findall(r"\b(c(?:pu|uda)_\w+)\.json", text)}
  assert named <= FILES.keys()


# benchmarks/crossover.py

CONSTANTS = [
    name for path in FILES.values() for name in json.loads(path.read_text())["constants"]
    if json.loads(path.read_text())["source"] == "kernels/cpu/tuning.h"]


def _load():
  spec = importlib.util.spec_from_file_location("crossover", ROOT / "benchmarks" / "crossover.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


crossover = _load()


@pytest.mark.parametrize("constant", CONSTANTS)
def test_another_value(constant):
  text = (ROOT / "kernels/cpu/tuning.h").read_text()
  if re.search(rf"double {constant} =", text):
    pytest.skip("a time or a number of operations")
  assert crossover.backend_of(constant) == "cpu"
  lines = zip(text.splitlines(), crossover.with_value(text, constant, 7).splitlines(), strict=True)
  ((_, changed),) = [pair for pair in lines if pair[0] != pair[1]]
  assert f"{constant} = 7" in changed


def _run(seconds):
  return {
      "machine": {"platform": "cpu", "cpu": "Some CPU", "cores": 2}, "date": "2026-11-27T01:00",
      "cells": [
          {"op": "cholesky", "n": 44, "batch": 1, "dtype": "f32", "seconds": {"ours": seconds}},
          {"op": "cholesky", "n": 48, "batch": 1, "dtype": "f32", "skipped": "for a reason"}]}


def test_what_is_written(tmp_path):
  """The README's command appends the least times of both builds to the existing rows."""
  (line,) = re.findall(r"^python benchmarks/crossover.py (.*)$", README, re.M)
  args = crossover.parse_arguments(line.split())
  assert (args.constant, args.values) == ("kLaneCholesky", [43, 65])
  rows = crossover.rows_of(
      [_run(3.0), _run(2.0)], [_run(4.0), _run(5.0)], args.compares, "the command")
  path = crossover.file_of(args.constant, "cpu", tmp_path)
  assert path == tmp_path / "cpu_lane_cholesky.json"
  for count in (1, 2):
    crossover.add_rows(path, rows)
    assert crossover.file_of(args.constant, "cpu", tmp_path) == path
    _check(json.loads(path.read_text()))
    assert len(json.loads(path.read_text())["rows"]) == count
  assert rows[0]["seconds"] == [2.0, 4.0] and rows[0]["ratio"] == 0.5
