"""lineax's own tests, from a checkout of its repository, with the solvers of `linalg.lineax`.

  git clone --branch v0.1.1 https://github.com/patrick-kidger/lineax
  LINALG_LINEAX_TESTS=lineax/tests pytest -m extended tests/api/test_lineax_suite.py

The test modules are loaded twice. Once, LU, QR, SVD, Cholesky and Tridiagonal stand in the place of
lineax's, and tests that take a solver take these alone. Then BlockTridiagonal and its operator,
with blocks of one element, stand in the place of lineax's Tridiagonal and its operator, and are the
only ones. The files that are about neither solvers nor operators are left out.
"""

import importlib.util
import itertools
import os
import pathlib
import sys
import types

import jax
import jax.numpy as jnp
import pytest

lx = pytest.importorskip("lineax", reason="lineax is optional, and is not installed")
FOLDER = os.environ.get("LINALG_LINEAX_TESTS")
if not FOLDER:
  pytest.skip(
      "LINALG_LINEAX_TESTS does not name the folder of lineax's tests", allow_module_level=True)

import linalg.lineax as solvers  # noqa: E402

pytestmark = pytest.mark.extended

OURS = {
    name: getattr(solvers, name) for name in ("LU", "QR", "SVD", "Cholesky", "Tridiagonal")}
FILES = (
    "invert", "jvp", "jvp_jvp1", "jvp_jvp2", "misc", "singular", "solve", "vmap", "vmap_jvp",
    "vmap_vmap", "well_posed")
OF_BLOCKS = ("adjoint", "operator", "transpose", "well_posed")


@pytest.fixture
def getkey():
  return pytest.importorskip("equinox.internal").GetKey()


@pytest.fixture(autouse=True)
def few_programs():
  """lineax runs each of its files alone. One process has too little memory for all programs."""
  yield
  if next(_COUNT) % 20 == 0:
    jax.clear_caches()


_COUNT = itertools.count(1)


class _Lineax:
  """lineax with other solvers."""

  def __init__(self, others):
    self.__dict__.update(others)

  def __getattr__(self, name):
    return getattr(lx, name)


def _blocks(getkey, matrix, tags):
  """An operator of blocks of one element, as lineax's make_tridiagonal_operator makes its own."""
  del getkey
  below, diagonal, above = (jnp.diag(matrix, k)[:, None, None] for k in (-1, 0, 1))
  if tags == lx.symmetric_tag:
    below = above
  if tags == lx.diagonal_tag:
    below = above = jnp.zeros_like(below)
  operator = solvers.BlockTridiagonalLinearOperator(below, diagonal, above)
  return operator if tags == lx.tridiagonal_tag else lx.TaggedLinearOperator(operator, tags)


def _module(package: str, name: str) -> types.ModuleType:
  path = pathlib.Path(FOLDER) / f"{name}.py"
  spec = importlib.util.spec_from_file_location(f"{package}.{name}", path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module
  spec.loader.exec_module(module)
  return module


def _load(package, others, files, prepare):
  """lineax's modules `test_…` of a package of their own, where `lx` has the other solvers."""
  sys.modules[package] = types.ModuleType(package)
  sys.modules[package].__path__ = [FOLDER]
  originals = {name: getattr(lx, name) for name in others}
  try:
    for name, solver in others.items():
      setattr(lx, name, solver)
    helpers = _module(package, "helpers")
    prepare(helpers)
    modules = {name: _module(package, f"test_{name}") for name in files}
  finally:
    for name, solver in originals.items():
      setattr(lx, name, solver)
  for module in (helpers, *modules.values()):
    if hasattr(module, "lx"):
      module.lx = _Lineax(others)
  return modules


def _ours_alone(helpers):
  ours = [
      x for x in helpers.solvers_tags_pseudoinverse
      if isinstance(getattr(x[0], "inner_solver", x[0]), tuple(OURS.values()))]
  helpers.solvers_tags_pseudoinverse[:] = ours
  helpers.solvers_tags[:] = [x[:2] for x in ours]
  helpers.solvers[:] = [x[0] for x in ours]
  helpers.pseudosolvers_tags[:] = [x[:2] for x in ours if x[2]]


def _of_blocks_alone(helpers):
  tridiagonal = lx.tridiagonal_tag
  helpers.solvers_tags_pseudoinverse[:] = [
      x for x in helpers.solvers_tags_pseudoinverse if x[1] == tridiagonal]
  helpers.make_tridiagonal_operator = _blocks
  helpers.make_operators[:] = [_blocks]


_LOADED = (
    ("", _load("lineax_tests", OURS, FILES, _ours_alone)),
    ("blocks_", _load("lineax_tests_of_blocks", {"Tridiagonal": solvers.BlockTridiagonal},
                      OF_BLOCKS, _of_blocks_alone)))
for _prefix, _modules in _LOADED:
  for _file, _loaded in _modules.items():
    for _name, _test in list(vars(_loaded).items()):
      if _name.startswith("test_"):
        globals()[f"test_{_prefix}{_file}_{_name[5:]}"] = _test
      elif _name.startswith("Test"):
        globals()[f"Test{(_prefix + _file).title()}{_name[4:]}"] = _test
