"""Functions of `jax.lax.linalg` whose names, options or order of results differ from this
package's.

An algorithm that is requested by name is JAX's, so JAX's function is called.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.lax.linalg
from jax.typing import ArrayLike

import linalg
from linalg._core.public import public, with_types_of

__all__ = ["cholesky", "cholesky_update", "eig", "eigh", "lu", "qr", "schur", "svd"]


@with_types_of(jax.lax.linalg.cholesky)
@public("symmetrize_input")
def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> jax.Array:
  """The lower Cholesky factor; `jax.lax.linalg.cholesky`. See `linalg.cholesky`.

  Args:
    x: matrices (..., n, n).
    symmetrize_input: if false, the lower triangle alone is read.

  Returns:
    The factors (..., n, n); NaN where the matrix is not positive definite.

  Example:
    >>> import jax.numpy as jnp, linalg.lax
    >>> print(linalg.lax.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]])))
    [[2. 0.]
     [1. 1.]]
  """
  return linalg.cholesky(x, symmetrize_input=symmetrize_input)


@with_types_of(jax.lax.linalg.cholesky_update)
@public()
def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> jax.Array:
  """The upper factor of Rᴴ R + w wᴴ; `jax.lax.linalg.cholesky_update`, batched.

  See `linalg.cholesky_update`, which subtracts w wᴴ too.

  Args:
    r_matrix: upper triangular matrices R (..., n, n).
    w_vector: vectors w (..., n).

  Returns:
    The upper factors (..., n, n); NaN where an operand holds NaN.

  Example:
    >>> import jax.numpy as jnp, linalg.lax
    >>> print(linalg.lax.cholesky_update(3 * jnp.eye(2), jnp.array([4.0, 0.0])).round(4))
    [[5. 0.]
     [0. 3.]]
  """
  return linalg.cholesky_update(r_matrix, w_vector)


@with_types_of(jax.lax.linalg.eig)
@public(
    "compute_left_eigenvectors", "compute_right_eigenvectors", "enable_eigvec_derivs",
    "implementation", "use_magma")
def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: jax.lax.linalg.EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[jax.Array]:
  """Eigenvalues and eigenvectors of general matrices; `jax.lax.linalg.eig`. See `linalg.eig`.

  Args:
    x: matrices (..., n, n).
    compute_left_eigenvectors, compute_right_eigenvectors: which eigenvectors to return.
    enable_eigvec_derivs: not used. The eigenvectors always have derivatives.
    implementation, use_magma: if one is given, JAX's function is called.

  Returns:
    A list: the eigenvalues, then the left and the right eigenvectors that were asked for.

  Example:
    >>> import jax.numpy as jnp, linalg.lax
    >>> w, left, right = linalg.lax.eig(jnp.array([[2.0, 1.0], [0.0, 3.0]]))
    >>> print(jnp.sort(w.real))
    [2. 3.]
  """
  if implementation is not None or use_magma is not None:
    return jax.lax.linalg.eig(
        x, compute_left_eigenvectors=compute_left_eigenvectors,
        compute_right_eigenvectors=compute_right_eigenvectors,
        enable_eigvec_derivs=enable_eigvec_derivs, implementation=implementation,
        use_magma=use_magma)
  if compute_left_eigenvectors:
    w, left, right = linalg.eig(x, left=True)
    return [w, left, *[right] * compute_right_eigenvectors]
  return [*linalg.eig(x)] if compute_right_eigenvectors else [linalg.eigvals(x)]


@with_types_of(jax.lax.linalg.eigh)
@public("lower", "symmetrize_input", "sort_eigenvalues", "subset_by_index", "implementation")
def eigh(
    x: jax.Array,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: jax.lax.linalg.EighImplementation | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Eigenvectors and eigenvalues of Hermitian matrices; `jax.lax.linalg.eigh`.

  See `linalg.eigh`, which returns them in the other order.

  Args:
    x: matrices (..., n, n).
    lower: the triangle that is read if `symmetrize_input` is false.
    symmetrize_input: whether to decompose (A + Aᴴ) / 2.
    sort_eigenvalues: not used. They are always in ascending order.
    subset_by_index: (start, stop), as for `linalg.eigh`.
    implementation: if given, JAX's function is called.

  Returns:
    The tuple (eigenvectors, eigenvalues).

  Example:
    >>> import jax.numpy as jnp, linalg.lax
    >>> v, w = linalg.lax.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]]))  # vectors first
    >>> print(w.round(4))
    [1. 3.]
  """
  if implementation is not None:
    return jax.lax.linalg.eigh(
        x, lower=lower, symmetrize_input=symmetrize_input, sort_eigenvalues=sort_eigenvalues,
        subset_by_index=subset_by_index, implementation=implementation)
  w, v = linalg.eigh(
      x, "L" if lower else "U", symmetrize_input, subset_by_index=subset_by_index)
  return v, w


@with_types_of(jax.lax.linalg.lu)
@public()
def lu(x: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
  """LU factors with pivots and the permutation; `jax.lax.linalg.lu`. See `linalg.lu`.

  Args:
    x: matrices (..., m, n).

  Returns:
    (lu, pivots, permutation), as from `linalg.lu`.

  Example:
    >>> import jax.numpy as jnp, linalg.lax
    >>> packed, pivots, permutation = linalg.lax.lu(jnp.array([[1.0, 3.0], [2.0, 4.0]]))
    >>> print(permutation)
    [1 0]
  """
  return linalg.lu(x)


@with_types_of(jax.lax.linalg.qr)
@public("pivoting", "full_matrices", "use_magma")
def qr(
    x: ArrayLike,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> Any:
  """QR factors; `jax.lax.linalg.qr`. See `linalg.qr`.

  Args:
    x: matrices (..., m, n).
    pivoting: whether to permute columns, and to return the permutation.
    full_matrices: whether Q is (..., m, m), or (..., m, min(m, n)).
    use_magma: if given, JAX's function is called.

  Returns:
    (Q, R), or with `pivoting` (Q, R, permutation).

  Example:
    >>> import jax.numpy as jnp, linalg.lax
    >>> q, r = linalg.lax.qr(jnp.ones((3, 2)))
    >>> q.shape, r.shape
    ((3, 3), (3, 2))
  """
  if use_magma is not None:
    return jax.lax.linalg.qr(
        x, pivoting=pivoting, full_matrices=full_matrices, use_magma=use_magma)
  return tuple(linalg.qr(x, "complete" if full_matrices else "reduced", pivoting=pivoting))


@with_types_of(jax.lax.linalg.schur)
@public("compute_schur_vectors", "sort_eig_vals", "select_callable")
def schur(
    x: ArrayLike,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> Any:
  """Schur form; `jax.lax.linalg.schur`. See `linalg.schur`.

  Args:
    x: matrices (..., n, n).
    compute_schur_vectors: whether to return Z.
    sort_eig_vals: not implemented, as in JAX; raises NotImplementedError.
    select_callable: not used.

  Returns:
    (T, Z), or (T,).

  Example:
    >>> import jax.numpy as jnp, linalg.lax
    >>> t, z = linalg.lax.schur(jnp.diag(jnp.array([1.0, 2.0])))
    >>> print(jnp.sort(jnp.diag(t)))
    [1. 2.]
  """
  del select_callable
  if sort_eig_vals:
    raise NotImplementedError("schur: sort_eig_vals must be False: eigenvalues are not sorted.")
  return linalg.schur(x)[: 2 if compute_schur_vectors else 1]


@with_types_of(jax.lax.linalg.svd)
@public("full_matrices", "compute_uv", "subset_by_index", "algorithm")
def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: jax.lax.linalg.SvdAlgorithm | None = None,
) -> Any:
  """Singular values and vectors; `jax.lax.linalg.svd`. See `linalg.svd`.

  Args:
    x: matrices (..., m, n).
    full_matrices, compute_uv, subset_by_index: as for `linalg.svd`.
    algorithm: if given, and not DEFAULT, JAX's function is called.

  Returns:
    (U, s, Vᴴ), or s.

  Example:
    >>> import jax.numpy as jnp, linalg.lax
    >>> u, s, vh = linalg.lax.svd(jnp.diag(jnp.array([2.0, 3.0])))
    >>> print(s.round(4))
    [3. 2.]
  """
  if algorithm not in (None, jax.lax.linalg.SvdAlgorithm.DEFAULT):
    return jax.lax.linalg.svd(
        x, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index,
        algorithm=algorithm)
  result = linalg.svd(x, full_matrices, compute_uv, subset_by_index=subset_by_index)
  return tuple(result) if compute_uv else result
