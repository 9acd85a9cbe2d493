"""LU factors with partial pivoting, and solves with them."""

import functools

import jax
import jax.core
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import expand, identity, info_of_nan, minus, permutation_matrix
from linalg._core.checks import check_factors
from linalg._core.operands import (
  as_arrays,
  as_columns,
  as_pair,
  check_arrays,
  check_batches,
  check_matrix,
  check_square,
  incompatible,
)
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.triangular import parse_trans, triangular_solve_p

__all__ = ["lu", "lu_ex", "lu_factor", "lu_pivots_to_permutation", "lu_solve"]


def _square_factors(packed):
  """L (m, m) and U (n, n) of packed factors (..., m, n), extended by the identity."""
  rows, cols = packed.shape[-2:]
  l, u = jnp.tril(packed, -1), jnp.triu(packed)
  if rows != cols:
    lead = [(0, 0)] * (packed.ndim - 2)
    k = jax.core.min_dim(rows, cols)
    l = jnp.pad(l[..., :k], [*lead, (0, 0), (0, rows - k)])
    u = jnp.pad(u[..., :k, :], [*lead, (0, cols - k), (0, 0)])
    u = u + expand(jnp.diag((jnp.arange(cols) >= k).astype(packed.dtype)), u)
  return l + identity(l), u


def _lu_jvp(primals, tangents):
  # P dA = dL U + L dU gives L⁻¹ P dA U⁻¹ = L⁻¹ dL + dU U⁻¹, the sum of a strictly lower and an
  # upper triangle. De Hoog, Anderssen and Lukas, Differentiation of matrix functionals using
  # triangular factorization, Math. Comp. 80 (2011). Rectangular factors are made square with the
  # identity.
  (a,), (da,) = primals, tangents
  packed, pivots, permutation, info = lu_p(a)
  l, u = _square_factors(packed)
  permuted = product(permutation_matrix(permutation, da.dtype), da)
  inner = triangular_solve_p(l, permuted, left_side=True, lower=True, unit_diagonal=True)
  inner = triangular_solve_p(u, inner, left_side=False, lower=False)
  dpacked = product(l, jnp.tril(inner, -1)) + product(jnp.triu(inner), u)
  return (packed, pivots, permutation, info), (dpacked, None, None, None)


def _lu_fallback(a):
  packed, pivots, permutation = jax.lax.linalg.lu(a)
  zero = jnp.diagonal(packed, axis1=-2, axis2=-1) == 0
  info = info_of_nan(packed, 2)
  if a.size:
    info = jnp.where((info == 0) & zero.any(-1), zero.argmax(-1).astype(jnp.int32) + 1, info)
  return [packed, pivots, permutation, info]


lu_p = ffi.operation(
    "linalg_lu",
    "m n -> m n, min(m,n), m, ()",
    [0, jnp.int32, jnp.int32, jnp.int32],
    in_place=(0, 0),
    jvp=_lu_jvp,
    fallback=_lu_fallback)

lu_pivots_to_permutation_p: ffi.Operation = ffi.operation(
    "linalg_lu_pivots_to_permutation",
    "k -> permutation_size",
    [jnp.int32],
    attributes={"permutation_size": 0},
    jvp=lambda primals, tangents, **size: (lu_pivots_to_permutation_p(*primals, **size), None),
    fallback=lambda pivots, permutation_size: [
        jax.lax.linalg.lu_pivots_to_permutation(pivots, permutation_size)])

# The keys are a permutation, and the values go to the places that it names: O(n), where XLA sorts.
# JAX's own derivatives of solves invert permutations with such a sort; `accelerate` routes it.
inverse_permutation_p = ffi.operation(
    "linalg_inverse_permutation",
    "n, n -> n, n",
    [jnp.int32, jnp.int32],
    platforms=["cpu"],
    fallback=jax.lax.sort_key_val)


def _lu_solve_jvp(primals, tangents, *, transpose, conjugate):
  # op(A) dx = db - op(dA) x with A = Pᵀ L U and dA = Pᵀ (dL U + L dU). It is arranged so that only
  # P, never Pᵀ, is applied to rows.
  packed, pivots, b = primals
  dpacked, _, db = tangents
  solve = functools.partial(lu_solve_p, packed, pivots, transpose=transpose, conjugate=conjugate)
  x = solve(b)
  if dpacked is None:
    return x, solve(db)
  op = lambda f: f.conj() if conjugate else f
  l, u = map(op, _square_factors(packed))
  dl, du = op(jnp.tril(dpacked, -1)), op(jnp.triu(dpacked))
  if transpose:
    n = packed.shape[-1]
    permutation = lu_pivots_to_permutation_p(pivots, permutation_size=n)
    # P is a matrix, so that one P for the whole batch need not be broadcast.
    y = product(permutation_matrix(permutation, x.dtype), x)
    change = solve(
        product(u, product(dl, y, transpose_a=True), transpose_a=True)
        + product(du, product(l, y, transpose_a=True), transpose_a=True))
  else:
    inner = functools.partial(triangular_solve_p, packed, left_side=True, conjugate_a=conjugate)
    change = inner(product(dl, product(u, x)), lower=True, unit_diagonal=True) + product(du, x)
    change = inner(change, lower=False)
  return x, minus(None if db is None else solve(db), change)


def _lu_solve_transpose(cotangents, operands, *, transpose, conjugate):
  packed, pivots, _ = operands
  (ct,) = cotangents
  return None, None, lu_solve_p(packed, pivots, ct, transpose=not transpose, conjugate=conjugate)


def _lu_solve_fallback(packed, pivots, b, *, transpose, conjugate):
  packed, b = (packed, b.conj()) if conjugate and not transpose else (packed, b)
  trans = 0 if not transpose else 2 if conjugate else 1
  packed = jnp.broadcast_to(packed, (*b.shape[:-2], *packed.shape[-2:]))
  pivots = jnp.broadcast_to(pivots, (*b.shape[:-2], *pivots.shape[-1:]))
  x = jax.scipy.linalg.lu_solve((packed, pivots), b, trans=trans)
  return [x.conj() if conjugate and not transpose else x]


lu_solve_p = ffi.operation(
    "linalg_lu_solve",
    "n n, n, n k -> n k",
    [2],
    attributes={"transpose": False, "conjugate": False},
    shared=[0, 1],
    in_place=(2, 0),
    jvp=_lu_solve_jvp,
    transpose=_lu_solve_transpose,
    fallback=_lu_solve_fallback)


def check_square_factors(name: str, packed: jax.Array, pivots: jax.Array) -> None:
  """Raises ValueError for arrays that cannot be LU factors of square matrices.

  Raises TypeError for pivots that are not integers.
  """
  check_square(name, packed, "factors")
  if not jnp.issubdtype(pivots.dtype, jnp.integer):
    raise TypeError(f"Pivots for {name}() must be integers, got {pivots.dtype}")
  names = ("factors", "pivots")
  if packed.shape[-1:] != pivots.shape[-1:]:
    raise incompatible(name, packed, pivots, names=names)
  check_batches(name, packed, pivots, ranks=(2, 1), names=names)


def _factor(name, a, overwrite=False):
  (a,), dtype = as_arrays(name, a)
  check_matrix(name, a)
  packed, pivots, permutation, info = lu_p(a, overwrite=overwrite)
  return packed.astype(dtype), pivots, permutation, info


@public()
def lu(a: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
  """LU factors with partial pivoting, P A = L U; `jax.lax.linalg.lu`.

  Args:
    a: matrices (..., m, n) of any floating, complex or integer dtype.

  Returns:
    (lu, pivots, permutation):

    - lu (..., m, n): U in the upper triangle, L below it without its unit diagonal.
    - pivots, int32 (..., min(m, n)): step i exchanged the rows i and pivots[i], counted from 0.
    - permutation, int32 (..., m): the same exchanges as a permutation, A[permutation] = L U.

    A singular matrix has a zero on U's diagonal; it is not a failure.

  float16 and bfloat16 are factored in float32, and the factors rounded.

  Algorithm: that of LAPACK getrf. Small matrices are factored one per lane, larger ones in tiles,
  and large ones by several threads. Derivative: De Hoog, Anderssen and Lukas (2011).

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> packed, pivots, permutation = linalg.lu(jnp.array([[1.0, 3.0], [2.0, 4.0]]))
    >>> print(packed)
    [[2.  4. ]
     [0.5 1. ]]
    >>> print(pivots, permutation)
    [1 1] [1 0]
  """
  packed, pivots, permutation, _ = _factor("lu", a)
  return packed, pivots, permutation


@public()
def lu_ex(a: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """`lu`, with the index of a zero pivot.

  Args:
    a: as for `lu`.

  Returns:
    (lu, pivots, permutation, info). info, int32 of shape (...), is 0 if all pivots are nonzero. For
    a singular matrix it is the 1-based index of the first zero pivot. It is -1 where the factors
    hold NaN.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), jnp.ones((2, 2))])
    >>> *factors, info = linalg.lu_ex(a)
    >>> print(info)
    [0 2]
  """
  return _factor("lu_ex", a)


@public("permutation_size", compiled=False)
def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> jax.Array:
  """The permutation that a sequence of row exchanges makes.

  Args:
    pivots: int32 (..., k): step i exchanges the rows i and pivots[i], counted from 0. A pivot
      outside the permutation exchanges nothing.
    permutation_size: the length m >= k of the permutation.

  Returns:
    int32 (..., m).

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.lu_pivots_to_permutation(jnp.array([2, 2]), 3))
    [2 0 1]
  """
  check_arrays("lu_pivots_to_permutation", pivots)
  return _lu_pivots_to_permutation(pivots, permutation_size)


@functools.partial(jax.jit, static_argnames="permutation_size")
def _lu_pivots_to_permutation(pivots, permutation_size):
  if pivots.ndim < 1 or not jnp.issubdtype(pivots.dtype, jnp.integer):
    raise ValueError(
        "Argument pivots to lu_pivots_to_permutation() must be integers of shape [..., k], got "
        f"{pivots.dtype} of shape {pivots.shape}")
  if not permutation_size >= pivots.shape[-1]:
    raise ValueError(
        "lu_pivots_to_permutation: permutation_size must be at least the number of pivots, "
        f"{pivots.shape[-1]}, got {permutation_size}.")
  return lu_pivots_to_permutation_p(
      pivots.astype(jnp.int32), permutation_size=permutation_size)


@functools.partial(jax.jit, static_argnames="overwrite")
def _lu_factor(a, overwrite):
  packed, pivots, _, info = _factor("lu_factor", a, overwrite)
  check_factors(info)
  return packed, pivots


@public("overwrite_a", "check_finite", compiled=False, lists=True)
def lu_factor(
    a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[jax.Array, jax.Array]:
  """LU factors for `lu_solve`; `jax.scipy.linalg.lu_factor`.

  Args:
    a: matrices (..., m, n) of any floating, complex or integer dtype, as for `lu`.
    overwrite_a: lets the factors take the memory of `a`; see "In place" in docs/handlers.md.
    check_finite: unused.

  Returns:
    (lu, pivots), as from `lu`. A singular matrix has a zero on U's diagonal, and solutions with it
    are not finite; see `checked`.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> factors = linalg.lu_factor(jnp.array([[1.0, 3.0], [2.0, 4.0]]))
    >>> print(linalg.lu_solve(factors, jnp.array([4.0, 6.0])))
    [1. 1.]
  """
  del check_finite
  return _lu_factor(a, bool(overwrite_a))


@functools.partial(jax.jit, static_argnames=("trans", "overwrite"))
def _lu_solve(packed, pivots, b, trans, overwrite):
  (packed, b), dtype = as_arrays("lu_solve", packed, b)
  check_square_factors("lu_solve", packed, pivots)
  columns, vector = as_columns("lu_solve", packed, b)
  if trans not in (0, 1, 2):
    raise ValueError(f"lu_solve: trans must be 0, 1 or 2, got {trans!r}.")
  transpose, conjugate = parse_trans("lu_solve", trans)
  x = lu_solve_p(
      packed, pivots.astype(jnp.int32), columns, transpose=transpose, conjugate=conjugate,
      overwrite=overwrite)
  return (x[..., 0] if vector else x).astype(dtype)


@public("trans", "overwrite_b", "check_finite", compiled=False, lists=True)
def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> jax.Array:
  """Solves A x = b with A's LU factors; `jax.scipy.linalg.lu_solve`.

  Args:
    lu_and_piv: the result of `lu_factor` for square matrices. Factors without batch dimensions
      serve the whole batch of `b` without being copied.
    b: a vector (n,), or matrices of right-hand sides (..., n, k).
    trans: the system: 0 for A x = b, 1 for Aᵀ x = b, 2 for Aᴴ x = b.
    overwrite_b: lets x take the memory of `b`; see "In place" in docs/handlers.md.
    check_finite: unused.

  Returns:
    x, with the broadcast batch shape and the common dtype of the factors and `b`. Singular factors
    give infinities and NaN in their own system alone.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> factors = linalg.lu_factor(jnp.array([[1.0, 3.0], [2.0, 4.0]]))
    >>> print(linalg.lu_solve(factors, jnp.array([3.0, 7.0]), trans=1))  # Aᵀ x = b
    [1. 1.]
    >>> linalg.lu_solve(factors, jnp.ones((1000, 2, 3))).shape  # one matrix, 1000 systems
    (1000, 2, 3)
  """
  del check_finite
  packed, pivots = as_pair(
      "lu_solve", "lu_and_piv", "the two values that lu_factor returns", lu_and_piv)
  return _lu_solve(packed, pivots, b, trans, bool(overwrite_b))
