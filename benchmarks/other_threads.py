"""Whether threads of this process still work after a call."""

import contextlib
import os
import pathlib
import threading

TASKS = pathlib.Path("/proc/self/task")


def one_works() -> bool:
  """Whether another thread of this process runs, or waits for a processor."""
  for task in os.listdir(TASKS):
    if int(task) != threading.get_native_id():
      with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
        if (TASKS / task / "stat").read_text().rpartition(") ")[2].startswith("R"):
          return True
  return False
