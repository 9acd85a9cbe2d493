"""QR factors as objects that solve least-squares problems, and follow changes of the matrix."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import adjoint, info_of_zeros, nan_where, stored_diagonal
from linalg._core.checks import check
from linalg._core.edits import as_general_update, at_index, replaced, without
from linalg._core.operands import (
  as_arrays,
  as_changes,
  as_pair,
  check_arrays,
  check_batches,
  check_matrix,
  compute_dtype,
  incompatible,
  incompatible_changes,
  real_dtype,
)
from linalg._core.public import public
from linalg._factorizations.det import SlogdetResult, slogdet_p
from linalg._factorizations.matmul import product
from linalg._factorizations.qr import qr_p
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["QRFactor", "factorize_qr"]


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["q", "r", "info"], meta_fields=["dtype"])
@dataclasses.dataclass(frozen=True, eq=False)
class QRFactor:
  """The QR factors of tall or square matrices A of full rank, from `factorize_qr`.

  It is a pytree, so transformed functions can take and return it. Methods that change A return a
  new object, and derivatives are with respect to the factors. Dtypes are as in `CholeskyFactor`: a
  changed factor keeps its own.

  `info` is an array of integers, which `jax.grad` refuses in its argument. For derivatives with
  respect to the object, use `jax.grad(..., allow_int=True)` or `jax.vjp`.

  Attributes:
    q: Q (..., m, n), with orthonormal columns, A = Q R.
    r: R (..., n, n), upper triangular.
    info: int32 (...), 0 on success, the 1-based index of the first zero on R's diagonal, or -1
      where the factors hold NaN or an index is out of range.
    dtype: of results.

  Example:
    >>> import jax, jax.numpy as jnp, linalg
    >>> factor = linalg.factorize_qr(jnp.array([[4.0, 0.0], [0.0, 2.0]]))
    >>> gradient = jax.grad(lambda factor: factor.logdet(), allow_int=True)(factor)
    >>> print(abs(jnp.diagonal(gradient.r)))  # 1 / |R[i, i]|
    [0.25 0.5 ]
  """

  q: jax.Array
  r: jax.Array
  info: jax.Array
  dtype: Any

  @classmethod
  def from_factor(cls, q_and_r: tuple[ArrayLike, ArrayLike]) -> "QRFactor":
    """The object for factors that are there, as `qr` returns them: (q, r), complete or reduced.

    The columns of Q are taken to be orthonormal.
    """
    name = "QRFactor.from_factor"
    q, r = as_pair(name, "q_and_r", "the two values that qr returns", q_and_r)
    (q, r), dtype = as_arrays(name, q, r)
    names = ("q", "r")
    for x, operand in zip((q, r), names, strict=True):
      check_matrix(name, x, operand)
    m, k = q.shape[-2:]
    n = r.shape[-1]
    if k != r.shape[-2] or not n <= k <= m or k not in (m, n):
      raise incompatible(name, q, r, names=names)
    check_batches(name, q, r, names=names)
    q, r = ffi.broadcast_batches(name, (q, r), (2, 2))
    return factor_of(q[..., :n], jnp.triu(r[..., :n, :]), dtype)

  @property
  def n(self) -> int:
    """The number of columns of A."""
    return self.r.shape[-1]

  def matrix(self) -> jax.Array:
    """A (..., m, n), the product of the factors."""
    return product(self.q, self.r).astype(self.dtype)

  def lower(self) -> jax.Array:
    """Rᴴ (..., n, n), a Cholesky factor of Aᴴ A up to the signs of its columns."""
    return adjoint(self.r).astype(self.dtype)

  def solve(self, b: ArrayLike) -> jax.Array:
    """The x of least ‖A x - b‖, for a vector (m,) or matrices of right-hand sides (..., m, k).

    x is NaN where R has a zero on its diagonal.
    """
    check_arrays("solve", b)
    dtype = jnp.promote_types(jnp.result_type(b), self.dtype)
    b = jnp.asarray(b, compute_dtype(dtype))
    columns = b[..., None] if b.ndim == 1 else b
    if columns.ndim < 2 or columns.shape[-2] != self.q.shape[-2]:
      raise incompatible("solve", self.q, b, names=("the factor Q", "b"))
    check_batches("solve", self.q, columns, names=("the factor Q", "b"))
    q, r = (x.astype(columns.dtype) for x in (self.q, self.r))
    x = triangular_solve_p(r, product(q, columns, adjoint_a=True), left_side=True, lower=False)
    x = nan_where(self.info != 0, x, core=2)
    return (x[..., 0] if b.ndim == 1 else x).astype(dtype)

  def inverse(self) -> jax.Array:
    """A⁻¹ of a square A, or the pseudo-inverse (..., n, m) of a tall one."""
    x = triangular_solve_p(self.r, adjoint(self.q), left_side=True, lower=False)
    return nan_where(self.info != 0, x, core=2).astype(self.dtype)

  def logdet(self) -> jax.Array:
    """log √det(Aᴴ A), which is log |det A| of a square A."""
    return jnp.sum(jnp.log(jnp.abs(stored_diagonal(self.r))), -1).astype(real_dtype(self.dtype))

  def slogdet(self) -> SlogdetResult:
    """The sign or phase of det A, and log |det A|, of a square A; 0 and -inf if A is singular."""
    m, n = self.q.shape[-2:]
    if m != n:
      raise ValueError(f"slogdet() takes factors of a square matrix, got ({m}, {n}); see logdet.")
    of_q, _ = slogdet_p(self.q)
    of_r, logarithms = slogdet_p(stored_diagonal(self.r)[..., None, None])
    sign = of_q * jnp.prod(of_r, axis=-1)
    return SlogdetResult(
        sign.astype(self.dtype), jnp.sum(logarithms, axis=-1).astype(real_dtype(self.dtype)))

  def update(self, u: ArrayLike, v: ArrayLike) -> "QRFactor":
    """The factors of A + u vᴴ, for vectors (m,) and (n,), or (..., m, k) and (..., n, k).

    Two dimensions are a matrix of k columns, for all matrices A. Vectors (batch, m) and (batch, n),
    one for each A, are `u[..., None]` and `v[..., None]`; see `CholeskyFactor.update`.

    The new matrix is factored, in O(m n²) operations.
    """
    return self._update("update", u, v)

  def downdate(self, u: ArrayLike, v: ArrayLike) -> "QRFactor":
    """The factors of A - u vᴴ, for `u` and `v` as for `update`."""
    return self._update("downdate", u, v)

  def _update(self, name, u, v):
    u, v = as_general_update(name, self.q, self.dtype, u, v, "the factor Q")
    u = -u if name == "downdate" else u
    return self._of(product(self.q, self.r) + product(u, v, adjoint_b=True))

  def append_rows(self, rows: ArrayLike) -> "QRFactor":
    """The factors of A with a row (n,), or rows (..., p, n), below it.

    Vectors (batch, n), one for each A, are `rows[..., None, :]`.

    Algorithm: QR of R with the rows below it, and one product with Q.
    """
    (new,) = as_changes("append_rows", self.q, self.dtype, rows, names=("rows",))
    new = new[None] if new.ndim == 1 else new
    n = self.r.shape[-1]
    if new.ndim < 2 or new.shape[-1] != n:
      raise incompatible("append_rows", self.r, new, names=("the factor R", "rows"))
    check_batches("append_rows", self.r, new, names=("the factor R", "rows"))
    q, r, new = ffi.broadcast_batches("append_rows", (self.q, self.r, new), (2, 2, 2))
    own, r = qr_p(jnp.concatenate([r, new], -2))
    q = jnp.concatenate([product(q, own[..., :n, :]), own[..., n:, :]], -2)
    return self._with(q, r)

  def append_columns(self, columns: ArrayLike) -> "QRFactor":
    """The factors of A with a column (m,), or columns (..., m, p), at its right.

    Vectors (batch, m), one for each A, are `columns[..., None]`. The new matrix is factored, in
    O(m n²) operations. It may not be wider than tall.
    """
    (new,) = as_changes("append_columns", self.q, self.dtype, columns, names=("columns",))
    new = new[..., None] if new.ndim == 1 else new
    m, n = self.q.shape[-2:]
    if new.ndim < 2 or new.shape[-2] != m:
      names = ("the factor Q", "columns")
      raise incompatible_changes("append_columns", self.q, (new,), names=names)
    check_batches("append_columns", self.q, new, names=("the factor Q", "columns"))
    if n + new.shape[-1] > m:
      raise ValueError(
          f"append_columns() of columns {new.shape} to {n} others makes matrices wider than tall: "
          f"they have {m} rows.")
    a, new = ffi.broadcast_batches("append_columns", (product(self.q, self.r), new), (2, 2))
    return self._of(jnp.concatenate([a, new], -1))

  def delete_row(self, index: ArrayLike) -> "QRFactor":
    """The factors of A without row `index`, which is as for `CholeskyFactor.delete`.

    Algorithm: QR of the other rows of Q, which are well conditioned beside A.
    """
    m, n = self.q.shape[-2:]
    if m <= n:
      raise ValueError(f"delete_row() needs more rows than columns, got a matrix ({m}, {n}).")
    q, r, place, outside = at_index(
        "delete_row", index, m, {"the factor Q": (self.q, 2), "R": (self.r, 2)})
    q, own = qr_p(without(q, place, -2))
    return self._with(q, jnp.triu(product(own, r)), outside)

  def delete_column(self, index: ArrayLike) -> "QRFactor":
    """The factors of A without column `index`, which is as for `CholeskyFactor.delete`.

    Algorithm: QR of the other columns of R, and one product with Q.
    """
    q, r, place, outside = at_index(
        "delete_column", index, self.r.shape[-1],
        {"the factor Q": (self.q, 2), "R": (self.r, 2)})
    own, r = qr_p(without(r, place, -1))
    return self._with(product(q, own), r, outside)

  def replace_row(self, index: ArrayLike, row: ArrayLike) -> "QRFactor":
    """The factors of A with another row `index`, (..., n), by a QR of the new matrix."""
    return self._replaced("replace_row", index, row, -2)

  def replace_column(self, index: ArrayLike, column: ArrayLike) -> "QRFactor":
    """The factors of A with another column `index`, (..., m), by a QR of the new matrix."""
    return self._replaced("replace_column", index, column, -1)

  def _replaced(self, name, index, x, axis):
    (x,) = as_changes(name, self.q, self.dtype, x, names=("the vector",))
    a = product(self.q, self.r)
    if x.ndim < 1 or x.shape[-1] != a.shape[-3 - axis]:
      raise incompatible(name, a, x, names=("the matrix", "the vector"))
    check_batches(name, a, x, ranks=(2, 1), names=("the matrix", "the vector"))
    a, x, place, outside = at_index(
        name, index, a.shape[axis], {"the matrix": (a, 2), "the vector": (x, 1)})
    return self._of(replaced(a, place, x, axis), outside)

  def _of(self, a, outside=None):
    q, r = qr_p(a)
    return self._with(q, r, outside)

  def _with(self, q, r, outside=None):
    if outside is not None:
      q, r = (nan_where(outside, x, core=2) for x in (q, r))
    return factor_of(q, r, self.dtype)


def factor_of(q: jax.Array, r: jax.Array, dtype: Any) -> QRFactor:
  info = info_of_zeros(r, stored_diagonal(r))
  check(info, "has no QR factors of full rank (info {info}).")
  return QRFactor(q, r, info, dtype)


@public()
def factorize_qr(a: ArrayLike) -> QRFactor:
  """The QR factors of tall or square matrices, as an object that follows their changes.

  Args:
    a: matrices (..., m, n) with m >= n, of any floating, complex or integer dtype.

  Returns:
    A `QRFactor`. Its methods solve least-squares problems, and give det A and the pseudo-inverse.
    Rows and columns can be appended, deleted and exchanged. Where A has not full rank to the last
    bit, solutions are NaN and `info` is the index of a zero on R's diagonal; see `checked`.

  float16 and bfloat16 are factored in float32, and results rounded.

  Algorithm: `qr`. A changed matrix is factored from R or Q where that is smaller; derivatives are
  those of `qr`. A nearly dependent column makes solutions inaccurate: `lstsq` has a cut-off.
  Rows lose digits beside rows that are far larger: `factorize_lu` keeps them.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> factor = linalg.factorize_qr(jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]))
    >>> print(factor.solve(jnp.array([1.0, 3.0, 5.0])).round(4))  # the line 1 + 2 t
    [1. 2.]
    >>> factor = factor.append_rows(jnp.array([1.0, 3.0]))
    >>> print(factor.solve(jnp.array([1.0, 3.0, 5.0, 7.0])).round(4))
    [1. 2.]
  """
  (a,), dtype = as_arrays("factorize_qr", a)
  check_matrix("factorize_qr", a)
  if a.shape[-2] < a.shape[-1]:
    raise ValueError(f"factorize_qr takes matrices (..., m, n) with m >= n, got {a.shape}.")
  q, r = qr_p(a)
  return factor_of(q, r, dtype)
