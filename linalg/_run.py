"""`python -m linalg run`: a script or a module, unchanged, after `linalg.accelerate()`.

JAX is imported before the script: what the script puts into `os.environ` for JAX to read when it is
imported must be in the environment already. XLA_FLAGS may still be set by the script. Processes
that it starts are not accelerated.
"""

import argparse
import os
import pathlib
import runpy
import sys
import types

from linalg._accelerate import accelerate


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
  """As the interpreter does, unless it was told not to."""
  if not sys.flags.safe_path:
    sys.path[0] = directory


def main(arguments: list[str]) -> int:
  options = _parse(arguments)
  accelerate(products=options.products)
  sys.argv = [options.program, *options.arguments]
  if options.is_module:
    _set_path(os.getcwd())
    runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    return 0
  path = pathlib.Path(options.program)
  _set_path(str(path.resolve().parent))
  # The module stays where threads and pickles look for it.
  script = types.ModuleType("__main__")
  script.__dict__.update(__file__=str(path), __builtins__=__builtins__)
  sys.modules["__main__"] = script
  exec(compile(path.read_bytes(), str(path), "exec"), script.__dict__)
  return 0
