"""Matrices and batches of every size for which kernels/cuda has a different path.

Only test_suites.py collects this file. kernels/cuda/launch.h puts several teams into the shared
memory of a block where 256 blocks remain. kernels/cuda/tuning.h has the sizes.
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
from linalg._catalogue import structured as recursions
from linalg._factorizations import cholesky, det, lu, solve
from linalg._factorizations.cholesky_jittered import cholesky_jittered_p
from linalg.scipy._banded import banded_solve_p, cholesky_banded_p, cholesky_banded_solve_p
from linalg.structured import _block_tridiagonal_operations as structured
from linalg.structured import _kalman_operations as kalman
from linalg.structured import _steps

ALL_DTYPES = True

SEVERAL_TEAMS = 521  # odd, so that the last block is not full
TEAMS_OF_BANDS = 4096  # kTeamBanded: larger batches of banded matrices take a thread each
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


# Blocks of one, two and five rows, the last of them with rows of padding.
@pytest.mark.parametrize("below, above, n", [(1, 0, 1024), (2, 1, 2050), (3, 5, 5123)])
def test_few_long_banded_systems(below, above, n, dtype, rng):
  ab = matrices.general(rng, (5,), below + above + 1, n, dtype)
  ab[:, above] += 4
  if above > 0:  # two rows are equal in the first block, so elimination needs rows of the second
    cols = np.arange(max(below, above))
    ab[1, above + 1 - cols, cols] = ab[1, above - cols, cols]
  ab[2, :, 40], ab[3, above, 7] = 0, np.nan
  b = matrices.general(rng, (5,), n, 2, dtype)
  x, info = (np.asarray(y) for y in banded_solve_p(ab[:, : above + 1], ab[:, above + 1 :], b))
  np.testing.assert_array_equal(info, [0, 0, 41, -1, 0])
  np.testing.assert_array_equal(np.isnan(x).all((1, 2)), info != 0)
  alone, _ = banded_solve_p(ab[4:, : above + 1], ab[4:, above + 1 :], b[4:])
  np.testing.assert_array_equal(x[4:], alone)
  for i in (0, 1, 4):
    rest, size = checks.wide(b[i]), np.abs(b[i])
    for t in range(below + above + 1):
      col = np.arange(n)
      row = col + t - above
      inside = (row >= 0) & (row < n)
      terms = (checks.wide(ab[i, t])[:, None] * checks.wide(x[i]))[inside]
      np.subtract.at(rest, row[inside], terms)
      np.add.at(size, row[inside], np.abs(terms).astype(size.dtype))
    assert np.abs(rest).max() <= 100 * (below + 1) * checks.eps(x) * size.max()


# A warp, and a block of threads. The band is wider than a matrix, and a window has several runs.
@pytest.mark.parametrize("n, width, batch", [(4, 6, 5), (70, 3, 5), (70, 20, 2), (90, 66, 2)])
@pytest.mark.parametrize("lower", [False, True])
def test_banded_cholesky(n, width, batch, lower, dtype, rng):
  """Teams and threads give a matrix the same bits. Bad matrices are alone."""
  diagonals = matrices.general(rng, (batch,), width, n, dtype) / (4 * width)
  diagonals[:, 0 if lower else width - 1] = 1 + rng.random((batch, n))
  diagonals[0, 0 if lower else width - 1, n // 2] = -1
  row, col = np.indices((width, n))
  corner = col + row >= n if lower else col + row < width - 1
  diagonals[:, corner] = np.nan
  many = np.broadcast_to(diagonals[-1], (TEAMS_OF_BANDS + 1, width, n)) if n < 10 else None
  b = matrices.general(rng, (batch,), n, 18, dtype)

  def solve(ab, b):
    factor, info = cholesky_banded_p(ab, lower=lower)
    return factor, info, cholesky_banded_solve_p(factor, b, lower=lower)

  factor, info, x = map(np.asarray, solve(diagonals, b))
  np.testing.assert_array_equal(info, [n // 2 + 1] + (batch - 1) * [0])
  np.testing.assert_array_equal(np.isnan(factor).reshape(batch, -1).all(1), info != 0)
  assert not factor[1:, corner].any()
  np.testing.assert_array_equal(np.isnan(x).all((1, 2)), info != 0)
  eps, keep = np.finfo(dtype).eps, slice(1, None)
  a, l = np.zeros((2, batch - 1, n, n), np.complex128)
  for t in range(width):
    i = t if lower else width - 1 - t
    for k in range(n - i):
      at = k if lower else k + i
      a[:, k + i, k], l[:, k + i, k] = diagonals[keep, t, at], factor[keep, t, at]
  if not lower:
    a, l = a.conj(), l.conj()
  a += np.tril(a, -1).mT.conj()
  assert np.abs(l @ l.mT.conj() - a).max() <= 10 * width * eps
  assert np.abs(a @ x[keep] - b[keep]).max() <= 100 * width * eps * np.abs(x[keep]).max()
  if many is not None:
    by_threads = solve(many, np.broadcast_to(b[-1], (len(many), *b[-1].shape)))
    for found, expected in zip(map(np.asarray, by_threads), (factor, info, x), strict=True):
      expected = np.broadcast_to(expected[-1], found.shape).copy()
      np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("n", [10, 40, 140])
def test_one_matrix_for_the_batch(n, dtype, rng):
  """A matrix shared by the batch is factored once, and not for each column."""
  a = matrices.well_conditioned(rng, (), n, dtype)
  b = matrices.general(rng, (5,), n, 3, dtype)
  x = jax.jit(jax.vmap(linalg.solve, (None, 0)))(a, b)
  assert cases.named("solve").ratio((np.broadcast_to(a, (5, n, n)), b), [np.asarray(x)]) <= 30


# A thread takes blocks of 1 to 5 rows, by the dtype, in runs of several steps or of one. Teams take
# the others. Right-hand sides go to threads by 4 columns, to teams by 16.
BLOCKS = [(9, 1, 5), (11, 2, 3), (3, 3, 1), (1, 4, 6), (3, 5, 1), (2, 7, 18), (2, 20, 3)]


def _close(found, expected, eps):
  scale = np.abs(expected).max(initial=1)
  np.testing.assert_allclose(found, expected, rtol=0, atol=500 * eps * scale)


def _of_dense(diagonal, lower, b):
  """The blocks of the factor, log det A, solutions of half and of whole systems, and so on."""
  batch, steps, d, _ = diagonal.shape
  adjoint = lambda x: x.swapaxes(-1, -2).conj()
  a = recursions.dense(lower, (diagonal + adjoint(diagonal)) / 2, adjoint(lower))
  l, columns = np.linalg.cholesky(a), b.reshape(batch, steps * d, -1)

  def blocks(matrix, offset):
    parts = matrix.reshape(batch, steps, d, steps, d)
    return np.stack([parts[:, t + offset, :, t] for t in range(steps - offset)], 1)

  inverse, logdet = np.linalg.inv(a), np.linalg.slogdet(a)[1]
  half, back, x = (np.linalg.solve(w, columns).reshape(b.shape) for w in (l, adjoint(l), a))
  (own, below), (inverse, off) = (
      (blocks(matrix, 0), blocks(matrix, 1) if steps > 1 else lower) for matrix in (l, inverse))
  return [own, below, logdet, half, back, x, logdet, inverse, off]


@pytest.mark.parametrize("steps, d, cols", BLOCKS)
def test_block_tridiagonal(steps, d, cols, dtype, rng):
  """Against dense matrices. Systems that fail are NaN, and the others do not change."""
  batch, eps = 7, np.finfo(dtype).eps
  diagonal, lower, _ = recursions.definite(rng, (batch,), steps, d, dtype)
  b = matrices.general(rng, (batch, steps), d, cols, dtype)

  @jax.jit
  def handlers(diagonal, lower, b):
    l, below, logdet, info = _steps.cholesky_blocks_p(diagonal, lower)
    half = _steps.factor_solve_p(l, below, b, forward=True, back=False)
    back = _steps.factor_solve_p(l, below, b, forward=False, back=True)
    shared = _steps.factor_solve_p(l[0], below[0], b)
    at_once = structured.solve_logdet_p(diagonal, lower, b)
    inverse = _steps.inverse_of_factor_p(l, below)
    return [l, below, logdet, half, back, *at_once[:2], *inverse], shared, info, at_once[2]

  found, shared, *infos = jax.device_get(handlers(diagonal, lower, b))
  expected = _of_dense(diagonal, lower, b)
  for x, y in zip(found, expected, strict=True):
    _close(x, y, eps)
  _close(shared[0], found[5][0], eps)
  assert not np.any(infos)
  diagonal[3, steps - 1, d - 1, d - 1] = -1
  diagonal[5, 0, 0, 0] = np.nan
  again, _, *infos = jax.device_get(handlers(diagonal, lower, b))
  info = np.zeros(batch, np.int32)
  info[[3, 5]] = steps * d, 1
  for x in infos:
    np.testing.assert_array_equal(x, info)
  for x, y in zip(again, found, strict=True):
    np.testing.assert_array_equal(x[info == 0], y[info == 0])
    assert np.isnan(x[info != 0]).all()


@pytest.mark.parametrize("steps, d, cols", BLOCKS)
def test_general_block_tridiagonal(steps, d, cols, dtype, rng):
  batch, eps = 7, np.finfo(dtype).eps
  lower, diagonal, upper, _ = recursions.general(rng, (batch,), steps, d, dtype)
  b = matrices.general(rng, (batch, steps), d, cols, dtype)
  handler = jax.jit(structured.general_solve_p)
  x, info = jax.device_get(handler(lower, diagonal, upper, b))
  a = recursions.dense(lower, diagonal, upper)
  columns = b.reshape(batch, steps * d, cols)
  residual = a @ x.reshape(columns.shape) - columns
  assert np.abs(residual).max() < 100 * steps * d * eps * np.abs(a).max() * np.abs(x).max()
  assert not info.any()
  diagonal[2, 0] = 0
  diagonal[4, steps - 1, d - 1, 0] = np.nan
  again, info = jax.device_get(handler(lower, diagonal, upper, b))
  np.testing.assert_array_equal(info, [0, 0, 1, 0, -1, 0, 0])
  np.testing.assert_array_equal(again[info == 0], x[info == 0])
  assert np.isnan(again[info != 0]).all()


def _eliminated(lower, diagonal, upper, b):
  """x by elimination of blocks, of one system in wide precision."""
  wide = np.result_type(b.dtype, np.float64)
  lower, upper, b = lower.astype(wide), upper.astype(wide), b.astype(wide)
  right, x, g = np.empty_like(upper), np.empty_like(b), None
  for t, own in enumerate(diagonal.astype(wide)):
    rest = b[t]
    if t > 0:
      own, rest = own - lower[t - 1] @ g, rest - lower[t - 1] @ x[t - 1]
    if t + 1 < len(diagonal):
      g = right[t] = np.linalg.solve(own, upper[t])
    x[t] = np.linalg.solve(own, rest)
  for t in reversed(range(len(right))):
    x[t] -= right[t] @ x[t + 1]
  return x


# From 1024 steps on, teams share a system, whose last chunk is not full.
@pytest.mark.parametrize("steps, d, cols", [(1030, 3, 2), (1024, 7, 18)])
def test_long_general_block_tridiagonal(steps, d, cols, dtype, rng):
  """Chunks, and systems that are eliminated without them: a chunk or a leading block is singular,
  or there is NaN."""
  eps = np.finfo(dtype).eps
  lower, diagonal, upper, _ = recursions.general(rng, (5,), steps, d, dtype)
  lower[1:3] = upper[1:3] = np.eye(d)  # whose chunks have an odd number of steps
  diagonal[1:3] = 0
  diagonal[1:3, 0] = np.eye(d)
  diagonal[2, 501] = np.eye(d)  # the block after elimination is exactly 0
  diagonal[3, 700, d - 1, 0] = np.nan
  b = matrices.general(rng, (5, steps), d, cols, dtype)
  b[1:3] = b[1:3].round()
  handler = jax.jit(structured.general_solve_p)
  x, info = jax.device_get(handler(lower, diagonal, upper, b))
  np.testing.assert_array_equal(info, [0, 0, 501 * d + 1, -1, 0])
  assert np.isnan(x[2:4]).all()
  for i in (0, 1, 4):
    expected = _eliminated(lower[i], diagonal[i], upper[i], b[i])
    assert np.abs(x[i] - expected).max() < 100 * d * eps * np.abs(expected).max()
  alone, _ = jax.device_get(handler(*(y[4:] for y in (lower, diagonal, upper, b))))
  np.testing.assert_array_equal(alone[0], x[4])


def test_many_block_tridiagonal(dtype, rng):
  """So many that a block of threads is full, and that a block of a launch takes several groups."""
  diagonal, lower, b = recursions.definite(rng, (SEVERAL_TEAMS,), 3, 2, dtype)
  handler = jax.jit(structured.solve_logdet_p)
  several = jax.device_get(handler(diagonal, lower, b))
  alone = jax.device_get(handler(diagonal[-2:], lower[-2:], b[-2:]))
  for x, y in zip(several, alone, strict=True):
    np.testing.assert_array_equal(x[-2:], y)


def _state_space(rng, steps, n, m, batch, dtype):
  """Operands of the filter: F, Q and d for each step, H for all series, and a mask."""
  def normal(*shape):
    return rng.standard_normal(shape).astype(dtype)

  def covariance(*shape):
    x = normal(*shape, shape[-1])
    return x @ x.mT + np.eye(shape[-1], dtype=dtype)

  f = normal(batch, steps, n, n)
  f *= dtype.type(0.9) / np.linalg.norm(f, 2, (-2, -1), keepdims=True)
  seen = (rng.random((batch, steps, m)) < 0.7).astype(dtype)
  return [normal(batch, steps, m), f, covariance(batch, steps, n), normal(1, m, n),
          covariance(batch, 1, m), normal(batch, n), covariance(batch, n), normal(batch, 1, n),
          normal(batch, steps, m), seen]


# Teams of 4 and of 32 threads. The first has several teams in a warp, and the last is the largest
# in float64 that every GPU has shared memory for.
SERIES = [(3, 2, 9), (18, 3, 2), (23, 23, 2)]


@pytest.mark.parametrize("n, m, batch", SERIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kalman_filter(n, m, batch, dtype, rng, monkeypatch):
  """Values, tangents and adjoints against scans. A series that fails is NaN from there on."""
  dtype, steps = np.dtype(dtype), 4
  monkeypatch.setenv("LINALG_PTX_SHARED", "99")
  tolerance = {"rtol": 0, "atol": 3e3 * np.finfo(dtype).eps}
  operands = _state_space(rng, steps, n, m, batch, dtype)
  found = jax.device_get(kalman.filter_p(*operands))
  constants = *operands, *found[:2]
  directions = [rng.standard_normal(x.shape).astype(dtype) for x in operands[:9]]
  for i in (2, 4, 6):
    directions[i] = directions[i] + directions[i].mT
  cotangents = [rng.standard_normal(x.shape).astype(dtype) for x in found[:3]]
  cotangents[1] = cotangents[1] + cotangents[1].mT
  for operation, given in (
      (kalman.filter_p, operands), (kalman.filter_jvp_p, (*constants, *directions)),
      (kalman.filter_vjp_p, (*constants, *cotangents))):
    results = jax.device_get(operation(*given))
    expected = jax.device_get(jax.jit(operation._rules.fallback)(*given))
    for i, (x, y) in enumerate(zip(results, expected, strict=True)):
      if operation is kalman.filter_vjp_p and i in (2, 4, 6):
        y = (y + y.mT) / 2
      scale = np.abs(y).max(initial=1)
      np.testing.assert_allclose(x / scale, y / scale, **tolerance)
  operands[4][1] = -100 * np.eye(m)
  again = jax.device_get(kalman.filter_p(*operands))
  others = np.arange(batch) != 1
  assert again[3][1] > 0 and not again[3][others].any()
  for x, y in zip(again, found, strict=True):
    np.testing.assert_array_equal(x[others], y[others])
  assert np.isnan(again[0][1, -1]).all() and np.isnan(again[2][1])


@pytest.mark.parametrize("n, m, batch", SERIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kalman_smoother(n, m, batch, dtype, rng, monkeypatch):
  """Against a scan. An almost unknown first state takes the steps of Rauch, Tung and Striebel."""
  dtype, steps = np.dtype(dtype), 4
  monkeypatch.setenv("LINALG_PTX_SHARED", "99")
  operands = _state_space(rng, steps, n, m, batch, dtype)
  operands[6][0] *= 1e4
  moments = kalman.filter_p(*operands)[:2]
  found = jax.device_get(kalman.smoother_p(*operands, *moments))
  expected = jax.jit(kalman.smoother_p._rules.fallback)(*operands, *moments)
  for x, y in zip(found, jax.device_get(expected), strict=True):
    x, y = (z.reshape(batch, steps, -1) for z in (x, y))
    scale = np.abs(y).max(-1, keepdims=True, initial=1)
    most = np.full((batch, 1, 1), 3e3 * np.finfo(dtype).eps)
    most[0] *= 30
    assert np.all(np.abs(x - y) <= most * scale)
  alone = jax.device_get(kalman.smoother_p(
      *(x if x.shape[0] == 1 else x[1:2] for x in operands), *(x[1:2] for x in moments)))
  for x, y in zip(alone, found, strict=True):
    np.testing.assert_array_equal(x[0], y[1])


@pytest.mark.parametrize("n, m, batch", SERIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kalman_smoother_derivatives(n, m, batch, dtype, rng, monkeypatch):
  """Tangents and adjoints against scans, with a model for each step or for all steps."""
  dtype, steps = np.dtype(dtype), 4
  monkeypatch.setenv("LINALG_PTX_SHARED", "99")
  operands = _state_space(rng, steps, n, m, batch, dtype)
  moments = jax.device_get(kalman.filter_p(*operands))[:2]
  known = [operands[i] for i in (1, 2, 7)] + [*moments]
  smoothed = jax.device_get(kalman.smoother_p(*operands, *moments))
  directions = [rng.standard_normal(x.shape).astype(dtype) for x in known]
  cotangents = [rng.standard_normal(x.shape).astype(dtype) for x in smoothed]
  for i in (1, 4):
    directions[i] = directions[i] + directions[i].mT
  cotangents[1] = cotangents[1] + cotangents[1].mT
  for operation, rest in (
      (kalman.smoother_jvp_p, directions), (kalman.smoother_vjp_p, cotangents)):
    given = *known, *smoothed, *rest
    results = jax.device_get(operation(*given))
    expected = jax.device_get(jax.jit(operation._rules.fallback)(*given))
    for i, (x, y) in enumerate(zip(results, expected, strict=True)):
      if operation is kalman.smoother_vjp_p and i in (1, 4):
        y = (y + y.mT) / 2
      scale = np.abs(y).max(initial=1)
      np.testing.assert_allclose(x / scale, y / scale, rtol=0, atol=3e3 * np.finfo(dtype).eps)
    alone = operation(*(x if x.shape[0] == 1 else x[1:2] for x in given))
    for x, y in zip(jax.device_get(alone), results, strict=True):
      np.testing.assert_array_equal(x[0], y[1] if len(y) > 1 else x[0])
