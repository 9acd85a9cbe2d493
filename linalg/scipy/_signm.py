"""The sign of general matrices."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.algebra import (
  diagonal_of,
  expand,
  identity,
  nan_where,
  with_column,
  zeros_like,
)
from linalg._core.balancing import balancing, similar
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, check_square
from linalg._core.public import public
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.schur import triangular_schur
from linalg._factorizations.triangular import triangular_solve_p
from linalg._functions.sylvester import columns, shifted_triangle, sylvester_p

__all__ = ["signm"]


# SciPy's bound in eps: eigenvalues are on the axis up to this part of the largest.
_NEAR = 1e3


def _sign_of_triangle(t, signs):
  """The sign U of upper triangular matrices, with the signs of their eigenvalues on the diagonal.

  Column j follows from those before it. In a row i whose sign is that of column j, U U = I gives
  (I + Uⱼⱼ U) uⱼ = 0; in others, T U = U T gives (T - Tⱼⱼ I) uⱼ = (U - Uⱼⱼ I) tⱼ. Higham, Functions
  of matrices (2008), algorithm 5.5. Where a sign is 0, U U is a projector P, and U P = U gives
  (P + Uⱼⱼ U + (Uⱼⱼ² - 1) I) uⱼ = 0 for the former.
  """
  row = expand(jnp.arange(t.shape[-1]), signs)
  regular = (signs != 0).all(-1)[..., None, None]

  def step(carry, column):
    u, square = carry
    j, tj, own, sign = column
    above = jnp.where(row < j, tj, 0)[..., None]
    alike = (signs == sign[..., None])[..., None]
    factor = sign[..., None, None]
    of_same = jnp.where(regular, identity(u), square) + factor * u
    matrix = jnp.where(
        alike, shifted_triangle(of_same, sign**2 - 1, from_row=j),
        shifted_triangle(t, -own, from_row=j))
    right = jnp.where(alike, 0, product(u, above) - factor * above)
    uj = triangular_solve_p(matrix, right, left_side=True, lower=False)
    uj = jnp.where((row == j)[..., None], factor, uj)
    u = with_column(u, j, uj)
    return (u, with_column(square, j, product(u, uj))), None

  places = (jnp.arange(t.shape[-1]), columns(t), columns(diagonal_of(t)), columns(signs))
  return jax.lax.scan(step, (zeros_like(t), zeros_like(t)), places)[0][0]


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
  on_axis = (diagonal_of(t) == 0).any(-1)
  return s, nan_where(on_axis, (ds - turned(ds)) / 2, core=2)


# S = Z U Zᴴ. The last operand is the Schur form of A S in the basis Z.
_sign_p = given_factors(
    "signm",
    "n n, n n, n n, n n -> n n",
    [0],
    lambda u, z, t: congruence(z, u),
    jvp=_sign_jvp)


@public(lists=True)
def signm(A: ArrayLike) -> jax.Array:
  """The sign of matrices; `scipy.linalg.signm`, batched.

  S has the invariant subspaces of A. Its eigenvalues are 1 for those of A right of the imaginary
  axis, -1 left of it, and 0 on it. So S S = I where none is on the axis.

  Args:
    A: square matrices (..., n, n).

  Returns:
    The signs (..., n, n), real for a real A; NaN where A holds NaN or Inf. An eigenvalue counts as
    on the imaginary axis up to rounding: 1000 eps times the largest, as in SciPy. The derivative is
    NaN there.

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
  values = diagonal_of(t)
  real = values.real
  largest = jnp.max(jnp.abs(values), axis=-1, keepdims=True, initial=0)
  bound = _NEAR * jnp.finfo(t.dtype).eps * largest
  signs = jnp.where(jnp.abs(real) <= bound, 0, jnp.where(real < 0, -1, 1)).astype(t.dtype)
  u = _sign_of_triangle(t, signs)
  s = similar(_sign_p(a.astype(z.dtype), u, z, jnp.triu(product(t, u))), -e)
  s = s if jnp.issubdtype(dtype, jnp.complexfloating) else s.real
  return nan_where(jnp.isnan(t).any((-2, -1)), s, core=2).astype(dtype)
