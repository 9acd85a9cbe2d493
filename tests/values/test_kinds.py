"""Composed functions on all kinds of matrices, at all sizes, against SciPy.

support/kinds.py is the table. By default each function is called once, with all kinds of matrices
of order 7, in complex128. Functions in SLOW are left to the extended tests.
"""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import cases
import kinds
import linalg.distributed
import linalg.scipy
import long_double as exact
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
      for name in kinds.TESTED for n in kinds.SIZES for dtype in cases.DTYPES
      if dtype in cases.named(name).dtypes]


def _docstring(name):
  if name in kinds.TESTED:
    (function,) = (x.function for x in CATALOGUE if cases.named(name) in x.cases)
  else:
    function = getattr(linalg.distributed, name)
  return " ".join(function.__doc__.split())


@pytest.mark.parametrize("name, n, dtype", _each())
def test_errors(name, n, dtype):
  """Errors are at most ten times SciPy's, or the docstring names the case."""
  case = cases.named(name)
  found = kinds.losses(kinds.TESTED[name], n, np.dtype(dtype), quick_jit(case.results))
  assert found
  for x in found:
    if x.excess > 1:
      assert (name, x.kind) in kinds.TOLD, x
      assert x.ours == np.inf or not kinds.TOLD[name, x.kind].is_nan, x


def test_the_table_is_complete():
  """It has all cases that are composed in Python, and those of linalg.scipy."""
  composed = {case.name for case in cases.COMPOSED + cases.SCIPY}
  assert set(kinds.TESTED) == composed | {"eigh_generalized"}
  others = {
      "batched", "cho_factor", "det", "lu_factor", "newton_schulz", "randomized_svd", "report"}
  assert set(kinds.DISTRIBUTED) | others == {
      x.name for x in CATALOGUE if x.module == "linalg.distributed"}


def test_docstrings_name_the_exceptions():
  for (name, kind), told in kinds.TOLD.items():
    assert kind in kinds.KINDS and told.words in _docstring(name)


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


# How often an estimate may be less than a tenth of the error, of all matrices of a dtype.
FEW = 0.01


@pytest.mark.extended
@pytest.mark.parametrize("dtype", cases.DTYPES, ids=lambda x: x.__name__)
def test_estimates_of_funm(dtype):
  """The error exceeds ten times the estimate for hardly any matrix."""
  tested = kinds.TESTED["funm"]
  function = quick_jit(lambda a: linalg.scipy.funm(a, jnp.log, disp=False))
  norm = lambda x: float(np.abs(x).sum(0).max())
  wrong, count = [], 0
  for n in (2, 7, 33):
    operands = kinds.operands_of(tested, n, dtype)
    found, estimates = (np.asarray(x) for x in function(*kinds.stacked(operands)))
    for (kind, one), x, estimate in zip(operands, found, estimates, strict=True):
      expected = tested.exact(*one)
      if not np.isfinite(expected).all():
        continue
      count += 1
      error = norm(exact.wide(x) - expected) / norm(expected)
      if estimate < 1 and not error <= 10 * estimate:
        wrong.append((n, kind, error, float(estimate)))
  assert count > 50
  assert len(wrong) <= FEW * count, wrong


def _residual(a, x, b):
  """‖A x - b‖ / (‖A‖ ‖x‖) in the 1-norm."""
  a, x, b = map(exact.wide, (a, x, b))
  norm = lambda y: np.abs(y).sum(0).max()
  return float(norm(a @ x - b) / (norm(a) * norm(x)))


@pytest.mark.parametrize("n", [QUICK_SIZE, *(
    pytest.param(n, marks=pytest.mark.extended) for n in kinds.SIZES if n != QUICK_SIZE)])
@cases.each_dtype(np.complex128, np.float64, np.float32, np.complex64)
def test_info_tells(n, dtype):
  """Where info is 0, the backward errors of solutions, factors and inverses are of rounding."""
  rng = np.random.default_rng(n)
  dtype = np.dtype(dtype)
  eps = float(np.finfo(dtype).eps)
  some = {kind: kinds.matrix(kind, rng, n, dtype, kinds.ANY) for kind in kinds.KINDS}
  definite = {
      kind: a for kind in kinds.KINDS
      if (a := kinds.matrix(kind, rng, n, dtype, kinds.POSITIVE)) is not None}
  a, h = np.stack(list(some.values())), np.stack(list(definite.values()))
  b = np.stack([a[i] @ rng.standard_normal((n, 2)).astype(dtype) for i in range(len(a))])
  x, info = (np.asarray(y) for y in linalg.solve_ex(a, b))
  factor, of_factor = (np.asarray(y) for y in linalg.cholesky_ex(h))
  w, v, of_vectors = (np.asarray(y) for y in linalg.eigh_ex(h))
  wrong, count = [], 0
  for i, kind in enumerate(some):
    if info[i] == 0:
      count += 1
      error = _residual(a[i], x[i], b[i])
      wrong += [("solve", kind, error)] if not error <= 10 * n * eps else []
  for i, kind in enumerate(definite):
    if of_factor[i] == 0:
      count += 1
      error = kinds.cholesky_error((h[i],), (factor[i],))
      wrong += [("cholesky", kind, error)] if not error <= 10 * n * eps else []
    if of_vectors[i] == 0:
      count += 1
      own = exact.wide(v[i])
      product = (own * exact.wide(w[i])) @ own.conj().T - h[i]
      error = float(exact.size(product) / exact.size(h[i]))
      wrong += [("eigh", kind, error)] if not error <= 10 * n * eps else []
  assert count > 20
  assert not wrong
