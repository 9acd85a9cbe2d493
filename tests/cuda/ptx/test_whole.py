"""As test_suites.py, but every kernel in all dtypes: LINALG_PTX_WHOLE=1 says that there is time."""

import os
import pathlib

import pytest

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(
        "LINALG_PTX_WHOLE" not in os.environ, reason="takes long: LINALG_PTX_WHOLE=1 runs it")]

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
KERNELS = sorted(path.stem for path in (ROOT / "kernels/cuda").glob("*.cu"))
# As in tests/cuda/test_on_cpu.py, which says why.
SUITES = (
    "test_factorisations.py", "test_failures.py", "test_extremes.py", "test_in_place.py",
    "test_matmul.py", "test_svd.py", "test_tridiagonal.py", "test_banded.py")
CHOSEN = (
    "not gradients and not no_worse_than_stock"
    " and not (test_value_with_its_derivative and (slogdet or 33))")


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize(("shared", "order", "preempt"), [
    (227, "random", 50), (163, "forward", 0), (99, "backward", 0)])
def test_suites(shared, order, preempt, build, run_suites):
  """With the shared memory of an H100, an A100 and an L40, in KiB a block."""
  done = run_suites(
      build(*KERNELS), *(ROOT / "tests/values" / suite for suite in SUITES),
      ROOT / "tests/cuda/on_cpu/vendor_faults.py", HERE / "several_teams.py", "-m",
      "extended or not extended", "-k", CHOSEN, shared=shared, order=order, preempt=preempt)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
