"""Times decompositions by many libraries against what this machine can do at all.

  python benchmarks/roofline.py --keep FOLDER --output benchmarks/results/CPU-roofline-DATE.json

takes about a quarter of an hour, and `--quick` two minutes. The bound of a call is the time to move
its operands and results once, at the bandwidth of a large copy, or to do its operations, at the
rate of the best large product of any contender. It is measured with one core and with all.

Each contender runs in a process of its own, in two regimes. `warm` calls follow each other. A
`cold` call is one between other programs: the caches hold other data, and the threads of the
library sleep. A process that is silent for too long is ended, and goes on after the cell that it
did not end. Rows in FOLDER are not measured again. `--python` names an interpreter that has the
contenders which this one lacks (`pip install torch mkl numpy`), `--eigen` the headers of Eigen.

MKL looks at the maker of the processor. The contenders `…_bypassed` answer in its place, by a
function of their own that is loaded before MKL's. Intel does not support that. It shows what MKL's
kernels for AVX-512 do here. `python tools/write_pages.py` makes docs/roofline.md from the file.
"""

import argparse
import hashlib
import importlib.util
import itertools
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import jax
import numpy as np
from rich.console import Console

import records
import timing
from linalg._catalogue import TABLE
from roofline_worker import CONTENDERS, DTYPES

HERE = pathlib.Path(__file__).parent
OPS = ("cholesky", "lu", "qr", "eigh", "svd", "solve", "inv")
# (n, batch). The first have most of the weight in the page; the last are calls with one matrix.
SHAPES = (
    (8, 4096), (32, 1024), (256, 16), (8, 1), (4, 4096), (16, 4096), (64, 256), (128, 64), (64, 1),
    (1024, 1))
OF_COMPLEX = SHAPES[:3]
COLD = (*SHAPES[:4], *SHAPES[-2:])
PRODUCT = (1536, 1)
NUMBERS = {  # per matrix: those in the operands and results
    "cholesky": lambda n: 2 * n * n, "lu": lambda n: 2 * n * n, "qr": lambda n: 3 * n * n,
    "eigh": lambda n: 2 * n * n + n, "svd": lambda n: 3 * n * n + n,
    "solve": lambda n: n * n + 2 * n, "inv": lambda n: 2 * n * n, "product": lambda n: 3 * n * n}
FLOPS = {case.name: case.timed.flops for case in TABLE if case.timed}
BYPASS = """
static int yes(void) { return 1; }
int (*mkl_serv_get_cpu_true(void))(void) { return yes; }  /* MKL 2025 and later */
int mkl_serv_intel_cpu_true(void) { return 1; }           /* before */
"""

COMPILE_SECONDS = 600

Row = dict[str, Any]
Key = tuple[str, int, int, str]  # op, n, batch, dtype


def key_of(cell: Row) -> Key:
  return cell["op"], cell["n"], cell["batch"], cell["dtype"]


def plan(args: argparse.Namespace) -> list[Row]:
  """The cells of every contender, those that matter most first."""
  cells = [
      {"op": op, "n": n, "batch": batch, "dtype": dtype,
       "regimes": ["warm", "cold"] if dtype[0] == "f" and (n, batch) in COLD else ["warm"]}
      for (n, batch), dtype, op in itertools.product(SHAPES, args.dtypes, OPS)
      if dtype[0] == "f" or (n, batch) in OF_COMPLEX]
  cells.sort(key=lambda cell: cell["dtype"][0] == "c")
  if args.quick:
    cells = [x for x in cells if (x["n"], x["batch"]) in SHAPES[:4] and x["dtype"] == "f64"]
  products = [
      {"op": "product", "n": PRODUCT[0], "batch": PRODUCT[1], "dtype": dtype, "regimes": ["warm"]}
      for dtype in dict.fromkeys(cell["dtype"] for cell in cells)]
  return products + cells


def work_of(cell: Row) -> dict[str, float]:
  """The operations and the bytes that a call cannot do without."""
  op, n, batch, dtype = key_of(cell)
  size = np.dtype(DTYPES[dtype]).itemsize
  flops = FLOPS["matmul" if op == "product" else op](n) * (4 if dtype[0] == "c" else 1)
  return {"flops": batch * flops, "bytes": batch * NUMBERS[op](n) * size}


# The needs of contenders


def compiled(command: list[str], text: bytes, folder: pathlib.Path) -> pathlib.Path | str:
  """The library that a compiler makes of the text, made once; or why there is none."""
  path = folder / f"{hashlib.sha256(text + repr(command).encode()).hexdigest()[:16]}.so"
  if not path.exists():
    try:
      subprocess.run(
          [*command, "-shared", "-fPIC", "-o", str(path), "-"], input=text, check=True,
          capture_output=True, timeout=COMPILE_SECONDS)
    except FileNotFoundError:
      return f"there is no {command[0]}"
    except subprocess.TimeoutExpired:
      return "its compilation takes too long"
    except subprocess.CalledProcessError as error:
      return f"it does not compile: {error.stderr.decode()[-200:]}"
  return path


def interpreter(module: str, python: str | None) -> str | None:
  """A Python that has the module."""
  if importlib.util.find_spec(module):
    return sys.executable
  find = f"import importlib.util as i; raise SystemExit(not i.find_spec({module!r}))"
  if python and subprocess.run([python, "-c", find], check=False).returncode == 0:
    return python
  return None


def _has_mkl(python: str | None) -> str | None:
  """MKL's wheel has no module."""
  find = "import importlib.metadata as i; i.version('mkl')"
  for candidate in filter(None, (sys.executable, python)):
    if subprocess.run([candidate, "-c", find], check=False, capture_output=True).returncode == 0:
      return candidate
  return None


def needs(
    name: str, args: argparse.Namespace, folder: pathlib.Path
) -> tuple[str, dict[str, str], dict[str, str]] | str:
  """The interpreter, the environment and the request of a contender; or what is missing."""
  python: str | None = sys.executable
  environment: dict[str, str] = {}
  request: dict[str, str] = {}
  if name == "torch":
    python = interpreter("torch", args.python)
  elif name.startswith("mkl"):
    python = _has_mkl(args.python)
  elif name == "eigen":
    options = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-DNDEBUG", f"-I{args.eigen}"]
    if not (args.eigen / "Eigen" / "Dense").exists():
      return f"there is no {args.eigen}/Eigen/Dense: apt-get install libeigen3-dev"
    text = (HERE / "roofline_eigen.cc").read_bytes()
    library = compiled(["g++", *options, "-x", "c++"], text, folder)
    if isinstance(library, str):
      return library
    request["eigen"] = str(library)
  if python is None:
    return f"no interpreter has it: pip install {name.partition('_')[0]}, or --python"
  if name.endswith("_bypassed"):
    library = compiled(["cc", "-x", "c"], BYPASS.encode(), folder)
    if isinstance(library, str):
      return library
    environment["LD_PRELOAD"] = str(library)
  return python, environment, request


# Processes


class Reader(threading.Thread):
  """The lines of a process, which the main thread awaits for a limited time."""

  def __init__(self, stream: Any):
    super().__init__(daemon=True)
    self.lines: queue.Queue[str | None] = queue.Queue()
    self._stream = stream
    self.start()

  def run(self) -> None:
    for line in self._stream:
      self.lines.put(line)
    self.lines.put(None)


def measure_once(
    command: list[str], environment: dict[str, str], request: Row, silence: float, until: float
) -> tuple[dict[str, str], list[tuple[int, Row]], int | None, str | None]:
  """The versions, the rows by index, the cell that did not end, and why the process ended early."""
  rows: list[tuple[int, Row]] = []
  versions: dict[str, str] = {}
  began: int | None = None
  why = None
  process = subprocess.Popen(
      command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
      env=environment)
  assert process.stdin
  process.stdin.write(json.dumps(request) + "\n")
  process.stdin.close()
  reader, errors = Reader(process.stdout), Reader(process.stderr)
  while True:
    left = until - time.monotonic()
    try:
      line = reader.lines.get(timeout=max(0.0, min(silence, left)))
    except queue.Empty:
      why = "out of time" if left <= silence else f"no answer within {silence:g} s"
      process.kill()
      break
    if line is None:
      break
    if not line.startswith("{"):
      continue
    found = json.loads(line)
    if "versions" in found:
      versions = found["versions"]
    elif "began" in found:
      began = found["began"]
    else:
      rows.append((found.pop("ended"), found))
      began = None
  status = process.wait()
  if why is None and status:
    last = ""
    while (line := errors.lines.get(timeout=silence)) is not None:
      last = line.strip() or last
    why = f"ended with {status}: {last[:200]}"
  return versions, rows, began, why


class Kept:
  """The rows of one contender on some cores, in a file that each row is appended to."""

  def __init__(self, path: pathlib.Path):
    self.rows: dict[Key, Row] = {}
    self.versions: dict[str, str] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
      found = json.loads(line)
      if "versions" in found:
        self.versions = found["versions"]
      else:
        self.rows[key_of(found)] = found
    self._file = path.open("a")

  def add(self, found: Row) -> None:
    print(json.dumps(found), file=self._file, flush=True)
    if "versions" in found:
      self.versions = found["versions"]
    else:
      self.rows[key_of(found)] = found


def measure(
    name: str, cores: int, cells: list[Row], args: argparse.Namespace, folder: pathlib.Path
) -> tuple[Kept, str | None]:
  """All rows of a contender, and why some are missing, if so."""
  kept = Kept(folder / f"{name}-{cores}.lines")
  todo = [cell for cell in cells if key_of(cell) not in kept.rows]
  if not todo:
    return kept, None
  found = needs(name, args, folder)
  if isinstance(found, str):
    return kept, found
  python, environment, request = found
  threads = dict.fromkeys(
      ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(cores))
  # OPENBLAS_CORETYPE would choose other kernels than those for this processor.
  inherited = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
  until = time.monotonic() + args.limit
  why = None
  while todo and time.monotonic() < until:
    versions, rows, began, why = measure_once(
        [python, str(HERE / "roofline_worker.py")], inherited | threads | environment,
        request | {"contender": name, "cores": cores, "cells": todo, "seconds": args.seconds},
        args.silence, until)
    if versions:
      kept.add({"versions": versions})
    for index, row in rows:
      kept.add({x: todo[index][x] for x in ("op", "n", "batch", "dtype")} | row)
    if began is None or why is None or why == "out of time":
      break  # it ended, or it never began: another try would end likewise
    kept.add({x: todo[began][x] for x in ("op", "n", "batch", "dtype")} | {"failed": why})
    done = {index for index, _ in rows} | {began}
    todo = [cell for index, cell in enumerate(todo) if index > max(done)]
    why = None
  return kept, why


def ceilings_of(kept: dict[tuple[str, int], Kept]) -> dict[str, dict[str, Any]]:
  """By the number of cores: the bytes per second of a copy and the operations of products."""
  ceilings: dict[str, dict[str, Any]] = {}
  for (name, cores), found in kept.items():
    of_cores = ceilings.setdefault(str(cores), {})
    for (op, *_, dtype), row in found.rows.items():
      if "warm" not in row:
        continue
      least = row["warm"][1]
      if op == "copy":
        of_cores["bytes"] = timing.rounded(float(found.versions["nbytes"]) / least)
      elif op == "product":
        rate = timing.rounded(work_of(row)["flops"] / least)
        if rate > of_cores.get(dtype, (0,))[0]:
          of_cores[dtype] = [rate, name]
  return ceilings


def main() -> None:
  parser = argparse.ArgumentParser(description="Times decompositions against the machine's bounds.")
  add = parser.add_argument
  add("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS), metavar="NAME",
      help=", ".join(CONTENDERS))
  add("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES), metavar="DTYPE")
  add("--quick", action="store_true", help="four shapes in float64: some two minutes")
  add("--seconds", type=float, default=0.05, help="of the samples of a warm row")
  add("--limit", type=float, help="seconds for a contender (default: 75; 30 with --quick)")
  add("--silence", type=float, default=20.0, help="seconds without an answer that end a process")
  add("--python", metavar="FILE", help="an interpreter for contenders that this one lacks")
  add("--eigen", type=pathlib.Path, default="/usr/include/eigen3", metavar="FOLDER")
  add("--keep", type=pathlib.Path, metavar="FOLDER", help="rows there are not measured again")
  add("--output", type=pathlib.Path, metavar="FILE")
  args = parser.parse_args()
  args.limit = args.limit or (30.0 if args.quick else 75.0)
  jax.config.update("jax_platforms", "cpu")
  console = Console(highlight=False)
  all_cores = records.available_cores()
  kept: dict[tuple[str, int], Kept] = {}
  missing: dict[str, str] = {}
  with tempfile.TemporaryDirectory() as temporary:
    folder = args.keep or pathlib.Path(temporary)
    folder.mkdir(parents=True, exist_ok=True)
    cells = plan(args)
    for cores, name in itertools.product(
        sorted({1, all_cores}), dict.fromkeys(("copy", *args.contenders))):
      start = time.monotonic()
      of_copy = [{"op": "copy", "n": 0, "batch": 0, "dtype": "f64", "regimes": ["warm"]}]
      found, why = measure(name, cores, of_copy if name == "copy" else cells, args, folder)
      kept[name, cores] = found
      if why:
        missing[f"{name}, {cores} cores"] = why
      failed = [row for row in found.rows.values() if "failed" in row]
      console.print(
          f"{name}, {cores} cores: {len(found.rows)} rows in {time.monotonic() - start:.0f} s"
          f"{f', {why}' if why else ''}", soft_wrap=True)
      for row in failed:
        console.print(f"  {' '.join(map(str, key_of(row)))}: {row['failed']}", soft_wrap=True)
  rows = []
  for cores, cell in itertools.product(sorted({1, all_cores}), cells):
    for regime in cell["regimes"]:
      of_cell = {
          name: found.rows[key_of(cell)] for (name, count), found in kept.items()
          if count == cores and key_of(cell) in found.rows}
      seconds = {name: row[regime] for name, row in of_cell.items() if regime in row}
      failures = {name: row["failed"] for name, row in of_cell.items() if "failed" in row}
      if seconds:
        rows.append(
            {x: cell[x] for x in ("op", "n", "batch", "dtype")}
            | {"cores": cores, "regime": regime} | work_of(cell) | {"seconds": seconds}
            | ({"failed": failures} if failures else {}))
  header = records.describe_run("roofline.py", ()) | {
      "contenders": {name: found.versions for (name, _), found in kept.items() if found.rows},
      "ceilings": ceilings_of(kept), "missing": missing}
  path = args.output or records.default_output(header["machine"])
  path.parent.mkdir(parents=True, exist_ok=True)
  records.write(path, header, rows)
  console.print(f"Wrote {path}", soft_wrap=True)


if __name__ == "__main__":
  main()
