"""Dense matrices and batches of every size for which kernels/cuda has a different path.

Only test_suites.py collects this file. structures.py has banded matrices and recursions.
kernels/cuda/launch.h puts several teams into the shared memory of a block where 256 blocks remain.
kernels/cuda/tuning.h has the sizes.
"""

import itertools

import jax
import numpy as np
import pytest
import scipy.linalg

import cases
import linalg
import matrices
from linalg._catalogue import checks
from linalg._factorizations import cholesky, det, lu, solve
from linalg._factorizations.cholesky_jittered import cholesky_jittered_p

ALL_DTYPES = True

SEVERAL_TEAMS = 521  # odd, so that the last block is not full
# Iterative algorithms are slow here, so they have one size for a thread and one for two teams of a
# warp.
ITERATIVE = {"svd", "svd_thin", "svdvals", "eig", "eig_left", "eigvals", "schur", "schur_complex",
             "eigh_tridiagonal", "hessenberg", "hessenberg_h", "qr_pivoted"}
OURS = [case for case in cases.with_handlers("cpu") if not case.xla]
NEVER_THE_VENDORS = {
    "eig_left", "schur", "schur_complex", "hessenberg", "hessenberg_h", "qr_pivoted"}
# Teams do these in shared memory, or for larger matrices in global memory with a block each.
ANYWHERE = ("qr", "qr_pivoted", "qr_r", "qr_raw", "householder_product", "svd", "svdvals", "eig",
            "eig_left", "eigvals", "schur", "hessenberg", "hessenberg_h")


def _check(case, dtype, rng, shapes):
  several = [case.operands(rng, (batch,), m, n, dtype) for batch, m, n in shapes]
  found = jax.jit(lambda several: [case.results(*operands) for operands in several])(several)
  for operands, results in zip(several, found, strict=True):
    ratio = case.ratio(operands, [np.asarray(x) for x in results])
    shapes = [x.shape for x in operands]
    assert ratio <= case.limit, f"scaled residual {ratio}, operands of {shapes}"


@cases.each(OURS)
def test_residuals(case, dtype, rng):
  small = (3, 17) if case.name in ITERATIVE else (3, 10, 17, 24)
  shapes = [(SEVERAL_TEAMS, n, n) for n in small]
  shapes += [(3, n, n) for n in (2, 5, 8, 12, 16, 33, 40, 65)]
  if case.name not in NEVER_THE_VENDORS:
    shapes += [(2, 140, 140)]
  if case.name == "qr_r":
    shapes += [(2, 210, 210)]
  if case.rectangular:
    shapes += [(3, 9, 4), (3, 4, 9), (3, 40, 33), (3, 33, 40)]
  _check(case, dtype, rng, shapes)


@pytest.mark.parametrize("name", ANYWHERE)
def test_in_global_memory(name, dtype, rng, monkeypatch):
  """Tests the path of larger matrices, which would take long.

  Shared memory is small, and the batch is one that the vendor's routine is not used for.
  """
  monkeypatch.setenv("LINALG_PTX_SHARED", "3")
  case = cases.named(name)
  shapes = [(24, 30, 30), (24, 33, 30), (24, 30, 33)] if case.rectangular else [(24, 30, 30)]
  _check(case, dtype, rng, shapes)


# Two matrices do not fit in this shared memory, but two windows do.
@pytest.mark.parametrize("dtype, n", [(np.complex64, 80), (np.complex128, 64)], ids=[
    "complex64", "complex128"])
def test_schur_by_windows(dtype, n, rng, monkeypatch):
  """Bad matrices are alone. A matrix has the same bits in any batch."""
  monkeypatch.setenv("LINALG_PTX_SHARED", "99")
  a = matrices.general(rng, (3,), n, n, dtype)
  a[1, 3, 4] = np.nan
  a[2] *= np.logspace(0, -12, n)
  t, z, info = map(np.asarray, linalg.schur_ex(a))
  np.testing.assert_array_equal(info, [0, -1, 0])
  for x in (t, z):
    np.testing.assert_array_equal(np.isnan(x).reshape(3, -1).any(-1), info != 0)
  assert cases.named("schur").ratio((a[::2],), (t[::2], z[::2])) <= 20
  for x, y in zip(linalg.schur(a[2:]), (t, z), strict=True):
    np.testing.assert_array_equal(x, y[2:])
  results = tuple(map(np.asarray, linalg.eig(a[:2], left=True)))
  for x in results:
    assert np.isnan(x[1]).all()
  assert cases.named("eig_left").ratio((a[:1],), [x[:1] for x in results]) <= 20


def test_eigenvalues_by_windows(rng, monkeypatch):
  """A matrix does not fit in shared memory. The vendor would take smaller batches."""
  monkeypatch.setenv("LINALG_PTX_SHARED", "80")
  n = 72
  a = np.zeros((24, n, n), np.complex128)
  a[:, range(n), range(n)] = matrices.general(rng, (24,), n, 1, np.complex128)[..., 0]
  a[7] = matrices.general(rng, (), n, n, np.complex128)
  w = np.asarray(linalg.eigvals(a))
  assert cases.named("eigvals").ratio((a,), (w,)) <= 20


@pytest.mark.parametrize("shape", [(66, 66), (70, 66), (65, 75)], ids=str)
def test_svd_by_blocks(shape, dtype, rng):
  """Bad matrices are alone. One without a full rank goes to the vendor's routine.

  The matrices are nearly diagonal, which needs few sweeps.
  """
  k, limits = min(shape), np.finfo(dtype)
  a = matrices.general(rng, (4,), *shape, dtype) / 32
  a[:, range(k), range(k)] += rng.permutation(np.arange(1, k + 1)).astype(dtype)
  a[1, 3, 4] = np.nan
  a[2] *= limits.tiny / limits.eps
  a[3, :, 1] = a[3, 1] = 0
  u, s, vh, info = map(np.asarray, linalg.svd_ex(a, full_matrices=False))
  np.testing.assert_array_equal(info, [0, -1, 0, 0])
  for x in (u, s, vh):
    np.testing.assert_array_equal(np.isnan(x).reshape(4, -1).any(-1), info != 0)
  values = np.asarray(linalg.svdvals(a))
  for i in np.flatnonzero(info == 0):
    assert np.all(np.diff(s[i]) <= 0)
    scale = 2.0 ** -np.frexp(np.abs(a[i]).max())[1]
    product = checks.wide(u[i]) * (checks.wide(s[i]) * scale) @ checks.wide(vh[i])
    assert checks.factorisation(checks.wide(a[i]) * scale, product, checks.eps(a)) <= 10
    assert checks.orthogonality(u[i]) <= 10
    assert checks.orthogonality(checks.adjoint(vh[i])) <= 10
    np.testing.assert_allclose(values[i], s[i], rtol=0, atol=100 * checks.eps(a) * s[i, 0])


def test_matrices_of_blocks_have_the_same_bits(dtype, rng):
  a = matrices.general(rng, (4,), 66, 66, dtype) / 32 + np.diag(np.arange(66)).astype(dtype)
  results = linalg.svd(a)
  for x, y in zip(linalg.svd(a[[3, 3, 1, 2, 0]]), results, strict=True):
    np.testing.assert_array_equal(x, y[np.array([3, 3, 1, 2, 0])])


# Shared memory is too small for teams with the first two sizes. n = 65 has a panel of one column.
# In real dtypes the last column of the panel before that has no reflector.
@pytest.mark.parametrize("n, lower, symmetrize", [
    (65, False, False), (70, True, False), (140, True, True)])
def test_eigh_by_panels(n, lower, symmetrize, dtype, rng, monkeypatch):
  """Bad matrices are alone. Eigenvalues that deflate, and extreme scales."""
  if n < 129:
    monkeypatch.setenv("LINALG_PTX_SHARED", str(4 * dtype.itemsize))
  limits = np.finfo(dtype)
  a = matrices.hermitian(rng, (4,), n, dtype)
  a[1, 60, 3] = a[1, 3, 60] = np.nan
  g = matrices.general(rng, (), n, 5, dtype)
  a[2] = limits.tiny * (g @ g.conj().T / n + np.eye(n)) / limits.eps
  a[3] = limits.max / 1e3 * np.diag(np.arange(n) // 9 / n)
  rows, cols = np.indices((n, n))
  unread = cols > rows if lower else cols < rows
  skew = matrices.general(rng, (), n, n, dtype)
  skew = (skew - skew.conj().T) / 16 * np.abs(np.diagonal(a, 0, 1, 2)).max(1)[:, None, None]
  given = (a + skew if symmetrize else np.where(unread, np.nan, a)).astype(dtype)
  options = {"UPLO": "L" if lower else "U", "symmetrize_input": symmetrize}
  w, v, info = map(np.asarray, linalg.eigh_ex(given, **options))
  np.testing.assert_array_equal(info, [0, -1, 0, 0])
  for x in (w, v):
    np.testing.assert_array_equal(np.isnan(x).reshape(4, -1).any(-1), info != 0)
  values = np.asarray(linalg.eigvalsh(given, **options))
  assert np.isnan(values[1]).all()
  for i in (0, 2, 3):
    assert np.all(np.diff(w[i]) >= 0)
    scale = 2.0 ** -np.frexp(np.abs(a[i]).max())[1]
    wide = checks.wide(v[i])
    product = wide * (checks.wide(w[i]) * scale) @ checks.adjoint(wide)
    assert checks.factorisation(checks.wide(a[i]) * scale, product, checks.eps(a)) <= 10
    assert checks.orthogonality(v[i]) <= 10
    atol = 100 * checks.eps(a) * np.abs(w[i]).max()
    np.testing.assert_allclose(values[i], w[i], rtol=0, atol=atol)
  for x, y in zip(linalg.eigh(given[[3, 0, 3]], **options), (w, v), strict=True):
    np.testing.assert_array_equal(x, y[np.array([3, 0, 3])])


# Panels of 8 columns, of 16 where few rows are left, and a narrower last one.
PANELS = [(44, 44), (40, 30), (30, 40)]


@pytest.mark.parametrize(
    "name", ["qr", "qr_complete", "qr_r", "qr_raw", "householder_product"])
def test_panels(name, dtype, rng, monkeypatch):
  """Shared memory is small, so that small matrices go by panels."""
  monkeypatch.setenv("LINALG_PTX_SHARED", str(dtype.itemsize + 1))
  _check(cases.named(name), dtype, rng, [(3, m, n) for m, n in PANELS])


@pytest.mark.parametrize("name", ["qr", "qr_raw"])
def test_qr_by_the_vendor(name, dtype, rng, monkeypatch):
  """Shared memory does not hold a panel, and there are few matrices."""
  monkeypatch.setenv("LINALG_PTX_SHARED", "3")
  _check(cases.named(name), dtype, rng, [(3, 30, 30), (3, 33, 30), (3, 30, 33)])


@pytest.mark.parametrize("m, n", PANELS)
def test_matrices_of_panels_are_alone(m, n, dtype, rng, monkeypatch):
  """NaN, zero columns and extreme scales. The other matrices keep their bits in any batch."""
  monkeypatch.setenv("LINALG_PTX_SHARED", str(dtype.itemsize + 1))
  limits = np.finfo(dtype)
  a = matrices.general(rng, (7,), m, n, dtype)
  a[1, m // 2, n // 3] = np.nan
  a[2, :, n // 4 : n // 2] = 0
  a[3, 5:, 4] = a[3, :, 9] = 0
  a[4] *= limits.max / 1e3
  a[5] *= limits.tiny / limits.eps
  a[5, :, 7] /= limits.eps
  a[6] = matrices.general(rng, (), m, 6, dtype) @ matrices.general(rng, (), 6, n, dtype)
  qr = jax.jit(linalg.qr)
  q, r = (np.asarray(x) for x in qr(a))
  assert np.isnan(q[1]).any() and np.isnan(r[1]).any()
  for i in range(7):
    if i != 1:
      scale = 2.0 ** -np.frexp(np.abs(a[i]).max())[1]
      product = checks.wide(q[i]) @ (checks.wide(r[i]) * scale)
      assert checks.orthogonality(q[i]) <= 10
      assert checks.factorisation(checks.wide(a[i]) * scale, product, checks.eps(a)) <= 10
      np.testing.assert_array_equal(np.tril(r[i], -1), 0)
  for x, y in zip(qr(a[5:]), (q, r), strict=True):
    np.testing.assert_array_equal(x, y[5:])
  h, taus = linalg.qr(a[3], mode="raw")
  np.testing.assert_array_equal(taus[9], 0)
  assert np.all(np.isfinite(h))


def _check_least_jitters(n, batch, dtype, rng, lower):
  """Compares the handler with one factorisation of the batch for each jitter."""
  g = matrices.general(rng, (batch,), n, n - 1, dtype)
  a = g @ g.mT.conj() - 1e-3 * np.eye(n, dtype=dtype)
  a[0] = matrices.positive_definite(rng, (), n, dtype)
  a[1], a[2, 0, 0] = -np.eye(n), np.nan
  jitters = np.array([1e-5, 1e-3, 1e-1], np.finfo(dtype).dtype)
  attributes = {"lower": lower, "symmetrize": True}
  found, expected, plain = jax.jit(lambda a, jitters: (
      cholesky_jittered_p(a, jitters, **attributes),
      cholesky_jittered_p._rules.fallback(a, jitters, **attributes),
      cholesky.cholesky_p(a, **attributes)))(a, jitters)
  factor, jitter, info = (np.asarray(x) for x in found)
  rtol = 100 * n * np.finfo(dtype).eps
  np.testing.assert_array_equal(info, expected[2])
  np.testing.assert_array_equal(info != 0, [False, True, True] + (batch - 3) * [False])
  np.testing.assert_allclose(jitter, expected[1], rtol=rtol)
  np.testing.assert_array_equal(jitter[3:] > 0, True)
  np.testing.assert_array_equal(factor[0], plain[0][0])
  moved = cholesky.cholesky_p(a + jitter[:, None, None] * np.eye(n, dtype=dtype), **attributes)[0]
  np.testing.assert_allclose(factor, moved, rtol=0, atol=rtol * np.abs(g).max())


# A thread, a part of a warp, a team, and blocks with a panel each factor first.
@pytest.mark.parametrize("n, batch", [(4, SEVERAL_TEAMS), (24, 5), (90, 4), (140, 4)])
def test_least_jitters(n, batch, dtype, rng):
  _check_least_jitters(n, batch, dtype, rng, lower=n != 24)


def test_least_jitters_in_global_memory(dtype, rng, monkeypatch):
  monkeypatch.setenv("LINALG_PTX_SHARED", "3")
  _check_least_jitters(40, 4, dtype, rng, lower=False)


# The last size has panels of several tiles of rows.
@pytest.mark.parametrize("n, upper, symmetrize", [
    (129, False, True), (129, True, False), (170, False, False), (170, True, True)])
def test_cholesky_by_panels(n, upper, symmetrize, dtype, rng):
  """Failures in several panels do not change the bits of the other matrices."""
  a = matrices.positive_definite(rng, (5,), n, dtype)
  a[1, n - 1, n - 1] = a[2, 100, 100] = -1
  a[2, 40, 3] = a[2, 3, 40] = np.nan
  a[3, 0, 0] = 0
  rows, cols = np.indices((n, n))
  above = cols < rows if upper else cols > rows
  given = a if symmetrize else np.where(above, np.nan, a).astype(dtype)
  options = {"upper": upper, "symmetrize_input": symmetrize}
  factor, info = (np.asarray(x) for x in linalg.cholesky_ex(given, **options))
  np.testing.assert_array_equal(info, [0, n, 41, 1, 0])
  assert not factor[:, above].any()
  np.testing.assert_array_equal(np.isnan(factor[:, ~above]).all(1), info != 0)
  good = [0, 4]
  np.testing.assert_array_equal(factor[good], linalg.cholesky(given[good], **options))
  l = checks.wide(factor[good])
  l = checks.adjoint(l) if upper else l
  assert checks.factorisation(a[good], l @ checks.adjoint(l), checks.eps(factor)) <= 10


def test_products_from_global_memory(dtype, rng, monkeypatch):
  monkeypatch.setenv("LINALG_PTX_SHARED", "6")
  _check(cases.named("matmul"), dtype, rng, [(3, 40, 40)])


@pytest.mark.parametrize("shape", [(161, 161), (130, 200), (200, 130)], ids=str)
def test_lu_by_panels(shape, dtype, rng):
  """Pivots are LAPACK's, and a singular matrix or NaN changes no other matrix."""
  a = matrices.general(rng, (4,), *shape, dtype)
  a[1, :, 70], a[3, 90, 100] = 0, np.nan
  found, alone = (
      [np.asarray(x) for x in results] for results in jax.jit(lambda a: (
          lu.lu_p(a), lu.lu_p(a[2:3])))(a))
  np.testing.assert_array_equal(found[-1], [0, 71, 0, -1])
  for x, y in zip(found, alone, strict=True):
    np.testing.assert_array_equal(x[2:3], y)
  case = cases.named("lu")
  assert case.ratio((a[:3],), [x[:3] for x in found[:3]]) <= case.limit
  for i in (0, 2):
    np.testing.assert_array_equal(found[1][i], scipy.linalg.lu_factor(checks.wide(a[i]))[1])


def test_lu_of_many_rows(dtype, rng):
  """Panels are narrower beyond 1024 rows."""
  a = matrices.general(rng, (1,), 1040, 132, dtype)
  found = [np.asarray(x) for x in linalg.lu(a)]
  case = cases.named("lu")
  assert case.ratio((a,), found) <= case.limit
  np.testing.assert_array_equal(found[1][0], scipy.linalg.lu_factor(checks.wide(a[0]))[1])


# A single system is the vendor's, several are solved by panels. Many columns take deeper products.
@pytest.mark.parametrize("batch, cols", [(1, 3), (2, 3), (2, 70)])
def test_large_triangles(batch, cols, dtype, rng):
  n = 140
  triangles = {lower: matrices.triangular(rng, (batch,), n, dtype, lower=lower)
               for lower in (False, True)}
  b = matrices.general(rng, (batch,), n, cols, dtype)
  ways = list(itertools.product((False, True), repeat=4))

  def solve(left_side, lower, transpose_a, conjugate_a):
    x = linalg.triangular_solve(
        triangles[lower], b if left_side else b.mT, left_side=left_side, lower=lower,
        transpose_a=transpose_a, conjugate_a=conjugate_a)
    return x if left_side else x.mT

  found = jax.jit(lambda: [solve(*way) for way in ways])()
  for (left_side, lower, transpose_a, conjugate_a), x in zip(ways, found, strict=True):
    op = (np.tril if lower else np.triu)(triangles[lower])
    op = op.mT if transpose_a == left_side else op
    op = op.conj() if conjugate_a else op
    assert cases.named("solve").ratio((op, b), [np.asarray(x)]) <= 30


@pytest.mark.parametrize("batch, cols", [(1, 3), (2, 1), (2, 3), (2, 70)])
def test_adjoint_systems_of_factors(batch, cols, dtype, rng):
  a = matrices.well_conditioned(rng, (batch,), 140, dtype)
  b = matrices.general(rng, (batch,), 140, cols, dtype)
  x = jax.jit(lambda a, b: linalg.lu_solve(linalg.lu(a)[:2], b, trans=2))(a, b)
  assert cases.named("solve").ratio((np.conj(a.mT), b), [np.asarray(x)]) <= 30


@pytest.mark.parametrize("n", [16, 24, 60])
def test_one_column(n, dtype, rng):
  a, b = matrices.well_conditioned(rng, (7,), n, dtype), matrices.general(rng, (7,), n, 1, dtype)
  assert cases.named("solve").ratio((a, b), [np.asarray(linalg.solve(a, b))]) <= 30


# Each path has one column and several, which a warp treats differently, and too many for a team.
@pytest.mark.parametrize("n, cols", [(4, 2), (24, 1), (24, 2), (60, 2), (140, 2), (40, 130)])
def test_solutions_with_their_factors(n, cols, dtype, rng):
  """Solutions and factors equal those of `solve` and of `lu`, for singular and NaN matrices too."""
  a, b = matrices.general(rng, (7,), n, n, dtype), matrices.general(rng, (7,), n, cols, dtype)
  a[2, :, 1], a[3, 1, 0] = 0, np.nan
  together, (x, info), (packed, pivots, _, _) = jax.jit(
      lambda a, b: (solve.solve_lu_p(a, b), solve.solve_p(a, b), lu.lu_p(a)))(a, b)
  np.testing.assert_array_equal(info, [0, 0, 2, -1, 0, 0, 0])
  for found, expected in zip(together, (x, packed, pivots, info), strict=True):
    np.testing.assert_array_equal(found, expected)


# A team, panels for LU, and with little shared memory LU by a warp or by the vendor.
@pytest.mark.parametrize("n, shared", [(40, 227), (132, 227), (20, 3)])
def test_determinants_with_inverses(n, shared, dtype, rng, monkeypatch):
  """Cofactors of every rank, and the bits of determinants alone. Neighbours keep their bits."""
  monkeypatch.setenv("LINALG_PTX_SHARED", str(shared))
  a = matrices.general(rng, (6,), n, n, dtype) / dtype.type(n**0.5)
  a[1, 7] = a[2, :, 5] = a[3, :, 3:5] = 0
  a[4, 3, 1] = np.nan
  a[5] *= dtype.type(2.0**30)  # the determinant is out of range in float32
  (value, cofactors), (sign, logarithm, inverse), alone, last = (
      [np.asarray(y) for y in jax.tree.leaves(found)] for found in jax.jit(lambda a: (
          det.det_cofactors_p(a), det.slogdet_inv_transposed_p(a),
          (linalg.det(a), *linalg.slogdet(a)), det.det_cofactors_p(a[5:])))(a))
  for found, expected in zip((value, sign, logarithm), alone, strict=True):
    np.testing.assert_array_equal(found, expected)
  np.testing.assert_array_equal(np.isnan(cofactors).any((1, 2)), np.arange(6) == 4)
  np.testing.assert_array_equal(cofactors[3], 0)
  for found, expected in zip((value, cofactors), last, strict=True):
    np.testing.assert_array_equal(found[5:], expected)
  np.testing.assert_array_equal(np.isnan(inverse).all((1, 2)), np.isin(np.arange(6), (1, 2, 3, 4)))
  case = cases.named("inv")
  assert case.ratio((a[[0, 5]],), [inverse.mT[[0, 5]]]) <= case.limit
  wide = checks.wide(a[:3])
  u, s, vh = np.linalg.svd(wide)
  others = np.stack([np.prod(np.delete(s, k, -1), axis=-1) for k in range(n)], axis=-1)
  phase = np.linalg.det(u) * np.linalg.det(vh)
  expected = phase[:, None, None] * (checks.adjoint(vh) * others[:, None]) @ checks.adjoint(u)
  bound = 100 * n * checks.eps(a) * s[:, 0] * np.prod(s[:, : n - 2], axis=-1)
  assert np.all(np.abs(cofactors[:3].mT - expected).max((-1, -2)) <= bound)


@pytest.mark.parametrize("n", [10, 40, 140])
def test_one_matrix_for_the_batch(n, dtype, rng):
  """A matrix shared by the batch is factored once, and not for each column."""
  a = matrices.well_conditioned(rng, (), n, dtype)
  b = matrices.general(rng, (5,), n, 3, dtype)
  x = jax.jit(jax.vmap(linalg.solve, (None, 0)))(a, b)
  assert cases.named("solve").ratio((np.broadcast_to(a, (5, n, n)), b), [np.asarray(x)]) <= 30
