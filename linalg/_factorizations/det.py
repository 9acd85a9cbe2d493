"""Determinants of matrices, and determinants from given factors.

Jacobi's formula, d det A = tr(adj(A) dA), needs no inverse: the adjugate is a polynomial in A. Its
transpose, the matrix of cofactors, is computed from LU factors. The derivative of the cofactors is
computed from singular values where A is nearly singular. Neither divides by a pivot or a singular
value that is zero.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  binade,
  diagonal_of,
  expand,
  identity,
  imaginary,
  nan_where,
  on_diagonal,
  permutation_matrix,
  reciprocal,
  stored_diagonal,
)
from linalg._core.operands import as_arrays, as_pair, check_square, real_dtype
from linalg._core.public import public
from linalg._core.tuning import COFACTORS, within
from linalg._factorizations.lu import check_square_factors, lu_p
from linalg._factorizations.matmul import product
from linalg._factorizations.solve import factored_solve_p, inv_p, inverse_tangent
from linalg._factorizations.svd import svd_p
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["SlogdetResult", "cho_logdet", "det", "lu_slogdet", "slogdet"]


class SlogdetResult(NamedTuple):
  """The sign (a phase, if complex) of a determinant, and the logarithm of its magnitude."""

  sign: jax.Array
  logabsdet: jax.Array


def _trace_of_product(xt, da):
  """tr(X dA), given the transpose of X."""
  return jnp.sum(xt * da, axis=(-2, -1))


def slogdet_tangents(sign, xt, da):
  # d log det A = tr(A⁻¹ dA). Its real part changes the magnitude, its imaginary part the phase.
  trace = _trace_of_product(xt, da)
  turn = sign * imaginary(trace.imag) if jnp.iscomplexobj(xt) else None
  return turn, trace.real


def _slogdet_jvp(primals, tangents):
  (a,), (da,) = primals, tangents
  sign, logabsdet, xt = slogdet_inv_transposed_p(a)
  return (sign, logabsdet), slogdet_tangents(sign, xt, da)


def _slogdet_inv_transposed_jvp(primals, tangents):
  (a,), (da,) = primals, tangents
  sign, logabsdet, xt = slogdet_inv_transposed_p(a)
  return (sign, logabsdet, xt), (
      *slogdet_tangents(sign, xt, da), inverse_tangent(xt, da.mT))


# The log-determinant and the transposed inverse, from the same factors, as the derivative of a
# determinant uses them.
slogdet_inv_transposed_p: ffi.Operation = ffi.operation(
    "linalg_slogdet_inv_transposed",
    "n n -> (), (), n n",
    lambda dtype: (dtype, real_dtype(dtype), dtype),
    jvp=_slogdet_inv_transposed_jvp,
    fallback=lambda a: [*slogdet_p(a), inv_p(a)[0].mT])


slogdet_p: ffi.Operation = ffi.operation(
    "linalg_slogdet",
    "n n -> (), ()",
    lambda dtype: (dtype, real_dtype(dtype)),
    jvp=_slogdet_jvp,
    fallback=lambda a: list(jnp.linalg.slogdet(a)))


@public("method")
def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
  """The sign and the logarithm of the determinant; `jax.numpy.linalg.slogdet`.

  Args:
    a: matrices (..., n, n), as for `det`.
    method: 'lu', the default, or 'qr', which is accepted for real matrices and computed by LU too.

  Returns:
    SlogdetResult(sign, logabsdet), each (...): det A = sign * exp(logabsdet). A singular matrix has
    sign 0 and logabsdet -inf.

  Algorithm: as for `det`. The exponent does not overflow.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> sign, logabsdet = linalg.slogdet(-100 * jnp.eye(51))
    >>> print(sign, logabsdet.round(2))  # the determinant, -1e102, is out of float32's range
    -1.0 234.86
  """
  (a,), dtype = as_arrays("slogdet", a)
  check_square("slogdet", a)
  if method not in (None, "lu", "qr"):
    raise ValueError(f"slogdet: method must be None, 'lu' or 'qr', got {method!r}.")
  sign, logabsdet = slogdet_p(a)
  return SlogdetResult(sign.astype(dtype), logabsdet.astype(real_dtype(dtype)))


def _det_jvp(primals, tangents):
  # Jacobi's formula: d det A = tr(adj(A) dA).
  (a,), (da,) = primals, tangents
  det, cofactors = det_cofactors_p(a)
  return det, _trace_of_product(cofactors, da)


# The determinant as a polynomial, whose derivatives of any order are finite.
_CLOSED_FORMS = {
    0: lambda a: jnp.ones_like(a, shape=a.shape[:-2]),
    1: lambda a: a[..., 0, 0],
    2: lambda a: a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0],
    3: lambda a: (
        a[..., 0, 0] * (a[..., 1, 1] * a[..., 2, 2] - a[..., 1, 2] * a[..., 2, 1])
        + a[..., 0, 1] * (a[..., 1, 2] * a[..., 2, 0] - a[..., 1, 0] * a[..., 2, 2])
        + a[..., 0, 2] * (a[..., 1, 0] * a[..., 2, 1] - a[..., 1, 1] * a[..., 2, 0])),
}


def scaled_product(x):
  """Returns (p, e) of the product p 2^e of each vector of nonzero numbers.

  p is near 1, and e is a constant for derivatives.
  """
  size = jnp.abs(x)
  powers = binade(size)
  logarithm = jnp.sum(jnp.log2(size / powers), axis=-1)
  whole = jnp.floor(jax.lax.stop_gradient(logarithm))
  phase = jnp.prod(x / size.astype(x.dtype), axis=-1)
  exponent = jnp.sum(jnp.round(jnp.log2(powers)), axis=-1) + whole
  return phase * jnp.exp2(logarithm - whole).astype(x.dtype), exponent


def halves(exponent, dtype):
  """Two factors of 2^exponent, to multiply by before and after.

  2^exponent itself may be out of range. Each factor is finite, because a complex product of 0 and
  Inf would be NaN. Exponents beyond both factors give 0 or Inf.
  """
  most = jnp.finfo(dtype).maxexp - 8
  half = jnp.clip(jnp.floor(exponent / 2), -most, most)
  return tuple(
      jnp.ldexp(jnp.ones_like(x), x.astype(jnp.int32))[..., None, None].astype(dtype)
      for x in (half, jnp.clip(exponent - half, -most, most)))


def _reflect(x):
  """Returns Q X, where the reflection Q = I - 2 v vᴴ mixes all rows.

  v is such that Q's last column is q, a vector of cosines. The null vector of the matrix that Q
  multiplies must not be orthogonal to q. No simple matrix has a null vector orthogonal to it.
  """
  n = x.shape[-2]
  q = jnp.cos(1 + jnp.arange(n, dtype=real_dtype(x.dtype)))
  v = q / jnp.sqrt(jnp.sum(q * q)) - (jnp.arange(n) == n - 1).astype(q.dtype)
  v = expand((v / jnp.sqrt(jnp.sum(v * v))).astype(x.dtype)[:, None], x)
  return x - 2 * v * jnp.sum(v * x, axis=-2, keepdims=True)


def _smallest_cofactors(a):
  """The cofactors for n <= 3: the determinant's derivative."""
  det, pullback = jax.vjp(_CLOSED_FORMS[a.shape[-1]], a)
  return pullback(jnp.ones_like(det))[0]


def _sign_of(pivots, dtype):
  """The determinant of the permutation that a sequence of row exchanges makes.

  A pivot outside the matrix exchanges nothing.
  """
  n = pivots.shape[-1]
  place = expand(jnp.arange(n, dtype=pivots.dtype), pivots)
  exchanges = (pivots != place) & (pivots >= 0) & (pivots < n)
  odd = jnp.sum(exchanges, axis=-1) % 2 == 1
  return jnp.where(odd, -1, 1).astype(dtype)


def _adjugate(a):
  """adj(A), the transpose of the cofactors, from LU factors.

  If P A = L U, it is ±adj(U) L⁻¹ P. There are three cases:

  - No pivot is zero: adj(U) = det(U) U⁻¹.
  - Only the k-th pivot is zero: adj(U) is the product of the others times V⁻¹ eₖ eₖᵀ V⁻¹. V is U
    with 1 for that pivot.
  - Several pivots are zero. Elimination can leave them at rank n - 1 too. A reflection Q gives
    adj(A) = -Q adj(A Q). If the rank is n - 1, the LU factors of A Q have one zero pivot, the last.
    If there are more, the rank is lower and the adjugate is zero.
  """
  twice = (jnp.sum(diagonal_of(lu_p(a)[0]) == 0, axis=-1) >= 2)[..., None, None]
  packed, pivots, permutation, _ = lu_p(jnp.where(twice, _reflect(a.mT).mT, a))
  zero = diagonal_of(packed) == 0
  pivots_of_u = jnp.where(zero, 1, diagonal_of(packed))
  packed = jnp.where(on_diagonal(packed), pivots_of_u[..., None], packed)
  backward = functools.partial(triangular_solve_p, packed, left_side=True, lower=False)
  det, exponent = scaled_product(pivots_of_u)
  before, after = halves(exponent, a.dtype)
  det = before * (det * _sign_of(pivots, a.dtype))[..., None, None]
  x = det * permutation_matrix(permutation, a.dtype)
  x = backward(triangular_solve_p(packed, x, left_side=True, lower=True, unit_diagonal=True))
  unit = zero[..., None].astype(x.dtype)
  along = backward(unit) * jnp.sum(unit * x, axis=-2, keepdims=True)
  count = jnp.sum(zero, axis=-1)[..., None, None]
  x = jnp.where(count == 0, x, jnp.where(count == 1, along, 0))
  return after * jnp.where(twice, -_reflect(x), x)


def _products_without_two(s):
  """(g, e): g 2^e, where gᵢⱼ is the product of all but sᵢ and sⱼ, and 0 for i = j.

  s is descending and not negative. Apart from its two smallest elements, each divisor is no smaller
  than the factor that the quotient is multiplied by.
  """
  n = s.shape[-1]
  index = expand(np.arange(n), s)
  large = index < n - 2
  first, second = large[..., :, None], large[..., None, :]
  high, low = s[..., -2, None], s[..., -1, None]
  zero = large & (s == 0)
  inverse = reciprocal(s, large & ~zero)
  whole, exponent = scaled_product(jnp.where(large & ~zero, s, 1))
  whole = jnp.where(zero.any(-1), 0, whole)[..., None, None]
  other = jnp.where(index == n - 2, low, high)  # of the two smallest elements
  both = (inverse * low)[..., :, None] * (inverse * high)[..., None, :]
  one = inverse[..., :, None] * other[..., None, :]
  g = jnp.where(first & second, both, jnp.where(first, one, jnp.where(second, one.mT, 1)))
  return jnp.where(on_diagonal(g), 0, whole * g), exponent


def _derivative_of_adjugate(da, u, s, vh):
  """Returns the derivative of adj(A) along dA from A's singular values, at any rank.

  For a diagonal S, adj(S + P) has the derivative diag(G diag P) - G ∘ P along P. Gᵢⱼ is the product
  of all elements of S except sᵢ and sⱼ. For A = U S Vᴴ and P = Uᴴ dA V, adj(A) is det(U Vᴴ) V
  adj(S) Uᴴ.
  """
  g, exponent = _products_without_two(s)
  g = g.astype(da.dtype)
  before, after = halves(exponent, da.dtype)
  p = product(product(u, da, adjoint_a=True), vh, adjoint_b=True)
  change = product(g, diagonal_of(p)[..., None]) * identity(p)
  change = before * (change - g * p)
  change = (det_p(u) * det_p(vh))[..., None, None] * product(
      product(vh, change, adjoint_a=True), u, adjoint_b=True)
  return after * change


def _tangent_of_cofactors(a, cofactors, da):
  if a.shape[-1] in _CLOSED_FORMS:
    return jax.jvp(_smallest_cofactors, (a,), (da,))[1]
  # Away from singular matrices adj(A) is det(A) A⁻¹, which has derivatives of any order.
  # Derivatives of singular vectors need distinct values.
  u, s, vh, _ = svd_p(a)
  regular = (s[..., -1] > jnp.finfo(s.dtype).eps ** 0.25 * s[..., 0])[..., None, None]
  safe = jnp.where(regular, a, identity(a))
  packed, pivots, _, _ = lu_p(jax.lax.stop_gradient(safe))
  solve = functools.partial(factored_solve_p, safe, packed, pivots)
  trace = jnp.sum(diagonal_of(solve(da)), axis=-1)[..., None, None]
  x = cofactors.mT
  return jnp.where(
      regular, trace * x - solve(product(da, x)), _derivative_of_adjugate(da, u, s, vh)).mT


def _det_cofactors_jvp(primals, tangents):
  (a,), (da,) = primals, tangents
  det, cofactors = det_cofactors_p(a)
  return (det, cofactors), (
      _trace_of_product(cofactors, da), _tangent_of_cofactors(a, cofactors, da))


def _det_cofactors_fallback(a):
  cofactors = _smallest_cofactors(a) if a.shape[-1] in _CLOSED_FORMS else _adjugate(a).mT
  return [det_p(a), nan_where(jnp.isnan(a).any((-2, -1)), cofactors, core=2)]


# The cofactors, det(A) A⁻ᵀ, are polynomials in A. They and their derivative are right for a
# singular A too. The determinant comes from the same factors.
det_cofactors_p = ffi.operation(
    "linalg_det_cofactors",
    "n n -> (), n n",
    [0, 0],
    jvp=_det_cofactors_jvp,
    fallback=_det_cofactors_fallback,
    suits=within(COFACTORS))


det_p = ffi.operation(
    "linalg_det", "n n -> ()", [0], jvp=_det_jvp, fallback=lambda a: [jnp.linalg.det(a)])


@public()
def det(a: ArrayLike) -> jax.Array:
  """The determinant; `jax.numpy.linalg.det`.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.

  Returns:
    The determinants (...), 0 for a singular matrix and 1 for n = 0. They are NaN where A holds NaN.
    Derivatives are right at singular matrices too: of any order for n <= 3, and of first and second
    order for larger n. Higher orders are right where the singular values are distinct.

  float16 and bfloat16 are computed in float32, and the determinants rounded.

  Algorithm: products of entries for n = 2 and 3, where they stay in range; else LU with partial
  pivoting (`lu`). The product of the pivots keeps its exponent apart, so intermediate products do
  not overflow.

  Example:
    >>> import jax, jax.numpy as jnp, linalg
    >>> print(linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]])).round(4))
    -2.0
    >>> print(jax.grad(linalg.det)(jnp.ones((2, 2))))  # of a singular matrix
    [[ 1. -1.]
     [-1.  1.]]
  """
  (a,), dtype = as_arrays("det", a)
  check_square("det", a)
  return det_p(a).astype(dtype)


@jax.jit
def _cho_logdet(c):
  (c,), dtype = as_arrays("cho_logdet", c)
  check_square("cho_logdet", c)
  ffi.refuse_sharded("cho_logdet", c)
  logarithms = jnp.log(jnp.abs(stored_diagonal(c).real))
  return (2 * jnp.sum(logarithms, axis=-1)).astype(real_dtype(dtype))


@public(compiled=False)
def cho_logdet(c_and_lower: tuple[ArrayLike, bool]) -> jax.Array:
  """log det A of a positive definite matrix, from its Cholesky factor.

  A Gaussian's density needs it beside `cho_solve`. This reuses the factorization.

  Args:
    c_and_lower: the result of `cho_factor`: the factor (..., n, n) of any floating, complex or
      integer dtype, and whether it is the lower one. Only its diagonal is read.

  Returns:
    The logarithms (...), real; 0 for n = 0. A factor that failed gives NaN, and one with a zero on
    its diagonal -inf. Other matrices are not affected.

  float16 and bfloat16 are computed in float32, and the logarithms rounded.

  Algorithm: twice the sum of the logarithms of the diagonal, which is in range where the
  determinant is not. Derivative: that of the factor, by `cho_factor`.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> factor = linalg.cho_factor(4 * jnp.eye(3))
    >>> print(linalg.cho_logdet(factor).round(4))  # log 64
    4.1589
  """
  c, _ = as_pair(
      "cho_logdet", "c_and_lower", "the two values that cho_factor returns", c_and_lower, flag=True)
  return _cho_logdet(c)


def _as_matrices(diagonal):
  """The entries of diagonals (..., n), each as a 1 by 1 matrix, for the handlers.

  Handlers know subnormal numbers, which XLA takes for zero, and numbers whose
  magnitude is out of range.
  """
  return diagonal[..., None, None]


def _lu_slogdet_of(packed, pivots):
  phases, logarithms = slogdet_p(_as_matrices(stored_diagonal(packed)))
  return [_sign_of(pivots, packed.dtype) * jnp.prod(phases, axis=-1), jnp.sum(logarithms, axis=-1)]


def _lu_slogdet_jvp(primals, tangents):
  (packed, pivots), (dpacked, _) = primals, tangents
  sign, logabsdet = lu_slogdet_p(packed, pivots)
  *_, reciprocals = slogdet_inv_transposed_p(_as_matrices(stored_diagonal(packed)))
  return (sign, logabsdet), slogdet_tangents(
      sign, reciprocals[..., 0], stored_diagonal(dpacked)[..., None])


lu_slogdet_p: ffi.Operation = ffi.operation(
    "linalg_lu_slogdet",
    "n n, n -> (), ()",
    lambda dtype, _: (dtype, real_dtype(dtype)),
    platforms=(),  # a primitive for its derivatives alone
    jvp=_lu_slogdet_jvp,
    fallback=_lu_slogdet_of)


@jax.jit
def _lu_slogdet(packed, pivots):
  (packed,), dtype = as_arrays("lu_slogdet", packed)
  check_square_factors("lu_slogdet", packed, pivots)
  sign, logabsdet = lu_slogdet_p(packed, pivots.astype(jnp.int32))
  return SlogdetResult(sign.astype(dtype), logabsdet.astype(real_dtype(dtype)))


@public(compiled=False)
def lu_slogdet(lu_and_piv: tuple[ArrayLike, ArrayLike]) -> SlogdetResult:
  """The sign and the logarithm of the determinant, from LU factors.

  This reuses the factorization of `lu_solve`.

  Args:
    lu_and_piv: the result of `lu_factor` for square matrices. Factors are (..., n, n) of any
      floating, complex or integer dtype. Pivots are integers (..., n), counted from 0. Only the
      factors' diagonal is read. The batch dimensions of both broadcast.

  Returns:
    SlogdetResult(sign, logabsdet), each (...), as from `slogdet`. It is (0, -inf) for a singular
    matrix, and (1, 0) for n = 0. Where the diagonal holds NaN, the results are NaN for that matrix
    alone.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: the product of the pivots' phases, negated for an odd number of exchanges, and the sum
  of the logarithms of their magnitudes. Derivative: the sum of dU's diagonal over U's. Its real
  part belongs to the logarithm, its imaginary part to the phase. `lu_factor` has the derivative of
  the factors.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> factors = linalg.lu_factor(jnp.array([[0.0, 2.0], [2.0, 1.0]]))
    >>> sign, logabsdet = linalg.lu_slogdet(factors)
    >>> print(sign, logabsdet.round(4))  # of -4
    -1.0 1.3863
  """
  packed, pivots = as_pair(
      "lu_slogdet", "lu_and_piv", "the two values that lu_factor returns", lu_and_piv)
  return _lu_slogdet(packed, pivots)
