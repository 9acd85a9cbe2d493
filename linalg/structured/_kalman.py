"""Kalman filters and smoothers of linear Gaussian state-space models."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import symmetrized
from linalg._core.checks import check
from linalg._core.operands import as_arrays
from linalg._core.public import public
from linalg.structured._kalman_operations import run_filter, smoother_p

__all__ = ["KalmanFilterResult", "KalmanSmootherResult", "kalman_filter", "kalman_smoother"]


class KalmanFilterResult(NamedTuple):
  """Moments of each state given the observations up to it, the log likelihood of all, and info."""

  filtered_means: jax.Array
  filtered_covariances: jax.Array
  log_likelihood: jax.Array
  info: jax.Array


class KalmanSmootherResult(NamedTuple):
  """Moments of each state given all observations, the log likelihood of these, and info."""

  smoothed_means: jax.Array
  smoothed_covariances: jax.Array
  log_likelihood: jax.Array
  info: jax.Array


class _Operand(NamedTuple):
  name: str
  core: tuple[str, ...]  # its sizes: n states, m components of an observation, T steps
  per_step: bool = True  # whether there may be one for each step
  symmetric: bool = False


# In the order of the operation's operands. The mask comes last.
_OPERANDS = (
    _Operand("transition", ("n", "n")),
    _Operand("transition_covariance", ("n", "n"), symmetric=True),
    _Operand("observation", ("m", "n")),
    _Operand("observation_covariance", ("m", "m"), symmetric=True),
    _Operand("initial_mean", ("n",), per_step=False),
    _Operand("initial_covariance", ("n", "n"), per_step=False, symmetric=True),
    _Operand("transition_offset", ("n",)),
    _Operand("observation_offset", ("m",)),
)


def _broadcasts(shape, batch):
  """Whether an operand with the batch dimensions `shape` may stand beside `batch`."""
  try:
    return len(jnp.broadcast_shapes(shape, tuple(batch))) == len(batch)
  except ValueError:
    return False


def _wrong_shape(name, operand, x, sizes, batch):
  """The error for an operand of another shape."""
  shape = lambda *lead: f"({', '.join([*lead, *(str(sizes[size]) for size in operand.core)])})"
  lone = shape() if len(operand.core) > 1 else shape().replace(")", ",)")
  text = f"{name}() takes {operand.name} of shape {lone}"
  steps = str(sizes["T"])
  if operand.per_step:
    text += f", or {shape(*['*batch'] * bool(batch), steps)} for one at each step"
    if batch:
      text += f", and {shape(*['1'] * len(batch), steps)} where these serve all series"
  observations = f"(..., {steps}, {sizes['m']})"
  return ValueError(f"{text}, beside observations of shape {observations}; got {x.shape}.")


def _in_steps(name, operand, x, sizes, batch):
  """`x` with a dimension of steps, if it may have one for each; checks its shape.

  `batch` are the batch dimensions of the observations.
  """
  rank = len(operand.core)
  expected = tuple(sizes[size] for size in operand.core)
  lead, core = x.shape[: max(0, x.ndim - rank)], x.shape[max(0, x.ndim - rank) :]
  if core != expected:
    raise _wrong_shape(name, operand, x, sizes, batch)
  if not operand.per_step:
    return x
  if len(lead) == len(batch) + 1:
    if lead[-1] not in (1, sizes["T"]):
      raise _wrong_shape(name, operand, x, sizes, batch)
    return x
  if len(lead) > len(batch):
    raise _wrong_shape(name, operand, x, sizes, batch)
  if lead and lead[-1] == sizes["T"] and lead != (1,) * len(lead):
    if not _broadcasts(lead, batch):
      raise _wrong_shape(name, operand, x, sizes, batch)
    own, series = (", ".join(map(str, y)) for y in (expected, lead))
    one = ", ".join(["1"] * len(batch))
    raise ValueError(
        f"{name}() takes {operand.name} of shape {x.shape}, beside observations of shape "
        f"{(*batch, sizes['T'], sizes['m'])}, either as one for each step or as one for each "
        f"series. Give it the shape ({one}, {sizes['T']}, {own}) for one at each step, or "
        f"({series}, 1, {own}) for one for each series.")
  return jnp.expand_dims(x, x.ndim - rank)


def _by_component(name, mask, observations):
  """The mask (..., T, m) of a mask of components or of whole observations."""
  if mask.dtype != bool:
    raise TypeError(f"{name}() takes mask as an array of booleans, got {mask.dtype}.")
  (*batch, steps, m), shape = observations.shape, mask.shape
  of_components = shape[-2:] == (steps, m) and _broadcasts(shape[:-2], batch)
  of_steps = shape[-1:] == (steps,) and _broadcasts(shape[:-1], batch)
  if of_components and of_steps and shape != (1,) * mask.ndim:
    raise ValueError(
        f"{name}() takes mask of shape {shape}, beside observations of shape "
        f"{observations.shape}, either as (..., T, m), components that all series lack, or as "
        f"(..., T), observations that one series lacks. Give it the batch dimensions of the "
        f"observations, each of which may be 1, and T and m.")
  if not of_components and not of_steps:
    raise ValueError(
        f"{name}() takes mask of shape (..., {steps}) or (..., {steps}, {m}), with batch "
        f"dimensions that broadcast against those of observations of shape {observations.shape}; "
        f"got {shape}.")
  return mask if of_components else jnp.broadcast_to(mask[..., None], (*shape, m))


def _without_unit_batch(operands, batch):
  """Operands whose batch dimensions are all 1 lose these, and so serve the whole batch uncopied.

  `operands` are (array, number of core dimensions). `batch` is the shape of their common batch,
  which the others keep.
  """
  batches = [x.shape[: x.ndim - rank] for x, rank in operands]
  is_unit = [all(isinstance(size, int) and size == 1 for size in own) for own in batches]
  if all(is_unit):
    return [x for x, _ in operands]
  return [
      jax.lax.squeeze(x, range(len(own))) if unit
      else jax.lax.expand_dims(x, range(len(batch) - len(own)))
      for (x, _), own, unit in zip(operands, batches, is_unit, strict=True)]


def _operands(name, observations, mask, given):
  """The operands of the operation, and the dtype of its results."""
  present = {key: x for key, x in given.items() if x is not None}
  (observations, *arrays), dtype = as_arrays(name, observations, *present.values())
  if jnp.issubdtype(dtype, jnp.complexfloating):
    raise TypeError(f"{name}() takes real arrays, got {dtype}.")
  present = dict(zip(present, arrays, strict=True))
  if observations.ndim < 2 or observations.shape[-2] == 0:
    raise ValueError(
        f"{name}() takes observations of shape (..., T, m) with T > 0, got {observations.shape}.")
  transition = present["transition"]
  if transition.ndim < 2:
    raise ValueError(
        f"{name}() takes transition of shape (..., n, n), got {transition.shape}.")
  if mask is not None:
    mask = _by_component(name, jnp.asarray(mask), observations)
    # A missing component may be NaN, and so may its tangent.
    observations = jnp.where(mask, 0, observations)
  sizes = {
      "T": observations.shape[-2], "m": observations.shape[-1], "n": transition.shape[-1]}
  ffi.refuse_sharded(f"{name}, observations", observations)
  operands = [(observations, 2)]
  for operand in _OPERANDS:
    x = present.get(operand.name)
    if x is None:
      x = jnp.zeros((sizes[operand.core[0]],), observations.dtype)
    x = _in_steps(name, operand, x, sizes, observations.shape[:-2])
    rank = len(operand.core) + operand.per_step
    ffi.refuse_sharded(f"{name}, {operand.name}", x, rank=rank)
    operands.append((symmetrized(x) if operand.symmetric else x, rank))
  # Without a mask it has no steps.
  seen = jnp.zeros((0, sizes["m"])) if mask is None else jnp.where(mask, 0, 1)
  operands.append((seen.astype(observations.dtype), 2))
  labels = ["observations", *(x.name for x in _OPERANDS), "mask"]
  batch: Any = ()
  for label, (x, rank) in zip(labels, operands, strict=True):
    try:
      batch = jnp.broadcast_shapes(batch, x.shape[: x.ndim - rank])
    except ValueError:
      raise ValueError(
          f"{name}() takes {label} with batch dimensions that broadcast against those of the "
          f"operands before it, {batch}; got {x.shape[: x.ndim - rank]}.") from None
  return _without_unit_batch(operands, batch), dtype


def _filter(name, observations, mask, given):
  operands, dtype = _operands(name, observations, mask, given)
  means, covs, likelihood, info = run_filter(*operands)
  check(info, "is a series whose innovation covariance is not positive definite at observation "
        "{info}, counted from 1.")
  return operands, (means, covs, likelihood, info), dtype


@public()
def kalman_filter(
    observations: ArrayLike, *, transition: ArrayLike, transition_covariance: ArrayLike,
    observation: ArrayLike, observation_covariance: ArrayLike, initial_mean: ArrayLike,
    initial_covariance: ArrayLike, transition_offset: ArrayLike | None = None,
    observation_offset: ArrayLike | None = None, mask: ArrayLike | None = None
) -> KalmanFilterResult:
  """Means and covariances of the states of a linear Gaussian model, given observations so far.

  The model is x[t + 1] = F x[t] + b + N(0, Q) and y[t] = H x[t] + d + N(0, R). All T steps run in
  one call.

  Args:
    observations: y (..., T, m), real. A batch of series has leading batch dimensions.
    transition: F (n, n).
    transition_covariance: Q (n, n), positive semidefinite.
    observation: H (m, n).
    observation_covariance: R (m, m), positive semidefinite.
    initial_mean, initial_covariance: (n,) and (n, n), of the state at the first observation, before
      it is seen. So no transition precedes the first observation, as in dynamax.
    transition_offset: b (n,); 0 if None.
    observation_offset: d (m,); 0 if None.
    mask: booleans (..., T) or (..., T, m), True where an observation or a component of it is
      missing, which may be NaN. A mask (T,) or (T, m) serves all series. A ValueError if a shape
      has both meanings.

  Each of F, Q, H, R, b and d may also be one for each step: then it has the batch dimensions of the
  observations, each of which may be 1, and T in front of its own dimensions. For a batch of series
  that share them this is (1, T, n, n). F, Q and b of step t lead from state t to state t + 1, so
  those of step T - 1 are not used. Operands with fewer dimensions than that are constant. They
  serve the whole batch, or have a batch of their own. A ValueError if such a shape could also mean
  one for each step: give it a dimension of 1 in the place of T. Covariances C are read as
  (C + Cᵀ) / 2.

  Returns:
    KalmanFilterResult(filtered_means, filtered_covariances, log_likelihood, info), of shapes
    (..., T, n), (..., T, n, n), (...) and (...). `info` (int32) is 0, or t + 1 if the innovation
    covariance S = H P Hᵀ + R of step t is not positive definite, or its innovation or the mean
    before it is NaN. The results of such a series are NaN from step t on, and its log likelihood
    is NaN. It is -inf where the density is 0 in this dtype. Other series are not affected; see
    `checked`.

  float16 and bfloat16 are computed in float32, and the results rounded. Complex operands are a
  TypeError.

  Algorithm: the recursion in covariance form, with Joseph's update (I - K H) P (I - K H)ᵀ + K R Kᵀ.
  Its terms are congruences, so covariances stay symmetric, and positive semidefinite up to
  rounding, over any number of steps. R and Q may be singular as long as S is not. Square roots of
  covariances would have no derivative there. One handler runs all steps: of up to 32 states and
  observations on CPUs, small series one per lane of a register, and of up to 23 on CUDA. Its
  derivatives are handlers too. If nothing is missing and one model serves the batch, its
  covariances and gains are computed once. Elsewhere the recursion is a scan.

  Example:
    >>> import jax.numpy as jnp, linalg.structured
    >>> y = jnp.array([[1.0], [2.0], [jnp.nan], [4.0]])
    >>> one = jnp.ones((1, 1))
    >>> result = linalg.structured.kalman_filter(
    ...   y, transition=one, transition_covariance=one, observation=one,
    ...   observation_covariance=one, initial_mean=jnp.zeros(1), initial_covariance=one,
    ...   mask=jnp.isnan(y))
    >>> print(*(f"{x:.3f}" for x in result.filtered_means[:, 0]))
    0.500 1.400 1.400 3.278
    >>> print(f"{result.log_likelihood:.3f}")
    -5.841
  """
  _, results, dtype = _filter("kalman_filter", observations, mask, {
      "transition": transition, "transition_covariance": transition_covariance,
      "observation": observation, "observation_covariance": observation_covariance,
      "initial_mean": initial_mean, "initial_covariance": initial_covariance,
      "transition_offset": transition_offset, "observation_offset": observation_offset})
  means, covs, likelihood, info = results
  return KalmanFilterResult(
      means.astype(dtype), covs.astype(dtype), likelihood.astype(dtype), info)


@public()
def kalman_smoother(
    observations: ArrayLike, *, transition: ArrayLike, transition_covariance: ArrayLike,
    observation: ArrayLike, observation_covariance: ArrayLike, initial_mean: ArrayLike,
    initial_covariance: ArrayLike, transition_offset: ArrayLike | None = None,
    observation_offset: ArrayLike | None = None, mask: ArrayLike | None = None
) -> KalmanSmootherResult:
  """Means and covariances of the states of a linear Gaussian model, given all observations.

  Args:
    observations, transition, transition_covariance, observation, observation_covariance,
      initial_mean, initial_covariance, transition_offset, observation_offset, mask: as for
      `kalman_filter`.

  Returns:
    KalmanSmootherResult(smoothed_means, smoothed_covariances, log_likelihood, info), of shapes
    (..., T, n), (..., T, n, n), (...) and (...). `info` is that of `kalman_filter`. Where it is not
    0, all smoothed moments of that series are NaN.

  Algorithm: `kalman_filter`, then the recursion of Bryson and Frazier (1963) backwards. It inverts
  no covariance of the state, and it is stable for singular noises. The covariance is
  (I - P N) P (I - P N)ᵀ + P W P, with N the information of later observations and W the part of
  their noise: a sum of congruences, so it stays positive semidefinite up to rounding. Steps where P
  and N are large in different directions, as those of a first state that is almost unknown, are
  those of Rauch, Tung and Striebel, AIAA J. 3 (1965). Derivatives have their form at all steps.
  If F P Fᵀ + Q is singular, they hold for changes of F and Q that leave its null space as it is.

  Example:
    >>> import jax.numpy as jnp, linalg.structured
    >>> y = jnp.array([[1.0], [2.0], [jnp.nan], [4.0]])
    >>> one = jnp.ones((1, 1))
    >>> result = linalg.structured.kalman_smoother(
    ...   y, transition=one, transition_covariance=one, observation=one,
    ...   observation_covariance=one, initial_mean=jnp.zeros(1), initial_covariance=one,
    ...   mask=jnp.isnan(y))
    >>> print(*(f"{x:.3f}" for x in result.smoothed_means[:, 0]))
    0.944 1.833 2.556 3.278
  """
  operands, results, dtype = _filter("kalman_smoother", observations, mask, {
      "transition": transition, "transition_covariance": transition_covariance,
      "observation": observation, "observation_covariance": observation_covariance,
      "initial_mean": initial_mean, "initial_covariance": initial_covariance,
      "transition_offset": transition_offset, "observation_offset": observation_offset})
  means, covs, likelihood, info = results
  means, covs = smoother_p(*operands, means, covs)
  return KalmanSmootherResult(
      means.astype(dtype), covs.astype(dtype), likelihood.astype(dtype), info)
