"""Eigenvalues and singular values of matrices that are too large for one per lane.

Sizes are on both sides of each crossover and of tile edges. Some spectra are hard for divide and
conquer.
"""

import numpy as np
import pytest

import cut_offs
import linalg
import matrices
from residuals import assert_orthonormal, in_double
from sharded import same_bits

extended = pytest.mark.extended
ALL_DTYPES = True
ONE_IN = 3


# Sizes near the crossover to tiles, and where leaves of divide and conquer or registers end.
EIGH_SIZES = (
    *cut_offs.about("kLaneEigh", "kLaneEighDouble", "kLaneEigvalsh"), 89, 113, 129, 257)


def _check_eigh(a, w, v, limit=1):
  """Checks the residual, orthogonality and order, to `limit` times n eps."""
  n = a.shape[-1]
  unit = limit * n * float(np.finfo(a.dtype).eps)
  a, w, v = map(in_double, (a, w, v))
  assert (np.diff(w) >= 0).all()
  assert np.abs(a @ v - v * w).max() <= unit * max(np.abs(w).max(), 1e-300)
  assert_orthonormal(v, unit)


def _check_both(a):
  """Checks eigh and eigvalsh of one matrix."""
  w, v = map(np.asarray, linalg.eigh(a))
  _check_eigh(a, w, v)
  expected = np.linalg.eigvalsh(in_double(a))
  unit = a.shape[-1] * float(np.finfo(a.dtype).eps) * np.abs(expected).max()
  for values in (w, np.asarray(linalg.eigvalsh(a))):
    assert np.abs(values - expected).max() <= unit / 2


@pytest.mark.parametrize("n", EIGH_SIZES)
def test_eigh(dtype, n, rng):
  _check_both(matrices.hermitian(rng, (), n, dtype))


@extended
@pytest.mark.parametrize("n", [512, 700])
def test_large_eigh(dtype, n, rng):
  """The passes of these sizes are split into pieces."""
  _check_both(matrices.hermitian(rng, (), n, dtype))


@extended
def test_the_largest_eigh(rng):
  """The largest size in tiles, and the smallest that LAPACK computes."""
  for n, dtype in zip(cut_offs.about("kTileEigh"), (np.float32, np.float64), strict=True):
    _check_both(matrices.hermitian(rng, (), n, np.dtype(dtype)))


@pytest.mark.parametrize("n", [97, 130])
def test_eigh_reads_one_triangle(dtype, n, rng):
  """Catches a register that reads across the diagonal, or beyond the matrix."""
  a = matrices.hermitian(rng, (3,), n, dtype)
  for lower in (True, False):
    unread = (np.triu if lower else np.tril)(np.full_like(a, np.nan), 1 if lower else -1)
    spoilt = (np.tril if lower else np.triu)(a) + unread
    if np.iscomplexobj(a):
      spoilt[:, range(n), range(n)] += np.array(3j, dtype)
    results = [*linalg.eigh(spoilt, "L" if lower else "U", symmetrize_input=False),
               linalg.eigvalsh(spoilt, "L" if lower else "U", symmetrize_input=False)]
    # Both triangles hold the same numbers.
    same_bits(results, [*map(np.asarray, linalg.eigh(a)), np.asarray(linalg.eigvalsh(a))])


def _spectrum(rng, name, n, eps):
  """Returns eigenvalues that deflate in various ways."""
  i = np.arange(n)
  return {
      "equal": np.ones(n),
      "two": np.where(i % 3 == 0, 1.0, -1.0),
      "clusters": i % 5 + eps * rng.standard_normal(n),
      "one_cluster": 1 + 10 * eps * i,
      "one_large": np.where(i == 0, 1.0, eps),
      "geometric": eps ** (i / (n - 1)),
      "low_rank": np.where(i < 7, i + 1.0, 0),
  }[name]


@pytest.mark.parametrize("name", [
    "equal", "two", "clusters", "one_cluster", "one_large", "geometric", "low_rank"])
def test_spectra(dtype, name, rng):
  n = 117
  values = _spectrum(rng, name, n, float(np.finfo(dtype).eps))
  a = matrices.with_eigenvalues(rng, values, dtype).astype(dtype)
  w, v = map(np.asarray, linalg.eigh(a))
  _check_eigh(a, w, v)
  unit = n * np.finfo(dtype).eps * np.abs(values).max()
  for actual in (w, np.asarray(linalg.eigvalsh(a))):
    assert np.abs(actual - np.sort(values)).max() <= unit / 2


@pytest.mark.parametrize("n", [113, 128])
def test_eigh_of_tridiagonal_matrices(dtype, n, rng):
  """Matrices have nothing to reflect, or halves that couple weakly or with either sign."""
  i = np.arange(n)
  eps = np.finfo(dtype).eps
  wilkinson = abs(i - n // 2) / n
  ones = np.ones(n - 1)
  for diagonal, beside in (
      (np.zeros(n), ones), (2 * np.ones(n), -ones), (wilkinson, ones / n),
      (i % 10, np.where(i[1:] % 10 == 0, 4 * eps, 1)), (rng.standard_normal(n), eps * ones),
      (2.0 ** -(i % 60), 2.0 ** -(i[1:] % 60) / 4)):
    a = (np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)).astype(dtype)
    _check_both(a)


@pytest.mark.parametrize("n", [113, 128])
def test_eigh_of_diagonal_matrices(dtype, n, rng):
  """The eigenvalues are the diagonal's elements at any scale. The vectors are identity columns."""
  tiny = float(np.finfo(dtype).smallest_subnormal)
  for diagonal in (np.zeros(n), np.ones(n), rng.permutation(n) - 50.0,
                   np.where(np.arange(n) % 2, 1, -1) * np.geomspace(1e-30, 1, n),
                   tiny * (1 + np.arange(n))):
    a = np.diag(diagonal).astype(dtype)
    w, v = map(np.asarray, linalg.eigh(a))
    np.testing.assert_array_equal(w, np.sort(np.real(a.diagonal())))
    np.testing.assert_array_equal(np.abs(v).sum(0), np.ones(n))
    np.testing.assert_array_equal(np.abs(v).max(0), np.ones(n))
    np.testing.assert_array_equal(linalg.eigvalsh(a), w)


@pytest.mark.parametrize("exponent", [-0.75, 0.95], ids=str)
def test_eigh_near_the_ends_of_the_range(dtype, exponent, rng):
  """A power of two changes only the scale."""
  n = 113
  a = matrices.hermitian(rng, (), n, dtype)
  scale = 2.0 ** np.floor(np.log2(float(np.finfo(dtype).max)) * exponent)
  w, v = map(np.asarray, linalg.eigh(a))
  scaled = (a * scale).astype(dtype)
  scaled_w, scaled_v = map(np.asarray, linalg.eigh(scaled))
  np.testing.assert_array_equal(scaled_w, (w * scale).astype(w.dtype))
  same_bits([scaled_v], [v])
  np.testing.assert_array_equal(linalg.eigvalsh(scaled), (np.asarray(linalg.eigvalsh(a)) * scale))


def test_eigh_of_subnormal_numbers(dtype, rng):
  n = 113
  spacing = float(np.finfo(dtype).smallest_subnormal)
  a = np.round(1000 * rng.standard_normal((n, n)))
  a = a + a.T
  w, v = linalg.eigh((a * spacing).astype(dtype), symmetrize_input=False)
  expected = np.linalg.eigvalsh(a)
  limit = n * float(np.finfo(dtype).eps)
  assert np.abs(in_double(w) / spacing - expected).max() <= 1 + limit * np.abs(expected).max()
  assert_orthonormal(in_double(v), limit)


@pytest.mark.parametrize("n", [*cut_offs.about("kLeastTileTridiagonal"), 41, 70, 129])
def test_eigenvectors_of_tridiagonal_matrices(dtype, n, rng):
  """Each matrix has its own phases; the neighbours of one that is not finite keep their bits."""
  d = rng.standard_normal((3, n)).astype(dtype)
  e = matrices.general(rng, (3,), 1, n - 1, dtype)[:, 0]
  clean = [np.asarray(x) for x in linalg.eigh_tridiagonal(d, e)]
  for diagonal, beside, w, v in zip(d, e, *clean, strict=True):
    a = np.diag(diagonal).astype(dtype) + np.diag(beside, 1) + np.diag(beside.conj(), -1)
    _check_eigh(a, w, v)
  alone = np.asarray(linalg.eigh_tridiagonal(d, e, eigvals_only=True))
  limit = n * float(np.finfo(dtype).eps) / 2
  assert (np.abs(alone - clean[0]).max(-1) <= limit * np.abs(clean[0]).max(-1)).all()
  e[1, -1] = np.nan
  w, v = map(np.asarray, linalg.eigh_tridiagonal(d, e))
  same_bits([w[::2], v[::2]], [x[::2] for x in clean])
  assert np.isnan(w[1]).all() and np.isnan(v[1]).all()
  values = np.asarray(linalg.eigh_tridiagonal(d, e, eigvals_only=True))
  same_bits([values[::2]], [alone[::2]])
  assert np.isnan(values[1]).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_info_of_eigh(dtype, poison, rng):
  """A number that is not finite may be anywhere; the neighbours in the batch keep their bits."""
  n, places = 113, [(0, 0), (112, 112), (70, 3), (111, 95)]
  a = matrices.hermitian(rng, (len(places) + 1,), n, dtype)
  clean = [np.asarray(x) for x in (*linalg.eigh(a[-1]), linalg.eigvalsh(a[-1]))]
  for matrix, (i, j) in zip(a, places, strict=False):
    matrix[i, j] = poison
  for lower in ("L", None):
    w, v, info = map(np.asarray, linalg.eigh_ex(a, lower, symmetrize_input=lower is None))
    values = np.asarray(linalg.eigvalsh(a, lower or "L", symmetrize_input=lower is None))
    np.testing.assert_array_equal(info, [*(-1 for _ in places), 0])
    assert np.isnan(w[:-1]).all() and np.isnan(v[:-1]).all() and np.isnan(values[:-1]).all()
    same_bits([w[-1], v[-1], values[-1]], clean)


# Tall and wide shapes, which QR factors first, near crossovers other than those below.
SVD_SHAPES = [
    ((33, 33), True), ((129, 97), True), ((65, 130), False),
    *(pytest.param(shape, full, marks=extended) for full in (False, True) for shape in (
        (49, 49), (64, 64), (113, 113), (257, 257), (600, 40), (40, 600), (33, 31),
        (34, 9), (9, 34), (100, 1), (1, 100)))]


def _check_svd(a, full=False, limit=1):
  """Checks residual, orthogonality, order, and values without vectors, to `limit` times n eps."""
  m, n = a.shape
  k, unit = min(m, n), limit * max(m, n) * float(np.finfo(a.dtype).eps)
  u, s, vh = (in_double(x) for x in linalg.svd(a, full))
  assert (u.shape, vh.shape) == (((m, m), (n, n)) if full else ((m, k), (k, n)))
  assert (np.diff(s) <= 0).all() and (s >= 0).all()
  expected = np.linalg.svd(in_double(a), compute_uv=False)
  assert np.abs((u[:, :k] * s) @ vh[:k] - a).max() <= unit * expected[0]
  assert_orthonormal(u, unit)
  assert_orthonormal(vh.conj().T, unit)
  for values in (s, np.asarray(linalg.svdvals(a))):
    assert np.abs(values - expected).max() <= unit / 2 * expected[0]


@pytest.mark.parametrize("shape, full", SVD_SHAPES, ids=str)
def test_svd(dtype, shape, full, rng):
  _check_svd(matrices.general(rng, (), *shape, dtype), full)


def test_svd_about_the_cut_offs(dtype, rng):
  """The sizes are at the crossovers to tiles, with vectors and without, and from tiles for narrow
  matrices."""
  orders = cut_offs.about(*{
      np.float32: ("kLaneSvd", "kLaneSvdvals"),
      np.complex64: ("kLaneSvdComplex64", "kLaneSvdvals"),
      np.float64: ("kLaneSvdFloat64", "kLaneSvdvalsDouble"),
      np.complex128: ("kLaneSvdComplex128", "kLaneSvdvalsDouble"),
  }[dtype.type])
  narrow = cut_offs.about("kLeastTileSvd")
  for shape in (*((n, n) for n in orders), *((100, k) for k in narrow), *((k, 70) for k in narrow)):
    # Columns that Jacobi's method normalises have errors up to 1.5 n eps.
    _check_svd(matrices.general(rng, (), *shape, dtype), limit=4)


@extended
@pytest.mark.parametrize("shape", [(600, 600), (530, 900)], ids=str)
def test_large_svd(dtype, shape, rng):
  _check_svd(matrices.general(rng, (), *shape, dtype), limit=4)


@extended
def test_the_largest_svd(rng):
  """The largest size in tiles, and the smallest that LAPACK computes."""
  for n, dtype in zip(cut_offs.about("kTileSvd"), (np.float32, np.float64), strict=True):
    _check_svd(matrices.general(rng, (), n, n, np.dtype(dtype)))


@pytest.mark.parametrize("name", [
    "clusters", "low_rank", "graded",
    *(pytest.param(name, marks=extended)
      for name in ("equal", "two", "one_cluster", "one_large", "geometric"))])
def test_svd_of_spectra(dtype, name, rng):
  """Returns singular values that deflate in various ways. Some are zero."""
  n = 117
  if name == "graded":
    values = np.geomspace(1e-12, 1e12, n)
  else:
    values = np.abs(_spectrum(rng, name, n, float(np.finfo(dtype).eps)))
  _check_svd(matrices.with_singular_values(rng, values, n, n, dtype).astype(dtype))


def _kahan(n):
  """Kahan's triangle, whose smallest singular value is far below its diagonal."""
  sine, cosine = np.sin(1.2), np.cos(1.2)
  return sine ** np.arange(n)[:, None] * (np.eye(n) - cosine * np.triu(np.ones((n, n)), 1))


@pytest.mark.parametrize("n", [113, pytest.param(128, marks=extended)])
def test_svd_of_bidiagonal_matrices(dtype, n, rng):
  """Some matrices have nothing to reflect, have zeros, or are of low rank.

  In others, the halves couple weakly, with either sign, or not at all.
  """
  i = np.arange(n)
  eps = np.finfo(dtype).eps
  ones = np.ones(n - 1)
  for diagonal, above in (
      (np.zeros(n), ones), (np.ones(n), -ones), (np.where(i % 5 == 2, 0, 1.0 + i % 3), ones),
      (i % 10, np.where(i[1:] % 10 == 0, 4 * eps, 1)), (rng.standard_normal(n), eps * ones),
      (2.0 ** -(i % 60), 2.0 ** -(i[1:] % 60) / 4),
      (1e-12 + np.where(i == n // 2, 1, 0), 0 * ones)):
    _check_svd((np.diag(diagonal) + np.diag(above, 1)).astype(dtype))
  for a in (np.outer(i + 1.0, i - 50.0), _kahan(n), np.triu(np.ones((n, n))), np.ones((n, n))):
    _check_svd(a.astype(dtype))


@pytest.mark.parametrize("tiny", [-1e-30, -0.0])
def test_no_negative_singular_value(dtype, tiny):
  """A diagonal element is tiny, or -0, at each place between the halves."""
  n = 40
  a = np.tile(np.diag(-np.linspace(1, 2, n)), (n, 1, 1))
  a[np.arange(n), np.arange(n), np.arange(n)] = tiny
  expected = -np.sort(-np.abs(a.diagonal(axis1=-2, axis2=-1)))
  for s in (linalg.svdvals(a.astype(dtype)), linalg.svd(a.astype(dtype))[1]):
    assert not np.signbit(s).any()
    np.testing.assert_allclose(s, expected, rtol=8 * np.finfo(dtype).eps, atol=1e-36)



def test_svd_of_diagonal_matrices(dtype, rng):
  """The singular values are the diagonal's moduli at any scale.

  The vectors are identity columns.
  """
  n = 113
  tiny = float(np.finfo(dtype).smallest_subnormal)
  for diagonal in (np.zeros(n), np.ones(n), rng.permutation(n) - 50.0,
                   np.where(np.arange(n) % 2, 1, -1) * np.geomspace(1e-30, 1, n),
                   tiny * (1 + np.arange(n))):
    a = np.diag(diagonal).astype(dtype)
    u, s, vh = map(np.asarray, linalg.svd(a))
    np.testing.assert_array_equal(s, np.sort(np.abs(np.real(a.diagonal())))[::-1])
    np.testing.assert_array_equal(linalg.svdvals(a), s)
    for x in (u, vh):
      np.testing.assert_array_equal(np.abs(x).sum(0), np.ones(n))
      np.testing.assert_array_equal(np.abs(x).max(0), np.ones(n))


@extended
@pytest.mark.parametrize("exponent", [-0.75, 0.95], ids=str)
@pytest.mark.parametrize("shape", [(113, 113), (70, 120)], ids=str)
def test_svd_near_the_ends_of_the_range(dtype, shape, exponent, rng):
  """A power of two changes only the scale."""
  a = matrices.general(rng, (), *shape, dtype)
  scale = 2.0 ** np.floor(np.log2(float(np.finfo(dtype).max)) * exponent)
  u, s, vh = map(np.asarray, linalg.svd(a))
  scaled = (a * scale).astype(dtype)
  scaled_u, scaled_s, scaled_vh = map(np.asarray, linalg.svd(scaled))
  np.testing.assert_array_equal(scaled_s, (s * scale).astype(s.dtype))
  same_bits([scaled_u, scaled_vh], [u, vh])


@pytest.mark.parametrize("shape", [(113, 113), pytest.param((40, 70), marks=extended)], ids=str)
def test_info_of_svd(dtype, shape, rng):
  """A number that is not finite may be anywhere; the neighbours in the batch keep their bits."""
  m, n = shape
  places = [(0, 0, np.nan), (m - 1, n - 1, np.inf), (m // 2, 3, -np.inf), (m - 1, n // 2, np.nan)]
  a = matrices.general(rng, (len(places) + 2,), m, n, dtype)
  clean = [np.asarray(x) for x in (*linalg.svd(a), linalg.svdvals(a))]
  for matrix, (i, j, poison) in zip(a[1:], places, strict=False):
    matrix[i, j] = poison
  u, s, vh, info = map(np.asarray, linalg.svd_ex(a))
  values, info_of_values = map(np.asarray, linalg.svdvals_ex(a))
  for x in (info, info_of_values):
    np.testing.assert_array_equal(x, [0, *(-1 for _ in places), 0])
  for x, was in zip((u, s, vh, values), clean, strict=True):
    assert np.isnan(x[1:-1]).all()
    same_bits([x[0], x[-1]], [was[0], was[-1]])
