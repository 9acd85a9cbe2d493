"""`python -m linalg`, which verifies this installation, and `python -m linalg run`."""

import sys


def main(arguments: list[str]) -> int:
  # Each command imports only the modules that it needs.
  if arguments[:1] == ["run"]:
    from linalg._accelerate import run

    return run.main(arguments[1:])
  from linalg import _verify

  return _verify.main(arguments)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
