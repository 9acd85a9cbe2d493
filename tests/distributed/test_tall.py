"""Tall matrices whose rows are sharded: results are linalg's, sharded like the rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import cases
import linalg
import linalg.distributed as dist
import matrices
import selection
from one_matrix import close
from quick import quick_compile, quick_jit
from sharded import KINDS, make_mesh, with_kinds

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
  """Each matrix is on all devices, or on all of those that share it in a batch."""
  return not any(axis for x in arrays for axis in tuple(x.sharding.spec)[x.ndim - 2 :])


@selection.one_in(2)
@with_kinds("layout", LAYOUTS)
@cases.each_dtype(np.complex128, np.float32)
def test_results(layout, kind, dtype, rng):
  """Signs are LAPACK's. Q and U are sharded like A; other results are on all devices."""
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


@pytest.mark.parametrize(
    "devices", [1, 8, *(pytest.param(x, marks=pytest.mark.extended) for x in (2, 4))])
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


FEW = pytest.mark.parametrize("layout,kind", [
    pytest.param(layout, kind, id=f"{layout}-{kind.name}", marks=()
                 if (layout, kind.name) == ("batch", "Explicit") else pytest.mark.extended)
    for layout in LAYOUTS for kind in (AxisType.Auto, AxisType.Explicit)])


@FEW
def test_pseudo_inverses(layout, kind, rng):
  """The longer dimension is sharded like the matrix's, for any rank and for wide matrices."""
  batch = (2,) if layout == "batch" else ()
  low = general(rng, *batch, ROWS, 2, dtype=np.complex128)
  low = low @ general(rng, *batch, 2, N, dtype=np.complex128)
  for a in (general(rng, *batch, ROWS, N, dtype=np.complex128), low):
    x = place(a, layout, kind)
    found, wide = dist.pinv(x), dist.pinv(jnp.swapaxes(x, -2, -1))
    expected = linalg.pinv(a)
    close(found, expected, np.complex128)
    close(wide, np.swapaxes(expected, -2, -1), np.complex128)
    assert wide.sharding.is_equivalent_to(x.sharding, x.ndim)
    assert found.mT.sharding.is_equivalent_to(x.sharding, x.ndim)
  kept = np.linalg.matrix_rank(dist.pinv(x, rtol=0.999))
  np.testing.assert_array_equal(kept, np.ones(batch))


def decaying(rng, *shape, rate=4.0):
  """Singular values rate⁻ⁱ."""
  u, _, vh = np.linalg.svd(general(rng, *shape, dtype=np.complex128), full_matrices=False)
  return u * rate ** -np.arange(u.shape[-1]) @ vh


KEY = jax.random.key(0)


@FEW
def test_randomized_svd(layout, kind, rng):
  """The leading singular triplets are right, and so are their shardings and the remainder."""
  batch = (2,) if layout == "batch" else ()
  a = decaying(rng, *batch, ROWS, 12)
  x = place(a, layout, kind)
  u, s, vh, error = dist.randomized_svd(x, 3, KEY, oversampling=4)
  exact = np.linalg.svd(a, full_matrices=False)
  close(s, exact.S[..., :3], np.complex128)
  left_out = np.sqrt(np.sum(exact.S[..., 3:] ** 2, axis=-1))
  np.testing.assert_allclose(error, left_out, rtol=1e-9)
  projection = np.asarray(u) @ np.swapaxes(np.asarray(u), -2, -1).conj() @ a
  close(np.asarray(u) * np.asarray(s)[..., None, :] @ np.asarray(vh), projection, np.complex128)
  assert u.sharding.is_equivalent_to(x.sharding, x.ndim) and is_whole(vh)


@pytest.mark.extended
def test_randomized_svd_within_its_bound(rng):
  """Theorem 10.5 of Halko, Martinsson and Tropp holds for a spectrum that hardly decays.

  The bound holds for the mean over keys. No singular value is off by more than the error.
  """
  rank, oversampling, turns = 4, 4, 50
  a = np.real(decaying(rng, ROWS, 24, rate=1.1))
  x = place(a, "one", AxisType.Auto)
  s = np.linalg.svd(a, compute_uv=False)
  best = np.sum(s[rank:] ** 2)
  squares = []
  for seed in range(turns):
    found = dist.randomized_svd(
        x, rank + oversampling, jax.random.key(seed), oversampling=0, power_iterations=0)
    squares.append(found.error**2)
    below = s[: rank + oversampling] - found.S
    assert np.all(below >= -1e-12) and np.all(below <= found.error)
  assert 0.5 * best < np.mean(squares) <= (1 + rank / (oversampling - 1)) * best
  better = dist.randomized_svd(x, rank, KEY, oversampling=oversampling, power_iterations=8)
  assert best <= better.error**2 <= 1.01 * best


@pytest.mark.extended
def test_randomized_svd_of_extremes(rng):
  """Results are right for matrices of low rank, wide and tiny ones, all columns, half precision and
  NaN.

  NaN stays in its own matrix.
  """
  low = general(rng, ROWS, 1, dtype=np.float64) @ general(rng, 1, N, dtype=np.float64)
  u, s, vh, error = dist.randomized_svd(place(low, "one", AxisType.Auto), N, KEY)
  close(np.asarray(u).T @ u, np.eye(N), np.float64)
  close(np.asarray(u) * np.asarray(s) @ np.asarray(vh), low, np.float64)
  assert error < 1e-12
  wide = general(rng, 8, ROWS, dtype=np.float64) * 1e-200
  found = dist.randomized_svd(place(wide, "one", AxisType.Auto), 2, KEY)
  expected = np.linalg.svd(wide, compute_uv=False)
  np.testing.assert_allclose(found.S, expected[:2], rtol=1e-12)
  np.testing.assert_allclose(found.error / 1e-200, np.linalg.norm(expected[2:] / 1e-200), rtol=1e-9)
  bad = general(rng, 2, ROWS, N, dtype=np.float32)
  bad[1, 5, 1] = np.nan
  x = jnp.asarray(place(bad, "batch", AxisType.Auto), jnp.bfloat16)
  for part in dist.randomized_svd(x, 2, KEY):
    part = np.asarray(part, np.float32)
    assert np.isnan(part[1]).all() and not np.isnan(part[0]).any()


def test_what_a_randomized_svd_moves(rng):
  """Small matrices move, and iterations do not make the program longer."""
  x = place(general(rng, 4096, 32, dtype=np.float64), "one", AxisType.Auto)
  found = []
  for iterations in (2, 4):
    call = lambda a, iterations=iterations: dist.randomized_svd(
        a, 2, KEY, oversampling=2, power_iterations=iterations, axes="x")[:3]
    with jax.set_mesh(x.sharding.mesh):
      program = jax.jit(call).lower(x).compile()
    found.append(len(program.as_text().splitlines()))
    words = (iterations + 1) * (32 * 4 + 8 * 4**2)  # Aᴴ Q, and the R of all devices
    assert dist.report(program).moved == words * 8
  assert found[0] == found[1]


def test_tree(rng, monkeypatch):
  """Beyond eight devices the R factors are combined in pairs; here, beyond one."""
  monkeypatch.setattr(dist._tall, "_GATHERED", 1)
  a = general(rng, ROWS, N, dtype=np.complex128)
  x = place(a, "both", AxisType.Auto)
  rows = dist._tall.Rows(dist._tall.rows_of("qr", x, None), ROWS, N)
  q, r = jax.jit(dist._tall._qr.fun, static_argnums=0)(rows, x)
  for mine, theirs in zip((q, r), linalg.qr(a), strict=True):
    close(mine, theirs, np.complex128)
  values = jax.jit(dist._tall._svdvals.fun, static_argnums=0).lower(rows, x).compile()
  close(values(x), linalg.svdvals(a), np.complex128)
  assert dist.report(values).collectives["collective-permute"] == 3


def test_tree_of_fewer_rows_than_columns(rng, monkeypatch):
  """Rows of neighbors are combined before their R factors: no device has the matrix."""
  monkeypatch.setattr(dist._tall, "_GATHERED", 1)
  m, n = 16, 5
  a = general(rng, m, n, dtype=np.float64)
  x = place(a, "both", AxisType.Auto)
  rows = dist._tall.Rows(dist._tall.rows_of("qr", x, None), m, n)
  program = jax.jit(dist._tall._qr.fun, static_argnums=0).lower(rows, x).compile()
  for mine, theirs in zip(program(x), linalg.qr(a), strict=True):
    close(mine, theirs, np.float64)
  assert dist.report(program).collectives["collective-permute"] == 3
  assert f"f64[{m},{n}]" not in program.as_text()
  r = jax.jit(jax.shard_map(
      lambda a: dist._tall._r(a, ("x", "y")), mesh=x.sharding.mesh, in_specs=x.sharding.spec,
      out_specs=P()))(x)
  close(abs(np.diag(r)), abs(np.diag(linalg.qr(a, "r"))), np.float64)


@pytest.mark.parametrize("n,dtype", [(5, np.float64), (16, np.float64), (16, np.complex128)])
def test_fewer_rows_than_columns_on_a_device(n, dtype, rng):
  """The last reflector of a real square matrix is the identity."""
  a = general(rng, 16, n, dtype=dtype)
  q, r = dist.qr(place(a, "one", AxisType.Auto))
  for mine, theirs in zip((q, r), linalg.qr(a), strict=True):
    close(mine, theirs, dtype)


@pytest.mark.extended
@KINDS
def test_empty(kind):
  """Results are linalg's for a matrix without columns and for no right-hand sides."""
  mesh = make_mesh(kind=kind)
  a, b, full = np.ones((16, 0)), np.ones((16, 2)), np.ones((16, N))
  x, y, z = (jax.device_put(v, NamedSharding(mesh, P("x"))) for v in (a, b, full))
  with jax.set_mesh(mesh):
    found = (
        dist.qr(x), dist.qr(x, "r"), dist.svd(x), dist.svdvals(x), dist.pinv(x), dist.pinv(x.T),
        dist.lstsq(x, y), dist.lstsq(z, y[:, :0]))
  expected = (
      linalg.qr(a), linalg.qr(a, "r"), linalg.svd(a, full_matrices=False), linalg.svdvals(a),
      linalg.pinv(a), linalg.pinv(a.T), linalg.lstsq(a, b), linalg.lstsq(full, b[:, :0]))
  for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
    if mine.size:
      close(mine, theirs, np.float64)


@pytest.mark.parametrize("spec", [None, P()], ids=["NumPy", "whole"])
def test_right_hand_sides_that_lie_otherwise(spec, rng):
  """On Explicit axes, right-hand sides are resharded like the rows of A, inside `jit` too."""
  a, b = general(rng, ROWS, N, dtype=np.float64), general(rng, ROWS, 8, dtype=np.float64)
  mesh = make_mesh(kind=AxisType.Explicit)
  x = jax.device_put(a, NamedSharding(mesh, P("x")))
  y = b if spec is None else jax.device_put(b, NamedSharding(mesh, spec))
  expected = linalg.lstsq(a, b)
  with jax.set_mesh(mesh):
    inside = jax.jit(dist.lstsq)(x, y)
  for found in (dist.lstsq(x, y), inside):
    for mine, theirs in zip(found, expected, strict=True):
      close(mine, theirs, np.float64)
  close(dist.lstsq(x, b[:, 0])[0], expected[0][:, 0], np.float64)


@pytest.mark.parametrize("batch", [None, pytest.param("x", marks=pytest.mark.extended)])
def test_axes_of_both_kinds(batch, rng):
  """Inside `jit`, `axes=` names Auto axes of a mesh that has other axes too."""
  mesh = make_mesh((4, 2), ("x", "y"), (AxisType.Explicit, AxisType.Auto))
  a = general(rng, 4, ROWS, N, dtype=np.float64)
  with jax.set_mesh(mesh):
    x = jax.device_put(a, P(batch))
    close(jax.jit(lambda x: dist.qr(x, axes="y").R)(x), linalg.qr(a).R, np.float64)
    with pytest.raises(linalg.ffi.ShardingTypeError, match=r"jax.sharding.reshard\(a, .*'x'"):
      jax.jit(lambda x: dist.qr(x, axes="x"))(jax.device_put(a[0], P()))


def test_ill_conditioned(rng):
  """Q is orthogonal to rounding where normal equations have lost all digits."""
  u = np.linalg.qr(rng.standard_normal((ROWS, N)))[0]
  a = u * 10.0 ** -np.array([0, 8, 15]) @ np.linalg.qr(rng.standard_normal((N, N)))[0]
  q, r = map(np.asarray, dist.qr(place(a, "one", AxisType.Auto)))
  close(q.T @ q, np.eye(N), np.float64, 50)
  close(q @ r, a, np.float64, 50)


def test_lower_rank(rng):
  """The solution is the shortest, the rank is right, and Q is still orthonormal."""
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
  """linalg.lstsq's own rule decides which singular values count as 0."""
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
  x = place(a, "batch", AxisType.Auto)
  for part in (*dist.qr(x), *dist.svd(x), dist.lstsq(x, x)[0]):
    assert np.isnan(np.asarray(part[1])).any() and not np.isnan(np.asarray(part[0])).any()
  half = dist.qr(jnp.asarray(x[:1], jnp.bfloat16))
  assert {y.dtype for y in half} == {jnp.dtype(jnp.bfloat16)}
  close(np.asarray(half.R, np.float32), linalg.qr(a[:1]).R, jnp.bfloat16, 10)


CALLS = {
    "qr": (lambda l, a, b, **axes: tuple(l.qr(a, **axes))),
    "svdvals": (lambda l, a, b, **axes: (l.svdvals(a, **axes),)),
    "lstsq": (lambda l, a, b, **axes: l.lstsq(a, b, **axes)[:2]),
    "polar": (lambda l, a, b, **axes: (_polar(l, a, axes),))}  # svd, without the free phases


def _polar(l, a, axes):
  u, s, vh = l.svd(a, **(axes or {"full_matrices": False}))
  return u @ (jnp.sqrt(s).astype(u.dtype)[..., None] * vh)


def energy(results):
  """Returns a number that depends on the size of every entry of the results."""
  return sum(
      jnp.sum(jnp.abs(x) ** 3 * jnp.cos(jnp.arange(x.shape[-1], dtype=jnp.abs(x).dtype)))
      for x in map(jnp.atleast_1d, results))


@selection.one_in(2)
@selection.extended_for("lstsq", "polar")
@with_kinds("name", CALLS)
@cases.each_double
def test_derivatives(name, kind, dtype, rng):
  """Derivatives are linalg's: forward, reverse, and forward over reverse. No tall array moves."""
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
  small = 8 * N * (N + 2) * np.dtype(dtype).itemsize  # the R of all devices
  assert moved.moved <= small * sum(moved.collectives.values())


ONE_KIND = pytest.mark.parametrize("kind", [
    pytest.param(AxisType.Auto, id="Auto", marks=pytest.mark.extended),
    pytest.param(AxisType.Explicit, id="Explicit")])


@ONE_KIND
@pytest.mark.parametrize("wide", [False, pytest.param(True, marks=pytest.mark.extended)])
def test_derivatives_of_pseudo_inverses(wide, kind, rng):
  """Derivatives are right to second order at lower ranks."""
  low = general(rng, ROWS, 2, dtype=np.float64) @ general(rng, 2, N, dtype=np.float64)
  # The step stays within the matrices of that rank.
  step = low @ general(rng, N, N, dtype=np.float64)
  low, step = (x.T if wide else x for x in (low, step))
  mesh, spec = make_mesh(kind=kind), P(None, "x") if wide else P("x", None)
  x, dx = (jax.device_put(y, NamedSharding(mesh, spec)) for y in (low, step))

  def derivatives(library, **axes):
    loss = lambda a: jnp.sum(library.pinv(a, 1e-9, **axes) ** 3)
    return lambda a, da: jax.jvp(jax.grad(loss), (a,), (da,))

  with jax.set_mesh(mesh):
    found = quick_jit(derivatives(dist, axes="x"))(x, dx)
  for mine, theirs in zip(found, quick_jit(derivatives(linalg))(low, step), strict=True):
    close(mine, theirs, np.float64, 1e6)


@pytest.mark.extended
@ONE_KIND
def test_derivatives_of_randomized_svd(kind, rng):
  """Derivatives are those of the exact triplets, to second order. No tall array moves."""
  a, da = decaying(rng, ROWS, 12, rate=3.0), general(rng, ROWS, 12, dtype=np.complex128)
  lie = [place(x, "both", kind) for x in (a, da)]

  def derivatives(decompose):
    def loss(a):
      u, s, vh = decompose(a)
      # The phases of pairs are free, so the loss does not depend on them.
      return jnp.sum(s**3) + jnp.sum(jnp.abs((u * s.astype(u.dtype) ** 2) @ vh) ** 3)

    return lambda a, da: (jax.grad(loss)(a), jax.jvp(jax.grad(loss), (a,), (da,))[1])

  randomized = lambda a: dist.randomized_svd(
      a, 3, KEY, oversampling=4, power_iterations=8, axes=("x", "y"))[:3]
  exact = lambda a: tuple(
      part[..., :3, :] if i == 2 else part[..., :3]
      for i, part in enumerate(linalg.svd(a, full_matrices=False)))
  with jax.set_mesh(lie[0].sharding.mesh), jax.numpy_rank_promotion("allow"):
    program = quick_compile(derivatives(randomized), lie)
    found = program(*lie)
    expected = quick_jit(derivatives(exact))(a, da)
  for mine, theirs in zip(found, expected, strict=True):
    close(mine, theirs, np.complex128, 1e5)
  moved = dist.report(program)
  assert set(moved.collectives) <= {"all-gather", "all-reduce"}
  assert "c128[48,12]" not in program.as_text()


def test_what_moves(rng):
  """The program has one gather of R factors, also for x and the rank.

  For linalg's own function, XLA gathers the matrix.
  """
  x = place(general(rng, 4096, N, dtype=np.float64), "one", AxisType.Auto)
  program = jax.jit(lambda a: dist.svdvals(a, axes="x"))
  with jax.set_mesh(x.sharding.mesh):
    found = dist.report(program.lower(x).compile())
  assert found.collectives == {"all-gather": 1} and found.moved == 8 * N * N * 8
  assert found.temporaries < 4096 * N * 8
  solution = jax.jit(lambda a: dist.lstsq(a, a[:, :2], axes="x")[::2])  # x and the rank
  with jax.set_mesh(x.sharding.mesh):
    found = dist.report(solution.lower(x).compile())
  assert found.collectives == {"all-gather": 1} and found.moved == 8 * (N + 2) ** 2 * 8
  gathered = dist.report(jax.jit(linalg.svdvals).lower(x).compile())
  assert gathered.moved >= 4096 * N * 8


def test_vmap(rng):
  """`vmap` works over a dimension that is not sharded."""
  a = general(rng, 2, ROWS, N, dtype=np.float64)
  mesh = make_mesh()
  x = jax.device_put(a, NamedSharding(mesh, P(None, "x", None)))
  with jax.set_mesh(mesh):
    close(jax.jit(jax.vmap(dist.svdvals))(x), linalg.svdvals(a), np.float64)


@pytest.mark.extended
@KINDS
@pytest.mark.parametrize("function", [
    lambda library, a: library.qr(a)[0], lambda library, a: library.svdvals(a),
    lambda library, a: library.lstsq(a, jnp.sin(a[:, 0]))[0], lambda library, a: library.pinv(a)],
    ids=["qr", "svdvals", "lstsq", "pinv"])
def test_derivatives_under_vmap(function, kind, rng):
  """`vmap` works over a dimension that is not sharded, for values and gradients."""
  a = general(rng, 2, ROWS, N, dtype=np.float64)
  mesh = make_mesh(kind=kind)
  x = jax.device_put(a, NamedSharding(mesh, P(None, "x", None)))

  def both(library):
    loss = lambda a: jnp.sum(function(library, a) ** 3)
    return quick_jit(jax.vmap(jax.value_and_grad(loss)))

  with jax.set_mesh(mesh):
    found = both(dist)(x)
  for mine, theirs in zip(found, both(linalg)(a), strict=True):
    close(mine, theirs, np.float64, 1e4)


@pytest.mark.parametrize("call,error,message", [
    *[(lambda x, axes=axes: dist.qr(x, axes=axes), ValueError, "must be different axes")
      for axes in ("z", ("x", "x"), ("x", 3), 3, ())],
    (lambda x: dist.qr(x, "complete"), NotImplementedError, "'reduced' and 'r'"),
    (lambda x: dist.lstsq(x, x[:8]), ValueError, "Incompatible shapes"),
    (lambda x: dist.svd(np.ones(8)), ValueError, "must have shape"),
    (lambda x: dist.qr(jnp.ones((16, 8)).at[0].set(1)), ValueError, "needs a mesh"),
    (lambda x: dist.qr(x, axes=x), TypeError, "axes as an option"),
    (lambda x: dist.randomized_svd(x, N + 1, KEY), ValueError, "rank=4 must be from 1 to 3"),
    (lambda x: dist.randomized_svd(x, 2, KEY, oversampling=-1), ValueError, "not be negative"),
])
def test_errors(call, error, message, rng):
  x = place(general(rng, ROWS, N, dtype=np.float64), "one", AxisType.Auto)
  with pytest.raises(error, match=message):
    call(jax.device_put(np.asarray(x), x.sharding))


def test_sharded_otherwise():
  """On Explicit axes, the type says that the dimension is not sharded."""
  mesh = make_mesh(kind=AxisType.Explicit)
  x = jax.device_put(np.ones((ROWS, N)), NamedSharding(mesh, P()))
  for call, at in ((dist.qr, x), (dist.pinv, x.T), (lambda x: dist.svd(x, axes="x"), x)):
    with pytest.raises(linalg.ffi.ShardingTypeError, match=r"jax.sharding.reshard\(a, .*'x'"):
      call(at)


@pytest.mark.extended
def test_uneven(rng):
  """No device has all rows, for uneven rows inside `jit` on Auto axes."""
  m = ROWS - 3
  a, b = general(rng, m, N, dtype=np.float64), general(rng, m, 2, dtype=np.float64)
  mesh = make_mesh()

  def values(library, a, b, **options):
    # Arrays made here, sharded by rows, are never results of the program.
    a, b = jnp.sin(a), jnp.cos(b)
    q = library.qr(a)[0]
    p = library.pinv(a).mT
    u = library.svd(a, **options)[0]
    return (
        jnp.sum(q**3, axis=0), jnp.sum(p**3, axis=0), jnp.sum(u**4, axis=0),
        library.svdvals(a), *library.lstsq(a, b)[:3])

  def loss(a, b):
    q, r = dist.qr(a)
    return jnp.sum(q**3) + jnp.sum(dist.lstsq(a, b)[0] ** 3) + jnp.sum(r)

  with jax.set_mesh(mesh):
    found = quick_jit(functools.partial(values, dist))(a, b)
    gradient = quick_jit(jax.grad(loss, (0, 1)))(a, b)
    triplets = dist.randomized_svd(a, 2, KEY)
  for mine, theirs in zip(found, values(linalg, a, b, full_matrices=False), strict=True):
    close(mine, theirs, np.float64)
  close(triplets.S, np.linalg.svd(a, compute_uv=False)[:2], np.float64)
  assert triplets.U.shape == (m, 2)
  even = [jax.device_put(np.pad(x, ((0, 3), (0, 0))), NamedSharding(mesh, P("x"))) for x in (a, b)]
  for mine, theirs in zip(gradient, quick_jit(jax.grad(loss, (0, 1)))(*even), strict=True):
    close(mine, theirs[:m], np.float64)


def test_uneven_rows_stay_where_they_are(rng):
  """No device has all rows that the program makes."""
  m = 4093
  mesh = make_mesh()

  def energy(t):
    points = jax.lax.with_sharding_constraint(
        jnp.linspace(0.0, 1.0, m + 3), NamedSharding(mesh, P("x")))[:m]
    return jnp.sum(dist.svdvals(jnp.sin(t * points[:, None] * jnp.arange(1.0, 5.0)[None])))

  with jax.set_mesh(mesh):
    program = quick_jit(jax.grad(energy)).lower(1.0).compile()
  assert "f64[4093,4]" not in program.as_text() and "f64[4096,4]" not in program.as_text()


def test_sharded_columns():
  """The ShardingTypeError says how to reshard."""
  mesh = make_mesh(kind=AxisType.Explicit)
  x = jax.device_put(np.ones((16, 8)), NamedSharding(mesh, P(None, "x")))
  with pytest.raises(linalg.ffi.ShardingTypeError, match="jax.sharding.reshard"):
    dist.newton_schulz(x)
