"""The operation table on a GPU: residuals, SciPy's and CuPy's results, failures and transforms.

The single device also serves as a mesh.

  python -m pytest -m gpu -n 0
"""

import functools
import re

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import cases
import linalg
import linalg.scipy
import matrices
from linalg._catalogue import checks
from linalg._core import targets, tuning
from linalg._factorizations import matmul
from sharded import energy, no_collectives, split

pytestmark = pytest.mark.gpu
ALL_DTYPES = True


def _gpus():
  try:
    return jax.devices("cuda")
  except RuntimeError:
    return []


@pytest.fixture(autouse=True)
def on_gpu():
  if not _gpus():
    pytest.skip("JAX finds no GPU")
  if targets.cuda_version() is None:
    pytest.skip("this build has no CUDA module")
  if reason := targets.cuda_refusal():
    pytest.skip(f"the CUDA module is not used here: {reason}")
  with jax.default_device(_gpus()[0]):
    yield


# test_products covers products, because XLA takes those that no handler takes.
HANDLED = [x for x in cases.with_handlers("cuda") if not x.xla]


@pytest.fixture(params=HANDLED, ids=lambda case: case.name)
def case(request):
  return request.param


def _put(operands):
  return tuple(jax.device_put(x, _gpus()[0]) for x in operands)


def _results(case, operands):
  function = jax.jit(case.results)
  placed = _put(operands)
  assert "linalg_" in function.lower(*placed).as_text()
  return [np.asarray(x) for x in function(*placed)]


def _check(case, operands):
  results = _results(case, operands)
  ratio = case.ratio(operands, results)
  assert ratio <= case.limit, f"scaled residual {ratio}"
  return results


# Sizes on both sides of every crossover: threads, parts of a warp, warps, blocks and vendor
# routines.
SIZES = (0, 1, 2, 3, 4, 5, 8, 9, 11, 12, 16, 17, 32, 33, 63, 64, 65, 128, 129, 200)


@pytest.mark.parametrize("n", SIZES)
def test_residuals(case, dtype, n, rng):
  _check(case, case.operands(rng, (7,), n, n, dtype))


STRUCTURED = [case for case in cases.STRUCTURED if cases.has_handlers(case, "cuda")]


def _alone_and_bad(case, operands, which):
  """Checks that a part of a batch has the bits of the whole, beside a matrix of NaN too."""
  results = _check(case, operands)
  spoilt = [x.copy() for x in operands]
  for x in spoilt:
    x[0] = np.nan if x.dtype.kind in "fc" else -1
  for x, y in zip(results, _results(case, spoilt), strict=True):
    assert x[1:].tobytes() == y[1:].tobytes()
  for part in which:
    for x, y in zip(results, _results(case, [x[part] for x in operands]), strict=True):
      assert x[part].tobytes() == y.tobytes()


@cases.each(STRUCTURED)
@pytest.mark.parametrize(
    ("steps", "n", "batch"), [(1, 1, 3), (7, 1, 40), (5, 2, 300), (4, 3, 40), (3, 5, 5), (5, 6, 6),
                              (3, 8, 33), (3, 16, 3), (2, 23, 3), (2, 32, 2), (2, 33, 2)])
def test_structured(case, dtype, steps, n, batch, rng):
  operands = case.operands(rng, (batch,), steps, n, dtype)
  # Beyond this, XLA's products are part of the recursion.
  in_a_handler = n <= (tuning.MOST_STATES["cuda"] if case.name.startswith("kalman") else 32)
  _alone_and_bad(case, operands, [slice(0, 1), slice(batch // 2, None)] if in_a_handler else [])


# Operations on whole matrices whose results are unique, or come from a fixed algorithm.
FACTORED = [x for x in HANDLED if x.name in (
    "cholesky", "lu", "qr", "solve", "inv", "det", "slogdet", "eigh", "svd")]


@cases.each(FACTORED)
@pytest.mark.parametrize("n", [5, 20, 40, 80, 110])
def test_bits_do_not_depend_on_the_batch(case, dtype, n, rng):
  batch = 300 if n < 40 else 40
  operands = case.operands(rng, (batch,), n, n, dtype)
  if (case.name == "svd" and n > 64) or (dtype == np.complex128 and n > 80):
    pytest.skip("the routine, or cuBLAS's products of complex128, depend on the batch")
  _alone_and_bad(case, operands, [slice(0, 1), slice(batch - 3, None)])


@cases.each([x for x in FACTORED if x.name not in ("eigh", "svd")])
@pytest.mark.parametrize("n", [160, 352, 600])
def test_bits_by_panels_do_not_depend_on_the_batch(case, dtype, n, rng):
  """One matrix alone may go to the vendor's routine instead."""
  if dtype == np.complex128:
    pytest.skip("cuBLAS's products of complex128 depend on the batch")
  operands = case.operands(rng, (40,), n, n, dtype)
  _alone_and_bad(case, operands, [slice(0, 2), slice(20, 37)])


@pytest.mark.parametrize("n", [160, 352, 600])
def test_bits_of_eigh_by_panels_do_not_depend_on_the_batch(dtype, n, rng):
  """Fewer matrices go to the vendor's routine."""
  if dtype == np.complex128:
    pytest.skip("cuBLAS's products of complex128 depend on the batch")
  _alone_and_bad(
      cases.named("eigh"), (matrices.hermitian(rng, (40,), n, dtype),),
      [slice(0, 12), slice(20, 37)])


@pytest.mark.parametrize("n", [129, 200, 352, 512, 513, 1024])
@pytest.mark.parametrize("kind", ["general", "equal", "cluster", "graded", "low rank", "tiny"])
def test_eigh_by_panels(dtype, n, kind, rng):
  """Spectra that deflate or not. A bad matrix is NaN, alone."""
  batch, limits = max(n // 64 + 1, 4), np.finfo(dtype)
  if kind == "general":
    a = matrices.hermitian(rng, (batch,), n, dtype)
  else:
    q = np.linalg.qr(matrices.general(rng, (batch,), n, n, np.result_type(dtype, np.float64)))[0]
    values = {
        "equal": 1.0 + np.arange(n) // 9, "cluster": 1 + 8 * limits.eps * np.arange(n),
        "graded": np.logspace(0, -12, n), "low rank": np.arange(n) * (np.arange(n) < 5.0),
        "tiny": limits.tiny / limits.eps * (1 + np.arange(n))}[kind]
    a = q * values @ checks.adjoint(q)
    a = ((a + checks.adjoint(a)) / 2).astype(dtype)
  a[1, n - 1, 2] = np.nan
  w, v, info = map(np.asarray, linalg.eigh_ex(*_put((a,))))
  alone = np.asarray(linalg.eigvalsh(*_put((a,))))
  assert np.isnan(w[1]).all() and np.isnan(v[1]).all() and np.isnan(alone[1]).all()
  np.testing.assert_array_equal(info, -(np.arange(batch) == 1))
  for i in (0, 2, batch - 1):
    scale = 2.0 ** -np.frexp(np.abs(a[i]).max())[1]
    wide = checks.wide(v[i])
    product = wide * (checks.wide(w[i]) * scale) @ checks.adjoint(wide)
    assert checks.factorisation(checks.wide(a[i]) * scale, product, checks.eps(v)) <= 10
    assert checks.orthogonality(v[i]) <= 10
    assert np.all(np.diff(w[i]) >= 0)
    atol = 20 * n**0.5 * checks.eps(v) * np.abs(w[i]).max()
    np.testing.assert_allclose(alone[i], w[i], rtol=0, atol=atol)


@pytest.mark.parametrize("shape", [(20, 32), (40, 176), (40, 352), (640, 512), (60, 1024)], ids=str)
@pytest.mark.parametrize("name", ["cholesky", "qr", "eigh"])
def test_gates_of_a_contest(name, shape):
  """Relative errors of factors, 20 n ε, and of orthogonality, 100 n ε, in the Frobenius norm."""
  batch, n = shape
  rng = np.random.default_rng(0)
  a = rng.standard_normal((batch, n, n), dtype=np.float32)
  if name == "cholesky":
    a = np.eye(n, dtype=np.float32) + np.matmul(a, a.mT) / n
  elif name == "eigh":
    a = (a + a.mT) / 2

  def errors(a):
    found = [x.astype(jnp.float64) for x in jax.tree.leaves(getattr(linalg, name)(a))]
    if name == "cholesky":
      q, r = found[0], found[0].mT
    elif name == "qr":
      q, r = found
    else:
      q, r = found[1], found[0][..., None] * found[1].mT
    norm = lambda x: jnp.sqrt(jnp.sum(x * x, (-2, -1)))
    wide = a.astype(jnp.float64)
    factor = norm(q @ r - wide) / norm(wide)
    orthogonal = norm(q.mT @ q - jnp.eye(n)[None])
    return jnp.max(factor), jnp.max(orthogonal)

  factor, orthogonal = map(float, jax.jit(errors)(*_put((a,))))
  unit = n * float(np.finfo(np.float32).eps)
  assert factor <= 20 * unit
  if name != "cholesky":
    assert orthogonal <= 100 * unit


@pytest.mark.parametrize("n", [8, 160])
@pytest.mark.parametrize("name", ["cholesky", "lu", "qr", "solve", "inv", "det", "eigh"])
def test_more_elements_than_32_bits_count(name, n):
  """More than 2³¹ elements in more than 65,535 matrices. Copies of a matrix have its bits."""
  limit = (_gpus()[0].memory_stats() or {}).get("bytes_limit", 0)
  if limit < 56 << 30:
    pytest.skip("takes up to 56 GiB of a GPU's memory")
  few = 1000
  count = -(-(2**31 + 2**20) // (few * n * n))
  make = matrices.positive_definite if name == "cholesky" else matrices.well_conditioned
  some = make(np.random.default_rng(0), (few,), n, np.float32)
  run = lambda a: (
      linalg.solve(a, a[..., :1]) if name == "solve" else getattr(linalg, name)(a))
  if name == "lu":
    run = linalg.scipy.lu_factor

  @jax.jit
  def both_ends(some):
    many = jnp.broadcast_to(some, (count, *some.shape)).reshape(-1, n, n)
    found = jax.tree.leaves(run(many))
    return [x[:few] for x in found], [x[-few:] for x in found]

  expected = [np.asarray(x) for x in jax.tree.leaves(jax.jit(run)(*_put((some,))))]
  for end in both_ends(*_put((some,))):
    for x, y in zip(end, expected, strict=True):
      np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("n", [300, 512])
@pytest.mark.parametrize("batch", [(), (2,), (40,)], ids=str)
def test_large(case, dtype, n, batch, rng):
  _check(case, case.operands(rng, batch, n, n, dtype))


@cases.each(cases.RECTANGULAR_CASES)
@pytest.mark.parametrize(
    "shape", [(5, 3), (3, 5), (17, 4), (4, 17), (40, 33), (512, 32), (32, 512), (300, 100),
              (100, 300), (0, 3), (3, 0)], ids=str)
@pytest.mark.parametrize("batch", [3, 30])
def test_rectangles(case, dtype, shape, batch, rng):
  _check(case, case.operands(rng, (batch,), *shape, dtype))


@pytest.mark.parametrize("name", ["qr", "qr_complete", "qr_raw"])
@pytest.mark.parametrize(
    "batch, shape",
    [(3, (176, 176)), (3, (200, 150)), (3, (150, 200)), (6, (512, 512)), (3, (1024, 1024)),
     (3, (1500, 300))], ids=str)
def test_qr_by_panels(name, batch, shape, dtype, rng):
  """Residuals, and the same bits in two batches, but for products of complex128 by cuBLAS."""
  case = cases.named(name)
  (a,) = case.operands(rng, (batch,), *shape, dtype)
  results = _check(case, (a,))
  if dtype == np.complex128:
    return
  for x, y in zip(_results(case, (a[1:],)), results, strict=True):
    np.testing.assert_array_equal(x, y[1:])


@pytest.mark.parametrize("batch", [(), (0,), (1,), (3,), (2, 3), (1000,), (70000,)], ids=str)
@pytest.mark.parametrize("n", [2, 10])
def test_batches(case, batch, n, rng):
  operands = case.operands(rng, batch, n, n, np.float32)
  for result in _check(case, operands):
    assert result.shape[: len(batch)] == batch


def _invariant(case, results):
  """Computes on the CPU, because a GPU rounds float32 products to fewer bits."""
  with jax.default_device(jax.devices("cpu")[0]):
    return case.invariant([jnp.asarray(x) for x in results])


@cases.each([x for x in HANDLED if not x.unordered])
@pytest.mark.parametrize("n", [3, 6, 20, 40, 80, 140])
def test_agrees_with_scipy(case, dtype, n, rng):
  operands = case.operands(rng, (3,), n, n, dtype)
  results = _invariant(case, _results(case, operands))
  for i in range(3):
    for actual, expected in zip(results, case.expected(*(x[i] for x in operands)), strict=True):
      scale = n * max(1.0, np.max(np.abs(expected), initial=0))
      np.testing.assert_allclose(
          actual[i], expected, rtol=0, atol=300 * np.finfo(dtype).eps * scale)


@cases.each([x for x in HANDLED if x.unordered])
@pytest.mark.parametrize("n", [3, 6, 20, 40, 80])
def test_eigenvalues_agree_with_scipy(case, dtype, n, rng):
  """Each eigenvalue is paired with one of SciPy's, because the libraries order them differently.

  The residuals check which vectors belong to them.
  """
  (a,) = operands = case.operands(rng, (3,), n, n, dtype)
  values = _results(case, operands)[0]
  if values.ndim == a.ndim:  # a triangle, with eigenvalues on its diagonal
    values = np.stack([np.diag(scipy.linalg.rsf2csf(t, t)[0]) for t in values])
  for actual, expected in zip(values, map(scipy.linalg.eigvals, checks.wide(a)), strict=True):
    distances = np.abs(expected[:, None] - actual)
    scale = n * max(1.0, np.max(np.abs(expected)))
    matched = distances[scipy.optimize.linear_sum_assignment(distances)]
    assert np.max(matched) <= 300 * np.finfo(dtype).eps * scale


@pytest.mark.parametrize("n", [3, 10, 40, 80, 140])
@pytest.mark.parametrize("batch", [3, 40])
def test_a_bad_matrix_is_alone(case, dtype, n, batch, rng):
  """NaN in one matrix does not change the bits of the others."""
  operands = case.operands(rng, (batch,), n, n, dtype)
  spoilt = [x.copy() for x in operands]
  for x in spoilt:
    x[1] = np.nan if x.dtype.kind in "fc" else -1
  for x, y in zip(_results(case, operands), _results(case, spoilt), strict=True):
    assert np.delete(x, 1, 0).tobytes() == np.delete(y, 1, 0).tobytes()


@pytest.mark.parametrize("n", [2, 10, 40, 80, 140])
def test_cholesky_info(dtype, n, rng):
  a = matrices.positive_definite(rng, (4,), n, dtype)
  a[1, n - 1, n - 1] = -1
  a[2, 0, 0] = np.nan
  for options in ({}, {"upper": True}, {"symmetrize_input": False}):
    factor, info = linalg.cholesky_ex(*_put((a,)), **options)
    np.testing.assert_array_equal(info, [0, n, 1, 0])
    np.testing.assert_array_equal(np.isnan(factor).any((-2, -1)), [False, True, True, False])


# Panels of one column and of all, of one tile of rows and of several.
@pytest.mark.parametrize("n, upper, symmetrize", [
    (129, False, True), (200, True, False), (512, False, False), (1024, True, True),
    (1024, False, True)])
def test_cholesky_by_panels(dtype, n, upper, symmetrize, rng):
  """Failures in several panels do not change the bits of the other matrices."""
  a = matrices.positive_definite(rng, (5,), n, dtype)
  a[1, n - 1, n - 1] = a[2, 100, 100] = -1
  a[2, 40, 3] = a[2, 3, 40] = np.nan
  a[3, 0, 0] = 0
  rows, cols = np.indices((n, n))
  above = cols < rows if upper else cols > rows
  given = a if symmetrize else np.where(above, np.nan, a).astype(dtype)
  factors = jax.jit(functools.partial(
      linalg.cholesky_ex, upper=upper, symmetrize_input=symmetrize))
  factor, info = (np.asarray(x) for x in factors(*_put((given,))))
  np.testing.assert_array_equal(info, [0, n, 41, 1, 0])
  assert not factor[:, above].any()
  np.testing.assert_array_equal(np.isnan(factor[:, ~above]).all(1), info != 0)
  good = [0, 4]
  for k in (1, 2, 3):
    given[k] = given[0]
  again, info = (np.asarray(x) for x in factors(*_put((given,))))
  assert not info.any()
  for k in (1, 2, 3):
    np.testing.assert_array_equal(again[k], again[0])
  np.testing.assert_array_equal(factor[good], again[good])
  l = checks.wide(factor[good])
  l = checks.adjoint(l) if upper else l
  assert checks.factorisation(a[good], l @ checks.adjoint(l), checks.eps(factor)) <= 10


def test_cholesky_of_many_elements(rng):
  """More than 2^31 elements, and more matrices than one call of cuBLAS takes."""
  count, copies, n = 7, 20_000, 129
  a = matrices.positive_definite(rng, (count,), n, np.float32)
  factor = jax.jit(lambda a: linalg.cholesky(jnp.tile(a, (copies, 1, 1))))(*_put((a,)))
  parts = factor.reshape(copies, count, n, n)
  for part in (parts[1], parts[copies // 2], parts[-1]):
    np.testing.assert_array_equal(part, parts[0])
  assert checks.factorisation(
      a, checks.wide(parts[0]) @ checks.adjoint(checks.wide(parts[0])), checks.eps(a)) <= 10


@pytest.mark.parametrize("n", [65, 128, 200, 256, 300, 512])
@pytest.mark.parametrize("batch", [2, 100])
def test_ill_conditioned_cholesky(dtype, n, batch, rng):
  """Routines for batches have returned NaN for such matrices."""
  q = matrices.unitary(rng, n, dtype)
  spectrum = matrices.spectrum(rng, "geometric", n, 1e6)
  a = np.stack([(q * rng.permutation(spectrum)) @ q.conj().T for _ in range(batch)])
  a = ((a + checks.adjoint(a)) / 2).astype(dtype)
  factor, info = (np.asarray(x) for x in linalg.cholesky_ex(*_put((a,))))
  assert not np.any(info)
  product = checks.wide(factor) @ checks.adjoint(checks.wide(factor))
  assert checks.factorisation(a, product, checks.eps(factor)) <= 30


@pytest.mark.parametrize("n", [2, 10, 40, 80, 140])
def test_lu_info(dtype, n, rng):
  a = matrices.general(rng, (4,), n, n, dtype)
  a[1, :, n // 2] = 0
  a[2, n - 1, n - 1] = np.nan
  b = matrices.general(rng, (len(a),), n, 2, dtype)
  expected = [0, n // 2 + 1, -1, 0]
  np.testing.assert_array_equal(linalg.lu_ex(*_put((a,)))[-1], expected)
  for x, info in (linalg.solve_ex(*_put((a, b))), linalg.inv_ex(*_put((a,)))):
    np.testing.assert_array_equal(info, expected)
    np.testing.assert_array_equal(np.isnan(x).all((-2, -1)), [False, True, True, False])
  det = np.asarray(linalg.det(*_put((a,))))
  assert det[1] == 0 and np.isnan(det[2])


# By panels up to a shorter side of 1024 and 2048 rows, then by the vendor.
@pytest.mark.parametrize("shape, batch", [
    ((129, 129), 40), ((200, 200), 40), ((512, 512), 8), ((1024, 1024), 3), ((1100, 1100), 3),
    ((300, 700), 5), ((700, 300), 5), ((1024, 129), 5), ((2048, 300), 2), ((2100, 300), 2)],
    ids=str)
def test_large_lu(shape, batch, dtype, rng):
  """Pivots are LAPACK's, and a singular matrix is alone."""
  a = matrices.general(rng, (batch,), *shape, dtype)
  a[1, :, 100] = 0
  *results, info = (np.asarray(x) for x in linalg.lu_ex(*_put((a,))))
  np.testing.assert_array_equal(info, np.where(np.arange(batch) == 1, 101, 0))
  case = cases.named("lu")
  assert case.ratio((a,), results) <= case.limit
  if shape[0] <= 1024 and dtype == np.float64:  # in float32 rounding may decide
    for i in {0, batch - 1}:
      np.testing.assert_array_equal(results[1][i], scipy.linalg.lu_factor(a[i])[1])


@pytest.mark.parametrize("n, batch", [(129, 40), (200, 40), (512, 8), (1024, 8), (1100, 2)])
@pytest.mark.parametrize("cols", [1, 3, 100])
def test_large_systems(n, batch, cols, dtype, rng):
  """Both triangles, by panels and by the vendor, also of the transposed matrix and its adjoint."""
  a = matrices.well_conditioned(rng, (batch,), n, dtype)
  b = matrices.general(rng, (batch,), n, cols, dtype)

  def solve(a, b):
    factors = linalg.lu(a)[:2]
    return [linalg.solve(a, b), *(linalg.lu_solve(factors, b, trans) for trans in range(3))]

  ops = (a, a, a.mT, a.mT.conj())
  for op, x in zip(ops, jax.jit(solve)(*_put((a, b))), strict=True):
    assert checks.solution(op, np.asarray(x), b) <= 30


@pytest.mark.parametrize("n", [129, 200, 512, 1024])
def test_bits_of_lu_do_not_depend_on_the_batch(dtype, n, rng):
  a = matrices.general(rng, (9,), n, n, dtype)
  whole = [np.asarray(x) for x in linalg.lu_ex(*_put((a,)))]
  for alone, x in zip(linalg.lu_ex(*_put((a[-1:],))), whole, strict=True):
    np.testing.assert_array_equal(alone, x[-1:])


@pytest.mark.parametrize("n", [2, 10, 40, 80])
def test_eigh_info(dtype, n, rng):
  a = matrices.hermitian(rng, (3,), n, dtype)
  a[1, n - 1, 0] = a[1, 0, n - 1] = np.inf
  for uplo in "LU":
    w, v, info = linalg.eigh_ex(*_put((a,)), uplo, symmetrize_input=False)
    np.testing.assert_array_equal(info, [0, -1, 0])
    np.testing.assert_array_equal(np.isnan(w).all(-1), [False, True, False])
    assert checks.orthogonality(np.asarray(v)[[0, 2]]) <= 60


@pytest.mark.parametrize("n", [2, 10, 40, 80])
def test_svd_and_eig_info(dtype, n, rng):
  a = matrices.general(rng, (3,), n, n, dtype)
  a[1, n - 1, 0] = np.nan
  for *results, info in (linalg.svd_ex(*_put((a,))), linalg.eig_ex(*_put((a,)))):
    np.testing.assert_array_equal(info, [0, -1, 0])
    for x in results:
      np.testing.assert_array_equal(np.isnan(x).reshape(3, -1).all(-1), [False, True, False])


@pytest.mark.parametrize("shape", [(40, 40), (30, 12), (12, 30), (90, 80)], ids=str)
def test_svd_of_low_rank(dtype, shape, rng):
  """Vectors of zero singular values are orthonormal too."""
  m, n = shape
  a = matrices.general(rng, (3,), m, 5, dtype) @ matrices.general(rng, (3,), 5, n, dtype)
  u, s, vh = (np.asarray(x) for x in linalg.svd(*_put((a,))))
  assert checks.orthogonality(u) <= 30
  assert checks.orthogonality(checks.adjoint(vh)) <= 30
  k = min(shape)
  product = checks.wide(u)[..., :k] * s[..., None, :] @ checks.wide(vh)[..., :k, :]
  assert checks.factorisation(a, product, checks.eps(u)) <= 30


@pytest.mark.parametrize(
    "shape", [(65, 65), (130, 130), (200, 150), (150, 200), (300, 300), (512, 512)], ids=str)
@pytest.mark.parametrize("batch", [1, 6])
@pytest.mark.parametrize("decades", [0, 3, 12])
def test_svd_of_spectra(dtype, shape, batch, decades, rng):
  """One matrix goes to cuSOLVER: Xgesvdp moves small singular values. Several go by blocks."""
  k = min(shape)
  values = np.logspace(0, -decades, k)
  a = np.stack([matrices.with_singular_values(rng, values, *shape, dtype) for _ in range(batch)])
  a = a.astype(dtype)
  u, s, vh, info = (np.asarray(x) for x in linalg.svd_ex(*_put((a,)), full_matrices=False))
  assert not np.any(info)
  assert checks.orthogonality(u) <= 30
  assert checks.orthogonality(checks.adjoint(vh)) <= 30
  product = checks.wide(u) * s[..., None, :] @ checks.wide(vh)
  assert checks.factorisation(a, product, checks.eps(u)) <= 30
  for found in (s, np.asarray(linalg.svdvals(*_put((a,))))):
    np.testing.assert_allclose(
        found, np.broadcast_to(values, found.shape), rtol=0, atol=10 * k * checks.eps(u))


@pytest.mark.parametrize("batch, n", [
    (1, 1), (3, 2), (300, 33), (3, 63), (3, 64), (300, 1000), (4096, 65), (4097, 65),
    (1, 1_000_003)])
def test_tridiagonal_solve(dtype, n, batch, rng):
  dl, d, du = (matrices.general(rng, (batch,), 1, n, dtype)[:, 0] for _ in range(3))
  d += 12
  x = matrices.general(rng, (batch,), n, 2, dtype)
  b = d[..., None] * x
  b[:, 1:] += dl[:, 1:, None] * x[:, :-1]
  b[:, :-1] += du[:, :-1, None] * x[:, 1:]
  solution, info = linalg.tridiagonal_solve_ex(*_put((dl, d, du, b)))
  assert not np.any(info)
  np.testing.assert_allclose(solution, x, rtol=0, atol=1000 * np.finfo(dtype).eps)


@pytest.mark.parametrize("n", [65, 20_001])
def test_tridiagonal_info(dtype, n):
  """Matrices that are singular, singular but for rounding, or hold NaN."""
  dl, d, du = (np.tile(np.asarray(x, dtype), (4, n)) for x in (-1, 2, -1))
  d[1, [0, -1]] = 1
  d[2], dl[2] = 0, 1
  d[3, n // 2] = np.nan
  x, info = linalg.tridiagonal_solve_ex(*_put((dl, d, du, np.ones((4, n, 2), dtype))))
  np.testing.assert_array_equal(info, [0, n, n, -1])
  np.testing.assert_array_equal(np.isnan(x).all((1, 2)), [False, True, True, True])


def test_many_eigenvalues_of_a_tridiagonal_matrix(dtype):
  """There are more eigenvalues than concurrent threads, but few enough for a GPU with slow float64.

  The watchdog of a GPU with a display ends kernels that run for seconds.
  """
  n = 30_000
  d, e = np.full(n, 2, dtype), np.full(n - 1, -1, dtype)
  w = np.asarray(linalg.eigh_tridiagonal(*_put((d, e)), eigvals_only=True))
  assert np.all(np.diff(w) >= 0)
  expected = 4 * np.sin(np.pi * np.arange(1, n + 1) / (2 * n + 2)) ** 2
  np.testing.assert_allclose(w, expected, rtol=0, atol=10 * np.finfo(dtype).eps)


@pytest.mark.parametrize("n", [4, 40, 80, 140])
@pytest.mark.parametrize("cols", [1, 70, 300])
def test_shared_matrix(dtype, n, cols, rng):
  """One matrix for a batch of right-hand sides that exceeds one pass of a team."""
  a = matrices.well_conditioned(rng, (), n, dtype)
  b = matrices.general(rng, (5,), n, cols, dtype)
  x = np.asarray(linalg.solve(*_put((a, b))))
  assert checks.solution(np.broadcast_to(a, (5, n, n)), x, b) <= 30
  packed, pivots, _ = linalg.lu(*_put((a,)))
  for trans, op in enumerate((a, a.T, a.conj().T)):
    x = np.asarray(linalg.lu_solve((packed, pivots), *_put((b,)), trans))
    assert checks.solution(np.broadcast_to(op, (5, n, n)), x, b) <= 30


@pytest.mark.parametrize("n", [5, 40, 80, 140])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose_a, conjugate_a", [(0, 0), (1, 0), (1, 1), (0, 1)])
@pytest.mark.parametrize("left_side", [True, False])
def test_triangular(dtype, n, lower, transpose_a, conjugate_a, left_side, rng):
  a = matrices.triangular(rng, (3,), n, dtype, lower=lower)
  b = matrices.general(rng, (3,), *((n, 4) if left_side else (4, n)), dtype)
  x = np.asarray(linalg.triangular_solve(
      *_put((a, b)), left_side=left_side, lower=lower, transpose_a=bool(transpose_a),
      conjugate_a=bool(conjugate_a)))
  op = np.tril(a) if lower else np.triu(a)
  op = op.mT if transpose_a else op
  op = op.conj() if conjugate_a else op
  if not left_side:
    op, x, b = op.mT, x.mT, b.mT
  assert checks.solution(op, x, b) <= 30


@pytest.mark.parametrize("n", [6, 40, 80, 140])
def test_vmap_and_jit(case, n, rng):
  operands = case.operands(rng, (3, 4), n, n, np.float64)
  mapped = jax.jit(jax.vmap(case.results, in_axes=1, out_axes=1))(*_put(operands))
  for x, y in zip(mapped, _results(case, operands), strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-9 * np.max(np.abs(y), initial=1))


@cases.each([x for x in HANDLED if x in cases.DIFFERENTIABLE_CASES])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("n", [5, 20, 33])
def test_gradient(case, dtype, n, rng):
  """The gradient on the GPU equals that on the CPU."""
  if dtype not in case.dtypes:
    pytest.skip("no operation of this dtype")
  operands = case.operands(rng, (3,), n, n, dtype)
  floating, merge = split(operands)
  gradient = jax.jit(jax.grad(lambda x: energy(case, 1, *merge(x)).sum()))
  actual = gradient(_put(floating))
  with jax.default_device(jax.devices("cpu")[0]):
    expected = gradient(tuple(jax.device_put(x, jax.devices("cpu")[0]) for x in floating))
  for x, y in zip(actual, expected, strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-7 * np.max(np.abs(y), initial=1))


def _on_cpu(function, operands):
  """Returns the function's results on the CPU, in double precision."""
  cpu = jax.devices("cpu")[0]
  with jax.default_device(cpu):
    return function(*(jax.device_put(checks.wide(x), cpu) for x in operands))


# One tile of a thread, several, and tiles partly outside the matrix; the last has many in a block.
PRODUCTS = [
    (2, 2, 2), (3, 3, 3), (4, 4, 4), (5, 6, 7), (8, 8, 8), (9, 7, 17), (1, 5, 2), (16, 3, 16),
    (17, 31, 15), (12, 12, 12), (32, 32, 32), (0, 4, 5)]


@pytest.mark.parametrize("turned", [None, "a", "b"])
@pytest.mark.parametrize("batches", [((300,), (300,)), ((), (300,)), ((7,), ())], ids=str)
@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_products(dtype, sizes, batches, turned, rng):
  """Products have full precision for plain, transposed, adjoint and shared operands.

  The handlers are called even for operands that programs leave to XLA.
  """
  m, depth, n = sizes
  a = matrices.general(rng, batches[0], m, depth, dtype)
  b = matrices.general(rng, batches[1], depth, n, dtype)
  turn = lambda x: np.ascontiguousarray(np.swapaxes(x, -1, -2))
  multiply = jax.ffi.ffi_call(
      "linalg_matmul" if turned is None else f"linalg_matmul_transpose_{turned}",
      jax.ShapeDtypeStruct((*(batches[0] or batches[1]), m, n), dtype))
  operands = _put((turn(a) if turned == "a" else a, turn(b) if turned == "b" else b))
  for conjugate in ((False, False), (True, False), (False, True), (True, True)):
    function = jax.jit(functools.partial(
        multiply, conjugate_a=conjugate[0], conjugate_b=conjugate[1]))
    x, y = (z.conj() if c else z for z, c in zip((a, b), conjugate, strict=True))
    error = np.abs(np.asarray(function(*operands)) - checks.wide(x) @ checks.wide(y))
    assert np.all(error <= 2 * (depth + 1) * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b)))
    if dtype.kind != "c":
      break


@pytest.mark.parametrize("batch", [(), (1,), (2, 3), (70000,)], ids=str)
def test_batches_of_products(dtype, batch, rng):
  """A product has the same bits in any batch."""
  a, b = (matrices.general(rng, batch, 5, 5, dtype) for _ in range(2))
  whole = np.asarray(linalg.matmul(*_put((a, b)))).reshape(-1, 5, 5)
  last = [x.reshape(-1, 5, 5)[-1] for x in (a, b)]
  np.testing.assert_array_equal(linalg.matmul(*_put(last)), whole[-1])


@pytest.mark.parametrize("batches", [((9,), (9,)), ((), (9,)), ((9,), ())], ids=str)
def test_gradients_of_products(dtype, batches, rng):
  a = matrices.general(rng, batches[0], 5, 3, dtype)
  b = matrices.general(rng, batches[1], 3, 6, dtype)
  c = matrices.general(rng, (9,), 5, 6, dtype)
  gradients = jax.jit(lambda a, b, c: jax.vjp(matmul.product, a, b)[1](c))
  for x, y in zip(gradients(*_put((a, b, c))), _on_cpu(gradients, (a, b, c)), strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=300 * np.finfo(dtype).eps)


RULES = {
    "cholesky": linalg.cholesky,
    "cholesky_upper": lambda a: linalg.cholesky(a, upper=True, symmetrize_input=False),
    "qr": lambda a: linalg.qr(a[..., : a.shape[-1] // 2 + 1]),
    "det": linalg.det,
}


@pytest.mark.parametrize("n", [1, 2, 5, 8, 9, 12, 13, 16, 17])
@pytest.mark.parametrize("name", RULES)
def test_rules(name, dtype, n, rng):
  """Derivatives are right in both modes, at all sizes, and for singular matrices."""
  function = RULES[name]
  make = matrices.positive_definite if "cholesky" in name else matrices.well_conditioned
  a = make(rng, (300,), n, dtype)
  if name == "det" and n > 1:
    a[1, 1] = a[1, 0]
  da = matrices.general(rng, (300,), n, n, dtype)

  def both(a, da):
    y, tangent = jax.jvp(function, (a,), (da,))
    return tangent, jax.vjp(function, a)[1](jax.tree.map(jnp.ones_like, y))[0]

  both = jax.jit(both)
  found = jax.tree.leaves(both(*_put((a, da))))
  for x, y in zip(found, jax.tree.leaves(_on_cpu(both, (a, da))), strict=True):
    scale = n * np.max(np.abs(y), initial=1)
    np.testing.assert_allclose(x, y, rtol=0, atol=1000 * np.finfo(dtype).eps * scale)


def test_sharded(case, rng):
  mesh = jax.make_mesh((1,), ("x",), devices=_gpus()[:1])
  operands = case.operands(rng, (8,), 6, 6, np.float64)
  sharded = tuple(jax.device_put(x, NamedSharding(mesh, P("x"))) for x in operands)
  compiled = jax.jit(case.results).lower(*sharded).compile()
  no_collectives(compiled.as_text())
  for x, y in zip(compiled(*sharded), _results(case, operands), strict=True):
    np.testing.assert_array_equal(x, y)


def test_donated(dtype, rng):
  """Factors and solutions are written to the memory of donated operands."""
  for n in (4, 40, 80, 140):
    a = matrices.positive_definite(rng, (5,), n, dtype)
    b = matrices.general(rng, (5,), n, 3, dtype)
    factor = lambda a: linalg.cho_factor(a, lower=True, overwrite_a=True)[0]
    l = jax.jit(factor, donate_argnums=0)(*_put((a,)))
    np.testing.assert_array_equal(l, linalg.cho_factor(*_put((a,)), lower=True)[0])
    lu, pivots = jax.jit(
        lambda a: linalg.lu_factor(a, overwrite_a=True), donate_argnums=0)(*_put((a,)))
    solve = lambda b: linalg.lu_solve((lu, pivots), b, overwrite_b=True)
    x = np.asarray(jax.jit(solve, donate_argnums=0)(*_put((b,))))
    assert checks.solution(a, x, b) <= 30


@pytest.mark.parametrize("n", [4, 40, 80])
@pytest.mark.parametrize("name", ["cholesky", "solve", "inv", "det", "eigh", "qr"])
def test_agrees_with_cupy(name, dtype, n, rng):
  """CuPy, on the same memory through DLPack, agrees."""
  cupy = pytest.importorskip("cupy")
  case = cases.named(name)
  operands = case.operands(rng, (3,), n, n, dtype)
  theirs = getattr(cupy.linalg, name)(*(cupy.from_dlpack(x) for x in _put(operands)))
  theirs = theirs if isinstance(theirs, tuple) else (theirs,)
  cupy.cuda.get_current_stream().synchronize()
  theirs = [cupy.asnumpy(x) for x in theirs]
  ours = _results(case, operands)
  if name == "qr":  # signs of R may differ
    ours, theirs = [np.abs(ours[1])], [np.abs(theirs[1])]
  else:
    ours, theirs = _invariant(case, ours), _invariant(case, theirs)
  for x, y in zip(ours, theirs, strict=True):
    scale = n * np.max(np.abs(y), initial=1)
    np.testing.assert_allclose(x, y, rtol=0, atol=1000 * np.finfo(dtype).eps * scale)


def _permutation(pivots, size):
  order = np.tile(np.arange(size, dtype=np.int32), (len(pivots), 1))
  for row, steps in zip(order, pivots, strict=True):
    for k, pivot in enumerate(steps):
      row[[k, pivot]] = row[[pivot, k]]
  return order


def test_program_can_be_captured(rng):
  """A recorded CUDA graph is replayed on other numbers, in other memory.

  Each call of lu_pivots_to_permutation depends on the one before, and the operands of all runs stay
  alive.
  """
  n, calls = 40, 12

  @functools.partial(jax.jit, compiler_options={"xla_gpu_graph_min_graph_size": 1})
  def function(pivots):
    results = []
    for _ in range(calls):
      results.append(linalg.lu_pivots_to_permutation(pivots, n))
      least = jnp.arange(n, dtype=jnp.int32)
      pivots = jnp.maximum(results[-1], jnp.broadcast_to(least, pivots.shape))
    return results

  runs = []
  for _ in range(8):
    pivots = rng.integers(np.arange(n), n, (64, n), dtype=np.int32)
    (placed,) = _put((pivots,))
    runs.append((placed, function(placed)))
    for actual in runs[-1][1]:
      expected = _permutation(pivots, n)
      np.testing.assert_array_equal(actual, expected)
      pivots = np.maximum(expected, np.arange(n, dtype=np.int32))


@pytest.mark.parametrize("n", [4, 40])
@jax.default_matmul_precision("highest")
def test_recorded_chain(dtype, n, rng):
  """A chain of handlers that are recorded up to a size; each waits for the one before."""
  @functools.partial(jax.jit, compiler_options={"xla_gpu_graph_min_graph_size": 1})
  def function(a, b):
    for _ in range(3):
      b = linalg.solve(a, b)
      q, r = linalg.qr(b)
      b = linalg.triangular_solve(linalg.cholesky(linalg.matmul(b, b.conj().mT)), q, left_side=True)
      b = linalg.inv(linalg.matmul(b, r))
    return b

  def operands():
    near = lambda: matrices.unitary(rng, n, dtype) + matrices.general(
        rng, (64,), n, n, dtype) / (4 * n)
    return near().astype(dtype), near().astype(dtype)

  called = set(re.findall(r"@linalg_(\w+)_captured\(", function.lower(*_put(operands())).as_text()))
  assert called == {"cholesky", "inv", "qr", "solve", "triangular_solve"}
  runs = [(given := operands(), function(*_put(given))) for _ in range(8)]
  for given, found in runs:
    expected = np.asarray(_on_cpu(function, given))
    scale = np.max(np.abs(expected), (-2, -1), keepdims=True)
    assert np.all(np.abs(np.asarray(found) - expected) <= 1e3 * np.finfo(dtype).eps * scale)
