"""docs/functions.md names a test for what it says; the tests exist, and every function is there."""

import pathlib
import re

import cases
import linalg

TESTS = pathlib.Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "functions.md").read_text()


def test_named_tests_exist():
  named = set(re.findall(r"`(\w+/test_\w+\.py)(?:::(test_\w+))?`", PAGE))
  assert named
  for file, test in named:
    text = (TESTS / file).read_text()
    assert not test or re.search(rf"^def {test}\(", text, re.MULTILINE), (file, test)


def _names(rows):
  return {name for row in rows for name in re.findall(r"`(\w+)", row)}


def _rows(table):
  return re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)


OURS = PAGE[PAGE.index("## What each does") : PAGE.index("## Against the peers")]
COMPOSED, HANDLED, SCIPY = map(_rows, re.split("The functions of the (?:second|third) table", OURS))


def test_all_functions_are_there():
  """Every public function has a row in one of the tables of ours."""
  elsewhere = cases.OF_THE_PACKAGE | {"LinAlgError", "ffi"}
  results = {name for name in linalg.__all__ if name.endswith("Result")}
  # A form in _ex stands in its function's row.
  functions = {
      name.removesuffix("_ex") for name in set(linalg.__all__) - elsewhere - results}
  assert _names(COMPOSED + HANDLED) == functions
  assert _names(SCIPY) == cases.OF_SCIPY


def test_functions_are_in_the_table_of_their_kind():
  """Catches a function with a handler among those that are composed, and the other way round."""
  handled = {target.removeprefix("linalg_") for target in cases.targets("cpu")} & set(
      linalg.__all__)
  of_options = {row for row in COMPOSED if "=" in row}  # of a function that has a handler too
  assert not _names(set(COMPOSED) - of_options) & handled
  assert handled <= _names(HANDLED)
  for table, rows in (
      (cases.COMPOSED, COMPOSED), (cases.CASES, HANDLED), (cases.SCIPY, SCIPY)):
    assert _names(rows) >= set(map(cases.function, table))
