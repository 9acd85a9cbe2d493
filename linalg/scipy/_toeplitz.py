"""Toeplitz systems, and products with Toeplitz matrices, from a column and a row."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import expand, info_of_nan, nan_where, solution_tangent, zeros_like
from linalg._core.checks import check
from linalg._core.operands import as_arrays, as_complex, check_batches, incompatible
from linalg._core.public import public
from linalg._factorizations.matmul import product

__all__ = ["convolve", "matmul_toeplitz", "padded", "solve_toeplitz"]


def _fourier(rows, cols, dtype):
  """F of order `rows`, the twiddle factors, and F of order `cols`.

  They are computed from integers, so that no angle is rounded before it is reduced.
  """
  def roots(i, j, order):
    return np.exp(-2j * np.pi / order * (np.outer(np.arange(i), np.arange(j)) % order))

  factors = roots(rows, rows, rows), roots(rows, cols, rows * cols), roots(cols, cols, cols)
  return [jnp.asarray(x, dtype) for x in factors]


def convolve(x, y, rows, cols):
  """The circular convolution of sequences of length rows cols, all of equal rank.

  A sequence is written as a matrix. Its columns are transformed, multiplied by the twiddle factors,
  and then its rows are transformed; Bailey, J. Supercomput. 4 (1990). XLA would gather a sharded
  batch for its own transform, but not for matrix products.
  """
  first, twiddle, second = _fourier(rows, cols, x.dtype)
  twiddle = expand(twiddle, x[..., None])

  def transform(x):
    x = x.reshape(*x.shape[:-1], rows, cols)
    return product(product(first, x) * twiddle, second)

  found = product(transform(x) * transform(y), second.conj()) * twiddle.conj()
  found = product(first.conj(), found) / (rows * cols)
  return found.reshape(y.shape)


def padded(x, before, after):
  return jnp.pad(x, ((0, 0),) * (x.ndim - 1) + ((before, after),))


def _times(c, r, x):
  """T X, by the circulant matrix whose upper left part is T."""
  m, n = c.shape[-1], r.shape[-1]
  if not m or not n or not x.shape[-1]:
    return zeros_like(c)[..., None] * jnp.sum(x, axis=-2, keepdims=True)
  rows = math.isqrt(m + n - 2) + 1
  cols = -(-(m + n - 1) // rows)
  size = rows * cols
  circulant = padded(c, 0, size - m) + padded(jnp.flip(r, -1)[..., :-1], size - n + 1, 0)
  sequences = as_complex(padded(x.mT, 0, size - n))
  found = convolve(as_complex(circulant)[..., None, :], sequences, rows, cols)[..., :m].mT
  return found if jnp.iscomplexobj(x) else found.real


def _levinson(c, r, b):
  # Let Tₘ be a leading part, with Tₘ p = δ e₁ and Tₘ q = δ eₘ, where p begins and q ends in 1. Then
  # p and q of Tₘ₊₁ are combinations of [p; 0] and [0; q]. Its solution is [x; 0] and a multiple of
  # q. Levinson, J. Math. Phys. 25 (1946); Golub and Van Loan, Matrix Computations, 4th ed., section
  # 4.7.
  n = c.shape[-1]
  if n == 0:
    return b
  first = expand(jnp.arange(n) == 0, c)
  shifted = lambda x, head: jnp.concatenate([head, x[..., :-1]], axis=-1)
  above = padded(r[..., 1:], 0, 1)

  def divided(x, pivot):
    return x / jnp.where(pivot == 0, 1, pivot)

  def step(carry, next_of):
    row, p, q, pivot, singular, x = carry
    entry, right = next_of
    zero = zeros_like(entry)
    row, q = shifted(row, entry), shifted(q, zero)
    forward = divided(jnp.sum(row * p, axis=-1, keepdims=True), pivot)
    backward = divided(jnp.sum(above[..., :-1] * q[..., 1:], axis=-1, keepdims=True), pivot)
    p, q = p - forward * q, q - backward * p
    pivot = jnp.sum(row * q, axis=-1, keepdims=True)
    residual = right - jnp.sum(row[..., None] * x, axis=-2)
    x = x + q[..., None] * divided(residual, pivot)[..., None, :]
    return (row, p, q, pivot, singular | (pivot == 0), x), None

  pivot = c[..., :1]
  one = jnp.where(first, jnp.ones((), c.dtype), zeros_like(c))
  start = divided(jnp.where(first[..., None], b, 0), pivot[..., None])
  carry = (jnp.where(first, c, 0), one, one, pivot, pivot == 0, start)
  followers = (jnp.moveaxis(c[..., 1:, None], -2, 0), jnp.moveaxis(b[..., 1:, :], -2, 0))
  (*_, singular, x), _ = jax.lax.scan(step, carry, followers)
  return nan_where(singular[..., 0], x, core=2)


def _solve_jvp(primals, tangents):
  # T dX = dB - dT X
  c, r, b = primals
  dc, dr, db = tangents
  solve = lambda b: solve_toeplitz_p(c, r, b)
  x = solve(b)
  if dc is None and dr is None:
    return x, solve(db)
  dt = (zeros_like(c) if dc is None else dc, zeros_like(r) if dr is None else dr)
  return x, solution_tangent(solve, dt, db, lambda dt: _times(dt[0], dt[1], x))


def _solve_transpose(cotangents, operands):
  c, r, _ = operands
  return None, None, solve_toeplitz_p(
      jnp.concatenate([c[..., :1], r[..., 1:]], axis=-1), c, cotangents[0])


# Solves T X = B for X. T has the first column c and the first row r, except for r's first element.
solve_toeplitz_p = ffi.operation(
    "solve_toeplitz",
    "n, n, n k -> n k",
    [2],
    platforms=(),
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    fallback=lambda c, r, b: [_levinson(c, r, b)])


def _operands(name, c_or_cr, b, second):
  """Column, row and the right operand as columns; their dtype, and whether that was a vector."""
  if isinstance(c_or_cr, tuple):
    if len(c_or_cr) != 2:
      raise ValueError(
          f"{name}: c_or_cr must be an array c or a pair (c, r), got a tuple of {len(c_or_cr)}.")
    pair = (jnp.asarray(x) if isinstance(x, list) else x for x in c_or_cr)
    (c, r, b), dtype = as_arrays(name, *pair, b)
  else:
    (c, b), dtype = as_arrays(name, c_or_cr, b)
    r = c.conj()
  if min(c.ndim, r.ndim, b.ndim) < 1:
    raise incompatible(name, c, r, b, names=("c", "r", second))
  vector = b.ndim == 1
  b = b[:, None] if vector else b
  return c, r, b, dtype, vector


def _broadcast(name, c, r, b, second):
  ranks = (1, 1, 2)
  check_batches(name, c, r, b, ranks=ranks, names=("c", "r", second))
  return ffi.broadcast_batches(name, (c, r, b), ranks)


@public("check_finite", lists=True)
def solve_toeplitz(
    c_or_cr: ArrayLike | tuple[ArrayLike, ArrayLike], b: ArrayLike, check_finite: bool = True
) -> jax.Array:
  """Solves T x = b with Toeplitz matrices T; `scipy.linalg.solve_toeplitz`, batched.

  Args:
    c_or_cr: the first columns (..., n) of T; or a tuple (c, r) of those and the first rows (...,
      n), whose first element is not read. Without r, T is Hermitian: r is the conjugate of c.
    b: a vector (n,), or right-hand sides (..., n, k); the batches broadcast.
    check_finite: not used.

  Returns:
    x, (n,) or (..., n, k), with the batch dimensions of c, r and b broadcast. It is NaN where a
    leading minor of T is 0, or T or b holds NaN; see `checked`.

  float16 and bfloat16 are solved in float32, and x rounded.

  Algorithm: Levinson's recursion, n steps of O(n) operations each, without forming T. It does not
  pivot: where T is not positive definite, a small leading minor costs as many digits as it is small
  by. `linalg.solve` of the whole matrix does not lose them. Derivatives: those of the equation, to
  any order, by the same recursion and `matmul_toeplitz`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> x = linalg.scipy.solve_toeplitz(jnp.array([2.0, 1.0, 0.0]), jnp.array([3.0, 4.0, 3.0]))
    >>> print(x.round(4))
    [1. 1. 1.]
  """
  del check_finite
  c, r, right, dtype, vector = _operands("solve_toeplitz", c_or_cr, b, "b")
  if not c.shape[-1] == r.shape[-1] == right.shape[-2]:
    raise incompatible("solve_toeplitz", c, r, right, names=("c", "r", "b"))
  x = solve_toeplitz_p(*_broadcast("solve_toeplitz", c, r, right, "b"))
  check(info_of_nan(x, core=2), "has a leading minor of 0, or it or b holds NaN.")
  return (x[..., 0] if vector else x).astype(dtype)


@public("check_finite", "workers", lists=True)
def matmul_toeplitz(
    c_or_cr: ArrayLike | tuple[ArrayLike, ArrayLike],
    x: ArrayLike,
    check_finite: bool = False,
    workers: int | None = None,
) -> jax.Array:
  """T x with Toeplitz matrices T; `scipy.linalg.matmul_toeplitz`, batched.

  Args:
    c_or_cr: the first columns (..., m) of T; or a tuple (c, r) of those and the first rows (...,
      n), whose first element is not read. Without r, T is Hermitian: r is the conjugate of c.
    x: a vector (n,), or matrices (..., n, k); the batches broadcast.
    check_finite, workers: not used.

  Returns:
    The products, (m,) or (..., m, k), with the batch dimensions of c, r and x broadcast. NaN and
    Inf in a column of x, or in T, make that column NaN.

  float16 and bfloat16 are computed in float32, and the products rounded.

  Algorithm: a circular convolution of length L, about m + n. The discrete Fourier transform is two
  products with matrices of order √L, so it takes O(L^1.5) operations for each column. No array is
  larger than L. The error is relative to the largest elements of T and of the column.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> c, r = jnp.array([1.0, 3.0, 6.0]), jnp.array([1.0, -1.0])
    >>> print(linalg.scipy.matmul_toeplitz((c, r), jnp.array([1.0, 2.0])).round(4))
    [-1.  5. 12.]
  """
  del check_finite, workers
  c, r, right, dtype, vector = _operands("matmul_toeplitz", c_or_cr, x, "x")
  if r.shape[-1] != right.shape[-2]:
    raise incompatible("matmul_toeplitz", c, r, right, names=("c", "r", "x"))
  found = _times(*_broadcast("matmul_toeplitz", c, r, right, "x"))
  return (found[..., 0] if vector else found).astype(dtype)
