"""Least squares of any rank, batched."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.algebra import adjoint, expand, minus, none_like, reciprocal
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, check_matrix, real_dtype
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.svd import svd
from linalg._functions.pinv import default_rtol, per_matrix, precision_of
from linalg._functions.pseudo_inverse import (
    outside_range_of_adjoint,
    outside_range_p,
    pseudo_inverse_p,
    size_of_inverse,
)

__all__ = ["lstsq"]


def _solution(u, inverses, vh, b):
  inverses = expand(inverses[..., :, None], b).astype(b.dtype)
  return product(vh, inverses * product(u, b, adjoint_a=True), adjoint_a=True)


def _solution_jvp(primals, tangents):
  # Let P = A⁺ and r = (I - A P) b. Then dx = P (db - dA x) + P Pᴴ dAᴴ r + (I - P A) dAᴴ Pᴴ x; Golub
  # and Pereyra (1973). It holds where the rank is constant.
  *known, b = primals
  da, *_, db = tangents
  x = _solution_p(*primals)
  p = pseudo_inverse_p(*known)
  if da is None:
    return x, product(p, db)
  dah = adjoint(da)
  size = size_of_inverse(known[2]).astype(p.dtype)
  turned = product(dah * size, product(p / size, x, adjoint_a=True))
  residual = outside_range_p(*known, b)
  moved = minus(db, product(da, x)) + product(p, product(dah, residual), adjoint_a=True)
  return x, product(p, moved) + outside_range_of_adjoint(*known, turned)


# A⁺ b. The inverse of a singular value that counts as 0 is 0.
_solution_p = given_factors(
    "least_squares",
    "m n, m r, r, r n, m k -> n k",
    [4],
    _solution,
    shared=[0, 1, 2, 3],
    jvp=_solution_jvp)


def tolerance(rcond, a, dtype):
  """The tolerance of singular values, relative to the largest. None is max(m, n) eps, and a
  negative number eps, of the dtype that computes."""
  if rcond is None:
    return default_rtol(a, dtype)
  return jnp.where(jnp.asarray(rcond) < 0, precision_of(dtype), rcond)


def counted(s, rcond):
  """Which singular values do not count as 0. A value equal to the tolerance counts, as in NumPy."""
  return (s > 0) & (s >= per_matrix(rcond, s) * s[..., :1])


def _lstsq(a, b, rcond):
  """x, the residuals, the rank and the singular values; `b` holds columns."""
  if 0 in a.shape[-2:]:
    x = product(a, b, transpose_a=True)
    s = none_like(a.real)
    rank = jnp.sum(s > 0, axis=-1)
  else:
    u, s, vh = svd(a, full_matrices=False)
    kept = counted(s, rcond)
    rank = jnp.sum(kept, axis=-1)
    inverses = reciprocal(s, kept | jnp.isnan(s))  # NaN is kept, to show in x
    x = _solution_p(a, *jax.lax.stop_gradient((u, inverses, vh)), b)
  fitted = product(a, x)
  residual = expand(b, fitted) - fitted
  residuals = jnp.sum(residual.real**2 + residual.imag**2, axis=-2)
  return x, residuals, rank, s


@jax.jit
def _solve(a, b, rcond):
  (a, b), dtype = as_arrays("lstsq", a, b)
  check_matrix("lstsq", a, "a")
  vector = b.ndim == 1 or b.shape == a.shape[:-1]
  columns = b[..., None] if vector else b
  if columns.ndim < 2 or columns.shape[-2] != a.shape[-2]:
    raise ValueError(
        "lstsq: a and b must have shapes [..., m, n] and [..., m, k], or b the shape [..., m], got "
        f"{a.shape} and {b.shape}.")
  x, residuals, rank, s = _lstsq(a, columns, tolerance(rcond, a, dtype))
  real = real_dtype(dtype)
  x = x[..., 0] if vector else x
  return x.astype(dtype), residuals.astype(real), rank, s.astype(real)


@public("numpy_resid", compiled=False)
def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """The shortest x among the minimizers of ‖b - A x‖; `jax.numpy.linalg.lstsq`, batched.

  Args:
    a: matrices (..., m, n) of any shape and rank, and of any floating, complex or integer dtype.
    b: a vector (m,), or matrices of right-hand sides (..., m, k). It is a batch of vectors (..., m)
      if its shape is that of `a` without the last dimension.
    rcond: singular values below `rcond` times the largest count as 0. None is max(m, n) eps, and a
      negative number eps.
    numpy_resid: whether to return no residuals, of shape (0,), if a matrix has a rank below n or m
      <= n, as NumPy does. Such a call cannot be traced.

  Returns:
    (x, residuals, rank, s). x is (..., n, k), or (..., n) if `b` is vectors. Residuals are ‖b - A
    x‖² for each column, real (..., k), with k = 1 if `b` is vectors. Ranks are integers (...). s
    holds the singular values, real (..., min(m, n)). Small rows of A lose digits beside rows that
    are far larger.

  float16 and bfloat16 are computed in float32 with its eps, and the results rounded. Their numbers
  count as exact: for a matrix that was rounded to them give `rcond`.

  Algorithm: the singular value decomposition. Derivatives are those of Golub and Pereyra. They are
  right wherever the rank does not change, also at equal singular values.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a, b = jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), jnp.array([1.0, 3.0, 5.0])
    >>> x, residuals, rank, s = linalg.lstsq(a, b)
    >>> print(x.round(4), rank)
    [1. 2.] 2
    >>> linalg.lstsq(jnp.ones((10, 3, 2)), jnp.ones((10, 3, 1)))[0].shape
    (10, 2, 1)
  """
  x, residuals, rank, s = _solve(a, b, rcond)
  if numpy_resid:
    m, n = jnp.shape(a)[-2:]
    if m <= n or bool((rank < n).any()):
      residuals = jnp.zeros((0,), residuals.dtype)
  return x, residuals, rank, s
