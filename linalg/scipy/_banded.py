"""Banded matrices, stored by diagonals as in SciPy and LAPACK.

Row t of `ab` is diagonal t of a matrix with u diagonals above the main one: ab[t, j] is A[j + t -
u, j]. The corners of `ab`, where A has no such row, are not read.
"""

import functools
import operator

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import expand, nan_where, solution_tangent, without_none, zeros_like
from linalg._core.checks import check_factors, check_positive
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, as_pair, check_columns
from linalg._core.public import public

__all__ = ["cho_solve_banded", "cholesky_banded", "solve_banded", "solveh_banded"]


# Diagonals. `upper` is the number of diagonals above the main one.


def _moved(x, upper, core=2):
  """Shifts row t of (..., diagonals, n) by t - upper along n, and fills it with zeros.

  For core=3 the shape is (..., diagonals, n, k). Each row is padded, and the whole is cut into rows
  that are one element shorter. This takes one reshape for any number of diagonals, and no gather.
  """
  *batch, count, n = x.shape[: x.ndim - core + 2]
  rest = x.shape[x.ndim - core + 2 :]
  lead, none = [(0, 0)] * (len(batch) + 1), [(0, 0)] * len(rest)
  padded = jnp.pad(x, [*lead, (0, count), *none])
  flat = padded.reshape(*batch, count * (n + count), *rest)
  flat = jax.lax.slice_in_dim(flat, 0, count * (n + count - 1), axis=len(batch))
  rows = flat.reshape(*batch, count, n + count - 1, *rest)
  return jax.lax.slice_in_dim(rows, upper, upper + n, axis=len(batch) + 1)


def _transposed(ab, upper):
  """The diagonals of the transposed matrix, with corners of 0."""
  return jnp.flip(_moved(ab, upper), -2)


def _cleared(ab, upper):
  """`ab` with corners of 0."""
  t, j = jnp.arange(ab.shape[-2])[:, None], jnp.arange(ab.shape[-1])[None]
  row = j + t - upper
  return jnp.where(expand((row >= 0) & (row < ab.shape[-1]), ab), ab, 0)


def _times(ab, upper, x):
  """A x"""
  return jnp.sum(_moved(ab[..., None] * x[..., None, :, :], upper, core=3), axis=-3)


def _lower_form(ab, lower):
  """The diagonals from the main one down, from SciPy's upper or lower form, with corners of 0.

  The matrix is Hermitian, or a lower triangular factor.
  """
  if lower:
    return _cleared(ab, 0)
  return _transposed(ab, ab.shape[-2] - 1).conj()


def _in_form(columns, lower):
  """Turns a result of `_lower_form` back into the given form."""
  return columns if lower else _transposed(columns, 0).conj()


def _adjoint_times(l, x):
  """Returns Lᴴ x for a lower triangular L."""
  return _times(_transposed(l, 0).conj(), l.shape[-2] - 1, x)


def _hermitian_times(ab, lower, x):
  """Returns A x for a Hermitian A."""
  l = _lower_form(ab, lower)
  diagonal = l[..., :1, :]
  strict = jnp.concatenate([zeros_like(diagonal), l[..., 1:, :]], axis=-2)
  on_diagonal = diagonal.real.astype(l.dtype).mT * x
  return on_diagonal + _times(strict, 0, x) + _adjoint_times(strict, x)


# Recurrences that replace the handlers on platforms without them. A window of the matrix moves
# along the diagonal.


def _with_rows(x, before, after):
  """`x` with rows of 0 added before and after its own."""
  return jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(before, after), (0, 0)])


def _zero_rows(x, count):
  """`count` rows of 0, of the dtype, the batch and the row length of `x`."""
  return _with_rows(x[..., :0, :], 0, count)


def _along(x, axis):
  """The steps of a scan over a dimension."""
  return jnp.moveaxis(x, axis, 0)


def _from_left(window, axis, entering=None):
  """Moves the window on by one element. The first is dropped, and `entering`, or 0, is appended."""
  size = window.shape[axis]
  kept = jax.lax.slice_in_dim(window, 1, size, axis=axis)
  last = zeros_like(jax.lax.slice_in_dim(window, 0, 1, axis=axis))
  if entering is not None:
    last = jnp.expand_dims(entering, axis)
  return jnp.concatenate([kept, last], axis=axis)


def _first(condition):
  """Returns 1 + the index of the first True in the last dimension, or 0 where there is none."""
  n = condition.shape[-1]
  places = expand(jnp.arange(n, dtype=jnp.int32), condition)
  left = jnp.max(jnp.where(condition, n - places, 0), axis=-1, initial=0)
  return jnp.where(left > 0, n + 1 - left, 0).astype(jnp.int32)


def _solve_steps(upper, lower, b):
  """Elimination with partial pivoting, as LAPACK's gbtf2, and substitution.

  A window of lower + 1 rows begins at the column that is eliminated. Rows of an identity come
  first, so that each row enters the window at its own first column.
  """
  below, above = lower.shape[-2], upper.shape[-2] - 1
  ab = jnp.concatenate([upper, lower], axis=-2)
  rows = _transposed(ab, above).mT  # of A, from below the diagonal to above it
  width = rows.shape[-1]
  identity = _zero_rows(rows, below) + expand(jnp.eye(below, width, dtype=rows.dtype), rows)
  rows, rhs = (_with_rows(x, 0, below) for x in (rows, b))

  def eliminate(carry, entering):
    a, y = (jnp.concatenate([x, new[..., None, :]], axis=-2)
            for x, new in zip(carry, entering, strict=True))
    pivot = jnp.argmax(jnp.abs(a[..., 0]), axis=-1)[..., None, None]
    chosen = expand(jnp.arange(below + 1)[:, None], a) == pivot
    take = lambda x: jnp.sum(jnp.where(chosen, x, 0), axis=-2, keepdims=True)
    top, top_y = take(a), take(y)
    a, y = (jnp.where(chosen, x[..., :1, :], x)[..., 1:, :] for x in (a, y))
    head = top[..., :1]
    factor = jnp.where(head == 0, 0, a[..., :1] / jnp.where(head == 0, 1, head))
    a = _from_left(a - factor * top, -1)
    return (a, y - factor * top_y), (top[..., 0, :], top_y[..., 0, :])

  _, (u, y) = jax.lax.scan(
      eliminate, (identity, _zero_rows(b, below)), (_along(rows, -2), _along(rhs, -2)))
  u, y = u[below:], y[below:]

  def substitute(following, step):
    u, y = step
    x = y - jnp.sum(u[..., 1:, None] * following, axis=-2)
    x = x / u[..., :1]
    return jnp.concatenate([x[..., None, :], following], axis=-2)[..., :-1, :], x

  _, x = jax.lax.scan(substitute, _zero_rows(b, width - 1), (u, y), reverse=True)
  zero_pivots = jnp.moveaxis(u[..., 0] == 0, 0, -1)
  info = jnp.where(jnp.isnan(u).any((0, -1)), -1, _first(zero_pivots)).astype(jnp.int32)
  return [nan_where(info != 0, jnp.moveaxis(x, 0, -2), core=2), info]


def _factor_step(before, a):
  """Column k of L, from column k of A and the columns of L before it.

  `before` holds the elements of those columns in the rows from k on, the nearest column first.
  """
  column = a - jnp.sum(before * before[..., :1].conj(), axis=-2)
  pivot = column[..., :1].real
  root = jnp.sqrt(pivot).astype(a.dtype)
  column = jnp.concatenate([root, column[..., 1:] / root], axis=-1)
  return _with_column(before, column), (column, pivot[..., 0] > 0)


def _with_column(before, column):
  """Moves `before` on to the next column."""
  columns = jnp.concatenate([column[..., None, :], before], axis=-2)[..., :-1, :]
  return _from_left(columns, -1)


def _no_columns(columns):
  """`before` for the first column."""
  return _zero_rows(columns.mT, columns.shape[-2])


def _factor_steps(ab, *, lower):
  columns = _lower_form(ab, lower)
  _, (l, positive) = jax.lax.scan(_factor_step, _no_columns(columns), _along(columns, -1))
  info = _first(~jnp.moveaxis(positive, 0, -1))
  factor = _in_form(_cleared(jnp.moveaxis(l, 0, -1), 0), lower)
  return [nan_where(info != 0, factor, core=2), info]


def _factor_tangent(factor, da, lower):
  """Returns dL of A = L Lᴴ. It is computed column by column, like L itself.

  dA = dL Lᴴ + L dLᴴ. Without the contribution of earlier columns, its column is l₀ dl + dl₀ l,
  whose first element is 2 l₀ dl₀.
  """
  l, da = _lower_form(factor, lower), _lower_form(da, lower)

  def step(carry, columns):
    before, moved = carry
    l, da = columns
    da = da - jnp.sum(
        moved * before[..., :1].conj() + before * moved[..., :1].conj(), axis=-2)
    pivot = l[..., :1].real.astype(l.dtype)
    dpivot = (da[..., :1].real / (2 * l[..., :1].real)).astype(l.dtype)
    dl = jnp.concatenate([dpivot, (da[..., 1:] - dpivot * l[..., 1:]) / pivot], axis=-1)
    return (_with_column(before, l), _with_column(moved, dl)), dl

  nothing = _no_columns(l)
  _, dl = jax.lax.scan(step, (nothing, zeros_like(nothing)), (_along(l, -1), _along(da, -1)))
  return _in_form(_cleared(jnp.moveaxis(dl, 0, -1), 0), lower)


def _substitute_steps(factor, b, *, lower):
  """L Lᴴ x = b"""
  columns = _lower_form(factor, lower)
  width = columns.shape[-2]
  rhs = _with_rows(b, 0, width - 1)
  first, rest = rhs[..., : width - 1, :], rhs[..., width - 1 :, :]

  def forward(window, step):
    l, entering = step
    window = jnp.concatenate([window, entering[..., None, :]], axis=-2)
    y = window[..., :1, :] / l[..., :1, None]
    return (window - l[..., None] * y)[..., 1:, :], y[..., 0, :]

  l = _along(columns, -1)
  _, y = jax.lax.scan(forward, first, (l, _along(rest, -2)))

  def back(following, step):
    l, y = step
    x = y - jnp.sum(l[..., 1:, None].conj() * following, axis=-2)
    x = x / l[..., :1].conj()
    return jnp.concatenate([x[..., None, :], following], axis=-2)[..., :-1, :], x

  _, x = jax.lax.scan(back, zeros_like(first), (l, y), reverse=True)
  return [jnp.moveaxis(x, 0, -2)]


# Operations.


def _solve_jvp(primals, tangents):
  # A dx = db - dA x
  *matrix, b = primals
  *moved, db = tangents
  solve = functools.partial(banded_solve_p, *matrix)
  x, info = solve(b)
  da = None
  if any(t is not None for t in moved):
    da = jnp.concatenate(without_none(matrix, moved), axis=-2)
  above = matrix[0].shape[-2] - 1
  dx, _ = solution_tangent(solve, da, db, lambda da: _times(da, above, x))
  return (x, info), (dx, None)


def _solve_transpose(cotangents, operands):
  upper, lower, _ = operands
  ab = _transposed(jnp.concatenate([upper, lower], axis=-2), upper.shape[-2] - 1)
  split = lower.shape[-2] + 1
  x, _ = banded_solve_p(ab[..., :split, :], ab[..., split:, :], cotangents[0])
  return None, None, x


# The operands are the diagonals down to the main one and the diagonals below it, so their shapes
# give both numbers.
banded_solve_p = ffi.operation(
    "linalg_banded_solve",
    "u n, l n, n k -> n k, ()",
    [2, jnp.int32],
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    fallback=_solve_steps)


def _cholesky_jvp(primals, tangents, *, lower):
  factor, info = cholesky_banded_p(*primals, lower=lower)
  return (factor, info), (_factor_tangent(factor, tangents[0], lower), None)


cholesky_banded_p = ffi.operation(
    "linalg_cholesky_banded",
    "w n -> w n, ()",
    [0, jnp.int32],
    attributes={"lower": True},
    jvp=_cholesky_jvp,
    fallback=_factor_steps)


def _cholesky_solve_jvp(primals, tangents, *, lower):
  # A dx = db - dA x, where dA = dL Lᴴ + L dLᴴ.
  factor, b = primals
  dfactor, db = tangents
  solve = functools.partial(cholesky_banded_solve_p, factor, lower=lower)
  x = solve(b)

  def multiply(dfactor):
    l, dl = _lower_form(factor, lower), _lower_form(dfactor, lower)
    return _times(dl, 0, _adjoint_times(l, x)) + _times(l, 0, _adjoint_times(dl, x))

  return x, solution_tangent(solve, dfactor, db, multiply)


def _cholesky_solve_transpose(cotangents, operands, *, lower):
  # A is Hermitian, so its transpose is its conjugate.
  factor, _ = operands
  return None, cholesky_banded_solve_p(factor, cotangents[0].conj(), lower=lower).conj()


cholesky_banded_solve_p = ffi.operation(
    "linalg_cholesky_banded_solve",
    "w n, n k -> n k",
    [1],
    attributes={"lower": True},
    jvp=_cholesky_solve_jvp,
    transpose=_cholesky_solve_transpose,
    fallback=_substitute_steps)


def _positive_transpose(cotangents, operands, *, lower):
  ab, factor, _ = operands
  x = _positive_solve_p(ab, factor, cotangents[0].conj(), lower=lower)
  return None, None, x.conj()


# A⁻¹ b, given A's Cholesky factor.
_positive_solve_p = given_factors(
    "solveh_banded",
    "w n, w n, n k -> n k",
    [2],
    cholesky_banded_solve_p,
    attributes={"lower": True},
    multiply=lambda ab, x, lower: _hermitian_times(ab, lower, x),
    transpose=_positive_transpose)


# Arguments.


def _columns(name, ab, b):
  """The right-hand sides (..., n, k), and whether `b` was one vector."""
  vector = b.ndim == 1
  columns = b[..., None] if vector else b
  check_columns(name, ab, b, columns, "the diagonals")
  ffi.refuse_sharded(name, ab, columns)
  return columns, vector


def _check_diagonals(name: str, parameter: str, ab: jax.Array) -> jax.Array:
  """Returns `ab`. In SciPy (..., 0, 0) is a matrix of order 0: it gets its main diagonal here."""
  if ab.ndim > 1 and ab.shape[-2:] == (0, 0):
    return ab.reshape(*ab.shape[:-2], 1, 0)
  if ab.ndim < 2 or ab.shape[-2] == 0:
    raise ValueError(
        f"Argument {parameter} to {name}() must have shape [..., diagonals, n] with at least one "
        f"diagonal, got {ab.shape}")
  return ab


def _number_of_diagonals(l_and_u):
  try:
    below, above = map(operator.index, l_and_u)
  except (TypeError, ValueError):
    below = above = -1
  if below < 0 or above < 0:
    raise ValueError(
        "l_and_u of solve_banded() must be the numbers of diagonals below and above the main one, "
        f"got {l_and_u!r}")
  return below, above


def _within(ab, above):
  """Removes the diagonals beyond the corners of A from (ab, above)."""
  most = max(ab.shape[-1] - 1, 0)
  first = max(above - most, 0)
  last = min(above + most + 1, ab.shape[-2])
  return ab[..., first:last, :], above - first


def _triangle_within(ab, lower):
  return _within(ab, 0 if lower else ab.shape[-2] - 1)[0]


@public("l_and_u", "overwrite_ab", "overwrite_b", "check_finite", lists=True)
def solve_banded(
    l_and_u: tuple[int, int],
    ab: ArrayLike,
    b: ArrayLike,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> jax.Array:
  """Solves A x = b with a banded A; SciPy's `scipy.linalg.solve_banded`, batched.

  Args:
    l_and_u: (l, u), the numbers of diagonals below and above the main one.
    ab: the diagonals (..., l + u + 1, n), from the uppermost down: ab[u + i - j, j] is A[i, j]. The
      corners are not elements of A and are not read.
    b: a vector (n,), or matrices of right-hand sides (..., n, k).
    overwrite_ab, overwrite_b, check_finite: not used.

  Returns:
    x, with the broadcast batch shape of `ab` and `b`. Where A is exactly singular or holds NaN, x
    is NaN; see `checked`.

  float16 and bfloat16 are solved in float32, and x rounded.

  Algorithm: elimination with partial pivoting, as LAPACK's gbtf2, in a window of l + 1 rows that
  moves along the diagonal. It takes n l (l + u) operations and memory for n (l + u + 1) numbers. A
  derivative factors anew.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> ab = jnp.array([[0.0, 1.0, 1.0], [4.0, 4.0, 4.0], [2.0, 2.0, 0.0]])
    >>> print(linalg.scipy.solve_banded((1, 1), ab, jnp.array([5.0, 7.0, 6.0])).round(4))
    [1. 1. 1.]
  """
  del overwrite_ab, overwrite_b, check_finite
  (ab, b), dtype = as_arrays("solve_banded", ab, b)
  below, above = _number_of_diagonals(l_and_u)
  ab = _check_diagonals("solve_banded", "ab", ab)
  if ab.shape[-2] != below + above + 1:
    raise ValueError(
        f"Argument ab to solve_banded() must have l + u + 1 = {below + above + 1} rows of "
        f"diagonals, got {ab.shape}")
  columns, vector = _columns("solve_banded", ab, b)
  inner, above = _within(ab, above)
  x, info = banded_solve_p(inner[..., : above + 1, :], inner[..., above + 1 :, :], columns)
  check_factors(info)
  return (x[..., 0] if vector else x).astype(dtype)


@public("overwrite_ab", "lower", "check_finite", lists=True)
def cholesky_banded(
    ab: ArrayLike, overwrite_ab: bool = False, lower: bool = False, check_finite: bool = True
) -> jax.Array:
  """The Cholesky factor of banded matrices; SciPy's `scipy.linalg.cholesky_banded`, batched.

  Args:
    ab: the diagonals (..., w + 1, n). By default the main diagonal and the w above it, from the
      uppermost down: ab[w + i - j, j] is A[i, j]. If `lower`, the main diagonal and those below it,
      from the main one down: ab[i - j, j] is A[i, j]. The corners are not elements of A and are not
      read. Neither is the imaginary part of the main diagonal.
    lower: whether `ab` holds the lower triangle.
    overwrite_ab, check_finite: not used.

  Returns:
    The factor in the same form, U of A = Uᴴ U or L of A = L Lᴴ, with corners of 0. Where A is not
    positive definite it is NaN; see `checked`.

  float16 and bfloat16 are factored in float32, and the factor rounded.

  Algorithm: that of LAPACK's pbtf2, n w² operations. Derivative: the column recurrence of the
  factor, differentiated. It takes n w² operations too, as a loop of n steps without a handler.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> ab = jnp.array([[4.0, 2.0, 5.0], [2.0, 1.0, 0.0]])
    >>> print(linalg.scipy.cholesky_banded(ab, lower=True))
    [[2. 1. 2.]
     [1. 1. 0.]]
  """
  del overwrite_ab, check_finite
  (ab,), dtype = as_arrays("cholesky_banded", ab)
  given = ab.shape
  ab = _check_diagonals("cholesky_banded", "ab", ab)
  ffi.refuse_sharded("cholesky_banded", ab)
  inner = _triangle_within(ab, lower)
  factor, info = cholesky_banded_p(inner, lower=bool(lower))
  check_positive(info)
  outside = ab.shape[-2] - inner.shape[-2]
  factor = jnp.pad(
      factor, [(0, 0)] * (ab.ndim - 2) + [(0, outside) if lower else (outside, 0), (0, 0)])
  return factor.reshape(given).astype(dtype)


@functools.partial(jax.jit, static_argnames="lower")
def _cho_solve_banded(cb, b, lower):
  (cb, b), dtype = as_arrays("cho_solve_banded", cb, b)
  cb = _check_diagonals("cho_solve_banded", "cb", cb)
  columns, vector = _columns("cho_solve_banded", cb, b)
  x = cholesky_banded_solve_p(_triangle_within(cb, lower), columns, lower=lower)
  return (x[..., 0] if vector else x).astype(dtype)


@public("overwrite_b", "check_finite", compiled=False, lists=True)
def cho_solve_banded(
    cb_and_lower: tuple[ArrayLike, bool],
    b: ArrayLike,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> jax.Array:
  """Solves A x = b with a banded A's Cholesky factor; SciPy's `scipy.linalg.cho_solve_banded`.

  Args:
    cb_and_lower: (cb, lower): the factor (..., w + 1, n) that `cholesky_banded` returns, and
      whether it is lower triangular. The corners are not read.
    b: a vector (n,), or matrices of right-hand sides (..., n, k).
    overwrite_b, check_finite: not used.

  Returns:
    x, with the broadcast batch shape and the common dtype of the factor and `b`. A factor that
    failed gives NaN. A factor with a zero on its diagonal gives infinities and NaN. Other systems
    of the batch are not affected.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> ab = jnp.array([[4.0, 2.0, 5.0], [2.0, 1.0, 0.0]])
    >>> factor = linalg.scipy.cholesky_banded(ab, lower=True)
    >>> print(linalg.scipy.cho_solve_banded((factor, True), jnp.array([6.0, 5.0, 6.0])))
    [1. 1. 1.]
  """
  del overwrite_b, check_finite
  cb, lower = as_pair(
      "cho_solve_banded", "cb_and_lower", "what cholesky_banded returns, and whether it is lower",
      cb_and_lower, flag=True)
  return _cho_solve_banded(cb, b, bool(lower))


@public("overwrite_ab", "overwrite_b", "lower", "check_finite", lists=True)
def solveh_banded(
    ab: ArrayLike,
    b: ArrayLike,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    lower: bool = False,
    check_finite: bool = True,
) -> jax.Array:
  """Solves A x = b with a banded, Hermitian positive definite A; `scipy.linalg.solveh_banded`.

  Args:
    ab, lower: as for `cholesky_banded`.
    b: a vector (n,), or matrices of right-hand sides (..., n, k).
    overwrite_ab, overwrite_b, check_finite: not used.

  Returns:
    x, with the broadcast batch shape of `ab` and `b`. Where A is not positive definite, x is NaN;
    see `checked`.

  float16 and bfloat16 are solved in float32, and x rounded.

  Algorithm: `cholesky_banded` and substitution. A derivative reuses the factor.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> ab = jnp.array([[4.0, 2.0, 5.0], [2.0, 1.0, 0.0]])
    >>> print(linalg.scipy.solveh_banded(ab, jnp.array([6.0, 5.0, 6.0]), lower=True))
    [1. 1. 1.]
  """
  del overwrite_ab, overwrite_b, check_finite
  (ab, b), dtype = as_arrays("solveh_banded", ab, b)
  ab = _check_diagonals("solveh_banded", "ab", ab)
  columns, vector = _columns("solveh_banded", ab, b)
  ab = _triangle_within(ab, lower)
  factor, info = cholesky_banded_p(jax.lax.stop_gradient(ab), lower=bool(lower))
  x = _positive_solve_p(ab, factor, columns, lower=bool(lower))
  check_positive(info)
  x = nan_where(info != 0, x, core=2)
  return (x[..., 0] if vector else x).astype(dtype)
