"""Where the paths of kernels/cuda/tuning.h, and the limits of handlers in linalg/_tuning.py, should
change, by times of sizes around where they do.

  python benchmarks/run.py --platform gpu ... --output tuning.json   # tools/on_gpu.py has the sizes
  python benchmarks/run.py --platform gpu --gradients ... --output tuning-gradients.json
  python tools/cut_offs.py tuning.json tuning-gradients.json

prints a Markdown table. For each constant and dtype the sizes at hand on either side are a line
each, of the logarithm of the time in that of n; the lines are drawn on beyond the cut-off, and
where they meet is the proposal. The step is the time just beyond the cut-off over what the line of
the path before it says there: above 1 that path should go further, below 1 it should have ended
sooner. What is proposed is drawn on from measured sizes, not measured: change the constant, build,
and look again.
"""

import argparse
import json
import math
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from linalg import _tuning

BYTES = {"f32": 4, "f64": 8}
# Sizes on each side that make a line, and how near in size they must be.
POINTS = 3
REACH = 1.6
# Of one and the same path the times step by so much too, from one size to the next.
NOISE = 1.15

Times = dict[int, float]  # by n


class CutOff(NamedTuple):
  """The largest n of the path before a cut-off, as the constant has it for a dtype."""

  constant: str
  op: str
  largest: Callable[[str], int]
  value: Callable[[str, int], str] = lambda dtype, n: str(n)  # of the constant, for another n


def largest_of(bytes_of: Callable[[int, int], int], limit: dict[str, int]) -> Callable[[str], int]:
  """The largest n whose matrices, and what goes with them, have no more bytes than the limit."""
  return lambda dtype: max(
      n for n in range(1, 200) if bytes_of(n, BYTES[dtype]) <= limit[dtype])


def of_bytes(
    constant: str, op: str, bytes_of: Callable[[int, int], int], limit: dict[str, int]) -> CutOff:
  return CutOff(constant, op, largest_of(bytes_of, limit),
                lambda dtype, n: f"{bytes_of(n, BYTES[dtype])} bytes")


def of_sides(constant: str, op: str, largest: dict[str, int]) -> CutOff:
  return CutOff(constant, op, lambda dtype: largest[dtype])


def of_handlers(constant: str, op: str) -> CutOff:
  """Beyond which XLA's operations do it."""
  limit = getattr(_tuning, constant)["cuda"]
  return CutOff(constant, op, lambda dtype: max(
      n for n in range(1, limit.side + 1) if n * n * BYTES[dtype] <= limit.nbytes))


def square(n: int, size: int) -> int:
  return n * n * size


def two_squares(n: int, size: int) -> int:
  return 2 * n * n * size


# The first as tuning.h has them: tests/cuda/test_tools.py compares.
CUT_OFFS = [
    of_bytes("kAloneBytes", "lu", square, {"f32": 576, "f64": 1152}),
    of_bytes("kAloneBytes", "inv", two_squares, {"f32": 576, "f64": 1152}),
    of_bytes("kAloneCholeskyBytes", "cholesky", square, {"f32": 784, "f64": 1152}),
    of_bytes("kAloneQrBytes", "qr", lambda n, size: two_squares(n, size) + n * size,
             {"f32": 1664, "f64": 1664}),
    of_sides("kWarpLu", "lu", {"f32": 64, "f64": 32}),
    of_sides("kWarpLu", "inv", {"f32": 64, "f64": 32}),
    of_sides("kWarpCholesky", "cholesky", {"f32": 32, "f64": 32}),
    of_sides("kTeamCholesky", "cholesky", {"f32": 128, "f64": 128}),
    of_sides("kTeamLu", "lu", {"f32": 128, "f64": 128}),
    of_sides("kTeamEigh", "eigh", {"f32": 128, "f64": 128}),
    of_sides("kTeamSvd", "svd", {"f32": 64, "f64": 64}),
    # By what the algorithms of one thread each work in: docs/cuda.md has these orders.
    of_sides("kAloneEighBytes", "eigh", {"f32": 9, "f64": 6}),
    of_sides("kAloneSvdBytes", "svd", {"f32": 6, "f64": 4}),
    of_handlers("CHOLESKY_DERIVATIVE", "grad cholesky"),
    of_handlers("EIGH_DERIVATIVE", "grad eigh"),
    of_handlers("QR_DERIVATIVE", "grad qr"),
    of_handlers("SVD_DERIVATIVE", "grad svd"),
    of_handlers("COFACTORS", "grad det"),
    of_handlers("SLOGDET_INVERSE", "grad slogdet"),
    of_sides("_PRODUCTS", "matmul", dict.fromkeys(BYTES, _tuning._PRODUCTS["cuda"].side))]


class Found(NamedTuple):
  step: float
  proposal: int | None  # the largest n of the path before; None where the lines do not meet


def line(times: Times) -> tuple[float, float]:
  """The slope, and the height at n = 1, of log time over log n."""
  n = np.log(np.array(list(times)))
  slope, height = np.polyfit(n, np.log(np.array(list(times.values()))), 1)
  return float(slope), float(height)


def judge(times: Times, largest: int) -> Found | None:
  """None where there are too few sizes on a side."""
  before = {n: t for n, t in times.items() if largest / REACH <= n <= largest}
  after = {n: t for n, t in times.items() if largest < n <= largest * REACH}
  before = dict(sorted(before.items())[-POINTS:])
  after = dict(sorted(after.items())[:POINTS])
  if min(len(before), len(after)) < 2:
    return None
  (slope, height), (slope_after, height_after) = line(before), line(after)
  first = min(after)
  step = after[first] / math.exp(height + slope * math.log(first))
  if abs(math.log(step)) <= math.log(NOISE):
    return Found(step, largest)
  if abs(slope - slope_after) < 1e-9:
    return Found(step, None)
  meeting = (height_after - height) / (slope - slope_after)
  # The path before is the better below where they meet, or it never is; far off says nothing.
  if slope < slope_after or abs(meeting - math.log(largest)) > math.log(REACH):
    return Found(step, None)
  return Found(step, math.floor(math.exp(meeting) + 1e-6))


def rows(cells: list[dict]) -> list[str]:
  cells = [cell for cell in cells if "seconds" in cell]
  lines = ["| constant | op | dtype | largest n | step | proposed largest n | the constant then |",
           "|---|---|---|---:|---:|---|---|"]
  for cut_off in CUT_OFFS:
    for dtype in BYTES:
      found = [x for x in cells if (x["op"], x["dtype"]) == (cut_off.op, dtype)]
      batch = max((x["batch"] for x in found), default=0)
      times = {x["n"]: x["seconds"]["ours"] for x in found if x["batch"] == batch}
      largest = cut_off.largest(dtype)
      result = judge(times, largest)
      what = f"| {cut_off.constant} | {cut_off.op} | {dtype} | {largest} |"
      if result is None:
        lines.append(f"{what} | too few sizes | |")
      elif result.proposal is None:
        more = "further" if result.step > 1 else "less far"
        lines.append(f"{what} {result.step:.2f} | {more}; measure with another constant | |")
      else:
        same = result.proposal == largest
        lines.append(
            f"{what} {result.step:.2f} | {'as it is' if same else result.proposal} | "
            f"{'' if same else cut_off.value(dtype, result.proposal)} |")
  return lines


def main() -> None:
  parser = argparse.ArgumentParser(description="Proposes cut-offs of CUDA's handlers.")
  parser.add_argument(
      "files", type=pathlib.Path, nargs="+", help="the JSON that benchmarks/run.py wrote")
  args = parser.parse_args()
  print("\n".join(rows([
      cell for file in args.files for cell in json.loads(file.read_text())["cells"]])))


if __name__ == "__main__":
  main()
