"""Derivatives of discrete algebraic Riccati equations, where R + Bᴴ X B may be ill-conditioned.

X is a minimum over the inputs, so its terms are far larger than X itself: an input that costs much
takes away what another one adds. The derivatives are therefore computed of a regulator in other
states and inputs, where X and the weight R + Bᴴ X B are near I, and no term of theirs cancels.
"""

from collections.abc import Callable
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
from linalg._factorizations.schur import triangular_schur
from linalg._factorizations.solve import solve

__all__ = ["System", "change_of_solution"]

_INPUT_BASES = 2  # a basis resolves weights that are 1 / eps apart, and the next one the others
_NEWTON_STEPS = 2
_LOST = 0.1  # digits are lost where the estimated error is larger


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


class _Loop(NamedTuple):
  """The weight W of a regulator for an X; W H = Bᴴ X, Z = I - B H, W K = Bᴴ X A + Sᴴ.

  The closed loop F = A - B K is Z A - B W⁻¹ Sᴴ, since A and B K may nearly cancel.
  """

  weight: jax.Array
  h: jax.Array
  z: jax.Array
  k: jax.Array
  f: jax.Array


def _ones(a):
  return zeros_like(diagonal_of(a).real) + 1


def _constant(system):
  return System(*map(jax.lax.stop_gradient, system))


def _loop(system, x):
  a, b, _, _, s = system
  weight = system.weight(x)
  h = solve(weight, product(b, x, adjoint_a=True))
  z = identities_like(a) - product(b, h)
  by_s = solve(weight, adjoint(s))
  return _Loop(weight, h, z, product(h, a) + by_s, product(z, a) - product(b, by_s))


def _roots(values, negligible):
  """Powers of two near the roots of magnitudes, 1 if all are negligible.

  Small ones beside the largest may be rounding.
  """
  size = jnp.abs(values)
  largest = jnp.max(size, axis=-1, keepdims=True, initial=0)
  size = jnp.maximum(size, jnp.finfo(size.dtype).eps ** 0.75 * largest)
  return jnp.where(largest > negligible, binade(jnp.sqrt(size)), 1)


def _in_states_of(system, x, negligible):
  """The system and X in states that make X near I, and the function that returns another X."""
  w, v = eigh(x)
  root = _roots(w, negligible[..., 0])
  inverse = 1 / root
  system = system.with_states(v).scaled(inverse, _ones(system.r))

  def of_states(x, d):
    return x * (d[..., :, None] * d[..., None, :]).astype(x.dtype)

  x = symmetrized(of_states(congruence(v, x, adjoint_a=True), inverse))
  return system, x, lambda y: congruence(adjoint(v), of_states(y, root), adjoint_a=True)


def _in_inputs_of(system, x):
  """The system in inputs that make the weight near I, and the weight's condition number."""
  def in_own_units(system):
    size = jnp.abs(diagonal_of(_constant(system).weight(x)))
    root = jnp.sqrt(size)
    return system.scaled(_ones(system.a), 1 / binade(root)), root

  system, _ = in_own_units(system)
  condition = 1.0
  for _ in range(_INPUT_BASES):
    _, v = eigh(_constant(system).weight(x))
    system, root = in_own_units(system.with_inputs(v))
    largest = jnp.max(root, axis=-1, initial=0)
    condition = condition * (largest / jnp.min(root, axis=-1, initial=jnp.inf)) ** 2
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
def _determined(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
  """X, whose derivatives are NaN where not `first`, and second ones where not `second`."""
  del first, second
  return x


@_determined.defjvp
def _determined_jvp(primals, tangents):
  x, first, second = primals
  factor = jnp.where(first, 1, jnp.nan)[..., None, None].astype(x.dtype)
  return _determined(x, first, second), tangents[0] * factor * _one_with(second, x)


def change_of_solution(
    operation: Callable[..., jax.Array], solve_linear: Callable[..., jax.Array], system: System,
    x: jax.Array, negligible: jax.Array) -> jax.Array:
  """Zeros, whose derivatives are those of the solution that is nearly x.

  Args:
    operation: (A, G, Q, X, T, Z) -> X as a function of A, G and Q; T and Z are Schur factors of the
      closed loop.
    solve_linear: (F, T, Z, C) -> Y with Fᴴ Y F - Y = C.
    system: the matrices.
    x: a constant.
    negligible: the size (..., 1, 1) of an X that is rounding errors of R, or 0.

  Derivatives are NaN where eps √κ exceeds 0.1, κ the condition number of R + Bᴴ X B in units that
  make its diagonal 1, and second ones where eps κ does.
  """
  system, x, back = _in_states_of(system, x, negligible)
  system, condition = _in_inputs_of(system, x)
  _, _, q, r, s = at = _constant(system)
  # A step of Newton's method in these units is relative to X in each direction.
  for _ in range(_NEWTON_STEPS):
    loop = _loop(at, x)
    cross = product(s, loop.k)
    residual = (congruence(loop.f, x, adjoint_a=True) - x + q
                + congruence(loop.k, r, adjoint_a=True) - cross - adjoint(cross))
    factors = triangular_schur(loop.f)
    x = x + symmetrized(solve_linear(loop.f, *factors, -symmetrized(residual)))
  weight, h, z, k, f = _loop(at, x)
  factors = triangular_schur(f)
  eps = jnp.finfo(x.dtype).eps
  first = eps * jnp.sqrt(condition) <= _LOST
  second = eps * condition <= _LOST

  # All that follows is an identity in the changes of the matrices, which are 0. If K is constant,
  # the closed loop changes by L = `change`, and the product P of W K = P by Bᴴ X L + E. So K
  # changes by U = H L + W⁻¹ E if W is constant, and F by Z L - B W⁻¹ E.
  da, db, dq, dr, ds = (x - y for x, y in zip(system, at, strict=True))
  change = da - product(db, k)
  e = product(db, product(x, f + change), adjoint_a=True) + adjoint(ds) - product(dr, k)
  by_e = solve(weight, e)
  moved, by_h = product(z, change), product(h, change)
  u = by_h + by_e
  half = congruence(db, x, adjoint_a=True) / 2 + product(db, product(x, at.b), adjoint_a=True)
  dw = dr + half + adjoint(half)
  # W⁻¹ dW U of the changed W
  by_dw = solve(symmetrized(weight + dw), product(dw, u))
  # Q + Kᴴ R K - S K - Kᴴ Sᴴ + Fᴴ X F, less Pᴴ W⁻¹ P
  linear = (product(moved, product(x, f), adjoint_a=True)
            + product(by_h, product(r, k) - adjoint(s), adjoint_a=True) - product(ds, k)
            - product(by_h, e, adjoint_a=True))
  cost = (dq + congruence(k, dr, adjoint_a=True) + linear + adjoint(linear)
          + congruence(moved, x, adjoint_a=True) + congruence(by_h, r, adjoint_a=True)
          - product(e, by_e, adjoint_a=True) + product(u, product(dw, u - by_dw), adjoint_a=True))
  a = f + moved - product(at.b, by_e) - product(db, u) + product(system.b, by_dw)
  g = symmetrized(product(system.b, solve(symmetrized(weight + dw), adjoint(system.b))))
  return _determined(
      back(operation(a, g, symmetrized(cost), zeros_like(x), *factors)), first, second)
