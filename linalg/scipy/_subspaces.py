"""Orthonormal bases of the range and of the null space of matrices."""

import functools
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from linalg._core.algebra import adjoint, expand, nan_where, reciprocal, zeros_like
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, check_arrays, check_matrix
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.svd import svd, svdvals
from linalg._functions.pinv import default_rtol, threshold
from linalg._functions.pseudo_inverse import pseudo_inverse_p
from linalg.scipy._drivers import check_driver

__all__ = ["null_space", "orth"]

# Derivatives assume that a basis does not rotate within its space. Functions of the space then have
# right derivatives, to any order, and equal singular values make no difference.


def _range_jvp(primals, tangents):
  # dQ = (I - Q Qᴴ) dA A⁺ Q
  a, _, *factors = primals
  q = _range_p(*primals)
  moved = product(tangents[0], product(pseudo_inverse_p(a, *factors), q))
  return q, moved - product(q, product(q, moved, adjoint_a=True))


def _null_jvp(primals, tangents):
  # dZ = -A⁺ dA Z
  a, _, *factors = primals
  z = _null_p(*primals)
  return z, -product(pseudo_inverse_p(a, *factors), product(tangents[0], z))


# A basis of the range of A. The operands are A, the basis, and the factors of A⁺.
_range_p = given_factors(
    "orth", "m n, m r, m k, k, k n -> m r", [0], lambda q, *factors: q, jvp=_range_jvp)

# A basis of the null space of A. The operands are A, the basis, and the factors of A⁺.
_null_p = given_factors(
    "null_space", "m n, n r, m k, k, k n -> n r", [0], lambda z, *factors: z, jvp=_null_jvp)


def _ranks(s, rcond, a, dtype):
  """The number of singular values of A that are not 0, and a mask of them."""
  nonzero = s > threshold(s, default_rtol(a, dtype) if rcond is None else rcond)
  return jnp.sum(nonzero, axis=-1), nonzero


def _columns_from(v, first, size):
  """The columns first, first + 1, … of V, `size` of them, and zeros beyond its last.

  They are computed by a product, because a gather's result has no sharding.
  """
  place = expand(jnp.arange(v.shape[-1])[:, None], v)
  chosen = place == first[..., None, None] + expand(jnp.arange(size)[None, :], v)
  return product(v, chosen.astype(v.dtype))


def _with_entries(a):
  """Replaces a matrix without entries by zeros, with the same range and null space."""
  missing = [(0, int(k == 0)) for k in a.shape[-2:]]
  return jnp.pad(a, ((0, 0),) * (a.ndim - 2) + tuple(missing))


@functools.partial(jax.jit, static_argnames="size")
def _range(a, rcond, size):
  (a,), dtype = as_arrays("orth", a)
  rows = a.shape[-2]
  a = _with_entries(a)
  u, s, vh = svd(jax.lax.stop_gradient(a), full_matrices=False)
  ranks, nonzero = _ranks(s, rcond, a, dtype)
  basis = _columns_from(jnp.where(nonzero[..., None, :], u, 0), zeros_like(ranks), size)
  q = _range_p(a, basis, u, reciprocal(s, nonzero), vh)
  return nan_where(jnp.isnan(s).any(-1), q, core=2)[..., :rows, :].astype(dtype)


@functools.partial(jax.jit, static_argnames="size")
def _null_space(a, rcond, size):
  (a,), dtype = as_arrays("null_space", a)
  cols = a.shape[-1]
  a = _with_entries(a)
  rows = a.shape[-2]
  u, s, vh = svd(jax.lax.stop_gradient(a), full_matrices=rows < a.shape[-1])
  ranks, nonzero = _ranks(s, rcond, a, dtype)
  k = s.shape[-1]
  z = _null_p(
      a, _columns_from(adjoint(vh), ranks, size), u, reciprocal(s, nonzero), vh[..., :k, :])
  return nan_where(jnp.isnan(s).any(-1), z, core=2)[..., :cols, :].astype(dtype)


def _rank(name: str, a: Any, rcond: Any) -> int:
  """The rank that all matrices have in common."""
  (a,), dtype = as_arrays(name, a)
  if isinstance(a, jax.core.Tracer) or isinstance(rcond, jax.core.Tracer):
    raise TypeError(
        f"{name}: the dimension of the space depends on the values of the matrix, which are not "
        "known while a function is traced, as by jit, vmap or grad. Pass it as `size`: where the "
        "space has fewer dimensions, columns of zeros follow.")
  a = _with_entries(a)
  s = svdvals(a)
  ranks = np.asarray(_ranks(s, rcond, a, dtype)[0])
  found = np.unique(ranks[~np.isnan(np.asarray(s)).any(-1)])
  if len(found) > 1:
    raise ValueError(
        f"{name}: the matrices of the batch have different ranks, {found.tolist()}. Pass `size`, "
        "the number of columns to return: where the space has fewer dimensions, zeros follow.")
  return int(found[0]) if len(found) else min(a.shape[-2:])


@public("size", compiled=False, lists=True)
def orth(A: ArrayLike, rcond: ArrayLike | None = None, *, size: int | None = None) -> jax.Array:
  """An orthonormal basis of the range; `scipy.linalg.orth`, batched.

  Args:
    A: matrices (..., m, n).
    rcond: singular values up to `rcond` times the largest count as 0; a number, or one for each
      matrix. The default is max(m, n) eps.
    size: the number of columns to return. A larger basis is cut to its first columns; a smaller one
      is filled with zeros. The default is the rank, which all matrices must have in common. The
      rank depends on values, so `size` must be given where they are traced: in `jit`, `vmap` and
      derivatives.

  Returns:
    Bases (..., m, size), of the left singular vectors in the order of the singular values. They are
    NaN where A holds NaN or Inf.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: `svd`. Derivative: dQ = (I - Q Qᴴ) dA A⁺ Q, for a basis that does not rotate within its
  space. It is right, to any order, for functions of the space, such as Q Qᴴ. The rank must be
  constant, and `size` not less. Equal singular values make no difference.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.orth(jnp.ones((2, 3))).shape
    (2, 1)
  """
  check_arrays("orth", A)
  check_matrix("orth", a := jnp.asarray(A))
  return _range(a, rcond, _rank("orth", a, rcond) if size is None else size)


@public("size", "check_finite", "lapack_driver", compiled=False, lists=True)
def null_space(
    A: ArrayLike,
    rcond: ArrayLike | None = None,
    *,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
    size: int | None = None,
) -> jax.Array:
  """An orthonormal basis of the null space, A Z = 0; `scipy.linalg.null_space`, batched.

  Args:
    A: matrices (..., m, n).
    rcond, size: as for `orth`; the default of `size` is n less the rank.
    lapack_driver: SciPy's name of a LAPACK routine. It is checked, and changes nothing.
    overwrite_a, check_finite: not used.

  Returns:
    Bases (..., n, size), of the right singular vectors; NaN where A holds NaN or Inf.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: `svd`. Derivative: dZ = -A⁺ dA Z, right under the same conditions as that of `orth`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.null_space(jnp.ones((2, 3))).shape
    (3, 2)
  """
  del overwrite_a, check_finite
  check_driver("null_space", lapack_driver, ("gesdd", "gesvd"))
  check_arrays("null_space", A)
  check_matrix("null_space", a := jnp.asarray(A))
  if size is None:
    size = a.shape[-1] - _rank("null_space", a, rcond)
  return _null_space(a, rcond, size)
