"""Derivatives of Kalman filters and smoothers, against differences and formulas."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from linalg.structured._kalman_operations import (
  filter_jvp_p,
  filter_p,
  filter_vjp_p,
  smoother_jvp_p,
  smoother_p,
  smoother_vjp_p,
)
from state_space import CORES, FUNCTIONS, by_numpy, model

ONE_IN = 3


def _loss(function, weights):
  """A sum of all results with fixed weights."""

  def loss(y, parameters):
    means, covs, likelihood = function(y, parameters)
    return likelihood + (weights[0] * means).sum() + (weights[1] * covs).sum()

  return loss


def _numpy_results(kind, mask):
  def results(y, parameters):
    filtered, smoothed, likelihood = by_numpy(y, parameters, mask)
    return (*(filtered if kind == "filter" else smoothed), likelihood)

  return results


def _jax_results(kind, mask):
  return lambda y, parameters: FUNCTIONS[kind](y, **parameters, mask=mask)[:3]


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("name", [
    "transition_covariance",
    *(pytest.param(x, marks=pytest.mark.extended)
      for x in CORES if x != "transition_covariance")])
def test_second_derivatives_of_every_kind(kind, name, rng):
  """`jax.hessian` and the other orders map over operands of different ranks."""
  y, parameters = model(rng, 4, 2, 1)
  loss = _loss(_jax_results(kind, None), (y, np.eye(2)[None]))
  function = lambda x: loss(y, parameters | {name: x})
  point = parameters[name]
  expected = jnp.stack([
      jax.jvp(jax.grad(function), (point,), (unit,))[1]
      for unit in np.eye(point.size).reshape(-1, *point.shape)])
  for outer, inner in itertools.product((jax.jacfwd, jax.jacrev), repeat=2):
    found = jax.jit(outer(inner(function)))(point)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("kind", "per_step"), [
    ("filter", False), ("smoother", True),
    pytest.param("filter", True, marks=pytest.mark.extended),
    pytest.param("smoother", False, marks=pytest.mark.extended)])
def test_derivatives(kind, per_step, rng):
  """First and second derivatives, against differences in extended precision."""
  steps, n, m = 3, 2, 2
  names = [x for x in CORES if not x.startswith("initial")] if per_step else []
  point = model(rng, steps, n, m, per_step=names)
  direction = model(rng, steps, n, m, per_step=names)
  mask = np.array([[False, False], [False, True], [False, False]])
  weights = rng.standard_normal((steps, n)), rng.standard_normal((steps, n, n))
  loss = _loss(_jax_results(kind, mask), weights)
  wide = lambda x: jax.tree.map(lambda x: x.astype(np.longdouble), x)
  exact = _loss(_numpy_results(kind, mask), wide(weights))

  def along(t):
    return exact(*jax.tree.map(lambda x, dx: x + t * dx, wide(point), wide(direction)))

  h = np.longdouble(1e-4)
  first = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
  second = (
      -along(2 * h) + 16 * along(h) - 30 * along(0) + 16 * along(-h) - along(-2 * h)) / (12 * h * h)
  inner = lambda x, y: sum(map(jnp.vdot, jax.tree.leaves(x), jax.tree.leaves(y)))

  @jax.jit
  def found(point, direction):
    gradient, curved = jax.jvp(jax.grad(loss, (0, 1)), point, direction)
    forward = jax.jvp(lambda *x: jax.jvp(loss, x, direction)[1], point, direction)
    reverse = jax.grad(lambda x: inner(jax.grad(loss, (0, 1))(*x), direction))(point)
    return (forward[0], inner(gradient, direction),
            forward[1], inner(curved, direction), inner(reverse, direction))

  found = found(point, direction)
  np.testing.assert_allclose(found[:2], [float(first)] * 2, rtol=1e-9)
  np.testing.assert_allclose(found[2:], [float(second)] * 3, rtol=1e-7)


@pytest.mark.parametrize(("n", "shared"), [
    (3, [2]), (3, [3, 4, 5, 7, 8]), pytest.param(14, [2], marks=pytest.mark.extended),
    pytest.param(14, [3, 4, 5, 7, 8], marks=pytest.mark.extended)])
def test_handlers_of_derivatives(n, shared, rng):
  """Tangents are those of the formula, and adjoints its transpose, with shared operands too."""
  y, parameters = model(rng, 5, n, 2, batch=(3,), per_step=("transition", "observation_offset"))
  operands = [y] + [
      x if name.startswith("initial") or x.ndim == len(core) + 2 else np.expand_dims(x, 1)
      for (name, x), core in zip(parameters.items(), CORES.values(), strict=True)]
  for i in shared:
    operands[i] = operands[i][0]  # serves all
  seen = (rng.random(y.shape) < 0.7).astype(y.dtype)
  operands = [jnp.asarray(x) for x in (*operands, seen)]
  cases = [(filter_p, filter_jvp_p, filter_vjp_p, operands, 9, 2)]
  moments = filter_p(*operands)[:2]
  cases.append((
      lambda *_: smoother_p(*operands, *moments), smoother_jvp_p, smoother_vjp_p,
      [operands[1], operands[2], operands[7], *moments], 5, 2))
  for values, given in ((filter_p, operands), (smoother_p, [*operands, *moments])):
    for x, known in zip(values(*given), jax.jit(values._rules.fallback)(*given), strict=True):
      np.testing.assert_allclose(x, known, rtol=1e-10, atol=1e-10)
  for values, tangents, adjoints, given, linear, kept in cases:
    found = values(*given)
    constants = (*given, *found[:kept])
    directions = []
    for x in given[:linear]:
      dx = rng.standard_normal(x.shape)
      is_square = x.ndim > 2 and x.shape[-1] == x.shape[-2] and x is not given[0]
      symmetric = is_square and not any(x is f for f in (operands[1],))
      directions.append(jnp.asarray((dx + dx.swapaxes(-1, -2)) / 2 if symmetric else dx))
    for x, known in zip(tangents(*constants, *directions),
                        jax.jit(tangents._rules.fallback)(*constants, *directions), strict=True):
      np.testing.assert_allclose(x, known, rtol=1e-9, atol=1e-9)
    cotangents = [jnp.asarray(rng.standard_normal(x.shape)) for x in found[:3]]
    cotangents[1] = (cotangents[1] + cotangents[1].mT) / 2
    theirs = jax.jit(adjoints._rules.fallback)(*constants, *cotangents)
    for x, known in zip(adjoints(*constants, *cotangents), theirs, strict=True):
      np.testing.assert_allclose(x, known, rtol=1e-9, atol=1e-9)
