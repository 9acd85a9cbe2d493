"""Triangular systems."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import solution_tangent, triangle
from linalg._core.operands import as_arrays, as_columns, check_batches, check_square, incompatible
from linalg._core.public import public
from linalg._factorizations.matmul import product

__all__ = ["solve_triangular", "triangular_solve"]


def _transposed(matrix, transpose_a, conjugate_a):
  matrix = matrix.mT if transpose_a else matrix
  return matrix.conj() if conjugate_a else matrix


def _triangular_solve_jvp(primals, tangents, **attributes):
  # op(A) X = B gives op(A) dX = dB - op(dA) X. X op(A) = B gives dX op(A) = dB - X op(dA).
  a, b = primals
  da, db = tangents
  solve = functools.partial(triangular_solve_p, a, **attributes)
  x = solve(b)

  def multiply(da):
    da = triangle(da, lower=attributes["lower"], unit_diagonal=attributes["unit_diagonal"])
    da = _transposed(da, attributes["transpose_a"], attributes["conjugate_a"])
    return product(da, x) if attributes["left_side"] else product(x, da)

  return x, solution_tangent(solve, da, db, multiply)


def _triangular_solve_transpose(cotangents, operands, *, transpose_a, **attributes):
  a, _ = operands
  (ct,) = cotangents
  return None, triangular_solve_p(a, ct, transpose_a=not transpose_a, **attributes)


def _triangular_solve_fallback(a, b, **attributes):
  a = jnp.broadcast_to(a, (*b.shape[:-2], *a.shape[-2:]))
  return [jax.lax.linalg.triangular_solve(a, b, **attributes)]


triangular_solve_p = ffi.operation(
    "linalg_triangular_solve",
    "n n, r c -> r c",
    [1],
    attributes={
        "left_side": False,
        "lower": False,
        "transpose_a": False,
        "conjugate_a": False,
        "unit_diagonal": False,
    },
    shared=[0],
    in_place=(1, 0),
    jvp=_triangular_solve_jvp,
    transpose=_triangular_solve_transpose,
    fallback=_triangular_solve_fallback)


@public("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> jax.Array:
  """Solves op(A) X = B, or X op(A) = B, with a triangular A.

  The signature is that of `jax.lax.linalg.triangular_solve`. Batch dimensions may also broadcast.
  An `a` without any serves the whole batch of `b` without being copied.

  Args:
    a: matrices (..., n, n). Only one triangle is read.
    b: right-hand sides (..., n, k) if `left_side`, else (..., k, n). If it has one dimension less
      than `a`, it is a batch of vectors (..., n).
    left_side: whether A stands on the left of X.
    lower: whether the lower or the upper triangle is read.
    transpose_a: whether op transposes.
    conjugate_a: whether op conjugates.
    unit_diagonal: if true, the diagonal is taken to be 1 and not read.

  Returns:
    X, of the shape of `b` and the dtype that both operands promote to. A zero on the diagonal gives
    infinities and NaN in its own system alone.

  Algorithm: substitution; small matrices one per lane, larger ones in tiles. One right-hand side
  uses BLAS trsv, and more than 4096 use trsm.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[2.0, 0.0], [1.0, 4.0]])
    >>> x = linalg.triangular_solve(a, jnp.array([[2.0], [9.0]]), left_side=True, lower=True)
    >>> print(x.mT)
    [[1. 2.]]
  """
  (a, b), dtype = as_arrays("triangular_solve", a, b)
  check_square("triangular_solve", a, "a")
  vector = b.ndim == a.ndim - 1
  if vector:
    b = b[..., None] if left_side else b[..., None, :]
  if b.ndim < 2 or b.shape[-2 if left_side else -1] != a.shape[-1]:
    raise incompatible("triangular_solve", a, b, names=("a", "b"))
  check_batches("triangular_solve", a, b, names=("a", "b"))
  x = triangular_solve_p(
      a, b, left_side=left_side, lower=lower, transpose_a=transpose_a, conjugate_a=conjugate_a,
      unit_diagonal=unit_diagonal)
  if vector:
    x = x[..., 0] if left_side else x[..., 0, :]
  return x.astype(dtype)


_TRANSPOSES: dict[Any, tuple[bool, bool]] = {
    0: (False, False), "N": (False, False),
    1: (True, False), "T": (True, False),
    2: (True, True), "C": (True, True),
}


def parse_trans(name: str, trans: int | str) -> tuple[bool, bool]:
  """Returns (transpose, conjugate) for SciPy's argument `trans`."""
  if trans not in _TRANSPOSES:
    raise ValueError(f"{name}: trans must be 0, 1, 2, 'N', 'T' or 'C', got {trans!r}.")
  return _TRANSPOSES[trans]


@functools.partial(jax.jit, static_argnames=("trans", "lower", "unit_diagonal", "overwrite"))
def _solve_triangular(a, b, trans, lower, unit_diagonal, overwrite):
  (a, b), dtype = as_arrays("solve_triangular", a, b)
  check_square("solve_triangular", a, "a")
  columns, vector = as_columns("solve_triangular", a, b)
  transpose, conjugate = parse_trans("solve_triangular", trans)
  x = triangular_solve_p(
      a, columns, left_side=True, lower=lower, transpose_a=transpose, conjugate_a=conjugate,
      unit_diagonal=unit_diagonal, overwrite=overwrite)
  return (x[..., 0] if vector else x).astype(dtype)


@public(
    "trans", "lower", "unit_diagonal", "overwrite_b", "check_finite", compiled=False, lists=True)
def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> jax.Array:
  """Solves A x = b with a triangular A; `jax.scipy.linalg.solve_triangular`, batched.

  Args:
    a: matrices (..., n, n). Only one triangle is read.
    b: a vector (n,), or matrices of right-hand sides (..., n, k).
    trans: the system: 0 or 'N' for A x = b, 1 or 'T' for Aᵀ x = b, 2 or 'C' for Aᴴ x = b.
    lower: whether the lower or the upper triangle is read.
    unit_diagonal: if true, the diagonal is taken to be 1 and not read.
    overwrite_b: lets x take the memory of `b`; see "In place" in docs/handlers.md.
    debug, check_finite: unused.

  Returns:
    x, with the broadcast batch shape and the common dtype of `a` and `b`. A zero on the diagonal
    gives infinities and NaN in its own system alone.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[2.0, 0.0], [1.0, 4.0]])
    >>> print(linalg.solve_triangular(a, jnp.array([2.0, 9.0]), lower=True))
    [1. 2.]
  """
  del debug, check_finite
  return _solve_triangular(a, b, trans, lower, unit_diagonal, bool(overwrite_b))
