"""Functions of jax.numpy.linalg that only multiply or rearrange arrays.

Most are JAX's own functions, which keep a sharded batch in place.
"""

import functools

import jax
import jax.numpy as jnp
from jax.numpy.linalg import (
  cross,
  matrix_transpose,
  multi_dot,
  outer,
  tensordot,
  trace,
  vecdot,
)
from jax.typing import ArrayLike

from linalg._core.algebra import expand, on_diagonal
from linalg._core.operands import check_arrays, check_matrix
from linalg._core.public import public

__all__ = [
    "block_diag", "cross", "diagonal", "matrix_transpose", "multi_dot", "outer",
    "tensordot", "trace", "vecdot",
]


@public("offset", compiled=False)
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> jax.Array:
  """Diagonals of matrices; `jax.numpy.linalg.diagonal`.

  Args:
    x: matrices (..., m, n) of any dtype.
    offset: the index of the diagonal, which holds the entries (i, i + offset).

  Returns:
    The diagonals (..., k).

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.diagonal(jnp.arange(9.0).reshape(3, 3), offset=1))
    [1. 5.]
  """
  check_arrays("diagonal", x)
  x = jnp.asarray(x)
  check_matrix("diagonal", x)
  rows, cols = x.shape[-2:]
  row, col = max(-offset, 0), max(offset, 0)
  length = max(min(rows - row, cols - col), 0)
  square = x[..., row : row + length, col : col + length]
  # A sum, since the transpose of a gather has no sharding.
  masked = jnp.where(on_diagonal(square), square, jnp.zeros((), x.dtype))
  return masked.any(-1) if x.dtype == bool else jnp.sum(masked, axis=-1, dtype=x.dtype)


@public(compiled=False)
def block_diag(*arrs: ArrayLike) -> jax.Array:
  """Matrices along the diagonal of a matrix; `jax.scipy.linalg.block_diag`, batched.

  Args:
    arrs: matrices (..., m, n) whose batch shapes broadcast; a vector is a matrix of one row.

  Returns:
    The block diagonal matrices (..., Σ m, Σ n), of the dtype that all promote to.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.block_diag(jnp.eye(1), jnp.full((1, 2), 3.0)))
    [[1. 0. 0.]
     [0. 3. 3.]]
    >>> linalg.block_diag(jnp.ones((10, 2, 2)), jnp.ones((3, 3))).shape
    (10, 5, 5)
  """
  arrs = arrs or (jnp.zeros((1, 0)),)
  check_arrays("block_diag", *arrs)
  dtype = jnp.result_type(*arrs)
  blocks = [jnp.atleast_2d(jnp.asarray(x, dtype=dtype)) for x in arrs]
  rows, cols = (sum(x.shape[dim] for x in blocks) for dim in (-2, -1))
  widest = max(blocks, key=lambda x: x.ndim)
  row = col = 0
  placed = []
  for x in blocks:
    m, n = x.shape[-2:]
    around = ((row, rows - row - m), (col, cols - col - n))
    placed.append(expand(jnp.pad(x, ((0, 0),) * (x.ndim - 2) + around), widest))
    row, col = row + m, col + n
  # A sum broadcasts the batch shapes, and their sharding.
  return functools.reduce(jnp.add, placed)
