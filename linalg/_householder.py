"""Householder reflectors: LAPACK's form of QR, and the product of reflectors."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._algebra import (
    column_of,
    expand,
    identities_like,
    identity,
    none_like,
    with_column,
    without_none,
)
from linalg._matmul import product
from linalg._operands import as_arrays, check_matrix
from linalg._public import public

__all__ = ["householder_product"]

# The derivatives of both operations are those of their textbook recurrences, one scan over the
# reflectors: Golub and Van Loan, Matrix Computations, 4th ed., algorithms 5.1.1, 5.1.2 and 5.2.1.


def _apply_reflector(v, tau, a):
  """(I - tau v vᴴ) A"""
  return a - (tau[..., None] * v)[..., None] * product(v.conj()[..., None, :], a)


def _householder_qr_scan(a):
  rows, cols = a.shape[-2:]
  if rows == 0 or cols == 0:
    return a, none_like(a)
  index = expand(jnp.arange(rows), a[..., 0])  # of the rank of a column

  def step(a, k):
    col = expand(jnp.arange(cols), a)
    x = column_of(a, k)[..., 0]
    alpha = jnp.sum(jnp.where(index == k, x, 0), axis=-1)
    tail = jnp.where(index > k, x, 0)
    tail_norm2 = jnp.sum(tail.real**2 + tail.imag**2, axis=-1)
    trivial = (tail_norm2 == 0) & (alpha.imag == 0)
    norm2 = jnp.where(trivial, 1, alpha.real**2 + alpha.imag**2 + tail_norm2)
    beta = (-jnp.copysign(jnp.sqrt(norm2), alpha.real)).astype(a.dtype)
    tau = jnp.where(trivial, 0, (beta - alpha) / beta)
    v = tail / jnp.where(trivial, 1, alpha - beta)[..., None]
    v = jnp.where(index == k, 1, v)
    reflected = _apply_reflector(v, tau.conj(), a)
    head = jnp.where(trivial, alpha, beta)[..., None]
    column = jnp.where(index < k, x, jnp.where(index == k, head, v))
    row = index[..., None]
    a = jnp.where((col > k) & (row >= k), reflected, a)
    return with_column(a, k, column[..., None]), tau

  packed, taus = jax.lax.scan(step, a, jnp.arange(min(rows, cols)))
  return packed, jnp.moveaxis(taus, 0, -1)


def _householder_product_scan(a, taus):
  rows = a.shape[-2]
  count = taus.shape[-1]
  v = jnp.tril(a[..., :count], -1) + identity(a, rows, count)

  def step(q, reflector):
    v, tau = reflector
    return _apply_reflector(v, tau, q), None

  reflectors = (jnp.moveaxis(v, -1, 0), jnp.moveaxis(taus, -1, 0))
  return jax.lax.scan(step, identities_like(a), reflectors, reverse=True)[0]


def _jvp_of(function, primals, tangents):
  return jax.jvp(function, tuple(primals), tuple(without_none(primals, tangents)))[1]


def _householder_qr_jvp(primals, tangents):
  return householder_qr_p(*primals), _jvp_of(_householder_qr_scan, primals, tangents)


def _householder_product_jvp(primals, tangents):
  return householder_product_p(*primals), _jvp_of(_householder_product_scan, primals, tangents)


householder_qr_p = ffi.operation(
    "linalg_householder_qr",
    "m n -> m n, min(m,n)",
    [0, 0],
    jvp=_householder_qr_jvp,
    fallback=_householder_qr_scan)

householder_product_p = ffi.operation(
    "linalg_householder_product",
    "m n, k -> m n",
    [0],
    jvp=_householder_product_jvp,
    fallback=lambda a, taus: [jax.lax.linalg.householder_product(a, taus)])


@public()
def householder_product(a: ArrayLike, taus: ArrayLike) -> jax.Array:
  """The product of Householder reflectors; `jax.lax.linalg.householder_product`.

  Args:
    a: matrices (..., m, n) with m >= n, whose column i holds, below the diagonal, the vector of
      reflector i; its head is 1 and is not read. As `qr(mode='raw')` makes them, transposed.
    taus: (..., k) with k <= n: reflector i is I - taus[i] v vᴴ.

  Returns:
    The first n columns of the product, (..., m, n), of the operands' common dtype. Nothing fails:
    NaN and Inf pass through.

  Algorithm: reflectors applied to the identity, last to first, of small matrices one per lane, of
  larger ones by blocks in tiles, as in `qr`; of large ones of few columns LAPACK orgqr (ungqr).

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> reflectors, taus = linalg.qr(a, "raw")
    >>> q = linalg.householder_product(reflectors.mT, taus)
    >>> print(jnp.allclose(q, linalg.qr(a).Q, atol=1e-6))
    True
  """
  (a, taus), dtype = as_arrays("householder_product", a, taus)
  check_matrix("householder_product", a)
  rows, cols = a.shape[-2:]
  if rows < cols or taus.ndim < 1 or taus.shape[-1] > cols:
    raise ValueError(
        "Arguments to householder_product() must have shapes [..., m, n] with m >= n and [..., k] "
        f"with k <= n, got {a.shape} and {taus.shape}")
  return householder_product_p(a, taus).astype(dtype)
