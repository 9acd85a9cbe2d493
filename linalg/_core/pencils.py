"""Eigenvalues α / β of pencils A - λ B as points of the projective line."""

import functools

import jax
import jax.numpy as jnp

from linalg._core.algebra import (
  binade,
  norm_of_rows,
  on_diagonal,
  reciprocal,
  smallest_gap,
  zeros_like,
)


def scales(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The norms of A and B, (..., 1), or 1 where a norm is 0. They are constants."""
  norms = (norm_of_rows(jax.lax.stop_gradient(x))[..., None] for x in (a, b))
  first, second = (jnp.where(x == 0, 1, x) for x in norms)
  return first, second


def unit_pairs(
    alpha: jax.Array, beta: jax.Array, norms: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """α / ‖A‖ and β / ‖B‖, divided by the length of the pair, and that length.

  The pair (0, 0) of a singular pencil stays, and its length is 0.
  """
  alpha, beta = (x / norm.astype(x.dtype) for x, norm in zip((alpha, beta), norms, strict=True))
  parts = [y for x in (alpha, beta) for y in ((x.real, x.imag) if jnp.iscomplexobj(x) else (x,))]
  # A power of two, so that no square underflows.
  largest = binade(functools.reduce(jnp.maximum, map(jnp.abs, parts)))
  alpha, beta = (x / largest.astype(x.dtype) for x in (alpha, beta))
  square = sum((x / largest) ** 2 for x in parts)
  length = jnp.sqrt(jnp.where(square == 0, 1, square))
  unit = (alpha / length.astype(alpha.dtype), beta / length.astype(beta.dtype))
  return *unit, jnp.where(square == 0, 0, largest * length)


def gaps_of_pairs(alpha: jax.Array, beta: jax.Array) -> jax.Array:
  """αⱼ βᵢ - βⱼ αᵢ in row i and column j: for pairs of length 1, their chordal distance."""
  return alpha[..., None, :] * beta[..., :, None] - beta[..., None, :] * alpha[..., :, None]


def are_equal(gaps: jax.Array) -> jax.Array:
  """Whether chordal distances are within 8 √n eps."""
  size = jnp.abs(gaps)
  return size <= smallest_gap(jnp.ones((), size.dtype), gaps.shape[-1])


def reciprocal_gaps_of_pairs(gaps: jax.Array) -> jax.Array:
  """1 / gap, or 0 where the eigenvalues are equal up to rounding."""
  return reciprocal(gaps, ~are_equal(gaps))


@jax.custom_jvp
def ones_of_distinct(alpha: jax.Array, beta: jax.Array) -> jax.Array:
  """1 for each pair of length 1, whose derivative is NaN where it equals another up to rounding."""
  return zeros_like(alpha.real + beta.real) + 1


@ones_of_distinct.defjvp
def _ones_of_distinct_jvp(primals, tangents):
  gaps = gaps_of_pairs(*primals)
  equal = are_equal(gaps) & ~on_diagonal(gaps)
  factor = jnp.where(equal.any(-1), jnp.nan, 0).astype(jnp.finfo(gaps.dtype).dtype)
  return ones_of_distinct(*primals), factor * (tangents[0].real + tangents[1].real)


# 36°: no eigenvalue of a pencil of simple numbers is its cotangent.
_COSINE, _SINE = 0.8090169943749475, 0.5877852522924731


def rotated(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
  """c A + s B and c B - s A. The latter has an inverse if no eigenvalue is cot 36°."""
  c, s = (jnp.asarray(x, a.dtype) for x in (_COSINE, _SINE))
  return c * a + s * b, c * b - s * a


def rotated_back(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The operands of `rotated`, from its results."""
  c, s = (jnp.asarray(x, a.dtype) for x in (_COSINE, _SINE))
  return c * a - s * b, s * a + c * b
