"""Eigenvalues and eigenvectors of Hermitian tridiagonal matrices."""

import functools
from typing import Any, Literal, overload

import jax
import jax.core
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  expand,
  info_of_nan,
  without_none,
  zeros_like,
)
from linalg._core.checks import check_converged
from linalg._core.operands import as_indices, check_arrays, compute_dtype, real_dtype
from linalg._core.public import public
from linalg._core.tuning import EIGH_TRIDIAGONAL_SUBSET
from linalg._factorizations.eigh import (
  complement_jvp,
  cut,
  eigenpairs_jvp,
  of_first_order_if_equal,
  part_tangents,
  solve_by_all,
  subset_range,
  values_of_part,
)
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


# A subset of the spectrum, as in eigh.py. The matrix is tridiagonal already, so a subset takes time
# in proportion to n.


def _times(d, e, x):
  """T x of the matrix with diagonal d, or d None for zeros, and e above it, or None."""
  y = zeros_like(x) if d is None else d[..., :, None].astype(x.dtype) * x
  if e is None:
    return y
  below, above = (((0, 0),) * (x.ndim - 2) + (rows, (0, 0)) for rows in ((1, 0), (0, 1)))
  e = e[..., :, None]
  return y + jnp.pad(e * x[..., 1:, :], above) + jnp.pad(e.conj() * x[..., :-1, :], below)


def _subset_jvp(primals, tangents, **how):
  (d, e), (dd, de) = primals, tangents
  w, v, *outside, info = eigh_tridiagonal_subset_p(d, e, **how)
  dw, dv = part_tangents(
      w, v, outside, _times(dd, de, v), d.shape[-1],
      lambda b: eigh_tridiagonal_subset_solve_p(d, e, w, v, b, **how))
  return (w, v, *outside, info), (dw, dv, None, None, None, None)


def _values_of_subset_jvp(primals, tangents, **how):
  w, v, *rest = eigh_tridiagonal_subset_p(*primals, **how)
  dd, de = tangents
  dw = jnp.sum(v.conj() * _times(dd, de, v), axis=-2).real
  return (w, *rest), (dw, *(None,) * len(rest))


def _subset_fallback(d, e, *, start, count):
  w, v, info = eigh_tridiagonal_p(d, e)
  chosen, *outside = cut(w, start, count)
  return [chosen, v[..., start : start + count], *outside, info]


def _values_of_subset_fallback(d, e, *, start, count):
  w, info = eigvalsh_tridiagonal_p(d, e)
  return [*cut(w, start, count), info]


def _subset_solve_fallback(d, e, w, v, b, **how):
  del how
  values, vectors, _ = eigh_tridiagonal_p(d, e)
  return [solve_by_all(values, vectors, w, v, b)]


def _subset_solve_jvp(primals, tangents, **how):
  d, e, w, v, b = primals
  dd, de, dw, dv, db = tangents
  x = eigh_tridiagonal_subset_solve_p(*primals, **how)
  return [x], [complement_jvp(
      v, b, x, db, None if dd is None and de is None else _times(dd, de, x), dw, dv,
      lambda change: eigh_tridiagonal_subset_solve_p(d, e, w, v, change, **how))]


def _subset_solve_transpose(cotangents, operands, **how):
  # Each column is multiplied by a Hermitian matrix.
  (ct,) = cotangents
  *constants, _ = operands
  x = eigh_tridiagonal_subset_solve_p(*constants, ct.conj(), **how).conj()
  return *(None,) * len(constants), x


_SUBSET = {"start": 0, "count": 1}

eigh_tridiagonal_subset_p = ffi.operation(
    "linalg_eigh_tridiagonal_subset",
    "n, k -> count, n count, (), (), (), ()",
    [0, 1, 0, 0, 0, jnp.int32],
    attributes=_SUBSET,
    jvp=_subset_jvp,
    fallback=_subset_fallback)

eigvalsh_tridiagonal_subset_p = ffi.operation(
    "linalg_eigvalsh_tridiagonal_subset",
    "n, k -> count, (), (), (), ()",
    [0, 0, 0, 0, jnp.int32],
    attributes=_SUBSET,
    jvp=_values_of_subset_jvp,
    fallback=_values_of_subset_fallback)

eigh_tridiagonal_subset_solve_p = ffi.operation(
    "linalg_eigh_tridiagonal_subset_solve",
    "n, k, count, n count, n count -> n count",
    [1],
    attributes=_SUBSET,
    jvp=_subset_solve_jvp,
    transpose=_subset_solve_transpose,
    fallback=_subset_solve_fallback)


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


def _chosen(select, select_range, subset_by_index, n):
  """(start, count) of the requested eigenvalues, or None for all."""
  name = "eigh_tridiagonal"
  if subset_by_index is not None:
    if select != "a":
      raise ValueError(f"{name}: only one of select and subset_by_index may be specified.")
    return subset_range(name, subset_by_index, n)
  if select == "a":
    return None
  if select == "i":
    first, last = as_indices(name, "select_range", select_range, n)
    return subset_range(name, (first, last + 1), n)
  if select == "v":
    raise NotImplementedError(
        f"{name}: the shape of the result of select='v' depends on its values; use 'a' or 'i'.")
  raise ValueError(f"{name}: select must be 'a' or 'i', got {select!r}.")


def _of_chosen(d, e, chosen, with_vectors):
  """(w, V, info) of the chosen eigenvalues (start, count), or of all. V is None without vectors."""
  n = d.shape[-1]
  if chosen is None or chosen[1] == 0 or (
      isinstance(n, int) and n <= max(x.side for x in EIGH_TRIDIAGONAL_SUBSET.values())):
    part = slice(None) if chosen is None else slice(chosen[0], sum(chosen))
    if with_vectors:
      w, v, info = eigh_tridiagonal_p(d, e)
      return w[..., part], v[..., part], info
    w, info = eigvalsh_tridiagonal_p(d, e)
    return of_first_order_if_equal(w)[..., part], None, info
  start, count = chosen
  if with_vectors:
    w, v, *_, info = eigh_tridiagonal_subset_p(d, e, start=start, count=count)
    return w, v, info
  w, *outside, info = eigvalsh_tridiagonal_subset_p(d, e, start=start, count=count)
  return values_of_part(w, outside, n), None, info


@functools.partial(
    jax.jit, static_argnames=("eigvals_only", "select", "select_range", "subset_by_index"))
def _eigh_tridiagonal(d, e, eigvals_only, select, select_range, subset_by_index):
  d, e, dtype = _operands(d, e)
  chosen = _chosen(select, select_range, subset_by_index, d.shape[-1])
  w, v, info = _of_chosen(d.real, e, chosen, not eigvals_only)
  check_converged(info, "eigendecomposition")
  w = w.astype(real_dtype(dtype))
  return w if v is None else (w, v.astype(dtype))


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
    subset_by_index: tuple[int, int] | None = None,
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
    subset_by_index: tuple[int, int] | None = None,
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
    subset_by_index: tuple[int, int] | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...


@public(
    "eigvals_only", "select", "select_range", "subset_by_index", compiled=False, lists=True)
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: jax.Array | None = None,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
  """Eigenvalues and eigenvectors of Hermitian tridiagonal matrices; `jax.scipy`'s
  `eigh_tridiagonal`.

  Args:
    d: the diagonals (..., n). If complex, the real part is used.
    e: the elements above them (..., n - 1), of the dtype of `d`. The elements below are their
      conjugates.
    eigvals_only: whether to return the eigenvalues alone.
    select: 'a' for all eigenvalues, 'i' for those with the indices `select_range`, the last
      included. 'v' is not implemented, as in jax.scipy.
    select_range: (first, last) for select='i'.
    tol, key: not used. The eigenvalues always have full accuracy.
    subset_by_index: (start, stop), the indices of the k = stop - start eigenvalues to return, from
      the smallest, `stop` excluded. On a CPU only these are computed, unless n is small.

  Returns:
    (eigenvalues, eigenvectors): real (..., n) in ascending order, and (..., n, n) with the
    orthonormal eigenvectors in columns; or the eigenvalues. For a subset, they are (..., k) and
    (..., n, k). Where d or e holds NaN or Inf, or the
    iteration does not converge, they are NaN for that matrix; see `checked`.

  Derivatives are those of `eigh`. float16 and bfloat16 are computed in float32, and the results
  rounded.

  Algorithm: divide and conquer. Small matrices and the largest ones use LAPACK stevd. A few chosen
  eigenvalues are found by bisection, and their vectors by inverse iteration. Their derivatives
  solve with T - λ I in the complement of the chosen vectors (Sternheimer; see `eigh`).

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> w, v = linalg.eigh_tridiagonal(jnp.array([2.0, 2.0]), jnp.array([1.0]))
    >>> print(w.round(4))
    [1. 3.]
    >>> linalg.eigh_tridiagonal(jnp.ones((10, 5)), jnp.ones((10, 4)), eigvals_only=True).shape
    (10, 5)
  """
  del tol, key
  return _eigh_tridiagonal(d, e, eigvals_only, select, select_range, subset_by_index)
