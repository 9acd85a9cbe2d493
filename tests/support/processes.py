"""Several processes of JAX on this machine, started together and ended together."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time


def free_address() -> str:
  with socket.socket() as free:
    free.bind(("localhost", 0))
    return f"localhost:{free.getsockname()[1]}"


def run(
    script: str, count: int, seconds: float, folder: pathlib.Path, arguments: tuple[str, ...] = ()
) -> str:
  """The output of `count` processes of a script in this folder, which must all succeed in time.

  A process that is not done in time prints what its Python threads do.
  """
  address, deadline = free_address(), time.monotonic() + seconds
  environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
  logs = [folder / f"process{i}" for i in range(count)]
  started = []
  try:
    for i, log in enumerate(logs):
      with log.open("w") as output:
        started.append(subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(pathlib.Path(__file__).parent / script),
             str(i), str(count), address, *arguments],
            env=environment, stdout=output, stderr=subprocess.STDOUT))
    while any(process.poll() is None for process in started) and time.monotonic() < deadline:
      if any(process.poll() for process in started):
        break  # one failed, and the others would wait for it
      time.sleep(0.1)
    codes = [process.poll() for process in started]
    for process, code in zip(started, codes, strict=True):
      if code is None:
        process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
          process.wait(5)
  finally:
    for process in started:
      process.kill()
      process.wait()
  text = "\n".join(log.read_text() for log in logs)
  assert codes == [0] * count, f"{codes} (None: not done after {seconds} s)\n{text}"
  return text
