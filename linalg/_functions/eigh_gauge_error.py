"""Whether a loss depends on the choices that an eigendecomposition leaves open."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.algebra import adjoint, smallest_gap
from linalg._core.operands import as_arrays, check_square
from linalg._core.public import public
from linalg._factorizations.eigh import eigh
from linalg._factorizations.matmul import product

__all__ = ["eigh_gauge_error"]


@public("loss", compiled=False)
def eigh_gauge_error(
    loss: Callable[[jax.Array, jax.Array], jax.Array], a: ArrayLike
) -> jax.Array:
  """How much `loss(w, v)` of the eigenvalues and eigenvectors depends on their free choice.

  An eigenvector of a complex matrix has a free phase. The eigenvectors of equal eigenvalues may be
  rotated among themselves. A loss that depends on such a choice has no derivative with respect to
  the matrix: `grad` of it through `eigh` returns a meaningless number. Make this check once, while
  debugging.

  Args:
    loss: a real number from eigenvalues (..., n) and eigenvectors (..., n, n), for example the part
      of a program that follows `eigh`.
    a: Hermitian matrices (..., n, n).

  Returns:
    One real number for each matrix, (...). It is the derivative of the loss along the free
    directions, divided by its derivative with respect to the eigenvectors. The number is 0 up to
    rounding if the loss does not depend on the choice, and 1 if it depends on nothing else. Any
    rotation is free among eigenvalues closer than 8 √n eps ‖A‖, which `eigh`'s derivative treats as
    equal. A derivative cannot detect the signs of real eigenvectors.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.diag(jnp.array([1.0, 1.0, 2.0]))  # two eigenvalues are equal
    >>> one_of_two = lambda w, v: v[..., 0, 0] * v[..., 1, 0]
    >>> print(linalg.eigh_gauge_error(one_of_two, a).round(3))
    0.707
    >>> symmetric = lambda w, v: jnp.sum(w**2)
    >>> print(linalg.eigh_gauge_error(symmetric, a))
    0.0
  """
  (a,), _ = as_arrays("eigh_gauge_error", a)
  check_square("eigh_gauge_error", a)
  w, v = jax.lax.stop_gradient(eigh(a))
  slope = jax.grad(lambda v: loss(w, v))(v).conj()  # dloss = Re tr(slopeᴴ dV)
  # dV = V X with a skew-Hermitian X, within the clusters.
  x = product(v, slope, adjoint_a=True)
  skew = (x - adjoint(x)) / 2
  gaps = jnp.abs(w[..., None, :] - w[..., :, None])
  norm = jnp.max(jnp.abs(w), axis=-1, initial=0)[..., None, None]
  free = jnp.where(gaps <= smallest_gap(norm, w.shape[-1]), skew, 0)

  def size(m):
    return jnp.sqrt(jnp.sum(m.real**2 + m.imag**2, axis=(-2, -1)))

  whole = size(x)
  return size(free) / jnp.where(whole == 0, 1, whole)
