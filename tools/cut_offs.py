"""Where the paths of kernels/cuda/tuning.h, and the limits of handlers in linalg/_tuning.py, should
change, by times of both paths at the same sizes.

  python tools/cut_offs.py vary less --kept FOLDER     # then build and measure, to less.json
  python tools/cut_offs.py vary more --kept FOLDER     # then build and measure, to more.json
  python tools/cut_offs.py decide --kept FOLDER --less less.json --more more.json
  python tools/cut_offs.py restore --kept FOLDER

tools/on_gpu.py does all of it, and has the commands that measure. `vary` writes the least, or the
largest, value of each cut-off's grid into both files, of which FOLDER keeps the originals until one
of the last two commands: so the sizes between these values take the path behind the cut-off in one
build, and the path before it in the other. `decide` picks of each grid the value with which all
those sizes together take the least time, as the sum of its logarithms; the value stays as it was
where that wins less than NOISE for a size whose path would change. It writes these values into the
originals, with the device and the date above each, and prints a Markdown table.
"""

import argparse
import json
import math
import pathlib
import re
import shutil
from collections.abc import Callable, Sequence
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
CUDA, PYTHON = "kernels/cuda/tuning.h", "linalg/_tuning.py"
BYTES = {"f32": 4, "f64": 8}
# Of one and the same path times differ by so much from one build to the next.
NOISE = 1.05
# Sizes that a decision takes at least.
FEWEST = 3

# By op, n and dtype.
Times = dict[tuple[str, int, str], float]
Key = Callable[[int, int], int]


class CutOff(NamedTuple):
  """A constant that has this value for these dtypes: the path before it takes matrices of at most
  that."""

  constant: str
  dtypes: tuple[str, ...]
  least: int
  most: int
  # By operation, what of n and of a number's bytes is compared with the constant.
  ops: dict[str, Key]
  # The values that there are kernels for, if not all.
  values: tuple[int, ...] = ()
  # In the file, what is before the value, and, if not the number, how it is written.
  before: str = ""
  written: Callable[[int], str] = str

  @property
  def name(self) -> str:
    return self.constant if len(self.dtypes) == len(BYTES) else f"{self.constant}, {self.dtypes[0]}"

  @property
  def file(self) -> str:
    return CUDA if self.constant.startswith("k") else PYTHON

  def sizes(self, op: str, dtype: str) -> list[int]:
    """The n that decide: each takes the one path with the least value, the other with the most."""
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
  """Beyond which XLA's operations do it."""
  before = rf"^{constant} = {{.*?\"cuda\": "
  return CutOff(constant, BOTH, least, most, {op: key}, (), before, written)


def of_bytes(nbytes: int) -> str:
  return f"Limit({math.isqrt(nbytes // BYTES['f32'])}, nbytes={nbytes})"


def of_side(n: int) -> str:
  return f"Limit({n}, nbytes={square(n, BYTES['f64'])})"


# No grid of one operation meets the grid of its next cut-off: what is behind the one, in the build
# with the least values, is what is before the next. What one thread works in is counted as the
# kernels of kernels/small have it.
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
  """Where the file has it: all but the value, and the value as it is written."""
  value = r"Limit\([^)]*\)" if cut_off.written is not str else r"\d+"
  (found,) = re.finditer(rf"({cut_off.before})({value})", text, re.M)
  return found


def value_of(cut_off: CutOff, text: str) -> int:
  written = place(cut_off, text)[2]
  (value,) = [x for x in map(int, re.findall(r"\d+", written)) if cut_off.written(x) == written]
  return value


def with_value(cut_off: CutOff, text: str, value: int, measured: str = "") -> str:
  """The file with another value and, above it, of what is measured, on which device and when."""
  found = place(cut_off, text)
  text = text[:found.start(2)] + cut_off.written(value) + text[found.end(2):]
  if not measured:
    return text
  # Above all of the declaration, and in the place of what an earlier run said.
  start = text.rfind("\n", 0, found.start()) + 1 if cut_off.file == PYTHON else text.rfind(
      "\n", 0, text.rfind("inline constexpr", 0, found.end(1))) + 1
  if text[:start].endswith("template <class E>\n"):
    start -= len("template <class E>\n")
  sign = "#" if cut_off.file == PYTHON else "//"
  indent = re.match(r" *", text[start:])[0]
  head, last = text[:start], text[:start].rstrip("\n").rpartition("\n")[2]
  if last.startswith(f"{indent}{sign} Decided on "):
    head = head[:-len(last) - 1]
  return f"{head}{indent}{sign} Decided on {measured} (tools/cut_offs.py).\n{text[start:]}"


class Decision(NamedTuple):
  value: int
  sizes: int  # that it is from
  gain: float  # by which the sizes whose path changes are faster, or would be


def decide(cut_off: CutOff, current: int, before: Times, after: Times) -> Decision:
  """`before` are times of the path before the cut-off, `after` of the path after it."""
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
  # Of those that take the same time, the nearest to what there is.
  best = min(values, key=lambda value: (round(loss(value), 9), abs(value - current)))
  changed = sum(min(best, current) < at <= max(best, current) for at, _ in points)
  gain = math.exp((loss(current) - loss(best)) / max(changed, 1))
  return Decision(best if gain >= NOISE else current, len(points), gain)


def times_of(files: Sequence[pathlib.Path]) -> tuple[Times, str]:
  """Of what benchmarks/run.py wrote, to the files that there are; and the device and the date."""
  read = [json.loads(file.read_text()) for file in files if file.exists()]
  if not read:
    raise FileNotFoundError(f"none of {', '.join(map(str, files))}")
  cells = [cell for run in read for cell in run["cells"] if "seconds" in cell]
  batch = max((cell["batch"] for cell in cells), default=0)
  times = {(cell["op"], cell["n"], cell["dtype"]): cell["seconds"]["ours"]
           for cell in cells if cell["batch"] == batch}
  machine = read[-1]["machine"]
  return times, f"{machine.get('device') or machine['cpu']}, {read[-1]['date'][:10]}"


def kept(folder: pathlib.Path) -> dict[str, pathlib.Path]:
  """Where the originals are while their values vary."""
  return {file: folder / pathlib.Path(file).name for file in (CUDA, PYTHON)}


def originals(folder: pathlib.Path) -> dict[str, str]:
  """What is kept, or else is there, and kept from now on."""
  folder.mkdir(parents=True, exist_ok=True)
  for file, path in kept(folder).items():
    if not path.exists():
      shutil.copy(ROOT / file, path)
  return {file: path.read_text() for file, path in kept(folder).items()}


def write(texts: dict[str, str]) -> None:
  for file, text in texts.items():
    (ROOT / file).write_text(text)


def varied(texts: dict[str, str], bound: str) -> dict[str, str]:
  """With the least values of all grids, or the most."""
  texts = dict(texts)
  for cut_off in CUT_OFFS:
    value = cut_off.least if bound == "less" else cut_off.most
    texts[cut_off.file] = with_value(cut_off, texts[cut_off.file], value)
  return texts


def decided(
    texts: dict[str, str], before: Times, after: Times, measured: str
) -> tuple[dict[str, str], list[str]]:
  """With what is decided, and the table of it."""
  texts = dict(texts)
  lines = ["| constant | operations | sizes | value | decided | gain |",
           "|---|---|---:|---:|---:|---:|"]
  for cut_off in CUT_OFFS:
    current = value_of(cut_off, texts[cut_off.file])
    found = decide(cut_off, current, before, after)
    enough = found.sizes >= FEWEST
    if enough:
      texts[cut_off.file] = with_value(cut_off, texts[cut_off.file], found.value, measured)
    at_end = enough and found.value in (cut_off.least, cut_off.most) and not cut_off.values
    lines.append(
        f"| {cut_off.name} | {', '.join(cut_off.ops)} | {found.sizes} | {current} | "
        f"{found.value if enough else 'too few sizes'}{', an end of its grid' * at_end} | "
        f"{f'{found.gain:.2f}' if enough else ''} |")
  return texts, lines


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
    (before, measured), (after, _) = times_of(args.more), times_of(args.less)
    texts, lines = decided(texts, before, after, measured)
    print("\n".join(lines))
  write(texts)
  if args.command != "vary":
    for path in kept(args.kept).values():
      path.unlink()


if __name__ == "__main__":
  main()
