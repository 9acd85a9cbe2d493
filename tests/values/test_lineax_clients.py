"""diffrax and optimistix with the solvers of `linalg.lineax`: values and gradients.

Both are optional. The references are the same calls with lineax's own solvers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import matrices

lx = pytest.importorskip("lineax", reason="lineax is optional, and is not installed")

import linalg.lineax as solvers  # noqa: E402

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("standard_promotion")]

BATCH = 5


def _near(ours, theirs, rtol):
  for x, y in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
    assert np.isfinite(y).all()
    np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(y).max())


def _value_and_gradient(function, *batches):
  """Both of each member of a batch. The program must call a handler, or use none."""
  both = jax.jit(jax.vmap(jax.value_and_grad(function)))
  return both(*batches), both.lower(*batches).as_text()


def _compare(function, ours, theirs, target, rtol, *batches):
  """function(solver, *operands) is the same with both solvers, and ours calls its handler."""
  found, text = _value_and_gradient(lambda *x: function(ours, *x), *batches)
  expected, other = _value_and_gradient(lambda *x: function(theirs, *x), *batches)
  assert target in text and "@linalg_" not in other
  _near(found, expected, rtol)


SQUARE = pytest.mark.parametrize("ours, theirs, target", [
    (solvers.LU(), lx.LU(), "linalg_lu"), (solvers.QR(), lx.QR(), "linalg_householder_qr"),
    (solvers.SVD(), lx.SVD(), "linalg_svd")], ids=["LU", "QR", "SVD"])


@SQUARE
def test_diffrax(ours, theirs, target, rng):
  """Robertson's stiff reaction by Kvaerno5, whose steps are solved by a chord method."""
  diffrax = pytest.importorskip("diffrax", reason="diffrax is optional, and is not installed")

  def reaction(t, y, rates):
    del t
    first, second, third = rates[0] * y[0], rates[1] * y[1] ** 2, rates[2] * y[1] * y[2]
    return jnp.stack([third - first, first - third - second, second])

  def final(solver, rates):
    finder = diffrax.VeryChord(rtol=1e-6, atol=1e-6, linear_solver=solver)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(reaction), diffrax.Kvaerno5(root_finder=finder), 0, 10, 2e-4,
        jnp.array([1.0, 0.0, 0.0]), rates, max_steps=1024,
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6))
    return jnp.sum(solution.ys[-1] * jnp.array([1.0, 1e4, -2.0]))

  rates = np.array([0.04, 3e7, 1e4]) * rng.uniform(0.8, 1.2, (BATCH, 3))
  _compare(final, ours, theirs, target, 1e-9, rates)


@SQUARE
def test_newton(ours, theirs, target, rng):
  """Roots of tanh(A x + x) = b by Newton's method, and derivatives of the root."""
  optimistix = pytest.importorskip(
      "optimistix", reason="optimistix is optional, and is not installed")
  a = matrices.well_conditioned(rng, (BATCH,), 4, np.float64)
  b = 0.3 * rng.uniform(-1, 1, (BATCH, 4))

  def norm(solver, operands):
    finder = optimistix.Newton(rtol=1e-12, atol=1e-12, linear_solver=solver)
    x = optimistix.root_find(
        lambda x, operands: jnp.tanh(operands[0] @ x + x) - operands[1], finder,
        jnp.zeros(4), operands, adjoint=optimistix.ImplicitAdjoint(linear_solver=solver)).value
    return jnp.sum(x**2)

  _compare(norm, ours, theirs, target, 1e-10, (a, b))


@pytest.mark.parametrize("ours, theirs, target", [
    (solvers.QR(), lx.QR(), "linalg_householder_qr"), (solvers.SVD(), lx.SVD(), "linalg_svd"),
    (solvers.Cholesky(), lx.Cholesky(), "linalg_cholesky")], ids=["QR", "SVD", "Cholesky"])
def test_levenberg_marquardt(ours, theirs, target, rng):
  """A fit of an exponential and a constant, and derivatives of the fit by the data."""
  optimistix = pytest.importorskip(
      "optimistix", reason="optimistix is optional, and is not installed")
  t = jnp.linspace(0, 3, 20)

  def curve(x):
    return x[0] * jnp.exp(-x[1] * t) + x[2]

  def fit(solver, data):
    of_steps = of_fit = solver
    if isinstance(solver, (lx.Cholesky, solvers.Cholesky)):
      # The operator of the implicit derivative is not marked as definite.
      of_steps, of_fit = lx.Normal(solver), lx.LU()
    search = optimistix.LevenbergMarquardt(rtol=1e-8, atol=1e-8, linear_solver=of_steps)
    x = optimistix.least_squares(
        lambda x, data: curve(x) - data, search, jnp.array([1.0, 0.3, 0.0]), data,
        adjoint=optimistix.ImplicitAdjoint(linear_solver=of_fit), max_steps=512).value
    return jnp.sum(jnp.sin(x))

  true = jnp.stack([curve(jnp.array([2.0, 0.9, 0.5])) for _ in range(BATCH)])
  data = true + 1e-3 * rng.standard_normal(true.shape)
  _compare(fit, ours, theirs, target, 1e-8, data)
