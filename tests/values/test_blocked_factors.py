"""Factors and solutions of matrices that are too large for one per lane.

The sizes are on both sides of each crossover and of the edges of tiles.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import cut_offs
import linalg
import matrices
import selection
from linalg._factorizations.cholesky import cholesky_full_jvp_p, cholesky_full_vjp_p
from residuals import assert_near, assert_orthonormal, in_double
from sharded import same_bits

# Orders around the crossovers to tiles, and where rows, registers and panels of a tile end.
EDGES = (
    *cut_offs.about("kLaneCholesky"), 48, 49, 57, 61, 67, 72, 96, 97, 130)
# Several blocks of 128 rows or columns, and a partial one.
BLOCKS = 512
extended = pytest.mark.extended
ALL_DTYPES = True
ONE_DTYPE = True
ONE_IN = 3


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize("n", [*EDGES, BLOCKS, BLOCKS + 1])
def test_cholesky(dtype, n, lower, rng):
  a = matrices.positive_definite(rng, (), n, dtype)
  factor = np.asarray(linalg.cholesky(a, upper=not lower))
  np.testing.assert_array_equal(factor, np.tril(factor) if lower else np.triu(factor))
  diagonal = factor.diagonal()
  assert (np.real(diagonal) > 0).all() and (np.imag(diagonal) == 0).all()
  x = in_double(factor)
  assert_near(x @ x.conj().T if lower else x.conj().T @ x, a, n, dtype)


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize("n", [65, 67, 97])
def test_cholesky_reads_one_triangle(dtype, n, lower, rng):
  """Catches a tile that reaches over the diagonal, or beyond the matrix."""
  a = matrices.positive_definite(rng, (3,), n, dtype)
  half = (np.tril if lower else np.triu)(a)
  unread = (np.triu if lower else np.tril)(np.full_like(a, np.nan), 1 if lower else -1)
  spoilt = half + unread
  if np.iscomplexobj(a):
    spoilt[:, range(n), range(n)] += np.array(3j, dtype)
  factor = linalg.cholesky(spoilt, upper=not lower, symmetrize_input=False)
  same_bits([factor], [np.asarray(linalg.cholesky(half, upper=not lower, symmetrize_input=False))])
  x = in_double(factor)
  adjoint = x.conj().swapaxes(-1, -2)
  assert_near(x @ adjoint if lower else adjoint @ x, a, n, dtype)


@pytest.mark.parametrize("n", [65, 72, 130])
def test_cholesky_of_a_leading_block(dtype, n, rng):
  """Catches rounding that depends on the size, or on where a tile ends."""
  a = matrices.positive_definite(rng, (), 200, dtype)
  whole = np.asarray(linalg.cholesky(a))
  same_bits([linalg.cholesky(a[:n, :n])], [whole[:n, :n]])


@pytest.mark.parametrize("poison", [-1, 0, np.nan])
@pytest.mark.parametrize("n, places", [
    (67, [0, 5, 7, 8, 31, 63, 64, 66]), (BLOCKS + 1, [0, 130, BLOCKS])],
    ids=["few tiles", "many tiles"])
def test_info_of_cholesky(dtype, n, places, poison, rng):
  """The first pivot that is not positive may be in any row.

  It is in the first row, inside a tile, at its ends, or in the last row. The neighbours in the
  batch keep their bits.
  """
  a = matrices.positive_definite(rng, (len(places) + 1,), n, dtype)
  clean = np.asarray(linalg.cholesky(a[-1]))
  for matrix, place in zip(a, places, strict=False):
    matrix[place, place] = poison
  factor, info = linalg.cholesky_ex(a)
  np.testing.assert_array_equal(info, [*(place + 1 for place in places), 0])
  lower = np.tril(np.ones((n, n), bool))
  assert np.isnan(np.asarray(factor)[:-1, lower]).all()
  assert (np.asarray(factor)[:-1, ~lower] == 0).all()
  same_bits([factor[-1]], [clean])


@pytest.mark.parametrize("n", [65, 600])
def test_cholesky_of_subnormal_numbers(n):
  """Entries near the smallest normal number have factors below it. The larger size is shared by
  threads, which must not flush those to zero."""
  for dtype in (np.float32, np.float64):
    tiny = np.finfo(dtype).tiny
    a = np.full((n, n), tiny, dtype) + np.diag(np.linspace(1, 2, n)).astype(dtype)
    x = in_double(linalg.cholesky(a))
    assert (x[1:, 0] == tiny / x[0, 0]).all()
    a[1:, 0] = a[0, 1:] = tiny / 8
    x = np.asarray(linalg.cholesky(a))
    assert (x[1:, 0] == dtype(tiny / 8)).all()


def _check_lu(a, packed, pivots, permutation):
  m, n = a.shape
  k = min(m, n)
  x = in_double(packed)
  l, u = np.tril(x[:, :k], -1) + np.eye(m, k), np.triu(x[:k])
  assert_near(l @ u, a[permutation], max(m, n), a.dtype)
  magnitude = lambda x: np.abs(np.real(x)) + np.abs(np.imag(x))
  order = np.arange(m)
  for step, pivot in enumerate(pivots):
    # The pivot is the largest of the elements that it eliminates.
    assert (magnitude(x[step + 1:, step] * x[step, step])
            <= magnitude(x[step, step]) * (1 + 8 * np.finfo(a.dtype).eps)).all()
    order[[step, pivot]] = order[[pivot, step]]
  np.testing.assert_array_equal(order, permutation)


@pytest.mark.parametrize("shape", [
    *((n, n) for n in (*cut_offs.about("kLaneLu"), 40, 49, 64, 67, 97, 130)),
    (BLOCKS + 1, BLOCKS + 1), (33, 8), (97, 34), (70, 64), (8, 33), (34, 97), (64, 70), (49, 50)],
    ids=str)
def test_lu(dtype, shape, rng):
  a = matrices.general(rng, (), *shape, dtype)
  packed, pivots, permutation, _ = map(np.asarray, linalg.lu_ex(a))
  _check_lu(a, packed, pivots, permutation)


@pytest.mark.parametrize("n", [33, 64, 67])
def test_ties_go_to_the_first_row(dtype, n, rng):
  """The matrix has ones and minus ones, so that only LAPACK's rule decides its pivots."""
  a = np.sign(rng.standard_normal((n, n))).astype(dtype)
  a[5:9] = a[4] * np.array([1, -1, 1, -1])[:, None].astype(dtype)  # and a singular one
  packed, pivots, _, info = map(np.asarray, linalg.lu_ex(a))
  expected = a.copy()
  for k, pivot in enumerate(pivots[:4]):
    size = np.abs(np.real(expected[k:, k])) + np.abs(np.imag(expected[k:, k]))
    assert pivot == k + np.argmax(size)
    expected[[k, pivot]] = expected[[pivot, k]]
    expected[k + 1:, k] /= expected[k, k]
    expected[k + 1:, k + 1:] -= np.outer(expected[k + 1:, k], expected[k, k + 1:])
  assert info > 0 and packed[info - 1, info - 1] == 0
  assert (packed[info:, info - 1] == 0).all()


# The first two are as large as one per lane takes, and one column more.
@pytest.mark.parametrize("n, cols", [(32, 8), (32, 9), *(
    (n, cols) for n in (33, 48, 67, 130, BLOCKS + 1) for cols in (1, 3, 24, 25, 67))])
def test_solve(dtype, n, cols, rng):
  a = matrices.well_conditioned(rng, (2,), n, dtype)
  b = matrices.general(rng, (2,), n, cols, dtype)
  # One matrix also serves the whole batch, in one call and as a factor of it.
  shared = jax.vmap(linalg.solve, in_axes=(None, 0))
  for left, function in ((a, linalg.solve), (a[0], linalg.solve), (a[0], shared)):
    x = in_double(function(left, b))
    residual = np.abs(in_double(left) @ x - b).max()
    assert residual <= 4 * n * np.finfo(dtype).eps * np.abs(a).sum(-1).max() * np.abs(x).max()


@pytest.mark.parametrize("n", [20, 40, BLOCKS + 1])
def test_one_matrix_of_subnormal_numbers(n):
  """XLA would treat these numbers as zeros. The matrix is factored once for the whole batch."""
  tiny = np.float32(2.0**-140)
  solve = jax.vmap(linalg.solve, in_axes=(None, 0))
  x = solve(tiny * np.eye(n, dtype=np.float32), np.full((3, n, 2), tiny))
  np.testing.assert_array_equal(x, 1)


@pytest.mark.parametrize("n", [32, *(pytest.param(n, marks=extended) for n in (33, 64)), 100])
def test_no_zero_is_negative(dtype, n):
  """The difference of two equal numbers is +0 on every path."""
  two = np.array([[2, 1], [1, 2]])
  a = np.kron(np.eye(n // 2 + 1), two)[:n, :n].astype(dtype)
  for result in (linalg.cholesky(a), linalg.lu(a)[0], linalg.inv(np.eye(n, dtype=dtype)),
                 linalg.solve(a, a)):
    for part in (np.real(result), np.imag(result)):
      assert not np.signbit(part[part == 0]).any()


@pytest.mark.parametrize("n", [65, 67])
def test_cholesky_of_the_hermitian_part(dtype, n, rng):
  a = matrices.positive_definite(rng, (), n, dtype)
  skew = matrices.general(rng, (), n, n, dtype)
  given = (a + skew - skew.conj().T).astype(dtype)
  x = in_double(linalg.cholesky(given))
  given = in_double(given)
  assert_near(x @ x.conj().T, (given + given.conj().T) / 2, 4 * n, dtype)


@pytest.mark.parametrize("n", [33, 48, 67, 130, BLOCKS + 1])
def test_inverse_and_determinant(dtype, n, rng):
  a = matrices.well_conditioned(rng, (2,), n, dtype)
  x = in_double(linalg.inv(a))
  error = np.abs(in_double(a) @ x - np.eye(n)).max()
  scale = np.abs(a).sum(-1).max() * np.abs(x).max()
  assert error <= 4 * n * np.finfo(dtype).eps * scale
  sign, logarithm = linalg.slogdet(a)
  expected = np.linalg.slogdet(in_double(a))
  tolerance = 20 * n * float(np.finfo(dtype).eps)
  np.testing.assert_allclose(sign, expected.sign, atol=tolerance)
  np.testing.assert_allclose(logarithm, expected.logabsdet, atol=tolerance * n)


@pytest.mark.parametrize("n", [33, 65])
def test_singular_matrices(dtype, n, rng):
  """info names a zero column, and solutions are NaN. An entry that is NaN has the same effect.

  The neighbours in the batch keep their bits.
  """
  a = matrices.well_conditioned(rng, (5,), n, dtype)
  clean = np.asarray(linalg.inv(a[-1]))
  for matrix, place in zip(a, (0, 9, n - 1), strict=False):
    matrix[:, place] = 0
  a[3, n - 1, n - 1] = np.nan
  packed, pivots, permutation, info = map(np.asarray, linalg.lu_ex(a))
  np.testing.assert_array_equal(info, [1, 10, n, -1, 0])
  for i in range(3):
    _check_lu(a[i], packed[i], pivots[i], permutation[i])
  inverse = np.asarray(linalg.inv(a))
  x = np.asarray(linalg.solve(a, np.ones((5, n, 3), dtype)))
  assert np.isnan(inverse[:4]).all() and np.isnan(x[:4]).all()
  assert np.isfinite(x[-1]).all()
  same_bits([inverse[-1]], [clean])
  np.testing.assert_array_equal(np.asarray(linalg.det(a))[:3], 0)


@pytest.mark.parametrize("n", [33, 67])
def test_columns_of_nan(dtype, n, rng):
  """A column of NaN has no largest element, so the diagonal element stays the pivot."""
  a = matrices.well_conditioned(rng, (2,), n, dtype)
  clean = [np.asarray(x)[1] for x in linalg.lu_ex(a)]
  place = 18
  a[0, :, place] = np.nan
  packed, pivots, permutation, info = map(np.asarray, linalg.lu_ex(a))
  assert info[0] == -1
  assert pivots[0, place] == place
  np.testing.assert_array_equal(np.sort(permutation[0]), np.arange(n))
  assert np.isnan(packed[0, :, place]).all()
  same_bits([packed[1], pivots[1], permutation[1], info[1]], clean)


@pytest.mark.parametrize("shape", [(0, 40), (40, 0), (0, 0)], ids=str)
def test_empty_matrices(dtype, shape):
  m, n = shape
  packed, pivots, permutation, info = linalg.lu_ex(np.zeros((2, *shape), dtype))
  assert (packed.shape, pivots.shape) == ((2, m, n), (2, 0))
  np.testing.assert_array_equal(permutation, np.tile(np.arange(m), (2, 1)))
  np.testing.assert_array_equal(info, [0, 0])
  q, r = linalg.qr(np.zeros((2, m, 3 * n), dtype), "complete")
  np.testing.assert_array_equal(q, np.tile(np.eye(m), (2, 1, 1)))
  assert r.shape == (2, m, 3 * n)
  # There are no right-hand sides.
  eye = np.eye(70, dtype=dtype)
  nothing = np.zeros((70, 0), dtype)
  for x in (linalg.solve(eye, nothing), linalg.triangular_solve(eye, nothing, left_side=True)):
    assert x.shape == (70, 0)


@pytest.mark.parametrize("n", [40, 67])
def test_tiny_pivots_of_full_matrices(dtype, n, rng):
  """For subnormal entries, the factors are right to the spacing of subnormal numbers."""
  spacing = float(np.finfo(dtype).smallest_subnormal)
  a = (np.round(1000 * rng.standard_normal((n, n))) * spacing).astype(dtype)
  packed, _, permutation, info = map(np.asarray, linalg.lu_ex(a))
  assert info == 0
  x, up = in_double(packed), 2.0**60
  product = (np.tril(x, -1) + np.eye(n)) @ (np.triu(x) * up)
  assert np.abs(product - in_double(a)[permutation] * up).max() <= 2 * n * (spacing * up)


def test_tiny_and_large_pivots(rng):
  """The reciprocals of these pivots are out of range."""
  n = 40
  for dtype in (np.float32, np.float64, np.complex64, np.complex128):
    finfo = np.finfo(dtype)
    b = matrices.general(rng, (), n, 3, np.dtype(dtype))
    for size in (float(finfo.smallest_subnormal) * 64, float(finfo.tiny), float(finfo.max) / 8):
      a = (size * np.diag(rng.integers(1, 4, n))).astype(dtype)
      right = np.asarray(b * dtype(finfo.tiny if size < 1 else 1), dtype)
      x = np.asarray(linalg.solve(a, right))
      # Real and imaginary parts are divided apart, because complex division overflows.
      for part in (np.real, np.imag):
        np.testing.assert_allclose(
            part(x), part(right) / np.real(a.diagonal())[:, None], rtol=64 * float(finfo.eps),
            atol=4 * float(finfo.smallest_subnormal))


# Orders around the crossovers to and from tiles, and where panels and blocks of reflectors end.
QR_SHAPES = (
    *((n, n) for n in (*cut_offs.about("kLaneQr"), 79, 81, 97, 130, BLOCKS + 1)),
    pytest.param((BLOCKS, BLOCKS), marks=extended), (BLOCKS + 1, 40), (129, 65),
    (73, 4), (128, 7), (128, 8), (130, 15), (130, 16), (200, 17), (600, 10), (48, 73), (49, 73),
    (48, 128), (48, 129), (17, 130), (1, 130), (40, BLOCKS + 1), (65, 129))


def _well_conditioned(rng, m, n, dtype):
  return matrices.well_conditioned(rng, (), max(m, n), dtype)[:m, :n]


@selection.in_turn(2, "shape")
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", QR_SHAPES, ids=str)
def test_qr(dtype, shape, mode, rng):
  m, n = shape
  a = _well_conditioned(rng, m, n, dtype)
  expected = np.linalg.qr(in_double(a), mode)
  if mode == "r":
    r, expected_r = np.asarray(linalg.qr(a, mode)), expected
  else:
    (q, r), expected_r = map(np.asarray, linalg.qr(a, mode)), expected.R
    assert q.shape == expected.Q.shape
    assert_near(in_double(q) @ in_double(r), a, max(m, n), dtype)
    assert_orthonormal(in_double(q), 2 * max(m, n) * np.finfo(dtype).eps)
  # The signs are LAPACK's.
  assert r.shape == expected_r.shape
  assert_near(r, expected_r, max(m, n), dtype)
  np.testing.assert_array_equal(r, np.triu(r))
  assert (np.imag(r.diagonal()) == 0).all()


@pytest.mark.parametrize("count", [1, 15, 16, 30, 64])
@pytest.mark.parametrize("shape", [(130, 64), (73, 73), (129, 70)], ids=str)
def test_reflectors(dtype, shape, count, rng):
  """Reflectors are packed as LAPACK packs them; Q may be made of the first of them."""
  m, n = shape
  a = _well_conditioned(rng, m, n, dtype)
  packed, taus = map(np.asarray, linalg.qr(a, "raw"))
  packed = packed.T
  same_bits([np.triu(packed)[:n]], [np.asarray(linalg.qr(a, "r"))])
  expected = np.eye(m, n).astype(in_double(a).dtype)
  for k in reversed(range(count)):
    v = np.where(np.arange(m) > k, in_double(packed)[:, k], np.arange(m) == k)
    expected -= np.outer(in_double(taus)[k] * v, v.conj() @ expected)
  q = np.asarray(linalg.householder_product(packed, taus[:count]))
  assert_near(q, expected, m, dtype)
  # Elements above the reflectors are R's, and must not be read.
  unread = np.triu(np.full_like(packed, np.nan))
  same_bits([linalg.householder_product(np.tril(packed, -1) + unread, taus[:count])], [q])


@pytest.mark.parametrize("exponent", [-0.9, -0.6, 0.6, 0.9], ids=str)
@pytest.mark.parametrize("shape", [(80, 70), (131, 33)], ids=str)
def test_qr_of_columns_whose_squares_are_out_of_range(dtype, shape, exponent, rng):
  """Scales every second column, so that products of two are out of range as well."""
  a = _well_conditioned(rng, *shape, dtype)
  q, r = linalg.qr(a)
  scale = np.ones(shape[1])
  scale[::2] = 2.0 ** np.floor(np.log2(float(np.finfo(dtype).max)) * exponent)
  scaled_q, scaled_r = linalg.qr((a * scale).astype(dtype))
  assert_near(scaled_q, q, shape[0], dtype)
  assert_near(in_double(scaled_r) / scale, in_double(r), shape[0], dtype)


@pytest.mark.parametrize("shape", [(75, 40), (130, 40), (400, 300)], ids=str)
def test_qr_of_subnormal_numbers(dtype, shape, rng):
  """Each sum is rounded to the spacing of subnormal numbers. The last matrix is shared by threads,
  which must not flush those to zero."""
  m, spacing = shape[0], float(np.finfo(dtype).smallest_subnormal)
  a = (np.round(1000 * rng.standard_normal(shape)) * spacing).astype(dtype)
  q, r = map(in_double, linalg.qr(a))
  up = 2.0**60
  assert np.abs(q @ (r * up) - in_double(a) * up).max() <= m / 2 * (spacing * up)
  assert_orthonormal(q, 2 * m * np.finfo(dtype).eps)


@pytest.mark.parametrize("shape", [(75, 66), (150, 20), (20, 150)], ids=str)
def test_qr_of_triangles_and_zeros(dtype, shape):
  """If there is nothing to reflect, tau is 0 and R's row is the matrix's."""
  a = np.triu(np.arange(np.prod(shape)).reshape(shape) % 7 - 3).astype(dtype)
  q, r = linalg.qr(a)
  np.testing.assert_array_equal(r, a[:min(shape)])
  np.testing.assert_array_equal(q, np.eye(shape[0], min(shape)))
  assert (np.asarray(linalg.qr(a, "raw")[1]) == 0).all()
  q, r = linalg.qr(np.zeros_like(a), "complete")
  np.testing.assert_array_equal(q, np.eye(shape[0]))
  np.testing.assert_array_equal(r, np.zeros(shape))


def test_qr_of_complex_diagonals():
  """The last reflector of a square matrix makes its element real."""
  n = 75
  for dtype in (np.complex64, np.complex128):
    a = np.diag(np.exp(1j * np.arange(n))).astype(dtype)
    q, r = map(np.asarray, linalg.qr(a))
    assert (np.imag(r) == 0).all()
    assert_near(in_double(q) @ in_double(r), a, 1, np.dtype(dtype))


@pytest.mark.parametrize("shape", [(75, 75), (130, 30)], ids=str)
def test_nan_in_qr(dtype, shape, rng):
  """Columns before a NaN keep their bits in R, and so do the neighbours in the batch."""
  a = np.stack([_well_conditioned(rng, *shape, dtype) for _ in range(3)])
  clean = [np.asarray(x) for x in linalg.qr(a)]
  place = 21
  spoilt = a.copy()
  spoilt[1, 50, place] = np.nan
  q, r = map(np.asarray, linalg.qr(spoilt))
  for i in (0, 2):
    same_bits([q[i], r[i]], [x[i] for x in clean])
  same_bits([r[1, :, :place]], [clean[1][1, :, :place]])
  assert np.isnan(r[1, place:, place:][np.triu_indices(shape[1] - place)]).all()
  assert np.isnan(q[1][:, place:]).all()


OPERATIONS = [
    {"transpose_a": False}, {"transpose_a": True}, {"conjugate_a": True},
    {"transpose_a": True, "conjugate_a": True}, {"unit_diagonal": True}]


def _operation(a, options):
  """Returns op(A) in double precision, from the triangle that is read."""
  x = (np.tril if options["lower"] else np.triu)(in_double(a))
  if options.get("unit_diagonal"):
    x[..., range(a.shape[-1]), range(a.shape[-1])] = 1
  x = x.swapaxes(-1, -2) if options.get("transpose_a") else x
  return x.conj() if options.get("conjugate_a") else x


# Orders and numbers of right-hand sides around the crossovers to and from tiles, and where tiles
# end.
@selection.in_turn(2, "size")
@pytest.mark.parametrize("size", [
    (3, 1000), (4, 1000), pytest.param((5, 4096), marks=extended), (5, 4097), (8, 128), (8, 129),
    (32, 8), (32, 9), (33, 1), (33, 2), (67, 70), (256, 3), (257, 3),
    pytest.param((BLOCKS, 3), marks=extended), (BLOCKS + 1, 3)], ids=str)
@pytest.mark.parametrize("left_side", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
def test_triangular_solve(dtype, size, left_side, lower, rng):
  n, sides = size
  a = matrices.triangular(rng, (2,), n, dtype, lower=lower)
  unread = ~(np.tril if lower else np.triu)(np.ones((n, n), bool))
  b = matrices.general(rng, (2,), *((n, sides) if left_side else (sides, n)), dtype)
  spoilt = np.where(unread, np.array(np.nan, dtype), a)
  # The triangle is divided, because a random unit triangle would be very ill-conditioned.
  unit = a / np.array(n, dtype)
  spoilt_unit = spoilt / np.array(n, dtype)
  spoilt_unit[:, range(n), range(n)] = np.nan
  solve = jax.jit(lambda a, unit, b: [
      linalg.triangular_solve(unit if operation.get("unit_diagonal") else a, b,
                              left_side=left_side, lower=lower, **operation)
      for operation in OPERATIONS])
  # One matrix also serves the whole batch.
  for one in (slice(None), 0):
    for operation, x in zip(OPERATIONS, solve(spoilt[one], spoilt_unit[one], b), strict=True):
      given = unit[one] if operation.get("unit_diagonal") else a[one]
      matrix, x = _operation(given, {"lower": lower, **operation}), in_double(x)
      residual = np.abs((matrix @ x if left_side else x @ matrix) - b).max()
      scale = np.abs(matrix).sum(-1).max() * np.abs(x).max()
      assert residual <= 2 * n * np.finfo(dtype).eps * scale, operation


@pytest.mark.parametrize("size", [(8, 129), (33, 2), (67, 9), (256, 3)], ids=str)
def test_solutions_with_factors(dtype, size, rng):
  n, cols = size
  a = matrices.positive_definite(rng, (2,), n, dtype)
  b = matrices.general(rng, (2,), n, cols, dtype)
  limit = 8 * n * np.finfo(dtype).eps

  def check(matrix, x):
    scale = np.abs(matrix).sum(-1).max() * np.abs(x).max()
    assert np.abs(in_double(matrix) @ in_double(x) - b).max() <= limit * scale

  for lower in (True, False):
    factor = np.asarray(linalg.cholesky(a, upper=not lower))
    unread = (np.triu if lower else np.tril)(np.full_like(a, np.nan), 1 if lower else -1)
    check(a, np.asarray(linalg.cho_solve((factor + unread, lower), b)))
    check(a[0], np.asarray(linalg.cho_solve((factor[0], lower), b)))
  a = matrices.well_conditioned(rng, (2,), n, dtype)[:, rng.permutation(n)]
  packed, pivots = linalg.lu_factor(a)
  for trans, matrix in enumerate((a, a.swapaxes(-1, -2), a.conj().swapaxes(-1, -2))):
    check(matrix, np.asarray(linalg.lu_solve((packed, pivots), b, trans)))
    check(matrix[0], np.asarray(linalg.lu_solve((packed[0], pivots[0]), b, trans)))


@pytest.mark.parametrize("left_side", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("n", [9, 67])
def test_pivots_of_triangles(dtype, n, left_side, rng):
  """Division by a zero gives Inf or NaN. A number without a finite reciprocal is divided by.

  Elements solved earlier and the neighbours in the batch keep their bits.
  """
  sides, finfo = 1000, np.finfo(dtype)
  a = matrices.triangular(rng, (3,), n, dtype, lower=True)
  b = matrices.general(rng, (3,), *((n, sides) if left_side else (sides, n)), dtype)
  solve = lambda a: np.asarray(
      linalg.triangular_solve(a, b, left_side=left_side, lower=True, transpose_a=not left_side))
  rows = lambda x: x if left_side else x.swapaxes(-1, -2)
  clean = solve(a)
  spoilt, place = a.copy(), n - 3
  spoilt[1, place, place] = 0
  x = solve(spoilt)
  same_bits([x[0], x[2], rows(x)[1, :place]], [clean[0], clean[2], rows(clean)[1, :place]])
  assert not np.isfinite(rows(x)[1, place:]).any()
  for pivot in (float(finfo.smallest_subnormal) * 64, float(finfo.max) / 2):
    diagonal = np.zeros_like(a)
    diagonal[:, range(n), range(n)] = pivot
    scale = np.array(float(finfo.tiny) if pivot < 1 else 1, dtype)
    x = linalg.triangular_solve(diagonal, b * scale, left_side=left_side, lower=True)
    for part in (np.real, np.imag):
      np.testing.assert_allclose(
          part(np.asarray(x)), part(in_double(b * scale)) / pivot, rtol=64 * float(finfo.eps),
          atol=4 * float(finfo.smallest_subnormal))


# The functions that use lanes or LAPACK at these orders.
NOT_IN_TILES = {
    "cholesky_update", "eig", "eigh_generalized", "eigvals", "hessenberg",
    "lu_pivots_to_permutation", "matmul", "schur", "tridiagonal_solve"}
CASES = {
    case.name: case for case in cases.CASES if cases.function(case) not in NOT_IN_TILES}
# Shapes of a case that are not square, by the order.
SHAPES = {
    "qr_complete": lambda n: (n, 30), "qr_raw": lambda n: (60, n), "svd_thin": lambda n: (60, n),
    "svdvals": lambda n: (n, 90)}
DERIVATIVES = {
    "cholesky_derivative": lambda a: [
        jax.jvp(linalg.cholesky, (a,), (a,))[1], *jax.vjp(linalg.cholesky, a)[1](a)],
    "full_cholesky_derivative": lambda a: [
        cholesky_full_jvp_p(a, a), cholesky_full_vjp_p(a, a)],
}
# Problems without tiles of their own, and the function whose tiles they use.
SHARED = {
    "bidiagonal_svd_rows": "svd", "cofactors": "lu", "det": "slogdet", "eigh_subset": "eigh",
    "eigh_subset_solve": "eigh", "eigh_tridiagonal_rows": "eigh_tridiagonal",
    "eigh_tridiagonal_solve": "eigh_tridiagonal", "eigh_tridiagonal_subset": "eigh_tridiagonal",
    "positive_solve_logdet": "solve_logdet_pos", "solve_slogdet": "solve_logdet",
    "svd_subset": "svd_thin", "svd_subset_solve": "svd_thin",
    "systems": "triangular_solve"}


def test_every_operation_in_tiles_is_there():
  found = {SHARED.get(name, name) for name in cut_offs.in_tiles()}
  assert {"eigh", "eigh_tridiagonal", "solve"} <= found <= {*CASES, *DERIVATIVES}
  assert not found & NOT_IN_TILES


def _names():
  for name in (*CASES, *DERIVATIVES):
    rare = name in CASES and CASES[name].variant and not CASES[name].rectangular
    yield pytest.param(name, marks=extended if rare else ())


@pytest.mark.parametrize("n", [pytest.param(75, marks=extended), 100])
@pytest.mark.parametrize("name", list(_names()))
def test_same_bits_in_any_batch(dtype, name, n, rng):
  """Catches a workspace that keeps data of the previous matrix."""
  if name in CASES:
    function = CASES[name].results
    operands = CASES[name].operands(rng, (40,), *SHAPES.get(name, lambda n: (n, n))(n), dtype)
  else:
    function = DERIVATIVES[name]
    operands = (matrices.positive_definite(rng, (40,), n, dtype),)
  function = jax.jit(function)
  whole = [np.asarray(x) for x in function(*operands)]
  for i in (0, 17, 39):
    same_bits(function(*(jnp.asarray(x[i]) for x in operands)), [x[i] for x in whole])
  same_bits(function(*(x[:3] for x in operands)), [x[:3] for x in whole])
