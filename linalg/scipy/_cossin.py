"""Cosine-sine decomposition of unitary matrices."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import linalg
from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  expand,
  on_diagonal,
  one_of_first_order,
  ones_of_first_order,
  reciprocal,
  smallest_gap,
  without_none,
  zeros_like,
)
from linalg._core.operands import (
  as_arrays,
  as_integer,
  check_arrays,
  check_square,
  incompatible,
  real_dtype,
)
from linalg._core.public import public
from linalg._factorizations.matmul import product

__all__ = ["cossin"]


_Factor = jax.Array | tuple[jax.Array, ...]


class _Sizes(NamedTuple):
  """Numbers of columns: of angles, and of ones in the blocks 11, 12, 21 and 22."""

  angles: int
  n11: int
  n12: int
  n21: int
  n22: int


def _sizes(m, p, q):
  r = min(p, m - p, q, m - q)
  return _Sizes(
      r, min(p, q) - r, min(p, m - q) - r, min(m - p, q) - r, min(m - p, m - q) - r)


def _in_three(a, first, second, axis=-1):
  return jnp.split(a, [first, first + second], axis)


def _blocks(x, p, q):
  return x[..., :p, :q], x[..., :p, q:], x[..., p:, :q], x[..., p:, q:]


def _with_fewest_columns(x, p, q):
  """(U1, U2, θ, V1, V2) where q is the least of p, m - p, q and m - q.

  Singular vectors of X₁₁ are right where the cosine is small. Where it is large, X₂₁ V₁ has small
  columns, and its triangular factor there is decomposed once more. Source: van Loan, Computing the
  CS and the generalized singular value decompositions, Numer. Math. 46 (1985).
  """
  x11, x12, x21, x22 = _blocks(x, p, q)
  u1, c, v1h = linalg.svd(x11)
  # Reversed, so that the sines fall and the large ones come first.
  turned = lambda a: jax.lax.rev(a, (a.ndim - 1,))
  u1, beside_u1 = u1[..., :q], u1[..., q:]
  u1, c, v1 = turned(u1), turned(c), turned(adjoint(v1h))
  u2, r = linalg.qr(product(x21, v1), "complete")
  r, u2, beside_u2 = r[..., :q, :], u2[..., :q], u2[..., q:]
  sine = diagonal_of(r)
  large = c < 0.5**0.5
  # Numbers that are apart from each other and from the rest keep the large ones where they are.
  apart = 2 + expand(jnp.arange(q, 0, -1, dtype=c.dtype), c) / max(q, 1)
  sign = jnp.where(sine.real < 0, -1, 1).astype(r.dtype)
  small = ~large[..., :, None] & ~large[..., None, :]
  apart = (apart.astype(r.dtype) * sign)[..., None, :]
  own = jnp.where(on_diagonal(r) & large[..., None, :], apart, 0)
  left, found, right = linalg.svd(jnp.where(small, r, own))
  right = adjoint(right)
  u1, v1, u2 = product(u1, right), product(v1, right), product(u2, left)
  s = jnp.where(large, jnp.abs(sine.real), found)
  c = jnp.where(large, c, jnp.sqrt(jnp.maximum((1 - s) * (1 + s), 0)))
  theta = jnp.arctan2(s, c)
  c, s = (x[..., None, :].astype(u1.dtype) for x in (jnp.cos(theta), jnp.sin(theta)))
  v2 = product(x22, u2 * c, adjoint_a=True) - product(x12, u1 * s, adjoint_a=True)
  v2 = jnp.concatenate([
      product(x22, beside_u2, adjoint_a=True), v2, -product(x12, beside_u1, adjoint_a=True)], -1)
  # θ rises in LAPACK's order.
  sizes = _sizes(p + x21.shape[-2], p, q)
  return _rising(
      jnp.concatenate([u1, beside_u1], -1), jnp.concatenate([beside_u2, u2], -1), theta, v1, v2,
      sizes)


def _rising(u1, u2, theta, v1, v2, sizes):
  """The factors in the opposite order of θ."""
  r = sizes.angles

  def reverse(a, first):
    before, own, after = _in_three(a, first, r)
    return jnp.concatenate([before, jax.lax.rev(own, (own.ndim - 1,)), after], -1)

  return (reverse(u1, sizes.n11), reverse(u2, sizes.n22),
          jax.lax.rev(theta, (theta.ndim - 1,)), reverse(v1, sizes.n11), reverse(v2, sizes.n22))


def _decomposed(x, p, q):
  """(U1, U2, θ, V1, V2), in LAPACK's order of columns: those of ones, angles, ones."""
  m = x.shape[-1]
  sizes = _sizes(m, p, q)
  r = sizes.angles
  if q == r:
    return _with_fewest_columns(x, p, q)
  if m - q == r:
    # In the matrix with its block columns exchanged, the angles are π/2 - θ.
    exchanged = jnp.concatenate([x[..., q:], x[..., :q]], -1)
    u1, u2, theta, v2, v1 = _with_fewest_columns(exchanged, p, m - q)
    # Columns of V are those of ones in block 22, of angles, and of ones in block 12.
    of_22, of_angles, of_12 = _in_three(v1, m - p - r, r)
    v1 = jnp.concatenate([-of_12, -of_angles, of_22], -1)
    u1 = jnp.concatenate([u1[..., r:], u1[..., :r]], -1)
    ones, own = u2[..., : m - p - r], u2[..., m - p - r :]
    u2 = jnp.concatenate([-own, ones], -1)
    return _rising(u1, u2, jnp.pi / 2 - theta, v1, -v2, sizes)
  v1, v2, theta, u1, u2 = _decomposed(adjoint(x), q, p)
  # The adjoint has the opposite signs beside the diagonal.
  turn = lambda a: jnp.concatenate([a[..., : sizes.n22], -a[..., sizes.n22 :]], -1)
  return u1, turn(u2), theta, v1, turn(v2)


def _fallback(x, *, p, q, **_):
  u1, u2, theta, v1, v2 = _decomposed(x, p, q)
  return [u1, u2, theta, v1, v2]


def _middle(theta, sizes, dtype):
  """The blocks of the cosine-sine factor, of a dtype."""
  r, n11, n12, n21, n22 = sizes
  cosine, sine = (x[..., None, :].astype(dtype) for x in (jnp.cos(theta), jnp.sin(theta)))

  def block(rows, cols, angles, row, col, ones, row_of_ones, col_of_ones):
    """The diagonal of the angles begins at (row, col), that of the ones at another place."""

    def diagonal(first, offset, count):
      at = jnp.arange(rows)[:, None]
      return jnp.eye(rows, cols, k=offset, dtype=bool) & (at >= first) & (at < first + count)

    own = jnp.pad(angles, ((0, 0),) * (angles.ndim - 1) + ((col, cols - col - r),))
    own = jnp.where(expand(diagonal(row, col - row, r), own), own, 0)
    place = diagonal(row_of_ones, col_of_ones - row_of_ones, abs(ones))
    sign = jnp.asarray(1 if ones > 0 else -1, dtype)
    return own + expand(jnp.where(place, sign, 0), own)

  p, q, s, t = n11 + r + n12, n11 + r + n21, n22 + r + n21, n22 + r + n12
  return (
      block(p, q, cosine, n11, n11, n11, 0, 0),
      block(p, t, -sine, n11, n22, -n12, n11 + r, n22 + r),
      block(s, q, sine, n22, n11, n21, n22 + r, n11 + r),
      block(s, t, cosine, n22, n22, n22, 0, 0))


def _jvp(primals, tangents, **sizes_of):
  """The change of the factors with X on the unitary matrices.

  Let K be the skew-Hermitian part of Vᴴ Xᴴ dX V, and dU = U X, dV = V Y. X and Y are
  skew-Hermitian and block-diagonal. In the blocks 12,

    K₁₂ = D₁₁ᵀ X₁ D₁₂ + D₂₁ᵀ X₂ D₂₂ - diag(dθ),

  two equations for a pair of angles, with the determinant sin(θⱼ - θᵢ) sin(θⱼ + θᵢ). The blocks on
  the diagonal give Y. Where angles are equal up to rounding, and among columns of ones, the
  rotation is not determined, and 0.
  """
  (x,), (dx,) = primals, without_none(primals, tangents)
  u1, u2, theta, v1, v2 = cossin_p(x, **sizes_of)
  m, p, q = x.shape[-1], sizes_of["p"], sizes_of["q"]
  sizes = _sizes(m, p, q)
  r = sizes.angles
  k = product(x, dx, adjoint_a=True)
  k = k / 2 - adjoint(k) / 2
  k11, k12, k22 = (
      product(a, product(b, c), adjoint_a=True) for a, b, c in (
          (v1, k[..., :q, :q], v1), (v1, k[..., :q, q:], v2), (v2, k[..., q:, q:], v2)))
  rows = _in_three(k12, sizes.n11, r, -2)
  parts = [_in_three(row, sizes.n22, r) for row in rows]
  c, s = (x.astype(x.dtype) for x in (jnp.cos(theta), jnp.sin(theta)))
  column = lambda x: x[..., :, None].astype(k12.dtype)
  row = lambda x: x[..., None, :].astype(k12.dtype)
  least = smallest_gap(jnp.ones((), theta.dtype), m)
  over = lambda x: reciprocal(x, jnp.abs(x) > least)
  own = parts[1][1]
  mirrored = own.conj().mT
  gap = over(jnp.sin(theta[..., None, :] - theta[..., :, None]))
  total = over(jnp.sin(theta[..., None, :] + theta[..., :, None]))
  scale = (gap * total).astype(k12.dtype)
  # [-cᵢ sⱼ, sᵢ cⱼ; cⱼ sᵢ, -sⱼ cᵢ] (X₁, X₂) = (K, K̄ᵀ)
  x1 = -(column(c) * row(s) * own + column(s) * row(c) * mirrored) * scale
  x2 = -(column(s) * row(c) * own + column(c) * row(s) * mirrored) * scale
  on = on_diagonal(own)
  x1, x2 = (jnp.where(on, 0, x) for x in (x1, x2))
  dtheta = -diagonal_of(own).real
  if jnp.iscomplexobj(own):
    turn = diagonal_of(own).imag * over(2 * c * s)
    turn = jax.lax.complex(zeros_like(turn), turn)
    x1 = x1 - jnp.where(on, row(turn), 0)
    x2 = x2 + jnp.where(on, row(turn), 0)
  x1 = _assembled(
      x1, -parts[0][1] * row(over(s)), -parts[0][2], -parts[1][2] * column(over(c)))
  # Columns of U2 are those of ones in block 22, of angles, and of ones in block 21.
  x2 = _assembled(
      x2, -adjoint(parts[1][0] * column(over(s))), -adjoint(parts[2][0]),
      -adjoint(parts[2][1] * row(over(c))))
  d11, d12, d21, d22 = _middle(theta, sizes, k12.dtype)
  moved = lambda a, x, b: product(a, product(x, b), adjoint_a=True)
  y1 = moved(d11, x1, d11) + moved(d21, x2, d21) - k11
  y2 = moved(d12, x1, d12) + moved(d22, x2, d22) - k22
  # Angles have no derivative at the ends of their range, where signs of columns change.
  at_end = ((theta <= least) | (theta >= jnp.pi / 2 - least)).any(-1, keepdims=True)
  inside = jnp.where(at_end, jnp.nan, 1).astype(theta.dtype)
  ones = inside * ones_of_first_order(theta, jnp.ones_like(theta[..., :1]))
  one = inside * one_of_first_order(ones)
  of = lambda a, b: product(a, b) * one[..., None].astype(a.dtype)
  return (u1, u2, theta, v1, v2), (
      of(u1, x1), of(u2, x2), dtheta * ones, of(v1, y1), of(v2, y2))


def _assembled(angles, first_angles, first_last, angles_last):
  """The skew-Hermitian matrix of these blocks above the diagonal and `angles` on it."""
  def square(column):
    n = column.shape[-2]
    return zeros_like(column) + expand(jnp.zeros((n, n), column.dtype), column)

  first, last = square(first_angles[..., :1]), square(adjoint(angles_last[..., :1, :]))
  top = jnp.concatenate([first, first_angles, first_last], -1)
  middle = jnp.concatenate([-adjoint(first_angles), angles, angles_last], -1)
  bottom = jnp.concatenate([-adjoint(first_last), -adjoint(angles_last), last], -1)
  return jnp.concatenate([top, middle, bottom], -2)


cossin_p = ffi.operation(
    "linalg_cossin",
    "m m -> p p, s s, r, q q, t t",
    lambda x, **sizes: [x, x, real_dtype(x), x, x],
    attributes=dict.fromkeys("pqrst", 1),
    platforms=(),
    jvp=_jvp,
    fallback=_fallback)


@public("p", "q", "separate", "swap_sign", "compute_u", "compute_vh", compiled=False)
def cossin(
    X: Any,
    p: int | None = None,
    q: int | None = None,
    separate: bool = False,
    swap_sign: bool = False,
    compute_u: bool = True,
    compute_vh: bool = True,
) -> tuple[_Factor, jax.Array, _Factor]:
  """Cosine-sine decomposition of unitary matrices, X = U D Vᴴ; `scipy.linalg.cossin`, batched.

  Args:
    X: unitary matrices (..., m, m), or a tuple or list of their blocks X11, X12, X21, X22.
    p, q: the shape of X11, if X is a matrix. One may be left out, and is 1.
    separate: whether to return blocks and angles in place of matrices.
    swap_sign: whether the minus signs of D are in its lower left block, not the upper right one.
    compute_u, compute_vh: whether U and Vᴴ are wanted; else they are (..., 0, 0).

  Returns:
    (U, D, Vᴴ), all (..., m, m). U and Vᴴ have two unitary blocks each, (..., p, p) and
    (..., m - p, m - p), and (..., q, q) and (..., m - q, m - q). D has cosines and sines, and ones.
    If `separate`, ((U1, U2), θ, (V1ᴴ, V2ᴴ)), with angles θ in rising order.

  A matrix that is not unitary up to rounding has no such decomposition, and gives numbers without
  meaning. NaN and Inf give NaN. float16 and bfloat16 are computed in float32, and the results
  rounded.

  Algorithm: SVD of X11, QR of X21 V1, and an SVD of its small part, so that small sines and small
  cosines are as accurate as LAPACK's (van Loan 1985). Derivatives are those along unitary matrices.
  They need distinct angles, as those of `svd` need distinct singular values: no rotation is taken
  between angles that are equal up to rounding, and second derivatives are NaN there. Columns of
  ones do not rotate within their space.

  Example:
    >>> import jax.numpy as jnp, linalg, linalg.scipy
    >>> x = linalg.qr(jnp.array([[1.0, 2.0], [3.0, 4.0]])).Q
    >>> u, d, vh = linalg.scipy.cossin(x, p=1, q=1)
    >>> print(jnp.allclose(u @ d @ vh, x, atol=1e-5))
    True
  """
  # A list may be a matrix, or hold the four blocks.
  as_array = lambda x: jnp.asarray(x) if isinstance(x, list) else x
  if p or q or not isinstance(X, (tuple, list)):
    X = as_array(X)
    check_arrays("cossin", X)
  else:
    X = tuple(map(as_array, X))
    check_arrays("cossin", *X)
  return _cossin(X, p, q, separate, swap_sign, compute_u, compute_vh)


@functools.partial(
    jax.jit, static_argnames=("p", "q", "separate", "swap_sign", "compute_u", "compute_vh"))
def _cossin(x, p, q, separate, swap_sign, compute_u, compute_vh):
  x, p, q, dtype = _unitary(x, p, q)
  m = x.shape[-1]
  sizes = _sizes(m, p, q)
  u1, u2, theta, v1, v2 = cossin_p(x, p=p, q=q, r=sizes.angles, s=m - p, t=m - q)
  if swap_sign:
    u2, v2 = -u2, -v2
  u = [u1, u2] if compute_u else [u1[..., :0, :0]] * 2
  vh = [adjoint(v1), adjoint(v2)] if compute_vh else [v1[..., :0, :0]] * 2
  u, vh = ([y.astype(dtype) for y in pair] for pair in (u, vh))
  real = real_dtype(dtype)
  if separate:
    return tuple(u), theta.astype(real), tuple(vh)
  d11, d12, d21, d22 = _middle(theta, sizes, theta.dtype)
  if swap_sign:
    d12, d21 = -d12, -d21
  d = jnp.concatenate(
      [jnp.concatenate([d11, d12], -1), jnp.concatenate([d21, d22], -1)], -2)
  joined = lambda pair, wanted: linalg.block_diag(*pair) if wanted else pair[0]
  return joined(u, compute_u), d.astype(real), joined(vh, compute_vh)


def _unitary(x, p, q):
  """(X, p, q, the dtype to return)."""
  if p or q:
    (x,), dtype = as_arrays("cossin", x)
    check_square("cossin", x)
    p, q = (
        as_integer("cossin", name, 1 if size is None else size, 1, x.shape[-1] - 1)
        for name, size in (("p", p), ("q", q)))
    return x, p, q, dtype
  if not isinstance(x, tuple) or len(x) != 4:
    raise ValueError("cossin: without p and q, X must be the four blocks X11, X12, X21, X22.")
  blocks, dtype = as_arrays("cossin", *x)
  blocks = [jnp.atleast_2d(block) for block in blocks]
  x11, x12, x21, x22 = ffi.broadcast_batches("cossin", blocks, (2,) * 4)
  (p, q), (s, t) = x11.shape[-2:], x22.shape[-2:]
  if (x12.shape[-2:], x21.shape[-2:], p + s) != ((p, t), (s, q), q + t) or 0 in (p, q, s, t):
    raise incompatible("cossin", *blocks, names=("X11", "X12", "X21", "X22"))
  x = jnp.concatenate(
      [jnp.concatenate([x11, x12], -1), jnp.concatenate([x21, x22], -1)], -2)
  return x, p, q, dtype
