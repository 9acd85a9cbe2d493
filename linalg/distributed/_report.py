"""The data that a compiled program moves between devices, and its memory on each."""

import collections
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

COLLECTIVES = (
    "all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute",
    "ragged-all-to-all", "reduce-scatter")
_COLLECTIVE = re.compile(rf"= (.*?) ({'|'.join(COLLECTIVES)})(?:-start)?\(")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+)\w*\[([\d,]*)\]")
_TRIPS = re.compile(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)')
_CALLED = re.compile(
    r"(?:to_apply|calls|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
    r"|branch_computations=\{([^}]*)\}")


class Report(NamedTuple):
  """The result of `report`.

  Attributes:
    collectives: for each kind, how often it runs.
    received: for each kind, the bytes of its results on one device, including its own part.
    unknown_loops: the number of loops with collectives whose number of iterations is unknown. Their
      collectives are counted once.
    arguments, results, temporaries: bytes on one device.
  """

  collectives: Mapping[str, int]
  received: Mapping[str, int]
  unknown_loops: int
  arguments: int
  results: int
  temporaries: int

  @property
  def moved(self) -> int:
    """The bytes of all collectives' results on one device."""
    return sum(self.received.values())


def report(compiled: Any) -> Report:
  """The data that a compiled program moves between devices, and its memory on each.

  Args:
    compiled: the result of `jax.jit(f).lower(*operands).compile()`.

  Returns:
    A `Report`. Collectives in loops count for each iteration.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> dist.report(jax.jit(jnp.sin).lower(1.0).compile()).moved
    0
  """
  text = compiled.as_text()
  computations, entry = _computations(text)
  counts: collections.Counter[str] = collections.Counter()
  received: collections.Counter[str] = collections.Counter()
  unknown = 0
  for kind, size, times, is_known in _visit(computations, entry, 1, True):
    counts[kind] += times
    received[kind] += times * size
    unknown += not is_known
  memory = compiled.memory_analysis()
  return Report(
      dict(counts), dict(received), unknown, memory.argument_size_in_bytes,
      memory.output_size_in_bytes, memory.temp_size_in_bytes)


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
  """The lines of each computation of a program, and the name of the entry computation."""
  found: dict[str, list[str]] = {}
  entry = name = ""
  for line in text.splitlines():
    if match := re.match(r"^(ENTRY )?%?([\w.\-]+) .*\{$", line):
      name = match[2]
      entry = name if match[1] else entry
      found[name] = []
    elif name:
      found[name].append(line)
  return found, entry


def _visit(
    computations: Mapping[str, list[str]], name: str, times: int, is_known: bool
) -> Iterator[tuple[str, int, int, bool]]:
  """Lists (kind, bytes, count, whether the count is known) of a computation's collectives."""
  for line in computations.get(name, ()):
    if match := _COLLECTIVE.search(line):
      yield match[2], _bytes(match[1]), times, is_known
      continue
    turns, known = times, is_known
    if " while(" in line:
      trips = _TRIPS.search(line)
      turns, known = times * int(trips[1]) if trips else times, is_known and trips is not None
    for match in _CALLED.finditer(line):
      for called in re.findall(r"[\w.\-]+", match[1] or match[2]):
        yield from _visit(computations, called, turns, known)


def _bytes(shapes: str) -> int:
  """The bytes of all arrays in the type of a result."""
  total = 0
  for dtype, dimensions in _ARRAY.findall(shapes):
    bits = 8 if dtype == "pred" else int(re.sub(r"\D", "", dtype))
    total += math.prod(int(d) for d in dimensions.split(",") if d) * bits // 8
  return total
