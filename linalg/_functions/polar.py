"""The polar decomposition."""

import jax
from jax.typing import ArrayLike

from linalg._core.algebra import adjoint, reciprocal, symmetrized
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, check_matrix
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.svd import svd
from linalg._functions.pseudo_inverse import pseudo_inverse_p
from linalg._functions.sylvester import lyapunov_p

__all__ = ["polar", "unitary_factor", "unitary_p"]


def _unitary_jvp(primals, tangents):
  # Let A = W P and K = Wᴴ dA. Then dW = W Ω + (dA - W K) P⁻¹, where P Ω + Ω P = K - Kᴴ; Higham,
  # Functions of matrices (2008), section 8. The formula does not depend on the basis of the
  # singular vectors of equal singular values.
  a, u, s, vh = primals
  da = tangents[0]
  w = unitary_p(*primals)
  p = symmetrized(product(w, a, adjoint_a=True))
  k = product(w, da, adjoint_a=True)
  dw = product(w, lyapunov_p(p, s, adjoint(vh), k - adjoint(k), skew=True))
  if a.shape[-2] > a.shape[-1]:
    inverse = pseudo_inverse_p(p, adjoint(vh), reciprocal(s, s != 0), vh)
    dw = dw + product(da - product(w, k), inverse)
  return w, dw


# The unitary factor U Vᴴ of a tall A.
unitary_p = given_factors(
    "polar_unitary",
    "m n, m n, n, n n -> m n",
    [0],
    lambda u, s, vh: product(u, vh),
    jvp=_unitary_jvp)


def unitary_factor(a: jax.Array) -> jax.Array:
  """U of A = U P, for matrices of any shape."""
  tall = a if a.shape[-2] >= a.shape[-1] else adjoint(a)
  if 0 in a.shape[-2:]:
    unitary = tall
  else:
    unitary = unitary_p(tall, *svd(jax.lax.stop_gradient(tall), full_matrices=False))
  return unitary if tall is a else adjoint(unitary)


@public("side", "method", "eps", "max_iterations", lists=True)
def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[jax.Array, jax.Array]:
  """The polar decomposition, A = U P or A = P U; `jax.scipy.linalg.polar`, batched.

  Args:
    a: matrices (..., m, n) of any shape and any floating, complex or integer dtype.
    side: 'right' for A = U P, 'left' for A = P U.
    method: 'qdwh' or 'svd'. Both names give the same algorithm here.
    eps, max_iterations: unused.

  Returns:
    (U, P): U (..., m, n) has orthonormal columns, or rows if m < n. P, (..., n, n) or on the left
    (..., m, m), is Hermitian and positive semidefinite. Both are NaN where A holds NaN or Inf.

  Algorithm: singular values. Derivative: a Lyapunov equation, exact to any order, also at equal
  singular values. U is not determined at a singular value of 0, nor at one below n eps times the
  largest.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[0.0, -2.0], [2.0, 0.0]])
    >>> u, p = linalg.polar(a)
    >>> print(jnp.allclose(p, 2 * jnp.eye(2), atol=1e-5), jnp.allclose(u @ p, a, atol=1e-5))
    True True
  """
  del eps, max_iterations
  (a,), dtype = as_arrays("polar", a)
  check_matrix("polar", a)
  if side not in ("right", "left"):
    raise ValueError(f"polar: side must be 'right' or 'left', got {side!r}.")
  if method not in ("qdwh", "svd"):
    raise ValueError(f"polar: method must be 'qdwh' or 'svd', got {method!r}.")
  unitary = unitary_factor(a)
  p = (
      product(unitary, a, adjoint_a=True) if side == "right" else
      product(a, unitary, adjoint_b=True))
  return unitary.astype(dtype), symmetrized(p).astype(dtype)
