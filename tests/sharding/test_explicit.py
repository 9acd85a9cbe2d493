"""Meshes with Explicit axes: the types of results, and refusals.

`test_layouts.py` runs most modes on Explicit meshes as well. The tests here are only for them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, auto_axes, explicit_axes
from jax.sharding import PartitionSpec as P

import cases
import linalg
import linalg.ffi
import linalg.scipy
import selection
from quick import quick_compile, quick_jit
from sharded import (
  BATCH,
  SECOND_BATCH,
  N,
  compile_local,
  make_mesh,
  no_collectives,
  nothing_global,
  place,
  same_bits,
  sharded_like,
  unsharded,
)

COMPILES = True
ONE_IN = 3

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto


def _specs(results):
  """The type's sharding of each result, extended to its rank."""
  specs = [(jax.typeof(x).sharding.spec, x.ndim) for x in results]
  return [tuple(spec) + (None,) * (ndim - len(spec)) for spec, ndim in specs]


@selection.in_turn(1)
@pytest.mark.parametrize(
    "shape, batch, spec",
    [((8,), (BATCH,), ("x",)), ((4, 2), (BATCH, SECOND_BATCH), ("x", "y")),
     ((4, 2), (3, BATCH), (None, ("x", "y")))], ids=str)
def test_result_types(case, shape, batch, spec, rng):
  """Catches abstract evaluation that drops the sharding of the batch, traced and in eval_shape."""
  mesh = make_mesh(shape, ("x", "y")[: len(shape)], EXPLICIT)
  operands = place(case.operands(rng, batch, N, N, np.float64), mesh, *spec)
  seen = []

  def function(*operands):
    results = case.results(*operands)
    seen.append(_specs(results))
    return results

  types = jax.eval_shape(function, *operands)
  expected = [(*spec, *(None,) * (x.ndim - len(spec))) for x in types]
  assert seen == [expected]
  results = quick_jit(function)(*operands)
  assert _specs(results) == expected
  sharded_like(results, mesh, *spec)


@selection.in_turn(1)
@pytest.mark.parametrize("kinds", [(EXPLICIT, AUTO), (AUTO, EXPLICIT)], ids=str)
def test_mixed_mesh(case, kinds, rng):
  """Catches an axis of the other kind that is lost from the type, or gathered by the compiler."""
  mesh = make_mesh((4, 2), ("x", "y"), kinds)
  operands = case.operands(rng, (BATCH, SECOND_BATCH), N, N, np.float64)
  sharded = place(operands, mesh, "x", "y")
  results = compile_local(case.results, sharded)(*sharded)
  same_bits(results, unsharded(case, operands))
  sharded_like(results, mesh, "x", "y")
  batch_spec = tuple(name if kind == EXPLICIT else None for name, kind in zip("xy", kinds))
  for spec in _specs(results):
    assert spec[:2] == batch_spec


def test_auto_axes(case, rng):
  """A function in Auto mode works inside an Explicit program, and the reverse."""
  explicit, auto = make_mesh(kind=EXPLICIT), make_mesh()
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  expected = unsharded(case, operands)

  sharded = place(operands, explicit, "x")
  results = compile_local(auto_axes(case.results, out_sharding=P("x")), sharded)(*sharded)
  same_bits(results, expected)
  sharded_like(results, explicit, "x")

  with jax.set_mesh(auto):
    function = explicit_axes(case.results, axes="x", in_sharding=P("x"))
    sharded = place(operands, auto, "x")
    results = compile_local(function, sharded)(*sharded)
    same_bits(results, expected)
    sharded_like(results, auto, "x")


@selection.extended_for("tridiagonal_solve")
@cases.each([case for case in cases.CASES if not case.xla])
def test_sharded_matrix_dimension_is_refused(case, rng):
  """Catches a part of a matrix handed to a handler; and advice in the error that does not work."""
  mesh = make_mesh((4, 2), ("x", "y"), EXPLICIT)
  operands = case.operands(rng, (BATCH,), 8, 8, np.float64)
  sharded = place(operands, mesh, "x")
  for i, rank in enumerate(case.ranks):
    for dim in range(1, rank + 1):
      if operands[i].shape[dim] % 2:
        continue
      spec = ("x", *(None,) * (dim - 1), "y")
      spoilt = (*sharded[:i], *place(operands[i : i + 1], mesh, *spec), *sharded[i + 1 :])
      with pytest.raises(Exception, match=r"jax\.sharding\.reshard") as refused:
        jax.jit(case.results)(*spoilt)
      assert type(refused.value).__name__ == "ShardingTypeError"  # JAX does not export it
      advice = str(refused.value).rpartition("reshard(x, ")[2].rpartition(")")[0]
      with jax.set_mesh(mesh):
        mended = jax.sharding.reshard(
            spoilt[i], eval(advice, {"PartitionSpec": P, "P": P}))  # noqa: S307
      results = quick_jit(case.results)(*sharded[:i], mended, *sharded[i + 1 :])
      same_bits(results, unsharded(case, operands))


# These compute with the matrix before they call a handler.
COMPUTE_FIRST = {
    "solve": lambda a: linalg.solve(a, jnp.ones(8), assume_a="pos"),
    "funm_hermitian": lambda a: linalg.funm_hermitian(a, jnp.exp),
    "inverse_pth_root": lambda a: linalg.inverse_pth_root(a, 2),
    "expm": linalg.expm,
    "sqrtm": linalg.sqrtm,
    "pinvh": linalg.scipy.pinvh,
    "logm": linalg.scipy.logm,
    "ldl": linalg.scipy.ldl,
    "solve_sylvester": lambda a: linalg.scipy.solve_sylvester(a, a, a),
}


@pytest.mark.parametrize("spec", [("x", None), ("x", "y")], ids=str)
@pytest.mark.parametrize("name", COMPUTE_FIRST)
def test_error_is_about_the_matrix(name, spec):
  """Catches an error of JAX's about a sum or a product that the caller did not write."""
  a = jax.device_put(np.eye(8), NamedSharding(make_mesh((4, 2), ("x", "y"), EXPLICIT), P(*spec)))
  refused = rf"^{name}: operand \S+ is sharded over a matrix dimension.*linalg\.distributed"
  with pytest.raises(linalg.ffi.ShardingTypeError, match=refused):
    jax.eval_shape(COMPUTE_FIRST[name], a)


def test_conflicting_batches_are_refused():
  """Catches operands whose shards are on different devices, paired as if they belonged together."""
  mesh = make_mesh((4, 2), ("x", "y"), EXPLICIT)
  a, b = np.ones((8, N, N)), np.ones((8, N, 2))
  a, b = place((a,), mesh, "x") + place((b,), mesh, "y")
  with pytest.raises(Exception, match="operands 0 and 1 .* sharded") as refused:
    linalg.triangular_solve(a, b, left_side=True)
  assert type(refused.value).__name__ == "ShardingTypeError"


SOLVES = {
    "solve": linalg.solve,
    "solve_triangular": lambda a, b: linalg.solve_triangular(a, b, lower=True),
    "cho_solve": lambda a, b: linalg.cho_solve((a, True), b),
    "lu_solve": lambda a, b: linalg.lu_solve((a, jnp.zeros(a.shape[:-1], jnp.int32)), b),
}


@selection.in_turn(3, "name")
@pytest.mark.parametrize("name", SOLVES)
@pytest.mark.parametrize("batch", [(), (1,), (BATCH,)], ids=str)
@pytest.mark.parametrize("operand", ["matrix", "right-hand side"])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "replicated"])
def test_one_sharded_operand(name, batch, operand, constant, rng):
  """solve(sharded, jnp.eye(n)) on an Explicit mesh.

  Catches a broadcast whose sharding names axes of a mesh that a constant does not have. Also
  catches a refusal of what jax.numpy's own functions take: a replicated operand beside a sharded
  one.
  """
  function = SOLVES[name]
  mesh = make_mesh(kind=EXPLICIT)
  a, b = rng.standard_normal((BATCH, N, N)) + 9 * np.eye(N), rng.standard_normal((BATCH, N, 2))
  few = lambda x: x if batch == (BATCH,) else x[0].reshape(*batch, *x.shape[1:])
  a, b = (a, few(b)) if operand == "right-hand side" else (few(a), b)
  expected = quick_jit(function)(a, b)
  whole, other = (a, b) if operand == "right-hand side" else (b, a)
  (sharded,) = place((whole,), mesh, "x")
  (replicated,) = place((other,), mesh)
  in_order = function if operand == "right-hand side" else lambda x, y: function(y, x)
  if constant:
    call, operands = (lambda x: in_order(x, other)), (sharded,)
  else:
    call, operands = in_order, (sharded, replicated)
  compiled = quick_compile(call, operands)
  if (name, operand, batch) != ("solve", "matrix", (BATCH,)):
    no_collectives(compiled.as_text())  # else replicated matrices are factored as they are
  result = compiled(*operands)
  same_bits(result, expected)
  assert _specs([result]) == [("x", None, None)]


@selection.in_turn(1)
@pytest.mark.parametrize(
    "axis, spec", [(0, (None, "x", "y")), (1, ("x", None, "y")), (2, ("y", None, "x"))], ids=str)
def test_vmap_beside_sharded_batch(case, axis, spec, rng):
  """Catches a mapped dimension put in the position where the type has the sharded one."""
  mesh = make_mesh((4, 2), ("x", "y"), EXPLICIT)
  operands = case.operands(rng, (3, BATCH, SECOND_BATCH), N, N, np.float64)
  sharded = place(operands, mesh, None, "x", "y")
  function = jax.vmap(case.results, in_axes=axis)
  results = compile_local(function, sharded)(*sharded)
  same_bits(results, quick_compile(function, operands)(*operands))
  for actual in _specs(results):
    assert actual[:3] == spec


def test_type_with_mesh_in_context(case, rng):
  """Catches a result whose type depends on whether jax.set_mesh was called."""
  mesh = make_mesh(kind=EXPLICIT)
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  with jax.set_mesh(mesh):
    sharded = [jax.sharding.reshard(jnp.asarray(x), P("x")) for x in operands]
    compiled = quick_compile(case.results, sharded)
    no_collectives(compiled.as_text())
    nothing_global(compiled.as_text())
    results = compiled(*sharded)
  same_bits(results, unsharded(case, operands))
  for x in results:
    assert jax.typeof(x).sharding.mesh == mesh.abstract_mesh
    assert x.sharding.is_equivalent_to(NamedSharding(mesh, P("x")), x.ndim)
