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


# The device's part of the logarithm of |det A|, and an angle by which its phase turns: 0, but for
# its derivative.
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
  """Of each device (p, e) of its part p 2^e of the determinant, and that of the sign, or phase."""
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

  A pytree: it goes in and out of functions that are transformed.

  Attributes:
    matrix: A in the block-cyclic layout, (P, h, w), a part for each of P devices; see
      docs/distributed.md. Derivatives, which are with respect to it, are computed with it.
    blocks: U in that layout and, below its diagonal, L without its own, constants to derivatives.
    permutation: int32 (P, n'), the same for each device: row i of L U is that row of A, filled up
      to n' rows.
    info: int32, 0 if all pivots are nonzero, the 1-based index of the first that is zero, where the
      matrix is singular, or -1 where the factors hold NaN.
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
    """The sign of det A, or its phase, and log |det A|, on all devices; 0 and -inf of a singular
    matrix."""
    sign, logarithm = _slogdet(self.grid, self.matrix, self.blocks, self.permutation)
    return SlogdetResult(sign.astype(self.dtype), logarithm.astype(real_dtype(self.dtype)))

  def det(self) -> jax.Array:
    """det A, on all devices; 0 of a singular matrix, where its derivative is NaN."""
    return _det(self.grid, self.matrix, self.blocks, self.permutation).astype(self.dtype)

  def solve(self, b: ArrayLike, trans: int | str = 0) -> jax.Array:
    """x of A x = b, or of the system that `trans` says, as in `lu_solve`."""
    return solve_general("solve", self, b, trans)


def solve_general(
    name: str, factor: LUFactor, b: ArrayLike, trans: int | str = 0
) -> jax.Array:
  transpose, conjugate = parse_trans(trans)
  conjugated = transpose and not conjugate

  def solve(columns):
    # Aᵀ x = b where Aᴴ x̄ = b̄.
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
  """The LU factors of a square matrix that several devices share, for all that is asked of them.

  Args:
    a: a matrix (n, n) of any floating, complex or integer dtype, sharded over its rows, its columns
      or both.
    axes, grid, panel: as for `cholesky`; a panel is half as wide by default, or less.

  Returns:
    An `LUFactor`, which stays in the block-cyclic layout; its methods solve systems and give the
    determinant and A⁻¹. A singular matrix has a zero on U's diagonal, after which L U need not be
    A, and NaN in what is solved with it; see its `info`. Derivatives of what the methods give, with
    respect to A, use the factors once more.

  float16 and bfloat16 are factored in float32.

  Algorithm: right-looking, in the layout of `cholesky`, with pivots by tournament (Grigori, Demmel
  and Xiang, CALU: a communication optimal LU factorization algorithm, 2011): |L| may be larger than
  1, and residuals are as those of partial pivoting. Rows are masked, not exchanged, until L is
  done, which takes half as many operations again as that would. A device receives some
  n² (1 / Pr + 2 / Pc) numbers, its share twice, and for the pivots n times a panel's width from
  each device of its row and its column of the grid.

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
    b: a vector (n,), or a few columns (n, k). Each device works with all of b, and columns that
      are sharded are refused: ShardingTypeError.
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
  parse_trans(trans)
  if not isinstance(factor, LUFactor):
    raise TypeError(
        f"lu_solve takes what linalg.distributed.lu_factor returns, got {type(factor)}.")
  return solve_general("lu_solve", factor, b, trans)
