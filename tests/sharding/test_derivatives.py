"""Derivatives of a sharded batch are computed without gathering it, in Auto and in Explicit mode.

The differentiated functions give one number per matrix. They do not depend on the signs and bases
that a factorization leaves open.
"""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import cases
import selection
from quick import quick_compile
from sharded import (
  BATCH,
  close,
  compile_local,
  energy,
  make_mesh,
  place,
  sharded_like,
  split,
)

COMPILES = True
ONE_IN = 3

CASES = cases.each(cases.DIFFERENTIABLE_CASES)
N = 4


def _first_order(f, x, tangents, cotangent):
  y, pushforward = jax.linearize(f, *x)
  return y, pushforward(*tangents), jax.vjp(f, *x)[1](cotangent)


def _grad_of_scan(f, x, tangents, cotangent):
  del tangents

  def loss(x):
    # The sum over the batch would be an all-reduce of its value only. A gradient needs none.
    step = lambda carry, scale: (carry + jax.checkpoint(f)(*(scale * y for y in x)), None)
    return jnp.sum(cotangent * jax.lax.scan(step, f(*x), jnp.array([0.5, 2.0]))[0])

  return jax.grad(loss)(x)


def _check(mode, case, kind, dtype, rng):
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (BATCH,), N, N, dtype)
  tangents = [x for x in case.operands(rng, (BATCH,), N, N, dtype) if x.dtype == dtype]
  cotangent = rng.standard_normal(BATCH).astype(np.finfo(dtype).dtype)

  def function(operands, tangents, cotangent):
    x, merge = split(operands)
    return mode(lambda *x: energy(case, 1, *merge(x)), x, tuple(tangents), cotangent)

  arguments = (operands, tangents, cotangent)
  sharded = jax.device_put(arguments, NamedSharding(mesh, P("x")))
  results = compile_local(function, sharded)(*sharded)
  close(results, quick_compile(function, arguments)(*arguments))
  sharded_like(results, mesh, "x")


@selection.extended_for("cholesky_update", "householder_product")
@selection.in_turn(1)
@CASES
@pytest.mark.parametrize(
    "kind, dtype",
    [(AxisType.Auto, np.float64), (AxisType.Explicit, np.complex128)],
    ids=lambda x: x.__name__ if isinstance(x, type) else x.name)
def test_first_order(case, kind, dtype, rng):
  """jvp, linearize and vjp: catches a product or a broadcast in a rule that makes XLA gather."""
  _check(_first_order, case, kind, np.dtype(dtype), rng)


@pytest.mark.extended
@CASES
def test_grad_of_checkpointed_scan(case, rng):
  """Catches residuals of a loop, stacked or recomputed, that lose their sharding."""
  _check(_grad_of_scan, case, AxisType.Auto, np.dtype(np.float64), rng)


def _check_one(function, case, n, rng):
  """`function` of the energy of one matrix as a function of the first operand, under vmap."""
  mesh = make_mesh(kind=AxisType.Explicit)
  operands = case.operands(rng, (BATCH,), n, n, np.float64)

  def one(a, *others):
    return function(lambda a: energy(case, 0, a, *others))(a)

  sharded = place(operands, mesh, "x")
  # JAX 0.12 finds the mesh of a mapped loop only where it is set.
  with jax.set_mesh(mesh) if case.scan else contextlib.nullcontext():
    results = compile_local(jax.vmap(one), sharded)(*sharded)
  close(results, quick_compile(jax.vmap(one), operands)(*operands))
  sharded_like(results, mesh, "x")


@pytest.mark.extended
@CASES
def test_jacobians(case, rng):
  """Catches a rule that, under vmap, broadcasts the factors along the wrong dimension."""
  _check_one(lambda f: lambda a: (jax.jacfwd(f)(a), jax.jacrev(f)(a)), case, N, rng)


@pytest.mark.extended
@CASES
def test_hessian(case, rng):
  """Catches a rule whose own derivative cannot be taken, or gathers."""
  _check_one(jax.hessian, case, max(2, case.closed_form + 1), rng)
