"""Products and triangular systems of matrices in the block-cyclic layout, (P, h, w).

Their batch is the devices. None has a handler: they are primitives so that they have their own
derivative rules. XLA would differentiate the loops, and keep every panel in memory.
"""

import functools

import linalg.distributed._algorithms as algorithms
from linalg import ffi
from linalg._core.algebra import minus, plus, solution_tangent


def _multiply_jvp(primals, tangents, **how):
  (x, y), (dx, dy) = primals, tangents
  change = None
  for left, right in ((dx, y), (x, dy)):
    if left is not None and right is not None:
      change = plus(change, multiply_p(left, right, **how))
  return multiply_p(x, y, **how), change


def _multiply_transpose(cotangents, operands, *, grid, transpose, lower):
  # The cotangent of op(X) in op(X) op(Y) is C̄ op(Y)ᵀ, and that of op(Y) is op(X)ᵀ C̄. Where the
  # product is zero above the diagonal, so is C̄.
  (ct,), (x, y) = cotangents, operands
  (transpose_x, transpose_y), (lower_x, lower_y) = transpose, lower
  multiply = functools.partial(multiply_p, grid=grid)
  is_lower = lower == (True, True) and transpose == (False, False)
  if is_lower:
    ct = grid.map(functools.partial(algorithms.lower_triangle, grid), "c", "c", ct)
  if x is None:
    found = (
        multiply(y, ct, transpose=(transpose_y, True), lower=(lower_y, is_lower))
        if transpose_x else
        multiply(ct, y, transpose=(False, not transpose_y), lower=(is_lower, lower_y)))
    return found, None
  found = (
      multiply(ct, x, transpose=(True, transpose_x), lower=(is_lower, lower_x))
      if transpose_y else
      multiply(x, ct, transpose=(not transpose_x, False), lower=(lower_x, is_lower)))
  return None, found


def _multiply(x, y, *, grid, **how):
  multiply = functools.partial(algorithms.multiply, grid, **how)
  return [grid.map(multiply, "cc", "c", x, y)]


multiply_p: ffi.Operation = ffi.operation(
    "linalg_distributed_multiply", "h w, h w -> h w", [0],
    attributes={"grid": None, "transpose": (False, False), "lower": (False, False)},
    platforms=(), jvp=_multiply_jvp, transpose=_multiply_transpose, fallback=_multiply)


def _solve_jvp(primals, tangents, *, grid, left, transpose, lower):
  # op(L) dX = dB - op(dL) X. X op(L) = B gives dX op(L) = dB - X op(dL).
  (l, b), (dl, db) = primals, tangents
  solve = functools.partial(solve_p, l, grid=grid, left=left, transpose=transpose, lower=lower)
  x = solve(b)

  def multiply(dl):
    if left:
      return multiply_p(dl, x, grid=grid, transpose=(transpose, False), lower=(True, False))
    return multiply_p(x, dl, grid=grid, transpose=(False, transpose), lower=(lower, True))

  return x, solution_tangent(solve, dl, db, multiply)


def _solve_transpose(cotangents, operands, *, transpose, **how):
  # The lower triangles of B and X in X op(L) = B depend on each other alone, both ways. `lower` is
  # only for that system.
  return None, solve_p(operands[0], cotangents[0], transpose=not transpose, **how)


def _solve(l, b, *, grid, **how):
  return [grid.map(functools.partial(algorithms.solve, grid, **how), "cc", "c", l, b)]


solve_p: ffi.Operation = ffi.operation(
    "linalg_distributed_triangular_solve", "h w, h w -> h w", [1],
    attributes={"grid": None, "left": True, "transpose": False, "lower": False},
    platforms=(), jvp=_solve_jvp, transpose=_solve_transpose, fallback=_solve)


def _hermitian(x, *, grid):
  return [grid.map(functools.partial(algorithms.hermitian, grid), "c", "c", x)]


def _folded(x, *, grid):
  return [grid.map(functools.partial(algorithms.folded, grid), "c", "c", x)]


def _half(x, *, grid):
  return [grid.map(functools.partial(algorithms.lower_half_in_place, grid), "c", "c", x)]


def _linear(name, fallback, opposite):
  """A linear operation, whose transpose is the opposite."""
  operation: ffi.Operation = ffi.operation(
      f"linalg_distributed_{name}", "h w -> h w", [0], attributes={"grid": None}, platforms=(),
      jvp=lambda primals, tangents, grid: (
          operation(*primals, grid=grid), operation(*tangents, grid=grid)),
      transpose=lambda cotangents, operands, grid: (opposite()(*cotangents, grid=grid),),
      fallback=fallback)
  return operation


# The Hermitian matrix of a lower triangle. XLA's transpose would move the whole matrix, not half.
hermitian_p: ffi.Operation = _linear("hermitian", _hermitian, lambda: folded_p)
folded_p: ffi.Operation = _linear("folded", _folded, lambda: hermitian_p)
# This operation is its own transpose. XLA's would be another loop, which keeps each panel.
half_p: ffi.Operation = _linear("half", _half, lambda: half_p)


def inverse_tangent(x, da, grid):
  """dX of the inverse X of A, -X dA X."""
  return minus(None, multiply_p(multiply_p(x, da, grid=grid), x, grid=grid))
