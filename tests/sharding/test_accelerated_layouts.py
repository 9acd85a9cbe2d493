"""JAX's own functions by this package's handlers, on sharded batches: nothing is gathered."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import cases
import linalg
from sharded import BATCH, KINDS, N, collectives, compile_local, make_mesh, place, sharded_like

COMPILES = True
ONE_IN = 3

# JAX's functions that are at most one primitive and products, and functions made of them.
NAMES = [
    "cholesky", "eig", "eigh", "eigvals", "householder_product", "inv", "lu", "qr", "qr_complete",
    "schur", "slogdet", "solve", "svd", "svdvals", "triangular_solve", "tridiagonal_solve"]


@pytest.mark.parametrize("name", NAMES)
@KINDS
def test_automatic(name, kind, rng):
  """The meshes have axes of both types."""
  case = cases.named(name)
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  sharded = place(operands, mesh, "x")
  with linalg.accelerated():
    expected = case.stock(*operands)
    try:
      jax.jit(case.stock).trace(*sharded)
    except Exception as error:  # an error of JAX's own, before lowering
      pytest.skip(f"jax does not take Explicit axes there: {error}"[:200])
    results = compile_local(case.stock, sharded)(*sharded)
  sharded_like(results, mesh, "x")
  for x, y in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-12, atol=1e-12)


@KINDS
def test_derivative_of_cholesky(kind, rng):
  """One call on each device, and nothing is gathered."""
  mesh = make_mesh(kind=kind)
  a = cases.named("cholesky").operands(rng, (BATCH,), N, N, np.float64)
  gradient = jax.grad(lambda a: jnp.sum(jnp.linalg.cholesky(a) ** 3))
  with linalg.accelerated():
    compiled = compile_local(jax.vmap(gradient), place(a, mesh, "x"))
    assert re.search(r"linalg_cholesky\w*_vjp", compiled.as_text())
    results = compiled(*place(a, mesh, "x"))
  sharded_like(results, mesh, "x")
  np.testing.assert_allclose(results, jax.vmap(gradient)(*a), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_manual(name, rng):
  """The calls are in `shard_map`, with its checks on."""
  case = cases.named(name)
  mesh = make_mesh()
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  sharded = place(operands, mesh, "x")
  function = jax.shard_map(case.stock, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
  with linalg.accelerated():
    results = compile_local(function, sharded)(*sharded)
  sharded_like(results, mesh, "x")


@KINDS
@pytest.mark.parametrize("spec", [P("x"), P(None, "x"), P(None, None, "x")], ids=str)
def test_products(spec, kind, rng):
  """Products of sharded matrices stay XLA's, which gathers no more than it must.

  On Auto axes the sharding is not known, so all products stay XLA's.
  """
  mesh = make_mesh(kind=kind)
  a, b = rng.standard_normal((2, 8, 16, 16))
  first = jax.device_put(a, NamedSharding(mesh, spec))
  second = jax.device_put(b, NamedSharding(mesh, P(*spec[:1])))
  product = lambda a, b: jnp.einsum("bij,bjk->bik", a, b, out_sharding=P(*spec[:2]))
  if kind == AxisType.Auto:
    product = jnp.matmul
  compiled = lambda: jax.jit(product).lower(first, second).compile()
  with jax.set_mesh(mesh):
    theirs = compiled()
    with linalg.accelerated(products=True):
      ours = compiled()
  assert collectives(ours.as_text()) == collectives(theirs.as_text())
  is_batch = spec == P("x") and kind == AxisType.Explicit
  assert ("linalg_matmul" in ours.as_text()) == is_batch
  np.testing.assert_allclose(ours(first, second), a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("product", [
    lambda a, w: a @ w, lambda a, w: a @ w.T, lambda a, w: a.mT @ w, lambda a, w: (2 * a) @ w,
    lambda a, w: jnp.stack([a, a], 1) @ w, lambda a, w: jax.vmap(lambda a: w @ a)(a),
    lambda a, w: jax.vmap(lambda a: w.T @ a.T)(a)], ids=range(7))
def test_products_of_one_matrix(product, rng):
  """One matrix serves a batch that devices share: each device has the whole matrix."""
  mesh = make_mesh(kind=AxisType.Explicit)
  a, w = rng.standard_normal((BATCH, N, N)), rng.standard_normal((N, N))
  with jax.set_mesh(mesh), linalg.accelerated(products=True):
    compiled = jax.jit(product).lower(
        jax.device_put(a, P("x")), jax.device_put(w, P())).compile()
    results = compiled(jax.device_put(a, P("x")), jax.device_put(w, P()))
  assert "linalg_matmul" in compiled.as_text() and not collectives(compiled.as_text())
  np.testing.assert_allclose(results, product(a, w), rtol=1e-12, atol=1e-12)


def test_products_in_manual_mode(rng):
  """An array in `shard_map` is a device's own."""
  a = rng.standard_normal((BATCH, N, N))
  mesh = make_mesh()
  function = jax.shard_map(jnp.matmul, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
  with linalg.accelerated(products=True):
    compile_local(function, place((a, a), mesh, "x"))
