"""Singular values and vectors of matrices that several devices share, and what needs them."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  info_of_nan,
  one_of_first_order,
  reciprocal,
  reciprocal_gaps,
  scaled,
  zeros_like,
)
from linalg._core.checks import check_converged
from linalg._core.operands import as_arrays, check_matrix, incompatible, real_dtype
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.svd import SVDResult, ones_of_values
from linalg._functions.lstsq import counted, tolerance
from linalg._functions.pinv import default_rtol, threshold
from linalg.distributed._bidiagonal import decompose
from linalg.distributed._layout import (
  Layout,
  Places,
  check_columns,
  check_divides,
  map_parts,
  partition,
  placed_as_rows,
  placed_layout,
  rows_of,
)
from linalg.distributed._qr import rows_or_blocks
from linalg.distributed._qr_cyclic import factors, triangle
from linalg.distributed._redistribution import even
from linalg.distributed._reflectors import Spectrum, grid_of_reflectors
from linalg.distributed._shared import (
  Shared,
  blocks_of,
  from_blocks,
  multiply,
  of_square,
  to_blocks,
)
from linalg.distributed._slices import take
from linalg.distributed._tall import (
  Rows,
  tall_lstsq,
  tall_or_wide,
  tall_pinv,
  tall_svd,
  tall_svdvals,
)

# The transpose of a square matrix, which is its own transpose.
transposed_p: ffi.Operation = of_square(
    "transposed", lambda g, x: g.transpose(x), lambda: transposed_p)


def _square(shared: Shared) -> Shared:
  n = shared.grid.n
  return shared.of_shape(n, n)


def _times_diagonal(shared, x, d):
  """X diag(d)."""

  def body(x, d):
    return x * take(d, jnp.minimum(shared.grid.numbers()[1], shared.grid.n - 1), 0).astype(x.dtype)

  return shared.map(body, "cv", "c", x, d)


def _decomposed(shared, a, has_vectors):
  """U, the singular values, Vᴴ and info of square matrices, or the values and info."""
  layout, n = shared.grid.layout, shared.grid.n
  spectrum = Spectrum(grid_of_reflectors(layout, n, shared.grid.most_phases), 0, n)
  rows = Shared(spectrum.grid, shared.batch)
  body = functools.partial(decompose, spectrum, has_vectors=has_vectors)
  return rows.map(body, "c", "mvmv" if has_vectors else "vv", to_blocks(rows, a))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _svd(shared: Shared, a):
  """U, the singular values and Vᴴ of tall or square matrices, and info, as a real number."""
  m, n = shared.grid.lengths
  square = _square(shared)
  q = None
  if m > n:
    q, r = factors(shared, to_blocks(shared, a))
    a = from_blocks(square, r)
  u, s, vh, info = _decomposed(square, a, True)
  u, vh = u[..., :n, :n], vh[..., :n, :n]
  if q is not None:
    u = from_blocks(shared, multiply(shared, q, to_blocks(square, u)))
  return u, s, vh, info.astype(s.dtype)


def _in_blocks(shared, u, vh):
  """U and V in the block-cyclic layout."""
  square = _square(shared)
  return to_blocks(shared, u), transposed_p(to_blocks(square, vh).conj(), shared=square)


def _inverse_gaps(shared, s, ones, plus):
  def body(x, s, one):
    row, column = (take(s, jnp.minimum(i, len(s) - 1), 0) for i in shared.grid.numbers())
    gaps = column + row if plus else column - row
    return (reciprocal_gaps(gaps, s[:1, None], len(s)) * one[:, None]).astype(x.dtype) * x

  one = one_of_first_order(ones)
  return lambda x: shared.map(body, "cvv", "c", x, s, one)


def _diagonal(shared, x):
  """The real parts of the diagonal, on all devices."""
  g = shared.grid

  def body(x):
    row, column = g.numbers()
    sums = jnp.sum(jnp.where(row == column, x.real, 0), axis=0)
    whole = g.varying(jnp.zeros(g.padded, sums.dtype)).at[column[0]].add(sums)
    return lax.psum(whole, g.axes)[: g.n]

  return shared.map(body, "c", "v", x)


@_svd.defjvp
def _svd_jvp(shared, primals, tangents):
  # The rule of linalg.svd, with its names.
  (a,), (da,) = primals, tangents
  left, s, vh, info = _svd(shared, a)
  m, n = shared.grid.lengths
  square = _square(shared)
  u, v = _in_blocks(shared, left, vh)
  forward = multiply(shared, to_blocks(shared, da), v)
  p = multiply(shared, u.conj(), forward, (True, False))
  p_adjoint = transposed_p(p.conj(), shared=square)
  ones = ones_of_values(s, with_zero=m != n)
  together = _inverse_gaps(square, s, ones, plus=False)(p + p_adjoint)
  apart = _inverse_gaps(square, s, ones, plus=True)(p - p_adjoint)
  du = multiply(shared, u, (together + apart) / 2)
  dv = multiply(square, v, (together - apart) / 2)
  if m > n:
    norm = jnp.max(s, axis=-1, keepdims=True, initial=0)
    inverse = reciprocal_gaps(s, norm, n) * one_of_first_order(ones)
    du = du + _times_diagonal(shared, forward - multiply(shared, u, p), inverse)
  ds = ones[..., :n] * _diagonal(square, p)
  dvh = from_blocks(square, transposed_p(dv.conj(), shared=square))
  return (left, s, vh, info), (from_blocks(shared, du), ds, dvh, zeros_like(info))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _svdvals(shared: Shared, a):
  """The singular values, and info as from `_svd`."""
  m, n = shared.grid.lengths
  square = _square(shared)
  if m > n:
    a = from_blocks(square, triangle(shared, to_blocks(shared, a)))
  s, info = _decomposed(square, a, False)
  return s, info.astype(s.dtype)


@_svdvals.defjvp
def _svdvals_jvp(shared, primals, tangents):
  (a,), (da,) = primals, tangents
  u, s, vh, info = _svd(shared, a)
  u, v = _in_blocks(shared, u, vh)
  p = multiply(shared, u.conj(), multiply(shared, to_blocks(shared, da), v), (True, False))
  ones = ones_of_values(s, with_zero=False)
  return (s, info), (ones * _diagonal(_square(shared), p), zeros_like(info))


_KEPT = {"lstsq": counted, "pinv": lambda s, rtol: ~(s <= threshold(s, rtol))}


def _kept(kept_by, s):
  """Which singular values do not count as 0."""
  name, tolerance = kept_by
  return _KEPT[name](s, tolerance)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _adjoint_inverse(shared: Shared, kept_by, a):
  """The adjoint of A's pseudo-inverse, in the layout of A, the singular values and info.

  `kept_by` is a name of `_KEPT` and a tolerance.
  """
  u, s, vh, info = _svd(shared, a)
  u, v = _in_blocks(shared, u, vh)
  divided = _times_diagonal(shared, u, reciprocal(s, _kept(kept_by, s)))
  return from_blocks(shared, multiply(shared, divided, v.conj(), (False, True))), s, info


@_adjoint_inverse.defjvp
def _adjoint_inverse_jvp(shared, kept_by, primals, tangents):
  # The adjoint of Golub and Pereyra's dA⁺ (1973), as in `_tall.py`.
  (a,), (da,) = primals, tangents
  found, _, info = _adjoint_inverse(shared, kept_by, a)
  (s, _), (ds, _) = jax.jvp(functools.partial(_svdvals, shared), (a,), (da,))
  u, values, vh, _ = _svd(shared, a)
  y, da = to_blocks(shared, found), to_blocks(shared, da)
  u, v = _in_blocks(shared, u, vh)
  kept = _kept(kept_by, values).astype(values.dtype)
  u, v = _times_diagonal(shared, u, kept), _times_diagonal(_square(shared), v, kept)
  times = functools.partial(multiply, shared)
  inner = lambda x, y: times(x.conj(), y, (True, False))
  gram = inner(y, y)
  outside = times(da - times(u, inner(u, da)), gram)
  moved = inner(y, da)
  beside = times(times(moved, v), v.conj(), (False, True))
  turned = transposed_p(moved.conj(), shared=_square(shared))
  dy = from_blocks(shared, outside + times(y, moved - beside - turned))
  return (found, s, info), (dy, ds, zeros_like(info))


def _scaled_inverse(shared: Shared, kept_by, a):
  """`_adjoint_inverse` by way of A over a power of two.

  Its derivative has products of two inverses, which may leave the range.
  """
  a, scale = scaled(a)
  y, s, info = _adjoint_inverse(shared, kept_by, a)
  return y / scale, s * scale[..., 0].real, info


def _is_wide(shared: Shared) -> bool:
  m, n = shared.grid.lengths
  return m < n


def _turned(shared: Shared) -> Shared:
  """The adjoints of matrices."""
  m, n = shared.grid.lengths
  grid, layout = shared.grid, shared.grid.layout
  layout = layout._replace(spec=layout.spec[::-1])
  grid = grid._replace(layout=layout, rows=grid.columns, columns=grid.rows)
  return shared._replace(grid=grid).of_shape(n, m)


def _no_values(a):
  """The singular values of an empty matrix, and info."""
  batch, real = a.shape[:-2], real_dtype(a)
  return jnp.zeros((*batch, 0), real), jnp.zeros(batch, real)


@functools.partial(jax.jit, static_argnums=0)
def _vectors(shared, a):
  if 0 in a.shape[-2:]:
    s, info = _no_values(a)
    return a[..., :0], s, a[..., :0, :], info
  if _is_wide(shared):
    u, s, vh, info = _vectors(_turned(shared), adjoint(a))
    return adjoint(vh), s, adjoint(u), info
  return _svd(shared, a)


@functools.partial(jax.jit, static_argnums=0)
def _values(shared, a):
  if 0 in a.shape[-2:]:
    return _no_values(a)
  if _is_wide(shared):
    return _values(_turned(shared), adjoint(a))
  return _svdvals(shared, a)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _inverse(shared, rtol, a):
  if 0 in a.shape[-2:]:
    return a.mT, _no_values(a)[1]
  is_wide = _is_wide(shared)
  shared = _turned(shared) if is_wide else shared
  y, _, info = _scaled_inverse(shared, ("pinv", rtol), adjoint(a) if is_wide else a)
  return y if is_wide else adjoint(y), info


def _times_columns(shared, a, b, is_adjoint):
  """A B, or Aᴴ B, for a few columns. They are sharded as the columns of A are, or its rows."""
  layout, count = shared.grid.layout, a.shape[-1 if is_adjoint else -2]
  inner, outer = layout.spec if is_adjoint else layout.spec[::-1]
  missing = -b.shape[-2] % layout.devices(inner)
  b = jnp.pad(b, [*[(0, 0)] * (b.ndim - 2), (0, missing), (0, 0)])
  b = placed_as_rows(layout._replace(spec=(*shared.batch, inner, ())), b)
  specs = {
      "a": partition((*shared.batch, *layout.spec)), "b": partition((*shared.batch, inner, ())),
      "x": partition((*shared.batch, outer, ()))}
  body = lambda a, b: lax.psum(product(a, b, adjoint_a=is_adjoint), inner)
  found = map_parts(layout.mesh, specs, body if inner else (
      lambda a, b: product(a, b, adjoint_a=is_adjoint)), "ab", "x", even(shared.grid, a), b)
  return found[..., :count, :]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _least_squares(shared, rcond, a, b):
  if 0 in a.shape[-2:]:
    s, info = _no_values(a)
    x = jnp.zeros((*a.shape[:-2], a.shape[-1], b.shape[-1]), b.dtype)
    return x, jnp.sum((b * b.conj()).real, axis=-2), jnp.sum(counted(s, rcond), axis=-1), s, info
  turned = _turned(shared) if _is_wide(shared) else shared
  y, s, info = _scaled_inverse(
      turned, ("lstsq", rcond), adjoint(a) if _is_wide(shared) else a)
  x = _times_columns(turned, y, b, not _is_wide(shared))
  residual = b - _times_columns(shared, a, x, False)
  squares = jnp.sum((residual * residual.conj()).real, axis=-2)
  return x, squares, jnp.sum(counted(s, rcond), axis=-1), s, info


def _is_shared(name, a, found):
  if not isinstance(found, Shared):
    return False
  check_divides(
      name, found.grid.layout, min(found.grid.lengths), "pad the matrix with zeros")
  return True


def _longer_rows_or_blocks(name: str, a: jax.Array, axes: Places) -> Rows | Shared | None:
  """`rows_or_blocks`, for `axes` of the longer dimension or a pair.

  Returns None for wide matrices whose adjoint takes TSQR.
  """
  m, n = a.shape[-2:]
  is_pair = isinstance(axes, tuple) and not all(isinstance(x, str) for x in axes)
  if m >= n or is_pair:
    return rows_or_blocks(name, a, axes)
  layout, places = placed_layout(name, a, axes)
  if places is None and layout.spec[-2]:
    return rows_or_blocks(name, a, axes)
  layout = rows_of(name, a, axes, -1)
  *batch, columns, _ = layout.spec
  if n >= layout.devices(columns) * m:
    return None
  return blocks_of(name, Layout(layout.mesh, (*batch, (), columns)), m, n)


def _check(info):
  check_converged(info.astype(jnp.int32), "singular values")


def _vectors_and_info(name, a, axes):
  (a,), dtype = as_arrays(name, a)
  found = rows_or_blocks(name, a, axes)
  if _is_shared(name, a, found):
    u, s, vh, info = _vectors(found, a)
    info = info.astype(jnp.int32)
  else:
    u, s, vh = tall_svd(found, a)
    info = info_of_nan(s, 1)
  return u.astype(dtype), s.astype(real_dtype(dtype)), vh.astype(dtype), info


@public("axes", compiled=False)
def svd(a: ArrayLike, *, axes: Places = None) -> SVDResult:
  """A = U diag(S) Vh of matrices that several devices share, thin; `linalg.svd`.

  Args:
    a: matrices (..., m, n), as for `qr`.
    axes: as for `qr`.

  Returns:
    SVDResult(U, S, Vh), with k = min(m, n): U (..., m, k) and Vh (..., k, n), sharded as A is; S
    (..., k), descending, on all devices, and so is Vh where TSQR is used. A matrix that holds NaN
    or Inf has NaN.

  Algorithm: the decomposition of TSQR's R, where `qr` takes TSQR; Chan, An improved algorithm for
  computing the singular value decomposition, ACM Trans. Math. Softw. 8 (1982). Other matrices are
  reduced to a square R by `qr`, unless they are square. A square matrix is reduced to bidiagonal
  form by panels of 32 columns and rows, or of one for each device, in cyclic blocks; Dongarra,
  Sorensen and Hammarling (1989). Divide and conquer follows, without communication: LAPACK's gesdd.
  Each device finds all singular values, and its rows of the vectors. Exchanges bring these to
  cyclic blocks too, and the reflectors are applied. Other platforms than the CPU compute all
  vectors of the bidiagonal matrix on each device, n² numbers, and keep some rows.

  No device holds the matrix. For a square one, up to sixteen devices hold whole rows. A device then
  receives about 2 n² numbers and six shares, in two messages for each column. More devices form a
  grid of Pr × Pc. A device then receives n² (2 / Pr + 3 / Pc) numbers and six shares, in six
  messages for each column. The reduction costs 8 n³ / 3 operations in all, of which half are
  products with a vector. Vectors cost 20 n³ / 3, or less. Each singular value has an error of
  eps ‖A‖. Values near or below that have no correct digits. Derivatives are those of `linalg.svd`,
  for tall matrices of full rank.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.random.normal(jax.random.key(0), (64, 2), out_sharding=jax.P("x"))
    ...   u, s, vh = dist.svd(a)
    ...   print(u.shape, s.shape, vh.shape)
    (64, 2) (2,) (2, 2)
  """
  u, s, vh, info = _vectors_and_info("svd", a, axes)
  _check(info)
  return SVDResult(u, s, vh)


@public("axes", compiled=False)
def svd_ex(
    a: ArrayLike, *, axes: Places = None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """`svd`, with info.

  Args:
    a, axes: as for `svd`.

  Returns:
    (U, S, Vh, info): info, int32 (...), is on all devices. It is 0, or -1 if the matrix holds NaN
    or Inf; positive if the iteration did not converge. Where it is not 0, the results are NaN.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(jnp.full((64, 64), jnp.nan), jax.P("x"))
    ...   print(dist.svd_ex(a)[3])
    -1
  """
  return _vectors_and_info("svd_ex", a, axes)


@public("axes", compiled=False)
def svdvals(a: ArrayLike, *, axes: Places = None) -> jax.Array:
  """The singular values of matrices that several devices share, descending, on all devices.

  Args:
    a: matrices (..., m, n), as for `svd`.
    axes: as for `qr`.

  Returns:
    The singular values, real (..., min(m, n)); NaN for a matrix that holds NaN or Inf.

  Algorithm: the singular values of TSQR's R, or as for `svd` without vectors. Derivatives take the
  vectors.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.random.normal(jax.random.key(0), (64, 2), out_sharding=jax.P("x"))
    ...   print(dist.svdvals(a).shape)
    (2,)
  """
  (a,), dtype = as_arrays("svdvals", a)
  found = rows_or_blocks("svdvals", a, axes)
  if _is_shared("svdvals", a, found):
    s, info = _values(found, a)
    _check(info)
  else:
    s = tall_svdvals(found, a)
  return s.astype(real_dtype(dtype))


@public("rcond", "axes", compiled=False)
def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: float | None = None, *,
    axes: Places = None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """The shortest x of those that minimise ‖b - A x‖, for an A that several devices share;
  `linalg.lstsq`.

  Args:
    a: matrices (..., m, n) of any rank, as for `qr`.
    b: right-hand sides (..., m, k), or a vector (m,), sharded as the rows of A are, or moved there.
      Sharded columns are refused: ShardingTypeError.
    rcond: as for `linalg.lstsq`.
    axes: as for `qr`.

  Returns:
    x (..., n, k) or (n,); the sums of squares of the residuals (..., k), or () for a vector; the
    ranks; and the singular values (..., min(m, n)). Every device holds all of them. Where A is not
    tall enough for TSQR, x is sharded as the columns of A are. NaN or Inf in one column of b may
    spoil other columns of x.

  Algorithm: R of [A b] by TSQR, and the singular value decomposition of its first n columns. Only
  derivatives need Q. They hold where the rank is full. Other matrices take `svd`, and the
  derivative of `pinv`.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.random.normal(jax.random.key(0), (64, 2), out_sharding=jax.P("x"))
    ...   x, residuals, rank, s = dist.lstsq(a, a @ jnp.ones(2))
    ...   print(x.round(4), rank)
    [1. 1.] 2
  """
  (matrix, rhs), dtype = as_arrays("lstsq", a, b)
  found = rows_or_blocks("lstsq", matrix, axes)
  vector = rhs.ndim == 1
  check_columns("lstsq", "b", rhs)
  columns = rhs[:, None] if vector else rhs
  if columns.ndim != matrix.ndim or columns.shape[:-1] != matrix.shape[:-1]:
    raise incompatible("lstsq", matrix, rhs, names=("a", "b"))
  rcond = float(tolerance(rcond, matrix, dtype))
  if _is_shared("lstsq", matrix, found):
    x, residuals, rank, s, info = _least_squares(found, rcond, matrix, columns)
    _check(info)
  else:
    x, residuals, rank, s = tall_lstsq(found, rcond, matrix, columns)
  real = real_dtype(dtype)
  x, residuals = (x[..., 0], residuals[..., 0]) if vector else (x, residuals)
  return x.astype(dtype), residuals.astype(real), rank, s.astype(real)


@public("rtol", "axes", compiled=False)
def pinv(
    a: ArrayLike, rtol: float | None = None, *, axes: Places = None
) -> jax.Array:
  """The pseudo-inverse of matrices that several devices share; `linalg.pinv`.

  Args:
    a: matrices (..., m, n) of any rank, sharded over rows, columns or both, as for `svd`.
    rtol: singular values up to `rtol` times the largest count as 0. The default is 10 max(m, n)
      eps.
    axes: as for `qr`; or a name or names for the longer dimension.

  Returns:
    A⁺ (..., n, m). Its rows are sharded as the columns of A, and its columns as A's rows. It is NaN
    where A holds NaN or Inf.

  Algorithm: Q R by TSQR, and the pseudo-inverse of R; or `svd`, where neither the matrix nor its
  adjoint takes TSQR. Derivatives are those of Golub and Pereyra. They are right wherever the rank
  does not change. They move four sums of n² numbers with TSQR.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.random.normal(jax.random.key(0), (64, 2), out_sharding=jax.P("x"))
    ...   print(dist.pinv(a).shape)
    (2, 64)
  """
  (a,), dtype = as_arrays("pinv", a)
  check_matrix("pinv", a)
  rtol = float(10 * default_rtol(a, dtype)) if rtol is None else float(rtol)
  if _is_shared("pinv", a, found := _longer_rows_or_blocks("pinv", a, axes)):
    inverse, info = _inverse(found, rtol, a)
    _check(info)
    return inverse.astype(dtype)
  rows, is_wide = tall_or_wide("pinv", a, axes)
  return tall_pinv(rows, is_wide, rtol, a).astype(dtype)
