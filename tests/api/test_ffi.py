"""The public `linalg.ffi`: what an operation accepts, and how a handler refuses wrong calls.

Most operations here call a handler of this package by its target's name, like a user's own.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import linalg
from linalg._core import primitive, targets
from linalg._factorizations.triangular import triangular_solve_p
from quick import quick_compile
from sharded import (
  BATCH,
  N,
  collectives,
  compile_local,
  make_mesh,
  no_collectives,
  place,
  same_bits,
  sharded_like,
)


def _spd(rng, *batch, n=N):
  a = rng.standard_normal((*batch, n, n))
  return a @ a.swapaxes(-1, -2) + n * np.eye(n)


@pytest.mark.parametrize(
    "signature",
    ["n n", "n n ->", "-> n", "n n -> n -> n", "n, -> n", "n n => n", "(n) -> n", "max(m,n) -> n",
     "n -> min(m)", "n; n -> n", ""])
def test_signature_errors(signature):
  """Catches a signature that is parsed as a different one."""
  with pytest.raises(ValueError, match="signature must look like"):
    linalg.ffi.operation("target", signature, [0])


@pytest.mark.parametrize(
    "signature, shapes, expected",
    [
        ("n n -> n n, ()", [(7, 4, 4)], [(7, 4, 4), (7,)]),
        ("m n, n -> m", [(2, 3), (2,)], "operand 1 must have shape"),
        ("m n, n -> m", [(2, 3), (3,)], [(2,)]),
        ("m n -> min(m,n), min(m, n) n", [(2, 5, 3)], [(2, 3), (2, 3, 3)]),
        ("m n -> min(m,n)", [(4, 0)], [(0,)]),
        ("3 n -> n 2", [(7, 3, 5)], [(7, 5, 2)]),
        ("3 n -> n", [(4, 5)], "where 3 is 3"),
        ("n n -> n", [(4, 5)], "where n is 4"),
        ("() -> ()", [(6,)], [(6,)]),
        ("k -> size", [(5, 2)], [(5, 9)]),
        ("  m   n ,n->  m  ", [(2, 3), (3,)], [(2,)]),
    ], ids=str)
def test_shapes(signature, shapes, expected):
  """Catches a dimension read from the wrong operand; abstract evaluation needs no handler."""
  results = len(expected) if isinstance(expected, list) else 1
  operation = linalg.ffi.operation("shapes", signature, [0] * results, attributes={"size": 9})
  types = [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes]
  if isinstance(expected, str):
    with pytest.raises(TypeError, match=expected):
      jax.eval_shape(operation, *types)
  else:
    assert [x.shape for x in jax.tree.leaves(jax.eval_shape(operation, *types))] == expected


def test_dtypes():
  """Catches a result dtype that is fixed, or taken from the wrong operand."""
  types = [jax.ShapeDtypeStruct((2,), np.complex64), jax.ShapeDtypeStruct((2,), np.float64)]
  by_index = linalg.ffi.operation("dtypes", "n, n -> n, n, n", [1, 0, np.int32])
  assert [x.dtype for x in jax.eval_shape(by_index, *types)] == [np.float64, np.complex64, np.int32]
  by_rule = linalg.ffi.operation(
      "dtypes", "n, n -> n", lambda a, b, wide: [b if wide else a], attributes={"wide": False})
  assert jax.eval_shape(by_rule, *types).dtype == np.complex64
  assert jax.eval_shape(lambda *x: by_rule(*x, wide=True), *types).dtype == np.float64


def test_call_errors():
  """Catches a wrong call that reaches a handler: each is a TypeError that names the operation."""
  operation = linalg.ffi.operation(
      "linalg_cholesky", "n n -> n n, ()", [0, np.int32],
      attributes={"lower": True, "symmetrize": True})
  assert repr(operation) == "<linalg.ffi.Operation linalg_cholesky>"
  a = np.eye(3)
  with pytest.raises(TypeError, match="linalg_cholesky takes 1 operands, got 2"):
    operation(a, a)
  with pytest.raises(TypeError, match="linalg_cholesky has no attribute upper"):
    operation(a, upper=True)
  with pytest.raises(TypeError, match="operand 0 must have rank at least 2"):
    operation(a[0])
  with pytest.raises(TypeError, match=r"operand 0 must have shape \(\.\.\., n, n\)"):
    operation(a[:2])
  two = linalg.ffi.operation("linalg_two", "n n, n k -> n k", [1])
  with pytest.raises(ValueError, match="[Ii]ncompatible shapes for broadcasting"):
    two(np.ones((2, 3, 3)), np.ones((4, 3, 1)))


@pytest.mark.parametrize(
    "left, right",
    [((), ()), ((5,), (5,)), ((1,), (5,)), ((5,), (1,)), ((5,), ()), ((), (5,)), ((4, 1), (5,)),
     ((1, 5), (4, 1)), ((0,), (1,)), ((0, 1), (3,))], ids=str)
def test_broadcasting(left, right, rng):
  """Batch dimensions broadcast as in NumPy, with and without one matrix for the whole batch."""
  a = np.tril(rng.standard_normal((*left, N, N))) + 3 * np.eye(N)
  b = rng.standard_normal((*right, N, 2))
  x = triangular_solve_p(a, b, left_side=True, lower=True)
  batch = np.broadcast_shapes(left, right)
  assert x.shape == (*batch, N, 2)
  np.testing.assert_allclose(a @ np.asarray(x), np.broadcast_to(b, x.shape), rtol=0, atol=1e-12)


def _own_cholesky(name="linalg_cholesky"):
  """Returns a user's Cholesky factorisation with different defaults and its own derivative."""

  def jvp(primals, tangents, **attributes):
    (a,), (da,) = primals, tangents
    factor, info = own(a, **attributes)
    return (factor, info), (7 * da, None)

  own = linalg.ffi.operation(
      name, "n n -> n n, ()", [0, np.int32], attributes={"lower": False, "symmetrize": False},
      jvp=jvp)
  return own


def test_own_operation(rng):
  """Catches state that two operations of one target share: attributes, batching, derivatives."""
  own, a, da = _own_cholesky(), _spd(rng, BATCH), rng.standard_normal((BATCH, N, N))
  expected = np.linalg.cholesky(a).swapaxes(-1, -2)
  np.testing.assert_allclose(own(a)[0], expected, rtol=0, atol=1e-12)
  np.testing.assert_allclose(own(a, lower=True)[0].mT, expected, rtol=0, atol=1e-12)
  assert own(a)[1].dtype == np.int32
  (factor, info), (dfactor, dinfo) = jax.jvp(own, (a,), (da,))
  same_bits([factor, dfactor], [own(a)[0], 7 * da])
  assert dinfo.dtype == jax.dtypes.float0
  gradient = jax.grad(lambda a: jnp.sum(own(a)[0] * da))(a)
  np.testing.assert_allclose(gradient, 7 * da, rtol=0, atol=1e-12)
  mesh = make_mesh()
  (sharded,) = place((a,), mesh, "x")
  results = compile_local(jax.vmap(own), (sharded,))(sharded)
  same_bits(results, own(a))
  sharded_like(results, mesh, "x")
  assert not np.any(np.asarray(linalg.cholesky(a))[..., 0, 1])


def test_without_derivative():
  """Catches a derivative invented for an operation that was given none."""
  operation = linalg.ffi.operation(
      "linalg_cholesky", "n n -> n n, ()", [0, np.int32],
      attributes={"lower": True, "symmetrize": True})
  with pytest.raises(NotImplementedError, match="[Dd]ifferentiation rule .*linalg_cholesky"):
    jax.jvp(lambda a: operation(a)[0], (np.eye(3),), (np.eye(3),))


@pytest.fixture(scope="module")
def handler():
  return targets._cpu.targets()["linalg_cholesky"]


def _program(operation, a):
  return quick_compile(jax.vmap(operation), (a,)).as_text()


def test_registered_target(handler, rng):
  """A handler registered under a user's name runs on the device of each shard."""
  linalg.ffi.register_target("linalg_own_cholesky", handler)
  a = _spd(rng, BATCH)
  for kind in (AxisType.Auto, AxisType.Explicit):
    (sharded,) = place((a,), make_mesh(kind=kind), "x")
    no_collectives(_program(_own_cholesky("linalg_own_cholesky"), sharded))
  exported = jax.export.export(
      jax.jit(_own_cholesky("linalg_own_cholesky")),
      disabled_checks=linalg.export_disabled_checks())(a)
  same_bits(exported.call(a), _own_cholesky()(a))


# These three things together keep a batch on its devices. Without any one of them, the program must
# gather. So the tests for collectives are able to fail.


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=lambda kind: kind.name)
def test_gathers_without_registration(handler, kind, rng):
  jax.ffi.register_ffi_target("linalg_unregistered", handler, platform="cpu")
  (a,) = place((_spd(rng, BATCH),), make_mesh(kind=kind), "x")
  own = _own_cholesky("linalg_unregistered")
  assert "all-gather" in collectives(_program(own, a))
  with pytest.raises(AssertionError):
    no_collectives(_program(own, a))
  with pytest.raises(AssertionError):
    compile_local(own, (a,))


@pytest.mark.parametrize("missing", ["mhlo.frontend_attributes", "sdy.sharding_rule"])
def test_gathers_without_attribute(missing, rng, monkeypatch):
  make = primitive._partitioning_attributes

  def without(*arguments):
    attributes = make(*arguments)
    del attributes[missing]
    return attributes

  (a,) = place((_spd(rng, BATCH),), make_mesh(), "x")
  no_collectives(_program(_own_cholesky(), a))
  monkeypatch.setattr(primitive, "_partitioning_attributes", without)
  assert "all-gather" in collectives(_program(_own_cholesky(), a))


def test_gathers_as_plain_ffi_call(rng):
  a = _spd(rng, BATCH)
  types = (jax.ShapeDtypeStruct(a.shape, a.dtype), jax.ShapeDtypeStruct(a.shape[:1], np.int32))
  call = lambda a: jax.ffi.ffi_call("linalg_cholesky", types)(a, lower=False, symmetrize=False)
  same_bits(jax.jit(call)(a), _own_cholesky()(a))
  (sharded,) = place((a,), make_mesh(), "x")
  assert "all-gather" in collectives(quick_compile(call, (sharded,)).as_text())


def test_no_callback_in_the_program(case, rng):
  """Catches a program that calls back to Python, and so cannot be stored or sent."""
  operands = case.operands(rng, (3,), N, N, np.float64)
  assert "callback" not in jax.jit(case.results).lower(*operands).as_text()


def test_ffi_version():
  """Catches a jaxlib that refuses the handlers at a point after which JAX is unusable."""
  targets.check_ffi_version((0, 3), (0, 3))
  targets.check_ffi_version((0, 1), (0, 3))
  for built in ((0, 4), (1, 0), (1, 3)):
    with pytest.raises(ImportError, match=rf"version {built[0]}\.{built[1]} .* provides 0\.3"):
      targets.check_ffi_version(built, (0, 3))
  built, installed = targets._cpu.ffi_version(), targets._installed_ffi_version()
  assert built[0] == installed[0] and built[1] <= installed[1]
