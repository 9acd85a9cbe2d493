"""Polar factors of tall matrices whose rows are sharded, and of wide ones whose columns are."""

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
import one_matrix
from linalg.distributed import _polar_cyclic
from one_matrix import close
from quick import quick_compile, quick_jit
from sharded import make_mesh

ROWS, N = 48, 3
METHODS = ("qr", "gram")

# The mesh's shape and axes, and those of a batch and of the rows.
LAYOUTS = {
    "one": ((8,), ("x",), None, ("x",)),
    "both": ((4, 2), ("x", "y"), None, ("x", "y")),
    "batch": ((2, 4), ("x", "y"), "x", ("y",))}

FEW = pytest.mark.parametrize("layout,kind", [
    pytest.param(layout, kind, id=f"{layout}-{kind.name}", marks=()
                 if (layout, kind.name) == ("batch", "Explicit") else pytest.mark.extended)
    for layout in LAYOUTS for kind in (AxisType.Auto, AxisType.Explicit)])


def place(x, layout="one", kind=AxisType.Auto, wide=False):
  shape, names, batch, rows = LAYOUTS[layout]
  own = (None, rows) if wide else (rows, None)
  spec = P(*[batch] * (x.ndim - 2), *own)
  return jax.device_put(x, NamedSharding(make_mesh(shape, names, kind), spec))


def general(rng, *shape, dtype=np.float64):
  return matrices.general(rng, shape[:-2], *shape[-2:], dtype)


def with_values(rng, s):
  u, _ = np.linalg.qr(general(rng, ROWS, len(s)))
  v, _ = np.linalg.qr(general(rng, len(s), len(s)))
  return u * s @ v.conj().T


@FEW
def test_results(layout, kind, rng):
  """Results are linalg's. U is sharded like A, and P is on all devices that share the matrix."""
  batch = (2,) if layout == "batch" else ()
  a = general(rng, *batch, ROWS, N, dtype=np.complex128)
  expected = [linalg.polar(a), linalg.polar(a.mT, "left")]
  for wide, (unitary, positive) in enumerate(expected):
    x = place(a.mT if wide else a, layout, kind, wide)
    for method in METHODS:
      u, p = dist.polar(x, method=method)
      close(u, unitary, np.complex128)
      close(p, positive, np.complex128)
      assert u.sharding.is_equivalent_to(x.sharding, x.ndim)
      assert not any(tuple(p.sharding.spec)[len(batch):])


@pytest.mark.parametrize("kind", [
    pytest.param(AxisType.Auto, id="Auto", marks=pytest.mark.extended),
    pytest.param(AxisType.Explicit, id="Explicit")])
@pytest.mark.parametrize("shape", [
    (ROWS, N), pytest.param((8, 8), marks=pytest.mark.extended),
    pytest.param((N, ROWS), marks=pytest.mark.extended)], ids=["tall", "square", "wide"])
def test_derivatives(shape, kind, rng):
  """Forward and second derivatives equal those of `linalg`, and no long array moves."""
  wide = shape[0] < shape[1]
  host = [general(rng, *shape, dtype=np.complex128) for _ in range(3)]
  lie = [place(x, "both", kind, wide) for x in host]
  options = {"side": "left"} if wide else {}

  def both(polar):
    def loss(a, weights):
      u, p = polar(a)
      return jnp.sum(jnp.abs(u + weights) ** 3) + jnp.sum(jnp.abs(p) ** 3)

    return lambda a, da, weights: jax.jvp(lambda a: jax.grad(loss)(a, weights), (a,), (da,))

  expected = quick_jit(both(lambda a: linalg.polar(a, **options)))(*host)
  axes = ("x", "y")
  for method in METHODS:
    with jax.set_mesh(lie[0].sharding.mesh):
      program = quick_compile(both(lambda a: dist.polar(a, method=method, axes=axes)), lie)
    for x, y in zip(program(*lie), expected, strict=True):
      close(x, y, np.complex128, 1e5)
    moved = dist.report(program)
    small = 8 * min(shape) ** 2 * np.dtype(np.complex128).itemsize  # R's of all devices
    assert moved.moved <= small * sum(moved.collectives.values())


def test_what_moves(rng):
  """The Gram matrix moves k² numbers and a scale, and holds little more than A and U."""
  x = place(general(rng, 4096, 16))
  found = {}
  with jax.set_mesh(x.sharding.mesh):
    for name, call in {
        "gram": lambda a: dist.polar(a, method="gram", axes="x")[0],
        "qr": lambda a: dist.polar(a, axes="x")[0]}.items():
      found[name] = dist.report(quick_compile(call, (x,)))
  share = x.nbytes // 8
  assert found["gram"].moved == 16**2 * 8 + 8
  assert found["qr"].moved == 8 * 16**2 * 8
  assert found["gram"].arguments + found["gram"].results + found["gram"].temporaries < 3.2 * share


def test_ill_conditioned(rng):
  """Small singular values have no digits in the Gram matrix.

  U from R is orthonormal to rounding. U from the Gram matrix has smaller values in their place.
  """
  s = np.array([1, 1e-4, 1e-11])
  a = with_values(rng, s)
  x = place(a)
  u, p = map(np.asarray, dist.polar(x))
  close(u.T @ u, np.eye(3), np.float64, 50)
  close(u @ p, a, np.float64, 50)
  u, p = map(np.asarray, dist.polar(x, method="gram"))
  bound = np.sqrt(8 * np.sqrt(3) * np.finfo(np.float64).eps)
  close(np.linalg.svd(u, compute_uv=False)[:2], np.ones(2), np.float64, 1e8 * 10)
  np.testing.assert_allclose(np.linalg.svd(u, compute_uv=False)[2], s[2] / bound, rtol=1e-3)
  close(u @ p, a, np.float64, 1 / bound)


def test_extremes(rng):
  """The matrices are zero, of lower rank, tiny, of half precision, of few or no columns, or hold
  NaN.

  NaN stays in its own matrix.
  """
  low = general(rng, ROWS, 1) @ general(rng, 1, N)
  u, p = map(np.asarray, dist.polar(place(low)))
  close(u.T @ u, np.eye(N), np.float64)
  close(u @ p, low, np.float64)
  for method, size in zip(METHODS, (1, 0), strict=True):
    u, p = dist.polar(place(np.zeros((ROWS, N))), method=method)
    close(np.asarray(u).T @ u, size * np.eye(N), np.float64)
    assert not np.any(p)
  tiny = general(rng, ROWS, N) * 1e-30
  for method in METHODS:
    u, p = dist.polar(place(tiny.astype(np.float32)), method=method)
    expected = linalg.polar(tiny)
    close(u, expected[0], np.float32)
    close(p * 1e30, expected[1] * 1e30, np.float32)
  bad = general(rng, 2, ROWS, N, dtype=np.float32)
  bad[1, 5, 1] = np.nan
  x = jnp.asarray(place(bad, "batch"), jnp.bfloat16)
  for part in (*dist.polar(x), *dist.polar(x, method="gram")):
    assert part.dtype == jnp.bfloat16
    part = np.asarray(part, np.float32)
    assert np.isnan(part[1]).all() and not np.isnan(part[0]).any()
  with jax.set_mesh(make_mesh()):
    for shape in ((16, 0), (0, 16)):
      u, p = dist.polar(jnp.zeros(shape), method="gram")
      assert (u.shape, p.shape) == (shape, (0, 0))


def test_uneven_rows(rng):
  """Rows may be uneven inside `jit`."""
  a = general(rng, 45, N)
  with jax.set_mesh(make_mesh()):
    call = lambda a: (*dist.polar(jnp.sin(a)), *dist.polar(jnp.sin(a), method="gram"))
    found = quick_jit(call)(a)
  expected = linalg.polar(np.sin(a))
  for mine, theirs in zip(found, (*expected, *expected), strict=True):
    close(mine, theirs, np.float64)


def test_errors():
  mesh = make_mesh((4, 2), ("x", "y"), AxisType.Explicit)
  x = jax.device_put(np.ones((16, 8)), NamedSharding(mesh, P("x", "y")))
  with pytest.raises(linalg.ffi.ShardingTypeError, match="jax.sharding.reshard"):
    dist.polar(x)
  with pytest.raises(ValueError, match="method='qdwh' must be 'qr' or 'gram'"):
    dist.polar(x, method="qdwh")


@pytest.mark.extended
@pytest.mark.parametrize("layout,dtype", [
    ("both", np.complex128), ("rows", np.float64), ("columns", np.float32)])
def test_square(layout, dtype, rng):
  """Square matrices on several devices, of any rank and scale, have LAPACK's limits."""
  n = 40
  a = matrices.general(rng, (), n, n, dtype)
  u, _, vh = np.linalg.svd(a)
  ill = (u * np.logspace(0, -20, n).astype(dtype)) @ vh
  scale = 150 if np.finfo(dtype).bits == 64 else 30
  host = {
      "general": a, "rank 3": a[:, :3] @ a[:3], "zero": np.zeros_like(a), "ill": ill,
      "identity": np.eye(n, dtype=dtype), "tiny": a * dtype(10.0**-scale),
      "huge": a * dtype(10.0**scale)}
  eps = float(np.finfo(dtype).eps)
  for a in host.values():
    x = one_matrix.place(a, layout)
    u, p = dist.polar(x)
    assert u.sharding.is_equivalent_to(x.sharding, 2)
    assert p.sharding.is_equivalent_to(x.sharding, 2)
    u, size = np.asarray(u), np.abs(a).max() or 1
    p, a = np.asarray(p) / size, a / size
    assert np.linalg.norm(u.conj().T @ u - np.eye(n), 1) <= 60 * n * eps
    assert np.linalg.norm(a - u @ p, 1) <= 60 * n * eps * max(np.linalg.norm(a, 1), 1)
    np.testing.assert_array_equal(p, p.conj().T)
    assert np.linalg.eigvalsh(p)[0] >= -60 * n * eps


@pytest.mark.extended
@pytest.mark.parametrize("dtype,kind", [
    (np.complex128, AxisType.Explicit), (np.float64, AxisType.Auto)])
def test_derivatives_of_square(dtype, kind, rng):
  """Forward over reverse equals that of `linalg.polar`, and no device holds the matrix."""
  n = 24
  host = [matrices.general(rng, (), n, n, dtype) for _ in range(2)]
  lie = [one_matrix.place(x, "both", kind) for x in host]

  def derivatives(polar):
    def loss(a):
      u, p = polar(a)
      return jnp.sum(jnp.abs(u + 0.3) ** 3) + jnp.sum(jnp.abs(p + 0.3) ** 3)

    return lambda a, da: jax.jvp(jax.grad(loss), (a,), (da,))

  expected = quick_jit(derivatives(linalg.polar))(*host)
  with jax.set_mesh(lie[0].sharding.mesh):
    program = quick_compile(
        derivatives(lambda a: dist.polar(a, axes=one_matrix.AXES)), lie)
  for x, y in zip(program(*lie), expected, strict=True):
    close(x, y, dtype, 1e7)
  assert f"[{n},{n}]" not in program.as_text()


@pytest.mark.parametrize("kind", [
    AxisType.Explicit, pytest.param(AxisType.Auto, marks=pytest.mark.extended)])
def test_a_sharded_batch_of_square(kind, rng, monkeypatch):
  """The batch is sharded over one axis, and each matrix over two others."""
  monkeypatch.setattr(_polar_cyclic, "_PHASES", 1)
  host = general(rng, 2, 8, 8)
  mesh = make_mesh((2, 2, 2), ("z", "x", "y"), kind)
  x = jax.device_put(host, NamedSharding(mesh, P("z", "x", "y")))

  def both(polar, a):
    def loss(a):
      u, p = polar(a)
      return jnp.sum(u**3) + jnp.sum(p**3), (u, p)

    return jax.grad(loss, has_aux=True)(a)

  # On Auto axes the layout is read from the array, and `jax.jit` would hide it.
  compiled = quick_jit if kind == AxisType.Explicit else lambda f: f
  with jax.set_mesh(mesh):
    found = compiled(functools.partial(both, dist.polar))(x)
  for mine, expected in zip(
      jax.tree.leaves(found), jax.tree.leaves(both(linalg.polar, jnp.asarray(host))), strict=True):
    close(mine, expected, np.float64, 1e5)


@pytest.mark.extended
def test_derivatives_at_a_singular_matrix(monkeypatch):
  """One singular value is exactly 0. The derivatives of a real matrix are finite, and linalg's."""
  monkeypatch.setattr(_polar_cyclic, "_PHASES", 1)
  a = np.diag([2.0, 0.0])

  def loss(polar, a):
    u, p = polar(a)
    weights = np.array([[1.0, 2.0], [4.0, 8.0]])
    return jnp.sum(weights * u + 3 * weights.T**2 * p), u

  expected, sign = jax.grad(functools.partial(loss, linalg.polar), has_aux=True)(jnp.asarray(a))
  mesh = make_mesh((2,), ("x",), AxisType.Explicit)
  x = jax.device_put(a, NamedSharding(mesh, P("x", None)))
  with jax.set_mesh(mesh):
    found, u = quick_jit(jax.grad(functools.partial(loss, dist.polar), has_aux=True))(x)
  close(u, sign, np.float64)
  close(found, expected, np.float64)


@pytest.mark.parametrize("spec", [P("x", "y"), P(("x", "y"), None)])
def test_an_empty_matrix(spec):
  mesh = make_mesh((4, 2), ("x", "y"), AxisType.Explicit)
  found = dist.polar(jax.device_put(np.zeros((0, 0)), NamedSharding(mesh, spec)))
  assert [x.shape for x in found] == [(0, 0), (0, 0)]
