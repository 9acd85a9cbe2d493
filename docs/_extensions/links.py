"""Links between the repository's Markdown files: on the site they lead where they lead elsewhere.

README.md, CHANGELOG.md and CONTRIBUTING.md are parts of pages here, and the programs in
examples/tutorials have pages of their own. A file without a page, such as a source file, is named
by its path, and must be there.
"""

import os.path
import pathlib
import re

from sphinx.util import logging
from tutorials import PROGRAMS

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    ROOT / "README.md": "index.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
}
logger = logging.getLogger(__name__)


def followed(text, file):
  """The text of a file, with links as they are on the site."""

  def follow(match):
    shown, target, anchor = match.groups()
    path = pathlib.Path(os.path.normpath(file.parent / target))
    if not path.exists():
      logger.warning("%s links to %s, which is not there", file.relative_to(ROOT), target)
    page = PAGES.get(path) or (
        path.parent == PROGRAMS and path.suffix == ".py" and f"tutorials/{path.stem}.md") or (
        path.suffix in (".md", ".rst") and path.is_relative_to(DOCS) and path.relative_to(DOCS))
    if page:
      # A page that the text calls by its path is shown by its title.
      return f"[{shown if shown != target else ''}](/{page}{anchor or ''})"
    if path.suffix == ".svg":
      return match[0]
    named = f"`{path.relative_to(ROOT)}`"
    return named if path.name.startswith(shown.strip("`").split("/")[-1]) else f"{shown} ({named})"

  return re.sub(r"\[([^\]\n]+)\]\((?!\w+:|#|/)([^)#\s]+)(#[\w-]+)?\)", follow, text)


def on_source(app, docname, content):
  del app
  file = DOCS / f"{docname}.md"
  if file.exists():
    content[0] = followed(content[0], file)


def on_include(app, path, docname, content):
  del docname
  content[0] = followed(content[0], pathlib.Path(os.path.normpath(pathlib.Path(app.srcdir) / path)))


def setup(app):
  app.connect("source-read", on_source)
  app.connect("include-read", on_include)
  return {"parallel_read_safe": True}
