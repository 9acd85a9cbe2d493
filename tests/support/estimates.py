"""The errors of functions, and what their results promise about them, for tests of both."""

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

import cases
import kinds
import long_double as exact
from long_double import size, wide


@dataclasses.dataclass(frozen=True)
class Row:
  """A function that says something about its error.

  Attributes:
    call: stacks of operands -> all results.
    excess: (operands, results) of one matrix -> the true error, over the error that the results
      promise. 0 where they promise nothing.
    spectrum: that of the matrices.
    operands: a stack of matrices -> stacks of operands.
    few: how often the excess may be above 10, of all matrices.
    dtypes: the dtypes to test.
    slow: whether the programs take long to compile.
  """

  call: Callable[..., Any]
  excess: Callable[..., float]
  spectrum: kinds.Spectrum = kinds.ANY
  operands: Callable[..., tuple[np.ndarray, ...]] = lambda a: (a,)
  few: float = 0
  dtypes: tuple[Any, ...] = cases.DTYPES
  slow: bool = False


def singular_values(a):
  if not np.isfinite(a).all():
    return np.full(min(a.shape), np.nan)
  a, scale = exact._unscaled(wide(a))
  return wide(scipy.linalg.svdvals(exact.narrow(a))) * scale


def rank_excess(a, rank, rtol):
  """How far the rank's last singular value is below the cut-off, or the next one above it."""
  s = np.append(singular_values(a), 0)
  cut_off = rtol * s[0]
  if cut_off == 0:
    return 0.0 if rank == 0 else np.inf
  if not np.isfinite(cut_off):
    return 0.0
  last = cut_off / s[rank - 1] if rank and s[rank - 1] else float(rank > 0) * np.inf
  return float(max(last if rank else 0, s[rank] / cut_off))


def n_eps(a):
  return max(a.shape) * float(np.finfo(a.dtype).eps)


def lstsq_excess(operands, results):
  """The rank, the residuals of x and the singular values, each against its rounding."""
  (a, b), (x, residuals, rank, s) = operands, results
  if not np.isfinite(x).all():
    return 0.0 if not np.isfinite(a).all() else np.inf
  unit = 10 * n_eps(a)
  misfit = np.sqrt(np.sum(np.abs(wide(b) - wide(a) @ wide(x)) ** 2, 0))
  scale = size(s) * size(x) + size(b)
  values = singular_values(a)
  return float(np.max([  # max() would lose a NaN
      size(np.sqrt(wide(residuals)) - misfit) / (unit * scale),
      size(wide(s) - values) / (unit * size(values)) if size(values) else 0.0,
      rank_excess(a, int(rank), n_eps(a))]))


def broken(n, dtype):
  """Matrices that few functions can factor."""
  eye = np.eye(n, dtype=dtype)
  ones = np.ones((n, n), dtype)
  nan = eye.copy()
  nan[-1, -1] = np.nan
  indefinite = eye.copy()
  indefinite[-1, -1] = -1
  return {"zero": 0 * eye, "equal": ones, "NaN": nan, "indefinite": indefinite}


def matrices_of(spectrum, n, dtype):
  """kind -> a matrix."""
  found = {}
  for kind in kinds.KINDS:
    with contextlib.suppress(kinds.LeftOut):
      found[kind] = kinds.matrix(kind, np.random.default_rng(n), n, np.dtype(dtype), spectrum)
  return found | broken(n, dtype)


def check(row, n, dtype, call):
  """Asserts that the true errors hardly ever exceed ten times what the results promise.

  Args:
    row: the Row.
    n, dtype: of the matrices.
    call: stacks of operands -> stacks of results.
  """
  some = matrices_of(row.spectrum, n, dtype)
  operands = row.operands(np.stack(list(some.values())))
  results = [np.asarray(x) for x in call(*operands)]
  found = {}
  with np.errstate(all="ignore"):
    for i, kind in enumerate(some):
      found[kind] = row.excess([x[i] for x in operands], [x[i] for x in results])
  wrong = {kind: x for kind, x in found.items() if not x <= 10}
  assert len(wrong) <= row.few * len(found), wrong
  # Most of the matrices are within what the function takes. Ranks of the smallest may be exact.
  assert n < 3 or sum(x > 0 for x in found.values()) > 4, found


# The words of docstrings that promise an estimate.
_PROMISES = re.compile(r"\binfo\b|estimate|\branks?\b|[Rr]esidual|\berror\b")


def promises(function):
  text = " ".join(inspect.getdoc(function).split())
  returns = re.search(r"Returns:(.*?)(Algorithm|Example|Args:|$)", text)
  return _PROMISES.search(returns[1] if returns else text[:300])
