"""Square matrices in a block-cyclic layout over a grid of devices, and how they get there.

Blocks of b rows and columns are counted through the matrix. In a grid of Pr x Pc devices, block t
of the rows lies on row t mod Pr of the grid, and block t of the columns on column
(t div Pr) mod Pc. So a panel, P = Pr Pc blocks that follow each other, has one block on each device
both ways: every device has a part in all that is done to it, and none is its owner.

Functions of a device's part stand here, for the body of a `shard_map`; `_blocks.py` computes with
them. A device holds Pc blocks of rows and Pr blocks of columns of each panel, `tall` rows and
`wide` columns. Groups of devices stand in `axis_index_groups`, so that any axes of a mesh serve any
grid.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

from linalg.distributed._layout import Axes, Layout, map_parts, partition

# A panel as wide as this is worked on at the full speed of a device.
_WIDEST = 1024
# What a matrix may grow by to fit a wider panel.
_PADDING = 17 / 16


class Cyclic(NamedTuple):
  """A square matrix of n rows: where it lies, and its blocks in the block-cyclic layout.

  In that layout it is an array (P, n / Pr, n / Pc), the first dimension sharded over all its axes.
  The matrix is filled up to `padded` rows with an identity: each of `chunks` equal parts of its
  rows and columns by itself, so that no row moves to another device for it.
  """

  layout: Layout
  rows: int  # Pr
  columns: int  # Pc
  n: int
  block: int
  padded: int

  @property
  def axes(self) -> Axes:
    return self.layout.spec[0] + self.layout.spec[1]

  @property
  def devices(self) -> int:
    return self.rows * self.columns

  @property
  def width(self) -> int:
    """Of a panel."""
    return self.devices * self.block

  @property
  def panels(self) -> int:
    return self.padded // self.width

  @property
  def tall(self) -> int:
    return self.columns * self.block

  @property
  def wide(self) -> int:
    return self.rows * self.block

  @property
  def chunks(self) -> int:
    return math.lcm(*map(self.layout.devices, self.layout.spec))

  @property
  def spec(self) -> PartitionSpec:
    return partition(self.layout.spec)

  def map(self, function: Callable[..., Any], operands: str, results: str, *arrays: Any) -> Any:
    """`function` of each device's part. In `operands` and `results`, a letter for each array: "m"
    is a matrix where it lies, "c" one in the block-cyclic layout, "s" the same on all devices."""
    specs = {"m": self.spec, "c": PartitionSpec(self.axes), "s": PartitionSpec()}

    def body(*arrays):
      arrays = [x[0] if kind == "c" else x for x, kind in zip(arrays, operands, strict=True)]
      found = jax.tree.leaves(function(*arrays))
      return [x[None] if kind == "c" else x for x, kind in zip(found, results, strict=True)]

    return map_parts(self.layout.mesh, specs, body, operands, results, *arrays)

  def place(self) -> tuple[jax.Array, jax.Array]:
    """This device's row and column of the grid."""
    index = lax.axis_index(self.axes)
    return index // self.columns, index % self.columns

  def varying(self, x: jax.Array) -> jax.Array:
    """A constant, of the type of what differs among devices."""
    return lax.pcast(x, self.axes, to="varying")

  # Collectives, along a row of the grid (over c) and along a column (over r).

  def _over_c(self) -> dict[str, Any]:
    groups = [[r * self.columns + c for c in range(self.columns)] for r in range(self.rows)]
    return {"axis_name": self.axes, "axis_index_groups": groups}

  def _over_r(self) -> dict[str, Any]:
    groups = [[r * self.columns + c for r in range(self.rows)] for c in range(self.columns)]
    return {"axis_name": self.axes, "axis_index_groups": groups}

  def gather_c(self, x):
    return lax.all_gather(x, **self._over_c()) if self.columns > 1 else x[None]

  def gather_r(self, x):
    return lax.all_gather(x, **self._over_r()) if self.rows > 1 else x[None]

  def gather_all(self, x):
    """(Pr, Pc, ...), known to be the same on all devices."""
    x = lax.all_gather(x, self.axes, to="invarying")
    return x.reshape(self.rows, self.columns, *x.shape[1:])

  def exchange_c(self, x):
    return lax.all_to_all(x, split_axis=0, concat_axis=0, **self._over_c()) \
        if self.columns > 1 else x

  def exchange_r(self, x):
    return lax.all_to_all(x, split_axis=0, concat_axis=0, **self._over_r()) \
        if self.rows > 1 else x

  def exchange_all(self, x):
    """Of (Pr, Pc, ...)."""
    exchanged = lax.all_to_all(
        x.reshape(self.devices, *x.shape[2:]), self.axes, split_axis=0, concat_axis=0)
    return exchanged.reshape(x.shape)

  # The columns or rows of panel k, as far as they lie in the rows or columns of the panels `among`.

  def columns_of(self, x, k, among=slice(None)):
    """As they lie: rows x wide."""
    columns = lax.dynamic_slice_in_dim(x, k * self.wide, self.wide, 1)
    return columns[self.tall_slice(among)]

  def rows_of(self, x, k, among=slice(None)):
    """As they lie: tall x columns."""
    rows = lax.dynamic_slice_in_dim(x, k * self.tall, self.tall, 0)
    return rows[:, self.wide_slice(among)]

  def tall_slice(self, panels):
    """The device's rows of some panels."""
    return slice(*(x if x is None else x * self.tall for x in (panels.start, panels.stop)))

  def wide_slice(self, panels):
    """The device's columns of some panels."""
    return slice(*(x if x is None else x * self.wide for x in (panels.start, panels.stop)))

  def all_columns(self, x, k, among=slice(None)):
    """Columns, of this device's rows: rows x width."""
    gathered = self.gather_c(self.columns_of(x, k, among))
    return gathered.swapaxes(0, 1).reshape(-1, self.width)

  def all_rows(self, x, k, among=slice(None)):
    """Rows, of this device's columns: width x columns."""
    rows = self.rows_of(x, k, among)
    gathered = self.gather_r(rows.reshape(self.columns, self.block, -1))
    return gathered.swapaxes(0, 1).reshape(self.width, -1)

  def turned_columns(self, x, k, among=slice(None)):
    """Columns, of the rows whose numbers this device's columns have: columns x width."""
    return self.spread_to_columns(self.deal_rows(self.columns_of(x, k, among)))

  def turned_rows(self, x, k, among=slice(None)):
    """Rows, of the columns whose numbers this device's rows have: width x rows."""
    slab = self.rows_of(x, k, among).reshape(self.tall, -1, self.rows, self.block)
    panels = slab.shape[1]
    slab = self.exchange_r(jnp.moveaxis(slab, 2, 0))
    slab = slab.reshape(self.rows, self.columns, self.block, panels * self.block)
    slab = self.gather_c(slab.swapaxes(0, 1).reshape(self.width, panels * self.block))
    slab = slab.reshape(self.columns, self.width, panels, self.block)
    return jnp.moveaxis(slab, 0, 2).reshape(self.width, panels * self.tall)

  def deal_rows(self, slab):
    """Of a panel's columns as they lie, all of one block of rows of each panel, so that each device
    has some: (panels b) x width."""
    panels = slab.shape[0] // self.tall
    dealt = slab.reshape(panels, self.columns, self.block, self.wide).swapaxes(0, 1)
    dealt = self.exchange_c(dealt).reshape(self.columns, panels * self.block, self.wide)
    return dealt.swapaxes(0, 1).reshape(panels * self.block, self.width)

  def spread_to_rows(self, dealt):
    """What `deal_rows` gave, of this device's rows."""
    blocks = dealt.reshape(-1, self.block, self.width)
    return self.gather_c(blocks).swapaxes(0, 1).reshape(-1, self.width)

  def spread_to_columns(self, dealt):
    """What `deal_rows` gave, of the rows whose numbers this device's columns have."""
    blocks = dealt.reshape(-1, self.block, self.width)
    return self.gather_r(blocks).swapaxes(0, 1).reshape(-1, self.width)

  def own_rows(self, panel, r):
    """Those of all rows of a panel that lie in row r of the grid: tall x columns."""
    blocks = panel.reshape(self.columns, self.rows, self.block, panel.shape[1])
    return lax.dynamic_index_in_dim(blocks, r, 1, keepdims=False).reshape(self.tall, -1)

  def own_columns(self, panel, c):
    """Those of all columns of a panel that lie in column c of the grid: rows x wide."""
    return lax.dynamic_slice_in_dim(panel, c * self.wide, self.wide, 1)

  def diagonal_block(self, x, k):
    """That of panel k, width x width, on all devices."""
    blocks = self.columns_of(self.rows_of(x, k), k).reshape(self.columns, self.block, self.wide)
    gathered = self.gather_all(blocks)  # r, c, block of rows, row, column
    return gathered.transpose(2, 0, 3, 1, 4).reshape(self.width, self.width)

  # Numbers of rows and columns.

  def numbers(self):
    """Those that the device's rows and columns have in the padded matrix: (h, 1) and (1, w)."""
    r, c = self.place()
    i = jnp.arange(self.padded // self.rows, dtype=r.dtype)
    j = jnp.arange(self.padded // self.columns, dtype=c.dtype)
    row = (i // self.block * self.rows + r) * self.block + i % self.block
    column = (j // self.wide * self.columns + c) * self.wide + j % self.wide
    return row[:, None], column[None]

  def order_of(self, index):
    """The number in the matrix, from 0, of a row of the padded one."""
    chunk = self.padded // self.chunks
    return index // chunk * (self.n // self.chunks) + index % chunk

  # Padding, of matrices where they lie, and of arrays that are the same on all devices.

  def pad(self, x, dimension, chunks):
    """Fills up each of `chunks` equal parts of a dimension with zeros."""
    return self._refill(
        x, dimension, chunks, lambda x, part: jnp.pad(
            x, [(0, part - x.shape[k]) if k == dimension + 1 else (0, 0) for k in range(x.ndim)]),
        self.padded // self.chunks)

  def unpad(self, x, dimension, chunks):
    return self._refill(
        x, dimension, chunks, lambda x, part: lax.slice_in_dim(x, 0, part, axis=dimension + 1),
        self.n // self.chunks)

  def _refill(self, x, dimension, chunks, change, part):
    if self.padded == self.n:
      return x
    before, after = x.shape[:dimension], x.shape[dimension + 1 :]
    own = x.shape[dimension] // chunks
    return change(x.reshape(*before, chunks, own, *after), part).reshape(
        *before, chunks * part, *after)

  def _chunks_of_device(self):
    return [self.chunks // self.layout.devices(own) for own in self.layout.spec]

  def to_cyclic(self, a):
    """From where the matrix lies to the block-cyclic layout, padded with zeros: each device moves
    its share twice."""
    for dimension, chunks in enumerate(self._chunks_of_device()):
      a = self.pad(a, dimension, chunks)
    b, panels = self.block, self.panels
    if self._is_by_rows():
      n = a.shape[1]
      a = a.reshape(-1, self.columns, self.rows, b, n).transpose(2, 1, 0, 3, 4)
      a = self.exchange_all(a).reshape(panels * b, panels, self.columns, self.wide)
      a = self.exchange_c(jnp.moveaxis(a, 2, 0))  # c, rows, panel, column
      a = a.reshape(self.columns, panels, b, -1).swapaxes(0, 1)
    elif self._is_by_columns():
      n = a.shape[0]
      a = a.reshape(n, -1, self.columns, self.rows, b).transpose(3, 2, 1, 4, 0)
      a = self.exchange_all(a).reshape(panels * b, -1, self.rows, b)  # columns, panel, r, row
      a = self.exchange_r(jnp.moveaxis(a, 2, 0))
      a = a.reshape(self.rows, panels, b, -1).transpose(3, 1, 0, 2)
    else:
      a = self.exchange_r(a.reshape(-1, self.rows, b, a.shape[1]).swapaxes(0, 1))
      a = a.reshape(-1, a.shape[-1])
      a = self.exchange_c(jnp.moveaxis(a.reshape(len(a), -1, self.columns, self.wide), 2, 0))
      a = a.swapaxes(0, 1)
    return a.reshape(panels * self.tall, panels * self.wide)

  def from_cyclic(self, a):
    """The opposite of `to_cyclic`."""
    b, panels = self.block, self.panels
    h, w = panels * self.tall, panels * self.wide
    if self._is_by_rows():
      a = self.exchange_c(a.reshape(panels, self.columns, b, w).swapaxes(0, 1))
      a = a.reshape(self.columns, panels * b, panels, self.wide)
      a = jnp.moveaxis(a, 0, 2).reshape(self.rows, self.columns, -1, b, self.padded)
      a = self.exchange_all(a).transpose(2, 1, 0, 3, 4).reshape(-1, self.padded)
    elif self._is_by_columns():
      a = self.exchange_r(a.reshape(h, panels, self.rows, b).transpose(2, 1, 3, 0))
      a = a.reshape(self.rows, panels * b, -1, b)  # r, columns, panel, row
      a = jnp.moveaxis(a, 0, 2).reshape(self.rows, self.columns, -1, b, self.padded)
      a = self.exchange_all(a).transpose(4, 2, 1, 0, 3).reshape(self.padded, -1)
    else:
      a = self.exchange_c(a.reshape(h, self.columns, -1, self.wide).swapaxes(0, 1))
      a = jnp.moveaxis(a, 0, 2).reshape(h, w)
      a = self.exchange_r(a.reshape(self.rows, -1, b, w)).swapaxes(0, 1).reshape(h, w)
    for dimension, chunks in enumerate(self._chunks_of_device()):
      a = self.unpad(a, dimension, chunks)
    return a

  def _is_by_rows(self) -> bool:
    return self.layout.devices(self.layout.spec[1]) == 1

  def _is_by_columns(self) -> bool:
    return self.layout.devices(self.layout.spec[0]) == 1

  def transpose(self, x):
    """The transpose of a matrix in the block-cyclic layout: each device moves its share twice."""
    b, panels = self.block, self.panels
    x = x.reshape(panels * self.tall, panels, self.rows, b)
    x = self.exchange_r(jnp.moveaxis(x, 2, 0))  # the column's block is this device's own
    x = x.reshape(self.rows, panels, self.columns, b, panels * b)
    x = self.exchange_c(x.transpose(2, 1, 0, 3, 4))
    x = x.reshape(self.columns, panels * self.wide, panels, b)
    return x.transpose(2, 0, 3, 1).reshape(panels * self.tall, panels * self.wide)


def cyclic_of(
    name: str, layout: Layout, n: int, grid: tuple[int, int] | None, block: int | None
) -> Cyclic:
  """The blocks for a square matrix of n rows.

  `grid` and `block`, the width of a panel, are the caller's, or None for the nearest to a square
  and for one that leaves enough panels.
  """
  rows, columns = map(layout.devices, layout.spec)
  devices = rows * columns
  if min(rows, columns) == 1:
    nearest = next(k for k in range(math.isqrt(devices), 0, -1) if devices % k == 0)
    given = (devices // nearest, nearest)
    step = devices * devices
  else:
    given = (rows, columns)
    step = math.lcm(rows * rows, columns * devices)
  if grid is not None and not (
      isinstance(grid, tuple) and len(grid) == 2 and all(isinstance(x, int) for x in grid)):
    raise ValueError(f"{name}: grid={grid!r} must be a pair of numbers, (rows, columns).")
  if grid is not None and grid != given:
    if min(rows, columns) > 1:
      raise ValueError(
          f"{name}: grid={grid!r}, but a matrix that is sharded over both dimensions has the grid "
          f"of its sharding, {given}.")
    given = grid
    if min(given) < 1 or math.prod(given) != devices:
      raise ValueError(
          f"{name}: grid={grid!r} must be two numbers whose product is that of the devices, "
          f"{devices}.")
  padded = lambda size: max(-(-n // (step * size)), 1) * step * size
  if block is None:
    # Wider panels mean fewer steps; the buffers of one should be small beside a device's share.
    most = min(n // (4 * sum(given)), _WIDEST) // devices
    sizes = [1 << k for k in range(max(most, 1).bit_length())]
    size = max(x for x in sizes if padded(x) <= max(padded(1), _PADDING * n))
  elif not isinstance(block, int) or block < 1 or block % devices:
    raise ValueError(
        f"{name}: block={block!r} must be a positive multiple of the {devices} devices, which "
        "share each panel of that width.")
  else:
    size = block // devices
  return Cyclic(layout, *given, n, size, padded(size))
