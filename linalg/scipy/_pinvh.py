"""Pseudo-inverses of Hermitian matrices."""

from typing import Literal, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.algebra import adjoint, hermitian_part, reciprocal
from linalg._core.operands import as_arrays, check_square
from linalg._core.public import public
from linalg._factorizations.eigh import eigh
from linalg._functions.pinv import default_rtol, per_matrix, threshold
from linalg._functions.pseudo_inverse import pseudo_inverse_p

__all__ = ["pinvh"]


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
  size = jnp.abs(w)
  if rtol is None:
    rtol = default_rtol(a, dtype)
  cutoff = threshold(w, rtol)
  if atol is not None:
    cutoff = per_matrix(atol, w) + cutoff
  # NaN is kept, to show in the result.
  inverse = pseudo_inverse_p(a, v, reciprocal(w, ~(size <= cutoff)), adjoint(v)).astype(dtype)
  return (inverse, jnp.sum(size > cutoff, axis=-1)) if return_rank else inverse
