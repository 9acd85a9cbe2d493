"""kernels/README.md: its links lead to files, and its matrix lists every file of handlers."""

import pathlib
import re

FOLDER = pathlib.Path(__file__).parents[2] / "kernels"
LINKS = set(re.findall(r"\]\(([^)]+)\)", (FOLDER / "README.md").read_text()))


def test_links():
  assert not [link for link in LINKS if not (FOLDER / link).exists()]


def test_every_file_of_handlers():
  files = [*(FOLDER / "cpu").glob("*.cc"), *(FOLDER / "cuda").glob("*.cu")]
  handlers = {
      str(path.relative_to(FOLDER)) for path in files
      if re.search(r"^LINALG_(CPU_)?HANDLER", path.read_text(), re.M)}
  assert handlers <= LINKS
