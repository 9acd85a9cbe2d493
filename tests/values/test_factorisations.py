"""Every operation has small scaled residuals and agrees with SciPy, for all shapes and dtypes."""

import jax
import numpy as np
import pytest

import cases
import linalg
import matrices
import selection

ALL_DTYPES = True
ONE_IN = 3

SIZES = (0, 1, 2, 3, 4, 5, 8, 10, 16, 17, 33)
SHAPES = ((5, 3), (3, 5), (17, 4), (4, 17), (40, 33), (0, 3), (3, 0))
BATCHES = ((), (0,), (1,), (3,), (2, 3), (70,))


def _results(function, several):
  """Returns function(*operands) for several shapes in one program, because compiling is slow."""
  return jax.jit(lambda several: [function(*operands) for operands in several])(several)


def _check(case, *several):
  """Checks operands of several shapes."""
  found = _results(case.results, several)
  for operands, results in zip(several, found, strict=True):
    ratio = case.ratio(operands, [np.asarray(x) for x in results])
    shapes = [x.shape for x in operands]
    assert ratio <= case.limit, f"scaled residual {ratio}, operands of {shapes}"
  return found


def test_square_residuals(case, dtype, rng):
  _check(case, *(case.operands(rng, (7,), n, n, dtype) for n in SIZES))


@cases.each(cases.RECTANGULAR_CASES)
def test_rectangular_residuals(case, dtype, rng):
  _check(case, *(case.operands(rng, (3,), *shape, dtype) for shape in SHAPES))


@pytest.mark.parametrize("shape", [(5, 3), (4, 0), (0, 0), (160, 130)], ids=str)
def test_product_of_no_reflectors(shape, dtype, rng):
  a = matrices.general(rng, (3,), *shape, dtype)
  q = linalg.householder_product(a, np.zeros((3, 0), dtype))
  np.testing.assert_array_equal(q, np.broadcast_to(np.eye(*shape, dtype=dtype), a.shape))


@selection.in_turn(1)
def test_batches(case, dtype, rng):
  found = _check(case, *(case.operands(rng, batch, 4, 4, dtype) for batch in BATCHES))
  for batch, results in zip(BATCHES, found, strict=True):
    for result in results:
      assert result.shape[: len(batch)] == batch


@pytest.mark.extended
def test_large_residuals(case, dtype, rng):
  _check(case, *(case.operands(rng, (2,), n, n, dtype) for n in (64, 129, 300)))


def _check_oracle(case, *several):
  """Signs, order and pivots are LAPACK's; only the phases of eigenvectors may differ."""
  found = _results(lambda *operands: case.invariant(case.results(*operands)), several)
  for operands, results in zip(several, found, strict=True):
    tolerance = 200 * np.finfo(
        operands[-1].dtype if operands[-1].dtype.kind in "fc" else float).eps
    for i in range(len(operands[0])):
      expected = case.expected(*(x[i] for x in operands))
      for actual, one in zip(results, expected, strict=True):
        scale = max(1.0, np.max(np.abs(one), initial=0))
        np.testing.assert_allclose(actual[i], one, rtol=0, atol=tolerance * scale)


@selection.in_turn(1)
def test_agrees_with_scipy(case, dtype, rng):
  _check_oracle(case, case.operands(rng, (3,), 6, 6, dtype))


@cases.each(cases.RECTANGULAR_CASES)
def test_rectangular_agrees_with_scipy(case, dtype, rng):
  _check_oracle(case, *(case.operands(rng, (3,), *shape, dtype) for shape in ((6, 4), (4, 6))))


@pytest.mark.parametrize(("name", "n"), [("qr", 210), ("eig", 70), ("eigvals", 70)])
def test_residuals_of_many_large(name, n, dtype, rng):
  """Catches a path that CUDA handlers take only for large batches of larger matrices."""
  case = cases.named(name)
  _check(case, case.operands(rng, (24,), n, n, dtype))


# Determinants are left out. In double precision their reference is a LAPACK result in double
# precision too.
@selection.in_turn(1)
@cases.each([case for case in cases.CASES if case.lapack])
@pytest.mark.parametrize("n", [3, 16])
def test_no_worse_than_stock(case, dtype, n, rng):
  """Catches a kernel that rounds more than necessary before it reaches the gates above."""
  operands = case.operands(rng, (300,), n, n, dtype)
  ours = case.ratio(operands, [np.asarray(x) for x in case.results(*operands)])
  stock = case.ratio(operands, [np.asarray(x) for x in jax.tree.leaves(case.stock(*operands))])
  assert ours <= 2 * stock, f"scaled residuals of up to {ours}, stock's {stock}"
