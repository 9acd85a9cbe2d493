"""Solvers for lineax, and so for diffrax and optimistix, by this package's factorisations.

lineax is an optional dependency: `import linalg` does not import this module.

import linalg.lineax, lineax

solution = lineax.linear_solve(operator, vector, linalg.lineax.LU())

lineax maps and differentiates a solve itself. Under `jax.vmap` the factors of the whole batch are
computed by one handler. A matrix that cannot be factored gives NaN, which lineax reports as its
result `singular`.
"""

# Pyright takes this file for lineax.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax.typing import ArrayLike
from lineax.internal import (
  pack_structures,
  ravel_vector,
  transpose_packed_structures,
  unravel_solution,
)

import linalg
from linalg._core.operands import as_arrays
from linalg.structured import block_tridiagonal_cholesky, block_tridiagonal_solve

__all__ = [
    "LU", "QR", "SVD", "BlockTridiagonal", "BlockTridiagonalLinearOperator", "Cholesky",
    "Tridiagonal"]


class _Static(eqx.Module):
  """A value that is known when a solve is traced."""

  value: Any = eqx.field(static=True)


def _conjugated(x):
  return jax.tree.map(lambda y: y.conj() if jnp.iscomplexobj(y) else y, x)


def _square(name, operator):
  if operator.in_size() != operator.out_size():
    raise ValueError(
        f"{name} takes a square operator, got one of {operator.out_size()} by "
        f"{operator.in_size()}.")


class _Solver(lx.AbstractLinearSolver):
  """A solver whose state is (factors, transposed, structures).

  Subclasses have `_factor(operator)` and `_solve(factors, transposed, vector)`.
  """

  def init(self, operator, options):
    del options
    factors, transposed = self._factor(operator)
    return factors, _Static(transposed), pack_structures(operator)

  def compute(self, state, vector, options):
    del options
    factors, transposed, structures = state
    x = self._solve(factors, transposed.value, ravel_vector(vector, structures))
    return unravel_solution(x, structures), lx.RESULTS.successful, self._statistics(factors)

  def transpose(self, state, options):
    del options
    factors, transposed, structures = state
    return (factors, _Static(not transposed.value), transpose_packed_structures(structures)), {}

  def conj(self, state, options):
    del options
    factors, transposed, structures = state
    return (_conjugated(factors), transposed, structures), {}

  def assume_full_rank(self):
    return True

  def _statistics(self, factors):
    del factors
    return {}


class LU(_Solver):
  """LU with partial pivoting, for square operators; in place of `lineax.LU`.

  Example:
    >>> import jax.numpy as jnp, lineax, linalg.lineax
    >>> operator = lineax.MatrixLinearOperator(jnp.array([[1.0, 3.0], [2.0, 4.0]]))
    >>> b = jnp.array([4.0, 6.0])
    >>> print(lineax.linear_solve(operator, b, linalg.lineax.LU()).value)
    [1. 1.]
  """

  def _factor(self, operator):
    _square("LU", operator)
    return linalg.lu_factor(operator.as_matrix()), False

  def _solve(self, factors, transposed, vector):
    return linalg.lu_solve(factors, vector, trans=int(transposed))


class QR(_Solver):
  """Householder QR, for operators of full rank; in place of `lineax.QR`.

  A tall operator has the least-squares solution, and a wide one the solution of least norm.
  """

  def _factor(self, operator):
    a = operator.as_matrix()
    wide = a.shape[0] < a.shape[1]
    packed, taus = linalg.qr(a.T if wide else a, mode="raw")
    return (packed.mT, taus), wide

  def _solve(self, factors, transposed, vector):
    packed, taus = factors
    rows, cols = packed.shape
    column = vector[:, None]
    if not transposed:
      inner = linalg.ormqr(packed, taus, column, transpose=True)[:cols]
      return linalg.solve_triangular(packed[:cols], inner)[:, 0]
    # Aᵀ x = b of a tall A = Q R: the solution of least norm is conj(Q) R⁻ᵀ b.
    inner = linalg.solve_triangular(packed[:cols], column, trans=1)
    inner = jnp.concatenate([inner, jnp.zeros((rows - cols, 1), inner.dtype)])
    return linalg.ormqr(packed, taus, inner.conj()).conj()[:, 0]


class SVD(_Solver):
  """Singular values, for any operator; in place of `lineax.SVD`.

  The solution is the pseudo-inverse's. Singular values of at most `rcond` times the largest count
  as 0. By default `rcond` is the rounding unit times the larger size.
  """

  rcond: float | None = None

  def _factor(self, operator):
    u, s, vh = linalg.svd(operator.as_matrix(), full_matrices=False)
    size = max(operator.in_size(), operator.out_size(), 1)
    rcond = size * float(jnp.finfo(s.dtype).eps) if self.rcond is None else self.rcond
    kept = s > rcond * jnp.max(s, initial=0)
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0)
    return (u, inverse.astype(u.dtype), vh, jnp.sum(kept), jnp.isnan(s).any()), False

  def _solve(self, factors, transposed, vector):
    u, inverse, vh, _, failed = factors
    left, right = (vh.mT, u.mT) if transposed else (u, vh)
    times = lambda a, x: jnp.matmul(a.mT.conj(), x, precision="highest")
    x = times(right, inverse * times(left, vector))
    return jnp.where(failed, jnp.nan, x)

  def _statistics(self, factors):
    return {"rank": factors[3]}

  def assume_full_rank(self):
    return False


class Cholesky(_Solver):
  """Cholesky, for positive or negative definite operators; in place of `lineax.Cholesky`."""

  def _factor(self, operator):
    negative = _negative("Cholesky", operator)
    a = operator.as_matrix()
    factor, _ = linalg.cho_factor(-a if negative else a)
    return (factor, _Static(negative)), False

  def _solve(self, factors, transposed, vector):
    factor, negative = factors
    # A is Hermitian, so its transpose is its conjugate.
    x = linalg.cho_solve((factor.conj() if transposed else factor, False), vector)
    return -x if negative.value else x


def _negative(name, operator):
  """Whether an operator is negative definite. Refuses one that is not marked as definite."""
  _square(name, operator)
  negative = lx.is_negative_semidefinite(operator)
  if not (negative or lx.is_positive_semidefinite(operator)):
    raise ValueError(f"{name} takes an operator that is marked as positive or negative definite.")
  return negative


class Tridiagonal(_Solver):
  """LU of tridiagonal operators with partial pivoting; in place of `lineax.Tridiagonal`."""

  def _factor(self, operator):
    _square("Tridiagonal", operator)
    if not lx.is_tridiagonal(operator):
      raise ValueError("Tridiagonal takes an operator that is marked as tridiagonal.")
    return lx.tridiagonal(operator), False

  def _solve(self, factors, transposed, vector):
    diagonal, lower, upper = factors
    lower, upper = (upper, lower) if transposed else (lower, upper)
    zero = jnp.zeros(1, diagonal.dtype)
    return linalg.tridiagonal_solve(
        jnp.concatenate([zero, lower]), diagonal, jnp.concatenate([upper, zero]),
        vector[:, None])[:, 0]


class BlockTridiagonalLinearOperator(lx.AbstractLinearOperator):
  """A block-tridiagonal matrix, which is never formed.

  Args:
    lower: the blocks below the diagonal, (T - 1, d, d): block t is in row t + 1.
    diagonal: the blocks on the diagonal, (T, d, d).
    upper: the blocks above the diagonal, (T - 1, d, d): block t is in row t.
    tags: `lineax.positive_semidefinite_tag` for a positive definite matrix, which is then factored
      once for all its right-hand sides; or other tags of lineax.

  Vectors are (T d,).
  """

  lower: jax.Array
  diagonal: jax.Array
  upper: jax.Array
  tags: frozenset[object] = eqx.field(static=True)

  def __init__(self, lower: ArrayLike, diagonal: ArrayLike, upper: ArrayLike, tags: Any = ()):
    name = "BlockTridiagonalLinearOperator"
    (lower, diagonal, upper), dtype = as_arrays(name, lower, diagonal, upper)
    steps, d = (*diagonal.shape[:1], *diagonal.shape[-1:]) if diagonal.ndim == 3 else (0, 0)
    beside = (max(steps - 1, 0), d, d)
    if diagonal.shape != (steps, d, d) or lower.shape != beside or upper.shape != beside:
      raise ValueError(
          f"{name}() takes blocks (T - 1, d, d), (T, d, d) and (T - 1, d, d), got {lower.shape}, "
          f"{diagonal.shape} and {upper.shape}.")
    self.lower, self.diagonal, self.upper = (x.astype(dtype) for x in (lower, diagonal, upper))
    self.tags = frozenset(tags if isinstance(tags, (tuple, list, set, frozenset)) else (tags,))

  def _blocks(self, vector):
    return vector.reshape(*self.diagonal.shape[:2], 1)

  def mv(self, vector):
    x = self._blocks(vector)
    times = lambda a, x: jnp.matmul(a, x, precision="highest")
    zero = jnp.zeros_like(x[:1])
    below = jnp.concatenate([zero, times(self.lower, x[:-1])])
    above = jnp.concatenate([times(self.upper, x[1:]), zero])
    return (times(self.diagonal, x) + below + above).reshape(-1)

  def as_matrix(self):
    return jax.vmap(self.mv, in_axes=1, out_axes=1)(
        jnp.eye(self.in_size(), dtype=self.diagonal.dtype))

  def transpose(self):
    lower, diagonal, upper = (x.mT for x in (self.upper, self.diagonal, self.lower))
    return BlockTridiagonalLinearOperator(
        lower, diagonal, upper, tuple(lx.transpose_tags(self.tags)))

  def in_structure(self):
    steps, d, _ = self.diagonal.shape
    return jax.ShapeDtypeStruct((steps * d,), self.diagonal.dtype)

  out_structure = in_structure


@lx.conj.register(BlockTridiagonalLinearOperator)
def _(operator):
  return BlockTridiagonalLinearOperator(
      operator.lower.conj(), operator.diagonal.conj(), operator.upper.conj(),
      tuple(operator.tags))


@lx.linearise.register(BlockTridiagonalLinearOperator)
@lx.materialise.register(BlockTridiagonalLinearOperator)
def _(operator):
  return operator


@lx.diagonal.register(BlockTridiagonalLinearOperator)
def _(operator):
  return jnp.diagonal(operator.diagonal, axis1=-2, axis2=-1).reshape(-1)


@lx.tridiagonal.register(BlockTridiagonalLinearOperator)
def _(operator):
  return lx.tridiagonal(lx.MatrixLinearOperator(operator.as_matrix()))


@lx.is_positive_semidefinite.register(BlockTridiagonalLinearOperator)
def _(operator):
  return lx.positive_semidefinite_tag in operator.tags


@lx.is_negative_semidefinite.register(BlockTridiagonalLinearOperator)
def _(operator):
  return lx.negative_semidefinite_tag in operator.tags


@lx.is_symmetric.register(BlockTridiagonalLinearOperator)
def _(operator):
  definite = lx.is_positive_semidefinite(operator) or lx.is_negative_semidefinite(operator)
  real = not jnp.iscomplexobj(operator.diagonal)
  marked = lx.symmetric_tag in operator.tags or lx.is_diagonal(operator)
  return marked or (definite and real)


@lx.is_tridiagonal.register(BlockTridiagonalLinearOperator)
def _(operator):
  marked = lx.tridiagonal_tag in operator.tags or lx.is_diagonal(operator)
  return marked or operator.diagonal.shape[-1] == 1


@lx.is_diagonal.register(BlockTridiagonalLinearOperator)
def _(operator):
  return lx.diagonal_tag in operator.tags or operator.in_size() == 1


@lx.is_lower_triangular.register(BlockTridiagonalLinearOperator)
def _(operator):
  return lx.lower_triangular_tag in operator.tags


@lx.is_upper_triangular.register(BlockTridiagonalLinearOperator)
def _(operator):
  return lx.upper_triangular_tag in operator.tags


@lx.has_unit_diagonal.register(BlockTridiagonalLinearOperator)
def _(operator):
  return lx.unit_diagonal_tag in operator.tags


def _blocks_of(operator):
  """(lower, diagonal, upper) of a block-tridiagonal operator, of its multiples, and of sums."""
  if isinstance(operator, BlockTridiagonalLinearOperator):
    return operator.lower, operator.diagonal, operator.upper
  if isinstance(operator, lx.TaggedLinearOperator):
    return _blocks_of(operator.operator)
  if isinstance(operator, lx.NegLinearOperator):
    return tuple(-x for x in _blocks_of(operator.operator))
  if isinstance(operator, lx.MulLinearOperator):
    return tuple(x * operator.scalar for x in _blocks_of(operator.operator))
  if isinstance(operator, lx.DivLinearOperator):
    return tuple(x / operator.scalar for x in _blocks_of(operator.operator))
  if isinstance(operator, lx.AddLinearOperator):
    first, second = _blocks_of(operator.operator1), _blocks_of(operator.operator2)
    if first[1].shape != second[1].shape:
      raise ValueError(
          "BlockTridiagonal takes sums of operators with the same blocks, got diagonals of shape "
          f"{first[1].shape} and {second[1].shape}.")
    return tuple(x + y for x, y in zip(first, second, strict=True))
  raise ValueError(
      "BlockTridiagonal takes a BlockTridiagonalLinearOperator, or multiples and sums of them, got "
      f"{type(operator)}.")


class BlockTridiagonal(_Solver):
  """Block elimination, for a `BlockTridiagonalLinearOperator` and multiples and sums of them.

  One that is marked as positive or negative definite has a Cholesky factor, which serves all
  solutions. Others take `block_tridiagonal_solve`, whose docstring has the limits of its accuracy.
  """

  def _factor(self, operator):
    lower, diagonal, upper = _blocks_of(operator)
    positive = lx.is_positive_semidefinite(operator)
    if positive or lx.is_negative_semidefinite(operator):
      sign = 1 if positive else -1
      return (block_tridiagonal_cholesky(sign * diagonal, sign * lower), _Static(sign)), False
    return ((lower, diagonal, upper), None), False

  def _solve(self, factors, transposed, vector):
    found, sign = factors
    if sign is not None:
      b = vector.reshape(*found.diagonal.shape[:2])
      # A is Hermitian, so its transpose is its conjugate.
      x = found.solve(b.conj()).conj() if transposed else found.solve(b)
      return sign.value * x.reshape(-1)
    lower, diagonal, upper = (x.mT for x in found) if transposed else found
    lower, upper = (upper, lower) if transposed else (lower, upper)
    return block_tridiagonal_solve(
        lower, diagonal, upper, vector.reshape(*diagonal.shape[:2])).reshape(-1)
