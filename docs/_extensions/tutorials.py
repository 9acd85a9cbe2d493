"""Pages of the programs in examples/tutorials, with what they print and draw.

They are in Jupytext's percent format: cells begin with `# %%`, and those of Markdown, as comments,
with `# %% [markdown]`. Each program runs in a process of its own if it is newer than its page;
one that fails, fails the build. Run as a program, this file makes one page: `tutorials.py PROGRAM
FOLDER`.
"""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from figures import STYLE, as_svg
from sphinx.errors import ExtensionError
from sphinx.util import logging

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "tutorials"
PAGES = ROOT / "docs" / "tutorials"
SECONDS = 300  # for one program; none takes a tenth of that on a quiet machine
logger = logging.getLogger(__name__)


class Cell(NamedTuple):
  markdown: bool
  line: int  # of the program, the first being 1
  text: str


def cells(program):
  found = []
  for match in re.finditer(r"^# %%(.*)\n((?:(?!# %%).*\n)*)", program, re.M):
    markdown = match[1].strip() == "[markdown]"
    text = re.sub(r"^# ?", "", match[2], flags=re.M) if markdown else match[2]
    found.append(Cell(markdown, program.count("\n", 0, match.start(2)) + 1, text.strip("\n")))
  return found


def page(program):
  """The Markdown of a program, which is run, and the SVG of its figures by name."""
  parts, figures, names = [], {}, {"__name__": "__main__", "__file__": str(program)}
  for cell in cells(program.read_text()):
    if cell.markdown:
      parts.append(cell.text)
      continue
    parts.append(f"```python\n{cell.text}\n```")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
      exec(compile("\n" * (cell.line - 1) + cell.text, program, "exec"), names)
    if printed.getvalue():
      parts.append(f"```text\n{printed.getvalue().rstrip()}\n```")
    for number in plt.get_fignums():
      name = f"{program.stem}-{len(figures) + 1}.svg"
      figure = plt.figure(number)
      figures[name] = as_svg(figure, name)
      titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
      parts.append(f"![{'; '.join(titles)}]({name})")
      plt.close(figure)
  name = program.relative_to(ROOT)
  parts.append(
      f"---\nThis page is `{name}`, with what it printed and drew when the site was "
      "built. Jupyter with Jupytext, and editors that know cells, open it as a notebook.")
  return "\n\n".join(parts) + "\n", figures


def write(program, folder):
  plt.rcParams.update(STYLE)
  plt.show = lambda: None
  text, figures = page(program)
  for name, svg in figures.items():
    (folder / name).write_text(svg)
  (folder / f"{program.stem}.md").write_text(text)


def make_pages(app):
  del app
  PAGES.mkdir(exist_ok=True)
  programs = sorted(PROGRAMS.glob("*.py"))
  for file in PAGES.iterdir():
    if file.stem.partition("-")[0] not in {program.stem for program in programs}:
      file.unlink()
  for program in programs:
    made = PAGES / f"{program.stem}.md"
    if made.exists() and made.stat().st_mtime > program.stat().st_mtime:
      continue
    logger.info("running %s", program.relative_to(ROOT))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, __file__, program, PAGES], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
      raise ExtensionError(f"{program.relative_to(ROOT)}:\n{done.stderr[-4000:]}")


def setup(app):
  app.connect("builder-inited", make_pages)
  return {"parallel_read_safe": True}


if __name__ == "__main__":
  write(*(pathlib.Path(argument) for argument in sys.argv[1:]))
