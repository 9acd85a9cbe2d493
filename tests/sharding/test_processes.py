"""Two processes with four devices each work on one global batch, without a word between them."""

import os
import pathlib
import socket
import subprocess
import sys
import time

import cases

SCRIPT = pathlib.Path(__file__).parents[1] / "support/distributed_process.py"
SECONDS = 120


def _free_address():
  with socket.socket() as free:
    free.bind(("localhost", 0))
    return f"localhost:{free.getsockname()[1]}"


def test_two_processes(tmp_path):
  """Catches a program that needs the other process's matrices, or that waits for it in vain."""
  address, deadline = _free_address(), time.monotonic() + SECONDS
  environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
  logs = [tmp_path / f"process{i}" for i in range(2)]
  started = []
  try:
    for i, log in enumerate(logs):
      with log.open("w") as output:
        started.append(subprocess.Popen(
            [sys.executable, str(SCRIPT), str(i), "2", address], env=environment,
            stdout=output, stderr=subprocess.STDOUT))
    while any(process.poll() is None for process in started) and time.monotonic() < deadline:
      if any(process.poll() for process in started):
        break  # one failed, and the other would wait for it
      time.sleep(0.1)
    codes = [process.poll() for process in started]
  finally:
    for process in started:
      process.kill()
      process.wait()
  text = "\n".join(log.read_text() for log in logs)
  assert codes == [0, 0], f"{codes} (None: not done after {SECONDS} s)\n{text}"
  for i in range(2):
    assert f"process {i} checked {len(cases.CASES)} operations" in text
