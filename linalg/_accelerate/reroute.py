"""Replaces JAX's rules for its own primitives, lowerings and derivatives, with rules of this
package."""

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
  """Replaces the lowering of JAX's primitive of this name.

  `route(platform, automatic, parameters)` returns a lowering rule. JAX's own lowering applies where
  it returns None, or where that rule does. Programs that are exported, or for several platforms,
  are JAX's.

  `automatic` says that the compiler shards the program over several devices as it likes, so the
  types do not show the sharding.

  `looks_back` says that the rule reads how operands are made. JAX then lowers each call by itself,
  rather than once for all calls of the same types.
  """
  general, of_platforms = _lowerings()
  if (primitive := _of_jax(name)) is None:
    return
  default = general.get(primitive)
  own = {
      platform: rules[primitive] for platform, rules in of_platforms.items() if primitive in rules}

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
    # JAX has no per-platform rules for calls that it lowers one by one, so a twin primitive has
    # them.
    twin = Primitive(f"{name}_of_jax")
    twin.multiple_results = primitive.multiple_results
    twin.def_abstract_eval(lambda *types, **parameters: primitive.abstract_eval(
        *types, **parameters)[0])
    for platform, entry in [*own.items(), *([(None, default)] if default is not None else [])]:
      mlir.register_lowering(twin, entry.rule, platform=platform, inline=entry.inline)
    replace(None, mlir.lower_fun(twin.bind, multiple_results=primitive.multiple_results))
    for platform in own:
      del of_platforms[platform][primitive]
    return

  for platform in platforms:
    if platform in own:
      replace(platform, own[platform].rule)
  if default is not None and not own.keys() >= set(platforms):
    replace(None, default.rule)


def rederive(name: str, rule: Callable[..., Any]) -> None:
  """Replaces the JVP rule of JAX's primitive of this name.

  `rule(bind, primals, tangents, **parameters)` returns the result and its tangent. JAX's rule
  applies where it returns None. `bind` computes the primitive.
  """
  if (primitive := _of_jax(name)) is None or primitive not in ad.primitive_jvps:
    return
  own = ad.primitive_jvps[primitive]

  def jvp(primals, tangents, **parameters):
    found = rule(primitive.bind, primals, tangents, **parameters)
    return own(primals, tangents, **parameters) if found is None else found

  ad.primitive_jvps[primitive] = jvp


def _lowerings() -> tuple[dict[Primitive, Any], dict[str, dict[Primitive, Any]]]:
  """JAX's tables of lowerings: those for all platforms, and those of each platform."""
  try:
    return mlir._lowerings, mlir._platform_specific_lowerings
  except AttributeError as error:
    raise RuntimeError(
        f"linalg does not know where jax {jax.__version__} keeps its lowerings.") from error


def _of_jax(name: str) -> Primitive | None:
  """JAX's primitive of this name, if this version has it.

  JAX's tables have all primitives, and those of other libraries. Its modules lack geqrf.
  """
  for module in (jax.lax.linalg, jax.lax):
    if (primitive := getattr(module, f"{name}_p", None)) is not None:
      return primitive
  general, of_platforms = _lowerings()
  tables = (general, *of_platforms.values())
  return next((x for table in tables for x in table if x.name == name), None)


def _is_automatic(ctx) -> bool:
  """Whether the compiler shards the program, along axes that are neither Explicit nor manual."""
  devices = getattr(ctx.module_context.axis_context, "num_devices", None)
  if devices is not None and devices <= 1:
    return False
  mesh = ctx.avals_in[0].sharding.mesh
  return mesh.empty or AxisType.Auto in mesh.axis_types
