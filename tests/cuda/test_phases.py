"""The algorithms that a team of CUDA threads runs, on the CPU: thread after thread.

They are compiled here from the headers that the CUDA module is made of, and run in several orders:
a result that depends on the order is a race. kernels/team/team.h says what a phase is.
"""

import ctypes
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import scipy.linalg

import linalg
import matrices
from linalg._cases import checks

pytestmark = pytest.mark.extended

ROOT = pathlib.Path(__file__).parents[2]
TEAMS = (1, 4, 32, 128)
ORDERS = (0, 1, 2)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
  compiler = shutil.which("c++")
  if compiler is None:
    pytest.skip("needs a C++ compiler, c++")
  path = tmp_path_factory.mktemp("team_phases") / "libteam_phases.so"
  flags = ["-std=c++20", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-psabi"]
  subprocess.run(
      [compiler, *flags, "-shared", "-fPIC", "-I", str(ROOT),
       str(ROOT / "tests/cuda/team_phases.cc"), "-o", str(path)], check=True)
  return ctypes.CDLL(str(path))


def _padded(a, fill=np.nan):
  """A copy with rows an odd number of elements apart, as in shared memory."""
  rows, cols = a.shape
  padded = np.full((rows, cols | 1), fill, a.dtype)
  padded[:, :cols] = a
  return padded


def _integers(size):
  return np.full(size, -7, np.int32)


def _call(library, name, dtype, *arguments):
  function = getattr(library, f"{name}_{np.dtype(dtype).name}")
  return function(*(
      x.ctypes.data_as(ctypes.c_void_p) if isinstance(x, np.ndarray) else
      None if x is None else ctypes.c_int(int(x)) for x in arguments))


def _in_all_orders(run):
  """The results of `run(team, order)` for each size of a team: the same bits in every order."""
  for team in TEAMS:
    first, *others = [run(team, order) for order in ORDERS]
    for other in others:
      for x, y in zip(first, other, strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), f"a race, with {team} threads"
    yield first


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 17, 33, 64, 100, 127, 128])
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(library, dtype, n, lower, rng):
  a = matrices.positive_definite(rng, (), n, dtype)
  triangle = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
  given = np.where(triangle, a, np.nan)  # with NaN in what must not be read
  given = given.astype(dtype)

  def run(team, order):
    matrix, factor = _padded(given), _padded(given)
    info = _call(
        library, "cholesky", dtype, team, order, n, matrix, matrix.shape[1], lower, 0, factor)
    return info, factor[:, :n]

  for info, factor in _in_all_orders(run):
    assert info == 0
    assert not factor[~triangle].any()
    l = checks.wide(factor) if lower else checks.adjoint(checks.wide(factor))
    assert checks.factorisation(a, l @ checks.adjoint(l), checks.eps(factor)) <= 10


@pytest.mark.parametrize("value", [-1, 0, np.nan, np.inf])
def test_cholesky_failure(library, dtype, value, rng):
  n = 18  # three panels, the last one not full
  a = matrices.positive_definite(rng, (), n, dtype)
  for k in range(n):
    given = a.copy()
    given[k, k] = value
    for team in TEAMS:
      matrix, factor = _padded(given), _padded(given)
      info = _call(
          library, "cholesky", dtype, team, 0, n, matrix, matrix.shape[1], 1, 1, factor)
      assert info == k + 1
      np.testing.assert_array_equal(np.isnan(factor[:, :n]), np.tri(n, dtype=bool))


@pytest.mark.parametrize(
    "shape", [(0, 0), (0, 3), (3, 0), (1, 1), (5, 5), (17, 6), (6, 17), (64, 64), (65, 65),
              (100, 33), (33, 100), (96, 128), (128, 128)], ids=str)
def test_lu(library, dtype, shape, rng):
  m, n = shape
  a = matrices.general(rng, (), m, n, dtype)

  def run(team, order):
    packed, pivots, rows, again = _padded(a), _integers(min(m, n)), _integers(m), _integers(m)
    info = _call(
        library, "lu", dtype, team, order, m, n, packed, packed.shape[1], pivots, rows, again)
    return info, packed[:, :n], pivots, rows, again

  expected = linalg.lu(a)
  for info, packed, pivots, permutation, again in _in_all_orders(run):
    assert info == 0
    np.testing.assert_array_equal(permutation, again)
    np.testing.assert_array_equal(pivots, expected[1])
    np.testing.assert_array_equal(permutation, expected[2])
    l = np.tril(checks.wide(packed)[:, : min(m, n)], -1) + np.eye(m, min(m, n))
    u = np.triu(checks.wide(packed)[: min(m, n)])
    assert checks.factorisation(a[permutation], l @ u, checks.eps(packed)) <= 10


@pytest.mark.parametrize("team", TEAMS)
def test_lu_info(library, dtype, team, rng):
  n = 18  # three panels, the last one not full
  a = matrices.general(rng, (), n, n, dtype)
  for k in range(n):
    for spoilt, expected in ((0, k + 1), (np.nan, -1)):
      given = a.copy()
      given[:, k] = spoilt
      packed, pivots, rows, again = _padded(given), _integers(n), _integers(n), _integers(n)
      info = _call(
          library, "lu", dtype, team, 0, n, n, packed, packed.shape[1], pivots, rows, again)
      assert info == expected
      assert np.all((pivots >= np.arange(n)) & (pivots < n))
      np.testing.assert_array_equal(np.sort(rows), np.arange(n))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 33, 100])
def test_determinant(library, dtype, n, rng):
  a = matrices.well_conditioned(rng, (), n, dtype) * 1e3
  a = a.astype(dtype)

  def run(team, order):
    given, det, sign = _padded(a), np.zeros(1, dtype), np.zeros(1, dtype)
    logarithm = np.zeros(1, det.real.dtype)
    _call(
        library, "determinant", dtype, team, order, n, given, given.shape[1], det, sign, logarithm)
    return det, sign, logarithm

  expected_sign, expected = np.linalg.slogdet(checks.wide(a))
  for det, sign, logarithm in _in_all_orders(run):
    tolerance = 100 * checks.eps(det) * max(n, 1)
    np.testing.assert_allclose(sign[0], expected_sign, atol=tolerance)
    np.testing.assert_allclose(logarithm[0], expected, rtol=tolerance, atol=tolerance)
    with np.errstate(over="ignore"):
      assert np.isfinite(det[0]) == (expected < np.log(np.finfo(dtype).max))


@pytest.mark.parametrize("n", [1, 2, 5, 33, 65, 128])
@pytest.mark.parametrize("cols", [1, 7, 40])
def test_solve(library, dtype, n, cols, rng):
  a = matrices.well_conditioned(rng, (), n, dtype)[rng.permutation(n)]  # rows are exchanged
  b = matrices.general(rng, (), n, cols, dtype)

  def run(team, order):
    given, rhs, x = _padded(a), _padded(b), _padded(b)
    info = _call(library, "solve", dtype, team, order, n, given, given.shape[1], cols, rhs,
                 rhs.shape[1], x)
    return info, x[:, :cols]

  for info, x in _in_all_orders(run):
    assert info == 0
    assert checks.solution(a, x, b) <= 10


@pytest.mark.parametrize("n", [1, 2, 5, 33, 65, 127])
def test_inverse(library, dtype, n, rng):
  a = matrices.well_conditioned(rng, (), n, dtype)[rng.permutation(n)]

  def run(team, order):
    given, inverse = _padded(a), _padded(a)
    info = _call(library, "inverse", dtype, team, order, n, given, given.shape[1], inverse)
    return info, inverse[:, :n]

  for info, inverse in _in_all_orders(run):
    assert info == 0
    assert checks.solution(a, inverse, np.eye(n, dtype=dtype)) <= 10


@pytest.mark.parametrize("value, expected", [(0, 3), (np.nan, -1)])
def test_singular(library, dtype, value, expected, rng):
  """What is solved with a matrix that cannot be is NaN throughout."""
  n = 5
  a = matrices.general(rng, (), n, n, dtype)
  a[:, 2] = value
  for name in ("solve", "inverse"):
    given, result = _padded(a), _padded(a)
    rhs = (n, _padded(a, fill=1), given.shape[1]) if name == "solve" else ()
    info = _call(library, name, dtype, 4, 0, n, given, given.shape[1], *rhs, result)
    assert info == expected
    assert np.isnan(result[:, :n]).all()


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n, cols", [(13, 7), (70, 1)])
def test_cholesky_solve(library, dtype, lower, n, cols, rng):
  a = matrices.positive_definite(rng, (), n, dtype)
  factor = scipy.linalg.cholesky(a, lower=lower)
  factor[np.tri(n, k=-1, dtype=bool).T if lower else np.tri(n, k=-1, dtype=bool)] = np.nan
  b = matrices.general(rng, (), n, cols, dtype)

  def run(team, order):
    given, x = _padded(factor), _padded(b)
    _call(library, "cholesky_solve", dtype, team, order, n, given, given.shape[1], lower, cols, x,
          x.shape[1])
    return (x[:, :cols],)

  for (x,) in _in_all_orders(run):
    assert checks.solution(a, x, b) <= 10


@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("n, cols", [(13, 7), (70, 1)])
def test_lu_solve(library, dtype, trans, n, cols, rng):
  a = matrices.well_conditioned(rng, (), n, dtype)[rng.permutation(n)]
  packed, pivots = scipy.linalg.lu_factor(a)
  b = matrices.general(rng, (), n, cols, dtype)

  def run(team, order):
    given, x = _padded(packed), _padded(b)
    _call(library, "lu_solve", dtype, team, order, n, given, given.shape[1],
          pivots.astype(np.int32), trans > 0, trans == 2, cols, x, x.shape[1])
    return (x[:, :cols],)

  for (x,) in _in_all_orders(run):
    assert checks.solution((a, a.T, a.conj().T)[trans], x, b) <= 10


@pytest.mark.parametrize("n, cols", [(13, 1), (13, 40), (100, 1), (100, 33)])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("operation", ["plain", "transpose", "adjoint", "conjugate"])
@pytest.mark.parametrize("unit_diagonal", [True, False])
def test_substitution(library, dtype, n, cols, lower, operation, unit_diagonal, rng):
  triangle = matrices.triangular(rng, (), n, dtype, lower=lower)
  triangle = np.tril(triangle) if lower else np.triu(triangle)
  given = triangle.copy()
  if unit_diagonal:
    triangle = triangle / n
    given = triangle.copy()
    np.fill_diagonal(triangle, 1)
    np.fill_diagonal(given, np.nan)
  given[np.tri(n, k=-1, dtype=bool).T if lower else np.tri(n, k=-1, dtype=bool)] = np.nan
  b = matrices.general(rng, (), n, cols, dtype)
  transpose = operation in ("transpose", "adjoint")
  conjugate = operation in ("adjoint", "conjugate")
  op = triangle.T if transpose else triangle
  op = op.conj() if conjugate else op

  def run(team, order):
    a, x = _padded(given), _padded(b)
    _call(library, "triangular_solve", dtype, team, order, n, a, a.shape[1], lower, transpose,
          conjugate, unit_diagonal, cols, x, x.shape[1])
    return (x[:, :cols],)

  for (x,) in _in_all_orders(run):
    assert checks.solution(op, x, b) <= 10


@pytest.mark.parametrize("back", [False, True])
def test_pivots(library, back, rng):
  n = 12
  pivots = rng.integers(-1, n + 1, n).astype(np.int32)  # some exchange nothing
  b = rng.standard_normal((n, 5)).astype(np.float32)
  expected = b.copy()
  for k in reversed(range(n)) if back else range(n):
    if 0 <= pivots[k] < n:
      expected[[k, pivots[k]]] = expected[[pivots[k], k]]

  def run(team, order):
    a, x = _padded(np.eye(n, dtype=np.float32)), _padded(b)
    _call(library, "lu_solve", np.float32, team, order, n, a, a.shape[1], pivots, back, 0, 5, x,
          x.shape[1])
    return (x[:, :5],)

  for (x,) in _in_all_orders(run):
    np.testing.assert_array_equal(x, expected)


def _run_qr(library, a, q_cols, pivoting):
  m, n = a.shape
  dtype = a.dtype

  def run(team, order):
    given = np.zeros((m, max(n, q_cols)), dtype)
    given[:, :n] = a
    packed = _padded(given)
    r, taus = np.empty_like(packed), np.zeros(min(m, n), dtype)
    columns = _integers(n) if pivoting else None
    _call(
        library, "qr", dtype, team, order, m, n, q_cols, packed, packed.shape[1], r, taus, columns)
    return packed[:, :q_cols], r[:, :n], taus, np.arange(n) if columns is None else columns

  return _in_all_orders(run)


SHAPES = [(1, 1), (2, 2), (5, 5), (9, 4), (4, 9), (33, 33), (64, 20), (130, 7), (0, 3), (3, 0)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("pivoting", [False, True])
def test_qr(library, dtype, shape, complete, pivoting, rng):
  m, n = shape
  a = matrices.general(rng, (), m, n, dtype)
  q_cols = m if complete else min(m, n)
  if a.size:
    (raw, taus), *others = scipy.linalg.qr(a, mode="raw", pivoting=pivoting)
  for q, packed, scales, order in _run_qr(library, a, q_cols, pivoting):
    r = np.triu(packed[:q_cols])
    assert checks.orthogonality(q) <= 10
    product = checks.wide(q) @ checks.wide(r)
    assert checks.factorisation(a[:, order], product, checks.eps(a)) <= 10
    if a.size:
      tolerance = 100 * checks.eps(a) * max(m, n)
      np.testing.assert_allclose(packed, raw, atol=tolerance * np.abs(raw).max())
      np.testing.assert_allclose(scales, taus, atol=tolerance)
      if pivoting:
        np.testing.assert_array_equal(order, others[-1])


@pytest.mark.parametrize("exponent", [-1, 1])
@pytest.mark.parametrize("pivoting", [False, True])
def test_qr_of_extremes(library, dtype, exponent, pivoting, rng):
  """Columns whose squares leave the range of the numbers, zero columns, and graded ones."""
  limits = np.finfo(dtype)
  largest = np.sqrt(limits.max) if exponent > 0 else limits.tiny / limits.eps
  a = matrices.general(rng, (), 9, 6, dtype)
  a *= np.asarray(largest if exponent < 0 else limits.max / 1e3, a.real.dtype)
  a[:, 2] = 0
  a[:, 4] *= limits.eps
  for q, packed, _, order in _run_qr(library, a, 6, pivoting):
    r = np.triu(packed[:6])
    assert checks.orthogonality(q) <= 10
    scale = 2.0 ** -np.frexp(np.abs(a).max())[1]
    product = checks.wide(q) @ (checks.wide(r) * scale)
    assert checks.factorisation(checks.wide(a[:, order]) * scale, product, checks.eps(a)) <= 10
    if pivoting:
      diagonal = np.abs(np.diagonal(r)).astype(np.float64)
      assert np.all(diagonal[1:] <= diagonal[:-1] * (1 + 10 * checks.eps(a)))


def _run_eigh(library, a, lower=True, symmetrize=True, vectors=True, most=None):
  n, dtype = len(a), a.dtype
  most = n * n + 8 * n if most is None else most

  def run(team, order):
    given = _padded(a)
    v, w = np.full_like(given, np.nan), np.zeros(n, a.real.dtype)
    info = _call(library, "eigh", dtype, team, order, n, given, given.shape[1], lower, symmetrize,
                 vectors, most, v, w)
    return info, w, v[:, :n]

  return _in_all_orders(run)


def _check_eigh(a, w, v):
  w, wide_v = checks.wide(w), checks.wide(v)
  assert np.all(np.diff(w) >= 0)
  assert checks.orthogonality(v) <= 30
  assert checks.factorisation(a, (wide_v * w) @ checks.adjoint(wide_v), checks.eps(v)) <= 30


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 17, 33, 64, 65, 100, 128])
def test_eigh(library, dtype, n, rng):
  a = matrices.hermitian(rng, (), n, dtype)
  for (info, w, v), (without, values, _) in zip(
      _run_eigh(library, a), _run_eigh(library, a, vectors=False), strict=True):
    assert info == without == 0
    _check_eigh(a, w, v)
    np.testing.assert_array_equal(values, w)
    np.testing.assert_allclose(
        values, np.linalg.eigvalsh(checks.wide(a)), rtol=0,
        atol=10 * max(n, 1) * checks.eps(a) * max(1, np.abs(w).max(initial=0)))


@pytest.mark.parametrize("n", [3, 33])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_eigh_without_room(library, dtype, n, rows, rng):
  """A record of rotations that is full goes on from where it ended."""
  a = matrices.hermitian(rng, (), n, dtype)
  expected = [(w, v) for _, w, v in _run_eigh(library, a)]
  for (info, w, v), (w_at_once, v_at_once) in zip(
      _run_eigh(library, a, most=rows * n), expected, strict=True):
    assert info == 0
    np.testing.assert_array_equal(w, w_at_once)
    np.testing.assert_array_equal(v, v_at_once)


@pytest.mark.parametrize("lower", [True, False])
def test_eigh_reads_one_triangle(library, dtype, lower, rng):
  n = 6
  a = matrices.hermitian(rng, (), n, dtype)
  given = a.copy()
  given[np.tri(n, k=-1, dtype=bool).T if lower else np.tri(n, k=-1, dtype=bool)] = np.nan
  for info, w, v in _run_eigh(library, given, lower, symmetrize=False):
    assert info == 0
    _check_eigh(a, w, v)


@pytest.mark.parametrize("n", [12, 65])
@pytest.mark.parametrize("kind", [
    "zero", "identity", "repeated", "cluster", "graded", "graded rows", "huge", "tiny", "ones",
    "rank", "wilkinson", "blocks"])
def test_eigh_of_special_matrices(library, dtype, kind, n, rng):
  limits = np.finfo(dtype)
  general = matrices.general(rng, (), n, n, dtype)
  q = np.linalg.qr(general)[0]
  scales = np.logspace(0, -20, n)
  a = {
      "zero": lambda: np.zeros((n, n)),
      "identity": lambda: np.eye(n),
      "repeated": lambda: (q * (1 + np.arange(n) // 4)) @ q.conj().T,
      "cluster": lambda: (q * (1 + limits.eps * np.arange(n))) @ q.conj().T,
      "graded": lambda: (q * np.logspace(0, -12, n)) @ q.conj().T,
      "graded rows": lambda: scales[:, None] * (general + general.conj().T) * scales,
      "huge": lambda: matrices.hermitian(rng, (), n, dtype) * float(limits.max / 1e3),
      "tiny": lambda: matrices.hermitian(rng, (), n, dtype) * float(limits.tiny * 1e3),
      "ones": lambda: np.ones((n, n)),
      "rank": lambda: general[:, :1] @ general[:, :1].conj().T,
      "wilkinson": lambda: (
          np.diag(np.abs(np.arange(n) - (n - 1) / 2)) + np.eye(n, k=1) + np.eye(n, k=-1)),
      "blocks": lambda: np.kron(np.eye(n), [[0, 1], [1, 0]])[:n, :n],
  }[kind]().astype(dtype)
  a = (a / 2 + a.conj().T / 2).astype(dtype)
  scale = 2.0 ** -np.frexp(np.abs(a).max())[1] if a.any() else 1.0
  for info, w, v in _run_eigh(library, a):
    assert info == 0
    _check_eigh(checks.wide(a) * scale, checks.wide(w) * scale, v)


@pytest.mark.parametrize("n", [16, 64, 128])
def test_eigenvalues_lose_no_more_than_lapacks(library, n, rng):
  """The sweeps' roundings do not add up in eigenvalues of float32: those of divide and conquer are
  the measure, as in tests/values/test_eigenvalue_errors.py."""
  errors = []
  for _ in range(20):
    a = matrices.hermitian(rng, (), n, np.float32)
    exact = np.linalg.eigvalsh(checks.wide(a))
    *_, (_, w, _) = _run_eigh(library, a)
    errors.append([np.max(np.abs(checks.wide(x) - exact)) for x in (w, scipy.linalg.eigh(
        a, driver="evd")[0])])
  ours, lapacks = np.mean(errors, axis=0)
  assert ours <= 1.25 * lapacks


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_eigh_of_what_is_not_finite(library, dtype, value, rng):
  a = matrices.hermitian(rng, (), 5, dtype)
  a[3, 1] = a[1, 3] = value
  for info, w, v in _run_eigh(library, a):
    assert info == -1
    assert np.isnan(w).all() and np.isnan(v).all()


def _run_svd(library, a, width, vectors=True):
  m, n = a.shape

  def run(team, order):
    given = np.full((m, width), np.nan, a.dtype)
    given[:, :n] = a
    given, v, s = _padded(given), np.full((n, n), np.nan, a.dtype), np.zeros(n, a.real.dtype)
    info = _call(
        library, "svd", a.dtype, team, order, m, n, width, vectors, given, given.shape[1], v, s)
    return info, given[:, :width], s, v

  return _in_all_orders(run)


def _check_svd(a, u, s, v):
  s, product = checks.wide(s), checks.wide(u)[:, : len(s)] * checks.wide(s)
  assert np.all(s >= 0) and np.all(np.diff(s) <= 0)
  assert checks.orthogonality(u) <= 30
  assert checks.orthogonality(v) <= 30
  assert checks.factorisation(a, product @ checks.adjoint(checks.wide(v)), checks.eps(v)) <= 30


@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 2), (3, 1), (5, 5), (9, 4), (33, 33), (64, 20), (64, 64), (130, 7)],
    ids=str)
@pytest.mark.parametrize("full", [True, False])
def test_svd(library, dtype, shape, full, rng):
  m, n = shape
  a = matrices.general(rng, (), m, n, dtype)
  for info, u, s, v in _run_svd(library, a, m if full else n):
    assert info == 0
    _check_svd(a, u, s, v)
  expected = np.linalg.svd(checks.wide(a), compute_uv=False)
  for info, _, s, _ in _run_svd(library, a, n, vectors=False):
    assert info == 0
    np.testing.assert_allclose(s, expected, rtol=0, atol=10 * m * checks.eps(a) * expected[0])


@pytest.mark.parametrize("kind", [
    "zero", "identity", "repeated", "graded", "huge", "tiny", "ones", "empty columns", "low rank"])
@pytest.mark.parametrize("shape", [(12, 12), (17, 6)], ids=str)
def test_svd_of_special_matrices(library, dtype, kind, shape, rng):
  """What leaves columns without a direction, or whose squares leave the range of the numbers."""
  m, n = shape
  limits = np.finfo(dtype)
  general = matrices.general(rng, (), m, n, dtype)
  u, v = np.linalg.qr(general)[0], np.linalg.qr(general[:n])[0]
  a = {
      "zero": lambda: np.zeros((m, n)),
      "identity": lambda: np.eye(m, n),
      "repeated": lambda: (u * np.repeat([3, 2, 1], n // 3)) @ v,
      "graded": lambda: (u * np.logspace(0, -30, n)) @ v,
      "huge": lambda: general * float(limits.max / 1e3),
      "tiny": lambda: general * float(limits.tiny * 1e3),
      "ones": lambda: np.ones((m, n)),
      "empty columns": lambda: general * (np.arange(n) % 2),
      "low rank": lambda: general[:, :2] @ general[:2],
  }[kind]().astype(dtype)
  scale = 2.0 ** -np.frexp(np.abs(a).max())[1] if a.any() else 1.0
  for info, u, s, v in _run_svd(library, a, m):
    assert info == 0
    _check_svd(checks.wide(a) * scale, u, checks.wide(s) * scale, v)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_svd_of_what_is_not_finite(library, dtype, value, rng):
  a = matrices.general(rng, (), 5, 3, dtype)
  a[3, 1] = value
  for info, *_ in _run_svd(library, a, 3):
    assert info == -1


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33, 64])
def test_hessenberg(library, dtype, n, rng):
  a = matrices.general(rng, (), n, n, dtype)

  def run(team, order):
    given = _padded(a)
    h, q = np.empty_like(given), np.empty_like(given)
    _call(library, "hessenberg", dtype, team, order, n, given, given.shape[1], h, q)
    return h[:, :n], q[:, :n]

  expected = scipy.linalg.hessenberg(checks.wide(a))
  for h, q in _in_all_orders(run):
    assert not np.tril(h, -2).any()
    assert checks.orthogonality(q) <= 10
    product = checks.wide(q) @ checks.wide(h) @ checks.adjoint(checks.wide(q))
    assert checks.factorisation(a, product, checks.eps(a)) <= 10
    assert not np.diagonal(h, -1).imag.any()
    np.testing.assert_allclose(np.sign(np.diagonal(h, -1).real[:-1]),
                               np.sign(np.diagonal(expected, -1).real[:-1]))


def _run_schur(library, a):
  n = len(a)

  def run(team, order):
    given = _padded(a)
    t, z, unscale = np.zeros_like(given), np.zeros_like(given), np.ones(1, a.real.dtype)
    info = _call(
        library, "schur", a.dtype, team, order, n, given, given.shape[1], t, z, unscale)
    return info, t[:, :n] * unscale, z[:, :n]

  return _in_all_orders(run)


def _run_eig(library, a, vectors=True):
  n = len(a)
  complex_dtype = np.result_type(a.dtype, np.complex64)

  def run(team, order):
    given = _padded(a)
    values, (left, right) = np.zeros(n, complex_dtype), np.zeros((2, n, n), complex_dtype)
    info = _call(library, "eig", a.dtype, team, order, n, given, given.shape[1], vectors, values,
                 left, right)
    return (info, values, left, right) if vectors else (info, values)

  return _in_all_orders(run)


def _general(kind, n, dtype, rng):
  """Matrices with blocks, with equal eigenvalues, without vectors, out of balance, that balancing
  may spoil, or at a loss for a shift."""
  limits = np.finfo(dtype)
  a = matrices.general(rng, (), n, n, dtype)
  scales = np.logspace(-4, 4, n)
  return {
      "general": lambda: a,
      "zero": lambda: np.zeros((n, n)),
      "identity": lambda: np.eye(n),
      "ones": lambda: np.ones((n, n)),
      "upper": lambda: np.triu(a),
      "lower": lambda: np.tril(a, -1) / 4 + np.diag(1 + np.arange(n) / n),
      "skew": lambda: a - a.T,
      "orthogonal": lambda: np.linalg.qr(a)[0],
      "cyclic": lambda: np.roll(np.eye(n), 1, axis=0),
      "rotations": lambda: np.kron(np.eye(n), [[0, 1], [-1, 0]])[:n, :n],
      "jordan": lambda: np.eye(n) / 2 + np.eye(n, k=1),
      "companion": lambda: scipy.linalg.companion(np.poly(np.linspace(1, 2, n))),
      "unbalanced": lambda: scales[:, None] * a / scales,
      "isolated": lambda: np.tril(a, -1) + np.diag(np.logspace(0, -20, n)),
      "rank": lambda: np.linalg.qr(a[:, :2] @ a[:2])[1].T,
      "frank": lambda: np.triu(n - np.maximum.outer(np.arange(n), np.arange(n)), -1),
      "huge": lambda: a * float(limits.max / 1e3),
      "tiny": lambda: a * float(limits.tiny * 1e3),
  }[kind]().astype(dtype)


GENERAL = (
    "general", "zero", "identity", "ones", "upper", "lower", "skew", "orthogonal", "cyclic",
    "rotations", "jordan", "companion", "unbalanced", "isolated", "rank", "frank", "huge", "tiny")


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("kind", GENERAL)
def test_schur(library, dtype, n, kind, rng):
  a = _general(kind, n, dtype, rng)
  scale = 2.0 ** -np.frexp(np.abs(a).max())[1] if a.any() else 1.0
  for info, t, z in _run_schur(library, a):
    assert info == 0
    assert checks.orthogonality(z) <= 30
    wide = checks.wide(t) * scale
    product = checks.wide(z) @ wide @ checks.adjoint(checks.wide(z))
    assert checks.factorisation(checks.wide(a) * scale, product, checks.eps(a)) <= 30
    below = np.diagonal(t, -1)
    assert not np.tril(t, -2).any()
    assert not (below[1:] * below[:-1]).any()
    if np.iscomplexobj(a):
      assert not below.any()
    else:
      (first,) = np.nonzero(below)
      assert np.all(t[first, first] == t[first + 1, first + 1])
      assert np.all(wide[first, first + 1] * wide[first + 1, first] < 0)
  for info, values in _run_eig(library, a, vectors=False):
    assert info == 0
    trace = np.trace(checks.wide(a) * scale)
    assert abs(checks.wide(values).sum() * scale - trace) <= 30 * n * checks.eps(a)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("kind", GENERAL)
def test_eigenvectors(library, dtype, n, kind, rng):
  a = _general(kind, n, dtype, rng)
  scale = 2.0 ** -np.frexp(np.abs(a).max())[1] if a.any() else 1.0
  wide = checks.wide(a) * scale
  for info, values, left, right in _run_eig(library, a):
    assert info == 0
    w = checks.wide(values) * scale
    for matrix, lambdas, vectors in (
        (wide, w, checks.wide(right)), (checks.adjoint(wide), np.conj(w), checks.wide(left))):
      residual = np.abs(matrix @ vectors - vectors * lambdas).max()
      size = max(np.abs(matrix).sum(axis=0).max(), np.finfo(np.float64).tiny)
      assert residual <= 30 * n * checks.eps(a) * size
      np.testing.assert_allclose(
          np.linalg.norm(vectors, axis=0), 1, rtol=0, atol=30 * checks.eps(a))
      sizes = np.abs(vectors)
      largest = sizes >= (1 - 10 * checks.eps(a)) * sizes.max(axis=0)  # as far as rounding tells
      assert np.all(np.any(largest & (vectors.imag == 0), axis=0))
    if not np.iscomplexobj(a):  # pairs are pairs, and real ones have real vectors
      np.testing.assert_array_equal(np.sort_complex(values), np.sort_complex(values.conj()))
      assert not right[:, values.imag == 0].imag.any()


@pytest.mark.parametrize("n", [1, 2, 9, 33])
def test_eigenvalues_of_permuted_triangles(library, dtype, n, rng):
  """They are the diagonal's, to the last bit."""
  order = rng.permutation(n)
  a = np.triu(matrices.general(rng, (), n, n, dtype))[order][:, order]
  for info, values, *_ in _run_eig(library, a):
    assert info == 0
    np.testing.assert_array_equal(np.sort_complex(values), np.sort_complex(np.diagonal(a)))


@pytest.mark.parametrize("n", [3, 10])
def test_balance(library, dtype, n, rng):
  """Eigenvalues that are lost beside the largest elements unless D spans thirty decades."""
  del rng
  a = np.eye(n, k=1, dtype=dtype)
  a[-1, 0] = 1e-30
  for info, values, *_ in _run_eig(library, a):
    assert info == 0
    np.testing.assert_allclose(np.abs(values), 1e-30 ** (1 / n), rtol=100 * checks.eps(a))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_schur_of_what_is_not_finite(library, dtype, value, rng):
  a = matrices.general(rng, (), 5, 5, dtype)
  a[3, 1] = value
  for info, *results in (*_run_schur(library, a), *_run_eig(library, a)):
    assert info == -1
    assert all(np.isnan(x).all() for x in results)
