"""The benchmarks time the operations of the package's table, and leave tracked files unchanged."""

import json
import pathlib
import re
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import records, run
from linalg._catalogue import TABLE
machine = {"platform": "cpu", "cpu": "Some (R) CPU"}
print(json.dumps({
    "path": str(records.default_output(machine).resolve()),
    "left out": [
        case.name for case in TABLE
        if case.timed and case.name not in [contest.name for contest in run.CONTESTS]],
}))
"""


def test_cases_and_output(tmp_path):
  done = subprocess.run(
      [sys.executable, "-c", PROGRAM, str(ROOT / "benchmarks")], cwd=tmp_path,
      capture_output=True, text=True, check=False, timeout=120)
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout)
  path = pathlib.Path(found["path"])
  assert path.parent == tmp_path / "benchmark-results" and path.name.startswith("some-cpu-")
  assert "/benchmark-results/" in (ROOT / ".gitignore").read_text().splitlines()
  assert not found["left out"]


THREADS = """
import hashlib, sys, threading, time
sys.path.insert(0, sys.argv[1])
import timing

timing.LONGEST_WAIT_SECONDS = 60
assert timing.wait_for_threads() < 30
begins, ended = threading.Event(), []

def compute(turns):
  hashlib.pbkdf2_hmac("sha256", b"", b"", turns)  # without the interpreter's lock

def work():
  begins.set()
  compute(turns)
  ended.append(time.perf_counter())

begin = time.perf_counter()
compute(50_000)
turns = int(50_000 * 0.5 / (time.perf_counter() - begin))
thread = threading.Thread(target=work)
thread.start()
begins.wait()
time.sleep(0.02)
timing.wait_for_threads()
returned = time.perf_counter()
thread.join()
print(f"{ended[0] - returned:.2f}")
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="reads /proc")
def test_waits_for_threads():
  """Catches a timing that begins while a library's threads still spin after a call."""
  done = subprocess.run(
      [sys.executable, "-c", THREADS, str(ROOT / "benchmarks")], capture_output=True, text=True,
      check=False, timeout=200)
  assert done.returncode == 0, done.stderr
  assert float(done.stdout) < 0.25


def _write(path, date, speedups):
  """A file as a run writes it, of one operation; by n the speed-ups."""
  cells = [
      {"op": "lu", "n": n, "batch": 1, "dtype": "f32", "seconds": {"ours": 1e-6, "stock": x * 1e-6},
       "speedup": {"stock": {"median": x, "q1": x, "q3": x}}} for n, x in speedups.items()]
  machine = {"platform": "cpu", "cpu": "Some CPU", "isa": [], "cores": 2}
  header = {"machine": machine, "versions": {"jax": "1", "linalg": "1"}, "date": date}
  path.write_text(json.dumps(header | {"commit": date[:4], "cells": cells}))


def test_history(tmp_path):
  """The report shows runs in the order of their dates, over the cells that all of them have."""
  files = [tmp_path / name for name in ("new.json", "old.json")]
  _write(files[0], "2002-01-01", {2: 1.0, 4: 4.0, 8: 9.0})
  _write(files[1], "2001-01-01", {2: 2.0, 4: 8.0})
  show = [sys.executable, str(ROOT / "benchmarks" / "report.py")]
  run = lambda *arguments: subprocess.run(
      [*show, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)
  done = run(*files)
  assert done.returncode == 0, done.stderr
  rows = [re.findall(r"[-\w.]+", line) for line in done.stdout.splitlines()]
  assert ["2001-01-01", "2002-01-01"] in rows
  assert ["lu", "2", "4.00", "2.00", "0.50"] in rows
  _write(files[1], "2001-01-01", {16: 2.0})
  done = run(*files)
  assert done.returncode != 0 and "no cell in common" in done.stderr


def test_report_names_all_rivals(tmp_path):
  """Every library that was timed is named, even if its tables are not shown."""
  name = "amd-epyc-peers-48-256-2026-11-25.json"
  copy = tmp_path / name
  copy.write_text((ROOT / "benchmarks" / "results" / name).read_text())
  show = [sys.executable, str(ROOT / "benchmarks" / "report.py"), str(copy), "--sizes", "48"]
  run = lambda *arguments: subprocess.run(
      [*show, *arguments], capture_output=True, text=True, check=False, timeout=120)
  done = run("--over", "numpy")
  assert done.returncode == 0, done.stderr
  assert "Speed-up over numpy, f32" in done.stdout
  assert re.findall(r"^Over (\w+) .* of (\d+) cells", done.stdout, re.MULTILINE) == [
      ("stock", "12"), ("mkl", "12"), ("torch", "12")]
  done = run("--over", "nobody")
  assert done.returncode != 0 and "there is stock, mkl, torch, numpy" in done.stderr


@pytest.mark.extended
def test_a_run_draws_plots(tmp_path):
  pytest.importorskip("matplotlib")
  arguments = ["--ops", "cholesky", "--sizes", "2", "--batches", "1", "--rounds", "1"]
  done = subprocess.run(
      [sys.executable, str(ROOT / "benchmarks" / "run.py"), *arguments], cwd=tmp_path,
      capture_output=True, text=True, check=False, timeout=300)
  assert done.returncode == 0, done.stderr
  written = re.findall(r"^Wrote (.*)$", done.stdout, re.MULTILINE)
  assert [pathlib.Path(x).suffix for x in written] == [".json", *[".png"] * 4]
  assert all((tmp_path / x).stat().st_size > 0 for x in written)


@pytest.mark.extended
def test_jobs(tmp_path):
  """Processes that measure in turn write one file, with each cell once."""
  arguments = ["--ops", "cholesky", "lu", "--sizes", "2", "3", "--batches", "5", "--dtypes", "f32"]
  arguments += ["--rounds", "1", "--jobs", "3", "--output", "result.json"]
  done = subprocess.run(
      [sys.executable, str(ROOT / "benchmarks" / "run.py"), *arguments], cwd=tmp_path,
      capture_output=True, text=True, check=False, timeout=300)
  assert done.returncode == 0, done.stderr
  result = json.loads((tmp_path / "result.json").read_text())
  assert [(cell["op"], cell["n"]) for cell in result["cells"]] == [
      ("cholesky", 2), ("cholesky", 3), ("lu", 2), ("lu", 3)]
  assert all(cell["seconds"]["ours"] > 0 for cell in result["cells"])
  assert set(result["ceilings"]) == {"f32", "bytes"} and not result["interrupted"]
  assert result["command"].endswith(" ".join(arguments))


@pytest.mark.extended
def test_a_run_that_goes_on(tmp_path):
  """Cells that a folder has are not measured again, nor those that began twice and never ended."""
  kept = tmp_path / "kept"
  arguments = ["--ops", "cholesky", "lu", "--shapes", "5x4", "3x2", "--dtypes", "f32", "--rounds",
               "1", "--slow-call", "0", "--keep", kept, "--output", "result.json"]

  def run(*more):
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "run.py"), *map(str, (*arguments, *more))],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, json.loads((tmp_path / "result.json").read_text())["cells"]

  kept.mkdir()
  row = {"op": "lu", "n": 2, "batch": 3, "dtype": "f32"}
  known = {"op": "lu", "n": 4, "batch": 5, "dtype": "f32"}
  began = row | {"began": True}
  header = {"machine": {"platform": "cpu"}}
  for i, lines in enumerate([[header, began], [header, began, known | {"seconds": {"ours": 7.0}}]]):
    (kept / f"{i:04}.lines").write_text("".join(json.dumps(x) + "\n" for x in lines))
  code, cells = run()
  assert code == 1  # a cell has failed
  by_key = {(x["op"], x["n"]): x for x in cells}
  assert list(by_key) == [("cholesky", 2), ("lu", 2), ("cholesky", 4), ("lu", 4)]
  assert by_key["lu", 2]["skipped"] == "failed: it did not end"
  assert by_key["lu", 4]["seconds"] == {"ours": 7.0}
  assert by_key["cholesky", 4]["rounds"] == 1 and by_key["cholesky", 4]["speedup"]["stock"]
  listed = tmp_path / "cells.json"
  listed.write_text(json.dumps([row, {"op": "grad lu", "n": 3, "batch": 2, "dtype": "f64"}]))
  _, cells = run("--cells", listed)
  assert [(x["op"], x["n"]) for x in cells] == [("lu", 2), ("grad lu", 3)]
  assert set(cells[1]["seconds"]) == {"ours", "stock", "forward"}


@pytest.mark.extended
def test_a_run_that_is_ended_keeps_its_results(tmp_path):
  arguments = ["--ops", "cholesky", "lu", "--sizes", "2", "--batches", "1", "--dtypes", "f32"]
  arguments += ["--rounds", "1000000", "--seconds-per-cell", "1", "--output", "result.json"]
  with subprocess.Popen(
      [sys.executable, str(ROOT / "benchmarks" / "run.py"), *arguments], cwd=tmp_path,
      stdout=subprocess.PIPE, text=True) as run:
    for line in run.stdout:
      if line.strip().endswith("next lu"):  # the second operation has begun
        run.send_signal(signal.SIGTERM)
        break
    rest = run.stdout.read()
  assert run.returncode == 130 and "Interrupted" in rest
  found = json.loads((tmp_path / "result.json").read_text())
  assert found["interrupted"] and [cell["op"] for cell in found["cells"]] == ["cholesky"]


ROUTED = """
import json, sys
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import linalg, routed
with linalg.accelerated():
  names = linalg._accelerate.switch.routed()
covered = {case.partition(",")[0] for case in routed.CASES} | {"sort"}  # inverts permutations
assert not set(names) - covered, set(names) - covered
routed.main()
"""


@pytest.mark.extended
def test_routed_primitives(tmp_path):
  """Each routed primitive has a case, and a row has its times."""
  output = tmp_path / "times.json"
  done = subprocess.run(
      [sys.executable, "-c", ROUTED, str(ROOT / "benchmarks"), "--ops", "solve", "--sizes", "3",
       "--batches", "2", "--dtypes", "f32", "--rounds", "3", "--repeats", "0", "--calls", "2",
       "--output", str(output)],
      capture_output=True, text=True, check=False, timeout=120)
  assert done.returncode == 0, done.stderr
  (cell,) = json.loads(output.read_text())["cells"]
  assert (cell["op"], cell["n"], cell["batch"]) == ("solve", 3, 2)
  assert min(cell["us"]) > 0 and cell["ratio"][0] > 0


CONTENDERS = """
import argparse, sys, time
sys.path.insert(0, sys.argv.pop(1))
import jax
import jax.numpy as jnp
from contenders import Benchmark, Contender, add_options, parse, run

def contenders(row):
  def endless(x):  # as a compiler that unrolls a long loop
    time.sleep(600)
    return x

  def deadlock(x):
    return jax.pure_callback(lambda x: time.sleep(600) or x, x, x)

  def broken(x):
    raise TypeError("no such program")

  return {
      "ours": Contender(lambda x: x + row["n"]), "endless": Contender(endless),
      **({} if row["gradient"] else {"deadlock": Contender(deadlock)}),
      "broken": Contender(broken), "absent": Contender(jnp.sin, library="no_such_library"),
      "other": Contender(lambda x: row["n"] + x + row["error"])}

parser = argparse.ArgumentParser()
add_options(parser)
parser.add_argument("--error", type=float, default=0)
args = parse(parser)
benchmark = Benchmark(
    "some.py", contenders, lambda row: [jnp.ones(3)], effort=lambda row: row["n"])
rows = [
    {"program": "sum", "n": 2, "gradient": x, "error": args.error, "threads": None}
    for x in (False, True)]
run(benchmark, rows, args)
"""


@pytest.mark.extended
def test_contenders_that_do_not_end(tmp_path):
  """A row names each contender that it lacks, and why. Results that differ are an error."""
  (tmp_path / "some.py").write_text(CONTENDERS)
  command = [sys.executable, "some.py", "--quick", "--output", "a.json"]
  run = lambda *more: subprocess.run(
      [*command, *more], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
  done = run("--limit", "20", "--rounds", "1")
  assert done.returncode == 0, done.stderr
  cells = json.loads((tmp_path / "a.json").read_text())["cells"]
  assert len(cells) == 2
  for cell in cells:
    stuck = {} if cell["gradient"] else {"deadlock": "a call did not end in 20 s, 3 times"}
    assert cell["left_out"] == stuck | {
        "endless": "not within 20 s", "broken": "failed: TypeError: no such program",
        "absent": "no_such_library is not installed"}
    assert set(cell["seconds"]) == {"ours", "other"} and cell["difference"] == {"other": 0}
    assert cell["speedup"]["other"]["median"] > 0
  done = run("--limit", "0", "--without", "endless", "deadlock", "--error", "0.5")
  assert done.returncode != 0 and "other differs by" in done.stderr


@pytest.mark.extended
@pytest.mark.parametrize("program, options, rows", [
    ("block_tridiagonal.py", ["--rows", "1", "--shapes", "2x5", "--long-shapes", "1x9"], 6),
    ("kalman.py", ["--shapes", "2x5", "--functions", "filter", "filter, one model"], 4),
    ("programs.py", ["--programs", "density_4", "shampoo", "--batch", "3"], 3),
    ("cholesky_factors.py", ["--shapes", "4x2", "--changes", "append"], 2),
    ("subset.py", ["--operations", "eigh", "--n", "9", "--count", "2"], 2)])
def test_programs_of_contenders(program, options, rows, tmp_path):
  done = subprocess.run(
      [sys.executable, str(ROOT / "benchmarks" / program), *options, "--quick", "--rounds", "1",
       "--limit", "0", "--output", "a.json"],
      cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
  assert done.returncode == 0, done.stderr
  found = json.loads((tmp_path / "a.json").read_text())
  assert len(found["cells"]) == rows
  assert all(cell["seconds"]["ours"] > 0 and cell["speedup"] or cell.get("threads")
             for cell in found["cells"])
  assert " ".join(options[:2]) in found["command"]
