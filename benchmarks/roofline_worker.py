"""One contender of roofline.py in a process of its own, which needs NumPy and the contender alone.

The process reads a request from its standard input and prints a line of JSON before each cell and
one after it. The parent then knows which cell did not end.
"""

import concurrent.futures
import ctypes
import gc
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import other_threads

Call = Callable[..., Any]

DTYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
SAMPLE_SECONDS = 2e-3  # a warm sample repeats its call for at least this long
MIN_SAMPLES = 3
COLD_SAMPLES = 3
LONGEST_WAIT_SECONDS = 0.3  # for threads of the last call; MKL's spin for 200 ms
CACHE_BYTES = 2**27  # more than the caches hold
LARGEST_CHECKED = 256


# Operands and results


def operands_of(op: str, n: int, batch: int, dtype: str) -> list[np.ndarray]:
  rng = np.random.default_rng([n, batch])
  kind = np.dtype(DTYPES[dtype])

  def uniform(*shape):
    x = 2 * rng.random(shape) - 1
    if kind.kind == "c":
      x = x + 1j * (2 * rng.random(shape) - 1)
    return x.astype(kind)

  a = uniform(batch, n, n)
  if op in ("cholesky", "eigh"):
    a = (a + a.conj().swapaxes(-1, -2)) / 2
  if op == "cholesky":
    a = a + 2 * n * np.eye(n, dtype=kind)
  a = np.ascontiguousarray(a.astype(kind))
  columns = {"solve": 1, "product": n}.get(op)
  return [a, uniform(batch, n, columns)] if columns else [a]


def _log_det(triangle: np.ndarray) -> np.ndarray:
  return np.log(np.abs(np.diagonal(triangle, axis1=-2, axis2=-1))).sum(-1)


def error_of(op: str, operands: list[np.ndarray], result: Any) -> float:
  """How wrong the result is: about the unit roundoff of the dtype, or 1 and more if it is nonsense.

  LAPACK sees a row-major matrix transposed, so invariants of both are compared. The median over
  the first matrices allows for LU without pivots, which some matrices defeat.
  """
  few = slice(0, 5)
  a, *b = (x[few].astype(np.complex128) for x in operands)
  n = a.shape[-1]
  leaves = [np.asarray(x)[few] for x in (result if isinstance(result, tuple | list) else [result])]
  if op == "product":
    return float(np.abs(leaves[0] - a @ b[0]).max() / n)
  if op == "solve":
    x = leaves[0].astype(np.complex128)
    errors = [np.abs(m @ x - b[0]).max((-2, -1)) for m in (a, a.swapaxes(-1, -2))]
    return float(min(map(np.median, errors)))
  if op == "inv":
    return float(np.median(np.abs(a @ leaves[0] - np.eye(n)).max((-2, -1))))
  if op in ("eigh", "svd"):
    found = leaves[0 if op == "eigh" else 1]
    expected = np.linalg.eigvalsh(a) if op == "eigh" else np.linalg.svd(a, compute_uv=False)
    return float(np.abs(found - expected).max() / np.abs(expected).max())
  triangle = leaves[1] if op == "qr" and len(leaves) > 1 else leaves[0]
  found = _log_det(triangle) * (2 if op == "cholesky" else 1)
  return float(np.median(np.abs(found - np.linalg.slogdet(a)[1])) / n)


# Contenders: the functions by operation, how an operand is put, and how a result is awaited

Contender = tuple[dict[str, Call], Call, Call, dict[str, str]]


def _same(x):
  return x


def _jax(stock: bool) -> Contender:
  os.environ["JAX_PLATFORMS"] = "cpu"
  import jax

  from linalg._catalogue import TABLE

  jax.config.update("jax_enable_x64", True)
  cases = {case.name: case.stock if stock else case.call for case in TABLE if case.timed}
  functions = {op: cases["matmul" if op == "product" else op] for op in
               ("cholesky", "lu", "qr", "eigh", "svd", "solve", "inv", "product")}
  versions = {"jax": jax.__version__}
  return {op: jax.jit(f) for op, f in functions.items() if f is not None}, jax.device_put, (
      jax.block_until_ready), versions


def _numpy() -> Contender:
  names = ("cholesky", "qr", "eigh", "svd", "solve", "inv")
  functions: dict[str, Call] = {name: getattr(np.linalg, name) for name in names}
  return functions | {"product": np.matmul}, _same, _same, {"numpy": np.__version__}


def _torch() -> Contender:
  torch = importlib.import_module("torch")
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  names = ("cholesky", "qr", "eigh", "svd", "solve", "inv")
  functions = {name: getattr(torch.linalg, name) for name in names}
  functions |= {"lu": torch.linalg.lu_factor, "product": torch.matmul}
  return functions, torch.from_numpy, _same, {"torch": torch.__version__}


def _mkl(compact: bool) -> Contender:
  os.environ["KMP_BLOCKTIME"] = "200"  # MKL's own default; mkl.py would choose another
  import mkl

  library = mkl.compact() if compact else mkl.lapack()
  names = ("cholesky", "lu_factor", "qr") if compact else (
      "cholesky", "lu_factor", "qr", "eigh", "svd", "solve", "inv", "product")
  functions = {name.removesuffix("_factor"): getattr(library.linalg, name) for name in names}
  return functions, _same, _same, {"mkl": library.__version__}


def _eigen(path: str) -> Contender:
  library = ctypes.CDLL(path)
  threads = len(os.sched_getaffinity(0))
  version = (ctypes.c_int * 3)()
  library.eigen_version(version)

  def function(op):
    def call(*operands):
      a, n = operands[0], operands[0].shape[-1]
      results = [np.empty_like(operands[-1] if op in ("solve", "product") else a)]
      if op in ("qr", "svd"):
        results.append(np.empty_like(a))
      if op in ("eigh", "svd"):
        results.insert(len(results) - 1, np.empty(a.shape[:-1], a.real.dtype))
      arguments = [*operands, *results]
      getattr(library, f"eigen_{op}_{a.dtype.char}")(
          n, len(a), threads, *(x.ctypes.data_as(ctypes.c_void_p) for x in arguments))
      return tuple(results) if len(results) > 1 else results[0]

    return call

  functions = {op: function(op) for op in
               ("cholesky", "lu", "qr", "eigh", "svd", "solve", "inv", "product")}
  return functions, _same, _same, {"eigen": ".".join(map(str, version))}


def _copy() -> Contender:
  """Copies on all cores that the process may use, whose bytes are counted as read and written."""
  cores = len(os.sched_getaffinity(0))
  source = np.ones((cores, 2**25 // cores))
  target = np.zeros_like(source)
  pool = concurrent.futures.ThreadPoolExecutor(cores)
  return {"copy": lambda _: list(pool.map(np.copyto, target, source))}, _same, _same, {
      "nbytes": str(2 * source.nbytes)}


CONTENDERS: dict[str, Callable[[dict[str, Any]], Contender]] = {
    "copy": lambda request: _copy(),
    "ours": lambda request: _jax(stock=False),
    "stock": lambda request: _jax(stock=True),
    "numpy": lambda request: _numpy(),
    "torch": lambda request: _torch(),
    "mkl": lambda request: _mkl(compact=False),
    "mkl_bypassed": lambda request: _mkl(compact=False),
    "mkl_compact": lambda request: _mkl(compact=True),
    "mkl_compact_bypassed": lambda request: _mkl(compact=True),
    "eigen": lambda request: _eigen(request["eigen"]),
}
ONLY_REAL = ("eigen",)  # roofline_eigen.cc instantiates float and double


# Time


class Cold:
  """Makes the next call one between other programs: cold caches, and threads that sleep."""

  def __init__(self):
    self._buffer = np.zeros((len(os.sched_getaffinity(0)), CACHE_BYTES // 8))
    self._buffer = self._buffer[:, : self._buffer.shape[1] // len(self._buffer)].copy()
    self._pool = concurrent.futures.ThreadPoolExecutor(len(self._buffer))

  def __call__(self) -> None:
    start = time.perf_counter()
    at_rest = 0
    while at_rest < 2 and time.perf_counter() - start < LONGEST_WAIT_SECONDS:
      at_rest = 0 if other_threads.one_works() else at_rest + 1
      time.sleep(0.5e-3)
    list(self._pool.map(lambda part: np.add(part, 1, out=part), self._buffer))
    time.sleep(0.5e-3)


def _seconds(call: Call, calls: int) -> float:
  start = time.perf_counter()
  for _ in range(calls):
    call()
  return time.perf_counter() - start


def warm_samples(call: Call, seconds: float) -> list[float]:
  calls = 1
  begin = time.perf_counter()
  while (spent := _seconds(call, calls)) < SAMPLE_SECONDS:
    calls *= 2
  samples = [spent / calls]
  while len(samples) < MIN_SAMPLES or time.perf_counter() - begin < seconds:
    if len(samples) > 1 and time.perf_counter() - begin > 10 * seconds:
      break  # a slow call
    samples.append(_seconds(call, calls) / calls)
  return samples


def cold_samples(call: Call, cold: Cold, seconds: float) -> list[float]:
  samples: list[float] = []
  while len(samples) < COLD_SAMPLES and sum(samples) < 10 * seconds:
    cold()
    samples.append(_seconds(call, 1))
  return samples


def measure(
    cell: dict[str, Any], contender: Contender, cold: Cold | None, seconds: float
) -> dict[str, Any]:
  functions, put, wait, _ = contender
  op, n, batch, dtype = (cell[x] for x in ("op", "n", "batch", "dtype"))
  operands = [] if op == "copy" else operands_of(op, n, batch, dtype)
  placed = [put(x) for x in operands] or [None]
  call = lambda: wait(functions[op](*placed))
  result = call()  # compiles
  if op != "copy" and n <= LARGEST_CHECKED:
    error = error_of(op, operands, result)
    if not error < (1e-2 if op == "inv" else 1e-3):
      return {"failed": f"wrong result, by {error:.1e}"}
  del result
  row: dict[str, Any] = {}
  for regime in cell["regimes"]:
    samples = cold_samples(call, cold, seconds) if regime == "cold" and cold else (
        warm_samples(call, seconds))
    row[regime] = [float(f"{x:.4g}") for x in (statistics.median(samples), min(samples))]
  return row


def main() -> None:
  request = json.loads(sys.stdin.readline())
  if request["cores"] == 1:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
  contender = CONTENDERS[request["contender"]](request)
  say = lambda line: print(json.dumps(line), flush=True)
  say({"versions": contender[-1]})
  cold = Cold() if any("cold" in cell["regimes"] for cell in request["cells"]) else None
  gc.disable()
  for index, cell in enumerate(request["cells"]):
    if cell["op"] not in contender[0] or (
        request["contender"] in ONLY_REAL and cell["dtype"][0] == "c"):
      continue
    say({"began": index})
    try:
      row = measure(cell, contender, cold, request["seconds"])
    except Exception as error:  # one cell of many: the parent writes the reason down
      row = {"failed": f"{type(error).__name__}: {error}"[:200]}
    say({"ended": index} | row)
    gc.collect()


if __name__ == "__main__":
  main()
