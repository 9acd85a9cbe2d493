"""Pseudo-inverses of general and of Hermitian matrices."""

from typing import Literal, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.algebra import adjoint, hermitian_part, reciprocal, zeros_like
from linalg._core.operands import as_arrays, check_matrix, check_square
from linalg._core.public import public
from linalg._factorizations.eigh import eigh
from linalg._factorizations.svd import svd
from linalg._functions.pinv import default_rtol, per_matrix, threshold
from linalg._functions.pseudo_inverse import pseudo_inverse_p

__all__ = ["pinv", "pinvh"]


def _inverse(a, u, s, vh, atol, rtol, dtype):
  """The pseudo-inverses of A = U diag(S) Vᴴ, and their ranks."""
  size = jnp.abs(s)
  cutoff = threshold(s, default_rtol(a, dtype) if rtol is None else rtol)
  if atol is not None:
    cutoff = per_matrix(atol, s) + cutoff
  # NaN is kept, to show in the result.
  inverse = pseudo_inverse_p(a, u, reciprocal(s, ~(size <= cutoff)), vh)
  return inverse.astype(dtype), jnp.sum(size > cutoff, axis=-1)


@overload
def pinv(
    a: ArrayLike,
    *,
    atol: ArrayLike | None = None,
    rtol: ArrayLike | None = None,
    return_rank: Literal[False] = False,
    check_finite: bool = True,
) -> jax.Array: ...


@overload
def pinv(
    a: ArrayLike,
    *,
    atol: ArrayLike | None = None,
    rtol: ArrayLike | None = None,
    return_rank: Literal[True],
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array]: ...


@overload
def pinv(
    a: ArrayLike,
    *,
    atol: ArrayLike | None = None,
    rtol: ArrayLike | None = None,
    return_rank: bool = False,
    check_finite: bool = True,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...


@public("return_rank", "check_finite", lists=True)
def pinv(
    a: ArrayLike,
    *,
    atol: ArrayLike | None = None,
    rtol: ArrayLike | None = None,
    return_rank: bool = False,
    check_finite: bool = True,
) -> jax.Array | tuple[jax.Array, jax.Array]:
  """The Moore-Penrose pseudo-inverse; `scipy.linalg.pinv`. See `linalg.pinv`.

  Args:
    a: matrices (..., m, n).
    atol, rtol: singular values up to `atol` + `rtol` times the largest count as 0. Each is a
      number, or one for each matrix. The defaults are 0 and max(m, n) eps.
    return_rank: whether to return the number of the other singular values too.
    check_finite: not used.

  Returns:
    The pseudo-inverses (..., n, m), or (pseudo-inverses, ranks), with integers (...). Where A holds
    NaN or Inf, the pseudo-inverse is NaN and the rank is 0.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> inverse, rank = linalg.scipy.pinv(jnp.array([[2.0, 0.0], [0.0, 0.0]]), return_rank=True)
    >>> print(inverse, rank)
    [[0.5 0. ]
     [0.  0. ]] 1
  """
  del check_finite
  (a,), dtype = as_arrays("pinv", a)
  check_matrix("pinv", a)
  if 0 in a.shape[-2:]:
    inverse = zeros_like(a.mT).astype(dtype)
    rank = jnp.sum(a != 0, axis=(-2, -1))
  else:
    u, s, vh = svd(jax.lax.stop_gradient(a), full_matrices=False)
    inverse, rank = _inverse(a, u, s, vh, atol, rtol, dtype)
  return (inverse, rank) if return_rank else inverse


@overload
def pinvh(
    a: ArrayLike,
    atol: ArrayLike | None = None,
    rtol: ArrayLike | None = None,
    lower: bool = True,
    return_rank: Literal[False] = False,
    check_finite: bool = True,
) -> jax.Array: ...


@overload
def pinvh(
    a: ArrayLike,
    atol: ArrayLike | None = None,
    rtol: ArrayLike | None = None,
    lower: bool = True,
    *,
    return_rank: Literal[True],
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array]: ...


@overload
def pinvh(
    a: ArrayLike,
    atol: ArrayLike | None = None,
    rtol: ArrayLike | None = None,
    lower: bool = True,
    return_rank: bool = False,
    check_finite: bool = True,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...


@public("lower", "return_rank", "check_finite", lists=True)
def pinvh(
    a: ArrayLike,
    atol: ArrayLike | None = None,
    rtol: ArrayLike | None = None,
    lower: bool = True,
    return_rank: bool = False,
    check_finite: bool = True,
) -> jax.Array | tuple[jax.Array, jax.Array]:
  """The pseudo-inverse of Hermitian matrices; `scipy.linalg.pinvh`, batched.

  Args:
    a: Hermitian matrices (..., n, n). Only one triangle is read.
    atol, rtol: eigenvalues of magnitude up to `atol` + `rtol` times the largest count as 0. Each is
      a number, or one for each matrix. The defaults are 0 and n eps.
    lower: whether the lower triangle is read.
    return_rank: whether to return the number of the other eigenvalues too.
    check_finite: not used.

  Returns:
    The pseudo-inverses (..., n, n), or (pseudo-inverses, ranks), with integers (...). Where A holds
    NaN or Inf, the pseudo-inverse is NaN and the rank is 0.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: `eigh`. Derivative: Golub and Pereyra, SIAM J. Numer. Anal. 10 (1973). It is right to
  any order wherever the rank does not change, at equal eigenvalues too.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.pinvh(jnp.diag(jnp.array([2.0, 0.0])))
    Array([[0.5, 0. ],
           [0. , 0. ]], dtype=float32)
  """
  del check_finite
  (a,), dtype = as_arrays("pinvh", a)
  check_square("pinvh", a)
  a = hermitian_part(a, lower=lower, symmetrize=False)
  w, v = eigh(jax.lax.stop_gradient(a))
  inverse, rank = _inverse(a, v, w, adjoint(v), atol, rtol, dtype)
  return (inverse, rank) if return_rank else inverse
