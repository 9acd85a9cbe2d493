"""Eigenvalues and eigenvectors of one Hermitian matrix in the block-cyclic layout.

The functions here work on a device's part, in the body of a `shard_map`. A panel of columns is
reduced to tridiagonal form, and all devices have a part of each step. A device keeps its part of
the reflectors, its rows of the eigenvectors of the tridiagonal matrix, and at last its part of the
eigenvectors.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from linalg._core.algebra import binade
from linalg._factorizations.eigh_tridiagonal import eigh_tridiagonal_rows_p
from linalg._factorizations.matmul import product
from linalg.distributed._algorithms import hermitian_part
from linalg.distributed._cyclic import Cyclic
from linalg.distributed._reflectors import (
  Spectrum,
  columns_of_pieces,
  dealt,
  flat,
  gathered_rows,
  magnitude,
  multiply_by_reflectors,
  numbers_of_stage,
  on_all,
  own_rows,
  panel_of_rows,
  parts_of_norm,
  piece,
  reflector_of,
  squared,
  sum_over_columns,
  times,
  to_result,
)
from linalg.distributed._slices import cut, loop, put


def _reduce_panel(g, low, has_vectors, k, state):
  """Reduces the columns of panel k, and updates the rest of A: A - V Wᴴ - W Vᴴ.

  `a` begins at panel `low`. V and W have a row for each column of the panel. A device has their
  entries for its rows and for the panel, and those of V for its columns. In the panel's columns V
  replaces A.
  """
  a, found = state
  r, c = g.place()
  row, column, panel_number = numbers_of_stage(g, low, k)
  width, here = g.width, k - low
  panel = g.all_columns(g.columns_of(a, here)).mT
  # The devices of a row of the grid do the same, and one of them takes part in the sums.
  counts = (c == 0).astype(a.dtype)

  def top_of(x):
    return cut(x, here * g.tall, g.tall, 0)

  def step(j, carry):
    of_rows, of_panel, v_of_columns, found = carry
    c_number = k * width + j
    # Column c of the updated matrix needs row c of V and W.
    own = cut(of_panel, j, 1, 2)[::-1]
    x = cut(panel, j, 1, 0)[0] - times(own.reshape(-1).conj(), flat(of_rows))
    sent = [piece(g, x, c), top_of(x), parts_of_norm(x, row, c_number)]
    count = len(sent[0])
    every = g.gather_r(jnp.concatenate(sent))
    x_columns = columns_of_pieces(g, every[:, :count])
    x_panel = panel_of_rows(g, every[:, count : count + g.tall])
    h = reflector_of(every[:, count + g.tall :], c_number)
    v, v_columns, v_panel = (
        h.vector(x, number) for x, number in
        ((x, row), (x_columns, column), (x_panel, panel_number)))
    y = jnp.where(row > c_number, sum_over_columns(g, times(a, v_columns))[0], 0)
    # The panel's own rows of y go to all devices, for the next columns of the panel.
    y_panel = put(g.zeros_after(a, (g.rows, g.tall)), top_of(y)[None], r, 0)
    sums = lax.psum(counts * jnp.concatenate([
        y_panel.reshape(-1), times(flat(of_rows).conj(), v), times(v.conj(), y)[None]]), g.axes)
    y_panel = panel_of_rows(g, sums[:width].reshape(g.rows, g.tall))
    by_v, by_w = sums[width : 2 * width], sums[2 * width : 3 * width]
    inner = sums[-1].real - 2 * times(by_v.conj(), by_w).real
    half = (0.5 * squared(h.tau) * inner).astype(a.dtype)
    by = jnp.concatenate([by_w, by_v])

    def extended(vectors, number, y, v):
      w = h.tau * (y - times(by, flat(vectors))) - half * v
      w = jnp.where(number > c_number, w, 0)
      return put(vectors, jnp.stack([v, w])[:, None], 0, j, 0)

    of_rows = extended(of_rows, row, y, v)
    of_panel = extended(of_panel, panel_number, y_panel, v_panel)
    v_of_columns = put(v_of_columns, v_columns[None], j, 0)
    diagonal = cut(x_panel, j, 1, 0)[0].real.astype(a.dtype)
    found = put(found, jnp.stack([diagonal, h.entry, h.tau])[:, None], 0, c_number)
    return of_rows, of_panel, v_of_columns, found

  zeros = lambda *shape: g.zeros_after(a, shape)
  of_rows, _, v_of_columns, found = loop(0, width, step, (
      zeros(2, width, a.shape[0]), zeros(2, width, width), zeros(width, a.shape[1]), found))
  w_of_columns = columns_of_pieces(g, g.gather_r(piece(g, of_rows[1], c)))
  a = a - product(
      flat(of_rows), jnp.concatenate([w_of_columns, v_of_columns]).conj(), transpose_a=True)
  if has_vectors:
    a = put(a, g.own_columns(of_rows[0].mT, c), 0, here * g.wide)
  return a, found


class _Tridiagonal(NamedTuple):
  """The tridiagonal matrix, and the factors of the reflectors."""

  d: jax.Array
  e: jax.Array
  tau: jax.Array


def reduce(
    g: Cyclic, a: jax.Array, *, has_vectors: bool
) -> tuple[_Tridiagonal, list[jax.Array]]:
  """A = Q T Qᴴ: T, and this device's part of the reflectors for each stage.

  A is the whole Hermitian matrix. Source: Dongarra, Sorensen and Hammarling, Block reduction of
  matrices to condensed forms for eigenvalue computations, J. Comput. Appl. Math. 27 (1989); on a
  grid of devices, ScaLAPACK's pdsytrd.
  """
  found = g.zeros_after(a, (3, g.padded))
  reflectors = []
  for low, high in g.phases:
    step = functools.partial(_reduce_panel, g, low, has_vectors)
    a, found = loop(low, high, step, (a, found))
    done = high - low
    reflectors.append(a[:, : done * g.wide])
    a = a[done * g.tall :, done * g.wide :]
  d, e, tau = found
  return _Tridiagonal(d.real, e.real, tau), reflectors


def _panel(g: Cyclic, own: jax.Array, k: jax.Array) -> jax.Array:
  v = g.all_columns(g.columns_of(own, k))
  return v if g.columns > 1 else gathered_rows(g, v)


def decompose(s: Spectrum, a: jax.Array, *, has_vectors: bool) -> tuple[jax.Array, ...]:
  """Eigenvalues, this device's part of the eigenvectors, and info, from its part of A."""
  g = s.grid
  scale = binade(lax.pmax(magnitude(a), g.axes))
  a = hermitian_part(g, a / scale.astype(a.dtype))
  found, reflectors = reduce(g, a, has_vectors=has_vectors)
  # Each device keeps some rows of the eigenvectors of the tridiagonal matrix.
  rows = own_rows(g)[: None if has_vectors else 0]
  w, z, info = eigh_tridiagonal_rows_p(found.d[: g.n], found.e[: max(g.n - 1, 0)], rows)
  w, info = on_all(g.axes, w) * scale, on_all(g.axes, info)
  w = w[s.first : s.first + s.wanted]
  if not has_vectors:
    return w, info
  if s.wanted == 0:
    height = -(-g.n // g.layout.devices(g.layout.spec[0]))
    return w, g.varying(jnp.zeros((height, 0), a.dtype)), info
  z = dealt(s, z).astype(a.dtype)
  return w, to_result(s, multiply_by_reflectors(g, _panel, reflectors, found.tau, z)), info
