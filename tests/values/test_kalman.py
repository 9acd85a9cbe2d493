"""Kalman filters and smoothers, against dense conditionals in high precision and NumPy."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import linalg
import linalg.structured
from linalg.structured._kalman_operations import filter_p
from state_space import CORES, FUNCTIONS, at_step, by_numpy, model

ONE_IN = 3


def _conditional(y, parameters, mask, upto):
  """Mean and covariance of all states given the observations before `upto`, and their density, in
  50 digits and without a recursion over the data."""
  steps, n = len(y), len(parameters["initial_mean"])
  matrix = lambda x: mpmath.matrix(np.atleast_2d(x).tolist())
  at = lambda name, t: matrix(at_step(parameters[name], t, CORES[name]))
  with mpmath.workdps(50):
    mean, cov = [at("initial_mean", 0).T], [[None] * steps for _ in range(steps)]
    cov[0][0] = at("initial_covariance", 0)
    for t in range(1, steps):
      f = at("transition", t - 1)
      mean.append(f * mean[-1] + at("transition_offset", t - 1).T)
      for s in range(t):
        cov[t][s] = f * cov[t - 1][s]
        cov[s][t] = cov[t][s].T
      cov[t][t] = f * cov[t - 1][t - 1] * f.T + at("transition_covariance", t - 1)
    rows = [(t, i) for t in range(upto) for i in range(y.shape[1]) if not mask[t, i]]
    h = [at("observation", t) for t in range(upto)]
    r = [at("observation_covariance", t) for t in range(upto)]
    d = [at("observation_offset", t) for t in range(upto)]
    cross = mpmath.zeros(steps * n, len(rows))
    seen, v = mpmath.zeros(len(rows), len(rows)), mpmath.zeros(len(rows), 1)
    for k, (t, i) in enumerate(rows):
      v[k] = mpmath.mpf(float(y[t, i])) - (h[t][i, :] * mean[t])[0] - d[t][i]
      for s in range(steps):
        block = cov[s][t] * h[t][i, :].T
        for j in range(n):
          cross[s * n + j, k] = block[j]
      for l, (s, j) in enumerate(rows):
        seen[k, l] = (h[t][i, :] * cov[t][s] * h[s][j, :].T)[0] + (r[t][i, j] if s == t else 0)
    inverse = seen**-1
    weights = cross * inverse
    moved, removed = weights * v, weights * cross.T
    means = [[mean[t][i] + moved[t * n + i] for i in range(n)] for t in range(steps)]
    covs = [[[cov[t][t][i, j] - removed[t * n + i, t * n + j] for j in range(n)]
             for i in range(n)] for t in range(steps)]
    density = -((v.T * inverse * v)[0] + mpmath.log(mpmath.det(seen))
                + len(rows) * mpmath.log(2 * mpmath.pi)) / 2
    return np.array(means, float), np.array(covs, float), float(density)


@pytest.mark.parametrize("per_step", [(), tuple(CORES)], ids=["constant", "per step"])
@pytest.mark.parametrize("missing", [False, True])
def test_dense_conditional(per_step, missing, rng):
  steps, n, m = 4, 3, 2
  y, parameters = model(
      rng, steps, n, m, per_step=[x for x in per_step if not x.startswith("initial")])
  mask = np.zeros((steps, m), bool)
  if missing:
    mask[1], mask[2, 0] = True, True
    y = np.where(mask, np.nan, y)
  given = {"mask": mask} if missing else {}
  filtered = linalg.structured.kalman_filter(y, **parameters, **given)
  smoothed = linalg.structured.kalman_smoother(y, **parameters, **given)
  for t in range(steps):
    means, covs, density = _conditional(y, parameters, mask, t + 1)
    np.testing.assert_allclose(filtered.filtered_means[t], means[t], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(filtered.filtered_covariances[t], covs[t], rtol=1e-12, atol=1e-12)
  np.testing.assert_allclose(filtered.log_likelihood, density, rtol=1e-13)
  np.testing.assert_array_equal(filtered.log_likelihood, smoothed.log_likelihood)
  np.testing.assert_allclose(smoothed.smoothed_means, means, rtol=1e-12, atol=1e-12)
  np.testing.assert_allclose(smoothed.smoothed_covariances, covs, rtol=1e-12, atol=1e-12)
  assert int(filtered.info) == 0


@pytest.mark.parametrize(("n", "m", "dtype"), [
    (1, 1, np.float64), (2, 1, np.float32), (3, 1, np.float64), (4, 1, np.float64),
    (4, 2, np.float64), (5, 7, np.float32), (13, 3, np.float64),
    pytest.param(33, 2, np.float64, marks=pytest.mark.extended),
    pytest.param(13, 3, np.float32, marks=pytest.mark.extended)])
def test_recursion(n, m, dtype, rng):
  """In lanes, one series at a time, and in the fallback beyond the limit of the handlers."""
  batch, steps = (11,), 6
  per_step = ("transition", "observation_covariance")
  y, parameters = model(rng, steps, n, m, dtype, batch, per_step)
  mask = rng.random(y.shape) < 0.3
  filtered = linalg.structured.kalman_filter(y, **parameters, mask=mask)
  smoothed = linalg.structured.kalman_smoother(y, **parameters, mask=mask)
  tolerance = 1e-10 if dtype == np.float64 else 2e-3
  for i in range(batch[0]):
    one = {key: x[i].astype(np.float64) for key, x in parameters.items()}
    expected = by_numpy(y[i].astype(np.float64), one, mask[i])
    found = (filtered[:2], smoothed[:2], filtered.log_likelihood)
    for x, known in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
      np.testing.assert_allclose(x[i], known, rtol=tolerance, atol=tolerance)
  assert filtered.filtered_means.dtype == dtype and not np.any(filtered.info)


def test_missing_observations(rng):
  """A missing component is as if it had never been; what is under the mask is not read."""
  y, parameters = model(rng, 6, 3, 2)
  mask = np.zeros(y.shape, bool)
  mask[:, 1] = True
  fewer = {
      key: x[tuple(slice(1 if size == "m" else None) for size in core)]
      for (key, x), core in zip(parameters.items(), CORES.values(), strict=True)}
  spoilt = np.where(mask, np.nan, y)
  for function in FUNCTIONS.values():
    ours, theirs = function(spoilt, **parameters, mask=mask), function(y[:, :1], **fewer)
    for x, known in zip(ours, theirs, strict=True):
      np.testing.assert_allclose(x, known, rtol=1e-12)
    whole = np.array([True, False, False, True, False, True])
    by_component = function(y, **parameters, mask=np.repeat(whole[:, None], 2, axis=1))
    for x, known in zip(function(y, **parameters, mask=whole), by_component, strict=True):
      np.testing.assert_array_equal(x, known)
  gradient = jax.grad(
      lambda y: linalg.structured.kalman_filter(y, **parameters, mask=mask).log_likelihood)(spoilt)
  assert np.all(np.isfinite(gradient)) and not np.any(gradient[:, 1])


def _is_semidefinite(covs):
  """Whether eigenvalues are negative by few rounding errors only, and the matrix is symmetric."""
  eps = np.finfo(covs.dtype).eps
  covs = np.asarray(covs, np.float64)
  np.testing.assert_array_equal(covs, covs.swapaxes(-1, -2))
  values = np.linalg.eigvalsh(covs)
  return values.min() >= -8 * eps * values.max()


def test_many_steps_in_single_precision():
  """A turning oscillator with almost no noise, for 100,000 steps."""
  steps, angle = 100_000, 0.3
  f = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
  parameters = {
      "transition": f, "transition_covariance": np.diag([1e-9, 0]), "observation": np.eye(1, 2),
      "observation_covariance": np.array([[1e-3]]), "initial_mean": np.zeros(2),
      "initial_covariance": 1e3 * np.eye(2)}
  y = np.cos(angle * np.arange(steps))[:, None]
  single = {key: x.astype(np.float32) for key, x in parameters.items()}
  filtered = linalg.structured.kalman_filter(y.astype(np.float32), **single)
  smoothed = linalg.structured.kalman_smoother(y.astype(np.float32), **single)
  exact = linalg.structured.kalman_smoother(y, **parameters)
  assert _is_semidefinite(filtered.filtered_covariances)
  assert _is_semidefinite(smoothed.smoothed_covariances)
  covs = np.asarray(exact.smoothed_covariances)
  np.testing.assert_allclose(
      smoothed.smoothed_covariances, covs, rtol=0.02, atol=0.02 * covs.max((0, 1, 2)))
  np.testing.assert_allclose(smoothed.log_likelihood, exact.log_likelihood, rtol=1e-5)


def _exact_smoothed_covariances(parameters, steps):
  """The recursion of Rauch, Tung and Striebel in 50 digits."""
  names = ("transition", "transition_covariance", "observation", "observation_covariance",
           "initial_covariance")
  with mpmath.workdps(50):
    f, q, h, r, cov = (mpmath.matrix(np.asarray(parameters[name]).tolist()) for name in names)
    filtered, predicted = [], []
    for t in range(steps):
      cov = f * cov * f.T + q if t else cov
      predicted.append(cov)
      cov = cov - cov * h.T * (h * cov * h.T + r) ** -1 * h * cov
      filtered.append(cov)
    covs = [cov]
    for t in reversed(range(steps - 1)):
      gain = filtered[t] * f.T * predicted[t + 1] ** -1
      covs.append(filtered[t] + gain * (covs[-1] - predicted[t + 1]) * gain.T)
    return np.array([x.tolist() for x in covs[::-1]], float)


@pytest.mark.parametrize(("n", "steps"), [(1, 1000), (2, 40)])
def test_first_state_almost_unknown(n, steps, rng):
  """Entries of smoothed covariances keep 8 digits where later observations say far more."""
  noise = [[1 / 3, 1 / 2], [1 / 2, 1]]  # of a velocity that wanders
  parameters = {
      "transition": np.array([[1.0, 1], [0, 1]])[:n, :n],
      "transition_covariance": 1e-8 * (np.array(noise) if n == 2 else np.eye(1)),
      "observation": np.eye(1, n), "observation_covariance": np.eye(1),
      "initial_mean": np.zeros(n), "initial_covariance": 1e5 * np.eye(n)}
  found = linalg.structured.kalman_smoother(rng.standard_normal((steps, 1)), **parameters)
  expected = _exact_smoothed_covariances(parameters, steps)
  deviations = np.sqrt(np.diagonal(expected, axis1=1, axis2=2))
  scale = deviations[:, :, None] * deviations[:, None, :]
  assert np.all(np.abs(found.smoothed_covariances - expected) < 1e-8 * scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_noises(dtype, rng):
  """Noises of rank 1, none, and a predicted covariance that is singular."""
  y, parameters = model(rng, 50, 4, 1, dtype, rank=1)
  parameters["observation_covariance"][:] = 0
  for function in FUNCTIONS.values():
    found = function(y, **parameters)
    assert int(found.info) == 0 and _is_semidefinite(found[1])
  # A companion form: an autoregression without noise in the observation.
  f = np.array([[0.5, 0.3], [1, 0]], dtype)
  series = {
      "transition": f, "transition_covariance": np.diag([1, 0]).astype(dtype),
      "observation": np.eye(1, 2, dtype=dtype), "observation_covariance": np.zeros((1, 1), dtype),
      "initial_mean": np.zeros(2, dtype), "initial_covariance": np.eye(2, dtype=dtype)}
  found = linalg.structured.kalman_smoother(y[:, :1], **series)
  assert int(found.info) == 0 and _is_semidefinite(found.smoothed_covariances)
  np.testing.assert_allclose(found.smoothed_means[:, 0], y[:, 0], rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(found.smoothed_means[1:, 1], y[:-1, 0], rtol=1e-5, atol=1e-5)


def test_failures(rng):
  """A series that fails has NaN from that step on, and leaves its neighbours' bits."""
  y, parameters = model(rng, 6, 3, 2, batch=(9,), per_step=("observation_covariance",))
  good = [function(y, **parameters) for function in FUNCTIONS.values()]

  @jax.jit
  def gradients(y, parameters):
    run = lambda y, parameters: FUNCTIONS["smoother"](y, **parameters)[:3]
    values, pullback = jax.vjp(run, y, parameters)
    return pullback(jax.tree.map(jnp.ones_like, values))

  good.append(gradients(y, parameters))
  parameters["observation_covariance"][4, 2] = -100 * np.eye(2)
  y[7, 3, 0] = np.nan
  bad = [function(y, **parameters) for function in FUNCTIONS.values()]
  bad.append(gradients(y, parameters))
  others = [0, 1, 2, 3, 5, 6, 8]
  for x, known in zip(jax.tree.leaves(bad), jax.tree.leaves(good), strict=True):
    np.testing.assert_array_equal(x[others,], known[others,])
  np.testing.assert_array_equal(bad[0].info, [0, 0, 0, 0, 3, 0, 0, 4, 0])
  for series, first in ((4, 2), (7, 3)):
    assert np.all(np.isfinite(bad[0].filtered_means[series, :first]))
    assert np.all(np.isnan(bad[0].filtered_covariances[series, first:]))
    assert np.isnan(bad[0].log_likelihood[series])
    assert np.all(np.isnan(bad[1].smoothed_means[series]))
    assert np.all(np.isnan(bad[1].smoothed_covariances[series]))
  with pytest.raises(linalg.LinAlgError, match=r"kalman_filter: .* \(4\) .* observation 3"):
    linalg.checked(linalg.structured.kalman_filter)(y, **parameters)


def test_overflow(rng):
  """The log likelihood is -inf where a term overflows, in handlers and in the fallback."""
  y, parameters = model(rng, 5, 2, 1, np.float32)
  y = rng.standard_normal((9, 5, 1)).astype(np.float32)
  y[3, 1] = 1e20
  for size in (9, 4):
    found = linalg.structured.kalman_filter(y[:size], **parameters)
    np.testing.assert_array_equal(np.isneginf(found.log_likelihood), np.arange(size) == 3)
    assert not np.any(found.info) and not np.any(np.isnan(found.log_likelihood))
  operands = [y[3], *(x[None] if not name.startswith("initial") else x
                      for name, x in parameters.items()), np.zeros((0, 1), np.float32)]
  assert np.isneginf(filter_p._rules.fallback(*map(jnp.asarray, operands))[2])


def test_nan_in_an_unseen_mean(rng):
  """A mean that is NaN fails at the first step, even if nothing is observed there."""
  y, parameters = model(rng, 4, 3, 2)
  y, means = np.stack([y] * 9), np.stack([parameters.pop("initial_mean")] * 9)
  mask = np.arange(4)[:, None] < np.array([[2, 4]])
  good = [f(y, **parameters, initial_mean=means, mask=mask) for f in FUNCTIONS.values()]
  means[5, 1] = np.nan
  bad = [f(y, **parameters, initial_mean=means, mask=mask) for f in FUNCTIONS.values()]
  others = np.arange(9) != 5
  for found, known in zip(bad, good, strict=True):
    assert int(found.info[5]) == 1 and np.isnan(found.log_likelihood[5])
    assert np.all(np.isnan(found[0][5])) and np.all(np.isnan(found[1][5]))
    for x, expected in zip(found, known, strict=True):
      np.testing.assert_array_equal(x[others], expected[others])
  names = [name for name in CORES if not name.startswith("initial")]
  operands = {name: parameters[name][None] for name in names}
  operands |= {"initial_mean": means[5], "initial_covariance": parameters["initial_covariance"]}
  seen = np.where(mask, 0.0, 1.0)
  given = [y[5], *(operands[name] for name in CORES), seen]
  for run in (filter_p, filter_p._rules.fallback):
    assert int(run(*map(jnp.asarray, given))[3]) == 1


def test_half_precision(rng):
  y, parameters = model(rng, 5, 2, 1, np.float32)
  half = {key: x.astype(jnp.bfloat16) for key, x in parameters.items()}
  found = linalg.structured.kalman_filter(y.astype(jnp.bfloat16), **half)
  same = jax.tree.map(lambda x: x.astype(np.float32), (y.astype(jnp.bfloat16), half))
  for x, known in zip(found[:3], linalg.structured.kalman_filter(same[0], **same[1]), strict=False):
    assert x.dtype == jnp.bfloat16
    np.testing.assert_array_equal(x, known.astype(jnp.bfloat16))
