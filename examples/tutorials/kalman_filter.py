# %% [markdown]
# # A batch of Kalman filters on several devices
#
# Sixty-four targets move in the plane, each with a steadiness of its own, and are seen through
# noise. For each of them we want where it was, how sure we are of it, and how large its two noises
# are: the filter, the smoother, and the gradient of the likelihood. The targets are spread over
# eight devices, and none of the three makes the devices exchange anything.

# %%
import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")  # virtual, on a CPU

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
from jax.sharding import AxisType, PartitionSpec

import linalg
import linalg.distributed

jax.config.update("jax_enable_x64", True)
jax.set_mesh(jax.make_mesh((jax.device_count(),), ("target",), axis_types=(AxisType.Auto,)))

# %% [markdown]
# ## The model
#
# The state x is two positions and two velocities. A step of time carries it on by F and shakes it
# with the covariance q Q; what is seen is the position H x, with the covariance r I. The two
# numbers log q and log r are the parameters, `theta`.

# %%
TARGETS, STEPS, INTERVAL = 64, 60, 0.2
EYE = np.eye(2)
F = np.kron([[1, INTERVAL], [0, 1]], EYE)
Q = np.kron([[INTERVAL**3 / 3, INTERVAL**2 / 2], [INTERVAL**2 / 2, INTERVAL]], EYE)
H = np.kron([[1, 0]], EYE)
START = np.eye(4)  # the covariance of the first state, whose mean is zero

rng = np.random.default_rng(0)
true_theta = rng.uniform(np.log([0.1, 0.05]), np.log([2, 0.5]), (TARGETS, 2))
q, r = np.exp(true_theta).T[..., None, None]
shakes = np.linalg.cholesky(q * Q) @ rng.normal(size=(STEPS, TARGETS, 4, 1))
x = [rng.normal(size=(TARGETS, 4, 1))]
for shake in shakes[1:]:
  x.append(F @ x[-1] + shake)
tracks = np.stack(x, axis=1)[..., 0]  # (target, step, 4)
seen = tracks @ H.T + np.sqrt(r[..., 0])[:, None] * rng.normal(size=(TARGETS, STEPS, 2))

# %% [markdown]
# ## Filter and smoother
#
# Both are written for one target. The Cholesky factor L of the covariance S = H P Hᵀ + r I weighs
# an observation. Let W = L⁻¹ H P. The mean moves by Wᵀ L⁻¹ (y − H m), and the covariance shrinks by
# Wᵀ W. The log likelihood is made of L and L⁻¹ (y − H m) too. `congruence` is A X Aᵀ + Q.


# %%
def kalman_filter(theta, y):
  """The log likelihood, the means and covariances after each observation, and those before."""
  q, r = jnp.exp(theta)

  def step(carry, y):
    mean, covariance = carry
    l = linalg.cholesky(linalg.congruence(H, covariance, r * EYE))
    white = linalg.solve_triangular(l, y - H @ mean, lower=True)
    w = linalg.solve_triangular(l, H @ covariance, lower=True)
    after = mean + w.T @ white, covariance - w.T @ w
    value = -white @ white / 2 - jnp.log(jnp.diagonal(l)).sum() - jnp.log(2 * jnp.pi)
    ahead = F @ after[0], linalg.congruence(F, after[1], q * Q)
    return ahead, (value, after, carry)

  start = jnp.zeros(4), jnp.asarray(START)
  values, after, before = jax.lax.scan(step, start, y)[1]
  return values.sum(), after, before


def smoother(theta, y):
  """The means and covariances given all observations, by Rauch, Tung and Striebel's recursion, and
  those of the filter."""
  _, after, before = kalman_filter(theta, y)

  def step(later, moments):
    (mean, covariance), (mean_ahead, covariance_ahead) = moments
    gain = linalg.solve(covariance_ahead, F @ covariance, assume_a="pos").T
    mean = mean + gain @ (later[0] - mean_ahead)
    covariance = linalg.congruence(gain, later[1] - covariance_ahead, covariance)
    return (mean, covariance), (mean, covariance)

  last = jax.tree.map(lambda x: x[-1], after)
  moments = jax.tree.map(lambda x: x[:-1], after), jax.tree.map(lambda x: x[1:], before)
  smoothed = jax.lax.scan(step, last, moments, reverse=True)[1]
  return jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), smoothed, last), after


def log_likelihood(theta, y):
  return kalman_filter(theta, y)[0]


# %% [markdown]
# `jax.vmap` makes a batch of it. All results are sharded like the operands.

# %%
theta = jax.device_put(np.zeros((TARGETS, 2)), PartitionSpec("target"))
y = jax.device_put(seen, PartitionSpec("target"))
compiled = lambda f: jax.jit(jax.vmap(f)).lower(theta, y).compile()
value_and_grad = compiled(jax.value_and_grad(log_likelihood))
smooth = compiled(smoother)

values, gradients = value_and_grad(theta, y)
print(f"{gradients.shape}, sharded as {gradients.sharding.spec}")
for program in (value_and_grad, smooth):
  moved = linalg.distributed.report(program).moved
  print(f"bytes moved between devices: {moved}")
  assert moved == 0

# %% [markdown]
# ## Is it right?
#
# All states of one target together are one Gaussian vector, and so are all observations. SciPy's
# density of that vector is the likelihood, its differences the gradient, and conditioning on the
# observations gives the smoother's answer, with no recursion at all.


# %%
def joint(theta):
  """The covariances of all states, and of all observations, of one target."""
  q, r = np.exp(theta)
  covariance = np.zeros((STEPS, 4, STEPS, 4))
  diagonal = START
  for i in range(STEPS):
    block = diagonal
    for j in range(i, STEPS):
      covariance[i, :, j], covariance[j, :, i] = block, block.T
      block = block @ F.T
    diagonal = F @ diagonal @ F.T + q * Q
  h = np.kron(np.eye(STEPS), H)
  covariance = covariance.reshape(4 * STEPS, 4 * STEPS)
  return covariance, h @ covariance @ h.T + r * np.eye(2 * STEPS), h


def density(theta):
  return scipy.stats.multivariate_normal.logpdf(seen[0].ravel(), cov=joint(theta)[1])


values, gradients = np.asarray(values), np.asarray(gradients)
(means, covariances), _ = jax.tree.map(np.asarray, smooth(theta, y))
np.testing.assert_allclose(values[0], density(np.zeros(2)), rtol=1e-10)
differences = [(density(1e-5 * e) - density(-1e-5 * e)) / 2e-5 for e in EYE]
np.testing.assert_allclose(gradients[0], differences, rtol=1e-5)
covariance, of_seen, h = joint(np.zeros(2))
weights = np.linalg.solve(of_seen, h @ covariance).T
np.testing.assert_allclose(means[0].ravel(), weights @ seen[0].ravel(), rtol=1e-8, atol=1e-10)
given = (covariance - weights @ h @ covariance).reshape(STEPS, 4, STEPS, 4)
for i in range(STEPS):
  np.testing.assert_allclose(covariances[0, i], given[i, :, i], rtol=1e-6, atol=1e-9)
print(f"log likelihood of target 0: {values[0]:.6f}, its gradient: {gradients[0].round(6)}")

# %% [markdown]
# ## The noises of each target
#
# The gradient finds the most likely noises of all targets at once: sixty steps of Adam.

# %%
mean, square, climbed = jnp.zeros_like(theta), jnp.zeros_like(theta), []
for i in range(1, 61):
  value, gradient = value_and_grad(theta, y)
  climbed.append(np.asarray(value))
  mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
  change = mean / (1 - 0.9**i) / (jnp.sqrt(square / (1 - 0.99**i)) + 1e-8)
  theta = theta + 0.15 * 0.97**i * change

found = np.asarray(theta)
error = np.median(np.abs(found - true_theta), axis=0)
print(f"log likelihood of all targets: {climbed[0].sum():.1f}, then {climbed[-1].sum():.1f}")
print(f"median error of log q: {error[0]:.2f}, of log r: {error[1]:.2f}")
assert (climbed[-1] >= climbed[0]).all()
assert error[0] < 0.6 and error[1] < 0.2

# %% [markdown]
# The noise of what is seen is well known from sixty observations; that of the motion less so.

# %%
figure, axis = plt.subplots(figsize=(5.4, 4))
for i, what in enumerate(("of the motion, q", "of the observation, r")):
  axis.loglog(*np.exp([true_theta[:, i], found[:, i]]), "os"[i], markersize=4, label=what)
limits = np.exp([true_theta.min(), true_theta.max()])
axis.plot(limits, limits, color="gray", linewidth=1, label="if they were known exactly")
axis.set(title="Noise variances of 64 targets, by maximum likelihood", xlabel="true variance",
         ylabel="estimated variance")
axis.legend()
plt.show()

# %% [markdown]
# The smoother knows the future, so it is nearer to the truth and surer of it.

# %%
smoothed, filtered = jax.tree.map(np.asarray, smooth(theta, y))
distance = lambda x: np.sqrt(np.mean((x[..., :2] - tracks[..., :2]) ** 2))
errors = [distance(x) for x in (seen, filtered[0], smoothed[0])]
for name, error in zip(("as seen", "filter", "smoother"), errors, strict=True):
  print(f"root-mean-square error of a position, {name}: {error:.3f}")
assert errors == sorted(errors, reverse=True)

target, times = 0, INTERVAL * np.arange(STEPS)
figure, axes = plt.subplots(2, sharex=True, sharey=True, figsize=(5.4, 4.6))
for axis, name, colour, (means, covariances) in zip(
    axes, ("filter", "smoother"), ("C0", "C1"), (filtered, smoothed), strict=True):
  off = means[target, :, 0] - tracks[target, :, 0]
  width = 1.96 * np.sqrt(covariances[target, :, 0, 0])
  axis.fill_between(times, off - width, off + width, color=colour, alpha=0.3, label="95% band")
  axis.plot(times, off, color=colour, label=name)
  axis.plot(times, seen[target, :, 0] - tracks[target, :, 0], ".", color="gray", label="as seen")
  axis.axhline(0, color="gray", linewidth=1)
  axis.set(title=f"{name.capitalize()}, one target", ylabel="position east − truth")
  axis.legend(ncols=3)
axes[1].set_xlabel("time")
plt.show()
