"""Drawings in SVG as part of the page, so that their text has the page's colour, light or dark."""

import pathlib
import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

ROOT = pathlib.Path(__file__).parents[2]


def inline(svg, described):
  """The element alone, scaling with the page; colours of its own for a lone file are left out."""
  svg = re.sub(r"<style\b.*?</style>", "", svg[svg.index("<svg") :], count=1, flags=re.S)
  opening, rest = svg.split(">", 1)
  width = float(re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+)', opening)[1])
  opening = re.sub(r'\s(width|height|role|aria-label|font-family)="[^"]*"', "", opening)
  described = described.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
  style = f"max-width: {1.5 * width:.0f}px"
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
