"""Cholesky factors, triangular systems and products of matrices in a block-cyclic layout.

What one device does, panel by panel: it gets its part of a panel's rows or columns from its row and
its column of the grid, and works on its own part of the matrix with them. Most loops are a few static
phases with loops over panels inside, so that a program's size does not depend on that of the matrix,
and a phase leaves out what a triangle has not.
"""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax

from linalg._cholesky import cholesky_p
from linalg._matmul import product
from linalg._triangular import triangular_solve_p
from linalg.distributed._cyclic import Cyclic

# Each phase costs compilation; the fewer, the more is computed and moved for nothing. With eight,
# that is an eighth of what moves.
_PHASES = 8
# Of the columns in a phase of the factorisation, to leave out what is above the diagonal.
_STRIPS = 4


def _bounds(count: int, parts: int) -> list[tuple[int, int]]:
  edges = sorted({round(count * i / parts) for i in range(parts + 1)})
  return list(zip(edges[:-1], edges[1:], strict=True))


def _phases(g: Cyclic, backward: bool = False) -> Iterator[tuple[int, int]]:
  bounds = _bounds(g.panels, _PHASES)
  return iter(bounds[::-1] if backward else bounds)


def factor(g: Cyclic, a: jax.Array) -> tuple[jax.Array, jax.Array]:
  """L of the lower triangle of A, and info.

  Right-looking; the layout is that of Choi, Dongarra, Ostrouchov, Petitet, Walker and Whaley, Design
  and implementation of the ScaLAPACK LU, QR, and Cholesky factorization routines, Sci. Program. 5
  (1996), with panels that have no owner.
  """
  row, column = g.numbers()
  chunk, filled = g.padded // g.chunks, g.n // g.chunks
  a = jnp.where((row == column) & (row % chunk >= filled), jnp.ones((), a.dtype), a)
  info = jnp.zeros((), jnp.int32)
  for low, high in _phases(g):
    rest = a[low * g.tall :, low * g.wide :]
    rest, info = lax.fori_loop(
        0, high - low, functools.partial(_eliminate, g, low), (rest, info))
    a = lax.dynamic_update_slice(a, rest, (low * g.tall, low * g.wide))
  a = jnp.where(row >= column, a, 0)
  failed = info != 0
  info = jnp.where(failed, g.order_of(info - 1) + 1, 0)
  return jnp.where(failed, jnp.nan, a), info


def _eliminate(g, low, k, carry):
  """Panel k of what is left after `low` panels."""
  a, info = carry
  r, c = g.place()
  dealt = g.deal_rows(g.columns_of(a, k))
  diagonal = g.gather_all(lax.dynamic_slice_in_dim(dealt, k * g.block, g.block, 0))
  diagonal = diagonal.swapaxes(0, 1).reshape(g.width, g.width)
  l, minor = cholesky_p(diagonal, lower=True, symmetrize=False)
  before = ((low + k) * g.width).astype(info.dtype)
  info = jnp.where((info == 0) & (minor > 0), before + minor, info)
  dealt = triangular_solve_p(
      l, dealt, left_side=False, lower=True, transpose_a=True, conjugate_a=True)
  own = lax.dynamic_slice_in_dim(l, (c * g.rows + r) * g.block, g.block, 0)
  dealt = lax.dynamic_update_slice_in_dim(dealt, own, k * g.block, 0)
  rows, columns = g.spread_to_rows(dealt), g.spread_to_columns(dealt)
  later = jnp.arange(a.shape[1], dtype=k.dtype) >= (k + 1) * g.wide
  columns = jnp.where(later[:, None], columns, 0)
  from_here = jnp.arange(a.shape[0], dtype=k.dtype) >= k * g.tall
  kept = jnp.where(from_here[:, None], g.own_columns(rows, c), g.columns_of(a, k))
  # Strips end where panels do: there the rows below are the same on all devices.
  for first, last in _bounds(a.shape[0] // g.tall, _STRIPS):
    below, beside = slice(first * g.tall, None), slice(first * g.wide, last * g.wide)
    update = product(rows[below], columns[beside], adjoint_b=True)
    a = lax.dynamic_update_slice(
        a, a[below, beside] - update, (first * g.tall, first * g.wide))
  return lax.dynamic_update_slice_in_dim(a, kept, k * g.wide, 1), info


def solve(
    g: Cyclic, l: jax.Array, b: jax.Array, *, left: bool, transpose: bool, lower: bool = False
) -> jax.Array:
  """X of op(L) X = B, or of X op(L) = B, where op is the identity or the transpose.

  L is zero above its diagonal. `lower`: B is lower triangular, and so is X, of L X = B.
  """
  assert not lower or (left and not transpose)
  r, c = g.place()
  backward = left == transpose

  def step(low, k, x, l):
    system = functools.partial(
        triangular_solve_p, g.diagonal_block(l, k), left_side=left, lower=True,
        transpose_a=transpose)
    if left:
      panel = system(g.all_rows(x, k))
      other = g.turned_rows(l, k).mT if transpose else g.all_columns(l, k)
      return lax.dynamic_update_slice_in_dim(
          x - product(other, panel), g.own_rows(panel, r), k * g.tall, 0)
    panel = system(g.all_columns(x, k))
    other = g.turned_columns(l, k).mT if transpose else g.all_rows(l, k)
    return lax.dynamic_update_slice_in_dim(
        x - product(panel, other), g.own_columns(panel, c), k * g.wide, 1)

  for low, high in _phases(g, backward):
    # What is still unknown: up to the phase's last panel, or from its first one on.
    known = slice(0, high) if backward else slice(low, g.panels)
    first = known.start
    rows = slice(known.start * g.tall, known.stop * g.tall)
    columns = slice(known.start * g.wide, known.stop * g.wide)
    triangle = l[rows, columns]
    side = (rows, slice(0, high * g.wide if lower else None)) if left else (slice(None), columns)

    def turn(i, x, low=low, high=high, first=first, triangle=triangle):
      k = high - 1 - i if backward else low + i
      return step(low, k - first, x, triangle)

    x = lax.fori_loop(0, high - low, turn, b[side])
    b = lax.dynamic_update_slice(b, x, (side[0].start or 0, side[1].start or 0))
  return b


def multiply(
    g: Cyclic, x: jax.Array, y: jax.Array, *, transpose: tuple[bool, bool],
    lower: tuple[bool, bool],
) -> jax.Array:
  """op(X) op(Y), where op is the identity or the transpose. `lower` says which of X and Y are zero
  above the diagonal."""
  h, w = x.shape
  (transpose_x, transpose_y), (lower_x, lower_y) = transpose, lower
  found = g.varying(jnp.zeros((h, w), x.dtype))
  for low, high in _phases(g) if any(lower) else [(0, g.panels)]:
    # The panels where the columns of op(X) and the rows of op(Y) are not zero.
    up_to, from_low, every = slice(0, high), slice(low, g.panels), slice(0, g.panels)
    above = every if not lower_x else up_to if transpose_x else from_low
    beside = every if not lower_y else from_low if transpose_y else up_to
    tall = lambda panels: slice(panels.start * g.tall, panels.stop * g.tall)
    wide = lambda panels: slice(panels.start * g.wide, panels.stop * g.wide)
    part_x = x[:, wide(above)] if transpose_x else x[tall(above)]
    part_y = y[tall(beside)] if transpose_y else y[:, wide(beside)]

    def turn(k, total, part_x=part_x, part_y=part_y):
      left = g.turned_rows(part_x, k).mT if transpose_x else g.all_columns(part_x, k)
      right = g.turned_columns(part_y, k).mT if transpose_y else g.all_rows(part_y, k)
      return total + product(left, right)

    rows, columns = tall(above), wide(beside)
    total = lax.fori_loop(low, high, turn, found[rows, columns])
    found = lax.dynamic_update_slice(found, total, (rows.start, columns.start))
  return found


def substitute(g: Cyclic, l: jax.Array, b: jax.Array) -> jax.Array:
  """X of L Lᴴ X = B, of a few columns that are on all devices: forward and back substitution.

  Each panel takes a sum over the devices of its rows, and moves the panel's diagonal block.
  """
  r, c = g.place()
  columns = b.shape[1]

  def rows_of(x, k):
    return lax.dynamic_slice_in_dim(x, k * g.width, g.width, 0)

  def total(part, where, shape):
    """The sum over all devices of parts that stand in some of a panel's rows."""
    return lax.psum(jnp.where(where, part, 0).reshape(shape), g.axes)

  def forward(k, carry):
    x, sums = carry
    part = g.rows_of(sums, k).reshape(g.columns, 1, g.block, columns)
    here = (jnp.arange(g.rows, dtype=r.dtype) == r)[None, :, None, None]
    known = total(part, here, (g.width, columns))
    panel = triangular_solve_p(
        g.diagonal_block(l, k), rows_of(x, k) - known, left_side=True, lower=True)
    own = lax.dynamic_slice_in_dim(panel, c * g.wide, g.wide, 0)
    sums = sums + product(g.columns_of(l, k), own)
    return lax.dynamic_update_slice_in_dim(x, panel, k * g.width, 0), sums

  def backward(i, carry):
    x, own = carry
    k = g.panels - 1 - i
    part = product(g.columns_of(l, k), own, adjoint_a=True)
    here = (jnp.arange(g.columns, dtype=c.dtype) == c)[:, None, None]
    known = total(part[None], here, (g.width, columns))
    panel = triangular_solve_p(
        g.diagonal_block(l, k), rows_of(x, k) - known, left_side=True, lower=True,
        transpose_a=True, conjugate_a=True)
    own = lax.dynamic_update_slice_in_dim(own, g.own_rows(panel, r), k * g.tall, 0)
    return lax.dynamic_update_slice_in_dim(x, panel, k * g.width, 0), own

  zeros = g.varying(jnp.zeros((l.shape[0], columns), l.dtype))
  x, _ = lax.fori_loop(0, g.panels, forward, (b, zeros))
  return lax.fori_loop(0, g.panels, backward, (x, zeros))[0]


def log_diagonal(g: Cyclic, l: jax.Array) -> jax.Array:
  """The sum of the logarithms of L's diagonal, as far as the device has it."""
  row, column = g.numbers()
  return jnp.sum(jnp.log(jnp.where(row == column, l.real, 1)))


def times_columns(g: Cyclic, x: jax.Array, b: jax.Array) -> jax.Array:
  """The product of the Hermitian matrix, whose lower triangle is that of X, with a few columns that
  are on all devices."""
  half = lower_half(g, x)
  row, column = (jnp.ravel(number) for number in g.numbers())
  zeros = g.varying(jnp.zeros_like(b))
  sums = zeros.at[row].add(product(half, b[column]))
  return lax.psum(sums.at[column].add(product(half, b[row], adjoint_a=True)), g.axes)


def identity(g: Cyclic, like: jax.Array) -> jax.Array:
  row, column = g.numbers()
  return jnp.where(row == column, jnp.ones((), like.dtype), jnp.zeros((), like.dtype))


def lower_half(g: Cyclic, x: jax.Array) -> jax.Array:
  """The lower triangle with half of the diagonal, that being real: what Φ is of a Hermitian matrix,
  and T of T + Tᴴ."""
  row, column = g.numbers()
  half = (x.real / 2).astype(x.dtype)
  return jnp.where(row > column, x, jnp.where(row == column, half, 0))


def hermitian(g: Cyclic, x: jax.Array) -> jax.Array:
  """The Hermitian matrix whose lower triangle is that of X."""
  half = lower_half(g, x)
  return half + g.transpose(half).conj()


