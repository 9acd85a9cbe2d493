"""rsf2csf: the batches of T and Z broadcast, as in SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import linalg
import matrices

BATCHES = [((), ()), ((3,), ()), ((), (3,)), ((2, 1), (3,)), ((3,), (2, 1)), ((1,), (3,))]


@pytest.mark.parametrize("batches", BATCHES, ids=str)
def test_batches_broadcast(batches, rng):
  """Both results have the whole batch, and equal those of each pair alone."""
  batch_t, batch_z = batches
  batch = np.broadcast_shapes(*batches)
  t, _ = linalg.schur(matrices.general(rng, batch_t, 5, 5, np.float64))
  _, z = linalg.schur(matrices.general(rng, batch_z, 5, 5, np.float64))
  function = jax.jit(linalg.rsf2csf)
  actual = jax.device_get(function(t, z))
  t, z = np.broadcast_to(t, (*batch, 5, 5)), np.broadcast_to(z, (*batch, 5, 5))
  whole = jax.device_get(function(t, z))
  for x, y in zip(actual, whole, strict=True):
    assert x.shape == (*batch, 5, 5)
    np.testing.assert_array_equal(x, y)
  for i in np.ndindex(batch):
    triangular, unitary = (np.asarray(x)[i] for x in actual)
    np.testing.assert_array_equal(triangular, np.triu(triangular))
    expected_t, expected_z = scipy.linalg.rsf2csf(t[i], z[i])
    original = unitary @ triangular @ unitary.conj().T
    np.testing.assert_allclose(
        original, expected_z @ expected_t @ expected_z.conj().T, atol=1e-12)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=lambda kind: kind.name)
def test_one_form_for_a_sharded_batch(kind, rng):
  """T has no batch, so it takes the batch and the sharding of Z."""
  mesh = jax.make_mesh((8,), ("x",), axis_types=(kind,))
  t, _ = linalg.schur(matrices.general(rng, (), 4, 4, np.float64))
  _, z = linalg.schur(matrices.general(rng, (16,), 4, 4, np.float64))
  expected = linalg.rsf2csf(t, z)
  with jax.set_mesh(mesh):
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    results = jax.jit(linalg.rsf2csf)(jnp.asarray(t), jax.device_put(z, sharding))
    for x, y in zip(results, expected, strict=True):
      np.testing.assert_allclose(x, y, atol=1e-13)
      if kind == AxisType.Explicit:
        assert x.sharding.is_equivalent_to(sharding, x.ndim)


def test_real_factors_take_real_products(rng):
  """W has a complex diagonal alone; blocks with real eigenvalues, and those with none, as SciPy."""
  t = np.triu(matrices.general(rng, (3,), 5, 5, np.float64))
  t[0, [1, 4], [0, 3]] = 2.0, -3.0
  t[1, 2, 1] = 1e-3
  z = np.broadcast_to(np.eye(5), t.shape)
  program = str(jax.make_jaxpr(linalg.rsf2csf)(t, z))
  assert "linalg_matmul" in program
  assert not [line for line in program.splitlines() if "matmul" in line and ":c128" in line]
  triangular, unitary = map(np.asarray, linalg.rsf2csf(t, z))
  np.testing.assert_array_equal(np.tril(triangular, -1), 0)
  for one, x, y in zip(t, triangular, unitary, strict=True):
    np.testing.assert_allclose(y @ x @ y.conj().T, one, atol=1e-13)
    np.testing.assert_allclose(y @ y.conj().T, np.eye(5), atol=1e-14)
    expected = scipy.linalg.rsf2csf(one, np.eye(5))[0]
    np.testing.assert_allclose(np.diag(x), np.diag(expected), atol=1e-13)
