"""The kernels' PTX on the CPU, through the suites of the handlers for it.

All but machine code and NVIDIA's libraries is what a GPU runs: the launches, with their blocks,
threads and shared memory, and each instruction of each thread. Every access to memory is checked:
its bounds, that somebody wrote what it reads, and that barriers order it.
"""

import pathlib

import pytest

pytestmark = pytest.mark.extended

HERE = pathlib.Path(__file__).parent
VALUES = HERE.parents[1] / "values"
SUITES = ("test_factorisations.py", "test_failures.py")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["cholesky", "lu", "qr", "eigh"])
def test_suites(name, quick_library, run_suites):
  # By its place in a test's name: `lu` is in that of `values` too.
  chosen = " or ".join(f"{name}-{dtype}" for dtype in ("float32", "complex128"))
  done = run_suites(
      quick_library, *(VALUES / suite for suite in SUITES), HERE / "several_teams.py", "-k",
      f"({chosen}) and not no_worse_than_stock", preempt=50)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
