"""The recursions over the blocks of a system, as handlers and as scans.

The scans are the fallbacks of the handlers, and are differentiated for derivatives of factors. The
handlers have no derivatives of their own.
"""

import functools

import jax.numpy as jnp
from jax import lax

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  identities_like,
  nan_where,
  symmetrized,
)
from linalg._core.operands import real_dtype
from linalg._factorizations.cholesky import cholesky_p
from linalg._factorizations.matmul import product
from linalg._factorizations.solve import solve_p
from linalg._factorizations.triangular import triangular_solve_p

# The largest blocks that go to handlers. Larger ones run by a scan over the steps, with the kernels
# for one matrix in each.
MOST_ROWS = 32


def suits(platform, *types, **attributes):
  del platform, attributes
  d = types[0].shape[-1]
  return isinstance(d, int) and d <= MOST_ROWS


# Recursions as scans over the steps: the fallbacks, and what derivatives of factors come from.


def steps_first(x, core=2):
  return jnp.moveaxis(x, -core - 1, 0)


def steps_back(x, core=2):
  return jnp.moveaxis(x, 0, -core - 1)


def _after(first, rest):
  """A stack with `first` before `rest`, along its dimension 0."""
  return jnp.concatenate([first[None], rest])


def from_left(l, b, back=False):
  """L⁻¹ b, or L⁻ᴴ b."""
  return triangular_solve_p(l, b, left_side=True, lower=True, transpose_a=back, conjugate_a=back)


def _factor_steps(diagonal, lower):
  """The blocks of L, steps first, and the info of each block."""
  d, e = steps_first(symmetrized(diagonal)), steps_first(lower)
  factor = functools.partial(cholesky_p, lower=True, symmetrize=False)

  def step(l, blocks):
    d, e = blocks
    below = triangular_solve_p(
        l, e, left_side=False, lower=True, transpose_a=True, conjugate_a=True)
    l, info = factor(d - product(below, adjoint(below)))
    return l, (l, below, info)

  l, info = factor(d[0])
  _, (ls, below, infos) = lax.scan(step, l, (d[1:], e))
  return _after(l, ls), below, _after(info, infos)


def cholesky_scan(diagonal, lower):
  if diagonal.shape[-3] == 0 or diagonal.shape[-1] == 0:
    none = jnp.sum(diagonal, axis=(-3, -2, -1))
    return [diagonal, lower, none.real, none.real.astype(jnp.int32)]
  l, below, infos = _factor_steps(diagonal, lower)
  steps, d = l.shape[0], l.shape[-1]
  rows = d * jnp.arange(steps, dtype=jnp.int32).reshape((steps,) + (1,) * (infos.ndim - 1))
  info = jnp.min(jnp.where(infos != 0, rows + infos, steps * d + 1), axis=0)
  info = jnp.where(info > steps * d, 0, info)
  failed = info != 0
  logdet = 2 * jnp.sum(jnp.log(diagonal_of(l).real), axis=(0, -1))
  return [
      nan_where(failed, steps_back(l), 3), nan_where(failed, steps_back(below), 3),
      nan_where(failed, logdet, 0), info]


cholesky_blocks_p = ffi.operation(
    "linalg_block_tridiagonal_cholesky",
    "t d d, s d d -> t d d, s d d, (), ()",
    lambda diagonal, lower: [diagonal, lower, real_dtype(diagonal), jnp.int32],
    suits=suits,
    fallback=cholesky_scan)


def solve_scan(l, below, b, *, forward, back):
  if b.size == 0:
    return [b]
  batch = jnp.broadcast_shapes(l.shape[:-3], b.shape[:-3])
  l, below = (
      steps_first(jnp.broadcast_to(x, (*batch, *x.shape[-3:]))) for x in (l, below))
  x = steps_first(b)
  if forward:
    def step(y, blocks):
      l, below, b = blocks
      y = from_left(l, b - product(below, y))
      return y, y

    y = from_left(l[0], x[0])
    _, rest = lax.scan(step, y, (l[1:], below, x[1:]))
    x = _after(y, rest)
  if back:
    def step_back(x, blocks):
      l, below, y = blocks
      x = from_left(l, y - product(below, x, adjoint_a=True), back=True)
      return x, x

    last = from_left(l[-1], x[-1], back=True)
    _, rest = lax.scan(step_back, last, (l[:-1], below, x[:-1]), reverse=True)
    x = jnp.concatenate([rest, last[None]])
  return [steps_back(x)]


# L⁻¹ b (forward), L⁻ᴴ b (back) or both.
factor_solve_p = ffi.operation(
    "linalg_block_tridiagonal_factor_solve",
    "t d d, s d d, t d k -> t d k",
    [2],
    attributes={"forward": True, "back": True},
    shared=[0, 1],
    suits=suits,
    fallback=solve_scan)


def inverse_scan(l, below):
  if l.size == 0:
    return [l, below]
  l, below = steps_first(l), steps_first(below)

  def step(inverse, blocks):
    l, below = blocks
    w = from_left(l, identities_like(l))
    g = product(below, w)
    off = -product(inverse, g)
    inverse = product(w, w, adjoint_a=True) - product(g, off, adjoint_a=True)
    return inverse, (inverse, off)

  w = from_left(l[-1], identities_like(l[-1]))
  last = product(w, w, adjoint_a=True)
  _, (inverse, off) = lax.scan(step, last, (l[:-1], below), reverse=True)
  inverse = jnp.concatenate([inverse, last[None]])
  return [steps_back(symmetrized(inverse)), steps_back(off)]


inverse_of_factor_p = ffi.operation(
    "linalg_block_tridiagonal_inverse_blocks",
    "t d d, s d d -> t d d, s d d",
    [0, 1],
    suits=suits,
    fallback=inverse_scan)


def padded(blocks, x):
  """The blocks beside all steps of `x` but one, with a zero block at the end."""
  missing = x.shape[-3] - blocks.shape[-3]
  return jnp.pad(blocks, ((0, 0),) * (blocks.ndim - 3) + ((0, missing), (0, 0), (0, 0)))


def general_scan(lower, diagonal, upper, b):
  steps, d = diagonal.shape[-3], diagonal.shape[-1]
  if steps == 0 or d == 0:
    return [b, jnp.sum(diagonal, axis=(-3, -2, -1)).real.astype(jnp.int32)]
  beside = jnp.concatenate([padded(upper, diagonal), b], axis=-1)

  def step(previous, blocks):
    below, a, right = blocks
    change = product(below, previous)
    solution, info = solve_p(
        a - change[..., :d],
        jnp.concatenate([right[..., :d], right[..., d:] - change[..., d:]], axis=-1))
    return solution, (solution, info)

  lower, a, right = map(steps_first, (lower, diagonal, beside))
  first, info = solve_p(a[0], right[0])
  _, (solutions, infos) = lax.scan(step, first, (lower, a[1:], right[1:]))
  solutions, infos = _after(first, solutions), _after(info, infos)

  def step_back(x, solution):
    x = solution[..., d:] - product(solution[..., :d], x)
    return x, x

  last = solutions[-1][..., d:]
  _, rest = lax.scan(step_back, last, solutions[:-1], reverse=True)
  x = jnp.concatenate([rest, last[None]])
  # After a block that is singular, the later ones are NaN, with an info of their own.
  rows = d * jnp.arange(steps, dtype=jnp.int32).reshape((steps,) + (1,) * (infos.ndim - 1))
  is_first = (infos != 0) & (jnp.cumsum(infos != 0, axis=0) == 1)
  info = jnp.sum(jnp.where(is_first, jnp.where(infos > 0, rows + infos, infos), 0), axis=0)
  return [nan_where(info != 0, steps_back(x), 3), info.astype(jnp.int32)]


