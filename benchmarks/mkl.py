"""Intel's MKL as a peer, from its wheel (`pip install mkl`), under the names of torch.linalg.

LAPACK sees the transpose of each row-major matrix, which takes the same time. The matrices of a
batch are factored one after another, each by all of MKL's threads. `compact` uses MKL's routines
for batches of small matrices, one matrix per lane. It packs, factors and unpacks on one thread.
"""

import ctypes
import importlib.metadata
import os
import types
from collections.abc import Callable
from typing import Any

import numpy as np

_COLUMN_MAJOR = 102
_LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}
_INT = ctypes.c_int


def _load() -> ctypes.CDLL:
  try:
    files = importlib.metadata.files("mkl") or []
  except importlib.metadata.PackageNotFoundError as error:
    raise ImportError("there is no MKL: pip install mkl") from error
  # MKL's threads would spin for 200 ms after each call, while the next contestant is timed.
  os.environ.setdefault("KMP_BLOCKTIME", "0")
  (path,) = [file.locate() for file in files if "libmkl_rt.so" in file.name]
  library = ctypes.CDLL(str(path))
  library.LAPACKE_set_nancheck(0)
  return library


def _pointer(x: Any) -> Any:
  return x.ctypes.data_as(ctypes.c_void_p) if isinstance(x, np.ndarray) else x


class _Lapack:
  """torch.linalg's functions for batches (batch, n, n), one matrix after another."""

  def __init__(self, library: ctypes.CDLL):
    self._library = library

  def _call(self, routine: str, dtype: np.dtype, *operands: Any) -> None:
    call = getattr(self._library, f"LAPACKE_{_LETTERS[dtype.char]}{routine}")
    info = call(_COLUMN_MAJOR, *(_pointer(x) for x in operands))
    if info != 0:
      raise RuntimeError(f"{routine}: info = {info}")

  def _each(self, routine: str, a: np.ndarray, *results: np.ndarray, before: tuple[Any, ...]):
    """Calls the routine for each matrix in place, with its part of each result."""
    n = _INT(a.shape[-1])
    for i, matrix in enumerate(a):
      self._call(routine, a.dtype, *before, n, matrix, n, *(x[i] for x in results))
    return a

  def cholesky(self, a):
    return self._each("potrf", a.copy(), before=(ctypes.c_char(b"U"),))

  def lu_factor(self, a):
    pivots = np.empty(a.shape[:-1], np.int32)
    return self._each("getrf", a.copy(), pivots, before=(_INT(a.shape[-1]),)), pivots

  def qr(self, a):
    n, tau = _INT(a.shape[-1]), np.empty(a.shape[:-1], a.dtype)
    r = self._each("geqrf", a.copy(), tau, before=(n,))
    routine = "ungqr" if a.dtype.kind == "c" else "orgqr"
    return self._each(routine, r.copy(), tau, before=(n, n)), r

  def _eigh(self, a, job):
    w = np.empty(a.shape[:-1], a.real.dtype)
    routine = "heevd" if a.dtype.kind == "c" else "syevd"
    return w, self._each(routine, a.copy(), w, before=(ctypes.c_char(job), ctypes.c_char(b"U")))

  def eigh(self, a):
    return self._eigh(a, b"V")

  def eigvalsh(self, a):
    return self._eigh(a, b"N")[0]

  def _svd(self, a, job):
    n, s = _INT(a.shape[-1]), np.empty(a.shape[:-1], a.real.dtype)
    u, vh = np.empty_like(a), np.empty_like(a)
    before = ctypes.c_char(job), n, n
    for i, matrix in enumerate(a.copy()):
      self._call("gesdd", a.dtype, *before, matrix, n, s[i], u[i], n, vh[i], n)
    return u, s, vh

  def svd(self, a):
    return self._svd(a, b"A")

  def svdvals(self, a):
    return self._svd(a, b"N")[1]

  def solve(self, a, b):
    n, x = _INT(a.shape[-1]), b.mT.copy()
    before, pivots = (n, _INT(b.shape[-1])), np.empty(n.value, np.int32)
    for matrix, columns in zip(a.copy(), x, strict=True):
      self._call("gesv", a.dtype, *before, matrix, n, pivots, columns, n)
    return x.mT

  def inv(self, a):
    return self._each("getri", *self.lu_factor(a), before=())

  def product(self, a, b):
    """The product of each pair, row-major, by BLAS's gemm."""
    n, result, plain = _INT(a.shape[-1]), np.empty_like(a), _INT(111)
    multiply = getattr(self._library, f"cblas_{_LETTERS[a.dtype.char]}gemm")
    scalar = {"f": ctypes.c_float, "d": ctypes.c_double}.get(a.dtype.char)
    numbers = [scalar(x) if scalar else _pointer(np.array(x, a.dtype)) for x in (1, 0)]
    for x, y, z in zip(a, b, result, strict=True):
      operands = (_pointer(x), n, _pointer(y), n, numbers[1], _pointer(z), n)
      multiply(_INT(101), plain, plain, n, n, n, numbers[0], *operands)
    return result


class _Compact:
  """Factors of batches of small matrices: LU without pivoting, QR as reflectors."""

  def __init__(self, library: ctypes.CDLL):
    self._library = library
    self._format = library.mkl_get_format_compact()

  def _factor(self, routine: str, a: np.ndarray, *before: Any, tau: bool = False) -> np.ndarray:
    letter, n, batch = _LETTERS[a.dtype.char], _INT(a.shape[-1]), _INT(len(a))
    of = lambda name: getattr(self._library, f"mkl_{letter}{name}_compact")

    def buffer(cols: int) -> np.ndarray:
      size = of("get_size")(n, _INT(cols), _INT(self._format), batch)
      return np.empty(size // a.itemsize, a.dtype)

    def pointers(x: np.ndarray) -> np.ndarray:
      return x.ctypes.data + np.arange(len(x), dtype=np.uintp) * x[0].nbytes

    packed, result, info = buffer(n.value), np.empty_like(a), _INT()
    shape = (_INT(_COLUMN_MAJOR), n, n)
    of("gepack")(*shape, _pointer(pointers(a)), n, _pointer(packed), n, self._format, batch)
    more = []
    if tau:
      scales, work = buffer(1), np.empty(1, a.dtype)
      query = (_INT(_COLUMN_MAJOR), n, n, _pointer(packed), n, _pointer(scales))
      of(routine)(*query, _pointer(work), _INT(-1), ctypes.byref(info), self._format, batch)
      work = np.empty(int(work[0].real), a.dtype)
      more = [_pointer(scales), _pointer(work), _INT(len(work))]
    of(routine)(
        _INT(_COLUMN_MAJOR), *before, n, _pointer(packed), n, *more, ctypes.byref(info),
        self._format, batch)
    of("geunpack")(*shape, _pointer(pointers(result)), n, _pointer(packed), n, self._format, batch)
    return result

  def cholesky(self, a):
    return self._factor("potrf", a, _INT(121))  # MKL_UPPER, of the matrix as stored

  def lu_factor(self, a):
    return self._factor("getrfnp", a, _INT(a.shape[-1]))

  def qr(self, a):
    return self._factor("geqrf", a, _INT(a.shape[-1]), tau=True)


def _library(functions: Callable[[ctypes.CDLL], Any]) -> Any:
  """Stands in for a module of a peer."""
  return types.SimpleNamespace(
      linalg=functions(_load()), __version__=importlib.metadata.version("mkl"))


def lapack() -> Any:
  return _library(_Lapack)


def compact() -> Any:
  return _library(_Compact)
