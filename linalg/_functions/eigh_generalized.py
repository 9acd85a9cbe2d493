"""Generalized eigenvalues and eigenvectors of pairs of Hermitian matrices."""

from typing import Any, Literal, overload

import jax
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import adjoint, hermitian_part
from linalg._core.checks import check, check_converged
from linalg._core.operands import as_arrays, as_indices, check_square, incompatible, real_dtype
from linalg._core.public import public
from linalg._factorizations.cholesky import cholesky_p
from linalg._factorizations.eigh import eigh_of, eigvalsh_of, subset_range
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["eigh_generalized"]

INDEFINITE = "has an indefinite b: its leading minor of order {info} is not positive."


def _reduce(a, factor, problem):
  """Returns the Hermitian C with the problem's eigenvalues, where B = L Lᴴ and `factor` is L."""
  if problem == 1:  # L⁻¹ A L⁻ᴴ
    half = triangular_solve_p(factor, a, left_side=True, lower=True)
    return triangular_solve_p(
        factor, half, left_side=False, lower=True, transpose_a=True, conjugate_a=True)
  return congruence(factor, a, adjoint_a=True)


def _restore(factor, y, problem):
  """The eigenvectors of the problem from those of C."""
  if problem == 3:
    return product(factor, y)
  return triangular_solve_p(
      factor, y, left_side=True, lower=True, transpose_a=True, conjugate_a=True)


def _chosen(eigvals, subset_by_index, n):
  """(start, count) of the eigenvalues, or None for all, from either parameter."""
  name = "eigh_generalized"
  if eigvals is None:
    return subset_range(name, subset_by_index, n)
  if subset_by_index is not None:
    raise ValueError(f"{name}: only one of eigvals and subset_by_index may be given.")
  first, last = as_indices(name, "eigvals", eigvals, n)
  return subset_range(name, (first, last + 1), n)


@overload
def eigh_generalized(
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
) -> tuple[jax.Array, jax.Array]: ...


@overload
def eigh_generalized(
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
) -> jax.Array: ...


@overload
def eigh_generalized(
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
) -> jax.Array: ...


@overload
def eigh_generalized(
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
) -> jax.Array | tuple[jax.Array, jax.Array]: ...


@public(
    "lower", "eigvals_only", "overwrite_a", "overwrite_b", "turbo", "eigvals", "type",
    "check_finite", "subset_by_index")
def eigh_generalized(
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
) -> Any:
  """Eigenvalues and eigenvectors of A v = w B v; `jax.scipy.linalg.eigh`.

  JAX has no B; with it, the function is SciPy's `eigh`.

  Args:
    a: Hermitian matrices (..., n, n) of any floating, complex or integer dtype.
    b: Hermitian positive definite matrices (..., n, n), whose batch broadcasts against that of `a`.
      None is the identity.
    lower: which triangle of `a` and of `b` is read.
    eigvals_only: whether to return the eigenvalues alone.
    eigvals: (first, last), the indices of the eigenvalues to return, the last included.
    subset_by_index: (start, stop), as for `eigh`: `stop` is excluded. SciPy's parameter of this
      name, which includes the last index, is that of `linalg.scipy.eigh`.
    type: 1 for A v = w B v, 2 for A B v = w v, 3 for B A v = w v.
    overwrite_a, overwrite_b, turbo, check_finite: not used.

  Returns:
    (eigenvalues, eigenvectors), or the eigenvalues alone. Eigenvalues are real (..., n), in
    ascending order. Eigenvectors are the columns of V, (..., n, n), with Vᴴ B V = I (Vᴴ B⁻¹ V = I
    for type 3). Where B is not positive definite, or a matrix holds NaN or Inf, results are NaN for
    that pair. See `checked`.

  Derivatives are those of `eigh`. They are right for distinct eigenvalues, and at equal ones for
  functions that do not depend on the basis of the eigenspace. float16 and bfloat16 are computed in
  float32.

  Algorithm: Cholesky factors of B, triangular solves and `eigh`, as LAPACK sygvd.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a, b = jnp.diag(jnp.array([2.0, 3.0])), jnp.diag(jnp.array([4.0, 1.0]))
    >>> w, v = linalg.eigh_generalized(a, b)
    >>> print(w.round(4))
    [0.5 3. ]
    >>> print(jnp.allclose(v.mT @ b @ v, jnp.eye(2), atol=1e-6))
    True
  """
  del overwrite_a, overwrite_b, turbo, check_finite
  name = "eigh_generalized"
  if type not in (1, 2, 3):
    raise ValueError(f"{name}: type must be 1, 2 or 3, got {type!r}.")
  operands, dtype = as_arrays(name, *((a,) if b is None else (a, b)))
  for operand, x in zip("ab", operands, strict=False):
    check_square(name, x, operand)
  ffi.refuse_sharded(name, *operands)
  matrix = hermitian_part(operands[0], lower=lower, symmetrize=False)
  factor = None
  if b is not None:
    if operands[0].shape[-1] != operands[1].shape[-1]:
      raise incompatible(name, *operands, names=("a", "b"))
    factor, info = cholesky_p(operands[1], lower=lower, symmetrize=False)
    check(info, INDEFINITE)
    factor = factor if lower else adjoint(factor)
    matrix = _reduce(matrix, factor, type)
  chosen = _chosen(eigvals, subset_by_index, matrix.shape[-1])
  real = real_dtype(dtype)
  if eigvals_only:
    w, info = eigvalsh_of(matrix, chosen, lower=True, symmetrize=True)
    check_converged(info, "eigendecomposition")
    return w.astype(real)
  w, v, info = eigh_of(matrix, chosen, lower=True, symmetrize=True)
  check_converged(info, "eigendecomposition")
  v = v if factor is None else _restore(factor, v, type)
  return w.astype(real), v.astype(dtype)
