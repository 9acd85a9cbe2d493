"""The signatures that docs/functions.md names match those of the installed JAX.

The page lists every function of the same name in other libraries.
"""

import inspect
import re

import pytest

import cases
import linalg
from namesakes import FOLLOWED, MODULES, PAIRS, ROWS, SECTION

# Keyword-only parameters that the page lists as this package's own.
ADDED = {
    name: set(re.findall(r"(\w+)=", options))
    for name, options in re.findall(r"`(\w+)\((\w+=[^)]*)\)`", SECTION)}
WITHOUT_NAMESAKE = set(re.findall(
    r"`(\w+)`", re.search(r"(`[^.]*) have no\s+namesake\.", SECTION)[1]))
OURS = cases.OF_THE_PACKAGE | WITHOUT_NAMESAKE | {"eigh_generalized"}


def _parameters(function):
  return [(x.name, x.kind, x.default) for x in inspect.signature(function).parameters.values()]


def test_every_function_has_a_row():
  functions = {
      name for name in linalg.__all__
      if callable(getattr(linalg, name)) and not inspect.isclass(getattr(linalg, name))}
  # no function is in two rows
  assert len(FOLLOWED) == sum(len(functions) for _, functions, _ in ROWS)
  assert FOLLOWED.keys() == {x for x in functions if not x.endswith("_ex")} - OURS


@pytest.mark.parametrize("name", sorted(WITHOUT_NAMESAKE))
def test_without_namesake(name):
  assert not [module for module in MODULES if hasattr(MODULES[module], name)]


@pytest.mark.parametrize("name", FOLLOWED)
def test_signature(name):
  """Names, kinds, order and defaults of the parameters."""
  ours, followed = map(_parameters, PAIRS[name])
  if name == "lu":
    followed = [("a", *rest) for _, *rest in followed]
  added = ADDED.get(name, set())
  assert all(kind == inspect.Parameter.KEYWORD_ONLY for x, kind, _ in ours if x in added)
  assert [x for x in ours if x[0] not in added] == followed


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1][0]}")
def test_namesakes(row):
  """The page gives the order in which modules are followed, and who else has the name."""
  follows, functions, namesakes = row
  for name in functions:
    having = [module for module in MODULES if hasattr(MODULES[module], name)]
    assert follows == ("jax.lax.linalg" if name == "lu" else having[0])
    assert [module for module in having if module != follows] == [x.strip() for x in namesakes]
