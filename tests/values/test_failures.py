"""A matrix that fails is NaN, its info says why, and its neighbours in the batch are unchanged.

Each place of a batch in turn holds NaN, Inf, zeros or minus the identity.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import cases
import linalg
import linalg.scipy
import matrices
import selection
from quick import quick_jit

ONE_IN = 3

BATCH = 9  # more than the lanes of a vector register, and a remainder
INTEGERS = (np.iinfo(np.int32).min, -1, 99, np.iinfo(np.int32).max)


def _poisons(x):
  """Returns replacements for one matrix or vector of `x`."""
  core = x[0].shape
  if np.issubdtype(x.dtype, np.integer):
    return [np.full(core, value, x.dtype) for value in INTEGERS]
  first, last = x[0].copy(), x[0].copy()
  first.flat[0], last.flat[-1] = np.nan, np.inf
  minus_one = -np.eye(*core) if len(core) == 2 else -np.ones(core)
  full = [np.full(core, value, x.dtype) for value in (np.nan, np.inf, 0)]
  return [*full, first, last, minus_one.astype(x.dtype)]


def _poisoned(operands):
  """Returns (place, operands) with one operand replaced at one place of the batch."""
  for k, x in enumerate(operands):
    for i, poison in enumerate(_poisons(x)):
      for place in range(BATCH):
        spoilt = list(operands)
        spoilt[k] = x.copy()
        spoilt[k][place] = poison
        yield f"operand {k}, poison {i}, place {place}", place, spoilt


def _neighbours(results, place):
  return [np.delete(np.asarray(x), place, axis=0).tobytes() for x in results]


@selection.in_turn(2)
@pytest.mark.parametrize("n", [2, 5])
def test_neighbours_keep_their_bits(case, dtype, n, rng):
  """Matrices that share a vector register, a workspace or a thread must not share a NaN."""
  operands = case.operands(rng, (BATCH,), n, n, dtype)
  function = jax.jit(case.results)
  clean = function(*operands)
  for which, place, spoilt in _poisoned(operands):
    assert _neighbours(function(*spoilt), place) == _neighbours(clean, place), which


@pytest.mark.parametrize("n", [1, 3, 20, 70, 513])
def test_infinite_variance(dtype, n, rng):
  """Infinite variances mask data: the factor is LAPACK's, and solutions are 0 there."""
  a = matrices.positive_definite(rng, (3,), n, dtype)
  for i, place in enumerate((0, n // 2, n - 1)):
    a[i, place, place] = np.inf
  factor, info = linalg.cholesky_ex(a)
  np.testing.assert_array_equal(info, 0)
  eps = 10 * n * float(np.finfo(dtype).eps)
  for ours, given in zip(np.asarray(factor), a, strict=True):
    expected = scipy.linalg.cholesky(given, lower=True, check_finite=False)
    np.testing.assert_array_equal(np.isinf(ours), np.isinf(expected))
    np.testing.assert_allclose(
        np.where(np.isinf(ours), 0, ours), np.where(np.isinf(expected), 0, expected),
        rtol=0, atol=eps * np.sqrt(np.max(np.abs(given[np.isfinite(given)]), initial=1)))
  x = np.asarray(linalg.cho_solve((factor, True), np.ones((3, n, 2), dtype)))
  for i, place in enumerate((0, n // 2, n - 1)):
    assert (x[i, place] == 0).all() and np.isfinite(x[i]).all()


@selection.in_turn(1)
@cases.each([case for case in cases.CASES if case.ranks in ((2,), (2, 2))])
def test_nan_is_not_swallowed(case, dtype, rng):
  """A NaN anywhere on the diagonal shows in at least one of the results."""
  sizes = (1, 2, 3, 5)
  several = [case.operands(rng, (n,), n, n, dtype) for n in sizes]
  for n, operands in zip(sizes, several, strict=True):
    for k in range(n):
      operands[0][k, k, k] = np.nan
  found = jax.jit(lambda several: [case.results(*operands) for operands in several])(several)
  for n, results in zip(sizes, jax.device_get(found), strict=True):
    # The reflector of a column of one element is always the identity. R holds the NaN.
    results = [x for x in results if np.issubdtype(x.dtype, np.inexact)]
    for k in range(n):
      assert any(np.isnan(x[k]).any() for x in results), f"NaN at ({k}, {k}) of {n} was lost"


def test_solutions_with_nan_are_nan_throughout(dtype, rng):
  """Every entry of x depends on every entry of a dense A, so none may be finite."""
  n = 5
  a = np.stack([matrices.well_conditioned(rng, (), n, dtype)] * (n * n))
  for i in range(n * n):
    a[i].flat[i] = np.nan
  assert np.isnan(linalg.solve(a, np.ones((n, 1), dtype))).all()
  assert np.isnan(linalg.inv(a)).all()
  assert np.isnan(linalg.det(a)).all()
  assert np.isnan(linalg.slogdet(a).logabsdet).all()


def _with_failing(rng, dtype, fail):
  """Returns (n², n, n): `fail` spoils matrix i * n + k at index k."""
  n = 4
  a = np.stack([matrices.positive_definite(rng, (), n, dtype) for _ in range(n * n)])
  failing = np.zeros(n * n, bool)
  expected = np.zeros(n * n, np.int32)
  for k in range(n):
    i = k * n + k
    failing[i] = True
    expected[i] = fail(a[i], k)
  return a, failing, expected


def _check_factor(a, failing, expected, **options):
  factor, info = linalg.cholesky_ex(a, **options)
  named = np.tri(a.shape[-1], dtype=bool)
  named = named.T if options.get("upper") else named
  np.testing.assert_array_equal(info, expected)
  assert np.isnan(np.asarray(factor)[failing][:, named]).all()
  assert not np.isnan(np.asarray(factor)[~failing]).any()
  np.testing.assert_array_equal(factor, linalg.cholesky(a, **options))


OPTIONS = [{}, {"upper": True}, {"symmetrize_input": False}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_not_positive_definite(dtype, options, rng):
  """info is the order of the first leading minor that is not positive, and the factor is NaN."""

  def fail(a, k):
    a[k, k] = -1
    return k + 1

  _check_factor(*_with_failing(rng, dtype, fail), **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_not_finite_is_not_positive_definite(dtype, options, rng):
  """OpenBLAS reports success for NaN, because its comparison `pivot <= 0` is false. An infinity is
  a valid pivot, but the combination of both is NaN."""

  def on_diagonal(a, k, value):
    a[k, k] = value
    return k + 1

  def beside(a, k, value):
    a[k, 0] = a[0, k] = value if k > 0 else np.nan
    return k + 1

  for spoil, values in ((on_diagonal, (np.nan, -np.inf)), (beside, (np.nan, np.inf, -np.inf))):
    for value in values:
      _check_factor(*_with_failing(rng, dtype, lambda a, k: spoil(a, k, value)), **options)


@pytest.mark.parametrize("n", [3, 20, 70])
@pytest.mark.parametrize("pivot", [complex(np.nan, np.inf), complex(np.inf, np.nan)], ids=str)
def test_nan_beside_infinity(pivot, n, rng):
  """The result is NaN, and never a number whose reciprocal is 0."""
  a = matrices.positive_definite(rng, (), n, np.complex128)
  a[n - 1, n - 1] = pivot
  for cols in (1, 5):
    x = linalg.triangular_solve(a, np.ones((n, cols), a.dtype), left_side=True, lower=True)
    assert np.isnan(np.asarray(x)[-1]).all()


def _zero_column(a, k):
  a[:, k] = 0
  return k + 1


def test_singular(dtype, rng):
  """info is the index of the zero pivot; solutions and inverses are NaN, determinants 0."""
  a, failing, expected = _with_failing(rng, dtype, _zero_column)
  b = matrices.general(rng, (), 4, 2, dtype)
  packed, pivots, permutation, info = linalg.lu_ex(a)
  np.testing.assert_array_equal(info, expected)
  for one, other in zip(linalg.lu(a), (packed, pivots, permutation), strict=True):
    np.testing.assert_array_equal(one, other)
  assert np.isfinite(packed).all()
  for plain, (x, info) in (
      (linalg.solve(a, b), linalg.solve_ex(a, b)), (linalg.inv(a), linalg.inv_ex(a))):
    np.testing.assert_array_equal(info, expected)
    np.testing.assert_array_equal(plain, x)
    np.testing.assert_array_equal(np.isnan(x).all((-2, -1)), failing)
    np.testing.assert_array_equal(np.isnan(x).any((-2, -1)), failing)
  np.testing.assert_array_equal(linalg.det(a) == 0, failing)
  sign, logabsdet = linalg.slogdet(a)
  np.testing.assert_array_equal(sign == 0, failing)
  np.testing.assert_array_equal(logabsdet == -np.inf, failing)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3)], ids=str)
def test_singular_rectangle(dtype, shape, rng):
  """info of a rectangular LU counts the pivots of its shorter side."""
  a = matrices.general(rng, (3,), *shape, dtype)
  for k in range(3):
    a[k, :, k] = 0
  np.testing.assert_array_equal(linalg.lu_ex(a)[-1], [1, 2, 3])


def test_singular_systems_of_given_factors(dtype, rng):
  """A zero on the diagonal of a triangle spoils that system and no other."""
  l = matrices.triangular(rng, (4,), 3, dtype, lower=True)
  l[2, 1, 1] = 0
  b = matrices.general(rng, (4,), 3, 2, dtype)
  pivots = np.tile(np.arange(3, dtype=np.int32), (4, 1))
  for x in (
      linalg.triangular_solve(l, b, left_side=True, lower=True),
      linalg.solve_triangular(l, b, lower=True),
      linalg.cho_solve((l, True), b),
      linalg.lu_solve((l, pivots), b),
  ):
    np.testing.assert_array_equal(np.isfinite(x).all((-2, -1)), [True, True, False, True])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_not_finite_has_no_eigenvalues(dtype, value, rng):
  """LAPACK's iterations may not end on NaN. Here info is -1 and all results are NaN."""

  def fail(a, k):
    a[k, 0] = a[0, k] = value
    return -1

  a, failing, expected = _with_failing(rng, dtype, fail)
  for options in ({}, {"UPLO": "U", "symmetrize_input": False}):
    w, v, info = linalg.eigh_ex(a, **options)
    np.testing.assert_array_equal(info, expected)
    for x in (w, v.reshape(len(a), -1), linalg.eigvalsh(a, **options)):
      np.testing.assert_array_equal(np.isnan(x).all(-1), failing)
      np.testing.assert_array_equal(np.isnan(x).any(-1), failing)


ITERATIVE = {
    "svd": linalg.svd_ex,
    "svd_thin": lambda a: linalg.svd_ex(a, full_matrices=False),
    "svd_values": lambda a: linalg.svd_ex(a, compute_uv=False),
    "svd_hermitian": lambda a: linalg.svd_ex(a, hermitian=True),
    "svdvals": linalg.svdvals_ex,
    "eig": linalg.eig_ex,
    "eig_left": lambda a: linalg.eig_ex(a, left=True),
    "eigvals": linalg.eigvals_ex,
    "schur": linalg.schur_ex,
    "schur_complex": lambda a: linalg.schur_ex(a, "complex"),
}


@selection.in_turn(3, "name")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("n", [4, 70])
@pytest.mark.parametrize("name", ITERATIVE)
def test_iterations_return(name, n, dtype, value, rng):
  """LAPACK's gesdd never returns from an infinity. Here info is -1 and all results are NaN."""
  a = matrices.hermitian(rng, (5,), n, dtype)
  function = jax.jit(ITERATIVE[name])
  clean = jax.device_get(function(a))
  a[1, 0, n - 1] = a[1, n - 1, 0] = value
  a[3, n - 1, n - 1] = value
  *results, info = jax.device_get(function(a))
  np.testing.assert_array_equal(info, [0, -1, 0, -1, 0])
  for x, y in zip(results, clean[:-1], strict=True):
    for i in (1, 3):
      assert np.isnan(x[i].real).all()
    for i in (0, 2, 4):
      assert x[i].tobytes() == y[i].tobytes()


def test_tridiagonal_iterations_return(dtype):
  """The infinity may be anywhere."""
  d, e = np.ones((3, 4), dtype), np.ones((3, 3), dtype)
  d[0, 2], e[2, 2] = np.inf, np.nan
  for x in (*linalg.eigh_tridiagonal(d, e), linalg.eigh_tridiagonal(d, e, eigvals_only=True)):
    axes = tuple(range(1, x.ndim))
    np.testing.assert_array_equal(np.isnan(x).all(axes), [True, False, True])
    np.testing.assert_array_equal(np.isnan(x).any(axes), [True, False, True])


def test_pencils_that_are_not_definite(dtype, rng):
  """B has no Cholesky factor, or either matrix holds NaN."""
  a = np.stack([matrices.hermitian(rng, (), 3, dtype)] * 4)
  b = np.stack([np.eye(3, dtype=dtype)] * 4)
  b[1, 1, 1], a[2, 2, 0], b[3, 1, 0] = -1, np.nan, np.nan
  for kind in (1, 2, 3):
    for x in (*linalg.eigh_generalized(a, b, type=kind),
              linalg.eigh_generalized(a, b, type=kind, eigvals_only=True)):
      axes = tuple(range(1, x.ndim))
      np.testing.assert_array_equal(np.isnan(x).all(axes), [False, True, True, True])
      np.testing.assert_array_equal(np.isnan(x).any(axes), [False, True, True, True])


@pytest.mark.parametrize("batch", [(), (0,), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("size", [0, 1, 3])
def test_info_has_the_batch_shape(batch, size):
  dtype = np.float32
  a = np.broadcast_to(np.eye(size, dtype=dtype), (*batch, size, size))
  b = np.ones((*batch, size, 1), dtype)
  many = np.ones((2, *batch, size, 1), dtype)
  for results in jax.jit(lambda a, b, many: (
      linalg.cholesky_ex(a), linalg.lu_ex(a), linalg.solve_ex(a, b), linalg.solve_ex(a, many),
      linalg.inv_ex(a), linalg.eigh_ex(a), *(function(a) for function in ITERATIVE.values())))(
          a, b, many):
    assert results[-1].shape == batch
    assert results[-1].dtype == np.int32
    np.testing.assert_array_equal(results[-1], 0)


def test_failures_under_vmap(dtype, rng):
  """A mapped batch gives the bits and the info of a batch given directly."""
  a, *_ = _with_failing(rng, dtype, _zero_column)
  a[7] = -a[7]
  b = matrices.general(rng, (len(a),), 4, 1, dtype)
  for function, operands in (
      (linalg.cholesky_ex, (a,)), (linalg.lu_ex, (a,)), (linalg.solve_ex, (a, b)),
      (linalg.inv_ex, (a,)), (linalg.eigh_ex, (a,)), (linalg.svd_ex, (a,)), (linalg.eig_ex, (a,)),
      (linalg.schur_ex, (a,))):
    mapped = jax.jit(jax.vmap(function))(*operands)
    for actual, expected in zip(mapped, function(*operands), strict=True):
      np.testing.assert_array_equal(actual, expected)
      assert actual.dtype == expected.dtype


@pytest.mark.extended
@cases.each_in_double(cases.DIFFERENTIABLE_CASES)
def test_gradients_of_neighbours(case, dtype, rng):
  """NaN times a zero cotangent is NaN; it must stay in the gradient of its own matrix."""
  n = 3
  operands = case.operands(rng, (BATCH,), n, n, dtype)

  @quick_jit
  def gradient(*operands):
    function, inexact = cases.of_inexact(lambda *x: case.invariant(case.results(*x)), operands)
    # Each matrix has its own loss, as in training on a batch.
    loss = lambda *inexact: sum(jnp.sum(jnp.abs(x) ** 2) for x in function(*inexact))
    return jax.grad(loss, tuple(range(len(inexact))))(*inexact)

  clean = gradient(*operands)
  assert all(np.isfinite(x).all() for x in clean)
  for which, place, spoilt in _poisoned(operands):
    assert _neighbours(gradient(*spoilt), place) == _neighbours(clean, place), which


@pytest.mark.parametrize("n", [2, 5, 50])
def test_info_of_nan(dtype, n):
  """Where the factors hold NaN, info says so, as for eigh."""
  a = np.stack([np.eye(n, dtype=dtype)] * 3)
  a[1, n - 1, n - 1] = np.nan
  for info in (linalg.lu_ex(a)[-1], linalg.inv_ex(a)[-1], linalg.eigh_ex(a)[-1],
               linalg.solve_ex(a, np.ones((3, n, 1), dtype))[-1]):
    np.testing.assert_array_equal(info, [0, -1, 0])


@pytest.mark.parametrize("n", [3, 40])
def test_pivots_above_their_step(n):
  """A user's pivots may exchange rows that no factorisation does; LAPACK and jax.scipy accept
  them."""
  pivots = np.arange(n, dtype=np.int32)
  pivots[1] = 0
  b = np.arange(1.0, n + 1)
  expected = jax.scipy.linalg.lu_solve((np.eye(n), pivots), b)
  np.testing.assert_array_equal(linalg.lu_solve((np.eye(n), pivots), b), expected)


_EYE, _MATRIX = np.eye(2), np.array([[1.0, 0.2], [0.3, 2.0]])
# Equations without one solution, and others beside them: the function of A, and both A.
EQUATIONS = {
    "solve_sylvester": (
        lambda a: linalg.scipy.solve_sylvester(a, _MATRIX, _MATRIX), -_MATRIX, _MATRIX),
    "solve_continuous_lyapunov": (
        lambda a: linalg.scipy.solve_continuous_lyapunov(a, _MATRIX), np.diag([1.0, -1]), -_MATRIX),
    "solve_discrete_lyapunov": (
        lambda a: linalg.scipy.solve_discrete_lyapunov(a, _MATRIX), _EYE, _MATRIX / 8),
    "solve_continuous_are": (
        lambda a: linalg.scipy.solve_continuous_are(a, np.stack([0 * _EYE, _EYE]), _EYE, _EYE),
        _EYE, _MATRIX),
    "solve_discrete_are": (
        lambda a: linalg.scipy.solve_discrete_are(a, np.stack([0 * _EYE, _EYE]), _EYE, _EYE),
        2 * _EYE, _MATRIX)}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.extended if name.endswith("are") else ())
    for name in EQUATIONS])
def test_derivatives_of_an_equation_without_a_solution(name):
  """They are NaN where the result is, and there alone."""
  function, *both = EQUATIONS[name]

  def derivatives(a):
    x, dx = jax.jvp(function, (a,), (jnp.ones_like(a),))
    return x, dx, jax.grad(lambda a: jnp.sum(function(a) ** 2))(a)

  for x in quick_jit(derivatives)(np.stack(both)):
    assert np.isnan(x[0]).any() and np.isfinite(x[1]).all()
