"""`python -m linalg run`: a script or a module, unchanged, after `linalg.accelerate()`.

JAX is imported before the script. Environment variables that JAX reads when it is imported must be
set before, not by the script. The script may still set XLA_FLAGS. Processes that it starts are not
accelerated.
"""

import argparse
import importlib.util
import os
import pathlib
import sys
import types
from typing import Any

from linalg._accelerate.switch import accelerate


def _parse(arguments: list[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      prog="python -m linalg run", description=__doc__, allow_abbrev=False,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument(
      "--products", action="store_true", help="small products of matrices too; see accelerate")
  parser.add_argument("-m", dest="is_module", action="store_true", help="PROGRAM is a module")
  parser.add_argument("program", metavar="PROGRAM", help="a script")
  parser.add_argument(
      "arguments", nargs=argparse.REMAINDER, default=[], help="what the program is given")
  options = parser.parse_args(arguments)
  if not options.is_module and not pathlib.Path(options.program).is_file():
    parser.error(f"there is no file {options.program}")
  return options


def _set_path(directory: str) -> None:
  """Sets the first entry of the path as the interpreter does, unless it was told not to."""
  if not sys.flags.safe_path:
    sys.path[0] = directory


def _of_script(name: str) -> tuple[types.CodeType, dict[str, Any]]:
  """A script's code, and the names of its module."""
  path = pathlib.Path(name)
  _set_path(str(path.resolve().parent))
  return compile(path.read_bytes(), name, "exec"), {"__file__": name}


def _of_module(name: str) -> tuple[types.CodeType, dict[str, Any]]:
  """The code and the names of a module or a package's `__main__`, found as `python -m` finds
  them."""
  _set_path(os.getcwd())
  spec = importlib.util.find_spec(name)
  if spec is not None and spec.submodule_search_locations is not None:
    spec = importlib.util.find_spec(f"{name}.__main__")
  loader: Any = spec and spec.loader
  code = loader.get_code(spec.name) if spec and hasattr(loader, "get_code") else None
  if spec is None or code is None:
    raise ImportError(f"there is no code of a module {name}")
  return code, {
      "__file__": spec.origin, "__cached__": spec.cached, "__loader__": spec.loader,
      "__package__": spec.parent, "__spec__": spec}


def main(arguments: list[str]) -> int:
  options = _parse(arguments)
  accelerate(products=options.products)
  sys.argv = [options.program, *options.arguments]
  code, names = (_of_module if options.is_module else _of_script)(options.program)
  sys.argv[0] = names["__file__"]
  # Threads and pickles look for the module here.
  program = types.ModuleType("__main__")
  program.__dict__.update(names, __builtins__=__builtins__)
  sys.modules["__main__"] = program
  exec(code, program.__dict__)
  return 0
