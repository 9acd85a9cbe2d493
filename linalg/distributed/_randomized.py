"""The largest singular values of matrices whose rows are sharded, from a random sketch."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

import linalg
from linalg._core.algebra import (
    adjoint,
    diagonal_of,
    one_of_first_order,
    reciprocal_gaps,
    zeros_like,
)
from linalg._core.operands import as_arrays, check_matrix, real_dtype
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.qr import qr_p
from linalg._factorizations.svd import ones_of_values
from linalg.distributed._layout import rows_of
from linalg.distributed._tall import Rows, orthonormal


class RandomizedSVDResult(NamedTuple):
  """The largest singular values S and their vectors, A ≈ U diag(S) Vh, and the error of this."""

  U: jax.Array
  S: jax.Array
  Vh: jax.Array
  error: jax.Array


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _triplets(rows: Rows, iterations, a, test):
  """U, S and V of the projection of A onto the range of (A Aᴴ)^iterations A `test`."""

  def body(a, test):
    gathered = lambda q: lax.psum(product(a, q, adjoint_a=True), rows.axes)

    def iterate(_, q):
      return orthonormal(product(a, qr_p(gathered(q))[0]), rows.axes)

    q = orthonormal(product(a, test), rows.axes)
    q = lax.fori_loop(0, iterations, iterate, q)
    return q, gathered(q)

  q, projected = rows.map(body, "ra", "rs", a, test)
  v, s, uh = linalg.svd(projected, full_matrices=False)
  return rows.outer(q, adjoint(uh)), s, v


@_triplets.defjvp
def _triplets_jvp(rows, iterations, primals, tangents):
  # Let P = Uᴴ dA V. Then dS = Re diag P, dU = U (T + R) / 2 + M and dV = V (T - R) / 2 + N, as for
  # all singular vectors (svd.py). Tᵢⱼ = (P + Pᴴ)ᵢⱼ / (sⱼ - sᵢ) and Rᵢⱼ = (P - Pᴴ)ᵢⱼ / (sⱼ + sᵢ). M
  # = (I - U Uᴴ) (dA V + A dV) / S and N = (I - V Vᴴ) (dAᴴ U + Aᴴ M) / S hold the change out of the
  # range. These are iterated. Pᴴ is iterated too, since it is exact only for exact U and V. Each
  # iteration reduces the error by the square of the first singular value left out over sⱼ, as an
  # iteration of the range does.
  (a, test), (da, _) = primals, tangents
  u, s, v = _triplets(rows, iterations, a, test)
  forward, back = rows.outer(da, v), rows.inner(da, u)
  p = rows.inner(u, forward)
  row, column = s[..., None, :], s[..., :, None]
  norm = jnp.max(row, axis=-1, initial=0, keepdims=True)
  ones = ones_of_values(s, with_zero=False)
  one = one_of_first_order(ones)[..., None]
  inverse_of = lambda x: (
      one * reciprocal_gaps(x, norm, s.shape[-1])).astype(p.dtype)
  together, apart, inverse = map(inverse_of, (row - column, row + column, row))

  def inside(sign, other):
    return ((p + other) * together + sign * (p - other) * apart) / 2

  def turn(_, known):
    _, dv, _ = known
    x = forward + rows.outer(a, dv)
    m = (x - rows.outer(u, rows.inner(u, x))) * inverse
    y = back + rows.inner(a, m)
    other = product(v, y, adjoint_a=True)
    n = (y - product(v, other)) * inverse
    return m, product(v, inside(-1, other)) + n, other

  start = zeros_like(forward), product(v, inside(-1, adjoint(p))), adjoint(p)
  m, dv, other = lax.fori_loop(0, iterations + 1, turn, start)
  return (u, s, v), (
      rows.outer(u, inside(1, other)) + m, ones * diagonal_of(p).real, dv)


def _error(rows, a, u, s, vh):
  """‖A - U diag(S) Vh‖, scaled by the largest singular value, because squares may overflow."""
  scale = jnp.where(s[..., :1] > 0, s[..., :1], 1)[..., None]

  def body(a, u, small, scale):
    rest = (a - product(u, small)) / scale.astype(a.dtype)
    return lax.psum(jnp.sum(jnp.abs(rest) ** 2, axis=(-2, -1), keepdims=True), rows.axes)

  small = s[..., :, None].astype(vh.dtype) * vh
  return (scale * jnp.sqrt(rows.map(body, "rrss", "s", a, u, small, scale)))[..., 0, 0]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _randomized_svd(rows, rank, width, iterations, a, key):
  test = jax.random.normal(key, (a.shape[-1], width), a.dtype)
  even = rows.even(a)
  u, s, v = _triplets(rows, iterations, even, test)
  u, s, vh = u[..., :rank], s[..., :rank], adjoint(v[..., :rank])
  error = _error(rows, *map(lax.stop_gradient, (even, u, s, vh)))
  return u[..., : rows.height, :], s, vh, error


@public("rank", "oversampling", "power_iterations", "axes", compiled=False)
def randomized_svd(
    a: ArrayLike, rank: int, key: ArrayLike, *, oversampling: int = 10, power_iterations: int = 2,
    axes: str | tuple[str, ...] | PartitionSpec | None = None
) -> RandomizedSVDResult:
  """The largest singular values and their vectors, of matrices whose rows are sharded.

  If the columns of the data have been centered, these are its principal components.

  Args:
    a: matrices (..., m, n) of any shape, as for `qr`.
    rank: the number of singular values.
    key: as from `jax.random.key`. The matrices of a batch have the same random numbers.
    oversampling: the number of additional values that are computed, for accuracy.
    power_iterations: how often the sketch is multiplied by A Aᴴ. Each costs as much as the rest.
    axes: as for `qr`.

  Returns:
    RandomizedSVDResult(U, S, Vh, error): U (..., m, rank), sharded as A is; S (..., rank),
    descending, Vh (..., rank, n) and error (...), on all devices. A matrix that holds NaN or Inf
    has NaN.

  `error` is the Frobenius norm ‖A - U diag(S) Vh‖, as computed. It bounds the spectral norm too. No
  singular value is less than the true one by more than `error`, nor larger, up to rounding.

  Let l = rank + oversampling be the number of columns. Without power iterations, the computed range
  leaves out more of A than the best one of that rank. The factor is √(1 + rank / (oversampling -
  1)), in the mean of its square; Halko, Martinsson and Tropp, theorem 10.5. Where l >= n, the
  decomposition is that of `svd`.

  Algorithm: Halko, Martinsson and Tropp, Finding structure with randomness: probabilistic
  algorithms for constructing approximate matrix decompositions, SIAM Rev. 53 (2011), algorithm 4.4,
  with TSQR between the products. A device receives (power_iterations + 1) (n l + P l²) numbers of P
  <= 8 devices.

  Derivatives, of any order, are those of the exact singular values and vectors. They need the first
  `rank` values to differ from each other and from the later ones. Their accuracy depends on the
  power iterations. First derivatives are about as accurate as the values, second ones less, by the
  ratio of the singular values at l. `error` is a constant to derivatives.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.random.normal(jax.random.key(0), (64, 2), out_sharding=jax.P("x"))
    ...   u, s, vh, error = dist.randomized_svd(a @ jnp.ones((2, 32)), 1, jax.random.key(1))
    ...   print(u.shape, s.shape, vh.shape, bool(error < 1e-3))
    (64, 1) (1,) (1, 32) True
  """
  (a,), dtype = as_arrays("randomized_svd", a)
  check_matrix("randomized_svd", a)
  most = min(a.shape[-2:])
  if not 1 <= rank <= most:
    raise ValueError(f"randomized_svd: rank={rank} must be from 1 to {most}, of {a.shape}.")
  if oversampling < 0 or power_iterations < 0:
    raise ValueError(
        f"randomized_svd: {oversampling=} and {power_iterations=} must not be negative.")
  rows = Rows(rows_of("randomized_svd", a, axes, any_shape=True), *a.shape[-2:])
  width = min(rank + oversampling, most)
  u, s, vh, error = _randomized_svd(rows, rank, width, power_iterations, a, key)
  real = real_dtype(dtype)
  return RandomizedSVDResult(
      u.astype(dtype), s.astype(real), vh.astype(dtype), error.astype(real))
