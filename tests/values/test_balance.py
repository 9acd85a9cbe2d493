"""Balanced forms of general matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import cases
import linalg
import linalg.scipy
import matrices
from linalg.scipy._balance import balance_p


def _graded(rng, n, dtype, decades):
  """A matrix whose rows and columns differ in size, which a diagonal similarity removes."""
  d = 10.0 ** rng.uniform(-decades, decades, n)
  return (matrices.general(rng, (), n, n, dtype) * d / d[:, None]).astype(dtype)


def _with_isolated(rng, n, dtype):
  """A permuted matrix with eigenvalues that a permutation isolates at both ends."""
  a = np.triu(matrices.general(rng, (), n, n, dtype))
  third = n // 3
  a[third : n - third, third : n - third] += matrices.general(
      rng, (), n - 2 * third, n - 2 * third, dtype)
  order = rng.permutation(n)
  return a[order][:, order]


# Scaled to a norm of 1, its smallest elements would be 0, and seem to isolate eigenvalues.
HARD = np.array([[1, 1e300, 0], [1e-300, 1, 1e-290], [0, 1e290, 1e308]])


def _norms(b, active):
  part = np.abs(b[np.ix_(active, active)])
  return np.linalg.norm(part, axis=0), np.linalg.norm(part, axis=1)


@pytest.mark.parametrize("dtype", cases.DTYPES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("n", [1, 2, 9, 70])
def test_balanced(n, dtype, rng):
  """B is T⁻¹ A T to the last bit. Rows and columns that are left have nearly equal norms."""
  decades = 8 if np.finfo(dtype).eps > 1e-10 else 40
  a = np.stack([
      matrices.general(rng, (), n, n, dtype), _graded(rng, n, dtype, decades),
      _with_isolated(rng, n, dtype), np.triu(_graded(rng, n, dtype, 2)), np.zeros((n, n), dtype)])
  b, (scale, order) = (
      jax.tree.map(np.asarray, x) for x in linalg.scipy.matrix_balance(a, separate=True))
  _, t = linalg.scipy.matrix_balance(a)
  for i, one in enumerate(a):
    p, d = order[i], scale[i].astype(np.float64)
    assert sorted(p) == list(range(n))
    np.testing.assert_array_equal(np.frexp(d)[0], 0.5)
    exact = (one[p][:, p] * d / d[:, None]).astype(dtype)
    np.testing.assert_array_equal(b[i], exact)
    np.testing.assert_array_equal(t[i], (np.eye(n)[:, p] * d).astype(dtype))
  for i in (0, 1):
    columns, rows = _norms(b[i].astype(np.complex128), np.arange(n))
    assert n == 1 or np.max(columns / rows + rows / columns) < 6
  third = n // 3
  assert not np.tril(b[2], -1)[:, :third].any() and not np.tril(b[2], -1)[n - third :].any()
  assert not np.tril(b[3], -1).any()


@pytest.mark.parametrize("options", [
    {}, {"permute": False}, {"scale": False}, {"permute": False, "scale": False}], ids=str)
def test_agrees_with_scipy(options, rng):
  for a in (_graded(rng, 6, np.float64, 3), matrices.general(rng, (), 5, 5, np.complex128)):
    b, t = linalg.scipy.matrix_balance(a, **options)
    theirs, transform = scipy.linalg.matrix_balance(a, **options)
    np.testing.assert_array_equal(np.asarray(t) != 0, transform != 0)
    assert np.abs(np.log2(np.diag(t) / np.diag(transform))).max() <= 1  # one step of scaling
    np.testing.assert_allclose(np.asarray(t) @ b @ np.linalg.inv(t), a, rtol=1e-13)
    np.testing.assert_allclose(theirs, np.linalg.solve(transform, a @ transform), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("options", [{}, {"permute": False}, {"scale": False}], ids=str)
def test_fallback(options, dtype, rng):
  """Other platforms find the same permutation and powers of two."""
  decades = 5 if dtype == np.complex64 else 100
  hard = np.eye(7, dtype=dtype)
  hard[:3, :3] = HARD if dtype == np.float64 else np.sign(HARD) * np.abs(HARD) ** 0.1
  a = np.stack([
      _graded(rng, 7, dtype, decades), _with_isolated(rng, 7, dtype), np.zeros((7, 7)),
      np.full((7, 7), np.nan), np.triu(_graded(rng, 7, dtype, 2)), hard]).astype(dtype)
  attributes = {"permute": True, "scale": True} | options
  ours = balance_p(a, **attributes)
  theirs = jax.jit(lambda a: balance_p._rules.fallback(a, **attributes))(a)
  for x, y in zip(ours, theirs, strict=True):
    np.testing.assert_array_equal(x, y)


def test_extremes_and_neighbours(rng):
  """Elements at both ends of the range are balanced without overflow; NaN stays alone."""
  hard = HARD
  bad = np.array([[1, np.inf, 0], [0, 1, 0], [0, 0, 1]])
  plain = matrices.general(rng, (3,), 3, 3, np.float64)
  b, t = linalg.scipy.matrix_balance(np.stack([hard, bad, *plain]))
  assert np.isfinite(b[0]).all() and np.isnan(b[1]).all() and np.isnan(t[1][t[1] != 0]).all()
  np.testing.assert_array_equal(t[0] @ b[0], hard @ np.asarray(t[0]))
  np.testing.assert_array_equal(np.argmax(t[0] != 0, axis=0), [0, 1, 2])
  alone = [linalg.scipy.matrix_balance(x) for x in plain]
  np.testing.assert_array_equal(b[2:], jnp.stack([x for x, _ in alone]))
  np.testing.assert_array_equal(t[2:], jnp.stack([x for _, x in alone]))


def test_derivatives(rng):
  """B moves as T⁻¹ dA T, to any order."""
  a, da = _graded(rng, 4, np.float64, 3), matrices.general(rng, (), 4, 4, np.float64)
  balanced = lambda a: linalg.scipy.matrix_balance(a)[0]
  (b, t), (db, dt) = jax.jvp(linalg.scipy.matrix_balance, (a,), (da,))
  np.testing.assert_allclose(db, np.linalg.solve(t, da @ t), rtol=1e-13)
  assert not dt.any()
  loss = lambda a: jnp.sum(jnp.sin(balanced(a)))
  d = np.diag(t)
  # T⁻ᵀ G Tᵀ is the cotangent of A for the cotangent G of B.
  outer = lambda g: np.asarray(g) * d / d[:, None]
  np.testing.assert_allclose(jax.grad(loss)(a), outer(np.cos(b)), rtol=1e-13)
  second = jax.jvp(jax.grad(loss), (a,), (da,))[1]
  np.testing.assert_allclose(second, outer(-np.sin(b) * np.asarray(db)), rtol=1e-12)


def test_bad_input():
  with pytest.raises(ValueError, match="matrix_balance"):
    linalg.scipy.matrix_balance(np.ones((2, 3)))
