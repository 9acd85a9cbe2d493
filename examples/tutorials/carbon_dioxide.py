# %% [markdown]
# # Gaussian-process regression: carbon dioxide at Mauna Loa
#
# Monthly means of the carbon dioxide in the air over Hawaii, 1958 to 2001, are a rising trend and a
# yearly wave. The covariance function of a Gaussian process says so (Rasmussen and Williams, 2006,
# section 5.4.3). The process learns how long, how large and how regular they are by climbing the
# gradient of the marginal likelihood. It sees 1966 to 1989 and forecasts the other years.
#
# The file, in this repository, is public domain: C. D. Keeling and T. P. Whorf, Carbon Dioxide
# Information Analysis Center, by way of statsmodels.

# %%
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize
import scipy.stats

import linalg

jax.config.update("jax_enable_x64", True)

data = np.loadtxt(pathlib.Path(__file__).with_name("mauna_loa_co2.csv"), delimiter=",")
time, level = data[:, 0] + (data[:, 1] - 0.5) / 12, data[:, 2]
time, level = time[time > 1966], level[time > 1966]
known = time < 1990
offset = level[known].mean()
x, y = time[known], level[known] - offset
print(f"{len(x)} months to learn from, {len(time) - len(x)} to forecast")

# %% [markdown]
# ## The model
#
# Four processes are added. The parameters are logarithms.
#
# - A trend whose slope wanders: Matérn's covariance of order 3/2. A smoother one would be too sure
#   of its forecast.
# - A wave with a period of one year, whose form changes over decades.
# - Irregularities of a year or so.
# - Noise.

# %%
PARAMETERS = {
    "trend, ppm": 50.0, "trend, years": 50.0,
    "wave, ppm": 2.0, "wave, years until it changes": 90.0, "wave, smoothness": 1.0,
    "period, years": 1.0,
    "irregular, ppm": 0.5, "irregular, years": 1.0,
    "noise, ppm": 0.2,
}


def covariance(theta, x, z):
  """The covariance of the processes without the noise, at the times x and z."""
  trend, long, wave, decay, smooth, period, irregular, short, _ = jnp.exp(theta)
  d = x[:, None] - z[None, :]
  turn = jnp.sin(jnp.pi * d / period) / smooth
  return (
      trend**2 * (1 + jnp.abs(d) / long) * jnp.exp(-jnp.abs(d) / long)
      + wave**2 * jnp.exp(-0.5 * (d / decay) ** 2 - 2 * turn**2)
      + irregular**2 / (1 + 0.5 * (d / short) ** 2))


def noisy(theta, x):
  return covariance(theta, x, x) + jnp.exp(2 * theta[-1]) * jnp.eye(len(x))


def log_likelihood(theta):
  l = linalg.cholesky(noisy(theta, x))
  white = linalg.solve_triangular(l, y, lower=True)
  constant = len(x) / 2 * jnp.log(2 * jnp.pi)
  return -white @ white / 2 - jnp.log(jnp.diagonal(l)).sum() - constant


start = np.log(list(PARAMETERS.values()))
value_and_grad = jax.jit(jax.value_and_grad(log_likelihood))

# %% [markdown]
# The value is SciPy's density of a Gaussian vector, and the gradient is that of differences along
# some direction.

# %%
value, gradient = value_and_grad(start)
matrix: Any = np.asarray(noisy(start, x))
expected = scipy.stats.multivariate_normal.logpdf(y, cov=matrix)
print(f"log likelihood: {value:.6f}, by SciPy {expected:.6f}")
np.testing.assert_allclose(value, expected, rtol=1e-8)
direction = np.random.default_rng(0).normal(size=len(start))
ahead, behind = (value_and_grad(start + step * direction)[0] for step in (1e-5, -1e-5))
np.testing.assert_allclose(gradient @ direction, (ahead - behind) / 2e-5, rtol=1e-5)

# %% [markdown]
# ## Learning


# %%
def descend(theta):
  value, gradient = value_and_grad(theta)
  return -float(value), -np.asarray(gradient)


result = scipy.optimize.minimize(
    descend, start, jac=True, method="L-BFGS-B", options={"maxiter": 30})
theta = result.x
print(f"log likelihood {value:.1f} before and {-result.fun:.1f} after {result.nfev} gradients")
for name, number in zip(PARAMETERS, np.exp(theta), strict=True):
  print(f"  {name}: {number:.4g}")
assert -result.fun > value

# %% [markdown]
# ## The forecast
#
# The covariance of the data is factored once. The mean and the variance at another time are then
# two solves.

# %%
@jax.jit
def forecast(theta, z):
  factor = linalg.cho_factor(noisy(theta, x), lower=True)
  across = covariance(theta, z, x)
  mean = across @ linalg.cho_solve(factor, y)
  half = linalg.solve_triangular(factor[0], across.T, lower=True)
  variance = jnp.diagonal(covariance(theta, z, z)) - jnp.sum(half**2, axis=0)
  return mean, variance + jnp.exp(2 * theta[-1])


mean, variance = map(np.asarray, forecast(theta, time))
across = np.asarray(covariance(theta, time, x))
np.testing.assert_allclose(
    mean, across @ np.linalg.solve(np.asarray(noisy(theta, x)), y), rtol=1e-6, atol=1e-6)
error, band = level - offset - mean, 1.96 * np.sqrt(variance)
inside = np.mean(np.abs(error[~known]) < band[~known])
print(f"1990 to 2001: root-mean-square error {np.sqrt(np.mean(error[~known] ** 2)):.2f} ppm, "
      f"{inside:.0%} within the 95% band")
assert inside > 0.8

figure, axes = plt.subplots(2, figsize=(5.4, 5), height_ratios=(2, 1), sharex=True)
axes[0].plot(time[known], level[known], ".", markersize=2, color="gray", label="seen")
axes[0].plot(time[~known], level[~known], ".", markersize=3, color="C1", label="not seen")
axes[0].plot(time, mean + offset, color="C0", linewidth=0.8, label="mean of the process")
axes[0].set(title="Carbon dioxide at Mauna Loa, learned from 1966 to 1989", ylabel="CO₂, ppm")
axes[0].legend(loc="upper left")
axes[1].fill_between(time, -band, band, color="C0", alpha=0.3, label="95% band")
axes[1].plot(time[known], error[known], ".", markersize=2, color="gray", label="seen")
axes[1].plot(time[~known], error[~known], ".", markersize=3, color="C1", label="not seen")
axes[1].set(title="What is left", xlabel="year", ylabel="CO₂ − mean, ppm")
plt.show()

# %% [markdown]
# ## How long is a year?
#
# `vmap` makes a batch of the same likelihood: here of 21 periods, the other parameters being those
# that were found. One program factors all of them.

# %%
periods = np.linspace(0.99, 1.01, 21)
index = list(PARAMETERS).index("period, years")
of_period = lambda period: log_likelihood(jnp.asarray(theta).at[index].set(jnp.log(period)))
several = jax.jit(jax.vmap(of_period))
likelihoods = np.asarray(several(periods))
best = periods[likelihoods.argmax()]
print(f"the most likely period is {best:.4f} years")
assert abs(best - 1) < 2e-3

figure, axis = plt.subplots(figsize=(5.4, 2.8))
axis.plot(periods, likelihoods - likelihoods.max(), ".-", color="C0")
axis.set(title="What the data say of the period of the wave", xlabel="period, years",
         ylabel="log likelihood − its maximum")
plt.show()

# %% [markdown]
# ## When it fails
#
# A smooth covariance without noise is singular to rounding, above all in float32. The factor is
# then NaN. `cholesky_ex` says for each matrix how far it came: `info` is the order of the first
# leading minor that is not positive, or 0.

# %%
noises = [1.0, 0.1, 0.01, 0.001]
batch = jnp.stack([noisy(jnp.asarray(start).at[-1].set(jnp.log(noise)), x) for noise in noises])
for dtype in (jnp.float64, jnp.float32):
  _, info = linalg.cholesky_ex(batch.astype(dtype))
  print(f"{dtype.__name__}, noise of {noises} ppm: info {info}")
assert (linalg.cholesky_ex(batch)[1] == 0).all()
