"""Eigenvalues and singular values lose no more to rounding than stock JAX's, which are divide and
conquer's."""

import jax.numpy as jnp
import numpy as np
import pytest

import cases
import linalg
from linalg._cases import checks
from matrices import general, hermitian

# Both are errors of other roundings, of which one may well be a little larger.
MARGIN = 1.25


def _errors(values, exact):
  """Of each matrix, the largest error as a fraction of its norm."""
  error = np.max(np.abs(np.asarray(values, np.float64) - exact), axis=-1)
  return error / np.max(np.abs(exact), axis=-1)


@cases.each_dtype(np.float32, np.complex64)
@pytest.mark.parametrize("n", [16, 32, 48, 64, 96, 128])
def test_no_worse_than_stock(n, dtype, rng):
  """Catches rounding errors of QL's sweeps that add up; the mean is of the errors of matrices."""
  a = hermitian(rng, (200,), n, dtype)
  exact = np.linalg.eigvalsh(checks.wide(a))
  stock = _errors(jnp.linalg.eigh(a)[0], exact)
  for values in (linalg.eigvalsh(a), linalg.eigh(a).eigenvalues):
    errors = _errors(values, exact)
    assert np.max(errors) <= MARGIN * np.max(stock)
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
