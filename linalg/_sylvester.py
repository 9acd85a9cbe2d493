"""Linear matrix equations, whose solutions are the derivatives of matrix functions.

Their operations have no handler: they are composed of others, and are primitives for the sake of
their derivatives, which hold at any spectrum.
"""

import jax
import jax.numpy as jnp

from linalg import ffi
from linalg._array import adjoint, diagonal, expand, matmul, on_diagonal, reciprocal
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
  inverse = reciprocal(sums, sums != 0)
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


def _sylvester_jvp(primals, tangents):
  return _solution_jvp(sylvester_p, sylvester_p(*primals), primals, tangents)


def _sylvester_transpose(cotangents, operands):
  # Aᵀ = Z̄ Tᵀ Zᵀ, and Tᵀ is upper triangular once its rows and columns are reversed.
  a, t, z, _ = operands
  turned = sylvester_p(
      a.mT, jnp.flip(t.mT, (-2, -1)), jnp.flip(z.conj(), -1), cotangents[0])
  return None, None, None, turned


def columns(a):
  """The columns of matrices along a leading dimension, for a scan."""
  return jnp.moveaxis(a, -1, 0)


def shifted_triangle(t, shift, from_row=None):
  """T + shift I, with ones on the diagonal in the rows from `from_row` on."""
  diagonal_of_sum = diagonal(t) + shift[..., None]
  if from_row is not None:
    row = expand(jnp.arange(t.shape[-1]), diagonal_of_sum)
    diagonal_of_sum = jnp.where(row < from_row, diagonal_of_sum, 1)
  return jnp.where(on_diagonal(t), diagonal_of_sum[..., None], t)


def _sylvester(a, t, z, c):
  # In the basis Z, T Y + Y T = C gives column j from those before it:
  # (T + Tⱼⱼ I) yⱼ = cⱼ - Σ_{k<j} yₖ Tₖⱼ. Bartels and Stewart, Comm. ACM 15 (1972).
  del a
  c = matmul(adjoint(z), matmul(c, z))

  def step(y, column):
    j, cj, tj, shift = column
    rhs = cj[..., None] - matmul(y, tj[..., None])
    yj = triangular_solve_p(shifted_triangle(t, shift), rhs, left_side=True, lower=False)
    return jnp.where(expand(jnp.arange(t.shape[-1]), y) == j, yj, y), None

  columns_of = (jnp.arange(t.shape[-1]), columns(c), columns(t), columns(diagonal(t)))
  y, _ = jax.lax.scan(step, c * 0, columns_of)
  return [matmul(z, matmul(y, adjoint(z)))]


# X of A X + X A = C with A = Z T Zᴴ, T upper triangular and Z unitary; a function of A and C alone.
sylvester_p = ffi.operation(
    "linalg_sylvester",
    "n n, n n, n n, n n -> n n",
    [3],
    platforms=(),
    jvp=_sylvester_jvp,
    transpose=_sylvester_transpose,
    fallback=_sylvester)
