"""QR factors of matrices that several devices share, of any shape."""

import functools
from typing import Any

import jax
from jax.typing import ArrayLike

from linalg._core.operands import as_arrays, check_matrix
from linalg._core.public import public
from linalg._factorizations.qr import QRResult
from linalg.distributed._layout import Places, check_divides, shared_of
from linalg.distributed._qr_cyclic import factors, triangle
from linalg.distributed._shared import Shared, blocks_of, from_blocks, to_blocks
from linalg.distributed._tall import Rows, tall_factors, tall_r


def rows_or_blocks(name: str, a: jax.Array, axes: Places) -> Rows | Shared:
  """`Rows` for TSQR of tall matrices, where each device has at least n of m rows. Else `Shared`."""
  check_matrix(name, a)
  layout = shared_of(name, a, axes)
  m, n = a.shape[-2:]
  rows, columns = layout.spec[-2:]
  if not columns and m >= max(n, layout.devices(rows) * n):
    return Rows(layout, m, n)
  return blocks_of(name, layout, m, n)


@functools.partial(jax.jit, static_argnums=0)
def _factors(shared, a):
  m, n = a.shape[-2:]
  k = min(m, n)
  q, r = factors(shared, to_blocks(shared, a))
  return from_blocks(shared.of_shape(m, k), q), from_blocks(shared.of_shape(k, n), r)


@functools.partial(jax.jit, static_argnums=0)
def _triangle(shared, a):
  m, n = a.shape[-2:]
  return from_blocks(shared.of_shape(min(m, n), n), triangle(shared, to_blocks(shared, a)))


@public("mode", "axes", compiled=False)
def qr(a: ArrayLike, mode: str = "reduced", *, axes: Places = None) -> Any:
  """A = Q R of matrices that several devices share, of any shape; `linalg.qr`.

  Args:
    a: matrices (..., m, n) of any floating, complex or integer dtype, sharded over rows, columns or
      both. Batch dimensions may be sharded over other axes of the mesh.
    mode: "reduced", or "r" for R alone.
    axes: the axes of the mesh that the rows are sharded over, or a pair for rows and columns, such
      as ("x", ("y",)) or (None, "x"). A PartitionSpec has the axes of batch dimensions too:
      P("b", "x", "y"). By default they are the array's. Inside `jax.jit` on Auto axes, where these
      are not known, the rows are sharded over all axes, and a batch is gathered.

  Returns:
    QRResult(Q, R), with k = min(m, n): Q (..., m, k) and R (..., k, n), both sharded as A is. R of
    a tall matrix is on all devices if they have at least n rows each. Where A has full rank, the
    signs are LAPACK's. Mode "r" returns R alone. If a matrix holds NaN or Inf, its own factors are
    NaN, and the others of the batch are not.

  Algorithm: TSQR if only rows are sharded and each of P devices has at least n of them; Demmel,
  Grigori, Hoemmen and Langou (2012). Each device factors its rows. The R's of P <= 8 devices are
  gathered, and each device factors all of them: it receives P n² numbers. For a larger power of
  two, pairs of devices combine their R's in a tree, and each receives (log₂ P + 1) n² numbers. For
  any other P, all R's are gathered.

  Other matrices take Householder's reflectors, panel by panel, in the block-cyclic layout of
  `cholesky`. All devices share each panel, and take one sum for each column. No device holds the
  matrix. For a square one, a device receives at most 4 n²/√P numbers. Derivatives, of both modes
  and any order, hold where the first min(m, n) columns are independent.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.random.normal(jax.random.key(0), (64, 64), out_sharding=jax.P("x"))
    ...   q, r = dist.qr(a)
    ...   print(q.shape, r.shape)
    (64, 64) (64, 64)
  """
  if mode not in ("reduced", "r"):
    raise NotImplementedError(
        f"linalg.distributed.qr has the modes 'reduced' and 'r', got {mode!r}: a square Q has m² "
        "entries.")
  (a,), dtype = as_arrays("qr", a)
  found = rows_or_blocks("qr", a, axes)
  if isinstance(found, Shared):
    check_divides("qr", found.grid.layout, min(found.grid.lengths), "pad the matrix with zeros")
    both, alone = _factors, _triangle
  else:
    both, alone = tall_factors, tall_r
  if mode == "r":
    return alone(found, a).astype(dtype)
  q, r = both(found, a)
  return QRResult(q.astype(dtype), r.astype(dtype))
