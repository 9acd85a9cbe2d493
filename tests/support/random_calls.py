"""Calls the handlers of the installed module, by the library that `values/test_random_calls.py`
makes from `values/handlers_alone.cc`.

The first argument is that library. The others are the library's own.
"""

import ctypes
import os
import sys

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as in the program with sanitizers

from linalg._core import targets  # noqa: E402

library = ctypes.CDLL(sys.argv[1])
library.AddHandler.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
library.AddHandler.restype = None
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p

targets._cpu.load()
for name, handler in targets._cpu.targets().items():
  library.AddHandler(name.encode(), pointer(handler, None))
arguments = [x.encode() for x in sys.argv[1:]]
sys.exit(library.TryModule(len(arguments), (ctypes.c_char_p * len(arguments))(*arguments)))
