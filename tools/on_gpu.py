"""Runs everything that needs a GPU, in order, within an hour.

  python tools/on_gpu.py gpu-report              # build, tests, sanitizers, benchmarks, cut-offs
  python tools/on_gpu.py gpu-report --steps tests benchmark
  python tools/on_gpu.py gpu-report --dry-run    # the same steps with commands that do nothing

The named folder receives each step's output and results. After each step, report.md is rewritten
there. Read it first, and commit it with the samples. A step that fails or overruns does not stop
later steps. All processes of an overrunning step are ended. Benchmarks are first asked to write
their results. When the hour is over, the remaining steps are skipped, and the report lists them.

The last steps build the module twice, with the least and with the largest possible crossovers, and
measure both. They write the crossovers that the times decide to kernels/cuda/tuning.h and
linalg/_core/tuning.py, and build again. If these steps do not finish, both files stay unchanged.
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
# Suites for the CPU that call handlers which the file above does not call.
SUITES = [f"tests/{name}.py" for name in (
    "derivatives/test_linear", "values/test_banded", "values/test_accelerated",
    "values/test_failures")]
# Two dtypes, and sizes on both sides of the first cut-offs, because sanitizers slow all kernels
# down.
SANITIZED = "(float32 or complex128) and (residuals or info) and not large"
GRID = ["--platform", "gpu", "--rounds", "7"]
# The number of processes. One measures while the others prepare. Their work on the GPU may spoil a
# sample, and each holds a cell's operands several times. Steps that decide crossovers use a single
# process.
JOBS = ["--jobs", "3"]
MAIN_OPS = ["cholesky", "lu", "qr", "eigh", "solve", "inv", "det"]
# Operations that have cut-offs: tools/cut_offs.py has their grids.
TUNED_OPS = ["cholesky", "lu", "inv", "triangular_solve", "qr", "svd", "eigh", "matmul"]
TUNED_GRADIENTS = ["cholesky", "eigh", "qr", "svd", "det", "slogdet"]
TUNED_SIZES = list(map(str, [
    *range(3, 19), 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160]))
TUNED_GRADIENT_SIZES = list(map(str, [*range(5, 19), 20, 24, 28, 32]))
TUNED_BATCH = "20000"
TUNING = [
    "--alone", "--seconds-per-cell", "0.02", "--batches", TUNED_BATCH, "--memory", "2800",
    "--dtypes", "f32", "f64"]
# The step that sets the crossovers, and the folder for the original files that it and earlier steps
# change.
DECIDED, KEPT = "cut-offs", "before-tuning"
PATIENCE = 20  # seconds for an interrupted process to write its results


class Step(NamedTuple):
  command: list[str]
  minutes: float
  environment: dict[str, str] = {}
  # Output for the report, besides the last line.
  table: list[str] = []
  # Steps that must succeed, because otherwise this step would measure or decide something else.
  needs: tuple[str, ...] = ()


def steps(output: pathlib.Path, workers: int) -> dict[str, Step]:
  # Several processes share the GPU, so none may preallocate its memory.
  shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
  # Each buffer needs its own allocation, because memcheck sees a pool as one.
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

  def cut_offs(*arguments: str) -> list[str]:
    return python("tools/cut_offs.py", *arguments, "--kept", str(output / KEPT))

  def tuned(bound: str) -> dict[str, Step]:
    """Returns the steps with the least or the largest cut-offs."""
    changed, built = f"cut-offs-{bound}", f"build-{bound}"
    measured = {
        f"tuning-{bound}": benchmark(
            f"tuning-{bound}", 4.5, *TUNING, "--ops", *TUNED_OPS, "--sizes", *TUNED_SIZES),
        f"tuning-gradients-{bound}": benchmark(
            f"tuning-gradients-{bound}", 2, *TUNING, "--gradients", "--ops", *TUNED_GRADIENTS,
            "--sizes", *TUNED_GRADIENT_SIZES)}
    return {
        changed: Step(cut_offs("vary", bound), 0.25), built: Step(build, 3.5, needs=(changed,)),
        # These builds have no speed-ups to show.
        **{name: step._replace(needs=(built,), table=[]) for name, step in measured.items()}}

  def tuning_samples(bound: str) -> list[str]:
    return [samples(f"tuning-gradients-{bound}"), samples(f"tuning-{bound}")]

  build = python(
      "-m", "pip", "install", "-v", "--no-deps", "-Ccmake.define.LINALG_CUDA=ON",
      # Use installed tools, because such a machine may have no index. The build folder is then kept
      # too. Other cut-offs recompile only the CUDA module.
      *["--no-build-isolation", f"-Cbuild-dir={output / 'build'}"] * has(
          "scikit_build_core", "nanobind", "cmake", "ninja"),
      "-e", ".")
  return {
      "machine": Step(["nvidia-smi"], 0.5),
      "build": Step(build, 6),
      "configuration": Step(python("-c", "import linalg; linalg.show_config()"), 0.5),
      "tests": Step(
          python(*TESTS, "-n", str(workers), f"--junitxml={output / 'tests.xml'}"), 12.5, shared),
      "suites": Step(
          python("-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", "gpu", "-m",
                 "extended or not extended", "-n", str(workers), *SUITES), 3, shared),
      "benchmark": benchmark(
          "benchmark", 3, *JOBS, "--seconds-per-cell", "0.05", "--ops", *MAIN_OPS, "--sizes", "4",
          "8", "16", "32", "64", "128", "--batches", "1000", "20000", "--memory", "2800", "--peers",
          *["cupy"] * has("cupy"), "scale"),
      "gradients": benchmark(
          "gradients", 2, *JOBS, "--seconds-per-cell", "0.05", "--gradients", "--ops", *MAIN_OPS,
          "--sizes", "4", "16", "32", "--batches", "20000", "--dtypes", "f32"),
      "memcheck": sanitizer("memcheck", 3),
      "racecheck": sanitizer("racecheck", 2.75),
      **tuned("less"),
      **tuned("more"),
      DECIDED: Step(
          cut_offs("decide", "--less", *tuning_samples("less"), "--more", *tuning_samples("more")),
          0.25, {}, ["cat", str(output / f"{DECIDED}.txt")], ("build-less", "build-more")),
      "build-decided": Step(build, 3.5),
  }


def has(*modules: str) -> bool:
  return all(importlib.util.find_spec(module) is not None for module in modules)


def restored(output: pathlib.Path) -> str:
  """Restores the cut-offs from before their tuning, and returns a message for the report."""
  said = ""
  if list((output / KEPT).glob("*")):
    said = text_of([sys.executable, "tools/cut_offs.py", "restore", "--kept", str(output / KEPT)])
  return said or "as they were"


def stand_ins(steps: dict[str, Step]) -> dict[str, Step]:
  """Replaces the steps' commands by ones that end at once."""
  return {
      name: step._replace(command=["echo", f"stand-in of {name}"], table=[])
      for name, step in steps.items()}


def end(process: "subprocess.Popen[bytes]") -> None:
  """Ends a step and all processes it started, because they would use the GPU in the next steps."""
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
  """Returns how the step ended, and the seconds that it took."""
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
  """Returns a command's output within a minute, or why there is none."""
  try:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
  except (OSError, subprocess.TimeoutExpired) as error:
    return f"{type(error).__name__}: {' '.join(command)}"
  return done.stdout if done.returncode == 0 else (done.stderr or done.stdout)[-2000:]


class Report:
  """Writes report.md, which is complete after every write."""

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
  parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1),
                      help="processes of the tests (default: %(default)s)")
  parser.add_argument("--minutes", type=float, default=60,
                      help="for all of it (default: %(default)s)")
  parser.add_argument("--dry-run", action="store_true", help="commands that do nothing")
  args = parser.parse_args()
  output = args.output.resolve()
  output.mkdir(parents=True, exist_ok=True)
  # A process that a shell starts in the background ignores SIGINT, and so would all steps.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  start = time.monotonic()
  commit = text_of(["git", "describe", "--always", "--dirty"]).strip()
  now = datetime.datetime.now(datetime.UTC)
  report = Report(output / "report.md", f"linalg {commit} on a GPU, {now:%d %B %Y}")
  planned = steps(output, args.workers)
  if args.dry_run:
    planned = stand_ins(planned)
  endings: dict[str, str] = {}
  try:
    for name in [name for name in planned if name in args.steps]:
      step = planned[name]
      left = 60 * args.minutes - (time.monotonic() - start)
      missing = [x for x in step.needs if endings.get(x, "done") != "done"]
      log = output / f"{name}.txt"
      taken, line = 0.0, ""
      if left <= 0 or missing:
        endings[name] = "left out: " + (
            "the time is over" if left <= 0 else f"without {', '.join(missing)}")
      else:
        seconds = min(60 * step.minutes, left)
        print(f"{name}: at most {seconds / 60:.1f} minutes", flush=True)
        endings[name], taken = run(step, log, seconds)
        line = last_line(log)
      report.add(name, endings[name], taken, line)
      print(report.head[-1], flush=True)
      if step.table and log.exists():
        report.show(name, text_of(step.table))
      if name == DECIDED and endings[name] != "done":
        report.show(name, restored(output))  # before later steps build with them
  finally:
    # Results of an earlier run do not apply if this run changed no cut-offs.
    if DECIDED not in endings and any(x.startswith(f"{DECIDED}-") for x in endings):
      report.show("Cut-offs of the sources", restored(output))
  sys.exit(any(ending != "done" for ending in endings.values()))


if __name__ == "__main__":
  main()
