"""Trigonometric and hyperbolic functions of matrices."""

import jax
from jax.typing import ArrayLike

from linalg._core.operands import as_arrays, check_square
from linalg._core.public import public
from linalg._factorizations.solve import solve
from linalg._functions.powers import cosine_and_sine

__all__ = ["coshm", "cosm", "sinhm", "sinm", "tanhm", "tanm"]


def _pair(name, a, hyperbolic):
  """cosine, sine, and the dtype to return."""
  (a,), dtype = as_arrays(name, a)
  check_square(name, a)
  return *cosine_and_sine(a, hyperbolic=hyperbolic), dtype


@public(lists=True)
def cosm(A: ArrayLike) -> jax.Array:
  """The cosine; `scipy.linalg.cosm`, batched.

  Args:
    A: square matrices (..., n, n).

  Returns:
    The cosines (..., n, n), real for a real A. They are NaN where A holds NaN or Inf, or where
    `expm` would need more than 17 squarings.

  float16 and bfloat16 are computed in float32, and the results rounded. Elements that are far
  larger than others cost digits, as in `expm`.

  Algorithm: the even and odd parts of `expm`'s Padé approximant, without complex numbers for a real
  A, and doubling of the angle. A small A keeps its digits. Derivatives go through the algorithm.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.cosm(jnp.zeros((2, 2))))
    [[1. 0.]
     [0. 1.]]
  """
  cos, _, dtype = _pair("cosm", A, hyperbolic=False)
  return cos.astype(dtype)


@public(lists=True)
def sinm(A: ArrayLike) -> jax.Array:
  """The sine; `scipy.linalg.sinm`, batched.

  Args:
    A: square matrices (..., n, n).

  Returns:
    The sines (..., n, n), real for a real A; NaN where `cosm` is. Elements that are far larger than
    others cost digits.

  Algorithm and derivatives: as for `cosm`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.sinm(jnp.array([[0.0, 1.0], [0.0, 0.0]])))
    [[0. 1.]
     [0. 0.]]
  """
  _, sin, dtype = _pair("sinm", A, hyperbolic=False)
  return sin.astype(dtype)


@public(lists=True)
def tanm(A: ArrayLike) -> jax.Array:
  """The tangent; `scipy.linalg.tanm`, batched.

  Args:
    A: square matrices (..., n, n).

  Returns:
    The tangents (..., n, n), real for a real A. They are NaN where `cosm` is, or is singular.
    Elements that are far larger than others cost digits.

  Algorithm: cos(A)⁻¹ sin(A), by `cosm` and `sinm`. Derivatives go through the algorithm.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.tanm(jnp.array([[0.0, 1.0], [0.0, 0.0]])))
    [[0. 1.]
     [0. 0.]]
  """
  cos, sin, dtype = _pair("tanm", A, hyperbolic=False)
  return solve(cos, sin).astype(dtype)


@public(lists=True)
def coshm(A: ArrayLike) -> jax.Array:
  """The hyperbolic cosine; `scipy.linalg.coshm`, batched.

  Args:
    A: square matrices (..., n, n).

  Returns:
    The cosines (..., n, n); NaN where A holds NaN or Inf, or where `expm` would need more than 17
    squarings. Elements that are far larger than others cost digits.

  Algorithm and derivatives: as for `cosm`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.coshm(jnp.zeros((2, 2))))
    [[1. 0.]
     [0. 1.]]
  """
  cosh, _, dtype = _pair("coshm", A, hyperbolic=True)
  return cosh.astype(dtype)


@public(lists=True)
def sinhm(A: ArrayLike) -> jax.Array:
  """The hyperbolic sine; `scipy.linalg.sinhm`, batched.

  Args:
    A: square matrices (..., n, n).

  Returns:
    The sines (..., n, n); NaN where `coshm` is. Elements that are far larger than others cost
    digits.

  Algorithm and derivatives: as for `cosm`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.sinhm(jnp.array([[0.0, 1.0], [0.0, 0.0]])))
    [[0. 1.]
     [0. 0.]]
  """
  _, sinh, dtype = _pair("sinhm", A, hyperbolic=True)
  return sinh.astype(dtype)


@public(lists=True)
def tanhm(A: ArrayLike) -> jax.Array:
  """The hyperbolic tangent; `scipy.linalg.tanhm`, batched.

  Args:
    A: square matrices (..., n, n).

  Returns:
    The tangents (..., n, n); NaN where `coshm` is, or is singular. Elements that are far larger
    than others cost digits.

  Algorithm: cosh(A)⁻¹ sinh(A), by `coshm` and `sinhm`. Derivatives go through the algorithm.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.tanhm(jnp.array([[0.0, 1.0], [0.0, 0.0]])))
    [[0. 1.]
     [0. 0.]]
  """
  cosh, sinh, dtype = _pair("tanhm", A, hyperbolic=True)
  return solve(cosh, sinh).astype(dtype)
