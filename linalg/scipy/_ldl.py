"""Block diagonal factors of Hermitian and symmetric matrices, indefinite ones included."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  column_of,
  diagonal_of,
  expand,
  exponent_above,
  hermitian_part,
  identity,
  largest_element,
  nan_where,
  on_diagonal,
  permutation_matrix,
  power_of_two,
  triangle,
  with_column,
  zeros_like,
)
from linalg._core.checks import check
from linalg._core.operands import as_arrays, check_square
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["ldl"]

# The least growth of elements: Bunch and Kaufman, Math. Comput. 31 (1977).
_ALPHA = (1 + 17**0.5) / 8

# Elements may grow by 2 to this power in the elimination.
_HEADROOM = 16


def _magnitude(x):
  """|Re x| + |Im x|, by which LAPACK compares complex numbers."""
  return jnp.abs(x.real) + jnp.abs(x.imag) if jnp.iscomplexobj(x) else jnp.abs(x)


def _turned(x, hermitian):
  return x.conj() if hermitian else x


def _block_inverse(a, b, c, hermitian):
  """The elements 11, 12, 21 and 22 of the inverse of [[a, b'], [b, c]], where b is not 0."""
  # XLA merges two divisions into one by the product, and the square of b may leave the range.
  unit = power_of_two(-exponent_above(_magnitude(b)), b.dtype).astype(b.dtype)
  a, b, c = a * unit, b * unit, c * unit
  across = _turned(b, hermitian)
  ratio = (a / b) * (c / across) - 1
  elements = c / b / (across * ratio), -1 / (b * ratio), -1 / (across * ratio), (
      a / across / (b * ratio))
  return [x * unit for x in elements]


def _swapped(x, i, j, axis):
  """`x` with entries i and j of an axis exchanged; each matrix has its own i and j."""
  place = jax.lax.broadcasted_iota(i.dtype, x.shape, x.ndim + axis)
  i, j = (jnp.expand_dims(k, tuple(range(k.ndim, x.ndim))) for k in (i, j))
  at = lambda k: jnp.sum(jnp.where(place == k, x, 0), axis=axis, keepdims=True)
  return jnp.where(place == i, at(j), jnp.where(place == j, at(i), x)).astype(x.dtype)


def _ldl(a, hermitian, last):
  # Bunch and Kaufman's diagonal pivoting, as in LAPACK's sytf2 and hetf2. Step k takes a pivot of
  # order 1 or 2. After a pivot of order 2, step k + 1 does nothing.
  n = a.shape[-1]
  if n == 0:
    none = diagonal_of(a).real.astype(jnp.int32)
    return [a, a, none, none]
  place = expand(jnp.arange(n), a[..., 0])
  col = place[..., None, :]
  numbers = zeros_like(diagonal_of(a).real).astype(place.dtype) + place

  def element(x, i):
    return jnp.sum(jnp.where(place == i, x, 0), axis=-1)

  def largest(x, where):
    return jnp.max(jnp.where(where, _magnitude(x), 0), axis=-1)

  def step(carry, k):
    s, l, order, inside = carry
    column = column_of(s, k)[..., 0]
    own = _magnitude(element(column.real if hermitian else column, k))
    below = largest(column, place > k)
    candidates = (place > k) & (_magnitude(column) == below[..., None])
    index = (
        jnp.max(jnp.where(candidates, place, -1), axis=-1) if last else
        jnp.min(jnp.where(candidates, place, n), axis=-1))
    row = jnp.sum(jnp.where(place[..., None] == index[..., None, None], s, 0), axis=-2)
    beside = largest(row, (place >= k) & (place != index[..., None]))
    other = element(row, index[..., None])
    other = _magnitude(other.real if hermitian else other)
    ratio = below / jnp.where(beside == 0, 1, beside)
    stays = inside | (own >= _ALPHA * below) | (own >= _ALPHA * below * ratio)
    double = ~stays & ~(other >= _ALPHA * beside)
    to = k + double.astype(k.dtype)
    by = jnp.where(stays, to, index.astype(to.dtype))
    s = _swapped(_swapped(s, to, by, -1), to, by, -2)
    l = _swapped(l, to, by, -2)
    order = _swapped(order, to, by, -1)

    first, second = column_of(s, k)[..., 0], column_of(s, k + 1)[..., 0]
    pivot = element(first, k)
    e11, e12, e21, e22 = _block_inverse(
        pivot, jnp.where(double, element(first, k + 1), 1), element(second, k + 1), hermitian)
    remaining = (place > to[..., None]) & ~inside[..., None]
    first, second = jnp.where(remaining, first, 0), jnp.where(remaining, second, 0)
    pair = double[..., None]
    x = jnp.where(
        pair, first * e11[..., None] + second * e21[..., None],
        jnp.where((pivot != 0)[..., None], first / jnp.where(pivot != 0, pivot, 1)[..., None], 0))
    y = jnp.where(pair, first * e12[..., None] + second * e22[..., None], 0)
    first, second = _turned(first, hermitian), _turned(second, hermitian)
    s = s - x[..., None] * first[..., None, :] - y[..., None] * second[..., None, :]
    if hermitian and jnp.iscomplexobj(s):
      # LAPACK's hetf2 does this too: later steps amplify an imaginary part that rounding leaves.
      s = jnp.where(on_diagonal(s), s.real.astype(s.dtype), s)
    l = jnp.where(inside[..., None, None], l, with_column(l, k, x[..., None]))
    l = jnp.where(pair[..., None] & (col == k + 1), y[..., None], l)
    return (s, l, order, double), double

  carry = (a, zeros_like(a), numbers, numbers[..., 0] < 0)
  (s, l, order, _), double = jax.lax.scan(step, carry, jnp.arange(n))
  double = jnp.moveaxis(double, 0, -1)
  failed = ~jnp.isfinite(a).all((-2, -1))
  d = jnp.where(_in_blocks(double), s, 0)
  if hermitian:
    strict = jnp.tril(d, -1)
    d = jnp.where(on_diagonal(d), d.real.astype(d.dtype), strict + strict.mT.conj())
  return [
      nan_where(failed, l + identity(l), core=2), nan_where(failed, d, core=2),
      order.astype(jnp.int32), double.astype(jnp.int32)]


def _in_blocks(double):
  """A mask of the diagonal blocks, given where those of order 2 begin."""
  n = double.shape[-1]
  column = double[..., None, :]
  below = expand(jnp.eye(n, k=-1, dtype=bool), column) & column
  return expand(jnp.eye(n, dtype=bool), column) | below | below.mT


def _inverse_of_blocks(d, double, hermitian):
  """D⁻¹, with the same blocks."""
  n = d.shape[-1]
  own = diagonal_of(d)
  below = jnp.sum(jnp.where(expand(jnp.eye(n, k=-1, dtype=bool), d), d, 0), axis=-2)
  after = lambda x: jnp.pad(x[..., 1:], ((0, 0),) * (x.ndim - 1) + ((0, 1),))
  before = lambda x: jnp.pad(x[..., :-1], ((0, 0),) * (x.ndim - 1) + ((1, 0),))
  e11, e12, e21, e22 = (jnp.where(double, x, 0) for x in _block_inverse(
      own, jnp.where(double, below, 1), after(own), hermitian))
  single = ~(double | before(double.astype(jnp.int32)).astype(bool))
  diagonal = jnp.where(single, 1 / jnp.where(single, own, 1), e11 + before(e22))
  at = lambda k: expand(jnp.eye(n, k=k, dtype=bool), d)
  inverse = jnp.where(at(0), diagonal[..., None, :], 0)
  inverse = jnp.where(at(-1), e21[..., None, :], inverse)
  return jnp.where(at(1), e12[..., :, None], inverse)


def _ldl_jvp(primals, tangents, hermitian, last):
  # For constant pivots, M = L⁻¹ P dA Pᵀ L⁻ᴴ = L⁻¹ dL D + dD + (L⁻¹ dL D)ᴴ. L⁻¹ dL is nonzero only
  # below the diagonal blocks, and dD only in them.
  (a,), (da,) = primals, tangents
  l, d, order, double = results = ldl_p(a, hermitian=hermitian, last=last)
  double = double != 0
  p = permutation_matrix(order, a.dtype)
  solve = lambda x, left: triangular_solve_p(
      l, x, left_side=left, lower=True, transpose_a=not left, conjugate_a=hermitian and not left,
      unit_diagonal=True)
  moved = solve(solve(product(p, product(da, p, adjoint_b=True)), True), False)
  blocks = _in_blocks(double)
  turn = product(
      jnp.where(blocks, 0, jnp.tril(moved)), _inverse_of_blocks(d, double, hermitian))
  return results, (product(l, turn), jnp.where(blocks, moved, 0), None, None)


# Returns L, D, the permutation p, and where blocks of order 2 begin. A[p][:, p] is L D Lᴴ, or L D
# Lᵀ for symmetric A. `last` takes the last of several largest elements instead of the first.
ldl_p = ffi.operation(
    "ldl",
    "n n -> n n, n n, n, n",
    [0, 0, jnp.int32, jnp.int32],
    attributes={"hermitian": True, "last": False},
    platforms=(),
    jvp=_ldl_jvp,
    fallback=_ldl)


def _symmetric_part(a, lower):
  strict = triangle(a, lower=lower, unit_diagonal=True)
  return jnp.where(on_diagonal(a), a, strict + strict.mT)


@public("lower", "hermitian", "overwrite_a", "check_finite", lists=True)
def ldl(
    A: ArrayLike,
    lower: bool = True,
    hermitian: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Factors A = L D Lᴴ of matrices that need not be definite; `scipy.linalg.ldl`, batched.

  Args:
    A: Hermitian matrices (..., n, n), of which one triangle is read.
    lower: whether that is the lower one, and L lower triangular once its rows are permuted.
    hermitian: if false, complex matrices are symmetric, and A = L D Lᵀ.
    overwrite_a, check_finite: not used.

  Returns:
    (L, D, permutation), of shapes (..., n, n), (..., n, n) and (..., n), int32. L[permutation] is
    triangular with a unit diagonal. D has diagonal blocks of order 1 and 2, and as many negative
    eigenvalues as A. A singular matrix has such factors too. L and D are NaN where the triangle
    holds NaN or Inf; see `checked`.

  float16 and bfloat16 are factored in float32, and the factors rounded.

  Algorithm: diagonal pivoting by the rule of Bunch and Kaufman (1977), as in LAPACK. Each column
  takes elementwise operations on whole matrices, which suits many small matrices rather than a
  large one. Derivatives: those of the factors at constant pivots, to any order. They need a
  nonsingular D.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> l, d, permutation = linalg.scipy.ldl(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> print(d)
    [[0. 1.]
     [1. 0.]]
  """
  del overwrite_a, check_finite
  (a,), dtype = as_arrays("ldl", A)
  check_square("ldl", a)
  hermitian = hermitian or not jnp.iscomplexobj(a)
  a = hermitian_part(a, lower=lower, symmetrize=False) if hermitian else _symmetric_part(a, lower)
  if not lower:
    a = jnp.flip(a, (-2, -1))
  # Products of small elements would be subnormal, and sums of the largest would overflow. Large
  # elements are not scaled to 1, because a small block beside them would be lost.
  exponent = exponent_above(largest_element(a))
  above = jnp.maximum(exponent - (jnp.finfo(a.dtype).maxexp - _HEADROOM), 0)
  scale = power_of_two(jnp.minimum(exponent, 0) + above, a.dtype)[..., None, None].astype(a.dtype)
  l, d, order, _ = ldl_p(a / scale, hermitian=hermitian, last=not lower)
  d = d * scale
  check(
      jnp.isnan(d).any((-2, -1)).astype(jnp.int32), "has no factors: it holds NaN or Inf.")
  if not lower:
    l, d = (jnp.flip(x, (-2, -1)) for x in (l, d))
    order = a.shape[-1] - 1 - jnp.flip(order, -1)
  outer = product(permutation_matrix(order, l.dtype), l, adjoint_a=True)
  return outer.astype(dtype), d.astype(dtype), order
