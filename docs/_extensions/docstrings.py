"""The package's docstrings as reStructuredText.

They are plain text with sections (Args, Returns, Attributes, Example), names and code between
single backticks, and mathematics in Unicode. They hold no markup, whatever looks like it.
"""

import builtins
import collections.abc
import functools
import inspect
import re
import typing

import jax
from docutils import nodes
from jax.typing import ArrayLike
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

import linalg
import linalg.distributed
import linalg.ffi
import linalg.lax
import linalg.scipy
import linalg.structured

MODULES = {
    module.__name__: module
    for module in (
        linalg, linalg.scipy, linalg.lax, linalg.structured, linalg.distributed, linalg.ffi)}
SECTIONS = {"Args": "Parameters", "Attributes": "Attributes", "Returns": "Returns"}
PAGES = ("accelerate", "cuda", "distributed", "functions", "handlers")


def is_ours(thing):
  of = thing.__name__ if inspect.ismodule(thing) else getattr(thing, "__module__", None)
  return (of or "").split(".")[0] == "linalg"


@functools.cache
def documented():
  """Public name -> the name that it is documented under, its first one. JAX's own functions have
  entries in `linalg` alone."""
  first, found = {}, {}
  for module in MODULES.values():
    for name in module.__all__:
      thing = getattr(module, name)
      full = f"{module.__name__}.{name}"
      if id(thing) in first or is_ours(thing) or module in (linalg, linalg.ffi):
        found[full] = first.setdefault(id(thing), full)
  return found


# Names between backticks


def known_name(name, rawtext, text, lineno, inliner, options=None, content=None):
  """A link, where the text is a public name of this package; else code."""
  del name, options, content
  text = text.replace("\0", "")
  literal = nodes.literal(rawtext, text, classes=["code"])
  module = inliner.document.settings.env.ref_context.get("py:module") or "linalg"
  for full in (f"{module}.{text}", f"linalg.{text}", text):
    if full in documented():
      reference = addnodes.pending_xref(
          rawtext, literal, refdomain="py", reftype="obj", reftarget=documented()[full],
          refexplicit=True)
      reference.line = lineno
      return [reference], []
  return [literal], []


def link_names(app, doctree):
  """Links code in the Markdown pages that is a public name; but not what others call so. Paths may
  be broken, for else they take all of a table's width."""
  if app.env.docname.startswith("reference/"):
    return
  for literal in list(doctree.findall(nodes.literal)):
    if any(isinstance(x, (nodes.title, nodes.reference)) for x in _parents(literal)):
      continue
    if "/" in literal.astext():
      literal["classes"].append("path")
    cell = next((x for x in _parents(literal) if isinstance(x, nodes.entry)), None)
    pages = ("migration", "migration_torch")
    if app.env.docname in pages and cell and cell.parent.index(cell) == 0:
      continue
    text = literal.astext()
    for full in (f"linalg.{text}", text):
      if full in documented():
        reference = addnodes.pending_xref(
            "", literal.deepcopy(), refdomain="py", reftype="obj", refdoc=app.env.docname,
            reftarget=documented()[full], refexplicit=True)
        literal.replace_self(reference)
        break


def _parents(node):
  while node.parent is not None:
    node = node.parent
    yield node


# Sections


def escape(line):
  """Escapes markup outside of backticks."""
  parts = re.split(r"(`[^`]+`)", line)
  parts[::2] = [
      re.sub(r"([*|\\]|(?<=\w)_(?!\w))", r"\\\1", re.sub(r"\bdocs/(\w+)\.md", _page, part))
      for part in parts[::2]]
  return "".join(parts)


def _page(match):
  return f":doc:`/{match[1]}`" if match[1] in PAGES else match[0]


def restructured(lines):
  result, i = [], 0
  while i < len(lines):
    heading = re.fullmatch(r"(Args|Attributes|Returns|Example):", lines[i])
    if lines[i].startswith("  "):
      result += [".. code-block:: python", ""]
      while i < len(lines) and (lines[i].startswith("  ") or not lines[i].strip()):
        result.append("  " + lines[i])
        i += 1
      continue
    if not heading:
      line = escape(lines[i])
      result.append(re.sub(r"(?:^|(?<=\. ))(Algorithm|Derivatives?):", r"**\1:**", line))
      i += 1
      continue
    block = []
    i += 1
    while i < len(lines) and (lines[i].startswith("  ") or not lines[i].strip()):
      block.append(lines[i][2:])
      i += 1
    result += ["", *_section(heading[1], block), ""]
  return result


def _section(heading, block):
  while block and not block[-1].strip():
    block.pop()
  if heading == "Example":
    return [".. rubric:: Example", "", *block]
  if heading == "Returns":
    body = [escape(line) for line in block]
  else:
    body = []
    for line in block:
      item = re.match(r"(\w+(?:, \w+)*):(?: |$)", line)
      if item:
        names = ", ".join(f"**{name}**" for name in item[1].split(", "))
        body.append(f"- {names}: {escape(line[item.end() :])}")
      else:
        # Deeper than the item, but not a quotation in it.
        body.append("  " + escape(line.strip()))
  return [f":{SECTIONS[heading]}:", *("  " + line for line in body)]


def of_jax(lines):
  """The summary and the examples of a docstring of JAX's."""
  text = "\n".join(lines).strip()
  summary = text.partition("\n\n")[0]
  summary = re.sub(r":\w+:`~?([^`]+)`", r"``\1``", summary)
  examples = re.findall(r"(?:^ *(?:>>>|\.\.\.).*\n(?:(?! *$).*\n)*)", text + "\n", re.M)
  result = [*summary.split("\n"), "", "JAX's own, under this name too.", ""]
  if examples:
    result += [".. rubric:: Example", ""]
    for example in examples:
      result += [*inspect.cleandoc(example).split("\n"), ""]
  return result


def on_docstring(app, what, name, obj, options, lines):
  del app, what, options
  if name in documented() and not is_ours(inspect.unwrap(obj) if callable(obj) else obj):
    lines[:] = of_jax(lines)
  else:
    lines[:] = restructured(lines)


# Signatures


@functools.cache
def _alias(name):
  """Stands for the alias of a union of a dozen types, such as `ArrayLike`, to be shown by name."""
  return type(name, (), {"__module__": "jax.typing", "__qualname__": name})


class _Names(dict):
  """The meaning of names in JAX's annotations, which are text."""

  def __missing__(self, name):
    return getattr(builtins, name, None) or getattr(collections.abc, name, None) or _alias(name)


def _short(annotation):
  if isinstance(annotation, str):
    return eval(re.sub(r"\b\w+\.(?=\w)", "", annotation), {}, _Names(Array=jax.Array))
  alternatives = typing.get_args(annotation)
  of_arrays = typing.get_args(ArrayLike)
  if all(x in alternatives for x in of_arrays):
    others = [x for x in alternatives if x not in of_arrays]
    return functools.reduce(lambda x, y: x | y, others, _alias("ArrayLike"))
  origin = typing.get_origin(annotation)
  if alternatives and origin is tuple:
    return tuple[tuple(_short(x) for x in alternatives)]
  return annotation


def on_signature(app, obj, bound_method):
  del app, bound_method
  function = inspect.unwrap(obj) if callable(obj) else obj
  for wrapped in {id(x): x for x in (obj, function)}.values():
    annotations = getattr(wrapped, "__annotations__", None)
    if isinstance(annotations, dict):
      annotations.update((name, _short(annotation)) for name, annotation in annotations.items())


def on_formatted(app, what, name, obj, options, signature, return_annotation):
  """Nobody but `operation` makes an `Operation`."""
  del app, what, obj, options
  return ("", None) if name == "linalg.ffi.Operation" else (signature, return_annotation)


class Elsewhere(SphinxDirective):
  """A list of a module's names that are documented under another name, or by JAX."""

  required_arguments = 1
  option_spec = {"of": lambda text: text}

  def run(self):
    module = MODULES[self.arguments[0]]
    rows = []
    for name in module.__all__:
      thing, full = getattr(module, name), f"{module.__name__}.{name}"
      if self.options["of"] == "linalg" and documented().get(full, full) != full:
        rows.append(f"- :py:obj:`{full} <{documented()[full]}>`")
      if self.options["of"] == "jax" and full not in documented():
        summary = (inspect.getdoc(thing) or "").partition("\n")[0]
        if type(thing).__name__ == "Primitive":
          summary = "A primitive of JAX."
        rows.append(f"- ``{full}``: {escape(re.sub(r':[a-z]+:', '', summary)).replace('`', '')}")
    if not rows:
      raise self.error(f"{module.__name__} has no such names.")
    return self.parse_text_to_nodes("\n".join(rows))


def setup(app):
  app.add_role("known_name", known_name)
  app.add_directive("elsewhere", Elsewhere)
  app.connect("doctree-read", link_names)
  app.connect("autodoc-process-docstring", on_docstring)
  app.connect("autodoc-before-process-signature", on_signature)
  app.connect("autodoc-process-signature", on_formatted)
  return {"parallel_read_safe": True}
