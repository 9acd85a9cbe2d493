"""The documents: every Python block runs, and prints what stands beside its calls of print.

A block with a comment `<!-- part of FILE -->` in the line above is not run. That file contains its
parts, between empty lines, and CI runs it.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import jax
import pytest

import linalg
import processes
import quick

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


class Block(NamedTuple):
  place: str
  source: str | None  # the file that it is part of
  code: str


def _blocks() -> list[Block]:
  found = []
  for page in PAGES:
    text = page.read_text()
    for match in re.finditer(
        r"^(?:<!-- part of (\S+) -->\n)?```python[^\n]*\n(.*?)^```$", text, re.M | re.S):
      line = text.count("\n", 0, match.start(2))
      found.append(Block(f"{page.relative_to(ROOT)}:{line}", match[1], match[2]))
  return found


BLOCKS = _blocks()
TEXTS = [*PAGES, *sorted((ROOT / "linalg").rglob("*.py"))]
PARTS = [block for block in BLOCKS if block.source]


def _each(blocks):
  return pytest.mark.parametrize("block", blocks, ids=lambda block: block.place)


def test_no_block_is_missed():
  """Catches a fence that the pattern above does not know: indented, or in capitals. Sessions are
  test_examples.py's."""
  fence = re.compile(r"^\s*(?:```|~~~)\s*py(?!con$)", re.M | re.I)
  fences = sum(len(fence.findall(page.read_text())) for page in PAGES)
  assert len(BLOCKS) == fences > 0


def test_who_runs_what_the_default_leaves_out(extended_files):
  """.ci/run at every change, all of a file; or people, where CONTRIBUTING.md says when."""
  (arguments,) = re.findall(
      r"pytest -m extended (.*?) 2>&1", (ROOT / ".ci" / "run").read_text(), re.S)
  rows = re.findall(r"^\| (.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
  named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", " ".join(rows))
  for argument in arguments.replace("\\\n", "").split():
    head, choices, tail = re.fullmatch(r"([^{]*)(?:\{(.*)\}(.*))?", argument).groups("")
    named += [head + choice + tail for choice in choices.split(",")]
  whole = [ROOT / name for name in named if "::" not in name]
  assert all(path.exists() for path in whole)
  assert not {
      str(file) for file in extended_files
      if not any(file == path or path in file.parents for path in whole)}


def test_what_is_installed():
  """The name `linalg` on the package index belongs to another project."""
  installed = re.compile(r"pip3? install [^\n`&]*?(?<![\w/.-])([\w-]*linalg\b)")
  assert {name for path in TEXTS for name in installed.findall(path.read_text())} == {"jax-linalg"}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
  """The folder in which blocks run.

  Its `build` has the handler of examples/own_handler, built by the user's command.
  """
  folder = tmp_path_factory.mktemp("documents")
  (folder / "build").mkdir()
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  subprocess.run(
      [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-isystem", jax.ffi.include_dir(), "-I",
       linalg.include_dir(), str(ROOT / "examples/own_handler/tridiagonal.cc"), "-o",
       str(folder / "build/libtridiagonal.so")], check=True)
  return folder


@pytest.mark.parametrize("block", [
    # Each starts a process.
    pytest.param(block, id=block.place, marks=(
        () if block.place.startswith("README") else pytest.mark.extended))
    for block in BLOCKS if not block.source])
def test_runs(block, folder):
  """Compiled as tests are, also where the block itself tells XLA of devices."""
  environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": quick.FLAGS}
  code = block.code.replace('["XLA_FLAGS"] = "', f'["XLA_FLAGS"] = "{quick.FLAGS} ')
  code = code.replace("localhost:9911", processes.free_address())
  done = subprocess.run(
      [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True,
      text=True, check=False, timeout=300)
  assert done.returncode == 0, done.stderr[-3000:]
  # If a block starts jax.distributed, Gloo prints lines of its own, some of them in pieces.
  printed = [
      line for line in done.stdout.splitlines()
      if not line.startswith("[Gloo]") and "peer ranks" not in line]
  beside = re.findall(r"^\s*print\(.*\)(?:  # (.*))?$", block.code, re.M)
  assert len(printed) == len(beside)
  for line, comment in zip(printed, beside, strict=True):
    assert not comment or comment.startswith(line) or (
        comment.endswith("…") and line.startswith(comment.rstrip(" …"))), line


@_each(PARTS)
def test_is_part_of_a_file(block):
  source = (ROOT / block.source).read_text()
  for part in re.split(r"\n\n+", block.code.strip()):
    assert part in source, part


def test_figures_are_as_drawn(tmp_path):
  figures = ROOT / "docs" / "figures"
  subprocess.run([sys.executable, str(figures / "draw.py"), str(tmp_path)], check=True)
  drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
  assert drawn == {path.name: path.read_text() for path in figures.glob("*.svg")}
