"""Linear matrix equations. Some matrix functions have derivatives that solve them.

The derivatives of the solutions hold at any spectrum.
"""

import jax
import jax.numpy as jnp

from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  expand,
  minus,
  on_diagonal,
  reciprocal,
  with_column,
  zeros_like,
)
from linalg._core.implicit_functions import given_factors
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["lyapunov_p", "refined_lyapunov_p", "stein_p", "sylvester_p"]


def _multiply(a, x, *, skew):
  del skew
  return product(a, x) + product(x, a)


def _lyapunov_transpose(cotangents, operands, *, skew):
  a, w, v, _ = operands
  return None, None, None, lyapunov_p(a.conj(), w, v.conj(), cotangents[0], skew=skew)


def _lyapunov(w, v, c, *, skew):
  sums = w[..., :, None] + w[..., None, :]
  inverse = reciprocal(sums, sums != 0).astype(c.dtype)
  c = congruence(v, c, adjoint_a=True)
  if skew:
    # Rounding errors on a real diagonal, which is 0, would be divided by the least eigenvalue.
    c = (c - adjoint(c)) / 2
  return congruence(v, inverse * c)


# Solves A X + X A = C with a Hermitian A = V diag(w) Vᴴ. Where eigenvalues add up to 0, X is the
# least solution. `skew` takes the skew-Hermitian part of C.
lyapunov_p = given_factors(
    "lyapunov",
    "n n, n, n n, n n -> n n",
    [3],
    _lyapunov,
    attributes={"skew": False},
    multiply=_multiply,
    transpose=_lyapunov_transpose)


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


def transposed_schur(t, z):
  """The Schur factors of Aᵀ = Z̄ Tᵀ Zᵀ. Tᵀ is upper triangular with its rows and columns
  reversed."""
  return jnp.flip(t.mT, (-2, -1)), jnp.flip(z.conj(), -1)


def adjoint_schur(t, z):
  """The Schur factors of Aᴴ."""
  t, z = transposed_schur(t, z)
  return t.conj(), z.conj()


def _sylvester(t, z, b, s, w, c):
  # In the bases Z and W, T Y + Y S = C gives column j from those before it:
  # (T + Sⱼⱼ I) yⱼ = cⱼ - Σ_{k<j} yₖ Sₖⱼ. Bartels and Stewart, Comm. ACM 15 (1972).
  del b
  c = product(z, product(c, w), adjoint_a=True)

  def step(y, column):
    j, cj, sj, shift = column
    rhs = cj[..., None] - product(y, sj[..., None])
    yj = triangular_solve_p(shifted_triangle(t, shift), rhs, left_side=True, lower=False)
    return with_column(y, j, yj), None

  columns_of = (jnp.arange(s.shape[-1]), columns(c), columns(s), columns(diagonal_of(s)))
  y, _ = jax.lax.scan(step, zeros_like(c), columns_of)
  return product(z, product(y, w, adjoint_b=True))


def _sylvester_jvp(primals, tangents):
  # A dX + dX B = dC - dA X - X dB
  *known, c = primals
  da, db, change = tangents[0], tangents[3], tangents[6]
  x = sylvester_p(*known, c)
  if da is not None:
    change = minus(change, product(da, x))
  if db is not None:
    change = minus(change, product(x, db))
  return x, sylvester_p(*known, change)


def _sylvester_transpose(cotangents, operands):
  a, t, z, b, s, w, _ = operands
  turned = sylvester_p(
      a.mT, *transposed_schur(t, z), b.mT, *transposed_schur(s, w), cotangents[0])
  return *(None,) * 6, turned


# Solves A X + X B = C with A = Z T Zᴴ, B = W S Wᴴ, T and S upper triangular, Z and W unitary.
sylvester_p = given_factors(
    "sylvester",
    "n n, n n, n n, m m, m m, m m, n m -> n m",
    [6],
    _sylvester,
    jvp=_sylvester_jvp,
    transpose=_sylvester_transpose)


def _refined_lyapunov(t, z, a, c):
  # The second step refines. The scan compiles the substitution once.
  a_adjoint = adjoint(a)
  factors = adjoint_schur(t, z)

  def step(x, _):
    rest = c - product(a_adjoint, x) - product(x, a)
    return x + _sylvester(*factors, a, t, z, rest), None

  return jax.lax.scan(step, zeros_like(c), length=2)[0]


def _refined_lyapunov_jvp(primals, tangents):
  # Aᴴ dX + dX A = dC - dAᴴ X - X dA
  *known, _ = primals
  da, *_, change = tangents
  x = refined_lyapunov_p(*primals)
  if da is not None:
    change = minus(change, product(adjoint(da), x) + product(x, da))
  return x, refined_lyapunov_p(*known, change)


def _refined_lyapunov_transpose(cotangents, operands):
  a, t, z, constant, _ = operands
  turned = refined_lyapunov_p(a.mT, *transposed_schur(t, z), constant.mT, cotangents[0])
  return *(None,) * 4, turned


# Solves Aᴴ X + X A = C with A = Z T Zᴴ, T upper triangular and Z unitary. The operands are A, T, Z,
# A as a constant, and C. T has errors of eps ‖A‖, which a step of refinement takes out of small
# elements of X where rows and columns of A differ in scale.
refined_lyapunov_p = given_factors(
    "refined_lyapunov",
    "n n, n n, n n, n n, n n -> n n",
    [4],
    _refined_lyapunov,
    jvp=_refined_lyapunov_jvp,
    transpose=_refined_lyapunov_transpose)


def _stein(t, z, c):
  # In the basis Z, T Y Tᴴ - Y = C gives column j from those after it:
  # (T̄ⱼⱼ T - I) yⱼ = cⱼ - T Σ_{k>j} yₖ T̄ⱼₖ. Kitagawa, Int. J. Control 25 (1977).
  c = congruence(z, c, adjoint_a=True)

  def step(y, column):
    j, cj, tj, own = column
    rhs = cj[..., None] - product(t, product(y, tj[..., None]))
    matrix = own[..., None, None] * t
    matrix = jnp.where(on_diagonal(t), matrix - 1, matrix)
    yj = triangular_solve_p(matrix, rhs, left_side=True, lower=False)
    return with_column(y, j, yj), None

  columns_of = (
      jnp.arange(t.shape[-1]), columns(c), columns(adjoint(t)), columns(diagonal_of(t).conj()))
  y, _ = jax.lax.scan(step, zeros_like(c), columns_of, reverse=True)
  return congruence(z, y)


def _stein_jvp(primals, tangents):
  # A dX Aᴴ - dX = dC - dA X Aᴴ - A X dAᴴ
  a, t, z, c = primals
  da, *_, change = tangents
  x = stein_p(a, t, z, c)
  if da is not None:
    left = product(da, product(x, a, adjoint_b=True))
    change = minus(change, left + product(a, product(x, da, adjoint_b=True)))
  return x, stein_p(a, t, z, change)


def _stein_transpose(cotangents, operands):
  a, t, z, _ = operands
  return None, None, None, stein_p(a.mT, *transposed_schur(t, z), cotangents[0])


# Solves A X Aᴴ - X = C with A = Z T Zᴴ, T upper triangular and Z unitary.
stein_p = given_factors(
    "stein",
    "n n, n n, n n, n n -> n n",
    [3],
    _stein,
    jvp=_stein_jvp,
    transpose=_stein_transpose)
