"""Measures every CPU number of README.md in one run, on one machine, and writes one file.

  pip install tinygp lineax diffrax   # here, or with rich and jax in an environment for --python
  python benchmarks/readme.py --output benchmarks/results/CPU-readme-DATE.json
  python tools/write_pages.py

takes some five minutes on a quiet machine. run.py times the operations and clients.py the programs.
A run that was interrupted goes on with what is in the folder of `--keep`.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import records

HERE = pathlib.Path(__file__).parent
SMALL = ("cholesky", "lu", "qr", "eigh", "solve", "inv", "det", "slogdet")
SMALL_SIZES = (2, 4, 8, 16, 32)
SMALL_BATCH = 4096
TABLE = (("grad eigh", 6, 4096), ("qr", 128, 16), ("solve", 1024, 1))
LONE = ("cholesky", "solve", "inv", "eigh", "det")
LONE_SIZES = (3, 10)
DTYPES = ("f32", "f64")
CLIENTS = ("lineax QR, 1024 of 12 by 6", "tinygp, 512 of 24", "diffrax Kvaerno5, 256 of 3")


def cells() -> list[dict[str, Any]]:
  shapes = [(op, n, SMALL_BATCH) for op, n in itertools.product(SMALL, SMALL_SIZES)]
  shapes += TABLE
  shapes += [(op, n, 1) for op, n in itertools.product(LONE, LONE_SIZES)]
  return [
      {"op": op, "n": n, "batch": batch, "dtype": dtype}
      for (op, n, batch), dtype in itertools.product(shapes, DTYPES)]


def call(command: list[str], limit: float) -> None:
  """Runs a benchmark, whose own output tells what it does."""
  # clients.py may run in an environment that has its libraries and not this package.
  environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
  done = subprocess.run(command, check=False, timeout=limit, env=environment)
  if done.returncode:
    sys.exit(f"{command[1]} ended with {done.returncode}.")


def main() -> None:
  parser = argparse.ArgumentParser(description="Measures the CPU numbers of README.md.")
  parser.add_argument("--rounds", type=int, default=9)
  parser.add_argument("--seconds", type=float, default=0.4, help="at most, for an operation")
  parser.add_argument("--client-seconds", type=float, default=5, help="at most, for a program")
  parser.add_argument("--python", default=sys.executable, metavar="FILE",
                      help="an interpreter that has tinygp, lineax, diffrax and rich")
  parser.add_argument("--limit", type=float, default=900, help="seconds for each benchmark")
  parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER",
                      help="what is measured there is not measured again")
  parser.add_argument("--output", type=pathlib.Path, required=True)
  args = parser.parse_args()
  with tempfile.TemporaryDirectory() as temporary:
    folder = args.keep or pathlib.Path(temporary)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cells.json").write_text(json.dumps(cells()))
    rounds = ["--rounds", str(args.rounds)]
    call([
        sys.executable, str(HERE / "run.py"), "--cells", str(folder / "cells.json"), *rounds,
        "--seconds-per-cell", str(args.seconds), "--call-limit", "1.5", "--memory", "140",
        "--no-ceilings", "--keep", str(folder / "run"), "--output", str(folder / "run.json")],
        args.limit)
    if not (folder / "clients.json").exists():
      call([
          args.python, str(HERE / "clients.py"), "--programs", *CLIENTS, *rounds,
          "--seconds", str(args.client_seconds), "--compilations", "1", "--limit",
          str(args.limit / len(CLIENTS)), "--output", str(folder / "clients.json")], args.limit)
    found = json.loads((folder / "run.json").read_text())
    clients = json.loads((folder / "clients.json").read_text())
  programs = {row["program"]: row["times"]["accelerated"] for row in clients["cells"]}
  missing = [name for name in CLIENTS if name not in programs]
  missing += [f"{cell['op']} n={cell['n']}: {cell['skipped']}"
              for cell in found["cells"] if "skipped" in cell]
  if missing:
    sys.exit(f"Not measured: {', '.join(missing)}.")
  header = records.describe_run("readme.py", ())
  header["versions"] |= clients["versions"]
  records.write(args.output, header | {"clients": programs}, found["cells"])
  print(f"Wrote {args.output}")


if __name__ == "__main__":
  main()
