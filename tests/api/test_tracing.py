"""Operations while JAX traces them: dtypes, ranks, leaks, NaN and 32-bit mode.

Most tests need no compilation, because the traced program has the shapes and dtypes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import linalg
import matrices
import selection
from sharded import split


def _split(case, operands):
  """Returns `case` as a function of its inexact operands only, and those operands."""
  floating, merge = split(operands)

  def function(*inexact):
    results = case.results(*merge(inexact))
    return [x for x in results if jnp.issubdtype(x.dtype, jnp.inexact)]

  return function, floating


def _derivatives(function):
  """Returns the first and second derivatives in both modes, as one function to trace."""

  def loss(*x):
    return sum(jnp.sum(jnp.abs(y)) for y in function(*x))

  def program(*x):
    gradient = jax.grad(loss, tuple(range(len(x))))
    return (
        function(*x), jax.jvp(function, x, x)[1], gradient(*x), jax.jvp(gradient, x, x)[1],
        jax.vmap(gradient)(*x))

  return program


each_differentiable = cases.each(cases.DIFFERENTIABLE_CASES)


@selection.one_in(2)
@selection.one_dtype
@each_differentiable
def test_derivatives_keep_the_dtype(case, dtype, rng):
  """A float64 constant in a rule would widen float32 tangents, and slow the whole program."""
  function, operands = _split(case, case.operands(rng, (2,), 3, 3, dtype))
  results, tangents, gradients, second, mapped = jax.eval_shape(_derivatives(function), *operands)
  assert {x.dtype for x in results} <= case.result_dtypes(dtype)
  assert [x.dtype for x in tangents] == [x.dtype for x in results]
  assert not any(x.weak_type for x in jax.tree.leaves((results, tangents, gradients, second)))
  for some in (gradients, second, mapped):
    assert [(x.shape, x.dtype) for x in some] == [(x.shape, x.dtype) for x in operands]


@pytest.mark.extended
@each_differentiable
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3)], ids=str)
def test_no_rank_is_promoted(case, shape, rng):
  """If implicit rank promotion is an error, the rules must not use it either."""
  shape = shape if case.rectangular else (3, 3)
  function, operands = _split(case, case.operands(rng, (2, 3), *shape, np.complex64))
  with jax.numpy_rank_promotion("raise"):
    jax.eval_shape(_derivatives(function), *operands)


@cases.each_double
def test_no_rank_is_promoted_between_operands(dtype, rng):
  """Operands with different batches are broadcast explicitly."""
  a = matrices.positive_definite(rng, (), 3, dtype)
  b = matrices.general(rng, (4,), 3, 2, dtype)

  def program(a, b):
    packed, pivots = linalg.lu_factor(a)
    return [
        linalg.solve(a, b), linalg.cho_solve((a, True), b), linalg.lu_solve((packed, pivots), b),
        linalg.triangular_solve(a, b, left_side=True), linalg.solve_triangular(a, b)]

  with jax.numpy_rank_promotion("raise"):
    results, _ = jax.eval_shape(lambda a, b: jax.jvp(program, (a, b), (a, b)), a, b)
  assert {x.shape for x in results} == {(4, 3, 2)}


@selection.one_in(6)
@each_differentiable
def test_nothing_leaks(case, rng):
  """Catches a tracer that a rule or a cache keeps after its trace."""
  function, operands = _split(case, case.operands(rng, (2,), 3, 3, np.complex64))
  with jax.checking_leaks():
    jax.make_jaxpr(_derivatives(function))(*operands)


def _programs(a):
  """Returns a loss of each operation that fails for a matrix that is not positive definite or
  singular."""
  q, r = linalg.qr(a)
  w, v = linalg.eigh(a)
  results = (
      linalg.cholesky(a), linalg.solve(a, a[..., :1]), linalg.inv(a), q, r, w,
      v @ (w[..., None] * v.mT.conj()), linalg.slogdet(a).logabsdet, linalg.det(a))
  return sum(jnp.sum(jnp.abs(x)) for x in results)


@pytest.mark.parametrize("compiled", [True, False])
def test_debug_nans(compiled, rng):
  """JAX's search for NaN must not stop at one that a rule computes and discards."""
  a = matrices.positive_definite(rng, (2,), 3, np.float64)
  wrap = jax.jit if compiled else lambda f: f
  with jax.debug_nans(True):
    assert np.isfinite(wrap(jax.grad(_programs))(a)).all()
    with pytest.raises(FloatingPointError):
      wrap(linalg.cholesky)(-a)


def test_debug_nans_at_equal_eigenvalues():
  """The masked 1 / 0 is never computed."""
  with jax.debug_nans(True), jax.debug_infs(True):
    gradient = jax.grad(lambda a: jnp.sum(linalg.eigh(a).eigenvalues ** 2))(np.eye(3))
  np.testing.assert_allclose(gradient, 2 * np.eye(3))


@selection.one_in(2)
@selection.compiles
@cases.each_dtype(np.float32, np.complex64)
def test_32_bit_mode(case, dtype, rng):
  """In 32-bit mode no result, derivative or warning asks for 64-bit types."""
  operands = case.operands(rng, (2,), 3, 3, dtype)
  dtype = np.dtype(dtype)
  with jax.enable_x64(False):
    results = case.results(*operands)
    assert case.ratio(operands, [np.asarray(x) for x in results]) <= case.limit
    assert {x.dtype for x in results} <= case.result_dtypes(dtype) | {np.dtype(np.int32)}
    assert not any(x.weak_type for x in results)
    if case in cases.DIFFERENTIABLE_CASES:
      function, inexact = _split(case, operands)
      found = jax.eval_shape(_derivatives(function), *inexact)
      assert {x.dtype for x in jax.tree.leaves(found)} <= case.result_dtypes(dtype)


def test_symbolic_zeros(rng):
  """Constant operands have no tangent, so each rule takes any combination of the others."""
  a = matrices.well_conditioned(rng, (), 3, np.complex128)
  b = matrices.general(rng, (), 3, 2, np.complex128)
  packed, pivots = linalg.lu_factor(a)
  reflectors, taus = a[:, :2], matrices.general(rng, (), 1, 2, np.complex128)[0]
  functions = {
      "solve": (linalg.solve, (a, b)),
      "triangular_solve": (
          lambda a, b: linalg.triangular_solve(a, b, left_side=True, conjugate_a=True), (a, b)),
      "cho_solve": (lambda a, b: linalg.cho_solve((a, False), b), (a, b)),
      "lu_solve": (lambda lu, b: linalg.lu_solve((lu, pivots), b), (packed, b)),
      "householder_product": (linalg.householder_product, (reflectors, taus)),
  }

  @jax.jit
  def compare(operands):
    found = {}
    for name, (function, _) in functions.items():
      x, y = operands[name]
      both = jax.jvp(function, (x, y), (x, y))[1]
      one = jax.jvp(lambda x, f=function, y=y: f(x, y), (x,), (x,))[1]
      other = jax.jvp(lambda y, f=function, x=x: f(x, y), (y,), (y,))[1]
      found[name] = both, one + other
    return found

  for name, (both, apart) in compare({k: v for k, (_, v) in functions.items()}).items():
    np.testing.assert_allclose(both, apart, rtol=1e-12, atol=1e-12, err_msg=name)
