"""Finds the crossovers of kernels/cuda/tuning.h and the limits in linalg/_core/tuning.py, from
times of both paths at the same sizes.

  python tools/cut_offs.py vary less --kept FOLDER     # then build and measure, to less.json
  python tools/cut_offs.py vary more --kept FOLDER     # then build and measure, to more.json
  python tools/cut_offs.py decide --kept FOLDER --less less.json --more more.json
  python tools/cut_offs.py restore --kept FOLDER

tools/on_gpu.py does all of it, and has the commands that measure. `vary` writes the least, or the
largest, value of each grid into both files. FOLDER keeps the originals until `decide` or `restore`.
Sizes between these values take the path above the cut-off in one build, and the path below it in
the other.

`decide` picks the value of each grid with which all these sizes take the least time, by the sum of
logarithms. A value stays where the change would win less than NOISE for the sizes whose path it
changes. `decide` writes the values into the originals, the times of both builds to
benchmarks/crossovers/, and prints a Markdown table.
"""

import argparse
import json
import math
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import crossover  # noqa: E402

CUDA, PYTHON = "kernels/cuda/tuning.h", "linalg/_core/tuning.py"
CROSSOVERS = {CUDA: "cuda_tuned.json", PYTHON: "limits_tuned.json"}
BYTES = {"f32": 4, "f64": 8}
DTYPES = {"f32": "float32", "f64": "float64"}
# Times of the same path differ by this factor from build to build.
NOISE = 1.05
# The least number of sizes for a decision.
FEWEST = 3

# Keys are op, n and dtype.
Times = dict[tuple[str, int, str], float]
Key = Callable[[int, int], int]


class CutOff(NamedTuple):
  """A constant for these dtypes: the largest matrices of the path before it."""

  constant: str
  dtypes: tuple[str, ...]
  least: int
  most: int
  # Operation -> the quantity that is compared with the constant, from n and a number's bytes.
  ops: dict[str, Key]
  # The values that have kernels, if not all.
  values: tuple[int, ...] = ()
  # The text before the value in the file, and how the value is written.
  before: str = ""
  written: Callable[[int], str] = str

  @property
  def name(self) -> str:
    return self.constant if len(self.dtypes) == len(BYTES) else f"{self.constant}, {self.dtypes[0]}"

  @property
  def file(self) -> str:
    return CUDA if self.constant.startswith("k") else PYTHON

  def sizes(self, op: str, dtype: str) -> list[int]:
    """The orders n that decide.

    Each takes one path with the least value, and the other with the largest.
    """
    key, size = self.ops[op], BYTES[dtype]
    return [n for n in range(1, 257) if self.least < key(n, size) <= self.most]


def side(n: int, size: int) -> int:
  return n


def square(n: int, size: int) -> int:
  return n * n * size


def two_squares(n: int, size: int) -> int:
  return 2 * n * n * size


BOTH = tuple(BYTES)
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


def of_side(n: int) -> str:
  return f"Limit({n}, nbytes={square(n, BYTES['f64'])})"


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
    of_number("kThreadQrBytes", 800, 2700, {"qr": lambda n, size: (2 * n * n + n) * size}),
    of_number("kThreadSvdBytes", 350, 2100, {"svd": lambda n, size: (5 * n * n + 2 * n) * size}),
    of_number("kThreadEighBytes", 640, 2600, {"eigh": lambda n, size: (3 * n * n + 9 * n) * size}),
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
    of_handlers("CHOLESKY_DERIVATIVE", "grad cholesky", 400, 2048, square, of_bytes),
    of_handlers("EIGH_DERIVATIVE", "grad eigh", 8, 32),
    of_handlers("SVD_DERIVATIVE", "grad svd", 8, 32),
    of_handlers("QR_DERIVATIVE", "grad qr", 4, 12),
    of_handlers("COFACTORS", "grad det", 6, 16, side, of_side),
    of_handlers("SLOGDET_INVERSE", "grad slogdet", 6, 16, side, of_side),
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


class Decision(NamedTuple):
  value: int
  sizes: int  # how many it is based on
  gain: float  # the speed-up of the sizes whose path changes, or would change


def decide(cut_off: CutOff, current: int, before: Times, after: Times) -> Decision:
  """`before` has times of the path below the cut-off, `after` of the path above it."""
  points = [
      (key(n, BYTES[dtype]), math.log(before[op, n, dtype] / after[op, n, dtype]))
      for op, key in cut_off.ops.items() for dtype in cut_off.dtypes
      for n in cut_off.sizes(op, dtype)
      if (op, n, dtype) in before and (op, n, dtype) in after]

  def loss(value: int) -> float:
    return sum(x for at, x in points if at <= value)

  if len(points) < FEWEST:
    return Decision(current, len(points), 1.0)
  values = cut_off.values or {cut_off.least, current, *(at for at, _ in points)}
  # If several values take the same time, the nearest to the current one.
  best = min(values, key=lambda value: (round(loss(value), 9), abs(value - current)))
  changed = sum(min(best, current) < at <= max(best, current) for at, _ in points)
  gain = math.exp((loss(current) - loss(best)) / max(changed, 1))
  return Decision(best if gain >= NOISE else current, len(points), gain)


class Measured(NamedTuple):
  """The measurements of one build by benchmarks/run.py."""

  times: Times
  # The columns that all its rows share.
  row: dict[str, Any]


def times_of(files: Sequence[pathlib.Path]) -> Measured:
  """Reads the files that exist."""
  read = [json.loads(file.read_text()) for file in files if file.exists()]
  if not read:
    raise FileNotFoundError(f"none of {', '.join(map(str, files))}")
  cells = [cell for run in read for cell in run["cells"] if "seconds" in cell]
  batch = max((cell["batch"] for cell in cells), default=0)
  times = {(cell["op"], cell["n"], cell["dtype"]): cell["seconds"]["ours"]
           for cell in cells if cell["batch"] == batch}
  machine, commands = read[-1]["machine"], [run["command"] for run in read if "command" in run]
  row = {"machine": machine.get("device") or machine["cpu"], "date": read[-1]["date"][:10]}
  if commands:
    row["command"] = "; ".join(commands)
  return Measured(times, {**row, "batch": batch})


def kept(folder: pathlib.Path) -> dict[str, pathlib.Path]:
  """Where the original files are kept while the values vary."""
  return {file: folder / pathlib.Path(file).name for file in (CUDA, PYTHON)}


def originals(folder: pathlib.Path) -> dict[str, str]:
  """The texts of the originals, which are kept from now on."""
  folder.mkdir(parents=True, exist_ok=True)
  for file, path in kept(folder).items():
    if not path.exists():
      shutil.copy(ROOT / file, path)
  return {file: path.read_text() for file, path in kept(folder).items()}


def write(texts: dict[str, str]) -> None:
  for file, text in texts.items():
    (ROOT / file).write_text(text)


def varied(texts: dict[str, str], bound: str) -> dict[str, str]:
  """The texts with the least values of all grids, or the largest."""
  texts = dict(texts)
  for cut_off in CUT_OFFS:
    value = cut_off.least if bound == "less" else cut_off.most
    texts[cut_off.file] = with_value(cut_off, texts[cut_off.file], value)
  return texts


def decided(
    texts: dict[str, str], before: Measured, after: Measured
) -> tuple[dict[str, str], list[str]]:
  """The texts with the decided values, and a table of them."""
  texts = dict(texts)
  lines = ["| constant | operations | sizes | value | decided | gain |",
           "|---|---|---:|---:|---:|---:|"]
  for cut_off in CUT_OFFS:
    current = value_of(cut_off, texts[cut_off.file])
    found = decide(cut_off, current, before.times, after.times)
    enough = found.sizes >= FEWEST
    if enough:
      texts[cut_off.file] = with_value(cut_off, texts[cut_off.file], found.value)
    at_end = enough and found.value in (cut_off.least, cut_off.most) and not cut_off.values
    lines.append(
        f"| {cut_off.name} | {', '.join(cut_off.ops)} | {found.sizes} | {current} | "
        f"{found.value if enough else 'too few sizes'}{', an end of its grid' * at_end} | "
        f"{f'{found.gain:.2f}' if enough else ''} |")
  return texts, lines


def keep_times(before: Measured, after: Measured) -> None:
  """Writes the times of both builds to the files of benchmarks/crossovers, in the place of those of
  an earlier decision."""
  for file, name in CROSSOVERS.items():
    constants: list[str] = []
    rows: list[dict[str, Any]] = []
    for cut_off in CUT_OFFS:
      keys = [(op, n, dtype) for op in cut_off.ops for dtype in cut_off.dtypes
              for n in cut_off.sizes(op, dtype)
              if (op, n, dtype) in before.times and (op, n, dtype) in after.times]
      if cut_off.file != file or len(keys) < FEWEST:
        continue
      constants += [cut_off.constant] * (cut_off.constant not in constants)
      for key in keys:
        seconds = [before.times[key], after.times[key]]
        rows.append(before.row | {
            "operation": key[0], "n": key[1], "dtype": DTYPES[key[2]],
            "compares": [f"below {cut_off.constant}", f"above {cut_off.constant}"],
            "ratio": round(seconds[0] / seconds[1], 3), "seconds": seconds})
    if rows:
      path = ROOT / "benchmarks" / "crossovers" / name
      path.parent.mkdir(parents=True, exist_ok=True)
      crossover.write(path, {"constants": constants, "source": file, "rows": rows})


def main() -> None:
  parser = argparse.ArgumentParser(description="Decides the cut-offs of CUDA's handlers.")
  commands = parser.add_subparsers(dest="command", required=True)
  vary = commands.add_parser("vary", help="writes the least or the largest values")
  vary.add_argument("bound", choices=("less", "more"))
  choose = commands.add_parser("decide", help="writes what the times decide")
  for bound in ("less", "more"):
    choose.add_argument(f"--{bound}", type=pathlib.Path, nargs="+", required=True,
                        help="the JSON that benchmarks/run.py wrote of that build")
  restore = commands.add_parser("restore", help="writes the originals")
  for command in (vary, choose, restore):
    command.add_argument("--kept", type=pathlib.Path, required=True,
                         help="the folder of the originals")
  args = parser.parse_args()
  texts = originals(args.kept)
  if args.command == "vary":
    texts = varied(texts, args.bound)
  elif args.command == "decide":
    before, after = times_of(args.more), times_of(args.less)
    texts, lines = decided(texts, before, after)
    keep_times(before, after)
    print("\n".join(lines))
  write(texts)
  if args.command != "vary":
    for path in kept(args.kept).values():
      path.unlink()


if __name__ == "__main__":
  main()
