"""Meshes of the eight virtual devices, sharded operands, and what a compiled program may not hold."""

import re

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

# Sizes that no other dimension of a test's program has: one that stands in a program for a device
# is the whole batch, so that program works on matrices that lie elsewhere.
BATCH, SECOND_BATCH = 24, 22
N = 5

COLLECTIVES = (
    "all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute",
    "reduce-scatter")


def make_mesh(shape=(8,), names=("x",), kind=AxisType.Auto, devices=None):
  kinds = kind if isinstance(kind, tuple) else (kind,) * len(shape)
  return jax.make_mesh(shape, names, axis_types=kinds, devices=devices)


def place(operands, mesh, *spec):
  """The operands, their leading dimensions sharded by `spec`."""
  return tuple(jax.device_put(x, NamedSharding(mesh, P(*spec))) for x in operands)


def collectives(text):
  """The kinds of collectives in a compiled program."""
  return {name for name in COLLECTIVES if name in text}


def no_collectives(text):
  """The program moves no data between devices, and it calls this package's handlers."""
  assert not collectives(text), f"{collectives(text)} in\n{text}"
  assert 'custom_call_target="linalg_' in text, f"no call of a handler in\n{text}"


def nothing_global(text, *sizes):
  """No array of the program has a dimension as long as the whole batch."""
  for size in sizes or (BATCH, SECOND_BATCH):
    found = re.findall(rf".*\w\[(?:\d+,)*{size}(?:,\d+)*\].*", text)
    assert not found, f"the whole batch, {size}, in:\n" + "\n".join(found)


def compile_local(function, operands, **options):
  """The compiled program of `function`, which must work on each shard where it lies."""
  compiled = jax.jit(function, **options).lower(*operands).compile()
  text = compiled.as_text()
  no_collectives(text)
  nothing_global(text)
  return compiled


def same_bits(actual, expected):
  """Equal trees of arrays, NaN and the sign of zero included."""
  actual, structure = jax.tree.flatten(actual)
  expected, expected_structure = jax.tree.flatten(expected)
  assert structure == expected_structure
  for x, y in zip(map(np.asarray, actual), map(np.asarray, expected), strict=True):
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    if x.tobytes() != y.tobytes():
      np.testing.assert_array_equal(x, y)
      raise AssertionError("the arrays differ in the bits of NaN or the sign of zero")


def sharded_like(results, mesh, *spec):
  """Each result's leading dimensions are sharded by `spec`, its others not."""
  for x in jax.tree.leaves(results):
    expected = NamedSharding(mesh, P(*spec))
    assert x.sharding.is_equivalent_to(expected, x.ndim), f"{x.sharding} is not {expected}"
