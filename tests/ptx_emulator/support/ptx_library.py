"""Loads the library that tests/ptx_emulator/build.py makes: handlers of kernels/cuda for the
CPU."""

import ctypes
import pathlib


def load(folder: pathlib.Path) -> ctypes.CDLL:
  """Loads the library in the folder. `handler_of` returns the address of a target's handler."""
  (path,) = folder.glob("lib*.so")
  library = ctypes.CDLL(str(path))
  library.handler_of.restype = ctypes.c_void_p
  return library
