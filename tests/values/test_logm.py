"""Logarithms and fractional powers of general matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import cases
import derivatives
import linalg.scipy
import matrices
from quick import quick_jit


def test_logarithms_and_powers(rng):
  """A batch of different kinds against SciPy. A whole power keeps the dtype of the matrix."""
  a = np.stack([
      matrices.general(rng, (), 4, 4, np.float64), np.eye(4), 1e6 * np.eye(4) + np.eye(4, k=1),
      np.diag([1e-9, 1, 1e9, 2]) + 0.1 * np.eye(4, k=2), -np.eye(4),
      np.eye(4) - 1e-9 * np.eye(4, k=1),
      # Nearly triangular, which balancing would spoil.
      np.eye(4) + np.eye(4, k=1) + 1e-16 * np.eye(4, k=-1)])
  functions = quick_jit(lambda a: (
      linalg.scipy.logm(a), linalg.scipy.fractional_matrix_power(a, -1.6)))
  log, power = functions(a)
  for one, x, y in zip(a, log, power, strict=True):
    expected = scipy.linalg.logm(one)
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-13 * np.max(np.abs(expected)))
    expected = scipy.linalg.fractional_matrix_power(one, -1.6)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-12 * np.max(np.abs(expected)))
  cubes = quick_jit(lambda a: (
      linalg.scipy.fractional_matrix_power(a, 3.0), linalg.matrix_power(a, 3)))
  np.testing.assert_array_equal(*cubes(a))
  a[1], a[2] = np.ones((4, 4)), np.nan
  found, _ = functions(a)
  np.testing.assert_array_equal(np.isnan(found).all((1, 2)), [False, True, True] + 4 * [False])
  np.testing.assert_array_equal(np.asarray(found)[3:], np.asarray(log)[3:])
  with pytest.raises(linalg.LinAlgError, match=r"logm: the matrix at index \(1\) has no logarithm"):
    linalg.checked(linalg.scipy.logm)(a[:2])


@pytest.mark.extended
@cases.each_dtype(np.float64, np.float32)
def test_logarithms_and_powers_of_small_jordan_blocks(dtype):
  """Results are exact to rounding for tiny to large eigenvalues, and for two blocks in one
  matrix."""
  x = np.array(
      [1e-2, 1e-4, 1e-8, 1e-30, 1e-200, 1e200] if dtype == np.float64 else [1e-2, 1e-8, 1e-30])
  x = x.astype(dtype)
  a = np.kron(np.diag([1, 2]), np.eye(2)) * x[:, None, None] + np.kron(np.eye(2), np.eye(2, k=1))
  log, root, power = jax.jit(lambda a: (
      linalg.scipy.logm(a), linalg.scipy.fractional_matrix_power(a, 0.25),
      linalg.scipy.fractional_matrix_power(a, 1.5)))(a.astype(dtype))
  tolerance = 200 * np.finfo(dtype).eps
  for i, w in ((0, x.astype(np.float64)), (2, 2 * x.astype(np.float64))):
    for found, value, slope in (
        (log, np.log(w), 1 / w), (root, w**0.25, 0.25 * w**-0.75), (power, w**1.5, 1.5 * w**0.5)):
      kept = (abs(value) < np.finfo(dtype).max) & (abs(value) > np.finfo(dtype).tiny)
      for j in (i, i + 1):
        np.testing.assert_allclose(found[kept, j, j], value[kept], rtol=tolerance)
      np.testing.assert_allclose(found[kept, i, i + 1], slope[kept], rtol=tolerance)
  assert not np.asarray(log)[:, :2, 2:].any()


def test_exponents():
  """An exponent that is not a finite real number raises an error that names the exponent."""
  a = 4 * np.eye(2)
  power = linalg.scipy.fractional_matrix_power
  for t in (np.inf, -np.inf, np.nan, np.float32(np.inf)):
    with pytest.raises(ValueError, match="_power: t must be finite, got"):
      power(a, t)
  wrong = "fractional_matrix_power: t must be a real number, got <class"
  for t in (0.5j, np.complex128(0.5), "0.5", "x", None):
    with pytest.raises(TypeError, match=wrong):
      power(a, t)  # pyright: ignore[reportArgumentType]
  with pytest.raises(TypeError, match=r"fractional_matrix_power\(\) takes t as an option"):
    jax.jit(power)(a, 0.5)
  for t in (2, np.int64(2), 2.0, True):
    np.testing.assert_array_equal(power(a, t), 4.0 ** int(t) * np.eye(2))


@pytest.mark.extended
@cases.each_double
def test_derivatives_of_logarithms(dtype, rng):
  """The points are a defective matrix and the identity. The third derivative is refused."""
  points = [(x.astype(dtype),) for x in (2 * np.eye(2) + np.eye(2, k=1), np.eye(2))]
  derivatives.check_at_each(linalg.scipy.logm, points, rng, tolerance=1e-7)
  third = jax.grad(jax.grad(jax.grad(lambda x: linalg.scipy.logm(x * jnp.eye(1)).real[0, 0])))
  with pytest.raises(NotImplementedError, match="logm has derivatives of first and second order"):
    third(1.0)


@pytest.mark.extended
@cases.each_dtype(np.complex128, np.complex64)
def test_derivatives_beside_overflow(dtype, rng):
  """The moduli of a direction's elements, and of the matrix's, may exceed the range."""
  size = 0.9 * float(np.finfo(dtype).max)
  near = (1 + 1j) * (np.eye(3) + 0.1 * rng.standard_normal((3, 3)) / 3)
  e = (1 + 1j) * np.ones((3, 3))
  first = lambda a, e: jax.jvp(linalg.scipy.logm, (a,), (e,))[1]
  second = lambda a, e, c: jax.jvp(lambda a: first(a, e), (a,), (c,))[1]
  both = quick_jit(lambda *x: (first(*x[:2]), second(*x)))
  # The derivatives at A / s in the directions E / s are those at A in the directions E.
  expected = both(*(x.astype(dtype) for x in (near, e, e)))
  for scale, scale_of_e in ((64, size), (size / 2, size)):
    a, large = (near * scale).astype(dtype), (e * scale_of_e).astype(dtype)
    assert np.isfinite(a).all() and np.isinf(np.abs(large)).all()
    for found, x in zip(both(a, large, (e * scale).astype(dtype)), expected, strict=True):
      x = np.asarray(x) * (scale_of_e / scale)
      np.testing.assert_allclose(found, x, rtol=0, atol=1e3 * np.finfo(dtype).eps * np.abs(x).max())
