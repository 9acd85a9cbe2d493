"""Cholesky factors, triangular systems and products of matrices in a block-cyclic layout.

What one device does, panel by panel: it gets its part of a panel's rows or columns from its row
and its column of the grid, and works on its own part of the matrix with them. Where a matrix is
triangular the loop is a few static phases with loops over panels inside: a phase leaves out what
the triangle has not, and the size of a program does not depend on that of the matrix.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from linalg._cholesky import cholesky_p
from linalg._det import scaled_product
from linalg._matmul import product
from linalg._triangular import triangular_solve_p
from linalg.distributed._cyclic import Cyclic


def add_product(a, left, right, top, begin, *, adjoint=False, columns=None):
  """A with the product of `left` and `right` added to a part of it that begins at (top, begin); in
  some of its `columns`."""
  update = product(left, right, adjoint_b=adjoint)
  if columns is not None:
    update = jnp.where(columns[None], update, 0)
  old = lax.dynamic_slice(a, (top, begin), update.shape)
  return lax.dynamic_update_slice(a, old + update, (top, begin))


def add_product_in_strips(g, a, left, right, top, begin):
  """`add_product`, a strip of the columns after the other: in a loop, as XLA would make the
  products of all strips before it adds the first."""
  strips = math.gcd(g.most_strips, right.shape[1])
  width = right.shape[1] // strips

  def step(i, a):
    strip = lax.dynamic_slice_in_dim(right, i * width, width, 1)
    return add_product(a, left, strip, top, begin + i * width)

  return lax.fori_loop(0, strips, step, a)


def factor(g: Cyclic, a: jax.Array) -> tuple[jax.Array, jax.Array]:
  """L of the lower triangle of A, and info.

  Right-looking; the layout is that of Choi, Dongarra, Ostrouchov, Petitet, Walker and Whaley,
  Design and implementation of the ScaLAPACK LU, QR, and Cholesky factorization routines, Sci.
  Program. 5 (1996), with panels that have no owner.
  """
  row, column = g.numbers()
  a = jnp.where((row == column) & (row >= g.n), jnp.ones((), a.dtype), a)
  carry = a, jnp.zeros((), jnp.int32)
  for low, high in g.phases:
    carry = lax.fori_loop(low, high, functools.partial(_eliminate, g, low), carry)
  a, info = carry
  return lax.fori_loop(0, g.panels, functools.partial(_clear, g, info != 0), a), info


def _clear(g, failed, k, a):
  """Panel k of L with zeros above the diagonal, or NaN where it failed. Of all panels at once, XLA
  would hold what they were beside what they become."""
  row, column = g.numbers()
  column = lax.dynamic_slice_in_dim(column, k * g.wide, g.wide, 1)
  known = jnp.where(failed, jnp.nan, jnp.where(row >= column, g.columns_of(a, k), 0))
  return lax.dynamic_update_slice(a, known, (0, k * g.wide))


def _eliminate(g, low, k, carry):
  """Panel k, all those before `low` being done."""
  a, info = carry
  r, c = g.place()
  among = slice(low, g.panels)
  dealt = g.deal_rows(g.columns_of(a, k, among))
  diagonal = lax.dynamic_slice_in_dim(dealt, (k - low) * g.block, g.block, 0)
  diagonal = g.gather_all(diagonal).swapaxes(0, 1).reshape(g.width, g.width)
  l, minor = cholesky_p(diagonal, lower=True, symmetrize=False)
  before = (k * g.width).astype(info.dtype)
  info = jnp.where((info == 0) & (minor > 0), before + minor, info)
  dealt = triangular_solve_p(
      l, dealt, left_side=False, lower=True, transpose_a=True, conjugate_a=True)
  own = lax.dynamic_slice_in_dim(l, (c * g.rows + r) * g.block, g.block, 0)
  dealt = lax.dynamic_update_slice_in_dim(dealt, own, (k - low) * g.block, 0)
  rows, columns = g.spread_to_rows(dealt), g.spread_to_columns(dealt)
  later = jnp.arange(len(columns), dtype=k.dtype) >= (k - low + 1) * g.wide
  # Strips end where panels do: there the rows below begin with the same row on all devices. Their
  # products are masked, not what these are of: above the diagonal there may be NaN.
  for first, last in g.strips(g.panels - low):
    own = slice(first * g.wide, last * g.wide)
    a = add_product(
        a, rows[first * g.tall :], -columns[own], (low + first) * g.tall,
        (low + first) * g.wide, adjoint=True, columns=later[own])
  # The panel's columns are read again: those of before would keep all of `a` as it was then.
  from_here = jnp.arange(len(rows), dtype=k.dtype) >= (k - low) * g.tall
  known = jnp.where(from_here[:, None], g.own_columns(rows, c), g.columns_of(a, k, among))
  return lax.dynamic_update_slice(a, known, (low * g.tall, k * g.wide)), info


def solve(
    g: Cyclic, l: jax.Array, b: jax.Array, *, left: bool, transpose: bool, lower: bool = False
) -> jax.Array:
  """X of op(L) X = B, or of X op(L) = B, where op is the identity or the transpose.

  L is zero above its diagonal. `lower`: so is B, and so is X, of L X = B; of X op(L) = B the lower
  triangle of B is read, and that of X found, zero above it.
  """
  assert not (lower and left and transpose)
  b = lower_triangle(g, b) if lower and not left else b
  r, c = g.place()
  backward = left == transpose
  phases = g.phases if lower else g.long_phases
  for low, high in phases[:: -1 if backward else 1]:
    unknown = slice(0, high) if backward else slice(low, g.panels)
    # What is worked on of X's columns, or of its rows.
    across = slice(0, high if lower else g.panels) if left else slice(low if lower else 0, g.panels)

    def step(i, x, low=low, high=high, unknown=unknown, across=across):
      k = high - 1 - i if backward else low + i
      system = functools.partial(
          triangular_solve_p, g.diagonal_block(l, k), left_side=left, lower=True,
          transpose_a=transpose)
      if left:
        panel = system(g.all_rows(x, k, across))
        other = -(g.turned_rows(l, k, unknown).mT if transpose else g.all_columns(l, k, unknown))
        x = add_product_in_strips(g, x, other, panel, unknown.start * g.tall, 0)
        return lax.dynamic_update_slice(x, g.own_rows(panel, r), (k * g.tall, 0))
      panel = system(g.all_columns(x, k, across))
      other = -(g.turned_columns(l, k, unknown).mT if transpose else g.all_rows(l, k, unknown))
      top = across.start * g.tall
      x = add_product_in_strips(g, x, panel, other, top, unknown.start * g.wide)
      return lax.dynamic_update_slice(x, g.own_columns(panel, c), (top, k * g.wide))

    b = lax.fori_loop(0, high - low, step, b)
  return lower_triangle(g, b) if lower and transpose else b


def multiply(
    g: Cyclic, x: jax.Array, y: jax.Array, *, transpose: tuple[bool, bool],
    lower: tuple[bool, bool],
) -> jax.Array:
  """op(X) op(Y), where op is the identity or the transpose. `lower` says which of X and Y are zero
  above the diagonal."""
  (transpose_x, transpose_y), (lower_x, lower_y) = transpose, lower
  found = g.zeros_after(y, x.shape)
  phases = g.phases if all(lower) else g.long_phases if any(lower) else [(0, g.panels)]
  for low, high in phases:
    # Where the columns of op(X) and the rows of op(Y) that these panels have are not zero.
    up_to, from_low, every = slice(0, high), slice(low, g.panels), slice(0, g.panels)
    above = every if not lower_x else up_to if transpose_x else from_low
    beside = every if not lower_y else from_low if transpose_y else up_to

    def step(k, found, above=above, beside=beside):
      left = g.turned_rows(x, k, above).mT if transpose_x else g.all_columns(x, k, above)
      right = g.turned_columns(y, k, beside).mT if transpose_y else g.all_rows(y, k, beside)
      return add_product_in_strips(
          g, found, left, right, above.start * g.tall, beside.start * g.wide)

    found = lax.fori_loop(low, high, step, found)
  return found


def _adjoint_times(x, b):
  """Xᴴ B, of few columns: it is they that are turned for the product, and not X, which XLA would
  take a number at a time."""
  return product(b, x, adjoint_a=True).conj().mT


def substitute(g: Cyclic, t: jax.Array, b: jax.Array, *, lower: bool, adjoint: bool) -> jax.Array:
  """X of op(T) X = B, of a few columns that are on all devices, where op is the identity or the
  adjoint. T is zero outside of its triangle.

  Each panel takes a sum over the devices of its rows, and moves the panel's diagonal block.
  """
  r, c = g.place()
  columns = b.shape[1]
  backward = lower == adjoint

  def step(i, carry):
    # `side` has what the device's own columns of T add to each of its rows, or, for the adjoint,
    # the X that its own rows of T are multiplied by.
    x, side = carry
    k = g.panels - 1 - i if backward else i
    if adjoint:
      part = _adjoint_times(g.columns_of(t, k), side)[None]
      here = (jnp.arange(g.columns, dtype=c.dtype) == c)[:, None, None]
    else:
      part = g.rows_of(side, k).reshape(g.columns, 1, g.block, columns)
      here = (jnp.arange(g.rows, dtype=r.dtype) == r)[None, :, None, None]
    known = lax.psum(jnp.where(here, part, 0).reshape(g.width, columns), g.axes)
    rest = lax.dynamic_slice_in_dim(x, k * g.width, g.width, 0) - known
    panel = triangular_solve_p(
        g.diagonal_block(t, k), rest, left_side=True, lower=lower, transpose_a=adjoint,
        conjugate_a=adjoint)
    if adjoint:
      side = lax.dynamic_update_slice_in_dim(side, g.own_rows(panel, r), k * g.tall, 0)
    else:
      own = lax.dynamic_slice_in_dim(panel, c * g.wide, g.wide, 0)
      side = side + product(g.columns_of(t, k), own)
    return lax.dynamic_update_slice_in_dim(x, panel, k * g.width, 0), side

  zeros = g.varying(jnp.zeros((t.shape[0], columns), t.dtype))
  return lax.fori_loop(0, g.panels, step, (b, zeros))[0]


def log_diagonal(g: Cyclic, l: jax.Array) -> jax.Array:
  """The sum of the logarithms of L's diagonal, as far as the device has it."""
  return jnp.sum(jnp.log(g.diagonal(l).real))


def scaled_product_of(x: jax.Array) -> tuple[jax.Array, jax.Array]:
  """(p, e) of the product p 2^e of all numbers of an array."""
  ordinary = (x != 0) & jnp.isfinite(x)
  part, exponent = scaled_product(jnp.ravel(jnp.where(ordinary, x, 1)))
  return part * jnp.prod(jnp.where(ordinary, 1, x)), exponent


def square_of_diagonal(g: Cyclic, l: jax.Array) -> tuple[jax.Array, jax.Array]:
  """(p, e) of the product p 2^e of the squares of L's diagonal, as far as the device has it."""
  part, exponent = scaled_product_of(g.diagonal(l).real)
  return part * part, 2 * exponent


def times_columns(g: Cyclic, x: jax.Array, b: jax.Array, *, adjoint: bool) -> jax.Array:
  """The device's part of the product of X, or of its adjoint, with a few columns that are on all
  devices, which is the sum over the devices."""
  row, column = (jnp.ravel(number) for number in g.numbers())
  into, out_of = (column, row) if adjoint else (row, column)
  zeros = g.varying(jnp.zeros_like(b))
  part = _adjoint_times(x, b[out_of]) if adjoint else product(x, b[out_of])
  return zeros.at[into].add(part)


def hermitian_times_columns(g: Cyclic, x: jax.Array, b: jax.Array) -> jax.Array:
  """The product of the Hermitian matrix, whose lower triangle is that of X, with a few columns that
  are on all devices."""
  half = lower_half(g, x)
  both = [times_columns(g, half, b, adjoint=adjoint) for adjoint in (False, True)]
  return lax.psum(both[0] + both[1], g.axes)


def triangle(g: Cyclic, x: jax.Array, *, lower: bool, unit_diagonal: bool) -> jax.Array:
  """One triangle of X, and the diagonal of 1 where it has none of its own."""
  row, column = g.numbers()
  inside = row >= column if lower else row <= column
  ones = (row == column) & ((row >= g.n) | unit_diagonal)
  return jnp.where(ones, jnp.ones((), x.dtype), jnp.where(inside, x, 0))


def identity(g: Cyclic, like: jax.Array) -> jax.Array:
  row, column = g.numbers()
  return jnp.where(row == column, jnp.ones((), like.dtype), g.zeros_after(like))


def lower_triangle(g: Cyclic, x: jax.Array) -> jax.Array:
  row, column = g.numbers()
  return jnp.where(row >= column, x, 0)


def lower_half(g: Cyclic, x: jax.Array) -> jax.Array:
  """The lower triangle with half of the diagonal, that being real: what Φ is of a Hermitian matrix,
  and T of T + Tᴴ."""
  row, column = g.numbers()
  half = (x.real / 2).astype(x.dtype)
  return jnp.where(row > column, x, jnp.where(row == column, half, 0))


def hermitian(g: Cyclic, x: jax.Array) -> jax.Array:
  """The Hermitian matrix whose lower triangle is that of X."""
  return g.add_adjoint(lower_half(g, x), upper=False)


def folded(g: Cyclic, x: jax.Array) -> jax.Array:
  """`lower_half` of X + Xᴴ, the transpose of `hermitian`."""
  return lower_half(g, g.add_adjoint(x, upper=True))
