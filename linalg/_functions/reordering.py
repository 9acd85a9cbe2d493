"""The order of eigenvalues of Schur and QZ forms, without exchanges: by their vectors."""

import jax
import jax.numpy as jnp

from linalg._core.algebra import (
  column_of,
  diagonal_of,
  expand,
  norm_of_rows,
  on_diagonal,
  with_column,
  zeros_like,
)
from linalg._core.pencils import scales, unit_pairs
from linalg._factorizations.matmul import product
from linalg._factorizations.schur import next_along
from linalg._factorizations.triangular import triangular_solve_p


def vectors_of_triangles(s: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
  """(V, Ξ) of an upper triangular pencil: eigenvectors of length 1 in its order, and their images.

  β A v = α B v, and A v and B v are multiples of the image. Pivots that are 0 to rounding are
  replaced by rounding errors, as in LAPACK's trevc.
  """
  row, col = expand(jnp.arange(s.shape[-1])[:, None], s), expand(jnp.arange(s.shape[-1]), s)
  norms = [norm_of_rows(x)[..., None, None] for x in (s, t)]
  eps = jnp.finfo(s.dtype).eps

  def step(v, j):
    at = (col == j) & (row == j)
    sj, tj = (jnp.sum(jnp.where(at, x, 0), axis=(-2, -1), keepdims=True) for x in (s, t))
    matrix = tj * s - sj * t
    least = eps * (jnp.abs(sj) * norms[1] + jnp.abs(tj) * norms[0])
    small = on_diagonal(s) & (jnp.abs(matrix) < least)
    pivoted = jnp.where(small, jnp.where(least == 0, 1, least).astype(s.dtype), matrix)
    pivoted = jnp.where(row < j, pivoted, on_diagonal(s).astype(s.dtype))
    rhs = zeros_like(column_of(s, j)) + (row == j).astype(s.dtype)
    own = triangular_solve_p(pivoted, rhs, left_side=True, lower=False)
    length = jnp.sqrt(jnp.sum(jnp.abs(own) ** 2, axis=-2, keepdims=True))
    return with_column(v, j, own / length.astype(own.dtype)), None

  v = jax.lax.scan(step, zeros_like(s), jnp.arange(s.shape[-1]))[0]
  of_s, of_t = scales(s, t)
  alpha, beta, _ = unit_pairs(diagonal_of(s), diagonal_of(t), (of_s, of_t))
  image = product(s, v) * (alpha.conj() / of_s.astype(s.dtype))[..., None, :] + product(t, v) * (
      beta.conj() / of_t.astype(s.dtype))[..., None, :]
  return v, image


def real_pairs(v: jax.Array, first: jax.Array) -> jax.Array:
  """Real and imaginary parts of the vectors of a real matrix in neighbouring columns.

  `first` marks the first one of each complex pair.
  """
  second = next_along(first.astype(v.real.dtype), -1) != 0
  return jnp.where(second[..., None, :], next_along(v.imag, -1), v.real)


def chosen_first(select: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
  """The matrix P for which the columns of V P are those of V, the chosen ones first."""
  chosen = select != 0
  count = lambda x: jnp.cumsum(x.astype(jnp.int32), axis=-1, dtype=jnp.int32)
  number = jnp.sum(chosen, axis=-1, keepdims=True, dtype=jnp.int32)
  place = jnp.where(chosen, count(chosen) - 1, number + count(~chosen) - 1)
  at = expand(jnp.arange(select.shape[-1], dtype=jnp.int32), place[..., None])
  return (place[..., None] == at).astype(dtype)
