"""Batches so large that a block has several teams, side by side in its shared memory.

Collected by tests/cuda/ptx/test_suites.py alone: kernels/cuda/launch.h gives a block several teams
where that leaves 256 blocks.
"""

import numpy as np
import pytest

import cases

pytestmark = pytest.mark.all_dtypes

# One thread each, several teams of a warp, a warp each, and a block each.
SIZES = (3, 10, 12, 17, 24, 40)
BATCH = 521  # odd, so that the last block has fewer matrices than it has room for


@pytest.mark.parametrize("n", SIZES)
@cases.each([case for case in cases.with_handlers("cpu") if not case.xla])
def test_residuals(case, n, dtype, rng):
  operands = case.operands(rng, (BATCH,), n, n, dtype)
  ratio = case.ratio(operands, [np.asarray(x) for x in case.results(*operands)])
  assert ratio <= case.limit, f"scaled residual {ratio}"
