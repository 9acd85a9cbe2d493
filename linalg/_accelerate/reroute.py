"""Puts rules of ours in the place of JAX's, for its own primitives: lowerings and derivatives."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir
from jax.sharding import AxisType

from linalg._core.primitive import is_for_one_platform, platforms_of


def reroute(
    name: str, platforms: Sequence[str], route: Callable[..., Any], *, looks_back: bool = False
) -> None:
  """Has JAX's primitive of this name lowered by the rule that `route(platform, automatic,
  parameters)` returns, and by JAX's where that, or what the rule returns, is None.

  `automatic` is whether the compiler shards the program over several devices as it likes, so that
  the types do not say how. Programs that are exported, or for several platforms, are JAX's.

  `looks_back` says that the rule looks at what makes the operands. JAX lowers each call by itself
  then, from here on, not one for all of the same types.
  """
  try:
    from jax._src.interpreters.mlir import _lowerings, _platform_specific_lowerings
  except ImportError as error:
    raise RuntimeError(
        f"linalg does not know where jax {jax.__version__} keeps its lowerings.") from error
  if (primitive := _of_jax(name)) is None:
    return
  default = _lowerings.get(primitive)
  own = {
      platform: rules[primitive] for platform, rules in _platform_specific_lowerings.items()
      if primitive in rules}

  def replace(only, of_jax):
    def lower(ctx, *operands, **parameters):
      found = None
      if is_for_one_platform(ctx) and (platform := platforms_of(ctx)[0]) in platforms:
        found = route(platform, _is_automatic(ctx), parameters)
      results = None if found is None else found(ctx, *operands)
      return of_jax(ctx, *operands, **parameters) if results is None else results

    entry = default if only is None else own[only]
    mlir.register_lowering(
        primitive, lower, platform=only, inline=entry is None or entry.inline,
        cacheable=not looks_back)

  if looks_back and own:
    # JAX has no cases by platforms for what it lowers so: they are a twin's, which has its rules.
    twin = Primitive(f"{name}_of_jax")
    twin.multiple_results = primitive.multiple_results
    twin.def_abstract_eval(lambda *types, **parameters: primitive.abstract_eval(
        *types, **parameters)[0])
    for platform, entry in [*own.items(), *([(None, default)] if default is not None else [])]:
      mlir.register_lowering(twin, entry.rule, platform=platform, inline=entry.inline)
    replace(None, mlir.lower_fun(twin.bind, multiple_results=primitive.multiple_results))
    for platform in own:
      del _platform_specific_lowerings[platform][primitive]
    return

  for platform in platforms:
    if platform in own:
      replace(platform, own[platform].rule)
  if default is not None and not own.keys() >= set(platforms):
    replace(None, default.rule)


def rederive(name: str, rule: Callable[..., Any]) -> None:
  """Has JAX's primitive of this name differentiated by `rule(bind, primals, tangents,
  **parameters)`, which returns its result and that one's tangent, and by JAX's rule where it
  returns None. `bind` computes the primitive."""
  if (primitive := _of_jax(name)) is None or primitive not in ad.primitive_jvps:
    return
  own = ad.primitive_jvps[primitive]

  def jvp(primals, tangents, **parameters):
    found = rule(primitive.bind, primals, tangents, **parameters)
    return own(primals, tangents, **parameters) if found is None else found

  ad.primitive_jvps[primitive] = jvp


def _of_jax(name: str) -> Primitive | None:
  """JAX's primitive of this name, if this version has it."""
  try:
    from jax._src.lax import lax as others
    from jax._src.lax import linalg as decompositions
  except ImportError as error:
    raise RuntimeError(
        f"linalg does not know where jax {jax.__version__} keeps its primitives.") from error
  return getattr(decompositions, f"{name}_p", getattr(others, f"{name}_p", None))


def _is_automatic(ctx) -> bool:
  """Whether the compiler shards the program, by axes that are neither Explicit nor manual."""
  devices = getattr(ctx.module_context.axis_context, "num_devices", None)
  if devices is not None and devices <= 1:
    return False
  mesh = ctx.avals_in[0].sharding.mesh
  return mesh.empty or AxisType.Auto in mesh.axis_types
