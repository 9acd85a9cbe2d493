"""Algebraic Riccati equations: hard systems, systems without a solution, and derivatives."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg

import cases
import derivatives
import linalg.scipy
import many_digits
import matrices
from quick import quick_jit

CONTINUOUS = (linalg.scipy.solve_continuous_are, scipy.linalg.solve_continuous_are)
DISCRETE = (linalg.scipy.solve_discrete_are, scipy.linalg.solve_discrete_are)


@pytest.mark.parametrize(
    "pair", [CONTINUOUS, pytest.param(DISCRETE, marks=pytest.mark.extended)],
    ids=["continuous", "discrete"])
def test_riccati(pair, rng):
  """Regulators of integrators and of an unstable system without costs; also E and S."""
  ours, theirs = quick_jit(pair[0]), pair[1]
  chain = np.eye(3, k=1) + (0 if pair is CONTINUOUS else np.eye(3))
  last = np.eye(3)[:, 2:]
  unstable = np.diag([2.0, 1.5, 0.5])
  zero, eye = np.zeros((3, 3)), np.eye(3)
  operands = [np.stack(x) for x in zip(
      (chain, last, eye, eye[:1, :1]), (chain, last, 1e-6 * eye, 1e2 * eye[:1, :1]),
      (unstable, np.ones((3, 1)), zero, eye[:1, :1]), strict=True)]
  for found, *one in zip(ours(*operands), *operands, strict=True):
    expected = theirs(*one)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.max(np.abs(expected)))
  e = eye + 0.3 * matrices.general(rng, (), 3, 3, np.float64)
  s = 0.1 * matrices.general(rng, (), 3, 1, np.float64)
  one = (chain, last, eye, eye[:1, :1], e, s)
  np.testing.assert_allclose(ours(*one), theirs(*one), rtol=1e-9, atol=1e-9)
  # Batches broadcast, and the Hermitian parts are taken.
  np.testing.assert_allclose(
      ours(operands[0], last, eye + np.triu(np.ones((3, 3)), 1), eye[:1, :1])[0],
      theirs(chain, last, (eye + np.ones((3, 3))) / 2, eye[:1, :1]), rtol=1e-9)


@cases.each_dtype(np.float32, np.float64)
def test_riccati_of_strongly_unstable_systems(dtype):
  """The balanced pencil keeps digits that inverses of R and of M + L would lose."""
  rng = np.random.default_rng(5)
  scales = np.array([1.0, 10.0, 100.0])
  a = scales[:, None, None] * rng.standard_normal((3, 4, 4))
  b = rng.standard_normal((3, 4, 2))
  q, r = scales[:, None, None] * np.eye(4), np.eye(2) / scales[:, None, None]
  operands = [x.astype(dtype) for x in (a, b, q, r)]
  found = np.asarray(quick_jit(DISCRETE[0])(*operands), np.float64)
  # SciPy in float64 loses 4, 6 and 8 digits itself.
  bounds = ([2e-6, 1e-2, 0.2] if dtype == np.float32 else [1e-13, 3e-11, 1e-7])
  for x, bound, *one in zip(found, bounds, *operands, strict=True):
    expected = DISCRETE[1](*(y.astype(np.float64) for y in one))
    np.testing.assert_allclose(x, expected, rtol=0, atol=bound * np.abs(expected).max())


@pytest.mark.extended
def test_discrete_riccati_of_singular_weights():
  """Values are right at R = 0 and R of rank one, and so is the derivative by R against a
  difference."""
  a, b = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.5]])
  solve = quick_jit(lambda r: jax.jvp(
      lambda r: DISCRETE[0](a, b, jnp.eye(2), r), (r,), (jnp.eye(2),)))
  for r in (np.zeros((2, 2)), np.diag([1.0, 0.0])):
    x, dx = solve(r)
    np.testing.assert_allclose(x, DISCRETE[1](a, b, np.eye(2), r), rtol=1e-13, atol=1e-13)
    step = 1e-5
    above, below = (DISCRETE[1](a, b, np.eye(2), r + t * np.eye(2)) for t in (step, -step))
    np.testing.assert_allclose(dx, (above - below) / (2 * step), rtol=0, atol=1e-8)


@pytest.mark.parametrize("n", [1, pytest.param(3, marks=pytest.mark.extended)])
@cases.each_dtype(np.float64, np.complex128, np.float32, np.complex64)
@pytest.mark.parametrize(
    "pair", [pytest.param(CONTINUOUS, marks=pytest.mark.extended), DISCRETE],
    ids=["continuous", "discrete"])
def test_riccati_of_stable_systems_without_costs(pair, dtype, n, rng):
  """X is 0 for Q = 0, alone and in a batch, and dX/dQ is the solution of a Lyapunov equation."""
  eye, eps = np.eye(n, dtype=dtype), np.finfo(dtype).eps
  a = matrices.general(rng, (), n, n, dtype)
  w = np.linalg.eigvals(a)
  if pair is DISCRETE:
    a = (0.5 * a / np.abs(w).max()).astype(dtype)
    expected = scipy.linalg.solve_discrete_lyapunov(a.conj().T, eye)
  else:
    a = (a - (w.real.max() + 0.5) * eye).astype(dtype)
    expected = scipy.linalg.solve_continuous_lyapunov(a.conj().T, -eye)
  b, r = matrices.general(rng, (), n, 1, dtype), eye[:1, :1]
  solve = quick_jit(lambda q: jax.jvp(
      lambda q: pair[0](a, b, q, r), (q,), (jnp.broadcast_to(eye, q.shape),)))
  small = eps**1.25
  batch = np.stack([eye, 0 * eye, small * eye])
  for q in (batch[1], batch):
    x, dx = (np.asarray(y).reshape(-1, n, n) for y in solve(q))
    i = len(x) // 2
    np.testing.assert_allclose(x[i], 0, rtol=0, atol=eps)
    np.testing.assert_allclose(dx[i], expected, rtol=0, atol=1e3 * eps * np.abs(expected).max())
  np.testing.assert_allclose(
      x[0], pair[1](a, b, eye, r), rtol=0, atol=1e3 * eps * np.abs(x[0]).max())
  # X is below rounding errors of R, and keeps its digits.
  np.testing.assert_allclose(
      x[2] / small, expected, rtol=0, atol=1e3 * eps * np.abs(expected).max())


@cases.each_dtype(np.float64, np.float32)
def test_cheap_inputs_of_stable_systems_without_costs(dtype, rng):
  """X is 0 for Q = 0 however small R is, as SciPy's to rounding, and no result is NaN."""
  a = rng.standard_normal((60, 3, 3))
  a /= 2 * np.abs(np.linalg.eigvals(a)).max(-1)[:, None, None]
  b = rng.standard_normal((60, 3, 2))
  costs = np.array([[1e-3, 1e-3], [1e-8, 1e-8], [1, np.finfo(dtype).eps ** 0.3]])[np.arange(60) % 3]
  operands = [x.astype(dtype) for x in (a, b, np.zeros((3, 3)), costs[:, None] * np.eye(2))]
  found = np.asarray(quick_jit(DISCRETE[0])(*operands))
  np.testing.assert_array_less(np.abs(found).max((-2, -1)), np.finfo(dtype).eps * costs.min(-1))


@pytest.mark.extended
def test_continuous_riccati_with_few_inputs():
  """|X| is 10⁷ to 10⁹. The residual is no larger than SciPy's, which is 10⁻⁷ to 10⁻⁵."""
  for seed in (0, 1):
    rng = np.random.default_rng(seed)
    rng.standard_normal((33, 33)), rng.standard_normal((33, 3))
    a, b = 1.5 * rng.standard_normal((65, 65)) / 65**0.5, rng.standard_normal((65, 3))
    found = np.asarray(quick_jit(CONTINUOUS[0])(a, b, np.eye(65), np.eye(3)))
    expected = CONTINUOUS[1](a, b, np.eye(65), np.eye(3))
    residual = lambda x, a=a, b=b: np.abs(a.T @ x + x @ a - x @ b @ b.T @ x + np.eye(65)).max()
    assert residual(found) < 3 * residual(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.extended
def test_riccati_equations_without_a_solution():
  """Systems that no input reaches or that lie on the boundary have NaN; `checked` names them."""
  one = np.ones((1, 1))
  b = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 1.0])[:, None, None]
  q = np.array([1.0, 0.0, 1.0, 1.0, 2.0, 0.0])[:, None, None]
  for ours, theirs in (CONTINUOUS, DISCRETE):
    # The last is on the boundary: an integrator without costs, continuous or discrete.
    on_boundary = 0.0 if ours is CONTINUOUS[0] else 1.0
    a = np.array([0.5, 1.0, 2.0, np.nan, 0.5, on_boundary])[:, None, None]
    found = quick_jit(ours)(a, b, q, one)
    np.testing.assert_array_equal(
        np.isnan(found[:, 0, 0]), [False, True, True, True, False, True])
    for i in (0, 4):
      np.testing.assert_allclose(found[i], theirs(a[i], b[i], q[i], one), rtol=1e-13)
    with pytest.raises(linalg.LinAlgError, match=rf"{ours.__name__}: the matrix at index \(2\)"):
      linalg.checked(ours)(a[[0, 0, 2]], b[[0, 0, 2]], q[[0, 0, 2]], one)
  with pytest.raises(ValueError, match=r"shapes.*solve_continuous_are\(\): a \(1, 1\), b \(2, 1\)"):
    CONTINUOUS[0](one, np.ones((2, 1)), one, one)


def test_scalars_of_riccati():
  """A scalar is a matrix of order 1: x² = 4, and x² = 4 (x + 1)."""
  for solve, a, x in ((CONTINUOUS[0], 0.0, 2.0), (DISCRETE[0], 1.0, 2 + 8**0.5)):
    np.testing.assert_allclose(solve(a, 1.0, 4.0, 1), [[x]], rtol=1e-14)
    np.testing.assert_allclose(
        solve(np.diag([a, a]), np.eye(2), 4 * np.eye(2), np.eye(2)), x * np.eye(2), rtol=1e-14)
    found = solve(np.full((1, 1), a), np.ones((3, 1, 1)), 4.0, 1.0, 1.0, 0.0)
    np.testing.assert_allclose(found, np.full((3, 1, 1), x), rtol=1e-14)


@pytest.mark.extended
def test_derivatives_of_riccati(rng):
  """Derivatives are right to second order for a discrete equation with S whose closed loop is
  defective."""
  a = np.eye(2, k=1) + 0.5 * np.eye(2)
  b = np.array([[0.0], [1.0]])
  derivatives.check(
      lambda a, b, c, s: linalg.scipy.solve_discrete_are(
          a, b, c @ c.mT, jnp.ones((*b.shape[:-2], 1, 1)), None, s),
      (a, b, np.zeros((2, 1)), np.zeros((2, 1))), rng, tolerance=1e-7)


def _with_condition(spread, dtype):
  """A regulator whose states are in units 10^±spread, and directions of the size of its elements.

  Two inputs act on a state of X that exceeds the others by the fourth power of the spread.
  """
  rng = np.random.default_rng(0)
  units = 10.0 ** (spread * np.array([-1, 1, 0]))
  a = -0.5 * np.eye(3) + 0.15 * rng.standard_normal((3, 3))
  operands = (units[:, None] * a / units, rng.standard_normal((3, 2)), np.eye(3), np.eye(2))
  moved = lambda x: rng.standard_normal() * x if np.array_equal(x, x.T) else (
      rng.standard_normal(x.shape) * x)
  return tuple([x.astype(dtype) for x in xs] for xs in (operands, list(map(moved, operands))))


def _with_cheap_input(exponent, dtype):
  """A regulator of two inputs, of which one costs 10^-exponent of the other, and directions of the
  size of its elements."""
  rng = np.random.default_rng(0)
  a, b = rng.standard_normal((3, 3)) / 2, rng.standard_normal((3, 2))
  spread = 10.0 ** np.array([-exponent / 2, 0])
  r = spread[:, None] * np.array([[1, 0.5], [0.5, 1]]) * spread
  operands = (a, b, np.eye(3), r)
  tangents = (a * rng.standard_normal((3, 3)), b * rng.standard_normal((3, 2)), np.eye(3), r)
  return tuple([x.astype(dtype) for x in xs] for xs in (operands, tangents))


@cases.each_dtype(np.float64, np.float32)
def test_continuous_riccati_with_cheap_inputs(dtype):
  """X has all digits, derivatives lose those that the docstring says, and then are NaN."""
  single = dtype == np.float32
  eps = np.finfo(dtype).eps
  exponents = (0, 3, 5, 7) if single else (0, 8, 12, 14, 15.5)
  points = [_with_cheap_input(exponent, dtype) for exponent in exponents]
  operands, tangents = (tuple(map(np.stack, zip(*xs))) for xs in zip(*points))
  first = lambda *x: jax.jvp(CONTINUOUS[0], x, tangents)
  found = quick_jit(lambda *x: (*first(*x), jax.jvp(lambda *x: first(*x)[1], x, tangents)[1]))(
      *operands)
  oracle = many_digits.ORACLES["solve_continuous_are"]
  assert np.isfinite(found[0]).all() and np.isnan(found[2][-1]).all()
  for i, point in enumerate(points[:-1]):
    with mpmath.workdps(100):
      exact = [[many_digits.exact(x) for x in xs] for xs in point]
      expected = [many_digits.rounded(x).real for x, in many_digits.derivatives(oracle, *exact)]
    error = lambda order: np.max(np.abs(np.asarray(found[order][i]) - expected[order])) / np.max(
        np.abs(expected[order]))
    ratio = 10 ** (exponents[i] / 2)
    assert error(0) < 20 * eps, exponents[i]
    assert error(1) < 50 * eps * ratio, exponents[i]
    assert error(2) < 50 * eps * ratio**2, exponents[i]


def test_continuous_riccati_with_a_cheap_input_and_states_without_cost():
  """X is Hermitian, and as SciPy's after steps of Newton's method. Its zeros are rounding."""
  rng = np.random.default_rng(1)
  a = rng.standard_normal((6, 4, 4))
  a[:, :2, 2:], a[:, 2:, 2:] = 0, a[:, 2:, 2:] - 3 * np.eye(2)
  turn = np.linalg.qr(rng.standard_normal((6, 4, 4)))[0]
  a, c = turn @ a @ turn.mT, np.array([[1, 0.5, 0, 0]]) @ turn.mT
  b, q = rng.standard_normal((6, 4, 2)), c.mT @ c
  for cost in (1e-10, 1e-13):
    r = np.diag([1, cost])
    found = np.asarray(quick_jit(CONTINUOUS[0])(a, b, q, r))
    np.testing.assert_array_equal(found, found.mT)
    for i in range(6):
      expected = scipy.linalg.solve_continuous_are(a[i], b[i], q[i], r)
      for _ in range(3):
        k = np.linalg.solve(r, b[i].T @ expected)
        expected = scipy.linalg.solve_continuous_lyapunov(
            (a[i] - b[i] @ k).T, -(q[i] + k.T @ r @ k))
      np.testing.assert_allclose(found[i], expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    "dtype, spreads, bounds", [
        (np.float64, (0, 3.75, 4.5, 4.9), (1e-9, 1e-2)),
        pytest.param(
            np.float32, (0, 2, 2.5, 2.8), (2e-5, 1e-2), marks=pytest.mark.extended)],
    ids=["float64", "float32"])
def test_derivatives_at_ill_conditioned_weights(dtype, spreads, bounds):
  """They keep digits as R + Bᴴ X B becomes singular, and then the second ones are NaN.

  Its condition number is 10⁷ to 10¹³ in float64, and 10³ to 10⁶ in float32.
  """
  points = [_with_condition(spread, dtype) for spread in spreads]
  operands, tangents = (tuple(map(np.stack, zip(*xs))) for xs in zip(*points))
  first = lambda *x: jax.jvp(DISCRETE[0], x, tangents)[1]
  found = quick_jit(lambda *x: (first(*x), jax.jvp(first, x, tangents)[1]))(*operands)
  oracle = many_digits.ORACLES["solve_discrete_are"]
  for i, point in enumerate(points):
    with mpmath.workdps(150):
      exact = [[many_digits.exact(x) for x in xs] for xs in point]
      expected = [many_digits.rounded(x).real for x, in many_digits.derivatives(oracle, *exact)]
    for order in range(2):
      x, y = np.asarray(found[order][i]), expected[order + 1]
      if order == 1 and i == len(points) - 1:
        assert np.isnan(x).all()
      else:
        assert np.max(np.abs(x - y)) < bounds[order] * np.max(np.abs(y)), spreads[i]
