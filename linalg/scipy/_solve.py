"""Solutions and inverses of matrices whose structure the caller names."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

import linalg
from linalg import ffi
from linalg._core.algebra import diagonal_of, identity, nan_where, on_diagonal
from linalg._core.operands import as_arrays, check_arrays, check_columns, check_square
from linalg._core.public import public

__all__ = ["inv", "solve"]

# SciPy's names of structures, and those of `linalg.solve` that are solved in the same way. The
# width of a band depends on the values of a matrix, so that a banded one is solved as a general
# one.
_BY_FACTORS = {
    None: "gen", "gen": "gen", "general": "gen", "banded": "gen", "sym": "sym", "symmetric": "sym",
    "her": "her", "hermitian": "her", "pos": "pos", "positive definite": "pos"}
_TRIANGLES = {"upper triangular": False, "lower triangular": True}
_OF_INV = (
    None, "gen", "general", "diagonal", *_TRIANGLES, "pos", "positive definite", "sym", "symmetric",
    "her", "hermitian")
_OF_SOLVE = (*_OF_INV, "tridiagonal", "banded")


def _check_structure(name, assume_a, known):
  if assume_a not in known:
    names = ", ".join(repr(x) for x in known if x)
    raise ValueError(f"{name}: assume_a must be one of {names}, got {assume_a!r}.")


def _solution(name, a, b, assume_a, lower):
  """The solution of A x = b, for the columns of `b`."""
  if assume_a in _BY_FACTORS:
    return linalg.solve(a, b, assume_a=_BY_FACTORS[assume_a], lower=lower)
  (a, b), dtype = as_arrays(name, a, b)
  check_square(name, a, "a")
  columns = b[..., None] if b.ndim == 1 else b
  check_columns(name, a, b, columns)
  d = diagonal_of(a)
  if assume_a == "tridiagonal":
    below, above = (jnp.sum(jnp.where(on_diagonal(a, k), a, 0), axis=-1) for k in (-1, 1))
    x = linalg.tridiagonal_solve(below, d, above, columns)
  else:
    if assume_a == "diagonal":
      divisors, columns = ffi.broadcast_batches(name, (d[..., None], columns), (2, 2))
      x = columns / divisors
    else:
      x = linalg.solve_triangular(a, columns, lower=_TRIANGLES[assume_a])
    x = nan_where((d == 0).any(-1), x, core=2)
  return (x[..., 0] if b.ndim == 1 else x).astype(dtype)


@public("overwrite_a", "check_finite", "assume_a", "lower", lists=True)
def inv(
    a: ArrayLike,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    assume_a: str | None = None,
    lower: bool = False,
) -> jax.Array:
  """The inverse; `jax.scipy.linalg.inv`, with `assume_a` of `scipy.linalg.inv`. See `linalg.inv`.

  Args:
    a: matrices (..., n, n).
    assume_a: the structure: 'gen', 'diagonal', 'upper triangular', 'lower triangular', 'sym', 'her'
      or 'pos', as for `linalg.scipy.solve`. None is 'gen'.
    lower: for 'sym', 'her' and 'pos', whether the lower or the upper triangle is read.
    overwrite_a, check_finite: not used.

  Returns:
    The inverses (..., n, n); NaN where the matrix is exactly singular, or not positive definite
    with 'pos'.

  Algorithm: that of `linalg.inv`, or of `linalg.scipy.solve` for the columns of the identity.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.inv(jnp.diag(jnp.array([2.0, 4.0]))))
    [[0.5  0.  ]
     [0.   0.25]]
    >>> a = jnp.array([[2.0, 4.0], [jnp.nan, 4.0]])
    >>> print(linalg.scipy.inv(a, assume_a="upper triangular"))
    [[ 0.5  -0.5 ]
     [ 0.    0.25]]
  """
  del overwrite_a, check_finite
  _check_structure("inv", assume_a, _OF_INV)
  if _BY_FACTORS.get(assume_a) == "gen":
    return linalg.inv(a)
  (x,), dtype = as_arrays("inv", a)
  check_square("inv", x)
  return _solution("inv", x, identity(x), assume_a, lower).astype(dtype)


@public(
    "lower", "overwrite_a", "overwrite_b", "debug", "check_finite", "assume_a", "transposed",
    lists=True)
def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str | None = "gen",
    *,
    transposed: bool = False,
) -> jax.Array:
  """Solves A x = b; `jax.scipy.linalg.solve`, with the structures of `scipy.linalg.solve`.

  Args:
    a: matrices (..., n, n).
    b: a vector (n,), or matrices of right-hand sides (..., n, k). It may be a batch of vectors
      (..., n) if assume_a is 'pos' or 'positive definite', as in JAX with 'pos'.
    lower: for 'sym', 'her' and 'pos', whether the lower or the upper triangle is read.
    assume_a: the structure. 'gen' or 'general', 'banded', 'sym' or 'symmetric', 'her' or
      'hermitian', 'pos' or 'positive definite', 'upper triangular', 'lower triangular',
      'tridiagonal', 'diagonal'. None is 'gen'. Elements that a structure excludes are not read,
      but for 'banded'.
    transposed: whether to solve Aᵀ x = b, also for a complex A.
    overwrite_a, overwrite_b, debug, check_finite: not used. `check_finite` must be a boolean.

  Returns:
    x, with the broadcast batch shape of `a` and `b`. It is NaN where A is singular, or not positive
    definite with 'pos'. XLA takes subnormal numbers for 0, so that a diagonal or triangular A with
    one on its diagonal counts as singular, while x may hold Inf with 'gen'.

  Algorithm: that of `linalg.solve`; substitution for triangles; that of `linalg.tridiagonal_solve`
  for 'tridiagonal'.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> a = jnp.array([[4.0, 2.0], [2.0, 2.0]])
    >>> print(linalg.scipy.solve(a, jnp.array([8.0, 6.0]), assume_a="pos"))
    [1. 2.]
    >>> print(linalg.scipy.solve(a, jnp.array([8.0, 4.0]), assume_a="lower triangular"))
    [2. 0.]
  """
  if check_finite not in (True, False):  # SciPy has assume_a in this place
    raise TypeError(
        f"solve: check_finite must be True or False, got {check_finite!r}. As in JAX, it is the "
        f"parameter after debug: pass it and assume_a by keyword.")
  del overwrite_a, overwrite_b, debug, check_finite
  _check_structure("solve", assume_a, _OF_SOLVE)
  check_arrays("solve", a, b)
  if transposed:
    a = jnp.asarray(a)
    check_square("solve", a, "a")
    a, lower = a.mT, not lower
    if assume_a in _TRIANGLES:
      assume_a = next(x for x in _TRIANGLES if x != assume_a)
  batch_of_vectors = jnp.ndim(a) == jnp.ndim(b) + 1 > 2
  if batch_of_vectors and _BY_FACTORS.get(assume_a) == "pos":
    return _solution("solve", a, jnp.asarray(b)[..., None], assume_a, lower)[..., 0]
  return _solution("solve", a, b, assume_a, lower)
