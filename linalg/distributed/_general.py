"""LU factors of one general square matrix that several devices share."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

import linalg.distributed._algorithms as algorithms
import linalg.distributed._lu_cyclic as elimination
from linalg import ffi
from linalg._core.algebra import imaginary
from linalg._core.checks import check_factors
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import real_dtype
from linalg._core.public import public
from linalg._factorizations.det import SlogdetResult
from linalg._factorizations.triangular import parse_trans
from linalg.distributed._cyclic import Cyclic
from linalg.distributed._determinant import determinant
from linalg.distributed._layout import Places
from linalg.distributed._operations import inverse_tangent
from linalg.distributed._redistribution import brought, from_cyclic
from linalg.distributed._rhs import linear_solution, solve_columns


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


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["matrix", "blocks", "permutation", "info"], meta_fields=["grid", "dtype"])
@dataclasses.dataclass(frozen=True, eq=False)
class LUFactor:
  """The LU factors of a matrix that several devices share, as `lu_factor` returns them.

  It is a pytree, so transformed functions can take and return it.

  Attributes:
    matrix: A in the block-cyclic layout, (P, h, w), a part for each of P devices; see
      docs/distributed_algorithms.md. Derivatives are with respect to it.
    blocks: U in that layout, and L below U's diagonal, without its unit diagonal. They are
      constants for derivatives.
    permutation: int32 (P, n'), equal for all devices: row i of L U is row permutation[:, i] of A,
      padded to n' rows.
    info: int32, 0 if all pivots are nonzero, or -1 where the factors hold NaN. For a singular
      matrix it is the 1-based index of the first zero pivot.
    grid: the layout.
    dtype: of results.
  """

  matrix: jax.Array
  blocks: jax.Array
  permutation: jax.Array
  info: jax.Array
  grid: Cyclic
  dtype: Any

  def inverse(self) -> jax.Array:
    """A⁻¹ (n, n), sharded as A is. Where A⁻¹ b will do, `solve` is faster and more accurate."""
    found = _inverse_matrix(
        self.grid, self.matrix, self.blocks, self.permutation, self.info)
    return found.astype(self.dtype)

  def slogdet(self) -> SlogdetResult:
    """The sign or phase of det A, and log |det A|, on all devices; 0 and -inf if A is singular."""
    sign, logarithm = _slogdet(self.grid, self.matrix, self.blocks, self.permutation)
    return SlogdetResult(sign.astype(self.dtype), logarithm.astype(real_dtype(self.dtype)))

  def logdet(self) -> jax.Array:
    """log |det A|, a real number on all devices."""
    return self.slogdet().logabsdet

  def det(self) -> jax.Array:
    """det A, on all devices. A singular matrix has 0, whose derivative is NaN."""
    return _det(self.grid, self.matrix, self.blocks, self.permutation).astype(self.dtype)

  def solve(self, b: ArrayLike, trans: int | str = 0) -> jax.Array:
    """Solves A x = b, or the system that `trans` selects, as `lu_solve` does."""
    return solve_general("solve", self, b, trans)


def solve_general(
    name: str, factor: LUFactor, b: ArrayLike, trans: int | str = 0
) -> jax.Array:
  transpose, conjugate = parse_trans("lu_solve", trans)
  conjugated = transpose and not conjugate

  def solve(columns):
    # Aᵀ x = b is equivalent to Aᴴ x̄ = b̄.
    columns = columns.conj() if conjugated else columns
    matrix, packed = (x.astype(columns.dtype) for x in (factor.matrix, factor.blocks))
    x = _solution(
        factor.grid, transpose, matrix, packed, factor.permutation, factor.info, columns)
    return x.conj() if conjugated else x

  return solve_columns(name, factor.grid.n, factor.dtype, b, solve)


def general_factor(
    name: str, a: ArrayLike, axes: Places, grid: tuple[int, int] | None, panel: int | None,
    *others: ArrayLike,
) -> LUFactor:
  cyclic, matrix, dtype = brought(name, a, axes, grid, panel, *others, has_pivots=True)
  blocks, permutation, info = _factor(cyclic, matrix)
  return LUFactor(matrix, blocks, permutation, info, cyclic, dtype)


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
