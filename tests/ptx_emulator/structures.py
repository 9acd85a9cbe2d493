"""Banded and block-tridiagonal systems and Kalman filters of every size for which kernels/cuda has
a different path.

Only test_suites.py collects this file. paths.py has the dense matrices.
"""

import jax
import numpy as np
import pytest

import matrices
from linalg._catalogue import checks
from linalg._catalogue import structured as recursions
from linalg.scipy._banded import banded_solve_p, cholesky_banded_p, cholesky_banded_solve_p
from linalg.structured import _block_tridiagonal_operations as structured
from linalg.structured import _kalman_operations as kalman
from linalg.structured import _steps

ALL_DTYPES = True

SEVERAL_TEAMS = 521  # odd, so that the last block is not full
TEAMS_OF_BANDS = 4096  # kTeamBanded: larger batches of banded matrices take a thread each


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
