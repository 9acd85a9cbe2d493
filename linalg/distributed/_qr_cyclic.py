"""Householder QR of matrices in the block-cyclic layout, with derivatives.

These are the computations of one device, panel by panel, and the operations made of them. All
rows of the grid share each panel. They take one sum for each column. The
trailing update is that of Schreiber and Van Loan, A storage-efficient WY representation for
products of Householder transformations, SIAM J. Sci. Stat. Comput. 10 (1989).
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from linalg import ffi
from linalg._core.algebra import binade
from linalg._factorizations.matmul import product
from linalg.distributed._cyclic import Cyclic, bounds
from linalg.distributed._shared import Shared, add_outer, folded_p, inner, multiply, quotient_p
from linalg.distributed._slices import cut, loop, put


def factor(g: Cyclic, a: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns R with the reflectors below its diagonal, and the triangles T of their products.

  The columns are scaled by powers of two, so that no sum of squares is out of range.
  """
  size = jnp.max(jnp.abs(a), axis=0)
  scale = binade(jnp.max(g.gather_r(size), axis=0)).astype(a.dtype)[None]
  a = a / scale
  last = min(g.lengths)
  panels = -(-last // g.width)
  t = jnp.broadcast_to(zero_of(g, a), (max(panels, 1), g.width, g.width))
  for low, high in bounds(panels, g.most_phases):
    a, t = loop(low, high, functools.partial(_eliminate, g, low, last), (a, t))
  row, column = g.numbers()
  return jnp.where(row <= column, a * scale, a), t


def zero_of(g: Cyclic, a: jax.Array) -> jax.Array:
  """A zero with the type of a sum over the devices."""
  return lax.psum(g.zeros_after(a), g.axes)


def _eliminate(g, low, last, k, carry):
  """Eliminates panel k. All panels before `low` are done."""
  a, t = carry
  row = g.numbers()[0][low * g.tall :]
  panel = g.all_columns(g.columns_of(a, k, (low, None)))
  panel, triangle = _panel(g, panel, row[:, 0], k * g.width, last)
  a = put(a, g.own_columns(panel, g.place()[1]), low * g.tall, k * g.wide)
  v = _reflectors(row, k * g.width, last, panel)
  return _applied(g, a, v, triangle.conj().mT, low, k + 1), put(t, triangle[None], k, 0, 0)


def _reflectors(row, first, last, columns):
  """The reflectors of a panel, with their unit diagonal, from its stored columns."""
  column = first + jnp.arange(columns.shape[1], dtype=row.dtype)[None]
  v = jnp.where(row > column, columns, (row == column).astype(columns.dtype))
  return jnp.where(column < last, v, 0)


def _panel(g, x, row, first, last):
  """The reflectors and the triangle T of a panel. A device has all columns of its rows.

  The devices of a row of the grid do the same, and one of them takes part in the sums. The numbers
  are those of LAPACK's larfg and larft. Numbers whose squares lose digits count as zeros: they are
  below the rounding errors of their column.
  """
  finfo = jnp.finfo(x.dtype)
  least = finfo.tiny / finfo.eps**2
  index = jnp.arange(g.width, dtype=row.dtype)
  counts = (g.place()[1] == 0).astype(x.dtype)

  def step(j, carry):
    x, t = carry
    column = cut(x, j, 1, 1)[:, 0]
    below, here = row > first + j, row == first + j
    under = jnp.where(below, column, 0)
    sums = jnp.stack([
        product(under[:, None], x, adjoint_a=True)[0],
        jnp.sum(jnp.where(here[:, None], x, 0), axis=0)])
    under_x, top = lax.psum(counts * sums, g.axes)
    alpha, square = cut(top, j, 1, 0)[0], cut(under_x, j, 1, 0)[0].real
    imaginary = alpha.imag**2 if jnp.iscomplexobj(x) else jnp.zeros_like(square)
    turns = ((square > least) | (imaginary > least)) & (first + j < last)
    norm = jnp.sqrt(square + alpha.real**2 + imaginary)
    beta = jnp.where(turns, jnp.where(alpha.real >= 0, -norm, norm), alpha.real).astype(x.dtype)
    tau = jnp.where(turns, (beta - alpha) / jnp.where(turns, beta, 1), 0)
    over = jnp.where(turns, 1 / jnp.where(turns, alpha - beta, 1), 0)
    v = jnp.where(below, column * over, here.astype(x.dtype))
    v_x = top + over.conj() * under_x
    x = x - v[:, None] * jnp.where(index > j, tau.conj() * v_x, 0)[None]
    x = put(x, jnp.where(here, beta, jnp.where(below, v, column))[:, None], 0, j)
    earlier = jnp.where(index < j, v_x.conj(), 0)
    new = -tau * product(t, earlier[:, None]) + jnp.where(index == j, tau, 0)[:, None]
    return x, put(t, new, 0, j)

  t = jnp.broadcast_to(zero_of(g, x), (g.width, g.width))
  return lax.fori_loop(0, g.width, step, (x, t))


def _applied(g, x, v, t, low, first):
  """X - V T Vᴴ X for the columns from panel `first` >= `low` on.

  V begins with the rows of panel `low`.
  """
  w = product(t, g.sum_r(inner(g, v, x, low, first)))
  w = jnp.moveaxis(g.gather_r(w), 0, 1).reshape(g.width, -1)
  return add_outer(g, x, -v, w, low, first)


def orthogonal(g: Cyclic, packed: jax.Array, t: jax.Array) -> jax.Array:
  """The first min(m, n) columns of Q, by reflectors applied to an identity from the last on."""
  last = min(g.lengths)
  panels = -(-last // g.width)
  row, _ = g.numbers()
  column = g.numbers()[1][:, : max(panels, 1) * g.wide]
  # Columns beyond the last are zeros, and stay so.
  q = jnp.where((row == column) & (row < last), jnp.ones((), packed.dtype), g.zeros_after(packed))
  for low, high in bounds(panels, g.most_phases)[::-1]:

    def step(i, q, low=low, high=high):
      k = low + high - 1 - i
      rows = g.all_columns(g.columns_of(packed, k, (low, None)))
      v = _reflectors(row[low * g.tall :], k * g.width, last, rows)
      return _applied(g, q, v, t[k], low, k)

    q = loop(low, high, step, q)
  return q


def orthogonal_factor(g: Cyclic, a: jax.Array) -> jax.Array:
  return orthogonal(g, *factor(g, a))


def _triangle(g, packed):
  last = min(g.lengths)
  row, column = g.numbers()
  height = max(-(-last // g.width), 1) * g.tall
  return jnp.where((row <= column) & (row < last), packed, 0)[:height]


def _spoilt(g, a):
  """Whether the matrix holds NaN or Inf."""
  return lax.pmax((~jnp.isfinite(a).all()).astype(jnp.int32), g.axes) != 0


def _both(g, a):
  spoilt = _spoilt(g, a)
  packed, t = factor(g, a)
  return [jnp.where(spoilt, jnp.nan, x) for x in (orthogonal(g, packed, t), _triangle(g, packed))]


def _r(g, a):
  spoilt = _spoilt(g, a)
  return jnp.where(spoilt, jnp.nan, _triangle(g, factor(g, a)[0]))


def _factors(a, *, shared, **_):
  return shared.map(functools.partial(_both, shared.grid), "c", "cc", a)


def _only_r(a, *, shared, **_):
  return [shared.map(functools.partial(_r, shared.grid), "c", "c", a)]


def _tangents(shared, a, da, q, r):
  """dQ and dR, by the rule of `linalg.qr`.

  Let X = dA R⁻¹, for the square R of the first min(m, n) columns, and C = Qᴴ X. F is C's strictly
  lower triangle, its strictly upper one's adjoint and the real part of its diagonal, all added.
  Then dR = Fᴴ R and dQ = X - Q Fᴴ. Other columns of R are Qᴴ A.
  """
  m, n = shared.grid.lengths
  k = min(m, n)
  square = shared.of_shape(k, k)
  width = shared.parts(k, k)[1]
  begin = lambda x: square.masked(lambda _, column: column < k, x[..., :width])
  first = lambda x: begin(x) if m < n else x
  times = functools.partial(multiply, shared)
  r1 = first(r)
  x = quotient_p(r1, first(da), shared=square)
  f = folded_p(times(q.conj(), x, transpose=(True, False)), shared=square)
  dq = x - times(q, f.conj(), transpose=(False, True))
  dr = times(f.conj(), r1, transpose=(True, False))
  if m < n:
    other = times(dq.conj(), a, transpose=(True, False)) + times(
        q.conj(), da, transpose=(True, False))
    wide = shared.of_shape(k, n)
    missing = other.shape[-1] - width
    dr = jnp.pad(dr, [*[(0, 0)] * (dr.ndim - 1), (0, missing)])
    dr = dr + wide.masked(lambda row, column: (column >= k) & (row < k), other)
  return dq, dr


def _factors_jvp(primals, tangents, *, shared, **sizes):
  (a,), (da,) = primals, tangents
  q, r = factors_p(a, shared=shared, **sizes)
  return (q, r), _tangents(shared, a, da, q, r)


def _only_r_jvp(primals, tangents, *, shared, **sizes):
  (a,), (da,) = primals, tangents
  q, r = factors(shared, a)
  return r, _tangents(shared, a, da, q, r)[1]


factors_p: ffi.Operation = ffi.operation(
    "linalg_distributed_qr", "h w -> h width, height w", [0, 0],
    attributes={"shared": None, "height": 0, "width": 0}, platforms=(), jvp=_factors_jvp,
    fallback=_factors)
r_p: ffi.Operation = ffi.operation(
    "linalg_distributed_qr_r", "h w -> height w", [0],
    attributes={"shared": None, "height": 0}, platforms=(), jvp=_only_r_jvp, fallback=_only_r)


def factors(shared: Shared, a: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Q and R of matrices in the block-cyclic layout; columns and rows beyond min(m, n) are zeros."""
  k = min(shared.grid.lengths)
  height, width = shared.parts(k, k)
  return factors_p(a, shared=shared, height=height, width=width)


def triangle(shared: Shared, a: jax.Array) -> jax.Array:
  """R alone."""
  k = min(shared.grid.lengths)
  return r_p(a, shared=shared, height=shared.parts(k, k)[0])
