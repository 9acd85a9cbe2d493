"""Triangular systems with a matrix that several devices share."""

import functools

import jax
from jax import lax
from jax.typing import ArrayLike

import linalg.distributed._algorithms as algorithms
from linalg._core.operands import as_arrays
from linalg._core.public import public
from linalg._factorizations.triangular import parse_trans
from linalg.distributed._cyclic import Cyclic, cyclic_of
from linalg.distributed._layout import Places, square_of
from linalg.distributed._redistribution import to_cyclic
from linalg.distributed._rhs import linear_solution, solve_columns


def solution(
    grid: Cyclic, t: jax.Array, b: jax.Array, *, lower: bool, adjoint: bool
) -> jax.Array:
  """Solves op(T) X = B for a triangle T in the block-cyclic layout, where op is the identity or the
  adjoint."""

  def multiply(x):
    body = lambda t, x: lax.psum(
        algorithms.times_columns(grid, t, x, adjoint=adjoint), grid.axes)
    return grid.map(body, "cs", "s", t, x)

  def solve(b, adjoint):
    body = functools.partial(algorithms.substitute, grid, lower=lower, adjoint=adjoint)
    return grid.map(body, "cs", "s", known, b)

  known = lax.stop_gradient(t)
  return linear_solution(
      grid, b, multiply, functools.partial(solve, adjoint=adjoint),
      functools.partial(solve, adjoint=not adjoint))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _solution(grid: Cyclic, lower, adjoint, unit_diagonal, a, b):
  triangle = functools.partial(
      algorithms.triangle, grid, lower=lower, unit_diagonal=unit_diagonal)
  t = grid.map(triangle, "c", "c", to_cyclic(grid, a))
  return solution(grid, t, b, lower=lower, adjoint=adjoint)


@public("trans", "lower", "unit_diagonal", "axes", "grid", "panel", compiled=False)
def solve_triangular(
    a: ArrayLike, b: ArrayLike, trans: int | str = 0, lower: bool = False,
    unit_diagonal: bool = False, *, axes: Places = None, grid: tuple[int, int] | None = None,
    panel: int | None = None,
) -> jax.Array:
  """Solves A x = b with a triangular matrix that several devices share; `linalg.solve_triangular`.

  Args:
    a: a matrix (n, n), sharded over its rows, its columns or both. Only one triangle is read.
    b: a vector (n,), or a few columns (n, k). Each device uses all of b. Sharded columns are
      refused: ShardingTypeError.
    trans: the system: 0 or 'N' for A x = b, 1 or 'T' for Aᵀ x = b, 2 or 'C' for Aᴴ x = b.
    lower: whether the lower or the upper triangle is read.
    unit_diagonal: if true, the diagonal is taken to be 1 and not read.
    axes, grid, panel: as for `cholesky`.

  Returns:
    x, on all devices, or sharded as b is. A zero on the diagonal gives infinities and NaN.

  Algorithm: substitution, panel by panel, in the layout of `cholesky`. A device receives A's share
  n² / P, n times a panel's width of diagonal blocks, and n k numbers of sums. Derivatives, forward
  and reverse, to any order, are those of the linear system, and move as much.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(4 * jnp.eye(64), jax.P("x"))
    ...   print(dist.solve_triangular(a, jnp.ones(64), lower=True)[0])
    0.25
  """
  name = "solve_triangular"
  (a,), dtype = as_arrays(name, a)
  cyclic = cyclic_of(name, square_of(name, a, axes), a.shape[0], grid, panel)
  transpose, conjugate = parse_trans("solve_triangular", trans)
  conjugated = transpose and not conjugate

  def solve(columns):
    # Aᵀ x = b is equivalent to Aᴴ x̄ = b̄.
    columns = columns.conj() if conjugated else columns
    x = _solution(
        cyclic, bool(lower), transpose, bool(unit_diagonal), a.astype(columns.dtype), columns)
    return x.conj() if conjugated else x

  return solve_columns(name, a.shape[0], dtype, b, solve)
