"""What docs/functions.md says about the peers, run. A peer that mends it makes a test fail, and the
page is to be changed."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest
from jax.sharding import AxisType

from sharded import make_mesh, place


def test_stock_lstsq():
  with pytest.raises((TypeError, ValueError)):
    jnp.linalg.lstsq(jnp.ones((2, 3, 3)), jnp.ones((2, 3, 1)))
  gradient = jax.grad(lambda a: jnp.sum(jnp.linalg.lstsq(a, jnp.ones(3))[0]))(jnp.eye(3))
  assert np.isnan(gradient).any()


def test_numpy_lstsq():
  with pytest.raises(np.linalg.LinAlgError):
    np.linalg.lstsq(np.ones((2, 3, 3)), np.ones((2, 3, 1)))


def test_stock_norm():
  assert np.isnan(jax.grad(jnp.linalg.norm)(jnp.zeros(3))).any()
  assert jnp.linalg.norm(jnp.full(3, 1e200)) == np.inf


@pytest.mark.filterwarnings("ignore:overflow")
def test_numpy_norm():
  assert np.linalg.norm(np.full(3, 1e200)) == np.inf


def test_stock_spectral_function():
  def function(a):
    w, v = jnp.linalg.eigh(a)
    return jnp.sum((v * jnp.exp(w)) @ v.T)

  assert np.isnan(jax.grad(function)(jnp.eye(3))).any()


@pytest.mark.parametrize(
    "function", [jnp.linalg.inv, jax.scipy.linalg.expm], ids=["inv", "expm"])
def test_stock_on_explicit_meshes(function):
  (a,) = place((np.tile(np.eye(3), (8, 1, 1)),), make_mesh(kind=AxisType.Explicit), "x")
  with pytest.raises(Exception, match=r"(?i)shard|mesh|spec"):
    jax.jit(function)(a)
