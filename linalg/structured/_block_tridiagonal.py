"""Block-tridiagonal systems: Cholesky factors of positive definite ones, and general ones."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import adjoint, symmetrized
from linalg._core.checks import check_factors, check_positive
from linalg._core.operands import as_arrays, check_arrays, compute_dtype, real_dtype
from linalg._core.public import public
from linalg.structured._block_tridiagonal_operations import (
  before,
  by_factor,
  by_kind,
  general_solve_p,
  operations_of,
  solve_logdet_p,
)
from linalg.structured._steps import padded

__all__ = [
    "BlockTridiagonalFactor", "block_tridiagonal_cholesky", "block_tridiagonal_solve",
    "block_tridiagonal_solve_ex", "block_tridiagonal_solve_logdet",
    "block_tridiagonal_solve_logdet_ex"]


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
    data_fields=["diagonal", "lower", "factors", "log_determinant", "info"],
    meta_fields=["dtype"])
@dataclasses.dataclass(frozen=True, eq=False)
class BlockTridiagonalFactor:
  """The Cholesky factor of a block-tridiagonal matrix A, from `block_tridiagonal_cholesky`.

  It is a pytree, so transformed functions can take and return it.

  Attributes:
    diagonal: the blocks of A on its diagonal, (..., T, d, d). Derivatives are with respect to these
      and `lower`.
    lower: the blocks of A below them, (..., T - 1, d, d).
    factors: the parts of the factor W, A = W Wᴴ. Up to 4095 steps W is lower triangular, and these
      are its blocks on the diagonal and below it. They are constants for derivatives.
    log_determinant: log det A, a constant too; `logdet` is differentiable.
    info: int32 (...), 0 where A was factored. Otherwise the order of the first leading minor of A
      that is not positive, and the factor is NaN. From 4096 steps on, blocks are eliminated in
      another order: then it is the row of A, from 1, whose pivot is not positive. `failed_at` says
      in which block.
    dtype: of results.
  """

  diagonal: jax.Array
  lower: jax.Array
  factors: tuple[jax.Array, ...]
  log_determinant: jax.Array
  info: jax.Array
  dtype: Any

  def _operands(self):
    return self.diagonal, self.lower, *self.factors

  def _operations(self):
    return operations_of(self.diagonal.shape[-3])

  def _solve(self, name, b, solve):
    check_arrays(name, b)
    dtype = jnp.promote_types(jnp.result_type(b), self.dtype)
    b = jnp.asarray(b, compute_dtype(dtype))
    columns, vector = _columns(name, self.diagonal, b)
    x = solve(*(y.astype(columns.dtype) for y in self._operands()), columns)
    return (x[..., 0] if vector else x).astype(dtype)

  def solve(self, b: ArrayLike) -> jax.Array:
    """x with A x = b, for a vector b (T, d) or matrices (..., T, d, k).

    The dtype of x is that of `b` and the factor, promoted as in jax.numpy: float32 for an integer
    `b` and a float32 factor. A `b` of higher precision gives an x of its dtype, but x has the
    accuracy of the factor.
    """
    return self._solve("solve", b, self._operations().solve)

  def solve_half(self, b: ArrayLike, *, adjoint: bool = False) -> jax.Array:
    """W⁻¹ b, or W⁻ᴴ b with `adjoint`, where A = W Wᴴ.

    If z has independent standard normal entries, then W⁻ᴴ z has covariance A⁻¹. W is A's Cholesky
    factor up to 4095 steps, and that of blocks in another order beyond.
    """
    half = functools.partial(self._operations().half, back=bool(adjoint))
    return self._solve("solve_half", b, half)

  def logdet(self) -> jax.Array:
    """log det A, (...), real. NaN where A was not factored."""
    value = self._operations().logdet(*self._operands(), self.log_determinant)
    return value.astype(real_dtype(self.dtype))

  def inverse_blocks(self) -> tuple[jax.Array, jax.Array]:
    """The blocks of A⁻¹ on its diagonal (..., T, d, d), and below them (..., T - 1, d, d)."""
    diagonal, lower = self._operations().inverse(*self._operands())
    return diagonal.astype(self.dtype), lower.astype(self.dtype)

  def matrix(self) -> jax.Array:
    """A as a dense matrix (..., T d, T d), for tests of small systems."""
    steps, d = self.diagonal.shape[-3], self.diagonal.shape[-1]
    return _dense(symmetrized(self.diagonal), self.lower, adjoint(self.lower)).reshape(
        *self.diagonal.shape[:-3], steps * d, steps * d).astype(self.dtype)

  def failed_at(self) -> tuple[jax.Array, jax.Array]:
    """Where `info` is not 0: the index of the block that failed, and the row in it, from 1.
    Elsewhere both are 0."""
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
      placed(diagonal, 0) + placed(before(padded(lower, diagonal)), -1)
      + placed(padded(upper, diagonal), 1))


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
  bus impedance matrix, 1973). From 4096 steps on a system is divided into about √T chunks, which
  all lanes and threads share, also for the blocks of A⁻¹. Blocks of more than 32 rows run by a scan
  over the steps.

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
  factors, logdet, info = operations_of(diagonal.shape[-3]).factor(
      lax.stop_gradient(diagonal), lax.stop_gradient(lower))
  check_positive(info)
  return BlockTridiagonalFactor(diagonal, lower, factors, logdet, info, dtype)


def _solve_logdet(name, diagonal, lower, b):
  (diagonal, lower, b), dtype = as_arrays(name, diagonal, lower, b)
  _check_blocks(name, diagonal, lower=lower)
  columns, vector = _columns(name, diagonal, b)
  batch = jnp.broadcast_shapes(diagonal.shape[:-3], lower.shape[:-3])
  is_one = all(size == 1 for size in batch)
  if is_one and any(size != 1 for size in columns.shape[:-3]):  # one matrix is factored once
    diagonal, lower = (x.reshape(x.shape[-3:]) for x in (diagonal, lower))
    columns = columns.reshape((1,) * (len(batch) + 3 - columns.ndim) + columns.shape)
    x, logdet, info = by_kind(by_factor, diagonal, lower, columns)
    x, logdet, info = ffi.broadcast_batches(name, [x, logdet, info], [3, 0, 0])
  else:
    x, logdet, info = solve_logdet_p(diagonal, lower, columns)
  x = (x[..., 0] if vector else x).astype(dtype)
  return x, logdet.astype(real_dtype(dtype)), info


@public()
def block_tridiagonal_solve_logdet(
    diagonal: ArrayLike, lower: ArrayLike, b: ArrayLike
) -> tuple[jax.Array, jax.Array]:
  """Solves A x = b with positive definite block-tridiagonal matrices A, and computes log det A.

  This is what a Gaussian log density needs. It is faster than a `block_tridiagonal_cholesky` and
  the methods of its factor: on the CPU, values of small systems and of long ones never write it to
  memory.

  Args:
    diagonal, lower: as for `block_tridiagonal_cholesky`.
    b: a vector (T, d), or matrices of right-hand sides (..., T, d, k).

  Returns:
    (x, logdet): x of the shape of `b`, and the real logdet (...), with the broadcast batch
    dimensions of all operands. Both are NaN where A is not positive definite; see
    `block_tridiagonal_solve_logdet_ex` and `checked`.

  float16 and bfloat16 are computed in float32, and results rounded.

  Algorithm: that of `block_tridiagonal_cholesky`, without square roots if A is tridiagonal and
  T < 2¹⁷. From 4096 steps on, systems of larger blocks are solved in chunks, one system after
  another. That suits few long systems: a step of a batch takes about twice as long as at T = 4095.
  The derivatives have the same formulas. One handler computes the gradient. It factors A again,
  which takes less time than reading a factor from memory. On a GPU, a system is divided from 1024
  steps on.

  Example:
    >>> import jax.numpy as jnp
    >>> from linalg.structured import block_tridiagonal_solve_logdet
    >>> diagonal = jnp.broadcast_to(4 * jnp.eye(2), (3, 2, 2))
    >>> lower = jnp.broadcast_to(jnp.eye(2), (2, 2, 2))
    >>> x, logdet = block_tridiagonal_solve_logdet(diagonal, lower, jnp.ones((10, 3, 2, 1)))
    >>> x.shape, logdet.shape
    ((10, 3, 2, 1), (10,))
  """
  x, logdet, info = _solve_logdet("block_tridiagonal_solve_logdet", diagonal, lower, b)
  check_positive(info)
  return x, logdet


@public()
def block_tridiagonal_solve_logdet_ex(
    diagonal: ArrayLike, lower: ArrayLike, b: ArrayLike
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """`block_tridiagonal_solve_logdet`, with an info for each matrix.

  Args:
    diagonal, lower, b: as for `block_tridiagonal_solve_logdet`.

  Returns:
    (x, logdet, info). info, int32 of shape (...), is that of a `BlockTridiagonalFactor`.

  Example:
    >>> import jax.numpy as jnp
    >>> from linalg.structured import block_tridiagonal_solve_logdet_ex
    >>> diagonal = jnp.array([[[1.0]], [[-1.0]]])
    >>> x, logdet, info = block_tridiagonal_solve_logdet_ex(
    ...   diagonal, jnp.zeros((1, 1, 1)), jnp.ones((2, 1)))
    >>> print(info)  # the leading minor of order 2 is not positive
    2
  """
  return _solve_logdet("block_tridiagonal_solve_logdet_ex", diagonal, lower, b)


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

  float16 and bfloat16 are computed in float32, and x rounded. Matrices without batch dimensions are
  eliminated again for each matrix of a batch of `b`: give several right-hand sides as columns.

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
