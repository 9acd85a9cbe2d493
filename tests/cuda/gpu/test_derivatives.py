"""Derivatives on a GPU, compared with those on the CPU."""

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import linalg
import linalg.scipy
import matrices
from gpu_calls import HANDLED, on_cpu, put
from linalg._factorizations import matmul
from sharded import energy, split

pytestmark = pytest.mark.gpu
ALL_DTYPES = True


@cases.each([x for x in HANDLED if x in cases.DIFFERENTIABLE_CASES])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("n", [5, 20, 33])
def test_gradient(case, dtype, n, rng):
  """The gradient on the GPU equals that on the CPU."""
  if dtype not in case.dtypes:
    pytest.skip("no operation of this dtype")
  operands = case.operands(rng, (3,), n, n, dtype)
  floating, merge = split(operands)
  gradient = jax.jit(jax.grad(lambda x: energy(case, 1, *merge(x)).sum()))
  actual = gradient(put(floating))
  with jax.default_device(jax.devices("cpu")[0]):
    expected = gradient(tuple(jax.device_put(x, jax.devices("cpu")[0]) for x in floating))
  for x, y in zip(actual, expected, strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-7 * np.max(np.abs(y), initial=1))


@pytest.mark.parametrize("batches", [((9,), (9,)), ((), (9,)), ((9,), ())], ids=str)
def test_gradients_of_products(dtype, batches, rng):
  a = matrices.general(rng, batches[0], 5, 3, dtype)
  b = matrices.general(rng, batches[1], 3, 6, dtype)
  c = matrices.general(rng, (9,), 5, 6, dtype)
  gradients = jax.jit(lambda a, b, c: jax.vjp(matmul.product, a, b)[1](c))
  for x, y in zip(gradients(*put((a, b, c))), on_cpu(gradients, (a, b, c)), strict=True):
    np.testing.assert_allclose(x, y, rtol=0, atol=300 * np.finfo(dtype).eps)


RULES = {
    "cholesky": linalg.cholesky,
    "cholesky_upper": lambda a: linalg.cholesky(a, upper=True, symmetrize_input=False),
    "qr": lambda a: linalg.qr(a[..., : a.shape[-1] // 2 + 1]),
    "det": linalg.det,
}


@pytest.mark.parametrize("n", [1, 2, 5, 8, 9, 12, 13, 16, 17])
@pytest.mark.parametrize("name", RULES)
def test_rules(name, dtype, n, rng):
  """Derivatives are right in both modes, at all sizes, and for singular matrices."""
  function = RULES[name]
  make = matrices.positive_definite if "cholesky" in name else matrices.well_conditioned
  a = make(rng, (300,), n, dtype)
  if name == "det" and n > 1:
    a[1, 1] = a[1, 0]
  da = matrices.general(rng, (300,), n, n, dtype)

  def both(a, da):
    y, tangent = jax.jvp(function, (a,), (da,))
    return tangent, jax.vjp(function, a)[1](jax.tree.map(jnp.ones_like, y))[0]

  both = jax.jit(both)
  found = jax.tree.leaves(both(*put((a, da))))
  for x, y in zip(found, jax.tree.leaves(on_cpu(both, (a, da))), strict=True):
    scale = n * np.max(np.abs(y), initial=1)
    np.testing.assert_allclose(x, y, rtol=0, atol=1000 * np.finfo(dtype).eps * scale)
