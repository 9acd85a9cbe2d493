"""First and second derivatives of composed functions at all kinds of matrices, in every mode.

support/kinds.py is the table of functions and of matrices, which values are tested on too. Results
are compared with differences in 200 digits.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import digits_of_derivatives
import directions
import kinds
import linalg
from quick import quick_jit

DIGITS = 200  # Jordan blocks of order 4 take up to 120
QUICK = {"lstsq"}
# A rounding moves some second derivatives less than others. Vectors of bands share their clusters.
# The first derivatives of R + Bᴴ X B are far larger than those of X, so second ones lose digits.
LIMITS = {"inverse_pth_root": 300, "matrix_power_-2": 300, "eig_banded": 1000,
          "solve_discrete_are": 1000}
_AXIS = "an eigenvalue is on the imaginary axis to rounding"
# The results at these kinds have no derivative, or the catalogue's invariants leave the range.
WITHOUT = {
    ("vector_norm_-1", "triangular"): "an element is 0",
    ("vector_norm_-1", "permuted"): "an element is 0",
    ("cdf2rdf", "permuted"): "a pair has no imaginary part",
    ("expm_cond", "small"): "all singular values of the derivative of exp are 1 to rounding",
    ("signm", "graded rows"): _AXIS,
    ("signm", "nearly singular"): _AXIS,
    **{(name, kind): "the invariants have squares and cubes"
       for name in ("rq", "qr_update", "qr_insert", "qr_delete", "schur_sorted", "ordqz")
       for kind in ("large", "small")},
    **{(name, kind): "a change of another scale is added" for name in ("qr_update", "qr_insert")
       for kind in ("graded", "graded rows")},
}
_EQUAL = "two eigenvalues are equal to rounding"
WITHOUT_IN_SINGLE = {
    ("solve_continuous_are", "graded"): "the loop is 1e3 times as fast as its slowest decay",
    ("eigvals_banded", "graded"): _EQUAL, ("schur_sorted", "graded"): _EQUAL,
    **{("eigvals_generalized", kind): _EQUAL for kind in ("graded", "graded rows")},
    ("matrix_norm_nuc", "graded rows"): "a singular value is 0 to rounding"}
# Functions whose digits, or programs, take many minutes at matrices of order directions.N.
SLOW = {
    "solve_continuous_are", "solve_discrete_are", "eig_generalized", "eig_left_generalized",
    "eigvals_generalized", "cossin", "logm", "funm", "fractional_matrix_power", "expm_frechet",
    "expm_cond", "sinm", "tanm", "coshm", "sinhm", "tanhm"}


def _without(dtype):
  return WITHOUT | WITHOUT_IN_SINGLE if np.finfo(dtype).bits == 32 else WITHOUT


def _each():
  for name in kinds.TESTED:
    case = cases.named(name)
    for dtype in case.dtypes if case.differentiable else ():
      few = name in SLOW or dtype is not np.float64
      yield pytest.param(
          name, dtype, directions.FEW if few else directions.N, id=f"{name}-{dtype.__name__}",
          marks=() if name in QUICK and dtype is np.float64 else pytest.mark.extended)


@pytest.mark.parametrize("name, dtype, n", list(_each()))
def test_derivatives(name, dtype, n, rng):
  """Errors are a small multiple of what a rounding does, and derivatives of NaN are NaN."""
  case, points, reasons = cases.named(name), {}, {}
  for kind in kinds.KINDS:
    try:
      if reason := _without(dtype).get((name, kind)):
        raise kinds.LeftOut(reason)
      points[kind] = directions.point(name, kind, n, dtype)
    except kinds.LeftOut as reason:
      reasons[kind] = str(reason)
  units = {kind: directions.unit(case, kind) for kind in points}
  found, others = digits_of_derivatives.errors_at(
      case, points, units, rng, DIGITS, determined=True)
  reasons |= others
  assert set(found) | set(reasons) == set(kinds.KINDS) and len(found) >= 4, reasons
  print(name, reasons)
  limit = LIMITS.get(name, 100)
  # The values have tests of their own.
  assert not {
      (kind, mode): error for kind, errors in found.items() for mode, error in errors.items()
      if mode != "value" and not error <= limit}


@quick_jit
def _second_derivatives(scale):
  """Functions whose scale is known, differentiated twice along a line of matrices of one scale."""
  a, e = jnp.diag(jnp.array([1.0, 4.0, 16.0])), jnp.array([[1.0, 2, 0], [2, 0, 1], [0, 1, 3]])

  def results(t):
    x = scale * (a + t * e)
    return (
        linalg.cond(x), linalg.cond(x, -2), linalg.inverse_pth_root(x, 4) * scale**0.25,
        linalg.inverse_pth_root(x, 4, epsilon=0.1 * scale) * scale**0.25)

  first = lambda t: jax.jvp(results, (t,), (jnp.ones_like(t),))[1]
  return jax.jvp(first, (0.0 * scale,), (jnp.ones_like(scale),))[1]


@pytest.mark.parametrize("p", [1, 2])
def test_epsilon_above_the_matrix(p):
  """The root of a matrix that is small beside epsilon is that of epsilon."""
  for size, epsilon in ((2.0**-126, 10.0), (1e-20, 1.0), (0.0, 4.0)):
    a = np.full((2, 2), size, np.float32)
    root = linalg.inverse_pth_root(a, p, epsilon=epsilon)
    np.testing.assert_allclose(root, np.eye(2) * epsilon ** (-1 / p), rtol=1e-6, atol=1e-18)


def test_scales():
  """Second derivatives stay in range where squares and cubes of the matrix's numbers do not."""
  of_one = _second_derivatives(1.0)
  for scale in (2.0**500, 2.0**-500):
    for found, expected in zip(_second_derivatives(scale), of_one, strict=True):
      np.testing.assert_allclose(found, expected, rtol=1e-12)
