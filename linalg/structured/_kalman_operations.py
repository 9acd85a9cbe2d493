"""The operations of Kalman filters and smoothers: their targets, fallbacks and derivatives.

Operands have a dimension of steps, which is 1 where one matrix serves all steps. They come in this
order: observations y (t, m), transition F (f, n, n) and its covariance Q (q, n, n), observation H
(h, m, n) and its covariance R (r, m, m), the first state's mean (n) and covariance (n, n), the
offsets b (u, n) of the transition and d (v, m) of the observation, and `seen` (w, m), which is 0
for missing components. Covariances are symmetric. w is 0 where nothing is missing.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from linalg import ffi
from linalg._core.algebra import (
    adjoint,
    diagonal_of,
    expand,
    identities_like,
    nan_where,
    on_diagonal,
    symmetrized,
    without_none,
    zeros_like,
)
from linalg._core.linear_rules import linear_pair
from linalg._core.tuning import MOST_GAINS, MOST_STATES
from linalg._factorizations.cholesky import cholesky_p, cholesky_solve_p
from linalg._factorizations.eigh import eigh_p
from linalg._factorizations.matmul import product
from linalg.structured._steps import factor_solve_p

__all__ = ["run_filter", "smoother_p"]

# The number of core dimensions of each operand.
_FILTER_RANKS = (2, 3, 3, 3, 3, 1, 2, 2, 2, 2)
_MOMENT_RANKS = (2, 3)
_SMOOTHER_RANKS = (3, 3, 2, *_MOMENT_RANKS)


def _times(a, x):
  """A x"""
  return product(a, x[..., None])[..., 0]


def _turned_times(a, x):
  """Aᵀ x"""
  return product(a, x[..., None], adjoint_a=True)[..., 0]


def _outer(x, y):
  return x[..., :, None] * y[..., None, :]


def _congruence(a, x):
  """A X Aᵀ"""
  return product(product(a, x), a, adjoint_b=True)


def _with_transpose(a):
  return a + a.mT


def _each(x, steps, core):
  """`x` with one matrix (with core=1 a vector) for each step."""
  batch = x.shape[: x.ndim - core - 1]
  return jnp.broadcast_to(x, (*batch, steps, *x.shape[x.ndim - core :]))


def _steps_first(x, core):
  """The steps of a scan."""
  return jnp.moveaxis(x, x.ndim - core - 1, 0)


def _steps_last(x, core):
  return jnp.moveaxis(x, 0, x.ndim - core - 1)


class _Model(NamedTuple):
  """The operands, with one matrix for each step, without missing components. v is y - d."""

  v: jax.Array
  f: jax.Array
  q: jax.Array
  h: jax.Array
  r: jax.Array
  mean: jax.Array
  cov: jax.Array
  b: jax.Array
  seen: jax.Array | None

  def keep(self, x):
    """`x` (t, m) with 0 for missing components."""
    return x if self.seen is None else jnp.where(self.seen, x, 0)

  def keep_rows(self, x):
    return x if self.seen is None else jnp.where(self.seen[..., None], x, 0)

  def keep_square(self, x, other: Any = 0):
    if self.seen is None:
      return x
    return jnp.where(self.seen[..., :, None] & self.seen[..., None, :], x, other)


def _model(operands) -> _Model:
  y, f, q, h, r, mean, cov, b, d, seen = ffi.broadcast_batches(
      "kalman_filter", list(operands), _FILTER_RANKS)
  steps = y.shape[-2]
  f, q, h, r = (_each(x, steps, 2) for x in (f, q, h, r))
  b, d = (_each(x, steps, 1) for x in (b, d))
  mask = _each(seen, steps, 1) != 0 if seen.shape[-2] else None
  model = _Model(y - d, f, q, h, r, mean, cov, b, mask)
  if mask is None:
    return model
  r = model.keep_square(r, on_diagonal(r).astype(r.dtype))
  return model._replace(v=model.keep(model.v), h=model.keep_rows(h), r=r)


def _gain(v, h, r, mean, cov):
  """The factor of S, its info, Kᵀ, e = S⁻¹ v and the innovation v, from predicted moments."""
  hp = product(h, cov)
  v = v - _times(h, mean)
  factor, info = cholesky_p(product(hp, h, adjoint_b=True) + r)
  e = cholesky_solve_p(factor, v[..., None])[..., 0]
  return factor, info, cholesky_solve_p(factor, hp), e, v


def _predicted(model, means, covs):
  """The covariances and means before each observation, from those after it."""
  ahead = _congruence(model.f, covs) + model.q
  mean_ahead = _times(model.f, means) + model.b
  return (
      jnp.concatenate([model.cov[..., None, :, :], ahead[..., :-1, :, :]], axis=-3),
      jnp.concatenate([model.mean[..., None, :], mean_ahead[..., :-1, :]], axis=-2))


def _filter_fallback(*operands):
  """The handler's recursion as a scan."""
  model = _model(operands)

  def step(carry, given):
    mean, cov = carry
    v, f, q, h, r, b = given
    factor, info, kt, e, v = _gain(v, h, r, mean, cov)
    deviance = jnp.sum(v * e, axis=-1) + 2 * jnp.sum(jnp.log(diagonal_of(factor)), axis=-1)
    failed = (info != 0) | jnp.isnan(deviance)
    a = expand(jnp.eye(f.shape[-1], dtype=f.dtype), f) - product(kt, h, adjoint_a=True)
    mean = nan_where(failed, mean + _turned_times(kt, v), core=1)
    cov = _congruence(a, cov) + _congruence(adjoint(kt), r)
    cov = nan_where(failed, _with_transpose(cov / 2), core=2)
    ahead = _congruence(f, cov) + q
    return (_times(f, mean) + b, _with_transpose(ahead / 2)), (mean, cov, deviance, failed)

  xs = [_steps_first(x, core) for x, core in zip(
      (model.v, model.f, model.q, model.h, model.r, model.b), (1, 2, 2, 2, 2, 1), strict=True)]
  _, (means, covs, deviances, failed) = jax.lax.scan(step, (model.mean, model.cov), xs)
  steps = failed.shape[0]
  order = jax.lax.broadcasted_iota(jnp.int32, failed.shape, 0)
  first = jnp.min(jnp.where(failed, order + 1, steps + 1), axis=0, initial=steps + 1)
  info = jnp.where(first <= steps, first, 0).astype(jnp.int32)
  seen = jnp.sum(model.keep(jnp.ones_like(model.v)), axis=(-2, -1))
  likelihood = -(jnp.sum(deviances, axis=0) + math.log(2 * math.pi) * seen) / 2
  return [
      _steps_last(means, 1), _steps_last(covs, 2), nan_where(info != 0, likelihood, core=0), info]


def _filter_tangent(*operands):
  """The formula at the top of kernels/small/kalman_derivatives.h.

  All that does not depend on the tangent of the step before is computed for all steps at once.
  """
  # `vmap` may have mapped some of them only.
  operands = ffi.broadcast_batches(
      "kalman_filter", list(operands), (*_FILTER_RANKS, *_MOMENT_RANKS, *_FILTER_RANKS[:9]))
  model = _model(operands[:10])
  means, covs, *tangents = operands[10:]
  steps = means.shape[-2]
  dy, df, dq, dh, dr, dmean, dcov, db, dd = tangents
  dq, dr, dcov = map(symmetrized, (dq, dr, dcov))  # so gradients are symmetric, as the handler's
  df, dq, dh, dr = (_each(x, steps, 2) for x in (df, dq, dh, dr))
  db, dd = (_each(x, steps, 1) for x in (db, dd))
  dh, dr = model.keep_rows(dh), model.keep_square(dr)

  fp = product(model.f, covs)
  before, mean_before = _predicted(model, means, covs)
  factor, _, kt, e, _ = _gain(model.v, model.h, model.r, mean_before, before)
  g = _turned_times(model.h, e)
  a = expand(jnp.eye(fp.shape[-1], dtype=fp.dtype), fp) - product(kt, model.h, adjoint_a=True)

  dre = _times(dr, e)
  w = model.keep(dy - dd) - _times(dh, means) - dre
  added = _turned_times(kt, w) + _times(covs, _turned_times(dh, e))
  x = product(dr, kt) / 2 - product(dh, covs)
  cov_added = _with_transpose(product(kt, x, adjoint_a=True))
  mean_moved = _times(df, means) + db
  cov_moved = _with_transpose(product(df, fp, adjoint_b=True)) + dq

  def step(carry, given):
    dmean, dcov = carry
    f, a, g, added, cov_added, mean_moved, cov_moved = given
    new_mean = _times(a, dmean + _times(dcov, g)) + added
    new_cov = _congruence(a, dcov) + cov_added
    ahead = _times(f, new_mean) + mean_moved, _congruence(f, new_cov) + cov_moved
    return ahead, (dmean, dcov, new_mean, new_cov)

  xs = [_steps_first(x, core) for x, core in zip(
      (model.f, a, g, added, cov_added, mean_moved, cov_moved), (2, 2, 1, 1, 2, 1, 2),
      strict=True)]
  _, found = jax.lax.scan(step, (dmean, dcov), xs)
  dmeans, dcovs, new_means, new_covs = (
      _steps_last(x, core) for x, core in zip(found, (1, 2, 1, 2), strict=True))
  inner = cholesky_solve_p(factor, _congruence(model.h, dcovs) + dr)
  change = (
      -jnp.sum(e * (w + dre / 2), axis=-1) - jnp.sum(kt * dh, axis=(-2, -1))
      + jnp.sum(g * (dmeans + _times(dcovs, g) / 2), axis=-1)
      - jnp.sum(diagonal_of(inner), axis=-1) / 2)
  return [new_means, new_covs, jnp.sum(change, axis=-1)]


def _filter_argument(*constants):
  """The linear operands, with the whole batch: all but `seen`."""
  *_, means, _ = constants
  return tuple(ffi.broadcast_batches(
      "kalman_filter", [means, *constants[:9]], (2, *_FILTER_RANKS[:9]))[1:])


def _fits(position):
  """The rule `suits`, by the operand at `position` whose matrices have n columns, and by y."""

  def suits(platform, *types, **attributes):
    del attributes
    sizes, most = types[position].shape[-2:], MOST_STATES.get(platform, 0)
    return all(isinstance(size, int) and size <= most for size in sizes)

  return suits


_OPERANDS = "t m, f n n, q n n, h m n, r m m, n, n n, u n, v m, w m"
_MOMENTS = "t n, t n n"
_TANGENTS = "t m, f n n, q n n, h m n, r m m, n, n n, u n, v m"
_H = 3

filter_jvp_p, filter_vjp_p = linear_pair(
    ("linalg_kalman_filter_jvp",
     f"{_OPERANDS}, {_MOMENTS}, {_TANGENTS} -> {_MOMENTS}, ()", [0] * 3),
    ("linalg_kalman_filter_vjp",
     f"{_OPERANDS}, {_MOMENTS}, {_MOMENTS}, () -> {_TANGENTS}", [0] * 9),
    _filter_tangent,
    constants=12,
    argument=_filter_argument,
    shared=[*range(10), *range(12, 21)],
    suits=_fits(_H))


def _filter_jvp(primals, tangents):
  means, covs, likelihood, info = filter_p(*primals)
  linear = without_none(primals[:9], tangents[:9])
  return (means, covs, likelihood, info), (*filter_jvp_p(*primals, means, covs, *linear), None)


def _filter_batch(operands, dims):
  """The batching rule of observations, means and offsets beside one model."""
  if any(dims[i] is not None for i in _MODEL) or not _is_one_model(operands):
    return None
  found = jax.vmap(_filter_by_one_model, in_axes=tuple(dims))(*operands)
  return list(found), [0] * len(found)


filter_p = ffi.operation(
    "linalg_kalman_filter",
    f"{_OPERANDS} -> {_MOMENTS}, (), ()",
    [0, 0, 0, jnp.int32],
    shared=range(10),
    jvp=_filter_jvp,
    suits=_fits(_H),
    fallback=_filter_fallback,
    batch=_filter_batch)


# One model for many series without missing observations. Covariances and gains are those of one
# series, so only means run over the batch. `covs` are the filtered covariances (t, n, n).

# The operands that the covariances depend on.
_MODEL = (1, 2, 3, 4, 6, 9)


def _is_one_model(operands):
  """Whether covariances are the same for all series, and all gains fit in moderate memory."""
  y, *_, seen = operands
  steps, (m, n) = y.shape[-2], operands[_H].shape[-2:]
  return (
      all(operands[i].ndim == _FILTER_RANKS[i] for i in _MODEL) and seen.shape[0] == 0
      and all(isinstance(size, int) and size > 0 for size in (steps, m, n))
      and max(m, n) <= max(MOST_STATES.values()) and steps * m * (m + n) <= MOST_GAINS)


def _all_times(a, x):
  """A x for the vectors (..., t, n) of all series, with matrices (t, m, n) or one for all steps."""
  full = jax.lax.Precision.HIGHEST
  if a.shape[0] == 1:
    return jnp.einsum("ij,...tj->...ti", a[0], x, precision=full)
  return jnp.einsum("tij,...tj->...ti", a, x, precision=full)


def _shifted(first, x):
  """`first` (..., n), then the vectors x (..., t, n) but for the last one."""
  return jnp.concatenate([first[..., None, :], x[..., :-1, :]], axis=-2)


def _recursion(a, u):
  """x[0] = u[0], x[t] = A[t - 1] x[t - 1] + u[t], a bidiagonal system."""
  steps, n = u.shape[-2:]
  one = jnp.broadcast_to(jnp.eye(n, dtype=u.dtype), (steps, n, n))
  below = -jax.lax.stop_gradient(a)

  def times(x):
    moved = _all_times(a, x[..., :-1, :]) if steps > 1 else x[..., :0, :]
    return x - jnp.concatenate([zeros_like(x[..., :1, :]), moved], axis=-2)

  def solve(_, b, back=False):
    return factor_solve_p(one, below, b[..., None], forward=not back, back=back)[..., 0]

  return jax.lax.custom_linear_solve(
      times, u, solve, functools.partial(solve, back=True))


def _means_formula(y, f, q, h, r, mean, cov, b, d, covs):
  """The means and the log likelihood, differentiable.

  Let s be the first mean, and b for the later steps. The means m and innovations v are

    m = A F m[before] + A s + K (y - d)    v = (y - d) - H s - H F m[before]

  An s that serves all series is multiplied once.
  """
  common = lambda *x: ffi.broadcast_batches("kalman_filter", list(x), (2,) * len(x))
  steps, m = y.shape[-2:]
  observed = jnp.subtract(*common(y, d))
  start = _shifted(*ffi.broadcast_batches(
      "kalman_filter", [mean, _each(b, steps, 1)], (1, 2)))
  each_f, each_q, each_h, each_r = (_each(x, steps, 2) for x in (f, q, h, r))
  ahead = _congruence(each_f, covs) + each_q
  hp = product(each_h, jnp.concatenate([cov[None], ahead[:-1]]))
  factor, _ = cholesky_p(product(hp, each_h, adjoint_b=True) + each_r)
  kt = cholesky_solve_p(factor, hp)
  inverse = cholesky_solve_p(factor, identities_like(factor))
  a = identities_like(covs) - product(kt, each_h, adjoint_a=True)
  u = jnp.add(*common(_all_times(a, start), _all_times(kt.mT, observed)))
  means = _recursion(product(a[1:], each_f[:-1]), u)
  hf = product(h, f) if h.shape[0] == f.shape[0] == 1 else product(each_h[1:], each_f[:-1])
  moved = _all_times(hf, means[..., :-1, :])
  moved = jnp.pad(moved, [(0, 0)] * (moved.ndim - 2) + [(1, 0), (0, 0)])
  observed, known, moved = common(observed, _all_times(h, start), moved)
  v = (observed - known) - moved
  deviance = jnp.sum(v * _all_times(inverse, v), axis=(-2, -1))
  logdet = 2 * jnp.sum(jnp.log(diagonal_of(factor)))
  return means, -(deviance + logdet + steps * m * math.log(2 * math.pi)) / 2


def _means_by_filter(y, f, q, h, r, mean, cov, b, d, covs):
  del covs
  seen = jnp.zeros((0, y.shape[-1]), y.dtype)
  means, _, likelihood, info = filter_p(y, f, q, h, r, mean, cov, b, d, seen)
  return [means, likelihood, info]


def _means_jvp(primals, tangents):
  _, changes = jax.jvp(_means_formula, tuple(primals), tuple(without_none(primals, tangents)))
  return means_p(*primals), (*changes, None)


def _means_batch(operands, dims):
  """The batching rule of several models: each has its own filter."""
  if all(dim is None or i in (0, 5, 7, 8) for i, dim in enumerate(dims)):
    return None
  found = jax.vmap(_means_by_filter, in_axes=tuple(dims))(*operands)
  return list(found), [0] * len(found)


means_p = ffi.operation(
    "linalg_kalman_means",
    f"{_TANGENTS}, t n n -> t n, (), ()",
    [0, 0, jnp.int32],
    shared=range(10),
    jvp=_means_jvp,
    suits=_fits(_H),
    fallback=_means_by_filter,
    batch=_means_batch)


def _filter_by_one_model(y, f, q, h, r, mean, cov, b, d, seen):
  zeros = lambda *shape: jnp.zeros(shape, y.dtype)
  (steps, m), n = y.shape[-2:], mean.shape[-1]
  _, covs, _, _ = filter_p(
      zeros(steps, m), f, q, h, r, zeros(n), cov, zeros(1, n), zeros(1, m), seen)
  means, likelihood, info = means_p(y, f, q, h, r, mean, cov, b, d, covs)
  # A series that fails by its observations has NaN from that step on.
  place = expand(jnp.arange(steps, dtype=jnp.int32), info[..., None])
  failed = (info[..., None] > 0) & (place >= info[..., None] - 1)
  covs = nan_where(failed, expand(covs, means[..., None]), core=2)
  return means, covs, likelihood, info


def run_filter(*operands: jax.Array) -> tuple[jax.Array, ...]:
  """`filter_p`, which computes the covariances of a model once for all of its series."""
  if any(x.ndim > rank for x, rank in zip(operands, _FILTER_RANKS, strict=True)) and (
      _is_one_model(operands)):
    return _filter_by_one_model(*operands)
  return filter_p(*operands)


def _solve_semidefinite(p, x):
  """P⁻¹ X, or a solution of P Y = X where P is singular and X in its range.

  P is scaled to a unit diagonal before its smallest eigenvalues are taken for zeros.
  """
  fixed = jax.lax.stop_gradient(p)
  diagonal = diagonal_of(fixed)[..., None]
  scale = jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1)), 0)
  values, vectors, _ = eigh_p(scale * fixed * scale.mT)
  dropped = values <= 8 * p.shape[-1] * jnp.finfo(p.dtype).eps  # NaN stays
  inverse = jnp.where(dropped, 0, 1 / jnp.where(dropped, 1, values))[..., None]
  vectors = scale * vectors
  solve = lambda _, x: product(vectors, inverse * product(vectors, x, adjoint_a=True))
  return jax.lax.custom_linear_solve(lambda x: product(p, x), x, solve, symmetric=True)


class _SmootherGains(NamedTuple):
  """The terms of the recursion, for all steps but the last."""

  f: jax.Array
  q: jax.Array
  mean_ahead: jax.Array
  cov_ahead: jax.Array
  gt: jax.Array
  b: jax.Array  # I - G F


def _smoother_gains(f, q, b, means, covs) -> _SmootherGains:
  steps = means.shape[-2]
  f, q = (_each(x, steps, 2)[..., :-1, :, :] for x in (f, q))
  b = _each(b, steps, 1)[..., :-1, :]
  covs = covs[..., :-1, :, :]
  ahead = _congruence(f, covs) + q
  gt = _solve_semidefinite(ahead, product(f, covs))
  eye = expand(jnp.eye(f.shape[-1], dtype=f.dtype), f)
  mean_ahead = _times(f, means[..., :-1, :]) + b
  return _SmootherGains(f, q, mean_ahead, ahead, gt, eye - product(gt, f, adjoint_a=True))


def _smoother_fallback(*operands):
  """The recursion at the top of kernels/small/kalman.h."""
  *operands, means, covs = ffi.broadcast_batches(
      "kalman_smoother", list(operands), (*_FILTER_RANKS, *_MOMENT_RANKS))
  model = _model(operands)
  before, mean_before = _predicted(model, means, covs)
  factor, info, kt, e, v = _gain(model.v, model.h, model.r, mean_before, before)
  failed = (info != 0) | jnp.isnan(jnp.sum(v * e, axis=-1))
  e = nan_where(failed, e, core=1)
  z = nan_where(failed, cholesky_solve_p(factor, model.h), core=2)
  a = expand(jnp.eye(covs.shape[-1], dtype=covs.dtype), covs) - product(
      kt, model.h, adjoint_a=True)
  turned_gain = _solve_semidefinite(
      _congruence(model.f, covs) + model.q, product(model.f, covs))
  most = 30 if covs.dtype == jnp.float32 else 1e3

  def step(carry, given):
    (r, information, noise, largest), later = carry
    mean, cov, ahead, gt, own_f, own_q, last, f, q, h, r_cov, kt, e, a, z = given
    eye = expand(jnp.eye(cov.shape[-1], dtype=cov.dtype), cov)
    smoothed = mean + _times(cov, r), _congruence(
        eye - product(cov, information), cov) + _congruence(cov, noise)
    g = adjoint(gt)
    other = mean + _times(g, later[0] - ahead), _congruence(
        eye - product(g, own_f), cov) + _congruence(g, later[1] + own_q)
    condition = jnp.sum(diagonal_of(cov) * largest, axis=-1)
    ill = (condition > most) & ~last
    smoothed = (
        jnp.where(ill[..., None], other[0], smoothed[0]),
        jnp.where(ill[..., None, None], other[1], smoothed[1]))
    smoothed = smoothed[0], _with_transpose(smoothed[1] / 2)
    r = _turned_times(h, e) + _turned_times(a, r)
    largest = _turned_times(a * a, diagonal_of(information))
    ia = product(information, a)
    j = z - product(kt, ia)
    noise = _congruence(adjoint(a), noise) + _congruence(adjoint(j), r_cov)
    information = product(a, ia, adjoint_a=True) + product(h, z, adjoint_a=True)
    information = _with_transpose(information / 2)
    largest = largest + diagonal_of(information)
    noise = noise + _congruence(information, q)
    state = (
        _turned_times(f, r), _congruence(adjoint(f), information),
        _congruence(adjoint(f), noise), _turned_times(f * f, largest))
    return (state, smoothed), smoothed

  # A step goes back over its observation and over the transition that leads to it.
  lead = lambda x: jnp.concatenate([x[..., :1, :, :], x[..., :-1, :, :]], axis=-3)
  steps = means.shape[-2]
  last = jnp.arange(steps) == steps - 1
  ahead = _times(model.f, means) + model.b
  xs = [_steps_first(x, core) for x, core in zip(
      (means, covs, ahead, turned_gain, model.f, model.q), (1, 2, 1, 2, 2, 2), strict=True)]
  xs.append(last.reshape(steps, *[1] * (means.ndim - 2)))
  xs += [_steps_first(x, core) for x, core in zip(
      (lead(model.f), lead(model.q), model.h, model.r, kt, e, a, z), (2, 2, 2, 2, 2, 1, 2, 2),
      strict=True)]
  zero, zeros = zeros_like(means[..., -1, :]), zeros_like(covs[..., -1, :, :])
  _, found = jax.lax.scan(step, ((zero, zeros, zeros, zero), (zero, zeros)), xs, reverse=True)
  return [_steps_last(x, core) for x, core in zip(found, (1, 2), strict=True)]


def _append(found, last):
  """The moments of all steps from those of a scan and of the last step."""
  return [
      jnp.concatenate([_steps_last(x, core), jnp.expand_dims(y, y.ndim - core)], axis=-1 - core)
      for x, y, core in zip(found, last, (1, 2), strict=True)]


def _smoother_tangent(*operands):
  """The formula at the top of kernels/small/kalman_derivatives.h."""
  f, q, b, means, covs, smoothed, smoothed_covs, df, dq, db, dmeans, dcovs = ffi.broadcast_batches(
      "kalman_smoother", list(operands), (*_SMOOTHER_RANKS, *_MOMENT_RANKS, *_SMOOTHER_RANKS))
  steps = means.shape[-2]
  dq, dcovs = map(symmetrized, (dq, dcovs))  # so gradients are symmetric, as the handler's
  df, dq = (_each(x, steps, 2)[..., :-1, :, :] for x in (df, dq))
  db = _each(db, steps, 1)[..., :-1, :]
  gains = _smoother_gains(f, q, b, means, covs)
  gt, f = gains.gt, gains.f
  p, dp = covs[..., :-1, :, :], dcovs[..., :-1, :, :]
  e = _solve_semidefinite(
      gains.cov_ahead, (smoothed[..., 1:, :] - gains.mean_ahead)[..., None])[..., 0]
  v = _solve_semidefinite(gains.cov_ahead, product(smoothed_covs[..., 1:, :, :], gt))
  x = dmeans[..., :-1, :] + _times(dp, _turned_times(f, e)) + _times(p, _turned_times(df, e))
  z = -db - _times(df, smoothed[..., :-1, :]) - _times(dq, e)
  fixed = _times(gains.b, x) + _turned_times(gt, z)
  c = product(dp, adjoint(gains.b) / 2 + product(f, v, adjoint_a=True)) + product(
      p, product(df, v, adjoint_a=True))
  own = product(dq, gt / 2 - v) - product(df, smoothed_covs[..., :-1, :, :])
  fixed_cov = _with_transpose(product(gains.b, c) + product(gt, own, adjoint_a=True))

  def step(later, given):
    gt, fixed, fixed_cov = given
    moved = _turned_times(gt, later[0]) + fixed, _congruence(adjoint(gt), later[1]) + fixed_cov
    return moved, moved

  xs = [_steps_first(x, core) for x, core in zip(
      (gt, fixed, fixed_cov), (2, 1, 2), strict=True)]
  last = dmeans[..., -1, :], dcovs[..., -1, :, :]
  _, found = jax.lax.scan(step, last, xs, reverse=True)
  return _append(found, last)


def _smoother_argument(*constants):
  """The linear operands, with the whole batch."""
  return tuple(ffi.broadcast_batches("kalman_smoother", list(constants[:5]), _SMOOTHER_RANKS))


_STATES = "f n n, q n n, u n, t n, t n n"

smoother_jvp_p, smoother_vjp_p = linear_pair(
    ("linalg_kalman_smoother_jvp", f"{_STATES}, {_MOMENTS}, {_STATES} -> {_MOMENTS}", [0] * 2),
    ("linalg_kalman_smoother_vjp", f"{_STATES}, {_MOMENTS}, {_MOMENTS} -> {_STATES}", [0] * 5),
    _smoother_tangent,
    constants=7,
    argument=_smoother_argument,
    shared=[0, 1, 2, 7, 8, 9],
    suits=_fits(0))


def _smoother_jvp(primals, tangents):
  # The filtered moments depend on all operands. Given them, the smoothed ones depend on the
  # transition alone.
  results = smoother_p(*primals)
  known, changes = ([x[i] for i in (1, 2, 7, 10, 11)] for x in (primals, tangents))
  return results, smoother_jvp_p(*known, *results, *without_none(known, changes))


# The last two operands are the results of `filter_p` for the others, for derivatives too.
smoother_p = ffi.operation(
    "linalg_kalman_smoother",
    f"{_OPERANDS}, {_MOMENTS} -> {_MOMENTS}",
    [0, 0],
    shared=range(10),
    jvp=_smoother_jvp,
    suits=_fits(_H),
    fallback=_smoother_fallback)
