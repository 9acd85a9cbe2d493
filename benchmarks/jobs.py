"""Processes that prepare at the same time and measure one after the other."""

import collections
import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

# The processes share a GPU's memory, so none may preallocate it.
ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ
PATIENCE_SECONDS = 10  # with processes that are to end


@contextlib.contextmanager
def turn(lock: str | None) -> Iterator[None]:
  """Keeps other processes with this file from measuring; they may prepare what they measure."""
  if lock is None:
    yield
    return
  with open(lock, "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    yield


class Lines:
  """A file for the measurements of one of a run's jobs.

  Each is written as a line at once, so none is lost.
  """

  def __init__(self, path: pathlib.Path):
    self._file = path.open("w")

  def append(self, cell: dict[str, Any]) -> None:
    print(json.dumps(cell), file=self._file, flush=True)

  @staticmethod
  def read(path: pathlib.Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def run(
    command: Sequence[str], count: int, turns: str | None
) -> tuple[list[list[dict[str, Any]]], collections.Counter[int]]:
  """Runs `count` processes, each with its `--part`, and returns what they wrote as Lines to their
  `--output`. Empty outputs are left out. Also returns how many ended with which status."""
  processes: list[subprocess.Popen[bytes]] = []
  with tempfile.TemporaryDirectory() as name:
    outputs = [pathlib.Path(name) / f"{part}.lines" for part in range(count)]
    try:
      for part, output in enumerate(outputs):
        processes.append(subprocess.Popen(
            [*command, "--part", str(part), "--output", str(output), "--turns",
             turns or f"{name}/turns"],
            stdout=subprocess.DEVNULL if part else None, env=ENVIRONMENT))
      for process in processes:
        process.wait()
    except KeyboardInterrupt:
      end(processes)
    files = [lines for lines in map(Lines.read, outputs) if lines]
  return files, collections.Counter(process.returncode for process in processes)


def end(processes: list["subprocess.Popen[bytes]"]) -> None:
  """Terminates the processes, without a long wait for any that compiles."""
  for process in processes:
    process.terminate()
  deadline = time.monotonic() + PATIENCE_SECONDS
  for process in processes:
    try:
      process.wait(max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
      process.kill()
      process.wait()
