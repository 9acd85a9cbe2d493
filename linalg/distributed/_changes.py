"""Changes of a matrix and of its Cholesky factor in the block-cyclic layout.

These are the computations of one device, panel by panel. The rows of a panel's columns are dealt to
all devices, so that each has whole rows of the panel, and as many as the others.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from linalg._core.algebra import diagonal_of
from linalg._factorizations.cholesky import cholesky_p
from linalg._factorizations.matmul import product
from linalg._factorizations.qr import qr_complete_p, qr_p
from linalg._factorizations.triangular import triangular_solve_p
from linalg.distributed._algorithms import by_panels, substitute, times_columns
from linalg.distributed._cyclic import Cyclic
from linalg.distributed._slices import cut, loop, put, window

# The least number of a panel's columns that one orthogonal matrix changes. Wider ones take more
# operations, and narrower ones more products.
_STEP = 32


def add_outer(g: Cyclic, a: jax.Array, w: jax.Array, scaled: jax.Array) -> jax.Array:
  """A + S Wᴴ, for a few columns that are on all devices."""
  row, column = (jnp.ravel(number) for number in g.numbers())
  return a + product(scaled[row], w[column], adjoint_b=True)


def changed(
    g: Cyclic, l: jax.Array, info: jax.Array, w: jax.Array, *, downdate: bool
) -> tuple[jax.Array, jax.Array]:
  """Returns the factor of L Lᴴ + W Wᴴ, or with `downdate` of L Lᴴ - W Wᴴ, and info.

  W is a few columns that are on all devices, padded with zeros. Where L has an `info`, that is
  kept. Otherwise info is the order of the first leading minor that is not positive or not finite.
  """
  finite = jnp.isfinite(w).all(axis=1)
  number = jnp.arange(1, g.padded + 1, dtype=jnp.int32)
  spoilt = jnp.min(jnp.where(finite, g.padded + 1, number))
  # A row of W changes no row of the factor above it.
  w = jnp.where(finite[:, None], w, 0)
  carry = l, w[g.redistributed_numbers()], info
  for low, high in g.long_phases:
    carry = loop(low, high, functools.partial(_change_panel, g, downdate, low), carry)
  l, _, found = carry
  first = jnp.minimum(jnp.where(found == 0, g.padded + 1, found), spoilt)
  found = jnp.where(first > g.padded, 0, first)
  info = jnp.where(info != 0, info, found)
  return by_panels(g, l, lambda x, *_: jnp.where(info != 0, jnp.nan, x)), info


def _change_panel(g, downdate, low, k, carry):
  """Changes panel k of L and the rows of W. All panels before `low` are done."""
  l, w, info = carry
  r, c = g.place()
  below = g.redistribute_rows(g.columns_of(l, k, (low, g.panels)))
  rest = w[low * g.block :]
  own = [cut(x, (k - low) * g.block, g.block, 0) for x in (below, rest)]
  top = g.gather_all(jnp.concatenate(own, axis=1)).swapaxes(0, 1).reshape(g.width, -1)
  panels = (top[:, : g.width], top[:, g.width :]), (below, rest)
  before = (k * g.width).astype(info.dtype)
  size = _step_of(g.width, w.shape[1])

  def step(i, carry):
    panels, info = carry
    first = i * size
    diagonal = window(panels[0][0], (first, first), (size, size))
    own, turn, minor = (_downdate if downdate else _update)(
        diagonal, cut(panels[0][1], first, size, 0))
    order = before + first.astype(info.dtype) + minor
    info = jnp.where((info == 0) & (minor > 0), order, info)
    turned = [turn(cut(x, first, size, 1), y) for x, y in panels]
    (l, w), (below, rest) = (
        (put(x, part, 0, first), y) for (x, _), (part, y) in zip(panels, turned, strict=True))
    l, w = put(l, own, first, first), put(w, jnp.zeros((size, w.shape[1]), w.dtype), first, 0)
    return ((l, w), (below, rest)), info

  panels, info = lax.fori_loop(0, g.width // size, step, (panels, info))
  (top, _), (below, rest) = panels
  own = cut(top, (c * g.rows + r) * g.block, g.block, 0)
  below = put(below, own, (k - low) * g.block, 0)
  done = jnp.arange(len(rest), dtype=k.dtype) < (k - low + 1) * g.block
  w = put(w, jnp.where(done[:, None], 0, rest), low * g.block, 0)
  return put(l, g.restored_columns(below), low * g.tall, k * g.wide), w, info


def _step_of(width, k):
  """The number of columns that one orthogonal matrix changes: a divisor of the panel's width."""
  least = min(max(_STEP, k), width)
  return next(x for x in range(least, width + 1) if width % x == 0)


def _update(l, w):
  """The factor of L Lᴴ + W Wᴴ, how other rows of L and W change, and at which row that fails.

  An orthogonal Q takes [L, W] to [L', 0]: the Q of [L, W]ᴴ.
  """
  size = len(l)
  q, r = qr_complete_p(jnp.concatenate([l, w], axis=1).conj().mT)
  diagonal = diagonal_of(r[:size]).real
  sign = jnp.where(diagonal < 0, -1, 1).astype(l.dtype)
  q = jnp.concatenate([q[:, :size] * sign[None], q[:, size:]], axis=1)
  own = jnp.tril((r[:size] * sign[:, None]).conj().mT)
  diagonal = jnp.abs(diagonal)
  failed = ~((diagonal > 0) & (diagonal < jnp.inf))

  def turn(l, w):
    found = product(jnp.concatenate([l, w], axis=1), q)
    return found[:, :size], found[:, size:]

  return own, turn, jnp.where(failed.any(), jnp.argmax(failed) + 1, 0).astype(jnp.int32)


def _downdate(l, w):
  """The factor of L Lᴴ - W Wᴴ, how other rows of L and W change, and at which row that fails.

  Let S = L⁻¹ W, and G be the factor of I - S Sᴴ. Then L' is L G. An orthogonal Q takes [L', W] to
  [L, 0]. Its first columns are (Gᴴ; Sᴴ). Its last are (-X; I) R⁻¹, where X = G⁻¹ S and Rᴴ R =
  I + Xᴴ X. Other rows (l, w) become (l', v) with (l', w) Q = (l, v). So l' = (l - w Sᴴ) G⁻ᴴ, and
  the last columns give v. This is the mixed form of hyperbolic rotations, in blocks;
  Bojanczyk, Brent, Van Dooren and de Hoog, A note on downdating the Cholesky factorization, SIAM
  J. Sci. Stat. Comput. 8 (1987).
  """
  size, k = w.shape
  s = triangular_solve_p(l, w, left_side=True, lower=True)
  g, minor = cholesky_p(
      jnp.eye(size, dtype=l.dtype) - product(s, s, adjoint_b=True), lower=True, symmetrize=False)
  x = triangular_solve_p(g, s, left_side=True, lower=True)
  q, _ = qr_p(jnp.concatenate([x, jnp.eye(k, dtype=l.dtype)], axis=0))
  q = jnp.concatenate([-q[:size], q[size:]], axis=0)

  def turn(l, w):
    l = triangular_solve_p(
        g, l - product(w, s, adjoint_b=True), left_side=False, lower=True, transpose_a=True,
        conjugate_a=True)
    return l, product(jnp.concatenate([l, w], axis=1), q)

  return jnp.tril(product(l, g)), turn, minor


# Changes of the size, and of a row and a column. Blocks keep their devices as long as the grid and
# the panels are the same.


def resized(g: Cyclic, x: jax.Array) -> jax.Array:
  """X in the layout of a larger or a smaller matrix: panels are added at the end, or left out."""
  shape = g.padded // g.rows, g.padded // g.columns
  missing = [(0, max(new - old, 0)) for new, old in zip(shape, x.shape, strict=True)]
  return jnp.pad(x, missing)[: shape[0], : shape[1]]


def padded_with_identity(g: Cyclic, x: jax.Array) -> jax.Array:
  row, column = g.numbers()
  return jnp.where((row == column) & (row >= g.n), jnp.ones((), x.dtype), x)


def with_last_rows(g: Cyclic, x: jax.Array, columns: jax.Array) -> jax.Array:
  """X with the adjoint of k columns as its last k rows. All devices have the columns, padded."""
  k = columns.shape[1]
  low = (g.n - k) // g.width
  row, column = g.numbers()
  row = row[low * g.tall :]
  place = jnp.clip(row[:, 0] - (g.n - k), 0, k - 1)
  rows = columns[column[0]].conj().mT[place]
  inside = (row >= g.n - k) & (row < g.n)
  return put(x, jnp.where(inside, rows, x[low * g.tall :]), low * g.tall, 0)


def replaced(
    g: Cyclic, x: jax.Array, index: jax.Array, row: jax.Array, column: jax.Array
) -> jax.Array:
  """X with another row and column `index`, padded vectors. The row has the entry of both."""
  i, j = g.numbers()
  x = jnp.where(j == index, column[i[:, 0]][:, None], x)
  return jnp.where(i == index, row[j[0]][None], x)


def without(g: Cyclic, x: jax.Array, index: jax.Array) -> jax.Array:
  """X without a row and a column: the later ones move up by one, and zeros follow the last.

  A device passes the first row of each block, and the first column, to the device before.
  """
  row, column = g.numbers()
  x = jnp.where(row >= index, _next(g, x, 0), x)
  return jnp.where(column >= index, _next(g, x, 1), x)


def _next(g, x, dimension):
  """The following row or column of each in the matrix, in the block-cyclic layout."""
  unit, groups = (g.block, g.rows) if dimension == 0 else (g.wide, g.columns)
  place = g.place()[dimension]
  blocks = jnp.moveaxis(x, dimension, 0).reshape(-1, unit, x.shape[1 - dimension])
  first = g.of_next(blocks[:, 0], dimension)
  later = jnp.concatenate([first[1:], jnp.zeros_like(first[:1])])
  following = jnp.where(place == groups - 1, later, first)
  blocks = jnp.concatenate([blocks[:, 1:], following[:, None]], axis=1)
  return jnp.moveaxis(blocks.reshape(-1, x.shape[1 - dimension]), 0, dimension)


# The changed matrix on all devices. It is NaN where a traced index is out of range.


def matrix_without(
    old: Cyclic, g: Cyclic, a: jax.Array, index: jax.Array, outside: jax.Array | bool
) -> jax.Array:
  found = g.map(lambda a, index: resized(g, without(old, a, index)), "cs", "c", a, index)
  return jnp.where(outside, jnp.nan, found)


def matrix_replaced(
    g: Cyclic, a: jax.Array, index: jax.Array, outside: jax.Array | bool, row: jax.Array,
    column: jax.Array,
) -> jax.Array:
  found = g.map(functools.partial(replaced, g), "csss", "c", a, index, row, column)
  return jnp.where(outside, jnp.nan, found)


def column_of(g: Cyclic, x: jax.Array, index: jax.Array) -> jax.Array:
  """Column `index` (padded,) on all devices."""
  row, column = g.numbers()
  own = jnp.sum(jnp.where(column == index, x, 0), axis=1)
  zeros = g.varying(jnp.zeros(g.padded, x.dtype))
  return lax.psum(zeros.at[row[:, 0]].set(own), g.axes)


def factor_without(
    old: Cyclic, g: Cyclic, l: jax.Array, info: jax.Array, index: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """The factor of the matrix without row and column `index`, and info.

  Columns of L before the index lose a row. The others are updated by the column that is left out.
  """
  number = jnp.arange(g.padded, dtype=index.dtype)
  lost = jnp.roll(column_of(old, l, index), -1)[: g.padded]
  lost = jnp.where((number >= index) & (number < g.n), lost, 0)
  l = padded_with_identity(g, resized(g, without(old, l, index)))
  return changed(g, l, info, lost[:, None], downdate=False)


def factor_replaced(
    g: Cyclic, l: jax.Array, info: jax.Array, index: jax.Array, x: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """The factor of the matrix with another row and column `index`, and info.

  X is the new column, padded. The row of L is a solution with the rows above, and the column
  follows. The rows below gain the old column by an update, and lose the new one by a downdate.
  """
  number = jnp.arange(g.padded, dtype=index.dtype)
  above, below = number < index, (number > index) & (number < g.n)
  row = substitute(
      g, l, jnp.where(above, x, 0)[:, None], lower=True, adjoint=False)[:, 0]
  row = jnp.where(above, row, 0)
  rest = jnp.sum(jnp.where(number == index, x, 0).real) - jnp.sum(row.real**2 + row.imag**2)
  positive = rest > 0
  info = jnp.where((info == 0) & ~positive, index + 1, info)
  diagonal = jnp.sqrt(jnp.where(positive, rest, 1)).astype(x.dtype)
  others = lax.psum(times_columns(g, l, row[:, None], adjoint=False), g.axes)[:, 0]
  new = jnp.where(below, (x - others) / diagonal, 0)
  old = jnp.where(below, column_of(g, l, index), 0)
  row = jnp.where(number == index, diagonal, row.conj())
  # An update by columns that are zero up to the index leaves the row and the column as they are.
  l = replaced(g, l, index, row, new)
  l, info = changed(g, l, info, old[:, None], downdate=False)
  return changed(g, l, info, new[:, None], downdate=True)
