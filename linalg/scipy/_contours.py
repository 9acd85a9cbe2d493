"""Contour nodes around the eigenvalues of triangular matrices, to separate close eigenvalues.

The mean of an analytic function over a circle is its value at the center. Equidistant nodes give
the mean to rounding: Trefethen and Weideman, SIAM Rev. 56 (2014). A function of a matrix is
therefore its mean over matrices with other eigenvalues, each of them on a circle. The Fourier
coefficients of the function on the circles decide how large they may be.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from linalg._core.algebra import diagonal_of, expand, largest_element, with_column, zeros_like

__all__ = ["moved_apart"]


def _nodes(dtype):
  """The nodes on the unit circle over which the means are taken.

  Their number makes the means as exact as the dtype, for a function whose nearest singularity is
  three radii away.
  """
  count = 32 if jnp.finfo(dtype).bits == 64 else 16
  return np.exp(2j * np.pi * (np.arange(count) + 0.25) / count).astype(dtype)


# A point inside the unit circle, where Cauchy's integral is compared with the function.
_INNER_POINT = 0.7 * np.exp(0.9j)


def _analyticity_tests(dtype):
  """The analyticity tests: functionals of the values at `_nodes` and _INNER_POINT.

  They are 0 for an analytic function, up to the error of the means. Two are its Fourier
  coefficients of z⁻¹ and z⁻², which show that it is not analytic. The third is the difference from
  its interpolant, which shows that there are too few nodes.
  """
  points = _nodes(dtype)
  count = len(points)
  interpolant = (1 - (_INNER_POINT / points) ** count) / (1 - _INNER_POINT / points) / count
  return [np.append(x, last).astype(dtype) for x, last in (
      (points / count, 0), (points**2 / count, 0), (interpolant, -1))]


def _shifts(like):
  """Shifts for one eigenvalue: 0, and points of the unit circle, more than there are eigenvalues.

  The first points are as far apart as possible: van der Corput's sequence.
  """
  place = jnp.arange(like.shape[-1] + 12)
  bits = np.arange(20, dtype=place.dtype)[None]
  digits = (place[:, None] >> bits & 1).astype(like.dtype)
  turns = jnp.sum(digits * (0.5 ** (bits + 1)).astype(like.dtype), axis=-1)
  points = jnp.exp(2j * np.pi * turns)
  return jnp.concatenate([jnp.zeros(1, like.dtype), points])


# The numbers of radii that are tested. The first go from twice the size of the matrix down to a
# fraction of the eigenvalue. The others go from there to 2, the scale of many functions.
_RADII, _OTHER_RADII = 13, 4


@jax.jit
def _contours(t):
  """The radii and the nodes of the circles around each eigenvalue on which f is tested.

  Radii are (..., r, n), and nodes (..., r, n, m + 1). _INNER_POINT is the last node.
  """
  eigenvalues = diagonal_of(t)
  size = largest_element(t)[..., None]
  size = jnp.log(jnp.where(size == 0, 1, size))
  own = jnp.where(eigenvalues == 0, size, jnp.log(jnp.abs(eigenvalues)))
  least = own + np.log(jnp.finfo(own.dtype).eps) / 3
  between = lambda x, y, shares: x[..., None, :] + expand(
      shares.astype(x.dtype)[:, None], x[..., None, :]) * (y - x)[..., None, :]
  size = size + zeros_like(own)
  most = size + np.log(2).astype(own.dtype)
  exponents = jnp.concatenate([
      between(most, least, np.linspace(0, 1, _RADII)),
      between(most, most - size, np.arange(1, _OTHER_RADII + 1) / _OTHER_RADII)], axis=-2)
  radii = jnp.exp(exponents)
  points = np.append(_nodes(t.dtype), _INNER_POINT).astype(t.dtype)
  steps = radii.astype(t.dtype)[..., None] * expand(points, radii[..., None])
  return radii, eigenvalues[..., None, :, None] + steps


class _Quality(NamedTuple):
  """The quality of a function on circles (..., r, n)."""

  good: jax.Array  # whether it passes the analyticity tests
  cost: jax.Array  # the logarithm of the error of its second divided differences
  off: jax.Array  # the error of its means, relative to it


def _quality(radii, values, middle):
  limits = jnp.finfo(radii.dtype)
  of_points = lambda weights: jnp.abs(jnp.sum(values * expand(weights, values), axis=-1))
  count = values.shape[-1] - 1
  off = jnp.abs(jnp.mean(values[..., :count], axis=-1) - middle[..., None, :])
  for weights in _analyticity_tests(values.dtype):
    off = jnp.maximum(off, of_points(weights))
  largest = jnp.max(jnp.abs(values), axis=-1)
  off = off / jnp.where(largest == 0, 1, largest)
  good = jnp.isfinite(largest) & (off <= limits.eps**0.75)
  cost = jnp.log(off + limits.eps) + jnp.log(jnp.maximum(largest, limits.tiny)) - 2 * jnp.log(radii)
  return _Quality(good, cost, off)


def _radius(radii, samples):
  """Returns the radius (..., n) of the circles to use, and the error of the means.

  `samples` are the values of each function on the circles and at their centers. The radius is the
  best one for all functions. It is 0 where none is good, for example at an eigenvalue on the branch
  cut of a logarithm.
  """
  qualities = [_quality(radii, *sample) for sample in samples]
  good = functools.reduce(jnp.logical_and, [x.good for x in qualities])
  off = functools.reduce(jnp.maximum, [x.off for x in qualities])
  cost = jnp.where(good, sum(x.cost for x in qualities), jnp.inf)
  best = jnp.argmin(cost, axis=-2)[..., None, :]
  level = jnp.arange(cost.shape[-2], dtype=best.dtype)
  chosen = good & (expand(level[:, None], best) == best)
  return (jnp.sum(jnp.where(chosen, x, 0), axis=-2) for x in (radii, off))


def _displacements(eigenvalues, radius):
  """Returns the shift of each eigenvalue (..., n), at most its radius.

  The eigenvalues are moved one after another. Each moves to where its circle keeps the largest
  distance from the circles before, in units of the larger radius. It stays if that leaves half a
  unit.
  """
  n = eigenvalues.shape[-1]
  phases = expand(_shifts(eigenvalues), eigenvalues)[..., None]

  def step(moves, place):
    i, middle, own = place
    gap = jnp.abs(middle[..., None] - eigenvalues)[..., None, :]
    unit = jnp.maximum(own[..., None], radius)[..., None, :]
    choices = own.astype(phases.dtype)[..., None, None] * phases
    far = jnp.abs(gap - jnp.abs(choices - moves[..., None, :]))
    far = jnp.where(unit == 0, jnp.where(gap == 0, 0, 1), far / jnp.where(unit == 0, 1, unit))
    far = jnp.where(expand(jnp.arange(n), far) < i, jnp.minimum(far, 0.5), 0.5)
    best = jnp.argmax(jnp.min(far, axis=-1, keepdims=True, initial=1), axis=-2, keepdims=True)
    row = expand(jnp.arange(phases.shape[-2], dtype=best.dtype)[:, None], best)
    move = jnp.sum(jnp.where(row == best, choices, 0), axis=-2)
    return with_column(moves[..., None, :], i, move[..., None])[..., 0, :], None

  along = lambda x: jnp.moveaxis(x, -1, 0)
  places = (jnp.arange(n), along(eigenvalues), along(radius))
  return jax.lax.scan(step, zeros_like(eigenvalues), places)[0]


@functools.partial(jax.jit, static_argnames="copies")
def _moved(t, radii, samples, copies):
  """The eigenvalues (..., m, copies * n) of `copies` copies of T, all moved apart, and the error of
  the means.

  `samples` is as for `_radius`.
  """
  radius, off = _radius(radii, samples)
  eigenvalues, radius, off = (
      jnp.concatenate([x] * copies, axis=-1) for x in (diagonal_of(t), radius, off))
  moves = _displacements(eigenvalues, radius)
  off = jnp.max(jnp.where(moves == 0, 0, off), axis=-1, initial=0)
  points = expand(_nodes(t.dtype)[:, None], moves[..., None, :])
  return eigenvalues[..., None, :] + moves[..., None, :] * points, off


def moved_apart(functions, t, copies=1):
  """The eigenvalues of `copies` copies of triangles T, all moved apart, and the error of the means.

  The eigenvalues are (..., m, copies * n). The circles are chosen so that `functions` are analytic
  on them.
  """
  radii, circles = _contours(t)
  return _moved(t, radii, [(f(circles), f(diagonal_of(t))) for f in functions], copies)
