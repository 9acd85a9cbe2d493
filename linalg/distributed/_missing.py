"""The functions that linalg.distributed lacks, and what to use for each."""

from typing import NoReturn


class Missing(NotImplementedError, AttributeError):
  """The error for a missing name. It is an AttributeError, so that `hasattr` works."""


def refuse(name: str) -> NoReturn:
  """Raises the error for a name that the module lacks."""
  if instead := _instead(name):
    raise Missing(f"linalg.distributed has no {name}. Use {instead}.")
  raise AttributeError(f"module 'linalg.distributed' has no attribute {name!r}")


def _instead(name: str) -> str | None:
  if name.startswith("_"):  # Python and its tools look these up
    return None
  from linalg import _catalogue  # _catalogue imports this module

  return _catalogue.instead_when_sharded().get(name)
