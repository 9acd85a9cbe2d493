"""Eigenvalues in an interval, whose number depends on the values of a matrix."""

from typing import Any

import jax
import jax.numpy as jnp

from linalg._core.algebra import expand
from linalg._factorizations.matmul import product


def interval(name: str, parameter: str, bounds: Any) -> tuple[float, float]:
  """`bounds`, which the caller gave as `parameter`, as the half-open interval (low, high]."""
  try:
    low, high = map(float, bounds)
  except jax.errors.ConcretizationTypeError:
    raise TypeError(
        f"{name}: {parameter} must hold numbers, known when the call is traced.") from None
  except (TypeError, ValueError):
    low, high = 0.0, -1.0
  if not low < high:
    raise ValueError(f"{name}: {parameter} must be (low, high) with low < high, got {bounds!r}.")
  return low, high


def size_of_interval(name: str, w: jax.Array, low: float, high: float, instead: str) -> int:
  """How many of the eigenvalues `w` lie in (low, high]; the largest number in a batch.

  A matrix without eigenvalues, where they are NaN, counts as one with one of them.

  Args:
    instead: what to do where the values are not known.
  """
  try:
    inside = jnp.sum((w > low) & (w <= high), axis=-1)
    return int(jnp.max(jnp.where(jnp.isnan(w).any(-1), 1, inside), initial=0))
  except jax.errors.ConcretizationTypeError:
    raise TypeError(
        f"{name}: the number of eigenvalues in an interval depends on the values of the matrix, "
        f"which are not known inside of jit and vmap. {instead}") from None


def in_interval(
    w: jax.Array, v: jax.Array | None, low: float, high: float, size: int
) -> tuple[jax.Array, jax.Array | None]:
  """The ascending eigenvalues in (low, high], and their vectors, in `size` places with NaN at the
  end."""
  inside = (w > low) & (w <= high)
  first = jnp.sum(~inside & (w <= low), axis=-1, keepdims=True)
  place = first + expand(jnp.arange(size), first)
  index = expand(jnp.arange(w.shape[-1])[:, None], inside[..., None])
  pick = (index == place[..., None, :]) & inside[..., :, None]
  missing = ~jnp.any(pick, axis=-2)
  chosen = jnp.where(missing, jnp.nan, jnp.sum(jnp.where(pick, w[..., :, None], 0), axis=-2))
  if v is None:
    return chosen, None
  vectors = product(v, pick.astype(v.dtype))
  return chosen, jnp.where(missing[..., None, :], jnp.nan, vectors)
