"""Eigenvalues and eigenvectors of Hermitian matrices."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  diagonal_of,
  hermitian_part,
  info_of_nan,
  one_of_first_order,
  ones_of_first_order,
  reciprocal_gaps,
  smallest_gap,
  without_second_derivative,
  zeros_like,
)
from linalg._core.checks import check_converged
from linalg._core.linear_rules import linear_pair
from linalg._core.operands import as_arrays, check_square, real_dtype
from linalg._core.public import public
from linalg._core.tuning import EIGH_DERIVATIVE, EIGH_SUBSET, may_be_within, within
from linalg._factorizations.matmul import congruence, product

__all__ = ["EighResult", "eigh", "eigh_ex", "eigvalsh"]

_PAIRS = {"UPLO": "Pairs of matrices are for eigh_generalized(a, b)."}


class EighResult(NamedTuple):
  """Eigenvalues in ascending order, and the eigenvectors in the columns of a matrix."""

  eigenvalues: jax.Array
  eigenvectors: jax.Array


def _largest(w):
  return jnp.max(jnp.abs(w), axis=-1, keepdims=True, initial=0)


def _real_diagonal(c):
  return diagonal_of(c).real


def eigenpairs_jvp(w, v, c):
  """(dw, dV) of A = V diag(w) Vᴴ, given C = Vᴴ dA V.

  dw = diag C, and dV = V (F ∘ C), Fᵢⱼ = 1 / (wⱼ - wᵢ) off the diagonal. Source: Giles, Collected
  matrix derivative results for forward and reverse mode algorithmic differentiation (2008), 3.1. Vᴴ
  dV has a zero diagonal. F is 0 where a gap is within 8 √n eps ‖A‖: the two vectors are not
  determined there. This is right for the projector onto their common space. Second derivatives
  are NaN there: of the vectors, and of values that equal others.
  """
  gaps = w[..., None, :] - w[..., :, None]
  norm = _largest(w)
  ones = ones_of_first_order(w, norm)
  one = one_of_first_order(ones)[..., None]
  f = (reciprocal_gaps(gaps, norm[..., None], w.shape[-1]) * one).astype(c.dtype)
  return ones * _real_diagonal(c), product(v, f * c)


def _c(v, da, **part):
  """C = Vᴴ dA V."""
  return congruence(v, hermitian_part(da, **part), adjoint_a=True)


def _tangents(w, v, da, **part):
  return list(eigenpairs_jvp(w, v, _c(v, da, **part)))


eigh_jvp_p, eigh_vjp_p = linear_pair(
    ("linalg_eigh_jvp", "n, n n, n n -> n, n n", [0, 1]),
    ("linalg_eigh_vjp", "n, n n, n, n n -> n n", [1]),
    _tangents,
    constants=2,
    argument=lambda w, v: v,
    attributes={"lower": True, "symmetrize": True},
    suits=within(EIGH_DERIVATIVE, operand=1))


def _eigh_jvp(primals, tangents, **part):
  (a,), (da,) = primals, tangents
  w, v, info = eigh_p(a, **part)
  # The formula itself for larger ones: where a result is not used, half of it falls away.
  tangents = eigh_jvp_p if may_be_within(EIGH_DERIVATIVE, a) else _tangents
  return (w, v, info), (*tangents(w, v, da, **part), None)


def _eigh_fallback(a, *, lower, symmetrize):
  a = hermitian_part(a, lower=lower, symmetrize=symmetrize)
  v, w = jax.lax.linalg.eigh(a, symmetrize_input=False)
  return [w, v, info_of_nan(w, 1)]


eigh_p = ffi.operation(
    "linalg_eigh",
    "n n -> n, n n, ()",
    lambda dtype, **_: (real_dtype(dtype), dtype, jnp.int32),
    attributes={"lower": True, "symmetrize": True},
    jvp=_eigh_jvp,
    fallback=_eigh_fallback)


def _eigvalsh_jvp(primals, tangents, **part):
  (a,), (da,) = primals, tangents
  w, v, info = eigh_p(a, **part)
  return (w, info), (_real_diagonal(_c(v, da, **part)), None)


def _eigvalsh_fallback(a, *, lower, symmetrize):
  w, _, info = _eigh_fallback(a, lower=lower, symmetrize=symmetrize)
  return [w, info]


eigvalsh_p = ffi.operation(
    "linalg_eigvalsh",
    "n n -> n, ()",
    lambda dtype, **_: (real_dtype(dtype), jnp.int32),
    attributes={"lower": True, "symmetrize": True},
    jvp=_eigvalsh_jvp,
    fallback=_eigvalsh_fallback)


# A subset of the spectrum. Its derivatives use the chosen vectors V alone. Their components outside
# of V's space solve (λⱼ - A) X = dA vⱼ there (Sternheimer, On nuclear quadrupole moments, 1951; see
# also arXiv 2511.14651). The tridiagonal form of A, which has found the vectors, solves it too.

_SUBSET = {"lower": True, "symmetrize": True, "start": 0, "count": 1}


def _subset_dtypes(dtype, **_):
  real = real_dtype(dtype)
  return [real, dtype, real, real, real, jnp.int32]


def _factored_dtypes(dtype, **_):
  real = real_dtype(dtype)
  return [real, dtype, real, real, real, dtype, dtype, real, real, jnp.int32]


def _with_outside(w, below, above):
  return jnp.concatenate([below[..., None], w, above[..., None]], axis=-1)


def ones_of_part(w: jax.Array, outside: Sequence[jax.Array], n: Any) -> jax.Array:
  """`ones_of_first_order` of chosen values among n. `outside` is the values next to them, and the
  largest magnitude of all."""
  below, above, norm = outside
  values = _with_outside(w, below, above)
  return ones_of_first_order(values, _wider(norm[..., None], n, values.shape[-1]))[..., 1:-1]


def values_of_part(w: jax.Array, outside: Sequence[jax.Array], n: Any) -> jax.Array:
  """Chosen values `w` among n, whose second derivatives are NaN where they equal others."""
  below, above, norm = outside
  values = _with_outside(w, below, above)
  norm = _wider(norm[..., None], n, values.shape[-1])
  return without_second_derivative(values, values, norm)[..., 1:-1]


def part_tangents(
    w: jax.Array, v: jax.Array, outside: Sequence[jax.Array], forward: jax.Array, n: Any,
    solve: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, jax.Array]:
  """(dw, dV) of the chosen pairs: `eigenpairs_jvp` among them, and X outside of their space.

  Args:
    forward: dA V.
    solve: gives X for a right-hand side.
  """
  c = product(v, forward, adjoint_a=True)
  ones = ones_of_part(w, outside, n)
  one = one_of_first_order(ones)[..., None]
  gaps = w[..., None, :] - w[..., :, None]
  f = (reciprocal_gaps(gaps, outside[2][..., None, None], n) * one).astype(c.dtype)
  return ones * _real_diagonal(c), product(v, f * c) + solve(forward * one.astype(c.dtype))


def _wider(norm, n, count):
  """A norm whose `smallest_gap` among `count` values is that of `norm` among n."""
  return smallest_gap(norm, n) / smallest_gap(jnp.ones((), norm.dtype), count)


def _eigh_factored_jvp(primals, tangents, **how):
  (a,), (da,) = primals, tangents
  w, v, *rest = eigh_subset_factored_p(a, **how)
  part = hermitian_part(da, lower=how["lower"], symmetrize=how["symmetrize"])
  changes = part_tangents(
      w, v, rest[:3], product(part, v), a.shape[-1],
      lambda b: eigh_subset_solve_p(a, *rest[3:7], w, v, b, **how))
  return (w, v, *rest), (*changes, *(None,) * len(rest))


def _eigh_subset_jvp(primals, tangents, **how):
  (w, v, *rest), (dw, dv, *none) = _eigh_factored_jvp(primals, tangents, **how)
  kept = [*rest[:3], rest[-1]]
  return (w, v, *kept), (dw, dv, *none[: len(kept)])


def _eigvalsh_subset_jvp(primals, tangents, *, lower, symmetrize, start, count):
  (a,), (da,) = primals, tangents
  w, v, *rest = eigh_subset_p(
      a, lower=lower, symmetrize=symmetrize, start=start, count=count)
  forward = product(hermitian_part(da, lower=lower, symmetrize=symmetrize), v)
  dw = jnp.sum(v.conj() * forward, axis=-2).real
  return (w, *rest), (dw, *(None,) * len(rest))


def cut(w: jax.Array, start: int, count: int) -> tuple[jax.Array, ...]:
  """The chosen ones of all eigenvalues, those next to them, and the largest magnitude."""
  stop = start + count
  padded = jnp.pad(w, ((0, 0),) * (w.ndim - 1) + ((1, 1),), constant_values=jnp.inf)
  norm = _largest(w)[..., 0]
  below = jnp.where(start == 0, -padded[..., start], padded[..., start])
  return w[..., start:stop], below, padded[..., stop + 1], norm


def _eigh_factored_fallback(a, *, lower, symmetrize, start, count):
  # All eigenvectors, and the diagonal that they make of A, stand for the tridiagonal form.
  w, v, info = eigh_p(a, lower=lower, symmetrize=symmetrize)
  none = zeros_like(w)
  chosen, *outside = cut(w, start, count)
  return [chosen, v[..., start : start + count], *outside, v, none.astype(v.dtype), w, none, info]


def _eigh_subset_fallback(a, **how):
  results = _eigh_factored_fallback(a, **how)
  return [*results[:5], results[-1]]


def _eigvalsh_subset_fallback(a, *, lower, symmetrize, start, count):
  w, info = eigvalsh_p(a, lower=lower, symmetrize=symmetrize)
  return [*cut(w, start, count), info]


def outside_of(v: jax.Array, x: jax.Array) -> jax.Array:
  """The part of x outside of the space of the columns V."""
  return x - product(v, product(v, x, adjoint_a=True))


def solve_by_all(
    values: jax.Array, vectors: jax.Array, w: jax.Array, v: jax.Array, b: jax.Array
) -> jax.Array:
  """(λⱼ - A)⁺ bⱼ in the complement of V, given all eigenvalues and vectors."""
  gaps = w[..., None, :] - values[..., :, None]
  f = reciprocal_gaps(gaps, _largest(values)[..., None], values.shape[-1]).astype(b.dtype)
  x = product(vectors, f * product(vectors, outside_of(v, b), adjoint_a=True))
  return outside_of(v, x)


def _solve_fallback(a, vectors, taus, values, beside, w, v, b, **how):
  del a, taus, beside, how
  return [solve_by_all(values, vectors, w, v, b)]


def complement_jvp(
    v: jax.Array, b: jax.Array, x: jax.Array, db: jax.Array | None, dax: jax.Array | None,
    dw: jax.Array | None, dv: jax.Array | None, solve: Callable[[jax.Array], jax.Array],
) -> jax.Array:
  """dX of (λⱼ - A) xⱼ = P bⱼ, P X = X, where P = I - V Vᴴ, given dA X.

  The part of dX in P's space solves the equation for dB - dV Vᴴ B + dA X - X diag(dw). The other
  part is -V dVᴴ X, because Vᴴ X stays zero.
  """
  change = complement_change(v, b, x, db, dax, dw, dv)
  return without_turn(v, x, dv, solve(change))


def complement_change(
    v: jax.Array, b: jax.Array, x: jax.Array, db: jax.Array | None, dax: jax.Array | None,
    dw: jax.Array | None, dv: jax.Array | None,
) -> jax.Array:
  """The right-hand side of `complement_jvp`."""
  change = zeros_like(b) if db is None else db
  if dax is not None:
    change = change + dax
  if dw is not None:
    change = change - x * dw[..., None, :].astype(x.dtype)
  if dv is not None:
    change = change - product(dv, product(v, b, adjoint_a=True))
  return change


def without_turn(
    v: jax.Array, x: jax.Array, dv: jax.Array | None, dx: jax.Array
) -> jax.Array:
  """The derivative of X, which stays orthogonal to V, given its part in the complement."""
  return dx if dv is None else dx - product(v, product(dv, x, adjoint_a=True))


def _solve_jvp(primals, tangents, **how):
  *constants, w, v, b = primals
  da, *_, dw, dv, db = tangents
  x = eigh_subset_solve_p(*primals, **how)
  dax = None
  if da is not None:
    dax = product(hermitian_part(da, lower=how["lower"], symmetrize=how["symmetrize"]), x)
  return [x], [complement_jvp(
      v, b, x, db, dax, dw, dv,
      lambda change: eigh_subset_solve_p(*constants, w, v, change, **how))]


def _solve_transpose(cotangents, operands, **how):
  # Each column is multiplied by a Hermitian matrix.
  (ct,) = cotangents
  *constants, _ = operands
  return *(None,) * len(constants), eigh_subset_solve_p(*constants, ct.conj(), **how).conj()


eigh_subset_p = ffi.operation(
    "linalg_eigh_subset",
    "n n -> count, n count, (), (), (), ()",
    _subset_dtypes,
    attributes=_SUBSET,
    jvp=_eigh_subset_jvp,
    fallback=_eigh_subset_fallback)

eigh_subset_factored_p = ffi.operation(
    "linalg_eigh_subset_factored",
    "n n -> count, n count, (), (), (), n n, n, n, n, ()",
    _factored_dtypes,
    attributes=_SUBSET,
    jvp=_eigh_factored_jvp,
    fallback=_eigh_factored_fallback)

eigh_subset_solve_p = ffi.operation(
    "linalg_eigh_subset_solve",
    "n n, n n, n, n, n, count, n count, n count -> n count",
    [0],
    attributes=_SUBSET,
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    fallback=_solve_fallback)

eigvalsh_subset_p = ffi.operation(
    "linalg_eigvalsh_subset",
    "n n -> count, (), (), (), ()",
    lambda dtype, **_: [*[real_dtype(dtype)] * 4, jnp.int32],
    attributes=_SUBSET,
    jvp=_eigvalsh_subset_jvp,
    fallback=_eigvalsh_subset_fallback)


def subset_range(
    name: str, subset_by_index: tuple[int, int] | None, n: Any
) -> tuple[int, int] | None:
  """(start, count) of `subset_by_index`, or None where all n values are wanted."""
  if subset_by_index is None:
    return None
  try:
    start, stop = (operator.index(i) for i in subset_by_index)
  except (TypeError, ValueError):
    start, stop = -1, -1
  # A symbolic n has no order.
  if not 0 <= start <= stop or (isinstance(n, int) and stop > n):
    raise ValueError(
        f"{name}: subset_by_index must be (start, stop) with 0 <= start <= stop <= {n}, got "
        f"{subset_by_index}.")
  return None if (start, stop) == (0, n) else (start, stop - start)


def eigh_of(
    a: jax.Array, chosen: tuple[int, int] | None, *, lower: bool, symmetrize: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """(w, V, info) of the chosen eigenvalues (start, count), or of all.

  Small matrices are decomposed whole. That is faster.
  """
  if chosen is None or may_be_within(EIGH_SUBSET, a):
    w, v, info = eigh_p(a, lower=lower, symmetrize=symmetrize)
    if chosen is not None:
      part = slice(chosen[0], sum(chosen))
      w, v = w[..., part], v[..., part]
    return w, v, info
  start, count = chosen
  if count == 0:
    w, info = eigvalsh_of(a, chosen, lower=lower, symmetrize=symmetrize)
    return w, a[..., :0], info
  w, v, *_, info = eigh_subset_p(
      a, lower=lower, symmetrize=symmetrize, start=start, count=count)
  return w, v, info


def eigvalsh_of(
    a: jax.Array, chosen: tuple[int, int] | None, *, lower: bool, symmetrize: bool
) -> tuple[jax.Array, jax.Array]:
  """(w, info) of the chosen eigenvalues (start, count), or of all. Second derivatives are NaN where
  values equal others; see `of_first_order_if_equal`."""
  if chosen is None or may_be_within(EIGH_SUBSET, a):
    w, info = eigvalsh_p(a, lower=lower, symmetrize=symmetrize)
    w = of_first_order_if_equal(w)
    return (w if chosen is None else w[..., chosen[0] : sum(chosen)]), info
  start, count = chosen
  if count == 0:  # the matrix is still checked
    w, info = eigvalsh_of(a, (0, 1), lower=lower, symmetrize=symmetrize)
    return w[..., :0], info
  w, *outside, info = eigvalsh_subset_p(
      a, lower=lower, symmetrize=symmetrize, start=start, count=count)
  return values_of_part(w, outside, a.shape[-1]), info


def _operand(name, a, uplo):
  """The operand, its dtype and the triangle that UPLO names."""
  if uplo is None or uplo == "L":
    lower = True
  elif uplo == "U":
    lower = False
  else:
    raise ValueError(f"{name}: UPLO must be one of None, 'L', or 'U', got {uplo!r}.")
  (a,), dtype = as_arrays(name, a)
  check_square(name, a)
  return a, dtype, lower


def _eigh(name, a, uplo, symmetrize_input, subset_by_index):
  a, dtype, lower = _operand(name, a, uplo)
  chosen = subset_range(name, subset_by_index, a.shape[-1])
  w, v, info = eigh_of(a, chosen, lower=lower, symmetrize=symmetrize_input)
  return w.astype(real_dtype(dtype)), v.astype(dtype), info


@public("UPLO", "symmetrize_input", "subset_by_index", hints=_PAIRS)
def eigh(
    a: ArrayLike,
    UPLO: str | None = None,
    symmetrize_input: bool = True,
    *,
    subset_by_index: tuple[int, int] | None = None,
) -> EighResult:
  """Eigenvalues and eigenvectors of Hermitian matrices; `jax.numpy.linalg.eigh`.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.
    UPLO: the triangle that is read if `symmetrize_input` is false: 'L' (or None) or 'U'.
    symmetrize_input: if true, the decomposition is that of (A + Aᴴ) / 2. If false, only the named
      triangle is read, and the imaginary part of the diagonal is ignored.
    subset_by_index: (start, stop), the indices of the k = stop - start eigenvalues to return, from
      the smallest, `stop` excluded. On a CPU only these are computed, unless n is small.

  Returns:
    EighResult(eigenvalues, eigenvectors): real (..., n) in ascending order, and (..., n, n) with
    the orthonormal eigenvectors in columns, A V = V diag(w). For a subset, they are (..., k)
    and (..., n, k). Where A holds NaN or Inf, or the
    iteration does not converge, both are NaN for that matrix; see `eigh_ex` and `checked`.

  An eigenvector is determined up to a phase, and among equal eigenvalues up to a rotation. A
  derivative has a meaning only where that choice has no effect. At equal eigenvalues the first
  derivative is right for symmetric functions of them and for projectors onto their common space. It
  is not right for a general f(A). Second derivatives are NaN there, of the equal eigenvalues and of
  all vectors: `funm_hermitian` has them. Reverse mode spreads the NaN to the other eigenvalues.
  Forward mode over forward mode does not: `jax.jacfwd(jax.jacfwd(f))`. A subset that ends among
  equal eigenvalues is not determined either, and neither is its derivative.

  float16 and bfloat16 are decomposed in float32, and the results rounded.

  Algorithm: reduction to tridiagonal form. Small matrices then use QL iteration, one matrix per
  lane, and others divide and conquer. The largest go to LAPACK syevd (heevd). A few chosen
  eigenvalues are found by bisection, and their vectors by inverse iteration. The derivatives of a
  subset solve with A - λ I in the complement of the chosen vectors (Sternheimer).

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    >>> w, v = linalg.eigh(a)
    >>> print(w.round(4))
    [1. 3.]
    >>> print(jnp.allclose(a @ v, v * w, atol=1e-6))
    True
  """
  w, v, info = _eigh("eigh", a, UPLO, symmetrize_input, subset_by_index)
  check_converged(info, "eigendecomposition")
  return EighResult(w, v)


@public("UPLO", "symmetrize_input", "subset_by_index", hints=_PAIRS)
def eigh_ex(
    a: ArrayLike,
    UPLO: str | None = None,
    symmetrize_input: bool = True,
    *,
    subset_by_index: tuple[int, int] | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """`eigh`, with what went wrong for each matrix.

  Args:
    a, UPLO, symmetrize_input, subset_by_index: as for `eigh`.

  Returns:
    (eigenvalues, eigenvectors, info). info is int32 of shape (...): 0 on success, -1 if the matrix
    holds NaN or Inf, positive if the iteration did not converge. Where it is not 0, the results are
    NaN.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), jnp.full((2, 2), jnp.nan)])
    >>> w, v, info = linalg.eigh_ex(a)
    >>> print(info)
    [ 0 -1]
    >>> print(jnp.isnan(w))
    [[False False]
     [ True  True]]
  """
  return _eigh("eigh_ex", a, UPLO, symmetrize_input, subset_by_index)


@public("UPLO", "symmetrize_input", "subset_by_index", hints=_PAIRS)
def eigvalsh(
    a: ArrayLike,
    UPLO: str | None = "L",
    *,
    symmetrize_input: bool = True,
    subset_by_index: tuple[int, int] | None = None,
) -> jax.Array:
  """Eigenvalues of Hermitian matrices; `jax.numpy.linalg.eigvalsh`.

  Args:
    a, UPLO, symmetrize_input, subset_by_index: as for `eigh`.

  Returns:
    The eigenvalues, real (..., n) or (..., k), in ascending order; NaN where `eigh` gives NaN.

  The first derivative is right for symmetric functions of eigenvalues that are equal to rounding.
  Second derivatives are NaN there: they depend on more than the eigenvalues' derivatives. The trace
  of `funm_hermitian` has them. Reverse mode spreads the NaN to the other eigenvalues. Forward mode
  over forward mode does not: `jax.jacfwd(jax.jacfwd(f))`.

  Algorithm: that of `eigh`, without vectors. The largest matrices in float32 and complex64 use
  LAPACK sytrd (hetrd), then QL in float64.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.eigvalsh(jnp.array([[2.0, 1.0], [1.0, 2.0]])).round(4))
    [1. 3.]
  """
  matrix, dtype, lower = _operand("eigvalsh", a, UPLO)
  chosen = subset_range("eigvalsh", subset_by_index, matrix.shape[-1])
  w, info = eigvalsh_of(matrix, chosen, lower=lower, symmetrize=symmetrize_input)
  check_converged(info, "eigendecomposition")
  return w.astype(real_dtype(dtype))


def of_first_order_if_equal(w: jax.Array) -> jax.Array:
  """Eigenvalues whose second derivatives are NaN where they equal others.

  A symmetric function f of equal eigenvalues has (fᵢᵢ - fᵢⱼ) |cᵢⱼ|² in its second derivative. The
  rules see the first derivatives fᵢ alone, and cannot have the term.
  """
  return without_second_derivative(w, w, _largest(w))


def smooth_eigvalsh(a: ArrayLike, *, lower: bool = True, symmetrize: bool = True) -> jax.Array:
  """`eigvalsh`, for functions of eigenvalues that differ from all others: its second derivatives
  are finite at equal ones, and right for the others."""
  w, info = eigvalsh_p(a, lower=lower, symmetrize=symmetrize)
  check_converged(info, "eigendecomposition")
  return w
