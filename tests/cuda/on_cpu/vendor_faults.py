"""What the vendor's LU has done wrong, as the stand-in of handlers.cc does it, is not handed on.

Collected by tests/cuda/test_on_cpu.py and by tests/cuda/ptx alone: the sizes are those of the
vendor's routines.
"""

import numpy as np
import pytest

import linalg
import matrices
from linalg._cases import checks


@pytest.fixture
def graded(rng, dtype):
  """Matrices of which the second has columns so small that their pivots' reciprocals overflow, and
  the third has them behind a zero one."""
  def make(m, n):
    a = matrices.general(rng, (4,), m, n, dtype)
    a[2, :, 3] = 0
    a[1:3, :, n // 2:] *= np.finfo(dtype).smallest_subnormal * 2.0**14
    return a

  return make


@pytest.mark.parametrize("shape", [(140, 140), (160, 130), (130, 160)], ids=str)
def test_lu(shape, dtype, graded):
  a = graded(*shape)
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


def test_determinant(dtype, graded):
  a = graded(140, 140)
  sign, logarithm = linalg.slogdet(a)
  up = 2.0 ** -np.finfo(dtype).minexp
  scaled = checks.wide(a)
  scaled[1, :, 70:] *= up
  expected_sign, expected = np.linalg.slogdet(scaled)
  expected[1] -= 70 * np.log(up)
  # The small columns have 14 bits: half a unit at each of 140 steps, in 70 pivots.
  expected[2], expected_sign[2] = -np.inf, 0
  np.testing.assert_allclose(logarithm, expected, rtol=0, atol=70 * 140 * 2.0**-15)
  np.testing.assert_allclose(sign, expected_sign, rtol=0, atol=0.1)


def test_solve_and_inv(dtype, graded, rng):
  """Right, or the info says so."""
  a = graded(140, 140)
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
