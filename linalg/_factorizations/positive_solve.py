"""Systems with Hermitian positive definite matrices, from their Cholesky factors."""

import jax

from linalg._core.algebra import nan_where
from linalg._core.implicit_functions import given_factors
from linalg._factorizations.cholesky import cholesky_p, cholesky_solve_p
from linalg._factorizations.matmul import product

__all__ = ["factored_positive_solve_p", "positive_solve"]


def _transpose(cotangents, operands, *, lower):
  # A is Hermitian, so its transpose is its conjugate.
  a, factor, _ = operands
  return None, None, factored_positive_solve_p(a, factor, cotangents[0].conj(), lower=lower).conj()


# A⁻¹ b, given A's Cholesky factor.
factored_positive_solve_p = given_factors(
    "positive_solve",
    "n n, n n, n k -> n k",
    [2],
    cholesky_solve_p,
    attributes=cholesky_solve_p.attributes,
    shared=[0, 1],
    multiply=lambda a, x, lower: product(a, x),
    transpose=_transpose)


def positive_solve(a, b):
  """Solves A x = b for columns b and a Hermitian A.

  Returns (x, info), with info of `cholesky_ex`.
  """
  factor, info = cholesky_p(jax.lax.stop_gradient(a), lower=True, symmetrize=False)
  x = factored_positive_solve_p(a, factor, b, lower=True)
  return nan_where(info != 0, x, core=2), info
