"""QR factors of matrices of any shape that several devices share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import linalg.distributed as dist
import matrices
from one_matrix import AXES, close, mesh_of, place
from quick import quick_compile, quick_jit
from sharded import KINDS, make_mesh

EPS = np.finfo(np.float64).eps


def limits(a, q, r, limit=60):
  """LAPACK's: ‖A - Q R‖ / (m eps ‖A‖) and ‖I - Qᴴ Q‖ / (m eps) are at most 60, and R is upper
  triangular."""
  q, r = np.asarray(q), np.asarray(r)
  m, eps = max(a.shape), np.finfo(a.dtype).eps
  assert not np.tril(r, -1).any()
  scale = np.abs(a).max() or 1
  norm = np.linalg.norm(a / scale, 1) or 1
  assert np.linalg.norm(a / scale - q @ (r / scale), 1) <= limit * m * eps * norm
  assert np.linalg.norm(q.conj().T @ q - np.eye(q.shape[1]), 1) <= limit * m * eps


@pytest.mark.parametrize("layout,m,n,dtype,kind", [
    ("both", 40, 24, np.complex128, AxisType.Explicit),
    *[pytest.param(*x, marks=pytest.mark.extended) for x in (
        ("both", 40, 40, np.float32, AxisType.Auto),
        ("both", 24, 40, np.float64, AxisType.Explicit),
        ("turned", 40, 40, np.complex128, AxisType.Auto),
        ("rows", 48, 40, np.float64, AxisType.Explicit),
        ("rows", 40, 56, np.complex64, AxisType.Auto),
        ("rows twice", 56, 40, np.float64, AxisType.Auto),
        ("columns", 40, 40, np.float64, AxisType.Explicit),
        ("columns", 24, 64, np.complex128, AxisType.Auto),
        ("some", 48, 40, np.float64, AxisType.Explicit),
        ("one device", 8, 40, np.float64, AxisType.Auto))]])
def test_results(layout, m, n, dtype, kind, rng):
  """Factors and signs are LAPACK's; both are sharded as A is."""
  a = matrices.general(rng, (), m, n, dtype)
  x = place(a, layout, kind)
  q, r = dist.qr(x)
  for mine, theirs in zip((q, r), np.linalg.qr(a), strict=True):
    close(mine, theirs, dtype)
    assert mine.dtype == dtype and mine.sharding.is_equivalent_to(x.sharding, 2)
  limits(a, q, r)
  close(dist.qr(x, "r"), r, dtype)


def types(rng, m, n):
  """Matrices that are hard for QR, by name."""
  k = min(m, n)
  a = rng.standard_normal((m, n))
  low = rng.standard_normal((m, 3)) @ rng.standard_normal((3, n))
  missing = a.copy()
  missing[:, [0, 5, k - 1]] = 0
  missing[[1, m - 1]] = 0
  graded = a * 10.0 ** np.linspace(-200, 200, n)
  return {
      "rank 3": low, "zero": np.zeros((m, n)), "zero columns and rows": missing,
      "tiny": a * 1e-150, "huge": a * 1e150, "graded": graded, "identity": np.eye(m, n),
      "ones": np.ones((m, n)), "subnormal": a * 1e-310}


@pytest.mark.extended
@pytest.mark.parametrize("m,n", [(40, 40), (41, 40), (27, 43)])
def test_types(m, n, rng):
  mesh, _ = mesh_of("both")
  with jax.set_mesh(mesh):
    call = quick_jit(lambda a: dist.qr(a, axes=AXES))
    for name, a in types(rng, m, n).items():
      q, r = call(a)
      if name == "graded":  # each column has its own scale
        scale = np.abs(a).max(0)
        a, r = a / scale, np.asarray(r) / scale
      elif name == "subnormal":  # XLA's arithmetic has no such numbers
        a = np.zeros_like(a)
      limits(a, q, r)


def test_batch(rng):
  """A batch may be sharded over other axes. NaN in one matrix leaves the bits of the others."""
  mesh = make_mesh((2, 2, 2), ("z", "x", "y"), AxisType.Explicit)
  a = rng.standard_normal((2, 3, 12, 8))
  bad = a.copy()
  bad[1, 2, 3, 1] = np.nan
  put = lambda a: jax.device_put(a, NamedSharding(mesh, P("z", None, "x", "y")))
  with jax.set_mesh(mesh):
    call = quick_jit(dist.qr)
    good, found = call(put(a)), call(put(bad))
  for part, other in zip(good, found, strict=True):
    assert tuple(part.sharding.spec) == ("z", None, "x", "y")
    part, other = np.array(part), np.array(other)
    assert np.isnan(other[1, 2]).all()
    other[1, 2] = part[1, 2]
    np.testing.assert_array_equal(part, other)
  for part, theirs in zip(good, np.linalg.qr(a), strict=True):
    close(part, theirs, np.float64)


def loss(library, a, **axes):
  q, r = library.qr(a, **axes)
  return jnp.sum(jnp.abs(q + 0.3) ** 3) + jnp.sum(jnp.abs(r + 0.3) ** 3)


@pytest.mark.extended
@pytest.mark.parametrize("m,n,dtype,kind", [
    (24, 24, np.complex128, AxisType.Explicit), (32, 24, np.float64, AxisType.Auto),
    (16, 24, np.complex128, AxisType.Auto), (16, 24, np.float64, AxisType.Explicit)])
def test_derivatives(m, n, dtype, kind, rng):
  """Derivatives are those of linalg.qr: forward, reverse, and forward over reverse. No device holds
  the matrix."""
  host = [matrices.general(rng, (), m, n, dtype) for _ in range(2)]
  lie = [place(x, "both", kind) for x in host]

  def derivatives(library, **axes):
    call = lambda a: loss(library, a, **axes)
    return lambda a, da: jax.jvp(jax.grad(call), (a,), (da,))

  expected = jax.tree.leaves(quick_jit(derivatives(linalg))(*host))
  with jax.set_mesh(lie[0].sharding.mesh):
    program = quick_compile(derivatives(dist, axes=AXES), lie)
    found = jax.tree.leaves(program(*lie))
  for x, y in zip(found, expected, strict=True):
    close(x, y, dtype, 1e6)
  letter = "c128" if dtype == np.complex128 else "f64"
  assert f"{letter}[{m},{n}]" not in program.as_text()


@pytest.mark.extended
@KINDS
def test_vmap(kind, rng):
  a = rng.standard_normal((2, 24, 24))
  mesh, _ = mesh_of("both", kind)
  x = jax.device_put(a, NamedSharding(mesh, P(None, "x", "y")))
  with jax.set_mesh(mesh):
    call = lambda library, a, **axes: jnp.sum(library.qr(a, "r", **axes) ** 3)
    found = quick_jit(jax.vmap(jax.value_and_grad(functools.partial(call, dist, axes=AXES))))(x)
  expected = jax.vmap(jax.value_and_grad(functools.partial(call, linalg)))(jnp.asarray(a))
  for mine, theirs in zip(found, expected, strict=True):
    close(mine, theirs, np.float64, 1e5)
