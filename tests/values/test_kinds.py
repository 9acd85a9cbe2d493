"""Composed functions on all kinds of matrices, at all sizes, against SciPy.

support/kinds.py is the table. By default each function is called once, with all kinds of matrices
of order 7, in complex128. Functions in SLOW are left to the extended tests.
"""

import mpmath
import numpy as np
import pytest

import cases
import kinds
import long_double as exact
import losses
from distributed_kinds import DISTRIBUTED, DISTRIBUTED_SQUARES
from linalg._catalogue import CATALOGUE
from quick import quick_jit

ONE_IN = 2

pytestmark = pytest.mark.cpu

# Their programs take long to compile.
SLOW = {
    "expm_frechet", "fractional_matrix_power", "funm", "logm", "solve_continuous_are",
    "solve_discrete_are"}
QUICK_SIZE = 7


def _each():
  return [
      pytest.param(name, n, dtype, id=f"{name}-{n}-{dtype.__name__}", marks=()
                   if (n, dtype) == (QUICK_SIZE, np.complex128) and name not in SLOW
                   else pytest.mark.extended)
      for name, tested in kinds.TESTED.items() for n in kinds.SIZES for dtype in cases.DTYPES
      if dtype in cases.named(name).dtypes and n <= tested.largest]


@pytest.mark.parametrize("name, n, dtype", _each())
def test_errors(name, n, dtype):
  """Errors are at most ten times SciPy's, or within what the docstring says."""
  tested = kinds.TESTED[name]
  found, reasons = losses.losses(tested, n, np.dtype(dtype), quick_jit(cases.named(name).results))
  assert found and set(found) | set(reasons) == set(kinds.KINDS)
  assert not losses.faults_of(tested, found, reasons)


def test_the_table_is_complete():
  """It has all cases that are composed in Python, and those of linalg.scipy."""
  composed = {case.name for case in cases.COMPOSED + cases.SCIPY}
  assert set(kinds.TESTED) == composed | {"eigh_generalized"}
  others = {"batched", "cho_factor", "lu_factor", "report"}  # compute no numbers, or are in others
  squares = {name.split()[0] for name in DISTRIBUTED_SQUARES}
  assert set(DISTRIBUTED) | squares | others == {
      x.name for x in CATALOGUE if x.module == "linalg.distributed"}


def test_docstrings_name_the_exceptions():
  of_cases = {case.name: x.function for x in CATALOGUE for case in x.cases}
  of_distributed = {x.name: x.function for x in CATALOGUE if x.module == "linalg.distributed"}
  rows = [(of_cases[name], tested) for name, tested in kinds.TESTED.items()]
  rows += [(of_distributed[name.split()[0]], tested) for table in (
      DISTRIBUTED, DISTRIBUTED_SQUARES) for name, (tested, _) in table.items()]
  for function, tested in rows:
    assert {*tested.told, *tested.not_of, *tested.lacks} <= set(kinds.KINDS)
    for told in tested.told.values():
      assert told.words in " ".join(function.__doc__.split())


def _matrix(x):
  return mpmath.matrix([[mpmath.mpmathify(complex(y)) for y in row] for row in x])


def _distance(found, expected):
  """From a matrix of 50 digits, relative to its largest element."""
  exactly = lambda y: mpmath.mpc(*(mpmath.mpf(np.format_float_scientific(part, precision=30))
                                   for part in (y.real, y.imag)))
  difference = mpmath.matrix([[exactly(y) for y in row] for row in exact.wide(found)]) - expected
  largest = lambda a: max(abs(y) for y in a)
  return float(largest(difference) / largest(expected))


@pytest.mark.parametrize("n", [1, 5])
def test_references(n):
  """The references agree with arithmetic of 50 digits."""
  rng = np.random.default_rng(0)
  a = kinds.matrix("random", rng, n, np.complex128, kinds.RIGHT)
  h = kinds.matrix("random", rng, n, np.complex128, kinds.POSITIVE)
  b = rng.standard_normal((n, n))
  with mpmath.workdps(50):
    m, p = _matrix(a), _matrix(h)
    root = mpmath.sqrtm(m)
    half = mpmath.mpf(0.7)
    u, _, vh = mpmath.svd(m)
    exponential = lambda x: mpmath.expm(x, method="taylor")
    expected = {
        "inverse": (exact.inverse(a), m**-1),
        "least squares": (exact.least_squares(a, b), m**-1 * _matrix(b)),
        "expm": (exact.expm(a), exponential(m)),
        "sine": (exact.sinm(h), (exponential(1j * p) - exponential(-1j * p)) / 2j),
        "root": (exact.sqrtm(a), root),
        "logarithm": (exact.logm(a), mpmath.logm(m)),
        "power": (exact.fractional_power(a, 0.7), exponential(half * mpmath.logm(m))),
        "fourth root": (exact.inverse_fourth_root(h), mpmath.sqrtm(mpmath.sqrtm(p)) ** -1),
        "polar": (exact.polar(a)[0], u * vh)}
    for name, (found, right) in expected.items():
      assert _distance(found, right) < 1e-17, name
  for found, residual in (
      (exact.sylvester(a, a.T, b), lambda x: a @ x + x @ a.T - b),
      (exact.continuous_lyapunov(-a, b), lambda x: a @ x + x @ a.conj().T + b),
      (exact.discrete_lyapunov(a / 8, b), lambda x: a / 8 @ x @ (a / 8).conj().T - x + b)):
    assert exact.size(residual(found)) < 1e-17 * exact.size(b)
