"""tools/on_gpu.py and tools/cut_offs.py, which run unattended on a GPU, tested without one."""

import importlib.util
import itertools
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

from linalg._core import tuning

ROOT = pathlib.Path(__file__).parents[2]


def _load(name):
  spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


on_gpu = _load("on_gpu")
cut_offs = _load("cut_offs")


def _on_gpu(*arguments):
  return subprocess.run(
      [sys.executable, str(ROOT / "tools/on_gpu.py"), *map(str, arguments)], capture_output=True,
      text=True, timeout=120, check=False)


def test_dry_run(tmp_path):
  """All steps run in order, each with a log, and one report covers them."""
  done = _on_gpu(tmp_path, "--dry-run")
  assert done.returncode == 0, done.stdout + done.stderr
  names = list(on_gpu.steps(tmp_path, 1))
  rows = [row.split(" | ") for row in (tmp_path / "report.md").read_text().splitlines()[4:]]
  assert [row[0].removeprefix("| ") for row in rows] == names
  assert {row[1] for row in rows} == {"done"}
  for name in names:
    assert (tmp_path / f"{name}.txt").read_text().strip() == f"stand-in of {name}"


def test_chosen_steps_and_no_time(tmp_path):
  done = _on_gpu(tmp_path, "--dry-run", "--steps", "tests", "memcheck", "--minutes", 0)
  assert done.returncode == 1
  report = (tmp_path / "report.md").read_text()
  left_out = re.findall(r"^\| (\w+) \| left out: the time is over", report, re.M)
  assert left_out == ["tests", "memcheck"]


def test_an_hour():
  """All steps fit in an hour, with a minute to end those that overrun and one for the tables."""
  limits = [step.minutes for step in on_gpu.steps(pathlib.Path(), 1).values()]
  assert sum(limits) + 2 <= 60


@pytest.mark.parametrize("failing", ["build-more", "cut-offs", "tuning-less"])
def test_a_failure_while_cut_offs_are_tuned(failing, tmp_path, monkeypatch):
  """After a failure, steps that would measure the wrong build or decide by it are skipped.

  If nothing is decided, the files are restored before the last build.
  """
  root, output = tmp_path / "root", tmp_path / "report"
  originals = {file: (ROOT / file).read_text() for file in (cut_offs.CUDA, cut_offs.PYTHON)}
  for file, text in originals.items():
    (root / file).parent.mkdir(parents=True)
    (root / file).write_text(text)
  for file in ("tools/cut_offs.py", "benchmarks/crossover.py"):
    (root / file).parent.mkdir()
    (root / file).write_text((ROOT / file).read_text())
  done = {
      name: step._replace(command=[sys.executable, "-c", f"raise SystemExit({name == failing})"])
      for name, step in on_gpu.steps(output, 1).items()}
  done |= {name: on_gpu.steps(output, 1)[name] for name in ("cut-offs-less", "cut-offs-more")}
  looks = f"import pathlib; print(len(pathlib.Path({cut_offs.CUDA!r}).read_text()))"
  done["build-decided"] = done["build-decided"]._replace(command=[sys.executable, "-c", looks])
  monkeypatch.setattr(on_gpu, "ROOT", root)
  monkeypatch.setattr(on_gpu, "steps", lambda *arguments: done)
  monkeypatch.setattr(sys, "argv", ["on_gpu.py", str(output), "--steps", *(
      name for name in done if re.search("cut-offs|-less|-more|decided", name))])
  monkeypatch.setattr(signal, "signal", lambda *arguments: None)
  with pytest.raises(SystemExit):
    on_gpu.main()
  report = (output / "report.md").read_text()
  left_out = re.findall(r"^\| ([\w-]+) \| left out: without build-more", report, re.M)
  assert left_out == (
      ["tuning-more", "tuning-gradients-more", "cut-offs"] if failing == "build-more" else [])
  if failing != "tuning-less":
    for file, text in originals.items():
      assert (root / file).read_text() == text
    length = len(originals[cut_offs.CUDA])
    assert (output / "build-decided.txt").read_text().strip() == str(length)


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
  assert ending == "ended after 0.1 minutes"
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
    "benchmark", "gradients", "tuning-less", "tuning-gradients-more"])
def test_commands_that_benchmark(name, tmp_path):
  """Catches an option or an operation that the benchmark does not have."""
  step = on_gpu.steps(tmp_path, 1)[name]
  done = subprocess.run(
      step.command, cwd=ROOT, capture_output=True, text=True, check=False,
      env=os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""})
  assert "--platform gpu: JAX finds no such device" in done.stderr


@pytest.mark.extended
def test_commands_that_test(tmp_path):
  """The test selections of the steps are not empty, and parse."""
  steps = on_gpu.steps(tmp_path, 1)
  for name in ("tests", "memcheck"):
    command = steps[name].command
    command = command[command.index(sys.executable):]
    done = subprocess.run(
        [*command, "--collect-only", "-n", "0"], cwd=ROOT, capture_output=True, text=True,
        check=False, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert re.search(r"\d+(/\d+)? tests collected", done.stdout)


# Cut-offs

FILES = {file: (ROOT / file).read_text() for file in (cut_offs.CUDA, cut_offs.PYTHON)}
NAMES = [x.name for x in cut_offs.CUT_OFFS]


def _named(name):
  return cut_offs.CUT_OFFS[NAMES.index(name)]


def _tuned(op):
  ops, sizes = (on_gpu.TUNED_OPS, on_gpu.TUNED_SIZES)
  if op.startswith("grad "):
    ops, sizes = (on_gpu.TUNED_GRADIENTS, on_gpu.TUNED_GRADIENT_SIZES)
  return ops, set(map(int, sizes))


@pytest.mark.parametrize("name", NAMES)
def test_a_grid(name):
  """The grid contains the current value, and measured sizes on both sides of each value."""
  cut_off = _named(name)
  current = cut_offs.value_of(cut_off, FILES[cut_off.file])
  assert cut_off.least <= current <= cut_off.most
  for op, key in cut_off.ops.items():
    ops, sizes = _tuned(op)
    assert op.removeprefix("grad ") in ops
    for dtype in cut_off.dtypes:
      deciding = [key(n, cut_offs.BYTES[dtype]) for n in sizes & set(cut_off.sizes(op, dtype))]
      assert len(deciding) >= 3
      assert current == cut_off.least or min(deciding) <= current
      assert current == cut_off.most or max(deciding) > current


def test_grids_of_an_operation_do_not_meet():
  """The upper side of one crossover in the build with the least values is below the next
  crossover."""
  for op in on_gpu.TUNED_OPS:
    for dtype in cut_offs.BYTES:
      sizes = [x.sizes(op, dtype) for x in cut_offs.CUT_OFFS
               if op in x.ops and dtype in x.dtypes]
      ends = sorted((min(x), max(x)) for x in sizes)
      assert all(last < first for (_, last), (first, _) in itertools.pairwise(ends)), op


def test_what_one_thread_works_in():
  """Matches the table in docs/cuda.md."""
  page = " ".join((ROOT / "docs/cuda.md").read_text().split())
  for name, op, words in (
      ("kThreadEighBytes", "eigh", r"n = (\d+) in float32 and (\d+) in float64, QL"),
      ("kThreadSvdBytes", "svd", r"Jacobi, as n = (\d+) in float32 and (\d+) in float64"),
      ("kThreadQrBytes", "qr", r"bytes, as n = (\d+) in float32 and (\d+) in float64 \|")):
    cut_off = _named(name)
    limit, needed = cut_offs.value_of(cut_off, FILES[cut_off.file]), cut_off.ops[op]
    for largest, size in zip(map(int, re.search(words, page).groups()), (4, 8), strict=True):
      assert needed(largest, size) <= limit < needed(largest + 1, size), name


def test_limits_of_handlers():
  """The tool decides all CUDA constants of linalg/_core/tuning.py but for what memory limits."""
  limited = {
      name for name, x in vars(tuning).items() if isinstance(x, dict) and "cuda" in x}
  limited.remove("MOST_STATES")
  assert {x.constant for x in cut_offs.CUT_OFFS if x.file == cut_offs.PYTHON} == limited


def _times(cut_off, meeting, noise=0.0):
  """Returns times of two paths that are equal where the compared quantity is `meeting`."""
  rng = np.random.default_rng(0)
  before, after = {}, {}
  for op, key in cut_off.ops.items():
    for dtype in cut_off.dtypes:
      for n in sorted(_tuned(op)[1] & set(cut_off.sizes(op, dtype))):
        at = key(n, cut_offs.BYTES[dtype])
        before[op, n, dtype] = 1e-6 * at**2 * rng.uniform(1 - noise, 1 + noise)
        after[op, n, dtype] = 1e-6 * meeting * at * rng.uniform(1 - noise, 1 + noise)
  return before, after


@pytest.mark.parametrize("name", NAMES)
def test_what_times_decide(name):
  cut_off = _named(name)
  current = cut_offs.value_of(cut_off, FILES[cut_off.file])
  keys = sorted({key(n, cut_offs.BYTES[dtype]) for op, key in cut_off.ops.items()
                 for dtype in cut_off.dtypes
                 for n in _tuned(op)[1] & set(cut_off.sizes(op, dtype))})
  # All sizes favour the first path, or all favour the last.
  assert cut_offs.decide(cut_off, current, *_times(cut_off, cut_off.least / 2)).value == (
      cut_off.least)
  largest = max(cut_off.values or keys)
  found = cut_offs.decide(cut_off, current, *_times(cut_off, cut_off.most * 2)).value
  # No measured size separates these values, so the one nearest the current value wins.
  assert found == (largest if largest > current else current)
  # Otherwise no size uses the slower path, except where the faster has no kernel.
  if not cut_off.values:
    meeting = (keys[len(keys) // 2 - 1] + keys[len(keys) // 2]) / 2
    value = cut_offs.decide(cut_off, cut_off.least, *_times(cut_off, meeting, 0.01)).value
    assert keys[len(keys) // 2 - 1] <= value < keys[len(keys) // 2]


def test_noise_changes_nothing():
  cut_off = _named("kTeamLu")
  before, after = _times(cut_off, 1)
  for times in (before, after):
    times.update({key: 1e-3 * (1 + 0.03 * (i % 2)) for i, key in enumerate(times)})
  before["lu", 144, "f32"] *= 0.97
  assert cut_offs.decide(cut_off, 128, before, after).value == 128


def test_too_few_sizes():
  assert cut_offs.decide(_named("kTeamLu"), 128, {("lu", 96, "f32"): 1.0}, {}) == (128, 0, 1.0)


@pytest.fixture
def sources(tmp_path, monkeypatch):
  """Returns a folder with copies of the two files, which the tool writes instead of the
  originals."""
  for file, text in FILES.items():
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
  monkeypatch.setattr(cut_offs, "ROOT", tmp_path)

  def command(*arguments):
    monkeypatch.setattr(sys, "argv", ["cut_offs.py", *map(str, arguments), "--kept",
                                      str(tmp_path / "kept")])
    cut_offs.main()
    return {file: (tmp_path / file).read_text() for file in FILES}

  return command


def _values(texts):
  return {x.name: cut_offs.value_of(x, texts[x.file]) for x in cut_offs.CUT_OFFS}


def _compiles(texts, folder):
  """Compiles the header and the module."""
  header = folder / "tuning.h"
  header.write_text(texts[cut_offs.CUDA])
  if compiler := shutil.which("c++"):
    subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", header], check=True)
  exec(compile(texts[cut_offs.PYTHON], "tuning.py", "exec"), {})  # noqa: S102


def test_variants(sources, tmp_path):
  for bound in ("less", "more"):
    texts = sources("vary", bound)
    assert _values(texts) == {
        x.name: x.least if bound == "less" else x.most for x in cut_offs.CUT_OFFS}
    _compiles(texts, tmp_path)
  # The originals are kept until then and no longer, even if other files are written.
  assert sources("restore") == FILES
  assert not list((tmp_path / "kept").iterdir())


def _samples(file, times, device="A GPU", date="2026-12-01T10:00:00+00:00"):
  cells = [{"op": op, "n": n, "batch": 20000, "dtype": dtype, "seconds": {"ours": seconds}}
           for (op, n, dtype), seconds in times.items()]
  cells += [{"op": "lu", "n": 160, "batch": 20000, "dtype": "f64", "skipped": "too large"}]
  file.write_text(json.dumps({"cells": cells, "machine": {"device": device}, "date": date}))
  return file


def test_decisions_are_written(sources, tmp_path, capsys):
  """Decisions replace the constants only. The times of the last decision are kept."""
  before, after = {}, {}
  for name, meeting in (("kTeamLu", 105), ("kThreadBytes, f64", 900), ("COFACTORS", 9.5),
                        ("CHOLESKY_DERIVATIVE", 700)):
    for whole, part in zip((before, after), _times(_named(name), meeting), strict=True):
      whole |= part
  for command in ("vary more", "decide", "decide"):
    files = [] if command != "decide" else [
        "--less", tmp_path / "not-there.json", _samples(tmp_path / "less.json", after),
        "--more", _samples(tmp_path / "more.json", before)]
    texts = sources(*command.split(), *files)
  decided = {"kTeamLu": 96, "kThreadBytes, f64": 800, "COFACTORS": 9, "CHOLESKY_DERIVATIVE": 676}
  assert _values(texts) == _values(FILES) | decided
  assert "inline constexpr int64_t kTeamLu = 96;" in texts[cut_offs.CUDA]
  assert ("inline constexpr int64_t kThreadBytes = sizeof(E) == 4 ? 576 : 800;"
          in texts[cut_offs.CUDA])
  assert ('CHOLESKY_DERIVATIVE = {"cpu": None, "cuda": Limit(13, nbytes=676)}'
          in texts[cut_offs.PYTHON])
  for file, name in cut_offs.CROSSOVERS.items():
    kept = json.loads((tmp_path / "benchmarks/crossovers" / name).read_text())
    assert kept["source"] == file
    assert set(kept["constants"]) == {
        _named(x).constant for x in decided if _named(x).file == file}
    for row in kept["rows"]:
      assert (row["machine"], row["date"], row["batch"]) == ("A GPU", "2026-12-01", 20000)
      assert row["ratio"] == pytest.approx(row["seconds"][0] / row["seconds"][1], rel=1e-2)
  _compiles(texts, tmp_path)
  rows = capsys.readouterr().out.splitlines()
  assert any(row.startswith("| kTeamLu | lu | 10 | 128 | 96 | ") for row in rows)
  assert "| kTeamSvd | svd | 0 | 64 | too few sizes |  |" in rows


def test_recorded_times_of_one_build(sources, tmp_path):
  """A second run changes nothing, and constants with enough sizes keep their times."""
  recorded = ROOT / "benchmarks/results/nvidia-h100-80gb-hbm3-2026-11-22.json"
  assert sources("decide", "--less", recorded, "--more", recorded) == FILES
  (path,) = (tmp_path / "benchmarks/crossovers").iterdir()
  kept = json.loads(path.read_text())
  assert kept["source"] == cut_offs.CUDA and {row["ratio"] for row in kept["rows"]} == {1.0}
