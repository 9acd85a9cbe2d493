"""Rows of a benchmark, in each of which contenders take turns.

A row runs in a process of its own. A contender that does not compile within --limit is left out,
and its row begins again without it: XLA's compiler cannot be interrupted. JAX's calls of LAPACK may
deadlock (seen with jaxlib 0.10.2), so a row with a call that does not end begins again, up to
MOST_ATTEMPTS times in all.
"""

import argparse
import collections
import functools
import json
import math
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import linalg
from jobs import ENVIRONMENT
from records import describe_run, installed, write
from timing import measure, summarise

MOST_ATTEMPTS = 3
Parameters = dict[str, Any]  # of a row, in its order in the table


class Contender(NamedTuple):
  """A function of a row's operands. If `accelerated`, by `linalg.accelerate(products=True)`."""

  function: Callable[..., Any]
  accelerated: bool = False
  library: str | None = None


class Benchmark(NamedTuple):
  """A program here, and the contenders that it times.

  Attributes:
    program: its file.
    contenders: those of a row, by name; "ours" is what the others are compared with.
    operands: those of a row.
    compared: the results of a contender of a row that must agree with ours.
    tolerance: of their largest difference over their largest element.
    effort: of compiling a row. A contender that took too long is left out of later rows of the
      same effort.
  """

  program: str
  contenders: Callable[[Parameters], dict[str, Contender]]
  operands: Callable[[Parameters], Sequence[Any]]
  compared: Callable[[Parameters, str, Any], Iterable[Any]] = (
      lambda row, name, results: jax.tree.leaves(results))
  tolerance: float = 1e-3
  effort: Callable[[Parameters], Any] = json.dumps


def add_options(parser: argparse.ArgumentParser, rounds: int = 9) -> None:
  add = parser.add_argument
  add("--without", nargs="*", default=[], metavar="NAME", help="contenders to leave out")
  add("--rounds", type=int, default=rounds)
  add("--seconds", type=float, default=20, help="at most, for one row")
  add("--slow-call", type=float, default=math.inf, metavar="SECONDS",
      help="time a contender once if its call takes longer")
  add("--limit", type=float, default=60, metavar="SECONDS",
      help="leave out contenders that take longer to compile, or for a call; 0 for no limit, and "
      "all rows in one process (default: %(default)s)")
  add("--quick", action="store_true", help="three rounds of two seconds, and a limit of 20 s")
  add("--output", type=pathlib.Path, help="a JSON file for the times")
  add("--row", type=json.loads, help=argparse.SUPPRESS)  # the one that this process measures


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
  args = parser.parse_args()
  if args.quick:
    args.rounds, args.seconds = min(args.rounds, 3), min(args.seconds, 2.0)
    args.slow_call, args.limit = min(args.slow_call, 1.0), min(args.limit, 20.0)
  return args


# One row, in its process


def _largest_difference(found: Iterable[Any], known: Iterable[Any]) -> float:
  pairs = [(np.asarray(x), np.asarray(y)) for x, y in zip(found, known, strict=True)]
  return float(np.max(  # unlike Python's max, it keeps NaN
      [np.max(np.abs(x - y)) / max(np.max(np.abs(y)), np.finfo(y.dtype).tiny)
       for x, y in pairs if y.size], initial=0.0))


class _Watch:
  """Ends the process, with a line for its parent, where one call takes longer than the limit."""

  def __init__(self, limit: float):
    self._limit = limit
    self._name, self._count = "", 0
    threading.Thread(target=self._run, daemon=True).start()

  def watched(self, name: str, call: Callable[[], Any]) -> Callable[[], Any]:
    def run():
      self._name, self._count = name, self._count + 1
      result = call()
      self._name = ""
      return result

    return run

  def _run(self) -> None:
    while True:
      name, count = self._name, self._count
      time.sleep(self._limit)
      if name and (name, count) == (self._name, self._count):
        print(_STUCK + name, flush=True)
        os._exit(1)


def measure_row(
    benchmark: Benchmark, row: Parameters, args: argparse.Namespace,
    begin: Callable[[str], None] = lambda name: None, watch: _Watch | None = None
) -> dict[str, Any]:
  """The times of a row's contenders. Calls `begin` with the name of each before it compiles."""
  operands = benchmark.operands(row)
  calls, compared, left_out, compile_ms = {}, {}, {}, {}
  for name, contender in benchmark.contenders(row).items():
    if name in args.without:
      continue
    if contender.library and not installed(contender.library):
      left_out[name] = f"{contender.library} is not installed"
      continue
    begin(name)
    try:
      with linalg.accelerated(contender.accelerated, products=True):
        jax.clear_caches()
        start = time.perf_counter()
        compiled = jax.jit(contender.function).lower(*operands).compile()
        compile_ms[name] = round(1e3 * (time.perf_counter() - start))
      call = functools.partial(lambda f: jax.block_until_ready(f(*operands)), compiled)
      if watch is not None:
        call = watch.watched(name, call)
      begin("")
      compared[name] = list(benchmark.compared(row, name, call()))
    except Exception as error:
      if name == "ours":
        raise
      left_out[name] = f"failed: {type(error).__name__}: {error}"[:200]
      continue
    calls[name] = call
  difference = {
      name: float(f"{_largest_difference(results, compared['ours']):.1e}")
      for name, results in compared.items() if name != "ours" and results}
  for name, found in difference.items():
    if not found <= benchmark.tolerance:
      raise ValueError(f"{row}: {name} differs by {found}")
  begin("")
  samples = measure(calls, args.rounds, args.seconds, args.slow_call)
  return summarise(samples) | {
      "ms_to_compile": {name: compile_ms[name] for name in calls}, "difference": difference,
      "left_out": left_out}


# The beginnings of the lines that a row's process prints.
_BEGIN, _STUCK, _ROW = "contender ", "stuck ", "row "


def _print_row(benchmark: Benchmark, args: argparse.Namespace) -> None:
  if threads := args.row.get("threads"):  # else all that there are
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
  begin = lambda name: print(_BEGIN + name, flush=True)
  found = measure_row(benchmark, args.row, args, begin, _Watch(args.limit))
  print(_ROW + json.dumps(found), flush=True)


# All rows


def _run_once(
    row: Parameters, args: argparse.Namespace, left_out: Iterable[str]
) -> tuple[dict[str, Any], str, bool]:
  """The result of a process for a row, the name of the contender that stopped it, if so, and
  whether that was in a call."""
  command = [sys.executable, *sys.argv, "--row", json.dumps(row)]
  command += ["--without", *args.without, *left_out]
  lines: queue.Queue[str | None] = queue.Queue()
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
    assert process.stdout is not None
    output = process.stdout

    def read():
      for line in output:
        lines.put(line.rstrip("\n"))
      lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    # Python starts and libraries are imported before the first contender.
    name, found, stuck, limit = "ours", None, "", 2 * args.limit
    try:
      while (line := lines.get(timeout=limit)) is not None:
        if line.startswith(_BEGIN):
          name = line.removeprefix(_BEGIN)
          limit = args.limit if name else args.seconds + 10 * args.limit
        elif line.startswith(_STUCK):
          stuck = line.removeprefix(_STUCK)
        elif line.startswith(_ROW):
          found = json.loads(line.removeprefix(_ROW))
    except queue.Empty:
      process.kill()
      return {}, name or "measuring", not name
  if stuck:
    return {}, stuck, True
  if found is None:
    sys.exit(f"The process of {row} ended with {process.returncode} at {name or 'measuring'}.")
  return found, "", False


def _measure_apart(
    row: Parameters, args: argparse.Namespace, left_out: dict[str, str]
) -> dict[str, Any]:
  """Adds to `left_out`, by their names, the contenders that take too long to compile."""
  attempts: collections.Counter[str] = collections.Counter()
  stuck: dict[str, str] = {}
  while True:
    found, name, in_call = _run_once(row, args, left_out | stuck)
    if not name:
      return found | {"left_out": found["left_out"] | left_out | stuck}
    attempts[name] += 1
    if in_call and attempts[name] < MOST_ATTEMPTS:
      continue
    if name in ("ours", "measuring"):
      sys.exit(f"{row}: {name} took longer than the limit.")
    if in_call:
      stuck[name] = f"a call did not end in {args.limit:g} s, {MOST_ATTEMPTS} times"
    else:
      left_out[name] = f"not within {args.limit:g} s"


def run(
    benchmark: Benchmark, rows: Iterable[Parameters], args: argparse.Namespace,
    libraries: Iterable[str] = ()
) -> None:
  """Measures the rows, prints their table, and writes them to --output."""
  jax.config.update("jax_enable_x64", True)
  if args.row is not None:
    _print_row(benchmark, args)
    return
  rows = list(rows)
  same = [key for key, x in rows[0].items() if all(row[key] == x for row in rows)]
  title = ", ".join(f"{key} {rows[0][key]}" for key in same)
  table = Table(title=f"{title}; jax {jax.__version__}; ratio: a contender's time over ours")
  shown = [key for key in rows[0] if key not in same]
  for column in (*shown, "ours, ms", "ratios", "ms to compile"):
    table.add_column(column, justify="left" if column == "program" else "right")
  console, cells = Console(width=160), []
  slow: collections.defaultdict[Any, dict[str, str]] = collections.defaultdict(dict)
  for row in rows:
    if args.limit:
      found = _measure_apart(row, args, slow[benchmark.effort(row)])
    else:
      found = measure_row(benchmark, row, args)
    cells.append(row | found)
    console.print(f"{len(cells)} of {len(rows)} rows", highlight=False)
    for name, reason in found["left_out"].items():
      console.print(f"{row}: without {name}, {reason}", markup=False, highlight=False)
    table.add_row(
        *(str(row[key]) for key in shown), f"{1e3 * found['seconds']['ours']:.3g}",
        ", ".join(f"{name} {x['median']:.2f}" for name, x in found["speedup"].items()),
        ", ".join(map(str, found["ms_to_compile"].values())))
    if args.output:  # so that an interrupted run keeps what it has
      write(args.output, describe_run(benchmark.program, libraries), cells)
  console.print(table)
