"""Eigenvalues and eigenvectors of general matrices."""

from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  info_of_nan,
  norm_of_rows,
  one_of_first_order,
  ones_of_first_order,
  reciprocal_gaps,
)
from linalg._core.checks import check_converged
from linalg._core.operands import as_arrays, check_square, complex_dtype
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.solve import solve_p

__all__ = ["EigResult", "eig", "eig_ex", "eigvals", "eigvals_ex"]


class EigResult(NamedTuple):
  """Eigenvalues, and eigenvectors in the columns of a matrix. Both are complex."""

  eigenvalues: jax.Array
  eigenvectors: jax.Array


def _rotate(v, da):
  """V⁻¹ dA V"""
  return solve_p(v, product(da.astype(v.dtype), v))[0]


def _largest(v):
  """A mask of the first largest element of each column."""
  size = jnp.abs(v)
  largest = size == jnp.max(size, axis=-2, keepdims=True, initial=0)
  return largest & (jnp.cumsum(largest, axis=-2) == 1)


def _ones(a, w):
  return ones_of_first_order(w, norm_of_rows(a)[..., None])


def _values_jvp(a, w, c):
  return diagonal_of(c) * _ones(a, w).astype(c.dtype)


def _vectors_jvp(a, w, v, c):
  """dV, given C = V⁻¹ dA V.

  dV = V (F ∘ C) + V diag(g), Fᵢⱼ = 1 / (wⱼ - wᵢ) off the diagonal. Source: Giles, Collected matrix
  derivative results for forward and reverse mode algorithmic differentiation (2008), 3.1. The
  factors g keep LAPACK's normalization: columns of length 1 whose largest element is real. Where a
  gap is within 8 √n eps ‖A‖ the two vectors are not determined and F is 0. Second derivatives are
  NaN there.
  """
  gaps = w[..., None, :] - w[..., :, None]
  norm = norm_of_rows(a)[..., None, None]
  moved = product(v, reciprocal_gaps(gaps, norm, w.shape[-1]) * c)
  return normalized_change(v, moved) * one_of_first_order(_ones(a, w))[..., None].astype(v.dtype)


def normalized_change(v: jax.Array, moved: jax.Array) -> jax.Array:
  """`moved`, the change of vectors, with what keeps their length 1 and their largest element
  real."""
  largest = _largest(jax.lax.stop_gradient(v))
  at_largest = lambda x: jnp.sum(jnp.where(largest, x, 0), axis=-2, keepdims=True)
  stretch = -jnp.sum(v.conj() * moved, axis=-2, keepdims=True).real
  turn = -at_largest(moved).imag / at_largest(v).real
  return moved + v * jax.lax.complex(stretch, turn)


def _eig_jvp(primals, tangents):
  (a,), (da,) = primals, tangents
  w, v, info = eig_p(a)
  c = _rotate(v, da)
  return (w, v, info), (_values_jvp(a, w, c), _vectors_jvp(a, w, v, c), None)


def _eig_left_jvp(primals, tangents):
  # The left vectors are the right ones of Aᴴ, whose eigenvalues are conjugate.
  (a,), (da,) = primals, tangents
  w, left, right, info = eig_left_p(a)
  c = _rotate(right, da)
  dleft = _vectors_jvp(adjoint(a), w.conj(), left, _rotate(left, adjoint(da)))
  dright = _vectors_jvp(a, w, right, c)
  return (w, left, right, info), (_values_jvp(a, w, c), dleft, dright, None)


def _eigvals_jvp(primals, tangents):
  (a,), (da,) = primals, tangents
  w, v, info = eig_p(a)
  return (w, info), (_values_jvp(a, w, _rotate(v, da)), None)


def _make_fallback(left, right):
  def fallback(a):
    results = jax.lax.linalg.eig(
        a, compute_left_eigenvectors=left, compute_right_eigenvectors=right)
    return [*results, info_of_nan(results[0], 1)]

  return fallback


eig_p = ffi.operation(
    "linalg_eig",
    "n n -> n, n n, ()",
    lambda dtype: (complex_dtype(dtype), complex_dtype(dtype), jnp.int32),
    jvp=_eig_jvp,
    fallback=_make_fallback(left=False, right=True))

eig_left_p = ffi.operation(
    "linalg_eig_left",
    "n n -> n, n n, n n, ()",
    lambda dtype: (complex_dtype(dtype), complex_dtype(dtype), complex_dtype(dtype), jnp.int32),
    jvp=_eig_left_jvp,
    fallback=_make_fallback(left=True, right=True))

eigvals_p = ffi.operation(
    "linalg_eigvals",
    "n n -> n, ()",
    lambda dtype: (complex_dtype(dtype), jnp.int32),
    jvp=_eigvals_jvp,
    fallback=_make_fallback(left=False, right=False))


def _eig(name, a, left):
  (a,), _ = as_arrays(name, a)
  check_square(name, a)
  return (eig_left_p if left else eig_p)(a)


@overload
def eig(a: ArrayLike, *, left: Literal[False] = False) -> EigResult: ...


@overload
def eig(a: ArrayLike, *, left: Literal[True]) -> tuple[jax.Array, jax.Array, jax.Array]: ...


@overload
def eig(
    a: ArrayLike, *, left: bool = False
) -> EigResult | tuple[jax.Array, jax.Array, jax.Array]: ...


@public("left")
def eig(a: ArrayLike, *, left: bool = False) -> Any:
  """Eigenvalues and eigenvectors of general matrices; `jax.numpy.linalg.eig`.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.
    left: whether to return the left eigenvectors too.

  Returns:
    EigResult(eigenvalues, eigenvectors): (..., n) in no particular order, and (..., n, n) with the
    eigenvectors in columns, A V = V diag(w). If `left`, the result is the tuple (eigenvalues, left,
    right), leftᴴ A = diag(w) leftᴴ, as in `jax.lax.linalg.eig`. All are complex, of the precision
    of `a` and at least complex64. Where A holds NaN or Inf, or the iteration does not converge,
    they are NaN for that matrix; see `eig_ex` and `checked`.

  Each eigenvector has length 1 and a real largest element. Its sign is LAPACK's choice. A
  derivative follows this normalization. It is right for distinct eigenvalues, where no two elements
  of a vector are largest. Where a gap is within rounding, the rotation within the pair is taken to
  be zero. The derivative is then right for functions of the eigenvalues that are symmetric in the
  pair, if A has a full set of eigenvectors. Second derivatives are NaN there, as in `eigh`. The
  derivative at a defective matrix is infinite.

  Rounding errors are relative to the balanced matrix. Where rows of A are of very different scale,
  A V - V diag(w) may be far larger than rounding errors of A, as it is with LAPACK.

  Algorithm: balancing, Hessenberg form, the shifted QR iteration and back substitution. Small
  matrices are computed one per lane, others by LAPACK geev. float16 and bfloat16 are computed in
  float32.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> w, v = linalg.eig(jnp.array([[2.0, 1.0], [0.0, 3.0]]))
    >>> print(jnp.sort(w.real))
    [2. 3.]
    >>> w.dtype, v.shape
    (dtype('complex64'), (2, 2))
  """
  w, *vectors, info = _eig("eig", a, left)
  check_converged(info, "eigendecomposition")
  return (w, *vectors) if left else EigResult(w, *vectors)


@overload
def eig_ex(
    a: ArrayLike, *, left: Literal[False] = False
) -> tuple[jax.Array, jax.Array, jax.Array]: ...


@overload
def eig_ex(
    a: ArrayLike, *, left: Literal[True]
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]: ...


@overload
def eig_ex(a: ArrayLike, *, left: bool = False) -> tuple[jax.Array, ...]: ...


@public("left")
def eig_ex(a: ArrayLike, *, left: bool = False) -> tuple[jax.Array, ...]:
  """`eig`, with an info for each matrix.

  Args:
    a, left: as for `eig`.

  Returns:
    (eigenvalues, eigenvectors, info), or (eigenvalues, left, right, info). info is int32 of shape
    (...): 0 on success, -1 if the matrix holds NaN or Inf, positive if the iteration did not
    converge. Where it is not 0, the results are NaN.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), jnp.full((2, 2), jnp.nan)])
    >>> w, v, info = linalg.eig_ex(a)
    >>> print(info)
    [ 0 -1]
  """
  return _eig("eig_ex", a, left)


def _eigvals(name, a):
  (a,), _ = as_arrays(name, a)
  check_square(name, a)
  return eigvals_p(a)


@public()
def eigvals(a: ArrayLike) -> jax.Array:
  """Eigenvalues of general matrices; `jax.numpy.linalg.eigvals`.

  Args:
    a: as for `eig`.

  Returns:
    The eigenvalues, complex (..., n), in no particular order; NaN where `eig` gives NaN.

  Algorithm: as for `eig`, without back substitution.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> w = linalg.eigvals(jnp.array([[0.0, 1.0], [-1.0, 0.0]]))
    >>> print(jnp.sort(w.imag).round(4))
    [-1.  1.]
  """
  w, info = _eigvals("eigvals", a)
  check_converged(info, "eigendecomposition")
  return w


@public()
def eigvals_ex(a: ArrayLike) -> tuple[jax.Array, jax.Array]:
  """`eigvals`, with an info for each matrix.

  Args:
    a: as for `eig`.

  Returns:
    (eigenvalues, info): complex (..., n), and int32 (...), as from `eig_ex`.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), jnp.full((2, 2), jnp.nan)])
    >>> w, info = linalg.eigvals_ex(a)
    >>> print(info)
    [ 0 -1]
  """
  return _eigvals("eigvals_ex", a)
