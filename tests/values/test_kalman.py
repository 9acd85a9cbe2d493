"""Kalman filters and smoothers, against dense conditionals in high precision and NumPy."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import export
from jax.sharding import PartitionSpec as P

import linalg
import linalg.structured
import sharded
from linalg.structured._kalman_operations import (
  filter_jvp_p,
  filter_p,
  filter_vjp_p,
  smoother_jvp_p,
  smoother_p,
  smoother_vjp_p,
)

ONE_IN = 3

# The parameters, and their sizes without batch and steps.
CORES = {
    "transition": "nn", "transition_covariance": "nn", "observation": "mn",
    "observation_covariance": "mm", "initial_mean": "n", "initial_covariance": "nn",
    "transition_offset": "n", "observation_offset": "m"}
FUNCTIONS = {
    "filter": linalg.structured.kalman_filter, "smoother": linalg.structured.kalman_smoother}


def _model(rng, steps, n, m, dtype=np.float64, batch=(), per_step=(), rank=None):
  """Observations and parameters; those named in `per_step` have one for each step."""
  sizes = {"n": n, "m": m}
  parameters = {}
  for name, core in CORES.items():
    lead = (*batch, steps) if name in per_step else batch
    shape = (*lead, *(sizes[size] for size in core))
    x = rng.standard_normal(shape)
    if name.endswith("covariance"):
      root = x[..., :rank] if rank and name != "initial_covariance" else x
      x = root @ np.swapaxes(root, -1, -2) + (0 if rank else 0.5 * np.eye(shape[-1]))
    elif name == "transition":
      x *= 0.9 / np.linalg.norm(x, 2, (-2, -1), keepdims=True)
    parameters[name] = x.astype(dtype)
  return rng.standard_normal((*batch, steps, m)).astype(dtype), parameters


def _at(x, step, core):
  return x[step] if x.ndim > len(core) else x


def _solve(a, b):
  """A⁻¹ B of a positive definite A, in any precision."""
  a, b = a.copy(), b.copy()
  for k in range(len(a)):
    for i in range(k + 1, len(a)):
      factor = a[i, k] / a[k, k]
      a[i] -= factor * a[k]
      b[i] -= factor * b[k]
  for k in reversed(range(len(a))):
    b[k] = (b[k] - a[k, k + 1 :] @ b[k + 1 :]) / a[k, k]
  return b, np.log(np.diagonal(a)).sum()


def _by_numpy(y, parameters, mask=None):
  """(filtered, smoothed, log likelihood) of one series, as textbooks have them."""
  at = lambda name, t: _at(parameters[name], t, CORES[name])
  mean, cov = parameters["initial_mean"], parameters["initial_covariance"]
  mask = np.zeros(y.shape, bool) if mask is None else mask
  means, covs, likelihood, ahead = [], [], mean.dtype.type(0), []
  for t in range(len(y)):
    if t:
      f = at("transition", t - 1)
      mean = f @ mean + at("transition_offset", t - 1)
      cov = f @ cov @ f.T + at("transition_covariance", t - 1)
      ahead.append((mean, cov))
    seen = ~mask[t]
    h = at("observation", t)[seen]
    v = y[t][seen] - h @ mean - at("observation_offset", t)[seen]
    s = h @ cov @ h.T + at("observation_covariance", t)[seen][:, seen]
    if seen.any():
      solved, logdet = _solve(s, np.concatenate([h @ cov, v[:, None]], axis=1))
      gain, e = solved[:, :-1].T, solved[:, -1]
      likelihood = likelihood - (v @ e + logdet + len(v) * np.log(2 * np.pi)) / 2
      mean, cov = mean + gain @ v, cov - gain @ h @ cov
      cov = (cov + cov.T) / 2
    means.append(mean)
    covs.append(cov)
  smoothed, smoothed_covs = [mean], [cov]
  for t in reversed(range(len(y) - 1)):
    f = at("transition", t)
    gain = _solve(ahead[t][1], f @ covs[t])[0].T
    smoothed.append(means[t] + gain @ (smoothed[-1] - ahead[t][0]))
    smoothed_covs.append(covs[t] + gain @ (smoothed_covs[-1] - ahead[t][1]) @ gain.T)
  return (
      (np.stack(means), np.stack(covs)),
      (np.stack(smoothed[::-1]), np.stack(smoothed_covs[::-1])), likelihood)


def _conditional(y, parameters, mask, upto):
  """Mean and covariance of all states given the observations before `upto`, and their density, in
  50 digits and without a recursion over the data."""
  steps, n = len(y), len(parameters["initial_mean"])
  matrix = lambda x: mpmath.matrix(np.atleast_2d(x).tolist())
  at = lambda name, t: matrix(_at(parameters[name], t, CORES[name]))
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
  y, parameters = _model(
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
  y, parameters = _model(rng, steps, n, m, dtype, batch, per_step)
  mask = rng.random(y.shape) < 0.3
  filtered = linalg.structured.kalman_filter(y, **parameters, mask=mask)
  smoothed = linalg.structured.kalman_smoother(y, **parameters, mask=mask)
  tolerance = 1e-10 if dtype == np.float64 else 2e-3
  for i in range(batch[0]):
    one = {key: x[i].astype(np.float64) for key, x in parameters.items()}
    expected = _by_numpy(y[i].astype(np.float64), one, mask[i])
    found = (filtered[:2], smoothed[:2], filtered.log_likelihood)
    for x, known in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
      np.testing.assert_allclose(x[i], known, rtol=tolerance, atol=tolerance)
  assert filtered.filtered_means.dtype == dtype and not np.any(filtered.info)


@pytest.mark.parametrize(("n", "m", "dtype"), [
    (4, 2, np.float64), (7, 3, np.float32),
    *[pytest.param(n, m, dtype, marks=pytest.mark.extended) for n, m, dtype in [
        (1, 2, np.float32), (2, 1, np.float64), (4, 2, np.float32), (14, 9, np.float64)]]])
@pytest.mark.cpu  # a GPU differentiates the smoother by the formula
def test_bits_do_not_depend_on_the_batch(n, m, dtype, rng):
  """Nor on whether parameters are shared, in values and derivatives."""
  y, parameters = _model(rng, 5, n, m, dtype)
  y = rng.standard_normal((19, 5, m)).astype(dtype)
  mask = rng.random(y.shape) < 0.3

  @jax.jit
  def run(y, parameters, mask):
    def results(y, parameters):
      found = linalg.structured.kalman_smoother(y, **parameters, mask=mask)
      return found[:3], found.info

    values, pullback, _ = jax.vjp(results, y, parameters, has_aux=True)
    tangents = jax.jvp(results, (y, parameters), (y, parameters))[1][0]
    return values, tangents, pullback(jax.tree.map(jnp.ones_like, values))

  batched = {key: np.broadcast_to(x, (19, *x.shape)) for key, x in parameters.items()}
  together = run(y, batched, mask)
  shared = run(y, parameters, mask)
  for x, known in zip(jax.tree.leaves(shared[:2]), jax.tree.leaves(together[:2]), strict=True):
    np.testing.assert_array_equal(x, known)
  for size in (1, 4, 9):
    few = run(y[-size:], {key: x[-size:] for key, x in batched.items()}, mask[-size:])
    for x, known in zip(jax.tree.leaves(few), jax.tree.leaves(together), strict=True):
      np.testing.assert_array_equal(x, known[-size:])


@pytest.mark.parametrize(("n", "m", "dtype", "per_step", "per_series"), [
    (3, 2, np.float64, False, ()),
    pytest.param(4, 2, np.float32, False, (), marks=pytest.mark.extended),
    pytest.param(14, 5, np.float64, True, (), marks=pytest.mark.extended),
    pytest.param(3, 2, np.float64, True, ("initial_mean", "transition_offset"),
                 marks=pytest.mark.extended)])
@pytest.mark.cpu  # a GPU filters each series
def test_one_model_for_all_series(n, m, dtype, per_step, per_series, rng):
  """Covariances computed once: the bits of each series alone, and its derivatives."""
  names = ["transition", "observation_covariance", "observation_offset"] if per_step else []
  _, parameters = _model(rng, 9, n, m, dtype, per_step=names)
  y = rng.standard_normal((19, 9, m)).astype(dtype)
  lead = {name: (1,) * (name in names) for name in parameters}
  one = {name: x.reshape(*lead[name], *x.shape) for name, x in parameters.items()}
  own = {name: np.broadcast_to(x, (19, *x.shape)) for name, x in parameters.items()}
  for name in per_series:
    own[name] = one[name] = own[name] + rng.standard_normal(own[name].shape).astype(dtype)
  axes = {name: 0 if name in per_series else None for name in parameters}
  spoilt = y.copy()
  spoilt[3, 4] = np.nan
  run = jax.jit(lambda y, x: linalg.structured.kalman_filter(y, **x))
  expected = run(spoilt, own)
  assert np.flatnonzero(expected.info).tolist() == [3]
  mapped = jax.jit(jax.vmap(run, in_axes=(0, axes)))(
      spoilt, parameters | {name: own[name] for name in per_series})
  few = run(spoilt[2:5], one | {name: own[name][2:5] for name in per_series})
  for operands in ((spoilt, one), (spoilt, own)):
    calls = run.lower(*operands).as_text().count("linalg_kalman_means")
    assert calls == (operands[1] is one)
  for x, by_vmap, of_few, known in zip(run(spoilt, one), mapped, few, expected, strict=True):
    np.testing.assert_array_equal(x, known)
    np.testing.assert_array_equal(by_vmap, known)
    np.testing.assert_array_equal(of_few, known[2:5])

  weights = [rng.standard_normal(x.shape).astype(dtype) for x in expected[:3]]
  direction = [rng.standard_normal(x.shape).astype(dtype) for x in (y, *one.values())]

  @functools.partial(jax.jit, static_argnums=0)
  def derivatives(repeated, y, x, direction):
    """The gradient, its change along a direction, and the gradient along it."""

    def loss(y, *x):
      x = [jnp.broadcast_to(a, b.shape) for a, b in zip(x, own.values(), strict=True)] if (
          repeated) else x
      found = run(y, dict(zip(one, x, strict=True)))
      return sum(jnp.sum(w * x**2) for w, x in zip(weights, found, strict=False))

    gradient = jax.grad(loss, tuple(range(1 + len(one))))
    return *jax.jvp(gradient, (y, *x), tuple(direction)), jax.jvp(loss, (y, *x), tuple(direction))

  given = y, tuple(one.values()), direction
  tolerance = 2e-3 if dtype == np.float32 else 1e-9
  for x, known in zip(*(jax.tree.leaves(derivatives(repeated, *given))
                        for repeated in (False, True)), strict=True):
    np.testing.assert_allclose(x, known, rtol=tolerance, atol=tolerance * np.max(np.abs(known)))


def _loss(function, weights):
  """A sum of all results with fixed weights."""

  def loss(y, parameters):
    means, covs, likelihood = function(y, parameters)
    return likelihood + (weights[0] * means).sum() + (weights[1] * covs).sum()

  return loss


def _numpy_results(kind, mask):
  def results(y, parameters):
    filtered, smoothed, likelihood = _by_numpy(y, parameters, mask)
    return (*(filtered if kind == "filter" else smoothed), likelihood)

  return results


def _jax_results(kind, mask):
  return lambda y, parameters: FUNCTIONS[kind](y, **parameters, mask=mask)[:3]


@pytest.mark.parametrize(("kind", "per_step"), [
    ("filter", False), ("smoother", True),
    pytest.param("filter", True, marks=pytest.mark.extended),
    pytest.param("smoother", False, marks=pytest.mark.extended)])
def test_derivatives(kind, per_step, rng):
  """First and second derivatives, against differences in extended precision."""
  steps, n, m = 3, 2, 2
  names = [x for x in CORES if not x.startswith("initial")] if per_step else []
  point = _model(rng, steps, n, m, per_step=names)
  direction = _model(rng, steps, n, m, per_step=names)
  mask = np.array([[False, False], [False, True], [False, False]])
  weights = rng.standard_normal((steps, n)), rng.standard_normal((steps, n, n))
  loss = _loss(_jax_results(kind, mask), weights)
  wide = lambda x: jax.tree.map(lambda x: x.astype(np.longdouble), x)
  exact = _loss(_numpy_results(kind, mask), wide(weights))

  def along(t):
    return exact(*jax.tree.map(lambda x, dx: x + t * dx, wide(point), wide(direction)))

  h = np.longdouble(1e-4)
  first = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
  second = (
      -along(2 * h) + 16 * along(h) - 30 * along(0) + 16 * along(-h) - along(-2 * h)) / (12 * h * h)
  inner = lambda x, y: sum(map(jnp.vdot, jax.tree.leaves(x), jax.tree.leaves(y)))

  @jax.jit
  def found(point, direction):
    gradient, curved = jax.jvp(jax.grad(loss, (0, 1)), point, direction)
    forward = jax.jvp(lambda *x: jax.jvp(loss, x, direction)[1], point, direction)
    reverse = jax.grad(lambda x: inner(jax.grad(loss, (0, 1))(*x), direction))(point)
    return (forward[0], inner(gradient, direction),
            forward[1], inner(curved, direction), inner(reverse, direction))

  found = found(point, direction)
  np.testing.assert_allclose(found[:2], [float(first)] * 2, rtol=1e-9)
  np.testing.assert_allclose(found[2:], [float(second)] * 3, rtol=1e-7)


@pytest.mark.parametrize(("n", "shared"), [
    (3, [2]), (3, [3, 4, 5, 7, 8]), pytest.param(14, [2], marks=pytest.mark.extended),
    pytest.param(14, [3, 4, 5, 7, 8], marks=pytest.mark.extended)])
def test_handlers_of_derivatives(n, shared, rng):
  """Tangents are those of the formula, and adjoints its transpose, with shared operands too."""
  y, parameters = _model(rng, 5, n, 2, batch=(3,), per_step=("transition", "observation_offset"))
  operands = [y] + [
      x if name.startswith("initial") or x.ndim == len(core) + 2 else np.expand_dims(x, 1)
      for (name, x), core in zip(parameters.items(), CORES.values(), strict=True)]
  for i in shared:
    operands[i] = operands[i][0]  # serves all
  seen = (rng.random(y.shape) < 0.7).astype(y.dtype)
  operands = [jnp.asarray(x) for x in (*operands, seen)]
  cases = [(filter_p, filter_jvp_p, filter_vjp_p, operands, 9, 2)]
  moments = filter_p(*operands)[:2]
  cases.append((
      lambda *_: smoother_p(*operands, *moments), smoother_jvp_p, smoother_vjp_p,
      [operands[1], operands[2], operands[7], *moments], 5, 2))
  for values, given in ((filter_p, operands), (smoother_p, [*operands, *moments])):
    for x, known in zip(values(*given), jax.jit(values._rules.fallback)(*given), strict=True):
      np.testing.assert_allclose(x, known, rtol=1e-10, atol=1e-10)
  for values, tangents, adjoints, given, linear, kept in cases:
    found = values(*given)
    constants = (*given, *found[:kept])
    directions = []
    for x in given[:linear]:
      dx = rng.standard_normal(x.shape)
      is_square = x.ndim > 2 and x.shape[-1] == x.shape[-2] and x is not given[0]
      symmetric = is_square and not any(x is f for f in (operands[1],))
      directions.append(jnp.asarray((dx + dx.swapaxes(-1, -2)) / 2 if symmetric else dx))
    for x, known in zip(tangents(*constants, *directions),
                        jax.jit(tangents._rules.fallback)(*constants, *directions), strict=True):
      np.testing.assert_allclose(x, known, rtol=1e-9, atol=1e-9)
    cotangents = [jnp.asarray(rng.standard_normal(x.shape)) for x in found[:3]]
    cotangents[1] = (cotangents[1] + cotangents[1].mT) / 2
    theirs = jax.jit(adjoints._rules.fallback)(*constants, *cotangents)
    for x, known in zip(adjoints(*constants, *cotangents), theirs, strict=True):
      np.testing.assert_allclose(x, known, rtol=1e-9, atol=1e-9)


def test_missing_observations(rng):
  """A missing component is as if it had never been; what is under the mask is not read."""
  y, parameters = _model(rng, 6, 3, 2)
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


def test_masks_of_a_batch(rng):
  """A mask may serve all series, and one that could be read in two ways is refused."""
  y, parameters = _model(rng, 6, 3, 2)
  y = rng.standard_normal((6, 6, 2))  # as many series as steps
  run = functools.partial(linalg.structured.kalman_filter, **parameters)
  steps, components = rng.random(6) < 0.4, rng.random((6, 2)) < 0.4
  for mask, whole in ((steps, np.repeat(steps[:, None], 2, axis=1)), (components, components)):
    expected = run(y, mask=np.broadcast_to(whole, y.shape))
    spoilt = np.where(whole, np.nan, y)
    for given in (mask, whole[None]):
      for x, known in zip(run(spoilt, mask=given), expected, strict=True):
        np.testing.assert_array_equal(x, known)
  for n in (1, 2):  # a batch of series of 2 steps with 2 components
    with pytest.raises(ValueError, match=r"\(2, 2\), .* either as \(..., T, m\), .* \(..., T\), "):
      run(y[:n, :2], mask=np.zeros((2, 2), bool))
  of_steps = rng.random((6, 6)) < 0.4
  for x, known in zip(run(y, mask=of_steps), run(
      y, mask=np.repeat(of_steps[..., None], 2, axis=2)), strict=True):
    np.testing.assert_array_equal(x, known)
  with pytest.raises(ValueError, match=r"mask of shape \(..., 6\) or .* got \(4, 6\)"):
    run(y, mask=of_steps[:4])


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
  y, parameters = _model(rng, 50, 4, 1, dtype, rank=1)
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
  y, parameters = _model(rng, 6, 3, 2, batch=(9,), per_step=("observation_covariance",))
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
  y, parameters = _model(rng, 5, 2, 1, np.float32)
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
  y, parameters = _model(rng, 4, 3, 2)
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


def test_vmap(rng):
  """Any operand may be mapped, and the others serve all."""
  y, parameters = _model(rng, 4, 3, 2)
  for name in [None, *parameters]:
    given = {"y": y, **parameters}
    key = name or "y"
    given[key] = np.stack([given[key], given[key] + 0.1 * np.eye(*given[key].shape[-2:])
                           if given[key].ndim > 1 else given[key] + 0.1])
    axes = {other: 0 if other == key else None for other in given}
    run = jax.vmap(lambda x: FUNCTIONS["smoother"](x.pop("y"), **x), in_axes=(axes,))
    mapped = run(dict(given))
    for i in range(2):
      one = {other: x[i] if other == key else x for other, x in given.items()}
      for x, known in zip(mapped, FUNCTIONS["smoother"](one.pop("y"), **one), strict=True):
        np.testing.assert_array_equal(x[i], known)


def test_unit_batch_dimensions(rng):
  """Results have the common batch of all operands, where those of the observations are all 1."""
  y, parameters = _model(rng, 4, 3, 2)
  means = rng.standard_normal((3, 3))
  for function in FUNCTIONS.values():
    expected = function(y[None], **parameters | {"initial_mean": means})
    for lead in ((1, 1), (1, 3)):
      observations = np.broadcast_to(y, (*lead, *y.shape))
      found = function(observations, **parameters | {"initial_mean": means})
      for x, known in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, known[None])
    alone = function(y[None, None], **parameters)
    assert alone.log_likelihood.shape == (1, 1) and alone[0].shape == (1, 1, 4, 3)


def test_steps_or_series(rng):
  """An operand that could be one for each step or one for each series is refused."""
  y, parameters = _model(rng, 4, 3, 2)
  y = rng.standard_normal((4, 4, 2))  # as many series as steps
  run = functools.partial(linalg.structured.kalman_filter, y, **parameters)
  for name in ("transition", "observation_covariance", "observation_offset"):
    many = parameters[name] * rng.uniform(1, 2, (4, *[1] * parameters[name].ndim))
    own = ", ".join(map(str, parameters[name].shape))
    with pytest.raises(ValueError, match=(
        rf"takes {name} of shape \(4, {own}\), .* \(1, 4, {own}\) .* \(4, 1, {own}\) for")):
      run(**{name: many})
    for i in range(4):
      one = functools.partial(linalg.structured.kalman_filter, y[i], **parameters)
      for given, alone in ((many[None], many), (many[:, None], many[i])):
        for x, known in zip(run(**{name: given}), one(**{name: alone}), strict=True):
          np.testing.assert_array_equal(x[i], known)
    with pytest.raises(ValueError, match=rf"takes {name} of shape .* \(1, 4, {own}\) where"):
      linalg.structured.kalman_filter(y[:3], **parameters | {name: many})


@sharded.KINDS
def test_sharded_batch(kind, rng):
  """A sharded batch is filtered and differentiated where it is."""
  y, parameters = _model(rng, 4, 3, 2, np.float32, batch=(sharded.BATCH,))
  parameters["transition"] = parameters["transition"][0]  # serves all
  mask = rng.random(y.shape) < 0.2
  mesh = sharded.make_mesh(kind=kind)

  def place(x):
    spec = P("x") if x.shape[:1] == (sharded.BATCH,) else P()
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))

  given = jax.tree.map(place, (y, parameters, mask))
  with jax.set_mesh(mesh):
    compiled = jax.jit(lambda *x: FUNCTIONS["smoother"](x[0], **x[1], mask=x[2])).lower(
        *given).compile()
    assert not sharded.collectives(compiled.as_text())
    found = compiled(*given)
    rest = {key: x for key, x in parameters.items() if key != "transition"}
    gradient = jax.grad(lambda y, rest, transition, mask: FUNCTIONS["smoother"](
        y, **rest, transition=transition, mask=mask)[0].sum(), (0, 1))
    placed = (
        given[0], {key: given[1][key] for key in rest}, given[1]["transition"], given[2])
    compiled = jax.jit(gradient).lower(*placed).compile()
    assert not sharded.collectives(compiled.as_text())
    gradients = compiled(*placed)
  assert found.smoothed_means.sharding.spec[0] == "x"
  for x, known in zip(found, FUNCTIONS["smoother"](y, **parameters, mask=mask), strict=True):
    np.testing.assert_array_equal(x, known)
  expected = gradient(y, rest, parameters["transition"], mask)
  for x, known in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(x, known, rtol=1e-5, atol=1e-5)


@sharded.KINDS
def test_sharded_batch_of_one_model(kind, rng):
  """Means are computed where the series are, covariances on every device."""
  y, parameters = _model(rng, 4, 3, 2, np.float32)
  y = rng.standard_normal((sharded.BATCH, *y.shape)).astype(np.float32)
  run = lambda y: linalg.structured.kalman_filter(y, **parameters)
  loss = lambda y: sum(jnp.sum(x) for x in run(y)[:3])
  expected = run(y), jax.grad(loss)(y)
  mesh = sharded.make_mesh(kind=kind)
  placed = jax.device_put(y, jax.sharding.NamedSharding(mesh, P("x")))
  with jax.set_mesh(mesh):
    compiled = jax.jit(lambda y: (run(y), jax.grad(loss)(y))).lower(placed).compile()
    assert not sharded.collectives(compiled.as_text())
    assert "linalg_kalman_means" in compiled.as_text()
    found = compiled(placed)
  for x, known in zip(found[0], expected[0], strict=True):
    assert x.sharding.spec[0] == "x"
    np.testing.assert_array_equal(x, known)
  np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)


def test_shard_map_and_export(rng):
  y, parameters = _model(rng, 4, 3, 2, np.float32)
  y = rng.standard_normal((16, 4, 2)).astype(np.float32)
  run = lambda y: linalg.structured.kalman_filter(y, **parameters)
  expected = run(y)
  mesh = sharded.make_mesh()
  mapped = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(y)
  (size,) = export.symbolic_shape("b")
  exported = export.export(
      jax.jit(run), disabled_checks=linalg.export_disabled_checks())(
          jax.ShapeDtypeStruct((size, 4, 2), np.float32))
  for found in (mapped, exported.call(y)):
    for x, known in zip(found, expected, strict=True):
      np.testing.assert_array_equal(x, known)


def test_half_precision(rng):
  y, parameters = _model(rng, 5, 2, 1, np.float32)
  half = {key: x.astype(jnp.bfloat16) for key, x in parameters.items()}
  found = linalg.structured.kalman_filter(y.astype(jnp.bfloat16), **half)
  same = jax.tree.map(lambda x: x.astype(np.float32), (y.astype(jnp.bfloat16), half))
  for x, known in zip(found[:3], linalg.structured.kalman_filter(same[0], **same[1]), strict=False):
    assert x.dtype == jnp.bfloat16
    np.testing.assert_array_equal(x, known.astype(jnp.bfloat16))


@pytest.mark.parametrize(("name", "shape", "message"), [
    ("transition", (3, 4), r"transition of shape \(4, 4\), or \(6, 4, 4\) .* got \(3, 4\)"),
    ("transition", (5, 4, 4), r"transition .* got \(5, 4, 4\)"),
    ("transition_covariance", (3, 3), r"transition_covariance of shape \(4, 4\)"),
    ("observation", (4, 2), r"observation of shape \(2, 4\)"),
    ("observation_covariance", (2,), r"observation_covariance of shape \(2, 2\)"),
    ("initial_mean", (3,), r"initial_mean of shape \(4,\), beside"),
    ("initial_covariance", (4, 3), r"initial_covariance of shape \(4, 4\)"),
    ("observation_offset", (4,), r"observation_offset of shape \(2,\), or \(6, 2\)"),
    ("mask", (5,), r"mask of shape \(..., 6\) or \(..., 6, 2\)"),
])
def test_wrong_shapes(name, shape, message, rng):
  y, parameters = _model(rng, 6, 4, 2)
  parameters[name] = np.zeros(shape, bool if name == "mask" else float)
  for key, function in FUNCTIONS.items():
    with pytest.raises(ValueError, match=rf"^kalman_{key}\(\) takes {message}"):
      function(y, **parameters)


def test_wrong_types(rng):
  y, parameters = _model(rng, 6, 4, 2)
  run = functools.partial(linalg.structured.kalman_filter, **parameters)
  with pytest.raises(TypeError, match="real arrays, got complex128"):
    run(y.astype(complex), **{key: x.astype(complex) for key, x in parameters.items()})
  with pytest.raises(TypeError, match="mask as an array of booleans"):
    run(y, mask=np.zeros(6))
  with pytest.raises(ValueError, match=r"observations of shape \(..., T, m\)"):
    run(y[:0])
  with pytest.raises(ValueError, match="initial_mean with batch dimensions that broadcast"):
    run(np.stack([y, y]), initial_mean=np.zeros((3, 4)))
