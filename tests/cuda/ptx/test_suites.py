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
QUICK = ("test_factorisations.py", "test_failures.py")
# As in tests/cuda/test_on_cpu.py.
CHOSEN = "not gradients and not no_worse_than_stock"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["cholesky"])
def test_quick(name, build, run_suites):
  done = run_suites(
      build("cholesky"), *(VALUES / suite for suite in QUICK), HERE / "several_teams.py",
      "-k", f"{name} and {CHOSEN}", preempt=50)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
