"""Determinants of matrices that several devices share. Their exponents are kept apart."""

import jax
import jax.numpy as jnp

from linalg._core.algebra import imaginary
from linalg._factorizations.det import halves
from linalg.distributed._algorithms import scaled_product_of


@jax.custom_jvp
def _turned(part, logarithm, turn):
  del logarithm, turn
  return part


@_turned.defjvp
def _turned_jvp(primals, tangents):
  # d det A = det A d log det A. The part is a constant for derivatives. It is 0 only for a singular
  # matrix, where no entry of the derivative is known.
  part = _turned(*primals)
  _, change, turn = tangents
  change = change.astype(part.dtype)
  change = change + imaginary(turn) if jnp.iscomplexobj(part) else change
  return part, jnp.where(part == 0, jnp.nan, part) * change


def determinant(
    parts: jax.Array, exponents: jax.Array, logarithm: jax.Array, turn: jax.Array
) -> jax.Array:
  """Returns the product of part 2^exponent over all devices.

  Its derivatives are those of its logarithm and of the angle of its phase.
  """
  part, exponent = scaled_product_of(parts)
  before, after = (x[0, 0] for x in halves(jnp.sum(exponents) + exponent, part.dtype))
  return before * _turned(part, logarithm, turn) * after
