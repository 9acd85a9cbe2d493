"""Matrices of any shape in the block-cyclic layout, in batches: products and triangular systems.

`_operations.py` has those of one square matrix, which skip the zeros of triangles.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

import linalg.distributed._algorithms as algorithms
from linalg import ffi
from linalg._core.algebra import minus, plus
from linalg._factorizations.matmul import product
from linalg.distributed._cyclic import Cyclic, cyclic_of, map_each, rounded_up
from linalg.distributed._layout import Axes, Layout, map_parts
from linalg.distributed._redistribution import collect_p, deal_p, even
from linalg.distributed._slices import cut, put, quotient, window


class Shared(NamedTuple):
  """Matrices that several devices share: the blocks of one, and the axes of batch dimensions.

  In the block-cyclic layout they are an array (..., P, h, w).
  """

  grid: Cyclic
  batch: tuple[Axes, ...]

  def of_shape(self, m: int, n: int) -> "Shared":
    """Matrices of another shape, in blocks of the same size."""
    padded = rounded_up(n, self.grid.width)
    return self._replace(grid=self.grid._replace(n=n, padded=padded, height=m))

  def parts(self, m: int, n: int) -> tuple[int, int]:
    """The size of a device's part of an m x n matrix."""
    height, width = self.of_shape(m, n).grid.padded_lengths
    return height // self.grid.rows, width // self.grid.columns

  def map(
      self, function: Callable[..., Any], operands: str, results: str, *arrays: Any,
      layout: Layout | None = None
  ) -> Any:
    """Applies `function` to each device's parts of each matrix: `map_each`."""
    return map_each(
        self.grid, self.batch, function, operands, results, *arrays, layout=layout)

  @property
  def blocks(self) -> Cyclic:
    """The grid for operations on the whole batch in the block-cyclic layout."""
    return self.grid._replace(batch=self.batch)

  def masked(self, keep: Callable[[Any, Any], Any], x: jax.Array) -> jax.Array:
    """The entries of X that `keep` chooses from their row and column, and zeros."""
    body = lambda x: jnp.where(keep(*self.grid.numbers()), x, 0)
    return self.map(body, "c", "c", x)


def blocks_of(name: str, layout: Layout, m: int, n: int) -> Shared:
  """The blocks for m x n matrices, from the layout of all of their dimensions."""
  one = Layout(layout.mesh, layout.spec[-2:])
  grid = cyclic_of(name, one, min(m, n), None, None, has_pivots=True)
  return Shared(grid, layout.spec[:-2]).of_shape(m, n)


def _moved(shared, move, x, is_back):
  spec = PartitionSpec(*(axes or None for axes in (*shared.batch, *shared.grid.layout.spec)))
  blocks = PartitionSpec(*(axes or None for axes in shared.batch), shared.grid.axes)

  def body(x):
    return move(shared.grid, x[..., 0, :, :]) if is_back else move(shared.grid, x)[..., None, :, :]

  return map_parts(
      shared.grid.layout.mesh, {"m": spec, "c": blocks}, lambda x: [body(x)],
      *("cm" if is_back else "mc"), x)


def to_blocks(shared: Shared, a: jax.Array) -> jax.Array:
  """The matrices in the block-cyclic layout, padded with zeros. Each device moves its share."""
  return _moved(shared, deal_p, even(shared.grid, a), False)


def from_blocks(shared: Shared, x: jax.Array) -> jax.Array:
  """The inverse of `to_blocks`."""
  m, n = shared.grid.lengths
  return _moved(shared, collect_p, x, True)[..., :m, :n]


# The computations of one device.


def _tiles(g, panels, first, tile, carry):
  """A loop over tiles of columns, of which only one is in memory.

  `tile` gets where one begins, and which of its columns are from panel `first` on and in no earlier
  tile: the last may reach beyond the last panel, and is moved back.
  """
  size = -(-panels // g.most_tiles)

  def step(i, carry):
    begin = jnp.minimum(i * size, panels - size)
    number = begin + quotient(jnp.arange(size * g.wide, dtype=i.dtype), g.wide)
    return tile(begin * g.wide, number >= jnp.maximum(i * size, first), carry)

  return lax.fori_loop(quotient(first, size), -(-panels // size), step, carry)


def add_outer(g: Cyclic, a: jax.Array, left, right, low: int, first) -> jax.Array:
  """Adds L R to the rows and columns of A from panel `low` on, in columns from panel `first` on."""

  def tile(begin, inside, a):
    part = jnp.where(inside[None], cut(right, begin, len(inside), 1), 0)
    return algorithms.add_product(a, left, part, low * g.tall, low * g.wide + begin)

  return _tiles(g, right.shape[1] // g.wide, first - low, tile, a)


def inner(g: Cyclic, v: jax.Array, x: jax.Array, low: int, first) -> jax.Array:
  """This device's part of Vᴴ X, for the rows and columns of X from panel `low` on.

  Columns before panel `first` are arbitrary.
  """
  width = x.shape[1] - low * g.wide

  def tile(begin, inside, found):
    part = window(x, (low * g.tall, low * g.wide + begin), (v.shape[0], len(inside)))
    return put(found, product(v, part, adjoint_a=True), 0, begin)

  zeros = g.zeros_after(x, (v.shape[1], width))
  return _tiles(g, width // g.wide, first - low, tile, zeros)


def times(g: Cyclic, x: jax.Array, y: jax.Array) -> jax.Array:
  """X Y: each panel of the inner dimension is gathered along rows and columns of the grid."""

  def step(k, found):
    left, right = g.all_columns(g.columns_of(x, k)), g.all_rows(g.rows_of(y, k))
    return add_outer(g, found, left, right, 0, jnp.int32(0))

  zeros = g.zeros_after(y, (x.shape[0], y.shape[1]))
  return lax.fori_loop(0, x.shape[1] // g.wide, step, zeros)


def transposed_times(g: Cyclic, x: jax.Array, y: jax.Array) -> jax.Array:
  """Xᵀ Y: the panels of its rows are summed over the columns of the grid."""

  def step(k, found):
    left = g.all_columns(g.columns_of(x, k))
    return put(found, g.sum_rows_r(product(left.mT, y)), k * g.tall, 0)

  panels = x.shape[1] // g.wide
  return lax.fori_loop(0, panels, step, g.zeros_after(y, (panels * g.tall, y.shape[1])))


def times_transposed(g: Cyclic, x: jax.Array, y: jax.Array) -> jax.Array:
  """X Yᵀ: the panels of its columns are summed over the rows of the grid."""

  def step(k, found):
    right = g.all_rows(g.rows_of(y, k))
    return put(found, g.sum_columns_c(product(x, right.mT)), 0, k * g.wide)

  panels = y.shape[0] // g.tall
  return lax.fori_loop(0, panels, step, g.zeros_after(y, (x.shape[0], panels * g.wide)))


_PRODUCTS = {
    (False, False): times, (True, False): transposed_times, (False, True): times_transposed}


def multiply(
    shared: Shared, x: jax.Array, y: jax.Array, transpose: tuple[bool, bool] = (False, False)
) -> jax.Array:
  """op(X) op(Y), where op is the identity or the transpose, of at most one."""
  (height, width), turned = (z.shape[-2:] for z in (x, y)), transpose
  g = shared.grid
  rows = x.shape[-1] // g.wide * g.tall if turned[0] else height[0]
  columns = y.shape[-2] // g.tall * g.wide if turned[1] else width[1]
  return multiply_p(x, y, shared=shared, transpose=turned, height=rows, width=columns)


def _multiply_jvp(primals, tangents, *, shared, transpose, **_):
  (x, y), (dx, dy) = primals, tangents
  call = functools.partial(multiply, shared, transpose=transpose)
  change = None
  for left, right in ((dx, y), (x, dy)):
    if left is not None and right is not None:
      change = plus(change, call(left, right))
  return call(x, y), change


def _multiply_transpose(cotangents, operands, *, shared, transpose, **_):
  (ct,), (x, y) = cotangents, operands
  call = functools.partial(multiply, shared)
  if x is None:
    if transpose == (True, False):  # X̄ = Y C̄ᵀ
      return call(y, ct, transpose=(False, True)), None
    return call(ct, y, transpose=(False, not transpose[1])), None
  if transpose == (False, True):  # Ȳ = C̄ᵀ X
    return None, call(ct, x, transpose=(True, False))
  return None, call(x, ct, transpose=(not transpose[0], False))


def _multiply(x, y, *, shared, transpose, **_):
  return [shared.map(functools.partial(_PRODUCTS[transpose], shared.grid), "cc", "c", x, y)]


# These are primitives so that they have their own derivative rules. XLA would differentiate the
# loops, and keep every panel in memory.
multiply_p: ffi.Operation = ffi.operation(
    "linalg_distributed_shared_multiply", "h w, i j -> height width", [0],
    attributes={"shared": None, "transpose": (False, False), "height": 0, "width": 0},
    platforms=(), jvp=_multiply_jvp, transpose=_multiply_transpose, fallback=_multiply)


def _quotient_jvp(primals, tangents, *, shared, transpose):
  # dX op(R) = dB - X op(dR)
  (r, b), (dr, db) = primals, tangents
  call = functools.partial(quotient_p, r, shared=shared, transpose=transpose)
  x = call(b)
  if dr is not None:
    db = minus(db, multiply(shared, x, dr, (False, transpose)))
  return x, call(db)


def _quotient_transpose(cotangents, operands, *, shared, transpose):
  (ct,), (r, _) = cotangents, operands
  return None, quotient_p(r, ct, shared=shared, transpose=not transpose)


def _quotient(r, b, *, shared, transpose):
  n = shared.grid.n
  g = shared.of_shape(n, n).grid._replace(height=None)

  def body(r, b):
    row, column = g.numbers()
    r = jnp.where((row == column) & (row >= n), jnp.ones((), r.dtype), r)
    l = algorithms.transpose_of_upper(g, r)
    return algorithms.solve(g, l, b, left=False, transpose=not transpose)

  return [shared.map(body, "cc", "c", r, b)]


# Solves X op(R) = B for an upper triangular R. `shared` has R's number of columns.
quotient_p: ffi.Operation = ffi.operation(
    "linalg_distributed_shared_quotient", "h w, i j -> i j", [0],
    attributes={"shared": None, "transpose": False}, platforms=(), jvp=_quotient_jvp,
    transpose=_quotient_transpose, fallback=_quotient)


def of_square(
    name: str, function: Callable[[Cyclic, jax.Array], jax.Array],
    opposite: Callable[[], ffi.Operation],
) -> ffi.Operation:
  """A linear operation of square matrices, whose transpose is the opposite."""

  def fallback(x, *, shared):
    n = shared.grid.n
    g = shared.of_shape(n, n).grid._replace(height=None)
    return [shared.map(functools.partial(function, g), "c", "c", x)]

  operation: ffi.Operation = ffi.operation(
      f"linalg_distributed_shared_{name}", "h w -> h w", [0], attributes={"shared": None},
      platforms=(),
      jvp=lambda primals, tangents, shared: (
          operation(*primals, shared=shared), operation(*tangents, shared=shared)),
      transpose=lambda cotangents, operands, shared: (opposite()(*cotangents, shared=shared),),
      fallback=fallback)
  return operation


# The Hermitian matrix of a lower triangle, and the lower half of X + Xᴴ.
hermitian_p: ffi.Operation = of_square("hermitian", algorithms.hermitian, lambda: folded_p)
folded_p: ffi.Operation = of_square("folded", algorithms.folded, lambda: hermitian_p)
# (X + Xᴴ) / 2 is its own transpose.
hermitian_part_p: ffi.Operation = of_square(
    "hermitian_part", algorithms.hermitian_part, lambda: hermitian_part_p)
