"""Linear matrix equations, whose solutions are the derivatives of matrix functions.

Their operations have no handler: they are composed of others, and are primitives for the sake of
their derivatives, which hold at any spectrum.
"""

import jax.numpy as jnp

from linalg import ffi
from linalg._array import adjoint, diagonal, matmul, on_diagonal
from linalg._triangular import triangular_solve_p

__all__ = ["lyapunov_p", "sylvester_p"]


def _solution_jvp(solve, x, primals, tangents):
  """X of A X + X A = C moves so that A dX + dX A = dC - dA X - X dA."""
  da, dc = tangents[0], tangents[-1]
  rhs = dc
  if da is not None:
    change = matmul(da, x) + matmul(x, da)
    rhs = -change if dc is None else dc - change
  return x, solve(*primals[:-1], rhs)


def _lyapunov_jvp(primals, tangents):
  return _solution_jvp(lyapunov_p, lyapunov_p(*primals), primals, tangents)


def _lyapunov_transpose(cotangents, operands):
  a, w, v, _ = operands
  return None, None, None, lyapunov_p(a.conj(), w, v.conj(), cotangents[0])


def _lyapunov(a, w, v, c):
  del a
  sums = w[..., :, None] + w[..., None, :]
  inverse = jnp.where(sums == 0, 0, 1 / jnp.where(sums == 0, 1, sums))
  return [matmul(matmul(v, inverse * matmul(adjoint(v), matmul(c, v))), adjoint(v))]


# X of A X + X A = C with a Hermitian A = V diag(w) Vᴴ; where eigenvalues add up to 0, the least X.
# A function of A and C alone: its factors are constants to derivatives.
lyapunov_p = ffi.operation(
    "linalg_lyapunov",
    "n n, n, n n, n n -> n n",
    [3],
    platforms=(),
    jvp=_lyapunov_jvp,
    transpose=_lyapunov_transpose,
    fallback=_lyapunov)
