"""Meshes of the eight virtual devices, sharded operands, and checks of compiled programs."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from linalg.distributed._report import COLLECTIVES
from quick import quick_compile

# Sizes that no other dimension of a test's program has. If one of them occurs in a device's
# program, the whole batch was gathered there.
BATCH, SECOND_BATCH = 24, 22
N = 5

_KINDS = (AxisType.Auto, AxisType.Explicit)
KINDS = pytest.mark.parametrize("kind", _KINDS, ids=lambda k: k.name)


def with_kinds(names, values):
  """Parametrises a test with each value on either kind of mesh. Values are tuples for several
  names.

  By default they alternate between the two kinds. The rest are `extended`.
  """

  def word(x):
    return getattr(x, "__name__", str(x)).strip("_")

  parameters = []
  for i, value in enumerate(values):
    value = value if isinstance(value, tuple) else (value,)
    for kind in _KINDS:
      quick = kind == _KINDS[i % 2]
      parameters.append(pytest.param(
          *value, kind, id="-".join([*map(word, value), kind.name]),
          marks=() if quick else pytest.mark.extended))
  return pytest.mark.parametrize(f"{names}, kind", parameters)


def make_mesh(shape=(8,), names=("x",), kind=AxisType.Auto, devices=None):
  kinds = kind if isinstance(kind, tuple) else (kind,) * len(shape)
  return jax.make_mesh(shape, names, axis_types=kinds, devices=devices)


def place(operands, mesh, *spec):
  """Returns the operands with their leading dimensions sharded by `spec`."""
  return tuple(jax.device_put(x, NamedSharding(mesh, P(*spec))) for x in operands)


def collectives(text):
  """Returns the kinds of collectives in a compiled program."""
  return {name for name in COLLECTIVES if name in text}


def moves_nothing(text):
  """Checks that the program moves no data between devices."""
  found = [line for line in text.splitlines() if collectives(line)]
  assert not found, "collectives:\n" + "\n".join(found)


def no_collectives(text):
  """Checks that the program moves no data between devices, and calls this package's handlers."""
  moves_nothing(text)
  assert 'custom_call_target="linalg_' in text, f"no call of a handler in\n{text}"


def nothing_global(text, *sizes):
  """Checks that no array of the program has a dimension as long as the whole batch."""
  for size in sizes or (BATCH, SECOND_BATCH):
    found = re.findall(rf".*\w\[(?:\d+,)*{size}(?:,\d+)*\].*", text)
    assert not found, f"the whole batch, {size}, in:\n" + "\n".join(found)


def compile_local(function, operands, **options):
  """Compiles `function`, and checks that it works on each shard in place."""
  compiled = quick_compile(function, operands, **options)
  text = compiled.as_text()
  no_collectives(text)
  nothing_global(text)
  return compiled


_unsharded: dict[Any, Callable[..., Any]] = {}
forget = _unsharded.clear


def unsharded(case, operands):
  """The results on one device, compiled once for all tests of a case and a shape."""
  key = case.name, *((x.shape, x.dtype) for x in operands)
  if key not in _unsharded:
    _unsharded[key] = quick_compile(case.results, operands)
  return _unsharded[key](*operands)


def same_bits(actual, expected):
  """Checks that arrays are equal, leaf by leaf, including the sign of zero.

  Any two NaN are equal.
  """
  for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    if not x.size:
      continue  # JAX cannot fetch it from a mesh with Explicit axes
    x, y = np.asarray(x), np.asarray(y)
    np.testing.assert_array_equal(x, y)
    for part in (np.real, np.imag):
      sign = lambda a: np.where(np.isnan(part(a)), 0, np.signbit(part(a)))
      np.testing.assert_array_equal(sign(x), sign(y), "the sign of zero")


def sharded_like(results, mesh, *spec):
  """Checks that each result's leading dimensions are sharded by `spec`, its others not."""
  for x in jax.tree.leaves(results):
    expected = NamedSharding(mesh, P(*spec))
    assert x.sharding.is_equivalent_to(expected, x.ndim), f"{x.sharding} is not {expected}"


def close(actual, expected, tolerance=1e-11):
  """Checks that arrays are nearly equal, leaf by leaf. Sums may be taken in another order."""
  for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    scale = np.max(np.abs(y), initial=1)
    np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * scale)


def energy(case, batch_dims, *operands):
  """Returns one number per matrix: weighted squares of the invariant results."""
  results = case.invariant(case.results(*operands))
  total = 0.0
  for x in results:
    if jnp.issubdtype(x.dtype, jnp.inexact):
      core = x.shape[batch_dims:]
      weights = np.cos(np.arange(np.prod(core, dtype=int)))
      weights = weights.reshape((1,) * batch_dims + core)
      square = x.real**2 + x.imag**2 if jnp.iscomplexobj(x) else x**2
      square = weights * square.astype(weights.dtype)
      total = total + jnp.sum(square, axis=tuple(range(batch_dims, x.ndim)))
  return total


def split(operands):
  """Returns the floating operands, and a function that puts the integers back among them."""
  floating = [x.dtype.kind in "fc" for x in operands]

  def merge(values):
    values = iter(values)
    return [next(values) if is_float else x for is_float, x in zip(floating, operands)]

  return tuple(x for x, is_float in zip(operands, floating) if is_float), merge
