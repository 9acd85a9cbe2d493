"""RQ factors, by QR of the matrix whose rows are reversed."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

import linalg
from linalg._core.algebra import adjoint
from linalg._core.operands import as_arrays, check_matrix
from linalg._core.public import public

__all__ = ["rq"]


def _reversed(a, *axes):
  """The matrix with its rows (-2) or columns (-1) in the opposite order."""
  return jax.lax.rev(a, tuple(a.ndim + axis for axis in axes))


@public("overwrite_a", "lwork", "mode", "check_finite", lists=True)
def rq(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    check_finite: bool = True,
) -> jax.Array | tuple[jax.Array, jax.Array]:
  """RQ factors, A = R Q; `scipy.linalg.rq`, batched.

  Args:
    a: matrices (..., m, n) of any floating, complex or integer dtype, k = min(m, n).
    mode: 'full' for R (..., m, n) and Q (..., n, n); 'economic' for R (..., m, k) and Q
      (..., k, n); 'r' for the R of 'full' alone.
    overwrite_a, lwork, check_finite: not used.

  Returns:
    (R, Q), or R. Q is unitary. R ends with an upper triangle, whose diagonal is real but may be
    negative. Signs are SciPy's.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: `qr` of (J A J)ᴴ, where J reverses an order. Derivatives are those of `qr`: the
  last min(m, n) rows of A must be independent.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> r, q = linalg.scipy.rq(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> print(jnp.allclose(r @ q, jnp.array([[1.0, 2.0], [3.0, 4.0]]), atol=1e-5), r[1, 0])
    True 0.0
  """
  del overwrite_a, lwork, check_finite
  if mode not in ("full", "economic", "r"):
    raise ValueError(f"rq: mode must be 'full', 'economic' or 'r', got {mode!r}.")
  (a,), dtype = as_arrays("rq", a)
  check_matrix("rq", a)
  flipped = adjoint(_reversed(a, -2, -1))
  if mode == "r":
    r = linalg.qr(flipped, "r")
    below = flipped.shape[-2] - r.shape[-2]
    r = jnp.pad(r, ((0, 0),) * (r.ndim - 2) + ((0, below), (0, 0)))
    return _reversed(adjoint(r), -2, -1).astype(dtype)
  q, r = linalg.qr(flipped, "complete" if mode == "full" else "reduced")
  return (_reversed(adjoint(r), -2, -1).astype(dtype),
          _reversed(adjoint(q), -2, -1).astype(dtype))
