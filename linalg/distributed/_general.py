"""LU factors of one general square matrix that several devices share."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

import linalg.distributed._algorithms as algorithms
import linalg.distributed._changes as changes
import linalg.distributed._lu_cyclic as elimination
from linalg import ffi
from linalg._core.algebra import imaginary
from linalg._core.checks import called, check_factors
from linalg._core.edits import as_general_update, as_vectors
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import real_dtype
from linalg._core.public import public
from linalg._factorizations.det import SlogdetResult
from linalg._factorizations.triangular import parse_trans
from linalg.distributed._cyclic import Cyclic
from linalg.distributed._determinant import determinant
from linalg.distributed._layout import Places, check_divides
from linalg.distributed._operations import inverse_tangent, multiply_p, solve_p
from linalg.distributed._redistribution import brought, from_cyclic
from linalg.distributed._rhs import linear_solution, one_change, one_index, solve_columns


def _inverse(packed, order, grid):
  return grid.map(functools.partial(elimination.inverse, grid), "cc", "c", packed, order)


def _inverse_jvp(primals, tangents, *, grid):
  x = inverse_p(*primals, grid=grid)
  return x, inverse_tangent(x, tangents[0], grid)


inverse_p = given_factors(
    "linalg_distributed_general_inverse", "h w, h w, n -> h w", [1], _inverse,
    attributes={"grid": None}, jvp=_inverse_jvp)


def _logdet(a, packed, order, *, grid):
  del a, order
  logarithm = grid.map(
      functools.partial(elimination.log_determinant, grid), "c", "c", packed)
  return [logarithm, jnp.zeros_like(logarithm)]


def _logdet_jvp(primals, tangents, *, grid):
  # d log det A = tr(A⁻¹ dA): its real part moves the magnitude, its imaginary part the phase.
  inverse = inverse_p(*primals, grid=grid)
  turned = grid.map(grid.transpose, "c", "c", inverse)
  trace = jnp.sum(turned * tangents[0], axis=(-2, -1))
  turn = trace.imag if jnp.iscomplexobj(trace) else None
  return logdet_p(*primals, grid=grid), (trace.real, turn)


# The device's part of log |det A|, and an angle that turns the phase. The angle is 0, but its
# derivative is not.
logdet_p: ffi.Operation = ffi.operation(
    "linalg_distributed_general_logdet", "h w, h w, n -> (), ()",
    lambda a, packed, *_, **__: [real_dtype(packed)] * 2, attributes={"grid": None}, platforms=(),
    jvp=_logdet_jvp, fallback=_logdet)


def _packed_jvp(primals, tangents, *, grid):
  # Let M = L⁻¹ P dA U⁻¹. Then dL is L times its strictly lower triangle, and dU its upper one times
  # U.
  order = primals[-1]
  packed = packed_p(*primals, grid=grid)
  l = grid.map(lambda x: elimination.factors(grid, x)[0], "c", "c", packed)
  turned = grid.map(lambda x: grid.transpose(elimination.factors(grid, x)[1]), "c", "c", packed)
  permutation = grid.map(
      functools.partial(elimination.permutation_matrix, grid), "cc", "c", packed, order)
  m = multiply_p(lax.stop_gradient(permutation), tangents[0], grid=grid)
  m = solve_p(l, m, grid=grid, left=True, transpose=False)
  m = solve_p(turned, m, grid=grid, left=False, transpose=True)
  below, above = (grid.map(functools.partial(_part, grid, lower), "c", "c", m)
                  for lower in (True, False))
  dl = multiply_p(l, below, grid=grid, lower=(True, True))
  du = multiply_p(above, turned, grid=grid, transpose=(False, True), lower=(False, True))
  return packed, sum(grid.map(functools.partial(_part, grid, lower), "c", "c", x)
                     for x, lower in ((dl, True), (du, False)))


def _part(grid, lower, x):
  """The strictly lower or the upper triangle."""
  row, column = grid.numbers()
  return jnp.where((row > column) == lower, x, 0)


packed_p = given_factors(
    "linalg_distributed_lu", "h w, h w, n -> h w", [1], lambda packed, order, grid: packed,
    attributes={"grid": None}, jvp=_packed_jvp)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _triangle(grid, lower, a, packed, order):
  triangle = functools.partial(
      algorithms.triangle, grid, lower=lower, unit_diagonal=lower)
  return from_cyclic(grid, grid.map(triangle, "c", "c", packed_p(a, packed, order, grid=grid)))


@functools.partial(jax.jit, static_argnums=0)
def _permutation_matrix(grid, packed, order):
  body = functools.partial(elimination.permutation_matrix, grid)
  return from_cyclic(grid, grid.map(body, "cc", "c", lax.stop_gradient(packed), order))


@functools.partial(jax.jit, static_argnums=0)
def _permutation(grid, order):
  return grid.map(lambda order: lax.pmax(order[: grid.n], grid.axes), "c", "s", order)


@functools.partial(jax.jit, static_argnums=0)
def _factor(grid: Cyclic, a):
  return grid.map(
      functools.partial(elimination.eliminate, grid), "c", "ccs", lax.stop_gradient(a))


@functools.partial(jax.jit, static_argnums=0)
def _inverse_matrix(grid, a, packed, order, info):
  x = from_cyclic(grid, inverse_p(a, packed, order, grid=grid))
  return jnp.where(info != 0, jnp.nan, x)


def _parts(grid, packed, order):
  """Returns (p, e, phase) for each device: its part p 2^e of the determinant, and p's phase."""
  return grid.map(
      functools.partial(elimination.determinant, grid), "cc", "ccc", packed, order)


@functools.partial(jax.jit, static_argnums=0)
def _slogdet(grid, a, packed, order):
  sign = jnp.prod(_parts(grid, packed, order)[2])
  logarithm, turn = map(jnp.sum, logdet_p(a, packed, order, grid=grid))
  if jnp.iscomplexobj(sign):
    sign = sign * jnp.exp(imaginary(turn))
  return sign, logarithm


@functools.partial(jax.jit, static_argnums=0)
def _det(grid, a, packed, order):
  parts, exponents, _ = _parts(grid, packed, order)
  logarithm, turn = map(jnp.sum, logdet_p(a, packed, order, grid=grid))
  return determinant(parts, exponents, logarithm, turn)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _solution(grid, adjoint, a, packed, order, info, b):
  def multiply(x):
    body = lambda a, x: lax.psum(
        algorithms.times_columns(grid, a, x, adjoint=adjoint), grid.axes)
    return grid.map(body, "cs", "s", a, x)

  def solve(b, adjoint):
    body = functools.partial(elimination.solve_columns, grid, adjoint=adjoint)
    return grid.map(body, "ccs", "s", packed, order, b)

  x = linear_solution(
      grid, b, multiply, functools.partial(solve, adjoint=adjoint),
      functools.partial(solve, adjoint=not adjoint))
  return jnp.where(info != 0, jnp.nan, x)


@functools.partial(jax.jit, static_argnums=0)
def _matrix(grid, a):
  return from_cyclic(grid, a)


@functools.partial(jax.jit, static_argnums=0)
def _summed(grid, a, u, v):
  u, v = grid.pad(u), grid.pad(v)
  return grid.map(functools.partial(changes.add_outer, grid), "css", "c", a, v, u)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _appended(old, grid, a, column, row, corner):
  def grown(a, column, row):
    return changes.replaced(grid, changes.resized(grid, a), jnp.int32(old.n), row, column)

  column, row = (grid.pad(jnp.append(x, corner)) for x in (column, row))
  return grid.map(grown, "css", "c", a, column, row)


_deleted = jax.jit(changes.matrix_without, static_argnums=(0, 1))


@functools.partial(jax.jit, static_argnums=0)
def _replaced(grid, a, index, outside, column, row):
  return changes.matrix_replaced(grid, a, index, outside, grid.pad(row), grid.pad(column))


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["a", "blocks", "order", "info"], meta_fields=["grid", "dtype"])
@dataclasses.dataclass(frozen=True, eq=False)
class LUFactor:
  """The LU factors of a matrix that several devices share, as `lu_factor` returns them.

  It is a pytree, so transformed functions can take and return it. Methods that change A return a
  new object, of the same dtype, grid and panels. They factor the changed matrix again, in O(n³ / P)
  operations: see `linalg.factorize_lu`, which has the same methods, for the reason. A stays in its
  layout. Only `delete` moves it, a row and a column of each block to the device before.

  `info` and `order` are integers, which `jax.grad` refuses in its argument. For derivatives with
  respect to the object, use `jax.grad(..., allow_int=True)` or `jax.vjp`.

  Attributes:
    a: A in the block-cyclic layout, (P, h, w), a part for each of P devices; see
      docs/distributed_algorithms.md. Derivatives are with respect to it.
    blocks: U in that layout, and L below U's diagonal, without its unit diagonal. They are
      constants for derivatives.
    order: int32 (P, n'), equal for all devices: row i of L U is row order[:, i] of A, padded to n'
      rows.
    info: int32, 0 if all pivots are nonzero, or -1 where the factors hold NaN, as for a traced
      index out of range. For a singular matrix it is the 1-based index of the first zero pivot.
    grid: the layout.
    dtype: of results.
  """

  a: jax.Array
  blocks: jax.Array
  order: jax.Array
  info: jax.Array
  grid: Cyclic
  dtype: Any

  @property
  def n(self) -> int:
    """The order of A."""
    return self.grid.n

  @property
  def matrix(self) -> jax.Array:
    """A (n, n), sharded as it was."""
    check_divides("matrix", self.grid.layout, self.n)
    return _matrix(self.grid, self.a).astype(self.dtype)

  @property
  def permutation(self) -> jax.Array:
    """int32 (n,), on all devices: A[permutation] = L U."""
    return _permutation(self.grid, self.order)

  def lower(self) -> jax.Array:
    """L (n, n) with a unit diagonal, sharded as A is: A[permutation] = L U."""
    return self._triangle("lower", True)

  def upper(self) -> jax.Array:
    """U (n, n), sharded as A is."""
    return self._triangle("upper", False)

  def _triangle(self, name, lower):
    check_divides(name, self.grid.layout, self.n)
    return _triangle(self.grid, lower, self.a, self.blocks, self.order).astype(self.dtype)

  def permutation_matrix(self) -> jax.Array:
    """P (n, n) with P A = L U, sharded as A is."""
    check_divides("permutation_matrix", self.grid.layout, self.n)
    return _permutation_matrix(self.grid, self.blocks, self.order).astype(self.dtype)

  def inverse(self) -> jax.Array:
    """A⁻¹ (n, n), sharded as A is. Where A⁻¹ b will do, `solve` is faster and more accurate."""
    check_divides("inverse", self.grid.layout, self.n)
    found = _inverse_matrix(
        self.grid, self.a, self.blocks, self.order, self.info)
    return found.astype(self.dtype)

  def slogdet(self) -> SlogdetResult:
    """The sign or phase of det A, and log |det A|, on all devices; 0 and -inf if A is singular."""
    sign, logarithm = _slogdet(self.grid, self.a, self.blocks, self.order)
    return SlogdetResult(sign.astype(self.dtype), logarithm.astype(real_dtype(self.dtype)))

  def logdet(self) -> jax.Array:
    """log |det A|, a real number on all devices."""
    return self.slogdet().logabsdet

  def det(self) -> jax.Array:
    """det A, on all devices. A singular matrix has 0, whose derivative is NaN."""
    return _det(self.grid, self.a, self.blocks, self.order).astype(self.dtype)

  def solve(self, b: ArrayLike, trans: int | str = 0) -> jax.Array:
    """Solves A x = b, or the system that `trans` selects, as `lu_solve` does."""
    return solve_general("solve", self, b, trans)

  def update(self, u: ArrayLike, v: ArrayLike) -> "LUFactor":
    """The factors of A + u vᴴ, for vectors (n,), or a few columns (n, k) on all devices."""
    return self._update("update", u, v)

  def downdate(self, u: ArrayLike, v: ArrayLike) -> "LUFactor":
    """The factors of A - u vᴴ, for `u` and `v` as for `update`."""
    return self._update("downdate", u, v)

  def _update(self, name, u, v):
    u, v = as_general_update(name, self._shape, self.dtype, u, v)
    u, v = one_change(name, {"u": (u, 2), "v": (v, 2)})
    return self._of(name, self.grid, _summed(self.grid, self.a, -u if name == "downdate" else u, v))

  def append(self, column: ArrayLike, row: ArrayLike, corner: ArrayLike) -> "LUFactor":
    """The factors of [[A, column], [row, corner]], for vectors (n,) and a number."""
    column, row, corner = as_vectors(
        "append", self._shape, self.dtype, {"column": column, "row": row}, corner)
    column, row, corner = one_change(
        "append", {"column": (column, 1), "row": (row, 1), "corner": (corner, 0)})
    grid = self.grid.of_size(self.n + 1)
    return self._of("append", grid, _appended(self.grid, grid, self.a, column, row, corner))

  def delete(self, index: ArrayLike) -> "LUFactor":
    """The factors of A without row and column `index`, as for `CholeskyFactor.delete`."""
    index, outside = one_index("delete", index, self.n)
    grid = self.grid.of_size(self.n - 1)
    return self._of("delete", grid, _deleted(self.grid, grid, self.a, index, outside))

  def replace(self, index: ArrayLike, column: ArrayLike, row: ArrayLike) -> "LUFactor":
    """The factors of A with another column and row `index`.

    Args:
      index: as for `CholeskyFactor.delete`.
      column, row: vectors (n,). Entry `index` of the row is the one on the diagonal.
    """
    column, row = as_vectors(
        "replace", self._shape, self.dtype, {"column": column, "row": row})
    column, row = one_change("replace", {"column": (column, 1), "row": (row, 1)})
    index, outside = one_index("replace", index, self.n)
    return self._of("replace", self.grid, _replaced(self.grid, self.a, index, outside, column, row))

  @property
  def _shape(self):
    return jax.ShapeDtypeStruct((self.n, self.n), self.a.dtype)

  def _of(self, name, grid, a):
    blocks, order, info = _factor(grid, a)
    with called(name):
      check_factors(info)
    return LUFactor(a, blocks, order, info, grid, self.dtype)


def solve_general(
    name: str, factor: LUFactor, b: ArrayLike, trans: int | str = 0
) -> jax.Array:
  transpose, conjugate = parse_trans(name, trans)
  conjugated = transpose and not conjugate

  def solve(columns):
    # Aᵀ x = b is equivalent to Aᴴ x̄ = b̄.
    columns = columns.conj() if conjugated else columns
    matrix, packed = (x.astype(columns.dtype) for x in (factor.a, factor.blocks))
    x = _solution(
        factor.grid, transpose, matrix, packed, factor.order, factor.info, columns)
    return x.conj() if conjugated else x

  return solve_columns(name, factor.grid.n, factor.dtype, b, solve)


def general_factor(
    name: str, a: ArrayLike, axes: Places, grid: tuple[int, int] | None, panel: int | None,
    *others: ArrayLike,
) -> LUFactor:
  cyclic, matrix, dtype = brought(name, a, axes, grid, panel, *others, has_pivots=True)
  blocks, order, info = _factor(cyclic, matrix)
  return LUFactor(matrix, blocks, order, info, cyclic, dtype)


@public("axes", "grid", "panel", compiled=False)
def lu_factor(
    a: ArrayLike, *, axes: Places = None, grid: tuple[int, int] | None = None,
    panel: int | None = None,
) -> LUFactor:
  """Factors a square matrix that several devices share into L U.

  Args:
    a: a matrix (n, n) of any floating, complex or integer dtype, sharded over its rows, its columns
      or both.
    axes, grid, panel: as for `cholesky`, but the default panel is at most half as wide.

  Returns:
    An `LUFactor`, which stays in the block-cyclic layout. Its methods solve systems and give the
    determinant and A⁻¹. If the matrix is singular, `info` is the place of a zero on U's diagonal.
    From there on L U need not be A, and solutions are NaN. Derivatives of the methods' results with
    respect to A reuse the factors.

  float16 and bfloat16 are factored in float32.

  Algorithm: right-looking, in the layout of `cholesky`, with pivots by tournament (Grigori, Demmel
  and Xiang, CALU: a communication optimal LU factorization algorithm, 2011). |L| may be larger than
  1, but residuals are as small as with partial pivoting. Until L is done, rows are masked rather
  than exchanged, at the cost of half as many operations again. A device receives about
  n² (1 / Pr + 2 / Pc) numbers, and its share twice. For the pivots it also receives n times a
  panel's width from each device of its row and its column of the grid.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   factor = dist.lu_factor(jax.device_put(-4 * jnp.eye(64), jax.P("x")))
    ...   print(factor.solve(jnp.ones(64))[0], factor.slogdet().sign, factor.info)
    -0.25 1.0 0
  """
  factor = general_factor("lu_factor", a, axes, grid, panel)
  check_factors(factor.info)
  return factor


@public("trans", compiled=False)
def lu_solve(factor: LUFactor, b: ArrayLike, trans: int | str = 0) -> jax.Array:
  """Solves A x = b with A's factors.

  Args:
    factor: what `lu_factor` returns.
    b: a vector (n,), or a few columns (n, k). Each device works with all of b. Sharded columns are
      refused: ShardingTypeError.
    trans: the system: 0 or 'N' for A x = b, 1 or 'T' for Aᵀ x = b, 2 or 'C' for Aᴴ x = b.

  Returns:
    x, on all devices, or sharded as b is; NaN where A is singular.

  Algorithm: forward and back substitution, panel by panel, as for `cho_solve`.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   factor = dist.lu_factor(jax.device_put(4 * jnp.eye(64), jax.P("x")))
    ...   print(dist.lu_solve(factor, jnp.ones((64, 2))).shape)
    (64, 2)
  """
  parse_trans("lu_solve", trans)
  if not isinstance(factor, LUFactor):
    raise TypeError(
        f"lu_solve takes what linalg.distributed.lu_factor returns, got {type(factor)}.")
  return solve_general("lu_solve", factor, b, trans)
