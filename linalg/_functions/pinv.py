"""Pseudo-inverses, ranks and condition numbers, from singular values."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.algebra import (
    adjoint,
    expand,
    identity,
    largest_component,
    normal_binade,
    reciprocal,
    scaled,
    symmetrized,
    zeros_like,
)
from linalg._core.operands import (
  as_arrays,
  check_matrix,
  check_square,
  compute_dtype,
  real_dtype,
)
from linalg._core.public import public
from linalg._factorizations.eigh import eigh, eigvalsh
from linalg._factorizations.solve import inv, inv_ex
from linalg._factorizations.svd import svd, svdvals
from linalg._functions.norms import extreme_values, matrix_norm
from linalg._functions.pseudo_inverse import pseudo_inverse_p

__all__ = ["cond", "matrix_rank", "pinv"]


def per_matrix(x, s):
  """A number, or one for each matrix, to compare with the singular values `s`."""
  return expand(jnp.asarray(x, s.dtype)[..., None], s)


def precision_of(dtype):
  """eps of the dtype that is computed in: the numbers given are exact, of half precision too.

  max(m, n) eps of bfloat16 is 1 for n = 128, and all singular values would count as 0.
  """
  return float(jnp.finfo(compute_dtype(dtype)).eps)


def default_rtol(a, dtype):
  """Returns max(m, n) eps. Singular values below it are rounding errors."""
  return max(a.shape[-2:]) * precision_of(dtype)


def threshold(s, rtol):
  """The size up to which singular values count as 0: `rtol` times the largest."""
  return per_matrix(rtol, s) * jnp.max(jnp.abs(s), axis=-1, keepdims=True, initial=0)


@functools.partial(jax.jit, static_argnames="hermitian")
def _pinv(a, rtol, hermitian):
  (a,), dtype = as_arrays("pinv", a)
  check_matrix("pinv", a)
  if 0 in a.shape[-2:]:
    return zeros_like(a.mT).astype(dtype)
  if rtol is None:
    rtol = 10 * default_rtol(a, dtype)
  if hermitian:
    check_square("pinv", a)
    a = symmetrized(a)
    s, u = eigh(jax.lax.stop_gradient(a))
    vh = adjoint(u)
  else:
    u, s, vh = svd(jax.lax.stop_gradient(a), full_matrices=False)
  # NaN is kept, to show in the result.
  kept = ~(jnp.abs(s) <= threshold(s, rtol))
  return pseudo_inverse_p(a, u, reciprocal(s, kept), vh).astype(dtype)


@public("hermitian", compiled=False)
def pinv(
    a: ArrayLike,
    rtol: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rcond: ArrayLike | None = None,
) -> jax.Array:
  """The Moore-Penrose pseudo-inverse; `jax.numpy.linalg.pinv`.

  Args:
    a: matrices (..., m, n) of any floating, complex or integer dtype.
    rtol: singular values up to `rtol` times the largest count as 0; a number, or one for each
      matrix. The default is 10 max(m, n) eps, where eps is float32's for half precision.
    hermitian: whether the matrices are Hermitian; then (A + Aᴴ) / 2 is inverted.
    rcond: another name for `rtol`.

  Returns:
    The pseudo-inverses (..., n, m); NaN where A holds NaN or Inf.

  float16 and bfloat16 are computed in float32, and the result rounded. Their numbers count as
  exact: for a matrix that was rounded to them give `rtol`.

  Algorithm: singular values, or eigenvalues of Hermitian matrices. Derivative: Golub and Pereyra,
  right wherever the rank does not change, at equal singular values too.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.pinv(jnp.array([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]])))
    [[0.5 0.  0. ]
     [0.  0.  0. ]]
  """
  if rcond is not None:
    if rtol is not None:
      raise ValueError("pinv: only one of rtol and rcond may be specified.")
    rtol = rcond
  return _pinv(a, rtol, hermitian)


@public("hermitian")
def matrix_rank(
    M: ArrayLike,
    rtol: ArrayLike | None = None,
    *,
    hermitian: bool = False,
    tol: ArrayLike | None = None,
) -> jax.Array:
  """The number of singular values that are not 0; `jax.numpy.linalg.matrix_rank`.

  Args:
    M: matrices (..., m, n) of any floating, complex or integer dtype.
    rtol: singular values up to `rtol` times the largest count as 0; a number, or one for each
      matrix. The default is max(m, n) eps, where eps is float32's for half precision.
    hermitian: whether the matrices are Hermitian.
    tol: instead of `rtol`, the bound itself, as in NumPy.

  Returns:
    The ranks, integers (...).

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.matrix_rank(jnp.stack([jnp.eye(2), jnp.ones((2, 2))])))
    [2 1]
  """
  if tol is not None and rtol is not None:
    raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
  (a,), dtype = as_arrays("matrix_rank", M)
  if a.ndim < 2:
    return (a != 0).any().astype(jnp.int32)
  if hermitian:
    check_square("matrix_rank", a)
  s = jnp.abs(eigvalsh(a)) if hermitian else svdvals(a)
  if tol is None:
    if rtol is None:
      rtol = default_rtol(a, dtype)
    bound = threshold(s, rtol)
  else:
    bound = per_matrix(tol, s)
  return jnp.sum(s > bound, axis=-1)


@public("p")
def cond(x: ArrayLike, p: Any = None) -> jax.Array:
  """Condition numbers, ‖A‖ ‖A⁻¹‖; `jax.numpy.linalg.cond`.

  Args:
    x: matrices (..., m, n), square unless p is None, 2 or -2.
    p: the norm, as in `matrix_norm`. None is 2, the largest singular value over the smallest.

  Returns:
    The condition numbers, real (...). They are inf for a singular matrix, and for one that holds
    Inf and no NaN; the derivative is 0 there. A number near 1 / eps or above only says that the
    matrix is singular to rounding.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.cond(jnp.diag(jnp.array([4.0, 0.5]))).round(4))
    8.0
    >>> print(linalg.cond(jnp.zeros((2, 2))))
    inf
  """
  (a,), dtype = as_arrays("cond", x)
  if a.ndim < 2:
    raise ValueError(f"cond: input array must be at least 2D; got {a.shape=}")
  if 0 in a.shape[-2:]:
    raise ValueError(f"cond: input array must not be empty; got {a.shape=}")
  # `max` returns NaN if there is one. The condition number of an infinite matrix is computed and
  # discarded: to skip it, XLA would search for Inf again for each element.
  largest = largest_component(a)
  return jnp.where(jnp.isinf(largest), jnp.inf, _cond(a, p)).astype(real_dtype(dtype))


def _cond(a, p):
  # Second derivatives have squares of the elements and of the inverse's.
  a, _ = scaled(a)
  if p is None or p in (2, -2):
    largest, smallest = extreme_values(a)
    # Second derivatives have cubes of the divisor.
    scale = normal_binade(largest if p == -2 else smallest)
    largest, smallest = largest / scale, smallest / scale
    if p == -2:
      zero = largest == 0
      result = jnp.where(zero, jnp.inf, smallest / jnp.where(zero, 1, largest))
    else:
      zero = smallest == 0
      result = jnp.where(zero, jnp.inf, largest / jnp.where(zero, 1, smallest))
    return result
  if a.shape[-2] != a.shape[-1]:
    raise ValueError(f"cond: for {p=}, array must be square; got {a.shape=}")
  _, info = inv_ex(jax.lax.stop_gradient(a))
  singular = info > 0
  regular = jnp.where(singular[..., None, None], identity(a), a)
  result = matrix_norm(regular, ord=p) * matrix_norm(inv(regular), ord=p)
  return jnp.where(singular, jnp.inf, result)
