"""Entries at both ends of the range: subnormal, and near overflow.

XLA flushes subnormals to zero in its own computations. Squares of large entries overflow. A
determinant is often out of range where none of its factors is.
"""

import numpy as np
import pytest

import linalg
import matrices
from linalg._catalogue import checks

ALL_DTYPES = True
ONE_IN = 3


def _subnormal(dtype):
  """A power of two near a hundred thousand times the smallest subnormal."""
  return float(np.finfo(dtype).smallest_subnormal) * 2.0**17


def _error(a, product, dtype):
  """Returns the worst entry of product - A in units of n eps ||A|| + the smallest subnormal."""
  finfo = np.finfo(dtype)
  unit = a.shape[-1] * float(finfo.eps) * np.abs(a).max() + float(finfo.smallest_subnormal)
  # The unit and the error may be subnormal in double precision, so use long doubles.
  return float(np.max(np.abs(product - a)).astype(np.longdouble) / np.longdouble(unit))


def _long(x):
  x = np.asarray(x)
  return x.astype(np.clongdouble if np.iscomplexobj(x) else np.longdouble)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_subnormal_identity(dtype, n):
  """Stock JAX gives eigenvalues of zero."""
  tiny = _subnormal(dtype)
  a = tiny * np.eye(n, dtype=dtype)
  w, v = linalg.eigh(a)
  np.testing.assert_array_equal(w, np.full(n, tiny, w.dtype))
  np.testing.assert_array_equal(np.abs(v), np.eye(n))
  np.testing.assert_array_equal(linalg.eigvalsh(a), w)
  np.testing.assert_allclose(
      np.diag(linalg.cholesky(a)).real, np.full(n, tiny**0.5), rtol=4 * np.finfo(dtype).eps)
  u, s, vh = linalg.svd(a)
  np.testing.assert_array_equal(s, w)
  np.testing.assert_array_equal(u @ vh, np.eye(n))
  np.testing.assert_array_equal(linalg.eigvals(a), w)
  np.testing.assert_array_equal(linalg.schur(a)[0], a)
  np.testing.assert_array_equal(linalg.lu(a)[0], a)
  np.testing.assert_array_equal(np.abs(linalg.qr(a).R), a.real)
  np.testing.assert_allclose(linalg.solve(a, a), np.eye(n), rtol=4 * np.finfo(dtype).eps)
  sign, logabsdet = linalg.slogdet(a)
  assert sign == 1
  np.testing.assert_allclose(logabsdet, n * np.log(tiny), rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("name", ["cholesky", "lu", "qr", "eigh", "svd", "schur", "solve"])
def test_subnormal(name, dtype, n, rng):
  """The factors are right to the spacing of subnormal numbers."""
  general = (_subnormal(dtype) * matrices.well_conditioned(rng, (), n, dtype)).astype(dtype)
  hermitian = (general + general.conj().T) / 2
  definite = (_subnormal(dtype) * matrices.positive_definite(rng, (), n, dtype)).astype(dtype)
  if name == "cholesky":
    a, l = definite, _long(linalg.cholesky(definite))
    product = l @ l.conj().T
  elif name == "lu":
    packed, _, permutation = linalg.lu(general)
    packed = _long(packed)
    a, product = general[permutation], (np.tril(packed, -1) + np.eye(n)) @ np.triu(packed)
  elif name == "qr":
    q, r = linalg.qr(general)
    a, product = general, _long(q) @ _long(r)
  elif name == "eigh":
    w, v = linalg.eigh(hermitian)
    assert np.all(np.diff(w) >= 0)
    a, v = hermitian, _long(v)
    product = (v * _long(w)) @ v.conj().T
  elif name == "svd":
    u, s, vh = linalg.svd(general)
    assert np.all(np.diff(s) <= 0)
    a, product = general, (_long(u) * _long(s)) @ _long(vh)
  elif name == "schur":
    t, z = linalg.schur(general)
    a, product = general, _long(z) @ _long(t) @ _long(z).conj().T
  else:
    x = np.ones((n, 1), dtype)
    b = general @ x
    a, product = b, _long(general) @ _long(linalg.solve(general, b))
  assert _error(_long(a), product, dtype) <= 30


def test_subnormal_on_every_thread(dtype):
  """Catches a floating-point mode that is set on one thread and not on the others."""
  a = np.tile(_subnormal(dtype) * np.array([[4, 1], [1, 3]], dtype), (50_000, 1, 1))
  for x in (linalg.cholesky(a), linalg.eigvalsh(a), linalg.qr(a).R, linalg.lu(a)[0]):
    assert np.all(x == x[:1])
    assert np.all(np.any(np.asarray(x[0]) != 0, axis=-1))


def test_near_overflow(dtype, rng):
  """The sum of an element and its mirror, or of a row, may overflow where no result does."""
  n, large = 4, float(np.finfo(dtype).max) / 16
  unit = np.asarray(matrices.positive_definite(rng, (), n, dtype))
  unit = (unit + unit.conj().T) / (2 * np.abs(unit).max())
  limit = 30 * n * np.finfo(dtype).eps
  unscaled = {
      "cholesky": lambda a, scale: np.asarray(linalg.cholesky(a)) / scale**0.5,
      "eigvalsh": lambda a, scale: np.asarray(linalg.eigvalsh(a)) / scale,
      "eigh": lambda a, scale: np.asarray(linalg.eigh(a).eigenvalues) / scale,
      "svdvals": lambda a, scale: np.asarray(linalg.svdvals(a)) / scale,
      "svd": lambda a, scale: np.asarray(linalg.svd(a).S) / scale,
      "eigvals": lambda a, scale: np.sort(linalg.eigvals(a).real) / scale,
      "schur": lambda a, scale: np.abs(linalg.schur(a)[0]) / scale,
      "qr": lambda a, scale: np.asarray(linalg.qr(a).R) / scale,
      "lu": lambda a, scale: np.triu(linalg.lu(a)[0]) / scale,
      "inv": lambda a, scale: np.asarray(linalg.inv(a)) * scale,
  }
  # Scaling by a power of 4 rounds nothing.
  large = 4.0 ** np.floor(np.log(large) / np.log(4))
  for name, function in unscaled.items():
    actual, expected = function((large * unit).astype(dtype), large), function(unit, 1.0)
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=limit * np.abs(expected).max(), err_msg=name)


@pytest.mark.parametrize("exponent", [-0.6, 0.6, 0.9], ids=str)
@pytest.mark.parametrize("mode", ["reduced", "complete", "raw"])
def test_columns_whose_squares_are_out_of_range(mode, exponent, dtype, rng):
  """The norm of such a column is 0 or inf in stock JAX and NumPy; a reflector's must not be."""
  finfo = np.finfo(dtype)
  scale = 2.0 ** np.floor(np.log2(float(finfo.max)) * exponent)
  a = matrices.general(rng, (), 5, 3, dtype)
  q, r = linalg.qr((scale * a).astype(dtype), mode)
  expected_q, expected_r = linalg.qr(a, mode)
  if mode == "raw":
    q, expected_q, r, expected_r = map(np.asarray, (q, expected_q, r, expected_r))
    # The upper triangle of the transpose is R's. The reflectors below it do not scale.
    factor = np.where(np.tri(3, 5, dtype=bool), 1 / scale, 1)
    q, expected_q, r, expected_r = q * factor, expected_q, r * scale, expected_r * scale
  limit = 30 * 5 * float(finfo.eps)
  np.testing.assert_allclose(q, expected_q, rtol=0, atol=limit * np.abs(expected_q).max())
  np.testing.assert_allclose(
      checks.wide(r) / scale, expected_r / (scale if mode == "raw" else 1), rtol=0,
      atol=limit * np.abs(expected_r).max())


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_determinant_whose_parts_are_out_of_range(dtype, n):
  """A determinant overflows or underflows only if the result does, not if a partial product
  does."""
  finfo = np.finfo(dtype)
  large = 2.0 ** int(np.log2(float(finfo.max)) * 0.7)
  diagonal = np.ones(n)
  diagonal[:2] = large, 1 / large
  for shift in range(n):
    a = np.diag(np.roll(diagonal, shift)).astype(dtype)
    assert linalg.det(a) == 1
  if n > 2:
    diagonal[:3] = 1 / large, large, large
    for shift in range(n):
      assert linalg.det(np.diag(np.roll(diagonal, shift)).astype(dtype)) == large
  assert linalg.det(np.full((n, n), large, dtype)) == 0
  overflow = np.diag([-large, large, *np.ones(n - 2)]).astype(dtype)
  assert np.isinf(linalg.det(overflow))
  assert linalg.det(overflow).real == -np.inf
  assert linalg.det((np.eye(n) / large).astype(dtype)) == 0


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_slogdet_out_of_range(dtype, n):
  """slogdet holds determinants that det cannot: it must not take the logarithm of a product."""
  large = 2.0 ** int(np.log2(float(np.finfo(dtype).max)) * 0.9)
  for value in (large, 1 / large):
    sign, logabsdet = linalg.slogdet(value * np.eye(n, dtype=dtype))
    assert sign == 1
    np.testing.assert_allclose(logabsdet, n * np.log(value), rtol=30 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_slogdet_of_an_infinite_pivot(dtype, n):
  """Infinity has a sign, although inf / |inf| is NaN."""
  for value in (np.inf, -np.inf):
    a = np.diag([value, *np.ones(n - 1)]).astype(dtype)
    expected = np.linalg.slogdet(a)
    np.testing.assert_array_equal(linalg.slogdet(a), expected)
    np.testing.assert_array_equal(linalg.det(a), value)
