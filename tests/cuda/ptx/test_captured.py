"""The handlers for calls that XLA may record, on the CPU: none asks for scratch memory where
programs for CUDA call it, on the GPU with the least shared memory; and they are the functions of
the others."""

import sys

import jax
import jax.ffi
import numpy as np
import pytest

import linalg
from linalg import _targets

pytestmark = pytest.mark.extended

if _targets.cuda_version() is None:
  pytest.skip("this build has no CUDA module: there was no nvcc", allow_module_level=True)

OPERATIONS = {
    value.name: value for name, module in sorted(sys.modules.items()) if name.startswith("linalg.")
    for values in vars(module).values()
    for value in (values if isinstance(values, tuple) else (values,))
    if isinstance(value, linalg.ffi.Operation)}
TARGETS = list(_targets._captured)
PIVOTS = ("linalg_lu_solve", 1)  # the operand of that rank


@pytest.fixture
def call(handlers, monkeypatch):
  """A function that calls one of the library's handlers with matrices of all sizes n."""
  monkeypatch.setenv("LINALG_PTX_SHARED", "99")

  def run(target, suffix, n, dtype, batch=2):
    name = f"ptx_{target}{suffix}"
    jax.ffi.register_ffi_target(
        name, jax.ffi.pycapsule(handlers.on_cpu(f"{target}{suffix}".encode())), platform="cpu")
    operation = OPERATIONS[target]
    rng = np.random.default_rng(0)
    operands = [
        _operand(rng, batch, (n,) * rank, dtype if (target, rank) != PIVOTS else None)
        for rank in operation._rules.ranks]
    types = operation._rules.results(
        [x.shape[1:] for x in operands], [x.dtype for x in operands], **operation.attributes)
    results = [jax.ShapeDtypeStruct((batch, *shape), x) for shape, x in types]
    attributes = {key: np.bool_(value) for key, value in operation.attributes.items()}
    return [np.asarray(x) for x in jax.ffi.ffi_call(name, results)(*operands, **attributes)]

  return run


def _operand(rng, batch, shape, dtype):
  if dtype is None:
    return np.broadcast_to(np.arange(shape[-1], dtype=np.int32), (batch, *shape))
  x = rng.standard_normal((batch, *shape))
  if np.issubdtype(dtype, np.complexfloating):
    x = x + 1j * rng.standard_normal(x.shape)
  if len(shape) == 2:  # positive definite
    x = x @ np.conj(x.mT) / shape[-1] + np.eye(shape[-1])
  return x.astype(dtype)


def _is_captured(target, n, dtype):
  operation = OPERATIONS[target]
  shapes = [(n,) * rank for rank in operation._rules.ranks]
  types = operation._rules.results(shapes, [dtype] * len(shapes), **operation.attributes)
  return _targets.call_target(
      target, "cuda", dtype.name, shapes, [shape for shape, _ in types], False) != target


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("target", TARGETS)
def test_captured(target, dtype, call):
  """The largest matrices of these calls, and others, on the same path as a call that is not one."""
  dtype = np.dtype(dtype)
  sizes = [n for n in range(1, 200) if _is_captured(target, n, dtype)]
  assert sizes == list(range(1, len(sizes) + 1)) and sizes
  for n in {1, len(sizes) // 2 or 1, len(sizes)}:
    plain, captured = (call(target, suffix, n, dtype) for suffix in ("", "_captured"))
    for x, y in zip(plain, captured, strict=True):
      np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("target", ["linalg_cholesky", "linalg_lu", "linalg_inv", "linalg_eigh"])
def test_scratch_is_refused(target, call):
  with pytest.raises(Exception, match="work that may be recorded asked for scratch memory"):
    call(target, "_captured", 200, np.dtype("float32"))
