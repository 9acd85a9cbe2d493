"""Matrices whose rows or columns are of very different scale."""

import numpy as np
import pytest

import linalg


def _graded_rows(rng, batch, n, dtype, decades):
  """Random matrices whose rows are multiplied by random powers of ten."""
  a = rng.standard_normal((batch, n, n))
  if np.issubdtype(dtype, np.complexfloating):
    a = a + 1j * rng.standard_normal((batch, n, n))
  return (a * 10.0 ** rng.integers(-decades, decades + 1, (batch, n, 1))).astype(dtype)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("n", [3, 7, 20])
def test_schur_vectors_are_unitary(dtype, n, rng):
  """SciPy's are not, in some of these: gees divides subnormal numbers by their modulus."""
  decades = 18 if dtype is np.complex64 else 150
  a = _graded_rows(rng, 20_000 // n, n, dtype, decades)
  t, z = linalg.schur(a, output="complex")
  a, t, z = (np.asarray(x).astype(np.clongdouble) for x in (a, t, z))
  adjoint = z.conj().swapaxes(-1, -2)
  limit = 16 * n * float(np.finfo(dtype).eps)
  assert np.max(np.abs(adjoint @ z - np.eye(n))) <= limit
  residual = np.max(np.abs(z @ t @ adjoint - a), axis=(-1, -2))
  assert np.max(residual / np.max(np.abs(a), axis=(-1, -2))) <= limit
