"""Solutions of linear systems together with log-determinants, from one factorization.

The density of a Gaussian needs both, and so does its gradient.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  identities_like,
  nan_where,
  solution_tangent,
  stored_diagonal,
  symmetrized,
  without_none,
  zeros_like,
)
from linalg._core.checks import check_factors, check_positive
from linalg._core.linear_rules import linear_pair
from linalg._core.operands import as_arrays, check_columns, check_square, real_dtype
from linalg._core.public import public
from linalg._core.tuning import (
  MOST_COLUMNS_OF_POSITIVE_SOLVE,
  POSITIVE_SOLVE_LOGDET,
  POSITIVE_SOLVE_LOGDET_DERIVATIVE,
  within,
)
from linalg._factorizations.cholesky import cholesky_jvp_p, cholesky_p, cholesky_solve_p
from linalg._factorizations.det import lu_slogdet_p, slogdet_tangents
from linalg._factorizations.lu import lu_p
from linalg._factorizations.matmul import product
from linalg._factorizations.positive_solve import factored_positive_solve_p
from linalg._factorizations.solve import factored_solve_p, inverse_tangent

__all__ = ["SolveLogdetResult", "solve_logdet"]


class SolveLogdetResult(NamedTuple):
  """The solution, the sign and the logarithm of |det A|, and info."""

  x: jax.Array
  sign: jax.Array
  logabsdet: jax.Array
  info: jax.Array


def _batch_of(function, results):
  """A rule `batch` that factors a single matrix for the whole batch of right-hand sides once.

  The first of the results is x. All others belong to the matrix.
  """

  def batch(operands, dims):
    a, b = operands
    if dims[0] is not None:
      return None
    of_matrix = [None] * (results - 1)
    solve = functools.partial(function, a)
    return jax.vmap(solve, in_axes=dims[1], out_axes=[0, *of_matrix])(b), [0, *of_matrix]

  return batch


# Positive definite matrices


def _positive_apart(a, b):
  """[x, logdet, factor, info], differentiable, with each matrix factored once."""
  a = symmetrized(a)
  factor, info = cholesky_p(a, lower=True, symmetrize=False)
  x = factored_positive_solve_p(a, jax.lax.stop_gradient(factor), b, lower=True)
  logdet = 2 * jnp.sum(jnp.log(stored_diagonal(factor).real), axis=-1)
  return [nan_where(info != 0, x, core=2), logdet, factor, info]


def _without_factor(a, b):
  x, logdet, _, info = _positive_apart(a, b)
  return [x, logdet, info]


def _tangents(factor, x, da, db):
  # A dx = db - dA x, and d log det A = tr(A⁻¹ dA).
  da = symmetrized(da)
  solve = functools.partial(cholesky_solve_p, factor, lower=True)
  inverse = solve(identities_like(factor))
  return [
      solve(db - product(da, x)), jnp.sum((inverse.conj() * da).real, axis=(-2, -1))]


# The cotangent of A takes one pass over A⁻¹ for both results: t A⁻¹ - A⁻¹ x̄ xᴴ, with the
# cotangents x̄ of x and t of the logarithm.
positive_solve_logdet_jvp_p, positive_solve_logdet_vjp_p = linear_pair(
    ("linalg_positive_solve_logdet_jvp", "n n, n k, n n, n k -> n k, ()",
     lambda factor, x, da, db: (x, real_dtype(x))),
    ("linalg_positive_solve_logdet_vjp", "n n, n k, n k, () -> n n, n k", [0, 1]),
    _tangents,
    constants=2,
    argument=lambda factor, x: [factor, x],
    suits=within(POSITIVE_SOLVE_LOGDET_DERIVATIVE))


def _positive_tangents(factor, x, primals, tangents):
  da, db = tangents
  if da is None:
    return cholesky_solve_p(factor, db, lower=True), None
  return positive_solve_logdet_jvp_p(factor, x, *without_none(primals, tangents))


def _positive_jvp(primals, tangents):
  x, logdet, factor, info = positive_solve_logdet_factor_p(*primals)
  return (x, logdet, info), (*_positive_tangents(factor, x, primals, tangents), None)


def _positive_factor_jvp(primals, tangents):
  x, logdet, factor, info = positive_solve_logdet_factor_p(*primals)
  dx, dlogdet = _positive_tangents(factor, x, primals, tangents)
  da, _ = tangents
  moved = None if da is None else cholesky_jvp_p(factor, da, lower=True, symmetrize=True)
  return (x, logdet, factor, info), (dx, dlogdet, moved, None)


def _suits_positive(platform, a, b):
  return within(POSITIVE_SOLVE_LOGDET)(platform, a) and (
      b.shape[-1] <= MOST_COLUMNS_OF_POSITIVE_SOLVE[platform])


positive_solve_logdet_p: ffi.Operation = ffi.operation(
    "linalg_positive_solve_logdet",
    "n n, n k -> n k, (), ()",
    lambda a, b: (b, real_dtype(b), jnp.int32),
    jvp=_positive_jvp,
    fallback=_without_factor,
    suits=_suits_positive,
    batch=_batch_of(_without_factor, 3))

# The factor too, for derivatives.
positive_solve_logdet_factor_p: ffi.Operation = ffi.operation(
    "linalg_positive_solve_logdet_factor",
    "n n, n k -> n k, (), n n, ()",
    lambda a, b: (b, real_dtype(b), a, jnp.int32),
    jvp=_positive_factor_jvp,
    fallback=_positive_apart,
    suits=_suits_positive,
    batch=_batch_of(_positive_apart, 4))


# General matrices


def _factored_slogdet_jvp(primals, tangents):
  sign, logabsdet = factored_slogdet_p(*primals)
  da = tangents[0]
  if da is None:
    return (sign, logabsdet), (None, None)
  inverse = factored_solve_p(*primals, identities_like(primals[1]))
  return (sign, logabsdet), slogdet_tangents(sign, inverse.mT, da)


# The determinant of A from its LU factors, which are constants for derivatives.
factored_slogdet_p: ffi.Operation = ffi.operation(
    "linalg_factored_slogdet",
    "n n, n n, n -> (), ()",
    lambda a, packed, pivots: (a, real_dtype(a)),
    platforms=(),  # a primitive for its derivatives alone
    jvp=_factored_slogdet_jvp,
    fallback=lambda a, packed, pivots: list(lu_slogdet_p(packed, pivots)))


def _general_apart(a, b):
  """[x, sign, logabsdet, info], differentiable, with each matrix factored once."""
  packed, pivots, _, info = lu_p(jax.lax.stop_gradient(a))
  x = nan_where(info != 0, factored_solve_p(a, packed, pivots, b), core=2)
  return [x, *factored_slogdet_p(a, packed, pivots), info]


def _general_with_inverse(a, b):
  """[x, sign, logabsdet, A⁻ᵀ, info], differentiable, with each matrix factored once."""
  packed, pivots, _, info = lu_p(jax.lax.stop_gradient(a))
  solve = functools.partial(factored_solve_p, a, packed, pivots)
  x, inverse = (
      nan_where(info != 0, solve(rhs), core=2) for rhs in (b, identities_like(packed)))
  return [x, *factored_slogdet_p(a, packed, pivots), inverse.mT, info]


def _general_tangents(results, tangents):
  x, sign, _, xt, _ = results
  da, db = tangents
  solve = lambda rhs: product(xt, rhs, transpose_a=True)
  dx = solution_tangent(solve, da, db, lambda da: product(da, x))
  return dx, *((None, None) if da is None else slogdet_tangents(sign, xt, da))


def _general_jvp(primals, tangents):
  results = solve_slogdet_inv_transposed_p(*primals)
  x, sign, logabsdet, _, info = results
  return (x, sign, logabsdet, info), (*_general_tangents(results, tangents), None)


def _general_inverse_jvp(primals, tangents):
  results = solve_slogdet_inv_transposed_p(*primals)
  da, _ = tangents
  moved = None if da is None else inverse_tangent(results[3], da.mT)
  return results, (*_general_tangents(results, tangents), moved, None)


solve_slogdet_p: ffi.Operation = ffi.operation(
    "linalg_solve_slogdet",
    "n n, n k -> n k, (), (), ()",
    lambda a, b: (b, a, real_dtype(b), jnp.int32),
    jvp=_general_jvp,
    fallback=_general_apart,
    batch=_batch_of(_general_apart, 4))

# The transposed inverse too, for derivatives.
solve_slogdet_inv_transposed_p: ffi.Operation = ffi.operation(
    "linalg_solve_slogdet_inv_transposed",
    "n n, n k -> n k, (), (), n n, ()",
    lambda a, b: (b, a, real_dtype(b), a, jnp.int32),
    jvp=_general_inverse_jvp,
    fallback=_general_with_inverse,
    batch=_batch_of(_general_with_inverse, 5))


@public("assume_a")
def solve_logdet(a: ArrayLike, b: ArrayLike, *, assume_a: str = "gen") -> SolveLogdetResult:
  """Solves A x = b, and computes log |det A| from the same factorization.

  The logarithm of a Gaussian's density needs both. This is faster than `cholesky`, `cho_solve` and
  `cho_logdet`, and so is the gradient.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype. One without batch dimensions
      is factored once for the whole batch of `b`.
    b: a vector (n,), or matrices of right-hand sides (..., n, k).
    assume_a: 'gen', or 'pos' for Hermitian positive definite matrices. 'pos' uses the Hermitian
      part (A + Aᴴ) / 2, as `cholesky` does, so the gradient by A is Hermitian.

  Returns:
    SolveLogdetResult(x, sign, logabsdet, info): x has the broadcast batch shape of `a` and `b`. The
    others have the batch shape of `a`. det A = sign * exp(logabsdet), and sign is 1 with 'pos'.
    info, int32, is 0 on success. Otherwise it is for 'gen' the place of the first zero pivot, from
    1, or -1 if a pivot is NaN. For 'pos' it is the order of the first leading minor that is not
    positive.

  Where info is not 0, x is NaN for that matrix alone, and `checked` raises. A singular matrix has
  sign 0 and logabsdet -inf, as in `slogdet`. Both are NaN for a matrix that holds NaN, and with
  'pos' for one that is not positive definite. n = 0 has the determinant 1.

  x, sign and logabsdet are those of `solve` and `slogdet` up to rounding. float16 and bfloat16 are
  computed in float32, and the results rounded.

  Algorithm: LU with partial pivoting (`lu`), or Cholesky (`cholesky`) with 'pos', and substitution.
  The logarithm is that of the product of the pivots, whose exponent is kept apart. Derivatives:
  A dx = db - dA x and d log det A = tr(A⁻¹ dA), of any order. A handler computes
  both cotangents of a definite matrix in one pass, for n <= 48.

  Example:
    >>> import jax, jax.numpy as jnp, linalg
    >>> def log_density(k, y):  # of N(0, K) at y
    ...   x, _, logdet, _ = linalg.solve_logdet(k, y, assume_a="pos")
    ...   return -0.5 * (y @ x + logdet + y.size * jnp.log(2 * jnp.pi))
    >>> k = jnp.array([[4.0, 2.0], [2.0, 2.0]])
    >>> print(log_density(k, jnp.array([2.0, 1.0])).round(4))
    -3.031
    >>> print(jax.grad(log_density)(k, jnp.array([2.0, 1.0])))
    [[-0.125  0.25 ]
     [ 0.25  -0.5  ]]
  """
  name = "solve_logdet"
  (a, b), dtype = as_arrays(name, a, b)
  check_square(name, a)
  columns = b[..., None] if b.ndim == 1 else b
  check_columns(name, a, b, columns)
  if assume_a not in ("gen", "pos"):
    raise ValueError(f"Expected assume_a to be one of ['gen', 'pos']; got {assume_a!r}")
  ffi.refuse_sharded(name, a, columns)
  # A handler factors a matrix for each system. Operations apart factor each matrix once.
  batch = jnp.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
  together = batch == a.shape[:-2]
  if assume_a == "pos":
    solve = positive_solve_logdet_p if together else _without_factor
    x, logabsdet, info = solve(a, columns)
    check_positive(info)
    sign = nan_where(info != 0, zeros_like(logabsdet) + 1, core=0)
  else:
    solve = solve_slogdet_p if together else _general_apart
    x, sign, logabsdet, info = solve(a, columns)
    check_factors(info)
  return SolveLogdetResult(
      (x[..., 0] if b.ndim == 1 else x).astype(dtype), sign.astype(dtype),
      logabsdet.astype(real_dtype(dtype)), info)
