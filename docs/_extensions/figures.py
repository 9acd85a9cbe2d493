"""Drawings in SVG as part of the page, so that their text has the page's colour, light or dark."""

import io
import pathlib
import re

import matplotlib as mpl
from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

ROOT = pathlib.Path(__file__).parents[2]
TEXT = "#fedcba"  # stands for the colour of the page's text
# Colours for matplotlib that stand out from light and dark, and that the colour-blind tell apart.
STYLE = {
    "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9,
    "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8, "legend.framealpha": 0,
    "text.color": TEXT, "axes.labelcolor": TEXT, "axes.edgecolor": TEXT, "xtick.color": TEXT,
    "ytick.color": TEXT, "axes.facecolor": "none", "axes.spines.top": False,
    "axes.spines.right": False, "figure.figsize": (5.4, 3.2),
    "figure.constrained_layout.use": True,
    "axes.prop_cycle": mpl.cycler(color=["#3f86d0", "#e08a2e", "#35a06a", "#b569c8", "#8c8c8c"])}


def as_svg(figure, salt):
  """A figure of matplotlib's, the same each time it is made; `salt` is its own."""
  file = io.StringIO()
  with mpl.rc_context({"svg.hashsalt": salt}):
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
  svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", file.getvalue(), flags=re.S)
  svg = re.sub(r'<g id="[^"]*"', "<g", svg)
  svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1; font-family: inherit", svg)
  return svg.replace(TEXT, "currentColor")


def inline(svg, described, least=0.0):
  """The element alone. It scales with the page down to `least` times its size, and scrolls below.
  The colours that a lone file needs are left out."""
  svg = re.sub(r"<style\b.*?</style>", "", svg[svg.index("<svg") :], count=1, flags=re.S)
  opening, rest = svg.split(">", 1)
  width = float(re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+)', opening)[1])
  opening = re.sub(r'\s(width|height|role|aria-label|font-family)="[^"]*"', "", opening)
  described = described.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
  style = f"min-width: {least * width:.0f}px; max-width: {1.5 * width:.0f}px"
  return f'{opening} style="{style}" role="img" aria-label="{described}">{rest}'


class InlineDrawings(SphinxPostTransform):
  default_priority = 5
  formats = ("html",)

  def run(self, **kwargs):
    del kwargs
    for image in list(self.document.findall(nodes.image)):
      if image["uri"].endswith(".svg"):
        file = pathlib.Path(self.env.srcdir) / image["uri"].lstrip("/")
        drawing = inline(file.read_text(), image.get("alt", ""))
        image.replace_self(
            nodes.raw("", f'<figure class="drawing">{drawing}</figure>', format="html"))


def setup(app):
  app.add_post_transform(InlineDrawings)
  return {"parallel_read_safe": True}
