"""linalg.__version__ is the version of the distribution."""

import importlib.metadata
import pathlib
import re
import runpy
import tomllib

import pytest

import linalg
from linalg import _version

ROOT = pathlib.Path(__file__).parents[2]


def test_version(monkeypatch):
  run = lambda: runpy.run_path(_version.__file__)["__version__"]
  assert isinstance(linalg.__version__, str) and linalg.__version__
  monkeypatch.setattr(importlib.metadata, "version", lambda name: f"1.2.3 of {name}")
  assert run() == "1.2.3 of jax-linalg"

  def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)

  monkeypatch.setattr(importlib.metadata, "version", missing)
  assert run() == "0+unknown"


def test_version_of_the_installed_distribution():
  try:
    installed = importlib.metadata.version("jax-linalg")
  except importlib.metadata.PackageNotFoundError:
    pytest.skip("jax-linalg is not installed: this is a source tree that was built in place")
  assert linalg.__version__ == installed


def test_version_of_the_citation():
  project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
  citation = (ROOT / "CITATION.cff").read_text()
  assert re.findall(r"^version: (.*)$", citation, re.M) == [project["version"]]
  # The wheels' licence also covers the code that is linked into them.
  assert re.findall(r"^license: (.*)$", citation, re.M) == [project["license"].split(" AND ")[0]]


def test_conda_recipe_is_of_the_project():
  project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
  recipe = (ROOT / "packaging/conda/recipe.yaml").read_text()
  assert re.findall(r'^  version: "(.*)"$', recipe, re.M) == [project["version"]]
  assert re.findall(r"^  license: (.*)$", recipe, re.M) == [project["license"]]
  (run,) = re.findall(r"^  run:\n((?:    - .*\n)+)", recipe, re.M)
  needed = [line.removeprefix("    - ").replace(" ", "") for line in run.splitlines()]
  assert needed == ["python" + project["requires-python"], *project["dependencies"]]
