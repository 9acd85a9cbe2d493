"""Operands for timing: quick to make, and computing with them meets no subnormal number."""

import math
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np


class Operand(NamedTuple):
  core: Callable[[int], tuple[int, ...]]  # the shape of one, for matrices of size n
  fill: Callable[[np.random.Generator, tuple[int, ...], np.dtype], np.ndarray]


class Timed(NamedTuple):
  """How benchmarks time an operation.

  An entry of `peers` is a function of a library, which returns what to time on the operands. The
  key names the library, or the one whose names it has taken over.
  """

  operands: tuple[Operand, ...]
  flops: Callable[[int], float]  # of one real matrix, to leading order
  peers: Mapping[str, Callable[[Any], Callable[..., Any]]] = {}
  dtypes: tuple[Any, ...] = ()  # of operands that are no floating numbers

  def nbytes(self, n: int, batch: int, dtype: np.dtype) -> int:
    size = sum(math.prod(operand.core(n)) for operand in self.operands)
    return batch * size * dtype.itemsize

  def make_operands(self, n: int, batch: int, dtype: np.dtype) -> list[np.ndarray]:
    rng = np.random.default_rng([n, batch])
    return [operand.fill(rng, (batch, *operand.core(n)), dtype) for operand in self.operands]


def called(path: str, *libraries: str) -> dict[str, Callable[[Any], Callable[..., Any]]]:
  """Peers that have the operation by one name."""
  return dict.fromkeys(libraries, attrgetter(path))


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


def _bands(rng, shape, dtype):
  """The matrix is diagonally dominant. The second diagonal is the main one."""
  ab = _uniform(rng, shape, dtype)
  ab[..., 1, :] += 5
  return ab


def _pivots(rng, shape, dtype):
  del dtype
  n = shape[-1]
  return rng.integers(np.arange(n), n, size=shape).astype(np.int32)


def _square(n):
  return n, n


def _vector(n):
  return (n,)


GENERAL = Operand(_square, _uniform)
HERMITIAN = Operand(_square, _hermitian)
POSITIVE_DEFINITE = Operand(_square, _positive_definite)
FACTOR = Operand(_square, _factor)
LOWER_FACTOR = Operand(_square, lambda *of: np.tril(_factor(*of)))
UPPER_FACTOR = Operand(_square, lambda *of: np.triu(_factor(*of)))
COLUMN = Operand(lambda n: (n, 1), _uniform)
TALL = Operand(lambda n: (4 * n, n), _uniform)
TALL_COLUMN = Operand(lambda n: (4 * n, 1), _uniform)
VECTOR = Operand(_vector, _uniform)
DIAGONAL = Operand(_vector, lambda *of: _uniform(*of) + 3)
PIVOTS = Operand(_vector, _pivots)
# The diagonals of a banded matrix with 2 below the main one and 1 above it.
BANDS = Operand(lambda n: (4, n), _bands)
