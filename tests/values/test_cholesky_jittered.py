"""cholesky_jittered: the least jitter that is enough, for each matrix alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import matrices
from linalg._factorizations.cholesky_jittered import cholesky_jittered_p

ONE_IN = 2


def _indefinite(rng, n, dtype, count=5):
  """Positive semidefinite matrices of rank n - 1, minus a few rounding errors."""
  g = matrices.general(rng, (count,), n, n - 1, dtype)
  a = g @ g.mT.conj()
  return a - 30 * np.finfo(dtype).eps * np.eye(n) * np.linalg.norm(a, 2, (-2, -1))[:, None, None]


@pytest.mark.parametrize("n", [2, 7, 40, 80])
def test_least_jitter(n, dtype, rng):
  """A smaller one of the series fails, and the factor is that of the matrix with the jitter."""
  a = _indefinite(rng, n, dtype).astype(dtype)
  a[3] = matrices.positive_definite(rng, (), n, dtype)
  factor, jitter, info = linalg.cholesky_jittered(a)
  assert not np.any(info)
  np.testing.assert_array_equal(factor[3], linalg.cholesky(a[3]))
  mean = np.mean(np.diagonal(a, axis1=-2, axis2=-1).real, axis=-1)
  relative = np.asarray(jitter) / mean
  assert relative[3] == 0 and np.all(np.delete(relative, 3) > 0)
  moved = a + np.asarray(jitter)[:, None, None].astype(a.dtype) * np.eye(n, dtype=a.dtype)
  product = np.asarray(factor) @ np.asarray(factor).conj().mT
  np.testing.assert_allclose(product, moved, atol=10 * n * np.finfo(dtype).eps * np.abs(a).max())
  less = a + np.asarray(jitter)[:, None, None].astype(a.dtype) / 10 * np.eye(n, dtype=a.dtype)
  first = 1e-6 if np.finfo(dtype).bits == 32 else 1e-12
  failed = np.isnan(np.asarray(linalg.cholesky(less))).any((-2, -1))
  assert np.all(failed | (relative < 2 * first))


@pytest.mark.parametrize("n", [3, 70])
def test_bits_do_not_depend_on_the_batch(n, dtype, rng):
  a = _indefinite(rng, n, dtype, 9).astype(dtype)
  a[4], a[6] = np.nan, -np.eye(n)
  together = linalg.cholesky_jittered(a)
  for i in range(len(a)):
    for alone, whole in zip(linalg.cholesky_jittered(a[i]), together, strict=True):
      np.testing.assert_array_equal(alone, whole[i])


def test_failures(dtype, rng):
  """NaN, a negative diagonal and a matrix that needs more fail alone."""
  a = matrices.positive_definite(rng, (4,), 5, dtype)
  a[1] = np.nan
  a[2] = -np.eye(5)
  a[3] = np.diag([1, 1, -1, 1, 1])
  factor, jitter, info = linalg.cholesky_jittered(a)
  np.testing.assert_array_equal(np.asarray(info) != 0, [False, True, True, True])
  np.testing.assert_array_equal(np.isnan(jitter), [False, True, True, True])
  assert np.all(np.isnan(np.diagonal(factor, axis1=-2, axis2=-1)[1:]))
  factor, jitter, info = linalg.cholesky_jittered(a[3], jitter=0.1, max_jitter=10.0)
  assert int(info) == 0 and float(jitter) == pytest.approx(6)  # 0.6, the mean, is too little


def test_fallback(dtype, rng):
  """JAX's own operations give the handler's results."""
  a = _indefinite(rng, 6, dtype).astype(dtype)
  a[2], a[4] = np.nan, matrices.positive_definite(rng, (), 6, dtype)
  series = np.asarray([1e-6, 1e-4, 1e-2], np.finfo(dtype).dtype)
  attributes = {"lower": True, "symmetrize": True}
  ours = cholesky_jittered_p(a, series, **attributes)
  theirs = jax.jit(lambda a: cholesky_jittered_p._rules.fallback(a, series, **attributes))(a)
  for x, y in zip(ours, theirs, strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)
  empty = np.zeros((3, 0, 0), dtype)
  ours = cholesky_jittered_p(empty, series, **attributes)
  fallback = cholesky_jittered_p._rules.fallback
  theirs = fallback(jnp.asarray(empty), jnp.asarray(series), **attributes)
  for x, y in zip(ours, theirs, strict=True):
    np.testing.assert_array_equal(x, y)
    assert x.dtype == y.dtype


def test_derivative_is_that_of_the_jittered_matrix(rng):
  a = _indefinite(rng, 5, np.dtype(np.float64))
  x = rng.standard_normal(a.shape)
  jitter = linalg.cholesky_jittered(a).jitter
  eye = jnp.eye(5)[None]
  loss = lambda l: jnp.sum(jnp.abs(l) * x)
  found = jax.grad(lambda a: loss(linalg.cholesky_jittered(a).factor))(a)
  moved = jax.grad(lambda a: loss(linalg.cholesky(a + jitter[:, None, None] * eye)))(a)
  # The jitter makes the matrix nearly singular, and eager sums on a GPU differ in their last bits.
  np.testing.assert_allclose(found, moved, rtol=1e-4)


@pytest.mark.parametrize("arguments, error, words", [
    ({"jitter": -1.0}, ValueError, "jitter as a positive finite number"),
    ({"jitter": 1e-3, "max_jitter": 1e-6}, ValueError, "jitter <= max_jitter"),
    ({"max_jitter": "1"}, TypeError, "max_jitter as a real number"),
    ({"jitter": True}, TypeError, "jitter as a real number"),
    ({"jitter": 1e-50}, ValueError, "jitter in the range of float32, got 1e-50"),
    ({"max_jitter": 1e50}, ValueError, "max_jitter in the range of float32"),
])
def test_wrong_arguments(arguments, error, words):
  with pytest.raises(error, match=words):
    linalg.cholesky_jittered(np.eye(2, dtype=np.float32), **arguments)


def test_numbers_of_numpy():
  found = linalg.cholesky_jittered(
      np.ones((2, 2)), jitter=np.float32(1e-6), max_jitter=np.int64(1))
  assert float(found.jitter) == pytest.approx(1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision(dtype):
  """The jitter of a small matrix is no number of float16."""
  factor, jitter, info = linalg.cholesky_jittered(jnp.full((2, 2), 2.0**-6, dtype))
  assert factor.dtype == dtype and jitter.dtype == jnp.float32 and info == 0
  np.testing.assert_allclose(jitter, 2.0**-6 * 1e-6, rtol=1e-6)


def test_checked(rng):
  a = _indefinite(rng, 4, np.float64)
  checked = linalg.checked(linalg.cholesky_jittered)
  assert not np.any(checked(a).info)
  a[3] = -np.eye(4)
  with pytest.raises(linalg.LinAlgError, match=r"^cholesky_jittered: .*\(3\).* of order 1 "):
    checked(a)
