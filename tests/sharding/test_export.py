"""`jax.export`: symbolic sizes, derivatives, other processes, and platforms without handlers."""

import pickle
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType

import cases
import linalg
import selection
from quick import quick_jit
from sharded import (
  BATCH,
  SECOND_BATCH,
  N,
  close,
  energy,
  make_mesh,
  no_collectives,
  nothing_global,
  place,
  same_bits,
  sharded_like,
  split,
)

COMPILES = True
ONE_IN = 3



def _export(function, types, **options):
  return export.export(
      jax.jit(function), disabled_checks=linalg.export_disabled_checks(), **options)(*types)


def _types(operands, batch, sizes=None):
  """The operands' types, with the symbolic `batch`, and symbols in place of the given sizes."""
  sizes = sizes or {}
  return [
      jax.ShapeDtypeStruct(
          (*batch, *(sizes.get(size, size) for size in x.shape[len(batch) :])), x.dtype)
      for x in operands]


@selection.in_turn(1)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=lambda kind: kind.name)
def test_symbolic_batch_called_sharded(case, kind, rng):
  """Catches a rule made of symbolic sizes that gathers once the sizes are known."""
  mesh = make_mesh((4, 2), ("x", "y"), kind)
  operands = case.operands(rng, (BATCH, SECOND_BATCH), N, N, np.float64)
  exported = _export(case.results, _types(operands, export.symbolic_shape("b, c")))
  sharded = place(operands, mesh, "x", "y")
  compiled = quick_jit(exported.call).lower(*sharded).compile()
  no_collectives(compiled.as_text())
  nothing_global(compiled.as_text())
  results = compiled(*sharded)
  same_bits(results, quick_jit(case.results)(*operands))
  sharded_like(results, mesh, "x", "y")


@cases.each([case for case in cases.CASES if case.any_size])
def test_symbolic_size(case, rng):
  """Catches a size that is compared, hashed or sent to a handler while it is a symbol."""
  b, n = export.symbolic_shape("b, n")
  first = case.operands(rng, (3,), N, N, np.float64)
  exported = _export(case.results, _types(first, (b,), {N: n, N - 1: n - 1}))
  for batch, size in ((3, N), (2, 6), (1, 1)):
    operands = case.operands(rng, (batch,), size, size, np.float64)
    same = close if case.xla else same_bits
    same(quick_jit(exported.call)(*operands), quick_jit(case.results)(*operands))


@cases.each([
    cases.named(name) for name in ("cholesky", "det", "eigh", "inv", "qr", "slogdet", "svd")])
def test_symbolic_size_of_gradients(case, rng):
  """Catches a size that a rule compares with the largest of its handlers."""
  loss = lambda a: sum(x.sum() for x in case.invariant(case.results(a)))
  gradient = jax.grad(loss)
  b, n = export.symbolic_shape("b, n")
  first = case.operands(rng, (3,), N, N, np.float64)
  exported = _export(gradient, _types(first, (b,), {N: n, N - 1: n - 1}))
  for batch, size in ((3, N), (2, 6)):
    operands = case.operands(rng, (batch,), size, size, np.float64)
    np.testing.assert_allclose(
        quick_jit(exported.call)(*operands), gradient(*operands), rtol=1e-9, atol=1e-9)


@cases.each(cases.RECTANGULAR_CASES)
def test_symbolic_rectangle(case, rng):
  """Catches min(m, n) decided while both are symbols."""
  b, m, n = export.symbolic_shape("b, m, n")
  (first,) = case.operands(rng, (3,), 7, 4, np.float64)
  exported = _export(case.results, _types([first], (b,), {7: m, 4: n}))
  for shape in ((7, 4), (4, 7)):
    operands = case.operands(rng, (3,), *shape, np.float64)
    same = close if case.xla else same_bits
    same(quick_jit(exported.call)(*operands), quick_jit(case.results)(*operands))


@cases.each(cases.DIFFERENTIABLE_CASES)
def test_vjp(case, rng):
  """vjp_order=1 with a symbolic batch: catches a derivative rule that needs known sizes."""
  operands = case.operands(rng, (BATCH,), N, N, np.float64)
  function = lambda *operands: energy(case, 1, *operands)
  exported = _export(function, _types(operands, export.symbolic_shape("b")))
  restored = export.deserialize(exported.serialize(vjp_order=1))
  cotangent = np.linspace(1, 2, BATCH)
  sharded = place((*operands, cotangent), make_mesh(), "x")
  compiled = quick_jit(restored.vjp().call).lower(*sharded).compile()
  no_collectives(compiled.as_text())
  gradients = [x for x in compiled(*sharded) if x.dtype == np.float64]
  x, merge = split(operands)
  expected = quick_jit(lambda x: jax.vjp(lambda *x: function(*merge(x)), *x)[1](cotangent))(x)
  close(gradients, expected)


# This program knows only the serialized form of the functions.
_CALLER = """
import pickle, sys
import linalg
import jax
import numpy as np
jax.config.update("jax_enable_x64", True)
for name, blob, operands, expected in pickle.load(open(sys.argv[1], "rb")):
  results = jax.export.deserialize(bytearray(blob)).call(*operands)
  for x, y in zip(results, expected, strict=True):
    assert np.asarray(x).tobytes() == y.tobytes(), name
  print(name)
"""


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.extended)])
def test_round_trip_through_a_process(slow, rng, tmp_path):
  """Catches a program that only the process that made it can run: LAPACK not loaded, no targets."""
  rows, chosen = [], [case for case in cases.CASES if (case.slow or case.variant) == slow]
  for case in chosen:
    operands = case.operands(rng, (3,), N, N, np.float64)
    exported = _export(case.results, _types(operands, export.symbolic_shape("b")))
    expected = [np.asarray(x) for x in jax.jit(case.results)(*operands)]
    rows.append((case.name, bytes(exported.serialize()), operands, expected))
  path = tmp_path / "exported"
  path.write_bytes(pickle.dumps(rows))
  done = subprocess.run(
      [sys.executable, "-c", _CALLER, str(path)], capture_output=True, text=True, timeout=120,
      cwd=tmp_path, check=False)
  assert done.returncode == 0, done.stderr
  assert done.stdout.split() == [case.name for case in chosen]


def test_disabled_checks():
  """Catches an export that JAX refuses, or one that only this list makes possible by accident."""
  operands = (np.eye(3),)
  targets = {str(check) for check in linalg.export_disabled_checks()}
  assert len(targets) == len(linalg.export_disabled_checks())
  assert any("linalg_cholesky" in target for target in targets)
  with pytest.raises(ValueError, match="linalg_cholesky"):
    export.export(jax.jit(linalg.cholesky))(*operands)
  exported = _export(linalg.cholesky, operands)
  same_bits(exported.call(*operands), linalg.cholesky(*operands))


@selection.in_turn(1)
@pytest.mark.parametrize("platform", ["tpu", "cuda", "rocm"])
def test_lowering_without_handlers(case, platform, rng):
  """Catches a fallback that cannot be lowered, and a handler called where there is none."""
  if cases.has_handlers(case, platform):
    pytest.skip("this build has handlers for it: tests/cuda/test_programs.py")
  operands = case.operands(rng, (3,), N, N, np.float32)
  platforms, what = case.absent
  if platform in platforms:
    with pytest.raises(NotImplementedError, match=what):
      jax.jit(case.results).trace(*operands).lower(lowering_platforms=(platform,))
    return
  text = jax.jit(case.results).trace(*operands).lower(lowering_platforms=(platform,)).as_text()
  called = set(re.findall(r"custom_call @(linalg_\w+?)(?:_captured)?\(", text))
  assert not called & cases.targets_of(case)  # a formula may call others' handlers, on CUDA
  assert called <= cases.targets(platform)
  both = jax.jit(case.results).trace(*operands).lower(lowering_platforms=("cpu", platform))
  assert "linalg_" in both.as_text()
