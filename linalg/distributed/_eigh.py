"""Eigenvalues and eigenvectors of Hermitian matrices that several devices share."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

from linalg._core.algebra import one_of_first_order, reciprocal_gaps, smallest_gap, zeros_like
from linalg._core.checks import check_converged
from linalg._core.operands import as_arrays, real_dtype
from linalg._core.public import public
from linalg._factorizations.eigh import EighResult, subset_range
from linalg.distributed._cyclic import Cyclic, cyclic_of
from linalg.distributed._layout import Places, map_parts, partition, squares_of
from linalg.distributed._operations import hermitian_part_p, multiply_p
from linalg.distributed._redistribution import from_cyclic, to_cyclic
from linalg.distributed._slices import take
from linalg.distributed._tridiagonal import Spectrum, decompose, grid_of_rows


def _largest(w):
  return jnp.max(jnp.abs(w), keepdims=True, initial=0)


@jax.custom_jvp
def ones_of_first_order(w):
  """`algebra.ones_of_first_order` of ascending values, by their neighbours alone."""
  return zeros_like(w) + 1


@ones_of_first_order.defjvp
def _ones_of_first_order_jvp(primals, tangents):
  (w,), (dw,) = primals, tangents
  close = w[1:] - w[:-1] <= smallest_gap(_largest(w), len(w))
  equal = jnp.pad(close, (1, 0)) | jnp.pad(close, (0, 1)) if len(w) else w > 0
  return ones_of_first_order(w), jnp.where(equal, jnp.nan, 0).astype(w.dtype) * dw


def _quotients(g: Cyclic, w, c):
  """F ∘ C, Fᵢⱼ = 1 / (wⱼ - wᵢ), or 0 where the gap is that of equal eigenvalues."""

  def body(w, c):
    row, column = (take(w, jnp.minimum(x, g.n - 1), 0) for x in g.numbers())
    return reciprocal_gaps(column - row, _largest(w)[None], g.n).astype(c.dtype) * c

  return g.map(body, "sc", "c", w, c)


def _sums_of_columns(g: Cyclic, x):
  """The real parts of the sums of columns, (n,), on all devices."""

  def body(x):
    _, column = g.numbers()
    sums = g.varying(jnp.zeros(g.padded, x.real.dtype)).at[column[0]].add(jnp.sum(x.real, 0))
    return lax.psum(sums, g.axes)[: g.n]

  return g.map(body, "c", "s", x)


def diagonal(g: Cyclic, x):
  def body(x):
    row, column = g.numbers()
    return jnp.where(row == column, x, 0)

  return _sums_of_columns(g, g.map(body, "c", "c", x))


def _c(products: Cyclic, da, v):
  """dA V in the layout for products, and V."""
  v = to_cyclic(products, v)
  return multiply_p(to_cyclic(products, da), v, grid=products), v


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def decompose_eigvalsh(s: Spectrum, products: Cyclic, a):
  body = functools.partial(decompose, s, has_vectors=False)
  w, info = s.grid.map(body, "c", "ss", to_cyclic(s.grid, a))
  return w, info.astype(w.dtype)


@decompose_eigvalsh.defjvp
def _eigvalsh_jvp(s, products, primals, tangents):
  # dw = diag Vᴴ dA V
  (a,), (da,) = primals, tangents
  w, v, info = decompose_eigh(s._replace(first=0, wanted=s.grid.n), products, a)
  image, v = _c(products, da, v)
  change = ones_of_first_order(w) * _sums_of_columns(products, v.conj() * image)
  w, change = (x[s.first : s.first + s.wanted] for x in (w, change))
  return (w, info), (change, zeros_like(info))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def decompose_eigh(s: Spectrum, products: Cyclic, a):
  """All eigenvalues and eigenvectors, or those that are wanted; and info, as a real number."""
  body = functools.partial(decompose, s, has_vectors=True)
  specs = {
      "c": PartitionSpec(s.grid.axes), "m": partition(s.result.spec), "s": PartitionSpec()}
  w, v, info = map_parts(
      s.grid.layout.mesh, specs, lambda a: body(a[0]), "c", "sms", to_cyclic(s.grid, a))
  return w, v[: s.grid.n, : s.wanted], info.astype(w.dtype)


@decompose_eigh.defjvp
def _eigh_jvp(s, products, primals, tangents):
  # dw = diag C and dV = V (F ∘ C) with C = Vᴴ dA V, as in linalg.eigh.
  (a,), (da,) = primals, tangents
  whole = s._replace(first=0, wanted=s.grid.n)
  w, v, info = decompose_eigh(whole, products, a)
  image, x = _c(products, da, v)
  c = multiply_p(x.conj(), image, grid=products, transpose=(True, False))
  c = hermitian_part_p(c, grid=products)
  ones = ones_of_first_order(w)
  dw = ones * diagonal(products, c)
  f = _quotients(products, w, c) * one_of_first_order(ones)[0].astype(c.dtype)
  dv = from_cyclic(products, multiply_p(x, f, grid=products))
  if s != whole:
    w, dw = (x[s.first : s.first + s.wanted] for x in (w, dw))
    v, dv = (columns_of_all(s, x) for x in (v, dv))
  return (w, v, info), (dw, dv, zeros_like(info))


def columns_of_all(s: Spectrum, v):
  """The wanted columns of all eigenvectors, in the layout of the result."""
  if s.wanted == 0:
    return v[:, :0]
  layout = s.grid.layout
  rows, columns = layout.spec
  chunk, share = -(-s.grid.n // s.columns), s.chunk
  pad = [(0, -(-x // layout.devices(own)) * layout.devices(own) - x)
         for x, own in zip(v.shape, layout.spec, strict=True)]

  def body(v):
    if not columns:
      return v[:, s.first : s.first + s.wanted]
    here = lax.axis_index(columns)
    number = s.first + jnp.arange(share * s.columns, dtype=here.dtype) - here * chunk
    inside = (number >= 0) & (number < chunk)
    part = jnp.where(inside, take(v, jnp.clip(number, 0, chunk - 1), 1), 0)
    part = lax.psum(part, columns)
    if not s.shares_columns:
      return part[:, : s.wanted]
    return lax.dynamic_slice_in_dim(part, here * share, share, 1)

  specs = {"m": partition(layout.spec), "r": partition(s.result.spec)}
  return map_parts(layout.mesh, specs, body, "m", "r", jnp.pad(v, pad))[: s.grid.n, : s.wanted]


def over_batch(function, batch: int):
  """`function` of matrices, mapped over `batch` dimensions in front."""
  for _ in range(batch):
    function = jax.vmap(function)
  return function


@functools.partial(jax.jit, static_argnums=(0, 1, 3))
def _apply(s, products, a, has_vectors):
  function = functools.partial(decompose_eigh if has_vectors else decompose_eigvalsh, s, products)
  *found, info = over_batch(function, a.ndim - 2)(a)
  return (*found, info.astype(jnp.int32))


def spectrum_of(
    name: str, a: jax.Array, axes: Places, subset: Any = None
) -> tuple[Spectrum, Cyclic]:
  """How a matrix is decomposed, and the grid for its products."""
  layout, n = squares_of(name, a, axes), a.shape[-1]
  products = cyclic_of(name, layout, n, None, None)
  grid = grid_of_rows(layout, n, products.most_phases)
  return Spectrum(grid, *(subset_range(name, subset, n) or (0, n))), products


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
      their columns or both. A batch is on all devices. The decomposition is that of (A + Aᴴ) / 2.
    subset_by_index: (start, stop), the indices of the wanted eigenvalues, `stop` excluded, as in
      `linalg.eigh`. The default is all.
    axes: as for `cholesky`.

  Returns:
    EighResult(eigenvalues, eigenvectors). Eigenvalues are real, (..., k), in ascending order, and
    on all devices. Eigenvectors are the columns of V (..., n, k), which is sharded as A is. If k <
    n and the devices do not divide the columns, these are on all devices. Where A holds NaN or Inf,
    both are NaN for that matrix; see `eigh_ex`.

  float16 and bfloat16 are decomposed in float32, and the results rounded.

  Algorithm: reduction to tridiagonal form by panels of 32 columns or of one for each device, with
  whole rows on each device. Divide and conquer follows, without communication. Each device finds
  all eigenvalues, and its rows of the eigenvectors. An exchange makes columns of those rows, on
  which the reflectors are applied. Other platforms than the CPU compute all eigenvectors of the
  tridiagonal matrix on each device, n² numbers, and keep some rows.

  A device receives about 3 n² / 2 numbers and three shares, in two messages for each column. The
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
    (eigenvalues, eigenvectors, info): info, int32 (...) on all devices, is that of
    `linalg.eigh_ex`.

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
    The eigenvalues, real (..., k), in ascending order, on all devices: those of `eigh`, bit for
    bit.

  Algorithm: that of `eigh` without vectors. A device receives about n² numbers and two shares. A
  derivative takes the vectors too.

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
