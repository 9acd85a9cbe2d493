"""The matrices of a regulator, and states and inputs in which its derivatives keep their digits.

A Riccati equation's X and weight may be ill-conditioned: an input that costs little leaves a state
with hardly any cost. Derivatives are computed in other states and inputs, where both are near I.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from linalg._core.algebra import (
  adjoint,
  binade,
  diagonal_of,
  identities_like,
  symmetrized,
  zeros_like,
)
from linalg._factorizations.eigh import eigh
from linalg._factorizations.matmul import congruence, product

__all__ = [
    "LOST", "System", "constant", "determined", "in_inputs_of", "in_own_units", "in_states",
    "states_of"]

LOST = 0.1  # digits are lost where the estimated error is larger

_INPUT_BASES = 2  # a basis resolves weights that are 1 / eps apart, and the next one the others


class System(NamedTuple):
  """The matrices of a regulator, of one batch and dtype."""

  a: jax.Array
  b: jax.Array
  q: jax.Array
  r: jax.Array
  s: jax.Array

  def scaled(self, states: jax.Array, inputs: jax.Array) -> "System":
    """The system in other units of states and inputs, which make X D X D."""
    d, u = states.astype(self.a.dtype), inputs.astype(self.a.dtype)
    row, col = d[..., :, None], d[..., None, :]
    return System(
        self.a * col / row, self.b * u[..., None, :] / row, self.q * row * col,
        self.r * u[..., :, None] * u[..., None, :], self.s * row * u[..., None, :])

  def with_states(self, v: jax.Array) -> "System":
    """The system of the states Vᴴ x for a unitary V, which makes X Vᴴ X V."""
    turned = lambda x: product(v, x, adjoint_a=True)
    of_states = lambda x: congruence(v, x, adjoint_a=True)
    return System(of_states(self.a), turned(self.b), of_states(self.q), self.r, turned(self.s))

  def with_inputs(self, v: jax.Array) -> "System":
    """The system of the inputs Vᴴ u for a unitary V."""
    return self._replace(
        b=product(self.b, v), r=congruence(v, self.r, adjoint_a=True), s=product(self.s, v))

  def weight(self, x: jax.Array) -> jax.Array:
    """R + Bᴴ X B."""
    return symmetrized(self.r + congruence(self.b, x, adjoint_a=True))


def _ones(a):
  return zeros_like(diagonal_of(a).real) + 1


def constant(system):
  return System(*map(jax.lax.stop_gradient, system))


def _roots(values, negligible):
  """Powers of two near the roots of magnitudes, 1 if all are negligible.

  Small ones beside the largest may be rounding.
  """
  size = jnp.abs(values)
  largest = jnp.max(size, axis=-1, keepdims=True, initial=0)
  size = jnp.maximum(size, jnp.finfo(size.dtype).eps ** 0.75 * largest)
  return jnp.where(largest > negligible, binade(jnp.sqrt(size)), 1)


def states_of(x, negligible):
  """A unitary matrix and units of states that make X near I. A negligible X is left as it is."""
  w, v = eigh(x)
  turned = jnp.max(jnp.abs(w), axis=-1, initial=0)[..., None, None] > negligible
  return jnp.where(turned, v, identities_like(v)), _roots(w, negligible[..., 0])


def in_states(system, x, v, root):
  """The system and X in the states of `states_of`, and the function that returns another X."""
  inverse = 1 / root
  system = system.with_states(v).scaled(inverse, _ones(system.r))

  def of_states(x, d):
    return x * (d[..., :, None] * d[..., None, :]).astype(x.dtype)

  x = symmetrized(of_states(congruence(v, x, adjoint_a=True), inverse))
  return system, x, lambda y: congruence(adjoint(v), of_states(y, root), adjoint_a=True)


def in_own_units(system, weight):
  """The system in units of inputs that make the diagonal of its weight near 1, and the ratio of the
  largest to the smallest element of that diagonal."""
  w = jnp.abs(weight(constant(system)))
  # A diagonal of an indefinite weight may be far below the other elements.
  largest = jnp.max(w, axis=(-2, -1), keepdims=True, initial=0)
  others = jnp.max(w * (w / jnp.where(largest > 0, largest, 1)), axis=-1, initial=0)
  size = jnp.maximum(diagonal_of(w), others)
  ratio = jnp.max(size, axis=-1, initial=0) / jnp.min(size, axis=-1, initial=jnp.inf)
  return system.scaled(_ones(system.a), 1 / binade(jnp.sqrt(size))), ratio


def in_inputs_of(system, weight):
  """The system in inputs that make its weight near I, and the weight's condition number in units
  that make its diagonal 1."""
  system, _ = in_own_units(system, weight)
  condition = 1.0
  for _ in range(_INPUT_BASES):
    _, v = eigh(weight(constant(system)))
    system, ratio = in_own_units(system.with_inputs(v), weight)
    condition = condition * ratio
  return system, condition


@jax.custom_jvp
def _one_with(kept: jax.Array, x: jax.Array) -> jax.Array:
  """1 for each element of x, whose derivative is 0 where `kept`, else NaN."""
  del kept
  return zeros_like(x) + 1


@_one_with.defjvp
def _one_with_jvp(primals, tangents):
  kept, x = primals
  factor = jnp.where(kept, 0, jnp.nan)[..., None, None].astype(x.dtype)
  return _one_with(kept, x), factor * tangents[1]


@jax.custom_jvp
def determined(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
  """X, whose derivatives are NaN where not `first`, and second ones where not `second`."""
  del first, second
  return x


@determined.defjvp
def _determined_jvp(primals, tangents):
  x, first, second = primals
  factor = jnp.where(first, 1, jnp.nan)[..., None, None].astype(x.dtype)
  return determined(x, first, second), tangents[0] * factor * _one_with(second, x)
