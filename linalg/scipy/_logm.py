"""Logarithms and fractional powers of general matrices."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from linalg._core.algebra import (
  LARGE_EXPONENT,
  binade,
  diagonal_of,
  expand,
  exponent_above,
  gauss_legendre,
  identity,
  nan_where,
  norm_of_columns,
  on_diagonal,
  power_of_two,
  scaled,
  zeros_like,
)
from linalg._core.balancing import balancing, similar
from linalg._core.checks import check
from linalg._core.matrix_function import matrix_function
from linalg._core.operands import as_arrays, check_square, complex_dtype
from linalg._core.public import public
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.schur import triangular_schur
from linalg._factorizations.triangular import triangular_solve_p
from linalg._functions.powers import expm, matrix_power
from linalg._functions.sqrtm import root_of_triangle
from linalg._functions.sylvester import columns, transposed_schur

__all__ = ["fractional_matrix_power", "logm"]

# After _ROOTS square roots a matrix is within _NEAR of the identity if its logarithm is less than
# 2²⁰. The approximant by _RULE is then exact to rounding: Higham, Functions of matrices
# (2008), table 11.1.
_ROOTS = 22
_NEAR = 0.264
_RULE = gauss_legendre(7)


def _balancing(t):
  """Exponents e for which |tᵢⱼ 2^(eⱼ - eᵢ)| is at most about the smaller of |tᵢᵢ| and |tⱼⱼ|.

  D⁻¹ T D, D = diag(2ᵉ), has the roots, the logarithm and the powers of T, scaled alike and to the
  same rounding. It needs fewer roots to be near to I: without it, [[x, 1], [0, x]] takes log2 1/x.
  """
  size = exponent_above(jnp.abs(t))
  own = exponent_above(jnp.abs(diagonal_of(t)))
  excess = size - jnp.minimum(own[..., :, None], own[..., None, :])
  index = jnp.arange(t.shape[-1])
  above = expand(index[:, None] < index[None, :], t)
  excess = jnp.where(above, excess, -LARGE_EXPONENT)
  least = jnp.int32(8 - jnp.finfo(t.dtype).maxexp)
  row = expand(index, own)

  def step(e, column):
    j, above = column
    own = jnp.maximum(jnp.minimum(jnp.min(e - above, axis=-1, initial=0), 0), least)
    return jnp.where(row == j, own[..., None], e), None

  return jax.lax.scan(step, zeros_like(own), (index, columns(excess)))[0]


def _log_of_triangle(t):
  """Returns log T of upper triangular matrices, or NaN where there is none."""
  e = _balancing(t)
  return similar(_log_of_balanced(similar(t, e)), -e)


def _power_of_triangle(t, *, exponent):
  """Returns T to a power that is not a whole number, or NaN where T has no logarithm."""
  # The nearest whole power is split off, so that the logarithm takes a small exponent.
  whole = round(exponent)
  e = _balancing(t)
  # Whole powers of very small or large eigenvalues leave the range sooner than the result does.
  size = binade(jnp.max(jnp.abs(diagonal_of(t)), axis=-1, initial=0))[..., None, None]
  t = similar(t, e) / size.astype(t.dtype)
  x = expm((exponent - whole) * _log_of_balanced(t), upper_triangular=True)
  if whole:
    x = product(matrix_power(t, whole), x)
  return similar(x * jnp.power(size, exponent).astype(t.dtype), -e)


def _log_of_balanced(t):
  """Takes square roots until T is near to I, and then a Padé approximant by its partial fractions.

  See Higham (2008), sections 11.4 and 11.5. The diagonal is exact.
  """

  def step(carry, _):
    t, roots = carry
    far = ~(norm_of_columns(t - identity(t)) <= _NEAR)
    # If no root is needed, take the root of the identity, which is never NaN.
    root = root_of_triangle(jnp.where(far[..., None, None], t, identity(t)))
    return (jnp.where(far[..., None, None], root, t), roots + far.astype(roots.dtype)), None

  (near, roots), _ = jax.lax.scan(step, (t, zeros_like(norm_of_columns(t))), length=_ROOTS)
  x = near - identity(t)
  result = zeros_like(t)
  for node, weight in _RULE:
    part = triangular_solve_p(identity(t) + node * x, x, left_side=True, lower=False)
    result = result + weight * part
  result = result * (2**roots)[..., None, None].astype(t.dtype)
  exact = jnp.log(jnp.where(diagonal_of(t) == 0, jnp.nan, diagonal_of(t)))
  result = jnp.where(on_diagonal(t), exact[..., None], jnp.triu(result))
  return nan_where(~(norm_of_columns(x) <= _NEAR) | jnp.isnan(exact).any(-1), result, core=2)


def _beside(t, z, e):
  """Returns Zᴴ E Z scaled to be small beside T, and a function that restores the scale.

  A derivative is linear in E, so the scale factors out. Beside a T of another scale, products of
  two directions would leave the range.
  """
  (e, own), (_, size) = scaled(e), scaled(t)
  dtype = jnp.finfo(e.dtype).dtype
  size = jnp.maximum(size.real, 2.0**10 * jnp.finfo(dtype).tiny)
  exponent = exponent_above(own.real) - exponent_above(size) + 10

  def restored(x):
    half = exponent // 2  # the power itself may be out of range
    for power in (half, exponent - half):
      x = x * power_of_two(power, dtype).astype(x.dtype)
    return x

  return congruence(z, e, adjoint_a=True) * (size * 2.0**-10).astype(e.dtype), restored


def _pair(a, e):
  """[[A, E], [0, A]], whose function is [[f(A), L(A, E)], [0, f(A)]]; Mathias, SIAM J. Matrix Anal.
  Appl. 17 (1996)."""
  return jnp.block([[a, e], [zeros_like(a), a]])


def _through_triangle(name, of_triangle, attributes=None):
  """The operation Z f(T) Zᴴ of A = Z T Zᴴ, T upper triangular."""

  def value(t, z, **values):
    return congruence(z, of_triangle(t, **values))

  def derivative(t, z, e, **values):
    n = t.shape[-1]
    e, restored = _beside(t, z, e)
    return restored(congruence(z, of_triangle(_pair(t, e), **values)[..., :n, n:]))

  def second(t, z, e, c, **values):
    # The derivative at the pair [[T, E], [0, T]] in the direction [[C, 0], [0, C]].
    n = t.shape[-1]
    (e, by_e), (c, by_c) = _beside(t, z, e), _beside(t, z, c)
    along = jnp.block([[c, zeros_like(c)], [zeros_like(c), c]])
    corner = of_triangle(_pair(_pair(t, e), along), **values)[..., :n, 3 * n :]
    return by_e(by_c(congruence(z, corner)))

  return matrix_function(
      name, "n n, n n", [0], value, derivative, second,
      lambda a, t, z: (a.mT, *transposed_schur(t, z)), attributes=attributes)


_log_p = _through_triangle("logm", _log_of_triangle)
_power_p = _through_triangle("fractional_matrix_power", _power_of_triangle, {"exponent": 0.5})


def _apply(operation, name, a, **values):
  (a,), dtype = as_arrays(name, a)
  check_square(name, a)
  e = balancing(a)
  a = similar(a, e)
  t, z = triangular_schur(a)
  x = similar(operation(a.astype(z.dtype), t, z, **values), -e)
  check(
      jnp.isnan(x).any((-2, -1)).astype(jnp.int32),
      "has no logarithm: it is singular, or holds NaN or Inf, or is far from normal.")
  return x.astype(complex_dtype(dtype))


@public(lists=True)
def logm(A: ArrayLike) -> jax.Array:
  """The principal logarithm, exp(X) = A; `scipy.linalg.logm`, batched.

  Args:
    A: square matrices (..., n, n).

  Returns:
    The logarithms (..., n, n), complex. The imaginary parts of their eigenvalues are in (-π, π]. A
    real matrix without eigenvalues on the negative axis has a logarithm that is real up to
    rounding. The result is NaN where A is singular, or holds NaN or Inf, or where the logarithm's
    norm exceeds 2²⁰ after balancing; see `checked`.

  float16 and bfloat16 are computed in float32.

  Algorithm: the Schur form of the balanced matrix, square roots and a Padé approximant; Higham,
  Functions of matrices (2008), chapter 11. Derivatives: of first and second order, by the algorithm
  for block matrices (Higham and Relton, SIAM J. Matrix Anal. Appl. 35, 2014). They are right at any
  spectrum off the negative axis. Third derivatives raise NotImplementedError.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.logm(jnp.eye(1)).real
    Array([[0.]], dtype=float32)
  """
  return _apply(_log_p, "logm", A)


@functools.partial(jax.jit, static_argnames="t")
def _fraction(a, t):
  return _apply(_power_p, "fractional_matrix_power", a, exponent=t)


def _exponent(t: Any) -> int | float:
  """The exponent, an int if it is a whole number. Errors name one that is not real and finite."""
  if isinstance(t, int):
    return t
  if not hasattr(t, "__float__") or np.iscomplexobj(t):
    raise TypeError(f"fractional_matrix_power: t must be a real number, got {type(t)}.")
  x = float(t)
  if not math.isfinite(x):
    raise ValueError(f"fractional_matrix_power: t must be finite, got {x}.")
  return int(x) if x.is_integer() else x


@public("t", compiled=False, lists=True)
def fractional_matrix_power(A: ArrayLike, t: float) -> jax.Array:
  """A to the power t; `scipy.linalg.fractional_matrix_power`, batched.

  Args:
    A: square matrices (..., n, n).
    t: any finite real number.

  Returns:
    The powers (..., n, n), complex; NaN where `logm` is NaN, see `checked`. For a whole number t
    they are those of `linalg.matrix_power`, in the dtype of A.

  float16 and bfloat16 are computed in float32.

  Algorithm: exp((t - k) log T) Tᵏ, where T is the balanced triangle of `logm`, and k the whole
  number next to t. Derivatives are of first and second order, as for `logm`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.fractional_matrix_power(4 * jnp.eye(1), 0.5).real.round(3)
    Array([[2.]], dtype=float32)
  """
  t = _exponent(t)
  return matrix_power(A, t) if isinstance(t, int) else _fraction(A, t)
