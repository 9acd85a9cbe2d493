"""Circulant systems, by discrete Fourier transforms."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import expand, nan_where, reciprocal
from linalg._core.checks import check
from linalg._core.operands import as_arrays, as_complex, as_integer, check_batches, incompatible
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg.scipy._toeplitz import convolve, padded

__all__ = ["solve_circulant"]

# Up to this length, a transform is a product with its matrix.
_DIRECT = 64


def _fourier(x):
  """The discrete Fourier transform along the last dimension, without XLA's.

  A long one is a convolution with exp(iπ j² / n) of a length that has factors: Bluestein, IEEE
  Trans. Audio Electroacoust. 18 (1970). Angles are reduced as integers, before they are rounded.
  """
  n = x.shape[-1]
  place = np.arange(n)
  if n <= _DIRECT:
    matrix = np.exp(-2j * np.pi / max(n, 1) * (np.outer(place, place) % max(n, 1)))
    return product(x[..., None, :], expand(jnp.asarray(matrix, x.dtype), x[..., None]))[..., 0, :]
  rows = math.isqrt(2 * n - 2) + 1
  cols = -(-(2 * n - 1) // rows)
  chirp = np.exp(-1j * np.pi / n * (place**2 % (2 * n)))
  kernel = np.zeros(rows * cols, complex)
  kernel[:n] = chirp.conj()
  kernel[-(n - 1) :] = chirp.conj()[:0:-1]
  chirp, kernel = (expand(jnp.asarray(y, x.dtype), x) for y in (chirp, kernel))
  return convolve(kernel, padded(x * chirp, 0, rows * cols - n), rows, cols)[..., :n] * chirp


def _inverse_fourier(x):
  return _fourier(x.conj()).conj() / max(x.shape[-1], 1)


def _operands(c: Any, b: Any, caxis: int, baxis: int) -> tuple[jax.Array, jax.Array, Any]:
  """Both with their vectors along the last dimension, and the dtype of the result."""
  (c, b), dtype = as_arrays("solve_circulant", c, b)
  c, b = jnp.atleast_1d(c), jnp.atleast_1d(b)
  for name, x, axis in (("c", c, caxis), ("b", b, baxis)):
    as_integer("solve_circulant", f"'{name}axis'", axis, -x.ndim, x.ndim - 1)
  if c.shape[caxis] != b.shape[baxis]:
    raise incompatible("solve_circulant", c, b, names=("c", "b"))
  c, b = jnp.moveaxis(c, caxis, -1), jnp.moveaxis(b, baxis, -1)
  check_batches("solve_circulant", c, b, ranks=(1, 1), names=("c", "b"))
  c, b = ffi.broadcast_batches("solve_circulant", (c, b), (1, 1))
  return c, b, dtype


@public("singular", "caxis", "baxis", "outaxis", lists=True)
def solve_circulant(
    c: ArrayLike,
    b: ArrayLike,
    singular: str = "raise",
    tol: ArrayLike | None = None,
    caxis: int = -1,
    baxis: int = 0,
    outaxis: int = 0,
) -> jax.Array:
  """Solves C x = b with circulant matrices C; `scipy.linalg.solve_circulant`.

  Args:
    c: first columns of C, along the dimension `caxis`.
    b: right-hand sides, along the dimension `baxis`. The other dimensions of both broadcast.
    singular: 'raise' for NaN where C is nearly singular; see `checked`. 'lstsq' for the shortest x
      among the minimizers of ‖b - C x‖ there.
    tol: eigenvalues of C of at most this magnitude count as 0. The default is n eps times the
      largest.
    caxis, baxis, outaxis: the dimensions of c, of b and of the result that hold the vectors.

  Returns:
    x: the other dimensions of c and b, broadcast, with the solutions along `outaxis`.

  float16 and bfloat16 are solved in float32, and x rounded.

  Algorithm: a quotient of discrete Fourier transforms. Each is a product with its matrix up to n =
  64, and else a convolution in O(n^1.5) operations. The error is relative to the largest eigenvalue
  of C. Derivatives are those of the solution, to any order; with 'lstsq' at constant rank.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> c, b = jnp.array([2.0, 2.0, 4.0]), jnp.array([1.0, 2.0, 3.0])
    >>> print(linalg.scipy.solve_circulant(c, b).round(4))
    [ 0.75 -0.25  0.25]
  """
  if singular not in ("raise", "lstsq"):
    raise ValueError(f"solve_circulant: singular must be 'raise' or 'lstsq', got {singular!r}.")
  c, b, dtype = _operands(c, b, caxis, baxis)
  values = _fourier(as_complex(c))
  size = jnp.abs(values)
  if tol is None:
    largest = jnp.max(size, axis=-1, keepdims=True, initial=0)
    bound = c.shape[-1] * jnp.finfo(size.dtype).eps * largest
  else:
    bound = expand(jnp.asarray(tol, size.dtype)[..., None], size)
  small = size <= bound
  x = _inverse_fourier(_fourier(as_complex(b)) * reciprocal(values, ~small))
  x = x if jnp.issubdtype(dtype, jnp.complexfloating) else x.real
  if singular == "raise":
    failed = small.any(-1)
    check(failed.astype(jnp.int32), "is singular to rounding.")
    x = nan_where(failed, x, core=1)
  outaxis = as_integer("solve_circulant", "'outaxis'", outaxis, -x.ndim, x.ndim - 1)
  return jnp.moveaxis(x, -1, outaxis).astype(dtype)
