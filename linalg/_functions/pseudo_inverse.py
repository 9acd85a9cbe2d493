"""Pseudo-inverses and projectors from the factors of a matrix, as operations with derivatives."""

import jax.numpy as jnp

from linalg._core.algebra import adjoint, binade, minus
from linalg._core.implicit_functions import given_factors
from linalg._factorizations.matmul import product

__all__ = ["outside_range_of_adjoint", "outside_range_p", "pseudo_inverse_p", "size_of_inverse"]


def size_of_inverse(inverses):
  """A power of two near ‖A⁺‖, (..., 1, 1).

  A rule divides one of two factors A⁺ by it and multiplies dA: A⁺ A⁺ᴴ alone may overflow.
  """
  return binade(jnp.max(jnp.abs(inverses), axis=-1, initial=0))[..., None, None]


def _pseudo_inverse(u, inverses, vh):
  return product(vh, inverses[..., :, None].astype(u.dtype) * adjoint(u), adjoint_a=True)


def _outside_range(u, inverses, vh, x):
  del vh
  u = jnp.where(inverses[..., None, :] == 0, 0, u)
  y = x - product(u, product(u, x, adjoint_a=True))
  if u.shape[-2] == u.shape[-1]:
    # Nothing is outside a range of all dimensions. Factors A⁺ would multiply the rounding error.
    y = jnp.where(jnp.all(jnp.abs(inverses) > 0, axis=-1)[..., None, None], 0, y)
  return y


def _outside_range_jvp(primals, tangents):
  # For a projector Q = I - A A⁺ of constant rank, dQ = -Q dA A⁺ - (Q dA A⁺)ᴴ; Golub and Pereyra.
  *known, x = primals
  da, *_, dx = tangents
  y = outside_range_p(*known, x)
  change = None if dx is None else outside_range_p(*known, dx)
  if da is not None:
    p = pseudo_inverse_p(*known)
    change = minus(change, outside_range_p(*known, product(da, product(p, x))))
    change = minus(change, product(p, product(da, y, adjoint_a=True), adjoint_a=True))
  return y, change


def _outside_range_transpose(cotangents, operands):
  a, u, inverses, vh, _ = operands
  turned = outside_range_p(a.conj(), u.conj(), inverses, vh.conj(), cotangents[0])
  return None, None, None, None, turned


# (I - A A⁺) X. Computed from A and A⁺ it would have errors in proportion to A's condition.
outside_range_p = given_factors(
    "outside_range",
    "m n, m k, k, k n, m j -> m j",
    [4],
    _outside_range,
    shared=[0, 1, 2, 3],
    jvp=_outside_range_jvp,
    transpose=_outside_range_transpose)


def outside_range_of_adjoint(*operands):
  """(I - A⁺ A) X, for A, its singular vectors and inverse values as they are used for A⁺, and X."""
  a, u, inverses, vh, x = operands
  return outside_range_p(adjoint(a), adjoint(vh), inverses, adjoint(u), x)


def _pseudo_inverse_jvp(primals, tangents):
  # dP = -P dA P + P Pᴴ dAᴴ (I - A P) + (I - P A) dAᴴ Pᴴ P; Golub and Pereyra, The differentiation
  # of pseudo-inverses and nonlinear least squares problems whose variables separate, SIAM J. Numer.
  # Anal. 10 (1973). It holds where the rank is constant.
  da = tangents[0]
  p = pseudo_inverse_p(*primals)
  moved = product(p, da)
  size = size_of_inverse(primals[2]).astype(p.dtype)
  square = product(p / size, p / size, adjoint_b=True)
  left = outside_range_p(*primals, product(da * size, square)) * size
  right = outside_range_of_adjoint(*primals, product(moved, p, adjoint_a=True))
  return p, adjoint(left) + right - product(moved, p)


# A⁺ = V diag(inverses) Uᴴ. The inverse of a singular value that counts as 0 is 0.
pseudo_inverse_p = given_factors(
    "pseudo_inverse",
    "m n, m k, k, k n -> n m",
    [0],
    _pseudo_inverse,
    jvp=_pseudo_inverse_jvp)
