"""Cases of functions whose error is the distance from the oracle's result."""

import functools

import numpy as np

from linalg._catalogue import checks
from linalg._catalogue.case import Case


def _distance(oracle, rank, condition):
  """The distance from the oracle in double precision, over n eps and the condition."""

  def ratio(operands, results):
    batch = operands[0].shape[: operands[0].ndim - rank]
    worst = 0.0
    for i in np.ndindex(batch):
      expected = oracle(*(checks.wide(x[i]) if x.dtype.kind in "fc" else x[i] for x in operands))
      for x, y in zip(results, expected, strict=True):
        scale = max(np.max(np.abs(y), initial=0), np.finfo(np.float32).tiny)
        error = np.max(np.abs(checks.wide(np.asarray(x)[i]) - y), initial=0)
        size = max(operands[0].shape[-1], 1)
        unit = scale * size * checks.eps(operands[0]) * condition
        worst = max(worst, checks.worst(error, unit))
    return worst

  return ratio


def case_of(name, call, operands, ranks, oracle, stock=None, condition=1.0, **options):
  ratio = _distance(oracle, ranks[0], condition)
  return Case(name, call, operands, ranks, ratio, oracle, stock, exact=True, **options)


composed = functools.partial(case_of, composed=True)
"""The case of a function that is composed of others in Python."""
