"""Names that linalg.distributed has not: errors that say what to use."""

import pathlib
import re

import pytest

import cases
import linalg
import linalg.distributed as dist
from linalg.distributed import _missing

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/distributed.md"


def test_all_of_linalg_is_there_or_named():
  functions = {
      name for name in linalg.__all__
      if callable(getattr(linalg, name)) and not isinstance(getattr(linalg, name), type)}
  functions -= set(cases.OF_THE_PACKAGE)
  assert functions - set(dist.__all__) == set(_missing.INSTEAD)


@pytest.mark.parametrize("name", _missing.INSTEAD)
def test_says_what_to_use(name):
  with pytest.raises(NotImplementedError, match=f"linalg.distributed has no {name}. Use ") as error:
    getattr(dist, name)
  assert not hasattr(dist, name)
  for module, used in re.findall(r"(linalg(?:\.distributed)?)\.(\w+)", str(error.value)[40:]):
    assert used == "distributed" or used in (dist if module.endswith("d") else linalg).__all__


def test_other_names():
  with pytest.raises(AttributeError, match="has no attribute 'nothing'") as error:
    dist.nothing  # noqa: B018
  assert not isinstance(error.value, NotImplementedError)


def test_the_document_has_all():
  _, _, rest = DOCUMENT.read_text().partition("## What is not there")
  assert set(_missing.INSTEAD) <= set(re.findall(r"`(\w+)`", rest))
