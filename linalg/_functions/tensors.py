"""Inverses and systems of arrays that represent matrices."""

import math
import operator

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.operands import check_arrays
from linalg._core.public import public
from linalg._factorizations.solve import inv, solve

__all__ = ["tensorinv", "tensorsolve"]


@public("ind", compiled=False)
def tensorinv(a: ArrayLike, ind: int = 2) -> jax.Array:
  """The inverse with respect to `tensordot(a, b, ind)`; `jax.numpy.linalg.tensorinv`.

  Args:
    a: an array of any floating, complex or integer dtype, whose first `ind` dimensions have as many
      entries as the others.
    ind: the number of dimensions that count as rows.

  Returns:
    The inverse, of shape (*a.shape[ind:], *a.shape[:ind]); NaN if it does not exist.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.eye(6).reshape(2, 3, 2, 3)
    >>> linalg.tensorinv(a).shape
    (2, 3, 2, 3)
  """
  check_arrays("tensorinv", a)
  a = jnp.asarray(a)
  ind = operator.index(ind)
  if ind <= 0:
    raise ValueError(f"tensorinv: ind must be a positive integer, got {ind}.")
  rows, cols = a.shape[:ind], a.shape[ind:]
  if math.prod(rows) != math.prod(cols):
    raise ValueError(
        f"tensorinv: the first ind={ind} dimensions of a must have as many entries as the others, "
        f"got {a.shape}.")
  return inv(a.reshape(math.prod(rows), math.prod(cols))).reshape(*cols, *rows)


@public("axes", compiled=False)
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: tuple[int, ...] | None = None) -> jax.Array:
  """Solves tensordot(a, x, x.ndim) = b for x; `jax.numpy.linalg.tensorsolve`.

  Args:
    a: an array of shape (*b.shape, *x.shape), once `axes` are moved to its end.
    b: the right-hand side.
    axes: the dimensions of `a` to move to the end, or None.

  Returns:
    x, of the operands' common dtype; NaN if there is no unique one.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> x = linalg.tensorsolve(2 * jnp.eye(6).reshape(2, 3, 6), jnp.ones((2, 3)))
    >>> print(x)
    [0.5 0.5 0.5 0.5 0.5 0.5]
  """
  check_arrays("tensorsolve", a, b)
  a, b = jnp.asarray(a), jnp.asarray(b)
  if axes is not None:
    a = jnp.moveaxis(a, axes, tuple(range(a.ndim - len(axes), a.ndim)))
  shape = a.shape[b.ndim :]
  if a.shape[: b.ndim] != b.shape:
    raise ValueError(
        "tensorsolve: a must begin with the shape of b once axes are moved to its end, got "
        f"{a.shape} and {b.shape}.")
  if b.size != math.prod(shape):
    raise ValueError(
        f"tensorsolve: the first {b.ndim} dimensions of a must have as many entries as the others, "
        f"got {a.shape}.")
  return solve(a.reshape(b.size, math.prod(shape)), b.ravel()).reshape(shape)
