"""Algebraic Riccati equations, by doubling of their pencils.

An iteration without inverses and without derivatives finds a solution. Steps of Newton's method
make it as accurate as the equation allows. The derivatives are those of the equation, expanded
about the solution: in discrete time they need no inverse of R (_discrete_riccati.py).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  binade,
  diagonal_of,
  identities_like,
  nan_where,
  reciprocal,
  symmetrized,
  without_none,
  zeros_like,
)
from linalg._core.checks import check
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, as_complex, check_batches, check_square, incompatible
from linalg._core.public import public
from linalg._factorizations.det import slogdet
from linalg._factorizations.eigh import eigh
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.qr import qr
from linalg._factorizations.schur import triangular_schur
from linalg._factorizations.solve import solve
from linalg._factorizations.triangular import triangular_solve
from linalg._functions.norms import matrix_norm
from linalg._functions.sylvester import adjoint_schur, refined_lyapunov_p, stein_p
from linalg.scipy._discrete_riccati import change_of_solution
from linalg.scipy._regulator import (
  LOST,
  System,
  constant,
  determined,
  in_own_units,
  in_states,
  states_of,
)

__all__ = ["solve_continuous_are", "solve_discrete_are"]

_BALANCING_SWEEPS = 12
_NEWTON_STEPS = 3
_LARGEST_ERROR = 0.1  # a solution that is less certain is NaN
_LARGEST_STEP_NEAR_IDENTITY = 0.01


def _frobenius(x):
  return matrix_norm(x, keepdims=True)


def _units_of(diagonal):
  """Powers of two that bring the elements of a diagonal near 1.

  Elements far below the largest may be rounding errors.
  """
  diagonal = diagonal.real
  largest = jnp.max(diagonal, axis=-1, keepdims=True, initial=0)
  diagonal = jnp.maximum(diagonal, jnp.finfo(diagonal.dtype).eps ** 0.75 * largest)
  given = (diagonal > 0) & (diagonal < jnp.inf)
  return jnp.where(given, binade(jnp.where(given, diagonal, 1) ** -0.5), 1)


def _in_units_of_states(system, x, negligible):
  """The system and X in units of states that bring the diagonal of X near 1, and the function
  that returns another X.

  Newton's method then sees small parts of X beside large ones. A negligible X is left in its units.
  """
  d = jnp.where(negligible[..., 0] > 0, 1, _units_of(diagonal_of(x)))
  inputs = zeros_like(diagonal_of(system.r).real) + 1
  d_of_x = (d[..., :, None] * d[..., None, :]).astype(x.dtype)
  return system.scaled(d, inputs), x * d_of_x, lambda y: y / d_of_x


def _units(equation, system):
  """Powers of two for states and inputs that balance rows and columns of the extended pencil.

  They keep its structure, as SciPy's do. A sweep moves all of them at once by half of the way.
  """
  a, b, q, r, s = (jnp.abs(x) for x in system)

  def logarithm(x):
    return jnp.where((x > 0) & (x < jnp.inf), jnp.log2(jnp.where(x > 0, x, 1)), 0)

  def step(carry, _):
    states, inputs = carry
    x = System(a, b, q, r, s).scaled(jnp.exp2(states), jnp.exp2(inputs))
    rising = x.a.sum(-2) + x.q.sum(-2) + x.s.sum(-1)
    falling = x.a.sum(-1) + x.b.sum(-1)
    both = (rising > 0) & (falling > 0)
    by_inputs = x.b.sum(-2) + x.s.sum(-2)
    states = states - jnp.where(both, logarithm(rising) - logarithm(falling), 0) / 4
    change = equation.input_step(x, logarithm, by_inputs)
    return (states, inputs + jnp.where(by_inputs > 0, change, 0) / 2), None

  start = zeros_like(b.sum(-1)), zeros_like(b.sum(-2))
  states, inputs = jax.lax.scan(step, start, length=_BALANCING_SWEEPS)[0]
  if not equation.raises_costs:
    return binade(jnp.exp2(states)), binade(jnp.exp2(inputs))
  # Costs that are all small beside A would be lost there: without Q, no sweep moves R.
  x = System(a, b, q, r, s).scaled(jnp.exp2(states), jnp.exp2(inputs))
  largest = lambda y: jnp.max(y, axis=(-2, -1), initial=0)
  costs = jnp.maximum(largest(x.q), jnp.maximum(largest(x.r), largest(x.s)))
  rise = jnp.maximum(logarithm(largest(x.a)) - logarithm(costs), 0)[..., None] / 2
  return tuple(binade(jnp.exp2(x + rise)) for x in (states, inputs))


def _doubled(m, l):
  """Returns M' and L', with the eigenvectors of M - z L and its eigenvalues' 2ᵏth powers.

  A step squares: L⁻¹ M (L⁻¹ M) = (P L)⁻¹ (Q M) for an orthonormal (Q, P) that is orthogonal to the
  columns of [L; -M]. It needs no inverses: Bai, Demmel and Gu, Numer. Math. 76 (1997).
  """
  n = m.shape[-1]
  # Eigenvalues closer to the circle than √eps cannot be distinguished from those on it. The number
  # of steps is fixed, because a condition on the whole batch would be a collective.
  steps = 4 + (jnp.finfo(m.dtype).nmant + 1) // 2

  def step(carry, _):
    m, l = carry
    size = jnp.sum(jnp.abs(m) + jnp.abs(l), axis=-1, keepdims=True)
    inverse = reciprocal(binade(size), size > 0).astype(m.dtype)
    m, l = m * inverse, l * inverse
    beside = qr(jnp.concatenate([l, -m], axis=-2), mode="complete")[0][..., n:]
    return (product(beside[..., :n, :], m, adjoint_a=True),
            product(beside[..., n:, :], l, adjoint_a=True)), None

  return jax.lax.scan(step, (m, l), length=steps)[0]


def _graph(m, l):
  """Returns X such that [I; X] spans the subspace of the eigenvalues of M - z L in the unit circle.

  The powers of these eigenvalues go to 0, and so does M' on that subspace.
  """
  n = m.shape[-1] // 2
  m, _ = _doubled(m, l)
  q, r = qr(m[..., n:])
  right = product(q, m[..., :n], adjoint_a=True)
  return -triangular_solve(r, right, left_side=True, lower=False)


def _without_inputs(m, l, inputs):
  """The pencil on states and costates, from rows orthogonal to the columns of the inputs.

  It needs no inverse of R: van Dooren, SIAM J. Sci. Stat. Comput. 2 (1981).
  """
  beside = qr(inputs, mode="complete")[0][..., inputs.shape[-1]:]
  return product(beside, m, adjoint_a=True), product(beside, l, adjoint_a=True)


# Continuous time: Aᴴ X + X A - (X B + S) R⁻¹ (Bᴴ X + Sᴴ) + Q = 0. The closed loop is A - B K with
# R K = Bᴴ X + Sᴴ.


def _continuous_start(system):
  a, b, q, r, s = system
  one, zero, none = identities_like(a), zeros_like(a), zeros_like(b)
  m = jnp.concatenate([
      jnp.concatenate([a, zero], -1), jnp.concatenate([-q, -adjoint(a)], -1),
      jnp.concatenate([adjoint(s), adjoint(b)], -1)], -2)
  l = jnp.concatenate([
      jnp.concatenate([one, zero], -1), jnp.concatenate([zero, one], -1),
      jnp.concatenate([adjoint(none), adjoint(none)], -1)], -2)
  m, l = _without_inputs(m, l, jnp.concatenate([b, -s, r], -2))
  # (z + h) / (z - h) takes the left half plane to the circle; h is the eigenvalues' mean.
  logarithm = (slogdet(m)[1] - slogdet(l)[1]) / max(m.shape[-1], 1)
  h = binade(jnp.exp(logarithm)).astype(m.dtype)[..., None, None]
  return _graph(m + h * l, m - h * l)


def _continuous_input_step(size, logarithm, by_inputs):
  # B may be as large as A, or as the closed loop of a small A is: √(B R⁻¹ Bᴴ Q). Were B far
  # smaller, R would be lost beside it.
  of_loop = (
      logarithm(by_inputs) + logarithm(jnp.max(size.q, axis=(-2, -1), initial=0))[..., None] / 2
      - logarithm(size.r.sum(-2)) / 2)
  return jnp.maximum(_largest_of(size, logarithm), of_loop) - logarithm(by_inputs)


def _largest_of(size, logarithm):
  return logarithm(jnp.max(size.a, axis=(-2, -1), initial=0))[..., None]


def _continuous_weight(system, x):
  return system.r


def _continuous_product(system, x):
  """Returns P, where W K = P for the weight W."""
  return product(system.b, x, adjoint_a=True) + adjoint(system.s)


def _continuous_linear(loop, t, z, c):
  """Solves Fᴴ Y + Y F = C for the closed loop F."""
  return refined_lyapunov_p(loop, t, z, jax.lax.stop_gradient(loop), c)


def _continuous_residual(loop, x):
  half = product(loop, x, adjoint_a=True)
  return half + adjoint(half)


def _continuous_change(loop, x, da, dg, dq):
  half = product(x, da)
  return half + adjoint(half) - product(x, product(dg, x)) + dq


def _has_unlike_costs(system):
  """Whether one input costs far less than another, beside its effect on the states."""
  effects = jnp.sum(jnp.abs(system.b) ** 2, axis=-2)
  costs = jnp.abs(diagonal_of(system.r)) / jnp.where(effects > 0, effects, 1)
  largest = jnp.max(jnp.where(effects > 0, costs, 0), -1, initial=0)
  least = jnp.min(jnp.where(effects > 0, costs, jnp.inf), -1, initial=jnp.inf)
  return (least < jnp.finfo(costs.dtype).eps ** 0.25 * largest)[..., None, None]


def _continuous_refined(system, start, negligible):
  system, start, from_units = _in_units_of_states(system, start, negligible)
  # A rotation would mix inputs whose columns of B are of different size.
  system, _ = in_own_units(system, lambda y: y.r)
  at = constant(system)
  x, loop, settled = _refined(_CONTINUOUS, at, start, _largest_step(start), negligible)
  if system.r.shape[-1] < 2:
    return system, x, loop, settled, from_units
  # An input that costs little leaves states with hardly any cost, which X would hide beside others.
  # Elsewhere small eigenvalues of X may be rounding errors, and states made of them would be wrong.
  unlike = _has_unlike_costs(at)
  v, root = states_of(start, jnp.where(unlike, negligible, jnp.inf))
  turned, turned_start, back = in_states(at, start, v, root)
  turned_x, turned_loop, turned_settled = _refined(
      _CONTINUOUS, turned, turned_start, _LARGEST_STEP_NEAR_IDENTITY, negligible)

  def residual(x):
    return _frobenius(_about(_CONTINUOUS, at, x, _feedback(_CONTINUOUS, at, x))[1])

  as_close = residual(symmetrized(back(turned_x))) <= 2 * residual(x)
  of_matrix = lambda y: y[..., None, None]
  taken = unlike & of_matrix(turned_settled) & (as_close | ~of_matrix(settled))
  system, _, back = in_states(
      system, start, jnp.where(taken, v, identities_like(v)), jnp.where(taken[..., 0], root, 1))
  return (system, jnp.where(taken, turned_x, x), jnp.where(taken, turned_loop, loop),
          jnp.where(taken[..., 0, 0], turned_settled, settled),
          lambda y: from_units(symmetrized(back(y))))


def _continuous_loop(a, g, x):
  return a - product(g, x)


# Discrete time: Aᴴ X A - X - (Aᴴ X B + S) (R + Bᴴ X B)⁻¹ (Bᴴ X A + Sᴴ) + Q = 0. The closed loop is
# A - B K with (R + Bᴴ X B) K = Bᴴ X A + Sᴴ.


def _discrete_start(system):
  a, b, q, r, s = system
  one, zero, none = identities_like(a), zeros_like(a), adjoint(zeros_like(b))
  m = jnp.concatenate([
      jnp.concatenate([a, zero], -1), jnp.concatenate([-q, one], -1),
      jnp.concatenate([adjoint(s), none], -1)], -2)
  l = jnp.concatenate([
      jnp.concatenate([one, zero], -1), jnp.concatenate([zero, adjoint(a)], -1),
      jnp.concatenate([none, -adjoint(b)], -1)], -2)
  return _graph(*_without_inputs(m, l, jnp.concatenate([b, -s, r], -2)))


def _discrete_input_step(size, logarithm, by_inputs):
  return _largest_of(size, logarithm) - logarithm(by_inputs)  # R may be 0


def _discrete_weight(system, x):
  return system.weight(x)


def _discrete_product(system, x):
  return product(system.b, product(x, system.a), adjoint_a=True) + adjoint(system.s)


def _discrete_linear(loop, t, z, c):
  """Solves Fᴴ Y F - Y = C for the closed loop F."""
  return stein_p(adjoint(loop), *adjoint_schur(t, z), c)


def _discrete_residual(loop, x):
  return congruence(loop, x, adjoint_a=True) - x


def _discrete_refined(system, start, negligible):
  # _discrete_riccati.py chooses other states and inputs for derivatives.
  inputs = _units_of(diagonal_of(constant(system).weight(start)))
  system, start, back = _in_units_of_states(system, start, negligible)
  system = system.scaled(zeros_like(diagonal_of(start).real) + 1, inputs)
  found = _refined(_DISCRETE, constant(system), start, _largest_step(start), negligible)
  return system, *found, back


def _discrete_loop(a, g, x):
  return solve(identities_like(a) + product(g, x), a)


def _discrete_change(loop, x, da, dg, dq):
  half = product(product(loop, x, adjoint_a=True), da)
  after = product(x, loop)
  return half + adjoint(half) - congruence(after, dg, adjoint_a=True) + dq


# Rounding moves a double eigenvalue of the pencil that is on the boundary by up to √eps.


def _on_the_left(w):
  return w.real < -(jnp.finfo(w.dtype).eps ** 0.5) * jnp.abs(w)


def _in_circle(w):
  return jnp.abs(w) < 1 - jnp.finfo(w.dtype).eps ** 0.5


class _Equation(NamedTuple):
  """A Riccati equation.

  The residual at a feedback K is that of a Lyapunov equation with the closed loop F and the
  constant Q + Kᴴ R K - S K - Kᴴ Sᴴ.
  """

  start: Callable[..., Any]  # the system to nearly X
  input_step: Callable[..., Any]  # (|system|, log2, sums for inputs) to the step of inputs' log2
  weight: Callable[..., Any]  # (system, X) to W, and
  product: Callable[..., Any]  # to P, with W K = P
  residual: Callable[..., Any]  # (F, X) to the terms of X
  loop: Callable[..., Any]  # (A, G, X) to F for S = 0; G = B R⁻¹ Bᴴ
  linear: Callable[..., Any]  # (F, its Schur factors, C) to L⁻¹ C; L is the derivative by X
  change: Callable[..., Any]  # (F, X, dA, dG, dQ) to the derivative by A, G and Q
  # (system, nearly X, negligible) to the system in states and inputs that bring X and W near I, its
  # X, closed loop and whether X is settled, and the function that returns another X.
  refined: Callable[..., Any]
  stable: Callable[..., Any]  # eigenvalues of the closed loop to whether it is stable
  raises_costs: bool  # whether costs that are small beside A are scaled up


def _solved(equation, loop, factors, c):
  """Returns L⁻¹ C, which is real if C is."""
  x = equation.linear(as_complex(loop), *factors, as_complex(c))
  return x if jnp.iscomplexobj(c) else x.real


def _jvp(equation, operation, primals, tangents):
  a, g, _, _, *factors = primals
  x = operation()(*primals)
  loop = equation.loop(a, g, x)
  change = equation.change(loop, x, *without_none(primals[:3], tangents[:3]))
  return x, _solved(equation, loop, factors, -change)


def _operation(name, equation):
  operation: ffi.Operation = given_factors(
      name, "n n, n n, n n, n n, n n, n n -> n n", [0], lambda g, q, x, t, z: x,
      jvp=lambda primals, tangents: _jvp(equation, lambda: operation, primals, tangents))
  return operation


_CONTINUOUS = _Equation(
    _continuous_start, _continuous_input_step, _continuous_weight, _continuous_product,
    _continuous_residual, _continuous_loop, _continuous_linear, _continuous_change,
    _continuous_refined, _on_the_left, False)
_DISCRETE = _Equation(
    _discrete_start, _discrete_input_step, _discrete_weight, _discrete_product,
    _discrete_residual, _discrete_loop, _discrete_linear, _discrete_change,
    _discrete_refined, _in_circle, True)
# X as a function of A, G and Q, given X and the Schur factors of the closed loop.
_continuous_p = _operation("solve_continuous_are", _CONTINUOUS)
_discrete_p = _operation("solve_discrete_are", _DISCRETE)


def _about(equation, system, x, k):
  """The closed loop of K, and the residual of X, for constant X and K."""
  a, b, q, r, s = system
  loop = a - product(b, k)
  cross = product(s, k)
  costs = q + congruence(k, r, adjoint_a=True) - cross - adjoint(cross)
  return loop, symmetrized(equation.residual(loop, x) + costs)


def _feedback(equation, system, x):
  return solve(equation.weight(system, x), equation.product(system, x))


def _negligible(system, x):
  """The size of X if it is so far below the inputs' costs that the equation is nearly linear, or 0.

  The units are balanced, so that B is about as large as A. Such an X may be all rounding: it is 0
  for Q = 0 and a stable A. A step of Newton's method moves it by at most this size, and leaves the
  square of its error.
  """
  cost = jnp.min(jnp.abs(diagonal_of(system.r)), axis=-1, initial=jnp.inf)[..., None, None]
  level = jnp.finfo(x.dtype).eps ** 0.5 * jnp.where(cost < jnp.inf, cost, 0)
  return jnp.where(_frobenius(x) <= level, level, 0)


def _largest_step(x):
  """The largest step of Newton's method beside X that is taken."""
  return jnp.finfo(x.dtype).eps ** 0.375


def _refined(equation, system, start, largest_step, negligible):
  """X after steps of Newton's method that reduce the residual, its closed loop, and whether it
  is settled.

  X is settled if the last step hardly changed the loop, or if the residual is small. Kleinman, IEEE
  Trans. Automat. Control 13 (1968). A step that is large beside X is not taken: if the equation is
  ill-conditioned, it may add more error than residual it removes. Steps up to `negligible` are.
  """
  eps = jnp.finfo(start.dtype).eps

  def distance(x, best):
    return _frobenius(x - best[0])

  def tried(x, best):
    loop, residual = _about(equation, system, x, _feedback(equation, system, x))
    moved = _frobenius(loop - best[1])
    better = _frobenius(residual) < _frobenius(best[2])
    near = distance(x, best) <= jnp.maximum(largest_step * _frobenius(best[0]), negligible)
    return tuple(
        jnp.where(better & near, new, old)
        for new, old in zip((x, loop, residual), best, strict=True)), moved

  def step(carry, _):
    best, _ = tried(*carry)
    x, loop, residual = best
    change = _solved(equation, loop, triangular_schur(loop), -residual)
    return (x + symmetrized(change), best), None

  infinite = zeros_like(start) + jnp.inf
  (x, best), _ = jax.lax.scan(
      step, (start, (start, zeros_like(start), infinite)), length=_NEWTON_STEPS)
  # The step is an estimate of the error that is left. Rounding errors of R may remain.
  of_r = 100 * start.shape[-1] * eps**0.5 * negligible
  certain = distance(x, best) <= jnp.maximum(_LARGEST_ERROR * _frobenius(best[0]), of_r)
  (x, loop, residual), moved = tried(x, best)
  size = _frobenius(system.a)
  settled = (moved <= eps**0.25 * (_frobenius(loop) + size)) | (
      _frobenius(residual) <= eps**0.25 * size * _frobenius(x))
  return x, loop, (settled & certain)[..., 0, 0]


def _continuous_expansion(system, x, t, z, negligible):
  """Zeros, with the derivatives of the solution that is nearly x.

  The expansion about X and its K is the equation of a regulator of the closed loop, whose solution
  is 0. S is 0 too, but its derivatives are not.

  Inputs that cost little make the loop fast. Changes of B then add up to numbers that are larger by
  ρ, the ratio of the loop's largest eigenvalue to its slowest decay, and second derivatives by ρ².
  """
  del negligible
  at = constant(system)
  k = _feedback(_CONTINUOUS, at, x)
  slowest = jnp.min(jnp.abs(diagonal_of(t).real), axis=-1, initial=jnp.inf)
  ratio = jnp.max(jnp.abs(diagonal_of(t)), axis=-1, initial=0) / slowest
  sizes = jnp.abs(eigh(at.r)[0])
  condition = jnp.max(sizes, axis=-1, initial=0) / jnp.min(sizes, axis=-1, initial=jnp.inf)
  first, second = (
      jnp.finfo(x.dtype).eps * jnp.maximum(condition, y) <= LOST for y in (ratio, ratio**2))
  loop, residual = _about(_CONTINUOUS, system, x, k)
  cross = _continuous_product(system, x) - product(system.r, k)
  further = solve(system.r, cross)
  g = symmetrized(product(system.b, solve(system.r, adjoint(system.b))))
  change = _continuous_p(
      loop - product(system.b, further), g,
      symmetrized(residual - product(cross, further, adjoint_a=True)), zeros_like(x), t, z)
  return determined(change, first, second)


def _discrete_expansion(system, x, t, z, negligible):
  del t, z  # they are those of another loop
  return change_of_solution(
      _discrete_p, lambda loop, t, z, c: _solved(_DISCRETE, loop, (t, z), c), system, x,
      negligible)


def _solve_system(equation, expansion, system):
  """X, and whether it is a solution that makes the closed loop stable."""
  constants = constant(system)
  units = _units(equation, constants)
  system, constants = system.scaled(*units), constants.scaled(*units)
  start = symmetrized(equation.start(constants))
  negligible = _negligible(constants, start)
  system, x, loop, settled, back = equation.refined(system, start, negligible)
  t, z = triangular_schur(loop)
  stable = jnp.all(equation.stable(diagonal_of(t)), axis=-1)
  x = jax.lax.stop_gradient(x)
  x = back(x + expansion(system, x, t, z, negligible))
  d = units[0].astype(x.dtype)
  return x / d[..., :, None] / d[..., None, :], stable & settled


def _check_shapes(name, matrices):
  for key in "aqre":
    if key in matrices:
      check_square(name, matrices[key], key)
  n, m = matrices["a"].shape[-1], matrices["r"].shape[-1]
  expected = {"a": (n, n), "b": (n, m), "q": (n, n), "r": (m, m), "e": (n, n), "s": (n, m)}
  if any(x.ndim < 2 or x.shape[-2:] != expected[key] for key, x in matrices.items()):
    raise incompatible(name, *matrices.values(), names=tuple(matrices))
  check_batches(name, *matrices.values(), names=tuple(matrices))


def _solve(name, equation, expansion, **operands):
  given = {key: x for key, x in operands.items() if x is not None}
  arrays, dtype = as_arrays(name, *given.values())
  arrays = [x.reshape(1, 1) if x.ndim == 0 else x for x in arrays]
  _check_shapes(name, dict(zip(given, arrays, strict=True)))
  ffi.refuse_sharded(name, *arrays)
  arrays = ffi.broadcast_batches(name, arrays, (2,) * len(arrays))
  matrices = dict(zip(given, arrays, strict=True))
  a, b, q, r = matrices["a"], matrices["b"], symmetrized(matrices["q"]), symmetrized(matrices["r"])
  s = matrices.get("s", zeros_like(b))
  if "e" in matrices:  # multiply by E⁻¹ from the right, by E⁻ᴴ from the left
    eh = adjoint(matrices["e"])
    a = adjoint(solve(eh, adjoint(a)))
    q = solve(eh, adjoint(solve(eh, q)))
    s = solve(eh, s)
  x, found = _solve_system(equation, expansion, System(a, b, q, r, s))
  check((~found).astype(jnp.int32), "has no solution that makes the closed loop stable.")
  return nan_where(~found, x, core=2).astype(dtype)


@public("balanced", lists=True)
def solve_continuous_are(
    a: ArrayLike,
    b: ArrayLike,
    q: ArrayLike,
    r: ArrayLike,
    e: ArrayLike | None = None,
    s: ArrayLike | None = None,
    balanced: bool = True,
) -> jax.Array:
  """Solves Aᴴ X + X A - X B R⁻¹ Bᴴ X + Q = 0; `scipy.linalg.solve_continuous_are`, batched.

  Args:
    a: matrices (..., n, n).
    b: matrices (..., n, m).
    q, r: Hermitian matrices (..., n, n) and (..., m, m). (Q + Qᴴ) / 2 and (R + Rᴴ) / 2 are used. R
      must have an inverse here, but not in `solve_discrete_are`. The batches broadcast. A scalar is
      a matrix of order 1.
    e: matrices (..., n, n) that have inverses, the identity by default.
    s: matrices (..., n, m), zero by default. The equation with E and S is
      Eᴴ X A + Aᴴ X E - (Eᴴ X B + S) R⁻¹ (Bᴴ X E + Sᴴ) + Q = 0.
    balanced: not used, since the extended pencil is always balanced.

  Returns:
    The Hermitian X (..., n, n) for which all eigenvalues of A - B R⁻¹ Bᴴ X are to the left of the
    imaginary axis. It is NaN where there is none, where its estimated error exceeds both a tenth of
    it and rounding errors of R, or where a matrix holds NaN or Inf; see `checked`. Eigenvalues of
    the closed loop whose real part is below √eps of their size count as on the axis. X loses digits
    where rows and columns of A are of very different scale. Many states and few inputs make X
    large: random A with 65 states and 3 inputs is NaN in float32, and keeps half of the digits in
    float64.

  Derivatives may be NaN where X is not. Let ρ be the ratio of the largest eigenvalue of the closed
  loop to its slowest decay. It is large where an input costs little, for example. First derivatives
  may lose digits with ρ, and are NaN where eps ρ exceeds 0.1. Second ones may lose digits with ρ²,
  and are NaN where eps ρ² does. Both are NaN where eps κ does, κ the condition number of R in units
  that make its diagonal 1.

  float16 and bfloat16 are solved in float32, and X rounded.

  Algorithm: the extended pencil (van Dooren, 1981) is balanced and moved to the unit circle. Its
  stable subspace is found by doubling without inverses (Bai, Demmel and Gu, 1997). Three steps of
  Newton's method follow (Kleinman, IEEE Trans. Automat. Control 13, 1968). Derivative: the Lyapunov
  equation of the closed loop, to any order.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> one = jnp.eye(1)
    >>> linalg.scipy.solve_continuous_are(0 * one, one, 4 * one, one)
    Array([[2.]], dtype=float32)
  """
  del balanced
  return _solve(
      "solve_continuous_are", _CONTINUOUS, _continuous_expansion, a=a, b=b, q=q, r=r, e=e, s=s)


@public("balanced", lists=True)
def solve_discrete_are(
    a: ArrayLike,
    b: ArrayLike,
    q: ArrayLike,
    r: ArrayLike,
    e: ArrayLike | None = None,
    s: ArrayLike | None = None,
    balanced: bool = True,
) -> jax.Array:
  """Solves Aᴴ X A - X - Aᴴ X B (R + Bᴴ X B)⁻¹ Bᴴ X A + Q = 0; `scipy.linalg.solve_discrete_are`,
  batched.

  Args:
    a, b, q, r, e, s, balanced: as for `solve_continuous_are`. The equation with E and S is
      Aᴴ X A - Eᴴ X E - (Aᴴ X B + S) (R + Bᴴ X B)⁻¹ (Bᴴ X A + Sᴴ) + Q = 0.

  Returns:
    The Hermitian X (..., n, n) for which all eigenvalues of the closed loop
    A - B (R + Bᴴ X B)⁻¹ Bᴴ X A are within the unit circle. It is NaN where there is none, where its
    estimated error exceeds both a tenth of it and rounding errors of R, or where a matrix holds NaN
    or Inf; see `checked`. Eigenvalues within √eps of the circle count as on it. R may be singular,
    or 0, where R + Bᴴ X B has an inverse. X loses digits where rows and columns of A are of very
    different scale. For Q = 0 and a stable A, X is 0, or NaN where an input costs less than √eps of
    another one.

  Derivatives may be NaN where X is not. Let κ be the condition number of R + Bᴴ X B in units that
  make its diagonal 1. First derivatives are NaN where eps √κ exceeds 0.1, second ones where eps κ
  does. Before that they lose digits with κ, second ones more than first ones.

  float16 and bfloat16 are solved in float32, and X rounded.

  Algorithm: doubling of the balanced extended pencil, as in `solve_continuous_are`, and three steps
  of Newton's method (Hewer, IEEE Trans. Automat. Control 16, 1971). Derivative: the discrete
  Lyapunov equation of the closed loop, to any order, in states and inputs that make X and
  R + Bᴴ X B near I.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> one = jnp.eye(1)
    >>> linalg.scipy.solve_discrete_are(0 * one, one, 4 * one, one)
    Array([[4.]], dtype=float32)
  """
  del balanced
  return _solve(
      "solve_discrete_are", _DISCRETE, _discrete_expansion, a=a, b=b, q=q, r=r, e=e, s=s)
