"""docs/functions.md names a test for what it says; the tests exist, and every function is there."""

import pathlib
import re

import linalg

TESTS = pathlib.Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "functions.md").read_text()


def test_named_tests_exist():
  named = set(re.findall(r"`(\w+/test_\w+\.py)(?:::(test_\w+))?`", PAGE))
  assert named
  for file, test in named:
    text = (TESTS / file).read_text()
    assert not test or re.search(rf"^def {test}\(", text, re.MULTILINE), (file, test)


def test_all_functions_are_there():
  """Every public function has a row in one of the tables of ours."""
  elsewhere = {
      "LinAlgError", "checked", "export_disabled_checks", "ffi", "include_dir", "show_config"}
  results = {name for name in linalg.__all__ if name.endswith("Result")}
  tables = PAGE[: PAGE.index("## Against the peers")]
  rows = re.findall(r"^\| (`[^|]*) \|", tables, re.MULTILINE)
  named = {name for row in rows for name in re.findall(r"`(\w+)", row)}
  # A form in _ex stands in its function's row.
  functions = {
      name.removesuffix("_ex") for name in set(linalg.__all__) - elsewhere - results}
  assert named == functions
