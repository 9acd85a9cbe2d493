"""Matrix algebra for derivative rules and for functions that are composed in Python.

Every function is batched and keeps the sharding of a batch. None uses a gather, whose result has no
sharding. None mixes dtypes or ranks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def expand(x: jax.Array | np.ndarray, a: jax.Array | jax.ShapeDtypeStruct) -> jax.Array:
  """`x` with unit dimensions in front, to the rank of `a`."""
  return jax.lax.expand_dims(x, tuple(range(a.ndim - x.ndim)))


def identity(a: jax.Array, rows: Any = None, cols: Any = None) -> jax.Array:
  """An identity matrix of the dtype and rank of `a`, by default of its shape."""
  rows = a.shape[-2] if rows is None else rows
  cols = a.shape[-1] if cols is None else cols
  return expand(jnp.eye(rows, cols, dtype=a.dtype), a)


def identities_like(a: jax.Array) -> jax.Array:
  """Identity matrices of the shape, dtype and sharding of `a`."""
  return zeros_like(a) + identity(a)


def turn_to_real(x: jax.Array) -> jax.Array:
  """The numbers x̄ / |x|, which turn each x to its modulus; 1 for 0."""
  size = jnp.abs(x)
  return jnp.where(size == 0, 1, x.conj() / jnp.where(size == 0, 1, size).astype(x.dtype))


def on_diagonal(a: jax.Array | jax.ShapeDtypeStruct, offset: int = 0) -> jax.Array:
  """A mask of the diagonal that begins at column `offset`, or at row -`offset`.

  It has the rank of `a`.
  """
  rows, cols = a.shape[-2:]
  return expand(jnp.eye(rows, cols, k=offset, dtype=bool), a)


def diagonal_of(a: jax.Array, offset: int = 0) -> jax.Array:
  """A diagonal of square matrices, as a sum: a gather's transpose has no sharding.

  XLA fuses the sum with the operation that makes the matrices. Zeros at the end of a diagonal
  beside the main one give it length n.
  """
  return jnp.sum(jnp.where(on_diagonal(a, offset), a, 0), axis=-1 if offset >= 0 else -2)


def stored_diagonal(a: jax.Array, offset: int = 0) -> jax.Array:
  """`diagonal_of` matrices that are stored in memory.

  That would read the whole matrix; this reads every (n + 1)th entry. A symbolic size cannot be a
  stride, so such matrices go to `diagonal_of`.
  """
  n = a.shape[-1]
  if not isinstance(n, int) or n == 0:
    return diagonal_of(a, offset)
  first = offset if offset >= 0 else -offset * n
  diagonal = a.reshape(*a.shape[:-2], n * n)[..., first : n * (n - offset) : n + 1]
  if offset == 0:
    return diagonal
  return jnp.pad(diagonal, ((0, 0),) * (diagonal.ndim - 1) + ((0, n - diagonal.shape[-1]),))


def column_of(a: jax.Array, j: jax.Array) -> jax.Array:
  """Column `j` of matrices, (..., m, 1), as a sum: a gather's transpose has no sharding."""
  col = expand(jnp.arange(a.shape[-1]), a)
  return jnp.sum(jnp.where(col == j, a, 0), axis=-1, keepdims=True)


def with_column(a: jax.Array, j: jax.Array, column: jax.Array) -> jax.Array:
  """`a` with column `j` replaced by `column`, (..., m, 1)."""
  col = expand(jnp.arange(a.shape[-1]), a)
  return jnp.where(col == j, column, a)


def gauss_legendre(count: int) -> list[tuple[float, float]]:
  """Nodes on [0, 1] and their weights."""
  nodes, weights = np.polynomial.legendre.leggauss(count)
  return [(float(t + 1) / 2, float(w) / 2) for t, w in zip(nodes, weights, strict=True)]


def permutation_matrix(permutation: jax.Array, dtype: Any) -> jax.Array:
  """Returns P with (P A)[i] = A[permutation[i]]. A gather's result would have no sharding."""
  index = jnp.arange(permutation.shape[-1], dtype=permutation.dtype)
  return (permutation[..., None] == expand(index, permutation[..., None])).astype(dtype)


def zeros_like(a: jax.Array) -> jax.Array:
  """Zeros of the shape, dtype and sharding of `a`. A product with 0 would keep NaN."""
  return jnp.where(jnp.zeros((1,) * a.ndim, bool), a, jnp.zeros((), a.dtype))


def none_like(a: jax.Array) -> jax.Array:
  """An empty array: (..., 0) for the rows of `a`, with its dtype and the sharding of its batch."""
  return jnp.sum(a, axis=-1)[..., :0]


def minus(x: jax.Array | None, y: jax.Array) -> jax.Array:
  """x - y of tangents, where None is zero."""
  return -y if x is None else x - y


def plus(x: jax.Array | None, y: jax.Array) -> jax.Array:
  """x + y of tangents, where None is zero."""
  return y if x is None else x + y


def without_none(primals: Sequence[jax.Array], tangents: Sequence[Any]) -> list[jax.Array]:
  """The tangents, with zeros for None."""
  return [
      zeros_like(x) if dx is None else dx for x, dx in zip(primals, tangents, strict=True)]


def solution_tangent(
    solve: Callable[[Any], Any], da: Any, db: jax.Array | None, multiply: Callable[..., Any]
) -> Any:
  """dX of A X = B: A dX = dB - dA X.

  Args:
    solve: applies A⁻¹.
    da, db: the tangents, where None is zero.
    multiply: maps dA to dA X.
  """
  return solve(db if da is None else minus(db, multiply(da)))


def imaginary(x: jax.Array) -> jax.Array:
  """i x for a real `x`."""
  return jax.lax.complex(zeros_like(x), x)


def adjoint(a: jax.Array) -> jax.Array:
  return a.mT.conj()


def skew_of_lower(c: jax.Array) -> jax.Array:
  """The skew-Hermitian matrix with the strictly lower triangle of C. Its diagonal is i Im cᵢᵢ."""
  low = jnp.tril(c, -1)
  skew = low - adjoint(low)
  if jnp.iscomplexobj(c):
    skew = skew + jnp.where(on_diagonal(c), imaginary(c.imag), 0)
  return skew


def triangle(a: jax.Array, *, lower: bool, unit_diagonal: bool = False) -> jax.Array:
  """One triangle of `a`, without the diagonal if that is a unit diagonal."""
  if lower:
    return jnp.tril(a, -1 if unit_diagonal else 0)
  return jnp.triu(a, 1 if unit_diagonal else 0)


def symmetrized(a: jax.Array) -> jax.Array:
  """(A + Aᴴ) / 2. Each term is halved first, because the sum of large entries may overflow."""
  return a / 2 + adjoint(a) / 2


def hermitian_part(a: jax.Array, *, lower: bool, symmetrize: bool) -> jax.Array:
  """The Hermitian matrix that a handler reads from `a`, as a differentiable function."""
  if symmetrize:
    return symmetrized(a)
  strict = triangle(a, lower=lower, unit_diagonal=True)
  diagonal = jnp.where(on_diagonal(a), a.real, 0)
  return strict + adjoint(strict) + diagonal.astype(a.dtype)


def nan_where(failed: jax.Array, x: jax.Array, core: int) -> jax.Array:
  """`x` with NaN for the matrices (for vectors, core=1) that `failed` marks.

  Their derivatives are NaN too.
  """
  failed = expand(failed.reshape(failed.shape + (1,) * core), x)
  # A constant NaN would have derivatives of 0. The outer choice keeps the bits of other matrices.
  return jnp.where(failed, x * jnp.where(failed, jnp.nan, 1).astype(x.dtype), x)


def info_of_nan(x: jax.Array, core: int) -> jax.Array:
  """-1 where the last `core` dimensions hold NaN, else 0."""
  return jnp.where(jnp.isnan(x).any(tuple(range(-core, 0))), -1, 0).astype(jnp.int32)


def info_of_zeros(factor: jax.Array, diagonal: jax.Array) -> jax.Array:
  """The 1-based index of the first zero of `diagonal`, or 0; -1 where the matrices hold NaN."""
  size = diagonal.shape[-1]
  order = expand(jnp.arange(1, size + 1, dtype=jnp.int32), diagonal)
  first = jnp.min(jnp.where(diagonal == 0, order, size + 1), axis=-1, initial=size + 1)
  info = jnp.where(first > size, 0, first)
  return jnp.where(info_of_nan(factor, 2) != 0, -1, info).astype(jnp.int32)


def largest_element(a: jax.Array) -> jax.Array:
  """The largest magnitude of an element of matrices."""
  return jnp.max(jnp.abs(a), axis=(-2, -1), initial=0)


def largest_component(a: jax.Array) -> jax.Array:
  """The largest real or imaginary part of matrices, whose modulus may leave the range."""
  parts = jnp.maximum(jnp.abs(a.real), jnp.abs(a.imag))
  return jnp.max(parts, axis=(-2, -1), initial=0)


def norm_of_rows(a: jax.Array) -> jax.Array:
  """‖A‖∞, the largest sum of magnitudes in a row."""
  return jnp.max(jnp.sum(jnp.abs(a), axis=-1), axis=-1, initial=0)


def norm_of_columns(a: jax.Array) -> jax.Array:
  """‖A‖₁, the largest sum of magnitudes in a column."""
  return norm_of_rows(a.mT)


def reciprocal(x: jax.Array, keep: jax.Array) -> jax.Array:
  """1 / x where `keep`, else 0."""
  return jnp.where(keep, 1 / jnp.where(keep, x, 1), 0)


def smallest_gap(norm: jax.Array, n: Any) -> jax.Array:
  """8 √n eps ‖A‖: eigenvalues or singular values of A that are this close count as equal."""
  root = n**0.5 if isinstance(n, int) else jnp.sqrt(jnp.asarray(n).astype(norm.dtype))
  return 8 * root * jnp.finfo(norm.dtype).eps * norm


def reciprocal_gaps(gaps: jax.Array, norm: jax.Array, n: Any) -> jax.Array:
  """1 / gap, or 0 where the gap is within `smallest_gap`: the vectors are not determined there."""
  return reciprocal(gaps, ~(jnp.abs(gaps) <= smallest_gap(norm, n)))


@jax.custom_jvp
def ones_of_first_order(values: jax.Array, norm: jax.Array) -> jax.Array:
  """1 for each eigenvalue or singular value, (..., k), whose derivative is NaN where the value
  equals another one to rounding.

  A first derivative that has it as a factor is unchanged, and its own derivatives are NaN there.

  Args:
    values: the values (..., k).
    norm: ‖A‖, real (..., 1), to which `smallest_gap` is relative.
  """
  return zeros_like(values.real + norm) + 1


@ones_of_first_order.defjvp
def _ones_of_first_order_jvp(primals, tangents):
  values, norm = primals
  gaps = values[..., None, :] - values[..., :, None]
  equal = (jnp.abs(gaps) <= smallest_gap(norm[..., None], values.shape[-1])) & ~on_diagonal(gaps)
  factor = jnp.where(equal.any(-1), jnp.nan, 0).astype(norm.dtype)
  return ones_of_first_order(values, norm), factor * tangents[0].real


def one_of_first_order(ones: jax.Array) -> jax.Array:
  """1 for each matrix, (..., 1), whose derivative is NaN where that of one of its `ones` is."""
  return 1 + jnp.sum(ones - 1, axis=-1, keepdims=True)


@jax.custom_jvp
def without_second_derivative(x: jax.Array, values: jax.Array, norm: jax.Array) -> jax.Array:
  """`x`, (..., k), whose second derivatives are NaN where the one of the `values` (..., k) in its
  place equals another; see `ones_of_first_order`."""
  del values, norm
  return x


@without_second_derivative.defjvp
def _without_second_derivative_jvp(primals, tangents):
  x, values, norm = primals
  return x, tangents[0] * ones_of_first_order(values, norm)


def binade(x: jax.Array) -> jax.Array:
  """Returns the power of two at or below `x` >= 0, or 1 for 0, Inf and NaN.

  It is a constant for derivatives. Division by it is exact. `jnp.exp2` is not.
  """
  x = jax.lax.stop_gradient(x)
  finfo = jnp.finfo(x.dtype)
  integer = np.dtype(f"int{finfo.bits}")
  exponent = jax.lax.bitcast_convert_type(x, integer) & integer.type(
      ((1 << finfo.nexp) - 1) << finfo.nmant)
  power = jax.lax.bitcast_convert_type(exponent, x.dtype)
  return jnp.where((x > 0) & (power > 0) & jnp.isfinite(power), power, 1)


def normal_binade(x: jax.Array) -> jax.Array:
  """`binade`, or at the ends of the range the nearest power of two whose reciprocal is normal.

  XLA multiplies by the reciprocal of a divisor of many numbers, and flushes subnormal numbers.
  """
  tiny = jnp.finfo(x.dtype).tiny
  return jnp.clip(binade(x), tiny, 1 / tiny)


def scaled(a: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Matrices over a power of two near their largest element, and that, (..., 1, 1)."""
  scale = normal_binade(largest_component(a))[..., None, None].astype(a.dtype)
  return a / scale, scale


# This is above the exponents of all floating numbers, and of their products with small integers.
LARGE_EXPONENT = 1 << 24


def exponent_above(x: jax.Array) -> jax.Array:
  """The least integer k with `x` <= 2ᵏ, for `x` >= 0, int32, from the bits: a logarithm's last bits
  may depend on the batch. For 0 it is -LARGE_EXPONENT, for Inf and NaN LARGE_EXPONENT; subnormal
  numbers count as normal ones."""
  x = jax.lax.stop_gradient(x)
  finfo = jnp.finfo(x.dtype)
  integer = np.dtype(f"int{finfo.bits}")
  bits = jax.lax.bitcast_convert_type(x, integer)
  exponent = jax.lax.shift_right_logical(
      bits + integer.type((1 << finfo.nmant) - 1), integer.type(finfo.nmant))
  exponent = exponent.astype(jnp.int32) - (finfo.maxexp - 1)
  exponent = jnp.where(jnp.isfinite(x), exponent, LARGE_EXPONENT)
  return jnp.where(x == 0, -LARGE_EXPONENT, exponent)


def power_of_two(k: jax.Array, dtype: Any) -> jax.Array:
  """2ᵏ of integers, exactly; those beyond the normal numbers of the dtype are the last of them."""
  finfo = jnp.finfo(dtype)
  integer = np.dtype(f"int{finfo.bits}")
  bits = jnp.clip(k, 2 - finfo.maxexp, finfo.maxexp - 1) + (finfo.maxexp - 1)
  return jax.lax.bitcast_convert_type(
      jax.lax.shift_left(bits.astype(integer), integer.type(finfo.nmant)), finfo.dtype)
