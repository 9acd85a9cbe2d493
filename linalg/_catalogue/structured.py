"""`linalg.structured`: structured systems, and recursions over blocks.

In the operands of cases m is the number T of steps, and n the order d of the blocks.
"""

import functools

import numpy as np

import linalg.structured
from linalg._catalogue import checks, matrices
from linalg._catalogue.distance import case_of
from linalg._catalogue.record import Function, Kind

_function = functools.partial(Function, module="linalg.structured")
_blocks = functools.partial(_function, kind=Kind("structured", "Block-tridiagonal systems"))

_kalman = functools.partial(_function, kind=Kind("structured", "State-space models"))
_MODEL = ", ".join(f"{name}=a" for name in (
    "transition", "transition_covariance", "observation", "observation_covariance",
    "initial_mean", "initial_covariance"))
_RECURSION = "a recursion over many operands, not a function of matrices: values/test_kalman.py"

EYES, ZEROS, VECTOR = np.stack([np.eye(3)] * 2), np.zeros((1, 3, 3)), np.zeros((2, 3))


def dense(lower, diagonal, upper):
  """The matrices with these blocks, in double precision."""
  *batch, steps, d, _ = diagonal.shape
  a = np.zeros((*batch, steps, d, steps, d), np.result_type(diagonal, np.float64))
  for t in range(steps):
    a[..., t, :, t, :] = diagonal[..., t, :, :]
    if t + 1 < steps:
      a[..., t + 1, :, t, :] = lower[..., t, :, :]
      a[..., t, :, t + 1, :] = upper[..., t, :, :]
  return a.reshape(*batch, steps * d, steps * d)


def _beside(rng, batch, m, n, dtype):
  return (0.3 * matrices.general(rng, (*batch, max(m - 1, 0)), n, n, dtype)).astype(dtype)


def _right(rng, batch, m, n, dtype):
  return matrices.general(rng, (*batch, m), n, 2, dtype)


def definite(rng, batch, m, n, dtype):
  diagonal = matrices.positive_definite(rng, (*batch, m), n, dtype)
  more = (2 * np.eye(n)).astype(dtype)
  return diagonal + more, _beside(rng, batch, m, n, dtype), _right(rng, batch, m, n, dtype)


def general(rng, batch, m, n, dtype):
  return (
      _beside(rng, batch, m, n, dtype),
      matrices.well_conditioned(rng, (*batch, m), n, dtype), _beside(rng, batch, m, n, dtype),
      _right(rng, batch, m, n, dtype))


def _results(diagonal, lower, b):
  """All that a factor gives, but for L⁻¹ b: that of L⁻ᴴ is its transpose."""
  factor = linalg.structured.block_tridiagonal_cholesky(diagonal, lower)
  return (factor.solve(b), factor.logdet(), *factor.inverse_blocks(),
          factor.solve_half(b, adjoint=True))


def _oracle(diagonal, lower, b):
  steps, d, k = b.shape
  diagonal = (diagonal + checks.adjoint(diagonal)) / 2
  a = dense(lower, diagonal, checks.adjoint(lower))
  if not a.size:
    return b, np.zeros(()), diagonal, lower, b
  inverse = np.linalg.inv(a).reshape(steps, d, steps, d)
  columns = b.reshape(steps * d, k)
  x = np.linalg.solve(a, columns)
  half = np.linalg.solve(checks.adjoint(np.linalg.cholesky(a)), columns)
  return (
      x.reshape(b.shape), np.linalg.slogdet(a)[1],
      np.stack([inverse[t, :, t] for t in range(steps)]),
      np.stack([inverse[t + 1, :, t] for t in range(steps - 1)] or [lower])
      .reshape(lower.shape), half.reshape(b.shape))


def _general_oracle(lower, diagonal, upper, b):
  a = dense(lower, diagonal, upper)
  if not a.size:
    return (b,)
  return (np.linalg.solve(a, b.reshape(a.shape[0], -1)).reshape(b.shape),)


_case = functools.partial(case_of, rectangular=True, any_size=False)

STRUCTURED_FUNCTIONS: tuple[Function, ...] = (
    _blocks(
        "block_tridiagonal_cholesky", classes=("BlockTridiagonalFactor",),
        arguments=(EYES, ZEROS),
        results={"block_tridiagonal_cholesky(a, a)": "linalg.structured.BlockTridiagonalFactor"},
        cases=(
            _case("block_tridiagonal_cholesky", _results, definite, (3, 3, 3), _oracle),)),
    _blocks(
        "block_tridiagonal_solve_logdet", arguments=(EYES, ZEROS, VECTOR),
        results={
            "block_tridiagonal_solve_logdet(a, a, a)": "Arrays2",
            "block_tridiagonal_solve_logdet_ex(a, a, a)": "Arrays3"},
        cases=(
            _case("block_tridiagonal_logdet",
                  linalg.structured.block_tridiagonal_solve_logdet, definite, (3, 3, 3),
                  lambda *operands: _oracle(*operands)[:2]),)),
    _blocks(
        "block_tridiagonal_solve", arguments=(ZEROS, EYES, ZEROS, VECTOR),
        results={
            "block_tridiagonal_solve(a, a, a, a)": "Array",
            "block_tridiagonal_solve_ex(a, a, a, a)": "Arrays2"},
        cases=(
            _case("block_tridiagonal_solve", linalg.structured.block_tridiagonal_solve, general,
                  (3, 3, 3, 3), _general_oracle),)),
    _kalman(
        "kalman_filter", classes=("KalmanFilterResult",), arguments=(np.zeros((4, 2)),),
        results={f"kalman_filter(a, {_MODEL})": "linalg.structured.KalmanFilterResult"},
        no_cases=_RECURSION),
    _kalman(
        "kalman_smoother", classes=("KalmanSmootherResult",), arguments=(np.zeros((4, 2)),),
        results={f"kalman_smoother(a, {_MODEL})": "linalg.structured.KalmanSmootherResult"},
        no_cases=_RECURSION),
)
