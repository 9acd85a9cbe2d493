"""Long positive definite systems in chunks, which are factored side by side.

One block after each chunk separates it from the next. The chunks without their separators are a
batch of systems. After their elimination, a block-tridiagonal matrix of the separators is left
(Wang, A parallel method for tridiagonal equations, 1981). The number of chunks depends on the
number of steps alone, so the bits depend neither on the batch nor on the threads.

A part of a matrix in chunks has the shape (..., p, w, d, d): p chunks of w blocks, of which the
last is the separator. Identity blocks fill the last chunks.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from linalg import ffi
from linalg._core.algebra import adjoint, expand, nan_where, symmetrized, zeros_like
from linalg._core.operands import real_dtype
from linalg._factorizations.matmul import product, steady_matmul_p
from linalg.structured._steps import (
  cholesky_blocks_p,
  cholesky_scan,
  factor_solve_p,
  from_left,
  inverse_of_factor_p,
  inverse_scan,
  solve_scan,
  suits,
)

# Systems of fewer steps are not divided.
LONG = 4096
# A solution with log det A alone is divided from here on where threads are many, as on a GPU. One
# system in turn would leave all of them but a warp idle.
LONG_OFF_CPU = 1024


def chunk_width(steps: int) -> int:
  """The steps of a chunk with its separator, about √T.

  kernels/block_tridiagonal_shape.h has the same rule.
  """
  return 1 + steps // (1 << (steps.bit_length() // 2))


def is_long(steps: int) -> bool:
  return steps >= LONG


class Recursions(NamedTuple):
  """The recursions over steps, and products of blocks."""

  factor: Callable[..., Any]
  solve: Callable[..., jax.Array]
  inverse: Callable[..., Any]
  times: Callable[[jax.Array, jax.Array], jax.Array]
  adjoint_times: Callable[[jax.Array, jax.Array], jax.Array]


HANDLERS = Recursions(
    cholesky_blocks_p, factor_solve_p, inverse_of_factor_p, steady_matmul_p.plain,
    lambda a, b: steady_matmul_p.transpose_a(a, b, conjugate_a=jnp.iscomplexobj(a)))
SCANS = Recursions(
    cholesky_scan, lambda *operands, **flags: solve_scan(*operands, **flags)[0], inverse_scan,
    product, lambda a, b: product(a, b, adjoint_a=True))


def _padded(x, before, after):
  """Zero blocks before and after a stack of blocks."""
  return jnp.pad(x, ((0, 0),) * (x.ndim - 3) + ((before, after), (0, 0), (0, 0)))


def _previous(x):
  """The block of the chunk before, and zero for the first chunk."""
  return _padded(x[..., :-1, :, :], 1, 0)


def _next(x):
  return _padded(x[..., 1:, :, :], 0, 1)


def _cut(x, steps, is_diagonal=False):
  """The blocks of a matrix or right-hand side of so many steps in chunks."""
  width = chunk_width(steps)
  count = steps // width + 1
  x = _padded(x, 0, count * width - x.shape[-3])
  if is_diagonal:
    added = jnp.arange(count * width)[:, None, None] >= steps
    eye = jnp.where(added, jnp.eye(x.shape[-1], dtype=x.dtype), jnp.zeros((), x.dtype))
    x = x + expand(eye, x)
  return x.reshape(*x.shape[:-3], count, width, *x.shape[-2:])


def _joined(x, steps):
  x = x.reshape(*x.shape[:-4], x.shape[-4] * x.shape[-3], *x.shape[-2:])
  return x[..., :steps, :, :]


def _tall(x):
  """The blocks of a chunk one above the other."""
  return x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])


def _row(info, of_separators, width, d):
  """The info of a system, given those of its chunks and of the reduced system.

  A chunk that fails spoils the separators from the one before it on.
  """
  index = jax.lax.broadcasted_iota(jnp.int32, info.shape, info.ndim - 1)
  none = info.shape[-1] + 1
  chunk = jnp.min(jnp.where(info > 0, index, none), axis=-1)
  row = jnp.sum(
      jnp.where(index == chunk[..., None], index * (width * d) + info, 0), axis=-1, dtype=jnp.int32)
  separator, inside = (of_separators - 1) // d, (of_separators - 1) % d
  last = (separator * width + width - 1) * d + inside + 1
  return jnp.where((of_separators > 0) & (separator + 1 < chunk), last, row)


class _Parts(NamedTuple):
  """L of the chunks; their fill, L⁻¹ times the block on the left of the chunk, and corner, L⁻¹
  times that on the right; and L of the reduced system."""

  l: jax.Array
  below: jax.Array
  fill: jax.Array
  corner: jax.Array
  l_last: jax.Array
  below_last: jax.Array


def _packed(parts, steps):
  """The factor as the handlers have it: the blocks of L where A's blocks were, and the fill.

  Beside a separator, the blocks below the diagonal couple it with the separator before.
  """
  between = _padded(parts.below_last, 0, 1)
  l = jnp.concatenate([parts.l, parts.l_last[..., None, :, :]], axis=-3)
  below = jnp.concatenate([
      parts.below, adjoint(parts.corner)[..., None, :, :], between[..., None, :, :]], axis=-3)
  fill = jnp.concatenate([parts.fill, zeros_like(parts.fill[..., :1, :, :])], axis=-3)
  return _joined(l, steps), _joined(below, steps - 1), _joined(fill, steps)


def _unpacked(l, below, fill):
  steps = l.shape[-3]
  l, below, fill = _cut(l, steps, is_diagonal=True), _cut(below, steps), _cut(fill, steps)
  return _Parts(
      l[..., :-1, :, :], below[..., :-2, :, :], fill[..., :-1, :, :],
      adjoint(below[..., -2, :, :]), l[..., -1, :, :], below[..., :-1, -1, :, :])


def factor(recursions: Recursions, diagonal: jax.Array, lower: jax.Array) -> Any:
  """The factor (L on the diagonal, L below it, the fill), log det A, and info."""
  steps, d = diagonal.shape[-3:-1]
  blocks, beside = _cut(symmetrized(diagonal), steps, is_diagonal=True), _cut(lower, steps)
  l, below, logdet, info = recursions.factor(
      blocks[..., :-1, :, :], beside[..., :-2, :, :])
  left = _previous(beside[..., -1, :, :])
  start = _padded(left[..., None, :, :], 0, l.shape[-3] - 1)
  fill = recursions.solve(l, below, start, forward=True, back=False)
  corner = from_left(l[..., -1, :, :], adjoint(beside[..., -2, :, :]))
  own = (
      blocks[..., -1, :, :] - recursions.adjoint_times(corner, corner)
      - _next(recursions.adjoint_times(_tall(fill), _tall(fill))))
  coupling = -recursions.adjoint_times(corner, fill[..., -1, :, :])
  l_last, below_last, logdet_last, info_last = recursions.factor(own, coupling[..., 1:, :, :])
  ones = zeros_like(logdet[..., None]) + 1
  total = recursions.adjoint_times(ones, logdet[..., None])[..., 0, 0]
  row = _row(info, info_last, blocks.shape[-3], d)
  parts = _Parts(l, below, fill, corner, l_last, below_last)
  # A chunk is finite beside another one that failed.
  factors = tuple(nan_where(row != 0, x, 3) for x in _packed(parts, steps))
  return factors, total + logdet_last, row


def solve(
    recursions: Recursions, l: jax.Array, below: jax.Array, fill: jax.Array, b: jax.Array, *,
    forward: bool, back: bool
) -> jax.Array:
  """W⁻¹ b (forward), W⁻ᴴ b (back) or both, for the factor A = W Wᴴ."""
  steps = b.shape[-3]
  l, below, fill, corner, l_last, below_last = _unpacked(l, below, fill)
  b = _cut(b, steps)
  x, last = b[..., :-1, :, :], b[..., -1, :, :]
  if forward:
    x = recursions.solve(l, below, x, forward=True, back=False)
    last = (
        last - recursions.adjoint_times(corner, x[..., -1, :, :])
        - _next(recursions.adjoint_times(_tall(fill), _tall(x))))
  last = recursions.solve(l_last, below_last, last, forward=forward, back=back)
  if back:
    shape = x.shape
    x = (_tall(x) - recursions.times(_tall(fill), _previous(last))).reshape(shape)
    end = x[..., -1:, :, :] - recursions.times(corner, last)[..., None, :, :]
    x = jnp.concatenate([x[..., :-1, :, :], end], axis=-3)
    x = recursions.solve(l, below, x, forward=False, back=True)
  return _joined(jnp.concatenate([x, last[..., None, :, :]], axis=-3), steps)


def inverse(recursions: Recursions, l: jax.Array, below: jax.Array, fill: jax.Array) -> Any:
  """The blocks of A⁻¹ on its diagonal and below it, for the factor of chunks.

  Let a chunk have the matrix A_II and the couplings A_IB with the separators B on both sides, and
  G = A_II⁻¹ A_IB. Then the block of A⁻¹ at I is A_II⁻¹ + G S Gᴴ, and that at I and B is -G S, with
  the block S at the separators.
  """
  steps, d = l.shape[-3], l.shape[-1]
  l, below, fill, corner, l_last, below_last = _unpacked(l, below, fill)
  own, off = recursions.inverse(l, below)
  last, beside = recursions.inverse(l_last, below_last)
  between = _padded(beside, 1, 0)  # of a separator and the one before it
  rows = [
      jnp.concatenate([_previous(last), adjoint(between)], axis=-1),
      jnp.concatenate([between, last], axis=-1)]
  corners = _padded(corner[..., None, :, :], l.shape[-3] - 1, 0)
  g = recursions.solve(
      l, below, jnp.concatenate([fill, corners], axis=-1), forward=False, back=True)
  shape = g.shape
  s = jnp.concatenate(rows, axis=-2)
  moved = recursions.times(_tall(g), s).reshape(shape)  # G S
  times_adjoint = lambda x, y: recursions.times(x, adjoint(y))
  own = symmetrized(own + times_adjoint(moved, g))
  off = off + times_adjoint(moved[..., 1:, :, :], g[..., :-1, :, :])
  after = -adjoint(moved[..., -1, :, d:])  # of the separator after a chunk and its last step
  before = -moved[..., 0, :, :d]  # of a chunk's first step and the separator before it
  diagonal = jnp.concatenate([own, last[..., None, :, :]], axis=-3)
  lower = jnp.concatenate(
      [off, after[..., None, :, :], _next(before)[..., None, :, :]], axis=-3)
  return [_joined(diagonal, steps), _joined(lower, steps - 1)]


_chunks_p = ffi.operation(
    "linalg_block_tridiagonal_chunks",
    "t d d, s d d -> t d d, s d d, t d d, (), ()",
    lambda diagonal, lower: [diagonal, lower, diagonal, real_dtype(diagonal), jnp.int32],
    suits=suits,
    fallback=lambda *blocks: _listed(factor(HANDLERS, *blocks)))
_chunks_solve_p = ffi.operation(
    "linalg_block_tridiagonal_chunks_solve",
    "t d d, s d d, t d d, t d k -> t d k",
    [3],
    attributes={"forward": True, "back": True},
    shared=[0, 1, 2],
    suits=suits,
    fallback=lambda *operands, **flags: [solve(HANDLERS, *operands, **flags)])


def _listed(found):
  factors, logdet, info = found
  return [*factors, logdet, info]


def _factor_by_handler(diagonal, lower):
  *factors, logdet, info = _chunks_p(diagonal, lower)
  return tuple(factors), logdet, info


# (factor, solve) by handlers, and as differentiable functions.
OF_CHUNKS = (_factor_by_handler, _chunks_solve_p)
OF_CHUNKS_BY_SCANS = (functools.partial(factor, SCANS), functools.partial(solve, SCANS))
