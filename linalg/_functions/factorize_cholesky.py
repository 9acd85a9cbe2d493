"""Cholesky factors as objects that solve, and that follow changes of the matrix."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  expand,
  identities_like,
  identity,
  nan_where,
  stored_diagonal,
  triangle,
  zeros_like,
)
from linalg._core.checks import called, check, check_positive
from linalg._core.edits import (
  along,
  as_border,
  as_update,
  as_vectors,
  as_weighted_update,
  at_index,
  beside,
  row_of,
  without,
)
from linalg._core.operands import (
  as_arrays,
  as_pair,
  check_arrays,
  check_columns,
  check_square,
  compute_dtype,
  real_dtype,
)
from linalg._core.public import public
from linalg._factorizations.cholesky import cholesky_p, cholesky_solve_p
from linalg._factorizations.cholesky_update import cholesky_update_p, weighted_update_p
from linalg._factorizations.det import SlogdetResult
from linalg._factorizations.matmul import product
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["CholeskyFactor", "factorize_cholesky"]


def _first(info, later):
  """The info of the first failure."""
  info, later = ffi.broadcast_batches("CholeskyFactor", (info, later), (0, 0))
  return jnp.where(info != 0, info, later)


@functools.partial(jax.jit, static_argnames="downdate")
def _update(upper, info, w, downdate):
  upper, info, w = ffi.broadcast_batches("update", (upper, info, w), (2, 0, 2))

  def step(factor, w):
    upper, info = factor
    upper, found = cholesky_update_p(upper, w, downdate=downdate)
    return (upper, _first(info, found)), None

  if w.shape[-1] == 1:
    return step((upper, info), w[..., 0])[0]
  return jax.lax.scan(step, (upper, info), jnp.moveaxis(w, -1, 0))[0]


@jax.jit
def _weighted(upper, info, w, weight):
  upper, info, w, weight = ffi.broadcast_batches(
      "update", (upper, info, w, weight), (2, 0, 2, 1))

  def step(factor, column):
    upper, info = factor
    upper, found = weighted_update_p(upper, *column)
    return (upper, _first(info, found)), None

  columns = jnp.moveaxis(w, -1, 0), jnp.moveaxis(weight, -1, 0)
  return jax.lax.scan(step, (upper, info), columns)[0]


@jax.jit
def _append(upper, info, columns, corner):
  # A Schur complement: R12 = R11⁻ᴴ A12, and R22 is the factor of A22 - R12ᴴ R12.
  upper, info, columns, corner = ffi.broadcast_batches(
      "append", (upper, info, columns, corner), (2, 0, 2, 2))
  n, k = columns.shape[-2:]
  right = _half(upper, columns, adjoint=False)
  if k == 1:
    rest = corner.real - jnp.sum(right.real**2 + right.imag**2, axis=-2, keepdims=True)
    positive = (rest > 0)[..., 0, 0]
    found = jnp.where(positive, 0, 1)
    own = jnp.sqrt(jnp.where(rest > 0, rest, 1)).astype(upper.dtype)
  else:
    own, found = cholesky_p(
        corner - product(right, right, adjoint_a=True), lower=False, symmetrize=True)
  info = _first(info, jnp.where(found != 0, found + n, 0).astype(jnp.int32))
  below = expand(jnp.zeros((k, n), upper.dtype), own) + zeros_like(own[..., :1])
  factor = jnp.concatenate([
      jnp.concatenate([upper, right], -1), jnp.concatenate([below, own], -1)], -2)
  return nan_where(info != 0, factor, core=2), info


def _half(upper, b, adjoint):
  """R⁻ᴴ b, or R⁻¹ b with `adjoint`: L⁻¹ b and L⁻ᴴ b."""
  return triangular_solve_p(
      upper, b, left_side=True, lower=False, transpose_a=not adjoint, conjugate_a=not adjoint)


def _placed(upper, info, found, outside):
  """The factor, with NaN and info -1 where an index is out of range, and what it found else."""
  if outside is None:
    return upper, _first(info, found)
  info = _first(info, jnp.where(outside, -1, found).astype(jnp.int32))
  return nan_where(info != 0, upper, core=2), info


@jax.jit
def _delete(upper, info, index, outside):
  # Rows above keep their other columns. The rows below gain that of the deleted one.
  row = without(row_of(upper, index), index, -1, core=1)
  rest = without(without(upper, index, -2), index, -1)
  rest, found = cholesky_update_p(rest, row.conj())
  return _placed(rest, info, found, outside)


@jax.jit
def _replace(upper, info, column, index, outside):
  # Let R's rows be those above the index, its own, and those below. The rows above change in the
  # column only. The rows below gain the old row, and then lose the new one.
  upper, info, column = ffi.broadcast_batches("replace", (upper, info, column), (2, 0, 1))
  row, col = along(upper, -2), along(upper, -1)
  place = beside(index, upper, 2)
  element, own = along(column, -1), beside(index, column, 1)
  old = jnp.where(element > own, row_of(upper, index), 0)
  below = jnp.where((row > place) & (col > place), upper, identity(upper))
  below, found = cholesky_update_p(below, old.conj())
  above = jnp.where((row < place) & (col < place), upper, identity(upper))
  top = jnp.where(element < own, column, 0)
  top = _half(above, top[..., None], adjoint=False)
  squares = jnp.sum(top.real**2 + top.imag**2, axis=(-2, -1))
  rest = jnp.sum(jnp.where(element == own, column, 0).real, axis=-1) - squares
  positive = rest > 0
  diagonal = jnp.sqrt(jnp.where(positive, rest, 1)).astype(upper.dtype)[..., None]
  middle = product(jnp.where(row < place, upper, 0), top, adjoint_a=True)[..., 0]
  new = jnp.where(element > own, (column - middle) / diagonal, 0)
  below, lost = cholesky_update_p(below, new, downdate=True)
  failed = jnp.where(positive, 0, index + 1)
  found = _first(failed.astype(jnp.int32), _first(found, lost))
  own_row = jnp.where(element == own, diagonal, new.conj())[..., None, :]
  rows_above = jnp.where(col == place, top, upper)
  factor = jnp.where(row < place, rows_above, jnp.where(row == place, own_row, below))
  factor = nan_where(_first(info, found) != 0, jnp.triu(factor), core=2)
  return _placed(factor, info, found, outside)


@jax.jit
def _logdet(upper):
  return 2 * jnp.sum(jnp.log(jnp.abs(stored_diagonal(upper).real)), axis=-1)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["upper", "info"], meta_fields=["dtype"])
@dataclasses.dataclass(frozen=True, eq=False)
class CholeskyFactor:
  """The Cholesky factor of positive definite matrices A, from `factorize_cholesky`.

  It is a pytree, so transformed functions can take and return it. Methods that change A return a
  new object. Derivatives are with respect to the factor, and through it to A.

  A changed factor keeps its dtype, so that a scan can carry it: operands of changes are converted
  to it, and complex ones of a real factor raise TypeError. Right-hand sides promote with the
  factor, as in jax.numpy.

  `info` is an array of integers, which `jax.grad` refuses in its argument. For derivatives with
  respect to the object, use `jax.grad(..., allow_int=True)` or `jax.vjp`.

  A changed matrix that is not positive definite gives NaN and `info` for itself alone.

  Attributes:
    upper: R (..., n, n), A = Rᴴ R, zero below its diagonal.
    info: int32 (...), 0 where there is a factor. Otherwise it is the order of the first leading
      minor that is not positive, or -1 for an index out of range, and the factor is NaN.
    dtype: of results.

  Example:
    >>> import jax, jax.numpy as jnp, linalg
    >>> factor = linalg.factorize_cholesky(jnp.array([[4.0, 0.0], [0.0, 1.0]]))
    >>> gradient = jax.grad(lambda factor: factor.logdet(), allow_int=True)(factor)
    >>> print(jnp.diagonal(gradient.upper))  # 2 / R[i, i]
    [1. 2.]
  """

  upper: jax.Array
  info: jax.Array
  dtype: Any

  @classmethod
  def from_factor(cls, c_and_lower: tuple[ArrayLike, bool]) -> "CholeskyFactor":
    """The object for a factor that is there, as `cho_factor` returns it: (factor, lower)."""
    name = "CholeskyFactor.from_factor"
    c, lower = as_pair(
        name, "c_and_lower", "the two values that cho_factor returns", c_and_lower, flag=True)
    (c,), dtype = as_arrays(name, c)
    check_square(name, c)
    upper = adjoint(triangle(c, lower=True)) if lower else triangle(c, lower=False)
    positive = stored_diagonal(upper).real > 0
    order = expand(jnp.arange(1, c.shape[-1] + 1, dtype=jnp.int32), positive)
    last = c.shape[-1] + 1
    info = jnp.min(jnp.where(positive, last, order), axis=-1, initial=last)
    info = jnp.where(info == last, 0, info)
    return cls(nan_where(info != 0, upper, core=2), info, dtype)

  @property
  def n(self) -> int:
    """The order of A."""
    return self.upper.shape[-1]

  def _columns(self, name, b):
    """R and b as columns of one dtype, whether b was a vector, and the dtype to return."""
    check_arrays(name, b)
    dtype = jnp.promote_types(jnp.result_type(b), self.dtype)
    b = jnp.asarray(b, compute_dtype(dtype))
    columns = b[..., None] if b.ndim == 1 else b
    check_columns(name, self.upper, b, columns, "the factor")
    return self.upper.astype(columns.dtype), columns, b.ndim == 1, dtype

  def _changed(self, name, changed):
    upper, info = changed
    with called(name):
      check(info, "is not positive definite after the change (info {info}).")
    return dataclasses.replace(self, upper=upper, info=info)

  def lower(self) -> jax.Array:
    """L (..., n, n), A = L Lᴴ, zero above the diagonal."""
    return adjoint(self.upper).astype(self.dtype)

  def matrix(self) -> jax.Array:
    """A (..., n, n), the product of the factors."""
    return product(self.upper, self.upper, adjoint_a=True).astype(self.dtype)

  def solve(self, b: ArrayLike) -> jax.Array:
    """x with A x = b, for a vector (n,) or matrices of right-hand sides (..., n, k)."""
    upper, columns, vector, dtype = self._columns("solve", b)
    x = cholesky_solve_p(upper, columns, lower=False)
    return (x[..., 0] if vector else x).astype(dtype)

  def solve_half(self, b: ArrayLike, *, adjoint: bool = False) -> jax.Array:
    """L⁻¹ b, or L⁻ᴴ b with `adjoint`, for `b` as for `solve`.

    If z has independent standard normal entries, then L⁻ᴴ z has covariance A⁻¹.
    """
    upper, columns, vector, dtype = self._columns("solve_half", b)
    x = _half(upper, columns, adjoint)
    return (x[..., 0] if vector else x).astype(dtype)

  def quadratic(self, b: ArrayLike) -> jax.Array:
    """bᴴ A⁻¹ b, real: (...) for a vector (n,), (..., k) for the columns of (..., n, k)."""
    upper, columns, vector, dtype = self._columns("quadratic", b)
    x = _half(upper, columns, adjoint=False)
    squares = jnp.sum(x.real**2 + x.imag**2, axis=-2)
    return (squares[..., 0] if vector else squares).astype(real_dtype(dtype))

  def logdet(self) -> jax.Array:
    """log det A, (...), real. NaN where there is no factor."""
    return _logdet(self.upper).astype(real_dtype(self.dtype))

  def slogdet(self) -> SlogdetResult:
    """The sign 1 of det A, and log det A. Both are NaN where there is no factor."""
    logdet = self.logdet()
    sign = jnp.where(self.info == 0, jnp.ones((), self.dtype), jnp.nan)
    return SlogdetResult(sign.astype(self.dtype), logdet)

  def inverse(self) -> jax.Array:
    """A⁻¹ (..., n, n). To compute A⁻¹ b, `solve` is faster and more accurate."""
    x = cholesky_solve_p(self.upper, identities_like(self.upper), lower=False)
    return x.astype(self.dtype)

  def update(self, w: ArrayLike, weight: ArrayLike | None = None) -> "CholeskyFactor":
    """The factor of A + w wᴴ, or of A + w diag(weight) wᴴ.

    Args:
      w: a vector (n,), or (..., n, k) for a change of rank k. Two dimensions are a matrix of k
        columns, for all matrices A: not vectors (batch, n), which `append` and `replace` take. Use
        `w[..., None]` for one vector for each A.
      weight: a real number, or (..., k), one for each column. Signs may differ and be traced, and
        there are derivatives at 0.

    Each column takes O(n²) operations, by `cholesky_update`; with a weight, two calls of it.

    Example:
      >>> import jax.numpy as jnp, linalg
      >>> factor = linalg.factorize_cholesky(jnp.stack([jnp.eye(2), jnp.eye(2)]))
      >>> w = jnp.array([[1.0, 0.0], [0.0, 2.0]])
      >>> print(jnp.diagonal(factor.update(w[..., None]).matrix(), axis1=-2, axis2=-1).round(4))
      [[2. 1.]
       [1. 5.]]
      >>> print(jnp.diagonal(factor.update(w).matrix(), axis1=-2, axis2=-1).round(4))  # rank 2
      [[2. 5.]
       [2. 5.]]
      >>> factor = linalg.factorize_cholesky(jnp.eye(2))
      >>> unit = jnp.array([0.0, 1.0])
      >>> print(factor.update(unit, -0.75).lower())
      [[1.  0. ]
       [0.  0.5]]
    """
    if weight is None:
      return self._update("update", w, downdate=False)
    columns, weight = as_weighted_update("update", self.upper, self.dtype, w, weight)
    ffi.refuse_sharded("update", columns)
    return self._changed("update", _weighted(self.upper, self.info, columns, weight))

  def downdate(self, w: ArrayLike) -> "CholeskyFactor":
    """The factor of A - w wᴴ, for `w` as for `update`: vectors for a batch are `w[..., None]`."""
    return self._update("downdate", w, downdate=True)

  def _update(self, name, w, downdate):
    columns = as_update(name, self.upper, self.dtype, w)
    ffi.refuse_sharded(name, columns)
    return self._changed(name, _update(self.upper, self.info, columns, downdate))

  def append(self, columns: ArrayLike, corner: ArrayLike) -> "CholeskyFactor":
    """The factor of A with rows and columns added at the end: [[A, C], [Cᴴ, D]].

    Args:
      columns: C, vectors (..., n) for one column, or (..., n, k).
      corner: D, a number or (...) for one column, or (..., k, k), of which the Hermitian part is
        used. Where `columns` has one dimension more than it, `columns` are vectors.

    The Schur complement D - Cᴴ A⁻¹ C takes a triangular solve, O(n² k) operations.
    """
    columns, corner = as_border("append", self.upper, self.dtype, columns, corner)
    if columns.shape[-1] == 0:
      upper, info, *_ = ffi.broadcast_batches(
          "append", (self.upper, self.info, columns, corner), (2, 0, 2, 2))
      return dataclasses.replace(self, upper=upper, info=info)
    return self._changed("append", _append(self.upper, self.info, columns, corner))

  def delete(self, index: ArrayLike) -> "CholeskyFactor":
    """The factor of A without row and column `index`; the others keep their order.

    Args:
      index: an integer, or integers (...), one for each matrix. It may be traced, and counts from
        the end if it is negative.

    A rank-one update of the rows below, O(n²) operations, which cannot fail.
    """
    upper, *place = at_index(
        "delete", index, self.upper.shape[-1], {"the factor": (self.upper, 2)})
    return self._changed("delete", _delete(upper, self.info, *place))

  def replace(self, index: ArrayLike, column: ArrayLike) -> "CholeskyFactor":
    """The factor of A with another row and column `index`.

    Args:
      index: as for `delete`.
      column: the new column (..., n); entry `index` is that of the diagonal, whose imaginary part
        is not used.

    A triangular solve, an update and a downdate of the rows below, O(n²) operations.
    """
    n = self.upper.shape[-1]
    (column,) = as_vectors("replace", self.upper, self.dtype, {"column": column})
    upper, column, *place = at_index(
        "replace", index, n, {"the factor": (self.upper, 2), "column": (column, 1)})
    return self._changed("replace", _replace(upper, self.info, column, *place))


@public("symmetrize_input")
def factorize_cholesky(a: ArrayLike, *, symmetrize_input: bool = True) -> CholeskyFactor:
  """The Cholesky factor of positive definite matrices, as an object that follows their changes.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.
    symmetrize_input: if true, (A + Aᴴ) / 2 is factored. If false, only its upper triangle is read.

  Returns:
    A `CholeskyFactor`. Its methods solve systems, and give log det A and A⁻¹. `update`, `downdate`,
    `append`, `delete` and `replace` return the factor of a changed matrix in O(n²) operations.
    Where A is not positive definite the factor and all results are NaN, and `info` says at which
    leading minor; see `checked`.

  float16 and bfloat16 are factored in float32, and results rounded.

  Algorithm: `cholesky`, and rotations for a change (`cholesky_update`). Derivatives are those of
  both.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> factor = linalg.factorize_cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> print(factor.solve(jnp.array([8.0, 6.0])))
    [1. 2.]
    >>> larger = factor.append(jnp.array([0.0, 0.0]), 9.0)
    >>> print(larger.delete(1).lower().round(4))
    [[2. 0.]
     [0. 3.]]
    >>> print(factor.downdate(jnp.array([3.0, 0.0])).info)  # 4 - 3² is negative
    1
  """
  (a,), dtype = as_arrays("factorize_cholesky", a)
  check_square("factorize_cholesky", a)
  upper, info = cholesky_p(a, lower=False, symmetrize=symmetrize_input)
  check_positive(info)
  return CholeskyFactor(upper, info, dtype)
