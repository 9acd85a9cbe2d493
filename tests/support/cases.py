"""The package's table of operations, as the suites choose from it."""

import re

import jax
import numpy as np
import pytest

from linalg import _targets
from linalg._cases import COMPOSED, DECOMPOSITIONS, DTYPES, Case

__all__ = ["CASES", "COMPOSED", "DTYPES", "Case", "each", "has_handlers", "named", "with_handlers"]

CASES = DECOMPOSITIONS
RECTANGULAR_CASES = tuple(case for case in CASES if case.rectangular)
DIFFERENTIABLE_CASES = tuple(case for case in CASES if case.differentiable)


def each(some):
  """A test for each of some cases."""
  return pytest.mark.parametrize("case", some, ids=lambda case: case.name)


def named(name: str) -> Case:
  (case,) = (case for case in CASES + COMPOSED if case.name == name)
  return case


def has_handlers(case: Case, platform: str) -> bool:
  """Whether it calls a target that is registered for a platform."""
  operands = case.operands(np.random.default_rng(0), (2,), 4, 4, np.float32)
  targets = set(re.findall(r"\blinalg_\w+", str(jax.make_jaxpr(case.results)(*operands))))
  return any(platform in _targets.platforms(target) for target in targets)


def with_handlers(platform: str) -> list[Case]:
  return [case for case in CASES if has_handlers(case, platform)]
