"""Nonnegative indices of panels, blocks and rows, and loops over panels.

`jax.numpy` handles negative indices with code that would make up much of a program and its compile
time.
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
  """The entries of given indices along a dimension.

  `clip` costs nothing, as no index is out of range. NaN for such entries would add code.
  """
  return jnp.take(x, numbers, axis=dimension, mode="clip")


def cut(x, begin, size: int, dimension: int):
  """A part of one dimension."""
  return lax.dynamic_slice_in_dim(x, begin, size, dimension, allow_negative_indices=False)


def put(x, part, *begin):
  """An array with the part that begins at `begin` replaced."""
  return lax.dynamic_update_slice(x, part, _alike(begin), allow_negative_indices=False)


def window(x, begin, shape):
  """The part of an array with the given beginning and shape."""
  return lax.dynamic_slice(x, _alike(begin), shape, allow_negative_indices=False)


def _alike(numbers):
  return [np.int32(x) if isinstance(x, int) else x.astype(np.int32) for x in numbers]


def loop(first: int, last: int, step, carry):
  """`lax.fori_loop` that counts from `first` rather than 0.

  XLA compiles once all loops that differ only in `first`.
  """

  def body(state):
    k, carry = state
    return k + 1, step(k, carry)

  return lax.while_loop(lambda state: state[0] < last, body, (np.int32(first), carry))[1]
