"""Linear Gaussian models in state space, and their filters and smoothers by NumPy."""

import numpy as np

import linalg.structured

# The parameters, and their sizes without batch and steps.
CORES = {
    "transition": "nn", "transition_covariance": "nn", "observation": "mn",
    "observation_covariance": "mm", "initial_mean": "n", "initial_covariance": "nn",
    "transition_offset": "n", "observation_offset": "m"}
FUNCTIONS = {
    "filter": linalg.structured.kalman_filter, "smoother": linalg.structured.kalman_smoother}


def model(rng, steps, n, m, dtype=np.float64, batch=(), per_step=(), rank=None):
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


def at_step(x, step, core):
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


def by_numpy(y, parameters, mask=None):
  """(filtered, smoothed, log likelihood) of one series, as textbooks have them."""
  at = lambda name, t: at_step(parameters[name], t, CORES[name])
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
