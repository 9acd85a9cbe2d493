"""Times `linalg` against stock JAX, and other libraries if asked, and writes the times as JSON.

The contestants of a cell (operation, n, batch, dtype) take turns in one process, as timing.py says.
At the end benchmarks/report.py shows the result.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import datetime
import functools
import importlib
import importlib.metadata
import importlib.util
import json
import math
import pathlib
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import jobs
import mkl
import records
import report
import timing
from linalg._catalogue import TABLE, Timed
from records import DTYPES

GRIDS = {
    "full": {
        "sizes": [2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
        "batches": [1, 16, 256, 4096],
        "dtypes": ["f32", "f64"],
        "rounds": 21,
        "seconds_per_cell": 0.3,
        "call_limit": 0.5,
    },
    "usual": {
        "sizes": [4, 16, 64],
        "batches": [1, 1024],
        "dtypes": ["f32", "f64"],
        "rounds": 7,
        "seconds_per_cell": 0.1,
        "call_limit": 0.1,
    },
    # Sizes on both sides of the crossovers. Cells that exceed the memory are skipped.
    "gpu": {
        "sizes": [2, 4, 8, 16, 32, 33, 64, 128, 129, 256, 512],
        "batches": [1, 1000, 100_000],
        "dtypes": ["f32", "f64"],
        "rounds": 21,
        "seconds_per_cell": 0.3,
        "call_limit": 5.0,
        "memory": 4096,
    },
}


# Contestants


class Contest(NamedTuple):
  """A case that is timed against stock JAX."""

  name: str
  ours: Callable[..., Any]
  stock: Callable[..., Any]
  timed: Timed
  dtypes: tuple[str, ...]


def _contests() -> list[Contest]:
  names = {dtype: name for name, dtype in DTYPES.items()}
  return [
      Contest(
          case.name, case.call, case.stock, case.timed,
          tuple(names[np.dtype(x)] for x in case.timed.dtypes or case.stock_dtypes))
      for case in TABLE if case.timed is not None and case.stock is not None]


CONTESTS = _contests()


class Peer(NamedTuple):
  library: Any
  api: str  # the key of Timed.peers
  put: Callable[[np.ndarray], Any]
  wait: Callable[[Any], Any]  # until a result is ready


def _numpy() -> Peer:
  return Peer(np, "numpy", np.asarray, lambda x: x)


def _torch() -> Peer:
  torch = importlib.import_module("torch")
  return Peer(torch, "torch", torch.from_numpy, lambda x: x)


def _cupy() -> Peer:
  cupy = importlib.import_module("cupy")
  return Peer(cupy, "cupy", cupy.asarray, lambda x: cupy.cuda.get_current_stream().synchronize())


def _scale() -> Peer:
  return Peer(jax, "scale", jax.device_put, jax.block_until_ready)


def _mkl() -> Peer:
  return Peer(mkl.lapack(), "mkl", np.asarray, lambda x: x)


def _mkl_compact() -> Peer:
  return Peer(mkl.compact(), "mkl_compact", np.asarray, lambda x: x)


# The last scales an operand by a number: its time is that of reading and writing the memory.
PEERS = {
    "numpy": _numpy, "torch": _torch, "mkl": _mkl, "mkl_compact": _mkl_compact, "cupy": _cupy,
    "scale": _scale}


def value_and_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
  """The value and gradient of a weighted sum of all results, in the first operand."""

  def loss(*operands):
    total = 0
    for x in jax.tree.leaves(function(*operands)):
      if jnp.issubdtype(x.dtype, jnp.inexact):
        core = x.shape[1:]
        weights = np.cos(np.arange(math.prod(core))).reshape(1, *core).astype(x.real.dtype)
        total = total + jnp.sum(x.real * weights)
    return total

  return jax.value_and_grad(loss)


def make_programs(
    case: Contest, operands: list[np.ndarray], gradients: bool, alone: bool, compiled: bool
) -> dict[str, Callable[..., Any]]:
  """The programs that JAX compiles, by name: compiled at the first call, or here."""
  if gradients:
    functions = {
        "ours": value_and_gradient(case.ours), "stock": value_and_gradient(case.stock),
        "forward": case.ours}
  else:
    functions = {"ours": case.ours, "stock": case.stock}
  if alone:
    functions = {"ours": functions["ours"]}
  programs = {name: jax.jit(function) for name, function in functions.items()}
  if compiled:
    return {name: program.lower(*operands).compile() for name, program in programs.items()}
  return programs


def make_contestants(
    case: Contest, programs: dict[str, Callable[..., Any]], operands: list[np.ndarray],
    peers: dict[str, Peer]
) -> dict[str, Callable[[], Any]]:
  """Functions without arguments, by name, that compute the result and wait for it."""

  def contestant(function, put, wait):
    placed = [put(x) for x in operands]
    return lambda: wait(function(*placed))

  return {
      name: contestant(program, jax.device_put, jax.block_until_ready)
      for name, program in programs.items()
  } | {
      name: contestant(function, peer.put, peer.wait)
      for name, (peer, function) in functions_of(case, peers).items()}


def functions_of(
    case: Contest, peers: dict[str, Peer]
) -> dict[str, tuple[Peer, Callable[..., Any]]]:
  """The functions of those peers that have the operation."""
  return {
      name: (peer, case.timed.peers[peer.api](peer.library))
      for name, peer in peers.items() if peer.api in case.timed.peers}


# Ceilings


def measure_ceilings(dtypes: list[str]) -> dict[str, float]:
  """Measures the bounds of any kernel on this machine.

  They are the operations per second of a large matrix product in each dtype, and the bandwidth of
  copies on all cores or on the GPU. The latter counts bytes read and written.
  """
  ceilings = {}
  n = 1536 if jax.default_backend() == "cpu" else 8192
  for dtype in dtypes:
    a = jax.device_put(np.ones((n, n), DTYPES[dtype]))
    multiply = jax.jit(functools.partial(jnp.matmul, precision="highest"))
    product = functools.partial(lambda f, x: f(x, x).block_until_ready(), multiply, a)
    seconds = min(timing.measure({"product": product}, 7, 2.0)["product"])
    real = 4 if DTYPES[dtype].kind == "c" else 1
    ceilings[dtype] = timing.rounded(2.0 * real * n**3 / seconds)
  if jax.default_backend() == "gpu":
    source = jnp.ones(2**28, jnp.float32)
    add_one = jax.jit(lambda x: x + 1)
    copy = lambda: add_one(source).block_until_ready()
    seconds = min(timing.measure({"copy": copy}, 7, 2.0)["copy"])
    return ceilings | {"bytes": timing.rounded(2 * source.nbytes / seconds)}
  cores = records.available_cores()
  source, target = np.ones((2, cores, 2**25 // cores))
  with concurrent.futures.ThreadPoolExecutor(cores) as pool:
    copy = lambda: list(pool.map(np.copyto, target, source))
    seconds = min(timing.measure({"copy": copy}, 7, 2.0)["copy"])
  return ceilings | {"bytes": timing.rounded(2 * source.nbytes / seconds)}


# Cells

GRADIENT = "grad "  # begins the name of an operation whose gradient is timed


class Cell(NamedTuple):
  case: Contest
  n: int
  batch: int
  dtype: str
  fills_memory: bool = False  # the batch is the largest that --memory allows
  gradient: bool = False

  @property
  def op(self) -> str:
    return GRADIENT + self.case.name if self.gradient else self.case.name

  def __str__(self) -> str:
    return f"{self.op} n={self.n} batch={self.batch} {self.dtype}"

  def key(self) -> dict[str, Any]:
    key = {"op": self.op, "n": self.n, "batch": self.batch, "dtype": self.dtype}
    return key | ({"fills_memory": True} if self.fills_memory else {})

  def flops(self) -> float:
    """The real operations on one matrix. A gradient adds twice the forward pass."""
    real = 4 if DTYPES[self.dtype].kind == "c" else 1
    return self.case.timed.flops(self.n) * real * (3 if self.gradient else 1)

  def estimated_seconds(self, platform: str) -> float:
    """Estimates one call of stock JAX, which takes one matrix after another.

    The rate is LAPACK's, and grows with n. That for a GPU is the rate of its slowest routines.
    """
    rate = 25e9 if platform == "cpu" else 250e9
    return self.batch * (1e-6 + self.flops() / (rate * self.n / (self.n + 128)))


MEMORY = "memory"  # a batch of as many matrices as --memory allows


def _batch(text: str) -> int | str:
  return text if text == MEMORY else int(text)


def _shape(text: str) -> tuple[int, int]:
  batch, n = map(int, text.split("x"))
  return batch, n


def cells_of(keys: Iterable[dict[str, Any]]) -> list[Cell]:
  by_name = {case.name: case for case in CONTESTS}
  return [
      Cell(by_name[key["op"].removeprefix(GRADIENT)], key["n"], key["batch"], key["dtype"],
           key.get("fills_memory", False), key["op"].startswith(GRADIENT))
      for key in keys]


def plan(args: argparse.Namespace) -> list[Cell]:
  def cell(case, n, batch, dtype):
    if batch != MEMORY:
      return Cell(case, n, batch, dtype, gradient=args.gradients)
    batch = int(args.memory * 2**20) // case.timed.nbytes(n, 1, DTYPES[dtype])
    return Cell(case, n, batch, dtype, fills_memory=True, gradient=args.gradients)

  if args.cells:
    cells = cells_of(json.loads(args.cells.read_text()))
  else:
    shapes = args.shapes or [(batch, n) for batch in args.batches for n in args.sizes]
    cells = [
        cell(case, n, batch, dtype)
        for case in CONTESTS if case.name in args.ops
        for dtype in case.dtypes if dtype in (*args.dtypes, *([] if args.gradients else ["i32"]))
        for batch, n in shapes]
    if args.shapes:
      # A run that is ended early should have most of the shapes.
      cells.sort(key=lambda cell: cell.estimated_seconds(args.platform))
  return cells if args.part is None else cells[args.part :: args.jobs]


def reason_to_skip(cell: Cell, args: argparse.Namespace) -> tuple[str, str] | None:
  """Returns the limit that the cell exceeds, and by how much."""
  mebibytes = cell.case.timed.nbytes(cell.n, cell.batch, DTYPES[cell.dtype]) / 2**20
  if mebibytes > args.memory:
    limit = f"operands over {args.memory:g} MiB"
    return limit, f"{limit}: {mebibytes:.0f} MiB"
  if (seconds := cell.estimated_seconds(args.platform)) > args.call_limit:
    limit = f"calls estimated at over {args.call_limit:g} s"
    return limit, f"{limit}: {seconds:.2g} s"
  return None


def measure_cell(
    cell: Cell, args: argparse.Namespace, peers: dict[str, Peer], begin: Callable[[], None]
) -> dict[str, Any]:
  operands = cell.case.timed.make_operands(cell.n, cell.batch, DTYPES[cell.dtype])
  programs = make_programs(
      cell.case, operands, cell.gradient, args.alone, compiled=args.turns is not None)
  contestants = make_contestants(cell.case, programs, operands, peers)
  if args.turns is not None:
    for peer, function in functions_of(cell.case, peers).values():
      peer.wait(function(*(peer.put(x[:1]) for x in operands)))  # compiles the peer's kernels
  results = jax.tree.leaves(jax.eval_shape(cell.case.ours, *operands))
  work = {
      "flops": cell.batch * cell.flops(),
      "bytes": sum(x.size * x.dtype.itemsize for x in (*operands, *results))}
  with jobs.turn(args.turns):
    begin()
    return work | timing.summarise(
        timing.measure(contestants, args.rounds, args.seconds_per_cell, args.slow_call))


def measure_all(
    args: argparse.Namespace,
    peers: dict[str, Peer],
    console: Console,
    results: list[dict[str, Any]] | jobs.Lines,
) -> None:
  """Appends the result of each cell to `results`, so that an interrupt keeps those done."""
  todo = []
  skipped: dict[str, collections.Counter[str]] = {}
  for cell in plan(args):
    if reason := reason_to_skip(cell, args):
      limit, detail = reason
      results.append(cell.key() | {"skipped": detail})
      skipped.setdefault(limit, collections.Counter())[cell.case.name] += 1
    else:
      todo.append(cell)
  for limit, counts in skipped.items():
    ops = ", ".join(f"{count} of {op}" for op, count in counts.items())
    console.print(f"Skipped, {limit}: {ops}", style="yellow", highlight=False)

  columns = (
      TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
  with Progress(*columns, console=console) as progress:
    task = progress.add_task("", total=len(todo))
    last_op = None
    for done, cell in enumerate(todo):
      progress.update(task, description=str(cell))
      if cell.case.name != last_op:
        if not console.is_terminal:  # shows no progress bar
          console.print(f"{done} of {len(todo)} cells, next {cell.case.name}", highlight=False)
        jax.clear_caches()  # a process can map only so many compiled programs
        last_op = cell.case.name
      try:
        # A row that has only begun tells of a cell that never ended.
        begin = lambda cell=cell: (
            results.append(cell.key() | {"began": True}) if isinstance(results, jobs.Lines)
            else None)
        result = measure_cell(cell, args, peers, begin)
      except (MemoryError, RuntimeError, TypeError, ValueError) as error:
        result = {"skipped": f"failed: {type(error).__name__}: {error}"}
        console.print(f"{cell}: {result['skipped']}", style="red", markup=False)
      results.append(cell.key() | result)
      progress.advance(task)


# Arguments


def parse_arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description="Times linalg against stock JAX.")
  ops = [case.name for case in CONTESTS]
  dtypes = [name for name in DTYPES if name != "i32"]
  add = parser.add_argument
  add("--full", action="store_true",
      help="more sizes and rounds: half an hour instead of three minutes")
  add("--ops", nargs="+", choices=ops, default=ops, metavar="OP", help=", ".join(ops))
  add("--sizes", nargs="+", type=int, metavar="N", help="the n of the matrices")
  add("--batches", nargs="+", type=_batch, metavar="BATCH",
      help=f"numbers of matrices, or '{MEMORY}': as many as --memory allows")
  add("--shapes", nargs="+", type=_shape, metavar="BATCHxN",
      help="instead of --sizes and --batches; the fastest cells are measured first")
  add("--cells", type=pathlib.Path, metavar="FILE",
      help="instead of a grid: a JSON list of objects with op, n, batch and dtype")
  add("--dtypes", nargs="+", choices=dtypes, metavar="DTYPE", help=", ".join(dtypes))
  add("--gradients", action="store_true",
      help="the value and the gradient of a sum of the results, beside stock's and beside our "
      "forward pass; no peers")
  add("--peers", nargs="+", choices=list(PEERS), default=[], metavar="PEER",
      help=f"other libraries to time, of {', '.join(PEERS)}; the last is the product of the "
      "operand and a number")
  add("--alone", action="store_true",
      help="no stock and no peers: times, and no speed-ups; to compare builds")
  add("--platform", choices=["cpu", "gpu"], default="cpu",
      help="where to run; `gpu` has a grid of its own, and CuPy as a peer if it is installed")
  add("--rounds", type=int, help="at most so many samples of each contestant in a cell")
  add("--seconds-per-cell", type=float,
      help=f"no further round after this time, but at least {timing.MIN_ROUNDS}")
  add("--call-limit", type=float, metavar="SECONDS",
      help="skip cells in which one call is estimated to take longer")
  add("--slow-call", type=float, default=math.inf, metavar="SECONDS",
      help="time a contestant once if its call takes longer")
  add("--memory", type=float, metavar="MIB",
      help="skip cells whose operands are larger (default: 64; 4096 on a GPU)")
  add("--no-ceilings", action="store_true",
      help="do not measure the largest product and a copy, whose programs take long to compile")
  add("--jobs", type=int, default=1,
      help="processes that make operands and compile, for a GPU, whose memory they share; they "
      "measure in turn, while others compile")
  add("--keep", type=pathlib.Path, metavar="FOLDER",
      help="each row is written there when it is measured; cells that are there already are not "
      "measured again; no tables are shown")
  add("--part", type=int, help=argparse.SUPPRESS)  # the index of this job
  add("--turns", metavar="FILE",
      help="what processes lock that measure in turn, others than this run's jobs too")
  add("--output", type=pathlib.Path, metavar="FILE",
      help="default: ./benchmark-results/<device>-<date>.json")
  args = parser.parse_args()
  grid = GRIDS["gpu" if args.platform == "gpu" else "full" if args.full else "usual"]
  for name, value in ({"memory": 64} | grid).items():
    if getattr(args, name) is None:
      setattr(args, name, value)
  if args.alone or args.gradients:
    if args.peers:
      parser.error("--alone and --gradients have no peers")
  elif args.platform == "gpu" and not args.peers and importlib.util.find_spec("cupy"):
    args.peers = ["cupy"]
  for name in ("rounds", "jobs"):
    if getattr(args, name) < 1:
      parser.error(f"--{name} must be at least 1")
  return args


def _key(cell: dict[str, Any]) -> tuple[Any, ...]:
  return tuple(map(cell.get, ("op", "n", "batch", "dtype", "fills_memory")))


MOST_BEGINNINGS = 2  # of a cell that never ends


def rows_of(lines: list[list[dict[str, Any]]]) -> dict[tuple[Any, ...], dict[str, Any]]:
  """The rows of cells that are measured, or that did not end when they were begun twice."""
  rows: dict[tuple[Any, ...], dict[str, Any]] = {}
  begun: collections.Counter[tuple[Any, ...]] = collections.Counter()
  for cell in [cell for file in lines for cell in file[1:]]:
    if "began" in cell:
      begun[_key(cell)] += 1
      if begun[_key(cell)] == MOST_BEGINNINGS:
        rows.setdefault(_key(cell), cell | {"skipped": "failed: it did not end"})
    else:
      rows[_key(cell)] = cell
  return rows


def run_jobs(args: argparse.Namespace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """Divides the cells of a run among processes. Returns its header and its cells."""
  cells = plan(args)
  with contextlib.ExitStack() as stack:
    folder = args.keep or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    folder.mkdir(parents=True, exist_ok=True)
    kept = rows_of(jobs.kept(folder))
    todo = folder / "todo.json"
    todo.write_text(json.dumps([x.key() for x in cells if _key(x.key()) not in kept]))
    ended = jobs.run(
        [sys.executable, *sys.argv, "--cells", str(todo)], args.jobs, args.turns, folder)
    files = jobs.kept(folder)
  if set(ended) != {0}:
    print(f"The processes ended with {dict(ended)}.", file=sys.stderr)
  if not files:
    sys.exit("None of them has measured anything.")
  header = files[0][0] | {"command": command(), "interrupted": set(ended) != {0}}
  rows = rows_of(files)
  return header, [rows[key] for key in (_key(cell.key()) for cell in cells) if key in rows]


def run_here(
    args: argparse.Namespace, cells: list[dict[str, Any]] | jobs.Lines
) -> dict[str, Any]:
  """Runs in this process and appends the cells. Returns the header."""
  jax.config.update("jax_enable_x64", True)
  jax.config.update("jax_platforms", "cpu" if args.platform == "cpu" else "cuda")
  try:
    jax.devices()
  except (AssertionError, RuntimeError) as error:  # AssertionError without a GPU plugin
    sys.exit(f"--platform {args.platform}: JAX finds no such device. {error}")
  try:
    peers = {name: PEERS[name]() for name in args.peers}
  except ImportError as error:
    sys.exit(f"--peers: {error}")
  header = {
      "machine": records.describe_machine(jax.devices()[0]),
      "versions": records.find_versions(peers),
      "commit": records.find_commit(),
      "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
      "command": command(),
      "ceilings": {},
      "interrupted": False,
  }
  try:
    if not args.part and not args.no_ceilings:
      with jobs.turn(args.turns):
        header["ceilings"] = measure_ceilings(args.dtypes)
    if args.part is not None:
      cells.append(header)
    measure_all(args, peers, Console(), cells)
  except KeyboardInterrupt:
    header["interrupted"] = True
  except Exception:
    traceback.print_exc()
    header["interrupted"] = True
  return header


def command() -> str:
  return shlex.join(["python", "benchmarks/run.py", *sys.argv[1:]])


def main() -> None:
  args = parse_arguments()
  signal.signal(signal.SIGTERM, signal.default_int_handler)  # sent by `timeout` and schedulers
  if args.part is not None:
    sys.exit(130 if run_here(args, jobs.Lines(args.output))["interrupted"] else 0)
  cells: list[dict[str, Any]] = []
  if args.jobs > 1 or args.keep:
    header, cells = run_jobs(args)
  else:
    header = run_here(args, cells)
  path = args.output or records.default_output(header["machine"])
  path.parent.mkdir(parents=True, exist_ok=True)
  records.write(path, header, cells)
  if header["interrupted"]:
    print("Interrupted: what was measured is kept.")
  Console().print(f"Wrote {path}", soft_wrap=True, highlight=False)
  if any(cell.get("speedup") for cell in cells) and not args.keep:
    report.show(path)
  if header["interrupted"]:
    sys.exit(130)
  if any(cell.get("skipped", "").startswith("failed") for cell in cells):
    sys.exit(1)


if __name__ == "__main__":
  main()
