"""Householder reflectors: LAPACK's form of QR, the product of reflectors, and products with it."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  column_of,
  expand,
  identities_like,
  identity,
  none_like,
  plus,
  with_column,
  without_none,
)
from linalg._core.operands import as_arrays, check_batches, check_matrix, incompatible
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["householder_product", "ormqr"]

# The derivatives of both operations differentiate textbook recurrences, in one scan over the
# reflectors. Source: Golub and Van Loan, Matrix Computations, 4th ed., algorithms 5.1.1, 5.1.2 and
# 5.2.1.


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


def _vectors(a, count):
  """The vectors of the reflectors, (..., m, k)."""
  return jnp.tril(a[..., :count], -1) + identity(a, a.shape[-2], count)


def _householder_product_scan(a, taus):
  v = _vectors(a, taus.shape[-1])

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
    a: matrices (..., m, n) with m >= n. Column i holds, below the diagonal, the vector of reflector
      i; its first element is 1 and is not read. `qr(mode='raw')` returns them transposed.
    taus: (..., k) with k <= n: reflector i is I - taus[i] v vᴴ.

  Returns:
    The first n columns of the product, (..., m, n), of the operands' common dtype. Nothing fails:
    NaN and Inf pass through.

  Algorithm: the reflectors are applied to the identity, last to first. Small matrices are computed
  one per lane, larger ones by blocks in tiles, as in `qr`. Large ones with few columns use LAPACK
  orgqr (ungqr).

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


def _times_left(a, taus, c, adjoint_q):
  """Q C, or Qᴴ C, by matrix products and one triangular solve."""
  # Q = I - V T Vᴴ with T⁻¹ = D⁻¹ + U. D is diag(taus), and U the strict upper triangle of Vᴴ V;
  # Joffrain et al., Accumulating Householder transformations, revisited, ACM TOMS 32 (2006). The
  # form T = D (I + U D)⁻¹ is right where a scale is 0, too.
  v = _vectors(a, taus.shape[-1])
  inverse = product(v, v, adjoint_a=True) * taus[..., None, :]
  inner = product(v, c, adjoint_a=True)
  scales = (taus.conj() if adjoint_q else taus)[..., None]
  turned = triangular_solve_p(
      inverse, scales * inner if adjoint_q else inner, left_side=True, lower=False,
      transpose_a=adjoint_q, conjugate_a=adjoint_q, unit_diagonal=True)
  return c - product(v, turned if adjoint_q else scales * turned)


def _ormqr_formula(a, taus, c, *, left, transpose):
  if left:
    return _times_left(a, taus, c, transpose)
  return adjoint(_times_left(a, taus, adjoint(c), not transpose))


def _ormqr_jvp(primals, tangents, **attributes):
  a, taus, c = primals
  dc = tangents[2]
  dx = None if dc is None else ormqr_p(a, taus, dc, **attributes)
  if any(tangent is not None for tangent in tangents[:2]):
    dq = _jvp_of(
        lambda a, taus: _ormqr_formula(a, taus, c, **attributes), primals[:2], tangents[:2])
    dx = plus(dx, dq)
  return ormqr_p(a, taus, c, **attributes), dx


def _ormqr_transpose(cotangents, operands, *, transpose, **attributes):
  # The transpose of Q is the conjugate of its adjoint.
  a, taus, _ = operands
  (ct,) = cotangents
  return None, None, ormqr_p(a, taus, ct.conj(), transpose=not transpose, **attributes).conj()


ormqr_p = ffi.operation(
    "linalg_ormqr",
    "m n, k, r c -> r c",
    [2],
    attributes={"left": True, "transpose": False},
    jvp=_ormqr_jvp,
    transpose=_ormqr_transpose,
    fallback=lambda *operands, **attributes: [_ormqr_formula(*operands, **attributes)])


@public("left", "transpose")
def ormqr(
    a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False
) -> jax.Array:
  """Products with the Q of Householder reflectors, without forming Q; `jax.lax.linalg.ormqr`.

  Args:
    a: matrices (..., m, n). Column i holds, below the diagonal, the vector of reflector i; its
      first element is 1 and is not read. `qr(mode='raw')` returns them transposed.
    taus: (..., k) with k <= min(m, n): reflector i is I - taus[i] v vᴴ.
    c: matrices (..., m, p) if `left`, else (..., p, m); the batches broadcast.
    left: whether Q stands on the left.
    transpose: whether to multiply by Qᴴ.

  Returns:
    Q C, Qᴴ C, C Q or C Qᴴ with the complete Q, (..., m, m). The product has the shape of `c` and
    the operands' common dtype. Nothing fails: NaN and Inf pass through.

  float16 and bfloat16 are computed in float32, and the products rounded.

  Algorithm: on the CPU, small matrices are computed one per lane, one reflector after another.
  Larger ones apply blocks of reflectors in tiles. Other platforms, and derivatives with respect to
  the reflectors, use I - V T Vᴴ with all vectors V at once. That takes matrix products and one
  triangular solve of order k.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> reflectors, taus = linalg.qr(a, "raw")
    >>> r = linalg.ormqr(reflectors.mT, taus, a, transpose=True)
    >>> print(jnp.allclose(r[:2], linalg.qr(a).R, atol=1e-5))
    True
  """
  (a, taus, c), dtype = as_arrays("ormqr", a, taus, c)
  for operand, x in (("a", a), ("c", c)):
    check_matrix("ormqr", x, operand)
  count = taus.shape[-1] if taus.ndim else None
  if count is None or count > min(a.shape[-2:]) or c.shape[-2 if left else -1] != a.shape[-2]:
    raise incompatible("ormqr", a, taus, c, names=("a", "taus", "c"))
  check_batches("ormqr", a, taus, c, ranks=(2, 1, 2), names=("a", "taus", "c"))
  return ormqr_p(a, taus, c, left=bool(left), transpose=bool(transpose)).astype(dtype)
