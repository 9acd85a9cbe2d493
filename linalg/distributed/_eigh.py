"""Eigenvalues and eigenvectors of Hermitian matrices that several devices share."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from linalg._core.algebra import one_of_first_order, reciprocal_gaps, smallest_gap, zeros_like
from linalg._core.checks import check_converged
from linalg._core.operands import as_arrays, real_dtype
from linalg._core.public import public
from linalg._factorizations.eigh import EighResult, subset_range
from linalg.distributed._cyclic import cyclic_of
from linalg.distributed._layout import (
  Layout,
  Places,
  check_square,
  map_parts,
  partition,
  shared_of,
)
from linalg.distributed._reflectors import Spectrum, grid_of_reflectors
from linalg.distributed._shared import (
  Shared,
  from_blocks,
  hermitian_part_p,
  multiply,
  to_blocks,
)
from linalg.distributed._slices import take
from linalg.distributed._tridiagonal import decompose


def _largest(w):
  return jnp.max(jnp.abs(w), axis=-1, keepdims=True, initial=0)


@jax.custom_jvp
def ones_of_first_order(w):
  """`algebra.ones_of_first_order` of ascending values, by their neighbours alone."""
  return zeros_like(w) + 1


@ones_of_first_order.defjvp
def _ones_of_first_order_jvp(primals, tangents):
  (w,), (dw,) = primals, tangents
  n = w.shape[-1]
  if n == 0:
    return ones_of_first_order(w), dw
  close = w[..., 1:] - w[..., :-1] <= smallest_gap(_largest(w), n)
  before, after = (((0, 0),) * (w.ndim - 1) + (one,) for one in ((1, 0), (0, 1)))
  equal = jnp.pad(close, before) | jnp.pad(close, after)
  return ones_of_first_order(w), jnp.where(equal, jnp.nan, 0).astype(w.dtype) * dw


def _quotients(shared: Shared, w, c):
  """F ∘ C, Fᵢⱼ = 1 / (wⱼ - wᵢ), or 0 where the gap is that of equal eigenvalues."""
  g = shared.grid

  def body(c, w):
    row, column = (take(w, jnp.minimum(x, g.n - 1), 0) for x in g.numbers())
    return reciprocal_gaps(column - row, _largest(w)[None], g.n).astype(c.dtype) * c

  return shared.map(body, "cv", "c", c, w)


def _sums_of_columns(shared: Shared, x):
  """The real parts of the sums of columns, (..., n), on all devices."""
  g = shared.grid
  axes = (*g.axes, *(axis for some in shared.batch for axis in some))

  def body(x):
    _, column = g.numbers()
    # JAX differentiates this, so the zeros must not depend on X: their cotangent would be a share.
    zeros = lax.pcast(jnp.zeros(g.padded, x.real.dtype), axes, to="varying")
    sums = zeros.at[column[0]].add(jnp.sum(x.real, 0))
    return lax.psum(sums, g.axes)[: g.n]

  return shared.map(body, "c", "v", x)


def diagonal(shared: Shared, x):
  return _sums_of_columns(shared, shared.masked(lambda row, column: row == column, x))


def _c(shared: Shared, da, v):
  """dA V in the layout for products, and V."""
  v = to_blocks(shared, v)
  return multiply(shared, to_blocks(shared, da), v), v


def _decomposed(s: Spectrum, shared: Shared, a, has_vectors):
  rows = Shared(s.grid, shared.batch)
  body = functools.partial(decompose, s, has_vectors=has_vectors)
  found = rows.map(
      body, "c", "vmv" if has_vectors else "vv", to_blocks(rows, a), layout=s.result)
  return *found[:-1], found[-1].astype(found[0].dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def decompose_eigvalsh(s: Spectrum, shared: Shared, a):
  return _decomposed(s, shared, a, False)


def _chosen(s, x):
  return x[..., s.first : s.first + s.wanted]


@decompose_eigvalsh.defjvp
def _eigvalsh_jvp(s, shared, primals, tangents):
  # dw = diag Vᴴ dA V
  (a,), (da,) = primals, tangents
  w, v, info = decompose_eigh(s._replace(first=0, wanted=s.grid.n), shared, a)
  image, v = _c(shared, da, v)
  change = ones_of_first_order(w) * _sums_of_columns(shared, v.conj() * image)
  return (_chosen(s, w), info), (_chosen(s, change), zeros_like(info))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def decompose_eigh(s: Spectrum, shared: Shared, a):
  """All eigenvalues and eigenvectors, or those that are wanted; and info, as a real number."""
  w, v, info = _decomposed(s, shared, a, True)
  return w, v[..., : s.grid.n, : s.wanted], info


@decompose_eigh.defjvp
def _eigh_jvp(s, shared, primals, tangents):
  # dw = diag C and dV = V (F ∘ C) with C = Vᴴ dA V, as in linalg.eigh.
  (a,), (da,) = primals, tangents
  whole = s._replace(first=0, wanted=s.grid.n)
  w, v, info = decompose_eigh(whole, shared, a)
  image, x = _c(shared, da, v)
  c = multiply(shared, x.conj(), image, (True, False))
  c = hermitian_part_p(c, shared=shared)
  ones = ones_of_first_order(w)
  dw = ones * diagonal(shared, c)
  first_order = one_of_first_order(ones)[..., None, None].astype(c.dtype)
  f = _quotients(shared, w, c) * first_order
  dv = from_blocks(shared, multiply(shared, x, f))
  if s != whole:
    w, dw = _chosen(s, w), _chosen(s, dw)
    v, dv = (columns_of_all(s, shared, x) for x in (v, dv))
  return (w, v, info), (dw, dv, zeros_like(info))


def columns_of_all(s: Spectrum, shared: Shared, v):
  """The wanted columns of all eigenvectors, in the layout of the result."""
  if s.wanted == 0:
    return v[..., :0]
  layout = s.grid.layout
  rows, columns = layout.spec
  chunk, share = -(-s.grid.n // s.columns), s.chunk
  pad = [(0, -(-x // layout.devices(own)) * layout.devices(own) - x)
         for x, own in zip(v.shape[-2:], layout.spec, strict=True)]
  last = v.ndim - 1

  def body(v):
    if not columns:
      return _chosen(s, v)
    here = lax.axis_index(columns)
    number = s.first + jnp.arange(share * s.columns, dtype=here.dtype) - here * chunk
    inside = (number >= 0) & (number < chunk)
    part = jnp.where(inside, take(v, jnp.clip(number, 0, chunk - 1), last), 0)
    part = lax.psum(part, columns)
    if not s.shares_columns:
      return part[..., : s.wanted]
    return lax.dynamic_slice_in_dim(part, here * share, share, last)

  specs = {
      "m": partition((*shared.batch, *layout.spec)),
      "r": partition((*shared.batch, *s.result.spec))}
  v = jnp.pad(v, [(0, 0)] * (v.ndim - 2) + pad)
  return map_parts(layout.mesh, specs, body, "m", "r", v)[..., : s.grid.n, : s.wanted]


@functools.partial(jax.jit, static_argnums=(0, 1, 3))
def _apply(s, shared, a, has_vectors):
  *found, info = (decompose_eigh if has_vectors else decompose_eigvalsh)(s, shared, a)
  return (*found, info.astype(jnp.int32))


def spectrum_of(
    name: str, a: jax.Array, axes: Places, subset: Any = None
) -> tuple[Spectrum, Shared]:
  """How matrices are decomposed, and the layout for their products."""
  check_square(name, a)
  layout, n = shared_of(name, a, axes), a.shape[-1]
  one = Layout(layout.mesh, layout.spec[-2:])
  products = cyclic_of(name, one, n, None, None)
  grid = grid_of_reflectors(one, n, products.most_phases)
  spectrum = Spectrum(grid, *(subset_range(name, subset, n) or (0, n)))
  return spectrum, Shared(products, layout.spec[:-2])


def found_of(
    name: str, a: ArrayLike, axes: Places, subset: Any, has_vectors: bool
) -> tuple[Any, ...]:
  """(w, V, info) or (w, info), without a check of `info`."""
  (a,), dtype = as_arrays(name, a)
  w, *v, info = _apply(*spectrum_of(name, a, axes, subset), a, has_vectors)
  return (w.astype(real_dtype(dtype)), *(x.astype(dtype) for x in v), info)


_OPTIONS = ("axes", "subset_by_index")


@public(*_OPTIONS, compiled=False)
def eigh(
    a: ArrayLike, *, subset_by_index: tuple[int, int] | None = None, axes: Places = None
) -> EighResult:
  """Eigenvalues and eigenvectors of a Hermitian matrix that several devices share; `linalg.eigh`.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype, sharded over their rows,
      their columns or both. Batch dimensions may be sharded over other axes of the mesh. The
      decomposition is that of (A + Aᴴ) / 2.
    subset_by_index: (start, stop), the indices of the wanted eigenvalues, `stop` excluded, as in
      `linalg.eigh`. The default is all.
    axes: as for `qr`.

  Returns:
    EighResult(eigenvalues, eigenvectors). Eigenvalues are real, (..., k), in ascending order, and
    on all devices of the matrix. Eigenvectors are the columns of V (..., n, k), which is sharded as
    A is. If k < n and the devices do not divide the columns, these are on all devices. Where A
    holds NaN or Inf, both are NaN for that matrix; see `eigh_ex`.

  float16 and bfloat16 are decomposed in float32, and the results rounded.

  Algorithm: reduction to tridiagonal form by panels of 32 columns or of one for each device, in
  cyclic blocks. Divide and conquer follows, without communication. Each device finds all
  eigenvalues, and its rows of the eigenvectors. An exchange brings these to cyclic blocks too, and
  the reflectors are applied. Other platforms than the CPU compute all eigenvectors of the
  tridiagonal matrix on each device, n² numbers, and keep some rows.

  Up to sixteen devices hold whole rows. A device then receives about 3 n² / 2 numbers and four
  shares, in two messages for each column. More devices form a grid of Pr × Pc. A device then
  receives n² (3 / 2 Pr + 2 / Pc) numbers and four shares, in four messages for each column. The
  reduction costs 2 n³ operations in all, of which a third are products with a vector. Eigenvectors
  cost 10 n³ / 3, or less. A few eigenvectors make the last part smaller.

  Derivatives are those of `linalg.eigh`, by products of sharded matrices. At equal eigenvalues,
  first derivatives are right for functions that do not depend on the basis of their common space,
  except for a general f(A): see `funm_hermitian`. Second derivatives are NaN there.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(jnp.diag(jnp.arange(64.0)), jax.P("x"))
    ...   w, v = dist.eigh(a, subset_by_index=(60, 64))
    ...   print(w, v.shape)
    [60. 61. 62. 63.] (64, 4)
  """
  w, v, info = found_of("eigh", a, axes, subset_by_index, True)
  check_converged(info, "eigendecomposition")
  return EighResult(w, v)


@public(*_OPTIONS, compiled=False)
def eigh_ex(
    a: ArrayLike, *, subset_by_index: tuple[int, int] | None = None, axes: Places = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """`eigh`, with info.

  Args:
    a, subset_by_index, axes: as for `eigh`.

  Returns:
    (eigenvalues, eigenvectors, info): info, int32 (...) on all devices of the matrix, is that
    of `linalg.eigh_ex`.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(jnp.full((64, 64), jnp.nan), jax.P("x"))
    ...   print(dist.eigh_ex(a)[2])
    -1
  """
  return found_of("eigh_ex", a, axes, subset_by_index, True)


@public(*_OPTIONS, compiled=False)
def eigvalsh(
    a: ArrayLike, *, subset_by_index: tuple[int, int] | None = None, axes: Places = None
) -> jax.Array:
  """Eigenvalues of a Hermitian matrix that several devices share; `linalg.eigvalsh`.

  Args:
    a, subset_by_index, axes: as for `eigh`.

  Returns:
    The eigenvalues, real (..., k), in ascending order, on all devices of the matrix: those of
    `eigh`, bit for bit.

  Algorithm: that of `eigh` without vectors. A device receives two shares and about n² numbers, or
  n² (1 / Pr + 1 / Pc) in a grid of more than sixteen devices. A derivative takes the vectors too.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(jnp.diag(jnp.arange(64.0)), jax.P("x"))
    ...   print(dist.eigvalsh(a)[-1])
    63.0
  """
  w, info = found_of("eigvalsh", a, axes, subset_by_index, False)
  check_converged(info, "eigendecomposition")
  return w
