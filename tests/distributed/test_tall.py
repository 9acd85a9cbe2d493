"""Tall matrices whose rows are sharded: what linalg's own functions give, where the rows lie."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import cases
import linalg
import linalg.distributed as dist
import matrices
from quick import quick_compile, quick_jit
from sharded import KINDS, make_mesh

ROWS, N = 48, 3

# The mesh's shape and axes, and those of a batch and of the rows.
LAYOUTS = {
    "one": ((8,), ("x",), None, ("x",)),
    "both": ((4, 2), ("x", "y"), None, ("x", "y")),
    "second": ((2, 4), ("x", "y"), None, ("y",)),
    "batch": ((2, 4), ("x", "y"), "x", ("y",))}


def general(rng, *shape, dtype):
  return matrices.general(rng, shape[:-2], *shape[-2:], dtype)


def place(x, layout, kind):
  shape, names, batch, rows = LAYOUTS[layout]
  spec = P(*[batch] * (x.ndim - 2), rows, None)
  return jax.device_put(x, NamedSharding(make_mesh(shape, names, kind), spec))


def is_whole(*arrays):
  """Each matrix is on all devices; of a batch, on all of those that share it."""
  return not any(axis for x in arrays for axis in tuple(x.sharding.spec)[x.ndim - 2 :])


def close(actual, expected, dtype, factor=1e3):
  expected = np.asarray(expected)
  atol = factor * float(jnp.finfo(dtype).eps) * max(np.max(np.abs(expected), initial=0), 1)
  np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


@KINDS
@pytest.mark.parametrize("layout", LAYOUTS)
@cases.each_dtype(np.complex128, np.float32)
def test_results(layout, kind, dtype, rng):
  """Signs are LAPACK's; Q and U lie where A does, the rest on all devices."""
  batch = (2,) if layout == "batch" else ()
  a = general(rng, *batch, ROWS, N, dtype=dtype)
  b = general(rng, *batch, ROWS, 2, dtype=dtype)
  x, y = place(a, layout, kind), place(b, layout, kind)
  q, r = dist.qr(x)
  u, s, vh = dist.svd(x)
  values = dist.svdvals(x)
  solution, residuals, rank, singular = dist.lstsq(x, y)
  for mine, theirs in zip((q, r), linalg.qr(a), strict=True):
    close(mine, theirs, dtype)
  close(dist.qr(x, "r"), r, dtype)
  expected = linalg.svd(a, full_matrices=False)
  close(np.asarray(u) * np.asarray(s)[..., None, :] @ np.asarray(vh), a, dtype)
  for mine in (s, values, singular):
    assert mine.dtype == np.finfo(dtype).dtype
    close(mine, expected.S, dtype)
  theirs = linalg.lstsq(a, b)
  close(solution, theirs[0], dtype)
  close(residuals, theirs[1], dtype)
  np.testing.assert_array_equal(rank, theirs[2])
  for rows in (q, u):
    assert rows.sharding.is_equivalent_to(x.sharding, x.ndim)
  assert is_whole(r, vh, solution)


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_bits_do_not_depend_on_where_it_is_asked(devices, rng):
  """The type, the array, axes= and a mesh of the context say the same."""
  a = general(rng, ROWS, N, dtype=np.float64)
  mesh = make_mesh((devices,), ("x",), devices=jax.devices()[:devices])
  placed = jax.device_put(a, NamedSharding(mesh, P("x", None)))
  expected = dist.qr(placed)
  with jax.set_mesh(mesh):
    for found in (dist.qr(a), dist.qr(a, axes="x"), jax.jit(dist.qr)(placed)):
      for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


def test_tree(rng, monkeypatch):
  """Beyond eight devices R's are combined by pairs; here, beyond one."""
  monkeypatch.setattr(dist._tall, "_GATHERED", 1)
  a = general(rng, ROWS, N, dtype=np.complex128)
  x = place(a, "both", jax.sharding.AxisType.Auto)
  rows = dist._tall._Rows(dist._tall.rows_of("qr", x, None))
  q, r = jax.jit(dist._tall._qr.fun, static_argnums=0)(rows, x)
  for mine, theirs in zip((q, r), linalg.qr(a), strict=True):
    close(mine, theirs, np.complex128)
  values = jax.jit(dist._tall._svdvals.fun, static_argnums=0).lower(rows, x).compile()
  close(values(x), linalg.svdvals(a), np.complex128)
  assert dist.report(values).collectives["collective-permute"] == 3


def test_fewer_rows_than_columns_on_a_device(rng):
  a = general(rng, 16, 5, dtype=np.float64)
  q, r = dist.qr(place(a, "one", jax.sharding.AxisType.Auto))
  for mine, theirs in zip((q, r), linalg.qr(a), strict=True):
    close(mine, theirs, np.float64)


def test_ill_conditioned(rng):
  """Orthogonal to rounding where normal equations have no digit left."""
  u = np.linalg.qr(rng.standard_normal((ROWS, N)))[0]
  a = u * 10.0 ** -np.array([0, 8, 15]) @ np.linalg.qr(rng.standard_normal((N, N)))[0]
  q, r = map(np.asarray, dist.qr(place(a, "one", jax.sharding.AxisType.Auto)))
  close(q.T @ q, np.eye(N), np.float64, 50)
  close(q @ r, a, np.float64, 50)


def test_lower_rank(rng):
  """The shortest solution, and the rank; Q is orthonormal all the same."""
  a = general(rng, ROWS, 2, dtype=np.float64) @ general(rng, 2, N, dtype=np.float64)
  b = rng.standard_normal(ROWS)
  mesh = make_mesh()
  x, y = (jax.device_put(z, NamedSharding(mesh, P("x"))) for z in (a, b))
  solution, residual, rank, _ = dist.lstsq(x, y)
  expected = np.linalg.lstsq(a, b)
  assert rank == 2 and solution.shape == (N,) and residual.shape == ()
  close(solution, expected[0], np.float64)
  close(residual, np.sum((b - a @ expected[0]) ** 2), np.float64)
  q = np.asarray(dist.qr(x).Q)
  close(q.T @ q, np.eye(N), np.float64)


@pytest.mark.parametrize("dtype,rcond", [(jnp.bfloat16, None), (np.float32, -1), (np.float32, 0.5)])
def test_tolerance(dtype, rcond, rng):
  """Which singular values count as 0 is linalg.lstsq's own rule."""
  a = general(rng, ROWS, 2, dtype=np.float32) @ general(rng, 2, N, dtype=np.float32)
  a, b = (np.asarray(x, dtype) for x in (a, general(rng, ROWS, 2, dtype=np.float32)))
  mesh = make_mesh()
  found = dist.lstsq(*(jax.device_put(x, NamedSharding(mesh, P("x"))) for x in (a, b)), rcond)
  expected = linalg.lstsq(a, b, rcond)
  assert found[2] == expected[2] and found[0].dtype == dtype
  close(np.asarray(found[0], np.float32), np.asarray(expected[0], np.float32), dtype, 1e2)


def test_nan_and_half_precision(rng):
  a = general(rng, 2, ROWS, N, dtype=np.float32)
  a[1, 5, 1] = np.nan
  x = place(a, "batch", jax.sharding.AxisType.Auto)
  for part in (*dist.qr(x), *dist.svd(x), dist.lstsq(x, x)[0]):
    assert np.isnan(np.asarray(part[1])).any() and not np.isnan(np.asarray(part[0])).any()
  half = dist.qr(jnp.asarray(x[:1], jnp.bfloat16))
  assert {y.dtype for y in half} == {jnp.dtype(jnp.bfloat16)}
  close(np.asarray(half.R, np.float32), linalg.qr(a[:1]).R, jnp.bfloat16, 10)


CALLS = {
    "qr": (lambda l, a, b, **axes: tuple(l.qr(a, **axes))),
    "svdvals": (lambda l, a, b, **axes: (l.svdvals(a, **axes),)),
    "lstsq": (lambda l, a, b, **axes: l.lstsq(a, b, **axes)[:2]),
    "polar": (lambda l, a, b, **axes: (_polar(l, a, axes),))}  # of svd, without the open phases


def _polar(l, a, axes):
  u, s, vh = l.svd(a, **(axes or {"full_matrices": False}))
  return u @ (jnp.sqrt(s).astype(u.dtype)[..., None] * vh)


def energy(results):
  """A number that sees every entry of the results by its size."""
  return sum(
      jnp.sum(jnp.abs(x) ** 3 * jnp.cos(jnp.arange(x.shape[-1], dtype=jnp.abs(x).dtype)))
      for x in map(jnp.atleast_1d, results))


@KINDS
@pytest.mark.parametrize("name", CALLS)
@cases.each_double
def test_derivatives(name, kind, dtype, rng):
  """Forward, reverse, and one over the other: linalg's; and nothing tall moves."""
  call = CALLS[name]
  host = [general(rng, ROWS, k, dtype=dtype) for k in (N, 2, N, 2)]
  lie = [place(x, "both", kind) for x in host]

  def derivatives(library, **axes):
    value = lambda a, b: call(library, a, b, **axes)
    loss = lambda a, b: energy(value(a, b))
    gradient = jax.grad(loss, (0, 1))
    slope = lambda a, da, b: jnp.sum((jax.grad(loss)(a, b) * da).real)

    def all_modes(a, b, da, db):
      return jax.jvp(value, (a, b), (da, db))[1], gradient(a, b), jax.grad(slope)(a, da, b)

    return all_modes

  with jax.set_mesh(lie[0].sharding.mesh), jax.numpy_rank_promotion("allow"):
    program = quick_compile(derivatives(dist, axes=("x", "y")), lie)
    found = jax.tree.leaves(program(*lie))
  with jax.numpy_rank_promotion("allow"):
    expected = jax.tree.leaves(quick_jit(derivatives(linalg))(*host))
  for x, y in zip(found, expected, strict=True):
    close(x, y, dtype, 1e5)
  moved = dist.report(program)
  assert set(moved.collectives) <= {"all-gather", "all-reduce"}
  small = 8 * N * (N + 2) * np.dtype(dtype).itemsize  # R's of all devices
  assert moved.moved <= small * sum(moved.collectives.values())


def test_what_moves(rng):
  """One gather of R's; of linalg's own function, XLA gathers the matrix."""
  x = place(general(rng, 4096, N, dtype=np.float64), "one", jax.sharding.AxisType.Auto)
  program = jax.jit(lambda a: dist.svdvals(a, axes="x"))
  with jax.set_mesh(x.sharding.mesh):
    found = dist.report(program.lower(x).compile())
  assert found.collectives == {"all-gather": 1} and found.moved == 8 * N * N * 8
  assert found.temporaries < 4096 * N * 8
  gathered = dist.report(jax.jit(linalg.svdvals).lower(x).compile())
  assert gathered.moved >= 4096 * N * 8


def test_vmap(rng):
  """Over a dimension that no device shares."""
  a = general(rng, 2, ROWS, N, dtype=np.float64)
  mesh = make_mesh()
  x = jax.device_put(a, NamedSharding(mesh, P(None, "x", None)))
  with jax.set_mesh(mesh):
    close(jax.jit(jax.vmap(dist.svdvals))(x), linalg.svdvals(a), np.float64)


@pytest.mark.parametrize("call,error,message", [
    (lambda x: dist.qr(x.mT), ValueError, "m >= n, got"),
    (lambda x: dist.qr(x[:44]), ValueError, "44, must be a multiple of the 8 devices"),
    (lambda x: dist.qr(x, axes="z"), ValueError, "'z' is not"),
    (lambda x: dist.qr(x, "complete"), NotImplementedError, "'reduced' and 'r'"),
    (lambda x: dist.lstsq(x, x[:8]), ValueError, "Incompatible shapes"),
    (lambda x: dist.svd(np.ones(8)), ValueError, "must have shape"),
    (lambda x: dist.qr(jnp.ones((16, 8)).at[0].set(1)), ValueError, "needs a mesh"),
    (lambda x: dist.qr(x, axes=x), TypeError, "axes as an option"),
])
def test_errors(call, error, message, rng):
  x = place(general(rng, ROWS, N, dtype=np.float64), "one", jax.sharding.AxisType.Auto)
  with pytest.raises(error, match=message):
    call(jax.device_put(np.asarray(x), x.sharding))


def test_sharded_columns():
  """The error of types that says how to reshard."""
  mesh = make_mesh(kind=jax.sharding.AxisType.Explicit)
  x = jax.device_put(np.ones((16, 8)), NamedSharding(mesh, P(None, "x")))
  with pytest.raises(linalg.ffi.ShardingTypeError, match="jax.sharding.reshard"):
    dist.qr(x)
