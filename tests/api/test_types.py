"""mypy and pyright know the signatures and the results of the public functions."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest

from linalg._catalogue import CATALOGUE

WRONG = pathlib.Path(__file__).with_name("wrong_types.py")
ROOT = WRONG.parents[2]
PYRIGHT = {
    "extraPaths": [str(ROOT)],
    "typeCheckingMode": "strict",
    "reportUnnecessaryTypeIgnoreComment": "error",
    "enableTypeIgnoreComments": False,
    "reportUnknownMemberType": False,
}
# The types of JAX's own functions are JAX's. Another form of a function, in linalg.scipy or
# linalg.lax, is here where the catalogue has the types of its results.
FUNCTIONS = [
    x for x in CATALOGUE
    if not x.is_stock and (x.module == "linalg" or x.cases or x.results)]
CHECKERS = ("mypy", "pyright")
HEADER = """
from typing import assert_type

from jax import Array, export

import linalg
import linalg.lax
import linalg.scipy
import linalg.structured

Arrays2 = tuple[Array, Array]
Arrays3 = tuple[Array, Array, Array]
Arrays4 = tuple[Array, Array, Array, Array]

assert_type(linalg.__version__, str)


def results(a: Array, flag: bool) -> None:
"""


def _asserted():
  for function in FUNCTIONS:
    for expression, result in function.result_types().items():
      yield f"  assert_type({function.module}.{expression}, {result})\n"


@pytest.mark.extended  # each reads all of JAX
@pytest.mark.parametrize("checker", CHECKERS)
def test_types_of_results(checker, tmp_path):
  if importlib.util.find_spec(checker) is None:
    pytest.skip(f"{checker} is not installed: it is in the extra `dev`")
  files = [tmp_path / "types_of_results.py", tmp_path / WRONG.name]
  files[0].write_text(HEADER + "".join(_asserted()))
  files[1].write_text(WRONG.read_text())
  (tmp_path / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
  arguments = {
      "mypy": ("--strict", "--warn-unused-ignores", "--follow-imports=silent", *files),
      "pyright": ("--project", tmp_path, "--pythonpath", sys.executable)}[checker]
  done = subprocess.run(
      [sys.executable, "-m", checker, *map(str, arguments)], cwd=ROOT, capture_output=True,
      text=True)
  assert done.returncode == 0, done.stdout + done.stderr


def test_every_function_is_asserted():
  asserted = set(re.findall(r"(linalg\.(?:\w+\.)?\w+)\(", "".join(_asserted())))
  assert {f"{x.module}.{name}" for x in FUNCTIONS for name in x.names} <= asserted
