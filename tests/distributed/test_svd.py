"""Singular values and vectors of matrices of any shape that several devices share, and
pseudo-inverses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg
import linalg.distributed as dist
import matrices
from one_matrix import AXES, close, counted, mesh_of, place
from quick import quick_compile, quick_jit
from sharded import make_mesh

# A longer dimension of 8 devices would take TSQR.
SHAPES = [(24, 24), (32, 24), (16, 24)]


def limits(a, u, s, vh, limit=60):
  """LAPACK's, for the residual, the vectors and the values, which descend."""
  u, s, vh = map(np.asarray, (u, s, vh))
  size, eps = np.abs(a).max() or 1, np.finfo(a.dtype).eps
  a, s = a / size, s / size
  bound = limit * max(a.shape) * eps
  assert (np.diff(s) <= 0).all() and (s >= 0).all()
  assert np.linalg.norm(a - (u * s) @ vh, 1) <= bound * max(np.linalg.norm(a, 1), 1)
  for q in (u, vh.conj().T):
    assert np.linalg.norm(q.conj().T @ q - np.eye(len(s)), 1) <= bound
  np.testing.assert_allclose(
      s, np.linalg.svd(a, compute_uv=False), rtol=0, atol=bound * max(np.linalg.norm(a, 2), 1))


def types(rng, m, n):
  k = np.arange(min(m, n))
  a = rng.standard_normal((m, n))
  kahan = np.zeros((m, n))
  kahan[: len(k), : len(k)] = 0.285 ** k[:, None] * (
      np.eye(len(k)) - np.sqrt(1 - 0.285**2) * np.triu(np.ones((len(k), len(k))), 1))
  values = lambda s: matrices.with_singular_values(rng, s, m, n, np.float64)
  return {
      "general": a, "kahan": kahan, "rank 3": a[:, :3] @ rng.standard_normal((3, n)),
      "zero": np.zeros((m, n)), "identity": np.eye(m, n), "ones": np.ones((m, n)),
      "tiny": a * 1e-150, "huge": a * 1e150, "equal": values(np.where(k < 5, 1.0, 0.5)),
      "graded": values(np.logspace(0, -20, len(k)))}


@pytest.mark.extended
@pytest.mark.parametrize("m,n", SHAPES)
def test_types(m, n, rng):
  """One program computes all of them."""
  call = None
  for a in types(rng, m, n).values():
    x = place(a, "both")
    with jax.set_mesh(x.sharding.mesh):
      call = call or quick_jit(lambda a: (*dist.svd(a, axes=AXES), dist.svdvals(a, axes=AXES)))
      *found, values = call(x)
    limits(a, *found)
    size = np.abs(a).max() or 1
    close(np.asarray(values) / size, np.asarray(found[1]) / size, np.float64)


@pytest.mark.parametrize("layout,m,n,dtype", [
    ("both", 24, 24, np.complex128),
    *[pytest.param(*x, marks=pytest.mark.extended) for x in (
        ("rows", 24, 24, np.float32), ("columns", 24, 24, np.complex64),
        ("turned", 24, 32, np.float64), ("both", 40, 24, np.float64),
        *(("both", n, n, np.float64) for n in (1, 2, 3, 13, 41, 130)))]])
def test_results_in_a_grid(layout, m, n, dtype, rng, in_a_grid):
  """Triplets, and values alone, also of sizes that no panel divides."""
  a = matrices.general(rng, (), m, n, dtype)
  mesh, spec = mesh_of(layout)
  axes = tuple(spec) + (None,) * (2 - len(spec))
  with jax.set_mesh(mesh):
    u, s, vh, values = quick_jit(
        lambda a: (*dist.svd(a, axes=axes), dist.svdvals(a, axes=axes)))(a)
  limits(a, u, s, vh)
  close(values, s, np.finfo(dtype).dtype)


@pytest.mark.extended
def test_types_in_a_grid(rng, in_a_grid):
  call = None
  for a in types(rng, 24, 24).values():
    x = place(a, "both")
    with jax.set_mesh(x.sharding.mesh):
      call = call or quick_jit(lambda a: tuple(dist.svd(a, axes=AXES)))
      limits(a, *call(x))


@pytest.mark.extended
@pytest.mark.parametrize("layout,m,n,dtype,kind", [
    ("both", 24, 24, np.complex128, AxisType.Explicit),
    ("turned", 24, 32, np.float32, AxisType.Auto),
    ("rows", 32, 24, np.complex64, AxisType.Explicit),
    ("rows twice", 24, 24, np.float64, AxisType.Auto),
    ("columns", 24, 24, np.complex128, AxisType.Explicit),
    ("some", 24, 24, np.float64, AxisType.Explicit)])
def test_layouts(layout, m, n, dtype, kind, rng):
  a = matrices.general(rng, (), m, n, dtype)
  x = place(a, layout, kind)
  u, s, vh = dist.svd(x)
  limits(a, u, s, vh)
  assert u.sharding.is_equivalent_to(x.sharding, 2)
  assert vh.sharding.is_equivalent_to(x.sharding, 2)
  assert s.sharding.is_fully_replicated and s.dtype == np.finfo(dtype).dtype
  assert u.dtype == vh.dtype == dtype


@pytest.mark.extended
def test_nan_in_a_batch(rng):
  """NaN in one matrix leaves the bits of the others."""
  a = rng.standard_normal((3, 16, 16))
  bad = a.copy()
  bad[1, 3, 4] = np.nan
  mesh = place(a[0], "both").sharding.mesh
  put = lambda a: jax.device_put(
      a, NamedSharding(mesh, P(None, "x", "y")))
  with jax.set_mesh(mesh):
    call = quick_jit(lambda a: dist.svd(a, axes=AXES))
    good, found = call(put(a)), call(put(bad))
  for part, other in zip(good, found, strict=True):
    part, other = np.array(part), np.array(other)
    assert np.isnan(other[1]).all()
    other[1] = part[1]
    np.testing.assert_array_equal(part, other)
  for matrix, *parts in zip(a, *map(np.asarray, good), strict=True):
    limits(matrix, *parts)


@pytest.mark.parametrize("m, axes", [(64, "x"), pytest.param(
    8, (("x",), None), marks=pytest.mark.extended)], ids=["tall", "square"])
def test_scales_of_derivatives(m, axes, rng):
  """Products of two pseudo-inverses leave the range where the derivative does not."""
  a = matrices.with_singular_values(rng, np.logspace(0, -2, 8), m, 8, np.float32).astype(np.float32)
  da = matrices.general(rng, (), m, 8, np.float32)
  mesh, _ = mesh_of("rows")

  def derivative(scale):
    call = lambda a: dist.pinv(scale * a, axes=axes) * scale
    return jax.jvp(call, (a,), (da,))

  with jax.set_mesh(mesh):
    program = quick_jit(derivative)
    of_one = program(np.float32(1))
    for power in (60, -60):
      for found, expected in zip(program(np.float32(2.0**power)), of_one, strict=True):
        close(found, expected, np.float32, 10)


@pytest.mark.extended
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
@pytest.mark.parametrize("m,n", [(8, 8), (16, 8), (8, 16)])
def test_a_sharded_batch(m, n, kind, rng):
  """The batch lies on one axis of the mesh, and the matrices on others."""
  check_sharded_batch(m, n, kind, rng)


@pytest.mark.extended
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_a_sharded_batch_in_a_grid(kind, rng, in_a_grid):
  check_sharded_batch(8, 16, kind, rng)


def check_sharded_batch(m, n, kind, rng):
  mesh = make_mesh((2, 2, 2), ("z", "x", "y"), kind)
  place_batch = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P("z", *spec)))
  a, b = rng.standard_normal((2, m, n)), rng.standard_normal((2, m, 2))
  x, rhs = place_batch(a, "x", "y"), place_batch(b, "x")
  u, s, vh, info = dist.svd_ex(x)
  for matrix, *parts in zip(a, u, s, vh, strict=True):
    limits(matrix, *parts)
  assert u.sharding.is_equivalent_to(x.sharding, 3) and vh.sharding.is_equivalent_to(x.sharding, 3)
  for found in (s, info):
    assert found.sharding.is_equivalent_to(NamedSharding(mesh, P("z")), found.ndim)
  np.testing.assert_array_equal(info, [0, 0])
  close(dist.svdvals(x), linalg.svdvals(a), np.float64)
  close(dist.pinv(x), np.linalg.pinv(a), np.float64, 1e5)
  for mine, theirs in zip(dist.lstsq(x, rhs), linalg.lstsq(a, b), strict=True):
    close(mine, theirs, np.float64, 1e5)
  with jax.set_mesh(mesh):
    program = quick_compile(lambda a: dist.svd(a, axes=AXES), (x,))
  assert f"f64[2,{m},{n}]" not in program.as_text()


@pytest.mark.parametrize("shape", [(8, 8), pytest.param((64, 4), marks=pytest.mark.extended)])
def test_info(shape):
  """It is -1 for a matrix that holds NaN, whichever algorithm computes it."""
  mesh = make_mesh((8,), ("x",))
  a = np.full(shape, np.nan)
  *found, info = dist.svd_ex(jax.device_put(a, NamedSharding(mesh, P("x"))))
  assert info == -1 and info.dtype == np.int32 and info.sharding.is_fully_replicated
  assert all(np.isnan(x).all() for x in found)


@pytest.mark.parametrize("name", ["svd", pytest.param("svdvals", marks=pytest.mark.extended),
                                  pytest.param("pinv", marks=pytest.mark.extended), "lstsq"])
def test_checked(name):
  mesh = make_mesh((1, 1), ("x", "y"), devices=jax.devices()[:1])
  x = jax.device_put(np.full((8, 8), np.nan), NamedSharding(mesh, P("x", "y")))
  with pytest.raises(linalg.LinAlgError, match=f"{name}: the matrix .* has no singular values"):
    linalg.checked(lambda a: getattr(dist, name)(
        a, *[np.ones((8, 1))] * (name == "lstsq"), axes=AXES))(x)


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0)])
def test_empty_matrices(shape):
  a, b = np.zeros(shape), np.ones((shape[0], 2))
  with jax.set_mesh(make_mesh((4, 2), ("x", "y"))):
    found = [dist.svd(a, axes=AXES), dist.svdvals(a, axes=AXES), dist.pinv(a, axes=AXES),
             dist.lstsq(a, b, axes=AXES)]
  expected = [linalg.svd(a, full_matrices=False), linalg.svdvals(a), linalg.pinv(a),
              linalg.lstsq(a, b)]
  for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    assert x.dtype == y.dtype
    np.testing.assert_array_equal(x, y)


def loss(library, a, **options):
  """Invariant to the phases of pairs of vectors."""
  u, s, vh = library.svd(a, **options)
  weights = jnp.arange(1.0, s.shape[-1] + 1)
  turned = (u * (weights * s)[None].astype(u.dtype)) @ vh
  return jnp.sum(jnp.abs(turned + 0.3) ** 3) + jnp.sum(jnp.sin(s))


@pytest.mark.extended
@pytest.mark.parametrize("m,n,dtype", [
    (16, 16, np.complex128), (24, 16, np.float64), (16, 24, np.complex128)])
def test_derivatives(m, n, dtype, rng):
  """Forward over reverse is that of `linalg.svd`, and that of singular values too."""
  host = [matrices.general(rng, (), m, n, dtype) for _ in range(2)]
  lie = [place(x, "both", AxisType.Auto) for x in host]

  def derivatives(library, **options):
    both = lambda a: loss(library, a, **options) + jnp.sum(
        library.svdvals(a, **{k: v for k, v in options.items() if k == "axes"}) ** 3)
    return lambda a, da: jax.jvp(jax.grad(both), (a,), (da,))

  expected = quick_jit(derivatives(linalg, full_matrices=False))(*host)
  with jax.set_mesh(lie[0].sharding.mesh):
    found = quick_jit(derivatives(dist, axes=AXES))(*lie)
  for mine, theirs in zip(found, expected, strict=True):
    close(mine, theirs, dtype, 1e7)


@pytest.mark.extended
@pytest.mark.parametrize("m,n", SHAPES)
def test_pseudo_inverse(m, n, rng):
  """`pinv` and `lstsq` are linalg's, at full rank and below it, with derivatives."""
  full = rng.standard_normal((m, n))
  low = full[:, :3] @ full[:3]
  b = rng.standard_normal((m, 2))
  for a in (full, low):
    x = place(a, "both")
    close(dist.pinv(x), np.linalg.pinv(a), np.float64, 1e5)
    for mine, theirs in zip(dist.lstsq(x, b), linalg.lstsq(a, b), strict=True):
      close(mine, theirs, np.float64, 1e5)
  call = lambda library, **axes: jax.grad(lambda a: jnp.sum(jnp.sin(library.pinv(a, 1e-9, **axes))))
  with jax.set_mesh(x.sharding.mesh):
    found = quick_jit(call(dist, axes=AXES))(place(full, "both"))
  close(found, quick_jit(call(linalg))(full), np.float64, 1e6)


@pytest.mark.extended
@pytest.mark.parametrize("name,layout,n,shares,words", [
    ("svd", "both", 1024, 8, 9), ("svd", "columns", 1000, 8.5, 9.5),
    ("svdvals", "both", 1024, 5, 5)])
def test_memory_and_words(name, layout, n, shares, words, all_phases):
  held, received, _ = counted(
      lambda a: jax.tree.leaves(getattr(dist, name)(a)), NamedSharding(
          *mesh_of(layout, AxisType.Explicit)), n)
  assert held <= shares and received <= words
