"""`linalg/_catalogue` has a record of every public function, and each record is complete.

The documentation's generated parts are up to date with it.
"""

import inspect
import pathlib
import re
import subprocess
import sys

import jax.numpy as jnp
import pytest

import cases
import linalg
import linalg.distributed
import linalg.lax
import linalg.scipy
import linalg.structured
from linalg import _verify
from linalg._catalogue import CATALOGUE, functions_of, instead_when_sharded

TESTS = pathlib.Path(__file__).parents[1]
ROOT = TESTS.parent
MODULES = {
    x.__name__: x
    for x in (linalg, linalg.scipy, linalg.lax, linalg.structured, linalg.distributed)}
OF_MATRICES = [
    x for x in CATALOGUE if x.module == "linalg" and x.name not in cases.OF_THE_PACKAGE]
# The handlers that no function calls but in its derivatives, or JAX's, beside those of derivative
# rules.
OF_DERIVATIVES = {
    "linalg_det_cofactors", "linalg_inverse_permutation", "linalg_positive_solve_logdet_factor",
    "linalg_slogdet_inv_transposed", "linalg_solve_slogdet_inv_transposed"}
# The handlers of operations that another operation's fallback or batching rule calls, so that no
# jaxpr of a call shows them, and those of an option that no case has.
WITHIN_OPERATIONS = {
    "linalg_parlett", "linalg_kalman_means", "linalg_block_tridiagonal_chunks",
    "linalg_block_tridiagonal_chunks_solve", "linalg_block_tridiagonal_factor_solve",
    "linalg_block_tridiagonal_inverse_blocks", "linalg_eigh_tridiagonal_rows",
    "linalg_bidiagonal_svd_rows",
    "linalg_eigh_subset", "linalg_eigh_subset_factored", "linalg_eigh_subset_solve",
    "linalg_eigvalsh_subset", "linalg_svd_subset", "linalg_svdvals_subset"}


def _recorded(module):
  return [name for x in CATALOGUE if x.module == module for name in (*x.names, *x.classes)]


@pytest.mark.parametrize("module", MODULES)
def test_names(module):
  """A module's own names have one record each. JAX's functions have one in `linalg` alone."""
  earlier = {id(getattr(linalg, name)) for name in linalg.__all__} if module != "linalg" else {}
  expected = [
      name for name in MODULES[module].__all__ if name != "ffi"
      and id(thing := getattr(MODULES[module], name)) not in earlier
      and (module == "linalg" or thing.__module__.startswith("linalg"))]
  assert sorted(_recorded(module)) == sorted(expected)


def test_names_of_ffi():
  """The page of linalg.ffi, which is about no matrices, is written by hand."""
  page = (ROOT / "docs" / "reference" / "ffi.rst").read_text()
  named = re.findall(r"^\.\. auto(?:function|class|exception):: (\w+)$", page, re.M)
  assert sorted(named) == sorted(linalg.ffi.__all__)


def test_names_of_jax_numpy():
  assert {name for name in dir(jnp.linalg) if name[0] != "_"} <= {x.name for x in OF_MATRICES}


@cases.each_function(CATALOGUE)
def test_record(function):
  """It stands where its name is, and has a summary that is a line of its docstring."""
  assert function.module in function.namespaces
  assert function.summary
  for name in function.names:
    assert inspect.isfunction(inspect.unwrap(getattr(MODULES[function.module], name)))


@cases.each_function([
    x for x in CATALOGUE
    if x in OF_MATRICES or x.module == "linalg.scipy" and x.name in cases.OF_SCIPY])
def test_function_of_matrices(function):
  """A record describes degenerate points, and its first case is the usual one."""
  assert function.behaviours
  if function.cases:
    assert not function.cases[0].variant
  for case in function.cases:
    assert case.composed or case in cases.SCIPY + cases.STRUCTURED or case.kind_of_matrix
    # The values of eigh_tridiagonal alone have a handler, and so the name, of their own.
    name = case.name.replace("eigvalsh_tridiagonal", "eigh_tridiagonal")
    assert f"{name}_".startswith(f"{function.name}_")


@cases.each_function([x for x in CATALOGUE if x.kind.page != "package"])
def test_cases(function):
  """A record has cases, or says why not. Another form of a function is compared with JAX's."""
  assert bool(function.cases) != bool(function.no_cases)
  if not function.cases and function.module in ("linalg.scipy", "linalg.lax"):
    assert function.calls


@cases.each_function([x for x in OF_MATRICES if len(x.names) > 1])
def test_failures(function):
  """A function with `info` says how it fails. LU factors of a singular matrix are no failure."""
  assert function.fails or function.name == "lu"


def test_names_of_cases():
  names = [case.name for case in cases.TABLE]
  assert len(names) == len(set(names))
  shown = {cases.function(case) for case in _verify.cases()}
  assert shown == {x.name for x in CATALOGUE if x.cases}


@cases.each_function(OF_MATRICES)
def test_what_to_use_when_sharded(function):
  """It says so where linalg.distributed lacks a name, and there alone."""
  lacking = set(function.names) - set(linalg.distributed.__all__)
  assert bool(function.sharded) == bool(lacking)
  assert lacking <= instead_when_sharded().keys()


def test_every_handler_is_called():
  """`python -m linalg` says that it runs every operation that has a handler."""
  called = set().union(*map(cases.targets_of, _verify.cases()))
  others = cases.targets("cpu") - called
  others = {x for x in others if not x.endswith(("_jvp", "_vjp"))}
  assert others == OF_DERIVATIVES | WITHIN_OPERATIONS


def test_functions_with_handlers():
  """Catches a function with a handler among those that are composed."""
  handled = {target.removeprefix("linalg_") for target in cases.targets("cpu")}
  composed = {x.name for x in OF_MATRICES if x.is_composed}
  assert handled & functions_of(linalg)
  assert not composed & handled


def test_named_tests_exist():
  """The pages about functions name a test for what they say."""
  pages = [(ROOT / "docs" / f"{x}.md").read_text() for x in ("functions", "peers", "signatures")]
  named = [set(re.findall(r"`(\w+/test_\w+\.py)(?:::(test_\w+))?`", page)) for page in pages]
  assert all(named)
  for file, test in set().union(*named):
    text = (TESTS / file).read_text()
    assert not test or re.search(rf"^def {test}\(", text, re.MULTILINE), (file, test)


@pytest.fixture(scope="module")
def write_pages():
  sys.path.append(str(ROOT / "tools"))
  import write_pages

  yield write_pages
  sys.path.remove(str(ROOT / "tools"))


def test_generated_pages_are_up_to_date(write_pages):
  """`python tools/write_pages.py` writes them."""
  assert [x for x in write_pages.pages() if write_pages.written(x) != x.read_text()] == []


def test_every_part_stands_in_a_page(write_pages):
  """Catches a mark that is not read, and a missing page of the reference."""
  text = "\n".join(page.read_text() for page in write_pages.pages())
  marks = re.findall(r"^(?:<!--|\.\.) generated: ([\w-]+)(?: -->)?$", text, re.M)
  ends = re.findall(r"^(?:<!--|\.\.) end(?: -->)?$", text, re.M)
  assert sorted(marks) == sorted([*write_pages.PARTS, *{x.kind.page for x in CATALOGUE}])
  assert len(ends) == len(marks)


def test_import_leaves_the_catalogue_alone():
  """`import linalg` does not read it, nor do the names that Python asks for before a module."""
  program = (
      "import sys, linalg, linalg.distributed; from linalg import distributed; "
      "hasattr(linalg.distributed, '__wrapped__'); print('linalg._catalogue' in sys.modules)")
  done = subprocess.run(
      [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
  assert done.stdout.strip() == "False"
