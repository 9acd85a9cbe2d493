"""How two spaces lie to each other: their angles, and the rotation of one onto the other."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import expand, none_like, ones_of_first_order, zeros_like
from linalg._core.operands import (
  as_arrays,
  check_batches,
  check_matrix,
  incompatible,
  real_dtype,
)
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.svd import svd, svdvals
from linalg._functions.norms import nuclear_p
from linalg._functions.polar import unitary_p
from linalg.scipy._subspaces import orth

__all__ = ["orthogonal_procrustes", "subspace_angles"]


def _dimension(q):
  """The number of columns of bases that are not filled with zeros."""
  return jnp.sum((q != 0).any(-2), axis=-1, keepdims=True)


def _elements(x, at):
  """x[at] along the last dimension, without a gather; 0 where there is none."""
  place = expand(jnp.arange(x.shape[-1], dtype=at.dtype), at[..., None])
  return jnp.sum(jnp.where(place == at[..., None], x[..., None, :], 0), axis=-1)


def _angles(p, q):
  """The angles between the spaces of two bases, of which the second has no more columns.

  Cosines are accurate for large angles, and sines for small ones: Björck and Golub, Math. Comp. 27
  (1973).
  """
  first, second = _dimension(p), _dimension(q)
  overlap = product(p, q, adjoint_a=True)
  place = expand(jnp.arange(q.shape[-1], dtype=first.dtype), first)
  common = jnp.minimum(first, second)
  cosines = _elements(svdvals(overlap), common - 1 - place)
  # The space of q has this many directions that are orthogonal to that of p.
  more = jnp.maximum(second - first, 0)
  sines = _elements(svdvals(q - product(p, overlap)), place + more)
  small = cosines**2 >= 0.5
  angles = jnp.where(
      small, jnp.arcsin(jnp.where(small, sines, 0)), jnp.arccos(jnp.where(small, 0, cosines)))
  return jnp.where(place < common, angles, 0)


@public(lists=True)
def subspace_angles(A: ArrayLike, B: ArrayLike) -> jax.Array:
  """The angles between the ranges of two matrices; `scipy.linalg.subspace_angles`, batched.

  Args:
    A: matrices (..., m, n).
    B: matrices (..., m, k); the batches broadcast.

  Returns:
    The angles in radians, real (..., min(m, n, k)), in descending order. Where the smaller range
    has fewer dimensions, zeros follow its angles, and SciPy has no elements. Angles are NaN where A
    or B holds NaN or Inf. Small rows lose digits beside rows that are far larger.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: `orth`, and singular values for cosines and sines, as in SciPy. Derivatives: as those
  of `orth` and `svdvals`, at constant ranks. At an angle of 0 they are those of a norm at 0.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> a, b = jnp.eye(3)[:, :2], jnp.array([[0.0], [1.0], [1.0]])
    >>> print(linalg.scipy.subspace_angles(a, b).round(4))
    [0.7854]
  """
  (a, b), dtype = as_arrays("subspace_angles", A, B)
  check_matrix("subspace_angles", a, "A")
  check_matrix("subspace_angles", b, "B")
  if a.shape[-2] != b.shape[-2]:
    raise incompatible("subspace_angles", a, b, names=("A", "B"))
  check_batches("subspace_angles", a, b, names=("A", "B"))
  a, b = ffi.broadcast_batches("subspace_angles", (a, b), (2, 2))
  p, q = (orth(x, size=min(x.shape[-2:])) for x in (a, b))
  if p.shape[-1] < q.shape[-1]:
    p, q = q, p
  angles = _angles(p, q) if q.shape[-1] else none_like(q.mT).real
  return angles.astype(real_dtype(dtype))


@public("check_finite", lists=True)
def orthogonal_procrustes(
    A: ArrayLike, B: ArrayLike, check_finite: bool = True
) -> tuple[jax.Array, jax.Array]:
  """The unitary R with the least ‖A R - B‖; `scipy.linalg.orthogonal_procrustes`, batched.

  Args:
    A, B: matrices (..., m, n), whose batches broadcast.
    check_finite: not used.

  Returns:
    (R, scale): matrices (..., n, n), and the sums of the singular values of Aᴴ B, real (...). Both
    are NaN where A or B holds NaN or Inf.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: R is the unitary polar factor of Aᴴ B, from its singular values. Derivatives are those
  of `polar` and of the nuclear norm, to any order, at equal singular values too. R is not
  determined where Aᴴ B is singular, and its derivative is NaN there. That of the scale is then a
  subgradient.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> turn = jnp.array([[0.0, -1.0], [1.0, 0.0]])
    >>> r, scale = linalg.scipy.orthogonal_procrustes(jnp.eye(2), turn)
    >>> print(jnp.allclose(r, turn, atol=1e-6), scale.round(4))
    True 2.0
  """
  del check_finite
  (a, b), dtype = as_arrays("orthogonal_procrustes", A, B)
  check_matrix("orthogonal_procrustes", a, "A")
  if b.ndim < 2 or a.shape[-2:] != b.shape[-2:]:
    raise incompatible("orthogonal_procrustes", a, b, names=("A", "B"))
  check_batches("orthogonal_procrustes", a, b, names=("A", "B"))
  c = product(a, b, adjoint_a=True)
  if c.shape[-1] == 0:
    return c.astype(dtype), jnp.sum(c.real, axis=(-2, -1)).astype(real_dtype(dtype))
  factors = svd(jax.lax.stop_gradient(c), full_matrices=False)
  r = unitary_p(c, *factors)
  s = factors[1]
  # A value that varies with C, and 0, which the smallest one may equal.
  smallest = s[..., -1:] + 0 * c[..., 0, :1].real
  one = ones_of_first_order(jnp.concatenate([smallest, zeros_like(smallest)], -1), s[..., :1])
  r = r * one[..., :1, None].astype(r.dtype)
  return r.astype(dtype), nuclear_p(c, *factors).astype(real_dtype(dtype))
