"""One small matrix has kernels of its own, which give the bits that it has in a batch."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import matrices
import selection
from sharded import same_bits

# Panels have four rows, and registers 2 to 16 columns.
FEW_SIZES = (3, 5, 6, 13, 18)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 18, 31, 32, 33)
COLUMNS = (0, 2, 5, 1, 17, 3, 4, 8, 9)
WHOLE = 33  # fills registers at every level
BATCHES = (1, 3)


def _few_as_in_many(calls):
  """Checks bits in batches of `BATCHES` against a larger one; `calls` are (function, operands)."""
  functions, operands = zip(*calls, strict=True)

  @jax.jit
  def results(operands):
    return [
        [function(*(x[:size] for x in some)) for function, some in
         zip(functions, operands, strict=True)] for size in (WHOLE, *BATCHES)]

  whole, *batches = results(operands)
  for size, results in zip(BATCHES, batches, strict=True):
    same_bits(results, [x[:size] for x in whole])
  return batches[0]


def _spoilt(rng, a, rhs):
  """Gives matrix 0 zero, tiny and infinite pivots, and right-hand sides signed zeros and NaN."""
  a, rhs = np.array(a), np.array(rhs)
  n = a.shape[-1]
  tiny = np.finfo(a.dtype).tiny
  for k, pivot in enumerate((0, tiny / 4, np.inf)):
    if k < n:
      place = rng.integers(n)
      a[k, place, place] = pivot
  rhs[:, :1] = -0.0
  rhs[3, -1:] = np.nan
  return a, rhs


def _shapes(sizes):
  """Sizes with numbers of columns, each of which has about the same number of turns."""
  columns = itertools.cycle(COLUMNS)
  return [(n, next(columns)) for n in sizes for _ in range(1 if sizes == FEW_SIZES else 3)]


each_dtype_and_size = lambda test: selection.all_dtypes(pytest.mark.parametrize(
    "sizes", [pytest.param(FEW_SIZES, id="few"), pytest.param(
        SIZES, id="all", marks=pytest.mark.extended)])(test))


@each_dtype_and_size
@pytest.mark.parametrize("spoilt", [False, True])
def test_triangular_solve(dtype, sizes, spoilt, rng):
  """Catches another order of operations, a wrong edge of a panel or a register, and an overrun."""
  flags = itertools.cycle(itertools.product((False, True), repeat=4))
  calls, expected = [], []
  for n, k in _shapes(sizes):
    lower, transpose, left, unit = next(flags)
    if n > 32 or n * n * k > 8192:  # BLAS or tiles
      n, k = min(n, 32), 1
    a = matrices.general(rng, (WHOLE,), n, n, dtype) / n + 2 * np.eye(n, dtype=dtype)
    b = matrices.general(rng, (WHOLE,), n, k, dtype)
    if spoilt:
      a, b = _spoilt(rng, a, b)
    b = b if left else np.swapaxes(b, -1, -2)
    unread = np.where(np.tri(n, n, 0 if lower else -1, dtype=bool) == lower, a, np.nan)
    solve = lambda a, b, lower=lower, transpose=transpose, left=left, unit=unit: (
        linalg.triangular_solve(
            a, b, lower=lower, transpose_a=transpose, conjugate_a=transpose, left_side=left,
            unit_diagonal=unit))
    calls.append((solve, (unread.astype(dtype), b)))
    triangle = (np.tril if lower else np.triu)(a[0], 0)
    if unit:
      np.fill_diagonal(triangle, 1)
    triangle = triangle.conj().T if transpose else triangle
    expected.append((triangle, left, b[0]))
  results = _few_as_in_many(calls)
  if spoilt:
    return
  eps = np.finfo(dtype).eps
  for x, (triangle, left, b) in zip(results, expected, strict=True):
    x = np.asarray(x)[0]
    size = np.abs(triangle).sum() * np.abs(x).max(initial=0)
    np.testing.assert_allclose(triangle @ x if left else x @ triangle, b, atol=20 * eps * size)


@each_dtype_and_size
def test_solves_with_factors(dtype, sizes, rng):
  """Catches pivots that are applied in another order, or after the wrong pass."""
  calls = []
  for n, k in _shapes(sizes):
    a = matrices.general(rng, (WHOLE,), n, n, dtype)
    lu, pivots, _ = jax.lax.linalg.lu(a)
    b = matrices.general(rng, (WHOLE,), n, k, dtype)
    lower = n % 2 == 0
    for trans in {0, n % 3}:
      solve = lambda lu, pivots, b, trans=trans: linalg.lu_solve((lu, pivots), b, trans)
      calls.append((solve, (lu, pivots, b)))
    calls.append((lambda c, b, lower=lower: linalg.cho_solve((c, lower), b), (np.asarray(lu), b)))
  _few_as_in_many(calls)


@each_dtype_and_size
@pytest.mark.parametrize("spoilt", [False, True])
def test_ormqr(dtype, sizes, spoilt, rng):
  """Catches a chain of a sum in the wrong lane, and elements above the reflectors that are read."""
  flags = itertools.cycle(itertools.product((False, True), repeat=2))
  calls, expected = [], []
  for m, cols in _shapes(sizes):
    left, transpose = next(flags)
    n = max(1, m + m % 5 - 2)
    count = max(1, min(m, n) - m % 2)
    a = matrices.general(rng, (WHOLE,), m, n, dtype) / (2 * m)
    taus = matrices.general(rng, (WHOLE, count), 1, 1, dtype)[..., 0, 0]
    c = matrices.general(rng, (WHOLE,), m, cols, dtype)
    if spoilt:
      c[1, -1:], c[2, :1] = np.inf, -0.0
      a[0, -1, 0] = np.nan
    c = c if left else np.swapaxes(c, -1, -2)
    unread = np.where(np.tri(m, n, -1, dtype=bool), a, np.nan).astype(dtype)
    product = lambda a, taus, c, left=left, transpose=transpose: linalg.ormqr(
        a, taus, c, left=left, transpose=transpose)
    calls.append((product, (unread, taus, c)))
    q = np.eye(m, dtype=dtype)
    for i in range(count):
      v = np.tril(a[0], -1)[:, i] + np.eye(m)[i]
      q = q @ (np.eye(m) - taus[0, i] * np.outer(v, v.conj()))
    q = q.conj().T if transpose else q
    expected.append(q @ c[0] if left else c[0] @ q)
  results = _few_as_in_many(calls)
  if spoilt:
    return
  eps = np.finfo(dtype).eps
  for x, product in zip(results, expected, strict=True):
    scale = np.abs(product).max(initial=1)
    np.testing.assert_allclose(np.asarray(x)[0], product, atol=100 * eps * scale)


@selection.all_dtypes
def test_in_place(dtype, rng):
  """Matrices that are left over in a batch take the other code where x overwrites b."""
  n, k = 9, 5
  a = matrices.general(rng, (WHOLE,), n, n, dtype) / n + 2 * np.eye(n, dtype=dtype)
  b = matrices.general(rng, (WHOLE,), n, k, dtype)
  solve = jax.jit(
      lambda a, b: linalg.solve_triangular(a, b, lower=True, overwrite_b=True), donate_argnums=1)
  whole = np.asarray(solve(a, jnp.asarray(b)))
  for size in (1, 3, 17, 19):
    same_bits(solve(a[:size], jnp.asarray(b[:size])), whole[:size])


@each_dtype_and_size
@pytest.mark.parametrize("spoilt", [False, True])
def test_cholesky(dtype, sizes, spoilt, rng):
  """Catches another order of sums, a wrong edge of a panel or a register, and elements of the
  other triangle that are read."""
  options = itertools.cycle(itertools.product((False, True), (True, False)))
  calls, expected = [], []
  for n in (*sizes, *(() if sizes == FEW_SIZES else (40, 63, 64))):
    upper, symmetrize = next(options)
    a = matrices.positive_definite(rng, (WHOLE,), n, dtype)
    if spoilt:
      a, _ = _spoilt(rng, a, np.ones((WHOLE, n, 1)))
      a[4, n // 2, n // 2] = -1
      a[5, -1, 0] = a[5, 0, -1] = np.nan
    expected.append((upper, a))
    if not symmetrize:
      read = np.tri(n, n, dtype=bool)
      a = np.where(read.T if upper else read, a, np.nan).astype(dtype)
    for result in range(2):
      calls.append((
          lambda a, upper=upper, symmetrize=symmetrize, result=result: linalg.cholesky_ex(
              a, upper=upper, symmetrize_input=symmetrize)[result], (a,)))
  results = _few_as_in_many(calls)
  if spoilt:
    return
  eps = np.finfo(dtype).eps
  for factor, info, (upper, a) in zip(results[::2], results[1::2], expected, strict=True):
    l, n = np.asarray(factor)[0], a.shape[-1]
    assert info[0] == 0
    np.testing.assert_array_equal(np.tril(l, -1) if upper else np.triu(l, 1), 0)
    product = l.conj().T @ l if upper else l @ l.conj().T
    np.testing.assert_allclose(product, a[0], atol=2 * n * eps * np.abs(a[0]).max())
