"""Muon's orthogonalization of sharded matrices: the polynomials of their singular values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import linalg.distributed as dist
import matrices
from one_matrix import close
from quick import quick_compile, quick_jit
from sharded import make_mesh

ROWS, N = 48, 4
BY_ROWS, BY_COLUMNS = P(("x", "y"), None), P(None, ("x", "y"))
STANDARD, CUBIC = (3.4445, -4.775, 2.0315), (1.5, -0.5, 0.0)


def place(x, kind=AxisType.Auto, spec=BY_ROWS):
  return jax.device_put(x, NamedSharding(make_mesh((4, 2), ("x", "y"), kind), spec))


def divisor(a, preconditioning, eps):
  gram = a.conj().mT @ a
  norm = lambda x: np.linalg.norm(x, axis=(-2, -1), keepdims=True)
  return {
      "frobenius": lambda: norm(a) + eps,
      "spectral": lambda: np.linalg.norm(a, 2, axis=(-2, -1), keepdims=True) + eps,
      "aol": lambda: np.sqrt(np.maximum(np.abs(gram).sum(-2, keepdims=True), eps)),
      "schatten": lambda: np.sqrt(np.maximum(norm(gram), eps))}[preconditioning]()


def by_values(a, steps, preconditioning="frobenius", eps=1e-8):
  """NumPy's result from singular values, in double precision."""
  a = a.astype(np.promote_types(a.dtype, np.float64))
  u, s, vh = np.linalg.svd(a / divisor(a, preconditioning, eps), full_matrices=False)
  for x, y, z in steps:
    s = x * s + y * s**3 + z * s**5
  return u * s[..., None, :] @ vh


def by_products(a, steps):
  """Muon's usual formula, as a reference for derivatives."""
  a = a / (jnp.sqrt(jnp.sum(jnp.abs(a) ** 2)) + 1e-8).astype(a.dtype)
  for x, y, z in steps:
    g = a.conj().mT @ a
    a = x * a + a @ (y * g + z * g @ g)
  return a


@pytest.mark.parametrize("kind", [
    AxisType.Explicit, pytest.param(AxisType.Auto, marks=pytest.mark.extended)],
    ids=lambda x: x.name)
def test_results(kind, rng):
  """Tall and wide, by each preconditioning and choice of polynomials; sharded as A is."""
  a = matrices.general(rng, (), ROWS, N, np.complex128)
  x, wide = place(a, kind), place(a.T, kind, BY_COLUMNS)
  found = dist.newton_schulz(x)
  close(found, by_values(a, 5 * [STANDARD]), a.dtype)
  assert found.sharding.is_equivalent_to(x.sharding, 2) and found.dtype == a.dtype
  close(dist.newton_schulz(wide), np.asarray(found).T, a.dtype)
  for preconditioning in ("spectral", "aol", "schatten"):
    found = dist.newton_schulz(x, CUBIC, 2, preconditioning=preconditioning, eps=0.5)
    close(found, by_values(a, 2 * [CUBIC], preconditioning, 0.5), a.dtype)
  assert np.linalg.norm(dist.newton_schulz(x, "dion") - linalg.polar(a)[0], 2) < 0.05
  close(dist.newton_schulz(x, (STANDARD, CUBIC)), by_values(a, [STANDARD, CUBIC]), a.dtype)
  close(dist.newton_schulz(x, steps=0), by_values(a, []), a.dtype)


def test_batch(rng):
  """A batch may be sharded over another axis, with uneven rows. NaN stays in its own matrix."""
  a = matrices.general(rng, (4,), ROWS - 1, N, np.float64)
  a[1, 3, 2] = np.nan
  with jax.set_mesh(make_mesh((4, 2), ("x", "y"))):
    found = np.asarray(dist.newton_schulz(a, axes=("x", "y")))
  good = np.array([0, 2, 3])
  close(found[good], by_values(a[good], 5 * [STANDARD]), np.float64)
  assert np.isnan(found[1]).all()


def test_rounding_does_not_grow(rng):
  """A matrix of low rank, by steps in which the rounding of one Gram matrix would overflow."""
  a = matrices.general(rng, (), 512, 2, np.float32) @ matrices.general(rng, (), 2, 32, np.float32)
  x = place(a)
  with jax.set_mesh(x.sharding.mesh):
    program = quick_compile(lambda a: dist.newton_schulz(a, CUBIC, 40, axes=("x", "y")), (x,))
  u, _, vh = np.linalg.svd(a)
  unit = u[:, :2] @ vh[:2]
  found = np.asarray(program(x))
  np.testing.assert_allclose(unit.T @ found, unit.T @ unit, rtol=0, atol=1e-4)
  assert np.linalg.norm(found, 2) < 1.001
  # The program reduces the largest entry, and a Gram matrix for each nine steps.
  assert dist.report(program).collectives == {"all-reduce": 6}


@pytest.mark.parametrize("kind,steps", [
    (AxisType.Explicit, 2), pytest.param(AxisType.Auto, 5, marks=pytest.mark.extended)],
    ids=lambda x: getattr(x, "name", x))
def test_derivatives(kind, steps, rng):
  """Forward, reverse, and forward over reverse mode are right, and no device has A."""
  a, da = (matrices.general(rng, (), ROWS, N, np.complex128) for _ in range(2))
  lie = place(a, kind), place(da, kind)

  def all_of(orthogonal):
    loss = lambda a: jnp.sum(jnp.abs(orthogonal(a) + 1) ** 3)
    return lambda a, da: (
        jax.jvp(orthogonal, (a,), (da,)), jax.jvp(jax.grad(loss), (a,), (da,)))

  mine = all_of(lambda a: dist.newton_schulz(a, STANDARD, steps, axes=("x", "y")))
  with jax.set_mesh(lie[0].sharding.mesh):
    program = quick_compile(mine, lie)
    found = program(*lie)
  expected = quick_jit(all_of(lambda a: by_products(a, steps * [STANDARD])))(a, da)
  for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    close(x, y, np.complex128, 1e4)
  assert f"c128[{ROWS},{N}]" not in program.as_text()


@pytest.mark.parametrize("size", [0, 1e-30, 1e30])
def test_scale(size, rng):
  """Squares neither overflow nor underflow, and zero stays so."""
  a = matrices.general(rng, (), ROWS, N, np.float32)
  found = dist.newton_schulz(place((size * a).astype(np.float32)), eps=0.0 if size else 1e-8)
  close(found, by_values(a, 5 * [STANDARD]) if size else 0 * a, np.float32)


@pytest.mark.parametrize("preconditioning", ["aol", "schatten"])
def test_below_epsilon(preconditioning):
  """The matrix is divided by √eps, which is far above its scale."""
  a = 1e-22 * np.eye(ROWS, N, dtype=np.float32)
  found = dist.newton_schulz(place(a), (1.5, -0.5, 0.0), 1, preconditioning=preconditioning)
  close(1e18 * found, 1.5 * 1e22 * a, np.float32)


@pytest.mark.parametrize("call,message", [
    (lambda x: dist.newton_schulz(x, "other"), "must be one of"),
    (lambda x: dist.newton_schulz(x, (1.5, -0.5)), "must be three numbers"),
    (lambda x: dist.newton_schulz(x, "dion", 4), "coefficients of 5 steps"),
    (lambda x: dist.newton_schulz(x, steps=-1), "steps=-1 a number, 0 or more"),
    (lambda x: dist.newton_schulz(x, preconditioning="other"), "must be one of"),
    (lambda x: dist.newton_schulz(np.eye(ROWS, N)), "needs a mesh"),
    (lambda x: dist.newton_schulz(place(np.eye(ROWS, 8), spec=P("x", "y"))), "are sharded")])
def test_errors(call, message):
  with pytest.raises((ValueError, linalg.ffi.ShardingTypeError), match=message):
    call(place(np.eye(ROWS, N)))
