"""Tridiagonal systems."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import info_of_nan, solution_tangent, without_none
from linalg._core.checks import check_factors
from linalg._core.operands import VECTORS, as_arrays, incompatible
from linalg._core.public import public

__all__ = ["tridiagonal_solve", "tridiagonal_solve_ex"]


def _shifted(x, by):
  """`x` shifted along its last dimension, filled with zeros: (…, 0, x₀, x₁) for by=1."""
  n = x.shape[-1]
  moved = jnp.pad(x, ((0, 0),) * (x.ndim - 1) + ((max(by, 0), max(-by, 0)),))
  return moved[..., max(-by, 0) : max(-by, 0) + n]


def _multiply(diagonals, x):
  """A x"""
  dl, d, du = diagonals
  below = _shifted(x.mT, 1).mT
  above = _shifted(x.mT, -1).mT
  return dl[..., None] * below + d[..., None] * x + du[..., None] * above


def _jvp(primals, tangents, **attributes):
  # A dx = db - dA x
  *matrix, b = primals
  *moved, db = tangents
  solve = functools.partial(tridiagonal_solve_p, *matrix, **attributes)
  x, info = solve(b)
  da = without_none(matrix, moved) if any(t is not None for t in moved) else None
  dx, _ = solution_tangent(solve, da, db, lambda da: _multiply(da, x))
  return (x, info), (dx, None)


def _transpose(cotangents, operands, **attributes):
  # Aᵀ swaps the outer diagonals.
  dl, d, du, _ = operands
  x, _ = tridiagonal_solve_p(
      _shifted(du, 1), d, _shifted(dl, -1), cotangents[0], **attributes)
  return None, None, None, x


def _fallback(dl, d, du, b, *, perturb_singular):
  x = jax.lax.linalg.tridiagonal_solve(
      dl, d, du, b, **({"perturb_singular": True} if perturb_singular else {}))
  return [x, info_of_nan(x, 2)]


tridiagonal_solve_p = ffi.operation(
    "linalg_tridiagonal_solve",
    "n, n, n, n k -> n k, ()",
    [3, jnp.int32],
    attributes={"perturb_singular": False},
    jvp=_jvp,
    transpose=_transpose,
    fallback=_fallback)


def _solve(name, dl, d, du, b, perturb_singular):
  (dl, d, du, b), dtype = as_arrays(name, dl, d, du, b)
  diagonals = (dl, d, du)
  vector = b.ndim == 1
  columns = b[..., None] if vector else b
  if any(x.ndim < 1 for x in diagonals) or columns.ndim < 2 or any(
      x.shape[-1] != columns.shape[-2] for x in diagonals):
    error = incompatible(name, dl, d, du, b, names=("dl", "d", "du", "b"))
    if b.ndim > 1 and b.shape == d.shape:
      error = ValueError(f"{error}. {VECTORS}")
    raise error
  x, info = tridiagonal_solve_p(*diagonals, columns, perturb_singular=perturb_singular)
  return (x[..., 0] if vector else x).astype(dtype), info


@public("perturb_singular")
def tridiagonal_solve(
    dl: ArrayLike,
    d: ArrayLike,
    du: ArrayLike,
    b: ArrayLike,
    *,
    perturb_singular: bool = False,
) -> jax.Array:
  """Solves A x = b with a tridiagonal A; `jax.lax.linalg.tridiagonal_solve`.

  Args:
    dl: the lower diagonals (..., n): dl[i] is A[i, i - 1]; dl[0] is not read.
    d: the diagonals (..., n).
    du: the upper diagonals (..., n): du[i] is A[i, i + 1]; du[n - 1] is not read.
    b: a vector (n,), or matrices of right-hand sides (..., n, k).
    perturb_singular: whether pivots below eps max |U| are replaced by that value, for inverse
      iteration. A few long systems on a GPU have pivots of scaled rows, which are raised to eps.
      Derivatives are those of the original system.

  Returns:
    x, with the broadcast batch shape of all operands. Where A is exactly singular or holds NaN, x
    is NaN; see `tridiagonal_solve_ex` and `checked`.

  float16 and bfloat16 are solved in float32, and x rounded.

  Algorithm: elimination with partial pivoting, as LAPACK's gtsv. A few long systems on a GPU are
  reduced by rotations (Wright, Stable parallel algorithms for two-point boundary value problems,
  1992). Rotations find a singular system only where a pivot is within rounding of zero.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> one = jnp.ones(4)
    >>> b = jnp.array([5.0, 6.0, 6.0, 5.0])
    >>> print(linalg.tridiagonal_solve(one, 4 * one, one, b).round(4))
    [1. 1. 1. 1.]
    >>> linalg.tridiagonal_solve(one, 4 * one, one, jnp.ones((1000, 4, 2))).shape
    (1000, 4, 2)
  """
  x, info = _solve("tridiagonal_solve", dl, d, du, b, perturb_singular)
  check_factors(info)
  return x


@public("perturb_singular")
def tridiagonal_solve_ex(
    dl: ArrayLike,
    d: ArrayLike,
    du: ArrayLike,
    b: ArrayLike,
    *,
    perturb_singular: bool = False,
) -> tuple[jax.Array, jax.Array]:
  """`tridiagonal_solve`, with an info for each matrix.

  Args:
    dl, d, du, b, perturb_singular: as for `tridiagonal_solve`.

  Returns:
    (x, info). info, int32 of shape (...), is 0, the 1-based index of the first zero pivot, or -1
    where a pivot is NaN.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> zero, d = jnp.zeros(3), jnp.array([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    >>> x, info = linalg.tridiagonal_solve_ex(zero, d, zero, jnp.ones(3))
    >>> print(info)  # the second pivot of the second system is 0
    [0 2]
  """
  return _solve("tridiagonal_solve_ex", dl, d, du, b, perturb_singular)
