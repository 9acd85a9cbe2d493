"""Eigenvalues and singular values lose no more to rounding than those of stock JAX.

Stock JAX uses divide and conquer.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import cases
import linalg
from linalg._catalogue import checks
from matrices import general, hermitian

ONE_IN = 2

# Both errors come from different roundings, so either may be slightly larger.
MARGIN = 1.25


def _errors(values, exact):
  """Returns the largest error of each matrix as a fraction of its norm."""
  error = np.max(np.abs(np.asarray(values, np.float64) - exact), axis=-1)
  return error / np.max(np.abs(exact), axis=-1)


@cases.each_dtype(np.float32, np.complex64)
@pytest.mark.parametrize("n", [16, 32, 48, 64, 96, 128])
def test_no_worse_than_stock(n, dtype, rng):
  """Catches rounding errors that accumulate in QL's sweeps. The mean is over matrices."""
  a = hermitian(rng, (200,), n, dtype)
  exact = np.linalg.eigvalsh(checks.wide(a))
  stock = _errors(jnp.linalg.eigh(a)[0], exact)
  for values in (linalg.eigvalsh(a), linalg.eigh(a).eigenvalues):
    errors = _errors(values, exact)
    assert np.max(errors) <= MARGIN * np.max(stock)
    assert np.mean(errors) <= MARGIN * np.mean(stock)


def _with_eigenvalues(rng, w, dtype):
  n = w.shape[-1]
  q = np.linalg.qr(general(rng, w.shape[:-1], n, n, np.result_type(dtype, np.float64)))[0]
  return (q * w[..., None, :]) @ np.conj(np.swapaxes(q, -1, -2))


@cases.each_dtype(np.float32, np.complex64)
@pytest.mark.parametrize("kind", ["normal", "clusters", "largest norm"])
@pytest.mark.parametrize("n", [3, 8, 12, 15])
def test_small_ones_no_worse_than_stock(n, kind, dtype, rng):
  """Catches squares of small or large elements that leave float32's range in QL without square
  roots."""
  numbers = rng.standard_normal((1000, n))
  if kind == "clusters":
    signs = np.where(np.arange(n) < n // 2, 1, -1)
    a = _with_eigenvalues(rng, signs * (1 + 64 * np.finfo(dtype).eps * numbers), dtype)
  elif kind == "largest norm":
    a = np.full((1000, n, n), 2 - 2**-10) + 2.0**-12 * hermitian(rng, (1000,), n, dtype)
  else:
    a = hermitian(rng, (1000,), n, dtype)
  a = a.astype(dtype)
  a = (a + np.conj(np.swapaxes(a, -1, -2))) / 2
  exact = np.linalg.eigvalsh(checks.wide(a))
  stock, errors = _errors(jnp.linalg.eigvalsh(a), exact), _errors(linalg.eigvalsh(a), exact)
  assert np.max(errors) <= 2 * np.max(stock)
  assert np.mean(errors) <= MARGIN * np.mean(stock)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("n", [
    48, *(pytest.param(n, marks=pytest.mark.extended) for n in (33, 96, 128))])
def test_singular_values_no_worse_than_stock(n, dtype, rng):
  a = general(rng, (100,), n, n, dtype)
  exact = np.linalg.svd(checks.wide(a), compute_uv=False)
  stock = _errors(jnp.linalg.svd(a)[1], exact)
  for values in (linalg.svdvals(a), linalg.svd(a).S):
    errors = _errors(values, exact)
    assert np.max(errors) <= MARGIN * np.max(stock)
    assert np.mean(errors) <= MARGIN * np.mean(stock)
