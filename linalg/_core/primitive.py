"""JAX primitives whose batch dimensions XLA may partition.

This file alone uses JAX beyond its plain public API. It knows no mathematics.

XLA splits a custom call along a sharded batch, instead of gathering it, if three things agree. The
target is registered as batch-partitionable. The frontend attribute `num_batch_dims` says how many
leading dimensions are batch. A Shardy rule says the same to sharding propagation.

In the types, abstract evaluation carries the batch part of the operands' sharding to the results.
Meshes with Explicit axes check these types.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy
from jax.interpreters import ad, batching, mlir
from jax.sharding import PartitionSpec

try:
  from jax._src.core import ShardingTypeError  # pyright: ignore[reportAssignmentType]
except ImportError:  # not exported by jax.errors; any TypeError does

  class ShardingTypeError(TypeError):  # type: ignore[no-redef]
    """A sharding that an operation cannot take."""


Shape = tuple[Any, ...]  # of int, or of a symbolic dimension of jax.export


class Rules(NamedTuple):
  """The parameters of a primitive other than its name. See `linalg.ffi.operation`."""

  ranks: tuple[int, ...]  # number of core dimensions of each operand
  results: Callable[..., Sequence[tuple[Shape, Any]]]  # (shapes, dtypes, **attributes)
  platforms: tuple[str, ...]
  shared: frozenset[int] = frozenset()  # operands that may lack all batch dimensions
  in_place: tuple[int, int] | None = None  # an operand, and the result that may take its memory
  prepare: Callable[[str], None] = lambda platform: None  # called when a call is lowered
  refusal: Callable[[str], str | None] = lambda platform: None  # why the fallback is called
  target: Callable[..., str] | None = None  # the target to call, if it is not the name
  jvp: Callable[..., Any] | None = None
  transpose: Callable[..., Any] | None = None
  fallback: Callable[..., Any] | None = None
  suits: Callable[..., bool] = lambda platform, *types, **attributes: True  # else the fallback
  exported: bool = True  # whether exported programs call the handler too
  unshared: Callable[..., Any] | None = None  # used instead where vmap would copy a shared operand
  batch: Callable[..., Any] | None = None  # (operands, dims, **attributes), used instead under vmap

  def run_on(self, platform: str, *types: Any, **attributes: Any) -> bool:
    """Whether a program for `platform` calls the handler for operands of these types."""
    return (
        platform in self.platforms and self.suits(platform, *types, **attributes)
        and self.refusal(platform) is None)


# The parameter that says whether a result takes an operand's memory. Only lowering reads it.
OVERWRITE = "overwrite"


def _without_overwrite(rule):
  @functools.wraps(rule)
  def without(*args, **attributes):
    attributes.pop(OVERWRITE, None)
    return rule(*args, **attributes)

  return without


def make_primitive(name: str, rules: Rules) -> Primitive:
  """The primitive for the FFI target `name`; its results are always a list."""
  rules = rules._replace(**{
      field: _without_overwrite(rule)
      for field in ("results", "jvp", "transpose", "fallback", "suits", "unshared", "batch")
      if (rule := getattr(rules, field)) is not None})
  primitive = Primitive(name)
  primitive.multiple_results = True

  # Attributes may be functions that a program makes anew for each call, so the cache is bounded.
  @functools.lru_cache(maxsize=256)
  def compiled(attributes):
    def call(*operands):
      return primitive.bind(*operands, **dict(attributes))

    call.__name__ = call.__qualname__ = name
    call._apply_primitive = True  # an error of jax_debug_nans ends here, without a second try
    return jax.jit(call)

  @primitive.def_impl
  def _(*operands, **attributes):
    with jax.disable_jit(False):
      return compiled(tuple(sorted(attributes.items())))(*operands)

  primitive.def_abstract_eval(functools.partial(_abstract_eval, name, rules))

  for platform in rules.platforms:
    lower = functools.partial(_lower, name, rules, platform)
    mlir.register_lowering(primitive, lower, platform=platform)
  if rules.fallback is not None:
    mlir.register_lowering(primitive, mlir.lower_fun(rules.fallback, multiple_results=True))

  batching.primitive_batchers[primitive] = functools.partial(_batch, primitive, rules)
  if rules.jvp is not None:
    ad.primitive_jvps[primitive] = functools.partial(_jvp, rules.jvp)
  if rules.transpose is not None:
    ad.primitive_transposes[primitive] = functools.partial(_transpose, rules.transpose)
  return primitive


# Types


def _abstract_eval(name, rules, *operands, **attributes):
  for i, (x, rank) in enumerate(zip(operands, rules.ranks, strict=True)):
    if x.ndim < rank:
      raise TypeError(f"{name}: operand {i} must have rank at least {rank}, got shape {x.shape}.")
  num_batch_dims = _num_batch_dims(operands, rules.ranks)
  widest = next(
      i for i, (x, rank) in enumerate(zip(operands, rules.ranks, strict=True))
      if x.ndim - rank == num_batch_dims)
  like = operands[widest]
  batch = like.shape[:num_batch_dims]
  batch_spec = spec_of(like)[:num_batch_dims]
  for i, (x, rank) in enumerate(zip(operands, rules.ranks, strict=True)):
    refuse_sharded_core(name, i, x, rank)
    own_batch, own_spec = x.shape[: x.ndim - rank], spec_of(x)
    if i in rules.shared and not own_batch:
      continue
    if own_batch != batch:
      raise TypeError(f"{name}: operand {i} must have the batch shape {batch}, got {own_batch}.")
    if own_spec[:num_batch_dims] != batch_spec:
      raise ShardingTypeError(
          f"{name}: operand {i} must be sharded over the batch like operand {widest}, "
          f"{PartitionSpec(*batch_spec)}, got {PartitionSpec(*own_spec[:num_batch_dims])}.")
  if len({_varying(x) for x in operands}) > 1:
    axes = [sorted(_varying(x)) for x in operands]
    raise ValueError(f"{name}: operands vary over different manual axes: {axes}.")

  shapes = [x.shape[x.ndim - rank :] for x, rank in zip(operands, rules.ranks, strict=True)]

  # A constant has no mesh.
  shardings = [like.sharding, *(x.sharding for x in operands)]
  sharding = next((x for x in shardings if not x.mesh.empty), like.sharding)

  def result(shape, dtype):
    spec = PartitionSpec(*batch_spec, *(None,) * len(shape))
    return like.update(
        shape=(*batch, *shape), dtype=np.dtype(dtype), weak_type=False,
        sharding=sharding.update(spec=spec))

  results = rules.results(shapes, [x.dtype for x in operands], **attributes)
  return [result(tuple(shape), dtype) for shape, dtype in results]


def refuse_sharded_core(name: str, operand: int | str, x: Any, rank: int) -> None:
  """Raises ShardingTypeError if a type is sharded over one of its last `rank` dimensions."""
  spec = spec_of(x)
  if any(axis is not None for axis in spec[x.ndim - rank :]):
    unsharded = PartitionSpec(*spec[: x.ndim - rank], *(None,) * rank)
    raise ShardingTypeError(
        f"{name}: operand {operand} is sharded over a matrix dimension: {x.str_short(True)}. A "
        "matrix is worked on by one device; reshard it first: "
        f"jax.sharding.reshard(x, {unsharded}). Functions for matrices that several devices share "
        "are in linalg.distributed.")


def _num_batch_dims(operands, ranks) -> int:
  return max(x.ndim - rank for x, rank in zip(operands, ranks, strict=True))


def spec_of(x) -> tuple[Any, ...]:
  """The sharding of each dimension, as the type of `x` has it."""
  spec = tuple(x.sharding.spec)
  return spec + (None,) * (x.ndim - len(spec))


def _varying(x) -> frozenset[str]:
  """The manual axes of shard_map over which a value of type `x` varies."""
  manual = getattr(x, "manual_axis_type", None)  # jax >= 0.11
  return manual.varying if manual is not None else getattr(x, "vma", frozenset())


# Batches


def bind(primitive: Primitive, rules: Rules, operands, attributes) -> list[jax.Array]:
  """Binds operands whose batch shapes broadcast against each other, as NumPy's do.

  A shared operand without batch dimensions is not broadcast. XLA's partitioner replicates an
  operand whose rank is less than `num_batch_dims`, which is right for a shared operand. The other
  operands get unit batch dimensions until that holds.
  """
  operands = _match_manual_axes(operands)
  num_batch_dims = _num_batch_dims(operands, rules.ranks)
  shared = [
      i for i in rules.shared if num_batch_dims > 0 and operands[i].ndim == rules.ranks[i]]
  missing = max([1 + rules.ranks[i] - num_batch_dims for i in shared], default=0)
  padding = tuple(range(num_batch_dims, num_batch_dims + max(missing, 0)))
  others = [i for i in range(len(operands)) if i not in shared]
  batched = broadcast_batches(
      primitive.name, [operands[i] for i in others], [rules.ranks[i] for i in others])
  for i, x in zip(others, batched, strict=True):
    operands[i] = lax.expand_dims(x, padding)
  return [lax.squeeze(y, padding) for y in primitive.bind(*operands, **attributes)]


def _match_manual_axes(operands):
  """Lets all operands vary over the same manual axes, as jax.numpy's functions do."""
  own = [_varying(jax.typeof(x)) for x in operands]
  axes = frozenset().union(*own)
  return [
      x if varying == axes else lax.pcast(x, tuple(sorted(axes - varying)), to="varying")
      for x, varying in zip(operands, own, strict=True)
  ]


def broadcast_batches(name, operands, ranks):
  """Broadcasts the batch dimensions, and their sharding in the types of Explicit meshes."""
  batches = [x.shape[: x.ndim - rank] for x, rank in zip(operands, ranks, strict=True)]
  batch = jax.numpy.broadcast_shapes(*batches)
  spec, like = _broadcast_specs(name, operands, batches, batch)

  def broadcast(x, rank):
    shape = (*batch, *x.shape[x.ndim - rank :])
    lead = len(shape) - x.ndim
    wanted = None
    if like is not None:
      # A sharded matrix dimension is kept, for abstract evaluation to refuse.
      full = PartitionSpec(*spec, *spec_of(jax.typeof(x))[x.ndim - rank :])
      wanted = like.update(spec=full)
      if spec_of(jax.typeof(x)) != tuple(full):
        # Reshard only along dimensions that x is not broadcast along.
        own = [axis if size == whole else None
               for axis, size, whole in zip(full[lead:], x.shape, shape[lead:], strict=True)]
        x = jax.sharding.reshard(x, like.update(spec=PartitionSpec(*own)))
    if shape == x.shape:
      return x
    return lax.broadcast_in_dim(x, shape, tuple(range(lead, len(shape))), out_sharding=wanted)

  return [broadcast(x, rank) for x, rank in zip(operands, ranks, strict=True)]


def _broadcast_specs(name, operands, batches, batch):
  """The sharding of each batch dimension, and the sharding of an operand that has one."""
  spec: list[Any] = [None] * len(batch)
  owner = [0] * len(batch)
  like = None
  for i, (x, own) in enumerate(zip(operands, batches, strict=True)):
    offset = len(batch) - len(own)
    for dim, axis in enumerate(spec_of(jax.typeof(x))[: len(own)], start=offset):
      if axis is None or own[dim - offset] != batch[dim]:
        continue
      if spec[dim] not in (None, axis):
        raise ShardingTypeError(
            f"{name}: operands {owner[dim]} and {i} must be sharded over the batch alike, got "
            f"{jax.typeof(operands[owner[dim]]).str_short(True)} and "
            f"{jax.typeof(x).str_short(True)}; reshard one of them: jax.sharding.reshard.")
      spec[dim], owner[dim], like = axis, i, jax.typeof(x).sharding
  axes = [name for axis in spec if axis for name in (axis if isinstance(axis, tuple) else (axis,))]
  if len(set(axes)) < len(axes):
    raise ShardingTypeError(
        f"{name}: the operands are sharded over the same mesh axis in different batch dimensions, "
        f"{', '.join(jax.typeof(x).str_short(True) for x in operands)}; reshard one of them: "
        "jax.sharding.reshard.")
  return spec, like


def _batch(primitive, rules, operands, dims, **attributes):
  if rules.batch is not None:
    batched = rules.batch(operands, dims, **attributes)
    if batched is not None:
      return batched
  num_batch_dims = _num_batch_dims(
      operands, [rank + (dim is not None) for rank, dim in zip(rules.ranks, dims, strict=True)])

  def to_front(x, rank, dim):
    if dim is None:
      return x
    x = jax.numpy.moveaxis(x, dim, 0)
    # A mapped shared operand is no longer shared: its batch is the new dimension.
    missing = num_batch_dims - (x.ndim - 1 - rank)
    return lax.expand_dims(x, tuple(range(1, 1 + missing)))

  def is_copied(i):
    own = operands[i].ndim - rules.ranks[i] - (dims[i] is not None)
    return own > 0 if dims[i] is None else own < num_batch_dims

  if rules.unshared is not None and any(map(is_copied, rules.shared)):
    apart = functools.partial(rules.unshared, **attributes)
    results = jax.vmap(apart, in_axes=tuple(dims), axis_size=_size(operands, dims))(*operands)
    return list(results), [0] * len(results)
  operands = [
      to_front(x, rank, dim) for x, rank, dim in zip(operands, rules.ranks, dims, strict=True)]
  results = bind(primitive, rules, operands, attributes)
  return results, [0] * len(results)


def _size(operands, dims):
  return next(x.shape[dim] for x, dim in zip(operands, dims, strict=True) if dim is not None)


# Derivatives


def _jvp(rule, primals, tangents, **attributes):
  tangents = [None if type(t) is ad.Zero else t for t in tangents]
  results, result_tangents = rule(primals, tangents, **attributes)
  if not isinstance(results, (list, tuple)):
    results, result_tangents = [results], [result_tangents]
  zero = lambda y: ad.Zero(jax.typeof(y).to_tangent_aval())
  return list(results), [
      zero(y) if t is None else t for y, t in zip(results, result_tangents, strict=True)]


def _transpose(rule, cotangents, *operands, **attributes):
  cotangents = [ad.instantiate_zeros(ct) for ct in cotangents]
  known = [None if ad.is_undefined_primal(x) else x for x in operands]
  found = rule(cotangents, known, **attributes)
  return [ct if ct is None else _sum_to(ct, x.aval) for ct, x in zip(found, operands, strict=True)]


def _sum_to(cotangent, aval):
  """Sums the cotangent of a shared operand over the batch that it served."""
  return cotangent.sum(range(cotangent.ndim - aval.ndim))


# Lowering


def _lower(name, rules, platform, ctx, *operands, **attributes):
  called = (rules.exported or is_for_one_platform(ctx)) and rules.run_on(
      platform, *ctx.avals_in, **attributes)
  if rules.fallback is not None and not called:
    return mlir.lower_fun(rules.fallback, multiple_results=True)(ctx, *operands, **attributes)
  rules.prepare(platform)
  overwrite = attributes.pop(OVERWRITE, False)
  num_batch_dims = _num_batch_dims(ctx.avals_in, rules.ranks)
  attributes_of_call = _partitioning_attributes(
      num_batch_dims,
      [(x.shape, x.ndim - rank) for x, rank in zip(ctx.avals_in, rules.ranks, strict=True)],
      [(y.shape, num_batch_dims) for y in ctx.avals_out])
  # XLA copies an operand that is needed afterwards, or that belongs to the caller.
  aliases = {rules.in_place[0]: rules.in_place[1]} if overwrite else None
  target = name
  if rules.target is not None:
    target = rules.target(
        platform, str(ctx.avals_in[0].dtype),
        [x.shape[x.ndim - rank :] for x, rank in zip(ctx.avals_in, rules.ranks, strict=True)],
        [y.shape[num_batch_dims:] for y in ctx.avals_out],
        len({x.ndim - rank for x, rank in zip(ctx.avals_in, rules.ranks, strict=True)}) > 1)
  lower = jax.ffi.ffi_lowering(
      target, operand_output_aliases=aliases, extra_attributes=attributes_of_call)
  return lower(ctx, *operands, **attributes)


def _partitioning_attributes(num_batch_dims, operands, results):
  """The attributes that XLA reads; `operands` and `results` are (shape, number of batch dims)."""
  widest = next(shape for shape, batch in operands if batch == num_batch_dims)
  factors = list(widest[:num_batch_dims])
  mappings = []
  for shape, batch in operands + results:
    core = range(len(factors), len(factors) + len(shape) - batch)
    factors += shape[batch:]
    dims = [sdy.DimMappingAttr.get([factor]) for factor in (*range(batch), *core)]
    mappings.append(sdy.TensorMappingAttr.get(dims))
  rule = sdy.OpShardingRuleAttr.get(
      [size if isinstance(size, int) else 1 for size in factors],
      mappings[: len(operands)], mappings[len(operands) :],
      need_replication_factors=list(range(num_batch_dims, len(factors))), is_custom=True)
  frontend: dict[str, ir.Attribute] = {"num_batch_dims": ir.StringAttr.get(str(num_batch_dims))}
  attributes = {}
  if all(isinstance(size, int) for size in factors):
    attributes["sdy.sharding_rule"] = rule
  else:
    # jax.export has symbolic dimensions: the rule is text until the shapes are known.
    frontend["xla.sdy.sharding_rule"] = ir.StringAttr.get(str(rule))
  attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(frontend)
  return attributes


# Other primitives


def takes(name: str, rules: Rules, platform: str, types: Sequence[Any], **attributes: Any) -> bool:
  """Whether a program for `platform` calls the handler for operands of these types."""
  try:
    _abstract_eval(name, rules, *types, **attributes)
  except (ShardingTypeError, TypeError, ValueError):
    return False
  return rules.run_on(platform, *types, **attributes)


def lowering(
    name: str, rules: Rules, platform: str, results: Sequence[int], attributes: Mapping[str, Any]
) -> Callable[..., Any]:
  """A lowering rule for another primitive of the same operands.

  `results` are the indices of the handler's results that the primitive returns. The rule returns
  None where their types differ from the primitive's.
  """

  def lower(ctx, *operands):
    own = _abstract_eval(name, rules, *ctx.avals_in, **attributes)
    if [(own[i].shape, own[i].dtype) for i in results] != [
        (aval.shape, aval.dtype) for aval in ctx.avals_out]:
      return None
    found = _lower(name, rules, platform, ctx.replace(avals_out=own), *operands, **attributes)
    return [found[i] for i in results]

  return lower


def lower_composed(function: Callable[..., jax.Array], ctx: Any, *operands: Any) -> Any:
  """Lowers a primitive to the operations of a function of the same operands."""
  return mlir.lower_fun(function, multiple_results=False)(ctx, *operands)


def platforms_of(ctx) -> tuple[str, ...]:
  return ctx.platforms or ctx.module_context.platforms


def is_for_one_platform(ctx) -> bool:
  """Whether the program is for one platform, and not exported."""
  module = ctx.module_context
  of_several = getattr(module.shape_poly_state, "has_platform_index_argument", False)
  return (
      len(platforms_of(ctx)) == 1 and not of_several and not module.lowering_parameters.for_export)


