"""Judges the crossovers of kernels/cuda/tuning.h and the limits in linalg/_core/tuning.py, from
times of both paths at the same sizes.

  python tools/cut_offs.py vary less FOLDER     # then build there
  python tools/cut_offs.py vary more FOLDER     # then build there
  python tools/cut_offs.py cells cells.json     # then measure with both builds
  python tools/cut_offs.py judge --less less.json --more more.json

tools/on_gpu.py does all of it. `vary` writes both files into FOLDER, with the least value of each
grid, or the largest. Sizes between these values take the path above the crossover in one build, and
the path below it in the other. `cells` writes the cells that benchmarks/run.py should measure.

`judge` prints a Markdown table with a row for each constant. It finds the value with which all
measured sizes take the least time, by the sum of logarithms. The verdict is to keep the constant if
that value would win less than NOISE for the sizes whose path it changes, else to raise or to lower
it. `--rows FOLDER` writes the times in the format of benchmarks/crossovers/.
"""

import argparse
import json
import math
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import crossover  # noqa: E402

CUDA, PYTHON = "kernels/cuda/tuning.h", "linalg/_core/tuning.py"
CROSSOVERS = {CUDA: "cuda_tuned.json", PYTHON: "limits_tuned.json"}
BYTES = {"f32": 4, "f64": 8, "c64": 8}
DTYPES = {"f32": "float32", "f64": "float64", "c64": "complex64"}
BOTH = ("f32", "f64")
# Times of the same path differ by this factor from build to build.
NOISE = 1.05
# The least number of sizes for a decision.
FEWEST = 3

# Bytes of a batch of matrices, unless LARGEST_BATCH of them are less.
BATCH_BYTES = 1 << 29
LARGEST_BATCH = 20_000
# Sizes that are measured on each side of a constant.
SIDE = 3


class Cell(NamedTuple):
  op: str
  n: int
  batch: int
  dtype: str

  @property
  def size(self) -> int:
    return BYTES[self.dtype]


Times = dict[Cell, float]
Key = Callable[[Cell], float]
Shape = tuple[int, int]  # batch and n


def usual(n: int, size: int) -> Shape:
  return min(LARGEST_BATCH, BATCH_BYTES // (n * n * size)), n


class CutOff(NamedTuple):
  """A constant for these dtypes: the largest matrices of the path before it."""

  constant: str
  dtypes: tuple[str, ...]
  least: int
  most: int
  # Operation -> the quantity that is compared with the constant.
  ops: dict[str, Key]
  # The values that have kernels, if not all.
  values: tuple[int, ...] = ()
  # The text before the value in the file, and how the value is written.
  before: str = ""
  written: Callable[[int], str] = str
  # The shapes that decide, if they are not those of `usual`.
  shapes: tuple[Shape, ...] = ()
  # Whether the constant is the least of the path after it instead.
  first: bool = False

  @property
  def name(self) -> str:
    return self.constant if self.dtypes == BOTH else f"{self.constant}, {self.dtypes[0]}"

  @property
  def file(self) -> str:
    return CUDA if self.constant.startswith("k") else PYTHON

  def last(self, value: float) -> float:
    """The largest key of the path before the crossover."""
    return value - 1 if self.first else value

  def key(self, cell: Cell) -> float:
    return self.ops[cell.op](cell)

  def deciding(self, op: str, dtype: str) -> list[Cell]:
    """The cells that take one path with the least value, and the other with the largest."""
    shapes = self.shapes or [usual(n, BYTES[dtype]) for n in range(1, 257)]
    cells = [Cell(op, n, batch, dtype) for batch, n in shapes]
    return [x for x in cells if self.last(self.least) < self.key(x) <= self.last(self.most)]

  def measured(self, current: int) -> list[Cell]:
    """The nearest, the farthest and middle cells on each side of the current value."""
    found = []
    for op in self.ops:
      for dtype in self.dtypes:
        cells = sorted(self.deciding(op, dtype), key=self.key)
        sides = (
            [x for x in cells if self.key(x) <= self.last(current)][::-1],
            [x for x in cells if self.key(x) > self.last(current)])
        for side in sides:
          count = min(SIDE, len(side))
          found += [side[round(i * (len(side) - 1) / max(count - 1, 1))] for i in range(count)]
    return found


def side(cell: Cell) -> float:
  return cell.n


def square(cell: Cell) -> float:
  return cell.n * cell.n * cell.size


def two_squares(cell: Cell) -> float:
  return 2 * square(cell)


def arrays(squares: int, columns: int) -> Key:
  """Bytes of so many matrices and vectors."""
  return lambda cell: (squares * cell.n + columns) * cell.n * cell.size


FIRST, SECOND = r" = sizeof\(E\) == 4 +\? ", r" = sizeof\(E\) == 4 +\? \d+ +: "


def of_number(constant: str, least: int, most: int, ops: dict[str, Key]) -> CutOff:
  return CutOff(constant, BOTH, least, most, ops, (), rf"\b{constant} = ")


def of_dtype(
    constant: str, dtype: str, least: int, most: int, ops: dict[str, Key],
    values: tuple[int, ...] = (), second: str = SECOND) -> CutOff:
  before = rf"\b{constant}{FIRST if dtype == 'f32' else second}"
  return CutOff(constant, (dtype,), least, most, ops, values, before)


def of_handlers(
    constant: str, op: str, least: int, most: int, key: Key = side,
    written: Callable[[int], str] = "Limit({})".format) -> CutOff:
  """A limit beyond which XLA's operations take over."""
  before = rf"^{constant} = {{.*?\"cuda\": "
  return CutOff(constant, BOTH, least, most, {op: key}, (), before, written)


def of_bytes(nbytes: int) -> str:
  return f"Limit({math.isqrt(nbytes // BYTES['f32'])}, nbytes={nbytes})"


def of_shapes(
    constant: str, least: int, most: int, op: str, key: Key, shapes: Iterable[Shape],
    dtypes: tuple[str, ...] = BOTH, first: bool = False) -> CutOff:
  return CutOff(
      constant, dtypes, least, most, {op: key}, (), rf"\b{constant} = ", str, tuple(shapes), first)


def batch(cell: Cell) -> float:
  return cell.batch


def rows_of_batch(cell: Cell) -> float:
  return -(-cell.n // cell.batch)


def of_one(batch: int, *orders: int) -> list[Shape]:
  return [(batch, n) for n in orders]


# The grids of an operation's cut-offs must not overlap. In the build with the least values, the
# path above one cut-off is the path below the next. The arrays of one thread are counted as
# kernels/small allocates them.
THREAD_LU: dict[str, Key] = {"lu": square, "inv": two_squares}
CUT_OFFS = [
    of_dtype("kThreadBytes", "f32", 256, 1024, THREAD_LU),
    of_dtype("kThreadBytes", "f64", 512, 2048, THREAD_LU),
    of_dtype("kThreadCholeskyBytes", "f32", 256, 1024, {"cholesky": square}),
    of_dtype("kThreadCholeskyBytes", "f64", 512, 2048, {"cholesky": square}),
    of_number("kThreadTriangularBytes", 512, 2304, {"triangular_solve": two_squares}),
    of_number("kThreadQrBytes", 800, 2700, {"qr": arrays(2, 1)}),
    of_number("kThreadSvdBytes", 350, 2100, {"svd": arrays(5, 2)}),
    of_number("kThreadEighBytes", 640, 2600, {"eigh": arrays(3, 9)}),
    of_number("kThreadCofactors", 6, 16, {"grad det": side, "grad slogdet": side}),
    of_dtype("kWarpLu", "f32", 16, 64, {"lu": side, "inv": side}, (16, 32, 64)),
    of_dtype("kWarpLu", "f64", 16, 32, {"lu": side, "inv": side}, (16, 32),
             r" = sizeof\(E\) == 4 +\? \d+\s+: sizeof\(E\) == 8 +\? "),
    CutOff("kWarpCholesky", BOTH, 16, 32, {"cholesky": side}, (16, 32),
           r"\bkWarpCholesky = sizeof\(E\) <= 8 \? "),
    of_number("kTeamCholesky", 80, 160, {"cholesky": side}),
    of_number("kTeamLu", 80, 160, {"lu": side}),
    of_number("kTeamTriangular", 80, 144, {"triangular_solve": side}),
    of_number("kTeamEigh", 64, 128, {"eigh": side}),
    of_number("kTeamSvd", 40, 80, {"svd": side}),
    of_shapes("kPanelsEigh", 512, 1536, "eigh", side, of_one(40, 640, 768, 1024, 1280, 1536),
              ("f32",)),
    of_shapes("kPanelsEighRatio", 16, 256, "eigh", rows_of_batch,
              [(8, 256), (4, 256), (2, 256), (16, 512), (8, 512), (4, 512), (2, 512)]),
    of_shapes("kPanelsCholeskyRatio", 32, 1024, "cholesky", lambda cell: cell.n // cell.batch,
              [(2, 2048), (4, 2048), (2, 512), (8, 1024), (4, 256)]),
    of_shapes("kPanelsLu", 512, 2048, "lu", side, of_one(40, 768, 1024, 1280, 1536, 2048)),
    of_shapes("kPanelsSubstitution", 512, 2048, "triangular_solve", side,
              of_one(40, 768, 1024, 1280, 1536, 2048)),
    of_shapes("kPanelQrRowsOfBatch", 128, 2048, "qr", rows_of_batch,
              [*of_one(1, 256, 512, 1024, 1536, 2048), (2, 1536)]),
    of_shapes("kPanelQrRows", 1024, 4096, "qr", side, of_one(8, 1536, 2048, 3072, 3584, 4096),
              ("f32",)),
    of_shapes("kJacobiBlocksSvd", 256, 1024, "svd", side, of_one(16, 320, 512, 1024)),
    # All sides are below the least kJacobiBlocksSvd, and the batches above are the largest here.
    of_shapes("kJacobiBlocksBatch", 1, 16, "svd", batch, [(x, 192) for x in (1, 2, 3, 4, 8, 12)],
              first=True),
    of_shapes("kGlobalBatch", 4, 64, "eig", batch, [(x, 100) for x in (4, 12, 23, 24, 40)],
              first=True),
    # All batches are at least the largest kGlobalBatch. Smaller orders fit in shared memory.
    of_shapes("kMultishiftSchur", 48, 320, "eig", side, of_one(64, 100, 160, 256), ("c64",),
              first=True),
    # All batches are below the least kFewTridiagonal, and all of its orders above the largest here.
    of_shapes("kLongTridiagonal", 32, 512, "tridiagonal_solve", side,
              of_one(1000, 32, 48, 63, 64, 96, 128, 256), first=True),
    of_shapes("kFewTridiagonal", 1024, 16384, "tridiagonal_solve", batch,
              [(x, 1024) for x in (2048, 4096, 8192, 16384)]),
    of_handlers("CHOLESKY_DERIVATIVE", "grad cholesky", 400, 2048, square, of_bytes),
    of_handlers("EIGH_DERIVATIVE", "grad eigh", 8, 32),
    of_handlers("SVD_DERIVATIVE", "grad svd", 8, 32),
    of_handlers("QR_DERIVATIVE", "grad qr", 4, 12),
    CutOff("_PRODUCTS", BOTH, 8, 24, {"matmul": side}, (), r'^    "cuda": _Products\(')]


def place(cut_off: CutOff, text: str) -> "re.Match[str]":
  """The match in the file: the text before the value, and the value."""
  value = r"Limit\([^)]*\)" if cut_off.written is not str else r"\d+"
  (found,) = re.finditer(rf"({cut_off.before})({value})", text, re.M)
  return found


def value_of(cut_off: CutOff, text: str) -> int:
  written = place(cut_off, text)[2]
  (value,) = [x for x in map(int, re.findall(r"\d+", written)) if cut_off.written(x) == written]
  return value


def with_value(cut_off: CutOff, text: str, value: int) -> str:
  """The file with another value."""
  found = place(cut_off, text)
  return text[:found.start(2)] + cut_off.written(value) + text[found.end(2):]


class Judgement(NamedTuple):
  value: int  # the best one
  sizes: int  # how many it is based on
  gain: float  # the speed-up of the sizes whose path changes, or would change
  verdict: str
  # The nearest measured cells on both sides of the current value.
  nearest: tuple[Cell, ...] = ()


def judge(cut_off: CutOff, current: int, before: Times, after: Times) -> Judgement:
  """`before` has times of the path below the crossover, `after` of the path above it."""
  cells = [
      cell for op in cut_off.ops for dtype in cut_off.dtypes for cell in cut_off.deciding(op, dtype)
      if cell in before and cell in after]
  points = [(cut_off.key(x), math.log(before[x] / after[x])) for x in cells]

  def loss(value: float) -> float:
    return sum(x for at, x in points if at <= cut_off.last(value))

  if len(points) < FEWEST:
    return Judgement(current, len(points), 1.0, "not measured")
  own = [int(math.floor(at)) + cut_off.first for at, _ in points]
  values = cut_off.values or {cut_off.least, current, *own}
  # If several values take the same time, the nearest to the current one.
  best = min(values, key=lambda value: (round(loss(value), 9), abs(value - current)))
  low, high = sorted((cut_off.last(best), cut_off.last(current)))
  changed = sum(low < at <= high for at, _ in points)
  gain = math.exp((loss(current) - loss(best)) / max(changed, 1))
  verdict = "keep" if gain < NOISE else "raise" if best > current else "lower"
  below = [x for x in cells if cut_off.key(x) <= cut_off.last(current)]
  above = [x for x in cells if cut_off.key(x) > cut_off.last(current)]
  nearest = (
      *[max(some, key=cut_off.key) for some in (below,) if some],
      *[min(some, key=cut_off.key) for some in (above,) if some])
  return Judgement(
      best if verdict != "keep" else current, len(points), gain, verdict, nearest)


class Measured(NamedTuple):
  """The measurements of one build by benchmarks/run.py."""

  times: Times
  # The columns that all its rows share.
  row: dict[str, Any]


def times_of(files: Sequence[pathlib.Path]) -> Measured:
  """Reads the files that exist."""
  read = [json.loads(file.read_text()) for file in files if file.exists()]
  if not read:
    return Measured({}, {})
  cells = [cell for run in read for cell in run["cells"] if "seconds" in cell]
  times = {Cell(cell["op"], cell["n"], cell["batch"], cell["dtype"]): cell["seconds"]["ours"]
           for cell in cells}
  machine, commands = read[-1]["machine"], [run["command"] for run in read if "command" in run]
  row = {"machine": machine.get("device") or machine["cpu"], "date": read[-1]["date"][:10]}
  return Measured(times, row | ({"command": "; ".join(commands)} if commands else {}))


def texts() -> dict[str, str]:
  return {file: (ROOT / file).read_text() for file in (CUDA, PYTHON)}


def varied(texts: dict[str, str], bound: str) -> dict[str, str]:
  """The texts with the least values of all grids, or the largest."""
  texts = dict(texts)
  for cut_off in CUT_OFFS:
    value = cut_off.least if bound == "less" else cut_off.most
    texts[cut_off.file] = with_value(cut_off, texts[cut_off.file], value)
  return texts


def write(texts: dict[str, str], folder: pathlib.Path) -> None:
  for file, text in texts.items():
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)


def cells(texts: dict[str, str]) -> list[Cell]:
  """The cells of all constants, each once."""
  found = (x for cut_off in CUT_OFFS
           for x in cut_off.measured(value_of(cut_off, texts[cut_off.file])))
  return list(dict.fromkeys(found))


def of_header(text: str) -> list[str]:
  """The constants that a header defines, in its order."""
  return re.findall(r"^inline constexpr [\w:]+ (k\w+)\b", text, re.MULTILINE)


def _shown(cell: Cell, before: Times, after: Times) -> str:
  times = " and ".join(f"{1e3 * x[cell]:.4g}" for x in (before, after))
  return f"{cell.op} {cell.batch}x{cell.n} {cell.dtype}: {times}"


def table(texts: dict[str, str], before: Times, after: Times) -> list[str]:
  lines = [
      "| constant | value | verdict | best | gain | sizes | the nearest sizes: milliseconds by the "
      "path below the constant and by the path above it |", "|---|---:|---|---:|---:|---:|---|"]
  for cut_off in CUT_OFFS:
    current = value_of(cut_off, texts[cut_off.file])
    found = judge(cut_off, current, before, after)
    # Values beyond the grid were not measured.
    at_end = found.value != current and found.value in (cut_off.least, cut_off.most)
    best = f"{found.value}{', an end of its grid' * (at_end and not cut_off.values)}"
    measured = found.verdict != "not measured"
    lines.append(
        f"| {cut_off.name} | {current} | {found.verdict} | {best if measured else ''} | "
        f"{f'{found.gain:.2f}' if measured else ''} | {found.sizes} | "
        f"{'; '.join(_shown(x, before, after) for x in found.nearest)} |")
  known = {x.constant for x in CUT_OFFS}
  others = [name for name in of_header(texts[CUDA]) if name not in known]
  if others:
    lines += ["", "Not compared: " + ", ".join(dict.fromkeys(others)) + "."]
  return lines


def rows(before: Measured, after: Measured, file: str) -> dict[str, Any]:
  """The times of both builds at the constants of a file, as benchmarks/crossovers has them."""
  constants: dict[str, None] = {}
  found: list[dict[str, Any]] = []
  for cut_off in CUT_OFFS:
    some = [x for op in cut_off.ops for dtype in cut_off.dtypes
            for x in cut_off.deciding(op, dtype) if x in before.times and x in after.times]
    if cut_off.file != file or len(some) < FEWEST:
      continue
    constants[cut_off.constant] = None
    for cell in some:
      seconds = [before.times[cell], after.times[cell]]
      found.append(before.row | {
          "operation": cell.op, "n": cell.n, "batch": cell.batch, "dtype": DTYPES[cell.dtype],
          "compares": [f"below {cut_off.constant}", f"above {cut_off.constant}"],
          "ratio": round(seconds[0] / seconds[1], 3), "seconds": seconds})
  return {"constants": list(constants), "source": file, "rows": found}


def main(arguments: Iterable[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description="Judges the crossovers of CUDA's handlers.")
  commands = parser.add_subparsers(dest="command", required=True)
  vary = commands.add_parser("vary", help="writes the least or the largest values")
  vary.add_argument("bound", choices=("less", "more"))
  vary.add_argument("folder", type=pathlib.Path)
  listed = commands.add_parser("cells", help="writes the cells to measure")
  listed.add_argument("file", type=pathlib.Path)
  judged = commands.add_parser("judge", help="prints a table of verdicts")
  for bound in ("less", "more"):
    judged.add_argument(f"--{bound}", type=pathlib.Path, nargs="+", required=True,
                        help="the JSON that benchmarks/run.py wrote of that build")
  judged.add_argument("--rows", type=pathlib.Path, metavar="FOLDER",
                      help="where to write the times")
  args = parser.parse_args(None if arguments is None else list(arguments))
  if args.command == "vary":
    write(varied(texts(), args.bound), args.folder)
  elif args.command == "cells":
    args.file.write_text(json.dumps([x._asdict() for x in cells(texts())]))
  else:
    before, after = times_of(args.more), times_of(args.less)
    print("\n".join(table(texts(), before.times, after.times)))
    for file, name in CROSSOVERS.items():
      if args.rows and (found := rows(before, after, file))["rows"]:
        args.rows.mkdir(parents=True, exist_ok=True)
        crossover.write(args.rows / name, found)


if __name__ == "__main__":
  main()
