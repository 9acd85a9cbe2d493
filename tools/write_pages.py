"""Writes the generated parts of the documentation from the catalogue, the sources and results.

  python tools/write_pages.py          writes them
  python tools/write_pages.py --check  tells which are out of date

A part stands between `<!-- generated: NAME -->` and `<!-- end -->` in a Markdown page, and between
`.. generated: NAME` and `.. end` in a page of docs/reference.
"""

import argparse
import ast
import functools
import importlib
import importlib.util
import inspect
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import result_pages

from linalg import _catalogue
from linalg._catalogue import CATALOGUE, Function, sharded

ROOT = pathlib.Path(__file__).parents[1]
MARKDOWN = re.compile(r"(?<=^<!-- generated: )([\w-]+)( -->\n).*?(?=^<!-- end -->$)", re.M | re.S)
REFERENCE = re.compile(r"(?<=^\.\. generated: )([\w-]+)(\n).*?(?=^\.\. end$)", re.M | re.S)
OF_LINALG = [x for x in CATALOGUE if x.module == "linalg"]
OF_MATRICES = [x for x in OF_LINALG if x.kind.page != "package"]


def _code(names: Iterable[str]) -> str:
  return ", ".join(f"`{name}`" for name in names)


def _table(header: str, rows: Iterable[Iterable[str]]) -> str:
  """A Markdown table. A header without a name for a column gives that column no name."""
  lines = [header, "|---" * (header.count("|") - 1) + "|"]
  lines += ["| " + " | ".join(cells).replace("|  |", "| |") + " |" for cells in rows]
  return "\n".join(line.replace("|  |", "| |").replace("  |", " |") for line in lines) + "\n"


def _text(text: str) -> str:
  return text.replace("|", "\\|")


def _with_info(function: Function) -> tuple[str, ...]:
  """The names that return `info`: the form in `_ex`, or the function itself."""
  classes = [getattr(importlib.import_module(function.module), x) for x in function.classes]
  itself = any("info" in getattr(x, "_fields", ()) for x in classes)
  return (function.name,) if itself else function.names[1:]


def _grouped(functions: Iterable[Any], key: Callable[[Any], Any]):
  """Key -> its functions, in the order of the first of each."""
  groups: dict[Any, list[Any]] = {}
  for function in functions:
    groups.setdefault(key(function), []).append(function)
  return groups


# Markdown


def at_a_glance() -> str:
  """Functions of one section of the reference that follow one module share a row."""

  def followed(function):
    module, _, name = (function.counterpart or "").rpartition(".")
    return module if name == function.name else function.counterpart

  def row(function):
    return function.kind, followed(function), "" if function.counterpart else function.name

  rows = []
  for (_, module, _), group in _grouped(OF_MATRICES, row).items():
    origin = f"`{module}`" if module else _text(group[0].summary.removesuffix("."))
    forms = _code(name for x in group for name in _with_info(x))
    rows.append((_code(x.name for x in group), origin, forms))
  return _table("| Functions | As in, or what they compute | With `info` |", rows)


def by_kind() -> str:
  """The functions of each page of the reference."""
  pages = _grouped(OF_MATRICES, lambda x: x.kind.page)

  def title(page):
    return (ROOT / "docs" / "reference" / f"{page}.rst").read_text().partition("\n")[0]

  rows = [(title(page), _code(x.name for x in functions)) for page, functions in pages.items()]
  beyond = [x.name for x in CATALOGUE if x.module == "linalg.scipy" and x.behaviours]
  rows.append(("With SciPy's parameters, in `linalg.scipy`", _code(beyond)))
  return _table("| Kind | Functions |", rows)


def _behaviours(functions: Iterable[Function], last: Callable[[Function], bool]) -> str:
  """Functions of one behaviour share a row; a row with one that is `last` stands at the end."""
  functions = list(functions)
  rows: dict[_catalogue.Behaviour, list[Function]] = {}
  for function in functions:
    for behaviour in function.behaviours:
      rows.setdefault(behaviour, []).append(function)
  # The forms with `info` stand in the first row of their function.
  left = {name for x in functions for name in _with_info(x)}
  cells = []
  for behaviour, group in sorted(rows.items(), key=lambda row: any(map(last, row[1]))):
    forms = [name for x in group for name in _with_info(x) if name in left]
    left -= set(forms)
    cells.append((
        _code(x.name for x in group), _text(behaviour.text), _code(behaviour.tests), _code(forms)))
  return _table("| Function | At degenerate points, and beyond others | Test | `info` |", cells)


def composed() -> str:
  # The page says that the last rows lack the tests of all cases.
  return _behaviours((x for x in OF_MATRICES if x.is_composed), last=lambda x: not x.cases)


def handlers() -> str:
  return _behaviours((x for x in OF_MATRICES if not x.is_composed), last=lambda x: False)


def of_scipy() -> str:
  functions = (x for x in CATALOGUE if x.module == "linalg.scipy" and x.behaviours)
  return _behaviours(functions, last=lambda x: False)


def signatures() -> str:
  followers = [x for x in OF_MATRICES if x.counterpart and x.counterpart.endswith(f".{x.name}")]
  order = list(_catalogue.FOLLOWED["linalg"])

  def modules(function):
    return function.counterpart.rpartition(".")[0], function.other_modules

  groups = _grouped(followers, modules)
  table = _table("| Follows | Functions | Also in |", (
      (followed, _code(sorted(x.name for x in groups[followed, others])), ", ".join(others))
      for followed, others in sorted(
          groups, key=lambda key: (order.index(key[0]), -len(key[1]), key[1][::-1]))))
  own = _code(
      f"{x.name}({', '.join(f'{name}=' for name in x.own_parameters)})"
      for x in OF_MATRICES if x.own_parameters)
  return (
      f"{table}\nThese have keyword-only parameters that the function they follow lacks: {own}.\n\n"
      f"These follow none: {_code(x.name for x in OF_MATRICES if x.counterpart is None)}.\n")


def migration() -> str:
  rows = sorted(
      (x.name, x) for x in OF_MATRICES
      if (x.counterpart or "").startswith("jax.numpy.linalg."))
  return _table("| Name | What differs |", (
      (f"`{name}`", _text(x.differs or ("JAX's own" if x.is_stock else "–"))) for name, x in rows))


def missing() -> str:
  groups: dict[str, list[str]] = {}
  for name in _catalogue.instead_when_sharded():
    record = next(x for x in OF_MATRICES if name in x.names)
    groups.setdefault(record.sharded, []).append(name)

  def use(text):
    text = text.removesuffix(sharded.FITS).replace("{name}", "f")
    return re.sub(r"(?<![\w.])(?:jax|linalg)\.[\w.]*\w(?:\(linalg\.\w+\))?", r"`\g<0>`", text)

  table = _table("| Name in `linalg` | Use |", (
      (_code(names), _text(use(text))) for text, names in groups.items()))
  return f"`f` stands for the name in the first column.\n\n{table}"


def cpu_only() -> str:
  """The targets that only the CPU has, from the table of targets."""
  table = re.sub(r"\s*\\\n\s*", " ", (ROOT / "kernels" / "handlers.h").read_text())
  found = re.findall(r'visit\((linalg_\w+), CpuOnly\("([^"]+)"\)', table)
  return _table("| Target | On a GPU |", (
      (_code(name for name, _ in rows), text)
      for text, rows in _grouped(found, lambda row: row[1]).items()))


TIERS = ("small", "blocked", "team", "arithmetic")
FEW = 4


def kernels() -> str:
  """The files of handlers, their targets, and the algorithms that they include.

  A header of `cpu` or `cuda` that few files of handlers include counts as a part of each.
  """
  folder = ROOT / "kernels"
  texts = {
      path.relative_to(folder): path.read_text() for backend in ("cpu", "cuda")
      for path in sorted((folder / backend).iterdir()) if path.suffix in (".cc", ".cu", ".h")}
  included = {
      path: set(map(pathlib.Path, re.findall(r'^#include "kernels/(\w+/\w+\.h)"', text, re.M)))
      for path, text in texts.items()}
  targets = {
      path: re.findall(r"^LINALG_(?:CPU_)?HANDLER\w*\((linalg_\w+),", text, re.M)
      for path, text in texts.items()}
  sources = [path for path in texts if targets[path]]

  def algorithms(path):
    parts = {x for x in included[path] & included.keys()
             if sum(x in included[source] for source in sources) <= FEW}
    return included[path].union(*(included[x] for x in parts))

  def links(paths):
    compiled = {x: x.with_suffix(".cc") for x in paths if (folder / x.with_suffix(".cc")).exists()}
    return ", ".join(f"[{x.stem}]({compiled.get(x, x)})" for x in sorted(paths))

  rows = []
  for stem in dict.fromkeys(path.stem for path in sources):
    files = [path for path in sources if path.stem == stem]
    found = set().union(*map(algorithms, files))
    names = sorted({x.removeprefix("linalg_") for path in files for x in targets[path]})
    backends = ([x for x in files if x.parts[0] == backend] for backend in ("cpu", "cuda"))
    tiers = ([x for x in found if x.parts[0] == tier] for tier in TIERS)
    rows.append((_code(names), *map(links, (*backends, *tiers))))
  return _table("| Targets, `linalg_…` | `cpu` | `cuda` |" + "".join(
      f" `{tier}` |" for tier in TIERS), rows)


ISSUES = ROOT / "examples" / "issues"
TRACKER = "https://github.com/jax-ml/jax/issues/"


def _issue_programs() -> Iterable[tuple[pathlib.Path, dict[str, str]]]:
  """Each program with its problem and the fields of its docstring, by the number of the issue."""
  paths = ISSUES.glob("jax_*.py")
  for path in sorted(paths, key=lambda path: int(path.stem.removeprefix("jax_"))):
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    problem, fields = docstring.replace("\n  ", " ").split("\n\n")
    yield path, {"Problem": problem} | dict(line.split(": ", 1) for line in fields.splitlines())


def _issue(path: pathlib.Path, numbers: str) -> str:
  linked = re.sub(r"\d{3,}", lambda match: f"[{match[0]}]({TRACKER}{match[0]})", numbers, count=1)
  return f"{linked}: [program](../{path.relative_to(ROOT)})"


def issues(kind: str) -> str:
  """The programs of one kind: the problem before and after."""
  rows = [
      (_issue(path, x["Issue"]), x["Problem"], x["Before"], x["After"], x["Limits"])
      for path, x in _issue_programs() if x["Kind"] == kind]
  return _table(
      "| Issue | Problem | Stock JAX | With this package | Where it does not help |", rows)


def issue_times(kind: str) -> str:
  """The times of the newest file of a kind that benchmarks/issues.py has written."""
  path = result_pages.newest(kind)
  found = result_pages.load(path)
  rows = []
  for cell in found["cells"]:
    times = cell["times"]
    ratios = (f"{times[x]['speedup']['stock']['median']:.3g}" for x in ("accelerated", "ours"))
    number = cell["program"].removeprefix("jax_")
    milliseconds = f"{1e3 * times['ours']['seconds']['stock']:.3g}"
    rows.append((f"[{number}]({TRACKER}{number})", cell["case"], milliseconds, *ratios))
  table = _table(
      "| Issue | Program | Stock JAX, ms | Accelerated, times as fast | `linalg`, times as fast |",
      rows)
  return f"{table}\n{result_pages.described(found, path)}"


PARTS = {
    **{f"issues-{kind}": functools.partial(issues, kind)
       for kind in ("speed", "failures", "gradients", "sharding", "missing")},
    "issue-times": functools.partial(issue_times, "issues"),
    "issue-times-one-core": functools.partial(issue_times, "issues-one-core"),
    **result_pages.ROOFLINE, **result_pages.README,
    **result_pages.RECURSIONS, **result_pages.SPECTRA,
    "by-kind": by_kind, "at-a-glance": at_a_glance, "composed": composed, "handlers": handlers,
    "of-scipy": of_scipy, "signatures": signatures, "migration": migration, "missing": missing,
    "cpu-only": cpu_only, "kernels": kernels}


# The reference


def _directive(module: str, name: str) -> str:
  thing = getattr(importlib.import_module(module), name)
  if not inspect.isclass(thing):
    return f".. autofunction:: {name}\n"
  if issubclass(thing, Exception):
    return f".. autoexception:: {name}\n"
  members = [x for x in vars(thing) if not x.startswith("_")]
  shown = "" if hasattr(thing, "_fields") else f"   :members: {', '.join(members)}\n"
  return f".. autoclass:: {name}\n{shown}"


def reference(page: str) -> str:
  parts = []
  of_page = [x for x in CATALOGUE if x.kind.page == page]
  for kind, functions in _grouped(of_page, lambda x: x.kind).items():
    if kind.section:
      parts.append(f"{kind.section}\n{'-' * len(kind.section)}\n")
    names = [name for x in functions for name in (*x.names, *x.classes)]
    listed = "".join(f"   {name}\n" for name in names)
    parts.append(f".. autosummary::\n   :nosignatures:\n\n{listed}")
    parts += [_directive(functions[0].module, name) for name in names]
  return "\n".join(parts)


def written(path: pathlib.Path) -> str:
  """The text of a page with its generated parts as they should be."""
  if path.suffix == ".rst":
    return REFERENCE.sub(lambda m: f"{m[1]}{m[2]}\n{reference(m[1])}\n", path.read_text())

  def part(match: re.Match[str]) -> str:
    text = PARTS[match[1]]().strip()
    gap = "\n" if text.endswith("|") else ""  # a line after a table would be one of its rows
    return f"{match[1]}{match[2]}{text}\n{gap}"

  return MARKDOWN.sub(part, path.read_text())


def pages() -> list[pathlib.Path]:
  """All pages that may have generated parts."""
  docs = ROOT / "docs"
  return [
      ROOT / "README.md", ROOT / "kernels" / "README.md", *sorted(docs.rglob("*.md")),
      *sorted(docs.rglob("*.rst"))]


def drawn(path: pathlib.Path) -> str:
  """The text of the figure of speeds as it should be."""
  spec = importlib.util.spec_from_file_location("draw", path.parent / "draw.py")
  assert spec and spec.loader
  draw = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(draw)
  with tempfile.TemporaryDirectory() as folder:
    draw.speed(pathlib.Path(folder), result_pages.newest("readme"))
    return (pathlib.Path(folder) / path.name).read_text()


def main() -> int:
  parser = argparse.ArgumentParser(description="Writes the generated parts of the documentation.")
  parser.add_argument("--check", action="store_true", help="write nothing; fail if one differs")
  check = parser.parse_args().check
  figure = ROOT / "docs" / "figures" / "speed.svg"
  texts = {path: written(path) for path in pages()} | {figure: drawn(figure)}
  old = [(path, text) for path, text in texts.items() if text != path.read_text()]
  for path, text in old:
    print(path.relative_to(ROOT), "is out of date" if check else "is written")
    if not check:
      path.write_text(text)
  return 1 if check and old else 0


if __name__ == "__main__":
  sys.exit(main())
