"""Functions composed in Python: results, transforms, sharding and derivatives of each.

Their handlers have their own suites. So each mode is tested once, by default with one size and one
layout.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import cases
import derivatives
import linalg
import selection
from quick import quick_compile, quick_jit
from sharded import (
  BATCH,
  KINDS,
  SECOND_BATCH,
  N,
  close,
  energy,
  make_mesh,
  moves_nothing,
  nothing_global,
  place,
  sharded_like,
  split,
  unsharded,
)

IN_PYTHON = cases.COMPOSED + cases.SCIPY + cases.STRUCTURED
CASES = cases.each(IN_PYTHON)
IN_PYTHON_WITH_DERIVATIVES = [case for case in IN_PYTHON if case.differentiable]
DIFFERENTIABLE = cases.each(IN_PYTHON_WITH_DERIVATIVES)
extended = pytest.mark.extended


def _compile_local(function, operands):
  compiled = quick_compile(function, operands)
  text = compiled.as_text()
  moves_nothing(text)
  nothing_global(text)
  return compiled


def _nearly(actual, expected, operands):
  close(actual, expected, 1e3 * np.finfo(operands[0].dtype).eps)


@selection.one_in(2)
@selection.extended_for("expm")
@selection.compiles
@CASES
@pytest.mark.parametrize("n", [3, *(pytest.param(n, marks=extended) for n in (1, 17))])
def test_results(case, dtype, n, rng):
  """Scaled errors are small for square and rectangular matrices, single and in batches."""
  shapes = [
      (batch, m) for batch in ((), (2, 2))
      for m in ({n, n + 2, max(n - 1, 1)} if case.rectangular else {n})]
  several = [case.operands(rng, batch, m, n, dtype) for batch, m in shapes]
  found = quick_jit(lambda several: [case.results(*operands) for operands in several])(several)
  for shape, operands, results in zip(shapes, several, jax.device_get(found), strict=True):
    assert case.ratio(operands, results) <= case.limit, shape


@cases.each([case for case in cases.TABLE if case.empty])
def test_shapes_without_elements(case, rng):
  """Matrices without entries have results. The calls are traced only: compiling takes long."""
  operands = case.operands(rng, (2,), 0, 0, np.dtype(np.float64))
  for x in jax.tree.leaves(jax.eval_shape(case.call, *operands)):
    assert x.shape[:1] == (2,)


@extended
@CASES
def test_no_elements(case, dtype, rng):
  """Empty batches work, and so do empty matrices that have a result."""
  operands = case.operands(rng, (0, 2), 3, 3, dtype)
  for x in case.results(*operands):
    assert x.shape[:2] == (0, 2)
  if not case.empty:
    return
  operands = case.operands(rng, (2,), 0, 0, dtype)
  assert case.ratio(operands, case.results(*operands)) <= case.limit


@extended
@CASES
@pytest.mark.parametrize("low", [jnp.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision(case, low, rng):
  """Half precision is computed in float32 and rounded: same bits as float32, in the operand's
  dtype."""
  to = lambda dtype, operands: [
      jnp.asarray(x, dtype) if jnp.issubdtype(x.dtype, jnp.inexact) else x for x in operands]
  operands = to(low, case.operands(rng, (2,), 3, 3, np.dtype(np.float32)))
  results = quick_jit(case.results)
  wide = results(*to(jnp.float32, operands))
  precision = float(jnp.finfo(low).eps)
  for x, y in zip(results(*operands), wide, strict=True):
    if jnp.issubdtype(y.dtype, jnp.complexfloating) or not jnp.issubdtype(y.dtype, jnp.inexact):
      assert x.dtype == y.dtype
    else:
      assert x.dtype == low
    close([x.astype(y.dtype)], [y], 4 * precision)


def _layouts():
  found = []
  layouts = [("x", np.float32), ("x", np.complex128), ("x,y", np.float64)]
  for kind, (layout, dtype) in itertools.product((AxisType.Explicit, AxisType.Auto), layouts):
    quick = (kind, dtype) == (AxisType.Explicit, np.float32)
    found.append(pytest.param(
        layout, kind, dtype, id=f"{layout}-{kind.name}-{dtype.__name__}",
        marks=() if quick else extended))
  return found


@selection.one_in(3)
@selection.extended_for("expm")
@selection.compiles
@pytest.mark.parametrize(("layout", "kind", "dtype"), _layouts())
@CASES
def test_sharded(case, layout, kind, dtype, rng):
  """Catches a collective, and a result type that has lost the sharding of the batch."""
  dtype = np.dtype(dtype)
  shape, names, batch = {
      "x": ((8,), ("x",), (BATCH,)), "x,y": ((4, 2), ("x", "y"), (BATCH, SECOND_BATCH))}[layout]
  mesh = make_mesh(shape, names, kind)
  operands = case.operands(rng, batch, N, N, dtype)
  sharded = place(operands, mesh, *names)
  results = _compile_local(case.results, sharded)(*sharded)
  _nearly(results, unsharded(case, operands), operands)
  sharded_like(results, mesh, *names)
  if kind == AxisType.Explicit:
    for x in jax.eval_shape(case.results, *sharded):
      assert tuple(x.sharding.spec)[: len(names)] == names


@extended
@KINDS
@CASES
def test_vmap(case, kind, rng):
  """Catches a dimension that is counted from the front, under vmap over a sharded dimension."""
  mesh = make_mesh(kind=kind)
  operands = case.operands(rng, (BATCH, 2), N, N, np.dtype(np.float64))
  last = tuple(x.ndim - 2 for x in operands)
  moved = [np.moveaxis(x, 0, -2) for x in operands]
  sharded = [
      jax.device_put(x, NamedSharding(mesh, P(*(None,) * axis, "x")))
      for x, axis in zip(moved, last, strict=True)]
  function = jax.vmap(jax.vmap(case.results), in_axes=last)
  results = _compile_local(function, sharded)(*sharded)
  _nearly(results, unsharded(case, operands), operands)
  sharded_like(results, mesh, "x")


@extended
@CASES
def test_eager(case, rng):
  """Functions work outside `jit` too, operation by operation, on an Explicit mesh."""
  mesh = make_mesh(kind=AxisType.Explicit)
  operands = case.operands(rng, (BATCH,), N, N, np.dtype(np.float64))
  sharded = place(operands, mesh, "x")
  with jax.set_mesh(mesh):
    results = case.results(*sharded)
  _nearly(results, unsharded(case, operands), operands)
  sharded_like(results, mesh, "x")


@extended
@CASES
def test_one_matrix_of_nan(case, rng):
  """Neighbours keep their bits. The matrix's result is NaN, but a rank or an index may be
  anything."""
  operands = case.operands(rng, (7,), N, N, np.dtype(np.float64))
  clean = unsharded(case, operands)
  spoilt = [np.array(x) for x in operands]
  for x in spoilt:
    if np.issubdtype(x.dtype, np.inexact):
      x[3] = np.nan
  results = unsharded(case, spoilt)
  others = np.arange(7) != 3
  for x, y in zip(results, clean, strict=True):
    np.testing.assert_array_equal(np.asarray(x)[others], np.asarray(y)[others])
    if jnp.issubdtype(x.dtype, jnp.inexact) and not case.zeros:
      assert np.isnan(np.asarray(x)[3]).all()


@extended
@CASES
def test_export(case, rng):
  """Catches a shape dimension used as a Python integer where the batch is symbolic."""
  operands = case.operands(rng, (3,), N, N, np.dtype(np.float64))
  (batch,) = export.symbolic_shape("b")
  types = [jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype) for x in operands]
  exported = export.export(
      jax.jit(case.results), disabled_checks=linalg.export_disabled_checks())(*types)
  _nearly(exported.call(*operands), unsharded(case, operands), operands)


# The two versions of Python in .ci/run take one half each, so that no change escapes.
@selection.one_in(2)
@selection.extended_for(
    "block_tridiagonal_cholesky", "cosm", "coshm", "expm", "expm_cond", "expm_frechet",
    "fractional_matrix_power", "sinhm", "sinm", "solve_continuous_are", "solve_discrete_are",
    "tanhm", "tanm")
@cases.each_in_double(IN_PYTHON_WITH_DERIVATIVES)
def test_derivatives(case, dtype, rng):
  """Derivatives in every mode agree with finite differences to second order.

  A rule that returns the constants that it computes with is right to first order alone.
  """
  derivatives.check(
      lambda *x: case.invariant(case.results(*x)),
      case.operands(rng, (), 3, 3, np.dtype(dtype)), rng, tolerance=1e-7)


@extended
@pytest.mark.parametrize(
    "kind, dtype",
    [(AxisType.Auto, np.float64), (AxisType.Explicit, np.complex128)],
    ids=lambda x: x.__name__ if isinstance(x, type) else x.name)
@DIFFERENTIABLE
def test_sharded_derivatives(case, kind, dtype, rng):
  """Catches a rule that makes XLA gather, in jvp, linearize and vjp of a sharded batch."""
  mesh = make_mesh(kind=kind)
  dtype = np.dtype(dtype)
  operands = case.operands(rng, (BATCH,), 4, 4, dtype)
  tangents = tuple(
      x for x in case.operands(rng, (BATCH,), 4, 4, dtype) if np.issubdtype(x.dtype, np.inexact))
  cotangent = rng.standard_normal(BATCH)

  def function(operands, tangents, cotangent):
    x, merge = split(operands)
    f = lambda *x: energy(case, 1, *merge(x))
    y, pushforward = jax.linearize(f, *x)
    return y, pushforward(*tangents), jax.vjp(f, *x)[1](cotangent)

  arguments = (operands, tangents, cotangent)
  sharded = jax.device_put(arguments, NamedSharding(mesh, P("x")))
  results = _compile_local(function, sharded)(*sharded)
  close(results, quick_compile(function, arguments)(*arguments), 1e-9)
  sharded_like(results, mesh, "x")
