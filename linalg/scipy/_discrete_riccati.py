"""Derivatives of discrete algebraic Riccati equations, where R + Bᴴ X B may be ill-conditioned.

X is a minimum over the inputs, so its terms are far larger than X itself: an input that costs much
takes away what another one adds. The derivatives are therefore computed of a regulator in other
states and inputs, where X and the weight R + Bᴴ X B are near I, and no term of theirs cancels.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from linalg._core.algebra import adjoint, identities_like, symmetrized, zeros_like
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.schur import triangular_schur
from linalg._factorizations.solve import solve
from linalg.scipy._regulator import (
  LOST,
  System,
  constant,
  determined,
  in_inputs_of,
  in_states,
  states_of,
)

__all__ = ["change_of_solution"]

_NEWTON_STEPS = 2


class _Loop(NamedTuple):
  """The weight W of a regulator for an X; W H = Bᴴ X, Z = I - B H, W K = Bᴴ X A + Sᴴ.

  The closed loop F = A - B K is Z A - B W⁻¹ Sᴴ, since A and B K may nearly cancel.
  """

  weight: jax.Array
  h: jax.Array
  z: jax.Array
  k: jax.Array
  f: jax.Array


def _loop(system, x):
  a, b, _, _, s = system
  weight = system.weight(x)
  h = solve(weight, product(b, x, adjoint_a=True))
  z = identities_like(a) - product(b, h)
  by_s = solve(weight, adjoint(s))
  return _Loop(weight, h, z, product(h, a) + by_s, product(z, a) - product(b, by_s))


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
  system, x, back = in_states(system, x, *states_of(x, negligible))
  system, condition = in_inputs_of(system, lambda y: y.weight(x))
  _, _, q, r, s = at = constant(system)
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
  first = eps * jnp.sqrt(condition) <= LOST
  second = eps * condition <= LOST

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
  return determined(
      back(operation(a, g, symmetrized(cost), zeros_like(x), *factors)), first, second)
