"""Runs the programs of docs/issues.md, each of which checks that a problem is still solved.

  python examples/issues/run.py           all of them, in one process
  python examples/issues/jax_36927.py     one of them

Exits with 1 if a program fails. `benchmarks/issues.py` times those that are about speed.
"""

import importlib
import os
import pathlib
import sys
import time
import traceback

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")


def names() -> list[str]:
  """The programs, by the number of the issue."""
  found = (path.stem for path in pathlib.Path(__file__).parent.glob("jax_*.py"))
  return sorted(found, key=lambda name: int(name.removeprefix("jax_")))


def main() -> int:
  failed = []
  for name in names():
    print(f"--- {name}", flush=True)
    start = time.perf_counter()
    try:
      importlib.import_module(name).main()
    except Exception:  # noqa: BLE001 (the others still run)
      traceback.print_exc()
      failed.append(name)
    print(f"    {time.perf_counter() - start:.1f} s", flush=True)
  if failed:
    print("FAILED", *failed)
  return bool(failed)


if __name__ == "__main__":
  sys.exit(main())
