"""Triangular substitution."""

import numpy as np
import pytest

import matrices
from linalg._catalogue import checks
from phases import call, in_all_orders, padded

pytestmark = pytest.mark.extended


@pytest.mark.parametrize("n, cols", [(13, 1), (13, 40), (100, 1), (100, 33)])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("operation", ["plain", "transpose", "adjoint", "conjugate"])
@pytest.mark.parametrize("unit_diagonal", [True, False])
def test_substitution(library, dtype, n, cols, lower, operation, unit_diagonal, rng):
  triangle = matrices.triangular(rng, (), n, dtype, lower=lower)
  triangle = np.tril(triangle) if lower else np.triu(triangle)
  given = triangle.copy()
  if unit_diagonal:
    triangle = triangle / n
    given = triangle.copy()
    np.fill_diagonal(triangle, 1)
    np.fill_diagonal(given, np.nan)
  given[np.tri(n, k=-1, dtype=bool).T if lower else np.tri(n, k=-1, dtype=bool)] = np.nan
  b = matrices.general(rng, (), n, cols, dtype)
  transpose = operation in ("transpose", "adjoint")
  conjugate = operation in ("adjoint", "conjugate")
  op = triangle.T if transpose else triangle
  op = op.conj() if conjugate else op

  def run(team, order):
    a, x = padded(given), padded(b)
    call(library, "triangular_solve", dtype, team, order, n, a, a.shape[1], lower, transpose,
          conjugate, unit_diagonal, cols, x, x.shape[1])
    return (x[:, :cols],)

  for (x,) in in_all_orders(run):
    assert checks.solution(op, x, b) <= 10
