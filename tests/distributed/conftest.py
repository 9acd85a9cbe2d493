"""Programs of few phases, for tests of one matrix on several devices."""

import jax
import pytest

from linalg.distributed import _cyclic, _reflectors


@pytest.fixture
def all_phases():
  """A mark for tests of the phases themselves, and of what they move."""


@pytest.fixture(autouse=True)
def few_phases(request, monkeypatch):
  """Few phases make programs compile faster."""
  if "all_phases" not in request.fixturenames:
    monkeypatch.setattr(_cyclic, "_PHASES", 2)


@pytest.fixture
def in_a_grid(monkeypatch):
  """Few devices form a grid for reflectors, as many do by default.

  Traces of compiled functions do not show it, so none may be left.
  """
  jax.clear_caches()
  monkeypatch.setattr(_reflectors, "_MOST_ROWS", 1)
  yield
  jax.clear_caches()
