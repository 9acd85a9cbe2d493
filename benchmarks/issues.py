"""Times the programs of examples/issues that are about speed, before and after.

  python benchmarks/issues.py --output benchmarks/results/amd-epyc-issues-DATE.json

JAX's functions, JAX's functions accelerated, and this package's take turns in one process.
`python tools/write_pages.py` makes the table in docs/issues.md from the file.
"""

import argparse
import functools
import importlib
import pathlib
import sys
import time
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

import linalg
from records import describe_run, write
from timing import Clock, measure, summarise

PROGRAMS = pathlib.Path(__file__).parents[1] / "examples" / "issues"


def programs() -> list[str]:
  found = (path.stem for path in PROGRAMS.glob("jax_*.py"))
  return sorted(found, key=lambda name: int(name.removeprefix("jax_")))


def compare(
    stock: Any, ours: Any, operands: Any, rounds: int, seconds: float, clock: Clock
) -> dict[str, Any]:
  """The summaries of `ours` and of `stock` accelerated, each against `stock`."""
  compiled = {}
  for name, function, accelerated in (
      ("stock", stock, False), ("accelerated", stock, True), ("ours", ours, False)):
    jax.clear_caches()
    with linalg.accelerated(accelerated):
      compiled[name] = jax.jit(function).lower(*operands).compile()
  samples = measure({
      name: functools.partial(lambda f: jax.block_until_ready(f(*operands)), f)
      for name, f in compiled.items()}, rounds, seconds, clock=clock)
  return {
      name: summarise({"ours": samples[name], "stock": samples["stock"]})
      for name in ("accelerated", "ours")}


def main() -> None:
  parser = argparse.ArgumentParser(description="Times the programs of examples/issues.")
  parser.add_argument("--programs", nargs="+", choices=programs(), default=programs())
  parser.add_argument("--rounds", type=int, default=15)
  parser.add_argument("--seconds", type=float, default=4, help="at most, for one row")
  parser.add_argument(
      "--cpu-time", action="store_true",
      help="seconds of this process on processors, for a busy machine: pin it to one core")
  parser.add_argument("--output", type=pathlib.Path, help="a JSON file for the times")
  args = parser.parse_args()
  sys.path.append(str(PROGRAMS))
  table = Table(title=f"jax {jax.__version__}")
  for column in ("issue", "program", "stock, ms", "accelerated", "linalg"):
    table.add_column(column, justify="left" if column in ("issue", "program") else "right")
  clock = time.process_time if args.cpu_time else time.perf_counter
  cells = []
  for name in args.programs:
    for case, (stock, ours, make) in getattr(importlib.import_module(name), "TIMED", {}).items():
      with jax.enable_x64("float64" in case):  # float32 is timed in JAX's default mode
        times = compare(stock, ours, make(), args.rounds, args.seconds, clock)
      cells.append({"program": name, "case": case, "times": times})
      ratios = (f"{times[x]['speedup']['stock']['median']:.2f}" for x in ("accelerated", "ours"))
      table.add_row(name, case, f"{1e3 * times['ours']['seconds']['stock']:.3g}", *ratios)
  Console().print(table)
  if args.output:
    write(args.output, describe_run("issues.py", ()), cells)


if __name__ == "__main__":
  main()
