"""The Fréchet derivative of the matrix exponential, and its condition number."""

from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import expand, nan_where, zeros_like
from linalg._core.operands import (
  as_arrays,
  check_batches,
  check_square,
  incompatible,
  real_dtype,
)
from linalg._core.public import public
from linalg._functions.norms import matrix_norm
from linalg._functions.powers import expm

__all__ = ["expm_cond", "expm_frechet"]


@overload
def expm_frechet(
    A: ArrayLike,
    E: ArrayLike,
    *,
    method: str | None = None,
    compute_expm: Literal[True] = True,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array]: ...


@overload
def expm_frechet(
    A: ArrayLike,
    E: ArrayLike,
    *,
    method: str | None = None,
    compute_expm: Literal[False],
    check_finite: bool = True,
) -> jax.Array: ...


@overload
def expm_frechet(
    A: ArrayLike,
    E: ArrayLike,
    *,
    method: str | None = None,
    compute_expm: bool = True,
    check_finite: bool = True,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...


@public("method", "compute_expm", "check_finite", lists=True)
def expm_frechet(
    A: ArrayLike,
    E: ArrayLike,
    *,
    method: str | None = None,
    compute_expm: bool = True,
    check_finite: bool = True,
) -> Any:
  """The derivative of exp(A) in the direction E; `jax.scipy.linalg.expm_frechet`.

  Args:
    A, E: square matrices (..., n, n), whose batches broadcast.
    compute_expm: whether to return exp(A) too.
    method, check_finite: not used.

  Returns:
    (exp(A), derivative), or the derivative, (..., n, n); NaN where `expm` gives NaN.

  Algorithm: the derivative of the algorithm of `expm`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.expm_frechet(jnp.zeros((1, 1)), jnp.ones((1, 1)), compute_expm=False)
    Array([[1.]], dtype=float32)
  """
  del method, check_finite
  (a, e), dtype = as_arrays("expm_frechet", A, E)
  for operand, x in (("A", a), ("E", e)):
    check_square("expm_frechet", x, operand)
  if a.shape[-1] != e.shape[-1]:
    raise incompatible("expm_frechet", a, e, names=("A", "E"))
  check_batches("expm_frechet", a, e, names=("A", "E"))
  a, e = ffi.broadcast_batches("expm_frechet", (a, e), (2, 2))
  value, derivative = jax.jvp(expm, (a,), (e,))
  derivative = nan_where(jnp.isnan(value).any((-2, -1)), derivative, core=2).astype(dtype)
  return (value.astype(dtype), derivative) if compute_expm else derivative


@public("check_finite", lists=True)
def expm_cond(A: ArrayLike, check_finite: bool = True) -> jax.Array:
  """The condition number of exp(A) in the Frobenius norm; `scipy.linalg.expm_cond`, batched.

  Args:
    A: square matrices (..., n, n).
    check_finite: not used.

  Returns:
    ‖L‖₂ ‖A‖ / ‖exp(A)‖, real (...), where L is the derivative of exp at A, a matrix of order n². It
    is NaN where `expm` gives NaN.

  float16 and bfloat16 are computed in float32, and the results rounded. Elements that are far
  larger than others cost digits, as in `expm`.

  Algorithm: the whole of L by the derivative of `expm`, and its largest singular value. It takes
  O(n⁶) operations and O(n⁴) memory, as in SciPy. Second derivatives are NaN where the two largest
  singular values of L are equal.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.expm_cond(jnp.eye(2)).round(4))
    1.0
  """
  del check_finite
  (a,), dtype = as_arrays("expm_cond", A)
  check_square("expm_cond", a)
  n = a.shape[-1]
  value, derivative = jax.linearize(expm, a)
  along = lambda e: derivative(zeros_like(a) + expand(e, a))
  columns = jax.vmap(along)(jnp.eye(n * n, dtype=a.dtype).reshape(n * n, n, n))
  kronecker = jnp.moveaxis(columns.reshape(*columns.shape[:-2], n * n), 0, -1)
  found = matrix_norm(kronecker, ord=2) * matrix_norm(a) / matrix_norm(value)
  return found.astype(real_dtype(dtype))
