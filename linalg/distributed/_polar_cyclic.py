"""The polar factors of square matrices in the block-cyclic layout, with derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import linalg.distributed._algorithms as algorithms
from linalg import ffi
from linalg._core.algebra import binade, minus
from linalg.distributed._cyclic import Cyclic
from linalg.distributed._eigh import decompose_eigh
from linalg.distributed._qr_cyclic import orthogonal_factor, zero_of
from linalg.distributed._reflectors import Spectrum, grid_of_reflectors
from linalg.distributed._shared import (
  from_blocks,
  multiply,
  of_square,
  times_transposed,
  to_blocks,
  transposed_times,
)
from linalg.distributed._slices import take

# Fewer phases than for QR alone: several factorizations are compiled.
_PHASES = 4
# From here on, Cholesky factors of I + c Xᴴ X are as accurate as QR.
_CHOLESKY = 100.0


@functools.cache
def coefficients(least: float, eps: float) -> list[tuple[float, float, float]]:
  """a, b and c of each step, for singular values from `least` to 1.

  A step takes x to x (a + b x²) / (1 + c x²). Nakatsukasa, Bai and Gygi, Optimizing Halley's
  iteration for computing the matrix polar decomposition, SIAM J. Matrix Anal. Appl. 31 (2010).
  """
  found = []
  while 1 - least > eps:
    square = least * least
    d = np.cbrt(4 * (1 - square) / (square * square))
    a = np.sqrt(1 + d) + np.sqrt(8 - 4 * d + 8 * (2 - square) / (square * np.sqrt(1 + d))) / 2
    b = (a - 1) ** 2 / 4
    c = a + b - 1
    found.append((float(a), float(b), float(c)))
    least = min(least * (a + b * square) / (1 + c * square), 1.0)
  return found


def _spread(row, column, dtype):
  """Numbers in [-1/2, 1/2) from hashes of the indices of entries: Murmur3's final mix."""
  x = row.astype(jnp.uint32) * np.uint32(0x9E3779B1) ^ column.astype(jnp.uint32) * np.uint32(
      0x85EBCA77)
  for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
    x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
  return ((x >> np.uint32(8)).astype(jnp.float32) / 2**24 - 0.5).astype(dtype)


def _by_qr(g, x, a, b, c):
  """X (a + b Xᴴ X) (1 + c Xᴴ X)⁻¹, by the QR factors of √c X above an identity."""
  root = jnp.sqrt(c)
  eye = algorithms.identity(g, x)
  stack = jnp.concatenate([root * x, eye], axis=0)
  q = orthogonal_factor(g._replace(height=g.padded + g.n, most_phases=_PHASES), stack)
  upper, lower = q[: x.shape[0]], q[x.shape[0] :]
  return b / c * x + (a - b / c) / root * times_transposed(g, upper, lower.conj())


def _by_cholesky(g, x, a, b, c):
  eye = algorithms.identity(g, x)
  l, _ = algorithms.factor(g, eye + c * transposed_times(g, x.conj(), x), zero_of(g, x))
  y = algorithms.solve(g, l.conj(), x, left=False, transpose=True)
  y = algorithms.solve(g, l, y, left=False, transpose=False)
  return b / c * x + (a - b / c) * y


def symmetrized(g: Cyclic, x: jax.Array) -> jax.Array:
  """(X + Xᴴ) / 2."""
  return g.add_adjoint(algorithms.folded(g, x / 2), upper=False)


def factors(g: Cyclic, a: jax.Array) -> tuple[jax.Array, jax.Array]:
  """U and P of A = U P, by the QDWH iteration.

  It begins with A and random numbers of less than eps ‖A‖, so that a singular matrix has a
  unitary U too.
  """
  g = g._replace(height=None, most_phases=_PHASES)
  spoilt = lax.pmax((~jnp.isfinite(a).all()).astype(jnp.int32), g.axes) != 0
  scale = binade(lax.pmax(jnp.max(jnp.abs(a)), g.axes))
  a = a / scale.astype(a.dtype)
  norm = jnp.sqrt(lax.psum(jnp.sum((a * a.conj()).real), g.axes))
  row, column = g.numbers()
  eps = float(jnp.finfo(norm.dtype).eps)
  noise = jnp.where((row < g.n) & (column < g.n), _spread(row, column, norm.dtype), 0)
  x = a / jnp.where(norm == 0, 1, norm).astype(a.dtype)
  x = x + (noise * (eps / max(g.n, 1) ** 0.5)).astype(a.dtype)
  steps = coefficients(eps / (256 * max(g.n, 1)), 4 * eps)
  count = sum(c > _CHOLESKY for _, _, c in steps)
  table = jnp.asarray(np.asarray(steps), norm.dtype)
  for body, first, last in ((_by_qr, 0, count), (_by_cholesky, count, len(steps))):

    def step(i, x, body=body):
      return body(g, x, *[table[i, j].astype(x.dtype) for j in range(3)])

    x = lax.fori_loop(first, last, step, x)
  p = symmetrized(g, transposed_times(g, x.conj(), a)) * scale.astype(a.dtype)
  return jnp.where(spoilt, jnp.nan, x), jnp.where(spoilt, jnp.nan, p)


def _polar_jvp(primals, tangents, *, shared):
  # The rule of linalg.polar: let K = Uᴴ dA. Then dU = U Ω, where P Ω + Ω P = K - Kᴴ, and dP = K - Ω
  # P.
  (a,), (da,) = primals, tangents
  u, p = polar_p(a, shared=shared)
  k = multiply(shared, u.conj(), da, (True, False))
  skew = 2 * (k - symmetrized_p(k, shared=shared))
  turn = lyapunov_p(p, skew, shared=shared)
  dp = symmetrized_p(k - multiply(shared, turn, p), shared=shared)
  return (u, p), (multiply(shared, u, turn), dp)


def _polar(a, *, shared):
  return shared.map(functools.partial(factors, shared.grid), "c", "cc", a)


polar_p: ffi.Operation = ffi.operation(
    "linalg_distributed_polar", "h w -> h w, h w", [0, 0], attributes={"shared": None},
    platforms=(), jvp=_polar_jvp, fallback=_polar)


def _lyapunov_jvp(primals, tangents, *, shared):
  (p, s), (dp, ds) = primals, tangents
  x = lyapunov_p(p, s, shared=shared)
  if dp is not None:
    ds = minus(ds, multiply(shared, dp, x) + multiply(shared, x, dp))
  return x, lyapunov_p(p, ds, shared=shared)


def _lyapunov_transpose(cotangents, operands, *, shared):
  # The transpose of S -> X is the solution with Pᵀ.
  (ct,), (p, _) = cotangents, operands
  return None, lyapunov_p(p.conj(), ct, shared=shared)


def _over_sums(shared, c, w):
  """C with each entry divided by the sum of two eigenvalues. Zeros of C remain zeros."""
  g = shared.grid

  def body(c, w):
    row, column = g.numbers()
    inside = (row < g.n) & (column < g.n)
    first, second = (take(w, jnp.minimum(x, g.n - 1), 0) for x in (row, column))
    # Both may be 0 on the diagonal of a singular P, where a real C is 0.
    total = jnp.where(c != 0, (first + second).astype(c.dtype), 1)
    return jnp.where(inside & (c != 0), c / total, 0)

  return shared.map(body, "cv", "c", c, w)


def _lyapunov(p, s, *, shared):
  # X = V ((Vᴴ S V) / (wᵢ + wⱼ)) Vᴴ, with the eigenvalues w and eigenvectors V of P. A real S has
  # a zero diagonal in any basis, where the sums may vanish.
  g = shared.grid
  shared = shared._replace(batch=((),) * (p.ndim - 3 - len(shared.batch)) + shared.batch)
  grid = grid_of_reflectors(g.layout, g.n, g.most_phases)
  w, v, _ = decompose_eigh(Spectrum(grid, 0, g.n), shared, from_blocks(shared, p))
  v = to_blocks(shared, v)
  c = multiply(shared, v.conj(), multiply(shared, s, v), (True, False))
  if not jnp.iscomplexobj(c):
    c = c - symmetrized_p(c, shared=shared)
  x = multiply(shared, v, _over_sums(shared, c, w))
  return [multiply(shared, x, v.conj(), (False, True))]


# X of P X + X P = S, for positive definite P and skew-Hermitian S.
lyapunov_p: ffi.Operation = ffi.operation(
    "linalg_distributed_shared_lyapunov", "h w, h w -> h w", [0], attributes={"shared": None},
    platforms=(), jvp=_lyapunov_jvp, transpose=_lyapunov_transpose, fallback=_lyapunov)

# It is its own transpose.
symmetrized_p: ffi.Operation = of_square("symmetrized", symmetrized, lambda: symmetrized_p)

