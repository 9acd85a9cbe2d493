"""Tall matrices whose rows are sharded: each device works on its rows, and only R's move."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec

import linalg
from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  expand,
  on_diagonal,
  reciprocal,
  scaled,
)
from linalg._core.operands import check_matrix
from linalg._factorizations.matmul import product
from linalg._factorizations.qr import qr_p, qr_r_p, thin_tangents, times_inverse
from linalg._factorizations.svd import ones_of_values, values_tangent
from linalg._functions.lstsq import counted
from linalg._functions.pinv import default_rtol, threshold
from linalg.distributed._layout import (
  Axes,
  Layout,
  Places,
  map_parts,
  partition,
  placed_as_rows,
  rows_of,
)

# The largest number of devices for which one all-gather of their R's costs less than log₂
# exchanges.
_GATHERED = 8


class Rows(NamedTuple):
  """The sharding of the rows of a tall matrix, with operations on them.

  `rows.even(a)` adds rows of zeros after the first `height`. It adds a column of zeros to a matrix
  without columns, because no array of a `shard_map` may be empty.
  """

  layout: Layout
  height: int
  width: int

  @property
  def axes(self) -> Axes:
    return self.layout.spec[-2]

  def map(self, function: Callable[..., Any], operands: str, results: str, *arrays: Any) -> Any:
    """Maps `function` over each device's rows.

    `operands` and `results` have a letter for each array. "r" has its rows sharded. "s" is a small
    matrix that is equal on all devices of those rows. "a" is equal on the whole mesh.
    """
    specs = {
        "r": partition(self.layout.spec), "s": partition([*self.layout.spec[:-2], (), ()]),
        "a": PartitionSpec()}
    return map_parts(self.layout.mesh, specs, function, operands, results, *arrays)

  def even(self, x):
    """Pads with zeros, so that all devices have as many rows, and that there is a column."""
    devices = self.layout.devices(self.axes)
    missing = -self.height % devices if self.height else devices
    return jnp.pad(x, [*[(0, 0)] * (x.ndim - 2), (0, missing), (0, int(not x.shape[-1]))])

  def inner(self, x, y):
    """Xᴴ Y, by a sum of small matrices over the devices."""
    return self.map(
        lambda x, y: lax.psum(product(x, y, adjoint_a=True), self.axes), "rr", "s", x, y)

  def outer(self, x, small):
    """X S, by rows, without communication."""
    return self.map(product, "rs", "r", x, small)


def _gather(x, axes):
  """Rows of all devices, in order."""
  return lax.all_gather(x, axes, axis=x.ndim - 2, tiled=True, to="invarying")


def _rows_of_device(x, axes, count):
  """This device's rows, of `count` rows for each device."""
  return lax.dynamic_slice_in_dim(x, lax.axis_index(axes) * count, count, x.ndim - 2)


def _devices(axes):
  return math.prod(lax.axis_size(axis) for axis in axes)


def _is_tree(axes):
  devices = _devices(axes)
  return devices > _GATHERED and devices & (devices - 1) == 0


def _r(a, axes):
  """R alone, with any signs.

  Demmel, Grigori, Hoemmen and Langou, Communication-optimal parallel and sequential QR and LU
  factorizations, SIAM J. Sci. Comput. 34 (2012).
  """
  if not _is_tree(axes):
    return qr_r_p(_gather(qr_r_p(a), axes))
  a, merged = _with_neighbours(a, axes)
  r = qr_r_p(a)
  for k in range(merged, _devices(axes).bit_length() - 1):
    r = qr_r_p(_with_other(r, axes, k)[0])
  return _invarying(r, axes)


def factors(a, axes):
  """Q's rows and R, with any signs."""
  if not _is_tree(axes):
    q, r = qr_p(a)
    count = r.shape[-2]
    combined, r = qr_p(_gather(r, axes))
    return product(q, _rows_of_device(combined, axes, count)), r
  rows, n = a.shape[-2:]
  a, merged = _with_neighbours(a, axes)
  q, r = qr_p(a)
  place = lax.axis_index(axes) % (1 << merged)
  q = lax.dynamic_slice_in_dim(q, place * rows, rows, q.ndim - 2)
  for k in range(merged, _devices(axes).bit_length() - 1):
    both, low = _with_other(r, axes, k)
    combined, r = qr_p(both)
    q = product(q, jnp.where(low, combined[..., :n, :], combined[..., n:, :]))
  return q, _invarying(r, axes)


def orthonormal(a, axes):
  """This device's rows of a Q whose range holds that of A."""
  return factors(a, axes)[0]


def _with_neighbours(a, axes):
  """Gathers the rows of 2^k consecutive devices, at least as many as columns. Also returns k.

  R's of fewer rows would be no smaller than the rows.
  """
  k = 0
  while a.shape[-2] < a.shape[-1]:
    a, _ = _with_other(a, axes, k)
    k += 1
  return a, k


def _with_other(r, axes, k):
  """The R's of this device and of the one whose number differs in bit k, the lower number's on top.

  Also returns whether this device has the lower number.
  """
  swap = [(i, i ^ (1 << k)) for i in range(_devices(axes))]
  other = lax.ppermute(r, axes, swap)
  low = (lax.axis_index(axes) >> k) & 1 == 0
  return jnp.concatenate([jnp.where(low, r, other), jnp.where(low, other, r)], axis=-2), low


def _invarying(r, axes):
  """Returns R with a type that says that all devices have the same.

  Each device gives a part of it.
  """
  devices, rows = _devices(axes), r.shape[-2]
  count = -(-rows // devices)
  padded = jnp.pad(r, [(0, 0)] * (r.ndim - 2) + [(0, count * devices - rows), (0, 0)])
  return _gather(_rows_of_device(padded, axes, count), axes)[..., :rows, :]


def _signs(top, is_square):
  """The signs that LAPACK's reflectors give the columns of an orthonormal Q, from its first n rows.

  The reflectors come from Q - S = L U, where the sign sⱼ is the opposite of the pivot's. Source:
  Ballard, Demmel, Grigori, Jacquelin, Nguyen and Solomonik, Reconstructing Householder vectors from
  tall-skinny QR, J. Parallel Distrib. Comput. 85 (2015). The last reflector of a real square matrix
  is the identity, so its sign is the pivot's own.
  """
  kept = top.shape[-1] - 1 if is_square and not jnp.iscomplexobj(top) else -1
  index = expand(jnp.arange(top.shape[-1]), top[..., 0])

  def step(m, j):
    pick = lambda x: jnp.sum(jnp.where(index == j, x, 0), axis=-1)
    row = jnp.sum(jnp.where(index[..., None] == j, m, 0), axis=-2)
    pivot = pick(row)
    sign = jnp.where((pivot.real >= 0) != (j == kept), -1, 1).astype(m.dtype)
    column = jnp.sum(jnp.where(index[..., None, :] == j, m, 0), axis=-1)
    column = jnp.where(index > j, column / (pivot - sign)[..., None], 0)
    right = jnp.where(index > j, row, 0)
    return m - column[..., :, None] * right[..., None, :], sign

  _, signs = lax.scan(step, top, jnp.arange(top.shape[-1]))
  return jnp.moveaxis(signs, 0, -1)


def _as_lapack(q, r, axes, is_square):
  """The factors with a real diagonal of R, and LAPACK's signs."""
  n, rows = r.shape[-1], q.shape[-2]
  diagonal = diagonal_of(r)
  size = jnp.abs(diagonal).astype(r.dtype)
  phase = jnp.where(size == 0, 1, diagonal / jnp.where(size == 0, 1, size))
  q, r = q * phase[..., None, :], r * phase.conj()[..., :, None]
  r = jnp.where(on_diagonal(r), diagonal_of(r).real[..., None].astype(r.dtype), r)
  # The first n rows, which may lie on one device or on several.
  count, device = min(rows, n), lax.axis_index(axes)
  is_own = jnp.arange(-(-n // count), dtype=device.dtype) == device
  top = jnp.where(is_own[:, None, None], q[..., None, :count, :], 0)
  top = lax.psum(top.reshape(*q.shape[:-2], -1, n), axes)[..., :n, :]
  signs = _signs(top, is_square)
  return q * signs[..., None, :], r * signs[..., :, None]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _qr(rows: Rows, a):
  def body(a):
    is_square = rows.height == a.shape[-1]
    return _as_lapack(*factors(a, rows.axes), rows.axes, is_square)

  return rows.map(body, "r", "rs", a)


@_qr.defjvp
def _qr_jvp(rows, primals, tangents):
  (a,), (da,) = primals, tangents
  q, r = _qr(rows, a)
  da_rinv = rows.map(times_inverse, "sr", "r", r, da)
  dq, dr = thin_tangents(
      r, da_rinv, inner=lambda x: rows.inner(q, x), outer=lambda s: rows.outer(q, s))
  return (q, r), (dq, dr)


def _small_svd(r):
  return tuple(linalg.svd(r, full_matrices=False))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _svd(rows: Rows, a):
  q, r = _qr(rows, a)
  u, s, vh = _small_svd(r)
  return rows.outer(q, u), s, vh


@_svd.defjvp
def _svd_jvp(rows, primals, tangents):
  # Within the range of Q, the derivatives are those of R's factors for dR = Qᴴ dA. The rest of dA
  # turns U out of that range, by (I - Q Qᴴ) dA V S⁻¹.
  (a,), (da,) = primals, tangents
  q, r = _qr(rows, a)
  moved = rows.inner(q, da)
  (u, s, vh), (du, ds, dvh) = jax.jvp(_small_svd, (r,), (moved,))
  outside = da - rows.outer(q, moved)
  inverse = reciprocal(s, s > 0)[..., None, :].astype(vh.dtype)
  return (rows.outer(q, u), s, vh), (
      rows.outer(q, du) + rows.outer(outside, adjoint(vh) * inverse), ds, dvh)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _svdvals(rows: Rows, a):
  return linalg.svdvals(rows.map(lambda a: _r(a, rows.axes), "r", "s", a))


@_svdvals.defjvp
def _svdvals_jvp(rows, primals, tangents):
  (a,), (da,) = primals, tangents
  u, s, vh = _svd(rows, a)
  return s, ones_of_values(s, with_zero=False) * values_tangent(vh, rows.inner(u, da), axis=-1)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _solution(rows: Rows, rcond, a, b):
  """The solution and the singular values, from R of [A B].

  It holds R of A and Qᴴ B, so no Q is made.
  """
  n = a.shape[-1]

  def body(a, b):
    return _r(jnp.concatenate([a, b], axis=-1), rows.axes)

  r = rows.map(body, "rr", "s", a, b)
  return _of_small(rcond, r[..., :n, :n], r[..., :n, n:])


def _of_small(rcond, r, c):
  x, _, _, s = linalg.lstsq(r, c, rcond)
  return x, s


@_solution.defjvp
def _solution_jvp(rows, rcond, primals, tangents):
  # Within the range of Q, the derivatives are those of R x = Qᴴ b. The parts of dA and of b outside
  # of it add R⁺ R⁺ᴴ ((I - Q Qᴴ) dA)ᴴ b.
  (a, b), (da, db) = primals, tangents
  q, r = _qr(rows, a)
  c, moved = rows.inner(q, b), rows.inner(q, da)
  (x, s), (dx, ds) = jax.jvp(
      functools.partial(_of_small, rcond), (r, c), (moved, rows.inner(q, db)))
  outside = rows.inner(da, b) - product(moved, c, adjoint_a=True)
  p = linalg.pinv(r, rcond)
  return (x, s), (dx + product(p, product(p, outside, adjoint_a=True)), ds)


def tall_or_wide(name: str, a: jax.Array, axes: Places) -> tuple[Rows, bool]:
  """The rows of tall matrices or the columns of wide ones, and whether the matrices are wide."""
  check_matrix(name, a)
  is_wide = a.shape[-2] < a.shape[-1]
  layout = rows_of(name, a, axes, -1 if is_wide else -2)
  return Rows(layout, max(a.shape[-2:]), min(a.shape[-2:])), is_wide


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _adjoint_inverse(rows: Rows, rtol, a):
  """The adjoint of A's pseudo-inverse, Q (R⁺)ᴴ, sharded as A is."""
  q, r = _qr(rows, a)
  return rows.outer(q, adjoint(linalg.pinv(r, rtol)))


@_adjoint_inverse.defjvp
def _adjoint_inverse_jvp(rows, rtol, primals, tangents):
  # For Y = (A⁺)ᴴ, dY = -Y dAᴴ Y + (I - A Yᴴ) dA Yᴴ Y + Y Yᴴ dA (I - Yᴴ A). This is the adjoint of
  # Golub and Pereyra's dA⁺ (1973), and holds where the rank is constant.
  (a,), (da,) = primals, tangents
  y = _adjoint_inverse(rows, rtol, a)
  moved, gram = rows.inner(y, da), rows.inner(y, y)
  left = adjoint(_outside_rows(rows, rtol, a, adjoint(moved))) - adjoint(moved)
  outside = _outside_range(rows, rtol, a, da)
  return y, rows.outer(y, left) + rows.outer(outside, gram)


def _kept_vectors(rows, rtol, a):
  """Q, and the singular vectors of R whose values do not count as 0; other vectors are 0."""
  q, r = _qr(rows, a)
  u, s, vh = _small_svd(r)
  bound = threshold(s, 10 * default_rtol(r, r.dtype) if rtol is None else rtol)
  kept = ~(s <= bound)[..., None, :]
  return q, jnp.where(kept, u, 0), jnp.where(kept, adjoint(vh), 0)


# These projectors are made of singular vectors. From A and A⁺ their errors would grow with the
# condition of A.
@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _outside_range(rows: Rows, rtol, a, x):
  """(I - A A⁺) X, by rows."""
  q, u, _ = _kept_vectors(rows, rtol, a)
  basis = rows.outer(q, u)
  return x - rows.outer(basis, rows.inner(basis, x))


@_outside_range.defjvp
def _outside_range_jvp(rows, rtol, primals, tangents):
  # dP = -P dA A⁺ - (P dA A⁺)ᴴ
  (a, x), (da, dx) = primals, tangents
  y = _adjoint_inverse(rows, rtol, a)
  result = _outside_range(rows, rtol, a, x)
  change = dx - rows.outer(da, rows.inner(y, x))
  return result, _outside_range(rows, rtol, a, change) - rows.outer(y, rows.inner(da, result))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _outside_rows(rows: Rows, rtol, a, x):
  """(I - A⁺ A) X of a small X."""
  _, _, v = _kept_vectors(rows, rtol, a)
  return x - product(v, product(v, x, adjoint_a=True))


@_outside_rows.defjvp
def _outside_rows_jvp(rows, rtol, primals, tangents):
  # dP = -A⁺ dA P - (A⁺ dA P)ᴴ
  (a, x), (da, dx) = primals, tangents
  moved = rows.inner(_adjoint_inverse(rows, rtol, a), da)
  result = _outside_rows(rows, rtol, a, x)
  change = dx - product(moved, x, adjoint_a=True)
  return result, _outside_rows(rows, rtol, a, change) - product(moved, result)


_compiled = functools.partial(jax.jit, static_argnums=0)


@_compiled
def tall_factors(rows: Rows, a: jax.Array) -> tuple[jax.Array, jax.Array]:
  q, r = _qr(rows, rows.even(a))
  return q[..., : rows.height, : rows.width], r[..., : rows.width, : rows.width]


@_compiled
def tall_r(rows: Rows, a: jax.Array) -> jax.Array:
  return _qr(rows, rows.even(a))[1][..., : rows.width, : rows.width]


@_compiled
def tall_svd(rows: Rows, a: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
  u, s, vh = _svd(rows, rows.even(a))
  n = rows.width
  return u[..., : rows.height, :n], s[..., :n], vh[..., :n, :n]


@_compiled
def tall_svdvals(rows: Rows, a: jax.Array) -> jax.Array:
  return _svdvals(rows, rows.even(a))[..., : rows.width]


@functools.partial(jax.jit, static_argnums=(0, 1))
def tall_lstsq(rows: Rows, rcond: float, a: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
  n, k = rows.width, b.shape[-1]
  a, b = rows.even(a), rows.even(placed_as_rows(rows.layout, b))
  x, s = _solution(rows, rcond, a, b)
  rank = jnp.sum(counted(s, rcond), axis=-1)
  residual = b - rows.outer(a, x)
  squares = diagonal_of(rows.inner(residual, residual)).real
  return x[..., :n, :k], squares[..., :k], rank, s[..., :n]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def tall_pinv(rows: Rows, is_wide: bool, rtol: float, a: jax.Array) -> jax.Array:
  # The derivative has products of two inverses, which may leave the range.
  a, scale = scaled(rows.even(adjoint(a) if is_wide else a))
  found = _adjoint_inverse(rows, rtol, a) / scale
  found = found[..., : rows.height, : rows.width]
  return found if is_wide else adjoint(found)
