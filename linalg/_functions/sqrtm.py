"""The square root of general matrices."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import diagonal_of, expand, on_diagonal, with_column, zeros_like
from linalg._core.balancing import balancing, similar
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, check_square, complex_dtype
from linalg._core.public import public
from linalg._core.tuning import TRIANGULAR_SQRT, within
from linalg._factorizations.matmul import congruence
from linalg._factorizations.schur import triangular_schur
from linalg._factorizations.triangular import triangular_solve_p
from linalg._functions.sylvester import columns, sylvester_p

__all__ = ["root_of_triangle", "sqrtm"]


def _root_by_columns(t, root):
  """Returns [R].

  Column j follows from those before it: (R + Rⱼⱼ I) rⱼ = tⱼ in the rows above j. Björck and
  Hammarling, A Schur method for the square root of a matrix, Linear Algebra Appl. 52/53 (1983).
  """
  row = expand(jnp.arange(t.shape[-1]), root)

  def step(r, column):
    j, tj, shift = column
    above = jnp.where(row < j, tj, 0)
    sums = jnp.where(row < j, root + shift[..., None], 1)
    zero = sums == 0
    safe = jnp.where(on_diagonal(r), jnp.where(zero, 1, sums)[..., None], r)
    rj = triangular_solve_p(safe, above[..., None], left_side=True, lower=False)[..., 0]
    rj = jnp.where(zero & (rj != 0), jnp.nan, rj)
    rj = jnp.where(row == j, shift[..., None], rj)
    return with_column(r, j, rj[..., None]), None

  return [jax.lax.scan(
      step, zeros_like(t), (jnp.arange(t.shape[-1]), columns(t), columns(root)))[0]]


# R from T and the diagonal of R. Its derivatives must not be asked for.
triangular_sqrt_p = ffi.operation(
    "linalg_triangular_sqrt", "n n, n -> n n", [0], fallback=_root_by_columns,
    suits=within(TRIANGULAR_SQRT))


def root_of_triangle(t):
  """Returns R with R R = T, both upper triangular. Elements of a column without a root are NaN."""
  diagonal = diagonal_of(t)
  # An imaginary part of -0 would put the root on the other side of the branch cut.
  upper = jnp.where(diagonal.imag == 0, 0, diagonal.imag)
  return triangular_sqrt_p(t, jnp.sqrt(jax.lax.complex(diagonal.real, upper)))


def _root_jvp(primals, tangents):
  # X dX + dX X = dA
  _, r, z = primals
  x = _root_p(*primals)
  return x, sylvester_p(x, r, z, x, r, z, tangents[0])


# Returns X = Z R Zᴴ with X X = A.
_root_p = given_factors(
    "sqrtm",
    "n n, n n, n n -> n n",
    [0],
    lambda r, z: congruence(z, r),
    jvp=_root_jvp)


@jax.jit
def _sqrtm(a):
  (a,), dtype = as_arrays("sqrtm", a)
  check_square("sqrtm", a)
  e = balancing(a)
  a = similar(a, e)
  t, z = triangular_schur(a)
  root = _root_p(a.astype(z.dtype), root_of_triangle(t), z)
  return similar(root, -e).astype(complex_dtype(dtype))


@public("blocksize", compiled=False, lists=True)
def sqrtm(A: ArrayLike, blocksize: int = 1) -> jax.Array:
  """The principal square root, X X = A; `jax.scipy.linalg.sqrtm`, batched.

  Args:
    A: square matrices (..., n, n).
    blocksize: unused; must be 1.

  Returns:
    The roots (..., n, n), complex; NaN where there is none or A holds NaN or Inf.

  Algorithm: the complex Schur form of the balanced matrix; Björck and Hammarling (1983), by a
  handler on the CPU. Derivatives solve the Sylvester equation X dX + dX X = dA. They are right at
  equal eigenvalues, to any order.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.sqrtm(jnp.array([[4.0, 5.0], [0.0, 9.0]])).real.round(4))
    [[2. 1.]
     [0. 3.]]
  """
  if blocksize > 1:
    raise NotImplementedError(f"sqrtm: blocksize must be 1, got {blocksize}.")
  return _sqrtm(A)
