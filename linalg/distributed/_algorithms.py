"""Cholesky factors, triangular systems and products of matrices in a block-cyclic layout.

These are the computations of one device, panel by panel. A device gets its part of a panel's rows
or columns from its row and its column of the grid. It then updates its own part of the matrix with
them.

Where a matrix is triangular, the loop is a few static phases with loops over panels inside, or it
goes over pairs of panels. Both skip the zero part of the triangle, and the size of a program does
not depend on that of the matrix.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from linalg._factorizations.cholesky import cholesky_p
from linalg._factorizations.det import scaled_product
from linalg._factorizations.matmul import product
from linalg._factorizations.triangular import triangular_solve_p
from linalg.distributed._cyclic import Cyclic, longer
from linalg.distributed._slices import cut, loop, put, quotient, window


def add_product(a, left, right, top, begin, *, adjoint=False):
  """Adds the product of `left` and `right` to the part of A that begins at (top, begin)."""
  update = product(left, right, adjoint_b=adjoint)
  return put(a, window(a, (top, begin), update.shape) + update, top, begin)


class Part(NamedTuple):
  """Some panels of one dimension of an array: from `first` up to but excluding `last`.

  Panel 0 would begin at `begin`. Other panels may come before and after these. If `first` is None,
  it is the whole array.
  """

  array: jax.Array
  begin: Any = 0
  first: Any = None
  last: Any = None


def part_of(g: Cyclic, array: jax.Array, panels: tuple[int, int], dimension: int, first, last):
  """The panels from `first` up to `last` of an array that has the panels `panels`.

  Panels that the array does not have are zeros: XLA compiles code that is the same in all phases
  once.
  """
  begin, end = panels
  unit = array.shape[dimension] // (end - begin)
  whole = longer(array, (begin * unit, (g.panels - end) * unit), dimension)
  return Part(whole, 0, first, last)


def add_tiles(g, a, left, right, *, adjoint=False, lower=False):
  """Adds the product of some rows and some columns to A, tile by tile.

  Only tiles with such rows and columns are updated, and with `lower` only those in the lower
  triangle. If `adjoint`, the product is of rows and the adjoint of rows. The tiles are in loops,
  because XLA would otherwise compute all products before it adds the first.
  """
  size = -(-g.panels // g.most_tiles)
  across = 0 if adjoint else 1

  def tile(side, i, unit, dimension):
    """Updates one tile.

    The last tile may reach beyond the last panel. It is moved back and begins with zeros.
    """
    begin = jnp.minimum(i * size, g.panels - size)
    number = begin + quotient(jnp.arange(size * unit, dtype=i.dtype), unit)
    inside = (number >= jnp.maximum(i * size, side.first)) & (number < side.last)
    found = cut(side.array, (begin + side.begin + size) * unit, size * unit, dimension)
    return begin * unit, jnp.where(jnp.expand_dims(inside, 1 - dimension), found, 0)

  def tiles(side):
    return quotient(side.first, size), quotient(side.last + size - 1, size)

  def padded(side, unit, dimension):
    return side._replace(array=longer(side.array, [size * unit] * 2, dimension))

  def by_rows(j, begin, columns, a):
    if left.first is None:
      return add_product(a, left.array, columns, 0, begin, adjoint=adjoint)

    def step(i, a):
      top, rows = tile(known, i, g.tall, 0)
      return add_product(a, rows, columns, top, begin, adjoint=adjoint)

    known = padded(left, g.tall, 0)
    first, last = tiles(left)
    return lax.fori_loop(j if lower else first, last, step, a)

  if right.first is None:
    return by_rows(0, 0, right.array, a)
  known = padded(right, g.wide, across)
  return lax.fori_loop(
      *tiles(right), lambda j, a: by_rows(j, *tile(known, j, g.wide, across), a), a)


def factor(
    g: Cyclic, a: jax.Array, zero: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
  """Returns L from the lower triangle of A, and info.

  Where a batch is sharded over other axes, `info` differs along these. `zero` then is a number of
  that type.

  The algorithm is right-looking. The layout is that of Choi, Dongarra, Ostrouchov, Petitet, Walker
  and Whaley, Design and implementation of the ScaLAPACK LU, QR, and Cholesky factorization
  routines, Sci. Program. 5 (1996), except that all devices share each panel.
  """
  row, column = g.numbers()
  a = jnp.where((row == column) & (row >= g.n), jnp.ones((), a.dtype), a)
  carry = a, jnp.zeros((), jnp.int32) if zero is None else zero.real.astype(jnp.int32)
  for low, high in g.phases:
    carry = loop(low, high, functools.partial(_eliminate, g, low), carry)
  a, info = carry
  return by_panels(
      g, a, lambda x, row, column: jnp.where(info != 0, jnp.nan, _lower(x, row, column))), info


def by_panels(g, x, change):
  """Applies `change` to each panel of X and the indices of its entries.

  XLA would hold the old and the new panels together if it were applied to all at once.
  """
  row, column = g.numbers()

  def step(k, x):
    return put(
        x, change(g.columns_of(x, k), row, cut(column, k * g.wide, g.wide, 1)), 0, k * g.wide)

  return lax.fori_loop(0, g.panels, step, x)


def _lower(x, row, column):
  return jnp.where(row >= column, x, 0)


def _half(x, row, column):
  half = (x.real / 2).astype(x.dtype)
  return jnp.where(row > column, x, jnp.where(row == column, half, 0))


def _eliminate(g, low, k, carry):
  """Eliminates panel k. All panels before `low` are done."""
  a, info = carry
  r, c = g.place()
  among = low, g.panels
  panel = g.redistribute_rows(g.columns_of(a, k, among))
  diagonal = cut(panel, (k - low) * g.block, g.block, 0)
  diagonal = g.gather_all(diagonal).swapaxes(0, 1).reshape(g.width, g.width)
  l, minor = cholesky_p(diagonal, lower=True, symmetrize=False)
  before = (k * g.width).astype(info.dtype)
  info = jnp.where((info == 0) & (minor > 0), before + minor, info)
  panel = triangular_solve_p(
      l, panel, left_side=False, lower=True, transpose_a=True, conjugate_a=True)
  own = cut(l, (c * g.rows + r) * g.block, g.block, 0)
  panel = put(panel, own, (k - low) * g.block, 0)
  rows, columns = g.spread_to_rows(panel), g.spread_to_columns(panel)
  below = [part_of(g, x, among, 0, k + 1, g.panels) for x in (rows, -columns)]
  a = add_tiles(g, a, *below, adjoint=True, lower=True)
  # The panel's columns are read again: the earlier copy would keep the old `a` in memory.
  from_here = jnp.arange(len(rows), dtype=k.dtype) >= (k - low) * g.tall
  known = jnp.where(from_here[:, None], g.own_columns(rows, c), g.columns_of(a, k, among))
  return put(a, known, low * g.tall, k * g.wide), info


def solve(
    g: Cyclic, l: jax.Array, b: jax.Array, *, left: bool, transpose: bool, lower: bool = False
) -> jax.Array:
  """Solves op(L) X = B, or X op(L) = B, where op is the identity or the transpose.

  L is zero above its diagonal. If `lower`, B and X of L X = B are zero above the diagonal too. For
  X op(L) = B with `lower`, only the lower triangle of B is read. Only that of X is computed, with
  zeros above it. Without `lower`, B of X op(L) = B may have any number of rows.
  """
  assert not (lower and left and transpose)
  b = lower_triangle(g, b) if lower and not left else b
  r, c = g.place()
  backward = left == transpose
  phases = g.phases if lower else g.long_phases
  for low, high in phases[:: -1 if backward else 1]:
    unknown = (0, high) if backward else (low, g.panels)
    # The range of X's columns, or of its rows, that is updated.
    whole = g.panels if left else None
    across: tuple[int, Any] = (
        (0, high) if lower and left else (low, g.panels) if lower else (0, whole))

    def step(i, x, unknown=unknown, across=across):
      k = g.panels - 1 - i if backward else i
      system = functools.partial(
          triangular_solve_p, g.diagonal_block(l, k), left_side=left, lower=True,
          transpose_a=transpose)
      rest = (0, k) if backward else (k + 1, g.panels)
      if left:
        panel = system(g.all_rows(g.rows_of(x, k, across)))
        other = -(
            g.turned_rows(g.rows_of(l, k, unknown)).mT if transpose
            else g.all_columns(g.columns_of(l, k, unknown)))
        x = add_tiles(
            g, x, part_of(g, other, unknown, 0, *rest),
            part_of(g, panel, across, 1, 0, k + 1) if lower else Part(panel))
        return put(x, g.own_rows(panel, r), k * g.tall, 0)
      panel = system(g.all_columns(g.columns_of(x, k, across)))
      other = -(
          g.turned_columns(g.columns_of(l, k, unknown)).mT if transpose
          else g.all_rows(g.rows_of(l, k, unknown)))
      x = add_tiles(
          g, x, part_of(g, panel, across, 0, k, g.panels) if lower else Part(panel),
          part_of(g, other, unknown, 1, *rest))
      return put(x, g.own_columns(panel, c), across[0] * g.tall, k * g.wide)

    first, last = (g.panels - high, g.panels - low) if backward else (low, high)
    b = loop(first, last, step, b)
  return lower_triangle(g, b) if lower and transpose else b


def multiply(
    g: Cyclic, x: jax.Array, y: jax.Array, *, transpose: tuple[bool, bool],
    lower: tuple[bool, bool],
) -> jax.Array:
  """op(X) op(Y), where op is the identity or the transpose.

  `lower` says which of X and Y are zero above the diagonal.
  """
  (transpose_x, transpose_y), (lower_x, lower_y) = transpose, lower

  def left(k):
    if transpose_x:
      return _parts(g, x, k, g.rows_of, 1, lower_x, lambda rows: g.turned_rows(rows).mT, True)
    return _parts(g, x, k, g.columns_of, 0, lower_x, g.all_columns, True)

  def right(k):
    if transpose_y:
      turned = lambda columns: g.turned_columns(columns).mT
      return _parts(g, y, k, g.columns_of, 0, lower_y, turned, False)
    return _parts(g, y, k, g.rows_of, 1, lower_y, g.all_rows, False)

  def step(k, found):
    for x, y in zip(left(k), right(k), strict=True):
      found = add_tiles(g, found, x, y)
    return found

  return lax.fori_loop(0, g.pairs, step, g.zeros_after(y, x.shape))


def _parts(g, x, k, of_panel, dimension, lower, gather, is_left):
  """Gathers rows or columns of panel k and of its pair, from the lower triangle of X or the whole.

  `gather` collects them. The left operand's pair is returned even where it does not count; the
  right operand's is then empty.
  """
  far = g.panels - 1 - k
  # The middle panel of an odd number is its own pair, and counts once.
  is_there = (far > k).astype(k.dtype)
  if not lower:
    wholes = [gather(of_panel(x, i)) for i in (k, far)]
    if is_left:
      return [Part(x) for x in wholes]
    return [Part(wholes[0], 0, 0, g.panels), Part(wholes[1], 0, 0, g.panels * is_there)]
  up_to = dimension == 1
  packed = gather(g.pack(of_panel(x, k), of_panel(x, far), k, dimension, up_to=up_to))
  if up_to:
    return [Part(packed, 0, 0, k + 1), Part(packed, k + 1, 0, (far + 1) * is_there)]
  return [Part(packed, -k, k, g.panels), Part(packed, 1, far, g.panels * is_there)]


def _adjoint_times(x, b):
  """Xᴴ B, for a few columns B.

  B is transposed for the product. XLA would transpose X one number at a time.
  """
  return product(b, x, adjoint_a=True).conj().mT


def substitute(g: Cyclic, t: jax.Array, b: jax.Array, *, lower: bool, adjoint: bool) -> jax.Array:
  """Solves op(T) X = B for a few columns that are on all devices.

  op is the identity or the adjoint. T is zero outside its triangle. Each panel takes a sum over the
  devices of its rows, and moves the panel's diagonal block.
  """
  solve = functools.partial(
      triangular_solve_p, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint)
  if g.panels == 1:
    # XLA aborts over a complex loop of one step on one device (jax 0.10.2).
    return solve(g.diagonal_block(t, 0), b)
  r, c = g.place()
  columns = b.shape[1]
  backward = lower == adjoint

  def step(i, carry):
    # `side` is the contribution of the device's own columns of T to each of its rows. For the
    # adjoint, it is the X that multiplies the device's own rows of T.
    x, side = carry
    k = g.panels - 1 - i if backward else i
    if adjoint:
      part = _adjoint_times(g.columns_of(t, k), side)[None]
      here = (jnp.arange(g.columns, dtype=c.dtype) == c)[:, None, None]
    else:
      part = g.rows_of(side, k).reshape(g.columns, 1, g.block, columns)
      here = (jnp.arange(g.rows, dtype=r.dtype) == r)[None, :, None, None]
    known = lax.psum(jnp.where(here, part, 0).reshape(g.width, columns), g.axes)
    rest = cut(x, k * g.width, g.width, 0) - known
    panel = solve(g.diagonal_block(t, k), rest)
    if adjoint:
      side = put(side, g.own_rows(panel, r), k * g.tall, 0)
    else:
      own = cut(panel, c * g.wide, g.wide, 0)
      side = side + product(g.columns_of(t, k), own)
    return put(x, panel, k * g.width, 0), side

  zeros = g.varying(jnp.zeros((t.shape[0], columns), t.dtype))
  return lax.fori_loop(0, g.panels, step, (b, zeros))[0]


def log_diagonal(g: Cyclic, l: jax.Array) -> jax.Array:
  """The sum of the logarithms of the device's part of L's diagonal."""
  return jnp.sum(jnp.log(g.diagonal(l).real))


def scaled_product_of(x: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns (p, e), where p 2^e is the product of all numbers of an array."""
  ordinary = (x != 0) & jnp.isfinite(x)
  part, exponent = scaled_product(jnp.ravel(jnp.where(ordinary, x, 1)))
  return part * jnp.prod(jnp.where(ordinary, 1, x)), exponent


def square_of_diagonal(g: Cyclic, l: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns (p, e): p 2^e is the product of the squares of the device's part of L's diagonal."""
  part, exponent = scaled_product_of(g.diagonal(l).real)
  return part * part, 2 * exponent


def times_columns(g: Cyclic, x: jax.Array, b: jax.Array, *, adjoint: bool) -> jax.Array:
  """The device's part of the product of X, or of its adjoint, with a few columns.

  The columns are on all devices. The product is the sum over the devices.
  """
  row, column = (jnp.ravel(number) for number in g.numbers())
  into, out_of = (column, row) if adjoint else (row, column)
  zeros = g.varying(jnp.zeros_like(b))
  part = _adjoint_times(x, b[out_of]) if adjoint else product(x, b[out_of])
  return zeros.at[into].add(part)


def hermitian_times_columns(g: Cyclic, x: jax.Array, b: jax.Array) -> jax.Array:
  """The product of a Hermitian matrix with a few columns that are on all devices.

  The lower triangle of X is that of the matrix.
  """
  half = lower_half(g, x)
  both = [times_columns(g, half, b, adjoint=adjoint) for adjoint in (False, True)]
  return lax.psum(both[0] + both[1], g.axes)


def triangle(g: Cyclic, x: jax.Array, *, lower: bool, unit_diagonal: bool) -> jax.Array:
  """One triangle of X, with a diagonal of 1 if `unit_diagonal`."""
  row, column = g.numbers()
  inside = row >= column if lower else row <= column
  ones = (row == column) & ((row >= g.n) | unit_diagonal)
  return jnp.where(ones, jnp.ones((), x.dtype), jnp.where(inside, x, 0))


def identity(g: Cyclic, like: jax.Array) -> jax.Array:
  row, column = g.numbers()
  return jnp.where(row == column, jnp.ones((), like.dtype), g.zeros_after(like))


def lower_triangle(g: Cyclic, x: jax.Array) -> jax.Array:
  return by_panels(g, x, _lower)


def lower_half(g: Cyclic, x: jax.Array) -> jax.Array:
  """The lower triangle with half of the diagonal, which is real.

  It is Φ of a Hermitian matrix, and T of T + Tᴴ.
  """
  return _half(x, *g.numbers())


def lower_half_in_place(g: Cyclic, x: jax.Array) -> jax.Array:
  """`lower_half` of an array that is no longer needed.

  If the array is still needed, or part of a longer expression, XLA would copy it for the loop.
  """
  return by_panels(g, x, _half)


def hermitian(g: Cyclic, x: jax.Array) -> jax.Array:
  """The Hermitian matrix whose lower triangle is that of X."""
  return g.add_adjoint(lower_half(g, x), upper=False)


def hermitian_part(g: Cyclic, x: jax.Array) -> jax.Array:
  """(X + Xᴴ) / 2, also where the sum would overflow."""
  return x / 2 + g.transpose(x).conj() / 2


def folded(g: Cyclic, x: jax.Array) -> jax.Array:
  """`lower_half` of X + Xᴴ, the transpose of `hermitian`."""
  return lower_half(g, g.add_adjoint(x, upper=True))


def transpose_of_upper(g: Cyclic, x: jax.Array) -> jax.Array:
  """The transpose of an upper triangular matrix.

  It is the adjoint, not conjugated. Pairs of panels move it below the diagonal without the zeros.
  """
  row, column = g.numbers()
  both = g.add_adjoint(jnp.where(row < column, x, 0), upper=True)
  return jnp.where(row > column, both.conj(), jnp.where(row == column, x, 0))
