"""Square matrices in a block-cyclic layout over a grid of devices.

Blocks of b rows and columns are counted through the matrix. In a grid of Pr x Pc devices, block t
of the rows is on row t mod Pr of the grid. Block t of the columns is on column (t div Pr) mod Pc. A
panel is P = Pr Pc consecutive blocks, and has one block on each device both ways. Every device
therefore takes part in each step, and none owns a panel.

The functions here work on a device's part, in the body of a `shard_map`. `_algorithms.py` computes
with them, and `_redistribution.py` moves a matrix to this layout and back. A device holds Pc blocks
of rows and Pr blocks of columns of each panel: `tall` rows and `wide` columns. `axis_index_groups`
holds groups of devices, so that any axes of a mesh serve any grid.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from linalg import ffi
from linalg.distributed._layout import Axes, Layout, map_parts, partition
from linalg.distributed._redistribute_1d import Redistribution
from linalg.distributed._slices import cut, put, quotient, remainder, take

# The width of a panel that reaches a device's full speed.
_WIDEST = 1024
# Below this width, reading and writing the matrix for each panel takes longer than the products.
_NARROW = 256
# The most that the rows of a matrix, or the exchanged data, may grow by to fit a wider panel.
_GROWTH = 65 / 64
# The number of phases of the loop over panels of a factor. Each phase costs compilation, and fewer
# phases compute and move more zeros. Eight phases waste an eighth of the moved data. Systems whose
# right-hand side is not triangular have half as many, because derivatives take several of them.
# Products need none: see `pack`.
_PHASES = 8
# The number of tiles of an update both ways. Tiles outside a triangle are skipped, and few are in
# memory at once.
_TILES = 8


def rounded_up(length: int, width: int) -> int:
  """A length that is a multiple of the width, of at least one panel."""
  return max(-(-length // width), 1) * width


def bounds(count: int, parts: int) -> list[tuple[int, int]]:
  """The bounds of parts whose sizes differ by at most one, without empty ones."""
  edges = sorted({round(count * i / parts) for i in range(parts + 1)})
  return list(zip(edges[:-1], edges[1:], strict=True))


def _exchange_jvp(primals, tangents, **how):
  return exchange_p(*primals, **how), exchange_p(*tangents, **how)


def _exchange_transpose(cotangents, operands, **how):
  del operands
  return (exchange_p(*cotangents, **how),)


def _exchange(x, *, axes, groups):
  return [lax.all_to_all(
      x, axes, split_axis=x.ndim - 3, concat_axis=x.ndim - 3, axis_index_groups=groups)]


# Does an all-to-all in groups of devices. JAX's own does not support groups under `vmap`.
exchange_p: ffi.Operation = ffi.operation(
    "linalg_distributed_exchange", "g m n -> g m n", [0],
    attributes={"axes": None, "groups": None}, platforms=(), jvp=_exchange_jvp,
    transpose=_exchange_transpose, fallback=_exchange)


class Cyclic(NamedTuple):
  """A matrix of n columns: its sharding, and its blocks in the block-cyclic layout.

  In that layout it is an array (P, m / Pr, n / Pc), with the first dimension sharded over all its
  axes. A square matrix is padded to `padded` rows with an identity, or zeros.
  """

  layout: Layout
  rows: int  # Pr
  columns: int  # Pc
  n: int
  block: int
  padded: int
  most_phases: int
  most_tiles: int
  height: int | None = None  # m, if the matrix is not square
  batch: tuple[Axes, ...] = ()  # the axes of the dimensions in front of arrays that `map` takes

  def of_size(self, n: int) -> "Cyclic":
    """The layout of a square matrix of another size, in the same grid and blocks."""
    return self._replace(n=n, padded=rounded_up(n, self.width))

  @property
  def lengths(self) -> tuple[int, int]:
    """m and n."""
    return self.n if self.height is None else self.height, self.n

  @property
  def padded_lengths(self) -> tuple[int, int]:
    """m and n, rounded up to whole panels."""
    return rounded_up(self.lengths[0], self.width), self.padded

  @property
  def axes(self) -> Axes:
    return self.layout.spec[0] + self.layout.spec[1]

  @property
  def devices(self) -> int:
    return self.rows * self.columns

  @property
  def width(self) -> int:
    """The width of a panel."""
    return self.devices * self.block

  @property
  def panels(self) -> int:
    return self.padded // self.width

  @property
  def phases(self) -> list[tuple[int, int]]:
    """The panels of each phase, for loops that skip the zero part of a triangle."""
    return bounds(self.panels, self.most_phases)

  @property
  def long_phases(self) -> list[tuple[int, int]]:
    """The panels of each phase, for systems that derivatives solve several of."""
    return bounds(self.panels, max(self.most_phases // 2, 2))

  @property
  def tall(self) -> int:
    return self.columns * self.block

  @property
  def wide(self) -> int:
    return self.rows * self.block

  def redistribution(self, dimension: int) -> Redistribution:
    """How equal parts of the rows or columns are redistributed to the rows or columns of the
    grid."""
    devices = self.layout.devices(self.layout.spec[dimension])
    unit, groups = ((self.block, self.rows), (self.wide, self.columns))[dimension]
    chunk = max(-(-self.lengths[dimension] // devices), 1)
    return Redistribution(
        chunk, devices, unit, groups, self.padded_lengths[dimension] // groups)

  def map(self, function: Callable[..., Any], operands: str, results: str, *arrays: Any) -> Any:
    """Applies `function` to each device's parts of the arrays.

    `operands` and `results` have a letter for each array. "m" is a matrix in its own sharding, "c"
    one in the block-cyclic layout, and "s" an array that is the same on all devices. Arrays in the
    block-cyclic layout may have further dimensions in front, all alike: operations have them under
    `vmap`, and their batch is the devices. `map_each` takes them if the grid has a `batch`.
    """
    if self.batch:
      return map_each(self, self.batch, function, operands, results, *arrays)
    if operands.strip("c") == "" and arrays[0].ndim > 3:
      inner = functools.partial(self.map, function, operands, results)
      return jax.vmap(inner)(*arrays)
    specs = {"m": partition(self.layout.spec), "c": PartitionSpec(self.axes), "s": PartitionSpec()}

    def body(*arrays):
      arrays = [x[0] if kind == "c" else x for x, kind in zip(arrays, operands, strict=True)]
      found = jax.tree.leaves(function(*arrays))
      return [x[None] if kind == "c" else x for x, kind in zip(found, results, strict=True)]

    return map_parts(self.layout.mesh, specs, body, operands, results, *arrays)

  def place(self) -> tuple[jax.Array, jax.Array]:
    """This device's row and column of the grid."""
    index = lax.axis_index(self.axes)
    return quotient(index, self.columns), remainder(index, self.columns)

  def varying(self, x: jax.Array) -> jax.Array:
    """A constant, with the type of a value that differs among devices."""
    return lax.pcast(x, self.axes, to="varying")

  def zeros_after(self, x: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Zeros that are made once X exists.

    XLA would make independent zeros at the start, and hold them until they are used.
    """
    zero = jnp.where(self.place()[0] < 0, x[0, 0], jnp.zeros((), x.dtype))
    return jnp.broadcast_to(zero, shape)

  # Collectives, along a row of the grid (over c) and along a column (over r).

  def _over_c(self) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(r * self.columns + c for c in range(self.columns)) for r in range(self.rows))

  def _over_r(self) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(r * self.columns + c for r in range(self.rows)) for c in range(self.columns))

  def gather_c(self, x):
    return lax.all_gather(x, self.axes, axis_index_groups=self._over_c()) \
        if self.columns > 1 else x[None]

  def gather_r(self, x):
    return lax.all_gather(x, self.axes, axis_index_groups=self._over_r()) \
        if self.rows > 1 else x[None]

  def sum_r(self, x):
    """The sum over a column of the grid. Each device gets an equal part of the columns."""
    return lax.psum_scatter(
        x, self.axes, scatter_dimension=1, axis_index_groups=self._over_r(), tiled=True
    ) if self.rows > 1 else x

  def sum_rows_r(self, x):
    """The sum of a panel's rows over a column of the grid. A device gets its own rows of them."""
    x = x.reshape(self.columns, self.rows, self.block, -1).swapaxes(0, 1)
    x = x.reshape(self.width, -1)
    return lax.psum_scatter(
        x, self.axes, scatter_dimension=0, axis_index_groups=self._over_r(), tiled=True
    ) if self.rows > 1 else x

  def sum_columns_c(self, x):
    """The sum of a panel's columns over a row of the grid. A device gets its own columns."""
    return lax.psum_scatter(
        x, self.axes, scatter_dimension=1, axis_index_groups=self._over_c(), tiled=True
    ) if self.columns > 1 else x

  def gather_all(self, x):
    """(Pr, Pc, ...), known to be the same on all devices."""
    x = lax.all_gather(x, self.axes, to="invarying")
    return x.reshape(self.rows, self.columns, *x.shape[1:])

  def _exchange(self, x, groups):
    exchanged = exchange_p(
        x.reshape(len(x), -1, x.shape[-1]), axes=self.axes, groups=groups)
    return exchanged.reshape(x.shape)

  def exchange_c(self, x):
    return self._exchange(x, self._over_c()) if self.columns > 1 else x

  def exchange_r(self, x):
    return self._exchange(x, self._over_r()) if self.rows > 1 else x

  def of_next(self, x, dimension):
    """The X of the next device, along a column (0) or a row (1) of the grid, cyclically."""
    if (self.rows, self.columns)[dimension] == 1:
      return x
    # `ppermute` counts devices in the order of the mesh, whatever that of the names (jax 0.10.2).
    shape = self.layout.mesh.shape
    names = tuple(name for name in self.layout.mesh.axis_names if name in self.axes)
    place = np.arange(self.devices).reshape([shape[name] for name in names])
    place = place.transpose([names.index(name) for name in self.axes])
    place = place.reshape(self.rows, self.columns)
    pairs = np.stack([np.roll(place, -1, dimension), place], axis=-1).reshape(-1, 2)
    return lax.ppermute(x, names, [(source, own) for source, own in pairs.tolist()])

  def exchange_all(self, x, rows, columns):
    """The parts that all devices send to this one.

    A device sends to row i and column j of a grid the rows `rows[i]` of its own, restricted to the
    columns `columns[j]`. Rows are taken first and then columns: XLA then compiles a kernel for each
    row and column, rather than for each device.
    """
    sent = jnp.stack([take(some, j, 1) for some in [take(x, i, 0) for i in rows] for j in columns])
    return self._exchange(sent, None) if self.devices > 1 else sent

  # The columns or rows of panel k, restricted to the rows or columns of the panels `among`.

  def columns_of(self, x, k, among=(0, None)):
    """Stored: rows x wide."""
    return cut(x, k * self.wide, self.wide, 1)[_slice(among, self.tall)]

  def rows_of(self, x, k, among=(0, None)):
    """Stored: tall x columns."""
    return cut(x, k * self.tall, self.tall, 0)[:, _slice(among, self.wide)]

  # Gathers a panel's columns or rows from each device's part of them.

  def all_columns(self, slab):
    """Columns, for this device's rows: rows x width."""
    return self.gather_c(slab).swapaxes(0, 1).reshape(-1, self.width)

  def all_rows(self, slab):
    """Rows, for this device's columns: width x columns."""
    gathered = self.gather_r(slab.reshape(self.columns, self.block, -1))
    return gathered.swapaxes(0, 1).reshape(self.width, -1)

  def turned_columns(self, slab):
    """Columns, for the rows with the indices of this device's columns: columns x width."""
    return self.spread_to_columns(self.redistribute_rows(slab))

  def turned_rows(self, slab):
    """Rows, for the columns with the indices of this device's rows: width x rows."""
    slab = slab.reshape(self.tall, -1, self.rows, self.block)
    panels = slab.shape[1]
    slab = self.exchange_r(jnp.moveaxis(slab, 2, 0))
    slab = slab.reshape(self.rows, self.columns, self.block, panels * self.block)
    slab = self.gather_c(slab.swapaxes(0, 1).reshape(self.width, panels * self.block))
    slab = slab.reshape(self.columns, self.width, panels, self.block)
    return jnp.moveaxis(slab, 0, 2).reshape(self.width, panels * self.tall)

  def redistribute_rows(self, slab):
    """One block of rows of each panel, with all of a panel's columns, from the stored columns.

    Each device has some of them: (panels b) x width.
    """
    panels = slab.shape[0] // self.tall
    moved = slab.reshape(panels, self.columns, self.block, self.wide).swapaxes(0, 1)
    moved = self.exchange_c(moved).reshape(self.columns, panels * self.block, self.wide)
    return moved.swapaxes(0, 1).reshape(panels * self.block, self.width)

  def restored_columns(self, redistributed):
    """The inverse of `redistribute_rows`."""
    moved = redistributed.reshape(-1, self.columns, self.wide).swapaxes(0, 1)
    moved = self.exchange_c(moved).reshape(self.columns, -1, self.block, self.wide)
    return moved.swapaxes(0, 1).reshape(-1, self.wide)

  def spread_to_rows(self, redistributed):
    """A result of `redistribute_rows`, for this device's rows."""
    blocks = redistributed.reshape(-1, self.block, self.width)
    return self.gather_c(blocks).swapaxes(0, 1).reshape(-1, self.width)

  def spread_to_columns(self, redistributed):
    """A result of `redistribute_rows`, for the rows with the indices of this device's columns."""
    blocks = redistributed.reshape(-1, self.block, self.width)
    return self.gather_r(blocks).swapaxes(0, 1).reshape(-1, self.width)

  def own_rows(self, panel, r):
    """The rows of a panel that are in row r of the grid: tall x columns."""
    blocks = panel.reshape(self.columns, self.rows, self.block, panel.shape[1])
    return cut(blocks, r, 1, 1).reshape(self.tall, -1)

  def own_columns(self, panel, c):
    """The columns of a panel that are in column c of the grid: rows x wide."""
    return cut(panel, c * self.wide, self.wide, 1)

  def diagonal_block(self, x, k):
    """The diagonal block of panel k, width x width, on all devices."""
    blocks = self.columns_of(self.rows_of(x, k), k).reshape(self.columns, self.block, self.wide)
    gathered = self.gather_all(blocks)  # r, c, block of rows, row, column
    return gathered.transpose(2, 0, 3, 1, 4).reshape(self.width, self.width)

  # Indices of rows and columns.

  def numbers(self):
    """The indices of the device's rows and columns in the padded matrix: (h, 1) and (1, w)."""
    r, c = self.place()
    height, width = self.padded_lengths
    i = jnp.arange(height // self.rows, dtype=r.dtype)
    j = jnp.arange(width // self.columns, dtype=c.dtype)
    row = (quotient(i, self.block) * self.rows + r) * self.block + remainder(i, self.block)
    column = (quotient(j, self.wide) * self.columns + c) * self.wide + remainder(j, self.wide)
    return row[:, None], column[None]

  def redistributed_numbers(self):
    """The indices of the rows that `redistribute_rows` gives this device, of all panels."""
    r, c = self.place()
    i = jnp.arange(self.padded // self.devices, dtype=r.dtype)
    number = (quotient(i, self.block) * self.columns + c) * self.rows + r
    return number * self.block + remainder(i, self.block)

  def diagonal(self, x):
    """The device's part of X's diagonal: one block of each panel."""
    r, c = self.place()
    k, i = jnp.arange(self.panels)[:, None], jnp.arange(self.block)
    blocks = x.reshape(self.panels, self.columns, self.block, self.panels, self.rows, self.block)
    return blocks[k, c, i, k, r, i]

  def pad(self, x: jax.Array) -> jax.Array:
    """An array that is the same on all devices, with rows of zeros added to the padded length."""
    return jnp.pad(x, [(0, self.padded - len(x)), *[(0, 0)] * (x.ndim - 1)])

  def transpose(self, x):
    """The transpose of some panels' rows and columns, in the block-cyclic layout.

    Each device sends its part of them. A device gets its rows and columns from all devices that
    have the columns and rows of the same indices.
    """

    def by_group(length, groups):
      blocks = jnp.arange(length, dtype=jnp.int32).reshape(-1, groups, self.block)
      return blocks.swapaxes(0, 1).reshape(groups, -1)

    high, wide = x.shape[0] // self.tall, x.shape[1] // self.wide
    x = self.exchange_all(
        x.mT, by_group(x.shape[1], self.rows), by_group(x.shape[0], self.columns))
    x = x.reshape(self.rows, self.columns, wide, self.block, high, self.block)
    return x.transpose(2, 1, 3, 4, 0, 5).reshape(wide * self.tall, high * self.wide)

  # In a triangle, the columns of a panel are longer where its rows are shorter. Two panels at equal
  # distance from both ends, `near` and `far`, always have the same total length. They are packed in
  # one array, and the loop that moves them skips the zero part of the triangle.

  @property
  def pairs(self) -> int:
    return (self.panels + 1) // 2

  def pack(self, near, far, k, dimension, *, up_to):
    """The panels 0 to k of `near` and 0 to N - 1 - k of `far`, in sequence, for k < `pairs`.

    Without `up_to`, the panels from k and from N - 1 - k on. There are N panels, and the result has
    N + 1.
    """
    length = near.shape[dimension] // self.panels
    first, second, spare = (near, far, (0, 1)) if up_to else (far, near, (1, 0))
    spare = [(self.panels // 2 + 1) * x * length for x in spare]
    begin = k + 1 if up_to else self.panels // 2 - k
    whole = longer(first, spare, dimension)
    packed = put(whole, second, *(begin * length if i == dimension else 0 for i in (0, 1)))
    begin = 0 if up_to else self.panels // 2
    return lax.slice_in_dim(
        packed, begin * length, (begin + self.panels + 1) * length, axis=dimension)

  def add_adjoint(self, x, upper):
    """Returns the lower triangle of X with its adjoint added above the diagonal. If `upper`,
    returns the upper triangle with its adjoint below.

    Blocks on the diagonal are added whole. The entries that are added to do not move.
    """
    out_of, into = (1, 0) if upper else (0, 1)
    panel, length = (self.tall, self.wide)[out_of], (self.tall, self.wide)[into]

    def turn(k, x):
      other = self.panels - 1 - k
      near, far = (cut(x, i * panel, panel, out_of) for i in (k, other))
      packed = self.pack(near, far, k, into, up_to=True)
      moved = self.transpose(packed).conj()
      moved = longer(moved, (0, (self.panels // 2 + 1) * panel), out_of)
      number = quotient(jnp.arange(self.panels * panel, dtype=k.dtype), panel)
      # The middle panel of an odd number is its own pair.
      for i, begin, end in ((k, 0, k), (other, k + 1, jnp.where(other > k, other, -1))):
        part = cut(moved, begin * panel, self.panels * panel, out_of)
        part = jnp.where(jnp.expand_dims(number <= end, into), part, 0)
        old = cut(x, i * length, length, into)
        x = put(x, old + part, *((0, i * length) if into else (i * length, 0)))
      return x

    return lax.fori_loop(0, self.pairs, turn, x)


def map_each(
    g: Cyclic, batch: tuple[Axes, ...], function: Callable[..., Any], operands: str, results: str,
    *arrays: Any, layout: Layout | None = None
) -> Any:
  """Applies `function` to each device's parts of each matrix of a batch, one matrix at a time.

  `batch` has the axes that batch dimensions are sharded over. `operands` and `results` have a
  letter for each array: "c" for a matrix in the block-cyclic layout, "m" for one in the caller's or
  in `layout`, "v" for a vector or number that is the same on all devices of a matrix, and "n" for
  such an operand that is a number. There may be more batch dimensions in front, which are not
  sharded.
  """
  core = {"c": 2, "v": 1, "n": 0}
  more = arrays[0].ndim - (3 if operands[0] == "c" else 1) - len(batch)
  leading = [*[None] * more, *[axes or None for axes in batch]]
  own = [axes or None for axes in (layout or g.layout).spec]
  specs = {
      "c": PartitionSpec(*leading, g.axes), "m": PartitionSpec(*leading, *own),
      "v": PartitionSpec(*leading), "n": PartitionSpec(*leading)}

  def body(*arrays):
    lead = arrays[0].shape[: len(leading)]
    arrays = [
        x.reshape(-1, *x.shape[x.ndim - core[kind] :])
        for x, kind in zip(arrays, operands, strict=True)]
    call = lambda arrays: jax.tree.leaves(function(*arrays))
    found = lax.map(call, arrays) if lead else [x[None] for x in call([x[0] for x in arrays])]
    return [
        x.reshape(*lead, *([1] if kind == "c" else []), *x.shape[1:])
        for x, kind in zip(found, results, strict=True)]

  return map_parts(g.layout.mesh, specs, body, operands, results, *arrays)


def _slice(panels, length):
  begin, end = panels
  return slice(begin * length, None if end is None else end * length)


def longer(x, counts, dimension):
  """`x` with that many zeros before and after its entries."""
  return jnp.pad(x, [counts if i == dimension else (0, 0) for i in range(x.ndim)])


def _integers(numbers: Any) -> tuple[int, ...] | None:
  """Converts a tuple of integers, also NumPy's, to Python integers.

  Returns None for other values.
  """
  try:
    return tuple(map(operator.index, numbers)) if isinstance(numbers, tuple) else None
  except TypeError:
    return None


def cyclic_of(
    name: str, layout: Layout, n: int, grid: tuple[int, int] | None, panel: int | None,
    has_pivots: bool = False,
) -> Cyclic:
  """The blocks for a square matrix of n rows.

  `grid` and `panel`, the width of a panel, are the caller's or None. The default grid is the
  nearest to a square. The default width leaves enough panels. A matrix with pivots has at least
  twice as many: a tournament over wider panels would move as much data as everything else.
  """
  rows, columns = map(layout.devices, layout.spec)
  devices = rows * columns
  if min(rows, columns) == 1:
    nearest = next(k for k in range(math.isqrt(devices), 0, -1) if devices % k == 0)
    given = (devices // nearest, nearest)
  else:
    given = (rows, columns)
  numbers = None if grid is None else _integers(grid)
  if grid is not None and (numbers is None or len(numbers) != 2):
    raise ValueError(f"{name}: grid={grid!r} must be a pair of numbers, (rows, columns).")
  if numbers is not None and numbers != given:
    if min(rows, columns) > 1:
      raise ValueError(
          f"{name}: grid={grid!r}, but a matrix that is sharded over both dimensions has the grid "
          f"of its sharding, {given}.")
    given = numbers[0], numbers[1]
    if min(given) < 1 or math.prod(given) != devices:
      raise ValueError(
          f"{name}: grid={grid!r} must be two numbers whose product is that of the devices, "
          f"{devices}.")

  def cyclic(size):
    width = size * devices
    padded = rounded_up(n, width)
    return Cyclic(layout, *given, n, size, padded, _PHASES, _TILES)

  def growth(size):
    found = cyclic(size)
    rows, columns = found.redistribution(0), found.redistribution(1)
    return max(found.padded / max(n, 1), rows.growth * columns.growth)

  if panel is None:
    # Wider panels mean fewer steps. The buffers of one should be small beside a device's share.
    fit = n // (4 * sum(given))
    most = min(fit // 2 if has_pivots else max(fit, min(2 * fit, _NARROW)), _WIDEST)
    sizes = [1 << k for k in range(max(most // devices, 1).bit_length())]
    return cyclic(max(x for x in sizes if growth(x) <= max(growth(1), _GROWTH)))
  widths = _integers((panel,))
  if widths is None or widths[0] < 1 or widths[0] % devices:
    raise ValueError(
        f"{name}: panel={panel!r} must be a positive multiple of the {devices} devices, which "
        "share each panel of that width.")
  return cyclic(widths[0] // devices)
