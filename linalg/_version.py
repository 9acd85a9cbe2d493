"""The version, from the metadata of the installed distribution."""

import importlib.metadata

__all__ = ["__version__"]

try:
  __version__: str = importlib.metadata.version("jax-linalg")
except importlib.metadata.PackageNotFoundError:  # a source tree that was built in place
  __version__ = "0+unknown"
