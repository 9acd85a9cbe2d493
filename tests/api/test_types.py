"""mypy and pyright know the signatures and the results of the public functions."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

import cases
import linalg

FILE = pathlib.Path(__file__).with_name("types_of_results.py")
ROOT = FILE.parents[2]
CHECKERS = {
    "mypy": ("--strict", "--warn-unused-ignores", "--follow-imports=silent", str(FILE)),
    "pyright": (
        "--project", str(FILE.with_name("pyrightconfig.json")), "--pythonpath", sys.executable),
}


@pytest.mark.extended  # each one reads all of JAX
@pytest.mark.parametrize("checker", CHECKERS)
def test_types_of_results(checker):
  if importlib.util.find_spec(checker) is None:
    pytest.skip(f"{checker} is not installed: it is in the extra `dev`")
  done = subprocess.run(
      [sys.executable, "-m", checker, *CHECKERS[checker]], cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr


def test_every_function_is_asserted():
  """Functions that are JAX's own are excluded, because their types are JAX's."""
  text = FILE.read_text()
  asserted = set(re.findall(r"linalg\.(\w+)\(", text))
  functions = {
      name for name in linalg.__all__
      if callable(function := getattr(linalg, name)) and not isinstance(function, type)
      and function.__module__.startswith("linalg")}
  assert functions <= asserted
  assert set(re.findall(r"linalg\.scipy\.(\w+)\(", text)) >= cases.OF_SCIPY
