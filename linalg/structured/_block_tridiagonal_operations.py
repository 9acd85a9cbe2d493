"""Operations on block-tridiagonal matrices and their factors, with their derivatives."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

import linalg.structured._partition as partition
from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  plus,
  solution_tangent,
  symmetrized,
  without_none,
  zeros_like,
)
from linalg._core.linear_rules import linear_pair
from linalg._core.operands import real_dtype
from linalg._factorizations.matmul import product
from linalg.structured._steps import general_scan, padded, suits

# Functions of A that are computed from its factors. They are differentiated by A's blocks D and E;
# the factors are constants to the rules.


def _next(x):
  """The block of the step after, and zero at the last one."""
  return jnp.concatenate([x[..., 1:, :, :], zeros_like(x[..., :1, :, :])], axis=-3)


def before(x):
  return jnp.concatenate([zeros_like(x[..., :1, :, :]), x[..., :-1, :, :]], axis=-3)


def _times(a, x, adjoint_a=False):
  """a x for stacks of blocks. XLA fuses the sum for a vector with what surrounds it."""
  if x.shape[-1] != 1:
    return product(a, x, adjoint_a=adjoint_a)
  a, x = ffi.broadcast_batches("block_tridiagonal", [a, x], [3, 3])
  a = adjoint(a) if adjoint_a else a
  return jnp.sum(a * x.mT, axis=-1, keepdims=True)


def _multiply(diagonal, lower, x):
  """A x, where None among the blocks is zero."""
  terms = []
  if diagonal is not None:
    terms.append(_times(symmetrized(diagonal), x))
  if lower is not None and x.shape[-3] > 1:
    lower = padded(lower, x)
    terms += [before(_times(lower, x)), _times(lower, _next(x), adjoint_a=True)]
  return functools.reduce(jnp.add, terms) if terms else zeros_like(x)


def _logdet_tangent(inverse, dd, de):
  # d log det A = tr(A⁻¹ dA). Blocks of dA outside the band are zero.
  own, off = inverse
  moved = None
  if dd is not None:
    moved = jnp.sum((own.conj() * dd).real, axis=(-3, -2, -1))
  if de is not None:
    moved = plus(moved, 2 * jnp.sum((off.conj() * de).real, axis=(-3, -2, -1)))
  return moved


class _Operations(NamedTuple):
  """Functions of factors of one kind, and the factorisation."""

  factor: Callable[..., Any]
  solve: ffi.Operation
  half: ffi.Operation
  inverse: ffi.Operation
  logdet: ffi.Operation


def _make_operations(kind, signature, handlers, scans, inverse) -> _Operations:
  """The operations on factors of one kind.

  Args:
    kind: for their names.
    signature: the shapes of the factors.
    handlers: (factor, solve). The first takes A's blocks and returns the factors, log det A and
      info. The second takes the factors and b.
    scans: the same as differentiable functions.
    inverse: the blocks of A⁻¹, from A's blocks and the factors.
  """
  factor, solve = handlers
  of_a = "t d d, s d d, " + signature
  count = of_a.count(",") + 1

  def operation(name, rest, dtypes, value, jvp, **options):
    return ffi.operation(
        f"block_tridiagonal_{name}{kind}", of_a + rest, dtypes, platforms=(), jvp=jvp,
        fallback=lambda *operands, **attributes: list(value(*operands, **attributes)), **options)

  def solve_jvp(primals, tangents):
    # A dx = db - dA x
    *known, b = primals
    dd, de, *_, db = tangents
    again = functools.partial(solve_p, *known)
    x = again(b)
    da = None if dd is None and de is None else (dd, de)
    return x, solution_tangent(again, da, db, lambda da: _multiply(da[0], da[1], x))

  def solve_transpose(cotangents, operands):
    # A is Hermitian, so its transpose is its conjugate.
    x = solve_p(*operands[:count], cotangents[0].conj()).conj()
    return *(None,) * count, x

  solve_p: ffi.Operation = operation(
      "solve", ", t d k -> t d k", [count],
      lambda d, e, *operands: [solve(*operands, forward=True, back=True)],
      solve_jvp, transpose=solve_transpose, shared=range(count))

  def along(function, primals, tangents):
    """The tangents of a function of A's blocks."""
    blocks = tuple(primals[:2])
    return jax.jvp(function, blocks, tuple(without_none(blocks, tangents[:2])))[1]

  def half_jvp(primals, tangents, *, back):
    *known, b = primals
    dd, de, *_, db = tangents
    x = half_p(*primals, back=back)
    moved = None if db is None else half_p(*known, db, back=back)
    if dd is not None or de is not None:
      again = lambda *blocks: scans[1](*scans[0](*blocks)[0], b, forward=not back, back=back)
      change = along(again, primals, tangents)
      moved = plus(moved, change)
    return x, moved

  def half_transpose(cotangents, operands, *, back):
    # The transpose of W⁻¹ is the conjugate of W⁻ᴴ.
    x = half_p(*operands[:count], cotangents[0].conj(), back=not back).conj()
    return *(None,) * count, x

  half_p: ffi.Operation = operation(
      "half_solve", ", t d k -> t d k", [count],
      lambda d, e, *operands, back: [solve(*operands, forward=not back, back=back)],
      half_jvp, transpose=half_transpose, shared=range(count), attributes={"back": False})

  def inverse_jvp(primals, tangents):
    return inverse_p(*primals), along(_inverse_by_scans, primals, tangents)

  inverse_p: ffi.Operation = operation(
      "inverse", " -> t d d, s d d", [0, 1],
      inverse, inverse_jvp)

  def logdet_jvp(primals, tangents):
    return logdet_p(*primals), _logdet_tangent(inverse_p(*primals[:count]), *tangents[:2])

  logdet_p: ffi.Operation = operation(
      "logdet", ", () -> ()", [count], lambda *operands: operands[-1:], logdet_jvp)

  return _Operations(factor, solve_p, half_p, inverse_p, logdet_p)


def _by_steps(recursions):
  def factor(diagonal, lower):
    l, below, logdet, info = recursions.factor(diagonal, lower)
    return (l, below), logdet, info

  return factor, recursions.solve


def _inverse_by_scans(diagonal, lower):
  l, below, *_ = partition.SCANS.factor(diagonal, lower)
  return tuple(partition.SCANS.inverse(l, below))


def _inverse_of_long(diagonal, lower, *factors):
  """The gradient of log det A on a CPU, which needs no factor in memory."""

  def by_handler(diagonal, lower, *factors):
    # The handler has constants for the sizes of tiny blocks beside one right-hand side.
    zero = zeros_like(diagonal[..., :1])
    one = jnp.sum(zero, axis=(-3, -2, -1)).real + 1
    inverse, twice, _ = solve_logdet_vjp_p(diagonal, lower, zero, zero, one)
    return [inverse.conj(), twice.conj() / 2]

  by_products = functools.partial(partition.inverse, partition.HANDLERS)
  if not suits("cpu", diagonal):
    return by_products(*factors)
  return lax.platform_dependent(
      diagonal, lower, *factors, cpu=by_handler,
      default=lambda diagonal, lower, *factors: by_products(*factors))


_SHORT = _make_operations(
    "", "t d d, s d d", _by_steps(partition.HANDLERS), _by_steps(partition.SCANS),
    lambda diagonal, lower, *factors: partition.HANDLERS.inverse(*factors))
_LONG = _make_operations(
    "_in_chunks", "t d d, s d d, t d d", partition.OF_CHUNKS, partition.OF_CHUNKS_BY_SCANS,
    _inverse_of_long)


def operations_of(steps: int) -> _Operations:
  return _LONG if partition.is_long(steps) else _SHORT


# A solution and log det A in one pass, which keeps no factor. The factors and solutions of a group
# of systems stay in the caches of a core up to about this many elements of a system.
MOST_ELEMENTS = 1 << 18


def by_factor(kind, diagonal, lower, b):
  """x, log det A and info by a factor, which derivatives use."""
  factors, value, info = kind.factor(lax.stop_gradient(diagonal), lax.stop_gradient(lower))
  known = diagonal, lower, *factors
  return [kind.solve(*known, b), kind.logdet(*known, value), info]


def by_kind(function, *operands):
  """function(kind, *operands), in chunks from fewer steps on where threads are very many."""
  steps = operands[0].shape[-3]
  if partition.is_long(steps) or steps < partition.LONG_OFF_CPU:
    return function(operations_of(steps), *operands)
  return lax.platform_dependent(
      *operands, cpu=functools.partial(function, _SHORT),
      default=functools.partial(function, _LONG))


def _tangents(kind, diagonal, lower, x, dd, de, db):
  # A dx = db - dA x
  factors, *_ = kind.factor(lax.stop_gradient(diagonal), lax.stop_gradient(lower))
  known = diagonal, lower, *factors
  dx = kind.solve(*known, db - _multiply(dd, de, x))
  return [dx, _logdet_tangent(kind.inverse(*known), dd, de)]


def _suits_solve_logdet(platform, diagonal, lower, b, *types, **attributes):
  """The CPU's handlers divide long systems. Elsewhere the fallback does."""
  del lower
  steps, d = diagonal.shape[-3], diagonal.shape[-1]
  if not suits(platform, diagonal):
    return False
  if partition.is_long(steps) or platform != "cpu" and steps >= partition.LONG_OFF_CPU:
    return platform == "cpu"
  return steps * d * (2 * d + b.shape[-1]) <= MOST_ELEMENTS


# The handler of the transpose factors A again, and keeps factors and the blocks of A⁻¹ in caches.
solve_logdet_jvp_p, solve_logdet_vjp_p = linear_pair(
    ("linalg_block_tridiagonal_solve_logdet_jvp",
     "t d d, s d d, t d k, t d d, s d d, t d k -> t d k, ()",
     lambda diagonal, lower, x, *tangents: (x, real_dtype(x))),
    ("linalg_block_tridiagonal_solve_logdet_vjp",
     "t d d, s d d, t d k, t d k, () -> t d d, s d d, t d k", [0, 1, 2]),
    functools.partial(by_kind, _tangents),
    constants=3,
    argument=lambda diagonal, lower, x: [diagonal, lower, x],
    suits=_suits_solve_logdet,
    forward_handler=False)


def _solve_logdet_jvp(primals, tangents):
  if tangents[0] is None and tangents[1] is None or not _suits_solve_logdet("cpu", *primals):
    return _solve_logdet_jvp_by_factor(primals, tangents)
  x, logdet, info = solve_logdet_p(*primals)
  moved = solve_logdet_jvp_p(*primals[:2], x, *without_none(primals, tangents))
  return (x, logdet, info), (*moved, None)


def _solve_logdet_jvp_by_factor(primals, tangents):
  moving = [i for i, dx in enumerate(tangents) if dx is not None]
  kind = operations_of(primals[0].shape[-3])

  def function(*some):
    given = dict(zip(moving, some, strict=True))
    *results, info = by_factor(kind, *(given.get(i, x) for i, x in enumerate(primals)))
    return results, info

  results, moved, info = jax.jvp(
      function, [primals[i] for i in moving], [tangents[i] for i in moving], has_aux=True)
  return (*results, info), (*moved, None)


def _solve_logdet_batch(operands, dims):
  if dims[0] is not None or dims[1] is not None:
    return None
  # One matrix for the whole batch is factored once.
  function = functools.partial(by_kind, by_factor)
  return jax.vmap(function, (None, None, dims[2]), [0, None, None])(*operands), [0, None, None]


solve_logdet_p: ffi.Operation = ffi.operation(
    "linalg_block_tridiagonal_solve_logdet",
    "t d d, s d d, t d k -> t d k, (), ()",
    lambda diagonal, lower, b: [b, real_dtype(b), jnp.int32],
    jvp=_solve_logdet_jvp,
    fallback=functools.partial(by_kind, by_factor),
    suits=_suits_solve_logdet,
    batch=_solve_logdet_batch)


# General systems


def _general_multiply(blocks, x):
  """A x, where None among the blocks is zero."""
  lower, diagonal, upper = blocks
  terms = [] if diagonal is None else [_times(diagonal, x)]
  if x.shape[-3] > 1:
    if lower is not None:
      terms.append(before(_times(padded(lower, x), x)))
    if upper is not None:
      terms.append(_times(padded(upper, x), _next(x)))
  return functools.reduce(jnp.add, terms) if terms else zeros_like(x)


def _general_jvp(primals, tangents):
  # A dx = db - dA x
  *blocks, b = primals
  *moved, db = tangents
  x, info = general_solve_p(*primals)
  da = None if all(y is None for y in moved) else moved
  dx = solution_tangent(
      lambda b: general_solve_p(*blocks, b)[0], da, db, lambda da: _general_multiply(da, x))
  return (x, info), (dx, None)


def _general_transpose(cotangents, operands):
  lower, diagonal, upper, _ = operands
  x, _ = general_solve_p(upper.mT, diagonal.mT, lower.mT, cotangents[0])
  return None, None, None, x


# Long systems are not divided here: a chunk may have a singular leading minor where A has none. The
# CUDA handler divides them, with row exchanges across blocks and the elimination to fall back on.
general_solve_p: ffi.Operation = ffi.operation(
    "linalg_block_tridiagonal_solve",
    "s d d, t d d, s d d, t d k -> t d k, ()",
    [3, jnp.int32],
    jvp=_general_jvp,
    transpose=_general_transpose,
    suits=lambda platform, *types, **attributes: suits(platform, *types[1:]),
    fallback=general_scan)
