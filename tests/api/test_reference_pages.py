"""Every public name stands once in the pages of docs/reference."""

import pathlib
import re

import pytest

import linalg
import linalg.distributed
import linalg.lax
import linalg.scipy

PAGES = pathlib.Path(__file__).parents[2] / "docs" / "reference"
MODULES = {
    module.__name__: module
    for module in (linalg, linalg.scipy, linalg.lax, linalg.distributed, linalg.ffi)}


def _named(module):
  """The names in the pages that have it for their module."""
  text = "".join(
      page.read_text() for page in PAGES.glob("*.rst")
      if re.search(rf"^\.\. currentmodule:: {module}$", page.read_text(), re.M))
  return re.findall(r"^\.\. auto(?:function|class|exception):: (\w+)$", text, re.M)


@pytest.mark.parametrize("module", MODULES)
def test_names(module):
  """Those of JAX, and those that are another module's, are listed by the page itself."""
  documented = {id(getattr(linalg, name)) for name in linalg.__all__} if module != "linalg" else {}
  expected = [
      name for name in MODULES[module].__all__ if name != "ffi"
      and id(thing := getattr(MODULES[module], name)) not in documented
      and (module in ("linalg", "linalg.ffi") or thing.__module__.startswith("linalg"))]
  assert sorted(_named(module)) == sorted(expected)
