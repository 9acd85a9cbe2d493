"""Block-tridiagonal systems: Cholesky factors of positive definite ones, and general ones."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  identities_like,
  nan_where,
  plus,
  solution_tangent,
  symmetrized,
  without_none,
  zeros_like,
)
from linalg._core.checks import check_factors, check_positive
from linalg._core.operands import as_arrays, compute_dtype, real_dtype
from linalg._core.public import public
from linalg._factorizations.cholesky import cholesky_p
from linalg._factorizations.matmul import product
from linalg._factorizations.solve import solve_p
from linalg._factorizations.triangular import triangular_solve_p

__all__ = [
    "BlockTridiagonalFactor", "block_tridiagonal_cholesky", "block_tridiagonal_solve",
    "block_tridiagonal_solve_ex"]

# The largest blocks that go to handlers. Larger ones run by a scan over the steps, with the kernels
# for one matrix in each.
MOST_ROWS = 32


def _suits(platform, *types, **attributes):
  del platform, attributes
  d = types[0].shape[-1]
  return isinstance(d, int) and d <= MOST_ROWS


# Recursions as scans over the steps: the fallbacks, and what derivatives of factors come from.


def _steps_first(x, core=2):
  return jnp.moveaxis(x, -core - 1, 0)


def _steps_back(x, core=2):
  return jnp.moveaxis(x, 0, -core - 1)


def _after(first, rest):
  """A stack with `first` before `rest`, along its dimension 0."""
  return jnp.concatenate([first[None], rest])


def _from_left(l, b, back=False):
  """L⁻¹ b, or L⁻ᴴ b."""
  return triangular_solve_p(l, b, left_side=True, lower=True, transpose_a=back, conjugate_a=back)


def _cholesky_scan(diagonal, lower):
  """The blocks of L, steps first, and the info of each block."""
  d, e = _steps_first(symmetrized(diagonal)), _steps_first(lower)
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


def _cholesky_fallback(diagonal, lower):
  if diagonal.shape[-3] == 0 or diagonal.shape[-1] == 0:
    none = jnp.sum(diagonal, axis=(-3, -2, -1))
    return [diagonal, lower, none.real, none.real.astype(jnp.int32)]
  l, below, infos = _cholesky_scan(diagonal, lower)
  steps, d = l.shape[0], l.shape[-1]
  rows = d * jnp.arange(steps, dtype=jnp.int32).reshape((steps,) + (1,) * (infos.ndim - 1))
  info = jnp.min(jnp.where(infos != 0, rows + infos, steps * d + 1), axis=0)
  info = jnp.where(info > steps * d, 0, info)
  failed = info != 0
  logdet = 2 * jnp.sum(jnp.log(diagonal_of(l).real), axis=(0, -1))
  return [
      nan_where(failed, _steps_back(l), 3), nan_where(failed, _steps_back(below), 3),
      nan_where(failed, logdet, 0), info]


cholesky_blocks_p = ffi.operation(
    "linalg_block_tridiagonal_cholesky",
    "t d d, s d d -> t d d, s d d, (), ()",
    lambda diagonal, lower: [diagonal, lower, real_dtype(diagonal), jnp.int32],
    suits=_suits,
    fallback=_cholesky_fallback)


def _factor_solve_fallback(l, below, b, *, forward, back):
  if b.size == 0:
    return [b]
  batch = jnp.broadcast_shapes(l.shape[:-3], b.shape[:-3])
  l, below = (
      _steps_first(jnp.broadcast_to(x, (*batch, *x.shape[-3:]))) for x in (l, below))
  x = _steps_first(b)
  if forward:
    def step(y, blocks):
      l, below, b = blocks
      y = _from_left(l, b - product(below, y))
      return y, y

    y = _from_left(l[0], x[0])
    _, rest = lax.scan(step, y, (l[1:], below, x[1:]))
    x = _after(y, rest)
  if back:
    def step_back(x, blocks):
      l, below, y = blocks
      x = _from_left(l, y - product(below, x, adjoint_a=True), back=True)
      return x, x

    last = _from_left(l[-1], x[-1], back=True)
    _, rest = lax.scan(step_back, last, (l[:-1], below, x[:-1]), reverse=True)
    x = jnp.concatenate([rest, last[None]])
  return [_steps_back(x)]


# L⁻¹ b (forward), L⁻ᴴ b (back) or both.
factor_solve_p = ffi.operation(
    "linalg_block_tridiagonal_cholesky_solve",
    "t d d, s d d, t d k -> t d k",
    [2],
    attributes={"forward": True, "back": True},
    shared=[0, 1],
    suits=_suits,
    fallback=_factor_solve_fallback)


def _inverse_blocks_fallback(l, below):
  if l.size == 0:
    return [l, below]
  l, below = _steps_first(l), _steps_first(below)

  def step(inverse, blocks):
    l, below = blocks
    w = _from_left(l, identities_like(l))
    g = product(below, w)
    off = -product(inverse, g)
    inverse = product(w, w, adjoint_a=True) - product(g, off, adjoint_a=True)
    return inverse, (inverse, off)

  w = _from_left(l[-1], identities_like(l[-1]))
  last = product(w, w, adjoint_a=True)
  _, (inverse, off) = lax.scan(step, last, (l[:-1], below), reverse=True)
  inverse = jnp.concatenate([inverse, last[None]])
  return [_steps_back(symmetrized(inverse)), _steps_back(off)]


inverse_of_factor_p = ffi.operation(
    "linalg_block_tridiagonal_inverse_blocks",
    "t d d, s d d -> t d d, s d d",
    [0, 1],
    suits=_suits,
    fallback=_inverse_blocks_fallback)


# Functions of A that are computed from its factors. They are differentiated by A's blocks D and E;
# the factors are constants to the rules.


def _next(x):
  """The block of the step after, and zero at the last one."""
  return jnp.concatenate([x[..., 1:, :, :], zeros_like(x[..., :1, :, :])], axis=-3)


def _before(x):
  return jnp.concatenate([zeros_like(x[..., :1, :, :]), x[..., :-1, :, :]], axis=-3)


def _padded(blocks, x):
  """The blocks beside all steps but one, with a zero block at the end."""
  missing = x.shape[-3] - blocks.shape[-3]
  return jnp.pad(blocks, ((0, 0),) * (blocks.ndim - 3) + ((0, missing), (0, 0), (0, 0)))


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
    lower = _padded(lower, x)
    terms += [_before(_times(lower, x)), _times(lower, _next(x), adjoint_a=True)]
  return functools.reduce(jnp.add, terms) if terms else zeros_like(x)


_OF_A = "t d d, s d d, t d d, s d d"


def _of_factors(name, signature, dtypes, value, jvp, **options):
  return ffi.operation(
      name, f"{_OF_A}{signature}", dtypes, platforms=(), jvp=jvp,
      fallback=lambda d, e, *operands, **attributes: list(value(*operands, **attributes)),
      **options)


def _solve_jvp(primals, tangents):
  # A dx = db - dA x
  *known, b = primals
  dd, de, *_, db = tangents
  x = definite_solve_p(*known, b)
  da = None if dd is None and de is None else (dd, de)
  dx = solution_tangent(
      functools.partial(definite_solve_p, *known), da, db, lambda da: _multiply(*da, x))
  return x, dx


def _solve_transpose(cotangents, operands):
  # A is Hermitian, so its transpose is its conjugate.
  x = definite_solve_p(*operands[:4], cotangents[0].conj()).conj()
  return None, None, None, None, x


definite_solve_p = _of_factors(
    "block_tridiagonal_definite_solve", ", t d k -> t d k", [4],
    lambda l, below, b: [factor_solve_p(l, below, b)],
    _solve_jvp, transpose=_solve_transpose, shared=[0, 1, 2, 3])


def _factor_tangent(primals, tangents):
  """The tangent of L's blocks, by the derivative of the scan."""
  def factor(diagonal, lower):
    if diagonal.shape[-3] == 0 or diagonal.shape[-1] == 0:
      return diagonal, lower
    l, below, _ = _cholesky_scan(diagonal, lower)
    return _steps_back(l), _steps_back(below)

  return jax.jvp(factor, tuple(primals), tuple(without_none(primals, tangents)))[1]


def _half_jvp(primals, tangents, *, back):
  # L dx = db - dL x, and Lᴴ dx = db - dLᴴ x.
  d, e, l, below, b = primals
  dd, de, *_, db = tangents
  solve = functools.partial(half_solve_p, d, e, l, below, back=back)
  x = solve(b)

  def multiply(da):
    dl, dbelow = _factor_tangent((d, e), da)
    own = _times(dl, x, adjoint_a=back)
    if x.shape[-3] < 2:
      return own
    dbelow = _padded(dbelow, x)
    other = _times(dbelow, _next(x), adjoint_a=True) if back else _before(_times(dbelow, x))
    return own + other

  da = None if dd is None and de is None else (dd, de)
  return x, solution_tangent(solve, da, db, multiply)


def _half_transpose(cotangents, operands, *, back):
  # The transpose of L⁻¹ is the conjugate of L⁻ᴴ.
  x = half_solve_p(*operands[:4], cotangents[0].conj(), back=not back).conj()
  return None, None, None, None, x


half_solve_p = _of_factors(
    "block_tridiagonal_half_solve", ", t d k -> t d k", [4],
    lambda l, below, b, *, back: [factor_solve_p(l, below, b, forward=not back, back=back)],
    _half_jvp, transpose=_half_transpose, shared=[0, 1, 2, 3], attributes={"back": False})


def _inverse_jvp(primals, tangents):
  d, e, l, below = primals
  results = inverse_blocks_p(*primals)
  dl = _factor_tangent((d, e), tangents[:2])
  # L's blocks as functions of A, for derivatives of this derivative.
  blocks = tuple(blocks_p(d, e, l, below))
  moved = jax.jvp(lambda *x: tuple(_inverse_blocks_fallback(*x)), blocks, dl)[1]
  return results, moved


inverse_blocks_p = _of_factors(
    "block_tridiagonal_inverse", " -> t d d, s d d", [0, 1], inverse_of_factor_p, _inverse_jvp)


def _logdet_jvp(primals, tangents):
  # d log det A = tr(A⁻¹ dA). Blocks of dA outside the band are zero.
  dd, de, *_ = tangents
  inverse, off = inverse_blocks_p(*primals[:4])
  moved = None
  if dd is not None:
    moved = jnp.sum((inverse.conj() * dd).real, axis=(-3, -2, -1))
  if de is not None:
    moved = plus(moved, 2 * jnp.sum((off.conj() * de).real, axis=(-3, -2, -1)))
  return logdet_p(*primals), moved


logdet_p = _of_factors(
    "block_tridiagonal_logdet", ", () -> ()", [4], lambda l, below, value: [value], _logdet_jvp)


def _blocks_jvp(primals, tangents):
  return primals[2:], _factor_tangent(primals[:2], tangents[:2])


# L's blocks as functions of A.
blocks_p = _of_factors(
    "block_tridiagonal_blocks", " -> t d d, s d d", [0, 1], lambda l, below: [l, below],
    _blocks_jvp)


# The public functions


def _expected(name, operand, shape, got):
  return ValueError(f"{name}() takes as {operand} an array of shape {shape}, got {got.shape}.")


def _check_blocks(name, diagonal, **others):
  """Raises ValueError where blocks have the wrong shape."""
  if diagonal.ndim < 3 or diagonal.shape[-1] != diagonal.shape[-2]:
    raise _expected(name, "diagonal", "(..., T, d, d)", diagonal)
  steps, d = diagonal.shape[-3], diagonal.shape[-1]
  wanted = (max(steps - 1, 0), d, d)
  for operand, x in others.items():
    if x.shape[-3:] != wanted:
      raise _expected(
          name, operand, f"(..., T - 1, d, d) = (..., {', '.join(map(str, wanted))})", x)
    _check_batch(name, operand, diagonal, x)


def _check_batch(name, operand, diagonal, x):
  try:
    jnp.broadcast_shapes(diagonal.shape[:-3], x.shape[:-3])
  except ValueError:
    raise ValueError(
        f"{name}(): the batch dimensions of {operand}, {x.shape[:-3]}, do not broadcast with those "
        f"of diagonal, {diagonal.shape[:-3]}.") from None


def _columns(name, diagonal, b):
  """The right-hand sides as (..., T, d, k), and whether b was a vector (T, d)."""
  steps, d = diagonal.shape[-3], diagonal.shape[-1]
  vector = b.ndim == 2
  columns = b[..., None] if vector else b
  if columns.ndim < 3 or columns.shape[-3:-1] != (steps, d):
    raise _expected(
        name, "b", f"(T, d) = ({steps}, {d}) or (..., T, d, k) = (..., {steps}, {d}, k)", b)
  _check_batch(name, "b", diagonal, columns)
  return columns, vector


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["diagonal", "lower", "factor_diagonal", "factor_lower", "log_determinant", "info"],
    meta_fields=["dtype"])
@dataclasses.dataclass(frozen=True, eq=False)
class BlockTridiagonalFactor:
  """The Cholesky factor of a block-tridiagonal matrix A, from `block_tridiagonal_cholesky`.

  It is a pytree, so transformed functions can take and return it. A = L Lᴴ, where L has blocks on
  and below its diagonal.

  Attributes:
    diagonal: the blocks of A on its diagonal, (..., T, d, d). Derivatives are with respect to these
      and `lower`.
    lower: the blocks of A below them, (..., T - 1, d, d).
    factor_diagonal: the blocks of L on its diagonal. They are constants for derivatives; `blocks`
      is differentiable.
    factor_lower: the blocks of L below them, also constants.
    log_determinant: log det A, a constant too; `logdet` is differentiable.
    info: int32 (...), 0 where A was factored. Otherwise the order of the first leading minor of A
      that is not positive, and the factor is NaN. `failed_at` says in which block.
    dtype: of results.
  """

  diagonal: jax.Array
  lower: jax.Array
  factor_diagonal: jax.Array
  factor_lower: jax.Array
  log_determinant: jax.Array
  info: jax.Array
  dtype: Any

  def _operands(self):
    return self.diagonal, self.lower, self.factor_diagonal, self.factor_lower

  def _solve(self, name, b, solve):
    (b,), dtype = as_arrays(name, b)
    dtype = jnp.promote_types(dtype, self.dtype)
    columns, vector = _columns(name, self.diagonal, b.astype(compute_dtype(dtype)))
    x = solve(*(y.astype(columns.dtype) for y in self._operands()), columns)
    return (x[..., 0] if vector else x).astype(dtype)

  def solve(self, b: ArrayLike) -> jax.Array:
    """x with A x = b, for a vector b (T, d) or matrices (..., T, d, k)."""
    return self._solve("solve", b, definite_solve_p)

  def solve_half(self, b: ArrayLike, *, adjoint: bool = False) -> jax.Array:
    """L⁻¹ b, or L⁻ᴴ b with `adjoint`.

    If z has independent standard normal entries, then L⁻ᴴ z has covariance A⁻¹.
    """
    return self._solve("solve_half", b, functools.partial(half_solve_p, back=bool(adjoint)))

  def logdet(self) -> jax.Array:
    """log det A, (...), real. NaN where A was not factored."""
    value = logdet_p(*self._operands(), self.log_determinant)
    return value.astype(real_dtype(self.dtype))

  def inverse_blocks(self) -> tuple[jax.Array, jax.Array]:
    """The blocks of A⁻¹ on its diagonal (..., T, d, d), and below them (..., T - 1, d, d)."""
    diagonal, lower = inverse_blocks_p(*self._operands())
    return diagonal.astype(self.dtype), lower.astype(self.dtype)

  def blocks(self) -> tuple[jax.Array, jax.Array]:
    """The blocks of L on its diagonal and below them, as differentiable functions of A."""
    diagonal, lower = blocks_p(*self._operands())
    return diagonal.astype(self.dtype), lower.astype(self.dtype)

  def matrix(self) -> jax.Array:
    """A as a dense matrix (..., T d, T d), for tests of small systems."""
    steps, d = self.diagonal.shape[-3], self.diagonal.shape[-1]
    return _dense(symmetrized(self.diagonal), self.lower, adjoint(self.lower)).reshape(
        *self.diagonal.shape[:-3], steps * d, steps * d).astype(self.dtype)

  def failed_at(self) -> tuple[jax.Array, jax.Array]:
    """Where `info` is not 0: the index of the block that failed, and the order of the leading minor
    there. Elsewhere both are 0."""
    d = max(self.diagonal.shape[-1], 1)
    row = jnp.maximum(self.info - 1, 0)
    return row // d, jnp.where(self.info != 0, row % d + 1, 0)


def _dense(diagonal, lower, upper):
  """The matrix as (..., T, d, T, d)."""
  steps = diagonal.shape[-3]
  row = jnp.arange(steps)[:, None, None, None]
  col = jnp.arange(steps)[None, None, :, None]

  def placed(blocks, offset):
    # Block t of row t, in column t + offset.
    wanted = jnp.expand_dims(row + offset == col, tuple(range(blocks.ndim - 3)))
    return jnp.where(wanted, blocks[..., :, :, None, :], 0)

  return (
      placed(diagonal, 0) + placed(_before(_padded(lower, diagonal)), -1)
      + placed(_padded(upper, diagonal), 1))


@public()
def block_tridiagonal_cholesky(diagonal: ArrayLike, lower: ArrayLike) -> BlockTridiagonalFactor:
  """The Cholesky factor of Hermitian positive definite block-tridiagonal matrices.

  Args:
    diagonal: the T blocks on the diagonal, (..., T, d, d), of any floating, complex or integer
      dtype. Their Hermitian parts (D + Dᴴ) / 2 are used.
    lower: the blocks below the diagonal, (..., T - 1, d, d); those above are their adjoints. The
      batch dimensions of both broadcast.

  Returns:
    A `BlockTridiagonalFactor`. Its methods solve systems, and give log det A, the blocks of A⁻¹ on
    and beside the diagonal, and samples. Where A is not positive definite the factor and all
    results are NaN, and `info` says at which leading minor; see `checked`.

  float16 and bfloat16 are computed in float32, and results rounded.

  Algorithm: Lₜ Lₜᴴ = Dₜ - Bₜ Bₜᴴ and Bₜ₊₁ = Eₜ Lₜ⁻ᴴ, one system per lane. Solutions and log det A
  are differentiated with the same factor: A dx = db - dA x, and the gradient of log det A is A⁻¹.
  Blocks of A⁻¹ come from one backward recursion (Takahashi, Fagan and Chen, Formation of a sparse
  bus impedance matrix, 1973). Blocks of more than 32 rows run by a scan over the steps.

  Example:
    >>> import jax.numpy as jnp
    >>> from linalg.structured import block_tridiagonal_cholesky
    >>> diagonal = jnp.broadcast_to(4 * jnp.eye(2), (3, 2, 2))
    >>> lower = jnp.broadcast_to(jnp.eye(2), (2, 2, 2))
    >>> factor = block_tridiagonal_cholesky(diagonal, lower)
    >>> print(factor.solve(jnp.array([[5.0, 5.0], [6.0, 6.0], [5.0, 5.0]])).round(4))
    [[1. 1.]
     [1. 1.]
     [1. 1.]]
    >>> print(jnp.exp(factor.logdet()).round(1))  # 56²
    3136.0
  """
  name = "block_tridiagonal_cholesky"
  (diagonal, lower), dtype = as_arrays(name, diagonal, lower)
  _check_blocks(name, diagonal, lower=lower)
  ffi.refuse_sharded(name, diagonal, lower, rank=3)
  diagonal, lower = ffi.broadcast_batches(name, [diagonal, lower], [3, 3])
  l, below, logdet, info = cholesky_blocks_p(
      lax.stop_gradient(diagonal), lax.stop_gradient(lower))
  check_positive(info)
  return BlockTridiagonalFactor(diagonal, lower, l, below, logdet, info, dtype)


# General systems


def _general_multiply(blocks, x):
  """A x, where None among the blocks is zero."""
  lower, diagonal, upper = blocks
  terms = [] if diagonal is None else [_times(diagonal, x)]
  if x.shape[-3] > 1:
    if lower is not None:
      terms.append(_before(_times(_padded(lower, x), x)))
    if upper is not None:
      terms.append(_times(_padded(upper, x), _next(x)))
  return functools.reduce(jnp.add, terms) if terms else zeros_like(x)


def _general_jvp(primals, tangents):
  # A dx = db - dA x
  *blocks, b = primals
  *moved, db = tangents
  x, info = general_solve_p(*blocks, b)
  da = None if all(y is None for y in moved) else moved
  dx = solution_tangent(
      lambda b: general_solve_p(*blocks, b)[0], da, db, lambda da: _general_multiply(da, x))
  return (x, info), (dx, None)


def _general_transpose(cotangents, operands):
  lower, diagonal, upper, _ = operands
  x, _ = general_solve_p(upper.mT, diagonal.mT, lower.mT, cotangents[0])
  return None, None, None, x


def _general_fallback(lower, diagonal, upper, b):
  steps, d = diagonal.shape[-3], diagonal.shape[-1]
  if steps == 0 or d == 0:
    return [b, jnp.sum(diagonal, axis=(-3, -2, -1)).real.astype(jnp.int32)]
  beside = jnp.concatenate([_padded(upper, diagonal), b], axis=-1)

  def step(previous, blocks):
    below, a, right = blocks
    change = product(below, previous)
    solution, info = solve_p(
        a - change[..., :d],
        jnp.concatenate([right[..., :d], right[..., d:] - change[..., d:]], axis=-1))
    return solution, (solution, info)

  lower, a, right = map(_steps_first, (lower, diagonal, beside))
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
  return [nan_where(info != 0, _steps_back(x), 3), info.astype(jnp.int32)]


general_solve_p = ffi.operation(
    "linalg_block_tridiagonal_solve",
    "s d d, t d d, s d d, t d k -> t d k, ()",
    [3, jnp.int32],
    jvp=_general_jvp,
    transpose=_general_transpose,
    suits=lambda platform, *types, **attributes: _suits(platform, *types[1:]),
    fallback=_general_fallback)


def _general_solve(name, lower, diagonal, upper, b):
  (lower, diagonal, upper, b), dtype = as_arrays(name, lower, diagonal, upper, b)
  _check_blocks(name, diagonal, lower=lower, upper=upper)
  columns, vector = _columns(name, diagonal, b)
  x, info = general_solve_p(lower, diagonal, upper, columns)
  return (x[..., 0] if vector else x).astype(dtype), info


@public()
def block_tridiagonal_solve(
    lower: ArrayLike, diagonal: ArrayLike, upper: ArrayLike, b: ArrayLike
) -> jax.Array:
  """Solves A x = b with general block-tridiagonal matrices A.

  Args:
    lower: the blocks below the diagonal, (..., T - 1, d, d): block t is in row t + 1.
    diagonal: the blocks on the diagonal, (..., T, d, d).
    upper: the blocks above the diagonal, (..., T - 1, d, d): block t is in row t.
    b: a vector (T, d), or matrices of right-hand sides (..., T, d, k).

  Returns:
    x, of the shape of `b` with the broadcast batch dimensions of all operands. x is NaN where a
    diagonal block becomes exactly singular during elimination; see `block_tridiagonal_solve_ex` and
    `checked`.

  Rows are exchanged inside diagonal blocks only, never between blocks. So A must have regular
  leading block minors, and x loses accuracy where one of them is nearly singular, even if A itself
  is well conditioned. Elimination is stable if A is block diagonally dominant or positive definite.
  Otherwise check the residual, or use `linalg.scipy.solve_banded`, which exchanges all rows.

  float16 and bfloat16 are computed in float32, and x rounded.

  Algorithm: block elimination (the block Thomas algorithm), one system per lane. Its stability:
  Demmel, Higham and Schreiber, Stability of block LU factorization, 1995. Blocks of more than 32
  rows run by a scan over the steps.

  Example:
    >>> import jax.numpy as jnp
    >>> from linalg.structured import block_tridiagonal_solve
    >>> diagonal = jnp.broadcast_to(jnp.array([[0.0, 4.0], [4.0, 0.0]]), (3, 2, 2))
    >>> beside = jnp.broadcast_to(jnp.eye(2), (2, 2, 2))
    >>> b = jnp.array([[5.0, 5.0], [6.0, 6.0], [5.0, 5.0]])
    >>> print(block_tridiagonal_solve(beside, diagonal, beside, b).round(4))
    [[1. 1.]
     [1. 1.]
     [1. 1.]]
  """
  x, info = _general_solve("block_tridiagonal_solve", lower, diagonal, upper, b)
  check_factors(info)
  return x


@public()
def block_tridiagonal_solve_ex(
    lower: ArrayLike, diagonal: ArrayLike, upper: ArrayLike, b: ArrayLike
) -> tuple[jax.Array, jax.Array]:
  """`block_tridiagonal_solve`, with an info for each matrix.

  Args:
    lower, diagonal, upper, b: as for `block_tridiagonal_solve`.

  Returns:
    (x, info). info, int32 of shape (...), is 0, or the 1-based index of the first row of A whose
    pivot is zero, or -1 where a pivot is NaN.

  Example:
    >>> import jax.numpy as jnp
    >>> from linalg.structured import block_tridiagonal_solve_ex
    >>> diagonal = jnp.zeros((2, 1, 1))  # A = [[0, 1], [1, 0]], whose leading block is singular
    >>> x, info = block_tridiagonal_solve_ex(
    ...   jnp.ones((1, 1, 1)), diagonal, jnp.ones((1, 1, 1)), jnp.ones((2, 1)))
    >>> print(info)
    1
  """
  return _general_solve("block_tridiagonal_solve_ex", lower, diagonal, upper, b)
