"""Checks how comments, docstrings and pages are written.

  python tools/check_prose.py [--report] [PATH...]

A path is a file or a folder; without one, all files that git knows are checked. Each finding is
printed as file:line, and the exit status is 1 if there is any. The rules:

- A sentence of a comment or a docstring does not begin with one of OPENINGS. Such sentences put
  their subject last, so that they have to be read twice.
- A sentence of a page has at most LONGEST words. Code, tables and the targets of links do not
  count.
- The words of BANNED do not occur: a part of the code is a layer, and a buffer has space.

`--report` prints for each page its lines, words, sentences and their mean length instead.
"""

import argparse
import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
CODE = (".py", ".pyi", ".h", ".cc", ".cu", ".cuh")
OPENINGS = re.compile(r"(Of|What|Those|The same|With|As|But for)\b")
# In two parts, so that a search for the words finds none in the tree.
BANNED = re.compile(r"\b(ro" r"oms?|ho" r"use)\b", re.IGNORECASE)
LONGEST = 40
# A sentence ends before any character that may begin one: all but lower-case letters.
END = re.compile(r"(?<=[.!?])[)\"”]*\s+(?=[^a-z\s])")

Block = tuple[int, str]  # the number of a first line, and the text from there


def python_blocks(text: str) -> Iterator[Block]:
  """The comments and the docstrings of a Python file."""
  comments = []
  for token in tokenize.generate_tokens(io.StringIO(text).readline):
    if token.type == tokenize.COMMENT:
      alone = not token.line[: token.start[1]].strip()
      comments.append((token.start[0], alone, token.string.lstrip("#")))
  yield from joined(comments)
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
      docstring = ast.get_docstring(node, clean=False)
      if docstring is not None:
        yield node.body[0].lineno, docstring


def c_blocks(text: str) -> Iterator[Block]:
  """The comments of a C++ or CUDA file."""
  # Literals are matched first, since they may hold what looks like a comment.
  tokens = re.compile(
      r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\b\d[\w\']*|\'(?:\\.|[^\'\\\n])*\''
      r"|(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)", re.DOTALL)
  comments = []
  for match in tokens.finditer(text):
    line = text.count("\n", 0, match.start()) + 1
    if match["line"]:
      before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
      comments.append((line, not before.strip(), match["line"].lstrip("/")))
    elif match["block"]:
      yield line, re.sub(r"^ *\*+/?", "", match["block"][2:-2], flags=re.MULTILINE)
  yield from joined(comments)


def joined(comments: list[tuple[int, bool, str]]) -> Iterator[Block]:
  """Comments on lines of their own that follow one another are one block."""
  block: list[str] = []
  first = last = 0
  for line, alone, text in [*comments, (-1, False, "")]:
    if block and not (alone and line == last + 1):
      yield first, "\n".join(block)
      block = []
    if line < 0:
      return
    if not block:
      first = line
    block.append(text)
    # Nothing continues a comment that stands behind code.
    last = line if alone else -2


def sentences(line: int, text: str) -> Iterator[Block]:
  """Yields the sentences of a block, without its doctests."""
  paragraph: list[str] = []
  session = False
  for number, words in enumerate([*text.split("\n"), ""], start=line):
    stripped = words.strip()
    session = bool(stripped) and (session or stripped.startswith(">>>"))
    if stripped and not session:
      paragraph.append(words)
      continue
    yield from split(number - len(paragraph), "\n".join(paragraph))
    paragraph = []


def split(line: int, paragraph: str) -> Iterator[Block]:
  start = 0
  for end in [*(match.end() for match in END.finditer(paragraph)), len(paragraph)]:
    sentence = paragraph[start:end]
    before = len(sentence) - len(sentence.lstrip())
    if sentence.strip():
      at = line + paragraph.count("\n", 0, start + before)
      yield at, " ".join(sentence.split())
    start = end


def page_sentences(text: str) -> Iterator[Block]:
  """The sentences of a Markdown page: a heading, an item of a list and a paragraph end one."""
  blank = lambda match: re.sub(r"[^\n]", "", match[0])  # keeps the numbers of lines
  text = re.sub(r"^( *)(`{3,}|~{3,}|:{3,}).*?^\1\2 *$", blank, text, flags=re.M | re.S)
  text = re.sub(r"<!--.*?-->", blank, text, flags=re.S)
  text = re.sub(r"`[^`]+`", lambda match: "`code`" + "\n" * match[0].count("\n"), text)
  text = re.sub(r"(?<=\])\([^)\s]*\)|(?<=\])\[[^\]]*\]|^\[[^\]]+\]: .*", "", text, flags=re.M)
  paragraph: list[str] = []
  for number, words in enumerate([*text.split("\n"), ""], start=1):
    item = re.match(r"\s*(?:[-*+]|\d+\.)\s+", words)
    heading = words.startswith("#")
    if item or heading or not words.strip() or words.lstrip().startswith("|"):
      yield from split(number - len(paragraph), "\n".join(paragraph))
      paragraph = []
    if item:
      paragraph = [words[item.end() :]]
    elif words.strip() and not heading and not words.lstrip().startswith("|"):
      paragraph.append(words)


def length(sentence: str) -> int:
  return sum(any(c.isalnum() for c in word) for word in sentence.split())


def findings(path: pathlib.Path) -> Iterator[tuple[int, str]]:
  """The line and a description of each breach in a file."""
  text = path.read_text()
  if path.suffix == ".md":
    for line, sentence in page_sentences(text):
      if (words := length(sentence)) > LONGEST:
        yield line, f"a sentence of {words} words: {sentence[:60]} …"
    blocks = [(1, text)]
  else:
    blocks = list((python_blocks if path.suffix in (".py", ".pyi") else c_blocks)(text))
    for line, block in blocks:
      for at, sentence in sentences(line, block):
        if match := OPENINGS.match(sentence):
          yield at, f'a sentence that begins with "{match[1]}": {sentence[:60]}'
  for line, block in blocks:
    for match in BANNED.finditer(block):
      yield line + block.count("\n", 0, match.start()), f'the word "{match[1]}"'


def report(path: pathlib.Path) -> str:
  text = path.read_text()
  found = [length(sentence) for _, sentence in page_sentences(text)]
  mean = sum(found) / max(1, len(found))
  return (
      f"{text.count(chr(10)):5} lines {len(text.split()):6} words {len(found):5} sentences, mean "
      f"{mean:4.1f}, longest {max(found, default=0):3}  {shown(path)}")


def shown(path: pathlib.Path) -> pathlib.Path:
  return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def files(paths: list[pathlib.Path]) -> list[pathlib.Path]:
  """Returns all files that git tracks, or the given ones and those tracked under given folders."""
  named = [path for path in paths if path.is_file()]
  if len(named) < len(paths) or not paths:
    folders = [str(path) for path in paths if not path.is_file()]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders],
        cwd=pathlib.Path.cwd() if folders else ROOT, check=True, capture_output=True, text=True)
    base = pathlib.Path.cwd() if folders else ROOT
    named += [base / name for name in listed.stdout.split("\0") if name]
  return [path.resolve() for path in named if path.suffix in (*CODE, ".md") and path.is_file()]


def main() -> None:
  parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
  parser.add_argument("paths", nargs="*", type=pathlib.Path, metavar="PATH")
  parser.add_argument("--report", action="store_true")
  arguments = parser.parse_args()
  found = files(arguments.paths)
  if arguments.report:
    for path in found:
      if path.suffix == ".md":
        print(report(path))
    return
  lines = [
      f"{shown(path)}:{line}: {what}" for path in found for line, what in sorted(findings(path))]
  print("\n".join(lines), end="\n" if lines else "")
  sys.exit(bool(lines))


if __name__ == "__main__":
  main()
