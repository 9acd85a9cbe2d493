"""Eigenvalues and eigenvectors of general matrices and pencils, by SciPy's signatures."""


import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

import linalg
from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  one_of_first_order,
  turn_to_real,
  without_none,
  zeros_like,
)
from linalg._core.checks import check_converged
from linalg._core.operands import (
  as_arrays,
  as_complex,
  check_batches,
  check_square,
  complex_dtype,
  incompatible,
)
from linalg._core.pencils import (
  gaps_of_pairs,
  ones_of_distinct,
  reciprocal_gaps_of_pairs,
  rotated,
  rotated_back,
  scales,
  unit_pairs,
)
from linalg._core.public import public
from linalg._factorizations.eig import eig_left_p, eig_p, eigvals_p, normalized_change
from linalg._factorizations.matmul import product
from linalg._factorizations.solve import solve_p

__all__ = ["eig", "eigvals"]


def _changes(a, b, da, db, alpha, beta, norms, v):
  """(dα, dβ, dV) of β A v = α B v, in a gauge: (dα, dβ) is orthogonal to (α, β).

  For pairs of length 1, Ξ = A V diag(ᾱ) + B V diag(β̄) has A V = Ξ diag(α) and B V = Ξ diag(β). Let
  M = Ξ⁻¹ (dA V diag(β) - dB V diag(α)). Then dV = V C with Cᵢⱼ = Mᵢⱼ / (αⱼ βᵢ - βⱼ αᵢ) off the
  diagonal, and β dα - α dβ = Mⱼⱼ. Infinite eigenvalues, β = 0, are as the others. Where a gap is 0
  up to rounding the two vectors are not determined and C is 0. Second derivatives are NaN there.
  """
  alpha, beta, length = unit_pairs(alpha, beta, norms)
  a, da = (x / norms[0][..., None].astype(x.dtype) for x in (a, da))
  b, db = (x / norms[1][..., None].astype(x.dtype) for x in (b, db))
  by = lambda x, pairs: product(x, v) * pairs[..., None, :]
  image = by(a, alpha.conj()) + by(b, beta.conj())
  m = solve_p(image, by(da, beta) - by(db, alpha))[0]
  ones = ones_of_distinct(alpha, beta)
  moved = product(v, reciprocal_gaps_of_pairs(gaps_of_pairs(alpha, beta)) * m)
  one = one_of_first_order(ones)[..., None]
  turn = diagonal_of(m) * (ones * length).astype(m.dtype)
  dalpha = turn * beta.conj() * norms[0].astype(m.dtype)
  dbeta = -turn * alpha.conj() * norms[1].astype(m.dtype)
  return dalpha, dbeta, normalized_change(v, moved) * one.astype(v.dtype)


def _right_changes(a, b, da, db, alpha, beta, right):
  return _changes(a, b, da, db, alpha, beta, scales(a, b), right)


def _right_jvp(primals, tangents):
  a, b = primals[:2]
  results = eig_right_p(*primals)
  return results, _right_changes(a, b, *without_none((a, b), tangents[:2]), *results)


def _left_jvp(primals, tangents):
  a, b = primals[:2]
  da, db = without_none((a, b), tangents[:2])
  alpha, beta, left, right = eig_left_and_right_p(*primals)
  dalpha, dbeta, dright = _right_changes(a, b, da, db, alpha, beta, right)
  # Left vectors are right ones of (Aᴴ, Bᴴ), whose pairs are conjugate.
  dleft = _right_changes(
      adjoint(a), adjoint(b), adjoint(da), adjoint(db), alpha.conj(), beta.conj(), left)[2]
  return (alpha, beta, left, right), (dalpha, dbeta, dleft, dright)


# Eigenvalues and vectors, all complex, as a function of the matrices.
eig_right_p = ffi.operation(
    "linalg_eig_right",
    "n n, n n, n, n, n n -> n, n, n n",
    [2, 3, 4],
    platforms=(),
    jvp=_right_jvp,
    fallback=lambda a, b, *results: list(results))

eig_left_and_right_p = ffi.operation(
    "linalg_eig_left_and_right",
    "n n, n n, n, n, n n, n n -> n, n, n n, n n",
    [2, 3, 4, 5],
    platforms=(),
    jvp=_left_jvp,
    fallback=lambda a, b, *results: list(results))


def _rotated_quotient(a, b):
  """B'⁻¹ A' of two combinations of A and B, of norms near 1; B'; and the norms of A and B."""
  norms = scales(a, b)
  first, second = rotated(
      *(x / norm[..., None].astype(x.dtype) for x, norm in zip((a, b), norms, strict=True)))
  return solve_p(second, first)[0], second, norms


def _pairs_of(w, norms, dtype):
  """α and β from eigenvalues of the quotient: β is not negative."""
  alpha, beta = rotated_back(w, zeros_like(w) + 1)
  phase = turn_to_real(beta)
  beta = jnp.abs(beta) * norms[1]
  return alpha * phase * norms[0].astype(w.dtype), beta.astype(dtype)


def _fallback(a, b):
  quotient, _, norms = _rotated_quotient(a, b)
  w, right, info = eig_p(quotient)
  return [*_pairs_of(w, norms, a.dtype), right, info]


def _left_fallback(a, b):
  quotient, second, norms = _rotated_quotient(a, b)
  w, left, right, info = eig_left_p(quotient)
  alpha, beta = _pairs_of(w, norms, a.dtype)
  left = solve_p(adjoint(second).astype(left.dtype), left)[0]
  size = jnp.sqrt(jnp.sum(jnp.abs(left) ** 2, axis=-2, keepdims=True))
  left = left / jnp.where(size == 0, 1, size).astype(left.dtype)
  largest = jnp.abs(left) == jnp.max(jnp.abs(left), axis=-2, keepdims=True, initial=0)
  largest = largest & (jnp.cumsum(largest, axis=-2) == 1)
  pivot = jnp.sum(jnp.where(largest, left, 0), axis=-2, keepdims=True)
  left = left * turn_to_real(pivot)
  return [alpha, beta, left, right, info]


def _values_fallback(a, b):
  quotient, _, norms = _rotated_quotient(a, b)
  w, info = eigvals_p(quotient)
  return [*_pairs_of(w, norms, a.dtype), info]


eig_generalized_p = ffi.operation(
    "linalg_eig_generalized",
    "n n, n n -> n, n, n n, ()",
    lambda a, b: [complex_dtype(a), a, complex_dtype(a), jnp.int32],
    fallback=_fallback)

eig_left_generalized_p = ffi.operation(
    "linalg_eig_left_generalized",
    "n n, n n -> n, n, n n, n n, ()",
    lambda a, b: [complex_dtype(a), a, complex_dtype(a), complex_dtype(a), jnp.int32],
    fallback=_left_fallback)


def _values_jvp(primals, tangents):
  operands = _values_and_vectors(eig_generalized_p, *primals)
  complex_tangents = [None if dx is None else as_complex(dx) for dx in tangents]
  # The pairs among the operands are constants to second derivatives.
  (alpha, beta, _), (dalpha, dbeta, _) = _right_jvp(operands, complex_tangents)
  return (alpha, beta), (dalpha, dbeta)


def _values_and_vectors(operation, a, b):
  """The operands of `eig_right_p`, or of `eig_left_and_right_p`, for this operation's results."""
  alpha, beta, *vectors, info = operation(*map(jax.lax.stop_gradient, (a, b)))
  check_converged(info, "generalized eigendecomposition")
  return as_complex(a), as_complex(b), alpha, as_complex(beta), *vectors


def _values_alone(a, b):
  alpha, beta, info = eigvals_generalized_p(a, b)
  check_converged(info, "generalized eigendecomposition")
  return alpha, as_complex(beta)


eigvals_generalized_p = ffi.operation(
    "linalg_eigvals_generalized",
    "n n, n n -> n, n, ()",
    lambda a, b: [complex_dtype(a), a, jnp.int32],
    fallback=_values_fallback)

# Its derivative needs vectors, which the value does not.
_values = jax.custom_jvp(_values_alone)
_values.defjvp(_values_jvp)


@jax.custom_jvp
def _quotients(alpha, beta):
  """α / β, with infinity for β = 0 and NaN for the pair (0, 0), as in SciPy.

  Derivatives are NaN for β = 0.
  """
  finite = beta != 0
  w = alpha / jnp.where(finite, beta, 1)
  return jnp.where(finite, w, jnp.where(alpha == 0, jnp.nan, jnp.inf).astype(w.dtype))


@_quotients.defjvp
def _quotients_jvp(primals, tangents):
  (alpha, beta), (dalpha, dbeta) = primals, tangents
  finite = beta != 0
  over = jnp.where(finite, 1, jnp.nan).astype(beta.dtype) / jnp.where(finite, beta, 1)
  return _quotients(alpha, beta), over * (dalpha - alpha * over * dbeta)


def _pencil(name, a, b):
  (a, b), dtype = as_arrays(name, a, b)
  check_square(name, a, "a")
  check_square(name, b, "b")
  if a.shape[-1] != b.shape[-1]:
    raise incompatible(name, a, b, names=("a", "b"))
  check_batches(name, a, b, names=("a", "b"))
  return ffi.broadcast_batches(name, (a, b), (2, 2))


def _eigenvalues(alpha, beta, homogeneous):
  if homogeneous:
    return jnp.stack([alpha, beta], axis=-2)
  return _quotients(alpha, beta)


@public("left", "right", "overwrite_a", "overwrite_b", "check_finite", "homogeneous_eigvals",
        lists=True)
def eig(
    a: ArrayLike,
    b: ArrayLike | None = None,
    left: bool = False,
    right: bool = True,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    homogeneous_eigvals: bool = False,
) -> jax.Array | tuple[jax.Array, ...]:
  """Eigenvalues and eigenvectors of A v = w B v; `scipy.linalg.eig`, batched.

  Args:
    a, b: matrices (..., n, n) of any floating, complex or integer dtype. Without `b`, B is the
      identity: see `linalg.eig`.
    left, right: whether to return the left and the right eigenvectors.
    homogeneous_eigvals: whether to return eigenvalues as pairs (α, β) with w = α / β.
    overwrite_a, overwrite_b, check_finite: not used.

  Returns:
    w, (w, right), (w, left) or (w, left, right): eigenvalues (..., n), or pairs (..., 2, n), and
    vectors in the columns of (..., n, n). leftᴴ A = diag(w) leftᴴ B. All are complex. w is infinite
    where β is 0, and NaN for the pair (0, 0) of a singular pencil. Where a matrix holds NaN or Inf,
    or the iteration does not converge, all are NaN for that pencil.

  Each vector has length 1 and a real largest element. Derivatives follow this normalization, and
  need distinct eigenvalues. Where two are equal up to rounding, the rotation within the pair is
  taken to be zero, and second derivatives are NaN. A derivative of (α, β) is orthogonal to the
  pair, in units of the norms of A and B, since only the ratio is determined. It exists at infinite
  eigenvalues too, where that of w is NaN. A singular pencil has no derivative.

  float16 and bfloat16 are computed in float32. Results are at least complex64.

  Algorithm: LAPACK's ggev on the CPU. Elsewhere the eigenvectors of a quotient of two combinations
  of A and B, whose errors grow with the condition of one of them.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> a, b = jnp.diag(jnp.array([2.0, 3.0])), jnp.diag(jnp.array([1.0, 0.0]))
    >>> w, v = linalg.scipy.eig(a, b)
    >>> print(w.real)
    [ 2. inf]
    >>> print(linalg.scipy.eig(a, b, homogeneous_eigvals=True)[0].real)
    [[2. 3.]
     [1. 0.]]
  """
  del overwrite_a, overwrite_b, check_finite
  if not (left or right):
    return _eigenvalues_alone("eig", a, b, homogeneous_eigvals)
  if b is None:
    w, *vectors = linalg.eig(a, left=True) if left else linalg.eig(a)
    one = zeros_like(w) + 1
    w = jnp.stack([w, one], axis=-2) if homogeneous_eigvals else w
    return (w, *vectors[: None if right else 1])
  a, b = _pencil("eig", a, b)
  if left:
    alpha, beta, *vectors = eig_left_and_right_p(*_values_and_vectors(eig_left_generalized_p, a, b))
  else:
    alpha, beta, *vectors = eig_right_p(*_values_and_vectors(eig_generalized_p, a, b))
  w = _eigenvalues(alpha, beta, homogeneous_eigvals)
  return (w, *vectors[: None if right else 1])


def _eigenvalues_alone(name, a, b, homogeneous):
  if b is None:
    w = linalg.eigvals(a)
    return jnp.stack([w, zeros_like(w) + 1], axis=-2) if homogeneous else w
  a, b = _pencil(name, a, b)
  return _eigenvalues(*_values(a, b), homogeneous)


@public("overwrite_a", "check_finite", "homogeneous_eigvals", lists=True)
def eigvals(
    a: ArrayLike,
    b: ArrayLike | None = None,
    overwrite_a: bool = False,
    check_finite: bool = True,
    homogeneous_eigvals: bool = False,
) -> jax.Array:
  """Eigenvalues of A v = w B v; `scipy.linalg.eigvals`, batched.

  Args:
    a, b, homogeneous_eigvals: as for `eig`.
    overwrite_a, check_finite: not used.

  Returns:
    The eigenvalues, complex (..., n), or the pairs (..., 2, n), as from `eig`.

  float16 and bfloat16 are computed in float32. Results are at least complex64.

  Algorithm: as for `eig`, without vectors. A derivative computes them.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> a, b = jnp.diag(jnp.array([2.0, 3.0])), jnp.diag(jnp.array([4.0, 1.0]))
    >>> print(linalg.scipy.eigvals(a, b).real)
    [0.5 3. ]
  """
  del overwrite_a, check_finite
  return _eigenvalues_alone("eigvals", a, b, homogeneous_eigvals)
