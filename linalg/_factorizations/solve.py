"""Linear systems and inverses, from LU factors."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import hermitian_part, nan_where, solution_tangent, triangle
from linalg._core.checks import check_factors, check_positive
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, check_columns, check_square
from linalg._core.public import public
from linalg._factorizations.lu import lu_p, lu_solve_p
from linalg._factorizations.matmul import product
from linalg._factorizations.positive_solve import positive_solve

__all__ = ["inv", "inv_ex", "solve", "solve_ex"]


def _multiply(a, x, *, transpose, conjugate):
  """op(A) x"""
  a = a.mT if transpose else a
  return product(a.conj() if conjugate else a, x)


def _factored_solve_transpose(cotangents, operands, *, transpose, conjugate):
  a, packed, pivots, _ = operands
  (ct,) = cotangents
  x = factored_solve_p(a, packed, pivots, ct, transpose=not transpose, conjugate=conjugate)
  return None, None, None, x


# A⁻¹ b, given A's LU factors.
factored_solve_p = given_factors(
    "factored_solve",
    "n n, n n, n, n k -> n k",
    [3],
    lu_solve_p,
    attributes=lu_solve_p.attributes,
    shared=[0, 1, 2],
    multiply=_multiply,
    transpose=_factored_solve_transpose)


def _factor(a):
  """The factors (packed, pivots, info), and a function that solves with them.

  The factors are constants for derivatives. The function is differentiated by A.
  """
  packed, pivots, _, info = lu_p(jax.lax.stop_gradient(a))
  return (packed, pivots, info), functools.partial(factored_solve_p, a, packed, pivots)


def _nan_where_failed(info, x):
  # Substitution would leave finite those entries of x that do not meet a NaN among the factors.
  return nan_where(info != 0, x, core=2)


def _factor_and_solve(a, b):
  """x, info, and a function that solves with the same factors."""
  (_, _, info), solve = _factor(a)
  return _nan_where_failed(info, solve(b)), info, solve


def _tangent(solve, x, tangents):
  da, db = tangents
  return solution_tangent(solve, da, db, lambda da: product(da, x))


def _solve_lu_jvp(primals, tangents):
  x, packed, pivots, info = solve_lu_p(*primals)
  solve = functools.partial(factored_solve_p, primals[0], packed, pivots)
  # The factors are constants to `solve`, which is differentiated by A.
  return (x, packed, pivots, info), (_tangent(solve, x, tangents), None, None, None)


def _solve_lu_in_steps(a, b):
  (packed, pivots, info), solve = _factor(a)
  return [_nan_where_failed(info, solve(b)), packed, pivots, info]


def _solve_lu_batch(operands, dims):
  a, b = operands
  if dims[0] is not None:
    return None
  # A single matrix for the whole batch is factored once.
  factors, solve = _factor(a)
  x = jax.vmap(lambda b: _nan_where_failed(factors[-1], solve(b)), in_axes=dims[1])(b)
  return [x, *factors], [0, None, None, None]


# x, and the factors that its derivatives use. The factors' own derivatives must not be asked for.
solve_lu_p: ffi.Operation = ffi.operation(
    "linalg_solve_lu",
    "n n, n k -> n k, n n, n, ()",
    [1, 0, jnp.int32, jnp.int32],
    jvp=_solve_lu_jvp,
    fallback=_solve_lu_in_steps,
    batch=_solve_lu_batch)


def _solve_jvp(primals, tangents):
  a, b = primals
  if a.shape[:-2] == b.shape[:-2]:
    (x, _, _, info), (dx, *_) = _solve_lu_jvp(primals, tangents)
    return (x, info), (dx, None)
  x, info, solve = _factor_and_solve(a, b)
  return (x, _info_of_solutions(x, info)), (_tangent(solve, x, tangents), None)


def _info_of_solutions(x, info):
  """The info of each solution, where one matrix may have served several solutions."""
  info, _ = ffi.broadcast_batches("solve", (info, x), (0, 2))
  return info


def _solve_transpose(cotangents, operands):
  a, _ = operands
  _, solve = _factor(a)
  return None, solve(cotangents[0], transpose=True)


def _solve_in_steps(a, b):
  x, info, _ = _factor_and_solve(a, b)
  return [x, _info_of_solutions(x, info)]


solve_p = ffi.operation(
    "linalg_solve",
    "n n, n k -> n k, ()",
    [1, jnp.int32],
    shared=[0],
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    fallback=_solve_in_steps,
    unshared=_solve_in_steps)


def _columns(name, a, b):
  check_square(name, a, "a")
  columns = b[..., None] if b.ndim == 1 else b
  check_columns(name, a, b, columns)
  return columns


def _solve_general(a, columns):
  if a.shape[:-2] == columns.shape[:-2]:
    return solve_p(a, columns)
  # Each matrix is factored once, and info has their batch shape.
  x, info, _ = _factor_and_solve(a, columns)
  return x, info


def _solve(name, a, b, assume_a, lower):
  (a, b), dtype = as_arrays(name, a, b)
  columns = _columns(name, a, b)
  if assume_a not in ("gen", "sym", "her", "pos"):
    raise ValueError(
        f"{name}: assume_a must be 'gen', 'sym', 'her' or 'pos', got {assume_a!r}.")
  if assume_a == "sym":
    strict = triangle(a, lower=lower, unit_diagonal=True)
    a = triangle(a, lower=lower) + strict.mT
  elif assume_a != "gen":
    a = hermitian_part(a, lower=lower, symmetrize=False)
  x, info = (positive_solve if assume_a == "pos" else _solve_general)(a, columns)
  return (x[..., 0] if b.ndim == 1 else x).astype(dtype), info


@public("assume_a", "lower")
def solve(
    a: ArrayLike, b: ArrayLike, *, assume_a: str = "gen", lower: bool = False
) -> jax.Array:
  """Solves A x = b; `jax.numpy.linalg.solve`, with the options of `jax.scipy.linalg.solve`.

  Args:
    a: matrices (..., n, n). One without batch dimensions is factored once for the whole batch of
      `b`.
    b: a vector (n,), or matrices of right-hand sides (..., n, k).
    assume_a: 'gen'; or 'sym', 'her' or 'pos' for symmetric, Hermitian or Hermitian positive
      definite matrices. Only one triangle of these is read.
    lower: whether that is the lower one.

  Returns:
    x, with the broadcast batch shape of `a` and `b`. x is NaN where A is exactly singular, holds
    NaN, or is not positive definite with 'pos'; see `solve_ex` and `checked`.

  float16 and bfloat16 are solved in float32, and x rounded.

  Algorithm: LU with partial pivoting (`lu`), or Cholesky (`cholesky`) with 'pos', and substitution.
  A derivative reuses the factors.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[4.0, 2.0], [2.0, 2.0]])
    >>> print(linalg.solve(a, jnp.array([8.0, 6.0])))
    [1. 2.]
    >>> linalg.solve(a, jnp.ones((1000, 2, 3)), assume_a="pos").shape  # factored once
    (1000, 2, 3)
  """
  x, info = _solve("solve", a, b, assume_a, lower)
  (check_positive if assume_a == "pos" else check_factors)(info)
  return x


@public("assume_a", "lower")
def solve_ex(
    a: ArrayLike, b: ArrayLike, *, assume_a: str = "gen", lower: bool = False
) -> tuple[jax.Array, jax.Array]:
  """`solve`, with an info for each matrix.

  Args:
    a, b, assume_a, lower: as for `solve`.

  Returns:
    (x, info). info, int32 of the batch shape of `a`, is 0 on success. It is the 1-based index of
    the first zero pivot of a singular matrix, or -1 where the LU factors hold NaN. For
    assume_a='pos', it is that of `cholesky_ex`.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), jnp.ones((2, 2))])
    >>> x, info = linalg.solve_ex(a, jnp.ones(2))
    >>> print(info)
    [0 2]
    >>> print(x)
    [[ 1.  1.]
     [nan nan]]
  """
  return _solve("solve_ex", a, b, assume_a, lower)


def inverse_tangent(x, da):
  """dX = -X dA X of the inverse X of A."""
  return -product(product(x, da), x)


def _inv_jvp(primals, tangents):
  (a,), (da,) = primals, tangents
  x, info = inv_p(a)
  return (x, info), (inverse_tangent(x, da), None)


def _inv_fallback(a):
  _, _, _, info = lu_p(a)
  return [nan_where(info != 0, jnp.linalg.inv(a), core=2), info]


inv_p = ffi.operation(
    "linalg_inv", "n n -> n n, ()", [0, jnp.int32], jvp=_inv_jvp, fallback=_inv_fallback)


def _inv(name, a):
  (a,), dtype = as_arrays(name, a)
  check_square(name, a)
  x, info = inv_p(a)
  return x.astype(dtype), info


@public()
def inv(a: ArrayLike) -> jax.Array:
  """The inverse; `jax.numpy.linalg.inv`. To solve a system, `solve` is faster and more accurate.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.

  Returns:
    The inverses (..., n, n). Where A is exactly singular, its inverse is NaN; see `inv_ex` and
    `checked`.

  float16 and bfloat16 are inverted in float32, and the inverses rounded.

  Algorithm: LU with partial pivoting (`lu`) and substitution for the identity.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.inv(jnp.diag(jnp.array([2.0, 4.0]))))
    [[0.5  0.  ]
     [0.   0.25]]
    >>> print(linalg.inv(jnp.zeros((2, 2))))  # singular
    [[nan nan]
     [nan nan]]
  """
  x, info = _inv("inv", a)
  check_factors(info)
  return x


@public()
def inv_ex(a: ArrayLike) -> tuple[jax.Array, jax.Array]:
  """`inv`, with an info for each matrix.

  Args:
    a: as for `inv`.

  Returns:
    (inverse, info). info, int32 of shape (...), is 0 on success. It is the 1-based index of the
    first zero pivot of a singular matrix, or -1 where the LU factors hold NaN. The inverse is NaN
    in both cases.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), jnp.ones((2, 2))])
    >>> inverse, info = linalg.inv_ex(a)
    >>> print(info)  # the second pivot of the second matrix is 0
    [0 2]
  """
  return _inv("inv_ex", a)
