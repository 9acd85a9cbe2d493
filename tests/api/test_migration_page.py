"""The pages of migration name the functions that programs of other libraries call, and ours."""

import ast
import importlib.util
import inspect
import os
import pathlib
import re
import types

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import linalg
import linalg.distributed
import linalg.scipy

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGE, OTHERS = ((DOCS / f"{name}.md").read_text() for name in ("migration", "migration_torch"))
VERSION = re.search(r"SciPy (\d+\.\d+)\.", PAGE)[1]
SECTIONS = re.compile(r"^## From .*$", re.M)
JAX, SCIPY, TORCH, CUPY = (x for page in (PAGE, OTHERS) for x in SECTIONS.split(page)[1:])


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
  missing = functions & set(_names(re.search(r"Not here:.*?\n\n", SCIPY, re.S)[0]))
  assert left | missing == functions
  assert not left & missing
  assert not missing & ({*linalg.__all__} | {*linalg.scipy.__all__})


def test_all_of_numpy():
  """The table has NumPy's functions. Its other name is an error, of which ours is a subclass."""
  functions = {x for x in np.linalg.__all__ if inspect.isroutine(getattr(np.linalg, x))}
  assert len(functions) == int(re.search(r"All (\d+) names", JAX)[1])
  assert {name for x, _ in _rows(JAX) for name in _names(x)} == functions
  assert {*np.linalg.__all__} - functions == {"LinAlgError"}
  assert issubclass(linalg.LinAlgError, np.linalg.LinAlgError)


def test_all_of_torch():
  """The functions of the installed PyTorch."""
  torch = pytest.importorskip("torch", reason="PyTorch is not installed")
  version = re.search(r"PyTorch (\d+\.\d+),", TORCH)[1]
  if not torch.__version__.startswith(f"{version}."):
    pytest.skip(f"the page is about PyTorch {version}, this is {torch.__version__}")
  functions = {
      x for x in dir(torch.linalg)
      if not x.startswith("_") and inspect.isbuiltin(getattr(torch.linalg, x))}
  left = {name for x, _ in _rows(TORCH) for name in _names(x)}
  assert len(functions) > 40
  assert {x for x in left if "." not in x} == functions
  assert all(hasattr(torch, x.removeprefix("torch.")) for x in left if "." in x)


def _imported(folder, package, path):
  """The functions that a module of CuPy takes from its other modules, by its text."""
  tree = ast.parse((folder / path / "__init__.py").read_text())
  return {
      name.asname or name.name for x in tree.body if isinstance(x, ast.ImportFrom)
      and x.module.startswith(f"{package}._") for name in x.names if name.name[0] != "_"}


def test_all_of_cupy():
  """The functions of the installed CuPy, or of the checkout that LINALG_CUPY names.

  No program imports it, so that no GPU is needed.
  """
  spec = importlib.util.find_spec("cupy")
  if "LINALG_CUPY" not in os.environ and spec is None:
    pytest.skip("CuPy is not installed, and LINALG_CUPY names no checkout of its repository")
  folder = pathlib.Path(os.environ.get("LINALG_CUPY") or pathlib.Path(spec.origin).parents[1])
  version = re.search(r"CuPy (\d+\.\d+)\.", CUPY)[1]
  found = re.search(r'__version__ = "(.*)"', (
      folder / "cupy/_version.py").read_text().replace("'", '"'))[1]
  if not found.startswith(f"{version}."):
    pytest.skip(f"the page is about CuPy {version}, this is {found}")
  functions = {
      prefix + name for package, path, prefix in (
          ("cupy.linalg", "cupy/linalg", ""), ("cupyx.scipy.linalg", "cupyx/scipy/linalg", ""),
          ("cupyx.linalg", "cupyx/linalg", "cupyx.linalg."))
      for name in _imported(folder, package, path)}
  assert len(functions) > 40
  assert {name for x, _ in _rows(CUPY) for name in _names(x)} == functions


@pytest.mark.parametrize(
    "section", [JAX, SCIPY, TORCH, CUPY], ids=["jax", "scipy", "torch", "cupy"])
def test_what_is_here(section):
  """Each function that the table names as ours exists."""
  rows = _rows(section)
  assert len(rows) > 20
  modules = {"scipy": linalg.scipy, "distributed": linalg.distributed}
  for left, here in rows:
    for name in _names(here):
      if name == "linalg.scipy":
        assert all(hasattr(linalg.scipy, x) for x in _names(left))
        continue
      path = name.split(".")
      if path[0] == "jax":
        assert hasattr(jnp, path[-1])
        continue
      module = modules[path[1]] if len(path) > 2 else linalg
      assert isinstance(getattr(module, path[-1]), types.FunctionType), name
