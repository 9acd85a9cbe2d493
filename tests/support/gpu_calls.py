"""Calls of the operations on a GPU, for tests/cuda/gpu."""

import jax
import numpy as np

import cases
from linalg._catalogue import checks

# test_products covers products, because XLA takes those that no handler takes.
HANDLED = [x for x in cases.with_handlers("cuda") if not x.xla]


def gpus():
  try:
    return jax.devices("cuda")
  except RuntimeError:
    return []


def put(operands):
  return tuple(jax.device_put(x, gpus()[0]) for x in operands)


def results_of(case, operands):
  function = jax.jit(case.results)
  placed = put(operands)
  assert "linalg_" in function.lower(*placed).as_text()
  return [np.asarray(x) for x in function(*placed)]


def check(case, operands):
  results = results_of(case, operands)
  ratio = case.ratio(operands, results)
  assert ratio <= case.limit, f"scaled residual {ratio}"
  return results


def alone_and_bad(case, operands, which):
  """Checks that a part of a batch has the bits of the whole, beside a matrix of NaN too."""
  results = check(case, operands)
  spoilt = [x.copy() for x in operands]
  for x in spoilt:
    x[0] = np.nan if x.dtype.kind in "fc" else -1
  for x, y in zip(results, results_of(case, spoilt), strict=True):
    assert x[1:].tobytes() == y[1:].tobytes()
  for part in which:
    for x, y in zip(results, results_of(case, [x[part] for x in operands]), strict=True):
      assert x[part].tobytes() == y.tobytes()


def on_cpu(function, operands):
  """Returns the function's results on the CPU, in double precision."""
  cpu = jax.devices("cpu")[0]
  with jax.default_device(cpu):
    return function(*(jax.device_put(checks.wide(x), cpu) for x in operands))
