"""What the vendor's LU has done wrong, as the stand-in of vendor.cc does it, is not handed on.

Collected by tests/cuda/ptx alone: the sizes are those of the vendor's routines.
"""

import numpy as np
import pytest

import linalg
import matrices
from linalg._cases import checks


def _graded(a):
  """The matrices, the second with columns so small that their pivots' reciprocals overflow, and the
  third with them behind a zero one."""
  a[2, :, 3] = 0
  a[1:3, :, a.shape[-1] // 2:] *= np.finfo(a.dtype).smallest_subnormal * 2.0**14
  return a


@pytest.mark.parametrize("shape", [(140, 140), (160, 130), (130, 160)], ids=str)
def test_lu(shape, dtype, rng):
  a = _graded(matrices.general(rng, (4,), *shape, dtype))
  lu, _, permutation, info = (np.asarray(x) for x in linalg.lu_ex(a))
  np.testing.assert_array_equal(info, [0, 0, 4, 0])
  k = min(shape)
  lower = np.tril(checks.wide(lu)[..., :k], -1) + np.eye(shape[0], k)
  assert np.all(np.abs(lower) <= 2)
  product = lower @ np.triu(checks.wide(lu)[..., :k, :])
  for x, y, order in zip(a, product, permutation, strict=True):
    # Column by column: a small one's error is as small, but for the subnormal numbers' spacing.
    x = checks.wide(x)[order]
    scale = np.abs(x).max(0) * np.finfo(dtype).eps + np.finfo(dtype).smallest_subnormal
    assert np.all(np.abs(x - y) <= 10 * k * scale)


def test_determinant(dtype, rng):
  # The small columns have 14 bits. The error of the logarithm is that times the norm of the inverse
  # of the matrix without its scale: some 2^-14 here, and 0.4 of one of condition 7e4.
  a = _graded(matrices.well_conditioned(rng, (4,), 140, dtype))
  sign, logarithm = linalg.slogdet(a)
  up = 2.0 ** -np.finfo(dtype).minexp
  scaled = checks.wide(a)
  scaled[1, :, 70:] *= up
  expected_sign, expected = np.linalg.slogdet(scaled)
  expected[1] -= 70 * np.log(up)
  expected[2], expected_sign[2] = -np.inf, 0
  np.testing.assert_allclose(logarithm, expected, rtol=0, atol=0.01)
  np.testing.assert_allclose(sign, expected_sign, rtol=0, atol=0.1)


def test_solve_and_inv(dtype, rng):
  """Right, or the info says so."""
  a = _graded(matrices.general(rng, (4,), 140, 140, dtype))
  b = matrices.general(rng, (4,), 140, 3, dtype)
  for x, info, right in (
      (*linalg.solve_ex(a, b), b), (*linalg.inv_ex(a), np.broadcast_to(np.eye(140), a.shape))):
    np.testing.assert_array_equal(np.asarray(info) != 0, [False, True, True, False])
    np.testing.assert_array_equal(np.isnan(x).all((-2, -1)), [False, True, True, False])
    good = [0, 3]
    assert checks.solution(a[good], np.asarray(x)[good], right[good].astype(dtype)) <= 30


def test_info(dtype, rng):
  """The first zero pivot, or NaN, from the factors."""
  a = matrices.general(rng, (4,), 140, 140, dtype)
  a[1, :, 40] = a[1, :, 60] = 0
  a[2, 139, 139] = np.nan
  np.testing.assert_array_equal(linalg.lu_ex(a)[-1], [0, 41, -1, 0])
