"""Processes that prepare at the same time and measure one after the other."""

import collections
import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

# The processes share a GPU's memory, so none may preallocate it.
ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ
PATIENCE_SECONDS = 5  # for processes to end


@contextlib.contextmanager
def turn(lock: str | None) -> Iterator[None]:
  """Holds the lock that lets one process at a time measure, while others prepare."""
  if lock is None:
    yield
    return
  with open(lock, "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    yield


class Lines:
  """A file to which a job appends a line for each measurement, so that none is lost."""

  def __init__(self, path: pathlib.Path):
    self._file = path.open("w")

  def append(self, cell: dict[str, Any]) -> None:
    print(json.dumps(cell), file=self._file, flush=True)

  @staticmethod
  def read(path: pathlib.Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def kept(folder: pathlib.Path) -> list[list[dict[str, Any]]]:
  """The Lines that processes have written there, oldest first, without empty ones."""
  files = sorted(folder.glob("*.lines"))
  return [lines for lines in map(Lines.read, files) if lines]


def run(
    command: Sequence[str], count: int, turns: str | None, folder: pathlib.Path
) -> collections.Counter[int]:
  """Runs `count` processes, each with its own `--part`, and with an `--output` in the folder.

  Returns the number of processes that ended with each status.
  """
  processes: list[subprocess.Popen[bytes]] = []
  first = len(list(folder.glob("*.lines")))
  try:
    for part in range(count):
      processes.append(subprocess.Popen(
          [*command, "--part", str(part), "--output", str(folder / f"{first + part:04}.lines"),
           "--turns", turns or f"{folder}/turns"],
          stdout=subprocess.DEVNULL if part else None, env=ENVIRONMENT))
    for process in processes:
      process.wait()
  except KeyboardInterrupt:
    end(processes)
  return collections.Counter(process.returncode for process in processes)


def end(processes: list["subprocess.Popen[bytes]"]) -> None:
  """Terminates the processes, and does not wait long for one that compiles."""
  for process in processes:
    process.terminate()
  deadline = time.monotonic() + PATIENCE_SECONDS
  for process in processes:
    try:
      process.wait(max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
      process.kill()
      process.wait()
