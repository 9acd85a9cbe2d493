"""The errors that functions tell: info, ranks, residuals and estimates.

ROWS has each function whose docstring promises one. Each is called on all kinds of matrices, and on
matrices that cannot be factored. A test counts how often the true error exceeds ten times what the
results promise. Functions of linalg.distributed are tested in tests/distributed/test_estimates.py.
"""

import importlib

import jax.numpy as jnp
import numpy as np
import pytest

import cases
import estimates
import kinds
import linalg.scipy
import linalg.structured
import long_double as exact
from estimates import Row, lstsq_excess, n_eps, promises, rank_excess
from linalg._catalogue import CATALOGUE, checks
from linalg._catalogue.structured import dense
from long_double import adjoint, size, wide
from matrices import general
from quick import quick_jit

ONE_IN = 2

pytestmark = pytest.mark.cpu

QUICK_SIZE = 7
SIZES = (1, 2, QUICK_SIZE, 33, 64, 65, 130)


SPECTRA = {
    "general": kinds.ANY, "nonsingular": kinds.ANY, "positive": kinds.POSITIVE,
    "hermitian": kinds.HERMITIAN}


def _of_case(name, call):
  """Where info, the last result, is 0, the ratio of the case is below its limit, or SciPy's."""
  case = cases.named(name)

  def excess(operands, results):
    *results, info = results
    if info != 0:
      return 0.0
    ratio = lambda found: case.ratio([x[None] for x in operands], [x[None] for x in found])
    own = ratio(results)
    if own <= 10 * case.limit:
      return own / case.limit
    theirs = case.oracle(*operands)
    return own / max(case.limit, ratio([np.asarray(x) for x in theirs]))

  return Row(call, excess, SPECTRA[case.kind_of_matrix], case.of_matrix)


def _rank_of(operands, results):
  (a,) = operands
  return rank_excess(a, int(results[-1]), n_eps(a))


def _lstsq_operands(a):
  rng = np.random.default_rng(3)
  batch, n = a.shape[:-2], a.shape[-1]
  more = general(rng, batch, 2, n, a.dtype) * a[..., :1, :]
  return np.concatenate([a, more], -2), general(rng, batch, n + 2, 2, a.dtype)


def _jittered_excess(operands, results):
  (a,), (factor, jitter, info) = operands, results
  moved = a + jitter * np.eye(len(a))
  ratio = lambda a, l: checks.factorisation(a, wide(l) @ adjoint(wide(l)), checks.eps(l))
  return 0.0 if info != 0 else ratio(moved, factor) / 30


def _solution_excess(operands, results):
  """The excess for a dense matrix that the operands before the right-hand side make."""
  *blocks, b = operands
  x, info = results[0], results[-1]
  a = _dense_of(*blocks)
  columns = lambda y: y.reshape(len(a), -1)
  return 0.0 if info != 0 else checks.solution(a, columns(x), columns(b)) / 30


def _dense_of(*blocks):
  if len(blocks) == 3:
    return dense(*blocks)
  diagonal, lower = blocks
  return dense(lower, (diagonal + adjoint_of(diagonal)) / 2, adjoint_of(lower))


def adjoint_of(a):
  return np.swapaxes(a, -1, -2).conj()


def _blocks(a):
  """The blocks of order 2 on the three diagonals of A, bordered to an even order, and columns."""
  n = a.shape[-1] + a.shape[-1] % 2
  whole = np.zeros((*a.shape[:-2], n, n), a.dtype)
  whole[..., : a.shape[-1], : a.shape[-1]] = a
  whole[..., n - 1, n - 1] = a[..., -1, -1]
  steps = n // 2
  whole = np.moveaxis(whole.reshape(*a.shape[:-2], steps, 2, steps, 2), -2, -3)
  place = np.arange(steps)
  b = general(np.random.default_rng(4), (*a.shape[:-2], steps), 2, 2, a.dtype)
  return (whole[..., place[1:], place[:-1], :, :], whole[..., place, place, :, :],
          whole[..., place[:-1], place[1:], :, :], b)


def _definite_blocks(a):
  lower, diagonal, _, b = _blocks(a)
  return diagonal, lower / 8, b


def _and_columns(a):
  return a, general(np.random.default_rng(6), a.shape[:-2], a.shape[-1], 2, a.dtype)


def _solved_by(factorize):
  def call(a, b):
    factor = factorize(a)
    return factor.solve(b), factor.info

  return call


def _solved_excess(operands, results):
  (a, b), (x, info) = operands, results
  return 0.0 if info != 0 else checks.solution(a, x, b) / 30


def _block_factor(diagonal, lower, b):
  factor = linalg.structured.block_tridiagonal_cholesky(diagonal, lower)
  return factor.solve(b), factor.info


def _model(p):
  """Two steps of a random walk with the covariance P at first, and noise of the size of P."""
  n = p.shape[-1]
  noise = np.abs(p).max((-2, -1), keepdims=True) * np.eye(n, dtype=p.dtype)
  y = general(np.random.default_rng(5), p.shape[:-2], 2, n, p.dtype)
  return p, noise, y * np.sqrt(noise[..., :1, :1])


def _filtered(function):
  def call(p, noise, y):
    eye = jnp.broadcast_to(jnp.eye(p.shape[-1], dtype=p.dtype), p.shape)
    return function(
        y, transition=eye, transition_covariance=noise, observation=eye,
        observation_covariance=noise, initial_mean=0 * p[..., 0], initial_covariance=p)

  return call


def _kalman_excess(operands, results):
  """The distance of the last mean and of the likelihood from those of the dense covariance."""
  (p, noise, y), (means, _, likelihood, info) = operands, results
  if info != 0:
    return 0.0
  p, noise, y = map(wide, (p, noise, y))
  dense_of_both = np.block([[p + noise, p], [p, p + 2 * noise]])
  beside, _, logdet = exact.eliminated(dense_of_both, y.reshape(-1, 1))
  mean = (np.concatenate([p, p + noise], 1) @ beside)[:, 0]
  expected = -(y.reshape(-1) @ beside[:, 0] + logdet + y.size * np.log(2 * np.pi)) / 2
  unit = 30 * len(p) * float(np.finfo(operands[0].dtype).eps)
  return float(np.max([  # max() would lose a NaN
      size(wide(means[-1]) - mean) / (unit * size(mean)),
      abs(wide(likelihood) - expected) / (unit * max(abs(expected), 1))]))


def _norm_1(a):
  return float(np.abs(a).sum(0).max())


def _funm_excess(operands, results):
  (a,), (found, estimate) = operands, results
  if not np.isfinite(a).all() or not estimate < 1:
    return 0.0
  with np.errstate(all="ignore"):
    expected = exact.logm(a)
  if not np.isfinite(expected).all():
    return 0.0
  # The expected logarithm of 1 is not exactly 0.
  error = max(_norm_1(wide(found) - expected) - 1e-17, 0)
  return error / float(_norm_1(expected) * estimate) if error else 0.0


REAL = (np.float32, np.float64)
ROWS: dict[str, Row] = {
    **{f"linalg.{function.names[1]}": _of_case(
        function.cases[0].name, getattr(linalg, function.names[1]))
       for function in CATALOGUE if function.module == "linalg" and len(function.names) == 2},
    "linalg.solve_logdet": _of_case("solve_logdet", lambda a, b: linalg.solve_logdet(a, b)),
    "linalg.solve_logdet of a definite matrix": _of_case(
        "solve_logdet_pos", lambda a, b: linalg.solve_logdet(a, b, assume_a="pos")),
    "linalg.cholesky_jittered": Row(
        linalg.cholesky_jittered, _jittered_excess, kinds.POSITIVE),
    "linalg.lstsq": Row(linalg.lstsq, lstsq_excess, operands=_lstsq_operands),
    "linalg.matrix_rank": Row(lambda a: (linalg.matrix_rank(a),), _rank_of),
    "linalg.scipy.pinvh": Row(
        lambda a: linalg.scipy.pinvh(a, return_rank=True), _rank_of, kinds.POSITIVE),
    "linalg.scipy.funm": Row(
        lambda a: linalg.scipy.funm(a, jnp.log, disp=False), _funm_excess, kinds.RIGHT, few=0.01,
        slow=True),
    "linalg.structured.block_tridiagonal_cholesky": Row(
        _block_factor, _solution_excess, kinds.POSITIVE, _definite_blocks),
    "linalg.structured.block_tridiagonal_solve_logdet_ex": Row(
        linalg.structured.block_tridiagonal_solve_logdet_ex, _solution_excess, kinds.POSITIVE,
        _definite_blocks),
    "linalg.structured.block_tridiagonal_solve_ex": Row(
        linalg.structured.block_tridiagonal_solve_ex, _solution_excess, kinds.RIGHT, _blocks),
    "linalg.factorize_cholesky": Row(
        _solved_by(linalg.factorize_cholesky), _solved_excess, kinds.POSITIVE, _and_columns),
    "linalg.factorize_lu": Row(
        _solved_by(linalg.factorize_lu), _solved_excess, operands=_and_columns),
    "linalg.factorize_qr": Row(
        _solved_by(linalg.factorize_qr), _solved_excess, operands=_and_columns),
    "linalg.structured.kalman_filter": Row(
        _filtered(linalg.structured.kalman_filter), _kalman_excess, kinds.POSITIVE, _model,
        dtypes=REAL),
    "linalg.structured.kalman_smoother": Row(
        _filtered(linalg.structured.kalman_smoother), _kalman_excess, kinds.POSITIVE, _model,
        dtypes=REAL),
}

# Functions whose docstrings have these words in another sense, or whose results hold no estimate.
OTHERS = {
    "linalg.multi_dot": "names the dimensions of its operands",
    "linalg.scipy.lstsq": "has the rank of linalg.lstsq",
    "linalg.scipy.pinv": "has the rank that linalg.lstsq has",
    "linalg.scipy.solve_continuous_are": "has NaN where its estimate is large: test_kinds.py",
    "linalg.scipy.solve_discrete_are": "has NaN where its estimate is large: test_kinds.py",
    "linalg.structured.block_tridiagonal_solve": "says that its _ex form returns info"}


def _each():
  return [
      pytest.param(name, n, dtype, id=f"{name}-{n}-{dtype.__name__}",
                   marks=() if n == QUICK_SIZE and dtype is row.dtypes[-1] and not row.slow
                   else pytest.mark.extended)
      for name, row in ROWS.items() for n in SIZES for dtype in row.dtypes]


@pytest.mark.parametrize("name, n, dtype", _each())
def test_estimates(name, n, dtype):
  """The true error hardly ever exceeds ten times what the results promise."""
  estimates.check(ROWS[name], n, dtype, quick_jit(ROWS[name].call))


def test_the_table_is_complete():
  """It has all functions whose docstrings promise an estimate."""
  promising = {
      f"{x.module}.{name}" for x in CATALOGUE if x.module != "linalg.distributed"
      for name in x.names if promises(getattr(importlib.import_module(x.module), name))}
  assert promising == {name.partition(" of ")[0] for name in ROWS} | set(OTHERS)
