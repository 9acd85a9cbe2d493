"""Balanced forms of general matrices."""

from typing import Literal, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  LARGE_EXPONENT,
  adjoint,
  expand,
  exponent_above,
  largest_element,
  on_diagonal,
  permutation_matrix,
  power_of_two,
  zeros_like,
)
from linalg._core.balancing import similar
from linalg._core.operands import as_arrays, check_square, real_dtype
from linalg._core.public import public
from linalg._factorizations.matmul import congruence

__all__ = ["matrix_balance"]

_PASSES = 40  # the handler's limit


def _isolated_first(a, order):
  """The order of rows and columns that brings isolated eigenvalues to the corners, as in gebal.

  Returns that order, and a mask of the rows that are not isolated, in that order.
  """
  n = a.shape[-1]
  place = expand(jnp.arange(n, dtype=jnp.int32), order)
  linked = (a != 0) & ~on_diagonal(a)

  def step(carry, _):
    order, first, end, active = carry
    among = linked & active[..., None, :] & active[..., :, None]
    row, column = (active & ~jnp.any(among, axis=axis) for axis in (-1, -2))
    at = order[..., :, None] == expand(place[..., None, :], among)
    in_order = lambda x: jnp.any(at & x[..., None, :], axis=-1)
    row, column = in_order(row), in_order(column)
    found = jnp.min(jnp.where(row | column, place, n), axis=-1, keepdims=True, initial=n)
    any_found = found < n
    by_row = jnp.any(row & (place == found), axis=-1, keepdims=True)
    target = jnp.where(by_row, end - 1, first)
    pick = lambda i: jnp.sum(
        jnp.where(place == i, order, 0), axis=-1, keepdims=True, dtype=order.dtype)
    moved, other = pick(found), pick(target)
    exchanged = jnp.where(
        place == target, moved, jnp.where(place == found, other, order)).astype(order.dtype)
    order = jnp.where(any_found, exchanged, order)
    active = active & ~(any_found & (place == moved))
    end = jnp.where(any_found & by_row, end - 1, end)
    first = jnp.where(any_found & ~by_row, first + 1, first)
    return (order, first, end, active), None

  first = order[..., :1] * 0
  carry = (order, first, first + n, order >= 0)
  (order, first, end, _), _ = jax.lax.scan(step, carry, length=n)
  return order, (place >= first) & (place < end)


def _mantissa(x):
  """Returns m and e with x = m 2ᵉ and m in (1/2, 1], for positive x."""
  e = exponent_above(x)
  return x * power_of_two(-e, x.dtype), e


def _exponents(a, active):
  """The exponents k for which 2⁻ᵏ A 2ᵏ has rows and columns of nearly equal norms."""
  n = a.shape[-1]
  place = expand(jnp.arange(n), active)
  size = jnp.where(active[..., None, :], jnp.abs(a), 0)
  most, up = (100, 40) if size.dtype == jnp.float32 else (800, 300)
  size = jnp.where(active[..., :, None], size, 0) * power_of_two(jnp.int32(up), size.dtype)

  def step(k, i):
    one = place == i
    own = jnp.sum(jnp.where(one, k, 0), axis=-1, keepdims=True, dtype=k.dtype)
    powers = power_of_two(k - own, size.dtype)
    norm = lambda x: jnp.sqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True))
    column = norm(jnp.sum(jnp.where(one[..., None, :], size, 0), axis=-1) / powers)
    row = norm(jnp.sum(jnp.where(one[..., :, None], size, 0), axis=-2) * powers)
    (c, ce), (r, re) = _mantissa(column), _mantissa(row)
    up = re - ce - (r <= c).astype(k.dtype)
    down = ce - re - (c < r).astype(k.dtype)
    change = jnp.where(up > 0, (up + 1) // 2, jnp.where(down > 0, -((down + 1) // 2), 0))
    change = jnp.clip(own + change, -most, most) - own
    after = column * power_of_two(change, size.dtype) + row * power_of_two(-change, size.dtype)
    pays = (column > 0) & (row > 0) & (after < 0.95 * (column + row))
    return k + jnp.where(one & active & pays, change, 0), None

  start = jnp.zeros_like(active, jnp.int32)
  return jax.lax.scan(step, start, jnp.tile(jnp.arange(n), _PASSES))[0]


def _fallback(a, *, permute, scale):
  exponent = exponent_above(largest_element(a))[..., None]
  finite = exponent < LARGE_EXPONENT
  a = jnp.where(finite[..., None], a, jnp.zeros((), a.dtype))
  unit = power_of_two(-jnp.where(finite, exponent, 0), a.dtype)[..., None].astype(a.dtype)
  exponents = zeros_like(exponent + expand(jnp.arange(a.shape[-1], dtype=jnp.int32), exponent))
  order = identity = exponents + expand(jnp.arange(a.shape[-1], dtype=jnp.int32), exponents)
  active = order >= 0
  if permute:
    order, active = _isolated_first(a, order)
    order = jnp.where(finite, order, identity)
  permuted = congruence(permutation_matrix(order, a.dtype), a)
  if scale:
    exponents = _exponents(permuted * unit, active)
  diagonal = jnp.where(finite, power_of_two(exponents, a.dtype), jnp.nan)
  return [_scaled(permuted, diagonal), diagonal, order]


def _scaled(a, diagonal):
  """D⁻¹ A D, in two steps: a quotient of two elements of D may be out of range."""
  e = exponent_above(diagonal)
  half = e >> 1
  scaled = similar(similar(a, half), e - half)
  return jnp.where(jnp.isfinite(diagonal)[..., None, :], scaled, jnp.nan)


def _jvp(primals, tangents, **attributes):
  # T is locally constant where the order and the powers of two are.
  (a,), (da,) = primals, tangents
  balanced, diagonal, order = balance_p(a, **attributes)
  moved = _scaled(congruence(permutation_matrix(order, a.dtype), da), diagonal)
  return (balanced, diagonal, order), (moved, None, None)


balance_p = ffi.operation(
    "linalg_balance",
    "n n -> n n, n, n",
    lambda a, **attributes: [a, real_dtype(a), jnp.int32],
    attributes={"permute": True, "scale": True},
    jvp=_jvp,
    fallback=_fallback)


@overload
def matrix_balance(
    A: ArrayLike, permute: bool = True, scale: bool = True,
    separate: Literal[False] = False, overwrite_a: bool = False,
) -> tuple[jax.Array, jax.Array]: ...


@overload
def matrix_balance(
    A: ArrayLike, permute: bool = True, scale: bool = True, *, separate: Literal[True],
    overwrite_a: bool = False,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]: ...


@overload
def matrix_balance(
    A: ArrayLike, permute: bool = True, scale: bool = True, separate: bool = False,
    overwrite_a: bool = False,
) -> tuple[jax.Array, jax.Array | tuple[jax.Array, jax.Array]]: ...


@public("permute", "scale", "separate", "overwrite_a", lists=True)
def matrix_balance(
    A: ArrayLike,
    permute: bool = True,
    scale: bool = True,
    separate: bool = False,
    overwrite_a: bool = False,
) -> tuple[jax.Array, jax.Array | tuple[jax.Array, jax.Array]]:
  """Balanced form B = T⁻¹ A T of general matrices; `scipy.linalg.matrix_balance`, batched.

  T is a permuted diagonal matrix of powers of two. B has the eigenvalues of A, and they are less
  sensitive to rounding where rows and columns of A differ much in size.

  Args:
    A: matrices (..., n, n) of any floating, complex or integer dtype.
    permute: whether to move isolated eigenvalues to the corners, where B is upper triangular.
    scale: whether to make the norms of row i and column i nearly equal, for each i.
    separate: whether to return the powers of two and the permutation in place of T.
    overwrite_a: not used.

  Returns:
    (B, T), both (..., n, n). If `separate`, (B, (scale, permutation)), the last two (..., n): B is
    A[permutation][:, permutation] times scale[j] / scale[i]. The permutation is int32. A matrix
    with NaN or Inf gives NaN for B, T and the scale.

  float16 and bfloat16 are balanced in float32, and the results rounded. That is exact unless they
  leave the range.

  Algorithm: isolated eigenvalues move as in LAPACK's gebal. Scaling is in the 2-norm (James, Langou
  and Lowery, On matrix balancing and eigenvector computation, 2014). It does not see elements that
  are smaller than the largest one by a factor out of range. Derivatives are those of B for a
  constant T, to any order, since T changes in steps only.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> b, t = linalg.scipy.matrix_balance(jnp.array([[1.0, 1024.0], [0.25, 1.0]]))
    >>> print(b)
    [[ 1. 16.]
     [16.  1.]]
  """
  del overwrite_a
  (a,), dtype = as_arrays("matrix_balance", A)
  check_square("matrix_balance", a)
  balanced, diagonal, order = balance_p(a, permute=permute, scale=scale)
  balanced = balanced.astype(dtype)
  diagonal = diagonal.astype(jnp.finfo(dtype).dtype)
  if separate:
    return balanced, (diagonal, order)
  p = permutation_matrix(order, dtype)
  return balanced, adjoint(jnp.where(p != 0, diagonal[..., :, None].astype(dtype), 0))
