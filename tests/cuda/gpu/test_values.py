"""Results on a GPU: residuals, and the results of SciPy and CuPy."""

import functools

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

import cases
import linalg
import linalg.scipy
import matrices
from gpu_calls import HANDLED, alone_and_bad, check, put, results_of
from linalg._catalogue import checks
from linalg._core import tuning

pytestmark = pytest.mark.gpu
ALL_DTYPES = True


# Sizes on both sides of every crossover: threads, parts of a warp, warps, blocks and vendor
# routines.
SIZES = (0, 1, 2, 3, 4, 5, 8, 9, 11, 12, 16, 17, 32, 33, 63, 64, 65, 128, 129, 200)


@pytest.mark.parametrize("n", SIZES)
def test_residuals(case, dtype, n, rng):
  check(case, case.operands(rng, (7,), n, n, dtype))


STRUCTURED = [case for case in cases.STRUCTURED if cases.has_handlers(case, "cuda")]


@cases.each(STRUCTURED)
@pytest.mark.parametrize(
    ("steps", "n", "batch"), [(1, 1, 3), (7, 1, 40), (5, 2, 300), (4, 3, 40), (3, 5, 5), (5, 6, 6),
                              (3, 8, 33), (3, 16, 3), (2, 23, 3), (2, 32, 2), (2, 33, 2)])
def test_structured(case, dtype, steps, n, batch, rng):
  operands = case.operands(rng, (batch,), steps, n, dtype)
  # Beyond this, XLA's products are part of the recursion.
  in_a_handler = n <= (tuning.MOST_STATES["cuda"] if case.name.startswith("kalman") else 32)
  alone_and_bad(case, operands, [slice(0, 1), slice(batch // 2, None)] if in_a_handler else [])


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
  w, v, info = map(np.asarray, linalg.eigh_ex(*put((a,))))
  alone = np.asarray(linalg.eigvalsh(*put((a,))))
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

  factor, orthogonal = map(float, jax.jit(errors)(*put((a,))))
  unit = n * float(np.finfo(np.float32).eps)
  assert factor <= 20 * unit
  if name != "cholesky":
    assert orthogonal <= 100 * unit


@pytest.mark.parametrize("n", [300, 512])
@pytest.mark.parametrize("batch", [(), (2,), (40,)], ids=str)
def test_large(case, dtype, n, batch, rng):
  check(case, case.operands(rng, batch, n, n, dtype))


@cases.each(cases.RECTANGULAR_CASES)
@pytest.mark.parametrize(
    "shape", [(5, 3), (3, 5), (17, 4), (4, 17), (40, 33), (512, 32), (32, 512), (300, 100),
              (100, 300), (0, 3), (3, 0)], ids=str)
@pytest.mark.parametrize("batch", [3, 30])
def test_rectangles(case, dtype, shape, batch, rng):
  check(case, case.operands(rng, (batch,), *shape, dtype))


@pytest.mark.parametrize("name", ["qr", "qr_complete", "qr_raw"])
@pytest.mark.parametrize(
    "batch, shape",
    [(3, (176, 176)), (3, (200, 150)), (3, (150, 200)), (6, (512, 512)), (3, (1024, 1024)),
     (3, (1500, 300))], ids=str)
def test_qr_by_panels(name, batch, shape, dtype, rng):
  """Residuals, and the same bits in two batches, but for products of complex128 by cuBLAS."""
  case = cases.named(name)
  (a,) = case.operands(rng, (batch,), *shape, dtype)
  results = check(case, (a,))
  if dtype == np.complex128:
    return
  for x, y in zip(results_of(case, (a[1:],)), results, strict=True):
    np.testing.assert_array_equal(x, y[1:])


@pytest.mark.parametrize("batch", [(), (0,), (1,), (3,), (2, 3), (1000,), (70000,)], ids=str)
@pytest.mark.parametrize("n", [2, 10])
def test_batches(case, batch, n, rng):
  operands = case.operands(rng, batch, n, n, np.float32)
  for result in check(case, operands):
    assert result.shape[: len(batch)] == batch


def _invariant(case, results):
  """Computes on the CPU, because a GPU rounds float32 products to fewer bits."""
  with jax.default_device(jax.devices("cpu")[0]):
    return case.invariant([jnp.asarray(x) for x in results])


@cases.each([x for x in HANDLED if not x.unordered])
@pytest.mark.parametrize("n", [3, 6, 20, 40, 80, 140])
def test_agrees_with_scipy(case, dtype, n, rng):
  operands = case.operands(rng, (3,), n, n, dtype)
  results = _invariant(case, results_of(case, operands))
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
  values = results_of(case, operands)[0]
  if values.ndim == a.ndim:  # a triangle, with eigenvalues on its diagonal
    values = np.stack([np.diag(scipy.linalg.rsf2csf(t, t)[0]) for t in values])
  for actual, expected in zip(values, map(scipy.linalg.eigvals, checks.wide(a)), strict=True):
    distances = np.abs(expected[:, None] - actual)
    scale = n * max(1.0, np.max(np.abs(expected)))
    matched = distances[scipy.optimize.linear_sum_assignment(distances)]
    assert np.max(matched) <= 300 * np.finfo(dtype).eps * scale


def test_cholesky_of_many_elements(rng):
  """More than 2^31 elements, and more matrices than one call of cuBLAS takes."""
  count, copies, n = 7, 20_000, 129
  a = matrices.positive_definite(rng, (count,), n, np.float32)
  factor = jax.jit(lambda a: linalg.cholesky(jnp.tile(a, (copies, 1, 1))))(*put((a,)))
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
  factor, info = (np.asarray(x) for x in linalg.cholesky_ex(*put((a,))))
  assert not np.any(info)
  product = checks.wide(factor) @ checks.adjoint(checks.wide(factor))
  assert checks.factorisation(a, product, checks.eps(factor)) <= 30


# By panels up to a shorter side of 1024 and 2048 rows, then by the vendor.
@pytest.mark.parametrize("shape, batch", [
    ((129, 129), 40), ((200, 200), 40), ((512, 512), 8), ((1024, 1024), 3), ((1100, 1100), 3),
    ((300, 700), 5), ((700, 300), 5), ((1024, 129), 5), ((2048, 300), 2), ((2100, 300), 2)],
    ids=str)
def test_large_lu(shape, batch, dtype, rng):
  """Pivots are LAPACK's, and a singular matrix is alone."""
  a = matrices.general(rng, (batch,), *shape, dtype)
  a[1, :, 100] = 0
  *results, info = (np.asarray(x) for x in linalg.lu_ex(*put((a,))))
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
  for op, x in zip(ops, jax.jit(solve)(*put((a, b))), strict=True):
    assert checks.solution(op, np.asarray(x), b) <= 30


@pytest.mark.parametrize("shape", [(40, 40), (30, 12), (12, 30), (90, 80)], ids=str)
def test_svd_of_low_rank(dtype, shape, rng):
  """Vectors of zero singular values are orthonormal too."""
  m, n = shape
  a = matrices.general(rng, (3,), m, 5, dtype) @ matrices.general(rng, (3,), 5, n, dtype)
  u, s, vh = (np.asarray(x) for x in linalg.svd(*put((a,))))
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
  u, s, vh, info = (np.asarray(x) for x in linalg.svd_ex(*put((a,)), full_matrices=False))
  assert not np.any(info)
  assert checks.orthogonality(u) <= 30
  assert checks.orthogonality(checks.adjoint(vh)) <= 30
  product = checks.wide(u) * s[..., None, :] @ checks.wide(vh)
  assert checks.factorisation(a, product, checks.eps(u)) <= 30
  for found in (s, np.asarray(linalg.svdvals(*put((a,))))):
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
  solution, info = linalg.tridiagonal_solve_ex(*put((dl, d, du, b)))
  assert not np.any(info)
  np.testing.assert_allclose(solution, x, rtol=0, atol=1000 * np.finfo(dtype).eps)


def test_many_eigenvalues_of_a_tridiagonal_matrix(dtype):
  """There are more eigenvalues than concurrent threads, but few enough for a GPU with slow float64.

  The watchdog of a GPU with a display ends kernels that run for seconds.
  """
  n = 30_000
  d, e = np.full(n, 2, dtype), np.full(n - 1, -1, dtype)
  w = np.asarray(linalg.eigh_tridiagonal(*put((d, e)), eigvals_only=True))
  assert np.all(np.diff(w) >= 0)
  expected = 4 * np.sin(np.pi * np.arange(1, n + 1) / (2 * n + 2)) ** 2
  np.testing.assert_allclose(w, expected, rtol=0, atol=10 * np.finfo(dtype).eps)


@pytest.mark.parametrize("n", [4, 40, 80, 140])
@pytest.mark.parametrize("cols", [1, 70, 300])
def test_shared_matrix(dtype, n, cols, rng):
  """One matrix for a batch of right-hand sides that exceeds one pass of a team."""
  a = matrices.well_conditioned(rng, (), n, dtype)
  b = matrices.general(rng, (5,), n, cols, dtype)
  x = np.asarray(linalg.solve(*put((a, b))))
  assert checks.solution(np.broadcast_to(a, (5, n, n)), x, b) <= 30
  packed, pivots, _ = linalg.lu(*put((a,)))
  for trans, op in enumerate((a, a.T, a.conj().T)):
    x = np.asarray(linalg.lu_solve((packed, pivots), *put((b,)), trans))
    assert checks.solution(np.broadcast_to(op, (5, n, n)), x, b) <= 30


@pytest.mark.parametrize("n", [5, 40, 80, 140])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose_a, conjugate_a", [(0, 0), (1, 0), (1, 1), (0, 1)])
@pytest.mark.parametrize("left_side", [True, False])
def test_triangular(dtype, n, lower, transpose_a, conjugate_a, left_side, rng):
  a = matrices.triangular(rng, (3,), n, dtype, lower=lower)
  b = matrices.general(rng, (3,), *((n, 4) if left_side else (4, n)), dtype)
  x = np.asarray(linalg.triangular_solve(
      *put((a, b)), left_side=left_side, lower=lower, transpose_a=bool(transpose_a),
      conjugate_a=bool(conjugate_a)))
  op = np.tril(a) if lower else np.triu(a)
  op = op.mT if transpose_a else op
  op = op.conj() if conjugate_a else op
  if not left_side:
    op, x, b = op.mT, x.mT, b.mT
  assert checks.solution(op, x, b) <= 30


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
  operands = put((turn(a) if turned == "a" else a, turn(b) if turned == "b" else b))
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
  whole = np.asarray(linalg.matmul(*put((a, b)))).reshape(-1, 5, 5)
  last = [x.reshape(-1, 5, 5)[-1] for x in (a, b)]
  np.testing.assert_array_equal(linalg.matmul(*put(last)), whole[-1])


@pytest.mark.parametrize("n", [4, 40, 80])
@pytest.mark.parametrize("name", ["cholesky", "solve", "inv", "det", "eigh", "qr"])
def test_agrees_with_cupy(name, dtype, n, rng):
  """CuPy, on the same memory through DLPack, agrees."""
  cupy = pytest.importorskip("cupy")
  case = cases.named(name)
  operands = case.operands(rng, (3,), n, n, dtype)
  theirs = getattr(cupy.linalg, name)(*(cupy.from_dlpack(x) for x in put(operands)))
  theirs = theirs if isinstance(theirs, tuple) else (theirs,)
  cupy.cuda.get_current_stream().synchronize()
  theirs = [cupy.asnumpy(x) for x in theirs]
  ours = results_of(case, operands)
  if name == "qr":  # signs of R may differ
    ours, theirs = [np.abs(ours[1])], [np.abs(theirs[1])]
  else:
    ours, theirs = _invariant(case, ours), _invariant(case, theirs)
  for x, y in zip(ours, theirs, strict=True):
    scale = n * np.max(np.abs(y), initial=1)
    np.testing.assert_allclose(x, y, rtol=0, atol=1000 * np.finfo(dtype).eps * scale)
