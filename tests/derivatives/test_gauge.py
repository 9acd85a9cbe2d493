"""Losses that depend on the choice of eigenvectors are distinguished from those that do not."""

import jax.numpy as jnp
import numpy as np
import pytest

import cases
import linalg
import matrices

TIGHT = 1e-10


def _projector(v, columns):
  part = v[..., columns]
  return part @ part.mT.conj()


@cases.each_double
@pytest.mark.parametrize("values", [[1.0, 2, 3, 4], [1.0, 1, 2, 2]], ids=["distinct", "equal"])
def test_invariant_losses(values, dtype, rng):
  """The losses are a spectral sum, a function of the matrix, and a projector onto a whole
  eigenspace."""
  a = np.stack([matrices.with_eigenvalues(rng, np.array(values), dtype) for _ in range(3)])
  weight = matrices.hermitian(rng, (1,), 4, dtype)
  losses = (
      lambda w, v: jnp.sum(jnp.log(w)),
      lambda w, v: jnp.sum(weight * linalg.matmul(
          v * jnp.exp(w)[..., None, :].astype(dtype), v.mT.conj())).real,
      lambda w, v: jnp.sum(weight * _projector(v, slice(2, 4))).real,
  )
  for loss in losses:
    error = linalg.eigh_gauge_error(loss, a)
    assert error.shape == (3,)
    assert np.max(error) < TIGHT


def test_phase(rng):
  """A component of a complex eigenvector depends on its phase; the size of it does not."""
  a = matrices.hermitian(rng, (), 4, np.complex128)
  x = matrices.general(rng, (), 4, 1, np.complex128)[:, 0]
  assert linalg.eigh_gauge_error(lambda w, v: (x @ v[:, 1]).real, a) > 1e-2
  assert linalg.eigh_gauge_error(lambda w, v: jnp.abs(x @ v[:, 1]) ** 2, a) < TIGHT


def test_rotation_among_equal_eigenvalues(rng):
  """One eigenvector of a double eigenvalue depends on the basis of their plane."""
  a = matrices.with_eigenvalues(rng, np.array([1.0, 1, 2, 3]), np.float64)
  x = rng.standard_normal(4)
  assert linalg.eigh_gauge_error(lambda w, v: (x @ v[:, 0]) ** 2, a) > 1e-2
  assert linalg.eigh_gauge_error(lambda w, v: (x @ v[:, 2]) ** 2, a) < TIGHT
