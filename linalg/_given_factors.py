"""Functions of a matrix alone that are computed from its factors.

To derivatives the factors are constants: the rule knows the matrix itself. So a derivative costs no
factorisation, and is right where that of the factors is not, as at equal eigenvalues.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linalg import ffi


def given_factors(
    name: str,
    signature: str,
    dtypes: Sequence[Any] | Callable[..., Sequence[Any]],
    value: Callable[..., Any],
    *,
    attributes: Mapping[str, Any] | None = None,
    shared: Sequence[int] = (),
    jvp: Callable[..., Any],
    transpose: Callable[..., Any] | None = None,
) -> ffi.Operation:
  """An operation on a matrix, its factors, and further operands if it has any.

  It has no handler of its own: it is a primitive for the sake of its derivatives.

  Args:
    name, signature, dtypes, attributes, shared, jvp, transpose: as for `ffi.operation`. The first
      operand is the matrix, and the rules are for it and the further operands.
    value: the function itself, of all operands but the matrix.
  """
  return ffi.operation(
      name, signature, dtypes, attributes=attributes, shared=shared, platforms=(), jvp=jvp,
      transpose=transpose,
      fallback=lambda matrix, *operands, **attributes: [value(*operands, **attributes)])
