"""The pages about the code lead to files that exist and to symbols that are in them."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md"))]
ABOUT_CODE = [ROOT / "docs" / f"{name}.md" for name in ("tour", "layers", "kernels", "derivatives")]
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:|#|/)([^)#\s]+)(?:#[\w-]+)?\)")
# Made when the site is built, from programs in examples.
MADE = ROOT / "docs" / "tutorials"


def _links(page):
  text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
  return [(shown, (page.parent / target).resolve()) for shown, target in LINK.findall(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links(page):
  missing = [
      (shown, target.relative_to(ROOT).as_posix()) for shown, target in _links(page)
      if not target.exists() and target.parent != MADE]
  assert not missing


def _headings(page):
  """The anchors that forges and the site make of a page's headings."""
  text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
  shown = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", x) for x in re.findall(r"^#+ (.*)$", text, re.M))
  return {re.sub(r"[^\w\- ]", "", x.strip().lower()).replace(" ", "-") for x in shown}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_anchors(page):
  text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
  missing = []
  for target, anchor in re.findall(r"\]\((?!\w+:|/)([^)#\s]*)#([\w-]+)\)", text):
    path = (page.parent / target).resolve() if target else page
    if path.suffix == ".md" and path.parent != MADE and anchor not in _headings(path):
      missing.append((target, anchor))
  assert not missing


@pytest.mark.parametrize("page", ABOUT_CODE, ids=lambda page: page.stem)
def test_symbols(page):
  """Each name between backticks in a link occurs in the file that the link leads to."""
  missing = [
      (symbol, target.relative_to(ROOT).as_posix())
      for shown, target in _links(page) if target.is_file() for symbol in re.findall(
          r"`([^`]+)`", shown) if not re.search(rf"\b{symbol}\b", target.read_text())]
  assert not missing


def test_files_of_the_layers():
  """The folders and files that the pages about the code name by their paths are there."""
  missing = {
      (page.stem, path) for page in ABOUT_CODE for path in re.findall(
          r"`((?:linalg|kernels|tests|tools|benchmarks|cmake)/[\w./]*)`", page.read_text())
      if "NAME" not in path and not (ROOT / path).exists()}
  assert not missing
