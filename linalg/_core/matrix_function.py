"""A function of a matrix, with its first and second derivatives as operations."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from linalg import ffi
from linalg._core.algebra import plus
from linalg._core.implicit_functions import given_factors

__all__ = ["matrix_function"]


def matrix_function(
    name: str,
    factors: str,
    dtypes: Any,
    value: Callable[..., Any],
    derivative: Callable[..., Any],
    second: Callable[..., Any],
    transposed: Callable[..., Any],
    *,
    attributes: Mapping[str, Any] | None = None,
    parameters: int = 0,
    by_parameter: Callable[..., Mapping[str, Any]] | None = None,
) -> ffi.Operation:
  """The operation f(A). Its operands are A, two factors of A, and the parameters of f.

  Args:
    name: the public function's.
    factors: the factors' part of the signature, as "n, n n".
    dtypes: the dtype of f(A), as for `ffi.operation`.
    value: `value(*factors, *numbers, **attributes)`, f(A).
    derivative: `derivative(*factors, *numbers, e, **attributes)`, the derivative in the direction
      E.
    second: `second(*factors, *numbers, e, c, **attributes)`, the second derivative in the
      directions E and C.
    transposed: `transposed(a, *factors)`, the transpose of A and its factors.
    attributes: as for `ffi.operation`.
    parameters: the number of real parameters of f. Each matrix has its own values.
    by_parameter: `by_parameter(i, **attributes)`, the attributes of the derivative of f by
      parameter i. That derivative too is a function of the matrix and the parameters.
  """
  given = 3 + parameters  # the matrix, its factors, and the numbers
  nothing = (None,) * given

  def by_numbers(operation, primals, tangents, values):
    """The tangent of an operation's result due to changes of the parameters."""
    if by_parameter is None:
      return None
    changes = [
        dx.astype(result.dtype)[..., None, None] * result
        for i, dx in enumerate(tangents[3:given]) if dx is not None
        for result in [operation(*primals, **by_parameter(i, **values))]]
    return functools.reduce(plus, changes, None)

  def value_jvp(primals, tangents, **values):
    result = value_p(*primals, **values)
    change = by_numbers(value_p, primals, tangents, values)
    if tangents[0] is not None:
      change = plus(change, derivative_p(*primals, tangents[0].astype(result.dtype), **values))
    return result, change

  def derivative_jvp(primals, tangents, **values):
    *known, e = primals
    da, *_, de = tangents
    change = by_numbers(derivative_p, primals, tangents, values)
    if de is not None:
      change = plus(change, derivative_p(*known, de, **values))
    if da is not None:
      change = plus(change, second_p(*primals, da.astype(e.dtype), **values))
    return derivative_p(*primals, **values), change

  def transposed_operands(operands):
    return *transposed(*operands[:3]), *operands[3:given]

  def derivative_transpose(cotangents, operands, **values):
    return *nothing, derivative_p(*transposed_operands(operands), cotangents[0], **values)

  def second_jvp(primals, tangents, **values):
    *known, e, c = primals
    da, *_, de, dc = tangents
    if da is not None:
      raise NotImplementedError(
          f"{name} has derivatives of first and second order only, and the third was requested.")
    change = by_numbers(second_p, primals, tangents, values)
    for directions, tangent in (((de, c), de), ((e, dc), dc)):
      if tangent is not None:
        change = plus(change, second_p(*known, *directions, **values))
    return second_p(*primals, **values), change

  def second_transpose(cotangents, operands, **values):
    *_, e, c = operands
    ct = second_p(
        *transposed_operands(operands), cotangents[0], (c if e is None else e).mT, **values)
    return *nothing, *((ct, None) if e is None else (None, ct))

  known = ", ".join(["n n", factors, *["()"] * parameters])
  value_p: ffi.Operation = given_factors(
      name, f"{known} -> n n", dtypes, value, attributes=attributes, jvp=value_jvp)
  # Linear in its last operand.
  derivative_p: ffi.Operation = given_factors(
      f"{name}_derivative", f"{known}, n n -> n n", [given], derivative, attributes=attributes,
      jvp=derivative_jvp, transpose=derivative_transpose)
  # The operation is linear in each of its last two operands.
  second_p: ffi.Operation = given_factors(
      f"{name}_second_derivative", f"{known}, n n, n n -> n n", [given], second,
      attributes=attributes, jvp=second_jvp, transpose=second_transpose)
  return value_p
