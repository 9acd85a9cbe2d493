"""The polar decomposition."""

import functools

import jax
from jax.typing import ArrayLike

from linalg._array import adjoint, as_arrays, check_matrix, matmul, reciprocal, symmetrized
from linalg._pinv import pseudo_inverse
from linalg._svd import svd
from linalg._sylvester import lyapunov_p

__all__ = ["polar"]


@jax.custom_jvp
def _unitary(a, u, s, vh):
  """The unitary factor U Vᴴ of a tall A, whose singular vectors are constants to derivatives."""
  del a, s
  return matmul(u, vh)


@_unitary.defjvp
def _(primals, tangents):
  # With A = W P and K = Wᴴ dA, dW = W Ω + (dA - W K) P⁻¹, where P Ω + Ω P = K - Kᴴ; Higham,
  # Functions of matrices (2008), section 8. Nothing depends on how singular vectors split a common
  # space.
  a, u, s, vh = primals
  da = tangents[0]
  w = _unitary(*primals)
  p = symmetrized(matmul(adjoint(w), a))
  k = matmul(adjoint(w), da)
  dw = matmul(w, lyapunov_p(p, s, adjoint(vh), k - adjoint(k)))
  if a.shape[-2] > a.shape[-1]:
    inverse = pseudo_inverse(p, adjoint(vh), reciprocal(s, s != 0), vh)
    dw = dw + matmul(da - matmul(w, k), inverse)
  return w, dw


@functools.partial(jax.jit, static_argnames=("side", "method", "eps", "max_iterations"))
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
    a: matrices (..., m, n) of any shape.
    side: 'right' for A = U P, 'left' for A = P U.
    method: 'qdwh' or 'svd'. Both names give the same algorithm here.
    eps, max_iterations: unused.

  Returns:
    (U, P): U (..., m, n) has orthonormal columns, or rows if m < n. P, (..., n, n) or on the left
    (..., m, m), is Hermitian and positive semidefinite.

  Algorithm: singular values. Derivative: a Lyapunov equation, exact at equal singular values, to
  any order; at a singular value of 0, U is not determined.
  """
  del eps, max_iterations
  (a,), dtype = as_arrays("polar", a)
  check_matrix("polar", a)
  if side not in ("right", "left"):
    raise ValueError("The argument `side` must be either 'right' or 'left'.")
  if method not in ("qdwh", "svd"):
    raise ValueError(f"Unknown polar decomposition method {method}.")
  tall = a if a.shape[-2] >= a.shape[-1] else adjoint(a)
  if 0 in a.shape[-2:]:
    unitary = tall
  else:
    unitary = _unitary(tall, *svd(jax.lax.stop_gradient(tall), full_matrices=False))
  unitary = unitary if tall is a else adjoint(unitary)
  product = matmul(adjoint(unitary), a) if side == "right" else matmul(a, adjoint(unitary))
  return unitary.astype(dtype), symmetrized(product).astype(dtype)
