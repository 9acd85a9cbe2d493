"""Indices of panels, blocks and rows, none of them negative, and loops over panels.

What `jax.numpy` does about signs would be much of a program, and of the time to compile it.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def quotient(x, y: int) -> Any:
  return x // y if isinstance(x, int) else lax.div(x, x.dtype.type(y))


def remainder(x, y: int):
  return lax.rem(x, x.dtype.type(y))


def take(x, numbers, dimension: int):
  """The entries of some numbers along a dimension; clipped, as none is out of range and NaN for
  those that were would be more of a program."""
  return jnp.take(x, numbers, axis=dimension, mode="clip")


def cut(x, begin, size: int, dimension: int):
  """Of one dimension, a part."""
  return lax.dynamic_slice_in_dim(x, begin, size, dimension, allow_negative_indices=False)


def put(x, part, *begin):
  """An array with a part of it replaced, that begins there."""
  return lax.dynamic_update_slice(x, part, _alike(begin), allow_negative_indices=False)


def window(x, begin, shape):
  """A part of an array, of that shape, that begins there."""
  return lax.dynamic_slice(x, _alike(begin), shape, allow_negative_indices=False)


def _alike(numbers):
  return [np.int32(x) if isinstance(x, int) else x.astype(np.int32) for x in numbers]


def loop(first: int, last: int, step, carry):
  """`lax.fori_loop` that counts from `first`, and not from 0: what differs in nothing else XLA
  compiles once."""

  def body(state):
    k, carry = state
    return k + 1, step(k, carry)

  return lax.while_loop(lambda state: state[0] < last, body, (np.int32(first), carry))[1]
