"""Reflectors of one matrix in the block-cyclic layout, for condensed forms.

The functions here work on a device's part, in the body of a `shard_map`. `_tridiagonal.py` and
`_bidiagonal.py` reduce a matrix by panels of reflectors, with a part of each step on all devices,
and apply the reflectors to the vectors of the condensed form.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from linalg._core.algebra import binade
from linalg._factorizations.matmul import product
from linalg._factorizations.triangular import triangular_solve_p
from linalg.distributed._cyclic import Cyclic, rounded_up
from linalg.distributed._layout import Axes, Layout
from linalg.distributed._redistribution import collect_p, deal_p
from linalg.distributed._slices import cut, loop, put

# The width of a panel that makes the trailing update a product. Wider panels take more operations
# on narrow matrices.
_WIDTH = 32
# The least number of panels, if the devices are not more than that of the rows.
_PANELS = 8
# The most devices that each hold whole rows. A device then receives 3 n² / 2 numbers, in two
# messages for each column. In a grid of Pr x Pc it receives n² (3 / 2 Pr + 2 / Pc), in four.
_MOST_ROWS = 16


def _narrow_block(devices: int, n: int) -> int:
  """The rows of a block, in panels for reflectors."""
  return max(min(_WIDTH, max(n // _PANELS, 1)) // devices, 1)


class Spectrum(NamedTuple):
  """A decomposition: the matrix's cyclic blocks, and the wanted pairs or triplets."""

  grid: Cyclic
  first: int  # the first that is wanted
  wanted: int

  @property
  def chunk(self) -> int:
    """The columns of the result on a device."""
    return -(-self.wanted // self.columns)

  @property
  def shares_columns(self) -> bool:
    """Whether the columns of the result are sharded like A's."""
    return self.wanted in (0, self.grid.n) or self.wanted % self.columns == 0

  @property
  def columns(self) -> int:
    """The devices along A's columns."""
    return self.grid.layout.devices(self.grid.layout.spec[1])

  @property
  def result(self) -> Layout:
    """The layout of the vectors."""
    rows, columns = self.grid.layout.spec
    return self.grid.layout._replace(spec=(rows, columns if self.shares_columns else ()))


def grid_of_reflectors(layout: Layout, n: int, most_phases: int) -> Cyclic:
  """A grid of one column for few devices, else the nearest to a square; and its narrow blocks."""
  devices = layout.devices(layout.spec[0] + layout.spec[1])
  columns = 1 if devices <= _MOST_ROWS else next(
      k for k in range(math.isqrt(devices), 0, -1) if devices % k == 0)
  block = _narrow_block(devices, n)
  padded = rounded_up(n, block * devices)
  return Cyclic(layout, devices // columns, columns, n, block, padded, most_phases, 1)


def grid_of_vectors(g: Cyclic) -> Cyclic:
  """The grid of eigenvectors or singular vectors.

  If a device holds whole rows of A, it holds whole columns of these: it then gathers reflectors,
  and takes no sums.
  """
  return g if g.columns > 1 else g._replace(rows=1, columns=g.rows)


def magnitude(x: jax.Array) -> jax.Array:
  """The largest real or imaginary part: a modulus may leave the range."""
  if jnp.iscomplexobj(x):
    return jnp.maximum(jnp.max(jnp.abs(x.real)), jnp.max(jnp.abs(x.imag)))
  return jnp.max(jnp.abs(x))


times = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def squared(x: jax.Array) -> jax.Array:
  return (x * x.conj()).real


class Reflector(NamedTuple):
  """A reflector H = I - τ v vᴴ that takes the entries below number c to one real entry, of Hᴴ x.

  v is zero up to number c and then begins with 1. Where nothing changes, v and τ are 0. LAPACK's
  zlarfg.
  """

  c: jax.Array
  scale: jax.Array
  divisor: jax.Array
  is_done: jax.Array
  tau: jax.Array
  entry: jax.Array

  def vector(self, x: jax.Array, number: jax.Array) -> jax.Array:
    """The entries of v with these numbers, from those of x."""
    tail = x / self.scale.astype(x.dtype) / self.divisor
    v = jnp.where(number == self.c + 1, jnp.ones((), x.dtype), jnp.where(number > self.c, tail, 0))
    return jnp.where(self.is_done, 0, v)


def parts_of_norm(x, number, c):
  """A power of two, the sum of squares below the head in its units, and the head."""
  is_head = number == c + 1
  alpha = jnp.sum(jnp.where(is_head, x, 0))
  x = jnp.where(number > c, x, 0)
  size = magnitude(x)
  scale = jnp.where(size > 0, binade(size), 0)
  rest = jnp.where(is_head, 0, x) / jnp.where(size > 0, scale, 1).astype(x.dtype)
  return jnp.stack([scale.astype(x.dtype), jnp.sum(squared(rest)).astype(x.dtype), alpha])


def reflector_of(parts, c):
  """The reflector of a vector, from all devices' `parts_of_norm`."""
  scales, squares, alpha = parts[:, 0].real, parts[:, 1].real, jnp.sum(parts[:, 2])
  # Squares of the scaled entries neither overflow, nor underflow all together.
  scale = jnp.max(scales)
  scale = jnp.where(scale > 0, scale, 1)
  square = jnp.sum(squares * squared(scales / scale))
  alpha = alpha / scale.astype(alpha.dtype)
  norm = jnp.sqrt(squared(alpha) + square)
  is_done = (square == 0) & (alpha.imag == 0)
  beta = jnp.where(alpha.real < 0, norm, -norm)
  new = jnp.where(is_done, 1, beta).astype(alpha.dtype)
  tau = jnp.where(is_done, 0, (new - alpha) / new)
  divisor = jnp.where(is_done, 1, alpha - new)
  entry = jnp.where(is_done, alpha.real, beta) * scale
  return Reflector(c, scale, divisor, is_done, tau, entry.astype(alpha.dtype))


def numbers_of_stage(
    g: Cyclic, low: int, k: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """The numbers of this device's rows and columns from panel `low` on, and of panel k's columns."""
  row, column = g.numbers()
  panel = k * g.width + jnp.arange(g.width, dtype=k.dtype)
  return row[low * g.tall :, 0], column[0, low * g.wide :], panel


def flat(vectors: jax.Array) -> jax.Array:
  """V and W, (2, width, n), as rows of one matrix."""
  return vectors.reshape(-1, vectors.shape[-1])


def piece(g: Cyclic, x: jax.Array, c: jax.Array) -> jax.Array:
  """The entries (..., h) of this device's rows that are among its columns: one block of each
  panel."""
  pieces = x.reshape(*x.shape[:-1], -1, g.columns, g.block)
  return cut(pieces, c, 1, pieces.ndim - 2).reshape(*x.shape[:-1], -1)


def columns_of_pieces(g: Cyclic, pieces: jax.Array) -> jax.Array:
  """The entries of this device's columns, from the pieces of a column of the grid, (Pr, ..., h)."""
  shape = pieces.shape[1:-1]
  pieces = pieces.reshape(g.rows, *shape, -1, g.block)
  return jnp.moveaxis(pieces, 0, -2).reshape(*shape, -1)


def sum_over_columns(
    g: Cyclic, x: jax.Array, more: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
  """The sums over a row of the grid of entries of its rows, and of some more numbers."""
  more = x[:0] if more is None else more
  if g.columns == 1:
    return x, more
  x = x.reshape(-1, g.columns, g.block).swapaxes(0, 1).reshape(1, -1)
  own = g.sum_columns_c(x)[0]
  every = g.gather_c(jnp.concatenate([own, more]))
  x = every[:, : len(own)].reshape(g.columns, -1, g.block).swapaxes(0, 1).reshape(-1)
  return x, jnp.sum(every[:, len(own) :], axis=0)


def panel_of_rows(g: Cyclic, parts: jax.Array) -> jax.Array:
  """The entries of a panel, from those of all rows of the grid: (Pr, tall)."""
  return parts.reshape(g.rows, g.columns, g.block).swapaxes(0, 1).reshape(-1)


def gathered_rows(g: Cyclic, v: jax.Array) -> jax.Array:
  """All rows of a panel's columns, in the order of the matrix, in a grid of one column."""
  every = g.gather_r(v).reshape(g.rows, -1, g.block, v.shape[1])
  return every.swapaxes(0, 1).reshape(-1, v.shape[1])


def multiply_by_reflectors(
    g: Cyclic, panel: Callable[[Cyclic, jax.Array, jax.Array], jax.Array],
    reflectors: list[jax.Array], tau: jax.Array, z: jax.Array
) -> jax.Array:
  """Q Z, in the grid of vectors.

  `panel` gathers the reflectors of a panel, in columns, for the rows of a device's part of Z, from
  each device's part of a stage.

  A panel of reflectors is I - V T Vᴴ, and T⁻¹ has the factors' reciprocals on its diagonal and
  those of Vᴴ V above it (Schreiber and Van Loan, A storage-efficient WY representation for products
  of Householder transformations, 1989).
  """
  of_z = grid_of_vectors(g)
  for (low, high), own in reversed(list(zip(g.phases, reflectors, strict=True))):

    def step(i, z, low=low, high=high, own=own):
      k = high - 1 - (i - low)
      v = panel(g, own, k - low)
      factor = cut(tau, k * g.width, g.width, 0)
      # A reflector that changes nothing is zero, and any factor will do.
      factor = 1 / jnp.where(factor == 0, 1, factor)
      rest = z[low * of_z.tall :]
      sums = of_z.sum_r(jnp.concatenate(
          [product(v, x, adjoint_a=True) for x in (v, rest)], axis=1))
      sums = jnp.moveaxis(of_z.gather_r(sums), 0, 1).reshape(g.width, -1)
      t = jnp.triu(sums[:, : g.width], 1) + jnp.diag(factor)
      change = triangular_solve_p(t, sums[:, g.width :], left_side=True, lower=False)
      return put(z, rest - product(v, change), low * of_z.tall, 0)

    z = loop(low, high, step, z)
  return z


def on_all(axes: Axes, x: jax.Array) -> jax.Array:
  """The first device's copy, known to be the same on all devices."""
  return lax.psum(jnp.where(lax.axis_index(axes) == 0, x, 0), axes)


def vectors_layout(s: Spectrum) -> Cyclic:
  """The wanted vectors in cyclic blocks, and in the layout of the result."""
  g = grid_of_vectors(s.grid)
  return g._replace(n=s.wanted, padded=rounded_up(s.wanted, g.width), height=g.n)


def own_rows(g: Cyclic) -> jax.Array:
  """The numbers of this device's rows of the condensed form's vectors."""
  share = -(-g.n // g.devices)
  first = lax.axis_index(g.axes) * share
  return (first + g.varying(jnp.arange(share, dtype=first.dtype))).astype(jnp.int32)


def dealt(s: Spectrum, rows: jax.Array) -> jax.Array:
  """The wanted vectors in cyclic blocks, from this device's rows of all."""
  blocks = vectors_layout(s)
  whole_rows = blocks._replace(layout=blocks.layout._replace(spec=(blocks.axes, ())))
  return deal_p(whole_rows, rows[:, s.first : s.first + s.wanted])


def to_result(s: Spectrum, z: jax.Array) -> jax.Array:
  """The inverse of `dealt`, in the layout of the result."""
  z = collect_p(vectors_layout(s), z)
  if not s.shares_columns:
    z = lax.all_gather(
        z, s.grid.layout.spec[1], axis=1, tiled=True, to="invarying")[:, : s.wanted]
  return z
