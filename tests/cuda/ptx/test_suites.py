"""The kernels' PTX on the CPU, through the suites of the handlers for it.

All but machine code and NVIDIA's libraries is what a GPU runs: the launches, with their blocks,
threads and shared memory, and each instruction of each thread. Every access to memory is checked:
its bounds, that somebody wrote what it reads, and that barriers order it.
"""

import os
import pathlib

import pytest

pytestmark = pytest.mark.extended

HERE = pathlib.Path(__file__).parent
VALUES = HERE.parents[1] / "values"
KERNELS = sorted(path.stem for path in (HERE.parents[2] / "kernels/cuda").glob("*.cu"))
QUICK = ("test_factorisations.py", "test_failures.py")
WHOLE = (
    *QUICK, "test_extremes.py", "test_in_place.py", "test_matmul.py", "test_svd.py",
    "test_tridiagonal.py", "test_banded.py")
# As in tests/cuda/test_on_cpu.py, which says why.
CHOSEN = (
    "not gradients and not no_worse_than_stock"
    " and not (test_value_with_its_derivative and (slogdet or 33))")


def _run(run_suites, folder, suites, *arguments, **settings):
  done = run_suites(
      folder, *(VALUES / suite for suite in suites), HERE / "several_teams.py", *arguments,
      **settings)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["cholesky", "lu", "qr", "eigh"])
def test_quick(name, quick_library, run_suites):
  # By its place in a test's name: `lu` is in that of `values` too.
  chosen = " or ".join(f"{name}-{dtype}" for dtype in ("float32", "complex128"))
  _run(run_suites, quick_library, QUICK, "-k", f"({chosen}) and {CHOSEN}", preempt=50)


@pytest.mark.skipif(
    "LINALG_PTX_WHOLE" not in os.environ, reason="takes hours: LINALG_PTX_WHOLE=1 runs it")
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize(("shared", "order", "preempt"), [
    (227, "random", 50), (163, "forward", 0), (99, "backward", 0)])
def test_whole(shared, order, preempt, build, run_suites):
  """Every kernel, in all dtypes, with the shared memory of an H100, an A100 and an L40."""
  _run(run_suites, build(*KERNELS), WHOLE, HERE.parent / "on_cpu/vendor_faults.py", "-m",
       "extended or not extended", "-k", CHOSEN, shared=shared, order=order, preempt=preempt)
