"""Some rows of the singular vectors of real upper bidiagonal matrices."""

import jax
import jax.numpy as jnp

from linalg import ffi
from linalg._core.algebra import adjoint, expand, info_of_nan
from linalg._factorizations.matmul import product


def _dense(d, e):
  n = d.shape[-1]
  square = d[..., None]
  shift = jnp.eye(e.shape[-1], n, dtype=e.dtype)
  shifted = product(shift, e[..., None], transpose_a=True)
  above = jnp.where(expand(jnp.eye(n, k=1, dtype=bool), square), shifted, 0)
  return above + jnp.where(expand(jnp.eye(n, dtype=bool), square), square, 0)


def _rows(v, rows, failed):
  index = jnp.arange(v.shape[-1], dtype=rows.dtype)
  chosen = (rows[..., None] == expand(index, rows[..., None])).astype(v.dtype)
  return jnp.where(failed, jnp.nan, product(chosen, jnp.where(failed, 0, v)))


def _fallback(d, e, left_rows, right_rows):
  u, s, vh = jax.lax.linalg.svd(_dense(d, e), full_matrices=False)
  failed = jnp.isnan(s[..., :1])[..., None]
  return [s, _rows(u, left_rows, failed), _rows(adjoint(vh), right_rows, failed),
          info_of_nan(s, 1)]


# The singular values, descending, and some consecutive rows of the matrices of left and right
# vectors. The handler uses the first of their numbers, and memory in proportion to their counts.
# Rows beyond the matrix are zero.
bidiagonal_svd_rows_p = ffi.operation(
    "linalg_bidiagonal_svd_rows",
    "n, j, k, m -> n, k n, m n, ()",
    [0, 0, 0, jnp.int32],
    fallback=_fallback)
