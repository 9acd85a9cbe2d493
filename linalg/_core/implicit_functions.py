"""Functions of a matrix that are computed from its factors.

Derivatives treat the factors as constants, because the rule has the matrix itself. A derivative
therefore needs no factorization. It is right where the derivative of the factors is not, as at
equal eigenvalues.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linalg import ffi
from linalg._core.algebra import solution_tangent


def given_factors(
    name: str,
    signature: str,
    dtypes: Sequence[Any] | Callable[..., Sequence[Any]],
    value: Callable[..., Any],
    *,
    attributes: Mapping[str, Any] | None = None,
    shared: Sequence[int] = (),
    jvp: Callable[..., Any] | None = None,
    multiply: Callable[..., Any] | None = None,
    transpose: Callable[..., Any] | None = None,
) -> ffi.Operation:
  """An operation on a matrix, its factors, and any further operands.

  The operation has no handler. It is a primitive so that it can have its own derivative rules.

  Args:
    name, signature, dtypes, attributes, shared, jvp, transpose: as for `ffi.operation`. The first
      operand is the matrix. The rules are for the matrix and the further operands.
    value: the function itself, of all operands except the matrix.
    multiply: replaces `jvp` for an X that solves a linear equation with the matrix A. The last
      operand is the right-hand side B, and `multiply(A, X, **attributes) -> B`.
  """
  operation: ffi.Operation = ffi.operation(
      name, signature, dtypes, attributes=attributes, shared=shared, platforms=(),
      jvp=jvp or _jvp_of_solution(lambda: operation, multiply), transpose=transpose,
      fallback=lambda matrix, *operands, **attributes: [value(*operands, **attributes)])
  return operation


def _jvp_of_solution(operation, multiply):
  """The rule of an operation that solves a linear equation: a second solve with the same
  factors."""

  def jvp(primals, tangents, **attributes):
    *known, b = primals
    solve = functools.partial(operation(), *known, **attributes)
    x = solve(b)
    moved = lambda da: multiply(da, x, **attributes)
    return x, solution_tangent(solve, tangents[0], tangents[-1], moved)

  return jvp
