"""Functions of `jax.scipy.linalg` that differ from this package's functions of the same names."""

import functools
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jax.typing import ArrayLike

import linalg
from linalg import ffi
from linalg._core.algebra import expand, identity, permutation_matrix, symmetrized
from linalg._core.operands import (
  as_arrays,
  as_indices,
  check_arrays,
  check_matrix,
  check_square,
  real_dtype,
)
from linalg._core.public import public, with_types_of
from linalg._factorizations.lu import inverse_permutation_p
from linalg._factorizations.matmul import product
from linalg.scipy._drivers import check_driver, check_driver_of_eigh
from linalg.scipy._intervals import in_interval, interval, size_of_interval

__all__ = ["cholesky", "det", "eigh", "lu", "qr", "qr_multiply", "svd"]


@with_types_of(jax.scipy.linalg.cholesky)
@public("lower", "overwrite_a", "check_finite", lists=True)
def cholesky(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> jax.Array:
  """The Cholesky factor; `jax.scipy.linalg.cholesky`. See `linalg.cholesky`.

  Args:
    a: matrices (..., n, n). Only the named triangle is read.
    lower: whether that is the lower one, and the factor lower triangular.
    overwrite_a, check_finite: not used.

  Returns:
    The factors (..., n, n); NaN where the matrix is not positive definite.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]]), lower=True))
    [[2. 0.]
     [1. 1.]]
  """
  del overwrite_a, check_finite
  return linalg.cholesky(a, upper=not lower, symmetrize_input=False)


@with_types_of(jax.scipy.linalg.det)
@public("overwrite_a", "check_finite", lists=True)
def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> jax.Array:
  """The determinant; `jax.scipy.linalg.det`. See `linalg.det`.

  Args:
    a: matrices (..., n, n).
    overwrite_a, check_finite: not used.

  Returns:
    The determinants (...), 0 where the matrix is singular.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.det(jnp.array([[1.0, 2.0], [3.0, 4.0]])).round(4))
    -2.0
  """
  del overwrite_a, check_finite
  return linalg.det(a)


@overload
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: Literal[False] = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: tuple[int, int] | None = None,
    type: int = 1,
    check_finite: bool = True,
    *,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[float, float] | None = None,
    driver: str | None = None,
) -> tuple[jax.Array, jax.Array]: ...


@overload
def eigh(
    a: ArrayLike,
    b: ArrayLike | None,
    lower: bool,
    eigvals_only: Literal[True],
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: tuple[int, int] | None = None,
    type: int = 1,
    check_finite: bool = True,
    *,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[float, float] | None = None,
    driver: str | None = None,
) -> jax.Array: ...


@overload
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    *,
    eigvals_only: Literal[True],
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: tuple[int, int] | None = None,
    type: int = 1,
    check_finite: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[float, float] | None = None,
    driver: str | None = None,
) -> jax.Array: ...


@overload
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: tuple[int, int] | None = None,
    type: int = 1,
    check_finite: bool = True,
    *,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[float, float] | None = None,
    driver: str | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...


@public(
    "lower", "eigvals_only", "overwrite_a", "overwrite_b", "turbo", "eigvals", "type",
    "check_finite", "subset_by_index", "subset_by_value", "driver", compiled=False, lists=True)
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: tuple[int, int] | None = None,
    type: int = 1,
    check_finite: bool = True,
    *,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[float, float] | None = None,
    driver: str | None = None,
) -> Any:
  """Eigenvalues and eigenvectors of A v = w B v; `jax.scipy.linalg.eigh`.

  Args:
    a, b, eigvals_only, eigvals, type: as for `linalg.eigh_generalized`, but both triangles are
      read, as in JAX: (A + Aᴴ) / 2 and (B + Bᴴ) / 2 are used.
    subset_by_index: SciPy's name of `eigvals`, the first and the last index, the last included.
    subset_by_value: (low, high), to return the eigenvalues in the interval (low, high], as for
      `linalg.scipy.eigvalsh`.
    driver: SciPy's name of a LAPACK routine. It is checked, and changes nothing.
    lower, overwrite_a, overwrite_b, turbo, check_finite: not used.

  Returns:
    (eigenvalues, eigenvectors), or the eigenvalues.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> a, b = jnp.diag(jnp.array([2.0, 3.0])), jnp.diag(jnp.array([4.0, 1.0]))
    >>> print(linalg.scipy.eigh(a, b, eigvals_only=True).round(4))
    [0.5 3. ]
    >>> print(linalg.scipy.eigh(a, b, eigvals_only=True, subset_by_index=(1, 1)).round(4))
    [3.]
  """
  hash(lower)  # an array is an error, as for options that are used
  del lower, overwrite_a, overwrite_b, turbo, check_finite
  check_driver_of_eigh(
      "eigh", driver, generalized=b is not None,
      subset=any(x is not None for x in (eigvals, subset_by_index, subset_by_value)))
  if subset_by_value is not None:
    if (eigvals, subset_by_index) != (None, None):
      raise ValueError(
          "eigh: only one of eigvals, subset_by_index and subset_by_value may be specified.")
    return _eigh_in(a, b, eigvals_only, type, interval("eigh", "subset_by_value", subset_by_value))
  if eigvals is not None and subset_by_index is not None:
    raise ValueError("eigh: only one of eigvals and subset_by_index may be specified.")
  for parameter, subset in (("eigvals", eigvals), ("subset_by_index", subset_by_index)):
    if subset is not None:
      check_arrays("eigh", a)
      check_square("eigh", a := jnp.asarray(a), "a")
      eigvals = as_indices("eigh", parameter, subset, a.shape[-1])
  return _eigh(a, b, eigvals_only, eigvals, type)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _eigh(a, b, eigvals_only, eigvals, kind):
  if b is None and kind == 1 and eigvals is None:
    return linalg.eigvalsh(a) if eigvals_only else tuple(linalg.eigh(a))
  operands, _ = as_arrays("eigh", *((a,) if b is None else (a, b)))
  for operand, x in zip("ab", operands, strict=False):
    check_square("eigh", x, operand)
  first, *rest = map(symmetrized, operands)
  return linalg.eigh_generalized(
      first, rest[0] if rest else None, eigvals_only=eigvals_only, eigvals=eigvals, type=kind)


def _eigh_in(a, b, eigvals_only, kind, bounds):
  low, high = bounds
  found = _eigh(a, b, eigvals_only, None, kind)
  w, v = (found, None) if eigvals_only else found
  size = size_of_interval("eigh", w, low, high, "Choose eigenvalues by index there.")
  w, v = in_interval(w, v, low, high, size)
  return w if v is None else (w, v)


@overload
def lu(
    a: ArrayLike,
    permute_l: Literal[False] = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    p_indices: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]: ...


@overload
def lu(
    a: ArrayLike,
    permute_l: Literal[True],
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    p_indices: bool = False,
) -> tuple[jax.Array, jax.Array]: ...


@overload
def lu(
    a: ArrayLike,
    permute_l: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    p_indices: bool = False,
) -> tuple[jax.Array, jax.Array] | tuple[jax.Array, jax.Array, jax.Array]: ...


@public("permute_l", "overwrite_a", "check_finite", "p_indices", lists=True)
def lu(
    a: ArrayLike,
    permute_l: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    p_indices: bool = False,
) -> Any:
  """LU factors, A = P L U; `jax.scipy.linalg.lu`, batched. See `linalg.lu`.

  Args:
    a: matrices (..., m, n), k = min(m, n).
    permute_l: whether to return P L rather than P and L.
    p_indices: SciPy's option, whether P is given by int32 indices p (..., m) of rows: P L is
      L[p].
    overwrite_a, check_finite: not used.

  Returns:
    (P, L, U), of shapes (..., m, m), (..., m, k) and (..., k, n), with a real P; or (P L, U).

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> p, l, u = linalg.scipy.lu(jnp.array([[1.0, 3.0], [2.0, 4.0]]))
    >>> print(p @ l @ u)
    [[1. 3.]
     [2. 4.]]
    >>> linalg.scipy.lu(jnp.ones((10, 3, 2)))[1].shape
    (10, 3, 2)
  """
  del overwrite_a, check_finite
  (a,), dtype = as_arrays("lu", a)
  check_matrix("lu", a)
  packed, _, permutation = linalg.lu(a)
  k = min(a.shape[-2:])
  l = jnp.tril(packed, -1)[..., :k]
  l = l + identity(l)
  u = jnp.triu(packed)[..., :k, :].astype(dtype)
  if permute_l:
    return product(permutation_matrix(permutation, a.dtype).mT, l).astype(dtype), u
  if p_indices:
    index = jnp.arange(a.shape[-2], dtype=permutation.dtype)
    _, order = inverse_permutation_p(permutation, expand(index, permutation))
    return order, l.astype(dtype), u
  return permutation_matrix(permutation, real_dtype(dtype)).mT, l.astype(dtype), u


@with_types_of(jax.scipy.linalg.qr)
@public("overwrite_a", "lwork", "mode", "pivoting", "check_finite", lists=True)
def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
  """QR factors; `jax.scipy.linalg.qr`. See `linalg.qr`.

  Args:
    a: matrices (..., m, n), k = min(m, n).
    mode: 'full' for Q (..., m, m) and R (..., m, n); 'economic' for Q (..., m, k) and R
      (..., k, n); 'r' for R (..., m, n) alone; 'raw' for LAPACK's reflectors and R in one matrix
      (..., m, n), their scales (..., k), and R (..., k, n). A is factored twice for 'raw' with
      pivoting: to find the permutation, and with its columns permuted.
    pivoting: whether to permute columns, and to return the permutation too.
    overwrite_a, lwork, check_finite: not used.

  Returns:
    (Q, R), (Q, R, permutation), (R,) or (R, permutation); with 'raw' ((reflectors, scales), R) or
    ((reflectors, scales), R, permutation).

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> q, r = linalg.scipy.qr(jnp.ones((3, 2)), mode="economic")
    >>> q.shape, r.shape
    ((3, 2), (2, 2))
  """
  del overwrite_a, lwork, check_finite
  if mode == "economic":
    return tuple(linalg.qr(a, pivoting=pivoting))
  if mode == "full":
    return tuple(linalg.qr(a, "complete", pivoting=pivoting))
  if mode == "raw":
    (a,), dtype = as_arrays("qr", a)
    permutation: list[jax.Array] = []
    if pivoting:  # the pivoted factorization returns no reflectors
      _, *permutation = linalg.qr(a, "r", pivoting=True)
      a = product(a, permutation_matrix(permutation[0], a.dtype).mT)
    packed, scales = (x.astype(dtype) for x in linalg.qr(a, "raw"))
    packed = packed.mT
    return (packed, scales), jnp.triu(packed[..., : scales.shape[-1], :]), *permutation
  if mode != "r":
    raise ValueError(f"qr: mode must be 'full', 'economic', 'r' or 'raw', got {mode!r}.")
  r, *rest = linalg.qr(a, "r", pivoting=True) if pivoting else (linalg.qr(a, "r"),)
  below = jnp.shape(a)[-2] - r.shape[-2]
  return jnp.pad(r, ((0, 0),) * (r.ndim - 2) + ((0, below), (0, 0))), *rest


@with_types_of(jax.scipy.linalg.qr_multiply)
@public("mode", "pivoting", "conjugate", "overwrite_a", "overwrite_c", lists=True)
def qr_multiply(
    a: ArrayLike,
    c: ArrayLike,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> Any:
  """Q C or C Q with the Q of A = Q R; `jax.scipy.linalg.qr_multiply`.

  Args:
    a: matrices (..., m, n); Q is (..., m, k), k = min(m, n).
    c: matrices (..., k, p) if mode is 'left', (..., p, m) if it is 'right'; or a vector.
    mode: on which side of C Q stands.
    pivoting: whether to permute columns of A, and to return the permutation too.
    conjugate: whether to multiply by the complex conjugate of Q.
    overwrite_a, overwrite_c: not used.

  Returns:
    (product, R) or (product, R, permutation).

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> product, r = linalg.scipy.qr_multiply(jnp.ones((3, 2)), jnp.ones((5, 3)))
    >>> product.shape, r.shape
    ((5, 2), (2, 2))
  """
  del overwrite_a, overwrite_c
  (a, c), dtype = as_arrays("qr_multiply", a, c)
  check_matrix("qr_multiply", a, "a")
  if mode not in ("left", "right"):
    raise ValueError(f"qr_multiply: mode must be 'right' or 'left', got {mode!r}.")
  left, vector = mode == "left", c.ndim == 1
  if vector:
    c = c[:, None] if left else c[None, :]
  rows, cols = a.shape[-2], min(a.shape[-2:])
  if c.ndim < 2 or c.shape[-2 if left else -1] != (cols if left else rows):
    raise ValueError(
        f"qr_multiply: c must have {cols if left else rows} {'rows' if left else 'columns'} for Q "
        f"of shape {(rows, cols)}, got {c.shape}.")
  q, r, *permutation = linalg.qr(a, pivoting=pivoting)
  q, c = ffi.broadcast_batches("qr_multiply", (q.conj() if conjugate else q, c), (2, 2))
  result = product(q, c) if left else product(c, q)
  if vector:
    result = result[..., 0] if left else result[..., 0, :]
  return result.astype(dtype), r.astype(dtype), *permutation


@with_types_of(jax.scipy.linalg.svd)
@public("full_matrices", "compute_uv", "overwrite_a", "check_finite", "lapack_driver", lists=True)
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
  """Singular values and vectors; `jax.scipy.linalg.svd`. See `linalg.svd`.

  Args:
    a: matrices (..., m, n).
    full_matrices, compute_uv: as for `linalg.svd`.
    lapack_driver: SciPy's name of a LAPACK routine. It is checked, and changes nothing.
    overwrite_a, check_finite: not used.

  Returns:
    (U, s, Vᴴ), or s.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.svd(jnp.diag(jnp.array([2.0, 3.0])), compute_uv=False).round(4))
    [3. 2.]
  """
  del overwrite_a, check_finite
  check_driver("svd", lapack_driver, ("gesdd", "gesvd"))
  result = linalg.svd(a, full_matrices, compute_uv)
  return tuple(result) if compute_uv else result
