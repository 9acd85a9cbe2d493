"""One factor for a sharded batch of right-hand sides: it is neither gathered nor copied.

JAX's own rule for `vmap` would broadcast a factor with in_axes=None to the whole batch.
"""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import linalg
import matrices
import selection
from quick import quick_compile, quick_jit
from sharded import (
  BATCH,
  KINDS,
  SECOND_BATCH,
  close,
  collectives,
  make_mesh,
  no_collectives,
  nothing_global,
  place,
  same_bits,
  sharded_like,
  with_kinds,
)

COMPILES = True
ONE_IN = 3

N, K = 7, 3


def _matrix(rng):
  return (matrices.well_conditioned(rng, (), N, np.float64),)


def _lower(rng):
  return (np.tril(*_matrix(rng)),)


def _lu(rng):
  return scipy.linalg.lu_factor(*_matrix(rng))


# name: (a factor, as a tuple, and the solve with it)
SOLVES = {
    "solve": (_matrix, linalg.solve),
    "triangular_solve": (
        _lower, lambda l, b: linalg.triangular_solve(l, b, left_side=True, lower=True)),
    "triangular_solve_right": (
        _lower, lambda l, b: linalg.triangular_solve(l, b.mT, lower=True, transpose_a=True).mT),
    "solve_triangular": (_lower, lambda l, b: linalg.solve_triangular(l, b, trans="T", lower=True)),
    "cho_solve": (_lower, lambda l, b: linalg.cho_solve((l, True), b)),
    "lu_solve": (_lu, lambda lu, pivots, b: linalg.lu_solve((lu, pivots), b)),
    "lu_solve_transposed": (_lu, lambda lu, pivots, b: linalg.lu_solve((lu, pivots), b, trans=1)),
}
NAMES = pytest.mark.parametrize("name", SOLVES)


def factor_is_not_copied(text):
  """No array of the program is more than one n-by-n matrix."""
  for lead in re.findall(rf"\w\[((?:\d+,)*){N},{N}\]", text):
    assert math.prod(map(int, filter(None, lead.split(",")))) == 1, f"[{lead}{N},{N}] in\n{text}"


def _broadcasting(solve, factor):
  del factor
  return solve


def _vmap(solve, factor):
  return jax.vmap(solve, in_axes=(*(None,) * len(factor), 0))


def _nested_vmap(solve, factor):
  return _vmap(_vmap(solve, factor), factor)


def _vmap_of_batch(solve, factor):
  return jax.vmap(solve, in_axes=(*(None,) * len(factor), 1), out_axes=1)


def _vjp_of_vmap(solve, factor):
  def function(*arguments):
    *factor, b = arguments
    return jax.vjp(lambda b: _vmap(solve, factor)(*factor, b), b)[1](b)[0]

  return function


def _jvp_of_vmap(solve, factor):
  def function(*arguments):
    *factor, b = arguments
    return jax.jvp(lambda b: _vmap(solve, factor)(*factor, b), (b,), (2 * b,))[1]

  return function


def _vmap_of_vjp(solve, factor):
  def pull_back(*arguments):
    *factor, b = arguments
    return jax.vjp(lambda b: solve(*factor, b), b)[1](b)[0]

  return _vmap(pull_back, factor)


def _vmap_of_jvp(solve, factor):
  def push_forward(*arguments):
    *factor, b = arguments
    return jax.jvp(lambda b: solve(*factor, b), (b,), (2 * b,))[1]

  return _vmap(push_forward, factor)


TWO = (BATCH, SECOND_BATCH)
MODES = [
    (_broadcasting, (BATCH,)), (_broadcasting, TWO), (_broadcasting, (*TWO, 2)), (_vmap, (BATCH,)),
    (_vmap, TWO), (_nested_vmap, TWO), (_vmap_of_batch, TWO), (_vjp_of_vmap, (BATCH,)),
    (_jvp_of_vmap, (BATCH,)), (_vmap_of_vjp, (BATCH,)), (_vmap_of_jvp, (BATCH,))]
DERIVATIVES = {_vjp_of_vmap, _jvp_of_vmap, _vmap_of_vjp, _vmap_of_jvp}


@selection.in_turn(2, "name")
@NAMES
@with_kinds("mode, batch", MODES)
def test_shared_factor(name, mode, batch, kind, rng):
  """Catches a factor that is gathered, or broadcast until memory runs out."""
  make_factor, solve = SOLVES[name]
  mesh = make_mesh((4, 2), ("x", "y"), kind)
  factor, b = make_factor(rng), rng.standard_normal((*batch, N, K))
  function = mode(solve, factor)
  spec = ("x", "y")[: len(batch)]
  operands = (*place(factor, mesh), *place((b,), mesh, *spec))
  compiled = quick_compile(function, operands)
  text = compiled.as_text()
  no_collectives(text)
  nothing_global(text)
  factor_is_not_copied(text)
  result = compiled(*operands)
  same_bits(result, quick_jit(function)(*factor, b))
  sharded_like(result, mesh, *spec)
  one = quick_jit(solve)(*factor, b.reshape(-1, N, K)[-1])
  if mode not in DERIVATIVES:
    same_bits(np.asarray(result).reshape(-1, N, K)[-1], one)


@KINDS
@NAMES
def test_vectors(name, kind, rng):
  """Catches a batch of vectors that is taken for the columns of a matrix, or broadcast."""
  make_factor, solve = SOLVES[name]
  if name.startswith("triangular_solve"):
    columns = solve
    solve = lambda *x: columns(*x[:-1], x[-1][..., None])[..., 0]  # takes no vectors under vmap
  mesh = make_mesh(kind=kind)
  factor, b = make_factor(rng), rng.standard_normal((BATCH, N))
  function = _vmap(solve, factor)
  operands = (*place(factor, mesh), *place((b,), mesh, "x"))
  compiled = quick_compile(function, operands)
  no_collectives(compiled.as_text())
  nothing_global(compiled.as_text())
  factor_is_not_copied(compiled.as_text())
  result = compiled(*operands)
  same_bits(result, quick_jit(function)(*factor, b))
  same_bits(np.asarray(result)[3], quick_jit(solve)(*factor, b[3]))


@KINDS
@NAMES
def test_shared_right_hand_side(name, kind, rng):
  """One right-hand side serves a sharded batch of factors: in_axes=(0, None)."""
  make_factor, solve = SOLVES[name]
  mesh = make_mesh(kind=kind)
  factor = [np.stack(x) for x in zip(*(make_factor(rng) for _ in range(BATCH)), strict=True)]
  b = rng.standard_normal((N, K))
  function = jax.vmap(solve, in_axes=(*(0,) * len(factor), None))
  operands = (*place(factor, mesh, "x"), *place((b,), mesh))
  compiled = quick_compile(function, operands)
  no_collectives(compiled.as_text())
  nothing_global(compiled.as_text())
  result = compiled(*operands)
  same_bits(result, quick_jit(function)(*factor, b))
  same_bits(np.asarray(result)[3], quick_jit(solve)(*(x[3] for x in factor), b))
  sharded_like(result, mesh, "x")


@KINDS
@NAMES
def test_gradient_of_shared_factor(name, kind, rng):
  """The gradient is a sum over the batch, which takes a collective; the solves take none.

  Catches a rule that cannot be transposed when only the factor lacks the batch. Also catches one
  that gathers the right-hand sides.
  """
  make_factor, solve = SOLVES[name]
  mesh = make_mesh(kind=kind)
  factor, b = make_factor(rng), rng.standard_normal((BATCH, N, K))

  def gradient(a, *others):
    return jax.grad(lambda a: jnp.sum(jnp.sin(solve(a, *others))))(a)

  operands = (*place(factor, mesh), *place((b,), mesh, "x"))
  compiled = quick_compile(gradient, operands)
  assert collectives(compiled.as_text()) <= {"all-reduce"}
  nothing_global(compiled.as_text())
  one_by_one = sum(np.asarray(quick_jit(gradient)(*factor, x)) for x in b)
  close(compiled(*operands), one_by_one)


def test_batched_matrices_under_vmap_are_factored_once(rng):
  """`vmap` maps the right-hand sides of matrices that have a batch of their own.

  Catches matrices that are copied and factored for every right-hand side.
  """
  a = rng.standard_normal((3, N, N)) + 4 * np.eye(N)
  b = rng.standard_normal((BATCH, 3, N, K))
  unmapped = jax.vmap(linalg.solve, in_axes=(None, 0))
  nested = jax.vmap(jax.vmap(linalg.solve, in_axes=(None, 0)))
  for function, rhs in ((unmapped, b), (nested, b.swapaxes(0, 1))):
    text = quick_compile(function, (a, rhs)).as_text()
    assert 'custom_call_target="linalg_solve"' not in text
    (factoring,) = [x for x in text.splitlines() if 'custom_call_target="linalg_lu"' in x]
    assert f"{BATCH}," not in factoring
  same_bits(unmapped(a, b), np.stack([linalg.solve(a, x) for x in b]))
  same_bits(nested(a, b.swapaxes(0, 1)), np.asarray(unmapped(a, b)).swapaxes(0, 1))
