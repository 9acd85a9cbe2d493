"""What is timed: operations of the package's table, beside other libraries' and with operands of
their own, which are quick to make and whose results meet no subnormal number."""

import math
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from linalg._cases import COMPOSED, DECOMPOSITIONS

DTYPES = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
    "i32": np.dtype(np.int32),
}


class Operand(NamedTuple):
  core: Callable[[int], tuple[int, ...]]  # the shape of one, for matrices of size n
  fill: Callable[[np.random.Generator, tuple[int, ...], np.dtype], np.ndarray]


def _uniform(rng, shape, dtype):
  """Entries in [-1, 1]: bounded, so that adding to a diagonal makes a matrix definite."""
  real = np.finfo(dtype).dtype
  x = 2 * rng.random(shape, dtype=real) - 1
  if dtype.kind == "c":
    x = x + 1j * (2 * rng.random(shape, dtype=real) - 1)
  return x


def _hermitian(rng, shape, dtype):
  x = _uniform(rng, shape, dtype)
  return (x + x.mT.conj()) / 2


def _positive_definite(rng, shape, dtype):
  n = shape[-1]
  return _hermitian(rng, shape, dtype) + 2 * n * np.eye(n, dtype=dtype)


def _factor(rng, shape, dtype):
  """Both triangles are well conditioned: solutions stay of order 1 and meet no subnormal number."""
  n = shape[-1]
  return _uniform(rng, shape, dtype) / n + 2 * np.eye(n, dtype=dtype)


def _lower_factor(rng, shape, dtype):
  return np.tril(_factor(rng, shape, dtype))


def _pivots(rng, shape, dtype):
  n = shape[-1]
  return rng.integers(np.arange(n), n, size=shape).astype(np.int32)


def _square(n):
  return n, n


GENERAL = Operand(_square, _uniform)
HERMITIAN = Operand(_square, _hermitian)
POSITIVE_DEFINITE = Operand(_square, _positive_definite)
FACTOR = Operand(_square, _factor)
LOWER_FACTOR = Operand(_square, _lower_factor)
COLUMN = Operand(lambda n: (n, 1), _uniform)
TALL = Operand(lambda n: (4 * n, n), _uniform)
TALL_COLUMN = Operand(lambda n: (4 * n, 1), _uniform)
VECTOR = Operand(lambda n: (n,), _uniform)
DIAGONAL = Operand(lambda n: (n,), lambda *of: _uniform(*of) + 3)
UPPER_FACTOR = Operand(_square, lambda *of: np.triu(_factor(*of)))
PIVOTS = Operand(lambda n: (n,), _pivots)


class Case(NamedTuple):
  """One operation of the package's table, as it is timed.

  An entry of `peers` is a function of a library, which returns what to time on the operands. The
  key names the library, or the one whose names it has taken over.
  """

  name: str
  operands: tuple[Operand, ...]
  flops: Callable[[int], float]  # of one real matrix, to leading order
  peers: Mapping[str, Callable[[Any], Callable[..., Any]]] = {}
  dtypes: tuple[str, ...] = ("f32", "f64", "c64", "c128")  # those that the operation has

  @property
  def ours(self) -> Callable[..., Any]:
    return TABLE[self.name].call

  @property
  def stock(self) -> Callable[..., Any]:
    stock = TABLE[self.name].stock
    assert stock is not None
    return stock

  def nbytes(self, n: int, batch: int, dtype: str) -> int:
    size = sum(math.prod(operand.core(n)) for operand in self.operands)
    return batch * size * DTYPES[dtype].itemsize

  def make_operands(self, n: int, batch: int, dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng([n, batch])
    return [
        operand.fill(rng, (batch, *operand.core(n)), DTYPES[dtype]) for operand in self.operands]


TABLE = {case.name: case for case in (*DECOMPOSITIONS, *COMPOSED)}


def _in(path, *libraries):
  return dict.fromkeys(libraries, attrgetter(path))


CASES = [
    Case("cholesky", (POSITIVE_DEFINITE,), lambda n: n**3 / 3,
         _in("linalg.cholesky", "numpy", "torch", "cupy")
         | {"scale": lambda jax: jax.jit(lambda a: a * 1.5)}),
    Case("lu", (GENERAL,), lambda n: 2 * n**3 / 3, _in("linalg.lu_factor", "torch")),
    Case("qr", (GENERAL,), lambda n: 8 * n**3 / 3, _in("linalg.qr", "numpy", "torch", "cupy")),
    Case("eigh", (HERMITIAN,), lambda n: 9 * n**3, _in("linalg.eigh", "numpy", "torch", "cupy")),
    Case("eigvalsh", (HERMITIAN,), lambda n: 4 * n**3 / 3,
         _in("linalg.eigvalsh", "numpy", "torch", "cupy")),
    Case("svd", (GENERAL,), lambda n: 22 * n**3, _in("linalg.svd", "numpy", "torch")),
    Case("svdvals", (GENERAL,), lambda n: 8 * n**3 / 3, _in("linalg.svdvals", "numpy", "torch")),
    Case("eig", (GENERAL,), lambda n: 25 * n**3, _in("linalg.eig", "numpy", "torch")),
    Case("eigvals", (GENERAL,), lambda n: 10 * n**3, _in("linalg.eigvals", "numpy", "torch")),
    Case("schur", (GENERAL,), lambda n: 25 * n**3),
    Case("solve", (GENERAL, COLUMN), lambda n: 2 * n**3 / 3 + 2 * n**2,
         _in("linalg.solve", "numpy", "torch", "cupy")),
    Case("inv", (GENERAL,), lambda n: 2 * n**3, _in("linalg.inv", "numpy", "torch", "cupy")),
    Case("det", (GENERAL,), lambda n: 2 * n**3 / 3, _in("linalg.det", "numpy", "torch", "cupy")),
    Case("slogdet", (GENERAL,), lambda n: 2 * n**3 / 3,
         _in("linalg.slogdet", "numpy", "torch", "cupy")),
    Case("lstsq", (TALL, TALL_COLUMN), lambda n: 56 * n**3, _in("linalg.lstsq", "torch")),
    Case("pinv", (GENERAL,), lambda n: 24 * n**3, _in("linalg.pinv", "numpy", "torch", "cupy")),
    Case("cond", (GENERAL,), lambda n: 8 * n**3 / 3,
         _in("linalg.cond", "numpy", "torch", "cupy")),
    Case("expm", (GENERAL,), lambda n: 16 * n**3, _in("linalg.matrix_exp", "torch")),
    Case("matmul", (GENERAL, GENERAL), lambda n: 2 * n**3, _in("matmul", "numpy", "torch", "cupy")),
    Case("tridiagonal_solve", (VECTOR, DIAGONAL, VECTOR, COLUMN), lambda n: 8 * n),
    Case("cholesky_update", (UPPER_FACTOR, VECTOR), lambda n: 3 * n**2, dtypes=("f32", "f64")),
    # As many right-hand sides as rows, where the other solves have one: this times trsm, not trsv.
    Case("triangular_solve", (LOWER_FACTOR, GENERAL), lambda n: n**3,
         {"torch": lambda torch: lambda a, b: torch.linalg.solve_triangular(a, b, upper=False)}),
    Case("cho_solve", (LOWER_FACTOR, COLUMN), lambda n: 2 * n**2,
         {"torch": lambda torch: lambda c, b: torch.cholesky_solve(b, c)}),
    Case("lu_solve", (FACTOR, PIVOTS, COLUMN), lambda n: 2 * n**2,
         {"torch": lambda torch: lambda lu, p, b: torch.linalg.lu_solve(lu, p + 1, b)}),
    Case("lu_pivots_to_permutation", (PIVOTS,), lambda n: n, dtypes=("i32",)),
]
