"""Files of times: where and how they were measured, and one line for each cell."""

import datetime
import functools
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

import linalg

# The dtypes by the names that files have.
DTYPES = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
    "i32": np.dtype(np.int32),
}
ISA_FLAGS = ("avx2", "fma", "avx512f", "asimd", "sve")
THREAD_VARIABLES = ("XLA_FLAGS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def available_cores() -> int:
  affinity = getattr(os, "sched_getaffinity", None)
  return len(affinity(0)) if affinity else os.cpu_count() or 1


def describe_machine(device: Any) -> dict[str, Any]:
  cpuinfo = pathlib.Path("/proc/cpuinfo")
  text = cpuinfo.read_text() if cpuinfo.exists() else ""
  model = re.search(r"model name\s*:\s*(.+)", text)
  flags = re.search(r"(?:flags|Features)\s*:\s*(.+)", text)
  flags = flags[1].split() if flags else []
  return {
      "cpu": model[1].strip() if model else platform.processor() or platform.machine(),
      "cores": available_cores(),
      "isa": [flag for flag in ISA_FLAGS if flag in flags],
      "platform": device.platform,
      "device": device.device_kind,
      "environment": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
  }


def find_versions(peers: Mapping[str, Any]) -> dict[str, str]:
  packages = ["jax", "jaxlib", "numpy", "scipy"]
  return {
      "python": platform.python_version(),
      "linalg": linalg.__version__,
      **{name: importlib.metadata.version(name) for name in packages},
      **{name: peer.library.__version__ for name, peer in peers.items()}}


def find_commit() -> str:
  """The commit of this file's checkout, marked if it has changes; empty if there is none."""
  git = ["git", "-C", str(pathlib.Path(__file__).parent)]
  try:
    done = subprocess.run(
        [*git, "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"],
        capture_output=True, text=True, check=True, timeout=60)
  except (OSError, subprocess.SubprocessError):
    return ""
  return done.stdout.strip()


def installed(name: str) -> bool:
  return importlib.util.find_spec(name) is not None


def describe_run(program: str, libraries: Iterable[str]) -> dict[str, Any]:
  """The header of a file of times of another program here. The libraries may be missing."""
  return {
      "machine": describe_machine(jax.devices()[0]),
      "versions": find_versions({}) | {
          name: importlib.metadata.version(name) for name in libraries if installed(name)},
      "commit": find_commit(),
      "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
      "command": shlex.join(["python", f"benchmarks/{program}", *sys.argv[1:]]),
  }


def default_output(machine: dict[str, Any]) -> pathlib.Path:
  name = machine["cpu"] if machine["platform"] == "cpu" else machine["device"]
  name = re.sub(r"\((r|tm)\)", "", name.lower())
  name = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
  stem = f"{name}-{datetime.date.today().isoformat()}"
  folder = pathlib.Path("benchmark-results")  # ignored by git: to commit a run, move its file
  path, count = folder / f"{stem}.json", 1
  while path.exists():
    count += 1
    path = folder / f"{stem}-{count}.json"
  return path


def write(path: pathlib.Path, header: dict[str, Any], cells: list[dict[str, Any]]) -> None:
  """Writes JSON with one line for each entry of the header and one for each cell."""
  compact = functools.partial(json.dumps, separators=(",", ":"))
  head = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in header.items())
  lines = ",\n".join(map(compact, cells))
  path.write_text(f'{{{head},\n"cells": [\n{lines}\n]}}\n')
