"""Singular values and vectors."""

from typing import Any, Literal, NamedTuple, overload

import jax
import jax.core
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  info_of_nan,
  nan_where,
  one_of_first_order,
  ones_of_first_order,
  permutation_matrix,
  reciprocal_gaps,
  without_second_derivative,
  zeros_like,
)
from linalg._core.checks import check_converged
from linalg._core.linear_rules import linear_pair
from linalg._core.operands import as_arrays, check_matrix, real_dtype
from linalg._core.public import public
from linalg._core.tuning import (
  SVD_DERIVATIVE,
  SVD_SUBSET,
  any_within,
  may_be_within,
  within,
)
from linalg._factorizations.eigh import (
  complement_change,
  cut,
  eigh_p,
  eigvalsh_p,
  ones_of_part,
  outside_of,
  subset_range,
  without_turn,
)
from linalg._factorizations.matmul import product

__all__ = ["SVDResult", "svd", "svd_ex", "svdvals", "svdvals_ex"]


class SVDResult(NamedTuple):
  """The factors A = U diag(S) Vh, singular values in descending order."""

  U: jax.Array
  S: jax.Array
  Vh: jax.Array


def ones_of_values(s, with_zero):
  """`ones_of_first_order`, where 0 is one more singular value if a matrix is not square."""
  values = jnp.pad(s, ((0, 0),) * (s.ndim - 1) + ((0, 1),)) if with_zero else s
  return ones_of_first_order(values, jnp.max(s, axis=-1, keepdims=True, initial=0))


def _tangents(u, s, vh, da):
  """(dU, dS, dVh) for thin and square factors.

  Let P = U₁ᴴ dA V₁, where U₁ and V₁ are the min(m, n) columns that belong to singular values. Then
  dS = Re diag P, dU₁ = U₁ (R + Q) / 2 + N / S and dV₁ = V₁ (R - Q) / 2 + M / S.

  Rᵢⱼ = (P + Pᴴ)ᵢⱼ / (sⱼ - sᵢ) rotates U₁ and V₁ together. Qᵢⱼ = (P - Pᴴ)ᵢⱼ / (sⱼ + sᵢ) rotates them
  against each other. N = (I - U₁ U₁ᴴ) dA V₁, and M = (I - V₁ V₁ᴴ) dAᴴ U₁. Townsend, Differentiating
  the singular value decomposition (2016), with his F split into 1 / (sⱼ - sᵢ) and 1 / (sⱼ + sᵢ).

  R's diagonal is free in the complex case; it is 0. The phases of a pair of vectors then change by
  opposite amounts. Where a gap is within 8 √k eps ‖A‖ the pairs are not determined and R is 0. That
  is right for the projectors onto their common spaces and for U₁ V₁ᴴ. Q is 0 only where both values
  are that small, and 1 / S where the value is. The columns that complete U and V do not rotate
  among themselves: they change by -U₁ dU₁ᴴ U₂. Second derivatives of the vectors are NaN there,
  and those of values that equal others, because R as 0 is not right for them.
  """
  k = s.shape[-1]
  m, n = da.shape[-2:]
  u1, v = u[..., :k], adjoint(vh)
  v1 = v[..., :k]
  forward = product(da, v1)
  p = product(u1, forward, adjoint_a=True)
  row, col = s[..., None, :], s[..., :, None]
  norm = jnp.max(row, axis=-1, initial=0, keepdims=True)
  ones = ones_of_values(s, with_zero=m != n)
  one = one_of_first_order(ones)[..., None]
  inverse_of = lambda x: (reciprocal_gaps(x, norm, k) * one).astype(p.dtype)
  together = (p + adjoint(p)) * inverse_of(row - col)
  apart = (p - adjoint(p)) * inverse_of(row + col)
  du = product(u1, (together + apart) / 2)
  dv = product(v1, (together - apart) / 2)
  inverse = inverse_of(row)
  if m > n:
    outside = (forward - product(u1, p)) * inverse
    du = du + outside
    if u.shape[-1] > k:
      u2 = u[..., k:]
      du = jnp.concatenate([du, -product(u1, product(outside, u2, adjoint_a=True))], axis=-1)
  if m < n:
    outside = (product(da, u1, adjoint_a=True) - product(v1, p, adjoint_b=True)) * inverse
    dv = dv + outside
    if vh.shape[-2] > k:
      v2 = v[..., k:]
      dv = jnp.concatenate([dv, -product(v1, product(outside, v2, adjoint_a=True))], axis=-1)
  return [du, ones[..., :k] * diagonal_of(p).real, adjoint(dv)]


square_jvp_p, square_vjp_p = linear_pair(
    ("linalg_svd_jvp", "n n, n, n n, n n -> n n, n, n n", [0, 1, 0]),
    ("linalg_svd_vjp", "n n, n, n n, n n, n, n n -> n n", [0]),
    _tangents,
    constants=3,
    argument=lambda u, s, vh: u,
    suits=within(SVD_DERIVATIVE))


def _make_operation(signature, full_matrices):
  """The primitive of thin or square factors, which differ only in shape."""

  def jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    u, s, vh, info = operation(a)
    m, n = a.shape[-2:]
    # Others use the formula itself: XLA removes the parts of it whose results are not used.
    tangents = square_jvp_p if may_be_within(SVD_DERIVATIVE, a) and m == n else _tangents
    return (u, s, vh, info), (*tangents(u, s, vh, da), None)

  def fallback(a):
    u, s, vh = jax.lax.linalg.svd(a, full_matrices=full_matrices)
    info = info_of_nan(s, 1)
    return [nan_where(info != 0, u, core=2), s, nan_where(info != 0, vh, core=2), info]

  operation = ffi.operation(
      "linalg_svd",
      signature,
      lambda dtype: (dtype, real_dtype(dtype), dtype, jnp.int32),
      jvp=jvp,
      fallback=fallback)
  return operation


svd_p = _make_operation("m n -> m min(m,n), min(m,n), min(m,n) n, ()", full_matrices=False)
svd_full_p = _make_operation("m n -> m m, min(m,n), n n, ()", full_matrices=True)


# Chosen singular values. Derivatives of the values use their vectors alone. Derivatives of the
# vectors are `_tangents` among the chosen ones. Outside of their spaces they solve, for each s,
#
#   s x - A y = dA v    s y - Aᴴ x = dAᴴ u,
#
# which is Sternheimer's equation (see eigh.py) of the matrix with A and Aᴴ beside a zero diagonal.
# The bidiagonal form of A, which has found the vectors, solves it too.

_SUBSET = {"start": 0, "count": 1}


def _factored_dtypes(dtype, **_):
  real = real_dtype(dtype)
  return [dtype, real, dtype, *[real] * 3, *[dtype] * 6, real, real, jnp.int32]


def _part_tangents(a, u, s, vh, outside, form, da, **how):
  """(dU, dS, dVh) of the chosen triples."""
  v, k = adjoint(vh), jax.core.min_dim(*a.shape[-2:])
  forward = product(da, v)
  backward = product(da, u, adjoint_a=True)
  p = product(u, forward, adjoint_a=True)
  ones = ones_of_part(s, outside, k)
  one = one_of_first_order(ones)[..., None]
  norm = outside[2][..., None, None]
  inverse_of = lambda x: (reciprocal_gaps(x, norm, k) * one).astype(p.dtype)
  row, col = s[..., None, :], s[..., :, None]
  together = (p + adjoint(p)) * inverse_of(row - col)
  apart = (p - adjoint(p)) * inverse_of(row + col)
  one = one.astype(p.dtype)
  x, y = svd_subset_solve_p(a, *form, s, u, vh, forward * one, backward * one, **how)
  du = product(u, (together + apart) / 2) + x
  dv = product(v, (together - apart) / 2) + y
  return du, ones * diagonal_of(p).real, adjoint(dv)


def _svd_factored_jvp(primals, tangents, **how):
  (a,), (da,) = primals, tangents
  u, s, vh, *rest = svd_subset_factored_p(a, **how)
  changes = _part_tangents(a, u, s, vh, rest[:3], rest[3:11], da, **how)
  return (u, s, vh, *rest), (*changes, *(None,) * len(rest))


def _svd_subset_jvp(primals, tangents, **how):
  (u, s, vh, *rest), (*changes,) = _svd_factored_jvp(primals, tangents, **how)
  return (u, s, vh, rest[-1]), (*changes[:3], None)


def _svd_subset_fallback(a, *, start, count):
  u, s, vh, info = svd_p(a)
  chosen = slice(start, start + count)
  return [u[..., chosen], s[..., chosen], vh[..., chosen, :], info]


def _svd_factored_fallback(a, *, start, count):
  # All singular vectors, and the values between them, stand for the bidiagonal form.
  u, s, vh, info = svd_p(a)
  m, n = a.shape[-2:]
  chosen = slice(start, start + count)
  # The values next to the chosen ones, by `cut`, which counts from the smallest.
  _, *outside = cut(s[..., ::-1], s.shape[-1] - start - count, count)
  if m != n and start + count == s.shape[-1]:
    outside[0] = zeros_like(outside[0])
  right, tall = (adjoint(vh), u) if m >= n else (u, vh)
  taus = zeros_like(s).astype(a.dtype)
  left = zeros_like(right)
  return [u[..., chosen], s[..., chosen], vh[..., chosen, :], *outside, left, taus, right, taus,
          tall, taus, s, zeros_like(s), info]


def _svd_solve_fallback(
    a, left, left_taus, right, right_taus, tall, tall_taus, values, beside, s, u, vh, b, c, **how):
  del left, left_taus, right_taus, tall_taus, beside, how
  m, n = a.shape[-2:]
  all_u, all_v = (tall, right) if m >= n else (right, adjoint(tall))
  v = adjoint(vh)
  b, c = outside_of(u, b), outside_of(v, c)
  of_b, of_c = product(all_u, b, adjoint_a=True), product(all_v, c, adjoint_a=True)
  norm = jnp.max(values, axis=-1, initial=0, keepdims=True)[..., None]
  inverse_of = lambda x: reciprocal_gaps(x, norm, values.shape[-1]).astype(b.dtype)
  row, col = s[..., None, :], values[..., :, None]
  together, apart = (of_b + of_c) * inverse_of(row - col), (of_b - of_c) * inverse_of(row + col)
  x, y = product(all_u, (together + apart) / 2), product(all_v, (together - apart) / 2)
  if m > n:
    x = x + (b - product(all_u, of_b)) * inverse_of(row)
  if m < n:
    y = y + (c - product(all_v, of_c)) * inverse_of(row)
  return [outside_of(u, x), outside_of(v, y)]


def _svd_solve_jvp(primals, tangents, **how):
  """`complement_jvp` of the matrix with A and Aᴴ beside a zero diagonal."""
  a, *form, s, u, vh, b, c = primals
  da, *_, ds, du, dvh, db, dc = tangents
  v, dv = adjoint(vh), None if dvh is None else adjoint(dvh)
  x, y = svd_subset_solve_p(*primals, **how)
  day, dax = (None, None) if da is None else (product(da, y), product(da, x, adjoint_a=True))
  dx, dy = svd_subset_solve_p(
      a, *form, s, u, vh, complement_change(u, b, x, db, day, ds, du),
      complement_change(v, c, y, dc, dax, ds, dv), **how)
  return [x, y], [without_turn(u, x, du, dx), without_turn(v, y, dv, dy)]


def _svd_solve_transpose(cotangents, operands, **how):
  # Each pair of columns is multiplied by a Hermitian matrix.
  *constants, b, c = operands
  found = svd_subset_solve_p(*constants, *(ct.conj() for ct in cotangents), **how)
  return *(None,) * len(constants), *(
      x.conj() if operand is None else None for x, operand in zip(found, (b, c), strict=True))


svd_subset_p = ffi.operation(
    "linalg_svd_subset",
    "m n -> m count, count, count n, ()",
    lambda dtype, **_: (dtype, real_dtype(dtype), dtype, jnp.int32),
    attributes=_SUBSET,
    jvp=_svd_subset_jvp,
    fallback=_svd_subset_fallback)

_K = "min(m,n)"
_OF_FORM = f"{_K} {_K}, {_K}, {_K} {_K}, {_K}, m n, {_K}, {_K}, {_K}"

svd_subset_factored_p = ffi.operation(
    "linalg_svd_subset_factored",
    f"m n -> m count, count, count n, (), (), (), {_OF_FORM}, ()",
    _factored_dtypes,
    attributes=_SUBSET,
    jvp=_svd_factored_jvp,
    fallback=_svd_factored_fallback)

svd_subset_solve_p = ffi.operation(
    "linalg_svd_subset_solve",
    f"m n, {_OF_FORM}, count, m count, count n, m count, n count -> m count, n count",
    [0, 0],
    attributes=_SUBSET,
    jvp=_svd_solve_jvp,
    transpose=_svd_solve_transpose,
    fallback=_svd_solve_fallback)


def values_tangent(x, y, axis):
  """dS = Re diag(Uᴴ dA V) of thin factors.

  It sums over columns (axis -2) if given U and dA V, and over rows (axis -1) if given Vᴴ and Uᴴ dA.
  """
  return jnp.sum(x.conj() * y, axis=axis).real


def _svdvals_jvp(primals, tangents):
  (a,), (da,) = primals, tangents
  u, s, vh, info = svd_p(a)
  return (s, info), (values_tangent(u, product(da, vh, adjoint_b=True), axis=-2), None)


def _svdvals_fallback(a):
  s = jax.lax.linalg.svd(a, compute_uv=False)
  return [s, info_of_nan(s, 1)]


svdvals_p = ffi.operation(
    "linalg_svdvals",
    "m n -> min(m,n), ()",
    lambda dtype: (real_dtype(dtype), jnp.int32),
    jvp=_svdvals_jvp,
    fallback=_svdvals_fallback)


def _svdvals_subset_jvp(primals, tangents, **chosen):
  (a,), (da,) = primals, tangents
  u, s, vh, info = svd_subset_p(a, **chosen)
  return (s, info), (values_tangent(u, product(da, vh, adjoint_b=True), axis=-2), None)


def _svdvals_subset_fallback(a, *, start, count):
  s, info = svdvals_p(a)
  return [s[..., start : start + count], info]


svdvals_subset_p = ffi.operation(
    "linalg_svdvals_subset",
    "m n -> count, ()",
    lambda dtype, **_: (real_dtype(dtype), jnp.int32),
    attributes=_SUBSET,
    jvp=_svdvals_subset_jvp,
    fallback=_svdvals_subset_fallback)


def _descending(w):
  """Returns P with P |w| in descending order. It is a matrix, since a gather has no sharding."""
  order = jnp.argsort(-jnp.abs(jax.lax.stop_gradient(w)), axis=-1)
  return permutation_matrix(order, w.dtype)


def _hermitian_svd(a):
  # A = V diag(w) Vᴴ = V diag|w| (V diag(sign w))ᴴ
  w, v, info = eigh_p(a, lower=True, symmetrize=True)
  order = _descending(w)
  s = product(order, jnp.abs(w)[..., None])[..., 0]
  sign = jnp.where(w < 0, -1, 1).astype(v.dtype)
  columns = order.mT.astype(v.dtype)
  return product(v, columns), s, adjoint(product(v * sign[..., None, :], columns)), info


def _svdvals(a, hermitian, chosen=None):
  if chosen is not None:
    # Also the values next to the chosen ones, which these may equal.
    start, stop = max(chosen.start - 1, 0), chosen.stop + (chosen.stop < min(a.shape[-2:]))
    s, info = svdvals_subset_p(a, start=start, count=stop - start)
    largest = jnp.max(s, axis=-1, keepdims=True, initial=0)
    s = without_second_derivative(s, s, largest)
    return s[..., chosen.start - start : chosen.stop - start], info
  if hermitian:
    # Eigenvalues of opposite signs may have equal magnitudes and still have second derivatives.
    w, info = eigvalsh_p(a, lower=True, symmetrize=True)
    values = product(_descending(w), w[..., None])[..., 0]
    s = jnp.abs(values)
  else:
    s, info = svdvals_p(a)
    values = s
  return without_second_derivative(s, values, jnp.max(s, axis=-1, keepdims=True, initial=0)), info


def _svd(name, a, full_matrices, compute_uv, hermitian, subset_by_index) -> tuple[Any, ...]:
  """(U, S, Vh, info), or (S, info)."""
  (a,), dtype = as_arrays(name, a)
  check_matrix(name, a)
  if hermitian and a.shape[-1] != a.shape[-2]:
    raise ValueError(f"Argument to {name}(hermitian=True) must be square, got {a.shape}")
  smaller = jax.core.min_dim(*a.shape[-2:])
  wanted = subset_range(name, subset_by_index, smaller)
  real = real_dtype(dtype)
  if wanted is None:
    if not compute_uv:
      s, info = _svdvals(a, hermitian)
      return s.astype(real), info
    u, s, vh, info = (_hermitian_svd if hermitian else svd_full_p if full_matrices else svd_p)(a)
    return u.astype(dtype), s.astype(real), vh.astype(dtype), info
  if full_matrices and compute_uv:
    raise ValueError(f"{name}: subset_by_index needs full_matrices=False.")
  start, count = wanted
  chosen = slice(start, start + count)
  # Small matrices are decomposed whole, and so are those whose eigenvalues have other orders.
  cut = hermitian or count == 0 or any_within(SVD_SUBSET, a)
  if not compute_uv:
    s, info = _svdvals(a, hermitian, None if cut else chosen)
    return (s[..., chosen] if cut else s).astype(real), info
  if cut:
    u, s, vh, info = (_hermitian_svd if hermitian else svd_p)(a)
    u, s, vh = u[..., chosen], s[..., chosen], vh[..., chosen, :]
  else:
    u, s, vh, info = svd_subset_p(a, start=start, count=count)
  return u.astype(dtype), s.astype(real), vh.astype(dtype), info


_STATIC = ("full_matrices", "compute_uv", "hermitian", "subset_by_index")


@overload
def svd(
    a: ArrayLike, full_matrices: bool = True, compute_uv: Literal[True] = True,
    hermitian: bool = False, subset_by_index: tuple[int, int] | None = None
) -> SVDResult: ...


@overload
def svd(
    a: ArrayLike, full_matrices: bool, compute_uv: Literal[False],
    hermitian: bool = False, subset_by_index: tuple[int, int] | None = None
) -> jax.Array: ...


@overload
def svd(
    a: ArrayLike, full_matrices: bool = True, *, compute_uv: Literal[False],
    hermitian: bool = False, subset_by_index: tuple[int, int] | None = None
) -> jax.Array: ...


@overload
def svd(
    a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True,
    hermitian: bool = False, subset_by_index: tuple[int, int] | None = None
) -> SVDResult | jax.Array: ...


@public(*_STATIC)
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
  """Singular values and vectors, A = U diag(S) Vh; `jax.numpy.linalg.svd`.

  Args:
    a: matrices (..., m, n) of any floating, complex or integer dtype; k = min(m, n).
    full_matrices: whether U and Vh are square, or have k columns and rows.
    compute_uv: whether to return the vectors.
    hermitian: whether A is Hermitian. If so, `eigh` of (A + Aᴴ) / 2 gives the factors, which is
      faster.
    subset_by_index: (start, stop), the singular values to return, counted from the largest. Their
      vectors are returned too, which needs full_matrices=False. On a CPU only these are computed,
      unless min(m, n) is small, or `hermitian` is true.

  Returns:
    SVDResult(U, S, Vh): (..., m, k) or (..., m, m), real (..., k) in descending order, and (..., k,
    n) or (..., n, n). Without `compute_uv`, S alone. Where A holds NaN or Inf, or the iteration
    does not converge, all are NaN for that matrix; see `svd_ex` and `checked`.

  A pair of singular vectors is determined up to a common phase. Pairs of equal singular values are
  determined up to a common rotation. A derivative has a meaning only where that choice has no
  effect. The first derivative is right at equal singular values for symmetric functions of them,
  projectors onto their common spaces, and the polar factor U Vh. At a singular value of zero, U Vh
  has no derivative. Second derivatives are NaN there, as they are in `eigh`; 0 counts as a singular
  value of a matrix that is not square. `polar` has them.

  float16 and bfloat16 are decomposed in float32, and the results rounded.

  Algorithm: small matrices are computed one per lane, the smallest by one-sided Jacobi, others by
  reduction to bidiagonal form and implicit QR. Larger ones are computed in tiles, by that reduction
  and divide and conquer. The largest, and those with few rows or columns, use LAPACK gesdd. A few
  chosen values are found by bisection, and their vectors by inverse iteration. The derivatives of a
  subset solve with the bidiagonal form beside the chosen vectors (Sternheimer; see `eigh`).

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    >>> u, s, vh = linalg.svd(a, full_matrices=False)
    >>> print(s.round(4))
    [3. 2.]
    >>> print(jnp.allclose((u * s) @ vh, a, atol=1e-6))
    True
  """
  *factors, info = _svd("svd", a, full_matrices, compute_uv, hermitian, subset_by_index)
  check_converged(info, "singular values")
  return SVDResult(*factors) if compute_uv else factors[0]


@overload
def svd_ex(
    a: ArrayLike, full_matrices: bool = True, compute_uv: Literal[True] = True,
    hermitian: bool = False, subset_by_index: tuple[int, int] | None = None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]: ...


@overload
def svd_ex(
    a: ArrayLike, full_matrices: bool, compute_uv: Literal[False],
    hermitian: bool = False, subset_by_index: tuple[int, int] | None = None
) -> tuple[jax.Array, jax.Array]: ...


@overload
def svd_ex(
    a: ArrayLike, full_matrices: bool = True, *, compute_uv: Literal[False],
    hermitian: bool = False, subset_by_index: tuple[int, int] | None = None
) -> tuple[jax.Array, jax.Array]: ...


@overload
def svd_ex(
    a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True,
    hermitian: bool = False, subset_by_index: tuple[int, int] | None = None
) -> tuple[jax.Array, ...]: ...


@public(*_STATIC)
def svd_ex(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> tuple[jax.Array, ...]:
  """`svd`, with an info for each matrix.

  Args:
    a, full_matrices, compute_uv, hermitian, subset_by_index: as for `svd`.

  Returns:
    (U, S, Vh, info), or (S, info). info is int32 of shape (...): 0 on success, -1 if the matrix
    holds NaN or Inf, positive if the iteration did not converge. Where it is not 0, the results are
    NaN.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), jnp.full((2, 2), jnp.nan)])
    >>> u, s, vh, info = linalg.svd_ex(a)
    >>> print(info)
    [ 0 -1]
  """
  return _svd("svd_ex", a, full_matrices, compute_uv, hermitian, subset_by_index)


@public("subset_by_index")
def svdvals(
    x: ArrayLike, /, *, subset_by_index: tuple[int, int] | None = None
) -> jax.Array:
  """Singular values; `jax.numpy.linalg.svdvals`.

  Args:
    x: matrices (..., m, n), as for `svd`.
    subset_by_index: (start, stop), the singular values to return, as for `svd`.

  Returns:
    The singular values, real (..., min(m, n)) or (..., stop - start), in descending order; NaN
    where `svd` gives NaN.

  The first derivative is right for symmetric functions of equal singular values. Second derivatives
  are NaN there, as they are in `eigvalsh`. `matrix_norm` has them for their sum.

  Algorithm: small matrices are computed one per lane, by reduction to bidiagonal form and implicit
  QR, at least in float64. The smallest of float32 and complex64 use one-sided Jacobi. Larger ones
  are computed in tiles by divide and conquer, as in `svd`. The largest, and those with few rows or
  columns, use LAPACK gesdd without vectors.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.svdvals(jnp.diag(jnp.array([2.0, 3.0]))).round(4))
    [3. 2.]
  """
  s, info = _svd("svdvals", x, True, False, False, subset_by_index)
  check_converged(info, "singular values")
  return s


def smooth_svdvals(a: jax.Array) -> jax.Array:
  """`svdvals`, for functions of singular values that differ from all others: its second derivatives
  are finite at equal ones, and right for the others."""
  s, info = svdvals_p(a)
  check_converged(info, "singular values")
  return s


@public("subset_by_index")
def svdvals_ex(
    x: ArrayLike, /, *, subset_by_index: tuple[int, int] | None = None
) -> tuple[jax.Array, jax.Array]:
  """`svdvals`, with an info for each matrix.

  Args:
    x, subset_by_index: as for `svdvals`.

  Returns:
    (S, info): the values of `svdvals`, and int32 (...), as from `svd_ex`.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), jnp.full((2, 2), jnp.nan)])
    >>> s, info = linalg.svdvals_ex(a)
    >>> print(info)
    [ 0 -1]
  """
  s, info = _svd("svdvals_ex", x, True, False, False, subset_by_index)
  return s, info
