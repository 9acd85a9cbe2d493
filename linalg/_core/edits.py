"""Changes of a factored matrix: their operands, and rows and columns at a traced index.

`factor` is an array (..., n, n) of the factor's dtype, or its shape. Slices and masks stand for
gathers, whose results have no sharding.
"""

import operator
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import expand
from linalg._core.operands import (
  as_changes,
  check_arrays,
  check_batches,
  incompatible,
  incompatible_changes,
  real_dtype,
)


def as_update(name: str, factor: Any, dtype: Any, w: ArrayLike) -> jax.Array:
  """The columns (..., n, k) of a symmetric change."""
  (w,) = as_changes(name, factor, dtype, w, names=("w",))
  columns = w[..., None] if w.ndim == 1 else w
  if columns.ndim < 2 or columns.shape[-2] != factor.shape[-1]:
    raise incompatible_changes(name, factor, (w,), names=("the factor", "w"))
  check_batches(name, factor, columns, names=("the factor", "w"))
  return columns


def as_weighted_update(
    name: str, factor: Any, dtype: Any, w: ArrayLike, weight: ArrayLike
) -> tuple[jax.Array, jax.Array]:
  """The columns (..., n, k) of a symmetric change, and their real weights (..., k)."""
  check_arrays(name, w, weight)
  columns = as_update(name, factor, dtype, w)
  if jnp.iscomplexobj(weight):
    raise TypeError(f"{name}() takes a real weight, got {jnp.result_type(weight)}.")
  jnp.result_type(real_dtype(dtype), weight)
  weight = jnp.asarray(weight, real_dtype(factor.dtype))
  weight = jnp.broadcast_to(weight, columns.shape[-1:]) if weight.ndim == 0 else weight
  if weight.shape[-1] != columns.shape[-1]:
    raise incompatible(name, columns, weight, names=("w", "weight"))
  check_batches(
      name, factor, columns, weight, ranks=(2, 2, 1), names=("the factor", "w", "weight"))
  return columns, weight


def as_border(
    name: str, factor: Any, dtype: Any, columns: ArrayLike, corner: ArrayLike
) -> tuple[jax.Array, jax.Array]:
  """The columns (..., n, k) and the corner (..., k, k) that are appended to a Hermitian matrix."""
  columns, corner = as_changes(
      name, factor, dtype, columns, corner, names=("columns", "corner"), real=("corner",))
  given = columns, corner
  if columns.ndim and (corner.ndim < 2 or columns.ndim == corner.ndim + 1):
    columns, corner = columns[..., None], corner[..., None, None]
  n, k = columns.shape[-2:] if columns.ndim > 1 else (None, None)
  if n != factor.shape[-1] or corner.shape[-2:] != (k, k):
    raise incompatible(name, factor, *given, names=("the factor", "columns", "corner"))
  check_batches(name, factor, columns, corner, names=("the factor", "columns", "corner"))
  return columns, corner


def as_general_update(
    name: str, factor: Any, dtype: Any, u: ArrayLike, v: ArrayLike, what: str = "the factor"
) -> tuple[jax.Array, jax.Array]:
  """The columns u (..., m, k) and v (..., n, k) of A + u vᴴ. A factor (..., m, n) has A's shape."""
  u, v = as_changes(name, factor, dtype, u, v, names=("u", "v"))
  left, right = (x[..., None] if x.ndim == 1 else x for x in (u, v))
  (m, n), names = factor.shape[-2:], (what, "u", "v")
  if left.shape[-2:-1] != (m,) or right.shape[-2:-1] != (n,) or left.shape[-1] != right.shape[-1]:
    raise incompatible_changes(name, factor, (u, v), names=names)
  check_batches(name, factor, left, right, names=names)
  return left, right


def as_vectors(
    name: str, factor: Any, dtype: Any, vectors: Mapping[str, ArrayLike],
    corner: ArrayLike | None = None
) -> list[jax.Array]:
  """Rows and columns (..., n) by name, and a corner (...) if there is one."""
  more = {} if corner is None else {"corner": corner}
  arrays = as_changes(
      name, factor, dtype, *vectors.values(), *more.values(), names=(*vectors, *more))
  found = arrays[: len(vectors)]
  if any(x.shape[-1:] != factor.shape[-1:] for x in found):
    raise incompatible(name, factor, *found, names=("the factor", *vectors))
  check_batches(
      name, factor, *arrays, ranks=(2, *[1] * len(found), *[0] * len(more)),
      names=("the factor", *vectors, *more))
  return arrays


def as_index(name: str, index: Any, size: int) -> tuple[Any, Any]:
  """The index from the front, int32 (...), and where it is out of range.

  A Python integer out of range is an error, and has None for the latter.
  """
  if size == 0:
    raise ValueError(f"{name}() of an empty factor: there is no index to take.")
  if hasattr(index, "dtype") and not isinstance(index, np.generic):
    if not jnp.issubdtype(index.dtype, jnp.integer):
      raise TypeError(f"{name}() takes index as integers, got {index.dtype}.")
    # Wider integers would wrap around into the range.
    whole, own = np.iinfo(np.int32), jnp.iinfo(index.dtype)
    clip = np.clip if isinstance(index, np.ndarray) else jnp.clip
    index = clip(index, max(whole.min, int(own.min)), min(whole.max, int(own.max)))
    index = jnp.asarray(index, jnp.int32)
    index = jnp.where(index < 0, index + size, index)
    return index, (index < 0) | (index >= size)
  value: Any = index
  try:
    place = operator.index(value)
  except TypeError:
    raise TypeError(f"{name}() takes index as integers, got {type(index)}.") from None
  if not -size <= place < size:
    raise ValueError(f"{name}(): index must be from {-size} to {size - 1}, got {place}.")
  return np.int32(place % size), None


def at_index(
    name: str, index: Any, size: int, operands: Mapping[str, tuple[jax.Array, int]]
) -> tuple[Any, ...]:
  """Operands, the index and where it is out of range, as `as_index` finds them, of one batch.

  `operands` are arrays and their numbers of core dimensions, by name. Their sharded batch shards
  the indices too.
  """
  arrays, ranks = zip(*operands.values(), strict=True)
  index, outside = as_index(name, index, size)
  if jnp.ndim(index) == 0:
    return *arrays, index, outside
  check_batches(name, *arrays, index, ranks=(*ranks, 0), names=(*operands, "index"))
  return tuple(ffi.broadcast_batches(name, (*arrays, index, outside), (*ranks, 0, 0)))


def along(x: jax.Array, axis: int) -> jax.Array:
  """The indices along a dimension, of the rank of `x`."""
  shape = [1] * x.ndim
  shape[axis] = x.shape[axis]
  return jnp.arange(x.shape[axis], dtype=jnp.int32).reshape(shape)


def beside(index: jax.Array | np.ndarray, x: jax.Array, core: int) -> jax.Array:
  """Indices (...) with unit dimensions for the last `core` dimensions of `x`, at least its rank."""
  index = jnp.asarray(index)
  index = index.reshape(index.shape + (1,) * core)
  return expand(index, x) if index.ndim < x.ndim else index


def row_of(a: jax.Array, index: jax.Array) -> jax.Array:
  """Row `index` of matrices, (..., n), as a sum."""
  return jnp.sum(jnp.where(along(a, -2) == beside(index, a, 2), a, 0), axis=-2)


def without(x: jax.Array, index: jax.Array, axis: int, core: int = 2) -> jax.Array:
  """`x` without the row or column `index`; `core` is the number of its dimensions but batch."""
  size = x.shape[axis]
  before = jax.lax.slice_in_dim(x, 0, size - 1, axis=axis)
  after = jax.lax.slice_in_dim(x, 1, size, axis=axis)
  return jnp.where(along(before, axis) < beside(index, before, core), before, after)


def replaced(a: jax.Array, index: jax.Array, x: jax.Array, axis: int) -> jax.Array:
  """Matrices with row or column `index` exchanged for vectors (..., n)."""
  x = jnp.expand_dims(x, axis)
  a, x = (expand(y, z) if y.ndim < z.ndim else y for y, z in ((a, x), (x, a)))
  return jnp.where(along(a, axis) == beside(index, a, 2), x, a)
