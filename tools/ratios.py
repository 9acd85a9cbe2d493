"""Prints the worst scaled residual of each operation on LAPACK's test matrices, and stock JAX's.

  pytest -m extended tests/values/test_matrix_types.py --junitxml=ratios.xml -o junit_family=xunit1
  python tools/ratios.py ratios.xml

The output is a Markdown table for docs/residuals.md. Several files, such as one for each dtype,
make one table.
"""

import re
import sys
import xml.etree.ElementTree
from collections import defaultdict

DTYPES = ("float32", "float64", "complex64", "complex128")


def _shown(properties: dict[str, str], who: str) -> str:
  worst, beyond = float(properties[f"{who}: worst"]), int(properties[f"{who}: beyond"])
  if worst != worst:
    return "–"
  return f"{worst:.2g}" + (f" ({beyond})" if beyond else "")


def table(paths: list[str]) -> str:
  rows: dict[str, dict[str, str]] = defaultdict(dict)
  limits = {}
  cases = (x for path in paths for x in xml.etree.ElementTree.parse(path).iter("testcase"))
  for case in cases:
    match = re.fullmatch(r"test_residuals_about_cut_offs\[(\w+)-(\w+)\]", case.attrib["name"])
    found = {x.attrib["name"]: x.attrib["value"] for x in case.iter("property")}
    if match is None or not found:
      continue
    dtype, name = sorted(match.groups(), key=lambda x: x not in DTYPES)
    limits[name] = found["limit"]
    rows[name][dtype] = f"{_shown(found, 'ours')} / {_shown(found, 'stock')}"
  dtypes = [dtype for dtype in DTYPES if any(dtype in cells for cells in rows.values())]
  lines = [f"| | limit | {' | '.join(dtypes)} |", f"|---|---|{'---|' * len(dtypes)}"]
  for name, cells in rows.items():
    shown = " | ".join(cells.get(dtype, "") for dtype in dtypes)
    lines.append(f"| `{name}` | {float(limits[name]):g} | {shown} |")
  return "\n".join(lines)


if __name__ == "__main__":
  print(table(sys.argv[1:]))
