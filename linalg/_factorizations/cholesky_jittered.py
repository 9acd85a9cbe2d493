"""Cholesky factors of matrices that rounding made indefinite, with the least jitter."""

import numbers
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import diagonal_of, hermitian_part, on_diagonal
from linalg._core.checks import check_positive
from linalg._core.operands import as_arrays, check_square, real_dtype
from linalg._core.public import public
from linalg._factorizations.cholesky import cholesky_jvp_p, cholesky_p

__all__ = ["JitteredResult", "cholesky_jittered"]

_GROWTH = 10.0  # from one jitter of the series to the next

# The jitters are relative to the mean of the diagonal. The first is a few times the rounding of a
# kernel matrix.
_FIRST = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
_LAST = {np.dtype(np.float32): 1e-2, np.dtype(np.float64): 1e-4}


class JitteredResult(NamedTuple):
  """The factor, the jitter that each matrix needed, and info."""

  factor: jax.Array
  jitter: jax.Array
  info: jax.Array


def _jvp(primals, tangents, **attributes):
  # The jitter t is a constant: dL is that of A + t I along dA.
  a, jitters = primals
  factor, jitter, info = cholesky_jittered_p(a, jitters, **attributes)
  da = tangents[0]
  moved = None if da is None else cholesky_jvp_p(factor, da, **attributes)
  return (factor, jitter, info), (moved, None, None)


def _fallback(a, jitters, *, lower, symmetrize):
  """Tries one jitter after the other on the whole batch."""
  a = hermitian_part(a, lower=lower, symmetrize=symmetrize)
  mean = jnp.mean(diagonal_of(a).real, axis=-1)  # NaN for matrices without entries
  can_help = (mean > 0) & jnp.isfinite(mean)

  def attempt(jitter):
    moved = jnp.where(on_diagonal(a), a + jitter[..., None, None].astype(a.dtype), a)
    return cholesky_p(moved, lower=lower, symmetrize=False)

  jitter = jnp.zeros_like(mean)
  factor, info = attempt(jitter)
  for i in range(jitters.shape[-1]):
    again = (info != 0) & can_help
    jitter = jnp.where(again, jitters[i] * mean, jitter)
    next_factor, next_info = attempt(jitter)
    factor = jnp.where(again[..., None, None], next_factor, factor)
    info = jnp.where(again, next_info, info)
  return [factor, jnp.where(info == 0, jitter, jnp.nan), info]


cholesky_jittered_p = ffi.operation(
    "linalg_cholesky_jittered",
    "n n, k -> n n, (), ()",
    lambda a, jitters, **attributes: [a, real_dtype(a), jnp.int32],
    attributes={"lower": True, "symmetrize": True},
    shared=[1],
    jvp=_jvp,
    fallback=_fallback)


def _series(name, dtype, jitter, max_jitter) -> np.ndarray:
  """jitter, 10 jitter, … as far as max_jitter."""
  first = _FIRST[dtype] if jitter is None else jitter
  last = max(_LAST[dtype], first) if max_jitter is None else max_jitter
  for parameter, value in (("jitter", first), ("max_jitter", last)):
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
      raise TypeError(f"{name}() takes {parameter} as a real number, got {type(value)}.")
    number = float(value)
    if not 0 < number < np.inf:
      raise ValueError(f"{name}() takes {parameter} as a positive finite number, got {value}.")
    if not float(np.finfo(dtype).tiny) <= number <= float(np.finfo(dtype).max):
      raise ValueError(f"{name}() takes {parameter} in the range of {dtype}, got {value}.")
  if first > last:
    raise ValueError(f"{name}() needs jitter <= max_jitter, got {first} and {last}.")
  first, last = float(first), float(last)
  count = 1 + int(np.floor(np.log(last / first) / np.log(_GROWTH) + 1e-9))
  return (first * _GROWTH ** np.arange(count)).astype(dtype)


@public("jitter", "max_jitter", "upper", "symmetrize_input")
def cholesky_jittered(
    a: ArrayLike, *, jitter: float | None = None, max_jitter: float | None = None,
    upper: bool = False, symmetrize_input: bool = True
) -> JitteredResult:
  """The Cholesky factor of A + t I, with the least jitter t of a series that makes it definite.

  Rounding makes a covariance matrix of close points indefinite. This function replaces the loop
  that adds a growing jitter to the diagonal. Each matrix of a batch gets its own jitter.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.
    jitter: the first jitter that is tried, relative to the mean of the diagonal. The default is
      1e-6 in single precision and 1e-12 in double precision.
    max_jitter: the largest one. Each try takes ten times the jitter of the one before. The default
      is 1e-2 in single precision and 1e-4 in double precision, or `jitter` if that is larger.
    upper, symmetrize_input: as for `cholesky`.

  Returns:
    (factor, jitter, info). The factor is (..., n, n). The jitter t (...) is real, in the units of
    A: 0 where the matrix needs none, NaN where none is enough. info, int32 (...), is 0 or the order
    of the first leading minor that is not positive at the last try. The factor of such a matrix is
    NaN; see `checked`. A matrix that needs no jitter has the bits of `cholesky`.

  A matrix that holds NaN, or whose diagonal has no positive mean, fails at once. The derivative is
  that of A + t I with a constant t. float16 and bfloat16 are factored in float32, and their jitters
  stay float32: float16 would round most of them to 0.

  Other libraries have absolute jitters. GPyTorch tries three from 1e-6 on (1e-8 in double
  precision), TensorFlow Probability's `retrying_cholesky` five from 1e-6 (1e-10). Both factor the
  whole batch at each try. GPJax adds 1e-6 to every matrix.

  Algorithm: `cholesky`, which is then repeated for all failed matrices together.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([4 * jnp.eye(2), jnp.ones((2, 2)), -jnp.eye(2)])
    >>> factor, jitter, info = linalg.cholesky_jittered(a)
    >>> print(jitter)  # the second matrix is singular; none helps the third
    [0.e+00 1.e-06    nan]
    >>> print(info)
    [0 0 1]
  """
  name = "cholesky_jittered"
  (a,), dtype = as_arrays(name, a)
  check_square(name, a)
  ffi.refuse_sharded(name, a)  # here, for the call pads the batch dimensions of its operands
  series = jnp.asarray(_series(name, real_dtype(a.dtype), jitter, max_jitter))
  factor, added, info = cholesky_jittered_p(
      a, series, lower=not upper, symmetrize=symmetrize_input)
  check_positive(info)
  return JitteredResult(factor.astype(dtype), added, info)
