"""The square root of general matrices."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._array import adjoint, as_arrays, check_square, diagonal, expand, matmul, on_diagonal
from linalg._schur import schur
from linalg._sylvester import columns, shifted_triangle, sylvester_p
from linalg._triangular import triangular_solve_p

__all__ = ["sqrtm"]


def _root_of_triangle(t):
  """R with R R = T, both upper triangular; NaN in a column that has no root.

  Column j from those before it: (R + Rⱼⱼ I) rⱼ = tⱼ in the rows above j. Björck and Hammarling, A
  Schur method for the square root of a matrix, Linear Algebra Appl. 52/53 (1983).
  """
  n = t.shape[-1]
  root = jnp.sqrt(diagonal(t))
  row = expand(jnp.arange(n), root)

  def step(r, column):
    j, tj, shift = column
    above = jnp.where(row < j, tj, 0)
    matrix = shifted_triangle(r, shift, from_row=j)
    zero = diagonal(matrix) == 0
    safe = jnp.where(zero[..., None] & on_diagonal(matrix), 1, matrix)
    rj = triangular_solve_p(safe, above[..., None], left_side=True, lower=False)[..., 0]
    rj = jnp.where(zero & (rj != 0), jnp.nan, rj)
    rj = jnp.where(row == j, shift[..., None], rj)
    return jnp.where(expand(jnp.arange(n), r) == j, rj[..., None], r), None

  r, _ = jax.lax.scan(step, t * 0, (jnp.arange(n), columns(t), columns(root)))
  return r


@jax.custom_jvp
def _root(a, x, r, z):
  """x, a function of A alone: X = Z R Zᴴ and its factors are constants to derivatives."""
  del a, r, z
  return x


@_root.defjvp
def _(primals, tangents):
  # X dX + dX X = dA
  _, _, r, z = primals
  x = _root(*primals)
  return x, sylvester_p(x, r, z, tangents[0])


@jax.jit
def _sqrtm(a):
  (a,), dtype = as_arrays("sqrtm", a)
  check_square("sqrtm", a)
  a = a.astype(jnp.promote_types(a.dtype, jnp.complex64))
  t, z = schur(jax.lax.stop_gradient(a), output="complex")
  r = _root_of_triangle(t)
  x = matmul(z, matmul(r, adjoint(z)))
  return _root(a, x, r, z).astype(jnp.promote_types(dtype, jnp.complex64))


def sqrtm(A: ArrayLike, blocksize: int = 1) -> jax.Array:
  """The principal square root, X X = A; `jax.scipy.linalg.sqrtm`, batched.

  Args:
    A: square matrices (..., n, n).
    blocksize: unused; must be 1.

  Returns:
    The roots (..., n, n), complex; NaN where there is none or A holds NaN or Inf.

  Algorithm: the complex Schur form; Björck and Hammarling (1983). Derivative: the Sylvester
  equation X dX + dX X = dA, right at equal eigenvalues, to any order.
  """
  if blocksize > 1:
    raise NotImplementedError("Blocked version is not implemented yet.")
  return _sqrtm(A)
