"""The functions that linalg.distributed lacks, and what to use for each."""

from typing import NoReturn


class Missing(NotImplementedError, AttributeError):
  """A name that is not there: no attribute, to programs that ask what a module has."""


def refuse(name: str) -> NoReturn:
  """Raises the error of a name that the module has not."""
  if instead := _instead(name):
    raise Missing(f"linalg.distributed has no {name}. Use {instead}.")
  raise AttributeError(f"module 'linalg.distributed' has no attribute {name!r}")


def _instead(name: str) -> str | None:
  if name.startswith("_"):  # as Python and its tools ask for
    return None
  from linalg import _catalogue  # which imports this module

  return _catalogue.instead_when_sharded().get(name)
