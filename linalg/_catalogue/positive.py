"""Cholesky factors, solvers that use them, and their rank-one updates."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np

import linalg
from linalg._catalogue import checks
from linalg._catalogue.case import Case
from linalg._catalogue.distance import composed
from linalg._catalogue.factors import cholesky_factor, cholesky_product, solved
from linalg._catalogue.operands import columns_beside, positive_definite, vector, with_columns
from linalg._catalogue.record import INDEFINITE, Behaviour, Failure, Function, Kind
from linalg._catalogue.timed import (
  COLUMN,
  LOWER_FACTOR,
  POSITIVE_DEFINITE,
  UPPER_FACTOR,
  VECTOR,
  Timed,
  called,
)

EYE = np.eye(3)
KIND = Kind("positive")
ALONE = Behaviour(
    "NaN for the matrix that fails, alone", ("sharding/test_layouts.py::test_one_matrix_of_nan",))


def _factor_and_vector(rng, batch, m, n, dtype):
  """An upper Cholesky factor, and a vector short enough for a downdate."""
  (l,) = cholesky_factor(rng, batch, m, n, dtype)
  return checks.adjoint(l), vector(rng, batch, m, n, dtype)[0] * np.dtype(dtype).type(0.3)

def _factor_and_vector_of(a):
  """An upper Cholesky factor R, and w = Rᴴ p with |p| = 0.3, so that A - w wᴴ is definite."""
  r = np.asarray(linalg.cholesky(a, upper=True))
  p = np.full(a.shape[-1:], 0.3 / np.sqrt(max(a.shape[-1], 1)), a.dtype)
  return r, (checks.adjoint(checks.wide(r)) @ p).astype(a.dtype)


def _cholesky_ratio(lower):
  def ratio(operands, results):
    (a,), (factor,) = operands, results
    f = checks.wide(factor)
    np.testing.assert_array_equal(f, np.tril(f) if lower else np.triu(f))
    product = f @ checks.adjoint(f) if lower else checks.adjoint(f) @ f
    return checks.factorisation(a, product, checks.eps(factor))

  return ratio

def _update_ratio(downdate):
  def ratio(operands, results):
    (r, w), (factor,) = map(checks.wide, operands), map(checks.wide, results)
    np.testing.assert_array_equal(factor, np.triu(factor))
    before, after = (checks.adjoint(x) @ x for x in (np.triu(r), factor))
    changed = (after if downdate else before) + w[..., :, None] * w.conj()[..., None, :]
    larger, smaller = (before, changed) if downdate else (changed, after)
    return checks.factorisation(larger, smaller, checks.eps(operands[0]))

  return ratio

def _update_oracle(sign):
  def oracle(r, w):
    if not r.size:
      return (r,)
    a = r.conj().T @ r + sign * np.outer(w, w.conj())
    return (np.linalg.cholesky(a).conj().T,)

  return oracle

def _of_factor(a, b):
  factor = linalg.factorize_cholesky(a)
  return factor.solve(b), factor.logdet()

def _of_factor_oracle(a, b):
  a = (a + checks.adjoint(a)) / 2
  return np.linalg.solve(a, b), np.linalg.slogdet(a)[1]

POSITIVE: tuple[Function, ...] = (
    Function(
        "cholesky", KIND,
        differs="with `symmetrize_input=False`, `upper=True` reads the upper triangle",
        behaviours=(ALONE,),
        results={
            "cholesky(a)": "Array",
            "cholesky(a, upper=True, symmetrize_input=False)": "Array",
            "cholesky_ex(a)": "Arrays2",
        },
        fails=INDEFINITE,
        cases=(
            Case("cholesky", linalg.cholesky, positive_definite, (2,), _cholesky_ratio(lower=True),
                 lambda a: (np.linalg.cholesky(a),), jnp.linalg.cholesky, lapack=True,
                 timed=Timed(
                     (POSITIVE_DEFINITE,), lambda n: n**3 / 3,
                     called("linalg.cholesky", "numpy", "torch", "cupy", "mkl", "mkl_compact")
                     | {"scale": lambda jax: jax.jit(lambda a: a * 1.5)})),
            Case("cholesky_upper", lambda a: linalg.cholesky(a, upper=True), positive_definite,
                 (2,), _cholesky_ratio(lower=False),
                 lambda a: (np.linalg.cholesky(a).conj().T,),
                 lambda a: jnp.linalg.cholesky(a, upper=True), variant=True),
        )),
    Function(
        "cholesky_jittered", KIND, classes=("JitteredResult",),
        behaviours=(Behaviour(
            "the least jitter of a series that makes a matrix definite, for each matrix alone",
            ("values/test_cholesky_jittered.py",)),),
        sharded="linalg.distributed.cholesky of the matrix with a jitter on its diagonal",
        results={"cholesky_jittered(a)": "linalg.JitteredResult"},
        fails=INDEFINITE,
        cases=(
            Case("cholesky_jittered", lambda a: linalg.cholesky_jittered(a).factor,
                 positive_definite, (2,), _cholesky_ratio(lower=True),
                 lambda a: (np.linalg.cholesky(a),), matrix="positive"),
        )),
    Function(
        "factorize_cholesky", KIND, classes=("CholeskyFactor",),
        behaviours=(Behaviour(
            "an object that follows changes of the matrix; rows and columns at an index that may "
            "be traced; NaN for the change that fails, alone",
            ("values/test_factors.py::test_changes_of_a_cholesky_factor",
             "values/test_factors.py::test_failures_alone",
             "values/test_factors.py::test_window")),),
        sharded="linalg.distributed.cho_factor",
        results={
            "factorize_cholesky(a)": "linalg.CholeskyFactor",
            "factorize_cholesky(a).update(a).append(a, a).delete(0).replace(0, a)":
                "linalg.CholeskyFactor",
            "factorize_cholesky(a).solve(a)": "Array",
        },
        fails=INDEFINITE,
        cases=(
            composed("factorize_cholesky", _of_factor, with_columns(positive_definite), (2, 2),
                     _of_factor_oracle, None, 20, matrix="positive",
                     of_matrix=lambda a: (a, columns_beside(a))),
        )),
    Function(
        "cho_factor", KIND, behaviours=(ALONE,),
        results={"cho_factor(a)": "tuple[Array, bool]"},
        calls={"": lambda m, a, p, b: jnp.triu(m.cho_factor(p)[0])},
        fails=INDEFINITE,
        no_cases="cholesky in another form, with a triangle that is not set to 0"),
    Function(
        "cho_solve", KIND, behaviours=(ALONE,), arguments=((EYE, True), EYE),
        results={"cho_solve((a, True), a)": "Array"},
        calls={"": lambda m, a, p, b: m.cho_solve(m.cho_factor(p, lower=True), b)},
        cases=(
            Case("cho_solve", lambda l, b: linalg.cho_solve((l, True), b),
                 with_columns(cholesky_factor), (2, 2), checks.solution_ratio(cholesky_product),
                 lambda l, b: solved(cholesky_product(l), b),
                 lambda l, b: jax.scipy.linalg.cho_solve((l, True), b), matrix="positive",
                 of_matrix=lambda a: (np.asarray(linalg.cholesky(a)), columns_beside(a)),
                 timed=Timed((LOWER_FACTOR, COLUMN), lambda n: 2 * n**2, {
                     "torch": lambda torch: lambda c, b: torch.cholesky_solve(b, c)})),
        )),
    Function(
        "cholesky_update", KIND,
        behaviours=(Behaviour(
            "batched, downdate too; takes and returns the upper factor, as of "
            "`cholesky(a, upper=True)`: a lower one gives wrong numbers; on the CPU of a factor "
            "with zeros on its diagonal",
            ("values/test_matrix_functions.py::test_cholesky_update_and_downdate",
             "values/test_matrix_functions.py::test_cholesky_update_of_a_singular_factor")),),
        sharded="the methods update and downdate of what linalg.distributed.cho_factor returns",
        arguments=(EYE, EYE[0]),
        results={
            "cholesky_update(a, a, downdate=True)": "Array", "cholesky_update_ex(a, a)": "Arrays2"},
        fails=Failure(
            0, "is not positive definite after the downdate: its leading minor of order 2 is not "
            "positive.", lambda r: linalg.cholesky_update(r, EYE[1] / 2, downdate=True)),
        cases=(
            Case("cholesky_update", linalg.cholesky_update, _factor_and_vector, (2, 1),
                 _update_ratio(downdate=False), _update_oracle(1),
                 # Loop over the batch, since the primitive has no batching rule.
                 lambda r, w: jax.lax.map(lambda one: jax.lax.linalg.cholesky_update(*one), (r, w)),
                 stock_dtypes=(np.float32, np.float64), matrix="positive",
                 of_matrix=_factor_and_vector_of,
                 timed=Timed((UPPER_FACTOR, VECTOR), lambda n: 3 * n**2)),
            Case("cholesky_update_down", lambda r, w: linalg.cholesky_update(r, w, downdate=True),
                 _factor_and_vector, (2, 1), _update_ratio(downdate=True), _update_oracle(-1),
                 matrix="positive", of_matrix=_factor_and_vector_of, variant=True),
        )),
)
