"""Heat maps and tables of the committed results of benchmarks/run.py, made when the site is built.

  ```{heat-maps} FILE          a map for each operation: n by batch
  ```{heat-map} FILE           one map: n by operation, at the batch that was measured
  ```{slow-cells} FILE FILE…   what was below :below: times stock JAX, slowest first
"""

import json
import math
import pathlib
import re
import textwrap

import figures
import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from docutils import nodes
from docutils.parsers.rst import directives
from matplotlib.colors import LinearSegmentedColormap, TwoSlopeNorm
from sphinx.util.docutils import SphinxDirective

from report import Report, batch_of, describe, number

RESULTS = pathlib.Path(__file__).parents[2] / "benchmarks" / "results"
DTYPES = {"f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
# Blue and orange, which the colour-blind tell apart, about a neutral 1; by a factor's logarithm.
COLOURS = LinearSegmentedColormap.from_list(
    "speed-up", [(0, "#b35806"), (0.25, "#f1a340"), (0.5, "#e6e6e6"), (0.7, "#92b9dc"),
                 (1, "#0b4a8b")])
NORM = TwoSlopeNorm(vcenter=0, vmin=-1.5, vmax=5)
STYLE = figures.STYLE | {
    "xtick.major.size": 0, "ytick.major.size": 0, "xtick.labelsize": 9, "ytick.labelsize": 9}


def load(name):
  return Report(json.loads((RESULTS / name).read_text()), "stock", None, None)


def source(report):
  """The source of the numbers, in lines: machine, versions, date and command."""
  command = re.sub(r" --output \S+", "", report.header["command"])
  lines = textwrap.wrap(command, 96, break_on_hyphens=False, break_long_words=False)
  command = " \\\n  ".join(lines)
  where = describe(report.header).replace(", linalg 0+unknown", "")
  return f"{where}:\n\n```sh\n{command}\n```"


def _panel(axis, cells, report, rows, row_of, sizes):
  """Coloured squares with the factor in each."""
  found = {(row_of(cell), cell["n"]): report.speedup(cell) for cell in cells}
  for y, row in enumerate(rows):
    for x, n in enumerate(sizes):
      if (row, n) not in found:
        axis.text(x, y, "–", ha="center", va="center")
        continue
      speedup = found[row, n]
      colour = COLOURS(NORM(math.log2(speedup)))
      axis.add_patch(plt.Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colour, linewidth=0))
      light = 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] > 0.55
      axis.text(x, y, number(speedup) if speedup < 9.995 else f"{speedup:.0f}", ha="center",
                va="center", color="#111111" if light else "#ffffff")
  axis.set_xlim(-0.5, len(sizes) - 0.5)
  axis.set_ylim(len(rows) - 0.5, -0.5)
  axis.set_xticks(range(len(sizes)), [str(n) for n in sizes])
  axis.set_yticks(range(len(rows)), [str(row) for row in rows])
  for spine in axis.spines.values():
    spine.set_visible(False)


def heat_map(title, y_label, panels, report, rows, row_of, sizes, cell_width=0.42):
  """The SVG of a panel for each dtype, one above the other."""
  with mpl.rc_context(STYLE):
    height = sum(0.24 * len(rows) + 0.42 for _ in panels) + 0.45
    width = cell_width * len(sizes) + 0.1 * max(len(str(row)) for row in rows) + 0.5
    figure, axes = plt.subplots(
        len(panels), 1, squeeze=False, layout="constrained", figsize=(max(width, 3.4), height))
    for axis, (dtype, cells) in zip(axes.flat, panels.items(), strict=True):
      _panel(axis, cells, report, rows, row_of, sizes)
      what = f"{title}, {DTYPES.get(dtype, 'int32')}" if title else DTYPES[dtype]
      axis.set_title(f"{what}: times as fast as stock JAX")
      axis.set_ylabel(y_label)
    axes.flat[-1].set_xlabel("n, of n × n matrices")
    svg = figures.as_svg(figure, f"{title} {rows}")
    plt.close(figure)
  return svg


class _Figures(SphinxDirective):
  required_arguments = 1
  option_spec = {"ops": directives.unchanged, "dtypes": directives.unchanged}

  def prepared(self):
    report = load(self.arguments[0])
    self.env.note_dependency(str(RESULTS / self.arguments[0]))
    dtypes = self.options.get("dtypes", " ".join(report.dtypes)).split()
    ops = self.options.get("ops", " ".join(dict.fromkeys(report.ops)).replace("grad ", "grad_"))
    return report, dtypes, [op.replace("grad_", "grad ") for op in ops.split()]

  def drawing(self, svg, described):
    svg = figures.inline(svg, described, least=1.2)
    return nodes.raw("", f'<figure class="drawing">{svg}</figure>', format="html")

  def caption(self, report):
    return self.parse_text_to_nodes(source(report))


class HeatMaps(_Figures):
  def run(self):
    report, dtypes, ops = self.prepared()
    grid = nodes.container(classes=["heat-maps"])
    for op in ops:
      cells = [cell for cell in report.cells if cell["op"] == op]
      batches = sorted({batch_of(cell) for cell in cells})
      sizes = sorted({cell["n"] for cell in cells})
      panels = {dtype: found for dtype in (*dtypes, "i32")
                if (found := [cell for cell in cells if cell["dtype"] == dtype])}
      title = op.replace("lu_pivots_to_permutation", "pivots to permutation")
      svg = heat_map(title, "batch", panels, report, batches, batch_of, sizes)
      grid += self.drawing(svg, f"{op}: how many times as fast as stock JAX, by n and batch")
    return [grid, *self.caption(report)]


class HeatMap(_Figures):
  def run(self):
    report, dtypes, ops = self.prepared()
    cells = [cell for cell in report.cells if cell["op"] in ops]
    (batch,) = {batch_of(cell) for cell in cells}
    panels = {dtype: [cell for cell in cells if cell["dtype"] == dtype] for dtype in dtypes}
    svg = heat_map("", "", panels, report, ops, lambda cell: cell["op"],
                   sorted({cell["n"] for cell in cells}), cell_width=0.55)
    described = f"How many times as fast as stock JAX, by operation and n, batch {batch:.0f}"
    return [self.drawing(svg, described), *self.caption(report)]


class SlowCells(SphinxDirective):
  required_arguments = 1
  final_argument_whitespace = True
  option_spec = {"below": float}

  def run(self):
    below = self.options["below"]
    rows = []
    for name in self.arguments[0].split():
      report = load(name)
      self.env.note_dependency(str(RESULTS / name))
      machine = report.header["machine"]
      device = machine["cpu"] if machine["platform"] == "cpu" else machine["device"]
      rows += [
          (report.speedup(cell), cell, f"{device}, {report.header['date'][:10]}")
          for cell in report.cells if report.speedup(cell) < below]
    lines = ["| Operation | n | batch | dtype | times as fast | machine, date |",
             "|---|---:|---:|---|---:|---|"]
    for speedup, cell, where in sorted(rows, key=lambda row: row[0]):
      lines.append(
          f"| {cell['op']} | {cell['n']} | {cell['batch']} | {DTYPES.get(cell['dtype'], 'int32')} "
          f"| {number(speedup)} | {where.replace('(R)', '')} |")
    return self.parse_text_to_nodes("\n".join(lines))


def setup(app):
  app.add_directive("heat-maps", HeatMaps)
  app.add_directive("heat-map", HeatMap)
  app.add_directive("slow-cells", SlowCells)
  return {"parallel_read_safe": True}
