"""LU factors of a matrix in a block-cyclic layout, with pivots by tournament.

These are the computations of one device, panel by panel. All devices find the pivot rows of a panel
together. Each proposes as many of its rows as the panel has columns, by partial pivoting among them
alone. The best of the proposed rows are found in the same way; Grigori, Demmel and Xiang, CALU: a
communication optimal LU factorization algorithm, SIAM J. Matrix Anal. Appl. 32 (2011).

Rows that have been pivots are not moved but masked. Source: Kwasniewski et al., On the parallel I/O
optimality of linear algebra kernels: near-optimal matrix factorizations, SC '21. Rows of U move to
their final position at once, and rows of L at the end.
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
  """Returns the packed factors of P A = L U, the permutation and info.

  The permutation gives, for each row of L U, the row of the padded A. info is that of linalg.lu_ex.
  A matrix that holds NaN has NaN in all entries of its factors.
  """
  row, column = g.numbers()
  a = jnp.where((row == column) & (row >= g.n), jnp.ones((), a.dtype), a)
  number = jnp.arange(g.padded, dtype=row.dtype)
  # 0 for a row that may be a pivot, 1 for padding, and 2 for a row that has been a pivot.
  standing = g.varying((number >= g.n).astype(jnp.int32))
  carry = (
      a, g.zeros_after(a, a.shape), g.varying(number), standing,
      g.varying(jnp.zeros((), jnp.int32)))
  for low, high in g.phases:
    carry = loop(low, high, functools.partial(_eliminate_panel, g, low), carry)
  a, u, order, _, info = carry
  packed = lax.fori_loop(0, g.panels, functools.partial(_place_l, g, a, order), u)
  # A row of NaN may never be chosen as a pivot, so it may be in no factor.
  has_nan = jnp.isnan(packed).any() | jnp.isnan(a).any()
  spoilt = lax.pmax(has_nan.astype(jnp.int32), g.axes)
  info = jnp.where(spoilt != 0, -1, lax.pmax(info, g.axes))
  return jnp.where(spoilt != 0, jnp.nan, packed), order, info


def _eliminate_panel(g, low, k, carry):
  """Eliminates panel k. All panels before `low` are done."""
  a, u, order, standing, info = carry
  r, c = g.place()
  redistributed = g.redistribute_rows(g.columns_of(a, k))
  numbers = g.redistributed_numbers()
  free = standing[numbers] < 2
  redistributed = jnp.where(free[:, None], redistributed, 0)
  packed, pivots = _tournament(g, redistributed, numbers, standing)
  diagonal = jnp.diagonal(packed)
  zero = diagonal == 0
  first = (k * g.width + 1).astype(info.dtype) + jnp.argmax(zero).astype(info.dtype)
  info = jnp.where((info == 0) & zero.any(), first, info)
  # Below a zero pivot all candidates are zero, and so is L. No number is divided by 0.
  safe = packed + jnp.diag(zero.astype(packed.dtype))
  l = triangular_solve_p(safe, redistributed, left_side=False, lower=False)
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


def _tournament(g, rows, numbers, standing):
  """The packed LU factors of a panel's pivot rows, in order, and their indices."""
  rows, numbers = _best(rows, numbers, standing, g.width)
  if g.columns > 1:
    rows, numbers = (x.reshape(-1, *x.shape[2:]) for x in map(g.gather_c, (rows, numbers)))
    rows, numbers = _best(rows, numbers, standing, g.width)
  rows, numbers = (x.reshape(-1, *x.shape[2:]) for x in map(g.gather_r, (rows, numbers)))
  return _pivoted(rows, numbers, standing, g.width)[1:]


def _best(rows, numbers, standing, count):
  """The `count` rows that partial pivoting chooses."""
  if len(rows) <= count:
    return rows, numbers
  chosen, _, numbers = _pivoted(rows, numbers, standing, count)
  return rows[chosen], numbers


def _pivoted(rows, numbers, standing, count):
  """The positions of `count` rows that partial pivoting chooses, their LU factors and indices.

  In a column of zeros, partial pivoting takes the next row. Rows that may be pivots therefore come
  first. While there is one, it is taken: nonzero rows are exchanged only with such rows.
  """
  order = jnp.argsort(standing[numbers], stable=True)
  packed, _, permutation, _ = lu_p(rows[order])
  chosen = order[permutation[:count]]
  return chosen, packed[:count], numbers[chosen]


def _pivot_rows(g, a, pivots):
  """The rows of given indices, with an equal part of the columns in this column of the grid."""
  r, _ = g.place()
  owner, local = _place_of_rows(g, pivots)
  rows = jnp.where((owner == r)[:, None], a[local], 0)
  rows = jnp.moveaxis(rows.reshape(g.width, g.rows, -1), 1, 0)
  return jnp.sum(g.exchange_r(rows), axis=0)


def _place_of_rows(g, numbers):
  """The rows of the grid that hold rows of given indices, and the positions there."""
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
  """Solves op(A) X = B for a few columns that are on all devices.

  op is the identity or the adjoint.
  """
  lower, upper = factors(g, packed)
  order = lax.pmax(order, g.axes)  # their type does not say that all devices have the same
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
  x = solve(g, lower, permutation_matrix(g, upper, order), left=True, transpose=False)
  return solve(g, upper, x, left=True, transpose=True)


def permutation_matrix(g: Cyclic, like: jax.Array, order: jax.Array) -> jax.Array:
  """P with P A = L U, of the dtype of an array in the layout."""
  row, column = g.numbers()
  return jnp.where(
      order[row[:, 0]][:, None] == column, jnp.ones((), like.dtype), g.zeros_after(like))


def determinant(
    g: Cyclic, packed: jax.Array, order: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns (p, e) for the product p 2^e of the device's part of U's diagonal, and its phase.

  The first device includes the sign of the permutation.
  """
  diagonal = g.diagonal(packed)
  part, exponent = scaled_product_of(diagonal)
  odd = (lax.axis_index(g.axes) == 0) & is_odd(order)
  sign = jnp.prod(jnp.sign(diagonal))
  return jnp.where(odd, -part, part), exponent, jnp.where(odd, -sign, sign)


def log_determinant(g: Cyclic, packed: jax.Array) -> jax.Array:
  """The sum of the logarithms of the magnitudes of the device's part of U's diagonal."""
  return jnp.sum(jnp.log(jnp.abs(g.diagonal(packed))))


def is_odd(order):
  """Whether a permutation is odd, from the number of its cycles.

  Each member of a cycle learns the least member, from twice as many followers in each step.
  """

  def turn(_, carry):
    least, following = carry
    return jnp.minimum(least, least[following]), following[following]

  number = jnp.arange(len(order), dtype=order.dtype)
  start = jnp.where(order < 0, order, number)  # its type says that devices have different values
  least, _ = lax.fori_loop(0, len(order).bit_length(), turn, (start, order))
  return (len(order) - jnp.sum(least == number)) % 2 == 1
