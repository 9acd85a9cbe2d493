"""JAX's own functions by this package's handlers, on sharded batches: nothing is gathered."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import cases
import linalg
from sharded import BATCH, KINDS, N, compile_local, make_mesh, place, sharded_like

pytestmark = pytest.mark.compiles

# JAX's functions that are one primitive and products at most, and what they are made of.
NAMES = [
    "cholesky", "eig", "eigh", "eigvals", "householder_product", "inv", "lu", "qr", "qr_complete",
    "schur", "slogdet", "solve", "svd", "svdvals", "triangular_solve", "tridiagonal_solve"]


@pytest.mark.parametrize("name", NAMES)
@KINDS
def test_automatic(name, kind, rng):
  """Of meshes with axes of both types."""
  case = cases.named(name)
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  sharded = place(operands, mesh, "x")
  with linalg.accelerated():
    expected = case.stock(*operands)
    try:
      jax.jit(case.stock).trace(*sharded)
    except Exception as error:  # whatever JAX raises of its own, before anything is lowered
      pytest.skip(f"jax does not take Explicit axes there: {error}"[:200])
    results = compile_local(case.stock, sharded)(*sharded)
  sharded_like(results, mesh, "x")
  for x, y in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_manual(name, rng):
  """In `shard_map`, with its checks on."""
  case = cases.named(name)
  mesh = make_mesh()
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  sharded = place(operands, mesh, "x")
  function = jax.shard_map(case.stock, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
  with linalg.accelerated():
    results = compile_local(function, sharded)(*sharded)
  sharded_like(results, mesh, "x")
