"""Eigenvalues and eigenvectors of Hermitian tridiagonal matrices."""

import functools
from typing import Any, Literal, overload

import jax
import jax.core
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import adjoint, diagonal_of, expand, info_of_nan, without_none
from linalg._core.checks import check_converged
from linalg._core.operands import check_arrays, compute_dtype, real_dtype
from linalg._core.public import public
from linalg._factorizations.eigh import eigenpairs_jvp, of_first_order_if_equal
from linalg._factorizations.matmul import congruence, product

__all__ = ["eigh_tridiagonal"]


def _dense(d, e):
  """The matrix with diagonal d, and with e above it and its conjugate below."""
  n = d.shape[-1]
  square = d[..., None]
  shift = jnp.eye(e.shape[-1], n, dtype=e.dtype)
  shifted = product(shift, e[..., None], transpose_a=True)
  above = jnp.where(expand(jnp.eye(n, k=1, dtype=bool), square), shifted, 0)
  diagonal = jnp.where(expand(jnp.eye(n, dtype=bool), square), square, 0)
  return diagonal.astype(e.dtype) + above + adjoint(above)


def _rotate(v, primals, tangents):
  """Vᴴ dT V"""
  dd, de = without_none(primals, tangents)
  return congruence(v, _dense(dd, de), adjoint_a=True)


def _eigh_tridiagonal_jvp(primals, tangents):
  w, v, info = eigh_tridiagonal_p(*primals)
  return (w, v, info), (*eigenpairs_jvp(w, v, _rotate(v, primals, tangents)), None)


def _eigvalsh_tridiagonal_jvp(primals, tangents):
  w, v, info = eigh_tridiagonal_p(*primals)
  return (w, info), (diagonal_of(_rotate(v, primals, tangents)).real, None)


def _eigh_tridiagonal_fallback(d, e):
  v, w = jax.lax.linalg.eigh(_dense(d, e), symmetrize_input=False)
  return [w, v, info_of_nan(w, 1)]


def _eigvalsh_tridiagonal_fallback(d, e):
  w, _, info = _eigh_tridiagonal_fallback(d, e)
  return [w, info]


eigh_tridiagonal_p = ffi.operation(
    "linalg_eigh_tridiagonal",
    "n, k -> n, n n, ()",
    [0, 1, jnp.int32],
    jvp=_eigh_tridiagonal_jvp,
    fallback=_eigh_tridiagonal_fallback)

eigvalsh_tridiagonal_p = ffi.operation(
    "linalg_eigvalsh_tridiagonal",
    "n, k -> n, ()",
    [0, jnp.int32],
    jvp=_eigvalsh_tridiagonal_jvp,
    fallback=_eigvalsh_tridiagonal_fallback)


def _eigh_tridiagonal_rows_fallback(d, e, rows):
  w, v, info = eigh_tridiagonal_p(d, e)
  n = d.shape[-1]
  index = jnp.arange(n, dtype=rows.dtype)
  chosen = (rows[..., None] == expand(index, rows[..., None])).astype(v.dtype)
  failed = jnp.isnan(w[..., :1])[..., None]
  return [w, jnp.where(failed, jnp.nan, product(chosen, jnp.where(failed, 0, v))), info]


# Some consecutive rows of the matrix of eigenvectors. The handler uses the first of their numbers,
# and memory in proportion to their count. Rows beyond the matrix are zero.
eigh_tridiagonal_rows_p = ffi.operation(
    "linalg_eigh_tridiagonal_rows",
    "n, k, m -> n, m n, ()",
    [0, 0, jnp.int32],
    fallback=_eigh_tridiagonal_rows_fallback)


def _operands(d, e):
  """Both as arrays that LAPACK computes in, and their dtype."""
  name = "eigh_tridiagonal"
  check_arrays(name, d, e)
  d, e = jnp.asarray(d), jnp.asarray(e)
  if d.dtype != e.dtype:
    raise TypeError(f"{name}: d and e must have the same dtype, got {d.dtype} and {e.dtype}.")
  if not jnp.issubdtype(d.dtype, jnp.inexact):
    raise TypeError(f"{name}: d and e must have a floating or complex dtype, got {d.dtype}.")
  if d.ndim < 1 or e.ndim < 1 or e.shape[-1] != jax.core.max_dim(d.shape[-1] - 1, 0):
    raise ValueError(
        f"{name}: d and e must have shapes [..., n] and [..., n - 1], got {d.shape} and "
        f"{e.shape}.")
  compute = compute_dtype(d.dtype)
  return d.astype(compute), e.astype(compute), d.dtype


def _chosen(select, select_range):
  """Returns the requested eigenvalues, by index."""
  if select == "a":
    return slice(None)
  if select == "i":
    first, last = select_range
    if first > last:
      raise ValueError(
          "eigh_tridiagonal: select_range must be (first, last) with first <= last, got "
          f"{select_range}.")
    return slice(first, last + 1)
  if select == "v":
    raise NotImplementedError(
        "eigh_tridiagonal: the shape of the result of select='v' depends on its values; use 'a' or "
        "'i'.")
  raise ValueError(f"eigh_tridiagonal: select must be 'a' or 'i', got {select!r}.")


@functools.partial(jax.jit, static_argnames=("eigvals_only", "select", "select_range"))
def _eigh_tridiagonal(d, e, eigvals_only, select, select_range):
  d, e, dtype = _operands(d, e)
  chosen = _chosen(select, select_range)
  d = d.real
  real = real_dtype(dtype)
  if eigvals_only:
    w, info = eigvalsh_tridiagonal_p(d, e)
    w = of_first_order_if_equal(w)
  else:
    w, v, info = eigh_tridiagonal_p(d, e)
  check_converged(info, "eigendecomposition")
  w = w[..., chosen].astype(real)
  return w if eigvals_only else (w, v[..., chosen].astype(dtype))


@overload
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: Literal[False] = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]: ...


@overload
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: Literal[True],
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: jax.Array | None = None,
) -> jax.Array: ...


@overload
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: jax.Array | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...


@public("eigvals_only", "select", "select_range", compiled=False, lists=True)
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: jax.Array | None = None,
) -> Any:
  """Eigenvalues and eigenvectors of Hermitian tridiagonal matrices; `jax.scipy`'s
  `eigh_tridiagonal`.

  Args:
    d: the diagonals (..., n). If complex, the real part is used.
    e: the elements above them (..., n - 1), of the dtype of `d`. The elements below are their
      conjugates.
    eigvals_only: whether to return the eigenvalues alone.
    select: 'a' for all eigenvalues, 'i' for those with the indices `select_range`, the last
      included. All are computed. 'v' is not implemented, as in jax.scipy.
    select_range: (first, last) for select='i'.
    tol, key: not used. The eigenvalues always have full accuracy.

  Returns:
    (eigenvalues, eigenvectors): real (..., n) in ascending order, and (..., n, n) with the
    orthonormal eigenvectors in columns; or the eigenvalues. Where d or e holds NaN or Inf, or the
    iteration does not converge, they are NaN for that matrix; see `checked`.

  Derivatives are those of `eigh`. float16 and bfloat16 are computed in float32, and the results
  rounded.

  Algorithm: divide and conquer. Small matrices and the largest ones use LAPACK stevd.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> w, v = linalg.eigh_tridiagonal(jnp.array([2.0, 2.0]), jnp.array([1.0]))
    >>> print(w.round(4))
    [1. 3.]
    >>> linalg.eigh_tridiagonal(jnp.ones((10, 5)), jnp.ones((10, 4)), eigvals_only=True).shape
    (10, 5)
  """
  del tol, key
  return _eigh_tridiagonal(d, e, eigvals_only, select, select_range)
