# %% [markdown]
# # A Gaussian process in state space
#
# A Gaussian process at T times has a covariance matrix with T² entries. Its factorisation takes T³
# operations. Matérn's processes of order 3/2 and 5/2 are also states of a linear stochastic
# differential equation (Hartikainen and Särkkä, 2010). A Kalman filter then needs T steps, for
# times at any distance from each other.
#
# This page computes the likelihood, its gradient and predictions in three ways: by a Kalman filter,
# by a block-tridiagonal matrix, and from the dense covariance. It compares them with tinygp's
# quasiseparable process where tinygp is installed (`pip install tinygp`).

# %%
import functools
import importlib
import importlib.util
import math
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

import linalg
from linalg.structured import block_tridiagonal_cholesky, kalman_filter, kalman_smoother

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## The data
#
# Five hundred noisy values of a smooth function come at irregular times. None were taken between 12
# and 14.

# %%
rng = np.random.default_rng(0)
signal = lambda t: np.sin(t) + 0.5 * np.sin(2.7 * t)
times = np.cumsum(rng.uniform(0.2, 1.8, 560) / 28)
times = times[(times < 12) | (times > 14)][:500]
y = signal(times) + 0.2 * rng.standard_normal(len(times))
print(f"{len(times)} times from {times[0]:.2f} to {times[-1]:.2f}")

# %% [markdown]
# ## The model
#
# The parameters are the logarithms of a length, of the size of the process and of the size of the
# noise. Let x be a difference of times, multiplied by λ = √3 / length, or √5 / length for order
# 5/2. The state has the process f and its derivative f' / λ, and for order 5/2 also f'' / λ². Over
# a gap x it moves by
#
# F = exp(-x) (I + N x + N² x² / 2), with Nᵏ = 0 for k states.
#
# The covariance P of the state is the same at all times, so the noise of a step is Q = P - F P Fᵀ.

# %%
NILPOTENT = {
    2: np.array([[1.0, 1.0], [-1.0, -1.0]]),
    3: np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [-1.0, -3.0, -2.0]])}
STATIONARY = {
    2: np.eye(2),
    3: np.array([[1, 0, -1 / 3], [0, 1 / 3, 0], [-1 / 3, 0, 1]])}
NAMES = {2: "Matérn-3/2", 3: "Matérn-5/2"}  # by the number of states


def state_space(theta, states, gaps):
  """The arguments of `kalman_filter`. `gaps` are the differences of the times."""
  length, size, noise = jnp.exp(theta)
  x = math.sqrt(2 * states - 1) * gaps[:, None, None] / length
  powers = [np.linalg.matrix_power(NILPOTENT[states], k) for k in range(states)]
  f = jnp.exp(-x) * sum(n * x**k / math.factorial(k) for k, n in enumerate(powers))
  p = size**2 * STATIONARY[states]
  return {
      "transition": f, "transition_covariance": p - linalg.congruence(f, p),
      "observation": np.eye(1, states), "observation_covariance": noise**2 * np.eye(1),
      "initial_mean": np.zeros(states), "initial_covariance": p}


# %% [markdown]
# ## The likelihood by a Kalman filter
#
# Each step has a transition of its own. That of step t leads to step t + 1, so the last one is not
# used.


# %%
def gaps_of(times):
  return np.diff(times, append=times[-1])


def by_filter(theta, states):
  model = state_space(theta, states, gaps_of(times))
  return kalman_filter(y[:, None], **model).log_likelihood


# %% [markdown]
# ## The likelihood by a block-tridiagonal matrix
#
# The precision of all states together is block-tridiagonal. Its blocks are made of F and Q⁻¹. The
# observations add Hᵀ H / noise² to the diagonal. One factor then gives the most likely states, the
# determinant, and the variances. `solve_logdet` inverts all Q at once, and returns their
# determinants too.


# %%
def states_by_precision(theta, states):
  """The log likelihood, and the moments of the process at all times."""
  model = state_space(theta, states, np.diff(times))
  f, q, p = (
      model[x] for x in ("transition", "transition_covariance", "initial_covariance"))
  h, noise = model["observation"], model["observation_covariance"][0, 0]
  eye = jnp.broadcast_to(jnp.eye(states), f.shape)
  both, _, logdets, _ = linalg.solve_logdet(q, jnp.concatenate([eye, f], -1), assume_a="pos")
  inverse, moved = jnp.split(both, 2, axis=-1)  # Q⁻¹ and Q⁻¹ F
  first, _, logdet, _ = linalg.solve_logdet(p, jnp.eye(states), assume_a="pos")
  diagonal = (
      h.T @ h / noise + jnp.concatenate([first[None], inverse])
      + jnp.concatenate([f.mT @ moved, jnp.zeros((1, states, states))]))
  factor = block_tridiagonal_cholesky(diagonal, -moved)
  b = y[:, None] * h / noise
  mean = factor.solve(b)
  value = -(
      y @ y / noise - jnp.sum(b * mean) + factor.logdet() + logdet + logdets.sum()
      + len(y) * jnp.log(2 * jnp.pi * noise)) / 2
  variances, _ = factor.inverse_blocks()
  return value, mean[:, 0], variances[:, 0, 0]


def by_precision(theta, states):
  return states_by_precision(theta, states)[0]


# %% [markdown]
# ## Are they right?
#
# The dense covariance has no recursion at all, so it checks the other two.


# %%
def covariance(theta, states, t, s):
  length, size, _ = jnp.exp(theta)
  x = math.sqrt(2 * states - 1) * jnp.abs(t[:, None] - s) / length
  return size**2 * jnp.exp(-x) * (1 + x + (x**2 / 3 if states == 3 else 0))


def dense(theta, states):
  """The covariance of the observations."""
  return covariance(theta, states, times, times) + jnp.exp(2 * theta[2]) * jnp.eye(len(times))


def by_dense(theta, states):
  x, _, logdet, _ = linalg.solve_logdet(dense(theta, states), y, assume_a="pos")
  return -(y @ x + logdet + len(y) * jnp.log(2 * jnp.pi)) / 2


contenders = {
    "kalman_filter": by_filter, "block-tridiagonal": by_precision, "dense": by_dense}

if importlib.util.find_spec("tinygp"):
  tinygp = importlib.import_module("tinygp")
  quasisep = importlib.import_module("tinygp.kernels.quasisep")

  def by_tinygp(theta, states):
    length, size, noise = jnp.exp(theta)
    kernel = (quasisep.Matern32 if states == 2 else quasisep.Matern52)(scale=length, sigma=size)
    return tinygp.GaussianProcess(kernel, times, diag=noise**2).log_probability(y)

  contenders["tinygp"] = by_tinygp

# %% [markdown]
# Filter, dense matrix and tinygp agree to rounding. The precision has fewer digits. Short gaps make
# it ill-conditioned: Q⁻¹ grows like x⁻³ with two states, and like x⁻⁵ with three. The filter needs
# no inverse of Q. The times are those of the machine that built this page.


# %%
def milliseconds(program, theta):
  """The least time of a few calls."""
  found = []
  for _ in range(5):
    start = time.perf_counter()
    jax.block_until_ready(program(theta))
    found.append(1e3 * (time.perf_counter() - start))
  return min(found)


start = np.log([1.0, 1.0, 0.5])
limits = {
    ("kalman_filter", 2): 1e-11, ("tinygp", 2): 1e-11, ("block-tridiagonal", 2): 1e-7,
    ("kalman_filter", 3): 1e-11, ("tinygp", 3): 1e-11, ("block-tridiagonal", 3): 1e-2}
programs = {
    (key, states): jax.jit(jax.value_and_grad(functools.partial(f, states=states)))
    for states in NAMES for key, f in contenders.items()}
for states, name in NAMES.items():
  print(f"{name}: log likelihood, gradient, their largest error, and the time of both")
  reference = programs["dense", states]
  known = np.hstack(reference(start))
  for key in contenders:
    program = programs[key, states]
    found = np.hstack(program(start))
    error = np.max(np.abs(found / known - 1))
    print(f"  {key:17} {found[0]:.4f} {found[1:].round(4)} {error:7.0e} "
          f"{milliseconds(program, start):6.2f} ms")
    assert error <= limits.get((key, states), 1e-12)

# %% [markdown]
# ## Learning
#
# The gradient finds the most likely parameters. The signal is smooth, so the smoother process is
# the more likely one.

# %%
found = {}  # theta, and the log likelihood
for states, name in NAMES.items():

  def descend(theta, program=programs["kalman_filter", states]):
    value, gradient = program(theta)
    return -float(value), -np.asarray(gradient)

  result = scipy.optimize.minimize(descend, start, jac=True, method="L-BFGS-B")
  found[states] = result.x, -result.fun
  length, size, noise = np.exp(result.x)
  print(f"{name}: log likelihood {-result.fun:.1f} after {result.nfev} gradients, "
        f"length {length:.2f}, size {size:.2f}, noise {noise:.3f}")
  assert abs(noise - 0.2) < 0.03
theta, best = found[3]
assert best > found[2][1]

# %% [markdown]
# ## Prediction
#
# New times stand among the old ones, and are marked as missing. The smoother gives the process at
# all of them.


# %%
@functools.partial(jax.jit, static_argnums=1)
def smooth(theta, states, observations, gaps, missing):
  model = state_space(theta, states, gaps)
  found = kalman_smoother(observations[:, None], **model, mask=missing)
  return found.smoothed_means[:, 0], found.smoothed_covariances[:, 0, 0]


def predict(theta, states, new):
  every = np.concatenate([times, new])
  order = np.argsort(every, kind="stable")
  missing = order >= len(times)
  observations = np.concatenate([y, np.full(len(new), np.nan)])[order]
  moments = smooth(theta, states, observations, gaps_of(every[order]), missing)
  return (np.asarray(x)[missing] for x in moments)


new = np.linspace(times[0] - 1, times[-1] + 2, 400)
mean, variance = predict(theta, 3, new)
across = np.asarray(covariance(theta, 3, new, times))
weights = np.linalg.solve(np.asarray(dense(theta, 3)), across.T).T
np.testing.assert_allclose(mean, weights @ y, rtol=1e-7, atol=1e-9)
np.testing.assert_allclose(
    variance, np.exp(2 * theta[1]) - np.sum(weights * across, axis=1), rtol=1e-7, atol=1e-9)
print(f"the standard deviation is {np.sqrt(variance.min()):.3f} to {np.sqrt(variance.max()):.3f}")

figure, axis = plt.subplots(figsize=(5.4, 3.2))
axis.plot(times, y, ".", markersize=2, color="gray", label="seen")
band = 1.96 * np.sqrt(variance)
axis.fill_between(new, mean - band, mean + band, color="C0", alpha=0.3, label="95% band")
axis.plot(new, mean, color="C0", linewidth=1, label="mean of the process")
axis.plot(new, signal(new), "--", color="C1", linewidth=1, label="truth")
axis.set(title="A process of order 5/2, by a Kalman smoother", xlabel="time", ylim=(-3, 3))
axis.legend(ncols=2)
plt.show()

# %% [markdown]
# At the times of the data, the block-tridiagonal factor gives the same moments with fewer digits.

# %%
every_mean, every_variance = smooth(
    theta, 3, y, gaps_of(times), np.zeros(len(times), bool))
_, factor_mean, factor_variance = jax.jit(states_by_precision, static_argnums=1)(theta, 3)
for x, known in ((factor_mean, every_mean), (factor_variance, every_variance)):
  np.testing.assert_allclose(x, known, rtol=1e-4, atol=1e-5)
print(f"largest difference of the means: {np.max(np.abs(factor_mean - every_mean)):.0e}")

# %% [markdown]
# ## Where no precision exists
#
# Two observations at one time have a gap of 0. Then F = I and Q = 0, which has no inverse.
# `solve_logdet` says so in `info`. The filter needs no inverse, so it goes on.

# %%
twice = np.concatenate([times[:1], times])
model = state_space(theta, 3, gaps_of(twice))
_, _, _, info = linalg.solve_logdet(
    model["transition_covariance"][:3], np.eye(3), assume_a="pos")
print(f"info of the first three Q: {info}")
assert info[0] == 1 and not info[1:].any()

value = kalman_filter(np.concatenate([y[:1], y])[:, None], **model).log_likelihood
k = np.asarray(covariance(theta, 3, twice, twice)) + np.exp(2 * theta[2]) * np.eye(len(twice))
x, _, logdet, _ = linalg.solve_logdet(k, np.concatenate([y[:1], y]), assume_a="pos")
expected = -(np.concatenate([y[:1], y]) @ x + logdet + len(k) * np.log(2 * np.pi)) / 2
print(f"log likelihood: {value:.6f}, dense {expected:.6f}")
np.testing.assert_allclose(value, expected, rtol=1e-9)

# %% [markdown]
# ## Many likelihoods at once
#
# `vmap` makes a batch of filters. Each has a model of its own and takes one lane of a register.

# %%
lengths = np.geomspace(0.3, 10, 64)
several = jnp.stack([jnp.asarray(theta).at[0].set(math.log(length)) for length in lengths])
batch = jax.jit(jax.vmap(functools.partial(by_filter, states=3)))
values = np.asarray(batch(several))
best = lengths[values.argmax()]
one = jax.jit(functools.partial(by_filter, states=3))
print(f"one: {milliseconds(one, several[0]):.2f} ms, 64: {milliseconds(batch, several):.2f} ms; "
      f"the most likely length is {best:.2f}")
assert abs(np.log(best) - theta[0]) < 0.1
