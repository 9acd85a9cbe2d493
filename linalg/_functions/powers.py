"""Powers and exponentials of square matrices."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.algebra import (
  LARGE_EXPONENT,
  binade,
  exponent_above,
  identities_like,
  identity,
  nan_where,
  norm_of_columns,
  norm_of_rows,
  power_of_two,
)
from linalg._core.operands import as_arrays, as_integer, check_arrays, check_square
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.solve import inv, solve
from linalg._factorizations.triangular import triangular_solve

__all__ = ["cosine_and_sine", "expm", "matrix_power"]


@public("n", compiled=False)
def matrix_power(a: ArrayLike, n: int) -> jax.Array:
  """A to the integer power n; `jax.numpy.linalg.matrix_power`.

  Args:
    a: square matrices (..., m, m) of any dtype; integers stay integers if n is not negative.
    n: the exponent, any integer.

  Returns:
    The powers (..., m, m); NaN where n is negative and A is exactly singular.

  Algorithm: repeated squaring, of `inv(a)` for a negative n.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.matrix_power(jnp.array([[1.0, 1.0], [0.0, 1.0]]), 5))
    [[1. 5.]
     [0. 1.]]
    >>> print(linalg.matrix_power(2 * jnp.eye(2), -1))
    [[0.5 0. ]
     [0.  0.5]]
  """
  check_arrays("matrix_power", a)
  a = jnp.asarray(a)
  if a.ndim < 2 or a.shape[-2] != a.shape[-1]:
    raise TypeError(f"matrix_power: a must have shape [..., n, n], got {a.shape}.")
  return _matrix_power(a, as_integer("matrix_power", "n", n))


@functools.partial(jax.jit, static_argnames="n")
def _matrix_power(a, n):
  exact = not jnp.issubdtype(a.dtype, jnp.inexact) and n >= 0
  (base,), dtype = ([a], a.dtype) if exact else as_arrays("matrix_power", a)
  if n == 0:
    return identities_like(a)
  if n < 0:
    base, n = inv(base), -n
  factors = []
  while n:
    n, odd = divmod(n, 2)
    factors += [base] * odd
    base = product(base, base) if n else base
  return functools.reduce(product, factors).astype(dtype)


class _Pade(NamedTuple):
  """The [m/m] approximant of the exponential.

  Attributes:
    coefficients: those of the numerator, from the constant.
    norm_bound: the 1-norm up to which its backward error is below the rounding. Source: Higham, The
      scaling and squaring method for the matrix exponential revisited, SIAM J. Matrix Anal. Appl.
      26 (2005), tables 2.1 and 2.3.
    power_bound: this bound for ‖A^2k‖^(1/2k); Al-Mohy and Higham, A new scaling and squaring
      algorithm for the matrix exponential, SIAM J. Matrix Anal. Appl. 31 (2009), section 3.
  """

  coefficients: tuple[int, ...]
  norm_bound: float
  power_bound: float

  @property
  def first_error(self) -> float:
    """|c| in the backward error c A^(2m + 1) + ..., which has higher powers of A too."""
    f, m = math.factorial, len(self.coefficients) - 1
    return f(m) ** 2 / (f(2 * m) * f(2 * m + 1))


_PADE = {
    32: _Pade(
        (17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1),
        3.925724783138660, 3.925724783138660),
    64: _Pade(
        (64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800,
         129060195264000, 10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960,
         16380, 182, 1),
        5.371920351148152, 4.25)}
# The number of powers of |A| that are computed. The growth of these bounds the later powers.
_SEEN = 7
_MOST_SQUARINGS = 17  # of cosines and sines, as by default in `expm`


def _divided(exponent, k):
  """⌈exponent / k⌉."""
  return -jnp.floor_divide(-exponent, jnp.int32(k))


def _squarings_by_size(size, norm, pade):
  """Returns two s from |A| and ‖A‖₁: one for the rounding error, and one for the backward error.

  The first has |c| ‖|2⁻ˢA|^(2m + 1)‖₁ / ‖2⁻ˢA‖₁ below the rounding; Al-Mohy and Higham (2009),
  equation (5.1). The second has ‖|2⁻ˢA|^k‖₁ <= bound^k for two even k, as their Theorem 4.2 needs.
  The norms are bounded: let v = (1, ..., 1) |A|^k, and r the largest ratio of its elements to those
  of (1, ..., 1) |A|^(k - j). Then v |A|^(ij) <= rⁱ v.
  """
  finfo = jnp.finfo(size.dtype)
  shift = jnp.maximum(exponent_above(norm) - finfo.maxexp // (_SEEN + 1), 0)
  scale = power_of_two(-shift, size.dtype)
  rows = [jnp.sum(size, axis=-2) * scale[..., None]]
  while len(rows) < _SEEN:
    rows += [jnp.sum((rows[-1] * scale[..., None])[..., None] * size, axis=-2)]
  last = jnp.max(rows[-1], axis=-1, initial=0)
  ratios = {}
  for step in (1, 2, 4):
    before = rows[-1 - step]
    ratio = jnp.where(rows[-1] > 0, rows[-1] / jnp.where(before > 0, before, 1), 0)
    ratio = jnp.max(ratio, axis=-1, initial=0)
    binary = binade(ratio)
    ratios[step] = ratio / binary, exponent_above(binary)

  def exponent_of(k, factor):
    """An exponent above ‖|2^-shift A|^k‖₁ times a factor."""
    exponents = []
    for step, (ratio, exponent) in ratios.items():
      times, single = divmod(k - _SEEN, step)
      bound = ratio**times * ratios[1][0] ** single * (last * factor)
      exponents += [exponent_above(bound) + times * exponent + single * ratios[1][1]]
    least = functools.reduce(jnp.minimum, exponents)
    return jnp.where(last == 0, -LARGE_EXPONENT, least)

  m = len(pade.coefficients) - 1
  inverse = 1 / jnp.where(norm > 0, norm * scale, 1)
  rounding = exponent_of(2 * m + 1, pade.first_error * 2 / finfo.eps * inverse)
  # k = 2p and 2p + 2 with p (p - 1) <= 2m + 1.
  first = 8 if m == 7 else 10
  error = functools.reduce(jnp.maximum, [
      _divided(exponent_of(k, pade.power_bound**-k), k) for k in (first, first + 2)])
  return _divided(rounding, 2 * m) + shift, error + shift


def _scaled_powers(a, pade):
  """Returns s, 2⁻ˢA, C, C², C³ and h, where A² = 4ˢ h C.

  The 1-norm of A decides s, or the norms of its 4th and 6th powers if these and rounding ask for
  fewer squarings. That is more accurate where the powers are far smaller than those of the norm.
  """
  dtype = jnp.finfo(a.dtype).dtype
  times = lambda x, y: x * y[..., None, None].astype(a.dtype)
  # Neither A² nor its cube may overflow or underflow.
  largest = jnp.finfo(dtype).maxexp
  size = jnp.abs(jax.lax.stop_gradient(a))
  norm = norm_of_rows(size.mT)
  first = jnp.maximum(exponent_above(norm) - largest // 2, 0)
  smaller = times(a, power_of_two(-first, dtype))
  square = product(smaller, smaller)
  second = exponent_above(norm_of_columns(jax.lax.stop_gradient(square))) - largest // 4
  second = jnp.maximum(second, jnp.maximum(-2 * first - largest // 4, 8 - largest))
  powers = [times(square, power_of_two(-second, dtype))]
  powers += [product(powers[0], powers[0])]
  powers += [product(powers[1], powers[0])]
  two, four, six = (norm_of_columns(jax.lax.stop_gradient(x)) for x in powers)
  to_c = 2 * first + second  # A² = 2^to_c C

  def squarings_by(power, factor):
    """An s with ‖A^power‖ <= (bound 2ˢ)^power; `factor` bounds ‖C^(power / 2)‖."""
    bound = pade.power_bound**power
    return _divided(exponent_above(factor / bound) + power // 2 * to_c, power)

  # ‖A⁸‖ <= ‖A²‖ ‖A⁶‖. Theorem 4.2 there says which pairs of powers bound the error.
  by_powers = jnp.maximum(
      squarings_by(6, six),
      jnp.minimum(squarings_by(4, four), squarings_by(8, two * six)))
  by_rounding, by_size = _squarings_by_size(size, norm, pade)
  by_powers = jnp.maximum(jnp.minimum(by_powers, by_size), by_rounding)
  by_norm = exponent_above(norm / pade.norm_bound)
  squarings = jnp.maximum(jnp.minimum(by_norm, by_powers), 0)
  small = power_of_two(first - squarings, dtype)
  scale = power_of_two(second, dtype) * small * small
  return squarings, times(a, power_of_two(-squarings, dtype)), powers, scale


def _pade(a, powers, scale, coefficients):
  """The odd and the even part of the numerator of the approximant."""
  b = [float(x) for x in coefficients]
  eye = identity(a)
  scale = scale[..., None, None].astype(a.dtype)
  a2 = powers[0] * scale
  a4 = powers[1] * scale * scale
  a6 = powers[2] * scale * scale * scale
  odd = b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * eye
  even = b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * eye
  if len(b) > 8:
    odd = odd + product(a6, b[13] * a6 + b[11] * a4 + b[9] * a2)
    even = even + product(a6, b[12] * a6 + b[10] * a4 + b[8] * a2)
  return product(a, odd), even


def _repeated(step, x, count, limit):
  """`step` applied to `x` as often as `count` says for each matrix, up to `limit` times."""

  def once(x, i):
    more = i < count
    if more.size == 1:
      # A batch always steps, and selects: a condition on all its matrices would be a collective if
      # it is sharded.
      return jax.lax.cond(jnp.all(more), step, lambda x: x, x), None
    chosen = lambda old, new: jnp.where(more[..., None, None], new, old)
    return jax.tree.map(chosen, x, step(x)), None

  return jax.lax.scan(once, x, jnp.arange(limit, dtype=jnp.int32))[0]


def cosine_and_sine(a: jax.Array, *, hyperbolic: bool) -> tuple[jax.Array, jax.Array]:
  """cosh A and sinh A, or cos A and sin A, of arrays that `as_arrays` returns.

  The approximant of exp(A) is (e + o) / (e - o), with an even and an odd part of its numerator. So
  that of sinh A is 2 e o / (e² - o²), which keeps the digits of a small A, and that of cosh A is
  (e² + o²) / (e² - o²). The sign of A² differs in sin A and cos A. Both are doubled as often as
  `expm` squares, and NaN where that is too often.
  """
  pade = _PADE[jnp.finfo(a.dtype).bits]
  squarings, small, powers, scale = _scaled_powers(a, pade)
  sign = 1 if hyperbolic else -1
  odd, even = _pade(small, powers, sign * scale, pade.coefficients)
  even2, odd2 = product(even, even), sign * product(odd, odd)
  numerators = jnp.concatenate([even2 + odd2, 2 * product(even, odd)], axis=-1)
  both = solve(even2 - odd2, numerators)

  def double(pair):
    cos, sin = pair
    # Errors grow as in the squares of exp(A). They would grow faster in 1 - 2 sin².
    twice = (
        product(cos, cos) + product(sin, sin) if hyperbolic else product(cos - sin, cos + sin))
    return twice, 2 * product(sin, cos)

  n = a.shape[-1]
  cos, sin = _repeated(double, (both[..., :n], both[..., n:]), squarings, _MOST_SQUARINGS)
  failed = squarings > _MOST_SQUARINGS
  return nan_where(failed, cos, core=2), nan_where(failed, sin, core=2)


@public("upper_triangular", "max_squarings", lists=True)
def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> jax.Array:
  """The matrix exponential; `jax.scipy.linalg.expm`.

  Args:
    A: square matrices (..., n, n).
    upper_triangular: whether the matrices are upper triangular, which saves a factorisation.
    max_squarings: where more than max_squarings + 1 squarings are needed, the result is NaN. They
      suffice for 1-norms up to 2^(max_squarings + 1) times 5.37 (float64) or 3.93 (float32). They
      suffice for larger norms if the powers of A are smaller than those of its norm.

  Returns:
    The exponentials (..., n, n).

  float16 and bfloat16 are computed in float32, and the results rounded. Elements that are far
  larger than others cost digits, even if a diagonal scaling would make them alike. At 1 / eps times
  the size of the others they leave none.

  Algorithm: scaling, Padé approximation of degree 13 (float64) or 7 (float32), and squaring; Higham
  (2005). The norms of powers choose the scaling of each matrix (Al-Mohy and Higham 2009).
  Derivatives go through the algorithm.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.expm(jnp.array([[0.0, 1.0], [0.0, 0.0]])))
    [[1. 1.]
     [0. 1.]]
  """
  (a,), dtype = as_arrays("expm", A)
  check_square("expm", a)
  pade = _PADE[jnp.finfo(a.dtype).bits]
  limit = max_squarings + 1
  squarings, small, powers, scale = _scaled_powers(a, pade)
  odd, even = _pade(small, powers, scale, pade.coefficients)
  if upper_triangular:
    result = triangular_solve(even - odd, even + odd, left_side=True, lower=False)
  else:
    result = solve(even - odd, even + odd)

  result = _repeated(lambda x: product(x, x), result, squarings, limit)
  return nan_where(squarings > limit, result, core=2).astype(dtype)
