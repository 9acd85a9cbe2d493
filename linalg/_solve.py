"""Linear systems, inverses and determinants, from LU factors."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._array import as_arrays, check_square, matmul, nan_where
from linalg._checks import check
from linalg._lu import lu_p, lu_solve_p, permute_rows
from linalg._triangular import triangular_solve_p

__all__ = [
    "SlogdetResult", "det", "inv", "inv_ex", "slogdet", "solve", "solve_ex",
]

_SINGULAR = "is singular: pivot {info} of its LU factors is zero."


@jax.custom_jvp
def _solve_factored(a, packed, pivots, b):
  """A⁻¹ b, given A's LU factors: a function of A and b alone, whatever made the factors."""
  del a
  return lu_solve_p(packed, pivots, b)


@_solve_factored.defjvp
def _solve_factored_jvp(primals, tangents):
  # A dx = db - dA x: with the factors at hand a derivative costs no factorisation.
  a, packed, pivots, b = primals
  da, _, _, db = tangents
  x = _solve_factored(a, packed, pivots, b)
  return x, _solve_factored(a, packed, pivots, db - matmul(da, x))


def _solve(name, a, b):
  (a, b), dtype = as_arrays(name, a, b)
  check_square(name, a)
  if b.ndim > 1 and a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1] != b.shape[-2]:
    raise ValueError(
        f"Invalid shapes for {name}: {a.shape}, {b.shape}. A batch of vectors is not told from a "
        "matrix by its shape: use solve(a, b[..., None]).squeeze(-1).")
  columns = b[..., None] if b.ndim == 1 else b
  if columns.ndim < 2 or columns.shape[-2] != a.shape[-1]:
    raise ValueError(f"Incompatible shapes for arguments to {name}(): {a.shape} and {b.shape}")
  packed, pivots, _, info = lu_p(jax.lax.stop_gradient(a))
  # Substitution would leave those entries of x finite that do not meet a NaN among the factors.
  failed = (info > 0) | jnp.isnan(packed).any((-2, -1))
  x = nan_where(failed, _solve_factored(a, packed, pivots, columns), core=2)
  return (x[..., 0] if b.ndim == 1 else x).astype(dtype), info


@jax.jit
def solve(a: ArrayLike, b: ArrayLike) -> jax.Array:
  """Solves A x = b; `jax.numpy.linalg.solve`.

  Args:
    a: matrices (..., n, n). One without batch dimensions is factored once for the whole batch of
    `b`.
    b: a vector (n,), or matrices of right-hand sides (..., n, k).

  Returns:
    x, of the batch shape of `a` and `b` broadcast. Where A is exactly singular or holds NaN, x is
    NaN; see `solve_ex` and `checked`.

  float16 and bfloat16 are solved in float32, and x rounded.

  Algorithm: LU with partial pivoting (LAPACK getrf) and substitution; derivatives reuse the
  factors.
  """
  x, info = _solve("solve", a, b)
  check("solve", info, _SINGULAR)
  return x


@jax.jit
def solve_ex(a: ArrayLike, b: ArrayLike) -> tuple[jax.Array, jax.Array]:
  """`solve`, with what went wrong for each matrix.

  Args:
    a, b: as for `solve`.

  Returns:
    (x, info): info, int32 of the batch shape of `a`, is 0, or the 1-based index of the first zero
    pivot of a singular matrix.
  """
  return _solve("solve_ex", a, b)


def _inv_jvp(primals, tangents):
  # dX = -X dA X
  (a,), (da,) = primals, tangents
  x, info = inv_p(a)
  return (x, info), (-matmul(matmul(x, da), x), None)


def _inv_fallback(a):
  x = jnp.linalg.inv(a)
  singular = ~jnp.isfinite(x).all((-2, -1))
  return [nan_where(singular, x, core=2), singular.astype(jnp.int32)]


inv_p = ffi.operation(
    "linalg_inv", "n n -> n n, ()", [0, jnp.int32], jvp=_inv_jvp, fallback=_inv_fallback)


def _inv(name, a):
  (a,), dtype = as_arrays(name, a)
  check_square(name, a)
  x, info = inv_p(a)
  return x.astype(dtype), info


@jax.jit
def inv(a: ArrayLike) -> jax.Array:
  """The inverse; `jax.numpy.linalg.inv`. To solve a system, `solve` is faster and more accurate.

  Args:
    a: matrices (..., n, n).

  Returns:
    The inverses (..., n, n). Where A is exactly singular, its inverse is NaN; see `inv_ex` and
    `checked`.

  Algorithm: LAPACK getrf and getri.
  """
  x, info = _inv("inv", a)
  check("inv", info, _SINGULAR)
  return x


@jax.jit
def inv_ex(a: ArrayLike) -> tuple[jax.Array, jax.Array]:
  """`inv`, with what went wrong for each matrix.

  Args:
    a: matrices (..., n, n).

  Returns:
    (inverse, info): info, int32 of shape (...), is 0, or the 1-based index of the first zero pivot
    of a singular matrix, whose inverse is NaN.
  """
  return _inv("inv_ex", a)


class SlogdetResult(NamedTuple):
  """The sign (a phase, if complex) of a determinant, and the logarithm of its magnitude."""

  sign: jax.Array
  logabsdet: jax.Array


slogdet_p = ffi.operation(
    "linalg_slogdet",
    "n n -> (), ()",
    lambda dtype: (dtype, jnp.finfo(dtype).dtype),
    fallback=lambda a: list(jnp.linalg.slogdet(a)))


@jax.custom_jvp
def _slogdet(a):
  if a.shape[-1] == 2:
    # XLA vectorises this over the batch, its logarithm included.
    det = _det_2x2(a)
    return jnp.sign(det), jnp.log(jnp.abs(det))
  return slogdet_p(a)


@_slogdet.defjvp
def _slogdet_jvp(primals, tangents):
  # d log det A = tr(A⁻¹ dA): its real part moves the magnitude, its imaginary part the phase.
  (a,), (da,) = primals, tangents
  sign, logabsdet = _slogdet(a)
  packed, pivots, _, _ = lu_p(jax.lax.stop_gradient(a))
  trace = jnp.trace(_solve_factored(a, packed, pivots, da), axis1=-2, axis2=-1)
  return (sign, logabsdet), (sign * (trace - trace.real), trace.real)


@functools.partial(jax.jit, static_argnames="method")
def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
  """The sign and the logarithm of the determinant; `jax.numpy.linalg.slogdet`.

  Args:
    a: matrices (..., n, n).
    method: 'lu', the default, or 'qr', which is accepted for real matrices and computed by LU too.

  Returns:
    SlogdetResult(sign, logabsdet), each (...): det A = sign * exp(logabsdet). A singular matrix has
    sign 0 and logabsdet -inf.

  Algorithm: LU with partial pivoting, LAPACK getrf; products of entries for n = 2.
  """
  (a,), dtype = as_arrays("slogdet", a)
  check_square("slogdet", a)
  if method not in (None, "lu", "qr"):
    raise ValueError(
        f"Unknown slogdet method '{method}'. Supported methods are 'lu' (`None`), and 'qr'.")
  sign, logabsdet = _slogdet(a)
  return SlogdetResult(sign.astype(dtype), logabsdet.astype(jnp.finfo(dtype).dtype))


def _det_2x2(a):
  return a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]


def _det_3x3(a):
  return (
      a[..., 0, 0] * (a[..., 1, 1] * a[..., 2, 2] - a[..., 1, 2] * a[..., 2, 1])
      - a[..., 0, 1] * (a[..., 1, 0] * a[..., 2, 2] - a[..., 1, 2] * a[..., 2, 0])
      + a[..., 0, 2] * (a[..., 1, 0] * a[..., 2, 1] - a[..., 1, 1] * a[..., 2, 0]))


def _det_jvp(primals, tangents):
  # Jacobi's formula: d det A = tr(adj(A) dA).
  (a,), (da,) = primals, tangents
  return det_p(a), jnp.trace(_adjugate_product(a, da), axis1=-2, axis2=-1)


def _adjugate_product(a, b):
  """adj(A) B, finite for a singular A too.

  With P A = L U, adj(A) B = det(A) U⁻¹ L⁻¹ P B. If U ends in the only zero pivot u, det(A) / u is
  finite: it is the product of the others, and stands where 1 / u would. Of lesser rank, adj(A) = 0.
  """
  n = a.shape[-1]
  packed, pivots, permutation, _ = lu_p(a)
  parity = jnp.sum(pivots != jnp.arange(n, dtype=pivots.dtype), axis=-1) % 2
  minors = jnp.cumprod(jnp.diagonal(packed, axis1=-2, axis2=-1), axis=-1)
  minors = minors * (1 - 2 * parity)[..., None].astype(a.dtype)
  det, rest = minors[..., -1, None, None], minors[..., -2, None, None]
  last = jnp.arange(n) == n - 1
  full = rest != 0
  packed = jnp.where(last[:, None] & last & full, 1 / jnp.where(full, rest, 1), packed)
  packed = jnp.where(full, packed, jnp.eye(n, dtype=a.dtype))
  x = triangular_solve_p(
      packed, permute_rows(b, permutation), left_side=True, lower=True, unit_diagonal=True)
  x = jnp.where(last[:, None], x, x * det)
  x = triangular_solve_p(packed, x, left_side=True, lower=False)
  return jnp.where(full, x, 0)


det_p = ffi.operation(
    "linalg_det", "n n -> ()", [0], jvp=_det_jvp, fallback=lambda a: [jnp.linalg.det(a)])


@jax.jit
def det(a: ArrayLike) -> jax.Array:
  """The determinant; `jax.numpy.linalg.det`.

  Args:
    a: matrices (..., n, n).

  Returns:
    The determinants (...), 0 for a singular matrix and 1 for n = 0. Their derivative is finite at
    singular matrices.

  Algorithm: products of entries for n <= 3; beyond, LU with partial pivoting (LAPACK getrf), the
  product of the pivots taken with its exponent apart, so that it does not overflow on the way.
  """
  (a,), dtype = as_arrays("det", a)
  check_square("det", a)
  n = a.shape[-1]
  closed_form = {1: lambda a: a[..., 0, 0], 2: _det_2x2, 3: _det_3x3}
  return closed_form.get(n, det_p)(a).astype(dtype)
