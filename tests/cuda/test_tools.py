"""tools/on_gpu.py and tools/cut_offs.py, which run unattended on a GPU, tested without one."""

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

import numpy as np
import pytest

from linalg._catalogue import TABLE
from linalg._core import tuning

ROOT = pathlib.Path(__file__).parents[2]


def _load(name):
  spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


on_gpu = _load("on_gpu")
cut_offs = _load("cut_offs")


_ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def _on_gpu(*arguments):
  return subprocess.run(
      [sys.executable, str(ROOT / "tools/on_gpu.py"), *map(str, arguments)], capture_output=True,
      text=True, timeout=120, check=False)


def _steps(output, modules=None):
  return on_gpu.steps(pathlib.Path(output), 1, modules, "residuals")


def _rows(folder):
  lines = (folder / "report.md").read_text().splitlines()
  return {row[2:].split(" | ")[0]: row.split(" | ")[1] for row in lines[4:] if row.startswith("| ")}


def test_dry_run(tmp_path):
  """All steps run in order, each with a log, and one report covers them."""
  done = _on_gpu(tmp_path, "--dry-run")
  assert done.returncode == 0, done.stdout + done.stderr
  names = list(_steps(tmp_path))
  assert list(_rows(tmp_path)) == names and set(_rows(tmp_path).values()) == {"done"}
  for name in names:
    assert (tmp_path / f"{name}.txt").read_text().strip() == f"stand-in of {name}"
  # A run that measures does not take the stand-ins for what is done.
  assert not (tmp_path / "steps.json").exists()


def test_chosen_steps_and_no_time(tmp_path):
  done = _on_gpu(tmp_path, "--dry-run", "--steps", "residuals", "memcheck", "--seconds", 0)
  assert done.returncode == 1
  assert _rows(tmp_path) == dict.fromkeys(
      ("residuals", "memcheck"), "left out: the time is over")


def test_twelve_minutes():
  """All steps fit, with prepared modules and two seconds for the table of each step."""
  seconds = [step.seconds + 2 for step in _steps(".", pathlib.Path("modules")).values()]
  assert sum(seconds) <= on_gpu.SECONDS == 720


def _main(monkeypatch, steps, *arguments):
  monkeypatch.setattr(on_gpu, "steps", lambda *arguments: steps)
  monkeypatch.setattr(sys, "argv", ["on_gpu.py", *map(str, arguments)])
  monkeypatch.setattr(signal, "signal", lambda *arguments: None)
  with pytest.raises(SystemExit) as exit:
    on_gpu.main()
  return exit.value.code


def test_a_run_that_goes_on(tmp_path, monkeypatch):
  """A second run repeats what failed and what lacked time or files, and keeps the rest."""
  says = lambda text, code=0: on_gpu.Step(
      [sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"], 60)
  needed = tmp_path / "output" / "file"
  first = {
      "good": says("one")._replace(table=["echo", "a table"]), "bad": says("two", 3),
      "after": says("three")._replace(needs=("bad",)), "later": says("four")._replace(
          files=(needed,))}
  output = tmp_path / "output"
  assert _main(monkeypatch, first, output)
  assert _rows(output) == {
      "good": "done", "bad": "exit status 3", "after": "left out: without bad",
      "later": "left out: without file"}
  needed.touch()
  again = {name: says("again")._replace(needs=step.needs, files=step.files)
           for name, step in first.items()}
  assert not _main(monkeypatch, again, output)
  assert set(_rows(output).values()) == {"done"}
  report = (output / "report.md").read_text()
  assert re.search(r"^\| good \| done \| \d \| one \|$", report, re.MULTILINE)
  assert "\na table\n" in report
  assert report.count("| again |") == 3
  assert not _main(monkeypatch, again, output, "--again", "--steps", "good")
  assert (output / "report.md").read_text().count("| again |") == 4


CMAKE = """#!/bin/sh
# Makes a build folder with the constants of its source, and modules in it.
if [ "$1" = -S ]; then
  mkdir -p "$4" && cp "$2/kernels/cuda/tuning.h" "$4" && echo "$@" >> "$4/calls"
else
  cp "$2/tuning.h" "$2/_cuda.cpython-1.so" && echo "$@" > "$2/_cpu_v2.cpython-1.so"
fi
"""


def test_modules_with_other_constants(tmp_path, monkeypatch):
  """`--prepare` builds three modules, and `--install` makes a package of each."""
  root, modules, output = (tmp_path / name for name in ("root", "modules", "output"))
  files = ["linalg/_core/tuning.py", "kernels/cuda/tuning.h", "tools/cut_offs.py",
           "benchmarks/crossover.py"]
  for file in files:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text((ROOT / file).read_text())
  cmake = tmp_path / "bin" / "cmake"
  cmake.parent.mkdir()
  cmake.write_text(CMAKE)
  cmake.chmod(0o755)
  monkeypatch.setenv("PATH", f"{cmake.parent}:{os.environ['PATH']}")
  monkeypatch.setattr(on_gpu, "ROOT", root)
  monkeypatch.setattr(on_gpu, "tracked", lambda: files)
  output.mkdir()
  on_gpu.prepare(modules, ["-DSOME=1"])
  assert (tmp_path / "modules-buildless" / "calls").read_text().strip().endswith(
      "-DLINALG_CUDA=ON -DSOME=1")
  on_gpu.install(output, modules)
  header = lambda folder: (folder / "_cuda.cpython-1.so").read_text()
  assert header(root / "linalg") == FILES[cut_offs.CUDA]
  assert (root / "linalg/_cpu_v2.cpython-1.so").exists()
  for bound in on_gpu.BOUNDS:
    package = on_gpu.variant(output, bound) / "linalg"
    expected = cut_offs.varied(FILES, bound)
    assert header(package) == expected[cut_offs.CUDA] != FILES[cut_offs.CUDA]
    assert (package / "_core/tuning.py").read_text() == expected[cut_offs.PYTHON]
    assert (package / "_cpu_v2.cpython-1.so").exists()
  assert (root / "linalg/_core/tuning.py").read_text() == FILES[cut_offs.PYTHON]
  assert json.loads((output / "cells.json").read_text())
  for path in modules.glob("*.so"):
    path.unlink()
  with pytest.raises(SystemExit, match="no modules in"):
    on_gpu.install(output, modules)


def test_a_step_that_fails_and_one_that_is_not_there(tmp_path):
  log = tmp_path / "log"
  fails = on_gpu.Step([sys.executable, "-c", "import sys; print('so far'); sys.exit(3)"], 1)
  assert on_gpu.run(fails, log, 60)[0] == "exit status 3"
  assert on_gpu.last_line(log) == "so far"
  ending, _ = on_gpu.run(on_gpu.Step(["no-such-command"], 1), log, 60)
  assert ending == "not started: No such file or directory: no-such-command"


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
POLITE = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has it ignored
try:
  time.sleep(600)
except KeyboardInterrupt:
  print("what was measured", flush=True)
"""


def _runs(pid):
  try:
    state = pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0]
  except FileNotFoundError:
    return False
  return state != "Z"


@pytest.mark.extended
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("code", [STUBBORN, POLITE], ids=["stubborn", "polite"])
def test_a_step_that_takes_too_long(code, tmp_path, monkeypatch):
  """A step is first interrupted. Then it and its children are killed, because they would use the
  GPU."""
  monkeypatch.setattr(on_gpu, "PATIENCE", 1 if code is STUBBORN else 30)
  log = tmp_path / "log"
  ending, seconds = on_gpu.run(on_gpu.Step([sys.executable, "-c", code], 1), log, 6)
  assert ending == "ended after 6 seconds"
  assert 6 <= seconds < 60
  if code is POLITE:
    assert on_gpu.last_line(log) == "what was measured"
  else:
    child = int(log.read_text())
    deadline = time.monotonic() + 10
    while _runs(child) and time.monotonic() < deadline:
      time.sleep(0.1)
    assert not _runs(child)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_children_that_outlive_a_step(tmp_path):
  code = ("import subprocess, sys; print(subprocess.Popen("
          "[sys.executable, '-c', 'import time; time.sleep(600)']).pid)")
  log = tmp_path / "log"
  assert on_gpu.run(on_gpu.Step([sys.executable, "-c", code], 1), log, 60)[0] == "done"
  child = int(log.read_text())
  deadline = time.monotonic() + 10
  while _runs(child) and time.monotonic() < deadline:
    time.sleep(0.1)
  assert not _runs(child)


@pytest.mark.extended
@pytest.mark.parametrize("name", [
    "contest-f32", "contest-f64", "systems", "forward", "crossovers-less", "gradients"])
def test_commands_that_benchmark(name, tmp_path):
  """Catches an option or an operation that the benchmark does not have."""
  step = _steps(tmp_path)[name]
  (tmp_path / "cells.json").write_text(json.dumps([x._asdict() for x in cut_offs.cells(FILES)]))
  done = subprocess.run(
      step.command, cwd=ROOT, capture_output=True, text=True, check=False,
      env=_ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ""})
  assert "--platform gpu: JAX finds no such device" in done.stderr


@pytest.mark.extended
@pytest.mark.parametrize("name", ["products", "block-tridiagonal", "kalman", "clients", "verdicts"])
def test_options_of_other_commands(name, tmp_path):
  """The programs know the options of their steps."""
  command = _steps(tmp_path)[name].command
  done = subprocess.run(
      [*command[:2], "--help"], cwd=ROOT, capture_output=True, text=True, check=False,
      env=_ENVIRONMENT)
  options = {x for x in command[2:] if x.startswith("--")}
  if name == "verdicts":
    done = subprocess.run(
        [*command[:3], "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
  assert options and all(re.search(rf"{option}\b", done.stdout) for option in options), done.stderr


@pytest.mark.extended
@pytest.mark.parametrize(
    "name", ["smoke", "gates", "residuals", "bits", "memcheck", "large", "suites"])
def test_commands_that_test(name, tmp_path):
  """The test selections of the steps are not empty, and parse."""
  command = _steps(tmp_path)[name].command
  command = command[command.index(sys.executable):]
  device = ["--device", "cpu"] * ("--device" in command)
  # Without a GPU's handlers the tests of cases have no parameters, so no n either.
  if "--orders" in command:
    at = command.index("--orders")
    command = command[:at] + command[at + 2:]
  done = subprocess.run(
      [*command, "--collect-only", "-n", "0", *device], cwd=ROOT, capture_output=True, text=True,
      check=False, env=_ENVIRONMENT)
  assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
  assert re.search(r"\d+(/\d+)? tests collected", done.stdout)


# Cut-offs

FILES = {file: (ROOT / file).read_text() for file in (cut_offs.CUDA, cut_offs.PYTHON)}
NAMES = [x.name for x in cut_offs.CUT_OFFS]


def _named(name):
  return cut_offs.CUT_OFFS[NAMES.index(name)]


def _deciding(cut_off):
  return [x for op in cut_off.ops for dtype in cut_off.dtypes for x in cut_off.deciding(op, dtype)]


@pytest.mark.parametrize("name", NAMES)
def test_a_grid(name):
  """The grid contains the current value, and measured cells on both sides of each value."""
  cut_off = _named(name)
  current = cut_offs.value_of(cut_off, FILES[cut_off.file])
  assert cut_off.least <= current <= cut_off.most
  measured = cut_off.measured(current)
  assert len(measured) == len(set(measured)) and set(measured) <= set(_deciding(cut_off))
  for op in cut_off.ops:
    for dtype in cut_off.dtypes:
      keys = [cut_off.key(x) for x in measured if x.op == op and x.dtype == dtype]
      assert len(keys) >= 3
      assert current == cut_off.least or min(keys) <= cut_off.last(current)
      assert current == cut_off.most or max(keys) > cut_off.last(current)
      # The nearest cells on both sides are among them.
      for x in cut_off.deciding(op, dtype):
        below = cut_off.key(x) <= cut_off.last(current)
        side = [key for key in keys if (key <= cut_off.last(current)) == below]
        assert cut_off.key(x) <= max(side) if below else cut_off.key(x) >= min(side)


def test_grids_of_an_operation_do_not_meet():
  """No cell decides two constants: another one may not change its path."""
  for op, dtype in {(op, x) for cut_off in cut_offs.CUT_OFFS
                    for op in cut_off.ops for x in cut_off.dtypes}:
    cells = [x for cut_off in cut_offs.CUT_OFFS if op in cut_off.ops and dtype in cut_off.dtypes
             for x in cut_off.deciding(op, dtype)]
    assert len(cells) == len(set(cells)), (op, dtype)


def test_batches_fit():
  """The cells are among those that the steps measure."""
  timed = {case.name: case.timed for case in TABLE if case.timed}
  for x in cut_offs.cells(FILES):
    operands = timed[x.op.removeprefix("grad ")]
    assert operands.nbytes(x.n, x.batch, np.dtype(cut_offs.DTYPES[x.dtype])) <= 2800 << 20


def test_what_one_thread_works_in():
  """Matches the table in docs/cuda.md."""
  page = " ".join((ROOT / "docs/cuda.md").read_text().split())
  for name, op, words in (
      ("kThreadEighBytes", "eigh", r"n = (\d+) in float32 and (\d+) in float64, QL"),
      ("kThreadSvdBytes", "svd", r"Jacobi, as n = (\d+) in float32 and (\d+) in float64"),
      ("kThreadQrBytes", "qr", r"bytes, as n = (\d+) in float32 and (\d+) in float64 \|")):
    cut_off = _named(name)
    limit = cut_offs.value_of(cut_off, FILES[cut_off.file])
    for largest, dtype in zip(map(int, re.search(words, page).groups()), cut_offs.BOTH,
                              strict=True):
      key = lambda n: cut_off.key(cut_offs.Cell(op, n, 1, dtype))  # noqa: B023
      assert key(largest) <= limit < key(largest + 1), name


def test_limits_of_handlers():
  """The tool decides all CUDA constants of linalg/_core/tuning.py, with these exceptions.

  Memory limits three of them, and cofactors end where LU by panels does.
  """
  limited = {
      name for name, x in vars(tuning).items() if isinstance(x, dict) and "cuda" in x}
  limited -= {
      "COFACTORS", "MOST_COLUMNS_OF_POSITIVE_SOLVE", "MOST_STATES", "POSITIVE_SOLVE_LOGDET"}
  assert {x.constant for x in cut_offs.CUT_OFFS if x.file == cut_offs.PYTHON} == limited


def _times(cut_off, meeting, noise=0.0):
  """Returns times of two paths that are equal where the compared quantity is `meeting`."""
  rng = np.random.default_rng(0)
  before, after = {}, {}
  for x in _deciding(cut_off):
    at = cut_off.key(x)
    before[x] = 1e-6 * at**2 * rng.uniform(1 - noise, 1 + noise)
    after[x] = 1e-6 * meeting * at * rng.uniform(1 - noise, 1 + noise)
  return before, after


@pytest.mark.parametrize("name", NAMES)
def test_verdicts(name):
  """The verdict follows made-up times of the two paths."""
  cut_off = _named(name)
  current = cut_offs.value_of(cut_off, FILES[cut_off.file])
  keys = sorted({cut_off.key(x) for x in _deciding(cut_off)})
  judged = lambda meeting, value=current: cut_offs.judge(cut_off, value, *_times(cut_off, meeting))
  # All sizes favour the path above the constant, or all favour the path below it.
  found = judged(keys[0] / 2)
  assert (found.value, found.verdict) == (
      (cut_off.least, "lower") if current > cut_off.least else (current, "keep"))
  found = judged(keys[-1] * 2)
  beyond = keys[-1] > cut_off.last(current)
  assert found.verdict == ("raise" if beyond else "keep")
  # No measured size separates these values, so the one nearest the current value wins.
  assert cut_off.last(found.value) >= keys[-1] and (found.value > current) == beyond
  # Otherwise no size uses the slower path, except where the faster has no kernel.
  if not cut_off.values:
    low, high = keys[len(keys) // 2 - 1], keys[len(keys) // 2]
    found = judged((low + high) / 2, cut_off.least)
    assert low <= cut_off.last(found.value) < high
    assert judged((low + high) / 2, found.value).verdict == "keep"


def test_the_nearest_times():
  cut_off = _named("kTeamLu")
  before, after = _times(cut_off, 100)
  found = cut_offs.judge(cut_off, 128, before, after)
  assert [(x.n, x.dtype) for x in found.nearest] == [(128, "f32"), (129, "f32")]
  (row,) = [x for x in cut_offs.table(FILES, before, after) if x.startswith("| kTeamLu |")]
  below, above = (f"{1e3 * x[found.nearest[0]]:.4g}" for x in (before, after))
  assert row.startswith("| kTeamLu | 128 | lower | 100 | ")
  assert f"lu 8192x128 f32: {below} and {above}" in row


def test_noise_changes_nothing():
  cut_off = _named("kTeamLu")
  before, after = _times(cut_off, 1)
  for times in (before, after):
    times.update({x: 1e-3 * (1 + 0.03 * (i % 2)) for i, x in enumerate(times)})
  before[next(x for x in before if x.n == 144)] *= 0.97
  found = cut_offs.judge(cut_off, 128, before, after)
  assert (found.value, found.verdict) == (128, "keep")


def test_too_few_sizes():
  x = cut_offs.Cell("lu", 96, 100, "f32")
  found = cut_offs.judge(_named("kTeamLu"), 128, {x: 1.0}, {x: 2.0})
  assert (found.value, found.verdict) == (128, "not measured")


def test_a_constant_that_begins_a_path():
  """The least batch, say, of the path above the constant."""
  cut_off = cut_offs.CutOff(
      "kSome", ("f32",), 8, 64, {"qr": lambda x: x.batch}, shapes=tuple(
          (batch, 300) for batch in (4, 7, 8, 16, 24, 32, 63, 64, 100)), first=True)
  assert [x.batch for x in _deciding(cut_off)] == [8, 16, 24, 32, 63]
  for meeting, value, verdict in ((30, 25, "raise"), (20, 24, "keep"), (10, 9, "lower"),
                                  (1000, 64, "raise"), (1, 8, "lower")):
    found = cut_offs.judge(cut_off, 24, *_times(cut_off, meeting))
    assert (found.value, found.verdict) == (value, verdict), meeting


def _values(texts):
  return {x.name: cut_offs.value_of(x, texts[x.file]) for x in cut_offs.CUT_OFFS}


def test_variants(tmp_path):
  """Both files have the values, and compile."""
  for bound in ("less", "more"):
    cut_offs.main(["vary", bound, str(tmp_path / bound)])
    texts = {file: (tmp_path / bound / file).read_text() for file in FILES}
    assert _values(texts) == {
        x.name: x.least if bound == "less" else x.most for x in cut_offs.CUT_OFFS}
    if compiler := shutil.which("c++"):
      header = tmp_path / bound / cut_offs.CUDA
      subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", header], check=True)
    exec(compile(texts[cut_offs.PYTHON], "tuning.py", "exec"), {})  # noqa: S102
  assert {file: (ROOT / file).read_text() for file in FILES} == FILES


def _samples(file, times):
  cells = [x._asdict() | {"seconds": {"ours": seconds}} for x, seconds in times.items()]
  cells += [{"op": "lu", "n": 160, "batch": 20000, "dtype": "f64", "skipped": "too large"}]
  file.write_text(json.dumps({
      "cells": cells, "machine": {"device": "A GPU"}, "date": "2026-12-01T10:00:00+00:00"}))
  return str(file)


def test_verdicts_of_a_run(tmp_path, capsys):
  """The table has a row for each constant, and the times are kept beside it."""
  before, after = {}, {}
  for name, meeting in (("kTeamLu", 105), ("kThreadBytes, f64", 900), ("kThreadCofactors", 9.5),
                        ("CHOLESKY_DERIVATIVE", 3000)):
    for whole, part in zip((before, after), _times(_named(name), meeting), strict=True):
      whole |= part
  cut_offs.main([
      "judge", "--less", str(tmp_path / "not-there.json"), _samples(tmp_path / "less", after),
      "--more", _samples(tmp_path / "more", before), "--rows", str(tmp_path / "rows")])
  printed = capsys.readouterr().out.splitlines()
  rows = {x[0]: x for x in (line[2:].split(" | ") for line in printed if line.startswith("| "))}
  assert set(rows) == {"constant", *NAMES}
  judged = ("keep", "raise", "lower")
  verdicts = {name: row[2:4] for name, row in rows.items() if row[2] in judged}
  assert verdicts == {
      "kTeamLu": ["lower", "105"], "kThreadBytes, f64": ["lower", "800"],
      "kThreadCofactors": ["lower", "9"],
      "CHOLESKY_DERIVATIVE": ["raise", "2048, an end of its grid"]}
  others = next(line for line in printed if line.startswith("Not compared: "))
  known = {x.constant for x in cut_offs.CUT_OFFS}
  assert "kColumnsOfTeam" in others and not any(f" {name}," in others for name in known)
  for file, name in cut_offs.CROSSOVERS.items():
    kept = json.loads((tmp_path / "rows" / name).read_text())
    assert kept["source"] == file
    assert set(kept["constants"]) == {
        _named(x).constant for x in verdicts if _named(x).file == file}
    for row in kept["rows"]:
      assert (row["machine"], row["date"]) == ("A GPU", "2026-12-01")
      assert row["ratio"] == pytest.approx(row["seconds"][0] / row["seconds"][1], rel=1e-2)


def test_verdicts_of_one_build(tmp_path, capsys):
  """Nothing changes if both paths take equal times."""
  times = dict.fromkeys(cut_offs.cells(FILES), 1e-3)
  file = _samples(tmp_path / "one", times)
  cut_offs.main(["judge", "--less", file, "--more", file])
  printed = capsys.readouterr().out
  verdicts = re.findall(r"^\| [\w, ]+ \| \d+ \| (\w+) \|", printed, re.MULTILINE)
  assert verdicts == ["keep"] * len(NAMES)
