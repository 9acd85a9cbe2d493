"""Eigenvalues and eigenvectors of one Hermitian matrix, from its rows in cyclic blocks.

The functions here work on a device's part, in the body of a `shard_map`. The grid has one column:
a device holds whole rows of the matrix. A panel of columns is reduced to tridiagonal form, and all
devices have a part of each step. A device keeps its rows of the reflectors, of the eigenvectors of
the tridiagonal matrix, and at last some columns of the eigenvectors.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from linalg._core.algebra import binade
from linalg._factorizations.eigh_tridiagonal import eigh_tridiagonal_rows_p
from linalg._factorizations.matmul import product
from linalg._factorizations.triangular import triangular_solve_p
from linalg.distributed._cyclic import Cyclic
from linalg.distributed._layout import Axes, Layout
from linalg.distributed._slices import cut, loop, put, quotient, remainder, take

# The width of a panel that makes the trailing update a product. Wider panels take more operations
# on narrow matrices.
_WIDTH = 32
# The least number of panels, if the devices are not more than that of the rows.
_PANELS = 8


class Spectrum(NamedTuple):
  """A decomposition: the matrix's rows in cyclic blocks, and the wanted eigenpairs."""

  grid: Cyclic
  first: int  # the first wanted eigenpair
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
    """The layout of the eigenvectors."""
    rows, columns = self.grid.layout.spec
    return self.grid.layout._replace(spec=(rows, columns if self.shares_columns else ()))


def grid_of_rows(layout: Layout, n: int, most_phases: int) -> Cyclic:
  """Blocks of whole rows."""
  devices = layout.devices(layout.spec[0] + layout.spec[1])
  width = min(_WIDTH, max(n // _PANELS, 1))
  block = max(width // devices, 1)
  panel = block * devices
  padded = max(-(-n // panel), 1) * panel
  return Cyclic(layout, devices, 1, n, block, padded, most_phases, 1)


def spread(g: Cyclic, x: jax.Array) -> jax.Array:
  """Gathers entries of all devices' rows, (..., h) to (..., P h), in the order of the matrix."""
  if g.devices == 1:
    return x
  every = lax.all_gather(x, g.axes)
  every = every.reshape(g.devices, *x.shape[:-1], -1, g.block)
  return jnp.moveaxis(every, 0, -2).reshape(*x.shape[:-1], -1)


def _own(g: Cyclic, p: jax.Array, x: jax.Array) -> jax.Array:
  """This device's entries of a vector that all devices have."""
  return cut(x.reshape(-1, g.devices, g.block), p, 1, 1).reshape(-1)


def magnitude(x: jax.Array) -> jax.Array:
  """The largest real or imaginary part: a modulus may leave the range."""
  if jnp.iscomplexobj(x):
    return jnp.maximum(jnp.max(jnp.abs(x.real)), jnp.max(jnp.abs(x.imag)))
  return jnp.max(jnp.abs(x))


_times = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def _square(x: jax.Array) -> jax.Array:
  return (x * x.conj()).real


def reflector(x: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
  """The reflector H = I - τ v vᴴ that takes the entries below number c to one real entry.

  Returns v, which is zero up to number c and then begins with 1; τ; and the entry, of Hᴴ x. Where
  nothing changes, v and τ are 0. LAPACK's zlarfg.
  """
  number = jnp.arange(len(x), dtype=c.dtype)
  x = jnp.where(number > c, x, 0)
  # Squares of the scaled entries neither overflow, nor underflow all together.
  scale = binade(magnitude(x))
  x = x / scale.astype(x.dtype)
  is_head = number == c + 1
  alpha = jnp.sum(jnp.where(is_head, x, 0))
  rest = jnp.where(is_head, 0, x)
  square = jnp.sum(_square(rest))
  norm = jnp.sqrt(_square(alpha) + square)
  is_done = (square == 0) & (alpha.imag == 0)
  beta = jnp.where(alpha.real < 0, norm, -norm)
  new = jnp.where(is_done, 1, beta).astype(x.dtype)
  tau = jnp.where(is_done, 0, (new - alpha) / new)
  v = jnp.where(is_head, jnp.ones((), x.dtype), rest / jnp.where(is_done, 1, alpha - new))
  return jnp.where(is_done, 0, v), tau, jnp.where(is_done, alpha.real, beta) * scale


class _Tridiagonal(NamedTuple):
  """The tridiagonal matrix, and the factors of the reflectors."""

  d: jax.Array
  e: jax.Array
  tau: jax.Array


def _reduce_panel(g, low, has_vectors, k, state):
  """Reduces the columns of panel k, and updates the rest of A: A - V Wᴴ - W Vᴴ.

  `a` begins at panel `low`. V and W have a row for each column of the panel. In the panel's columns
  V replaces A.
  """
  a, found = state
  p = lax.axis_index(g.axes)
  rows, size = a.shape
  width, first = g.width, (k - low) * g.width
  i = jnp.arange(rows, dtype=p.dtype)
  own_number = (quotient(i, g.block) * g.devices + p) * g.block + remainder(i, g.block)
  top_number = first + jnp.arange(width, dtype=first.dtype)
  panel = cut(a, first, width, 1).mT

  def column(j, carry):
    v, v_own, w_own, w_top, found = carry
    c = first + j
    # Column c of the updated matrix needs row c of V and W.
    v_row, w_row = cut(v, c, 1, 1)[:, 0], cut(w_top, j, 1, 1)[:, 0]
    x = cut(panel, j, 1, 0)[0] - _times(w_row.conj(), v_own) - _times(v_row.conj(), w_own)
    x = spread(g, x)
    new, tau, beside = reflector(x, c)
    new_own = _own(g, p, new)
    y = jnp.where(own_number > c, _times(a, new), 0)
    # The panel's own rows of y go to all devices, for the next columns of the panel.
    y_top = cut(y, (k - low) * g.block, g.block, 0)
    y_top = put(g.varying(jnp.zeros((g.devices, g.block), y.dtype)), y_top[None], p, 0)
    sums = jnp.concatenate([
        _times(w_own.conj(), new_own), _times(v_own.conj(), new_own), y_top.reshape(-1),
        _times(new_own.conj(), y)[None]])
    sums = lax.psum(sums, g.axes)
    by_w, by_v, y_top, inner = (
        sums[:width], sums[width : 2 * width], sums[2 * width : 3 * width], sums[-1])
    inner = inner.real - 2 * _times(by_v.conj(), by_w).real
    half = (0.5 * _square(tau) * inner).astype(y.dtype)

    def corrected(y, v, w, new):
      return tau * (y - _times(by_w, v) - _times(by_v, w)) - half * new

    new_w = jnp.where(own_number > c, corrected(y, v_own, w_own, new_own), 0)
    v_top, new_top = cut(v, first, width, 1), cut(new, first, width, 0)
    top = jnp.where(top_number > c, corrected(y_top, v_top, w_top, new_top), 0)
    v, v_own = put(v, new[None], j, 0), put(v_own, new_own[None], j, 0)
    w_own, w_top = put(w_own, new_w[None], j, 0), put(w_top, top[None], j, 0)
    c = low * width + c
    found = _Tridiagonal(*(
        put(x, value[None], c) for x, value in zip(
            found, (cut(x, first + j, 1, 0)[0].real, beside, tau), strict=True)))
    return v, v_own, w_own, w_top, found

  zeros = lambda n: g.varying(jnp.zeros((width, n), a.dtype))
  v, v_own, w_own, _, found = loop(
      0, width, column, (zeros(size), zeros(rows), zeros(rows), zeros(width), found))
  w = spread(g, w_own)
  a = a - product(
      jnp.concatenate([v_own, w_own]), jnp.concatenate([w, v]).conj(), transpose_a=True)
  return (put(a, v_own.mT, 0, first) if has_vectors else a), found


def reduce(
    g: Cyclic, a: jax.Array, *, has_vectors: bool
) -> tuple[_Tridiagonal, list[jax.Array]]:
  """A = Q T Qᴴ: T, and this device's rows of the reflectors for each stage.

  A's rows are those of the whole Hermitian matrix. Source: Dongarra, Sorensen and Hammarling, Block
  reduction of matrices to condensed forms for eigenvalue computations, J. Comput. Appl. Math. 27
  (1989).
  """
  real = a.real.dtype
  zeros = lambda dtype: g.varying(jnp.zeros(g.padded, dtype))
  found = _Tridiagonal(zeros(real), zeros(real), zeros(a.dtype))
  reflectors = []
  for low, high in g.phases:
    step = functools.partial(_reduce_panel, g, low, has_vectors)
    a, found = loop(low, high, step, (a, found))
    done = high - low
    reflectors.append(a[:, : done * g.width])
    a = a[done * g.block :, done * g.width :]
  return found, reflectors


def _panel(g: Cyclic, own: jax.Array, k: jax.Array) -> jax.Array:
  """The reflectors of panel k of a stage."""
  return spread(g, cut(own, k * g.width, g.width, 1).mT)


def multiply_by_reflectors(
    g: Cyclic, panel: Callable[[Cyclic, jax.Array, jax.Array], jax.Array],
    reflectors: list[jax.Array], tau: jax.Array, z: jax.Array
) -> jax.Array:
  """Q Z, for some columns of Z.

  `panel` gathers the reflectors of a panel, which are rows, from each device's part of a stage.

  A panel of reflectors is I - V T Vᴴ, and T⁻¹ has the factors' reciprocals on its diagonal and
  those of Vᴴ V above it (Schreiber and Van Loan, A storage-efficient WY representation for products
  of Householder transformations, 1989).
  """
  for (low, high), own in reversed(list(zip(g.phases, reflectors, strict=True))):

    def step(i, z, low=low, high=high, own=own):
      k = high - 1 - (i - low)
      v = panel(g, own, k - low)
      factor = cut(tau, k * g.width, g.width, 0)
      # A reflector that changes nothing is zero, and any factor will do.
      factor = 1 / jnp.where(factor == 0, 1, factor)
      t = jnp.triu(product(v.conj(), v.mT), 1) + jnp.diag(factor)
      rest = z[low * g.width :]
      change = triangular_solve_p(t, product(v.conj(), rest), left_side=True, lower=False)
      return put(z, rest - product(v, change, transpose_a=True), low * g.width, 0)

    z = loop(low, high, step, z)
  return z


def to_columns(s: Spectrum, rows: jax.Array) -> jax.Array:
  """This device's columns of a matrix, from its share of the rows.

  The columns are in the order of the result's: an exchange along A's rows then makes that.
  """
  g = s.grid
  along_rows, along_columns = g.layout.spec
  groups = g.layout.devices(along_rows)
  some = -(-s.chunk // groups)
  # Device (r, c) takes part r of the columns of chunk c.
  number = lambda dimension: lax.broadcasted_iota(
      jnp.int32, (groups, s.columns, some), dimension)
  wanted = number(1) * s.chunk + number(0) * some + number(2)
  wanted = jnp.minimum(wanted, max(s.wanted - 1, 0))
  sent = take(rows, s.first + wanted.reshape(-1), 1).reshape(len(rows), -1, some)
  sent = jnp.moveaxis(sent, 1, 0)
  if g.devices > 1:
    sent = lax.all_to_all(sent, along_rows + along_columns, 0, 0)
  columns = sent.reshape(-1, some)[: g.padded]
  return jnp.pad(columns, ((0, g.padded - len(columns)), (0, 0)))


def to_result(s: Spectrum, x: jax.Array) -> jax.Array:
  """This device's part of the result, from its columns of it."""
  g = s.grid
  along_rows, along_columns = g.layout.spec
  groups = g.layout.devices(along_rows)
  chunk = -(-g.n // groups)
  x = jnp.pad(x, ((0, max(groups * chunk - len(x), 0)), (0, 0)))[: groups * chunk]
  if groups > 1:
    x = lax.all_to_all(x.reshape(groups, chunk, -1), along_rows, 0, 0)
    x = x.swapaxes(0, 1).reshape(chunk, -1)
  x = x[:, : s.chunk]
  if not s.shares_columns:
    x = lax.all_gather(x, along_columns, axis=1, tiled=True, to="invarying")[:, : s.wanted]
  return x


def on_all(axes: Axes, x: jax.Array) -> jax.Array:
  """The first device's copy, known to be the same on all devices."""
  return lax.psum(jnp.where(lax.axis_index(axes) == 0, x, 0), axes)


def hermitian_part(g: Cyclic, a: jax.Array) -> jax.Array:
  return a / 2 + g.transpose(a).conj() / 2


def decompose(s: Spectrum, a: jax.Array, *, has_vectors: bool) -> tuple[jax.Array, ...]:
  """Eigenvalues, this device's part of the eigenvectors, and info, from its part of A's rows."""
  g = s.grid
  scale = binade(lax.pmax(magnitude(a), g.axes))
  a = hermitian_part(g, a / scale.astype(a.dtype))
  found, reflectors = reduce(g, a, has_vectors=has_vectors)
  # Each device keeps some rows of the eigenvectors of the tridiagonal matrix.
  share = -(-g.n // g.devices) if has_vectors else 0
  first = lax.axis_index(g.axes) * share
  rows = first + g.varying(jnp.arange(share, dtype=first.dtype))
  w, z, info = eigh_tridiagonal_rows_p(
      found.d[: g.n], found.e[: max(g.n - 1, 0)], rows.astype(jnp.int32))
  w, info = on_all(g.axes, w) * scale, on_all(g.axes, info)
  w = w[s.first : s.first + s.wanted]
  if not has_vectors:
    return w, info
  if s.wanted == 0:
    height = -(-g.n // g.layout.devices(g.layout.spec[0]))
    return w, g.varying(jnp.zeros((height, 0), a.dtype)), info
  z = to_columns(s, z).astype(a.dtype)
  return w, to_result(s, multiply_by_reflectors(g, _panel, reflectors, found.tau, z)), info
