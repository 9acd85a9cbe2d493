"""Handlers for calls that XLA may record, on the CPU with a GPU's least shared memory.

None asks for scratch memory where programs for CUDA call it. Results equal those of the other
handlers.
"""

import numpy as np
import pytest

import ptx_calls
from linalg._core import targets

pytestmark = pytest.mark.extended

if targets.cuda_version() is None:
  pytest.skip("this build has no CUDA module: there was no nvcc", allow_module_level=True)

TARGETS = list(targets._captured)


@pytest.fixture
def call(handlers, monkeypatch):
  """ptx_calls.call with the least shared memory."""
  monkeypatch.setenv("LINALG_PTX_SHARED", "99")

  def run(target, suffix, n, dtype):
    return ptx_calls.call(handlers, target, n, dtype, 2, suffix)

  return run


def _is_captured(target, n, dtype):
  operation = ptx_calls.OPERATIONS[target]
  shapes = [(n,) * rank for rank in operation._rules.ranks]
  types = operation._rules.results(shapes, [dtype] * len(shapes), **operation.attributes)
  return targets.call_target(
      target, "cuda", dtype.name, shapes, [shape for shape, _ in types], False) != target


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("target", TARGETS)
def test_captured(target, dtype, call):
  """The largest matrices of these calls, and others, take the same path as calls that are not
  recorded."""
  dtype = np.dtype(dtype)
  sizes = [n for n in range(1, 200) if _is_captured(target, n, dtype)]
  assert sizes == list(range(1, len(sizes) + 1)) and sizes
  empty = {0} if _is_captured(target, 0, dtype) else set()
  assert empty or target in ("linalg_eigh", "linalg_eigvalsh")
  for n in {1, len(sizes) // 2 or 1, len(sizes)} | empty:
    plain, captured = (call(target, suffix, n, dtype) for suffix in ("", "_captured"))
    for x, y in zip(plain, captured, strict=True):
      np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("target", ["linalg_lu", "linalg_inv", "linalg_eigh"])
def test_scratch_is_refused(target, call):
  with pytest.raises(Exception, match="work that may be recorded asked for scratch memory"):
    call(target, "_captured", 200, np.dtype("float32"))


def test_rows_without_columns():
  """The permutation of so many rows does not fit in shared memory."""
  rows = [n for n in (1, 1000, 100_000) if targets.call_target(
      "linalg_lu", "cuda", "float32", [(n, 0)], [(n, 0), (0,), (n,), ()], False) != "linalg_lu"]
  assert rows == [1, 1000]
