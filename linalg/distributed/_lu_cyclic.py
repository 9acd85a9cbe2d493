"""LU factors of a matrix in a block-cyclic layout, with pivots by tournament.

What one device does, panel by panel. The rows of a panel's pivots are found by all devices at once:
each proposes as many of its rows as the panel has columns, by partial pivoting of them alone, and
of what is proposed the best are found in the same way; Grigori, Demmel and Xiang, CALU: a
communication optimal LU factorization algorithm, SIAM J. Matrix Anal. Appl. 32 (2011). Rows that
have been pivots stay where they are and are masked; Kwasniewski et al., On the parallel I/O
optimality of linear algebra kernels: near-optimal matrix factorizations, SC '21. Those of U go
straight to their place, and those of L at the end.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from linalg._factorizations.lu import lu_p
from linalg._factorizations.triangular import triangular_solve_p
from linalg.distributed._algorithms import (
    Part,
    add_tiles,
    part_of,
    scaled_product_of,
    solve,
    substitute,
    transpose_of_upper,
    triangle,
)
from linalg.distributed._cyclic import Cyclic
from linalg.distributed._slices import cut, loop, put, quotient, remainder


def eliminate(g: Cyclic, a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
  """U and, below the diagonal, L of P A = L U; the permutation, which row of the filled up A each
  row of L U is; and info, that of linalg.lu_ex. What holds NaN is NaN all over."""
  row, column = g.numbers()
  a = jnp.where((row == column) & (row >= g.n), jnp.ones((), a.dtype), a)
  number = jnp.arange(g.padded, dtype=row.dtype)
  # 0 of a row that may be a pivot; 1 of one that is not of the matrix, and 2 of one that has been.
  standing = g.varying((number >= g.n).astype(jnp.int32))
  carry = (
      a, g.zeros_after(a, a.shape), g.varying(number), standing,
      g.varying(jnp.zeros((), jnp.int32)))
  for low, high in g.phases:
    carry = loop(low, high, functools.partial(_eliminate_panel, g, low), carry)
  a, u, order, _, info = carry
  packed = lax.fori_loop(0, g.panels, functools.partial(_place_l, g, a, order), u)
  # A row of NaN may never have been chosen, and be in no factor.
  has_nan = jnp.isnan(packed).any() | jnp.isnan(a).any()
  spoilt = lax.pmax(has_nan.astype(jnp.int32), g.axes)
  info = jnp.where(spoilt != 0, -1, lax.pmax(info, g.axes))
  return jnp.where(spoilt != 0, jnp.nan, packed), order, info


def _eliminate_panel(g, low, k, carry):
  """Panel k, all those before `low` being done."""
  a, u, order, standing, info = carry
  r, c = g.place()
  dealt = g.deal_rows(g.columns_of(a, k))
  numbers = _numbers_of_dealt(g)
  free = standing[numbers] < 2
  dealt = jnp.where(free[:, None], dealt, 0)
  packed, pivots = _tournament(g, dealt, numbers, standing)
  diagonal = jnp.diagonal(packed)
  zero = diagonal == 0
  first = (k * g.width + 1).astype(info.dtype) + jnp.argmax(zero).astype(info.dtype)
  info = jnp.where((info == 0) & zero.any(), first, info)
  # Below a pivot that is zero all candidates are, and so is L for them: no number is divided by 0.
  safe = packed + jnp.diag(zero.astype(packed.dtype))
  l = triangular_solve_p(safe, dealt, left_side=False, lower=False)
  own = jnp.tril(packed, -1) + jnp.eye(g.width, dtype=packed.dtype)
  among = jnp.full(g.padded, -1, pivots.dtype).at[pivots].set(
      jnp.arange(g.width, dtype=pivots.dtype))
  place = among[numbers]
  l = g.spread_to_rows(jnp.where((place >= 0)[:, None], own[place], l))

  right = _pivot_rows(g, a[:, low * g.wide :], pivots)
  right = triangular_solve_p(packed, right, left_side=True, lower=True, unit_diagonal=True)
  right = jnp.moveaxis(g.gather_r(right), 0, 1).reshape(g.width, -1)
  later = jnp.arange(right.shape[1], dtype=k.dtype) >= (k - low + 1) * g.wide
  right = jnp.where(later[None], right, 0)
  a = add_tiles(
      g, a, Part(l), part_of(g, -right, (low, g.panels), 1, k + 1, g.panels))
  a = put(a, g.own_columns(l, c), 0, k * g.wide)
  right = put(right, g.own_columns(jnp.triu(packed), c), 0, (k - low) * g.wide)
  u = put(u, g.own_rows(right, r), k * g.tall, low * g.wide)
  order = put(order, pivots, k * g.width)
  return a, u, order, jnp.where(among >= 0, 2, standing), info


def _numbers_of_dealt(g):
  """Those of the rows that `deal_rows` gives this device."""
  r, c = g.place()
  i = jnp.arange(g.padded // g.devices, dtype=r.dtype)
  number = (quotient(i, g.block) * g.columns + c) * g.rows + r
  return number * g.block + remainder(i, g.block)


def _tournament(g, rows, numbers, standing):
  """The packed LU factors of a panel's pivot rows, in order, and their numbers."""
  rows, numbers = _best(rows, numbers, standing, g.width)
  if g.columns > 1:
    rows, numbers = (x.reshape(-1, *x.shape[2:]) for x in map(g.gather_c, (rows, numbers)))
    rows, numbers = _best(rows, numbers, standing, g.width)
  rows, numbers = (x.reshape(-1, *x.shape[2:]) for x in map(g.gather_r, (rows, numbers)))
  return _pivoted(rows, numbers, standing, g.width)[1:]


def _best(rows, numbers, standing, count):
  """As many of the rows, those that partial pivoting chooses."""
  if len(rows) <= count:
    return rows, numbers
  chosen, _, numbers = _pivoted(rows, numbers, standing, count)
  return rows[chosen], numbers


def _pivoted(rows, numbers, standing, count):
  """The indices of so many rows that partial pivoting chooses, their LU factors and numbers.

  Where there is nothing but zeros in a column, it takes the next row. So those that may be pivots
  come first: as long as there is one it is taken, for nonzero ones are exchanged with such alone.
  """
  order = jnp.argsort(standing[numbers], stable=True)
  packed, _, permutation, _ = lu_p(rows[order])
  chosen = order[permutation[:count]]
  return chosen, packed[:count], numbers[chosen]


def _pivot_rows(g, a, pivots):
  """Of the rows of some numbers, an equal part of the columns that this column of the grid has."""
  r, _ = g.place()
  owner, local = _place_of_rows(g, pivots)
  rows = jnp.where((owner == r)[:, None], a[local], 0)
  rows = jnp.moveaxis(rows.reshape(g.width, g.rows, -1), 1, 0)
  return jnp.sum(g.exchange_r(rows), axis=0)


def _place_of_rows(g, numbers):
  """The rows of the grid that rows of some numbers lie on, and which they are there."""
  block = quotient(numbers, g.block)
  row = quotient(block, g.rows) * g.block + remainder(numbers, g.block)
  return remainder(block, g.rows), row


def _place_l(g, a, order, k, packed):
  """The columns of panel k with L below the diagonal, its rows in order."""
  row, column = g.numbers()
  owner, local = _place_of_rows(g, order[row[:, 0]])
  columns = g.gather_r(g.columns_of(a, k))
  rows = columns.reshape(-1, columns.shape[-1])[owner * columns.shape[1] + local]
  below = row > cut(column, k * g.wide, g.wide, 1)
  found = jnp.where(below, rows, g.columns_of(packed, k))
  return put(packed, found, 0, k * g.wide)


def solve_columns(
    g: Cyclic, packed: jax.Array, order: jax.Array, b: jax.Array, *, adjoint: bool
) -> jax.Array:
  """X of op(A) X = B, of a few columns that are on all devices, where op is the identity or the
  adjoint."""
  lower, upper = factors(g, packed)
  order = lax.pmax(order, g.axes)  # the same on all, which their type does not say
  if not adjoint:
    b = substitute(g, lower, b[order], lower=True, adjoint=False)
    return substitute(g, upper, b, lower=False, adjoint=False)
  b = substitute(g, upper, b, lower=False, adjoint=True)
  return substitute(g, lower, b, lower=True, adjoint=True)[jnp.argsort(order)]


def factors(g: Cyclic, packed: jax.Array) -> tuple[jax.Array, jax.Array]:
  return (
      triangle(g, packed, lower=True, unit_diagonal=True),
      triangle(g, packed, lower=False, unit_diagonal=False))


def inverse(g: Cyclic, packed: jax.Array, order: jax.Array) -> jax.Array:
  """A⁻¹, the solution of A X = I."""
  lower, upper = factors(g, packed)
  upper = transpose_of_upper(g, upper)
  row, column = g.numbers()
  permutation = jnp.where(
      order[row[:, 0]][:, None] == column, jnp.ones((), upper.dtype), g.zeros_after(upper))
  x = solve(g, lower, permutation, left=True, transpose=False)
  return solve(g, upper, x, left=True, transpose=True)


def determinant(
    g: Cyclic, packed: jax.Array, order: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """As far as the device has U's diagonal, (p, e) of the product p 2^e of it, and that of its
  signs, or phases. The sign of the permutation is the first device's."""
  diagonal = g.diagonal(packed)
  part, exponent = scaled_product_of(diagonal)
  odd = (lax.axis_index(g.axes) == 0) & is_odd(order)
  sign = jnp.prod(jnp.sign(diagonal))
  return jnp.where(odd, -part, part), exponent, jnp.where(odd, -sign, sign)


def log_determinant(g: Cyclic, packed: jax.Array) -> jax.Array:
  """The sum of the logarithms of the magnitudes of what the device has of U's diagonal."""
  return jnp.sum(jnp.log(jnp.abs(g.diagonal(packed))))


def is_odd(order):
  """Whether a permutation is: by the number of its cycles, of which each member learns the least,
  from twice as many that follow it each time."""

  def turn(_, carry):
    least, following = carry
    return jnp.minimum(least, least[following]), following[following]

  number = jnp.arange(len(order), dtype=order.dtype)
  start = jnp.where(order < 0, order, number)  # of the type of what differs among devices
  least, _ = lax.fori_loop(0, len(order).bit_length(), turn, (start, order))
  return (len(order) - jnp.sum(least == number)) % 2 == 1
