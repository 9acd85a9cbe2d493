"""Solves linear systems of lineax with this package's factorisations: `pip install lineax`."""

# pyright: reportMissingImports=false

import jax
import jax.numpy as jnp
import lineax

import linalg.lineax


def solve(a, b):
  operator = lineax.MatrixLinearOperator(a)
  return lineax.linear_solve(operator, b, linalg.lineax.LU()).value


a = 4 * jnp.eye(6) + jax.random.normal(jax.random.key(0), (1024, 6, 6)) / 4
b = jnp.ones((1024, 6))

x = jax.jit(jax.vmap(solve))(a, b)  # one handler factors the batch
gradient = jax.grad(lambda a: jnp.sum(jax.vmap(solve)(a, b) ** 2))(a)

blocks = jnp.broadcast_to(4 * jnp.eye(2), (100, 2, 2))
beside = jnp.broadcast_to(jnp.eye(2), (99, 2, 2))
chain = linalg.lineax.BlockTridiagonalLinearOperator(
    beside, blocks, beside, lineax.positive_semidefinite_tag)
y = lineax.linear_solve(chain, jnp.ones(200), linalg.lineax.BlockTridiagonal()).value

assert jnp.allclose(jnp.einsum("bij,bj->bi", a, x), b, atol=1e-4)
assert bool(jnp.isfinite(gradient).all())
assert jnp.allclose(chain.mv(y), 1, atol=1e-5)
print("all systems are solved")
