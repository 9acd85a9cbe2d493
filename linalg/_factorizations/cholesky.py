"""Cholesky factors of Hermitian positive definite matrices, and solves with them."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  hermitian_part,
  on_diagonal,
  solution_tangent,
  triangle,
)
from linalg._core.checks import check_positive
from linalg._core.linear_rules import linear_pair
from linalg._core.operands import as_arrays, as_columns, as_pair, check_square
from linalg._core.public import public
from linalg._core.tuning import CHOLESKY_DERIVATIVE, within
from linalg._factorizations.matmul import product
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["cho_factor", "cho_solve", "cholesky", "cholesky_ex"]


def _formula(l, da, solve, multiply):
  # dL = L Φ(L⁻¹ dA L⁻ᴴ), where Φ takes the lower triangle and halves the diagonal.
  # Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527, eq. 8.
  inner = solve(l, da, left_side=True, lower=True)
  inner = solve(l, inner, left_side=False, lower=True, transpose_a=True, conjugate_a=True)
  return multiply(l, jnp.where(on_diagonal(inner), inner / 2, jnp.tril(inner)))


def _tangent(factor, da, *, lower, symmetrize):
  da = hermitian_part(da, lower=lower, symmetrize=symmetrize)
  dl = _formula(factor if lower else adjoint(factor), da, triangular_solve_p, product)
  return [dl if lower else adjoint(dl)]


cholesky_jvp_p, cholesky_vjp_p = linear_pair(
    ("linalg_cholesky_jvp", "n n, n n -> n n", [0]),
    ("linalg_cholesky_vjp", "n n, n n -> n n", [0]),
    _tangent,
    constants=1,
    argument=lambda factor: factor,
    attributes={"lower": True, "symmetrize": True},
    suits=within(CHOLESKY_DERIVATIVE))


def _full_tangent(l, da):
  multiply = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
  return [_formula(jnp.tril(l), da, jax.lax.linalg.triangular_solve, multiply)]


def _lower_tangent(l, da, *, lower, symmetrize):
  return _full_tangent(l, hermitian_part(da, lower=lower, symmetrize=symmetrize))


# JAX's own rules for `accelerate`, from the triangle of L alone. One reads all of dA, which need
# not be Hermitian. The other reads its lower triangle. Exported programs use JAX's operations.
_of_jax = functools.partial(
    linear_pair, constants=1, argument=lambda factor: factor, suits=within(CHOLESKY_DERIVATIVE),
    exported=False)
cholesky_full_jvp_p, cholesky_full_vjp_p = _of_jax(
    ("linalg_cholesky_full_jvp", "n n, n n -> n n", [0]),
    ("linalg_cholesky_full_vjp", "n n, n n -> n n", [0]),
    _full_tangent)
cholesky_lower_jvp_p, cholesky_lower_vjp_p = _of_jax(
    ("linalg_cholesky_jvp", "n n, n n -> n n", [0]),
    ("linalg_cholesky_vjp", "n n, n n -> n n", [0]),
    _lower_tangent,
    attributes={"lower": True, "symmetrize": False})


def _cholesky_jvp(primals, tangents, **attributes):
  (a,), (da,) = primals, tangents
  factor, info = cholesky_p(a, **attributes)
  return (factor, info), (cholesky_jvp_p(factor, da, **attributes), None)


def _cholesky_fallback(a, *, lower, symmetrize):
  factor = jax.lax.linalg.cholesky(
      hermitian_part(a, lower=lower, symmetrize=symmetrize), symmetrize_input=False)
  failed = jnp.isnan(diagonal_of(factor)).any(-1)
  return [factor if lower else adjoint(factor), failed.astype(jnp.int32)]


cholesky_p = ffi.operation(
    "linalg_cholesky",
    "n n -> n n, ()",
    [0, jnp.int32],
    attributes={"lower": True, "symmetrize": True},
    in_place=(0, 0),
    jvp=_cholesky_jvp,
    fallback=_cholesky_fallback)


def _cholesky_solve_jvp(primals, tangents, *, lower):
  # A dx = db - dA x, where dA = dL Lᴴ + L dLᴴ (dUᴴ U + Uᴴ dU with an upper factor).
  factor, b = primals
  dfactor, db = tangents
  solve = functools.partial(cholesky_solve_p, factor, lower=lower)
  x = solve(b)

  def multiply(dfactor):
    to_l = (lambda f: triangle(f, lower=True)) if lower else (
        lambda f: adjoint(triangle(f, lower=False)))
    l, dl = to_l(factor), to_l(dfactor)
    return product(dl, product(l, x, adjoint_a=True)) + product(l, product(dl, x, adjoint_a=True))

  return x, solution_tangent(solve, dfactor, db, multiply)


def _cholesky_solve_transpose(cotangents, operands, *, lower):
  # A is Hermitian, so its transpose is its conjugate.
  factor, _ = operands
  (ct,) = cotangents
  return None, cholesky_solve_p(factor, ct.conj(), lower=lower).conj()


def _cholesky_solve_fallback(factor, b, *, lower):
  factor = jnp.broadcast_to(factor, (*b.shape[:-2], *factor.shape[-2:]))
  return [jax.scipy.linalg.cho_solve((factor, lower), b)]


cholesky_solve_p = ffi.operation(
    "linalg_cholesky_solve",
    "n n, n k -> n k",
    [1],
    attributes={"lower": True},
    shared=[0],
    in_place=(1, 0),
    jvp=_cholesky_solve_jvp,
    transpose=_cholesky_solve_transpose,
    fallback=_cholesky_solve_fallback)


def _factor(name, a, upper, symmetrize_input, overwrite=False):
  (a,), dtype = as_arrays(name, a)
  check_square(name, a)
  factor, info = cholesky_p(
      a, lower=not upper, symmetrize=symmetrize_input, overwrite=overwrite)
  return factor.astype(dtype), info


def _checked_factor(name, a, upper, symmetrize_input, overwrite=False):
  factor, info = _factor(name, a, upper, symmetrize_input, overwrite)
  check_positive(info)
  return factor


@public("upper", "symmetrize_input")
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> jax.Array:
  """The Cholesky factor of Hermitian positive definite matrices: A = L Lᴴ, or A = Uᴴ U.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.
    upper: whether to return U rather than L.
    symmetrize_input: if true, (A + Aᴴ) / 2 is factored. If false, only the triangle of A that the
      factor occupies is read, and the imaginary part of the diagonal is ignored.

  Returns:
    The factor (..., n, n), zero in the other triangle. Where A is not positive definite, that
    matrix's factor is NaN; see `cholesky_ex` and `checked`. Infinity on the diagonal counts as
    positive: the factor's column is 0 below it, as in LAPACK.

  float16 and bfloat16 are factored in float32, and the factor is rounded.

  Algorithm: left-looking, one small matrix per lane. Larger matrices are factored by rows of tiles,
  then right-looking by blocks of rows, and the largest by several threads. Derivative: Murray,
  arXiv:1602.07527.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]])))
    [[2. 0.]
     [1. 1.]]
    >>> linalg.cholesky(jnp.broadcast_to(jnp.eye(3), (10, 3, 3))).shape
    (10, 3, 3)
  """
  return _checked_factor("cholesky", a, upper, symmetrize_input)


@public("upper", "symmetrize_input")
def cholesky_ex(
    a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True
) -> tuple[jax.Array, jax.Array]:
  """`cholesky`, with an info for each matrix.

  Args:
    a, upper, symmetrize_input: as for `cholesky`.

  Returns:
    (factor, info). info, int32 of shape (...), is 0 where the matrix was factored. Otherwise it is
    the order of the first leading minor that is not positive, and that matrix's factor is NaN.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), -jnp.eye(2)])
    >>> factor, info = linalg.cholesky_ex(a)
    >>> print(info)  # the leading minor of order 1 of the second is not positive
    [0 1]
    >>> print(jnp.isnan(factor).any((-2, -1)))
    [False  True]
  """
  return _factor("cholesky_ex", a, upper, symmetrize_input)


@functools.partial(jax.jit, static_argnames=("lower", "overwrite"))
def _cho_factor(a, lower, overwrite):
  return _checked_factor("cho_factor", a, not lower, symmetrize_input=False, overwrite=overwrite)


@public("lower", "overwrite_a", "check_finite", compiled=False, lists=True)
def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[jax.Array, bool]:
  """The Cholesky factor for `cho_solve`; `jax.scipy.linalg.cho_factor`.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype. Only the named triangle is
      read.
    lower: whether that is the lower one.
    overwrite_a: lets the factor take the memory of `a`; see "In place" in docs/handlers.md.
    check_finite: unused.

  Returns:
    (factor, lower): the factor (..., n, n), zero in the other triangle, and `lower`. The factor is
    NaN where the matrix is not positive definite.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> factor = linalg.cho_factor(jnp.array([[4.0, 2.0], [2.0, 2.0]]), lower=True)
    >>> print(factor[0])
    [[2. 0.]
     [1. 1.]]
    >>> print(linalg.cho_solve(factor, jnp.array([8.0, 6.0])))
    [1. 2.]
  """
  del check_finite
  return _cho_factor(a, lower, bool(overwrite_a)), lower


@functools.partial(jax.jit, static_argnames=("lower", "overwrite"))
def _cho_solve(c, b, lower, overwrite):
  (c, b), dtype = as_arrays("cho_solve", c, b)
  check_square("cho_solve", c, "factor")
  columns, vector = as_columns("cho_solve", c, b)
  x = cholesky_solve_p(c, columns, lower=lower, overwrite=overwrite)
  return (x[..., 0] if vector else x).astype(dtype)


@public("overwrite_b", "check_finite", compiled=False, lists=True)
def cho_solve(
    c_and_lower: tuple[ArrayLike, bool],
    b: ArrayLike,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> jax.Array:
  """Solves A x = b with A's Cholesky factor; `jax.scipy.linalg.cho_solve`.

  Args:
    c_and_lower: the result of `cho_factor`. A factor without batch dimensions serves the whole
      batch of `b` without being copied.
    b: a vector (n,), or matrices of right-hand sides (..., n, k).
    overwrite_b: lets x take the memory of `b`; see "In place" in docs/handlers.md.
    check_finite: unused.

  Returns:
    x, with the broadcast batch shape and the common dtype of the factor and `b`. A factor that
    failed gives NaN. A factor with a zero on its diagonal gives infinities and NaN. Other systems
    of the batch are not affected.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> factor = linalg.cho_factor(jnp.diag(jnp.array([2.0, 4.0])))
    >>> linalg.cho_solve(factor, jnp.ones((1000, 2, 3))).shape  # one factor, 1000 systems
    (1000, 2, 3)
    >>> print(linalg.cho_solve(factor, jnp.ones(2)).round(6))
    [0.5  0.25]
  """
  del check_finite
  c, lower = as_pair(
      "cho_solve", "c_and_lower", "the two values that cho_factor returns", c_and_lower, flag=True)
  return _cho_solve(c, b, bool(lower), bool(overwrite_b))
