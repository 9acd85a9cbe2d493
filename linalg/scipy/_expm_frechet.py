"""The Fréchet derivative of the matrix exponential."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import nan_where
from linalg._core.operands import as_arrays, check_batches, check_square, incompatible
from linalg._core.public import public, with_types_of
from linalg._functions.powers import expm

__all__ = ["expm_frechet"]


@with_types_of(jax.scipy.linalg.expm_frechet)
@public("method", "compute_expm", lists=True)
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Any:
  """The derivative of exp(A) in the direction E; `jax.scipy.linalg.expm_frechet`.

  Args:
    A, E: square matrices (..., n, n), whose batches broadcast.
    method: not used.
    compute_expm: whether to return exp(A) too.

  Returns:
    (exp(A), derivative), or the derivative, (..., n, n); NaN where `expm` gives NaN.

  Algorithm: the derivative of the algorithm of `expm`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.expm_frechet(jnp.zeros((1, 1)), jnp.ones((1, 1)), compute_expm=False)
    Array([[1.]], dtype=float32)
  """
  del method
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
