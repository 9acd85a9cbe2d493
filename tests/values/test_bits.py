"""A matrix has the same bits in any batch: what is composed in Python.

The operations with handlers, which keep the promise at every size and in every batch, are tried in
test_threads.py.
"""

import jax
import numpy as np
import pytest

import cases
from sharded import same_bits

SUMS = "XLA sums a few arrays in other orders than many"
LOOPS = "XLA fuses products and sums in a loop over rows or not, by the batch's size (jax 0.12)"
PRODUCTS = "XLA compiles products of complex numbers, or of small matrices, by the batch's size"

# What does not keep it, and why: the README says so too.
OTHERS = {
    "norm": SUMS,
    "matrix_norm_1": SUMS,
    "matrix_norm_inf": SUMS,
    "matrix_norm_nuc": SUMS,
    "vector_norm_2": SUMS,
    "vector_norm_3": SUMS,
    "vector_norm_0.5": SUMS,
    "vector_norm_-1": SUMS,
    "cond_1": SUMS,
    "trace": SUMS,
    "vecdot": SUMS,
    "cholesky_update": LOOPS,
    "cholesky_update_down": LOOPS,
    "cross": PRODUCTS,
    "expm": PRODUCTS,
}
# Of several results, those that keep it: not the residuals, which are sums.
RESULTS = {"lstsq": (0, 2, 3)}
KEPT = [case for case in cases.COMPOSED if case.name not in OTHERS]
BATCHES = (2, 7, 64)
extended = pytest.mark.extended


def _bits_in_batches(case, dtype, n, batches, rng):
  operands = case.operands(rng, (max(batches),), n, n, dtype)

  @jax.jit
  def function(*operands):
    results = case.results(*operands)
    return [results[i] for i in RESULTS.get(case.name, range(len(results)))]

  whole = [np.asarray(x) for x in function(*operands)]
  for size in batches[:-1]:
    same_bits(function(*(x[:size] for x in operands)), [x[:size] for x in whole])
  for i in (0, max(batches) // 2, max(batches) - 1):
    same_bits(function(*(x[i] for x in operands)), [x[i] for x in whole])


def test_names():
  """Catches a name that no case has any more."""
  assert OTHERS.keys() <= {case.name for case in cases.COMPOSED}


@cases.each(KEPT)
@pytest.mark.parametrize("n", [5, *(pytest.param(n, marks=extended) for n in (2, 3, 16, 33))])
def test_same_bits_in_any_batch(case, dtype, n, rng):
  """Catches a sum or a product whose rounding depends on the number of matrices."""
  _bits_in_batches(case, dtype, n, BATCHES, rng)


@extended
@cases.each(KEPT)
def test_same_bits_in_a_large_batch(case, dtype, rng):
  _bits_in_batches(case, dtype, 16, (1000,), rng)
