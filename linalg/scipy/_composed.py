"""Matrices composed of others, of singular values and of eigenvalues."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import expand, nan_where, on_diagonal
from linalg._core.checks import check
from linalg._core.operands import (
  as_arrays,
  as_integer,
  check_arrays,
  check_batches,
  check_matrix,
  incompatible,
  real_dtype,
)
from linalg._core.public import public
from linalg._factorizations.matmul import product

__all__ = ["cdf2rdf", "diagsvd", "khatri_rao"]


@public(lists=True)
def khatri_rao(a: ArrayLike, b: ArrayLike) -> jax.Array:
  """The Kronecker products of the columns of two matrices; `scipy.linalg.khatri_rao`, batched.

  Args:
    a: matrices (..., n, k).
    b: matrices (..., m, k); the batches broadcast.

  Returns:
    Matrices (..., n m, k) of the dtype that both promote to.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.khatri_rao(jnp.array([[1, 2]]), jnp.array([[3, 4], [5, 6]])))
    [[ 3  8]
     [ 5 12]]
  """
  check_arrays("khatri_rao", a, b)
  dtype = jnp.result_type(a, b)
  a, b = jnp.asarray(a, dtype), jnp.asarray(b, dtype)
  check_matrix("khatri_rao", a, "a")
  check_matrix("khatri_rao", b, "b")
  if a.shape[-1] != b.shape[-1]:
    raise incompatible("khatri_rao", a, b, names=("a", "b"))
  check_batches("khatri_rao", a, b, names=("a", "b"))
  a, b = ffi.broadcast_batches("khatri_rao", (a, b), (2, 2))
  pairs = a[..., :, None, :] * b[..., None, :, :]
  return pairs.reshape(*a.shape[:-2], a.shape[-2] * b.shape[-2], a.shape[-1])


@public("M", "N", lists=True)
def diagsvd(s: ArrayLike, M: int, N: int) -> jax.Array:
  """The matrix of the singular values in A = U S Vᴴ; `scipy.linalg.diagsvd`, batched.

  Args:
    s: the singular values (..., min(M, N)).
    M, N: the numbers of rows and columns.

  Returns:
    Matrices (..., M, N), of the dtype of s, with s on the diagonal.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.diagsvd(jnp.array([2, 1]), 2, 3))
    [[2 0 0]
     [0 1 0]]
  """
  check_arrays("diagsvd", s)
  M, N = (as_integer("diagsvd", name, x, 0) for name, x in (("M", M), ("N", N)))
  s = jnp.asarray(s)
  if s.ndim < 1 or s.shape[-1] != min(M, N):
    raise ValueError(f"diagsvd: s must hold min(M, N) = {min(M, N)} values, got {s.shape}.")
  beside = s[..., :, None] if M <= N else s[..., None, :]
  return jnp.where(expand(jnp.eye(M, N, dtype=bool), beside), beside, jnp.zeros((), s.dtype))


@public(lists=True)
def cdf2rdf(w: ArrayLike, v: ArrayLike) -> tuple[jax.Array, jax.Array]:
  """The real block form of a complex eigendecomposition; `scipy.linalg.cdf2rdf`, batched.

  Args:
    w: the eigenvalues (..., n) of real matrices A. The first two that are not real are a conjugate
      pair, the next two another, and so on, as from `linalg.eig`.
    v: the eigenvectors (..., n, n), in columns.

  Returns:
    (wr, vr), real (..., n, n), with A vr = vr wr. A pair x ± i y has the block [[x, y], [-y, x]]
    in wr. Both are NaN where the number of eigenvalues that are not real is odd; see `checked`.

  float16 and bfloat16 are computed in float32, and the results rounded. Derivatives take it as
  given which eigenvalues are real.

  Example:
    >>> import jax.numpy as jnp, linalg, linalg.scipy
    >>> w, v = linalg.eig(jnp.array([[4.0, 5.0], [-5.0, 4.0]]))
    >>> print(jnp.abs(linalg.scipy.cdf2rdf(w, v)[0]).round(4))
    [[4. 5.]
     [5. 4.]]
  """
  (w, v), dtype = as_arrays("cdf2rdf", w, v)
  if w.ndim < 1 or v.ndim < 2 or v.shape[-2:] != (w.shape[-1], w.shape[-1]):
    raise incompatible("cdf2rdf", w, v, names=("w", "v"))
  check_batches("cdf2rdf", w, v, ranks=(1, 2), names=("w", "v"))
  w, v = ffi.broadcast_batches("cdf2rdf", (w, v), (1, 2))
  paired = w.imag != 0
  count = jnp.cumsum(paired, axis=-1, dtype=jnp.int32)
  pair = jnp.where(paired, (count + 1) // 2, 0)
  first, second = paired & (count % 2 == 1), paired & (count % 2 == 0)
  failed = jnp.sum(paired, axis=-1) % 2 == 1
  check(failed.astype(jnp.int32), "has an eigenvalue that is not real, without its conjugate.")
  own = on_diagonal(v)
  other = (pair[..., :, None] == pair[..., None, :]) & paired[..., :, None] & ~own
  wr = jnp.where(own, w.real[..., :, None], jnp.where(other, w.imag[..., :, None], 0))
  # A pair x ± i y, of vectors f and s, becomes (f + s) / 2 for s, and i (f - s) / 2 for f.
  swapped = product(v, other.astype(v.dtype))
  vr = jnp.where(
      first[..., None, :], (swapped.imag - v.imag) / 2,
      jnp.where(second[..., None, :], (v.real + swapped.real) / 2, v.real))
  real = real_dtype(dtype)
  wr, vr = (nan_where(failed, x, core=2).astype(real) for x in (wr, vr))
  return wr, vr
