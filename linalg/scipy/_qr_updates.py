"""QR factors of a matrix that was changed in a few rows or columns, from the factors before."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

import linalg
from linalg import ffi
from linalg._core.operands import as_arrays, as_integer, check_matrix, incompatible
from linalg._core.public import public
from linalg._factorizations.matmul import product

__all__ = ["qr_delete", "qr_insert", "qr_update"]


def _checked(
    name: str, q: Any, r: Any, *others: Any, vectors: tuple[int, ...] = ()
) -> tuple[jax.Array, jax.Array, list[jax.Array], bool, Any]:
  """(Q, R, others, whether the factors are economic, dtype); vectors become columns or rows.

  `vectors` has, for each of the others, the axis along which a vector becomes a matrix.
  """
  (q, r, *rest), dtype = as_arrays(name, q, r, *others)
  check_matrix(name, q, "Q")
  check_matrix(name, r, "R")
  m, k = q.shape[-2:]
  if r.shape[-2] != k or (k != m and (k > m or r.shape[-1] != k)):
    raise ValueError(
        f"{name}: Q and R must be (..., m, m) and (..., m, n), or (..., m, n) and (..., n, n) with "
        f"m > n, got {q.shape} and {r.shape}.")
  rest = [
      jnp.expand_dims(x, axis) if x.ndim == 1 else x
      for x, axis in zip(rest, vectors, strict=True)]
  for x in rest:
    check_matrix(name, x)
  q, r, *rest = ffi.broadcast_batches(name, (q, r, *rest), (2,) * (2 + len(rest)))
  return q, r, rest, k != m, dtype


def _which(name, which):
  if which not in ("row", "col"):
    raise ValueError(f"{name}: which must be 'row' or 'col', got {which!r}.")
  return -2 if which == "row" else -1


def _inserted(a, k, x, axis):
  before, after = jnp.split(a, [k], axis)
  return jnp.concatenate([before, x, after], axis)


def _deleted(a, k, p, axis):
  before, _, after = jnp.split(a, [k, k + p], axis)
  return jnp.concatenate([before, after], axis)


def _factors(a, mode, dtype, q=None):
  """The factors of A, or those of Q A."""
  own, r = linalg.qr(a, mode)
  return (own if q is None else product(q, own)).astype(dtype), r.astype(dtype)


@public("overwrite_qruv", "check_finite", lists=True)
def qr_update(
    Q: ArrayLike,
    R: ArrayLike,
    u: ArrayLike,
    v: ArrayLike,
    overwrite_qruv: bool = False,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array]:
  """QR factors of Q R + u vᴴ; `scipy.linalg.qr_update`, batched.

  Args:
    Q, R: factors of A, full, (..., m, m) and (..., m, n), or economic, (..., m, n) and (..., n, n)
      with m > n.
    u: (m,), or (..., m, k) for a change of rank k.
    v: (n,), or (..., n, k).
    overwrite_qruv, check_finite: not used.

  Returns:
    (Q, R) of the new matrix, full or economic as they were.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: full factors are Q times those of R + (Qᴴ u) vᴴ; economic ones are those of Q R + u vᴴ.
  Batches then run in the handlers of `qr`, and derivatives are those of `qr`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> q, r = linalg.scipy.qr(jnp.eye(2))
    >>> q, r = linalg.scipy.qr_update(q, r, jnp.array([1.0, 0.0]), jnp.array([0.0, 2.0]))
    >>> print((q @ r).round(4))
    [[1. 2.]
     [0. 1.]]
  """
  del overwrite_qruv, check_finite
  q, r, (left, right), economic, dtype = _checked("qr_update", Q, R, u, v, vectors=(-1, -1))
  if ((left.shape[-2], right.shape[-2]) != (q.shape[-2], r.shape[-1])
      or left.shape[-1] != right.shape[-1]):
    raise incompatible("qr_update", q, r, left, right, names=("Q", "R", "u", "v"))
  if economic:
    return _factors(product(q, r) + product(left, right, adjoint_b=True), "reduced", dtype)
  change = product(product(q, left, adjoint_a=True), right, adjoint_b=True)
  return _factors(r + change, "complete", dtype, q)


@public("k", "which", "rcond", "overwrite_qru", "check_finite", lists=True)
def qr_insert(
    Q: ArrayLike,
    R: ArrayLike,
    u: ArrayLike,
    k: int,
    which: str = "row",
    rcond: Any = None,
    overwrite_qru: bool = False,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array]:
  """QR factors after rows or columns are inserted; `scipy.linalg.qr_insert`, batched.

  Args:
    Q, R: factors of A, as for `qr_update`.
    u: a row (n,) or rows (..., p, n); a column (m,) or columns (..., m, p).
    k: the index before which they are inserted.
    which: 'row' or 'col'.
    rcond, overwrite_qru, check_finite: not used. A column that depends on the others has no
      derivative, but has factors.

  Returns:
    (Q, R) of the new matrix, full or economic as they were. Economic factors of a matrix that has
    become wider than tall have Q of shape (..., m, m).

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: rows are inserted by a QR of R with the rows beside it, and columns of full factors by
  a QR of R with Qᴴ u. Economic factors with more columns are those of the new matrix. Derivatives
  are those of `qr`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> q, r = linalg.scipy.qr(jnp.eye(2))
    >>> q, r = linalg.scipy.qr_insert(q, r, jnp.array([3.0, 4.0]), 0)
    >>> print((q @ r).round(4))
    [[3. 4.]
     [1. 0.]
     [0. 1.]]
  """
  del rcond, overwrite_qru, check_finite
  axis = _which("qr_insert", which)
  q, r, (new,), economic, dtype = _checked("qr_insert", Q, R, u, vectors=(axis,))
  m, n = q.shape[-2], r.shape[-1]
  size, other = (m, n) if which == "row" else (n, m)
  if new.shape[-1 if which == "row" else -2] != other:
    raise incompatible("qr_insert", q, r, new, names=("Q", "R", "u"))
  k = as_integer("qr_insert", "k", k, -size, size)
  k = k + size if k < 0 else k
  if which == "col":
    if economic:
      return _factors(_inserted(product(q, r), k, new, -1), "reduced", dtype)
    return _factors(
        _inserted(r, k, product(q, new, adjoint_a=True), -1), "complete", dtype, q)
  rank = q.shape[-1]
  own, r = linalg.qr(jnp.concatenate([r, new], -2), "reduced" if economic else "complete")
  own, new = own[..., :rank, :], own[..., rank:, :]
  return _inserted(product(q, own), k, new, -2).astype(dtype), r.astype(dtype)


@public("k", "p", "which", "overwrite_qr", "check_finite", lists=True)
def qr_delete(
    Q: ArrayLike,
    R: ArrayLike,
    k: int,
    p: int = 1,
    which: str = "row",
    overwrite_qr: bool = False,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array]:
  """QR factors after rows or columns are deleted; `scipy.linalg.qr_delete`, batched.

  Args:
    Q, R: factors of A, as for `qr_update`.
    k: the index of the first row or column to delete.
    p: how many to delete.
    which: 'row' or 'col'.
    overwrite_qr, check_finite: not used.

  Returns:
    (Q, R) of the remaining matrix, full or economic as they were. Economic factors of a matrix that
    has become wider than tall have Q of shape (..., m, m).

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: columns are deleted by a QR of the other columns of R, rows of full factors by a QR of
  the other rows of Q R. Other rows of an economic Q are factored alone. Derivatives are those of
  `qr`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> q, r = linalg.scipy.qr(jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    >>> q, r = linalg.scipy.qr_delete(q, r, 1)
    >>> print((q @ r).round(4))
    [[1. 2.]
     [5. 6.]]
  """
  del overwrite_qr, check_finite
  axis = _which("qr_delete", which)
  q, r, _, economic, dtype = _checked("qr_delete", Q, R)
  m, n = q.shape[-2], r.shape[-1]
  size = m if which == "row" else n
  k = as_integer("qr_delete", "k", k, -size, size - 1)
  k = k + size if k < 0 else k
  p = as_integer("qr_delete", "p", p, 1, size - k)
  mode = "reduced" if economic else "complete"
  if axis == -1:
    return _factors(_deleted(r, k, p, -1), mode, dtype, q)
  rows = _deleted(q, k, p, -2)
  if not economic:
    return _factors(product(rows, r), mode, dtype)
  # The rows are well conditioned, whatever R is, and the product of two triangles is one.
  q, own = linalg.qr(rows)
  return q.astype(dtype), jnp.triu(product(own, r)).astype(dtype)
