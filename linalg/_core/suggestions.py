"""Names of `linalg.scipy` that users may look for in `linalg`."""

import importlib
import importlib.util
from typing import NoReturn


def refuse(name: str) -> NoReturn:
  """Raises the error for a name that the package does not have."""
  place = f": it is linalg.scipy.{name}, after `import linalg.scipy`." if _in_scipy(name) else ""
  raise AttributeError(f"module 'linalg' has no attribute {name!r}{place}", name=name)


def _in_scipy(name: str) -> bool:
  # Python asks for the attribute before it imports a submodule by `from linalg import scipy`.
  if name.startswith("_") or importlib.util.find_spec(f"linalg.{name}"):
    return False
  return name in importlib.import_module("linalg.scipy").__all__
