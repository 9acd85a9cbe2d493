"""Names that linalg.distributed does not have: the errors say what to use."""

import importlib
import re

import jax.numpy as jnp
import numpy as np
import pytest

import cases
import linalg
import linalg.distributed as dist
from linalg._catalogue import functions_of, instead_when_sharded
from one_matrix import N, place

INSTEAD = instead_when_sharded()


def test_all_of_linalg_is_there_or_named():
  functions = functions_of(linalg) - cases.OF_THE_PACKAGE
  assert functions - set(dist.__all__) == set(INSTEAD)
  assert {name for name in vars(jnp.linalg) if name[0] != "_"} <= functions


@pytest.mark.parametrize("call", [
    dist.newton_schulz, lambda a: dist.polar(a, method="gram"),
    lambda a: dist.gram_inverse_pth_root(a, 2)])
def test_square(call):
  """Functions for tall matrices refuse one that is sharded over both dimensions, and name
  alternatives."""
  with pytest.raises(NotImplementedError, match="Use linalg.distributed.lu_factor.*reshard"):
    call(place(np.eye(N), "both"))


@pytest.mark.parametrize("name", INSTEAD)
def test_says_what_to_use(name):
  with pytest.raises(NotImplementedError, match=f"linalg.distributed has no {name}. Use ") as error:
    getattr(dist, name)
  assert not hasattr(dist, name)
  _, instead = str(error.value).split(" Use ")
  named = re.findall(r"((?:jax|linalg)(?:\.\w+)*)\.(\w+)", instead)
  for module, used in named:
    found = importlib.import_module(module)
    assert hasattr(found, used), (module, used)
    assert module.startswith("jax") or used in found.__all__, (module, used)
  assert named or name == "congruence"


def test_import_of_a_name():
  """Python has its own error for it."""
  with pytest.raises(ImportError, match="cannot import name 'schur' from 'linalg.distributed'"):
    from linalg.distributed import schur  # type: ignore[attr-defined]  # noqa: F401


def test_other_names():
  with pytest.raises(AttributeError, match="has no attribute 'nothing'") as error:
    dist.nothing  # noqa: B018
  assert not isinstance(error.value, NotImplementedError)
