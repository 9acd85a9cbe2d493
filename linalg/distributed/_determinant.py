"""Determinants of matrices that several devices share, of a product with its exponent apart."""

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
  # d det A = det A d log det A. The part is a constant to derivatives, and 0 of a singular matrix
  # alone, of which no entry of the derivative is known.
  part = _turned(*primals)
  _, change, turn = tangents
  change = change.astype(part.dtype)
  change = change + imaginary(turn) if jnp.iscomplexobj(part) else change
  return part, jnp.where(part == 0, jnp.nan, part) * change


def determinant(
    parts: jax.Array, exponents: jax.Array, logarithm: jax.Array, turn: jax.Array
) -> jax.Array:
  """The product of part 2^exponent of all devices, with the derivatives of its logarithm, and of
  the angle by which it turns."""
  part, exponent = scaled_product_of(parts)
  before, after = (x[0, 0] for x in halves(jnp.sum(exponents) + exponent, part.dtype))
  return before * _turned(part, logarithm, turn) * after
