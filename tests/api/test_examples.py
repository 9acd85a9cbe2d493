"""The examples in docstrings and the sessions in docs/ run and print the output shown.

They share one process to import JAX once, and none leaves state behind. test_documents.py runs
blocks that are whole programs.
"""

import ast
import doctest
import inspect
import pathlib
import re
import types

import jax
import pytest

import cases
import linalg
import linalg.distributed
import linalg.lax
import linalg.scipy
import linalg.structured
import selection

ROOT = pathlib.Path(__file__).parents[2]
MODULES = (
    linalg, linalg.scipy, linalg.lax, linalg.structured, linalg.distributed, linalg.ffi)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _functions():
  """Returns the public functions written in this package, by their first names."""
  found = {}
  for module in MODULES:
    for name in module.__all__:
      function = getattr(module, name)
      if isinstance(function, types.FunctionType) and function.__module__.startswith("linalg"):
        found.setdefault(function, f"{module.__name__}.{name}")
  return {name: function for function, name in found.items()}


FUNCTIONS = _functions()
# The package's own functions, whose first lines are the whole description.
PLAIN = cases.OF_THE_PACKAGE
SESSIONS = {
    f"{page.name}:{page.read_text().count(chr(10), 0, match.start(1))}": match[1]
    for page in sorted((ROOT / "docs").glob("*.md"))
    for match in re.finditer(r"^```pycon\n(.*?)^```$", page.read_text(), re.M | re.S)}


def test_no_session_is_missed():
  """Catches a prompt in a block that the pattern above does not match."""
  pages = (ROOT / "docs").rglob("*.md")
  prompts = sum(len(re.findall(r"^\s*>>> ", page.read_text(), re.M)) for page in pages)
  assert sum(session.count(">>> ") for session in SESSIONS.values()) == prompts > 0


@pytest.fixture(autouse=True)
def defaults(standard_promotion):
  """JAX has its default settings, as for a reader who types the example."""
  with jax.enable_x64(False):
    yield


def _run(name, text):
  test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
  said = []
  outcome = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)
  assert not outcome.failed, "".join(said)
  return test.examples


@selection.one_in(3)
@selection.extended_for(
    "linalg.scipy.fractional_matrix_power", "linalg.scipy.funm", "linalg.eigh_gauge_error",
    *(f"linalg.distributed.{name}" for name in (
        "batched", "cho_factor", "det", "inv", "lstsq", "lu_factor")))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstring(name):
  examples = _run(name, inspect.getdoc(FUNCTIONS[name]) or "")
  assert any(example.want for example in examples) or name in (
      # This example needs a compiled library: tests/api/test_documents.py.
      "linalg.ffi.register_target")


@pytest.mark.parametrize("kind", [linalg.CholeskyFactor, linalg.LUFactor, linalg.QRFactor])
def test_docstrings_of_objects(kind):
  members = [x for x in vars(kind).values() if isinstance(x, types.FunctionType)]
  assert sum(len(_run(kind.__name__, inspect.getdoc(x) or "")) for x in (kind, *members))


@pytest.mark.parametrize("name", [x for x in FUNCTIONS if x.split(".")[-1] not in PLAIN])
def test_parts_of_docstrings(name):
  text, signature = inspect.getdoc(FUNCTIONS[name]), inspect.signature(FUNCTIONS[name])
  assert "\nArgs:\n" in text or not signature.parameters
  assert "\nReturns:\n" in text or signature.return_annotation in (None, "None")


@pytest.mark.parametrize("place", SESSIONS)
def test_session(place):
  assert any(example.want for example in _run(place, SESSIONS[place]))


ISSUES = sorted((ROOT / "examples" / "issues").glob("jax_*.py"))


@pytest.mark.parametrize("path", ISSUES, ids=lambda path: path.stem)
def test_issue_is_on_the_page(path):
  """Catches a program whose docstring lacks a field, or has a kind without a table. `.ci/run` runs
  the programs."""
  docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
  number = path.stem.removeprefix("jax_")
  fields = re.findall(r"^(\w+): ", docstring, re.M)
  assert fields == ["Issue", "Kind", "Before", "After", "Limits"]
  assert docstring.splitlines()[2].startswith(f"Issue: {number}")
  assert (ROOT / "docs" / "issues.md").read_text().count(f"(../examples/issues/{path.name})") == 1
