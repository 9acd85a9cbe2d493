"""tools/on_gpu.py and tools/cut_offs.py, which run unattended on a GPU, without one."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

from linalg import _tuning

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
  """All steps in order, each with a log, and a report of all of them."""
  done = _on_gpu(tmp_path, "--dry-run")
  assert done.returncode == 0, done.stdout + done.stderr
  names = list(on_gpu.steps(tmp_path, 1))
  rows = [row.split(" | ") for row in (tmp_path / "report.md").read_text().splitlines()[4:]]
  assert [row[0].removeprefix("| ") for row in rows] == names
  assert {row[1] for row in rows} == {"done"}
  for name in names:
    assert (tmp_path / f"{name}.txt").read_text().strip() == f"stand-in of {name}"


def test_chosen_steps_and_no_time(tmp_path):
  done = _on_gpu(tmp_path, "--dry-run", "--steps", "tests", "tuning", "--minutes", 0)
  assert done.returncode == 1
  report = (tmp_path / "report.md").read_text()
  assert re.findall(r"^\| (\w+) \| left out: the time is over", report, re.M) == ["tests", "tuning"]


def test_an_hour():
  """All steps together, with a minute to end those that take too long, and one for the tables."""
  limits = [step.minutes for step in on_gpu.steps(pathlib.Path(), 1).values()]
  assert sum(limits) + 2 <= 60


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("code", [STUBBORN, POLITE], ids=["stubborn", "polite"])
def test_a_step_that_takes_too_long(code, tmp_path, monkeypatch):
  """It is asked to end, and then it and its children are ended: they would keep the GPU busy."""
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
@pytest.mark.parametrize("name", ["benchmark", "gradients", "tuning", "tuning-gradients"])
def test_commands_that_benchmark(name, tmp_path):
  """Catches an option or an operation that the benchmark does not know."""
  step = on_gpu.steps(tmp_path, 1)[name]
  done = subprocess.run(
      step.command, cwd=ROOT, capture_output=True, text=True, check=False,
      env=os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""})
  assert "--platform gpu: JAX finds no such device" in done.stderr


@pytest.mark.extended
def test_commands_that_test(tmp_path):
  """The selections of the tests and of the sanitizers' tests are not empty, and parse."""
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


def test_constants():
  """The cut-offs that are judged are those of tuning.h, and the orders those of the table."""
  text = (ROOT / "kernels/cuda/tuning.h").read_text()

  def number(pattern):
    return int(re.search(pattern, text)[1])

  limits = {name: {"f32": number(rf"{name} = sizeof\(E\) == 4 \? (\d+)"),
                   "f64": number(rf"{name} = sizeof\(E\) == 4 \? \d+ : (\d+)")}
            for name in ("kAloneBytes", "kAloneCholeskyBytes")}
  limits["kAloneQrBytes"] = dict.fromkeys(("f32", "f64"), number(r"kAloneQrBytes = (\d+)"))
  sides = {"kWarpLu": {"f32": number(r"kWarpLu = sizeof\(E\) == 4 +\? (\d+)"),
                       "f64": number(r"kWarpLu = [^:]*: sizeof\(E\) == 8 \? (\d+)")},
           "kWarpCholesky": dict.fromkeys(
               ("f32", "f64"), number(r"kWarpCholesky = sizeof\(E\) <= 8 \? (\d+)"))}
  for name in ("kTeamCholesky", "kTeamLu", "kTeamEigh", "kTeamSvd"):
    sides[name] = dict.fromkeys(("f32", "f64"), number(rf"{name} = (\d+)"))
  page = " ".join((ROOT / "docs/cuda.md").read_text().split())
  for name, words in (("kAloneEighBytes", r"n = (\d+) in float32 and (\d+) in float64, QL"),
                      ("kAloneSvdBytes", r"Jacobi, as n = (\d+) in float32 and (\d+) in float64")):
    sides[name] = dict(zip(("f32", "f64"), map(int, re.search(words, page).groups()), strict=True))
  of_tuning_h = [x for x in cut_offs.CUT_OFFS if x.constant.startswith("k")]
  for cut_off in of_tuning_h:
    for dtype in ("f32", "f64"):
      largest = cut_off.largest(dtype)
      if cut_off.constant in limits:
        limit = limits[cut_off.constant][dtype]
        needed = [cut_off.value(dtype, n).removesuffix(" bytes") for n in (largest, largest + 1)]
        assert [int(x) <= limit for x in needed] == [True, False], cut_off
      else:
        assert largest == sides[cut_off.constant][dtype], cut_off
  assert {x.constant for x in of_tuning_h} == limits.keys() | sides.keys()


def test_limits_of_handlers():
  """All that linalg/_tuning.py has for CUDA are judged."""
  limited = {
      name for name, x in vars(_tuning).items() if isinstance(x, dict) and "cuda" in x}
  assert {x.constant for x in cut_offs.CUT_OFFS if not x.constant.startswith("k")} == limited


def test_sizes_are_on_both_sides():
  """The tuning runs have sizes that judge every cut-off."""
  for cut_off in cut_offs.CUT_OFFS:
    op = cut_off.op.removeprefix("grad ")
    ops, sizes = (on_gpu.TUNED_OPS, on_gpu.TUNED_SIZES) if op == cut_off.op else (
        on_gpu.TUNED_GRADIENTS, on_gpu.TUNED_GRADIENT_SIZES)
    assert op in ops
    sizes = dict.fromkeys(map(int, sizes), 1.0)
    for dtype in ("f32", "f64"):
      assert cut_offs.judge(sizes, cut_off.largest(dtype)) is not None, (cut_off, dtype)


@pytest.mark.parametrize("meeting", [11, 14, 16, 18, 21])
def test_where_lines_meet(meeting):
  """Of two paths n⁴ and n², equal at `meeting`, with a cut-off at 16."""
  times = {n: 1e-6 * (n**4 if n <= 16 else meeting**2 * n**2)
           for n in (11, 12, 13, 14, 15, 16, 17, 18, 20)}
  found = cut_offs.judge(times, 16)
  assert found.step == pytest.approx((meeting / 17) ** 2)
  # Steps that noise may make are left alone.
  assert found.proposal == (meeting if meeting not in (16, 18) else 16)


def test_lines_that_do_not_meet():
  slow_then_fast = {n: n**3 * (1.0 if n <= 16 else 0.5) for n in (14, 15, 16, 17, 18, 20)}
  assert cut_offs.judge(slow_then_fast, 16).proposal is None
  assert cut_offs.judge(slow_then_fast, 16).step == pytest.approx(0.5)
  assert cut_offs.judge({16: 1.0, 17: 1.0, 18: 1.0}, 16) is None


def test_table(tmp_path):
  """From the samples of a benchmark, those skipped left out."""
  cells = [
      {"op": "lu", "n": n, "batch": 20000, "dtype": "f32",
       "seconds": {"ours": 1e-6 * (n**4 if n <= 12 else 100 * n**2)}}
      for n in map(int, on_gpu.TUNED_SIZES)]
  cells += [{"op": "lu", "n": 9, "batch": 20000, "dtype": "f64", "skipped": "too large"}]
  file = tmp_path / "tuning.json"
  file.write_text(json.dumps({"cells": cells}))
  done = subprocess.run(
      [sys.executable, str(ROOT / "tools/cut_offs.py"), str(file)], capture_output=True, text=True,
      check=True)
  assert "| kAloneBytes | lu | f32 | 12 | 0.59 | 10 | 400 bytes |" in done.stdout
  assert "| kAloneBytes | lu | f64 | 12 | | too few sizes | |" in done.stdout
