"""(A + Aᴴ) / 2 of entries whose sum is out of range."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg

ONE_IN = 2

FUNCTIONS = {
    "cholesky": linalg.cholesky,
    "eigh": lambda a: linalg.eigh(a).eigenvalues,
    "eigvalsh": linalg.eigvalsh,
    "pinv": lambda a: linalg.pinv(a, hermitian=True),
    "funm_hermitian": lambda a: linalg.funm_hermitian(a, lambda w: w),
    "inverse_pth_root": lambda a: linalg.inverse_pth_root(a, 2),
    "inverse_pth_root with epsilon": lambda a: linalg.inverse_pth_root(
        a, 2, ridge_epsilon=1e-6),
    "svd": lambda a: linalg.svd(a, hermitian=True)[1],
    "polar": lambda a: linalg.polar(a)[1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_near_the_end_of_the_range(name, dtype):
  finfo = np.finfo(dtype)
  a = (0.75 * float(finfo.max) * np.diag([1, 0.5])).astype(dtype)
  result = FUNCTIONS[name](a)
  assert np.isfinite(result).all()
  scaled = FUNCTIONS[name]((0.75 * np.diag([1, 0.5])).astype(dtype))
  ratio = np.abs(result) / np.where(scaled == 0, 1, np.abs(scaled))
  ratio = ratio[np.asarray(scaled) != 0]
  np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e3 * float(finfo.eps))


@pytest.mark.parametrize("n", [2, 20, 70])
def test_beside_the_diagonal(n, dtype):
  """The factor has the bits of that of a matrix scaled to the middle of the range."""
  a = (0.6 + 0.15 * np.eye(n)).astype(dtype)
  exponent = np.finfo(dtype).maxexp
  large = a * dtype.type(2.0 ** (exponent - 1)) * dtype.type(2)
  factor = np.asarray(linalg.cholesky(large))
  expected = np.asarray(linalg.cholesky(a)) * dtype.type(2.0 ** (exponent // 2))
  assert np.isfinite(factor).all()
  np.testing.assert_array_equal(factor, expected)


def test_derivative(dtype):
  """The derivative holds for a tangent near the end of the range too."""
  a = jnp.eye(2, dtype=dtype)
  tangent = jnp.asarray(0.75 * float(np.finfo(dtype).max) * np.eye(2), dtype)
  slope = jax.jvp(lambda a: linalg.funm_hermitian(a, lambda w: w), (a,), (tangent,))[1]
  assert np.isfinite(slope).all()
