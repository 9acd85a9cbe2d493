"""LU factors as objects."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  expand,
  identities_like,
  identity,
  info_of_zeros,
  nan_where,
  permutation_matrix,
  stored_diagonal,
)
from linalg._core.checks import check_factors
from linalg._core.edits import as_general_update, as_vectors, at_index, replaced, without
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
from linalg._factorizations.det import SlogdetResult
from linalg._factorizations.lu import check_square_factors, lu_p, lu_pivots_to_permutation_p
from linalg._factorizations.matmul import product
from linalg._factorizations.solve import factored_solve_p
from linalg._factorizations.solve_logdet import factored_slogdet_p
from linalg._factorizations.triangular import parse_trans

__all__ = ["LUFactor", "factorize_lu"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["matrix", "packed", "pivots", "permutation", "info"], meta_fields=["dtype"])
@dataclasses.dataclass(frozen=True, eq=False)
class LUFactor:
  """The LU factors of square matrices A, from `factorize_lu`.

  It is a pytree, so transformed functions can take and return it. Derivatives of solutions and
  determinants are with respect to `matrix`, and reuse the factors. Dtypes are as in
  `CholeskyFactor`: a changed factor keeps its own.

  `pivots`, `permutation` and `info` are arrays of integers, which `jax.grad` refuses in its
  argument. For derivatives with respect to the object, use `jax.grad(..., allow_int=True)` or
  `jax.vjp`.

  Methods that change A factor it again, in O(n³) operations. Bennett's update and the formula of
  Sherman and Morrison take O(n²), but neither exchanges pivots. They lose all digits where a
  leading minor of the new matrix is small, or where A is nearly singular. `CholeskyFactor` has
  updates in O(n²). `QRFactor` factors the smaller R or Q where a row is appended or deleted, or a
  column is.

  Attributes:
    matrix: A (..., n, n).
    packed: U (..., n, n), and below it L without its unit diagonal.
    pivots, permutation: int32 (..., n), as from `lu`: A[permutation] = L U.
    info: int32 (...), 0 on success. It is the 1-based index of the first zero pivot of a singular
      matrix, or -1 where the factors hold NaN or an index is out of range.
    dtype: of results.

  Example:
    >>> import jax, jax.numpy as jnp, linalg
    >>> factor = linalg.factorize_lu(jnp.array([[4.0, 0.0], [0.0, 2.0]]))
    >>> gradient = jax.grad(lambda factor: factor.logdet(), allow_int=True)(factor)
    >>> print(jnp.diagonal(gradient.matrix))  # of A⁻ᵀ
    [0.25 0.5 ]
  """

  matrix: jax.Array
  packed: jax.Array
  pivots: jax.Array
  permutation: jax.Array
  info: jax.Array
  dtype: Any

  @classmethod
  def from_factor(cls, lu_and_piv: tuple[ArrayLike, ArrayLike]) -> "LUFactor":
    """The object for factors that are there, as `lu_factor` returns them: (lu, pivots).

    `matrix` is their product, which may differ from A by rounding errors. Pivots count from 0. A
    matrix is NaN, with -1 in `info`, where one is less than its own index or at least n.
    """
    name = "LUFactor.from_factor"
    packed, pivots = as_pair(
        name, "lu_and_piv", "the two values that lu_factor returns", lu_and_piv)
    (packed,), dtype = as_arrays(name, packed)
    check_arrays(name, pivots)
    pivots = jnp.asarray(pivots)
    check_square_factors(name, packed, pivots)
    packed, pivots = ffi.broadcast_batches(name, (packed, pivots.astype(jnp.int32)), (2, 1))
    n = packed.shape[-1]
    own = expand(jnp.arange(n, dtype=jnp.int32), pivots)
    outside = ((pivots < own) | (pivots >= n)).any(-1)
    packed = nan_where(outside, packed, core=2)
    permutation = lu_pivots_to_permutation_p(pivots, permutation_size=n)
    a = product(jnp.tril(packed, -1) + identity(packed), jnp.triu(packed))
    a = product(permutation_matrix(permutation, packed.dtype), a, transpose_a=True)
    info = jnp.where(outside, -1, info_of_zeros(packed, stored_diagonal(packed)))
    check_factors(info)
    return cls(a, packed, pivots, permutation, info, dtype)

  @property
  def n(self) -> int:
    """The order of A."""
    return self.matrix.shape[-1]

  def _constants(self):
    return self.matrix, jax.lax.stop_gradient(self.packed), self.pivots

  def lower(self) -> jax.Array:
    """L (..., n, n) with a unit diagonal: A[permutation] = L U."""
    return (jnp.tril(self.packed, -1) + identity(self.packed)).astype(self.dtype)

  def upper(self) -> jax.Array:
    """U (..., n, n)."""
    return jnp.triu(self.packed).astype(self.dtype)

  def permutation_matrix(self) -> jax.Array:
    """P (..., n, n) with P A = L U."""
    return permutation_matrix(self.permutation, self.dtype)

  def solve(self, b: ArrayLike, trans: int | str = 0) -> jax.Array:
    """x with A x = b, or the system that `trans` selects, as in `lu_solve`.

    `b` is a vector (n,) or matrices (..., n, k). x is NaN where A is singular.
    """
    check_arrays("solve", b)
    transpose, conjugate = parse_trans("solve", trans)
    dtype = jnp.promote_types(jnp.result_type(b), self.dtype)
    b = jnp.asarray(b, compute_dtype(dtype))
    columns = b[..., None] if b.ndim == 1 else b
    check_columns("solve", self.matrix, b, columns, "the factor")
    matrix, packed, pivots = self._constants()
    x = factored_solve_p(
        matrix.astype(columns.dtype), packed.astype(columns.dtype), pivots, columns,
        transpose=transpose, conjugate=conjugate)
    x = nan_where(self.info != 0, x, core=2)
    return (x[..., 0] if b.ndim == 1 else x).astype(dtype)

  def slogdet(self) -> SlogdetResult:
    """The sign or phase of det A, and log |det A|; 0 and -inf if A is singular."""
    sign, logabsdet = factored_slogdet_p(*self._constants())
    return SlogdetResult(sign.astype(self.dtype), logabsdet.astype(real_dtype(self.dtype)))

  def logdet(self) -> jax.Array:
    """log |det A|, (...), real."""
    return self.slogdet().logabsdet

  def inverse(self) -> jax.Array:
    """A⁻¹ (..., n, n). To compute A⁻¹ b, `solve` is faster and more accurate."""
    x = factored_solve_p(*self._constants(), identities_like(self.packed))
    return nan_where(self.info != 0, x, core=2).astype(self.dtype)

  def update(self, u: ArrayLike, v: ArrayLike) -> "LUFactor":
    """The factors of A + u vᴴ, for vectors (n,), or (..., n, k) for a change of rank k.

    Two dimensions are a matrix of k columns, for all matrices A. Vectors (batch, n), one for each
    A, are `u[..., None]` and `v[..., None]`; see `CholeskyFactor.update`.
    """
    return self._update("update", u, v)

  def downdate(self, u: ArrayLike, v: ArrayLike) -> "LUFactor":
    """The factors of A - u vᴴ, for `u` and `v` as for `update`."""
    return self._update("downdate", u, v)

  def _update(self, name, u, v):
    u, v = as_general_update(name, self.matrix, self.dtype, u, v)
    u = -u if name == "downdate" else u
    return self._of(self.matrix + product(u, v, adjoint_b=True))

  def append(self, column: ArrayLike, row: ArrayLike, corner: ArrayLike) -> "LUFactor":
    """The factors of [[A, column], [row, corner]], for vectors (..., n) and a corner (...)."""
    column, row, corner = as_vectors(
        "append", self.matrix, self.dtype, {"column": column, "row": row}, corner)
    a, column, row, corner = ffi.broadcast_batches(
        "append", (self.matrix, column, row, corner), (2, 1, 1, 0))
    return self._of(jnp.concatenate([
        jnp.concatenate([a, column[..., None]], -1),
        jnp.concatenate([row, corner[..., None]], -1)[..., None, :]], -2))

  def delete(self, index: ArrayLike) -> "LUFactor":
    """The factors of A without row and column `index`, as for `CholeskyFactor.delete`."""
    matrix, place, outside = at_index(
        "delete", index, self.matrix.shape[-1], {"the factor": (self.matrix, 2)})
    return self._of(without(without(matrix, place, -2), place, -1), outside)

  def replace(self, index: ArrayLike, column: ArrayLike, row: ArrayLike) -> "LUFactor":
    """The factors of A with another column and row `index`.

    Args:
      index: as for `CholeskyFactor.delete`.
      column, row: vectors (..., n). Entry `index` of the row is the one on the diagonal.
    """
    column, row = as_vectors(
        "replace", self.matrix, self.dtype, {"column": column, "row": row})
    n = self.matrix.shape[-1]
    a, new_column, new_row, place, outside = at_index("replace", index, n, {
        "the factor": (self.matrix, 2), "column": (column, 1), "row": (row, 1)})
    a = replaced(replaced(a, place, new_column, -1), place, new_row, -2)
    return self._of(a, outside)

  def _of(self, a, outside=None):
    return factor_of(a if outside is None else nan_where(outside, a, core=2), self.dtype)


def factor_of(a: jax.Array, dtype: Any) -> LUFactor:
  packed, pivots, permutation, info = lu_p(a)
  check_factors(info)
  return LUFactor(a, packed, pivots, permutation, info, dtype)


@public()
def factorize_lu(a: ArrayLike) -> LUFactor:
  """The LU factors of square matrices with partial pivoting, as an object.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.

  Returns:
    An `LUFactor`. Its methods solve systems with A, Aᵀ and Aᴴ, and give det A and A⁻¹. Where A is
    singular, solutions are NaN and `info` is the index of the zero pivot; see `checked`.

  float16 and bfloat16 are factored in float32, and results rounded.

  Algorithm: `lu`. Derivatives of solutions and determinants reuse the factors.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> factor = linalg.factorize_lu(jnp.array([[1.0, 3.0], [2.0, 4.0]]))
    >>> print(factor.solve(jnp.array([4.0, 6.0])), factor.slogdet().sign)
    [1. 1.] -1.0
  """
  (a,), dtype = as_arrays("factorize_lu", a)
  check_square("factorize_lu", a)
  return factor_of(a, dtype)
