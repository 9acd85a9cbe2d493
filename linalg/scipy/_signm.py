"""The sign of general matrices."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.algebra import (
  diagonal_of,
  expand,
  largest_element,
  nan_where,
  with_column,
  zeros_like,
)
from linalg._core.balancing import balancing, similar
from linalg._core.checks import check
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, check_square
from linalg._core.public import public
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.schur import triangular_schur
from linalg._factorizations.triangular import triangular_solve_p
from linalg._functions.sylvester import columns, shifted_triangle, sylvester_p

__all__ = ["signm"]


def _sign_of_triangle(t):
  """The sign U of upper triangular matrices, without eigenvalues on the imaginary axis.

  Column j follows from those before it. In a row i whose sign is that of column j, U U = I gives
  (U + Uⱼⱼ I) uⱼ = 0; in others, T U = U T gives (T - Tⱼⱼ I) uⱼ = (U - Uⱼⱼ I) tⱼ. Higham, Functions
  of matrices (2008), algorithm 5.5.
  """
  signs = jnp.where(diagonal_of(t).real < 0, -1, 1).astype(t.dtype)
  row = expand(jnp.arange(t.shape[-1]), signs)

  def step(u, column):
    j, tj, own, sign = column
    above = jnp.where(row < j, tj, 0)[..., None]
    alike = (signs == sign[..., None])[..., None]
    matrix = jnp.where(
        alike, shifted_triangle(u, sign, from_row=j), shifted_triangle(t, -own, from_row=j))
    right = jnp.where(alike, 0, product(u, above) - sign[..., None, None] * above)
    uj = triangular_solve_p(matrix, right, left_side=True, lower=False)
    return with_column(u, j, jnp.where(row == j, sign[..., None], uj[..., 0])[..., None]), None

  places = (jnp.arange(t.shape[-1]), columns(t), columns(diagonal_of(t)), columns(signs))
  return jax.lax.scan(step, zeros_like(t), places)[0]


def _sign_jvp(primals, tangents):
  # N dS + dS N = dA - S dA S, N = A S = (A²)^(1/2); Kenney and Laub, Polar decomposition and matrix
  # sign function condition estimates, SIAM J. Sci. Stat. Comput. 12 (1991). Rounding adds a part
  # that commutes with S, divided by the smallest eigenvalue. S dS = -dS S removes it.
  a, _, z, t = primals
  da = tangents[0]
  s = _sign_p(*primals)
  n = product(a, s)
  turned = lambda x: product(s, product(x, s))
  ds = sylvester_p(n, t, z, n, t, z, da - turned(da))
  return s, (ds - turned(ds)) / 2


# S = Z U Zᴴ. The last operand is the Schur form of A S in the basis Z.
_sign_p = given_factors(
    "signm",
    "n n, n n, n n, n n -> n n",
    [0],
    lambda u, z, t: congruence(z, u),
    jvp=_sign_jvp)


@public(lists=True)
def signm(A: ArrayLike) -> jax.Array:
  """The sign of matrices, S S = I; `scipy.linalg.signm`, batched.

  S has the invariant subspaces of A. Its eigenvalues are 1 right of the imaginary axis, and -1 left
  of it.

  Args:
    A: square matrices (..., n, n).

  Returns:
    The signs (..., n, n), real for a real A. They are NaN where an eigenvalue of A is on the
    imaginary axis up to rounding, relative to the norm of the balanced A; SciPy takes its sign to
    be 0. They are NaN too where A holds NaN or Inf; see `checked`.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: the complex Schur form of the balanced matrix, and the sign of its triangle column by
  column; Higham, Functions of matrices (2008), section 5.2. Derivatives solve the Sylvester
  equation of Kenney and Laub. They are right at any spectrum off the axis, to any order.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.signm(jnp.array([[2.0, 1.0], [0.0, -2.0]])).round(4))
    [[ 1.   0.5]
     [ 0.  -1. ]]
  """
  (a,), dtype = as_arrays("signm", A)
  check_square("signm", a)
  e = balancing(a)
  a = similar(a, e)
  t, z = triangular_schur(a)
  distance = jnp.min(jnp.abs(diagonal_of(t).real), axis=-1, initial=jnp.inf)
  failed = ~(distance > 2 * jnp.finfo(t.dtype).eps * largest_element(t))
  check(
      failed.astype(jnp.int32),
      "has no sign: an eigenvalue is on the imaginary axis, or it holds NaN or Inf.")
  u = _sign_of_triangle(t)
  s = similar(_sign_p(a.astype(z.dtype), u, z, jnp.triu(product(t, u))), -e)
  s = s if jnp.issubdtype(dtype, jnp.complexfloating) else s.real
  return nan_where(failed, s, core=2).astype(dtype)
