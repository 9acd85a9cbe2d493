"""Laws that hold for every matrix, on matrices that hypothesis searches for."""

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax
import numpy as np

import cases
import linalg
from linalg._catalogue import checks

# Compiling is slow, so there is no deadline and few examples.
settings = hypothesis.settings(deadline=None, max_examples=20, derandomize=True)
SIZES = st.integers(1, 9)
DTYPES = st.sampled_from(cases.DTYPES)


def _elements(dtype):
  """Elements include ties, zeros and numbers whose squares are out of range."""
  limit = 1e25 if np.finfo(dtype).bits == 32 else 1e200
  width = np.finfo(dtype).bits
  real = st.one_of(
      st.sampled_from([0.0, 1.0, -1.0, 0.5, 1 / limit, limit]),
      st.floats(-4, 4, width=width, allow_subnormal=False))
  if np.dtype(dtype).kind == "c":
    return st.builds(complex, real, real)
  return real


def _quarters(dtype):
  """Elements whose products are far from the ends of the range."""
  real = st.integers(-16, 16).map(lambda x: x / 4)
  return st.builds(complex, real, real) if np.dtype(dtype).kind == "c" else real


@st.composite
def matrices(draw, square=False, elements=_elements):
  dtype = draw(DTYPES)
  n = draw(SIZES)
  shape = (n, n if square else draw(SIZES))
  return draw(arrays.arrays(dtype, shape, elements=elements(dtype)))


def _case(name):
  case = cases.named(name)
  return case


def _residual(name, *operands):
  case = _case(name)
  batch = tuple(x[None] for x in operands)
  results = [np.asarray(x) for x in case.results(*batch)]
  assert case.ratio(batch, results) <= case.limit
  return results


@settings
@hypothesis.given(matrices())
def test_lu(a):
  """P A = L U, and no multiplier exceeds 1, because the pivots were the largest."""
  packed, _, _ = _residual("lu", a)
  l = np.tril(packed[0], -1)
  size = abs(l.real) + abs(l.imag)
  # A pivot is the largest by |re| + |im|, so the modulus of a multiplier may reach the root of 2.
  assert np.all(size <= (2 if np.iscomplexobj(l) else 1) * (1 + 4 * checks.eps(packed)))


@settings
@hypothesis.given(matrices())
def test_qr(a):
  _residual("qr", a)
  _residual("qr_complete", a)


@settings
@hypothesis.given(matrices(square=True))
def test_eigh(a):
  """The trace is the sum of the eigenvalues, which do not depend on the order of the rows."""
  a = np.tril(a) + np.tril(a, -1).conj().T
  a = a - 1j * np.diag(np.diag(a).imag).astype(a.dtype) if np.iscomplexobj(a) else a
  w, _ = _residual("eigh", a)
  turned = np.asarray(linalg.eigvalsh(a[::-1, ::-1]))
  unit = len(a) * checks.eps(w) * np.abs(w).max()
  assert np.abs(w[0] - turned).max() <= 60 * unit
  assert abs(checks.wide(w).sum() - np.trace(checks.wide(a)).real) <= 60 * len(a) * unit


@settings
@hypothesis.given(matrices())
def test_cholesky_of_a_gram_matrix(a):
  """L Lᴴ = A. If A is singular up to rounding, the result is NaN and info names the minor."""
  a = a[np.abs(a).max(axis=1) < 1e10] if a.size else a
  hypothesis.assume(len(a))
  gram = a @ a.conj().T
  factor, info = linalg.cholesky_ex(gram)
  if info:
    assert 1 <= info <= len(gram)
    assert np.isnan(np.asarray(factor)[np.tril_indices(len(gram))]).all()
  else:
    _residual("cholesky", gram)


@settings
@hypothesis.given(SIZES.flatmap(lambda n: st.permutations(range(n))), DTYPES)
def test_permutations(order, dtype):
  """The determinant is the sign. Neither LU's solutions nor QR round anything."""
  n = len(order)
  a = np.eye(n, dtype=dtype)[order]
  sign = np.linalg.det(a.real)
  np.testing.assert_array_equal(linalg.det(a), np.round(sign))
  np.testing.assert_array_equal(linalg.slogdet(a), (np.round(sign), 0))
  b = np.arange(2 * n).reshape(n, 2).astype(dtype)
  np.testing.assert_array_equal(linalg.solve(a, b), a.T @ b)
  np.testing.assert_array_equal(linalg.inv(a), a.T)
  q, r = map(np.asarray, linalg.qr(a))
  np.testing.assert_array_equal(np.abs(q), a.real)
  np.testing.assert_array_equal(q @ r, a)


@settings
@hypothesis.given(matrices(square=True, elements=_quarters), st.integers(-8, 8))
def test_powers_of_two(a, exponent):
  """Powers of two scale the results and change no other bit."""

  def results(a, scale):
    packed, pivots, _ = map(np.asarray, linalg.lu(a))
    q, r = linalg.qr(a)
    w, v = linalg.eigh(a)
    u, s, vh = linalg.svd(a)
    x, info = linalg.inv_ex(a)
    sign, _ = linalg.slogdet(a)
    return {
        "lu": (np.tril(packed, -1), pivots, np.triu(packed) / scale), "qr": (q, r / scale),
        "eigh": (w / scale, v), "eigvalsh": (linalg.eigvalsh(a) / scale,),
        "svd": (u, s / scale, vh), "svdvals": (linalg.svdvals(a) / scale,),
        "inv": (x * scale, info), "det": (sign, linalg.det(a) / scale ** len(a))}

  scale = 2.0**exponent
  expected, actual = results(a, 1.0), results(a * a.dtype.type(scale), scale)
  for name, values in expected.items():
    for x, y in zip(values, actual[name], strict=True):
      np.testing.assert_array_equal(np.asarray(x), np.asarray(y), name)


@settings
@hypothesis.given(matrices(square=True), st.integers(1, 40), st.integers(0, 39))
def test_batch_invariance(a, length, place):
  """A matrix has the same bits alone and anywhere in any batch, whatever its neighbours are."""
  place %= length
  batch = np.full((length, *a.shape), np.nan, a.dtype)
  batch[place] = a
  for function in (linalg.lu, linalg.qr, linalg.eigh, linalg.inv_ex, linalg.slogdet):
    alone, among = function(a), function(batch)
    for x, y in zip(alone, among, strict=True):
      np.testing.assert_array_equal(np.asarray(x), np.asarray(y)[place])


@settings
@hypothesis.given(matrices(square=True), st.data())
def test_derivative_is_linear(a, data):
  """J (s t + u) = s J t + J u, with the JVP of an LU solve."""
  a = a + (1 + np.abs(a).sum()) * np.eye(len(a), dtype=a.dtype)
  elements = st.floats(-1, 1, width=np.finfo(a.dtype).bits)
  t, u = (data.draw(arrays.arrays(a.dtype, a.shape, elements=elements)) for _ in range(2))
  slope = lambda t: np.asarray(jax.jvp(linalg.inv, (a,), (t,))[1])
  both, parts = slope(a.dtype.type(2) * t + u), 2 * slope(t) + slope(u)
  scale = np.abs(slope(t)).max() + np.abs(slope(u)).max()
  assert np.abs(both - parts).max() <= 100 * checks.eps(parts) * max(scale, 1e-30)
