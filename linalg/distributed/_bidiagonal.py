"""Singular values and vectors of one square matrix, from its rows in cyclic blocks.

The functions here work on a device's part, in the body of a `shard_map`. The grid has one column: a
device holds whole rows of the matrix. A panel of rows and columns is reduced to bidiagonal form,
and all devices have a part of each step. A device keeps its rows of the reflectors, of the vectors
of the bidiagonal matrix, and at last some columns of the singular vectors.
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
from linalg.distributed._slices import cut, loop, put, quotient, remainder
from linalg.distributed._tridiagonal import (
  Spectrum,
  magnitude,
  multiply_by_reflectors,
  on_all,
  reflector,
  spread,
  to_columns,
  to_result,
)


class _Bidiagonal(NamedTuple):
  """The bidiagonal matrix, and the factors of the reflectors of columns and rows."""

  d: jax.Array
  e: jax.Array
  left: jax.Array
  right: jax.Array


_times = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def _square(x):
  return (x * x.conj()).real


def _column_reflector(axes, x, number, c):
  """The reflector that takes the entries from number c on to one real entry, in number c.

  The devices have some entries each, and take one sum. Returns the device's entries of v, τ and the
  entry. Numbers whose squares lose digits count as zeros: they are below the rounding errors of A,
  whose largest entry is near 1.
  """
  finfo = jnp.finfo(x.dtype)
  below = jnp.where(number > c, x, 0)
  alpha = jnp.sum(jnp.where(number == c, x, 0))
  square = jnp.sum(_square(below))
  alpha, square = lax.psum(jnp.stack([alpha, square.astype(x.dtype)]), axes)
  square = square.real
  least = finfo.tiny / finfo.eps**2
  turns = (square > least) | (_square(alpha.imag) > least)
  norm = jnp.sqrt(_square(alpha) + square)
  beta = jnp.where(turns, jnp.where(alpha.real < 0, norm, -norm), alpha.real)
  new = jnp.where(turns, beta, 1).astype(x.dtype)
  tau = jnp.where(turns, (new - alpha) / new, 0)
  v = jnp.where(number == c, 1, below / jnp.where(turns, alpha - new, 1))
  return jnp.where(turns, v, 0), tau, beta


def _reduce_panel(g, low, has_vectors, k, state):
  """Reduces the columns and rows of panel k, and updates the rest of A: A - V Yᴴ - X Uᴴ.

  `a` begins at panel `low`. V and U have the reflectors of columns and of rows, a row for each
  column of the panel. V replaces A up to the diagonal in the panel's columns, and U replaces it
  beyond the diagonal in the panel's rows.
  """
  a, found = state
  p = lax.axis_index(g.axes)
  rows, size = a.shape
  width, first = g.width, (k - low) * g.width
  i = jnp.arange(rows, dtype=p.dtype)
  own_number = (quotient(i, g.block) * g.devices + p) * g.block + remainder(i, g.block)
  number = jnp.arange(size, dtype=p.dtype)
  panel = cut(a, first, width, 1).mT
  top = cut(a, (k - low) * g.block, g.block, 0)
  top_number = cut(own_number, (k - low) * g.block, g.block, 0)

  def own_top(x):
    return cut(x, (k - low) * g.block, g.block, 1)

  def column(j, carry):
    v_own, x_own, y, u, found = carry
    c = first + j
    y_row, u_row = cut(y, c, 1, 1)[:, 0], cut(u, c, 1, 1)[:, 0]
    x = cut(panel, j, 1, 0)[0] - _times(y_row.conj(), v_own) - _times(u_row.conj(), x_own)
    v, left, d = _column_reflector(g.axes, x, own_number, c)
    # The row c of the updated matrix is that of one device.
    is_row = (top_number == c).astype(a.dtype)
    row = _times(is_row, top) - _times(_times(own_top(v_own), is_row), y.conj()) - _times(
        _times(own_top(x_own), is_row), u.conj())
    sums = jnp.concatenate([
        _times(v.conj(), a).conj(), row, _times(v_own.conj(), v), _times(x_own.conj(), v)])
    sums = lax.psum(sums, g.axes)
    by_a, row = sums[:size], sums[size : 2 * size]
    by_v, by_x = sums[2 * size : 2 * size + width], sums[2 * size + width :]
    new_y = jnp.where(number > c, left * (by_a - _times(by_v, y) - _times(by_x, u)), 0)
    new_u, right, e = reflector(row.conj() - new_y, c)
    v_own, y = put(v_own, v[None], j, 0), put(y, new_y[None], j, 0)
    new_x = right * (_times(a, new_u) - _times(_times(y.conj(), new_u), v_own)
                     - _times(_times(u.conj(), new_u), x_own))
    new_x = jnp.where(own_number > c, new_x, 0)
    u, x_own = put(u, new_u[None], j, 0), put(x_own, new_x[None], j, 0)
    c = low * width + c
    found = _Bidiagonal(*(
        put(x, value[None], c) for x, value in zip(found, (d, e, left, right), strict=True)))
    return v_own, x_own, y, u, found

  zeros = lambda n: g.zeros_after(a, (width, n))
  v_own, x_own, y, u, found = loop(
      0, width, column, (zeros(rows), zeros(rows), zeros(size), zeros(size), found))
  a = a - product(
      jnp.concatenate([v_own, x_own]), jnp.concatenate([y, u]).conj(), transpose_a=True)
  if not has_vectors:
    return a, found
  # Rows of earlier panels hold reflectors of rows.
  a = put(a, jnp.where(own_number[:, None] >= first, v_own.mT, cut(a, first, width, 1)), 0, first)
  inside = cut(a, (k - low) * g.block, g.block, 0)
  # Row c's reflector is number c - first of U.
  chosen = cut(u.reshape(g.devices, g.block, size), p, 1, 0)[0]
  inside = jnp.where(number[None] > top_number[:, None], chosen, inside)
  return put(a, inside, (k - low) * g.block, 0), found


def reduce(
    g: Cyclic, a: jax.Array, *, has_vectors: bool
) -> tuple[_Bidiagonal, list[jax.Array], list[jax.Array]]:
  """A = Q B Pᴴ: B, and this device's rows of both kinds of reflectors for each stage.

  Source: Dongarra, Sorensen and Hammarling, Block reduction of matrices to condensed forms for
  eigenvalue computations, J. Comput. Appl. Math. 27 (1989).
  """
  zeros = g.zeros_after(a, (g.padded,))
  found = _Bidiagonal(zeros.real, zeros.real, zeros, zeros)
  left, right = [], []
  for low, high in g.phases:
    step = functools.partial(_reduce_panel, g, low, has_vectors)
    a, found = loop(low, high, step, (a, found))
    done = high - low
    left.append(a[:, : done * g.width])
    right.append(a[: done * g.block])
    a = a[done * g.block :, done * g.width :]
  return found, left, right


def _left_panel(g, own, k):
  """The reflectors of columns of panel k of a stage, which begin on the diagonal."""
  v = spread(g, cut(own, k * g.width, g.width, 1).mT)
  number = jnp.arange(v.shape[1], dtype=k.dtype)
  first = k * g.width + jnp.arange(g.width, dtype=k.dtype)
  return jnp.where(number[None] >= first[:, None], v, 0)


def _right_panel(g, own, k):
  """The reflectors of rows of panel k of a stage, which begin after the diagonal."""
  u = cut(own, k * g.block, g.block, 0)
  if g.devices > 1:
    u = lax.all_gather(u, g.axes, tiled=True)
  number = jnp.arange(u.shape[1], dtype=k.dtype)
  first = k * g.width + jnp.arange(g.width, dtype=k.dtype)
  return jnp.where(number[None] > first[:, None], u, 0)


def _turned(s: Spectrum) -> Spectrum:
  """The layout of the adjoint."""
  layout = s.grid.layout
  return s._replace(grid=s.grid._replace(layout=layout._replace(spec=layout.spec[::-1])))


def decompose(s: Spectrum, a: jax.Array, *, has_vectors: bool) -> tuple[jax.Array, ...]:
  """U, the singular values and Vᴴ, and info, from this device's part of A's rows.

  Without vectors, the values and info.
  """
  g = s.grid
  scale = binade(lax.pmax(magnitude(a), g.axes))
  found, left, right = reduce(g, a / scale.astype(a.dtype), has_vectors=has_vectors)
  share = -(-g.n // g.devices) if has_vectors else 0
  # Rows of V are those of a device in the layout of Vᴴ.
  turned = _turned(s)

  def rows(axes):
    first = lax.axis_index(axes) * share
    return (first + g.varying(jnp.arange(share, dtype=first.dtype))).astype(jnp.int32)

  values, u, v, info = bidiagonal_svd_rows_p(
      found.d[: g.n], found.e[: max(g.n - 1, 0)], rows(g.axes), rows(turned.grid.axes))
  values, info = on_all(g.axes, values) * scale, on_all(g.axes, info)
  if not has_vectors:
    return values, info
  u = multiply_by_reflectors(
      g, _left_panel, left, found.left, to_columns(s, u).astype(a.dtype))
  v = multiply_by_reflectors(
      g, _right_panel, right, found.right, to_columns(turned, v).astype(a.dtype))
  return to_result(s, u), values, to_result(turned, v).conj().mT, info
