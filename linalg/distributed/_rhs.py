"""Few columns on all devices: right-hand sides and changes of one matrix that they share."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from linalg._core.edits import as_index
from linalg._core.operands import as_arrays, as_columns
from linalg.distributed._cyclic import Cyclic
from linalg.distributed._layout import check_columns


def solve_columns(
    name: str, n: int, dtype: Any, b: ArrayLike, solve: Callable[[jax.Array], jax.Array]
) -> jax.Array:
  """Applies `solve` to a vector (n,) or columns (n, k), which are moved to all devices.

  The result is sharded as `b` is, and has the dtype that `b` and the matrix, of `dtype`, promote
  to.
  """
  (_, b), dtype = as_arrays(name, jnp.zeros((), dtype), b)
  columns, vector = as_columns(name, jax.ShapeDtypeStruct((n, n), dtype), b)
  if columns.ndim != 2:
    raise ValueError(
        f"{name} takes a vector (n,) or columns (n, k), the matrix being one, got {b.shape}.")
  check_columns(name, "b", b)
  x = solve(_replicated(columns))
  return _placed_like((x[:, 0] if vector else x).astype(dtype), b)


def one_change(name: str, operands: Mapping[str, tuple[jax.Array, int]]) -> list[jax.Array]:
  """Operands of a change of one matrix on all devices. They are given with their ranks, by name."""
  for what, (x, rank) in operands.items():
    if x.ndim != rank:
      raise ValueError(
          f"{name}() changes one matrix that several devices share, so {what} has no batch, got "
          f"{x.shape}.")
    check_columns(name, what, x)
  return [_replicated(x) for x, _ in operands.values()]


def one_index(name: str, index: Any, n: int) -> tuple[jax.Array, Any]:
  """The index of a row of one matrix, from the front, and whether it is out of range."""
  index, outside = as_index(name, index, n)
  if jnp.ndim(index):
    raise ValueError(
        f"{name}() changes one matrix that several devices share, so index is one integer, got "
        f"shape {jnp.shape(index)}.")
  return jnp.asarray(index), False if outside is None else outside


def linear_solution(
    g: Cyclic, b: jax.Array, multiply: Callable[[jax.Array], jax.Array],
    solve: Callable[[jax.Array], jax.Array], solve_adjoint: Callable[[jax.Array], jax.Array],
) -> jax.Array:
  """`solve(b)`, with the derivatives of the linear system whose matrix is `multiply`.

  All columns are on all devices, and have as many rows as the padded matrix.
  """
  x = lax.custom_linear_solve(
      multiply, g.pad(b), lambda _, b: solve(b),
      transpose_solve=lambda _, b: solve_adjoint(b.conj()).conj())
  return x[: g.n]


def _replicated(b):
  sharding = jax.typeof(b).sharding
  if any(sharding.spec):
    return jax.sharding.reshard(b, sharding.update(spec=jax.P()))
  return b


def _placed_like(x, b):
  """Shards x like b, on Explicit axes or if b is a concrete array."""
  if any(jax.typeof(b).sharding.spec):
    return jax.sharding.reshard(x, jax.typeof(b).sharding)
  own = None if isinstance(b, jax.core.Tracer) else b.sharding
  if isinstance(own, jax.sharding.NamedSharding) and any(own.spec):
    return jax.device_put(x, own)
  return x
