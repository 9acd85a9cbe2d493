"""Powers and exponentials of square matrices."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from linalg._core.algebra import expand, identities_like, identity, nan_where, norm_of_columns
from linalg._core.operands import as_arrays, check_arrays, check_square
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.solve import inv, solve
from linalg._factorizations.triangular import triangular_solve

__all__ = ["expm", "matrix_power"]


@public("n", compiled=False)
def matrix_power(a: ArrayLike, n: int) -> jax.Array:
  """A to the integer power n; `jax.numpy.linalg.matrix_power`.

  Args:
    a: square matrices (..., m, m) of any dtype; integers stay integers if n is not negative.
    n: the exponent, any integer.

  Returns:
    The powers (..., m, m); NaN where n is negative and A is exactly singular.

  Algorithm: repeated squaring, of `inv(a)` for a negative n.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.matrix_power(jnp.array([[1.0, 1.0], [0.0, 1.0]]), 5))
    [[1. 5.]
     [0. 1.]]
    >>> print(linalg.matrix_power(2 * jnp.eye(2), -1))
    [[0.5 0. ]
     [0.  0.5]]
  """
  check_arrays("matrix_power", a)
  a = jnp.asarray(a)
  if a.ndim < 2:
    raise TypeError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
  if a.shape[-2] != a.shape[-1]:
    raise TypeError("Last 2 dimensions of the array must be square")
  try:
    n = operator.index(n)
  except TypeError as error:
    raise TypeError(f"exponent must be an integer, got {n}") from error
  return _matrix_power(a, n)


@functools.partial(jax.jit, static_argnames="n")
def _matrix_power(a, n):
  exact = not jnp.issubdtype(a.dtype, jnp.inexact) and n >= 0
  (base,), dtype = ([a], a.dtype) if exact else as_arrays("matrix_power", a)
  if n == 0:
    return identities_like(a)
  if n < 0:
    base, n = inv(base), -n
  factors = []
  while n:
    n, odd = divmod(n, 2)
    factors += [base] * odd
    base = product(base, base) if n else base
  return functools.reduce(product, factors).astype(dtype)


# Of the [m/m] Padé approximant's numerator, from the constant; and the 1-norm up to which its
# backward error is below the rounding. Higham, The scaling and squaring method for the matrix
# exponential revisited, SIAM J. Matrix Anal. Appl. 26 (2005), tables 2.1 and 2.3.
_PADE_7 = (17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1)
_PADE_13 = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000,
    10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1)
_PADE = {32: (_PADE_7, 3.925724783138660), 64: (_PADE_13, 5.371920351148152)}


def _pade(a, coefficients):
  """The odd and the even part of the numerator of the approximant."""
  b = [float(x) for x in coefficients]
  eye = identity(a)
  a2 = product(a, a)
  a4 = product(a2, a2)
  a6 = product(a4, a2)
  odd = b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * eye
  even = b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * eye
  if len(b) > 8:
    odd = odd + product(a6, b[13] * a6 + b[11] * a4 + b[9] * a2)
    even = even + product(a6, b[12] * a6 + b[10] * a4 + b[8] * a2)
  return product(a, odd), even


@public("upper_triangular", "max_squarings", lists=True)
def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> jax.Array:
  """The matrix exponential; `jax.scipy.linalg.expm`.

  Args:
    A: square matrices (..., n, n).
    upper_triangular: whether the matrices are upper triangular, which saves a factorisation.
    max_squarings: a bound on the squarings, and with it on the 1-norm, for which the result is NaN
      from 2^(max_squarings + 1) times 5.37 (float64) or 3.93 (float32) on.

  Returns:
    The exponentials (..., n, n).

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: scaling, Padé approximation of degree 13 (float64) or 7 (float32), and squaring; Higham
  (2005). Each matrix of a batch is scaled by itself. Derivatives go through the algorithm.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.expm(jnp.array([[0.0, 1.0], [0.0, 0.0]])))
    [[1. 1.]
     [0. 1.]]
  """
  (a,), dtype = as_arrays("expm", A)
  check_square("expm", a)
  coefficients, bound = _PADE[jnp.finfo(a.dtype).bits]
  norm = norm_of_columns(jax.lax.stop_gradient(a))
  limit = max_squarings + 1
  bounds = expand(
      np.ldexp(bound, np.arange(limit + 1)).astype(norm.dtype), norm[..., None])
  within = norm[..., None] <= bounds
  squarings = jnp.sum(~within, axis=-1)
  scale = jnp.min(jnp.where(within, bounds / bound, jnp.inf), axis=-1)
  odd, even = _pade(a / scale[..., None, None].astype(a.dtype), coefficients)
  if upper_triangular:
    result = triangular_solve(even - odd, even + odd, left_side=True, lower=False)
  else:
    result = solve(even - odd, even + odd)

  def square(x, i):
    more = i < squarings
    if more.size == 1:
      # Not of a batch: what all its matrices need, its devices would have to tell each other.
      return jax.lax.cond(jnp.all(more), lambda x: product(x, x), lambda x: x, x), None
    return jnp.where(more[..., None, None], product(x, x), x), None

  result, _ = jax.lax.scan(square, result, jnp.arange(limit))
  return nan_where(squarings > limit, result, core=2).astype(dtype)
