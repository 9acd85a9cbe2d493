"""Redistribution between the sharding of a matrix and the block-cyclic layout.

All-to-alls distribute the rows and the columns of all devices' parts, some rows at a time. Sent
data is taken directly from a device's part. A device handles its part of the matrix, the received
data and the result, and holds no more than two of them at a time.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.operands import as_arrays
from linalg.distributed._cyclic import Cyclic, cyclic_of
from linalg.distributed._layout import Places, square_of
from linalg.distributed._slices import cut, put, quotient, remainder, take


@functools.partial(jax.jit, static_argnums=0)
def to_cyclic(g: Cyclic, a: jax.Array) -> jax.Array:
  """The matrix in the block-cyclic layout, padded with zeros. Each device moves its share."""
  return g.map(functools.partial(deal_p, g), "m", "c", even(g, a))


def even(g: Cyclic, a: jax.Array) -> jax.Array:
  """The matrix with rows and columns added, so that all devices have as many."""
  missing = [
      (0, x.chunk * x.devices - length)
      for x, length in zip(map(g.redistribution, (0, 1)), g.lengths, strict=True)]
  return jnp.pad(a, [(0, 0)] * (a.ndim - 2) + missing)


def from_cyclic(g: Cyclic, x: jax.Array) -> jax.Array:
  """The inverse of `to_cyclic`."""
  return g.map(functools.partial(collect_p, g), "c", "m", x)[: g.lengths[0], : g.n]


def brought(
    name: str, a: ArrayLike, axes: Places, grid: tuple[int, int] | None, panel: int | None,
    *others: ArrayLike, has_pivots: bool = False,
) -> tuple[Cyclic, jax.Array, Any]:
  """The layout that a caller's matrix is factored in, the matrix in it, and the dtype of the
  results.

  The dtype is the one that the matrix and all other operands promote to. A system is solved as
  accurately as x is given.
  """
  (a, *_), dtype = as_arrays(name, a, *others)
  cyclic = cyclic_of(name, square_of(name, a, axes), a.shape[0], grid, panel, has_pivots)
  return cyclic, to_cyclic(cyclic, a), dtype


def _deal(g, a):
  """A device's part in the block-cyclic layout, from its part in the matrix's sharding."""
  rows, columns = g.redistribution(0), g.redistribution(1)
  (r, c), (i, j) = g.place(), _place(g)
  a = _exchange(g, a, rows.outgoing(i), columns.outgoing(j))
  a = a.reshape(rows.devices, columns.devices, rows.slots, columns.slots).swapaxes(1, 2)
  a = a.reshape(rows.devices * rows.slots, -1)
  a = a if rows.is_even else take(a, rows.incoming(r), 0)
  a = a if columns.is_even else take(a, columns.incoming(c), 1)
  if g.padded_lengths == g.lengths:
    return a
  row, column = g.numbers()
  return jnp.where((row < g.lengths[0]) & (column < g.n), a, 0)


def _collect(g, x):
  """A device's part in the matrix's sharding, from its part in the block-cyclic layout.

  The rows and columns after the matrix are arbitrary.
  """
  rows, columns = g.redistribution(0), g.redistribution(1)
  (r, c), (i, j) = g.place(), _place(g)
  x = _exchange(g, x, rows.returning(r), columns.returning(c))
  x = x.reshape(g.rows, g.columns, rows.slots, columns.slots).swapaxes(1, 2)
  x = x.reshape(g.rows * rows.slots, -1)
  return take(take(x, rows.returned(i), 0), columns.returned(j), 1)


def _place(g):
  """This device's indices in the matrix's sharding: along the rows, and along the columns."""
  r, c = g.place()
  number, columns = r * g.columns + c, g.redistribution(1).devices
  return quotient(number, columns), remainder(number, columns)


# The number of all-to-alls that exchange a matrix. If there were one, XLA would hold copies of all
# data that is sent and received.
_TURNS = 8


def _exchange(g, x, rows, columns):
  """The rows and columns that all devices send to this one, some rows per device at a time."""
  (heads, height), (groups, width) = rows.shape, columns.shape
  if g.devices == 1:
    return g.exchange_all(x, rows, columns)
  some = -(-height // _TURNS)

  def turn(i, received):
    first = jnp.minimum(i * some, height - some)  # the last may repeat rows
    return put(received, g.exchange_all(x, cut(rows, first, some, 1), columns), 0, first, 0)

  received = g.zeros_after(x, (heads * groups, height, width))
  return lax.fori_loop(0, -(-height // some), turn, received)


_Move = Callable[[Cyclic, jax.Array], jax.Array]


def _operation(name, function, shape, opposite) -> _Move:
  """`function` of a grid and a device's part, which moves numbers to another `shape`.

  Its transpose is the opposite, which moves them back. XLA's transpose of `take` would be a loop of
  additions.
  """

  def fallback(x, *, grid, **_):
    mapped = functools.partial(function, grid)
    for _ in x.shape[:-2]:
      mapped = jax.vmap(mapped)
    return [mapped(x)]

  def moved(grid, x):
    height, width = shape(grid)
    return operation(x, grid=grid, height=height, width=width)

  operation: ffi.Operation = ffi.operation(
      f"linalg_distributed_{name}", "m n -> height width", [0],
      attributes={"grid": None, "height": 0, "width": 0}, platforms=(),
      jvp=lambda primals, tangents, grid, **_: (moved(grid, *primals), moved(grid, *tangents)),
      transpose=lambda cotangents, operands, grid, **_: (opposite()(grid, *cotangents),),
      fallback=fallback)
  return moved


deal_p: _Move = _operation(
    "deal", _deal, lambda g: (g.padded_lengths[0] // g.rows, g.padded // g.columns),
    lambda: collect_p)
collect_p: _Move = _operation(
    "collect", _collect, lambda g: (g.redistribution(0).chunk, g.redistribution(1).chunk),
    lambda: deal_p)
