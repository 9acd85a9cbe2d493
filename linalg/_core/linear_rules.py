"""Derivative rules that are operations: a linear function of tangents, and its transpose.

Both have handlers, most of them for small matrices only. A handler does in one pass what the
formula does in many operations. The formula is the fallback, and it is also what the operations are
differentiated by, so it is written once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from linalg import ffi
from linalg._core.algebra import plus, without_none, zeros_like

# A target's name, its signature, its results' dtypes.
Target = tuple[str, str, Sequence[Any] | Callable[..., Sequence[Any]]]


def linear_pair(
    forward: Target,
    backward: Target,
    formula: Callable[..., Sequence[jax.Array]],
    *,
    constants: int,
    argument: Callable[..., jax.Array | Sequence[jax.Array]],
    attributes: Mapping[str, Any] | None = None,
    shared: Sequence[int] = (),
    suits: Callable[..., bool] | None = None,
    exported: bool = True,
    forward_handler: bool = True,
) -> tuple[ffi.Operation, ffi.Operation]:
  """The operations for a formula that is linear in its last operands, and for its transpose.

  Args:
    forward: the target that takes the formula's operands and returns its results.
    backward: the target of the transpose. It takes the constants, and the cotangents of all
      results. It returns the cotangents of the other operands.
    formula: `formula(*constants, *x, **attributes) -> list of results`, differentiable.
    constants: the number of operands before those that it is linear in.
    argument: `argument(*constants)`, an array of the type of the last operand, or a sequence of
      such arrays where there are several.
    attributes, suits, exported: as for `ffi.operation`.
    shared: that of `forward`. `backward` shares those among the constants.
    forward_handler: whether `forward` has a handler. If not, it is the formula on each platform.
  """

  def transposed(*operands, **values):
    known, cotangents = operands[:constants], operands[constants:]
    zeros = [zeros_like(x) for x in _listed(argument(*known))]
    _, pullback = jax.vjp(lambda *x: formula(*known, *x, **values), *zeros)
    return list(pullback(list(cotangents)))

  def derivative(operation, function):
    """The JVP rule of an operation that is linear in all operands after the first `constants`."""

    def jvp(primals, tangents, **values):
      known, linear = primals[:constants], primals[constants:]
      dknown, dlinear = tangents[:constants], tangents[constants:]
      results = _listed(operation()(*primals, **values))
      changes = [None] * len(results)
      if any(dx is not None for dx in dlinear):
        changes = _listed(operation()(*known, *without_none(linear, dlinear), **values))
      if any(dx is not None for dx in dknown):
        _, moved = jax.jvp(
            lambda *known: list(function(*known, *linear, **values)), tuple(known),
            tuple(without_none(known, dknown)))
        changes = [plus(x, y) for x, y in zip(changes, moved, strict=True)]
      return results, changes

    return jvp

  def transposition(operation):
    """The transpose rule of an operation whose transpose is `operation()`."""

    def transpose(cotangents, operands, **values):
      found = _listed(operation()(*operands[:constants], *cotangents, **values))
      return *(None,) * constants, *(
          ct if x is None else None for x, ct in zip(operands[constants:], found, strict=True))

    return transpose

  forward_p: ffi.Operation = ffi.operation(
      *forward, attributes=attributes, shared=shared, suits=suits, exported=exported,
      platforms=None if forward_handler else (), fallback=formula,
      jvp=derivative(lambda: forward_p, formula), transpose=transposition(lambda: backward_p))
  backward_p: ffi.Operation = ffi.operation(
      *backward, attributes=attributes, shared=[i for i in shared if i < constants], suits=suits,
      exported=exported, fallback=transposed,
      jvp=derivative(lambda: backward_p, transposed), transpose=transposition(lambda: forward_p))
  return forward_p, backward_p


def _listed(results: Any) -> list[Any]:
  return list(results) if isinstance(results, (tuple, list)) else [results]
