"""The memory and the traffic of programs for one matrix on each of eight devices."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding

import linalg.distributed as dist
from one_matrix import counted, mesh_of


def _likelihood(factor):
  b = jnp.ones(factor.grid.n, factor.dtype)
  return b @ factor.solve(b) + factor.slogdet().logabsdet


POSITIVE = {
    "cholesky": dist.cholesky,
    "factor": lambda a: dist.cho_factor(a).blocks,
    "inv": lambda a: dist.inv(a, assume_a="pos"),
    "gradient of L": jax.grad(lambda a: jnp.sum(dist.cholesky(a) ** 2)),
    "gradient": jax.grad(lambda a: _likelihood(dist.cho_factor(a)))}
GENERAL = {
    "factor": lambda a: dist.lu_factor(a).blocks,
    "solve": lambda a: dist.solve(a, jnp.ones(len(a), a.dtype)),
    "inv": dist.inv,
    "gradient": jax.grad(lambda a: _likelihood(dist.lu_factor(a))),
    "gradient of A⁻¹": jax.grad(lambda a: jnp.sum(dist.inv(a) ** 2))}
ANY_SHAPE = {"qr": lambda a: tuple(dist.qr(a))}


def placed(layout):
  return NamedSharding(*mesh_of(layout, AxisType.Explicit))


@pytest.mark.extended
@pytest.mark.parametrize("kind,name,layout,n,shares,words", [
    ("pos", "cholesky", "both", 4096, 4.3, 2.3), ("pos", "cholesky", "rows twice", 4096, 4.3, 2.3),
    ("pos", "cholesky", "both", 4104, 4.5, 2.3), ("pos", "cholesky", "rows twice", 4104, 4.5, 2.3),
    ("pos", "factor", "columns", 4096, 3.4, 2.0), ("pos", "inv", "both", 4104, 4.5, 5.0),
    ("pos", "gradient of L", "both", 4096, 5.1, 8.4),
    ("pos", "gradient of L", "both", 4104, 5.5, 8.3),
    ("pos", "gradient", "both", 4096, 3.8, 5.5),
    ("gen", "factor", "both", 4096, 4.2, 4.8), ("gen", "solve", "both", 4096, 4.2, 4.9),
    ("gen", "inv", "both", 4096, 4.3, 9.3),
    ("gen", "gradient", "both", 4096, 6.2, 10.1),
    ("gen", "gradient of A⁻¹", "both", 4096, 6.1, 15.2),
    ("any", "qr", "both", 2048, 5.5, 4.0)])
def test_memory_and_words(kind, name, layout, n, shares, words, all_phases):
  calls = {"pos": POSITIVE, "gen": GENERAL, "any": ANY_SHAPE}[kind]
  held, received, _ = counted(calls[name], placed(layout), n)
  assert held <= shares and received <= words
