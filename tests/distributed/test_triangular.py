"""Triangular systems with a matrix that several devices share: results are linalg's."""

import functools
import itertools

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
from one_matrix import AXES, LAYOUTS, PANEL, N, close, place
from quick import quick_compile, quick_jit
from sharded import make_mesh

KINDS = (AxisType.Auto, AxisType.Explicit)
# One layout has every system. Each other layout has two systems, of the operator and of its
# transpose or adjoint. One of the two is solved from the first panel on, and the other from the
# last. Kinds of axes, dtypes and vectors alternate.
SYSTEMS = [
    (*system, "both") for system in itertools.product("NTC", (True, False), (True, False))]
SYSTEMS += [
    (trans, lower, unit, layout)
    for layout, lower in zip([x for x in LAYOUTS if x != "both"], itertools.cycle((True, False)))
    for trans, unit in (("N", True), ("C" if lower else "T", False))]
QUICK = {("N", False, True, "columns"), ("C", True, False, "turned")}
TURNS = [
    pytest.param(
        *x, KINDS[i % 2], cases.DTYPES[i // 2 % 4], i % 3 == 0,
        id=f"{x[0]}-{'lower' if x[1] else 'upper'}-{'unit' if x[2] else 'own'}-{x[3]}",
        marks=() if x in QUICK else pytest.mark.extended)
    for i, x in enumerate(SYSTEMS)]


def triangle(rng, lower, unit, dtype, n=N):
  """A well-conditioned triangle, with NaN wherever it is not read."""
  a = matrices.general(rng, (), n, n, dtype) / n + 2 * np.eye(n, dtype=dtype)
  read = np.tril if lower else np.triu
  return np.where(read(np.ones_like(a, bool), (-1 if lower else 1) * unit), a, np.nan)


@pytest.mark.parametrize("trans, lower, unit, layout, kind, dtype, is_vector", TURNS)
def test_results(trans, lower, unit, layout, kind, dtype, is_vector, rng):
  a = triangle(rng, lower, unit, dtype)
  b = matrices.general(rng, (), N, 3, dtype)
  b = b[:, 0] if is_vector else b
  found = dist.solve_triangular(place(a, layout, kind), b, trans, lower, unit, panel=PANEL)
  close(found, linalg.solve_triangular(a, b, trans, lower, unit), dtype)
  assert found.sharding.is_fully_replicated


def derivatives(solve):
  """Returns derivatives in forward, reverse, and forward over reverse mode."""
  loss = lambda a, b: jnp.sum(jnp.abs(solve(a, b)) ** 3)
  gradient = jax.grad(loss, (0, 1))
  return lambda a, b, da, db: (
      jax.jvp(solve, (a, b), (da, db)), jax.jvp(gradient, (a, b), (da, db)))


DERIVATIVES = [
    pytest.param(*x, kind, marks=() if (x, kind) == (("T", False, True), AxisType.Explicit)
                 else pytest.mark.extended, id=f"{x[0]}-{x[1]}-{x[2]}-{kind.name}")
    for x in (("N", True, False), ("T", False, True), ("C", True, True))
    for kind in KINDS]


@pytest.mark.parametrize("trans, lower, unit, kind", DERIVATIVES)
def test_derivatives(trans, lower, unit, kind, rng):
  """Derivatives are linalg's, zero where A is not read; no device holds the matrix."""
  n = 24
  a, da = (triangle(rng, lower, unit, np.complex128, n) for _ in range(2))
  a, da = np.nan_to_num(a), np.nan_to_num(da)
  b, db = (matrices.general(rng, (), n, 2, np.complex128) for _ in range(2))
  options = {"trans": trans, "lower": lower, "unit_diagonal": unit}
  calls = [
      derivatives(functools.partial(library.solve_triangular, **options, **more))
      for library, more in ((dist, {"axes": AXES, "panel": PANEL}), (linalg, {}))]
  lie = place(a, "both", kind), b, place(da, "both", kind), db
  with jax.set_mesh(lie[0].sharding.mesh), jax.numpy_rank_promotion("allow"):
    program = quick_compile(calls[0], lie)
    found = program(*lie)
    expected = quick_jit(calls[1])(a, b, da, db)
  for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    close(x, y, np.complex128, 1e5)
  assert f"c128[{n},{n}]" not in program.as_text()


def test_what_moves():
  """The matrix moves once to the block-cyclic layout; diagonal blocks and sums of right-hand sides
  move too."""
  n, k = 512, 2
  x = place(np.eye(n, dtype=np.float32), "rows")
  call = lambda a, b: dist.solve_triangular(a, b, lower=True, panel=16, axes="x")
  with jax.set_mesh(x.sharding.mesh):
    program = quick_jit(call).lower(x, np.ones((n, k), np.float32)).compile()
  found = dist.report(program)
  assert found.moved <= 4 * (n * n // 8 + 16 * n + n * k)
  assert f"f32[{n},{n}]" not in program.as_text() and found.unknown_loops == 0


def test_a_zero_on_the_diagonal(rng):
  a = np.tril(triangle(rng, True, False, np.float64))
  a[3, 3] = 0
  assert not np.isfinite(dist.solve_triangular(place(a, "both"), np.ones(N), lower=True)).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda x: x.name)
@pytest.mark.parametrize("name,layout,solve", [
    ("solve_triangular", "both", functools.partial(dist.solve_triangular, lower=True)),
    ("solve", "both", dist.solve),
    ("cho_solve", "both", lambda a, b: dist.cho_solve(dist.cho_factor(a), b)),
    ("lstsq", "some", dist.lstsq)])
def test_sharded_columns(name, layout, solve, kind):
  """Right-hand sides with sharded columns are refused, and not gathered."""
  a = place(np.eye(N), layout, kind)
  mesh = a.sharding.mesh
  message = rf"^{name}: the columns of b are sharded, .*jax.sharding.reshard\(b, .*'x', None"
  with pytest.raises(linalg.ffi.ShardingTypeError, match=message):
    solve(a, jax.device_put(np.ones((N, 4)), NamedSharding(mesh, P("x", "y"))))


def test_columns_along_an_axis_of_one_device():
  """Such columns do not count as sharded."""
  alone = NamedSharding(make_mesh((8, 1), ("x", "y")), P("x", "y"))
  a, b = (jax.device_put(x, alone) for x in (np.eye(N), np.ones((N, 4))))
  close(dist.solve_triangular(a, b, lower=True), b, np.float64)


@pytest.mark.parametrize("call,error,message", [
    (lambda x: dist.solve_triangular(x[:8], x[:8]), ValueError, r"one square matrix \[n, n\]"),
    (lambda x: dist.solve_triangular(x, np.ones(8)), ValueError, "Incompatible shapes"),
    (lambda x: dist.solve_triangular(x, np.ones(N), trans=3), ValueError, "trans must be"),
    (lambda x: dist.solve_triangular(np.asarray(x), np.ones(N)), ValueError, "needs a mesh"),
])
def test_errors(call, error, message):
  with pytest.raises(error, match=message):
    call(place(np.eye(N), "both"))
