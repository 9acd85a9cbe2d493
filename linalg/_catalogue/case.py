"""The cases of the functions: how each is called, checked and timed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from linalg._catalogue.operands import MATRICES
from linalg._catalogue.timed import Timed

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


def _same(results):
  return results


@dataclass(frozen=True)
class Case:
  """One way to call a function, with the data that suites and benchmarks need.

  Attributes:
    name: the function's name, and a suffix for a particular case.
    call: the operation; an array or a tuple of arrays from arrays with any batch dimensions.
    operands: (rng, batch shape, m, n, dtype) -> operands. Square operations ignore m.
    ranks: the number of core dimensions of each operand.
    ratio: (operands, results) -> the worst scaled error of the batch.
    oracle: SciPy's or NumPy's answer for one matrix, a tuple; its invariants equal ours up to
      rounding.
    stock: stock JAX's function of the same operands and meaning, where there is one.
    invariant: results -> results without the choice of signs or bases that the operation leaves
      open. For derivatives the suites drop integers among the results.
    rectangular: whether m != n makes sense.
    limit: what `ratio` must not exceed.
    complex: whether real operands have complex results.
    dtypes: the dtypes that make a difference.
    stock_dtypes: the dtypes that `stock` takes.
    differentiable: whether any result has a derivative.
    slow: whether its programs take long to compile.
    closed_form: the size up to which the function, or its derivative, is another formula.
    scan: whether the derivative is a loop over columns.
    composed: whether its function is composed of other functions in Python.
    matrix: LAPACK's kind of test matrices for its operands: "general", "nonsingular", "positive" or
      "hermitian". The default follows from `operands`.
    of_matrix: a stack of such matrices -> the operands.
    variant: whether another case calls the same handler, or composed function, in its usual way.
    exact: whether `ratio` is the distance from the exact result, rather than a residual.
    empty: whether there is a result for matrices without entries.
    xla: whether XLA has it where a handler has not, its sizes being symbols, or sharded.
    any_size: whether a size may be a symbol of jax.export.
    unordered: whether the order of its results depends on the algorithm.
    zeros: whether parts of a result are zero whatever the operands hold.
    varying: the places of the results whose last bits depend on the batch, and why.
    lapack: whether its rounding can be held against that of `stock`, which calls LAPACK.
    stock_hangs: whether `stock` may hang on a mesh. Each of its LAPACK calls blocks a thread of the
      pool until other threads have done the batch. Several calls side by side, of all devices, may
      block the whole pool (seen with jaxlib 0.10.2).
    absent: the platforms for which stock JAX, and so this package, has nothing, and what its error
      is about.
    timed: how it is timed, if benchmarks do that.
  """

  name: str
  call: Callable[..., Any]
  operands: Callable[..., tuple[np.ndarray, ...]]
  ranks: tuple[int, ...]
  ratio: Callable[..., float]
  oracle: Callable[..., Any]
  stock: Callable[..., Any] | None = None
  invariant: Callable[..., Any] = _same
  rectangular: bool = False
  limit: float = 30.0
  complex: bool = False
  dtypes: tuple[Any, ...] = DTYPES
  stock_dtypes: tuple[Any, ...] = DTYPES
  differentiable: bool = True
  slow: bool = False
  closed_form: int = 0
  scan: bool = False
  composed: bool = False
  matrix: str = ""
  of_matrix: Callable[..., tuple[np.ndarray, ...]] = lambda a: (a,)
  variant: bool = False
  exact: bool = False
  empty: bool = True
  xla: bool = False
  any_size: bool = True
  unordered: bool = False
  zeros: bool = False
  varying: Mapping[int, str] = field(default_factory=dict)
  lapack: bool = False
  stock_hangs: bool = False
  absent: tuple[tuple[str, ...], str] = ((), "")
  timed: Timed | None = None

  def result_dtypes(self, dtype) -> set[np.dtype]:
    """The dtypes that inexact results of operands of a dtype may have."""
    return {np.dtype(dtype), np.finfo(dtype).dtype} | (
        {np.result_type(dtype, np.complex64)} if self.complex else set())

  @property
  def kind_of_matrix(self) -> str | None:
    """Returns `matrix`, or its replacement."""
    return self.matrix or MATRICES.get(self.operands)

  def expected(self, *operands) -> tuple[np.ndarray, ...]:
    """The oracle's invariant results for one matrix."""
    return tuple(np.asarray(x) for x in self.invariant(self.oracle(*operands)))

  def results(self, *operands) -> tuple[jax.Array, ...]:
    results = self.call(*operands)
    return tuple(results) if isinstance(results, tuple) else (results,)
