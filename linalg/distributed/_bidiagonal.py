"""Singular values and vectors of one square matrix in the block-cyclic layout.

The functions here work on a device's part, in the body of a `shard_map`. A panel of rows and
columns is reduced to bidiagonal form, and all devices have a part of each step. A device keeps its
part of the reflectors, its rows of the vectors of the bidiagonal matrix, and at last its part of
the singular vectors.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from linalg._core.algebra import binade
from linalg._factorizations.bidiagonal_svd import bidiagonal_svd_rows_p
from linalg._factorizations.matmul import product
from linalg.distributed._cyclic import Cyclic
from linalg.distributed._reflectors import (
  Spectrum,
  columns_of_pieces,
  dealt,
  flat,
  gathered_rows,
  grid_of_vectors,
  magnitude,
  multiply_by_reflectors,
  numbers_of_stage,
  on_all,
  own_rows,
  panel_of_rows,
  parts_of_norm,
  reflector_of,
  squared,
  sum_over_columns,
  times,
  to_result,
)
from linalg.distributed._slices import cut, loop, put


class _Bidiagonal(NamedTuple):
  """The bidiagonal matrix, and the factors of the reflectors of columns and rows."""

  d: jax.Array
  e: jax.Array
  left: jax.Array
  right: jax.Array


class _ColumnReflector(NamedTuple):
  """The reflector that takes the entries from number c on to one real entry, in number c."""

  turns: jax.Array
  divisor: jax.Array
  tau: jax.Array
  entry: jax.Array

  def vector(self, x: jax.Array, number: jax.Array, c: jax.Array) -> jax.Array:
    """The entries of v with these numbers, from those of x."""
    v = jnp.where(number == c, 1, jnp.where(number > c, x, 0) / self.divisor)
    return jnp.where(self.turns, v, 0)


def _column_reflector(alpha, square_below):
  """The reflector, from the entry in number c and the sum of squares below.

  Numbers whose squares lose digits count as zeros: they are below the rounding errors of A, whose
  largest entry is near 1.
  """
  finfo = jnp.finfo(alpha.dtype)
  least = finfo.tiny / finfo.eps**2
  turns = (square_below > least) | (squared(alpha.imag) > least)
  norm = jnp.sqrt(squared(alpha) + square_below)
  beta = jnp.where(turns, jnp.where(alpha.real < 0, norm, -norm), alpha.real)
  new = jnp.where(turns, beta, 1).astype(alpha.dtype)
  tau = jnp.where(turns, (new - alpha) / new, 0)
  return _ColumnReflector(
      turns, jnp.where(turns, alpha - new, 1), tau, beta.astype(alpha.dtype))


def _in_panel(g, x, here, r):
  """A panel's entries of which this device has some, in zeros, for a sum: width numbers."""
  top = cut(x, here * g.tall, g.tall, 0)
  return put(g.zeros_after(x[None], (g.rows, g.tall)), top[None], r, 0).reshape(-1)


def _sum_over_rows(g, x, more):
  """The sums over a column of the grid of entries of its columns, and of some numbers."""
  if g.columns == 1:
    sums = lax.psum(jnp.concatenate([x, more]), g.axes)
    return sums[: len(x)], sums[len(x) :]
  x = x.reshape(-1, g.rows, g.block).swapaxes(0, 1).reshape(1, -1)
  x = g.sum_r(x)[0]
  every = g.gather_r(jnp.concatenate([x, more]))
  return columns_of_pieces(g, every[:, : len(x)]), jnp.sum(every[:, len(x) :], axis=0)


def _reduce_panel(g, low, has_vectors, k, state):
  """Reduces the columns and rows of panel k, and updates the rest of A: A - V Yᴴ - X Uᴴ.

  `a` begins at panel `low`. V and U have the reflectors of columns and of rows, a row for each
  column of the panel. A device has the entries of V and X for its rows and for the panel's, and
  those of Y and U for its columns and for the panel's. V replaces A up to the diagonal in the
  panel's columns, and U replaces it beyond the diagonal in the panel's rows.
  """
  a, found = state
  r, c = g.place()
  row, column, panel_number = numbers_of_stage(g, low, k)
  width, here = g.width, k - low
  columns = g.all_columns(g.columns_of(a, here)).mT
  rows = g.all_rows(g.rows_of(a, here))
  # The devices of a row of the grid do the same, and one of them takes part in the sums.
  counts = (c == 0).astype(a.dtype)

  def in_rows(x):
    return panel_of_rows(g, x.reshape(g.rows, g.tall))

  def in_columns(x):
    return cut(x, here * g.wide, g.wide, 0)

  def step(j, carry):
    of_rows, of_columns, rows_in_panel, columns_in_panel, last_x, found = carry
    number = k * width + j
    y_and_u = cut(columns_in_panel, j, 1, 2).reshape(-1)
    x = cut(columns, j, 1, 0)[0] - times(y_and_u.conj(), flat(of_rows))
    below = jnp.where(row > number, x, 0)
    sums = lax.psum(counts * jnp.concatenate([
        jnp.sum(jnp.where(row == number, x, 0))[None],
        jnp.sum(squared(below)).astype(a.dtype)[None], last_x]), g.axes)
    rows_in_panel = put(
        rows_in_panel, in_rows(sums[2:])[None, None], 1, jnp.maximum(j - 1, 0), 0)
    left = _column_reflector(sums[0], sums[1].real)
    v = left.vector(x, row, number)
    v_and_x = cut(rows_in_panel, j, 1, 2).reshape(-1)
    row_c = cut(rows, j, 1, 0)[0] - times(v_and_x, flat(of_columns).conj())
    by_a, sums = _sum_over_rows(g, times(v.conj(), a).conj(), jnp.concatenate([
        times(flat(of_rows).conj(), v), _in_panel(g, v, here, r)]))
    y = left.tau * (by_a - times(sums[: 2 * width], flat(of_columns)))
    y = jnp.where(column > number, y, 0)
    v_in_panel = in_rows(sums[2 * width :])
    # The reflector of row c.
    z = row_c.conj() - y
    every = g.gather_c(jnp.concatenate([
        parts_of_norm(z, column, number), in_columns(z), in_columns(y)]))
    right = reflector_of(every[:, :3], number)
    u = right.vector(z, column)
    u_in_panel = right.vector(every[:, 3 : 3 + g.wide].reshape(-1), panel_number)
    y_in_panel = every[:, 3 + g.wide :].reshape(-1)
    columns_in_panel = put(
        columns_in_panel, jnp.stack([y_in_panel, u_in_panel])[:, None], 0, j, 0)
    rows_in_panel = put(rows_in_panel, v_in_panel[None, None], 0, j, 0)
    # These products take the vectors of earlier steps, and this step's are added. XLA copies an
    # array that is read after an update of it, or that may be: so the updates wait for products.
    sums = times(flat(of_columns).conj(), u).reshape(2, -1)
    new = jnp.stack([y, u])
    sums = put(sums, times(new.conj(), u)[:, None], 0, j).reshape(-1)
    by_a, sums = sum_over_columns(g, times(a, u), sums)
    x = right.tau * (by_a - times(sums, flat(of_rows)) - cut(sums, j, 1, 0) * v)
    x = jnp.where(row > number, x, 0)
    new = jnp.where(number < 0, sums[0], new)
    of_columns = put(of_columns, new[:, None], 0, j, 0)
    of_rows = put(of_rows, jnp.stack([v, x])[:, None], 0, j, 0)
    found = put(found, jnp.stack(
        [left.entry, right.entry, left.tau, right.tau])[:, None], 0, number)
    return (of_rows, of_columns, rows_in_panel, columns_in_panel, _in_panel(g, x, here, r), found)

  zeros = lambda *shape: g.zeros_after(a, shape)
  of_rows, of_columns, *_, found = loop(0, width, step, (
      zeros(2, width, a.shape[0]), zeros(2, width, a.shape[1]), zeros(2, width, width),
      zeros(2, width, width), zeros(width), found))
  a = a - product(flat(of_rows), flat(of_columns).conj(), transpose_a=True)
  if not has_vectors:
    return a, found
  # Rows of earlier panels hold reflectors of rows.
  own = g.own_columns(of_rows[0].mT, c)
  own = jnp.where(row[:, None] >= k * width, own, g.columns_of(a, here))
  a = put(a, own, 0, here * g.wide)
  # Row c's reflector is that of column c.
  own = g.own_rows(of_columns[1], r)
  top_number = cut(row, here * g.tall, g.tall, 0)
  own = jnp.where(column[None] > top_number[:, None], own, g.rows_of(a, here))
  return put(a, own, here * g.tall, 0), found


def reduce(
    g: Cyclic, a: jax.Array, *, has_vectors: bool
) -> tuple[_Bidiagonal, list[jax.Array], list[jax.Array]]:
  """A = Q B Pᴴ: B, and this device's part of both kinds of reflectors for each stage.

  Source: Dongarra, Sorensen and Hammarling, Block reduction of matrices to condensed forms for
  eigenvalue computations, J. Comput. Appl. Math. 27 (1989); on a grid of devices, ScaLAPACK's
  pdgebrd.
  """
  found = g.zeros_after(a, (4, g.padded))
  left, right = [], []
  for low, high in g.phases:
    step = functools.partial(_reduce_panel, g, low, has_vectors)
    a, found = loop(low, high, step, (a, found))
    done = high - low
    left.append(a[:, : done * g.wide])
    right.append(a[: done * g.tall])
    a = a[done * g.tall :, done * g.wide :]
  d, e, of_columns, of_rows = found
  return _Bidiagonal(d.real, e.real, of_columns, of_rows), left, right


def _left_panel(g, own, k):
  """The reflectors of columns of panel k of a stage, which begin on the diagonal."""
  v = g.all_columns(g.columns_of(own, k))
  number = g.numbers()[0][: len(v)]
  first = k * g.width + jnp.arange(g.width, dtype=k.dtype)
  v = jnp.where(number >= first[None], v, 0)
  return v if g.columns > 1 else gathered_rows(g, v)


def _right_panel(g, own, k):
  """The reflectors of rows of panel k of a stage, which begin after the diagonal."""
  u = g.rows_of(own, k)
  first = k * g.width + jnp.arange(g.width, dtype=k.dtype)
  if g.columns == 1:
    u = g.all_rows(u).mT
    number = jnp.arange(len(u), dtype=k.dtype)[:, None]
  else:
    u = g.turned_rows(u).mT
    number = g.numbers()[0][: len(u)]
  return jnp.where(number > first[None], u, 0)


def decompose(s: Spectrum, a: jax.Array, *, has_vectors: bool) -> tuple[jax.Array, ...]:
  """U, the singular values and Vᴴ, and info, from this device's part of A.

  Without vectors, the values and info.
  """
  g = s.grid
  scale = binade(lax.pmax(magnitude(a), g.axes))
  found, left, right = reduce(g, a / scale.astype(a.dtype), has_vectors=has_vectors)
  rows = own_rows(g)[: None if has_vectors else 0]
  values, u, v, info = bidiagonal_svd_rows_p(
      found.d[: g.n], found.e[: max(g.n - 1, 0)], rows, rows)
  values, info = on_all(g.axes, values) * scale, on_all(g.axes, info)
  if not has_vectors:
    return values, info
  u = multiply_by_reflectors(
      g, _left_panel, left, found.left, dealt(s, u).astype(a.dtype))
  v = multiply_by_reflectors(
      g, _right_panel, right, found.right, dealt(s, v).astype(a.dtype))
  vh = grid_of_vectors(g).transpose(v).conj()
  return to_result(s, u), values, to_result(s, vh), info
