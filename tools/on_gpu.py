"""Everything that needs a GPU, in order, within an hour.

  python tools/on_gpu.py gpu-report              # build, tests, sanitizers, benchmarks, cut-offs
  python tools/on_gpu.py gpu-report --steps tests benchmark
  python tools/on_gpu.py gpu-report --dry-run    # the same, of commands that do nothing

Each step's output and results lie in the folder that is named. report.md there is written anew
after each step, to be read first and committed with the samples. A step that fails, or takes longer
than its time, does not keep the next one from running; its processes are ended, all of them, and
those that benchmark are asked to write first what they have. When the hour is over the steps that
are left are left out, and the report says so.
"""

import argparse
import datetime
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
TESTS = ["-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "tests/cuda/test_gpu.py"]
# Of two dtypes, sizes on both sides of the first cut-offs: the sanitizers slow all kernels down.
SANITIZED = "(float32 or complex128) and (residuals or info) and not large"
GRID = ["--platform", "gpu", "--rounds", "7"]
MAIN_OPS = ["cholesky", "lu", "qr", "eigh", "solve", "inv", "det"]
# Around where paths change for one matrix size or another: tools/cut_offs.py has them.
TUNED_OPS = ["cholesky", "lu", "inv", "triangular_solve", "qr", "svd", "eigh", "matmul"]
TUNED_GRADIENTS = ["cholesky", "eigh", "qr", "svd", "det", "slogdet"]
TUNED_SIZES = list(map(str, [
    3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 28, 32, 33, 36, 48, 60, 64, 65, 68,
    112, 128, 129, 136]))
TUNED_GRADIENT_SIZES = list(map(str, [*range(6, 19), 28, 32, 33, 36]))
TUNED_BATCH = "20000"
PATIENCE = 20  # seconds that what is interrupted has to write what it has


class Step(NamedTuple):
  command: list[str]
  minutes: float
  environment: dict[str, str] = {}
  # What there is to see of it in the report, beside its last line.
  table: list[str] = []


def steps(output: pathlib.Path, workers: int) -> dict[str, Step]:
  # Several processes share the GPU: none may take its memory for itself.
  shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
  # Each buffer a block of its own, or memcheck sees one for all.
  sanitized = shared | {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}

  def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]

  def sanitizer(tool: str, minutes: float) -> Step:
    tests = python(*TESTS, "-n", "0", "-k", SANITIZED)
    return Step(["compute-sanitizer", "--tool", tool, "--target-processes", "all", *tests], minutes,
                sanitized)

  def samples(name: str) -> str:
    return str(output / f"{name}.json")

  def benchmark(name: str, minutes: float, *arguments: str) -> Step:
    table = python("benchmarks/report.py", samples(name), "--markdown")
    return Step(
        python("benchmarks/run.py", *GRID, *arguments, "--output", samples(name)), minutes, {},
        table)

  cut_offs = python("tools/cut_offs.py", samples("tuning"), samples("tuning-gradients"))
  return {
      "machine": Step(["nvidia-smi"], 0.5),
      "build": Step(
          python("-m", "pip", "install", "-v", "--no-deps", "-Ccmake.define.LINALG_CUDA=ON",
                 # Where the tools are here: such a machine may reach no index.
                 *["--no-build-isolation"] * has("scikit_build_core", "nanobind", "cmake", "ninja"),
                 "-e", "."), 8),
      "configuration": Step(python("-c", "import linalg; linalg.show_config()"), 1),
      "tests": Step(
          python(*TESTS, "-n", str(workers), f"--junitxml={output / 'tests.xml'}"), 11, shared),
      "benchmark": benchmark(
          "benchmark", 9, "--seconds-per-cell", "0.05", "--ops", *MAIN_OPS, "--sizes", "4", "8",
          "16", "32", "64", "128", "--batches", "1000", "20000", "--memory", "2800", "--peers",
          *["cupy"] * has("cupy"), "scale"),
      "gradients": benchmark(
          "gradients", 4, "--seconds-per-cell", "0.05", "--gradients", "--ops", *MAIN_OPS,
          "--sizes", "4", "16", "32", "--batches", "20000", "--dtypes", "f32"),
      "tuning": benchmark(
          "tuning", 8, "--seconds-per-cell", "0.02", "--ops", *TUNED_OPS, "--sizes", *TUNED_SIZES,
          "--batches", TUNED_BATCH, "--memory", "2800", "--dtypes", "f32", "f64"),
      "tuning-gradients": benchmark(
          "tuning-gradients", 3.5, "--seconds-per-cell", "0.02", "--gradients", "--ops",
          *TUNED_GRADIENTS, "--sizes", *TUNED_GRADIENT_SIZES, "--batches", TUNED_BATCH, "--memory",
          "2800", "--dtypes", "f32", "f64"),
      "cut-offs": Step(cut_offs, 1, {}, cut_offs),
      "memcheck": sanitizer("memcheck", 7),
      "racecheck": sanitizer("racecheck", 5),
  }


def has(*modules: str) -> bool:
  return all(importlib.util.find_spec(module) is not None for module in modules)


def stand_ins(steps: dict[str, Step]) -> dict[str, Step]:
  """Commands that end at once, in place of the steps'."""
  return {
      name: step._replace(command=[sys.executable, "-c", f"print('stand-in of {name}')"], table=[])
      for name, step in steps.items()}


def end(process: "subprocess.Popen[bytes]") -> None:
  """Ends a step with all that it has started: what went on would hold the GPU in the next ones."""
  for number, patience in ((signal.SIGINT, PATIENCE), (signal.SIGKILL, None)):
    try:
      os.killpg(process.pid, number)
    except ProcessLookupError:
      break
    try:
      process.wait(patience)
    except subprocess.TimeoutExpired:
      continue
  process.wait()


def run(step: Step, log: pathlib.Path, seconds: float) -> tuple[str, float]:
  """How it ended, and the seconds that it took."""
  start = time.monotonic()
  paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
  environment = os.environ | step.environment | {"PYTHONPATH": os.pathsep.join(paths)}
  with log.open("wb") as file:
    try:
      process = subprocess.Popen(
          step.command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT,
          stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
      return f"not started: {error.strerror}: {step.command[0]}", 0.0
    try:
      status = process.wait(seconds)
      ending = "done" if status == 0 else f"exit status {status}"
    except subprocess.TimeoutExpired:
      ending = f"ended after {seconds / 60:.1f} minutes"
    except BaseException:
      end(process)
      raise
    end(process)
  return ending, time.monotonic() - start


def last_line(log: pathlib.Path) -> str:
  lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
  return re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]).replace("|", "\\|") if lines else ""


def text_of(command: list[str]) -> str:
  """What a command prints, in a minute at most, or why there is nothing."""
  try:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
  except (OSError, subprocess.TimeoutExpired) as error:
    return f"{type(error).__name__}: {' '.join(command)}"
  return done.stdout if done.returncode == 0 else (done.stderr or done.stdout)[-2000:]


class Report:
  """report.md, complete whenever it is written."""

  def __init__(self, path: pathlib.Path, title: str):
    self.path = path
    self.head = [f"# {title}", "", "| step | end | seconds | last line |", "|---|---|---:|---|"]
    self.sections: list[str] = []

  def add(self, name: str, ending: str, seconds: float, line: str) -> None:
    self.head.append(f"| {name} | {ending} | {seconds:.0f} | {line} |")
    self.write()

  def show(self, name: str, text: str) -> None:
    self.sections += ["", f"## {name}", "", text.strip()]
    self.write()

  def write(self) -> None:
    self.path.write_text("\n".join(self.head + self.sections) + "\n")


def main() -> None:
  parser = argparse.ArgumentParser(description="Runs everything that needs a GPU.")
  names = list(steps(pathlib.Path(), 1))
  parser.add_argument("output", type=pathlib.Path, help="a folder for what is found")
  parser.add_argument("--steps", nargs="+", choices=names, default=names, metavar="STEP",
                      help=", ".join(names))
  parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1),
                      help="processes of the tests (default: %(default)s)")
  parser.add_argument("--minutes", type=float, default=60,
                      help="for all of it (default: %(default)s)")
  parser.add_argument("--dry-run", action="store_true", help="commands that do nothing")
  args = parser.parse_args()
  output = args.output.resolve()
  output.mkdir(parents=True, exist_ok=True)
  # Begun by a shell in the background it would be ignored, and by all steps.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  start = time.monotonic()
  commit = text_of(["git", "describe", "--always", "--dirty"]).strip()
  now = datetime.datetime.now(datetime.UTC)
  report = Report(output / "report.md", f"linalg {commit} on a GPU, {now:%d %B %Y}")
  planned = steps(output, args.workers)
  failed = False
  for name, step in (stand_ins(planned) if args.dry_run else planned).items():
    if name not in args.steps:
      continue
    left = 60 * args.minutes - (time.monotonic() - start)
    if left <= 0:
      failed = True
      report.add(name, "left out: the time is over", 0, "")
      continue
    log = output / f"{name}.txt"
    seconds = min(60 * step.minutes, left)
    print(f"{name}: at most {seconds / 60:.1f} minutes", flush=True)
    ending, taken = run(step, log, seconds)
    failed |= ending != "done"
    report.add(name, ending, taken, last_line(log))
    print(report.head[-1], flush=True)
    if step.table:
      report.show(name, text_of(step.table))
  sys.exit(failed)


if __name__ == "__main__":
  main()
