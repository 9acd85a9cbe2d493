"""A function of a matrix with its first and second derivatives, each an operation of its own."""

from collections.abc import Callable, Mapping
from typing import Any

from linalg import ffi
from linalg._algebra import plus
from linalg._given_factors import given_factors

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
) -> ffi.Operation:
  """The operation f(A), of A and two factors of it.

  Args:
    name: the public function's.
    factors: the factors' part of the signature, as "n, n n".
    dtypes: as for `ffi.operation`, of f(A).
    value: `value(*factors, **attributes)`, f(A).
    derivative: `derivative(*factors, e, **attributes)`, the derivative in the direction E.
    second: `second(*factors, e, c, **attributes)`, the second one in the directions E and C.
    transposed: `transposed(a, *factors)`, the transpose of A and its factors.
    attributes: as for `ffi.operation`.
  """

  def value_jvp(primals, tangents, **values):
    result = value_p(*primals, **values)
    return result, derivative_p(*primals, tangents[0].astype(result.dtype), **values)

  def derivative_jvp(primals, tangents, **values):
    *known, e = primals
    da, *_, de = tangents
    change = None if de is None else derivative_p(*known, de, **values)
    if da is not None:
      change = plus(change, second_p(*primals, da.astype(e.dtype), **values))
    return derivative_p(*primals, **values), change

  def derivative_transpose(cotangents, operands, **values):
    *known, _ = operands
    return None, None, None, derivative_p(*transposed(*known), cotangents[0], **values)

  def second_jvp(primals, tangents, **values):
    *known, e, c = primals
    da, *_, de, dc = tangents
    if da is not None:
      raise NotImplementedError(
          f"{name} has derivatives of first and second order alone: the third was asked for.")
    changes = [
        second_p(*known, *directions, **values)
        for directions, tangent in (((de, c), de), ((e, dc), dc)) if tangent is not None]
    return second_p(*primals, **values), sum(changes[1:], changes[0])

  def second_transpose(cotangents, operands, **values):
    *known, e, c = operands
    ct = second_p(
        *transposed(*known), cotangents[0], (c if e is None else e).mT, **values)
    return None, None, None, *((ct, None) if e is None else (None, ct))

  value_p = given_factors(
      name, f"n n, {factors} -> n n", dtypes, value, attributes=attributes, jvp=value_jvp)
  # Linear in its last operand.
  derivative_p: ffi.Operation = given_factors(
      f"{name}_derivative", f"n n, {factors}, n n -> n n", [3], derivative, attributes=attributes,
      jvp=derivative_jvp, transpose=derivative_transpose)
  # Linear in each of its last two operands.
  second_p: ffi.Operation = given_factors(
      f"{name}_second_derivative", f"n n, {factors}, n n, n n -> n n", [3], second,
      attributes=attributes, jvp=second_jvp, transpose=second_transpose)
  return value_p
