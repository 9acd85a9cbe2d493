"""Cholesky factors of matrices that change by a matrix of rank one."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  binade,
  diagonal_of,
  expand,
  imaginary,
  nan_where,
  triangle,
  without_none,
)
from linalg._core.checks import check
from linalg._core.linear_rules import linear_pair
from linalg._core.operands import as_arrays, check_batches, check_square, incompatible
from linalg._core.public import public
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["cholesky_update", "cholesky_update_ex"]


def _jvp(primals, tangents, *, downdate):
  factor, info = cholesky_update_p(*primals, downdate=downdate)
  dfactor = cholesky_update_jvp_p(
      *primals, *without_none(primals, tangents), downdate=downdate)
  # A factor rather than a mask, so that the cotangents of failed matrices are NaN too.
  known = jnp.where(info == 0, 1, jnp.nan).astype(dfactor.dtype)
  return (factor, info), (dfactor * known[..., None, None], None)


def _tangent(r, w, dr, dw, *, downdate):
  # The handler found vₖ = 0 wherever the diagonal is not positive. Here it may be a rounding error.
  factor, _ = cholesky_update_p(*jax.lax.stop_gradient((r, w)), downdate=downdate)
  kept = _not_positive(factor)
  weight = -1.0 if downdate else 1.0
  return [jax.jvp(lambda r, w: _rotated(r, w, weight, kept), (r, w), (dr, dw))[1]]


def _not_positive(factor):
  """Where the diagonal of a factor is not positive."""
  diagonal = diagonal_of(factor)
  found = ~(diagonal.real > 0)
  return found | (diagonal.imag != 0) if jnp.iscomplexobj(diagonal) else found


def _quotient(x, y):
  """x / y of a real y, without the scaling of a complex division."""
  return jax.lax.complex(x.real / y, x.imag / y) if jnp.iscomplexobj(x) else x / y


def _times(x, y):
  """x y for a real x."""
  return jax.lax.complex(x * y.real, x * y.imag) if jnp.iscomplexobj(y) else x * y


@jax.custom_jvp
def _rotation(d, v, weight):
  """(h, c, s) with h = √(|d|² + weight |v|²) > 0, c = d / h and s = v / h."""
  size, other = jnp.abs(d), jnp.abs(v)
  lost = weight < 0
  scale = binade(jnp.maximum(size, other * jnp.sqrt(jnp.abs(weight))))
  size, other = size / scale, other / scale
  # JAX differentiates this too, in second derivatives of a scan: no root of a weight of 0.
  drop = other * jnp.sqrt(jnp.where(lost, -weight, 1))
  h = jnp.sqrt(jnp.where(
      lost, (size - drop) * (size + drop), size * size + weight * other * other))
  return h * scale, _quotient(_quotient(d, scale), h), _quotient(_quotient(v, scale), h)


@_rotation.defjvp
def _(primals, tangents):
  """(p, q) are (dd, dv) rotated. 1 - |c|² and 1 - weight |s|² are not formed: they cancel."""
  (d, v, weight), (dd, dv, dweight) = primals, tangents
  h, c, s = _rotation(d, v, weight)
  weighted = _times(weight, s.conj())
  p, q = c.conj() * dd + weighted * dv, c * dv - s * dd
  dc, ds = -weighted * q, c.conj() * q
  if jnp.iscomplexobj(p):
    turn = imaginary(p.imag)
    dc, ds = dc + c * turn, ds + s * turn
  # The weight alone changes h by a factor.
  factor = dweight * (s.real**2 + s.imag**2) / 2
  return (h, c, s), (
      p.real + factor * h, _quotient(dc, h) - _times(factor, c),
      _quotient(ds, h) - _times(factor, s))


def _rotated(r, w, weight, kept):
  """The factor by a rotation for each row, as the handler finds it, for JAX to differentiate.

  Its derivative consists of the rotations' cosines and sines. So it loses no digits where R is much
  smaller than w, or ill-conditioned. It takes n steps of O(n) operations.

  The rotation of row k takes (rₖₖ, √weight vₖ), v = wᴴ, to (h, 0), and is hyperbolic for a negative
  weight. Roots of the weight, an array or 1.0 or -1.0, cancel, so there are derivatives at 0 too.
  The `kept` rows are those with vₖ = 0: there the rotation takes (1, √weight vₖ / rₖₖ) to (h, 0)
  instead.
  """
  index = expand(jnp.arange(r.shape[-1], dtype=jnp.int32), w)
  negative = weight < 0

  def step(v, given):
    row, keep, k = given
    pick = lambda x: jnp.sum(jnp.where(index == k, x, 0), axis=-1)
    d, first = pick(row), pick(v)
    keep |= first == 0
    ratio = first / jnp.where(keep, d, 1)
    h, c, s = _rotation(jnp.where(keep, 1, d), jnp.where(keep, ratio, first), weight)
    h = (jnp.where(keep, d, 1) * h.astype(d.dtype))[..., None]
    weighted = _times(weight, s.conj())[..., None]
    c, s = c[..., None], s[..., None]
    rotated = c.conj() * row + weighted * v
    if isinstance(negative, bool):
      v = _mixed(v, rotated, c, s) if negative else c * v - s * row
    else:
      lost = negative[..., None]
      v = jnp.where(lost, _mixed(v, rotated, jnp.where(lost, c, 1), s), c * v - s * row)
    return jnp.where(index > k, v, 0), jnp.where(index == k, h, rotated)

  rows = jnp.moveaxis(triangle(r, lower=False), -2, 0)
  order = jnp.arange(r.shape[-1], dtype=jnp.int32)
  _, factor = jax.lax.scan(step, w.conj(), (rows, jnp.moveaxis(kept, -1, 0), order))
  return jnp.moveaxis(factor, 0, -2)


def _mixed(v, rotated, c, s):
  """The next v of a hyperbolic rotation in mixed form: the new row makes it."""
  return (v - s * rotated) / c.conj()


def _phases(diagonal, turned):
  """The phases of the entries that are to become positive, 1 for the others."""
  turned &= diagonal != 0
  if not jnp.issubdtype(diagonal.dtype, jnp.complexfloating):
    return jnp.where(turned, jnp.sign(diagonal), 1)
  size = jnp.where(turned, jnp.abs(diagonal), 1)
  return jnp.where(turned, diagonal, 1) / size.astype(diagonal.dtype)


def _by_sums(l, p, weight):
  """L K for K the factor of I + weight p pᴴ, of p = L⁻¹ w, and at which rows it fails.

  Let tⱼ = 1 + weight (|p₁|² + … + |pⱼ|²). Then Kⱼⱼ = √(tⱼ / tⱼ₋₁) and
  Kᵢⱼ = weight pᵢ p̄ⱼ / √(tⱼ tⱼ₋₁). So a column of L K combines one of L with the sum of those to its
  right, weighted by p. Gill, Golub, Murray and Saunders, Methods for modifying matrix
  factorizations, Math. Comp. 28 (1974), method C1.
  """
  squares = p.real**2 + p.imag**2
  total = 1 + weight * jnp.cumsum(squares, axis=-1)
  failed = ~((total > 0) & (total < jnp.inf))  # NaN too
  total = jnp.where(failed, 1, total)
  index = expand(jnp.arange(p.shape[-1], dtype=jnp.int32), total)
  before = jnp.where(index == 0, 1, jnp.roll(total, 1, axis=-1))
  l = expand(l, p[..., None])
  weighted = l * p[..., None, :]
  right = jnp.flip(jnp.cumsum(jnp.flip(weighted, -1), axis=-1), -1) - weighted
  column = (weight / jnp.sqrt(total * before)).astype(p.dtype) * p.conj()
  factor = (
      l * jnp.sqrt(total / before)[..., None, :].astype(l.dtype) + right * column[..., None, :])
  return factor, failed


def _fallback(r, w, *, downdate):
  """The factor by sums, for R without zeros on the diagonal."""
  l = adjoint(triangle(r, lower=False))
  p = triangular_solve_p(l, w[..., None], left_side=True, lower=True)[..., 0]
  factor, failed = _by_sums(l, p, -1 if downdate else 1)
  factor = factor * _phases(diagonal_of(l), p != 0).conj()[..., None, :]
  order = expand(jnp.arange(1, r.shape[-1] + 1, dtype=jnp.int32), failed)
  first = jnp.min(jnp.where(failed, order, r.shape[-1] + 1), axis=-1, initial=r.shape[-1] + 1)
  info = jnp.where(first <= r.shape[-1], first, 0)
  return [nan_where(info != 0, triangle(adjoint(factor), lower=False), core=2), info]


cholesky_update_p = ffi.operation(
    "linalg_cholesky_update",
    "n n, n -> n n, ()",
    [0, jnp.int32],
    attributes={"downdate": False},
    jvp=_jvp,
    fallback=_fallback)


# The scan of rotations, and the handler that runs it backwards: kernels/small/cholesky_update.h has
# the formula. Forward mode has no handler.
cholesky_update_jvp_p, cholesky_update_vjp_p = linear_pair(
    ("linalg_cholesky_update_jvp", "n n, n, n n, n -> n n", [0]),
    ("linalg_cholesky_update_vjp", "n n, n, n n -> n n, n", [0, 1]),
    _tangent,
    constants=2,
    argument=lambda r, w: (r, w),
    attributes={"downdate": False},
    forward_handler=False)


def _weighted(r, w, weight):
  """An update and a downdate, of which one has w = 0 and keeps the factor's bits."""
  scaled = jnp.sqrt(jnp.abs(weight))[..., None].astype(w.dtype) * w
  negative = (weight < 0)[..., None]  # not of NaN, which the update takes
  factor, info = cholesky_update_p(r, jnp.where(negative, 0, scaled))
  factor, lost = cholesky_update_p(factor, jnp.where(negative, scaled, 0), downdate=True)
  return [factor, jnp.where(info != 0, info, lost)]


def _weighted_jvp(primals, tangents):
  factor, info = weighted_update_p(*primals)
  kept = _not_positive(jax.lax.stop_gradient(factor))
  _, dfactor = jax.jvp(
      lambda r, w, weight: _rotated(r, w, weight, kept), tuple(primals),
      tuple(without_none(primals, tangents)))
  known = jnp.where(info == 0, 1, jnp.nan).astype(dfactor.dtype)
  return (factor, info), (dfactor * known[..., None, None], None)


# The factor of A + weight w wᴴ, for real weights of any sign, and R with a positive diagonal.
weighted_update_p: ffi.Operation = ffi.operation(
    "cholesky_update_weighted",
    "n n, n, () -> n n, ()",
    [0, jnp.int32],
    platforms=(),
    jvp=_weighted_jvp,
    fallback=_weighted)


def _update(name, r, w, downdate):
  (r, w), dtype = as_arrays(name, r, w)
  check_square(name, r, "r")
  if w.ndim < 1 or w.shape[-1] != r.shape[-1]:
    raise incompatible(name, r, w, names=("r", "w"))
  check_batches(name, r, w, ranks=(2, 1), names=("r", "w"))
  factor, info = cholesky_update_p(r, w, downdate=bool(downdate))
  return factor.astype(dtype), info


@public("downdate")
def cholesky_update(
    r_matrix: ArrayLike, w_vector: ArrayLike, *, downdate: bool = False
) -> jax.Array:
  """The Cholesky factor of A + w wᴴ from that of A; `jax.lax.linalg.cholesky_update`, batched.

  Args:
    r_matrix: upper factors (..., n, n), A = Rᴴ R; entries below the diagonal are not read.
    w_vector: vectors (..., n). The batch shapes broadcast.
    downdate: whether to subtract w wᴴ rather than add it.

  Returns:
    The upper factors (..., n, n), with a positive diagonal. Rows that w does not change stay as
    they are in R. A factor is NaN where A - w wᴴ is not positive definite, or where the diagonal
    would hold NaN or Inf; see `cholesky_update_ex` and `checked`. For an update on CPUs, R may have
    zeros on its diagonal; on GPUs the factor is NaN then.

  float16 and bfloat16 are computed in float32, and the factor rounded.

  Algorithm: a rotation for each row, which takes O(n²) operations. A downdate takes hyperbolic ones
  in mixed form: Bojanczyk, Brent, Van Dooren and de Hoog, SIAM J. Sci. Stat. Comput. 8 (1987). GPUs
  take one triangular solve and cumulative sums, O(n²) operations too: Gill, Golub, Murray and
  Saunders (1974), method C1. Derivatives differentiate the rotations, in n steps of O(n)
  operations; on CPUs a handler takes them for gradients.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> r, w = 3 * jnp.eye(2), jnp.array([4.0, 0.0])
    >>> up = linalg.cholesky_update(r, w)
    >>> print(up.round(4))
    [[5. 0.]
     [0. 3.]]
    >>> print(linalg.cholesky_update(up, w, downdate=True).round(4))
    [[3. 0.]
     [0. 3.]]
  """
  factor, info = _update("cholesky_update", r_matrix, w_vector, downdate)
  check(info, "is not positive definite after the downdate: its leading minor "
        "of order {info} is not positive." if downdate else
        "has no updated factor: its row {info} is not finite.")
  return factor


@public("downdate")
def cholesky_update_ex(
    r_matrix: ArrayLike, w_vector: ArrayLike, *, downdate: bool = False
) -> tuple[jax.Array, jax.Array]:
  """`cholesky_update`, with what went wrong for each matrix.

  Args:
    r_matrix, w_vector, downdate: as for `cholesky_update`.

  Returns:
    (factor, info): info, int32 of shape (...), is 0 where there is a factor. Otherwise the factor
    is NaN. info is then the order of the first leading minor that is not positive (of A - w wᴴ) or
    not finite (of either matrix).

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> w = jnp.array([[0.5, 0.0], [2.0, 0.0]])
    >>> factor, info = linalg.cholesky_update_ex(jnp.eye(2), w, downdate=True)
    >>> print(info)  # I - w wᴴ is not positive definite for the second w
    [0 1]
  """
  return _update("cholesky_update_ex", r_matrix, w_vector, downdate)
