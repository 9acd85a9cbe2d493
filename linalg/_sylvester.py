"""Linear matrix equations, whose solutions are the derivatives of matrix functions.

Their derivatives hold at any spectrum.
"""

import jax
import jax.numpy as jnp

from linalg._algebra import diagonal_of, expand, on_diagonal, reciprocal, zeros_like
from linalg._given_factors import given_factors
from linalg._matmul import product
from linalg._triangular import triangular_solve_p

__all__ = ["lyapunov_p", "sylvester_p"]


def _multiply(a, x):
  return product(a, x) + product(x, a)


def _lyapunov_transpose(cotangents, operands):
  a, w, v, _ = operands
  return None, None, None, lyapunov_p(a.conj(), w, v.conj(), cotangents[0])


def _lyapunov(w, v, c):
  sums = w[..., :, None] + w[..., None, :]
  inverse = reciprocal(sums, sums != 0).astype(c.dtype)
  return product(product(v, inverse * product(v, product(c, v), adjoint_a=True)), v, adjoint_b=True)


# X of A X + X A = C with a Hermitian A = V diag(w) Vᴴ; where eigenvalues add up to 0, the least X.
lyapunov_p = given_factors(
    "lyapunov",
    "n n, n, n n, n n -> n n",
    [3],
    _lyapunov,
    multiply=_multiply,
    transpose=_lyapunov_transpose)


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
  diagonal_of_sum = diagonal_of(t) + shift[..., None]
  if from_row is not None:
    row = expand(jnp.arange(t.shape[-1]), diagonal_of_sum)
    diagonal_of_sum = jnp.where(row < from_row, diagonal_of_sum, 1)
  return jnp.where(on_diagonal(t), diagonal_of_sum[..., None], t)


def _sylvester(t, z, c):
  # In the basis Z, T Y + Y T = C gives column j from those before it:
  # (T + Tⱼⱼ I) yⱼ = cⱼ - Σ_{k<j} yₖ Tₖⱼ. Bartels and Stewart, Comm. ACM 15 (1972).
  c = product(z, product(c, z), adjoint_a=True)

  def step(y, column):
    j, cj, tj, shift = column
    rhs = cj[..., None] - product(y, tj[..., None])
    yj = triangular_solve_p(shifted_triangle(t, shift), rhs, left_side=True, lower=False)
    return jnp.where(expand(jnp.arange(t.shape[-1]), y) == j, yj, y), None

  columns_of = (jnp.arange(t.shape[-1]), columns(c), columns(t), columns(diagonal_of(t)))
  y, _ = jax.lax.scan(step, zeros_like(c), columns_of)
  return product(z, product(y, z, adjoint_b=True))


# X of A X + X A = C with A = Z T Zᴴ, T upper triangular and Z unitary.
sylvester_p = given_factors(
    "sylvester",
    "n n, n n, n n, n n -> n n",
    [3],
    _sylvester,
    multiply=_multiply,
    transpose=_sylvester_transpose)
