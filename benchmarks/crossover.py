"""Measures where one algorithm should take over from another, and keeps the times.

  python benchmarks/crossover.py kLaneCholesky --ops cholesky --sizes 44 48 60 64 --batches 1 256

builds the package twice from a copy of the checkout: once with the constant below all sizes, and
once above them. So each build takes one of the two paths at all sizes. benchmarks/run.py times both
builds in turns. The rows go to the file of benchmarks/crossovers that names the constant; the
README there has its format.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "crossovers"
SOURCES = {backend: f"kernels/{backend}/tuning.h" for backend in ("cpu", "cuda")}
DTYPES = {"f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
Run = dict[str, Any]  # what benchmarks/run.py writes


def pattern(constant: str) -> str:
  return rf"(?<= )({constant} = )\d+(?: << \d+)?(?=[,;])"


def backend_of(constant: str) -> str:
  """The backend whose tuning.h defines the constant as one number."""
  for backend, source in SOURCES.items():
    if re.search(pattern(constant), (ROOT / source).read_text()):
      return backend
  raise SystemExit(f"No tuning.h gives {constant} one number: see tools/cut_offs.py.")


def with_value(text: str, constant: str, value: int) -> str:
  (found,) = re.finditer(pattern(constant), text)
  return f"{text[:found.start()]}{found[1]}{value}{text[found.end():]}"


def build(folder: pathlib.Path, constant: str, backend: str, value: int) -> None:
  """Copies the tracked files to folder/source, and installs them in folder/package."""
  listed = subprocess.run(
      ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True)
  for name in listed.stdout.split("\0")[:-1]:
    if (ROOT / name).exists():
      target = folder / "source" / name
      target.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(ROOT / name, target, follow_symlinks=False)  # a link may lead to a folder
  tuning = folder / "source" / SOURCES[backend]
  tuning.write_text(with_value(tuning.read_text(), constant, value))
  cuda = ["-Ccmake.define.LINALG_CUDA=ON"] if backend == "cuda" else []
  subprocess.run(
      [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target",
       str(folder / "package"), *cuda, str(folder / "source")], check=True)


def measure(folder: pathlib.Path, arguments: Sequence[str]) -> Run:
  environment = os.environ | {"PYTHONPATH": str(folder / "package")}
  command = [sys.executable, "-c", "import linalg; print(linalg.__file__)"]
  done = subprocess.run(
      command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
  if not done.stdout.startswith(str(folder / "package")):
    raise SystemExit(f"An editable install hides the build: {done.stdout.strip()} is imported.")
  output = folder / "times.json"
  subprocess.run(
      [sys.executable, str(folder / "source" / "benchmarks" / "run.py"), "--alone", *arguments,
       "--output", str(output)], cwd=folder, env=environment, check=True)
  return json.loads(output.read_text())


def times_of(runs: Sequence[Run]) -> dict[tuple[str, int, int, str], float]:
  """The least time of each cell."""
  times: dict[tuple[str, int, int, str], float] = {}
  for run in runs:
    for cell in run["cells"]:
      if "seconds" in cell:
        key = cell["op"], cell["n"], cell["batch"], cell["dtype"]
        times[key] = min(cell["seconds"]["ours"], times.get(key, float("inf")))
  return times


def rows_of(
    first: Sequence[Run], second: Sequence[Run], compares: Sequence[str], command: str
) -> list[dict[str, Any]]:
  """The times of both runs, each of a build that forces one of the paths."""
  machine, date = first[-1]["machine"], first[-1]["date"][:10]
  name = machine["cpu"] if machine["platform"] == "cpu" else machine["device"]
  before, after = times_of(first), times_of(second)
  return [
      {"machine": f"{name}, {machine['cores']} cores", "date": date, "command": command,
       "operation": op, "compares": list(compares), "dtype": DTYPES[dtype], "n": n, "batch": batch,
       "ratio": round(before[op, n, batch, dtype] / after[op, n, batch, dtype], 3),
       "seconds": [before[op, n, batch, dtype], after[op, n, batch, dtype]]}
      for op, n, batch, dtype in before if (op, n, batch, dtype) in after]


def file_of(constant: str, backend: str, folder: pathlib.Path = FOLDER) -> pathlib.Path:
  """The file that names the constant, or a new one."""
  for path in sorted(folder.glob("*.json")):
    if constant in json.loads(path.read_text())["constants"]:
      return path
  name = re.sub(r"(?<!^)([A-Z])", r"_\1", constant.removeprefix("k")).lower()
  path = folder / f"{backend}_{name}.json"
  write(path, {"constants": [constant], "source": SOURCES[backend], "rows": []})
  return path


def write(path: pathlib.Path, content: dict[str, Any]) -> None:
  """Writes JSON with one line for each row."""
  head = "".join(f'  "{key}": {json.dumps(content[key])},\n' for key in ("constants", "source"))
  rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in content["rows"])
  path.write_text(f'{{\n{head}  "rows": [\n{rows}\n  ]\n}}\n')


def add_rows(path: pathlib.Path, rows: list[dict[str, Any]]) -> None:
  content = json.loads(path.read_text())
  write(path, content | {"rows": content["rows"] + rows})


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(description="Measures the crossover behind a constant.")
  add = parser.add_argument
  add("constant", help="of a tuning.h, such as kLaneCholesky")
  add("--ops", nargs="+", required=True, help="operations of benchmarks/run.py")
  add("--sizes", nargs="+", type=int, required=True, metavar="N", help="the n of the matrices")
  add("--batches", nargs="+", type=int, default=[1, 256], metavar="BATCH")
  add("--dtypes", nargs="+", choices=list(DTYPES), default=["f32", "f64"])
  add("--values", nargs=2, type=int, metavar=("LOW", "HIGH"),
      help="of the constant, where it is not compared with n (default: below and above all sizes)")
  add("--compares", nargs=2, default=["below", "above"], metavar=("BELOW", "ABOVE"),
      help="what works on matrices below the constant, and above it; for example: lanes tiles")
  add("--turns", type=int, default=2, help="how often each build is timed; the least time counts")
  args = parser.parse_args(arguments)
  args.values = args.values or [min(args.sizes) - 1, max(args.sizes) + 1]
  return args


def main() -> None:
  args = parse_arguments()
  backend = backend_of(args.constant)
  grid = [f"--platform={'gpu' if backend == 'cuda' else 'cpu'}"]
  for name in ("ops", "sizes", "batches", "dtypes"):
    grid += [f"--{name}", *map(str, getattr(args, name))]
  low, high = args.values
  with tempfile.TemporaryDirectory() as name:
    folders = {value: pathlib.Path(name).resolve() / str(value) for value in (low, high)}
    for value, folder in folders.items():
      build(folder, args.constant, backend, value)
    runs: dict[int, list[Run]] = {low: [], high: []}
    for _ in range(args.turns):
      for value, folder in folders.items():
        runs[value].append(measure(folder, grid))
  command = shlex.join(["python", "benchmarks/crossover.py", *sys.argv[1:]])
  rows = rows_of(runs[high], runs[low], args.compares, command)
  path = file_of(args.constant, backend)
  add_rows(path, rows)
  print(f"Added {len(rows)} rows to {path.relative_to(ROOT)}.")


if __name__ == "__main__":
  main()
