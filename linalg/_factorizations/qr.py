"""QR factors, plain and column-pivoted."""

from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  expand,
  identity,
  on_diagonal,
  permutation_matrix,
  skew_of_lower,
  triangle,
  zeros_like,
)
from linalg._core.linear_rules import linear_pair
from linalg._core.operands import as_arrays, check_matrix
from linalg._core.public import public
from linalg._core.tuning import QR_DERIVATIVE, within
from linalg._factorizations.householder import householder_qr_p
from linalg._factorizations.lu import lu_p
from linalg._factorizations.matmul import product
from linalg._factorizations.solve import factored_solve_p
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["QRResult", "qr"]


class QRResult(NamedTuple):
  """The factors A = Q R; with mode='raw' the reflectors, transposed, and their scales."""

  Q: jax.Array
  R: jax.Array


def thin_tangents(r, da_rinv, inner, outer):
  """[dQ, dR] of a tall or square A = Q R, given dA R⁻¹; inner(X) is Qᴴ X, and outer(S) is Q S.

  Let C = Qᴴ dA R⁻¹. Then dR = (C - S) R and dQ = Q (S - C) + dA R⁻¹. S is skew-Hermitian and has
  C's strictly lower triangle, so that dR is upper triangular with a real diagonal. Roberts and
  Roberts, QR and LQ decomposition matrix backpropagation algorithms for square, wide, and deep
  matrices, arXiv:2009.10071.
  """
  c = inner(da_rinv)
  skew = skew_of_lower(c)
  return [outer(skew - c) + da_rinv, product(c - skew, r)]


def times_inverse(r, x):
  """X R⁻¹."""
  return triangular_solve_p(r, x, left_side=False, lower=False)


def _is_last(n):
  """Whether an element is the last one on the diagonal."""
  last = jnp.arange(n) == n - 1
  return last[:, None] & last[None, :]


def _square_tangents(q, r, da):
  """`thin_tangents` of a square A, where Q C is dA R⁻¹.

  Only the strictly lower triangle of C counts, and the imaginary part of its diagonal. If A is
  real, they do not depend on the last column of R⁻¹, which is large where A is nearly singular. So
  any number may stand for the last one on R's diagonal, which may be 0.
  """
  f = product(q, da, adjoint_a=True)
  divisor = r if jnp.iscomplexobj(r) else jnp.where(expand(_is_last(r.shape[-1]), r), 1, r)
  skew = skew_of_lower(times_inverse(divisor, f))
  dr = triangle(f - product(skew, r), lower=False)
  if jnp.iscomplexobj(dr):
    dr = jnp.where(on_diagonal(dr), dr.real.astype(dr.dtype), dr)
  return [product(q, skew), dr]


def _thin_tangents(q, r, da):
  if q.shape[-2] == q.shape[-1]:
    return _square_tangents(q, r, da)
  return thin_tangents(
      r, times_inverse(r, da),
      inner=lambda x: product(q, x, adjoint_a=True), outer=lambda s: product(q, s))


thin_jvp_p, thin_vjp_p = linear_pair(
    ("linalg_qr_jvp", "m n, n n, m n -> m n, n n", [0, 0]),
    ("linalg_qr_vjp", "m n, n n, m n, n n -> m n", [0]),
    _thin_tangents,
    constants=2,
    argument=lambda q, r: q,
    suits=within(QR_DERIVATIVE))


def _complement_jvp(q, dq_thin, n):
  """dQ of the m - n columns that complete Q.

  The reflectors make them a function of the first n columns. Split Q at row and column n. Z = Q₂₁
  (Q₁₁ - I)⁻¹ is fixed by those columns, and the complement is [0; I] + [(Q₁₁ - I) Zᴴ; Q₂₁ Zᴴ]
  (arXiv:2409.13374). Where a reflector is the identity, Q₁₁ - I is singular and the complement is
  discontinuous. The tangent there is the one without rotation within the complement, -Q₁ dQ₁ᴴ Q₂.
  """
  q1, q2 = q[..., :n], q[..., n:]
  top, bottom = q1[..., :n, :], q1[..., n:, :]
  dtop, dbottom = dq_thin[..., :n, :], dq_thin[..., n:, :]
  eye = identity(top)
  packed, pivots, _, info = lu_p(jax.lax.stop_gradient(top - eye))
  singular = (info > 0)[..., None, None]
  packed = jnp.where(singular, eye, packed)
  # Derivatives of singular factors would be NaN, which `where` does not remove in reverse mode.
  matrix = jnp.where(singular, eye, top - eye)
  zh = factored_solve_p(
      matrix, packed, pivots, adjoint(bottom), transpose=True, conjugate=True)
  moved = product(dq_thin, zh) - product(
      q1 + product(q2, zh, adjoint_b=True), dbottom - product(zh, dtop, adjoint_a=True),
      adjoint_b=True)
  rigid = -product(q1, product(dq_thin, q2, adjoint_a=True))
  return jnp.where(singular, rigid, moved)


def _factors_jvp(a, da, q, r):
  """(dQ, dR) for any shape of A, from the shapes of Q and R."""
  m, n = a.shape[-2:]
  if m < n:
    # Let A = [A₁ A₂] with a square A₁ = Q R₁. Then R₂ = Qᴴ A₂.
    dq, dr1 = thin_jvp_p(q, r[..., :m], da[..., :m])
    dr2 = product(dq, a[..., m:], adjoint_a=True) + product(q, da[..., m:], adjoint_a=True)
    return dq, jnp.concatenate([dr1, dr2], axis=-1)
  dq, dr = thin_jvp_p(q[..., :n], r[..., :n, :], da)
  if q.shape[-1] > n:
    dq = jnp.concatenate([dq, _complement_jvp(q, dq, n)], axis=-1)
    dr = jnp.concatenate([dr, zeros_like(r[..., n:, :])], axis=-2)
  return dq, dr


def _permute_cols(a, order):
  return product(a, permutation_matrix(order, a.dtype).mT)


def _make_operations(signature, complete):
  """The primitives (plain, pivoted) of reduced or complete factors, which differ only in shape."""

  def plain_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    q, r = plain(a)
    return (q, r), _factors_jvp(a, da, q, r)

  def pivoted_jvp(primals, tangents):
    # The permutation is locally constant: the derivative is that of the permuted columns.
    (a,), (da,) = primals, tangents
    q, r, order = pivoted(a)
    dq, dr = _factors_jvp(_permute_cols(a, order), _permute_cols(da, order), q, r)
    return (q, r, order), (dq, dr, None)

  def fallback(pivoting):
    return lambda a: list(jax.lax.linalg.qr(a, full_matrices=complete, pivoting=pivoting))

  plain = ffi.operation(
      "linalg_qr", signature, [0, 0], jvp=plain_jvp, fallback=fallback(pivoting=False))
  pivoted = ffi.operation(
      "linalg_qr_pivoted", signature + ", n", [0, 0, jnp.int32],
      jvp=pivoted_jvp, fallback=fallback(pivoting=True))
  return plain, pivoted


qr_p, qr_pivoted_p = _make_operations("m n -> m min(m,n), min(m,n) n", complete=False)
qr_complete_p, qr_pivoted_complete_p = _make_operations("m n -> m m, m n", complete=True)


def _qr_r_jvp(primals, tangents):
  (a,), (da,) = primals, tangents
  q, r = qr_p(a)
  return r, _factors_jvp(a, da, q, r)[1]


qr_r_p = ffi.operation(
    "linalg_qr_r",
    "m n -> min(m,n) n",
    [0],
    jvp=_qr_r_jvp,
    fallback=lambda a: [jax.lax.linalg.qr(a, full_matrices=False)[1]])


@overload
def qr(
    a: ArrayLike,
    mode: Literal["reduced", "full", "complete", "raw"] = "reduced",
    *,
    pivoting: Literal[False] = False,
) -> QRResult: ...


@overload
def qr(
    a: ArrayLike, mode: Literal["r"], *, pivoting: Literal[False] = False
) -> jax.Array: ...


@overload
def qr(
    a: ArrayLike,
    mode: Literal["reduced", "full", "complete"] = "reduced",
    *,
    pivoting: Literal[True],
) -> tuple[jax.Array, jax.Array, jax.Array]: ...


@overload
def qr(
    a: ArrayLike, mode: Literal["r"], *, pivoting: Literal[True]
) -> tuple[jax.Array, jax.Array]: ...


@overload
def qr(
    a: ArrayLike, mode: str = "reduced", *, pivoting: bool = False
) -> Any: ...


@public("mode", "pivoting")
def qr(a: ArrayLike, mode: str = "reduced", *, pivoting: bool = False) -> Any:
  """QR factors, A = Q R; `jax.numpy.linalg.qr`, and with column pivoting A[:, permutation] = Q R.

  Args:
    a: matrices (..., m, n) of any floating, complex or integer dtype; k = min(m, n).
    mode: 'reduced' (or 'full') for Q (..., m, k) and R (..., k, n). 'complete' for Q (..., m, m)
      and R (..., m, n). 'r' for the R of 'reduced' alone. 'raw' for LAPACK's form: the reflectors
      and R in one matrix, transposed to (..., n, m), and their scales (..., k).
    pivoting: whether to permute columns so that the diagonal of R does not grow in magnitude.

  Returns:
    QRResult(Q, R); with mode='r' R. If `pivoting`, the tuple (Q, R, permutation), or (R,
    permutation), where permutation is int32 (..., n). R's diagonal is real but may be negative.

  float16 and bfloat16 are factored in float32, and the factors rounded.

  Algorithm: Householder reflectors; small matrices one per lane, larger ones in tiles. LAPACK geqrf
  (geqp3) and orgqr factor large matrices with few columns or rows, and with pivoting all that are
  not small. Derivatives are those of Roberts and Roberts, arXiv:2009.10071, for any shape. The
  complement of a complete Q follows arXiv:2409.13374. It needs the first min(m, n) columns of A to
  be independent.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[3.0, 1.0], [4.0, 2.0], [0.0, 5.0]])
    >>> q, r = linalg.qr(a)
    >>> q.shape, r.shape
    ((3, 2), (2, 2))
    >>> print(jnp.allclose(q @ r, a, atol=1e-5))
    True
    >>> q, r, permutation = linalg.qr(a, pivoting=True)
    >>> print(permutation)
    [1 0]
  """
  (a,), dtype = as_arrays("qr", a)
  check_matrix("qr", a)
  if mode not in ("reduced", "full", "complete", "r", "raw"):
    raise ValueError(
        f"qr: mode must be 'reduced', 'full', 'complete', 'r' or 'raw', got {mode!r}.")
  if pivoting:
    if mode == "raw":
      raise ValueError("qr: pivoting=True needs another mode than 'raw'.")
    q, r, permutation = (qr_pivoted_complete_p if mode == "complete" else qr_pivoted_p)(a)
    q, r = q.astype(dtype), r.astype(dtype)
    return (r, permutation) if mode == "r" else (q, r, permutation)
  if mode == "r":
    return qr_r_p(a).astype(dtype)
  if mode == "raw":
    packed, taus = householder_qr_p(a)
    return QRResult(packed.mT.astype(dtype), taus.astype(dtype))
  q, r = (qr_complete_p if mode == "complete" else qr_p)(a)
  return QRResult(q.astype(dtype), r.astype(dtype))
