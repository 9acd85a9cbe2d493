"""`linalg.structured`: structured systems, and recursions over blocks.

In the operands of cases m is the number T of steps. n is the order d of the blocks, or the number
of states.
"""

import functools

import jax.numpy as jnp
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


def model(rng, batch, m, n, dtype):
  """Two observations at each step of a stable model, whose transitions differ from step to step.

  A complex dtype stands for its real one.
  """
  real = np.finfo(dtype).dtype
  scale = 1 / max(n, 1)
  definite = lambda size: matrices.positive_definite(rng, batch, size, real)
  general = lambda *shape: matrices.general(rng, (*batch, *shape[:-2]), *shape[-2:], real)
  operands = (
      general(m, 2), 0.4 * np.sqrt(scale) * general(m, n, n), scale * definite(n), general(2, n),
      definite(2), general(1, n)[..., 0, :], scale * definite(n))
  return tuple(x.astype(real) for x in operands)


def _of_model(function):
  """The moments and the log likelihood. A dimension of 1 stands for all steps."""

  def call(y, transition, noise, observation, seen_noise, mean, covariance):
    one = lambda x: jnp.expand_dims(x, -3)
    return function(
        y, transition=transition, transition_covariance=one(noise), observation=one(observation),
        observation_covariance=one(seen_noise), initial_mean=mean,
        initial_covariance=covariance)[:3]

  return call


def _dense_moments(y, transition, noise, observation, seen_noise, mean, covariance):
  """(given, log likelihood): all states and all observations are one Gaussian vector.

  given(t) has the means and covariances of all states given the first t observations.
  """
  steps, n = len(y), len(mean)
  noise, seen_noise, covariance = (
      (x + x.T) / 2 for x in (noise, seen_noise, covariance))
  means = np.zeros((steps, n))
  joint = np.zeros((steps, n, steps, n))
  for t in range(steps):
    means[t] = transition[t - 1] @ means[t - 1] if t else mean
    for s in range(t):
      joint[t, :, s] = transition[t - 1] @ joint[t - 1, :, s]
      joint[s, :, t] = joint[t, :, s].T
    before = joint[t - 1, :, t - 1]
    joint[t, :, t] = transition[t - 1] @ before @ transition[t - 1].T + noise if t else covariance
  joint = joint.reshape(steps * n, steps * n)
  seen = np.kron(np.eye(steps), observation)
  cross = seen @ joint
  of_seen = cross @ seen.T + np.kron(np.eye(steps), seen_noise)
  off = (y - means @ observation.T).ravel()

  def given(count):
    rows = 2 * count
    gain = np.linalg.solve(of_seen[:rows, :rows], cross[:rows]).T
    moved = means + (gain @ off[:rows]).reshape(steps, n)
    left = (joint - gain @ cross[:rows]).reshape(steps, n, steps, n)
    return moved, np.stack([left[t, :, t] for t in range(steps)])

  value = off @ np.linalg.solve(of_seen, off) + np.linalg.slogdet(2 * np.pi * of_seen)[1]
  return given, -value / 2


def _filter_oracle(*operands):
  given, value = _dense_moments(*operands)
  moments = [given(t + 1) for t in range(len(operands[0]))]
  means, covariances = (
      np.stack([moment[i][t] for t, moment in enumerate(moments)]) for i in range(2))
  return means, covariances, value


def _smoother_oracle(*operands):
  given, value = _dense_moments(*operands)
  return *given(len(operands[0])), value


_case = functools.partial(case_of, rectangular=True, any_size=False)
_case_of_model = functools.partial(
    _case, operands=model, ranks=(2, 3, 2, 2, 2, 1, 2), dtypes=(np.float32, np.float64),
    empty=False)

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
        cases=(
            _case_of_model("kalman_filter", _of_model(linalg.structured.kalman_filter),
                           oracle=_filter_oracle),)),
    _kalman(
        "kalman_smoother", classes=("KalmanSmootherResult",), arguments=(np.zeros((4, 2)),),
        results={f"kalman_smoother(a, {_MODEL})": "linalg.structured.KalmanSmootherResult"},
        cases=(
            _case_of_model("kalman_smoother", _of_model(linalg.structured.kalman_smoother),
                           oracle=_smoother_oracle),)),
)
