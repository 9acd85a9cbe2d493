"""Balancing: similarities by powers of two that make rows and columns of a matrix alike."""

import jax
import jax.numpy as jnp

from linalg._core.algebra import (
  LARGE_EXPONENT,
  expand,
  exponent_above,
  on_diagonal,
  power_of_two,
  zeros_like,
)

__all__ = ["balancing", "in_units", "similar"]

# A sweep moves all exponents by half of the way. The first one goes the whole way, which balances
# D A D⁻¹ where no element of A is small.
_SWEEPS = 6
# The norm of D⁻¹ A D times the condition of D may exceed that of A by 2 to this power.
_LOSS = 4


def similar(a: jax.Array, rows: jax.Array, cols: jax.Array | None = None) -> jax.Array:
  """D⁻¹ A E with D = diag(2^rows) and E = diag(2^cols), by default D. The batches broadcast."""
  cols = rows if cols is None else cols
  rows, cols = expand(rows, cols), expand(cols, rows)
  factors = power_of_two(cols[..., None, :] - rows[..., :, None], a.dtype).astype(a.dtype)
  return expand(a, factors) * expand(factors, a)


def in_units(x: jax.Array, e: jax.Array) -> jax.Array:
  """D X D, D = diag(2ᵉ)."""
  return similar(x, -e, e)


def balancing(a: jax.Array) -> jax.Array:
  """Exponents e for which D⁻¹ A D, D = diag(2ᵉ), has rows and columns of nearly equal maxima.

  The error of the Schur form of D⁻¹ A D is relative to its norm. Times the condition of D it is an
  error of A. The exponents are 0 where that is far larger than eps ‖A‖, as for nearly triangular
  matrices: Watkins, Electron. Trans. Numer. Anal. 23 (2006). It may be larger by as much as the
  norm falls. They are 0 too where they would differ by less than 5, so that other matrices keep
  their bits.
  """
  size = exponent_above(jnp.abs(a))
  beside = jnp.where(on_diagonal(size), -LARGE_EXPONENT, size)

  def step(quarters, share):
    e = quarters >> 2
    rows = jnp.max(beside + e[..., None, :], axis=-1, initial=-LARGE_EXPONENT) - e
    cols = jnp.max(beside - e[..., :, None], axis=-2, initial=-LARGE_EXPONENT) + e
    given = jnp.maximum(jnp.abs(rows), jnp.abs(cols)) < LARGE_EXPONENT // 2
    return quarters + jnp.where(given, share * (rows - cols), 0), None

  shares = jnp.where(jnp.arange(_SWEEPS) == 0, 2, 1).astype(size.dtype)
  start = zeros_like(jnp.max(size, axis=-1, initial=0))
  quarters, _ = jax.lax.scan(step, start, shares)
  e = (quarters + 2) >> 2
  largest = lambda x: jnp.max(x, axis=(-2, -1), initial=-LARGE_EXPONENT)
  spread = (
      jnp.max(e, axis=-1, initial=-LARGE_EXPONENT) - jnp.min(e, axis=-1, initial=LARGE_EXPONENT))
  balanced = largest(size + e[..., None, :] - e[..., :, None])
  gain = largest(size) - balanced
  kept = (spread >= 5) & (spread < jnp.finfo(a.dtype).maxexp // 2) & (
      spread - gain <= jnp.maximum(_LOSS, gain))
  return jnp.where(kept[..., None], e, 0)
