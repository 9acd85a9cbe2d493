"""Matrices that several threads share: values, failures, and bits that no thread count changes."""

import os
import pathlib
import resource
import subprocess
import sys

import jax
import numpy as np
import pytest
import scipy.linalg

import linalg
import matrices
import quick
from residuals import assert_near, assert_orthonormal, in_double
from sharded import make_mesh, place, same_bits

# Sizes near the ends of blocks of rows and columns, and of the pieces that tasks take.
SIZES = (256, 257, 385, 513, 600)
SCRIPT = pathlib.Path(__file__).parents[1] / "support/large_scenarios.py"
ALL_DTYPES = True
ONE_DTYPE = True
ONE_IN = 2


def _limit(n, dtype):
  return 4 * n * np.finfo(dtype).eps


def _check_cholesky(a, factor, lower):
  x = in_double(factor)
  np.testing.assert_array_equal(x, np.tril(x) if lower else np.triu(x))
  product = x @ x.conj().T if lower else x.conj().T @ x
  assert np.abs(product - in_double(a)).max() <= _limit(len(a), a.dtype) * np.abs(a).max()


def _check_lu(a, packed, pivots, permutation):
  x, k = in_double(packed), min(a.shape)
  l, u = np.tril(x[:, :k], -1) + np.eye(len(a), k), np.triu(x[:k])
  error = np.abs(l @ u - in_double(a)[permutation]).max()
  assert error <= _limit(max(a.shape), a.dtype) * np.abs(u).max()
  assert (np.abs(np.tril(x[:, :k], -1)) <= 1.5).all()  # by |re| + |im|
  order = np.arange(len(a))
  for step, pivot in enumerate(pivots):
    order[[step, pivot]] = order[[pivot, step]]
  np.testing.assert_array_equal(order, permutation)


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
def test_cholesky(dtype, lower, rng):
  """Leading blocks have the bits of the whole, so no rounding depends on where a block or piece
  ends."""
  largest = max(SIZES)
  a = matrices.positive_definite(rng, (), largest, dtype)
  whole = np.asarray(linalg.cholesky(a, upper=not lower))
  _check_cholesky(a, whole, lower)
  expected = scipy.linalg.cholesky(in_double(a), lower=lower)
  assert np.abs(in_double(whole) - expected).max() <= 1e3 * np.finfo(dtype).eps * np.abs(a).max()
  for n in (*SIZES, 100):
    same_bits([linalg.cholesky(a[:n, :n], upper=not lower)], [whole[:n, :n]])


def test_cholesky_reads_one_triangle(dtype, rng):
  n = 300
  a = matrices.positive_definite(rng, (), n, dtype)
  for lower in (True, False):
    half = (np.tril if lower else np.triu)(a)
    unread = (np.triu if lower else np.tril)(np.full_like(a, np.nan), 1 if lower else -1)
    factor = linalg.cholesky(half + unread, upper=not lower, symmetrize_input=False)
    _check_cholesky(a, factor, lower)


@pytest.mark.parametrize("poison", [-1, 0, np.nan])
def test_info_of_cholesky(dtype, poison, rng):
  """The first bad pivot is in each block and at its ends; the neighbour keeps its bits."""
  n, places = 600, (0, 127, 128, 255, 300, 599)
  a = matrices.positive_definite(rng, (), n, dtype)
  clean = np.asarray(linalg.cholesky(a))
  stack = np.stack([a] * (len(places) + 1))
  for matrix, place_ in zip(stack, places, strict=False):
    matrix[place_, place_] = poison
  factor, info = map(np.asarray, linalg.cholesky_ex(stack))
  np.testing.assert_array_equal(info, [*(x + 1 for x in places), 0])
  lower = np.tril(np.ones((n, n), bool))
  assert np.isnan(factor[:-1, lower]).all() and (factor[:-1, ~lower] == 0).all()
  same_bits([factor[-1]], [clean])
  # The other matrices were computed by one thread each.
  for i, matrix in enumerate(stack):
    same_bits(linalg.cholesky_ex(matrix), [factor[i], info[i]])


@pytest.mark.parametrize("shape", [(257, 257), (384, 384), (600, 600), (300, 700), (700, 300),
                                   (1000, 40), (40, 1000), (641, 514)], ids=str)
def test_lu(dtype, shape, rng):
  m, n = shape
  a = matrices.general(rng, (), m, n, dtype)
  packed, pivots, permutation, info = map(np.asarray, linalg.lu_ex(a))
  assert info == 0
  _check_lu(a, packed, pivots, permutation)
  # Chains of products are not split, so leading columns have the bits of the whole.
  cols = min(shape) * 2 // 3
  same_bits([linalg.lu_ex(a[:, :cols])[0][:cols]], [packed[:cols, :cols]])


def test_singular_matrices(dtype, rng):
  """info names the first zero column, and -1 is for NaN; neighbours keep their bits."""
  n, places = 600, (0, 127, 128, 256, 599)
  a = matrices.well_conditioned(rng, (), n, dtype)
  clean = [np.asarray(x) for x in (linalg.lu_ex(a)[0], linalg.inv(a))]
  stack = np.stack([a] * (len(places) + 2))
  for matrix, place_ in zip(stack, places, strict=False):
    matrix[:, place_] = 0
  stack[-2, n - 1, n - 1] = np.nan
  packed, pivots, permutation, info = map(np.asarray, linalg.lu_ex(stack))
  np.testing.assert_array_equal(info, [*(x + 1 for x in places), -1, 0])
  for i in range(len(places)):
    _check_lu(stack[i], packed[i], pivots[i], permutation[i])
  inverse = np.asarray(linalg.inv(stack))
  x = np.asarray(linalg.solve(stack, np.ones((len(stack), n, 2), dtype)))
  assert np.isnan(inverse[:-1]).all() and np.isnan(x[:-1]).all() and np.isfinite(x[-1]).all()
  same_bits([packed[-1], inverse[-1]], clean)
  # The other matrices were computed by one thread each.
  for i, matrix in enumerate(stack):
    same_bits(linalg.lu_ex(matrix), [packed[i], pivots[i], permutation[i], info[i]])
  assert np.isnan(np.asarray(linalg.inv(stack[1]))).all()


def test_more_rows_than_lanes_can_number():
  with pytest.raises(Exception, match="LU of a matrix of 16777217 rows; it takes up to 16777216"):
    jax.block_until_ready(linalg.lu(np.zeros((2**24 + 1, 1), np.float32)))


@pytest.mark.parametrize("cols", [1, 3, 97, 600])
def test_solve(dtype, cols, rng):
  n = 600
  a = matrices.well_conditioned(rng, (2,), n, dtype)
  b = np.stack([matrices.general(rng, (), n, cols, dtype)] * 2)
  shared = jax.vmap(linalg.solve, in_axes=(None, 0))
  for left, function in ((a, linalg.solve), (a[0], shared)):
    x = in_double(function(left, b))
    residual = np.abs(in_double(left) @ x - b).max()
    assert residual <= _limit(n, dtype) * np.abs(a).sum(-1).max() * np.abs(x).max()


@pytest.mark.parametrize("n", [300, 513, 600])
def test_inverse_and_determinant(dtype, n, rng):
  a = matrices.well_conditioned(rng, (), n, dtype)
  x = in_double(linalg.inv(a))
  scale = np.abs(a).sum(-1).max() * np.abs(x).max()
  assert np.abs(in_double(a) @ x - np.eye(n)).max() <= _limit(n, dtype) * scale
  sign, logarithm = linalg.slogdet(a)
  expected = np.linalg.slogdet(in_double(a))
  tolerance = 20 * n * float(np.finfo(dtype).eps)
  np.testing.assert_allclose(sign, expected.sign, atol=tolerance)
  np.testing.assert_allclose(logarithm, expected.logabsdet, atol=tolerance * n)


@pytest.mark.parametrize("shape", [(257, 257), (600, 600), (300, 700), (700, 300), (641, 514)],
                         ids=str)
def test_qr(dtype, shape, rng):
  m, n = shape
  k, limit = min(shape), 2 * max(shape) * np.finfo(dtype).eps
  a = matrices.general(rng, (), m, n, dtype)
  q, r = map(np.asarray, linalg.qr(a))
  assert_near(in_double(q) @ in_double(r), a, max(shape), dtype)
  assert_orthonormal(in_double(q), limit)
  np.testing.assert_array_equal(r, np.triu(r))
  same_bits([linalg.qr(a, "r")], [r])
  # Chains of products are not split, so leading columns have the bits of the whole.
  cols = k * 2 // 3
  same_bits([linalg.qr(a[:, :cols], "r")], [r[:cols, :cols]])
  packed, taus = map(np.asarray, linalg.qr(a, "raw"))
  same_bits([linalg.householder_product(packed.T[:, :k], taus)], [q])
  if m > n:
    whole = np.asarray(linalg.qr(a, "complete")[0])
    assert_orthonormal(in_double(whole), limit)
    same_bits([whole[:, :n]], [q])


def test_what_qr_is_spoilt_by(dtype, rng):
  """A zero column leaves nothing to reflect. Neighbours of NaN and the columns before it keep their
  bits."""
  n, places, place = 600, (0, 127, 128, 256, 599), 300
  a = matrices.general(rng, (), n, n, dtype)
  zeros = a.copy()
  zeros[:, places] = 0
  stack = np.stack([a, zeros, a])
  stack[2, 5, place] = np.nan
  q, r = map(np.asarray, linalg.qr(stack))
  assert_near(in_double(q[1]) @ in_double(r[1]), zeros, n, dtype)
  assert_orthonormal(in_double(q[1]), 2 * n * np.finfo(dtype).eps)
  assert (r[1][:, places] == 0).all()
  same_bits([r[2, :, :place]], [r[0, :, :place]])
  assert np.isnan(r[2, place:, place:][np.triu_indices(n - place)]).all()
  # The other matrices were computed by one thread each.
  for i, matrix in enumerate(stack):
    same_bits(linalg.qr(matrix), [q[i], r[i]])


@pytest.mark.parametrize("left_side", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("n, sides", [(520, 300), (601, 97), (257, 900)])
def test_triangular_solve(dtype, n, sides, left_side, rng):
  shape = (n, sides) if left_side else (sides, n)
  b = matrices.general(rng, (), *shape, dtype)
  for lower in (True, False):
    half, other = (np.tril, np.triu) if lower else (np.triu, np.tril)
    a = half(matrices.triangular(rng, (), n, dtype, lower=lower))
    spoilt = a + other(np.full_like(a, np.nan), 1 if lower else -1)
    for transpose in (False, True):
      x = np.asarray(linalg.triangular_solve(
          spoilt, b, left_side=left_side, lower=lower, transpose_a=transpose, conjugate_a=True))
      matrix = in_double(a.T if transpose else a).conj()
      residual = np.abs((matrix @ x if left_side else x @ matrix) - b).max()
      scale = np.abs(matrix).sum(-1).max() * np.abs(x).max()
      assert residual <= 2 * n * np.finfo(dtype).eps * scale
      # Each right-hand side has the same bits among few others.
      few = b[:, -5:] if left_side else b[-5:]
      expected = x[:, -5:] if left_side else x[-5:]
      same_bits([linalg.triangular_solve(
          spoilt, few, left_side=left_side, lower=lower, transpose_a=transpose, conjugate_a=True)],
          [expected])


def test_alone_and_in_batches(dtype, rng):
  """A matrix that several threads share has the same bits as on a single thread."""
  n = 600
  a = np.stack([matrices.well_conditioned(rng, (), n, dtype) for _ in range(5)])
  s = (a @ a.conj().swapaxes(-1, -2) / n + np.eye(n)).astype(dtype)
  b = a[..., :60]

  def results(a, s, b):
    factor, lu = linalg.cholesky(s), linalg.lu_factor(a)
    return (
        factor, *linalg.lu_ex(a), linalg.inv(a), linalg.solve(a, b), *linalg.qr(a),
        linalg.triangular_solve(factor, a, lower=True), linalg.cho_solve((factor, True), a),
        linalg.lu_solve(lu, s))

  results = jax.jit(results)
  alone = [results(a[i], s[i], b[i]) for i in range(5)]
  for size in (2, 3, 5):
    batch = results(a[:size], s[:size], b[:size])
    for i in range(size):
      same_bits([np.asarray(x)[i] for x in batch], alone[i])


@pytest.mark.parametrize("n", [400, pytest.param(530, marks=pytest.mark.extended)])
def test_spectra_alone_and_in_batches(dtype, n, rng):
  """Reductions have the same bits too. From this size on, their passes and the merges of halves are
  split into pieces."""
  a = matrices.general(rng, (3,), n, n, dtype)

  @jax.jit
  def results(a):
    return (
        *linalg.eigh(a), linalg.eigvalsh(a), *linalg.svd(a, full_matrices=False),
        linalg.svdvals(a), *linalg.svd(a[..., : n // 2]))

  alone = [results(a[i]) for i in range(3)]
  batch = results(a)
  for i in range(3):
    same_bits([np.asarray(x)[i] for x in batch], alone[i])


def test_memory_is_kept(rng):
  """A call reuses the workspace of the call before. It ignores the NaN there and takes no page
  faults.

  glibc would map so large a block afresh at each call, in at least 17 huge pages. Nothing else in
  the process allocates memory during at least one of several calls.
  """
  a = rng.standard_normal((2100, 2100))
  spoilt = a.copy()
  spoilt[7, 8] = np.nan
  a, spoilt = map(jax.device_put, (a, spoilt))
  expected = linalg.slogdet(a)
  assert np.isnan(linalg.slogdet(spoilt)[1])
  jax.block_until_ready(linalg.slogdet(a))
  faults = []
  for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    found = jax.block_until_ready(linalg.slogdet(a))
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    same_bits(found, expected)
  assert min(faults) < 12, faults


@pytest.mark.extended
def test_on_each_device(rng):
  """Several devices share one pool of threads."""
  mesh, n = make_mesh(), 520
  a = matrices.positive_definite(rng, (8,), n, np.float64)
  (sharded,) = place((a,), mesh, "x")
  for function in (linalg.cholesky, linalg.inv, lambda a: linalg.qr(a)[0]):
    function = jax.jit(function)
    expected = function(a)
    for _ in range(3):
      same_bits(function(sharded), expected)


def _run(results, *arguments, **environment):
  inherited = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
  done = subprocess.run(
      [sys.executable, str(SCRIPT), str(results), *arguments], env=inherited | environment,
      capture_output=True, text=True, timeout=120, check=False)
  assert done.returncode == 0 and "done" in done.stdout, done.stdout + done.stderr[-5000:]


@pytest.mark.extended
def test_any_number_of_threads(tmp_path):
  """Catches bits that depend on the number of threads, with pools of one thread and of several."""
  results = tmp_path / "results.npz"
  _run(results)
  _run(results, "one")
  _run(results, XLA_FLAGS=f"{quick.FLAGS} --xla_force_host_platform_device_count=4")


@pytest.mark.extended
@pytest.mark.parametrize("n", [1000, 1025, 2048, 2500])
def test_very_large_matrices(n, rng):
  dtype = np.dtype(np.float32)
  a = matrices.general(rng, (), n, n, dtype)
  _check_lu(a, *map(np.asarray, linalg.lu_ex(a)[:3]))
  s = (in_double(a) @ a.T / n + np.eye(n)).astype(dtype)
  for lower in (True, False):
    _check_cholesky(s, linalg.cholesky(s, upper=not lower), lower)
  x = in_double(linalg.inv(s))
  assert np.abs(in_double(s) @ x - np.eye(n)).max() <= _limit(n, dtype) * np.abs(s).sum(-1).max()
