"""Functions of a matrix alone that are computed from its factors.

To derivatives the factors are constants: the rule knows the matrix itself. So a derivative costs no
factorisation, and is right where that of the factors is not, as at equal eigenvalues.
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
  """An operation on a matrix, its factors, and further operands if it has any.

  It has no handler of its own: it is a primitive for the sake of its derivatives.

  Args:
    name, signature, dtypes, attributes, shared, jvp, transpose: as for `ffi.operation`. The first
      operand is the matrix, and the rules are for it and the further operands.
    value: the function itself, of all operands but the matrix.
    multiply: instead of `jvp` for an X that solves a linear equation with the matrix A, whose right
      side B is the last operand: `multiply(A, X, **attributes) -> B`.
  """
  operation: ffi.Operation = ffi.operation(
      name, signature, dtypes, attributes=attributes, shared=shared, platforms=(),
      jvp=jvp or _jvp_of_solution(lambda: operation, multiply), transpose=transpose,
      fallback=lambda matrix, *operands, **attributes: [value(*operands, **attributes)])
  return operation


def _jvp_of_solution(operation, multiply):
  """The rule of an operation that solves a linear equation: with the same factors once more."""

  def jvp(primals, tangents, **attributes):
    *known, b = primals
    solve = functools.partial(operation(), *known, **attributes)
    x = solve(b)
    moved = lambda da: multiply(da, x, **attributes)
    return x, solution_tangent(solve, tangents[0], tangents[-1], moved)

  return jvp
