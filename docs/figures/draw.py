"""Draws the figures of README.md and docs/sharding.md: `python docs/figures/draw.py [FOLDER]`.

They are SVG whose text and lines have the colour of the page that they are part of; alone, that of
the reader's preference.
"""

import json
import pathlib
import sys

RESULTS = pathlib.Path(__file__).parents[2] / "benchmarks" / "results"
WIDTH = 440
# One for each device.
COLOURS = ("#4e8fd6", "#e08a2e", "#3fa66b", "#b569c8")
LONE = ("<style>svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>")


class Drawing:
  """The elements of a figure, from the top down."""

  def __init__(self):
    self.parts = []
    self.y = 0

  def text(self, x, y, words, size=13, anchor="middle", weight="normal"):
    self.parts.append(
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}" fill="currentColor">{words}</text>')

  def line(self, words, size=13, weight="normal"):
    self.y += size + 7
    self.text(WIDTH / 2, self.y, words, size, weight=weight)
    self.y += 5

  def matrix(self, x, y, side, colour, shape="square"):
    points = {
        "square": ((0, 0), (1, 0), (1, 1), (0, 1)),
        "lower": ((0, 0), (1, 1), (0, 1)),
        "upper": ((0, 0), (1, 0), (1, 1)),
    }[shape]
    corners = " ".join(f"{x + side * u:g},{y + side * v:g}" for u, v in points)
    self.parts.append(
        f'<polygon points="{corners}" fill="{colour}" stroke="{colour}" stroke-width="1.2" '
        'stroke-linejoin="round"/>')

  def device(self, i, x, y, width, height):
    self.parts.append(
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" '
        f'fill="{COLOURS[i]}" fill-opacity="0.13" stroke="{COLOURS[i]}" stroke-width="1.2"/>')
    self.text(x + width / 2, y + 15, f"device {i}", 11)

  def arrow(self, x, y, to_x, to_y):
    self.parts.append(
        f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="currentColor" '
        'stroke-width="1.3" marker-end="url(#head-{name})"/>')

  def write(self, folder, name, title):
    body = "\n".join(self.parts).replace("{name}", name)
    (folder / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.y + 8:g}" '
        f'font-family="system-ui, sans-serif">{LONE}\n<title>{title}</title>\n'
        f'<defs><marker id="head-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="currentColor"/></marker>'
        f"</defs>\n{body}\n</svg>\n")


def places(width=98, gap=14):
  """The left edges of four devices."""
  return [(WIDTH - 4 * width - 3 * gap) / 2 + i * (width + gap) for i in range(4)]


def row_of_shares(drawing, shape, height=62):
  """Two matrices on each of four devices."""
  top = drawing.y
  for i, x in enumerate(places()):
    drawing.device(i, x, top, 98, height)
    for k in range(2):
      drawing.matrix(x + 14 + k * 39, top + 24, 31, COLOURS[i], shape)
  drawing.y += height


def row_of_everything(drawing, shape, height=62):
  """All eight matrices on each of four devices."""
  top = drawing.y
  for i, x in enumerate(places()):
    drawing.device(i, x, top, 98, height)
    for k in range(8):
      drawing.matrix(x + 8 + k % 4 * 21.5, top + 21 + k // 4 * 19, 16, COLOURS[k // 2], shape)
  drawing.y += height


def down(drawing, words):
  """The words for the next step, and an arrow on each device."""
  drawing.line(words)
  for x in places():
    drawing.arrow(x + 49, drawing.y - 2, x + 49, drawing.y + 18)
  drawing.y += 21


def stays(folder):
  drawing = Drawing()
  drawing.line("a batch of 8 matrices, P(&quot;batch&quot;) on 4 devices")
  drawing.y += 4
  row_of_shares(drawing, "square")
  down(drawing, "linalg.cholesky: nothing moves")
  row_of_shares(drawing, "lower")
  drawing.line("8 factors, P(&quot;batch&quot;)")
  drawing.write(folder, "stays", "Each device factors the matrices that it holds")


def gathered(folder):
  drawing = Drawing()
  drawing.line("the same batch, given to a call that XLA cannot see into")
  drawing.y += 4
  row_of_shares(drawing, "square")
  centres = [x + 49 for x in places()]
  for start in centres:
    for end in centres:
      drawing.parts.append(
          f'<line x1="{start:g}" y1="{drawing.y + 3:g}" x2="{end:g}" y2="{drawing.y + 38:g}" '
          'stroke="currentColor" stroke-width="1" stroke-opacity="0.55"/>')
  drawing.y += 40
  drawing.line("all-gather: the whole batch to every device")
  drawing.y += 6
  row_of_everything(drawing, "square")
  down(drawing, "every device factors all 8")
  row_of_everything(drawing, "lower")
  drawing.line("… and keeps a quarter")
  drawing.write(folder, "gathered", "Every device receives and factors all matrices")


def tall(folder):
  drawing = Drawing()
  drawing.line("one tall matrix, its rows sharded: P(&quot;x&quot;)")
  drawing.y += 4
  top = drawing.y
  for i, x in enumerate(places()):
    drawing.device(i, x, top, 98, 82)
    drawing.parts.append(
        f'<rect x="{x + 31:g}" y="{top + 24:g}" width="36" height="48" fill="{COLOURS[i]}"/>')
  drawing.y += 82
  down(drawing, "QR of each device's rows")
  top = drawing.y
  for i, x in enumerate(places()):
    drawing.device(i, x, top, 98, 62)
    drawing.matrix(x + 33, top + 23, 32, COLOURS[i], "upper")
  drawing.y += 62
  centres = [x + 49 for x in places()]
  for centre in centres:
    drawing.arrow(centre, drawing.y + 4, WIDTH / 2 + (centre - WIDTH / 2) * 0.16, drawing.y + 38)
  drawing.y += 42
  drawing.line("only the triangles travel: n² numbers each")
  drawing.matrix(WIDTH / 2 - 17, drawing.y + 6, 34, "#8b8f96", "upper")
  drawing.y += 42
  drawing.line("R, on every device")
  drawing.write(folder, "tall", "Each device factors its rows, and the triangles are combined")


def speed(folder, path=None):
  """How many times as fast as stock JAX, one bar for each dtype."""
  drawing = Drawing()
  n, largest, left = 8, 40, 86
  path = path or max(RESULTS.glob("*-readme-????-??-??.json"), key=lambda x: x.stem[-10:])
  data = json.loads(path.read_text())
  found = {
      (cell["op"], cell["dtype"]): cell["speedup"]["stock"]["median"]
      for cell in data["cells"] if (cell["n"], cell["batch"]) == (n, 4096)}
  place = lambda ratio: left + (WIDTH - left - 12) * ratio / largest
  drawing.line("times as fast as stock JAX: 4096 matrices, n = 8, on two CPU cores")
  for i, dtype in enumerate(("float32", "float64")):
    x = left + 90 * i
    drawing.parts.append(
        f'<rect x="{x:g}" y="{drawing.y + 3:g}" width="11" height="11" fill="{COLOURS[i]}"/>')
    drawing.text(x + 17, drawing.y + 13, dtype, 11, "start")
  drawing.y += 24
  top = drawing.y
  for op in dict.fromkeys(op for op, _ in found):
    drawing.text(left - 8, drawing.y + 15, op, 12, "end")
    for i, dtype in enumerate(("f32", "f64")):
      ratio, y = found[op, dtype], drawing.y + 11 * i
      drawing.parts.append(
          f'<rect x="{left}" y="{y:g}" width="{place(ratio) - left:.1f}" height="10" '
          f'fill="{COLOURS[i]}"/>')
      drawing.text(place(ratio) + 4, y + 9, f"{ratio:.1f}", 10, "start")
    drawing.y += 29
  drawing.parts.append(
      f'<line x1="{place(1):g}" y1="{top - 4:g}" x2="{place(1):g}" y2="{drawing.y:g}" '
      'stroke="currentColor" stroke-dasharray="3 3"/>')
  drawing.text(place(1), drawing.y + 13, "1: stock JAX", 10)
  drawing.y += 14
  drawing.write(folder, "speed", "How many times as fast as stock JAX, by operation")


if __name__ == "__main__":
  to = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
  for figure in (stays, gathered, tall, speed):
    figure(to if to.is_dir() else to.parent)
