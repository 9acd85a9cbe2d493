"""Everything that needs a GPU, in order: the tests, the sanitizers, the benchmark.

  python tools/on_gpu.py gpu-report           # half an hour on an H100
  python tools/on_gpu.py gpu-report --steps tests benchmark

Each step's output and results lie in the folder that is named, with a summary.md to read first. A
step that fails or takes too long does not keep the next one from running.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
TESTS = ["-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "tests/cuda/test_gpu.py"]
# Of two dtypes, sizes on both sides of the first cut-offs: the sanitizers slow all kernels down.
SANITIZED = "(float32 or complex128) and (residuals or info) and not large"
GRID = ["--platform", "gpu", "--seconds-per-cell", "0.1", "--rounds", "7"]
MAIN_OPS = ["cholesky", "lu", "qr", "eigh", "solve", "inv", "det"]


class Step(NamedTuple):
  command: list[str]
  minutes: int
  environment: dict[str, str]


def steps(output: pathlib.Path, workers: int) -> dict[str, Step]:
  # Several processes share the GPU: none may take its memory for itself.
  shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
  # Each buffer a block of its own, or memcheck sees one for all.
  sanitized = shared | {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}

  def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]

  def sanitizer(tool: str) -> Step:
    tests = python(*TESTS, "-n", "0", "-k", SANITIZED)
    return Step(["compute-sanitizer", "--tool", tool, "--target-processes", "all", *tests], 15,
                sanitized)

  def benchmark(name: str, *arguments: str) -> Step:
    samples = str(output / f"{name}.json")
    return Step(python("benchmarks/run.py", *GRID, *arguments, "--output", samples), 10, {})

  return {
      "machine": Step(["nvidia-smi"], 1, {}),
      "configuration": Step(python("-c", "import linalg; linalg.show_config()"), 1, {}),
      "tests": Step(
          python(*TESTS, "-n", str(workers), f"--junitxml={output / 'tests.xml'}"), 15, shared),
      "benchmark": benchmark(
          "benchmark", "--ops", *MAIN_OPS, "--sizes", "4", "8", "16", "32", "64", "128",
          "--batches", "1000", "20000", "--memory", "2800"),
      "gradients": benchmark(
          "gradients", "--gradients", "--ops", *MAIN_OPS, "--sizes", "4", "16", "32", "--batches",
          "20000", "--dtypes", "f32"),
      "memcheck": sanitizer("memcheck"),
      "racecheck": sanitizer("racecheck"),
  }


def run(step: Step, log: pathlib.Path) -> tuple[str, float]:
  """How it ended, and the seconds that it took."""
  start = time.monotonic()
  paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
  environment = os.environ | step.environment | {"PYTHONPATH": os.pathsep.join(paths)}
  with log.open("w") as file:
    try:
      status = subprocess.run(
          step.command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT,
          timeout=60 * step.minutes, check=False).returncode
      ending = "done" if status == 0 else f"exit status {status}"
    except subprocess.TimeoutExpired:
      ending = f"ended after {step.minutes} minutes"
    except FileNotFoundError:
      ending = f"no {step.command[0]} here"
  return ending, time.monotonic() - start


def last_line(log: pathlib.Path) -> str:
  lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
  return lines[-1] if lines else ""


def main() -> None:
  parser = argparse.ArgumentParser(description="Runs everything that needs a GPU.")
  names = list(steps(pathlib.Path(), 1))
  parser.add_argument("output", type=pathlib.Path, help="a folder for what is found")
  parser.add_argument("--steps", nargs="+", choices=names, default=names, metavar="STEP",
                      help=", ".join(names))
  parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1),
                      help="processes of the tests (default: %(default)s)")
  args = parser.parse_args()
  output = args.output.resolve()
  output.mkdir(parents=True, exist_ok=True)
  rows = ["| step | end | seconds | last line |", "|---|---|---|---|"]
  failed = False
  for name, step in steps(output, args.workers).items():
    if name not in args.steps:
      continue
    log = output / f"{name}.txt"
    print(f"{name}: at most {step.minutes} minutes", flush=True)
    ending, seconds = run(step, log)
    failed |= ending != "done"
    rows.append(f"| {name} | {ending} | {seconds:.0f} | {last_line(log)} |")
    print(rows[-1], flush=True)
    (output / "summary.md").write_text("\n".join(rows) + "\n")
  sys.exit(failed)


if __name__ == "__main__":
  main()
