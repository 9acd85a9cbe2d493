"""Derivatives to second order, in every mode, against central differences of sixth order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import matrices
from linalg._catalogue import checks
from quick import quick_jit

STENCIL = np.array([-1, 9, -45, 0, 45, -9, 1]) / 60
STEP = 2e-4


def real_product(x, y):
  """Re Σ xᵢ yᵢ, by which JAX pairs gradients with tangents."""
  return sum(jnp.sum((a * b).real) for a, b in zip(x, y, strict=True))


@functools.partial(quick_jit, static_argnums=0)
def _all_modes(function, primals, tangents, cotangents):
  """(values, first derivatives) along the stencil, and every derivative at its center."""
  steps = STEP * jnp.arange(-3.0, 4.0)

  def along(x, dx):
    return x[None] + steps.reshape((-1,) + (1,) * x.ndim).astype(dx.dtype) * dx[None]

  def first(*x):
    return jax.jvp(function, x, tangents)[1]

  def loss(*x):
    return real_product(cotangents, function(*x))

  def slope(*x):
    return real_product(gradient(*x), tangents)

  everything = tuple(range(len(primals)))
  gradient = jax.grad(loss, everything)
  points = tuple(map(along, primals, tangents))
  lines = tuple(jnp.broadcast_to(dx, x.shape) for x, dx in zip(points, tangents, strict=True))
  return {
      "stencil": jax.jvp(function, points, lines),
      "second": jax.jvp(first, primals, tangents)[1],
      "gradient": gradient(*primals),
      # Returns two products of the Hessian with the tangent.
      "forward over reverse": jax.jvp(gradient, primals, tangents)[1],
      "reverse over reverse": jax.grad(slope, everything)(*primals),
  }


def _assert_close(actual, expected, tolerance, what):
  for x, y in zip(actual, expected, strict=True):
    assert x.dtype == y.dtype, what
    scale = max(np.max(np.abs(y), initial=0), 1e-3)
    np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * scale, err_msg=what)


def check(function, operands, rng, tolerance=1e-8):
  """Checks a `function` of batches at one matrix of each operand.

  Integer operands and results take no part.
  """
  check_at_each(function, [operands], rng, tolerance)


def check_at_each(function, points, rng, tolerance=1e-8):
  """Calls `check` for each of several operands of equal shapes, dtypes and integers."""
  operands = [np.asarray(x) for x in points[0]]
  moving = [k for k, x in enumerate(operands) if np.issubdtype(x.dtype, np.inexact)]

  def of_inexact(*inexact):
    given = dict(zip(moving, inexact, strict=True))
    batch = inexact[0].shape[: inexact[0].ndim - operands[moving[0]].ndim]
    full = [
        given.get(k, jnp.broadcast_to(x, (*batch, *x.shape))) for k, x in enumerate(operands)]
    results = jax.tree.leaves(function(*full))
    return tuple(x for x in results if jnp.issubdtype(x.dtype, jnp.inexact))

  for point in points:
    primals = tuple(np.asarray(point[k]) for k in moving)
    _check_one(of_inexact, primals, rng, tolerance)


def _check_one(of_inexact, primals, rng, tolerance):
  random = lambda x: matrices.general(rng, x.shape, 1, 1, x.dtype)[..., 0, 0]
  tangents = tuple(random(x) for x in primals)
  cotangents = tuple(random(x) for x in jax.eval_shape(of_inexact, *primals))
  found = _all_modes(of_inexact, primals, tangents, cotangents)

  values, slopes = found["stencil"]

  def difference(x):
    return np.tensordot(STENCIL, checks.wide(x), 1).astype(x.dtype) / x.dtype.type(STEP)

  slope = [x[3] for x in slopes]
  _assert_close(slope, list(map(difference, values)), tolerance, "first order")
  _assert_close(found["second"], list(map(difference, slopes)), tolerance, "second order")

  exact = tolerance / 100
  pairs = {
      "gradient": (found["gradient"], slope),
      "forward over reverse": (found["forward over reverse"], found["second"]),
  }
  for what, (gradient, along) in pairs.items():
    scale = sum(np.sum(np.abs(x) * np.abs(y)) for x, y in zip(cotangents, along, strict=True))
    np.testing.assert_allclose(
        real_product(gradient, tangents), real_product(cotangents, along), rtol=0,
        atol=exact * max(scale, 1e-3), err_msg=what)
  _assert_close(
      found["reverse over reverse"], found["forward over reverse"], exact, "reverse over reverse")
