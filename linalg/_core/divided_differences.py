"""Divided differences of a function, accurate between arguments that are equal or nearly so.

XLA may recompute the arguments at each place that uses them, and fuse products and differences
differently each time. Two computed arguments, such as squares of singular values, may be equal at
one place and not at another. Every choice here therefore depends on error bounds, which are large
in either case.
"""

import jax
import jax.numpy as jnp

from linalg._core.algebra import gauss_legendre

__all__ = ["differences", "differences_between", "second_differences"]


def _slope(f):
  """The derivative of an elementwise function."""
  return lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]


_RULE = gauss_legendre(5)


def _choose(integral, quotient, error):
  """The integral, where it agrees with the quotient within the quotient's rounding `error`."""
  return jnp.where(jnp.abs(integral - quotient) <= error, integral, quotient)


def differences(f, w):
  """f[wᵢ, wⱼ] and a bound on its rounding."""
  return differences_between(f, w[..., :, None], w[..., None, :])


def differences_between(f, x, y):
  """f[x, y] and a bound on its rounding.

  The difference is the quotient (f(y) - f(x)) / (y - x). Where that cancels, it is the mean of f'
  between x and y by quadrature.
  """
  fx, fy = f(x), f(y)
  gap = y - x
  safe = jnp.where(gap == 0, 1, gap)
  integral = sum(weight * _slope(f)(x + t * gap) for t, weight in _RULE)
  limits = jnp.finfo(x.dtype)
  error = (4 * limits.eps * (jnp.abs(fx) + jnp.abs(fy)) + limits.tiny) / jnp.abs(gap)
  chosen = _choose(integral, (fy - fx) / safe.astype(fx.dtype), error)
  good = chosen == integral
  return chosen, jnp.where(good, 4 * limits.eps * jnp.abs(chosen), error)


def second_differences(f, w):
  """f[wᵢ, wⱼ, wₖ].

  The difference is the quotient (f[z, y] - f[y, x]) / (z - x), with the two farthest arguments as x
  and z. Where that cancels, it is the Hermite-Genocchi integral ∫∫ f'' by quadrature.
  """
  first, error = differences(f, w)
  ends = (w[..., :, None, None], w[..., None, :, None], w[..., None, None, :])
  # The differences of two arguments and their bounds, indexed by the argument that is left out.
  pairs = [(first[..., None, :, :], error[..., None, :, :]),
           (first[..., :, None, :], error[..., :, None, :]),
           (first[..., :, :, None], error[..., :, :, None])]
  widest = jnp.zeros((1,) * ends[0].ndim, w.dtype)
  quotient, bound = widest.astype(first.dtype), widest + jnp.inf
  for i, k in ((0, 1), (0, 2), (1, 2)):
    gap = ends[k] - ends[i]
    safe = jnp.where(gap == 0, 1, gap)
    (high, high_error), (low, low_error) = pairs[i], pairs[k]
    wider = jnp.abs(gap) > widest
    quotient = jnp.where(wider, (high - low) / safe.astype(first.dtype), quotient)
    bound = jnp.where(wider, (high_error + low_error) / jnp.abs(gap), bound)
    widest = jnp.where(wider, jnp.abs(gap), widest)
  curvature = _slope(_slope(f))
  x, y, z = ends
  integral = sum(
      weight * t * other * curvature(x + t * ((y - x) + s * (z - y)))
      for t, weight in _RULE for s, other in _RULE)
  return _choose(integral, quotient, bound)
