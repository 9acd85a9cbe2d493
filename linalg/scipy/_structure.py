"""Which elements of a matrix are 0, or equal others."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.algebra import adjoint, expand, on_diagonal
from linalg._core.operands import check_arrays, check_matrix, check_square
from linalg._core.public import public

__all__ = ["bandwidth", "ishermitian", "issymmetric"]


@public(lists=True)
def bandwidth(a: ArrayLike) -> tuple[jax.Array, jax.Array]:
  """The numbers of diagonals below and above that hold nonzero elements; `scipy.linalg.bandwidth`.

  Args:
    a: matrices (..., m, n).

  Returns:
    (lower, upper), int32 (...): the furthest such diagonal on each side, 0 if there is none. NaN is
    not zero.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> lower, upper = linalg.scipy.bandwidth(jnp.array([[1.0, 2.0, 0.0], [0.0, 3.0, 4.0]]))
    >>> print(lower, upper)
    0 1
  """
  check_arrays("bandwidth", a)
  a = jnp.asarray(a)
  check_matrix("bandwidth", a)
  row, col = (jnp.arange(n, dtype=jnp.int32) for n in a.shape[-2:])
  above = expand(col[None, :] - row[:, None], a)
  # In jax 0.12 the type of `where` with constants loses the sharding on Explicit axes.
  furthest = lambda x: jnp.max((a != 0).astype(x.dtype) * x, axis=(-2, -1), initial=0)
  return furthest(-above), furthest(above)


def _agree(a, b, atol, rtol, exact):
  """Whether the elements of two matrices are equal, exactly or to the tolerances."""
  if atol is None and rtol is None:
    equal = exact
  else:
    equal = jnp.isclose(a, b, rtol=0 if rtol is None else rtol, atol=0 if atol is None else atol)
  return equal.all((-2, -1))


@public("atol", "rtol", lists=True)
def issymmetric(
    a: ArrayLike, atol: float | None = None, rtol: float | None = None
) -> jax.Array:
  """Whether matrices equal their transposes; `scipy.linalg.issymmetric`.

  Args:
    a: matrices (..., n, n).
    atol, rtol: elements x and y count as equal if |x - y| is at most atol + rtol |y|; where one is
      given, the other is 0. If neither is, they must be equal, and the diagonal may be anything.

  Returns:
    Booleans (...). NaN equals nothing.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> a = jnp.array([[1.0, 2.0], [2.125, 1.0]])
    >>> print(linalg.scipy.issymmetric(a), linalg.scipy.issymmetric(a, atol=0.25))
    False True
  """
  check_arrays("issymmetric", a)
  a = jnp.asarray(a)
  check_square("issymmetric", a)
  return _agree(a, a.mT, atol, rtol, (a == a.mT) | on_diagonal(a))


@public("atol", "rtol", lists=True)
def ishermitian(
    a: ArrayLike, atol: float | None = None, rtol: float | None = None
) -> jax.Array:
  """Whether matrices equal their adjoints; `scipy.linalg.ishermitian`.

  Args:
    a: matrices (..., n, n).
    atol, rtol: as for `issymmetric`, but the diagonal of complex matrices must be real.

  Returns:
    Booleans (...). NaN equals nothing.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.ishermitian(jnp.array([[1.0, 1j], [-1j, 1.0]])))
    True
  """
  check_arrays("ishermitian", a)
  a = jnp.asarray(a)
  check_square("ishermitian", a)
  equal = a == adjoint(a)
  if not jnp.iscomplexobj(a):
    equal = equal | on_diagonal(a)
  return _agree(a, adjoint(a), atol, rtol, equal)
