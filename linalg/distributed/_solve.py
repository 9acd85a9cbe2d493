"""Linear systems, determinants and inverses of one matrix that several devices share."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.typing import ArrayLike

from linalg._core.checks import check_factors, check_positive
from linalg._core.public import public
from linalg._factorizations.det import SlogdetResult
from linalg.distributed._general import general_factor, solve_general
from linalg.distributed._layout import Places
from linalg.distributed._positive_definite import positive_factor, solve_positive


class _Kind(NamedTuple):
  """The functions that factor, solve and check one kind of matrix."""

  factor: Callable[..., Any]
  solve: Callable[..., jax.Array]
  check: Callable[[jax.Array], None]


_KINDS = {
    "gen": _Kind(general_factor, solve_general, check_factors),
    "pos": _Kind(positive_factor, solve_positive, check_positive)}


def _factored(name, assume_a, *operands):
  if assume_a in ("sym", "her"):
    raise NotImplementedError(
        f"linalg.distributed.{name} takes assume_a='gen' or 'pos', got {assume_a!r}. Use 'gen' of "
        f"the whole matrix, both of its triangles; or linalg.{name} on one device, of "
        "jax.device_put(a, jax.devices()[0]) or, on Explicit axes, "
        "jax.sharding.reshard(a, jax.P()).")
  if assume_a not in _KINDS:
    raise ValueError(f"{name}: assume_a={assume_a!r} must be 'gen' or 'pos'.")
  return _KINDS[assume_a].factor(name, *operands)


def _checked(assume_a, factor, result):
  """Checks the factor and returns the result.

  The check is last: `linalg.checked` takes an error through later operations, but JAX takes none
  through `shard_map` within `jax.set_mesh`.
  """
  _KINDS[assume_a].check(factor.info)
  return result


def _checked_determinant(assume_a, factor, result):
  """Checks the factor and returns a determinant. A singular matrix has one too."""
  return result if assume_a == "gen" else _checked(assume_a, factor, result)


@public("assume_a", "axes", "grid", "panel", compiled=False)
def solve(
    a: ArrayLike, b: ArrayLike, *, assume_a: str = "gen", axes: Places = None,
    grid: tuple[int, int] | None = None, panel: int | None = None,
) -> jax.Array:
  """Solves A x = b with a matrix that several devices share; `linalg.solve`.

  Args:
    a, axes, grid, panel: as for `cholesky`.
    b: as for `cho_solve`.
    assume_a: "gen", or "pos" for Hermitian positive definite matrices, whose lower triangle is
      read.

  Returns:
    x, on all devices, or sharded as b is. It is NaN if A is singular, or not positive definite with
    "pos".

  Algorithm: `lu_factor` and `lu_solve`, or `cholesky` and `cho_solve`. A derivative reuses the
  factor. It moves only A's share to the block-cyclic layout and back.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(4 * jnp.eye(64), jax.P("x"))
    ...   print(dist.solve(a, jnp.ones(64))[0])
    0.25
  """
  factor = _factored("solve", assume_a, a, axes, grid, panel, b)
  return _checked(assume_a, factor, _KINDS[assume_a].solve("solve", factor, b))


@public("assume_a", "axes", "grid", "panel", compiled=False)
def solve_ex(
    a: ArrayLike, b: ArrayLike, *, assume_a: str = "gen", axes: Places = None,
    grid: tuple[int, int] | None = None, panel: int | None = None,
) -> tuple[jax.Array, jax.Array]:
  """`solve`, with info.

  Args:
    a, b, assume_a, axes, grid, panel: as for `solve`.

  Returns:
    (x, info): info is that of `lu_factor`, or of `cholesky_ex`.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(jnp.diag(jnp.arange(64.0)[::-1]), jax.P("x"))
    ...   print(dist.solve_ex(a, jnp.ones(64))[1])
    64
  """
  factor = _factored("solve_ex", assume_a, a, axes, grid, panel, b)
  return _KINDS[assume_a].solve("solve_ex", factor, b), factor.info


@public("assume_a", "axes", "grid", "panel", compiled=False)
def det(
    a: ArrayLike, *, assume_a: str = "gen", axes: Places = None,
    grid: tuple[int, int] | None = None, panel: int | None = None,
) -> jax.Array:
  """The determinant of a matrix that several devices share; `linalg.det`.

  Args:
    a, assume_a, axes, grid, panel: as for `solve`.

  Returns:
    The determinant, on all devices. It is 0 for a singular matrix, and 0 or Inf only where the
    result itself is out of range. It is NaN if A is not positive definite with "pos".

  Algorithm: `lu_factor`, or `cholesky`. The product of the pivots keeps its exponent apart. The
  derivative is det(A) A⁻¹, which `inv` computes. It is NaN at a singular matrix, where `linalg.det`
  uses cofactors.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(jnp.diag(jnp.array([3.0, *[1] * 63])), jax.P("x"))
    ...   print(dist.det(a).round(4))
    3.0
  """
  factor = _factored("det", assume_a, a, axes, grid, panel)
  return _checked_determinant(assume_a, factor, factor.det())


@public("assume_a", "axes", "grid", "panel", compiled=False)
def slogdet(
    a: ArrayLike, *, assume_a: str = "gen", axes: Places = None,
    grid: tuple[int, int] | None = None, panel: int | None = None,
) -> SlogdetResult:
  """Sign and logarithm of the determinant of a matrix that several devices share; `linalg.slogdet`.

  Args:
    a, assume_a, axes, grid, panel: as for `solve`.

  Returns:
    SlogdetResult(sign, logabsdet), on all devices. For a singular matrix the sign, or phase, is 0
    and logabsdet -inf. Both are NaN if A is not positive definite with "pos".

  A matrix is singular where a pivot is exactly 0. Rounding may leave a pivot of eps ‖A‖ instead,
  for example of two equal columns. The tournament of `lu_factor` rounds in another order than one
  device. So one of the two may find 0 where the other finds a determinant of rounding errors.

  Algorithm: `lu_factor`, or `cholesky`. The derivative is A⁻¹, which `inv` computes.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(4 * jnp.eye(64), jax.P("x"))
    ...   print(dist.slogdet(a, assume_a="pos").logabsdet.round(2))
    88.72
  """
  factor = _factored("slogdet", assume_a, a, axes, grid, panel)
  return _checked_determinant(assume_a, factor, factor.slogdet())


@public("assume_a", "axes", "grid", "panel", compiled=False)
def inv(
    a: ArrayLike, *, assume_a: str = "gen", axes: Places = None,
    grid: tuple[int, int] | None = None, panel: int | None = None,
) -> jax.Array:
  """The inverse of a matrix that several devices share; `linalg.inv`.

  Args:
    a, assume_a, axes, grid, panel: as for `solve`.

  Returns:
    A⁻¹ (n, n), sharded as `a` is. It is NaN if A is singular, or not positive definite with "pos".

  Algorithm: `lu_factor` solves A X = I. For "pos", substitution gives L⁻¹, and A⁻¹ is L⁻ᴴ L⁻¹. A
  device receives about twice as much as for the factors.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(4 * jnp.eye(64), jax.P("x"))
    ...   print(dist.inv(a, assume_a="pos").max())
    0.25
  """
  factor = _factored("inv", assume_a, a, axes, grid, panel)
  return _checked(assume_a, factor, factor.inverse())


@public("assume_a", "axes", "grid", "panel", compiled=False)
def inv_ex(
    a: ArrayLike, *, assume_a: str = "gen", axes: Places = None,
    grid: tuple[int, int] | None = None, panel: int | None = None,
) -> tuple[jax.Array, jax.Array]:
  """`inv`, with info.

  Args:
    a, assume_a, axes, grid, panel: as for `solve`.

  Returns:
    (A⁻¹, info): info is that of `lu_factor`, or of `cholesky_ex`.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(-jnp.eye(64), jax.P("x"))
    ...   print(dist.inv_ex(a, assume_a="pos")[1])
    1
  """
  factor = _factored("inv_ex", assume_a, a, axes, grid, panel)
  return factor.inverse(), factor.info
