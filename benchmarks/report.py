"""Shows the results of benchmarks/run.py as tables, Markdown, or plots beside the JSON.

If there are several runs, it shows how speed changed from one to the next.
"""

import argparse
import collections
import json
import math
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell = dict[str, Any]


def load(file: pathlib.Path) -> dict[str, Any]:
  try:
    return json.loads(file.read_text())
  except (OSError, ValueError) as error:
    sys.exit(f"{file} cannot be read: {error}")


class Report:
  """The measured cells of a file, and the rival they are compared with."""

  def __init__(
      self, data: dict[str, Any], rival: str, sizes: list[int] | None, batches: list[float] | None):
    self.header = {key: value for key, value in data.items() if key != "cells"}
    self.rival = rival
    cells = [
        cell for cell in data["cells"]
        if (sizes is None or cell["n"] in sizes) and (batches is None or batch_of(cell) in batches)]
    self.skipped = [cell for cell in cells if "skipped" in cell]
    self.rivals = list(dict.fromkeys(name for cell in cells for name in cell.get("speedup", ())))
    self.cells = [cell for cell in cells if rival in cell.get("speedup", ())]
    self.ops = list(dict.fromkeys(cell["op"] for cell in self.cells))
    self.sizes = sorted({cell["n"] for cell in self.cells})
    floating = dict.fromkeys(cell["dtype"] for cell in self.cells if cell["dtype"] != "i32")
    self.dtypes = list(floating) or ["i32"]

  def speedup(self, cell: Cell) -> float:
    return cell["speedup"][self.rival]["median"]

  def fraction(self, cell: Cell) -> float:
    """The least time at the ceilings of arithmetic and memory, over the time taken."""
    ceilings = self.header["ceilings"]
    flops = cell["flops"] / ceilings.get(cell["dtype"], math.inf)
    return max(flops, cell["bytes"] / ceilings["bytes"]) / cell["seconds"]["ours"]

  def of_dtype(self, dtype: str) -> list[Cell]:
    """The cells of a floating dtype, and those of operations on integers."""
    return [cell for cell in self.cells if cell["dtype"] in (dtype, "i32")]

  def usual_batches(self, cells: list[Cell]) -> dict[int, float]:
    """For each n, the largest batch that most operations have; 0 if there is none."""
    batches = {}
    for n in self.sizes:
      found = [at_largest_batch(cells, op, n) for op in self.ops]
      counts = collections.Counter(batch_of(cell) for cell in found if cell)
      batches[n] = max(counts, key=lambda batch: (counts[batch], batch), default=0)
    return batches


def batch_of(cell: Cell) -> float:
  """The length of the batch, or infinity if the batch fills the memory."""
  return math.inf if cell.get("fills_memory") else cell["batch"]


def batch_name(batch: float) -> str:
  return "memory" if batch == math.inf else str(batch or "")


def at_largest_batch(cells: list[Cell], op: str, n: int) -> Cell | None:
  found = [cell for cell in cells if cell["op"] == op and cell["n"] == n]
  return max(found, key=batch_of, default=None)


def geometric_mean(values: list[float]) -> float:
  return math.exp(np.mean(np.log(values))) if values else math.nan


def number(x: float) -> str:
  if math.isnan(x):
    return ""
  return f"{x:.2f}" if x < 9.995 else f"{x:.1f}" if x < 99.95 else f"{x:.0f}"


def coloured(x: float, mark: str = "") -> Text:
  return Text(number(x) + mark, style="green" if x >= 1.05 else "red" if x < 0.95 else "")


def describe(header: dict[str, Any]) -> str:
  machine, versions = header["machine"], header["versions"]
  device = machine["cpu"] if machine["platform"] == "cpu" else machine["device"]
  isa = f" ({', '.join(machine['isa'])})" if machine["isa"] else ""
  return (
      f"{device}{isa}, {machine['cores']} cores; jax {versions['jax']}, linalg "
      f"{versions['linalg']}; {header['date'][:10]}")


# Tables


def table_by_size(report: Report, dtype: str) -> Table:
  cells = report.of_dtype(dtype)
  batches = report.usual_batches(cells)
  table = Table(title=f"Speed-up over {report.rival}, {dtype}, at the largest batch measured")
  table.add_column("op\nbatch", no_wrap=True)
  for n in report.sizes:
    table.add_column(f"n={n}\n{batch_name(batches[n])}", justify="right", no_wrap=True)
  for op in report.ops:
    row = []
    for n in report.sizes:
      cell = at_largest_batch(cells, op, n)
      mark = "*" if cell and batch_of(cell) != batches[n] else ""
      if mark:
        table.caption = "*: at a smaller or larger batch than is named above the column"
      row.append(coloured(report.speedup(cell), mark) if cell else "")
    if any(row):
      table.add_row(op, *row)
  return table


def table_of_fractions(report: Report, dtype: str) -> Table:
  ceilings = report.header["ceilings"]
  table = Table(title=(
      f"Percent of the ceiling, {dtype}, at the largest batch: {ceilings[dtype] / 1e9:.0f} GFLOP/s "
      f"(product of matrices) or {ceilings['bytes'] / 1e9:.1f} GB/s (copy)"))
  table.add_column("op", no_wrap=True)
  for n in report.sizes:
    table.add_column(f"n={n}", justify="right")
  cells = [cell for cell in report.cells if cell["dtype"] == dtype]
  for op in report.ops:
    found = [at_largest_batch(cells, op, n) for n in report.sizes]
    if any(found):
      table.add_row(op, *(f"{100 * report.fraction(cell):.0f}" if cell else "" for cell in found))
  return table


def table_of_means(report: Report) -> Table:
  table = Table(title=f"Geometric mean of the speed-up over {report.rival}, all cells")
  dtypes = list(dict.fromkeys(cell["dtype"] for cell in report.cells))
  for column in ("op", *dtypes, "all", "cells", "below 0.95"):
    table.add_column(column, justify="left" if column == "op" else "right")
  for op in (*report.ops, None):
    of_op = [cell for cell in report.cells if op in (cell["op"], None)]
    means = [
        geometric_mean([report.speedup(cell) for cell in of_op if dtype in (cell["dtype"], None)])
        for dtype in (*dtypes, None)]
    slow = sum(report.speedup(cell) < 0.95 for cell in of_op)
    if op is None:
      table.add_section()
    table.add_row(op or "all", *map(coloured, means), str(len(of_op)), str(slow or ""))
  return table


def table_of_worst(report: Report, count: int = 10) -> Table:
  table = Table(title=f"The {count} lowest speed-ups over {report.rival}")
  for column in ("op", "n", "batch", "dtype", "ours", report.rival, "speed-up", "quartiles"):
    table.add_column(column, justify="left" if column == "op" else "right")
  for cell in sorted(report.cells, key=report.speedup)[:count]:
    seconds, speedup = cell["seconds"], cell["speedup"][report.rival]
    table.add_row(
        cell["op"], str(cell["n"]), str(cell["batch"]), cell["dtype"],
        f"{seconds['ours'] * 1e6:,.1f} µs", f"{seconds[report.rival] * 1e6:,.1f} µs",
        coloured(speedup["median"]), f"{number(speedup['q1'])} to {number(speedup['q3'])}")
  return table


def line_of_another(report: Report) -> str:
  """A summary of a rival whose tables are not shown."""
  least = min(report.cells, key=report.speedup)
  mean = number(geometric_mean([report.speedup(cell) for cell in report.cells]))
  return (
      f"Over {report.rival} (--over {report.rival} has the tables): {mean} in the geometric mean "
      f"of {len(report.cells)} cells, least {number(report.speedup(least))}, {least['op']} "
      f"n={least['n']} batch={least['batch']} {least['dtype']}")


def print_table(table: Table, console: Console) -> None:
  """Prints the title on one line, which a narrow table would break."""
  console.print(table.title, style="italic", highlight=False)
  table.title = None
  console.print(table)


def print_tables(report: Report, console: Console) -> None:
  console.print(describe(report.header), highlight=False)
  console.print(report.header["command"], highlight=False, style="dim")
  if report.header["interrupted"]:
    console.print("The run was interrupted: the grid is not complete.", style="yellow")
  for dtype in report.dtypes:
    print_table(table_by_size(report, dtype), console)
    if dtype in report.header["ceilings"]:
      print_table(table_of_fractions(report, dtype), console)
  print_table(table_of_means(report), console)
  print_table(table_of_worst(report), console)
  reasons = collections.Counter(cell["skipped"].partition(": ")[0] for cell in report.skipped)
  for reason, count in reasons.items():
    console.print(f"Not measured: {count}, {reason}", highlight=False)


def table_of_history(reports: list[Report]) -> Table:
  """Each run's speed-ups over the rival, in the cells that all runs have.

  On a day when the machine is slow, the rival is slow too.
  """
  found = [
      {(cell["op"], cell["n"], batch_of(cell), cell["dtype"]): report.speedup(cell)
       for cell in report.cells} for report in reports]
  common = [key for key in found[0] if all(key in each for each in found)]
  if not common:
    sys.exit("The files have no cell in common.")
  table = Table(title=f"Geometric mean of the speed-up over {reports[0].rival}")
  table.add_column("op", no_wrap=True)
  table.add_column("cells", justify="right")
  for report in reports:
    name = f"{report.header['date'][:10]}\n{report.header.get('commit', '')[:9]}"
    table.add_column(name, justify="right", no_wrap=True)
  table.add_column("last / first", justify="right")
  for op in (*dict.fromkeys(key[0] for key in common), None):
    keys = [key for key in common if op in (key[0], None)]
    means = [geometric_mean([each[key] for key in keys]) for each in found]
    if op is None:
      table.add_section()
    change = coloured(means[-1] / means[0])
    table.add_row(op or "all", str(len(keys)), *map(number, means), change)
  return table


def markdown(report: Report) -> str:
  """A Markdown table with a row for each operation. A cell has the speed-ups of all dtypes."""
  by_dtype = [report.of_dtype(dtype) for dtype in report.dtypes]
  usual = [report.usual_batches(cells) for cells in by_dtype]
  rows = [
      ["op", *(f"n={n}" for n in report.sizes)],
      ["---", *("---:" for _ in report.sizes)],
      ["*batch*", *(
          alternatives([f"*{batch_name(batch[n])}*" for batch in usual]) for n in report.sizes)],
  ]
  for op in report.ops:
    row = [op]
    for n in report.sizes:
      found = [at_largest_batch(cells, op, n) for cells in by_dtype]
      texts = [
          number(report.speedup(cell)) + "\\*" * (batch_of(cell) != batch[n]) if cell else "–"
          for cell, batch in zip(found, usual, strict=True)]
      row.append(texts[0] if all(cell is found[0] for cell in found) else " / ".join(texts))
    rows.append(row)
  rival = "stock JAX" if report.rival == "stock" else report.rival
  mean = number(geometric_mean([report.speedup(cell) for cell in report.cells]))
  table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
  note = "; \\*: a smaller or larger one" if "\\*" in table else ""
  return (
      f"{table}\n\nSpeed-up over {rival}, {' / '.join(report.dtypes)}, each at the largest batch "
      f"measured{note}. Geometric mean of all {len(report.cells)} cells, smaller batches included: "
      f"{mean}.\n\n`{report.header['command']}` on {describe(report.header)}.")


def alternatives(texts: list[str]) -> str:
  return " / ".join(dict.fromkeys(texts))


# Plots


def speedups(report: Report, cell: Cell) -> tuple[float, float, float]:
  found = cell["speedup"][report.rival]
  return found["q1"], found["median"], found["q3"]


def fractions(report: Report, cell: Cell) -> tuple[float, float, float]:
  fraction = report.fraction(cell)
  return fraction, fraction, fraction


def plot(
    report: Report,
    dtype: str,
    path: pathlib.Path,
    quantity: Callable[[Report, Cell], tuple[float, float, float]],
    label: str,
) -> None:
  """Draws a panel for each operation, and a line for each batch with a band of quartiles."""
  import matplotlib as mpl

  mpl.use("Agg")
  import matplotlib.pyplot as plt
  from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

  cells = report.of_dtype(dtype)
  ops = [op for op in report.ops if any(cell["op"] == op for cell in cells)]
  batches = sorted({batch_of(cell) for cell in cells})
  colours = dict(zip(batches, plt.cm.viridis(np.linspace(0, 0.85, len(batches))), strict=True))
  columns = min(4, len(ops))
  rows = -(-len(ops) // columns)
  figure, axes = plt.subplots(
      rows, columns, figsize=(3.4 * columns, 2.7 * rows + 0.9), sharey=True, squeeze=False,
      layout="constrained")
  handles = {}
  for axis, op in zip(axes.flat, ops, strict=False):
    for batch in batches:
      line = sorted(
          (cell for cell in cells if cell["op"] == op and batch_of(cell) == batch),
          key=lambda cell: cell["n"])
      if not line:
        continue
      n = [cell["n"] for cell in line]
      q1, median, q3 = zip(*(quantity(report, cell) for cell in line), strict=True)
      handles[batch], = axis.plot(n, median, marker="o", markersize=3.5, color=colours[batch])
      axis.fill_between(n, q1, q3, color=colours[batch], alpha=0.2, linewidth=0)
    axis.axhline(1, color="black", linewidth=1)
    axis.set_title(op, fontsize=10)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(report.sizes, [str(n) for n in report.sizes], fontsize=7)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(labelbottom=True)
    axis.grid(alpha=0.25)
  for axis in axes.flat[len(ops) :]:
    axis.set_visible(False)
  figure.supxlabel("n", fontsize=10)
  figure.supylabel(label, fontsize=10)
  figure.suptitle(f"{dtype}\n{describe(report.header)}", fontsize=9)
  figure.legend(
      [handles[batch] for batch in batches], [batch_name(batch) for batch in batches],
      title="batch", loc="outside right upper")
  figure.savefig(path, dpi=130)
  plt.close(figure)


def show(
    file: pathlib.Path, rival: str = "stock", sizes: list[int] | None = None,
    batches: list[float] | None = None, *, as_markdown: bool = False) -> None:
  """Prints the tables of a file, and draws the plots beside it."""
  data = load(file)
  report = Report(data, rival, sizes, batches)
  if not report.cells:
    rivals = ", ".join(report.rivals) or "nothing"
    sys.exit(f"{file} has no such cell that was measured against {rival}; there is {rivals}.")
  if as_markdown:
    print(markdown(report))
    return
  console = Console() if sys.stdout.isatty() else Console(width=140)
  print_tables(report, console)
  for other in report.rivals:
    if other != rival:
      line = line_of_another(Report(data, other, sizes, batches))
      console.print(line, soft_wrap=True, highlight=False)
  try:
    for dtype in report.dtypes:
      over = "" if rival == "stock" else f"-over-{rival}"
      path = file.with_name(f"{file.stem}{over}-{dtype}.png")
      plot(report, dtype, path, speedups, f"speed-up over {rival}")
      console.print(f"Wrote {path}", soft_wrap=True, highlight=False)
      if dtype in report.header["ceilings"] and rival == "stock":
        path = file.with_name(f"{file.stem}-ceiling-{dtype}.png")
        plot(report, dtype, path, fractions, "fraction of the ceiling")
        console.print(f"Wrote {path}", soft_wrap=True, highlight=False)
  except ModuleNotFoundError as error:
    if error.name != "matplotlib":
      raise
    console.print("No plots: they take matplotlib (pip install matplotlib)", highlight=False)


def show_history(
    files: list[pathlib.Path], rival: str, sizes: list[int] | None, batches: list[float] | None
) -> None:
  """Prints how the runs differ, oldest first."""
  reports = [Report(load(file), rival, sizes, batches) for file in files]
  reports.sort(key=lambda report: report.header["date"])
  console = Console() if sys.stdout.isatty() else Console(width=140)
  for report in reports:
    console.print(describe(report.header), highlight=False)
  print_table(table_of_history(reports), console)


def main() -> None:
  parser = argparse.ArgumentParser(description="Shows what benchmarks/run.py measured.")
  parser.add_argument("files", type=pathlib.Path, nargs="+", metavar="FILE",
                      help="the JSON that run.py wrote; several: how speed changed between them")
  parser.add_argument("--over", default="stock", metavar="RIVAL",
                      help="stock, a library of run.py's --peers, or `forward` after its "
                      "--gradients (default: %(default)s)")
  parser.add_argument("--sizes", nargs="+", type=int, metavar="N", help="only these n")
  parser.add_argument("--batches", nargs="+", type=float, metavar="BATCH",
                      help="only these batches; inf for those that fill the memory")
  parser.add_argument("--markdown", action="store_true", help="one Markdown table and no plots")
  args = parser.parse_args()
  if len(args.files) > 1:
    if args.markdown:
      parser.error("--markdown is for one file")
    show_history(args.files, args.over, args.sizes, args.batches)
  else:
    show(args.files[0], args.over, args.sizes, args.batches, as_markdown=args.markdown)


if __name__ == "__main__":
  main()
