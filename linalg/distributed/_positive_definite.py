"""Hermitian positive definite matrices that several devices share."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

import linalg.distributed._algorithms as algorithms
import linalg.distributed._changes as changes
from linalg._core.checks import called, check, check_positive
from linalg._core.edits import as_border, as_update, as_vectors, as_weighted_update
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, real_dtype
from linalg._core.public import public
from linalg._factorizations.cholesky import cholesky_p
from linalg._factorizations.det import SlogdetResult
from linalg._factorizations.matmul import product
from linalg.distributed._cyclic import Cyclic
from linalg.distributed._determinant import determinant
from linalg.distributed._layout import Places, check_divides
from linalg.distributed._operations import (
  half_p,
  hermitian_p,
  inverse_tangent,
  multiply_p,
  solve_p,
)
from linalg.distributed._redistribution import brought, from_cyclic
from linalg.distributed._rhs import linear_solution, one_change, one_index, solve_columns
from linalg.distributed._triangular import solution as triangular_solution


def _lower_jvp(primals, tangents, *, grid):
  # dL = L Φ(L⁻¹ dA L⁻ᴴ); Murray, arXiv:1602.07527, eq. 8.
  l = lower_p(*primals, grid=grid)
  # Φ takes a lower triangle, so only that is computed. The transpose does the same for the
  # cotangent of Φ.
  inner = solve_p(l, hermitian_p(tangents[0], grid=grid), grid=grid, left=True, transpose=False)
  inner = solve_p(l.conj(), inner, grid=grid, left=False, transpose=True, lower=True)
  half = half_p(inner, grid=grid)
  return l, multiply_p(l, half, grid=grid, lower=(True, True))


lower_p = given_factors(
    "linalg_distributed_cholesky", "h w, h w -> h w", [1], lambda l, grid: l,
    attributes={"grid": None}, jvp=_lower_jvp)


def _inverse(l, grid):
  def body(l):
    inverse = algorithms.solve(
        grid, l, algorithms.identity(grid, l), left=True, transpose=False, lower=True)
    return algorithms.multiply(
        grid, inverse.conj(), inverse, transpose=(True, False), lower=(True, True))

  return grid.map(body, "c", "c", l)


def _inverse_jvp(primals, tangents, *, grid):
  x = inverse_p(*primals, grid=grid)
  return x, inverse_tangent(x, hermitian_p(tangents[0], grid=grid), grid)


inverse_p = given_factors(
    "linalg_distributed_inverse", "h w, h w -> h w", [1], _inverse, attributes={"grid": None},
    jvp=_inverse_jvp)


def _logdet(l, grid):
  return 2 * grid.map(functools.partial(algorithms.log_diagonal, grid), "c", "c", l)


def _logdet_jvp(primals, tangents, *, grid):
  # tr(A⁻¹ dA). The lower triangle, with half of the diagonal, gives half of it.
  inverse = inverse_p(*primals, grid=grid)
  half = grid.map(functools.partial(algorithms.lower_half, grid), "c", "c", tangents[0])
  change = 2 * jnp.sum((inverse.conj() * half).real, axis=(-2, -1))
  return logdet_p(*primals, grid=grid), change


# The sum over the device's part of the diagonal.
logdet_p = given_factors(
    "linalg_distributed_logdet", "h w, h w -> ()", lambda a, l, **_: [real_dtype(l)], _logdet,
    attributes={"grid": None}, jvp=_logdet_jvp)


@functools.partial(jax.jit, static_argnums=0)
def _factor(grid: Cyclic, a):
  return grid.map(functools.partial(algorithms.factor, grid), "c", "cs", lax.stop_gradient(a))


@functools.partial(jax.jit, static_argnums=0)
def _lower(grid, a, l):
  return from_cyclic(grid, lower_p(a, l, grid=grid))


@functools.partial(jax.jit, static_argnums=0)
def _upper(grid, a, l):
  upper = grid.map(lambda l: grid.transpose(l).conj(), "c", "c", lower_p(a, l, grid=grid))
  return from_cyclic(grid, upper)


@functools.partial(jax.jit, static_argnums=0)
def _matrix(grid, a, info):
  return jnp.where(info == 0, from_cyclic(grid, hermitian_p(a, grid=grid)), jnp.nan)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _half(grid, adjoint, a, l, b):
  return triangular_solution(grid, lower_p(a, l, grid=grid), b, lower=True, adjoint=adjoint)


@functools.partial(jax.jit, static_argnums=0)
def _inverse_matrix(grid, a, l):
  return from_cyclic(grid, inverse_p(a, l, grid=grid))


@functools.partial(jax.jit, static_argnums=0)
def _log_determinant(grid, a, l):
  return jnp.sum(logdet_p(a, l, grid=grid))


@functools.partial(jax.jit, static_argnums=0)
def _det(grid, a, l):
  body = functools.partial(algorithms.square_of_diagonal, grid)
  parts, exponents = grid.map(body, "c", "cc", l)
  logarithm = _log_determinant(grid, a, l)
  return determinant(parts, exponents, logarithm, jnp.zeros_like(logarithm))


@functools.partial(jax.jit, static_argnums=0)
def _solution(grid, a, l, b):
  def multiply(x):
    return grid.map(functools.partial(algorithms.hermitian_times_columns, grid), "cs", "s", a, x)

  def substitute(l, b):
    b = algorithms.substitute(grid, l, b, lower=True, adjoint=False)
    return algorithms.substitute(grid, l, b, lower=True, adjoint=True)

  def solve(b):
    return grid.map(substitute, "cs", "s", l, b)

  return linear_solution(grid, b, multiply, solve, solve)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _updated(grid, downdate, a, l, info, w, weight=None):
  """A + W Wᴴ, its factor and info. It is A - W Wᴴ if `downdate`, and A + W diag(weight) Wᴴ if
  there are weights."""
  w = grid.pad(w)
  if weight is None:
    scaled, passes = -w if downdate else w, [(w, downdate)]
  else:
    weight = weight[None]
    scaled, size = w * weight.astype(w.dtype), jnp.sqrt(jnp.abs(weight)).astype(w.dtype) * w
    # NaN is no negative weight, so the update takes it.
    passes = [(jnp.where(weight < 0, 0, size), False), (jnp.where(weight < 0, size, 0), True)]
  a = grid.map(functools.partial(changes.add_outer, grid), "css", "c", a, w, scaled)
  for columns, lost in passes:
    l, info = grid.map(
        functools.partial(changes.changed, grid, downdate=lost), "css", "cs",
        *lax.stop_gradient((l, info, columns)))
  return a, l, info


@functools.partial(jax.jit, static_argnums=(0, 1))
def _appended(old, grid, a, l, info, columns, corner):
  # A Schur complement: L21 = (L11⁻¹ A12)ᴴ, and L22 is the factor of A22 - L21 L21ᴴ.
  corner = (corner + corner.conj().mT) / 2

  def grown(x, columns):
    return changes.with_last_rows(grid, changes.resized(grid, x), columns)

  def grown_factor(l, info, columns):
    l = changes.padded_with_identity(grid, grown(l, columns))
    return jnp.where(info != 0, jnp.nan, l)

  a = grid.map(grown, "cs", "c", a, grid.pad(jnp.concatenate([columns, corner])))
  l, info, columns, corner = lax.stop_gradient((l, info, columns, corner))
  substitute = functools.partial(algorithms.substitute, old, lower=True, adjoint=False)
  right = old.map(substitute, "cs", "s", l, old.pad(columns))[: old.n]
  own, found = cholesky_p(
      corner - product(right, right, adjoint_a=True), lower=True, symmetrize=True)
  found = jnp.where(found != 0, found + old.n, 0).astype(info.dtype)
  info = jnp.where(info != 0, info, found)
  rows = grid.pad(jnp.concatenate([right, own.conj().mT]))
  return a, grid.map(grown_factor, "css", "c", l, info, rows), info


@functools.partial(jax.jit, static_argnums=(0, 1))
def _deleted(old, grid, a, l, info, index):
  a = changes.matrix_without(old, grid, a, index, info == -1)
  factor = functools.partial(changes.factor_without, old, grid)
  return a, *grid.map(factor, "css", "cs", *lax.stop_gradient((l, info)), index)


@functools.partial(jax.jit, static_argnums=0)
def _replaced(grid, a, l, info, index, column):
  column = grid.pad(column)
  number = jnp.arange(grid.padded, dtype=index.dtype)
  row = jnp.where(number == index, column.real.astype(column.dtype), column.conj())
  a = changes.matrix_replaced(grid, a, index, info == -1, row, column)
  factor = functools.partial(changes.factor_replaced, grid)
  l, info = grid.map(
      factor, "csss", "cs", *lax.stop_gradient((l, info)), index, lax.stop_gradient(column))
  return a, l, info


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["a", "blocks", "info"],
    meta_fields=["grid", "dtype"])
@dataclasses.dataclass(frozen=True, eq=False)
class CholeskyFactor:
  """The Cholesky factor of a matrix that several devices share; `cho_factor` returns it.

  It is a pytree, so transformed functions can take and return it. Methods that change A return a
  new object. Operands of changes are as for `linalg.factorize_cholesky`, of one matrix, and are
  used by all devices. A changed factor keeps its dtype, grid and panels. If A + w wᴴ and the like
  is not positive definite, results are NaN.

  `info` is an integer, which `jax.grad` refuses in its argument. For derivatives with respect to
  the object, use `jax.grad(..., allow_int=True)` or `jax.vjp`.

  Attributes:
    a: A in the block-cyclic layout, (P, h, w), a part for each of P devices; see
      docs/distributed_algorithms.md. Its lower triangle counts. Derivatives are with respect to it.
    blocks: L in that layout, a constant to derivatives.
    info: int32, the order of the first leading minor that is not positive, or 0, or -1 for an index
      out of range.
    grid: the layout.
    dtype: of results.
  """

  a: jax.Array
  blocks: jax.Array
  info: jax.Array
  grid: Cyclic
  dtype: Any

  @property
  def n(self) -> int:
    """The order of A."""
    return self.grid.n

  def lower(self) -> jax.Array:
    """L (n, n), sharded as A is, zero above the diagonal.

    It is NaN if A is not positive definite.
    """
    check_divides("lower", self.grid.layout, self.n)
    return _lower(self.grid, self.a, self.blocks).astype(self.dtype)

  @property
  def upper(self) -> jax.Array:
    """R = Lᴴ (n, n), sharded as A is, zero below the diagonal."""
    check_divides("upper", self.grid.layout, self.n)
    return _upper(self.grid, self.a, self.blocks).astype(self.dtype)

  def matrix(self) -> jax.Array:
    """A (n, n), sharded as it was, from its lower triangle. It is NaN where there is no factor."""
    check_divides("matrix", self.grid.layout, self.n)
    return _matrix(self.grid, self.a, self.info).astype(self.dtype)

  def inverse(self) -> jax.Array:
    """A⁻¹ (n, n), sharded as A is. To compute A⁻¹ b, `solve` is faster and more accurate."""
    check_divides("inverse", self.grid.layout, self.n)
    return _inverse_matrix(self.grid, self.a, self.blocks).astype(self.dtype)

  def slogdet(self) -> SlogdetResult:
    """The sign 1 of det A, and log det A, on all devices.

    Both are NaN if A is not positive definite.
    """
    sign = jnp.where(self.info == 0, jnp.ones((), self.dtype), jnp.nan)
    return SlogdetResult(sign, self.logdet())

  def logdet(self) -> jax.Array:
    """log det A, a real number on all devices."""
    found = _log_determinant(self.grid, self.a, self.blocks)
    return found.astype(real_dtype(self.dtype))

  def det(self) -> jax.Array:
    """det A, on all devices. It is NaN if A is not positive definite."""
    return _det(self.grid, self.a, self.blocks).astype(self.dtype)

  def solve(self, b: ArrayLike) -> jax.Array:
    """Solves A x = b for a vector (n,) or a few columns (n, k).

    Each device uses all of b. If its rows are sharded it is gathered, and x is sharded like it.
    """
    return solve_positive("solve", self, b)

  def solve_half(self, b: ArrayLike, *, adjoint: bool = False) -> jax.Array:
    """L⁻¹ b, or L⁻ᴴ b with `adjoint`, for `b` as for `solve`.

    If z has independent standard normal entries, then L⁻ᴴ z has covariance A⁻¹. Derivatives with
    respect to A are those of L, which take as much as those of `lower`.
    """
    def solve(columns):
      a, l = (x.astype(columns.dtype) for x in (self.a, self.blocks))
      return _half(self.grid, bool(adjoint), a, l, columns)

    return solve_columns("solve_half", self.n, self.dtype, b, solve)

  def quadratic(self, b: ArrayLike) -> jax.Array:
    """bᴴ A⁻¹ b, real, on all devices: a number for a vector (n,), or (k,) for columns (n, k).

    It is the product of b and `solve(b)`, whose derivatives do not need those of L.
    """
    (_, b), dtype = as_arrays("quadratic", jnp.zeros((), self.dtype), b)
    x = solve_positive("quadratic", dataclasses.replace(self, dtype=b.dtype), b)
    return jnp.sum((b.conj() * x).real, axis=0).astype(real_dtype(dtype))

  def update(self, w: ArrayLike, weight: ArrayLike | None = None) -> "CholeskyFactor":
    """The factor of A + w wᴴ, or of A + w diag(weight) wᴴ.

    Args:
      w: a vector (n,), or a few columns (n, k). Sharded columns are refused: ShardingTypeError.
      weight: a real number, or k of them, one for each column. Signs may differ and be traced, and
        there are derivatives at 0.

    Algorithm: orthogonal transformations, panel by panel, O(n² (k + 32) / P) operations. A device
    receives its share n² / P, the panels' diagonal blocks, n times a panel's width, and n k numbers
    of w. Weights take an update by the columns of positive weight, and then a downdate by the
    others.

    Example:
      >>> import jax, jax.numpy as jnp, linalg.distributed as dist
      >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
      ...   factor = dist.cho_factor(jax.device_put(jnp.eye(64), jax.P("x")))
      ...   print(factor.update(jnp.full(64, 0.5)).logdet().round(4))  # of 1 + 64 / 4
      2.8332
    """
    if weight is None:
      return self._update("update", as_update("update", self._shape, self.dtype, w), False)
    columns, weight = as_weighted_update("update", self._shape, self.dtype, w, weight)
    return self._update("update", columns, None, weight)

  def downdate(self, w: ArrayLike) -> "CholeskyFactor":
    """The factor of A - w wᴴ, for `w` as for `update`.

    Algorithm: the mixed form of hyperbolic rotations, in blocks. It moves as much as `update`. If A
    - w wᴴ is not positive definite, `info` is the order of its first leading minor that is not.
    """
    return self._update("downdate", as_update("downdate", self._shape, self.dtype, w), True)

  def append(self, columns: ArrayLike, corner: ArrayLike) -> "CholeskyFactor":
    """The factor of A with rows and columns added at the end: [[A, C], [Cᴴ, D]].

    Args:
      columns: C, a vector (n,), or a few columns (n, k).
      corner: D, a number for a vector, or (k, k), of which the Hermitian part is used.

    Algorithm: forward substitution for L⁻¹ C, and the factor of the Schur complement (k, k) on each
    device. Blocks stay on their devices. A device receives the panels' diagonal blocks, and n k
    numbers.
    """
    columns, corner = as_border("append", self._shape, self.dtype, columns, corner)
    columns, corner = one_change("append", {"columns": (columns, 2), "corner": (corner, 2)})
    if columns.shape[1] == 0:
      return self
    grid = self.grid.of_size(self.n + columns.shape[1])
    a, l, info = _appended(
        self.grid, grid, self.a, self.blocks, self.info, columns, corner)
    return self._changed("append", a, l, info, grid)

  def delete(self, index: ArrayLike) -> "CholeskyFactor":
    """The factor of A without row and column `index`; the others keep their order.

    Args:
      index: an integer. It may be traced, and counts from the end if it is negative. A traced one
        that is out of range gives NaN, and -1 as `info`.

    Algorithm: later rows and columns move up by one. A device passes a row of each block, and a
    column, to the device before. Then the rows below are updated, as by `update`.
    """
    index, info = self._index("delete", index)
    grid = self.grid.of_size(self.n - 1)
    a, l, info = _deleted(self.grid, grid, self.a, self.blocks, info, index)
    return self._changed("delete", a, l, info, grid)

  def replace(self, index: ArrayLike, column: ArrayLike) -> "CholeskyFactor":
    """The factor of A with another row and column `index`.

    Args:
      index: as for `delete`.
      column: the new column (n,); entry `index` is that of the diagonal, whose imaginary part is
        not used.

    Algorithm: forward substitution for the row of L, and an update and a downdate of the rows
    below, which move twice as much as `update`.
    """
    vectors = as_vectors("replace", self._shape, self.dtype, {"column": column})
    (column,) = one_change("replace", {"column": (vectors[0], 1)})
    index, info = self._index("replace", index)
    a, l, info = _replaced(self.grid, self.a, self.blocks, info, index, column)
    return self._changed("replace", a, l, info)

  def _index(self, name, index):
    """The index from the front, and info, which is -1 if the index is out of range."""
    index, outside = one_index(name, index, self.n)
    info = jnp.where(outside, -1, 0).astype(jnp.int32)
    return index, jnp.where(self.info != 0, self.info, info)

  @property
  def _shape(self):
    return jax.ShapeDtypeStruct((self.n, self.n), self.blocks.dtype)

  def _update(self, name, w, downdate, weight=None):
    w, *more = one_change(
        name, {"w": (w, 2)} if weight is None else {"w": (w, 2), "weight": (weight, 1)})
    if w.shape[1] == 0:
      return self
    a, l, info = _updated(self.grid, downdate, self.a, self.blocks, self.info, w, *more)
    return self._changed(name, a, l, info)

  def _changed(self, name, a, l, info, grid=None):
    with called(name):
      check(info, "is not positive definite after the change (info {info}).")
    return CholeskyFactor(a, l, info, grid or self.grid, self.dtype)


def solve_positive(name: str, factor: CholeskyFactor, b: ArrayLike) -> jax.Array:
  def solve(columns):
    matrix, l = (x.astype(columns.dtype) for x in (factor.a, factor.blocks))
    return _solution(factor.grid, matrix, l, columns)

  return solve_columns(name, factor.grid.n, factor.dtype, b, solve)


def positive_factor(
    name: str, a: ArrayLike, axes: Places, grid: tuple[int, int] | None, panel: int | None,
    *others: ArrayLike,
) -> CholeskyFactor:
  cyclic, matrix, dtype = brought(name, a, axes, grid, panel, *others)
  l, info = _factor(cyclic, matrix)
  return CholeskyFactor(matrix, l, info, cyclic, dtype)


_OPTIONS = ("axes", "grid", "panel")


@public(*_OPTIONS, compiled=False)
def cholesky(
    a: ArrayLike, *, axes: Places = None, grid: tuple[int, int] | None = None,
    panel: int | None = None,
) -> jax.Array:
  """The lower Cholesky factor of a Hermitian positive definite matrix that several devices share.

  Args:
    a: a matrix (n, n) of any floating, complex or integer dtype, sharded over its rows, its columns
      or both. Its lower triangle is read.
    axes: the axes of the mesh that it is sharded over: a name or names for the rows, a pair (rows,
      columns) of those, or a PartitionSpec. The default is the array's sharding. Inside `jax.jit`
      on Auto axes that cannot be known, and the default is all axes, by rows.
    grid: (Pr, Pc), the devices' grid in the block-cyclic layout, for a matrix that is sharded over
      one dimension. The default is the nearest to a square. A matrix that is sharded over both has
      the grid of its sharding.
    panel: the width of a panel, a multiple of the P = Pr Pc devices; the matrix is padded to a
      multiple of it. The default keeps a panel small beside a device's share of the matrix, and the
      padding below a sixty-fourth if possible.

  Returns:
    L (n, n), sharded as `a` is, zero above the diagonal. If A is not positive definite, it is NaN;
    see `cholesky_ex`.

  float16 and bfloat16 are factored in float32, and the factor rounded.

  Algorithm: right-looking in a block-cyclic layout (Choi, Dongarra, Ostrouchov, Petitet, Walker and
  Whaley, Design and implementation of the ScaLAPACK LU, QR, and Cholesky factorization routines,
  1996). Every device has a part of each panel of rows and of columns.

  A device receives about n² (1 / Pr + 1 / Pc) / 2 numbers. It receives twice its share n² / P to
  move to that layout and back. About a fifth more is for the phases that keep the program small,
  and for the diagonal blocks.

  Derivatives, forward and reverse, are Murray's, arXiv:1602.07527, by triangular systems and
  products in the same layout.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(4 * jnp.eye(64), jax.P("x"))
    ...   l = dist.cholesky(a)
    ...   print(l.shape, l.max())
    (64, 64) 2.0
  """
  factor = positive_factor("cholesky", a, axes, grid, panel)
  lower = factor.lower()
  check_positive(factor.info)  # this is last, because JAX takes no error through `shard_map`
  return lower


@public(*_OPTIONS, compiled=False)
def cholesky_ex(
    a: ArrayLike, *, axes: Places = None, grid: tuple[int, int] | None = None,
    panel: int | None = None,
) -> tuple[jax.Array, jax.Array]:
  """`cholesky`, with info.

  Args:
    a, axes, grid, panel: as for `cholesky`.

  Returns:
    (L, info). info, int32 on all devices, is 0 or the order of the first leading minor that is not
    positive, like LAPACK's. L is then NaN.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(jnp.diag(jnp.arange(64.0)[::-1]), jax.P("x"))
    ...   print(dist.cholesky_ex(a)[1])
    64
  """
  factor = positive_factor("cholesky_ex", a, axes, grid, panel)
  return factor.lower(), factor.info


@public(*_OPTIONS, compiled=False)
def cho_factor(
    a: ArrayLike, *, axes: Places = None, grid: tuple[int, int] | None = None,
    panel: int | None = None,
) -> CholeskyFactor:
  """The Cholesky factor of a matrix that several devices share, to be used several times.

  Args:
    a, axes, grid, panel: as for `cholesky`.

  Returns:
    A `CholeskyFactor`, which stays in the block-cyclic layout. Its methods solve systems and return
    log det A, A⁻¹ and L. Where A is not positive definite they give NaN, and its `info` is that of
    `cholesky_ex`. Derivatives with respect to A reuse the factor.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   factor = dist.cho_factor(jax.device_put(4 * jnp.eye(64), jax.P("x")))
    ...   print(factor.solve(jnp.ones(64))[0], factor.logdet().round(2), factor.info)
    0.25 88.72 0
  """
  factor = positive_factor("cho_factor", a, axes, grid, panel)
  check_positive(factor.info)
  return factor


@public(compiled=False)
def cho_solve(factor: CholeskyFactor, b: ArrayLike) -> jax.Array:
  """Solves A x = b with A's factor.

  Args:
    factor: the result of `cho_factor`.
    b: a vector (n,), or a few columns (n, k). Each device uses all of b. Sharded columns are
      refused: ShardingTypeError.

  Returns:
    x, on all devices, or sharded as b is.

  Algorithm: forward and back substitution, panel by panel. A device receives the diagonal blocks
  twice, 2 n times a panel's width, and 2 n k numbers of sums.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   factor = dist.cho_factor(jax.device_put(4 * jnp.eye(64), jax.P("x")))
    ...   print(dist.cho_solve(factor, jnp.ones((64, 2))).shape)
    (64, 2)
  """
  if not isinstance(factor, CholeskyFactor):
    raise TypeError(
        f"cho_solve takes what linalg.distributed.cho_factor returns, got {type(factor)}.")
  return solve_positive("cho_solve", factor, b)
