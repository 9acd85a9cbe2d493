"""Indices of more than 65,535 matrices and 2³¹ elements, without the memory for them.

Buffers take pages where they are touched. The first and the last blocks of each launch run, with
the number of blocks that a GPU would have. So they find both ends of the batch by the arithmetic of
a whole launch. An index of 32 bits leads to other matrices, whose results are missing.
"""

import ctypes
import mmap

import numpy as np
import pytest

import ptx_calls

pytestmark = pytest.mark.extended

NORESERVE = 0x4000  # of Linux
ENDS = 8


class PlainBuffer(ctypes.Structure):
  """A buffer of alone.cc."""

  _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_char_p), ("rank", ctypes.c_int64),
              ("dimensions", ctypes.POINTER(ctypes.c_int64))]


def _sparse(shape, dtype):
  size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
  flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
  return np.frombuffer(mmap.mmap(-1, max(size, 1), flags=flags), dtype, size // np.dtype(
      dtype).itemsize).reshape(shape)


def _plain(x):
  dimensions = (ctypes.c_int64 * x.ndim)(*x.shape)
  return PlainBuffer(x.ctypes.data, x.dtype.name.encode(), x.ndim, dimensions)


def _error_of(handlers, target, operands, results):
  """Calls the handler. Returns its error's text, which is empty if there is none."""
  attributes = ptx_calls.OPERATIONS[target].attributes
  names = (ctypes.c_char_p * len(attributes))(*(x.encode() for x in sorted(attributes)))
  values = (ctypes.c_bool * len(attributes))(*(attributes[x] for x in sorted(attributes)))
  buffers = [*operands, *results]
  text = ctypes.create_string_buffer(4096)
  handler = handlers.handler_of(target.encode())
  assert handler, f"no handler of {target}"
  handlers.call_alone(
      ctypes.c_void_p(handler), ctypes.c_int64(len(operands)),
      ctypes.c_int64(len(results)), (PlainBuffer * len(buffers))(*map(_plain, buffers)),
      ctypes.c_int64(len(attributes)), names, values, text, ctypes.c_size_t(len(text)))
  return text.value.decode()


def _call(handlers, target, operands, results):
  error = _error_of(handlers, target, operands, results)
  assert not error, error


def _check_both_ends(target, ends, batch, handlers, monkeypatch, **settings):
  """Calls the handler with a batch whose first and last operands are `ends`, and are compared with
  the results of these two alone."""
  shapes = ptx_calls.results_of(target, ends)
  expected = [np.zeros((2, *shape), x) for shape, x in shapes]
  _call(handlers, target, ends, expected)
  results = [_sparse((batch, *shape), x) for shape, x in shapes]
  operands = []
  for pair in ends:
    operands.append(_sparse((batch, *pair.shape[1:]), pair.dtype))
    operands[-1][[0, -1]] = pair
  for key, value in settings.items():
    monkeypatch.setenv(f"LINALG_PTX_{key}", str(value))
  _call(handlers, target, operands, results)
  for found, pair in zip(results, expected, strict=True):
    np.testing.assert_array_equal(found[[0, -1]], pair)


def _large_batch(ends):
  """More than 65,535 matrices and 2³¹ elements; odd, so that the last block is not full."""
  batch = (2**31 + 2**20) // max(x[0].size for x in ends)
  return batch + 65_537 + batch % 2


# A thread, threads of a warp, teams of a part of a warp, of a warp and of a block.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target, n", [
    *((f"linalg_{name}", n) for name in ("cholesky", "lu", "solve", "inv", "det")
      for n in (8, 20, 40, 72)),
    *((f"linalg_{name}", n) for name in ("det_cofactors", "triangular_solve", "lu_solve")
      for n in (8, 20, 40)),
    ("linalg_cholesky_vjp", 8), ("linalg_matmul", 12), ("linalg_tridiagonal_solve", 5)])
def test_both_ends_of_a_large_batch(target, n, handlers, monkeypatch):
  ends = ptx_calls.operands_of(target, n, np.dtype(np.float32), 2)
  _check_both_ends(target, ends, _large_batch(ends), handlers, monkeypatch, ENDS=ENDS)


# Matrices that go by panels, in several launches. A pass takes several blocks for each of them, and
# the batch is divided by its scratch memory. The least n of eigh has little shared memory.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target, n, shared", [
    ("linalg_eigh", 65, 16), ("linalg_det_cofactors", 129, 227)])
def test_both_ends_of_panels(target, n, shared, handlers, monkeypatch):
  monkeypatch.setenv("LINALG_PTX_SHARED", str(shared))
  ends = ptx_calls.operands_of(target, n, np.dtype(np.float32), 2)
  _check_both_ends(
      target, ends, _large_batch(ends), handlers, monkeypatch, ENDS=4, PASS_ENDS=2 * n * n // 256)


# Few long systems of general bands are solved in chunks. They have no test here: each chunk depends
# on all others, so all blocks of 2³¹ elements would have to run.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", ["linalg_cholesky_banded", "linalg_cholesky_banded_solve"])
def test_both_ends_of_long_bands(target, handlers, monkeypatch, rng):
  batch, width = 4096, 4  # teams take no larger batch
  n = 2**31 // (batch * width) + 100
  ab = rng.uniform(0, 1, (2, width, n)).astype(np.float32)
  ab[:, 0] += 8
  b = rng.standard_normal((2, n, 1), np.float32)
  ends = [ab] if target == "linalg_cholesky_banded" else [ab, b]
  _check_both_ends(target, ends, batch, handlers, monkeypatch, ENDS=1)


# The order of the least square with 2³¹ elements or more. Nothing is launched.
@pytest.mark.parametrize("target", [
    "linalg_schur", "linalg_hessenberg", "linalg_hessenberg_h", "linalg_eig_left",
    "linalg_qr_pivoted"])
def test_a_matrix_of_too_many_elements(target, handlers):
  """Teams in global memory count the elements of a matrix in 32 bits."""
  operands = [_sparse((1, 46_341, 46_341), np.float32)]
  results = [_sparse((1, *shape), x) for shape, x in ptx_calls.results_of(target, operands)]
  assert "too large for 32-bit integers" in _error_of(handlers, target, operands, results)
