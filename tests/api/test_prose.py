"""tools/check_prose.py finds what it says, and the tree is clean, as the pre-commit hook asks."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TOOL = ROOT / "tools" / "check_prose.py"


@pytest.fixture(scope="module")
def tool():
  spec = importlib.util.spec_from_file_location("check_prose", TOOL)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


@pytest.mark.parametrize("name, text, found", [
    ("a.py", '"""Of matrices."""\n', [1]),
    ("a.py", '"""Matrices.\n\nRows come first. With pivots, columns do.\n"""\n', [3]),
    ("a.py", "x = 1  # Those of x\n# It is one\n# sentence. The same again.\n", [1, 3]),
    ("a.py", '"""Matrices.\n\n>>> print(x)\nAs printed.\n"""\n', []),
    ("a.py", 'x = "# Of a string"  # Without a reason\n', []),
    ("a.h", "// What a handler\n// reads.\nint x;  // But for x\n/* Fine. As\n   here. */\n",
     [1, 3, 4]),
    ("a.cc", 'auto x = "// Of a string";  // fine\nauto y = R"(// Of another)";\n', []),
    ("a.cu", "// There is space for it.\n// There is ro" "om for it.\n", [2]),
    ("a.md", "Short. " + "word " * 40 + "end.\n", [1]),
    ("a.md", "# Title\n\n" + "word " * 25 + ":\n\n- " + "word " * 25 + "\n- two\n", []),
    ("a.md", "```sh\n" + "word " * 50 + "\n```\n| " + "word " * 50 + "|\n", []),
    ("a.md", "A ho" "use, and householders.\n", [1]),
])
def test_findings(tool, tmp_path, name, text, found):
  path = tmp_path / name
  path.write_text(text)
  assert sorted({line for line, _ in tool.findings(path)}) == found


def test_report(tool, tmp_path):
  path = tmp_path / "page.md"
  path.write_text("One two three. One two three four five.\n")
  assert "2 sentences, mean  4.0, longest   5" in tool.report(path)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists the files")
def test_the_tree_is_clean():
  done = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stdout
