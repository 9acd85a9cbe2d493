"""Eigenvalues and eigenvectors of Hermitian matrices."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  diagonal_of,
  hermitian_part,
  info_of_nan,
  one_of_first_order,
  ones_of_first_order,
  reciprocal_gaps,
  without_second_derivative,
)
from linalg._core.checks import check_converged
from linalg._core.linear_rules import linear_pair
from linalg._core.operands import as_arrays, check_square, real_dtype
from linalg._core.public import public
from linalg._core.tuning import EIGH_DERIVATIVE, may_be_within, within
from linalg._factorizations.matmul import congruence, product

__all__ = ["EighResult", "eigh", "eigh_ex", "eigvalsh"]

_PAIRS = {"UPLO": "Pairs of matrices are for eigh_generalized(a, b)."}


class EighResult(NamedTuple):
  """Eigenvalues in ascending order, and the eigenvectors in the columns of a matrix."""

  eigenvalues: jax.Array
  eigenvectors: jax.Array


def _largest(w):
  return jnp.max(jnp.abs(w), axis=-1, keepdims=True, initial=0)


def _real_diagonal(c):
  return diagonal_of(c).real


def eigenpairs_jvp(w, v, c):
  """(dw, dV) of A = V diag(w) Vᴴ, given C = Vᴴ dA V.

  dw = diag C, and dV = V (F ∘ C), Fᵢⱼ = 1 / (wⱼ - wᵢ) off the diagonal. Source: Giles, Collected
  matrix derivative results for forward and reverse mode algorithmic differentiation (2008), 3.1. Vᴴ
  dV has a zero diagonal. F is 0 where a gap is within 8 √n eps ‖A‖: the two vectors are not
  determined there. This is right for the projector onto their common space. Second derivatives
  are NaN there: of the vectors, and of values that equal others.
  """
  gaps = w[..., None, :] - w[..., :, None]
  norm = _largest(w)
  ones = ones_of_first_order(w, norm)
  one = one_of_first_order(ones)[..., None]
  f = (reciprocal_gaps(gaps, norm[..., None], w.shape[-1]) * one).astype(c.dtype)
  return ones * _real_diagonal(c), product(v, f * c)


def _c(v, da, **part):
  """C = Vᴴ dA V."""
  return congruence(v, hermitian_part(da, **part), adjoint_a=True)


def _tangents(w, v, da, **part):
  return list(eigenpairs_jvp(w, v, _c(v, da, **part)))


eigh_jvp_p, eigh_vjp_p = linear_pair(
    ("linalg_eigh_jvp", "n, n n, n n -> n, n n", [0, 1]),
    ("linalg_eigh_vjp", "n, n n, n, n n -> n n", [1]),
    _tangents,
    constants=2,
    argument=lambda w, v: v,
    attributes={"lower": True, "symmetrize": True},
    suits=within(EIGH_DERIVATIVE, operand=1))


def _eigh_jvp(primals, tangents, **part):
  (a,), (da,) = primals, tangents
  w, v, info = eigh_p(a, **part)
  # The formula itself for larger ones: where a result is not used, half of it falls away.
  tangents = eigh_jvp_p if may_be_within(EIGH_DERIVATIVE, a) else _tangents
  return (w, v, info), (*tangents(w, v, da, **part), None)


def _eigh_fallback(a, *, lower, symmetrize):
  a = hermitian_part(a, lower=lower, symmetrize=symmetrize)
  v, w = jax.lax.linalg.eigh(a, symmetrize_input=False)
  return [w, v, info_of_nan(w, 1)]


eigh_p = ffi.operation(
    "linalg_eigh",
    "n n -> n, n n, ()",
    lambda dtype, **_: (real_dtype(dtype), dtype, jnp.int32),
    attributes={"lower": True, "symmetrize": True},
    jvp=_eigh_jvp,
    fallback=_eigh_fallback)


def _eigvalsh_jvp(primals, tangents, **part):
  (a,), (da,) = primals, tangents
  w, v, info = eigh_p(a, **part)
  return (w, info), (_real_diagonal(_c(v, da, **part)), None)


def _eigvalsh_fallback(a, *, lower, symmetrize):
  w, _, info = _eigh_fallback(a, lower=lower, symmetrize=symmetrize)
  return [w, info]


eigvalsh_p = ffi.operation(
    "linalg_eigvalsh",
    "n n -> n, ()",
    lambda dtype, **_: (real_dtype(dtype), jnp.int32),
    attributes={"lower": True, "symmetrize": True},
    jvp=_eigvalsh_jvp,
    fallback=_eigvalsh_fallback)


def _operand(name, a, uplo):
  """The operand, its dtype and the triangle that UPLO names."""
  if uplo is None or uplo == "L":
    lower = True
  elif uplo == "U":
    lower = False
  else:
    raise ValueError(f"{name}: UPLO must be one of None, 'L', or 'U', got {uplo!r}.")
  (a,), dtype = as_arrays(name, a)
  check_square(name, a)
  return a, dtype, lower


def _eigh(name, a, uplo, symmetrize_input):
  a, dtype, lower = _operand(name, a, uplo)
  w, v, info = eigh_p(a, lower=lower, symmetrize=symmetrize_input)
  return w.astype(real_dtype(dtype)), v.astype(dtype), info


@public("UPLO", "symmetrize_input", hints=_PAIRS)
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
  """Eigenvalues and eigenvectors of Hermitian matrices; `jax.numpy.linalg.eigh`.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.
    UPLO: the triangle that is read if `symmetrize_input` is false: 'L' (or None) or 'U'.
    symmetrize_input: if true, the decomposition is that of (A + Aᴴ) / 2. If false, only the named
      triangle is read, and the imaginary part of the diagonal is ignored.

  Returns:
    EighResult(eigenvalues, eigenvectors): real (..., n) in ascending order, and (..., n, n) with
    the orthonormal eigenvectors in columns, A V = V diag(w). Where A holds NaN or Inf, or the
    iteration does not converge, both are NaN for that matrix; see `eigh_ex` and `checked`.

  An eigenvector is determined up to a phase, and among equal eigenvalues up to a rotation. A
  derivative has a meaning only where that choice has no effect. At equal eigenvalues the first
  derivative is right for symmetric functions of them and for projectors onto their common space. It
  is not right for a general f(A). Second derivatives are NaN there, of the equal eigenvalues and of
  all vectors: `funm_hermitian` has them. Reverse mode spreads the NaN to the other eigenvalues.
  Forward mode over forward mode does not: `jax.jacfwd(jax.jacfwd(f))`.

  float16 and bfloat16 are decomposed in float32, and the results rounded.

  Algorithm: reduction to tridiagonal form. Small matrices then use QL iteration, one matrix per
  lane, and others divide and conquer. The largest go to LAPACK syevd (heevd).

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    >>> w, v = linalg.eigh(a)
    >>> print(w.round(4))
    [1. 3.]
    >>> print(jnp.allclose(a @ v, v * w, atol=1e-6))
    True
  """
  w, v, info = _eigh("eigh", a, UPLO, symmetrize_input)
  check_converged(info, "eigendecomposition")
  return EighResult(w, v)


@public("UPLO", "symmetrize_input", hints=_PAIRS)
def eigh_ex(
    a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """`eigh`, with what went wrong for each matrix.

  Args:
    a, UPLO, symmetrize_input: as for `eigh`.

  Returns:
    (eigenvalues, eigenvectors, info). info is int32 of shape (...): 0 on success, -1 if the matrix
    holds NaN or Inf, positive if the iteration did not converge. Where it is not 0, the results are
    NaN.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), jnp.full((2, 2), jnp.nan)])
    >>> w, v, info = linalg.eigh_ex(a)
    >>> print(info)
    [ 0 -1]
    >>> print(jnp.isnan(w))
    [[False False]
     [ True  True]]
  """
  return _eigh("eigh_ex", a, UPLO, symmetrize_input)


@public("UPLO", "symmetrize_input", hints=_PAIRS)
def eigvalsh(
    a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True
) -> jax.Array:
  """Eigenvalues of Hermitian matrices; `jax.numpy.linalg.eigvalsh`.

  Args:
    a, UPLO, symmetrize_input: as for `eigh`.

  Returns:
    The eigenvalues, real (..., n), in ascending order; NaN where `eigh` gives NaN.

  The first derivative is right for symmetric functions of eigenvalues that are equal to rounding.
  Second derivatives are NaN there: they depend on more than the eigenvalues' derivatives. The trace
  of `funm_hermitian` has them. Reverse mode spreads the NaN to the other eigenvalues. Forward mode
  over forward mode does not: `jax.jacfwd(jax.jacfwd(f))`.

  Algorithm: that of `eigh`, without vectors. The largest matrices in float32 and complex64 use
  LAPACK sytrd (hetrd), then QL in float64.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.eigvalsh(jnp.array([[2.0, 1.0], [1.0, 2.0]])).round(4))
    [1. 3.]
  """
  a, dtype, lower = _operand("eigvalsh", a, UPLO)
  w = smooth_eigvalsh(a, lower=lower, symmetrize=symmetrize_input)
  return of_first_order_if_equal(w).astype(real_dtype(dtype))


def of_first_order_if_equal(w: jax.Array) -> jax.Array:
  """Eigenvalues whose second derivatives are NaN where they equal others.

  A symmetric function f of equal eigenvalues has (fᵢᵢ - fᵢⱼ) |cᵢⱼ|² in its second derivative. The
  rules see the first derivatives fᵢ alone, and cannot have the term.
  """
  return without_second_derivative(w, w, _largest(w))


def smooth_eigvalsh(a: ArrayLike, *, lower: bool = True, symmetrize: bool = True) -> jax.Array:
  """`eigvalsh`, for functions of eigenvalues that differ from all others: its second derivatives
  are finite at equal ones, and right for the others."""
  w, info = eigvalsh_p(a, lower=lower, symmetrize=symmetrize)
  check_converged(info, "eigendecomposition")
  return w
