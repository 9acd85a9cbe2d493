"""Batch-partitionable, differentiable calls of XLA FFI handlers: yours, and all of this package's.

`jax.ffi.ffi_call` gathers a sharded batch onto every device, and it refuses meshes with Explicit
axes. An `operation` made here runs on each shard in place. It does so in every mode that JAX has
for sharded programs: Auto and Explicit meshes, `shard_map`, and export with a symbolic batch. It
also runs under `vmap`, and with a JVP under every kind of differentiation. Compiled programs never
call back to Python.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.core
import numpy as np
from jax.typing import ArrayLike

from linalg._core import primitive, targets
from linalg._core.primitive import ShardingTypeError

__all__ = [
    "Operation", "ShardingTypeError", "broadcast_batches", "operation", "refuse_sharded",
    "register_target"]


def register_target(name: str, handler: object, *, platform: str = "cpu") -> None:
  """Registers an FFI handler as a batch-partitionable target.

  Args:
    name: the target's.
    handler: a PyCapsule of the handler.
    platform: "cpu", "cuda" or "rocm".

  The handler gets the part of the batch that is on its device. Operands and results have the shape
  `(*batch, *core)`, with any number of batch dimensions.

  Example:
    >>> import ctypes, jax, linalg
    >>> library = ctypes.CDLL("build/libtridiagonal.so")  # doctest: +SKIP
    >>> handler = jax.ffi.pycapsule(library.tridiagonal_solve)  # doctest: +SKIP
    >>> linalg.ffi.register_target("tridiagonal_solve", handler)  # doctest: +SKIP
  """
  targets.register(name, handler, platform)


class Operation:
  """A batch-partitionable call of one FFI target; made by `operation`."""

  def __init__(self, name: str, attributes: Mapping[str, Any], rules: primitive.Rules):
    self.name = name
    self.attributes = dict(attributes)
    self.platforms = rules.platforms
    self._rules = rules
    in_place = {} if rules.in_place is None else {primitive.OVERWRITE: False}
    self._defaults = self.attributes | in_place
    self.primitive = primitive.make_primitive(name, rules)

  def __call__(self, *operands: ArrayLike, **attributes: Any) -> Any:
    if len(operands) != len(self._rules.ranks):
      raise TypeError(
          f"{self.name} takes {len(self._rules.ranks)} operands, got {len(operands)}.")
    if unknown := attributes.keys() - self._defaults.keys():
      raise TypeError(f"{self.name} has no attribute {', '.join(sorted(unknown))}.")
    arrays = [jax.numpy.asarray(x) for x in operands]
    results = primitive.bind(
        self.primitive, self._rules, arrays, self._defaults | attributes)
    return results[0] if len(results) == 1 else tuple(results)

  def runs_on(self, platform: str, *types: Any, **attributes: Any) -> bool:
    """Whether a program for `platform` calls the handler rather than the fallback.

    `types` are the operands' types: anything with a shape, a dtype and a sharding, as from
    `jax.typeof`.
    """
    return primitive.takes(
        self.name, self._rules, platform, types, **self.attributes | attributes)

  def lowering(
      self, platform: str, results: Sequence[int], **attributes: Any
  ) -> Callable[..., Sequence[Any] | None]:
    """A lowering rule for another primitive, `rule(ctx, *operands)`.

    That primitive takes operands of the same types, all with the same batch, and returns the given
    results of this operation. The rule returns None where the primitive's results have other types.

    Args:
      platform: a platform where the operation runs; see `runs_on`.
      results: indices of the operation's results.
    """
    return primitive.lowering(
        self.name, self._rules, platform, results, self._defaults | attributes)

  def __repr__(self) -> str:
    return f"<linalg.ffi.Operation {self.name}>"


def operation(
    name: str,
    signature: str,
    dtypes: Sequence[Any] | Callable[..., Sequence[Any]],
    *,
    attributes: Mapping[str, Any] | None = None,
    shared: Sequence[int] = (),
    in_place: tuple[int, int] | None = None,
    platforms: Sequence[str] | None = None,
    jvp: Callable[..., Any] | None = None,
    transpose: Callable[..., Any] | None = None,
    fallback: Callable[..., Any] | None = None,
    suits: Callable[..., bool] | None = None,
    exported: bool = True,
    unshared: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | None = None,
) -> Operation:
  """A function that calls the FFI target `name` on batches of any shape.

  Args:
    name: the target, registered with `register_target`.
    signature: the core shapes of operands and results, as in `"n n -> n n, n"`. A dimension is a
      name, an integer, `min(m,n)`, or, in a result, the name of an integer attribute. `()` is a
      scalar. Every operand and result has the batch dimensions in front of these.
    dtypes: the dtype of each result. An integer i stands for the dtype of operand i. A function of
      the operands' dtypes and the attributes may return the list instead.
    attributes: the handler's attributes with their default values: `bool`, `int` (64 bits), NumPy
      scalars, or strings. A call may override them by keyword.
    shared: the operands that the handler also takes without batch dimensions, one for the whole
      batch. Other operands are broadcast.
    in_place: an operand, and a result of its shape and dtype that the handler can write to the same
      memory. A call asks for that with `overwrite=True`. This saves memory if the operand is an
      argument that `jax.jit` was told to donate. XLA copies an operand that is still needed. The
      rules below do not see `overwrite`.
    platforms: where the handler is called: "cpu", "cuda", "rocm". The default is where the target
      is registered when the operation is made, or "cpu" if it is not registered yet.
    jvp: `jvp(primals, tangents, **attributes) -> (results, result_tangents)`. A tangent is None
      where it is zero, and the rule returns None where a result has none. The rule is written for
      batches: matrices are the last two dimensions.
    transpose: `transpose(cotangents, operands, **attributes) -> operand_cotangents`, for an
      operation that is linear in some operands. They are None among `operands`. The rule returns
      their cotangents, and None for the others.
    fallback: the same function in JAX, `fallback(*operands, **attributes) -> list of results`. It
      runs on platforms that are not among `platforms`, and on GPUs that this package's own handlers
      do not support.
    suits: `suits(platform, *types, **attributes) -> bool`, asked when a call is lowered. It says
      whether operands of these shapes and dtypes go to the platform's handler rather than to
      `fallback`. By default all do.
    exported: whether the handler is also called by programs that are exported or for several
      platforms. If not, `fallback` must be given.
    unshared: the same function by other operations, `unshared(*operands, **attributes) -> list of
      results`. `vmap` uses it where a shared operand has some batch dimensions but not all, and
      would be copied.
    batch: `batch(operands, dims, **attributes) -> (results, dims)`, a batching rule like JAX's, for
      `vmap` where some results need not be mapped. It returns None where the target is to be
      called.

  Returns:
    A function of as many arrays as the signature has operands, whose batch shapes may broadcast. It
    returns one array, or a tuple of several. It raises ShardingTypeError for an operand that is
    sharded over a matrix dimension of an Explicit mesh.

  Example:
    >>> import jax.numpy as jnp, linalg.ffi
    >>> cholesky = linalg.ffi.operation(  # this package's own target, called as one of yours
    ...   "linalg_cholesky", "n n -> n n, ()", [0, jnp.int32],
    ...   attributes={"lower": True, "symmetrize": True})
    >>> factor, info = cholesky(jnp.array([[[4.0, 2.0], [2.0, 2.0]]]))
    >>> print(factor[0], info)
    [[2. 0.]
     [1. 1.]] [0]
    >>> print(cholesky(4 * jnp.eye(2), lower=False)[0])
    [[2. 0.]
     [0. 2.]]
  """
  operands, results = _parse(signature)

  def result_types(shapes, operand_dtypes, **values):
    sizes: dict[str, Any] = {
        key: int(value) for key, value in values.items() if isinstance(value, (int, np.integer))}
    for i, (dims, shape) in enumerate(zip(operands, shapes, strict=True)):
      for dim, size in zip(dims, shape, strict=True):
        expected = sizes.setdefault(dim, size) if not dim.isdecimal() else int(dim)
        if size != expected:
          raise TypeError(
              f"{name}: operand {i} must have shape (..., {', '.join(dims)}), got {tuple(shape)} "
              f"where {dim} is {expected}.")
    wanted = dtypes(*operand_dtypes, **values) if callable(dtypes) else dtypes
    return [
        (tuple(_size(dim, sizes) for dim in dims),
         operand_dtypes[dtype] if isinstance(dtype, int) else np.dtype(dtype))
        for dims, dtype in zip(results, wanted, strict=True)
    ]

  rules = primitive.Rules(
      ranks=tuple(len(dims) for dims in operands),
      results=result_types,
      platforms=tuple((targets.platforms(name) or ("cpu",)) if platforms is None else platforms),
      shared=frozenset(shared),
      in_place=in_place,
      prepare=functools.partial(targets.prepare, name),
      refusal=functools.partial(targets.refusal, name),
      target=functools.partial(targets.call_target, name),
      jvp=jvp,
      transpose=transpose,
      fallback=fallback,
      suits=suits or (lambda platform, *types, **attributes: True),
      exported=exported,
      unshared=unshared,
      batch=batch)
  return Operation(name, attributes or {}, rules)


def broadcast_batches(
    name: str, operands: Sequence[jax.Array], ranks: Sequence[int]
) -> list[jax.Array]:
  """Operands whose batch dimensions are broadcast against each other, and their sharding too.

  An operation broadcasts its operands in the same way, except for shared ones. This is for
  functions that return an operand which they have not passed to an operation.

  Args:
    name: the function's, for errors.
    operands: arrays of shape (*batch, *core).
    ranks: the number of core dimensions of each.

  Returns:
    The operands, all of the same batch dimensions.

  Example:
    >>> import jax.numpy as jnp, linalg.ffi
    >>> a, b = jnp.ones((10, 1, 3, 3)), jnp.ones((4, 3))
    >>> a, b = linalg.ffi.broadcast_batches("mine", [a, b], [2, 1])
    >>> a.shape, b.shape
    ((10, 4, 3, 3), (10, 4, 3))
  """
  return primitive.broadcast_batches(name, list(operands), ranks)


def refuse_sharded(name: str, *operands: jax.Array, rank: int = 2) -> None:
  """Raises the error that an operation raises for operands sharded over a matrix dimension.

  This is for functions that compute with their operands before they call an operation. JAX's own
  error would be about the first such computation.

  Args:
    name: the function's.
    operands: arrays whose last `rank` dimensions must not be sharded on an Explicit mesh.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.ffi
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   try:
    ...     linalg.ffi.refuse_sharded("mine", jnp.zeros((8, 8), out_sharding=jax.P("x")))
    ...   except linalg.ffi.ShardingTypeError as error:
    ...     print(str(error).split(": ")[1])
    operand 0 is sharded over a matrix dimension
  """
  for i, x in enumerate(operands):
    primitive.refuse_sharded_core(name, i, jax.typeof(x), rank)


_DIMENSION = r"min\(\w+,\s*\w+\)|\w+"
_SHAPE = rf"\(\)|(?:{_DIMENSION})(?:\s+(?:{_DIMENSION}))*"


def _parse(signature: str) -> tuple[list[list[str]], list[list[str]]]:
  """The dimensions of each operand and of each result."""
  sides = signature.split("->")
  if len(sides) != 2 or not all(
      re.fullmatch(rf"\s*(?:{_SHAPE})\s*(?:,\s*(?:{_SHAPE})\s*)*", side) for side in sides):
    raise ValueError(f"signature must look like 'm n, n -> m, ()', got {signature!r}")
  operands, results = (
      [re.findall(_DIMENSION, shape) for shape in re.findall(_SHAPE, side)] for side in sides)
  return operands, results


def _size(dim: str, sizes: Mapping[str, Any]) -> Any:
  if dim.isdecimal():
    return int(dim)
  if minimum := re.fullmatch(r"min\((\w+),\s*(\w+)\)", dim):
    return jax.core.min_dim(sizes[minimum[1]], sizes[minimum[2]])
  return sizes[dim]
