"""docs/migration.md names the functions that programs of other libraries call, and ours."""

import pathlib
import re
import types

import jax.numpy as jnp
import pytest
import scipy.linalg

import linalg
import linalg.scipy

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "migration.md").read_text()
VERSION = re.search(r"SciPy (\d+\.\d+)\.", PAGE)[1]
JAX, SCIPY, TORCH = re.split(r"^## From .*$", PAGE, flags=re.M)[1:]


def _names(text):
  return re.findall(r"`([\w.]+)`", text)


def _rows(section):
  """The two columns: the name elsewhere, and the name here."""
  rows = re.findall(r"^\| (`[^|]*) \| (?:([^|]*) \| )?[^|]* \|$", section, re.M)
  return [(left, here or left) for left, here in rows]


@pytest.mark.skipif(
    not scipy.__version__.startswith(VERSION + "."), reason=f"the page is about SciPy {VERSION}")
def test_all_of_scipy():
  functions = {
      name for name in scipy.linalg.__all__
      if callable(thing := getattr(scipy.linalg, name)) and not isinstance(thing, type)}
  left = {name for x, _ in _rows(SCIPY) for name in _names(x)}
  missing = set(_names(SCIPY[SCIPY.index("Not here:") :]))
  internal = {"find_best_blas_type"}
  assert left | missing | internal == functions
  assert not left & missing
  assert not missing & ({*linalg.__all__} | {*linalg.scipy.__all__})


@pytest.mark.parametrize("section", [JAX, SCIPY, TORCH], ids=["jax", "scipy", "torch"])
def test_what_is_here(section):
  """Each function that the table names as ours exists."""
  rows = _rows(section)
  assert len(rows) > 20
  for left, here in rows:
    for name in _names(here):
      if name == "linalg.scipy":
        assert all(hasattr(linalg.scipy, x) for x in _names(left))
        continue
      path = name.split(".")
      if path[0] == "jax":
        assert hasattr(jnp, path[-1])
        continue
      module = linalg.scipy if path[:2] == ["linalg", "scipy"] else linalg
      assert isinstance(getattr(module, path[-1]), types.FunctionType), name
