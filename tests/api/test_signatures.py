"""Each function has the signature of the one that it follows, in the installed JAX."""

import inspect

import pytest

from counterparts import FOLLOWING, PAIRS
from linalg._catalogue import CATALOGUE

OF_MATRICES = [x for x in CATALOGUE if x.module == "linalg" and x.kind.page != "package"]


def _parameters(function):
  return [(x.name, x.kind, x.default) for x in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", FOLLOWING)
def test_signature(name):
  """Parameters have the same names, kinds, order and defaults, except keyword-only ones of ours.

  docs/signatures.md names these, and the functions that follow none.
  """
  ours, followed = map(_parameters, PAIRS[name])
  if name == "lu":
    followed = [("a", *rest) for _, *rest in followed]
  added = FOLLOWING[name].own_parameters
  assert [x for x in ours if x[0] not in added] == followed


def test_order_of_modules():
  """jax.numpy.linalg is followed before jax.scipy.linalg, and that before jax.lax.linalg."""
  assert {x.name: x.follows for x in OF_MATRICES if x.follows} == {
      "lu": "jax.lax.linalg.lu", "eigh_generalized": "jax.scipy.linalg.eigh"}
