"""Matchers of StableHLO, which find out how a program makes an operand.

A route may take the source of an operand instead of the operand itself. Sources are what a
transpose, or the mean of a matrix and its adjoint, is made from.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.extend.mlir import ir
from jax.sharding import PartitionSpec

from linalg._core.primitive import spec_of


def transposed_from(x: ir.Value) -> tuple[ir.Value, tuple[int, ...]] | None:
  """Returns the array that `x` is a transpose of, and its order of dimensions in `x`, or None.

  XLA folds a transpose into its own operations, but not into a custom call.
  """
  made = made_by(x, "transpose")
  return made and (made.operands[0], tuple(made.attributes["permutation"]))


def transposed_type(x: Any, permutation: Sequence[int]) -> Any:
  """The type of an array that is of type `x` with its dimensions in this order."""
  back = np.argsort(permutation)
  spec = PartitionSpec(*(spec_of(x)[d] for d in back))
  return x.update(shape=tuple(x.shape[d] for d in back), sharding=x.sharding.update(spec=spec))


def is_all(x: ir.Value, number: np.floating | np.integer) -> bool:
  """Whether every element of an array is this number, sign included, as the program makes it."""
  while spread := made_by(x, "broadcast_in_dim"):
    x = spread.operands[0]
  made = made_by(x, "constant")
  return made is not None and made.attributes["value"] == ir.DenseElementsAttr.get(
      np.asarray(number).data)


def is_lower_triangle(mask: ir.Value) -> bool:
  """Whether an array is true on and below the diagonal of its last two dimensions, and false
  elsewhere.

  The program makes it for one matrix, as row >= column or as row + 0 >= column.
  """
  matrix = list(mask.type.shape)[-2:]
  while spread := made_by(mask, "broadcast_in_dim"):
    rank = len(mask.type.shape)
    if list(spread.attributes["broadcast_dimensions"])[-2:] != [rank - 2, rank - 1]:
      return False
    mask = spread.operands[0]
  compared = made_by(mask, "compare")
  if compared is None or "GE" not in str(compared.attributes["comparison_direction"]):
    return False
  row, col = compared.operands
  # A matrix cannot be made from a part of it, and a narrow integer cannot count its rows.
  if list(row.type.shape) != matrix or str(row.type.element_type) not in ("i32", "i64"):
    return False
  if (total := made_by(row, "add")) and any(
      is_all(total.operands[1], zero) for zero in (np.int32(0), np.int64(0))):
    row = total.operands[0]
  counts = [made_by(x, "iota") for x in (row, col)]
  return [x and x.attributes["iota_dimension"].value for x in counts] == [0, 1]


def is_result(x: ir.Value, index: int, name: str, **attributes: Any) -> bool:
  """Whether this is result `index` of a call of the handler `name` with these attributes."""
  call = made_by(x, "custom_call")
  if call is None or ir.OpResult(x).result_number != index or (
      call.attributes["call_target_name"].value not in (name, f"{name}_captured")):
    return False
  given = call.attributes["mhlo.backend_config"]
  return all(given[key].value == value for key, value in attributes.items())


def made_by(x: ir.Value, name: str) -> Any:
  """The operation of StableHLO that makes `x`, if it has this name."""
  made = getattr(x.owner, "operation", x.owner)
  return made if getattr(made, "name", None) == f"stablehlo.{name}" else None


class CallView(NamedTuple):
  """A primitive's call, either unchanged or with operands replaced by their sources."""

  types: Sequence[Any]
  operands: Sequence[Any]
  parameters: Mapping[str, Any]
  arrange: Callable[[jax.Array], jax.Array] | None = None  # from this result to the program's


def of_mean(call):
  """The view of a Cholesky call without the symmetrization of its operand.

  jax.numpy's function factors (A + Aᵀ) / 2 of real matrices. The handler does that if asked.
  """
  if call.types[0].dtype.kind != "f":
    return
  half = made_by(call.operands[0], "divide")
  total = half and made_by(half.operands[0], "add")
  if total is None:
    return
  a, other = total.operands
  found = transposed_from(other)
  rank = call.types[0].ndim
  last_two = (*range(rank - 2), rank - 1, rank - 2)
  if found == (a, last_two) and is_all(half.operands[1], call.types[0].dtype.type(2)):
    yield call._replace(operands=[a], parameters=call.parameters | {"of_mean": True})


def _untransposed(call):
  """Views of a product whose operands are read as they were before the program transposed them.

  XLA's own products read them so. A batch that `vmap` has moved becomes the first dimension again.
  """
  found = [transposed_from(x) for x in call.operands]
  choices = [[None] if source is None else [source, None] for source in found]
  *some, _ = itertools.product(*choices)  # the last is the unchanged call
  for sources in some:
    yield _with_sources(call, sources)


def _with_sources(call, sources):
  """A product of the sources of operands that the program transposes."""
  types, operands, order = list(call.types), list(call.operands), []
  contracted, batch = map(list, call.parameters["dimension_numbers"])
  for i, source in enumerate(sources):
    permutation = tuple(range(types[i].ndim))
    if source is not None:
      operands[i], permutation = source
      types[i] = transposed_type(types[i], permutation)
    # The result has the dimensions that are neither, in the order of each operand.
    free = [d for j, d in enumerate(permutation) if j not in (*contracted[i], *batch[i])]
    order += [len(order) + sorted(free).index(d) for d in free]
    contracted[i], batch[i] = (
        tuple(permutation[j] for j in dims) for dims in (contracted[i], batch[i]))
  before = len(batch[0])
  order = (*range(before), *(before + d for d in order))
  arrange = functools.partial(lax.transpose, permutation=order)
  return CallView(
      types, operands, call.parameters | {"dimension_numbers": (tuple(contracted), tuple(batch))},
      arrange if order != tuple(range(len(order))) else None)


# Other views of a call. They are tried before the call itself.
OTHER_VIEWS: dict[str, Callable[[CallView], Iterator[CallView]]] = {
    "cholesky": of_mean, "dot_general": _untransposed}


def lower_triangle(ctx, mask, *cases):
  """JAX takes the lower triangle of a Cholesky factor; the handler's factor is zero elsewhere.

  That holds for NaN too. Complex constants cannot be read, so for complex factors the triangle is
  still taken.
  """
  if len(cases) != 2 or not is_result(cases[1], 0, "linalg_cholesky", lower=True):
    return None
  dtype = ctx.avals_in[1].dtype
  whole = (
      dtype.kind == "f" and is_all(cases[0], dtype.type(0))
      and is_lower_triangle(mask))
  return [cases[1]] if whole else None
