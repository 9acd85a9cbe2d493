"""Makes `import linalg` use the handlers of handlers.cc instead of its own.

The environment variable LINALG_PTX names the folder with their library.
"""

import ctypes
import importlib
import os
import pathlib
import types

import jax
from scipy.linalg import cython_lapack

import ptx_library

_library = ptx_library.load(pathlib.Path(os.environ["LINALG_PTX"]))


def _lapack(name: str) -> ctypes.c_void_p:
  get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
  get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
  get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
  capsule = cython_lapack.__pyx_capi__[name]
  return ctypes.c_void_p(get_pointer(capsule, get_name(capsule)))


for _letter in "sdcz":
  _syevd = f"{_letter}syevd" if _letter in "sd" else f"{_letter}heevd"
  _library.set_lapack(
      ctypes.c_char(_letter.encode()), _lapack(_syevd), _lapack(f"{_letter}gesdd"),
      _lapack(f"{_letter}geev"))


_import_module = importlib.import_module


def _with_our_handlers(name: str, package: str | None = None):
  module = _import_module(name, package)
  if not name.startswith("linalg._cpu_"):
    return module
  handlers = dict(module.targets())
  for target in handlers:
    # Targets without a CUDA handler keep the CPU's.
    if address := _library.handler_of(target.encode()):
      handlers[target] = jax.ffi.pycapsule(address)
  members = {key: getattr(module, key) for key in dir(module)}
  return types.SimpleNamespace(**members | {"targets": lambda: handlers})


importlib.import_module = _with_our_handlers

from linalg._core import tuning  # noqa: E402  # with the handlers

# A team has no more shared memory for these.
for _limits in (tuning.POSITIVE_SOLVE_LOGDET, tuning.MOST_COLUMNS_OF_POSITIVE_SOLVE):
  _limits["cpu"] = _limits["cuda"]
