"""Muon's orthogonalization of tall matrices whose rows are sharded, by its polynomials."""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

from linalg._core.algebra import adjoint, diagonal_of, identity, symmetrized
from linalg._core.operands import as_arrays, real_dtype
from linalg._core.public import public
from linalg._factorizations.eigh import smooth_eigvalsh
from linalg._factorizations.matmul import product
from linalg.distributed._gram import own_gram
from linalg.distributed._tall import Rows, tall_or_wide

# The coefficients of the odd polynomial a x + b x³ + c x⁵ of each step.
_Steps = tuple[tuple[float, float, float], ...]

# K. Jordan's coefficients are optax's "standard", for any number of steps. Dion's are five steps
# that differ (Ahn, Xu, Abreu and Langford, arXiv:2504.05295).
_STANDARD = (3.4445, -4.7750, 2.0315)
_DION = (
    (4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012))
_NAMED = {"standard": _STANDARD, "dion": _DION}


def _frobenius(g, scale, eps):
  return 1 / (jnp.sqrt(jnp.sum(diagonal_of(g).real, axis=-1)[..., None, None]) + eps / scale)


def _spectral(g, scale, eps):
  largest = jnp.maximum(smooth_eigvalsh(g)[..., -1], 0)
  return 1 / (jnp.sqrt(largest)[..., None, None] + eps / scale)


def _inverse_root(x, scale, eps):
  """1 / √x, or 1 / √eps where x is less than eps. The scale might put eps out of range."""
  least = eps / scale / scale
  return jnp.where(x > least, lax.rsqrt(jnp.maximum(x, least)), scale / jnp.sqrt(eps))


def _aol(g, scale, eps):
  return _inverse_root(jnp.sum(jnp.abs(g), axis=-2, keepdims=True), scale, eps)


def _schatten(g, scale, eps):
  square = jnp.sum((g * g.conj()).real, axis=(-2, -1), keepdims=True)
  return _inverse_root(jnp.sqrt(square), scale, eps)


# The first factor of the columns of A / scale, from its Gram matrix G. It is one number, (..., 1,
# 1), or one for each column, (..., 1, k).
_PRECONDITIONINGS = {
    "frobenius": _frobenius, "spectral": _spectral, "aol": _aol, "schatten": _schatten}


def _groups(steps: _Steps, tolerance: float) -> list[_Steps]:
  """The steps that share a Gram matrix.

  Each step multiplies the rounding errors that replace eigenvalues near 0 by a².
  """
  groups: list[_Steps] = []
  growth = 0.0
  for step in steps:
    growth *= step[0] ** 2
    if groups and growth <= tolerance:
      groups[-1] += (step,)
    else:
      groups.append((step,))
      growth = step[0] ** 2
  return groups


def _polynomial(g, step):
  a, b, c = step
  return a * identity(g) + b * g + c * product(g, g)


def _by_gram(g, steps):
  """Y such that the steps turn X into X Y, where G = Xᴴ X.

  Let p(x) = a + b x + c x². A step turns X into X p(G), and G into p(G) G p(G).
  """
  y = p = _polynomial(g, steps[0])
  for step in steps[1:]:
    g = symmetrized(product(p, product(g, p)))
    p = _polynomial(g, step)
    y = product(y, p)
  return y


def _orthogonalized(axes, steps, preconditioning, eps, a):
  """The orthogonalized matrix's rows on this device, from its rows of A."""
  dtype = real_dtype(a.dtype)
  groups = _groups(steps, float(jnp.finfo(dtype).eps) ** -0.5)
  a, g, scale = own_gram(a, axes)
  first = _PRECONDITIONINGS[preconditioning](g, scale, jnp.asarray(eps, dtype)).astype(a.dtype)
  a, g = a * first, g * first * first.mT
  for group in groups[:-1]:
    a = product(a, _by_gram(g, group))
    g = lax.psum(product(a, a, adjoint_a=True), axes)
  return product(a, _by_gram(g, groups[-1])) if groups else a


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _newton_schulz(rows: Rows, is_wide, steps, preconditioning, eps, a):
  body = functools.partial(_orthogonalized, rows.axes, steps, preconditioning, eps)
  x = rows.map(body, "r", "r", rows.even(adjoint(a) if is_wide else a))
  x = x[..., : rows.height, : rows.width]
  return adjoint(x) if is_wide else x


def _steps_of(coefficients: Any, steps: int | None) -> _Steps:
  """The coefficients of each step, from the caller's arguments."""
  if isinstance(coefficients, str) and coefficients not in _NAMED:
    raise ValueError(
        f"newton_schulz: coefficients={coefficients!r} must be one of {tuple(_NAMED)}, three "
        "numbers, or three for each step.")
  given: Any = _NAMED[coefficients] if isinstance(coefficients, str) else coefficients
  try:
    count = None if steps is None else operator.index(steps)
    if count is not None and count < 0:
      raise ValueError
    is_one = all(not isinstance(x, tuple | list) for x in given)
    each = [given] if is_one else given
    found = tuple((float(a), float(b), float(c)) for a, b, c in each)
  except (TypeError, ValueError):
    raise ValueError(
        f"newton_schulz: coefficients={coefficients!r} must be three numbers, or three for each "
        f"step, and steps={steps!r} a number, 0 or more.") from None
  if is_one:
    count = 5 if count is None else count
    found *= count
  if count is not None and count != len(found):
    raise ValueError(
        f"newton_schulz: steps={steps!r}, but there are coefficients of {len(found)} steps.")
  return found


@public("coefficients", "steps", "preconditioning", "eps", "axes", compiled=False)
def newton_schulz(
    a: ArrayLike,
    coefficients: str | tuple[float, ...] | tuple[tuple[float, ...], ...] = "standard",
    steps: int | None = None,
    *,
    preconditioning: str = "frobenius",
    eps: float = 1e-8,
    axes: str | tuple[str, ...] | PartitionSpec | None = None,
) -> jax.Array:
  """Orthogonalizes tall matrices whose rows are sharded, or wide ones whose columns are, as Muon
  does.

  Each step applies an odd polynomial to the singular values.

  Args:
    a: matrices (..., m, n); tall ones as for `qr`. The columns of a wide one are sharded as the
      rows of its transpose.
    coefficients: (a, b, c) of the polynomial a x + b x³ + c x⁵ of every step, or a tuple of one
      such triple for each step. "standard" is Muon's (3.4445, -4.775, 2.0315), and "dion" five that
      differ. (1.5, -0.5, 0) is Newton and Schulz's own, which converges to the polar factor.
    steps: the number of steps of one polynomial: 5 by default.
    preconditioning: the divisor of A before the first step, as in optax. "frobenius" and "spectral"
      are norms, to which `eps` is added. "schatten" is the root of the Frobenius norm of Aᴴ A.
      "aol" is, for each column, the root of the sum of magnitudes in its column of Aᴴ A. The last
      two are at least √eps.
    eps: for a matrix that is zero, and stays so. Its derivative is NaN, except by "aol".
    axes: as for `qr`, for the longer dimension.

  Returns:
    U f(S) Vᴴ, sharded as A is. A = U S Vᴴ, and f applies the polynomials to the divided S. By
    "standard" and "dion", f is between 0.68 and 1.14 for singular values above a hundredth of the
    divisor. `polar` gives U Vᴴ.

  Algorithm: polynomials of Aᴴ A, with A scaled by a power of two. Each device computes them and
  multiplies its rows by them. A step multiplies the rounding errors of eigenvalues near 0 by a²,
  and the Gram matrix is computed again before they reach √eps. A device therefore receives k²
  numbers, k = min(m, n), for every three of Muon's steps in float32, and for all five in float64.
  XLA's own partition moves some for each step. Derivatives, to any order, move k² numbers for each
  sum.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(3 * jnp.eye(64)[:, :2], jax.P("x"))
    ...   x = dist.newton_schulz(a, (1.5, -0.5, 0.0), 10)
    ...   print(x.shape, x.max().round(4))
    (64, 2) 1.0
  """
  name = "newton_schulz"
  each = _steps_of(coefficients, steps)
  if preconditioning not in _PRECONDITIONINGS:
    raise ValueError(
        f"{name}: preconditioning={preconditioning!r} must be one of {tuple(_PRECONDITIONINGS)}.")
  (a,), dtype = as_arrays(name, a)
  rows, is_wide = tall_or_wide(name, a, axes)
  return _newton_schulz(rows, is_wide, each, preconditioning, float(eps), a).astype(dtype)
