"""How many digits a function loses on the matrices of kinds.py, beside SciPy.

The error of a result is measured against long double (long_double.py). SciPy's error of the same
operands is the standard.
"""

import warnings
from typing import NamedTuple

import numpy as np

import long_double as exact
from kinds import (
  CAN_LACK,
  KINDS,
  NO_RANGE,
  NO_REFERENCE,
  LeftOut,
  operands_of,
  stacked,
  without,
)
from long_double import adjoint, size, wide
from result_errors import (
  as_tuple,
  distance,
  is_of_full_rank,
)


class Loss(NamedTuple):
  """The error of one matrix's result in units of eps, and what there is to compare it with."""

  kind: str
  size: int
  eps: float
  ours: float
  theirs: float
  reach: float  # how far rounding the operands moves the result

  @property
  def excess(self) -> float:
    """The error over ten times the largest of the others. 0 where SciPy has no digit either.

    SciPy's failure excuses NaN alone: other results must be within the reach.
    """
    failed = self.theirs == np.inf
    theirs = 0.0 if failed else self.theirs
    if (failed and self.ours == np.inf) or max(theirs, self.reach) >= 0.1 / self.eps:
      return 0.0
    return self.ours / (10 * max(theirs, self.reach, self.size, 4))


def _is_in_range(x, dtype):
  """Whether the dtype holds the results, with all of its digits."""
  finfo = np.finfo(dtype)
  return np.isfinite(x).all() and size(x) < finfo.max / 8 and (
      size(x) == 0 or size(x) > float(finfo.tiny) / float(finfo.eps))


def _their(tested, operands, error):
  try:
    with np.errstate(all="ignore"), warnings.catch_warnings():
      warnings.simplefilter("ignore")
      return error(tuple(map(np.asarray, as_tuple(tested.theirs(*operands)))))
  except (np.linalg.LinAlgError, ValueError, ZeroDivisionError):
    return np.inf


def _double(x):
  return x.astype(np.result_type(x, np.float64)) if x.dtype.kind in "fc" else x


def noisy(rng, x, in_norm, eps):
  """x with its elements changed by up to eps, of themselves or of the largest."""
  if x.dtype.kind not in "fc":
    return x
  change = rng.uniform(-1, 1, x.shape)
  if x.dtype.kind == "c":
    change = (change + 1j * rng.uniform(-1, 1, x.shape)) / np.sqrt(2)
  if x.ndim == 2 and x.shape[0] == x.shape[1]:  # a Hermitian matrix stays one
    change = np.tril(change) + adjoint(np.tril(change, -1))
    change = change - 1j * np.diag(np.diag(change).imag) if x.dtype.kind == "c" else change
  return wide(x) + (size(x) if in_norm else wide(x)) * (eps * change)


def _with_least_changed(rng, x, eps):
  """x with its least singular value changed by eps times the largest."""
  if x.ndim != 2 or x.shape[0] != x.shape[1] or x.dtype.kind not in "fc":
    return x
  u, s, vh = np.linalg.svd(exact.narrow(x))
  phase = rng.choice([-1, 1])
  if x.dtype.kind == "c" and size(x - adjoint(x)) != 0:
    phase = np.exp(2j * np.pi * rng.uniform())
  return wide(x) + phase * eps * s[0] * np.outer(u[:, -1], vh[-1])


def _reach(tested, kind, operands, eps):
  """How far rounding the operands moves the result: the furthest of some tries."""
  worst = 0.0
  told = tested.told.get(kind)
  in_norm = told is not None
  rounded = lambda rng, *operands: tested.exact(*(noisy(rng, x, in_norm, eps) for x in operands))
  if told and told.moved:
    rounded = told.moved
  elif kind == "nearly singular":
    # No factorization promises more than eps ‖A‖. The random changes are hardly along the vectors.
    rounded = lambda rng, *operands: tested.exact(
        *(_with_least_changed(rng, x, eps) for x in operands))
  with np.errstate(all="ignore"):
    expected = as_tuple(tested.exact(*operands))
    n = operands[0].shape[-1]
    for seed in range(10 if n < 10 else 3 if n < 50 else 1):
      moved = as_tuple(rounded(np.random.default_rng(seed), *operands))
      if not any(np.isnan(x).any() for x in moved):
        worst = max(worst, distance(moved, expected))
  return worst


def loss(tested, kind, operands, results):
  """The Loss of one matrix. Raises LeftOut where no result is in range."""
  inexact = [x for x in operands if x.dtype.kind in "fc"]
  dtype = inexact[0].dtype
  eps = float(np.finfo(dtype).eps)
  if tested.error is None:
    with np.errstate(all="ignore"):
      expected = as_tuple(tested.exact(*operands))
    if any(np.isnan(x).any() for x in expected):
      raise LeftOut(NO_REFERENCE)
    if not all(_is_in_range(x, dtype) for x in expected):
      raise LeftOut(NO_RANGE)
    results = results[: len(expected)]
    error = lambda found: distance(found[: len(expected)], expected)
  else:
    error = lambda found: tested.error(operands, found)
  with np.errstate(all="ignore"):
    ours = error(results) / eps
  ours = np.inf if np.isnan(ours) else ours
  n = operands[0].shape[-1]
  if ours <= 4 * n:
    return Loss(kind, n, eps, ours, 0, 0)
  theirs = _their(tested, operands, error) / eps
  if np.finfo(dtype).bits == 32:
    # SciPy computes some functions of float32 in float64, others in float32.
    wider = _their(tested, tuple(map(_double, operands)), error)
    theirs = max(theirs, wider / float(np.finfo(np.float64).eps))
  reach = 0.0
  determined = tested.error is None or is_of_full_rank(operands[0])
  if tested.exact is not None and determined:
    reach = _reach(tested, kind, operands, eps) / eps
  return Loss(kind, n, eps, ours, theirs, reach)


def losses(tested, n, dtype, function, kinds=tuple(KINDS)):
  """`worst_of` of a function that takes the operands of all matrices at once."""
  operands, reasons = operands_of(tested, n, dtype, kinds)
  if not operands:
    return {}, reasons
  results = [np.asarray(x) for x in function(*stacked(operands))]
  return worst_of(
      tested, operands, [[x[i] for x in results] for i in range(len(operands))], reasons)


def worst_of(tested, operands, results, reasons):
  """kind -> the Loss of its matrix with the largest excess, and kind -> why there is none.

  Args:
    tested: how.
    operands, reasons: as from `operands_of`.
    results: those of each matrix.
  """
  found, reasons = {}, dict(reasons)
  for (kind, one), own in zip(operands, results, strict=True):
    try:
      new = loss(tested, kind, one, own)
    except LeftOut as reason:
      reasons[kind] = str(reason)
      continue
    if kind not in found or new.excess > found[kind].excess:
      found[kind] = new
  return found, without(reasons, found)


def faults_of(tested, found, reasons):
  """The Losses and reasons that no docstring and no row of the table accounts for."""

  def is_told(x):
    told = tested.told.get(x.kind)
    return told is not None and (
        told.is_nan if x.ours == np.inf else x.ours * x.eps <= told.most)

  return [x for x in found.values() if x.excess > 1 and not is_told(x)] + [
      (kind, reason) for kind, reason in reasons.items()
      if reason in CAN_LACK and tested.lacks.get(kind) != reason]
