"""`python -m linalg run`: a script or a module, unchanged, after `linalg.accelerate()`.

JAX is imported before the script: what the script puts into `os.environ` for JAX to read when it is
imported must be in the environment already. XLA_FLAGS may still be set by the script.
"""

import argparse
import os
import runpy
import sys

from linalg._accelerate import accelerate


def _parse(arguments: list[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      prog="python -m linalg run", description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument(
      "--products", action="store_true", help="small products of matrices too; see accelerate")
  parser.add_argument("-m", dest="is_module", action="store_true", help="PROGRAM is a module")
  parser.add_argument("program", metavar="PROGRAM", help="a script")
  parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program is given")
  return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
  options = _parse(arguments)
  accelerate(products=options.products)
  sys.argv = [options.program, *options.arguments]
  if options.is_module:
    sys.path[0] = os.getcwd()
    runpy.run_module(options.program, run_name="__main__", alter_sys=True)
  else:
    sys.path[0] = os.path.dirname(os.path.abspath(options.program))
    runpy.run_path(options.program, run_name="__main__")
  return 0
