"""Runs what needs a GPU in twelve minutes, the most valuable steps first.

  python tools/on_gpu.py modules --prepare       # where there is nvcc; takes minutes, needs no GPU
  python tools/on_gpu.py gpu-report --modules modules      # where there is a GPU
  python tools/on_gpu.py gpu-report --steps contest-f32 forward
  python tools/on_gpu.py gpu-report --dry-run    # the same steps with commands that do nothing

The named folder receives each step's output and results. After each step, report.md is rewritten
there. A step that fails or overruns does not stop later steps. All processes of an overrunning step
are ended. When the time is over, the remaining steps are skipped.

A second run with the same folder goes on: steps that are done stay, and benchmarks measure only the
cells that are missing. `--again` repeats the chosen steps.

`--prepare` builds the module three times: as it is, with the least crossovers, and with the
largest. Options after `--` go to CMake. The step `verdicts` says from the times of the last two
builds which constants to raise and which to lower. tools/cut_offs.py has the grids. Without
`--modules` the first step builds and installs the package, and no crossovers are compared.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
SECONDS = 12 * 60
BOUNDS = ("less", "more")
# Seconds for an interrupted process to write its results: benchmarks/jobs.py may need five.
PATIENCE = 10

# Shapes of a public contest of linear algebra on GPUs, batch by n.
CONTEST = ["20x32", "40x176", "40x352", "60x1024", "640x512"]
CONTEST_OPS = ["qr", "eigh", "cholesky", "lu", "solve", "inv"]
MAIN_OPS = ["cholesky", "lu", "qr", "eigh", "solve", "inv", "det"]
# One process measures while the others make operands and compile.
GRID = ["--platform", "gpu", "--jobs", "8", "--rounds", "7", "--slow-call", "0.4", "--no-ceilings"]
# Suites for the CPU that call handlers which tests/cuda/gpu does not call.
SUITES = [f"tests/{name}.py" for name in (
    "values/test_block_tridiagonal", "values/test_kalman", "values/test_kalman_derivatives",
    "values/test_kalman_operands", "values/test_cholesky_jittered",
    "derivatives/test_linear", "values/test_banded", "values/test_accelerated",
    "values/test_failures")]
# Sanitizers slow all kernels down, and see each path with one size.
SANITIZED = ["-k", "(float32 or complex128) and (residuals or structured)", "--orders", "3,33,129"]


class Step(NamedTuple):
  command: list[str]
  seconds: float
  environment: dict[str, str] = {}
  # A command whose output goes to the report.
  table: list[str] = []
  # Steps that must succeed, because otherwise this step would measure something else.
  needs: tuple[str, ...] = ()
  # The folder of the package, if it is not the checkout.
  package: pathlib.Path = ROOT
  # Files without which the step is left out.
  files: tuple[pathlib.Path, ...] = ()


def steps(
    output: pathlib.Path, workers: int, modules: pathlib.Path | None, changed: str
) -> dict[str, Step]:
  # Several processes share the GPU, so none may preallocate its memory.
  shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
  # Each buffer needs its own allocation, because memcheck sees a pool as one.
  alone = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}

  # Tests compile many programs, and XLA would time variants of each product in them.
  quick = shared | {"XLA_FLAGS": "--xla_gpu_autotune_level=0"}

  def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]

  def tests(seconds: float, *arguments: str, processes: int = workers) -> Step:
    return Step(
        python("-m", "pytest", "-q", "-rf", "--tb=short", "-p", "no:cacheprovider", "-n",
               str(processes), *arguments), seconds, quick)

  def on_gpu(seconds: float, *arguments: str, processes: int = workers) -> Step:
    return tests(
        seconds, "-m", "gpu", "tests/cuda/gpu", *arguments, processes=processes)

  def benchmark(name: str, seconds: float, *arguments: str, speedups: bool = True) -> Step:
    samples = str(output / f"{name}.json")
    return Step(
        python("benchmarks/run.py", *GRID, *arguments, "--keep", str(output / name), "--output",
               samples), seconds, {},
        python("benchmarks/report.py", samples, "--markdown") if speedups else [])

  def contest(dtype: str, seconds: float, *peers: str) -> Step:
    return benchmark(
        f"contest-{dtype}", seconds, "--ops", *CONTEST_OPS, "--shapes", *CONTEST, "--dtypes", dtype,
        "--seconds-per-cell", "0.1", "--memory", "4096", "--call-limit", "20", "--peers", *peers)

  def crossovers(bound: str) -> Step:
    """Measures with a build that has the least or the largest constants."""
    step = benchmark(
        f"crossovers-{bound}", 42, "--cells", str(output / "cells.json"), "--alone",
        "--seconds-per-cell", "0.02", "--memory", "2800", speedups=False)
    folder = variant(output, bound)
    return step._replace(
        needs=("install",), package=folder, files=(folder / "linalg",))

  def recursion(name: str, program: str, seconds: float, *arguments: str) -> Step:
    return Step(
        python(f"benchmarks/{program}", "--dtype", "float32", "--values-only", "--rounds", "5",
               "--seconds", "3", *arguments, "--output", str(output / f"{name}.json")), seconds,
        table=["cat", str(output / f"{name}.txt")])

  cupy = ["cupy"] * has("cupy") or ["scale"]
  record = ["tools/cut_offs.py", "judge", "--rows", str(output / "rows")]
  for bound in BOUNDS:
    record += [f"--{bound}", str(output / f"crossovers-{bound}.json")]
  install = python("tools/on_gpu.py", str(output), "--install", *(
      ["--modules", str(modules)] if modules else []))
  memcheck = on_gpu(35, *SANITIZED, processes=0)
  return {
      "machine": Step(["nvidia-smi"], 5),
      "install": Step(install, 20 if modules else 240),
      "configuration": Step(python("-c", "import linalg; linalg.show_config()"), 10),
      "smoke": on_gpu(
          42, "-k", "float32 and (residuals or rules or structured)", "--orders", "5,40"),
      "contest-f32": contest("f32", 66, *cupy),
      "contest-f64": contest("f64", 45, "scale"),
      "gates": on_gpu(25, "-k", "gates", processes=min(workers, 6)),
      "eigh": on_gpu(16, "-k", "test_eigh_by_panels and (float32 or complex128)"),
      "systems": benchmark(
          "systems", 24, "--ops", "cholesky", "cho_solve", "solve", "--shapes", "8192x48",
          "8192x96", "--dtypes", "f32", "--seconds-per-cell", "0.1", "--memory", "2800", "--peers",
          "scale"),
      "forward": benchmark(
          "forward", 65, "--ops", *MAIN_OPS, "--sizes", "4", "8", "16", "32", "64", "128",
          "--batches", "20000", "--dtypes", "f32", "f64", "--seconds-per-cell", "0.05", "--memory",
          "2800", "--peers", *cupy),
      **{f"crossovers-{bound}": crossovers(bound) for bound in BOUNDS},
      "verdicts": Step(
          python(*record), 10, table=["cat", str(output / "verdicts.txt")],
          files=tuple(output / f"crossovers-{bound}.json" for bound in BOUNDS)),
      "residuals": on_gpu(52, "-k", f"({changed}) and not more_elements and not gates"),
      "bits": on_gpu(32, "-k", "depend_on_the_batch and (float32 or complex128)"),
      "products": Step(
          python("benchmarks/product_bits.py", "--output", str(output / "products.json")), 15,
          table=["cat", str(output / "products.txt")]),
      "memcheck": memcheck._replace(
          command=["compute-sanitizer", "--tool", "memcheck", "--target-processes", "all",
                   *memcheck.command], environment=memcheck.environment | alone),
      "large": on_gpu(22, "-k", "more_elements", processes=0),
      # The scan takes seconds, so it is timed once.
      "block-tridiagonal": recursion(
          "block-tridiagonal", "block_tridiagonal.py", 27, "--rows", "8", "--shapes", "1x65536",
          "--slow-call", "1", "--long-shapes", "", "--limit", "0"),
      "kalman": recursion(
          "kalman", "kalman.py", 18, "--functions", "filter", "--shapes", "4096x500", "--limit",
          "0"),
      "gradients": benchmark(
          "gradients", 23, "--gradients", "--ops", *MAIN_OPS, "--sizes", "4", "16", "32",
          "--batches", "20000", "--dtypes", "f32", "--seconds-per-cell", "0.05"),
      "clients": Step(
          python("benchmarks/clients.py", "--jobs", "8", "--rounds", "5", "--seconds", "1",
                 "--limit", "25", "--compilations", "1", "--output", str(output / "clients.json")),
          18, shared, table=["cat", str(output / "clients.txt")]),
      "suites": tests(
          20, "--device", "gpu", "-m", "extended or not extended", *SUITES),
  }


def has(*modules: str) -> bool:
  return all(importlib.util.find_spec(module) is not None for module in modules)


# Builds


def variant(output: pathlib.Path, bound: str) -> pathlib.Path:
  return output / "builds" / bound


def tracked() -> list[str]:
  listed = subprocess.run(
      ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True)
  return [name for name in listed.stdout.split("\0")[:-1] if (ROOT / name).exists()]


def prepare(modules: pathlib.Path, options: list[str]) -> None:
  """Builds the modules, and those of the least and the largest crossovers."""
  for bound in ("", *BOUNDS):
    source, build = (modules.with_name(f"{modules.name}-{x}{bound}") for x in ("source", "build"))
    for name in tracked():
      target = source / name
      target.parent.mkdir(parents=True, exist_ok=True)
      # A file that is as before is not compiled again.
      if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
        shutil.copy(ROOT / name, target)
    if bound:
      vary(bound, source)
    subprocess.run(
        ["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DLINALG_CUDA=ON", *options], check=True)
    subprocess.run(["cmake", "--build", build, *["--target", "_cuda"] * bool(bound)], check=True)
    (modules / bound).mkdir(parents=True, exist_ok=True)
    for file in build.glob("_cuda*.so" if bound else "*.so"):
      shutil.copy(file, modules / bound)


def vary(bound: str, folder: pathlib.Path) -> None:
  subprocess.run([sys.executable, "tools/cut_offs.py", "vary", bound, folder], cwd=ROOT, check=True)


def install(output: pathlib.Path, modules: pathlib.Path | None) -> None:
  """Copies the modules into the package, or builds it. Makes a package of each variant."""
  subprocess.run(
      [sys.executable, "tools/cut_offs.py", "cells", output / "cells.json"], cwd=ROOT, check=True)
  if modules is None:
    offline = ["--no-build-isolation"] * has("scikit_build_core", "nanobind", "cmake", "ninja")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-v", "--no-deps",
         "-Ccmake.define.LINALG_CUDA=ON", *offline, "-e", "."], cwd=ROOT, check=True)
    return
  files = list(modules.glob("*.so"))
  if not files:
    sys.exit(f"There are no modules in {modules}.")
  for file in files:
    shutil.copy(file, ROOT / "linalg")
  for bound in BOUNDS:
    if others := list((modules / bound).glob("_cuda*.so")):
      folder = variant(output, bound)
      shutil.copytree(
          ROOT / "linalg", folder / "linalg", dirs_exist_ok=True,
          ignore=shutil.ignore_patterns("__pycache__", "_cuda*.so"))
      vary(bound, folder)
      for file in others:
        shutil.copy(file, folder / "linalg")


# Steps


def stand_ins(steps: dict[str, Step]) -> dict[str, Step]:
  """Replaces the steps' commands by ones that end at once."""
  return {
      name: step._replace(command=["echo", f"stand-in of {name}"], table=[], files=())
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
  paths = [str(step.package), *filter(None, [os.environ.get("PYTHONPATH")])]
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
      ending = f"ended after {seconds:.0f} seconds"
    except BaseException:
      end(process)
      raise
    end(process)
  return ending, time.monotonic() - start


def last_line(log: pathlib.Path) -> str:
  lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
  return re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]).replace("|", "\\|") if lines else ""


def text_of(command: list[str]) -> str:
  """Returns a command's output within 20 seconds, or why there is none."""
  try:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
  except (OSError, subprocess.TimeoutExpired) as error:
    return f"{type(error).__name__}: {' '.join(command)}"
  return done.stdout if done.returncode == 0 else (done.stderr or done.stdout)[-2000:]


class Row(NamedTuple):
  """How a step ended."""

  ending: str
  seconds: float = 0.0
  line: str = ""
  text: str = ""  # its table


class Report:
  """The steps of all runs into a folder. Both of its files are complete after every step."""

  def __init__(self, output: pathlib.Path, title: str, goes_on: bool):
    self.output, self.title, self.goes_on = output, title, goes_on
    self.state = output / "steps.json"
    known = json.loads(self.state.read_text()) if goes_on and self.state.exists() else {}
    self.rows = {name: Row(*row) for name, row in known.items()}

  def is_done(self, name: str) -> bool:
    return name in self.rows and self.rows[name].ending == "done"

  def add(self, name: str, row: Row) -> None:
    if row.ending.startswith("left out") and self.rows.get(name, row).seconds:
      return  # an earlier run has more to say
    self.rows[name] = row
    if self.goes_on:
      self.state.write_text(json.dumps(self.rows))
    lines = [f"# {self.title}", "", "| step | end | seconds | last line |", "|---|---|---:|---|"]
    lines += [f"| {name} | {x.ending} | {x.seconds:.0f} | {x.line} |"
              for name, x in self.rows.items()]
    for name, x in self.rows.items():
      lines += ["", f"## {name}", "", x.text.strip()] if x.text else []
    (self.output / "report.md").write_text("\n".join(lines) + "\n")


def why_not(step: Step, report: Report, left: float) -> str:
  """Why a step is left out, or nothing."""
  missing = [x for x in step.needs if x in report.rows and not report.is_done(x)]
  missing += [str(x.relative_to(report.output)) for x in step.files if not x.exists()]
  if left <= 0:
    return "the time is over"
  return f"without {', '.join(missing)}" if missing else ""


def main() -> None:
  parser = argparse.ArgumentParser(description="Runs what needs a GPU in twelve minutes.")
  names = list(steps(pathlib.Path(), 1, None, ""))
  parser.add_argument("output", type=pathlib.Path, help="a folder for what is found, or is built")
  parser.add_argument("--steps", nargs="+", choices=names, default=names, metavar="STEP",
                      help=", ".join(names))
  parser.add_argument("--modules", type=pathlib.Path, metavar="FOLDER",
                      help="compiled modules that --prepare has built")
  parser.add_argument("--prepare", action="store_true", help="build modules, and run no step")
  parser.add_argument("--changed", nargs="+", default=["residuals"], metavar="WORD",
                      help="words in the names of the tests of the step `residuals`, as qr "
                      "(default: the tests of residuals)")
  parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1),
                      help="processes of the tests (default: %(default)s)")
  parser.add_argument("--seconds", type=float, default=SECONDS,
                      help="for all of it (default: %(default)s)")
  parser.add_argument("--again", action="store_true", help="repeat steps that are done")
  parser.add_argument("--dry-run", action="store_true", help="commands that do nothing")
  parser.add_argument("--install", action="store_true", help=argparse.SUPPRESS)
  parser.add_argument("options", nargs="*", metavar="-- OPTION", help="of CMake, for --prepare")
  args = parser.parse_args()
  output = args.output.resolve()
  output.mkdir(parents=True, exist_ok=True)
  if args.prepare:
    prepare(output, args.options)
    return
  if args.install:
    install(output, args.modules)
    return
  # A process that a shell starts in the background ignores SIGINT, and so would all steps.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  start = time.monotonic()
  described = text_of(["git", "describe", "--always", "--dirty", "--exclude=*"])
  commit = re.findall(r"^[0-9a-f]{7,40}(?:-dirty)?$", described, re.MULTILINE)
  now = datetime.datetime.now(datetime.UTC)
  report = Report(
      output, " ".join(["linalg", *commit, f"on a GPU, {now:%d %B %Y}"]), goes_on=not args.dry_run)
  modules = args.modules.resolve() if args.modules else None
  planned = steps(output, args.workers, modules, " or ".join(args.changed))
  if args.dry_run:
    planned = stand_ins(planned)
  chosen = [name for name in planned if name in args.steps]
  for name in chosen:
    step = planned[name]
    if report.is_done(name) and not args.again:
      continue
    left = args.seconds - (time.monotonic() - start)
    if reason := why_not(step, report, left):
      report.add(name, Row(f"left out: {reason}"))
      continue
    seconds, log = min(step.seconds, left), output / f"{name}.txt"
    print(f"{name}: at most {seconds:.0f} seconds", flush=True)
    ending, taken = run(step, log, seconds)
    report.add(name, Row(ending, taken, last_line(log) if log.exists() else ""))
    if step.table:
      report.add(name, report.rows[name]._replace(text=text_of(step.table)))
    print(f"{name}: {ending}, {taken:.0f} seconds, {report.rows[name].line}", flush=True)
  sys.exit(not all(report.is_done(name) for name in chosen))


if __name__ == "__main__":
  main()
