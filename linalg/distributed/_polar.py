"""Polar factors of matrices that several devices share."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

import linalg
from linalg._core.algebra import adjoint, reciprocal, smallest_gap, symmetrized, zeros_like
from linalg._core.operands import as_arrays, check_matrix
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._functions.pseudo_inverse import pseudo_inverse_p
from linalg._functions.sylvester import lyapunov_p
from linalg.distributed._gram import scaled_gram
from linalg.distributed._layout import Places
from linalg.distributed._polar_cyclic import polar_p
from linalg.distributed._qr import rows_or_blocks
from linalg.distributed._shared import Shared, from_blocks, to_blocks
from linalg.distributed._tall import Rows, factors, tall_or_wide


def _with_values(vh, s):
  """V diag(s) Vᴴ."""
  return symmetrized(product(adjoint(vh) * s[..., None, :].astype(vh.dtype), vh))


def _by_triangle(rows, a):
  q, r = rows.map(lambda a: factors(a, rows.axes), "r", "rs", a)
  u, s, vh = linalg.svd(r, full_matrices=False)
  return rows.outer(q, product(u, vh)), s, vh


def _by_gram(rows, a):
  """A V diag(1 / s) Vᴴ, where the squares of s are the eigenvalues of Aᴴ A."""
  g, scale = scaled_gram(rows, a)
  w, v = linalg.eigh(g)
  s = jnp.sqrt(jnp.maximum(w, smallest_gap(w[..., -1:], w.shape[-1])))
  inverse = _with_values(adjoint(v), reciprocal(s, s != 0))
  w = rows.map(
      lambda a, scale, small: product(a / scale.astype(a.dtype), small), "rss", "r", a, scale,
      inverse)
  return w, s * scale[..., 0], adjoint(v)


_METHODS = {"qr": _by_triangle, "gram": _by_gram}


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _polar(rows: Rows, method, a):
  """W and P of A = W P, and the eigenvalues and eigenvectors of P.

  The latter are constants to derivatives. They are passed to operations that have P itself.
  """
  w, s, vh = _METHODS[method](rows, a)
  return w, _with_values(vh, s), s, vh


@_polar.defjvp
def _polar_jvp(rows, method, primals, tangents):
  # The rule of linalg.polar: let K = Wᴴ dA. Then dW = W Ω + (dA - W K) P⁻¹, where P Ω + Ω P = K -
  # Kᴴ. Multiplying dA = dW P + W dP by Wᴴ gives dP = K - Ω P.
  (a,), (da,) = primals, tangents
  w, p, s, vh = _polar(rows, method, a)
  v = adjoint(vh)
  k = rows.inner(w, da)
  turn = lyapunov_p(p, s, v, k - adjoint(k), skew=True)
  dp = symmetrized(k - product(turn, p))
  if rows.height > a.shape[-1]:
    inverse = pseudo_inverse_p(p, v, reciprocal(s, s != 0), vh)
    dw = rows.outer(w, turn - product(k, inverse)) + rows.outer(da, inverse)
  else:
    dw = rows.outer(w, turn)
  return (w, p, s, vh), (dw, dp, zeros_like(s), zeros_like(vh))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _compiled_polar(rows, is_wide, method, a):
  w, p, _, _ = _polar(rows, method, rows.even(adjoint(a) if is_wide else a))
  w = w[..., : rows.height, : rows.width]
  return adjoint(w) if is_wide else w, p[..., : rows.width, : rows.width]


@functools.partial(jax.jit, static_argnums=0)
def _square(shared, a):
  return tuple(from_blocks(shared, x) for x in polar_p(to_blocks(shared, a), shared=shared))


@public("method", "axes", compiled=False)
def polar(
    a: ArrayLike, *, method: str = "qr", axes: Places = None
) -> tuple[jax.Array, jax.Array]:
  """The polar decomposition of matrices that several devices share, A = U P; `linalg.polar`.

  For wide matrices whose columns are sharded, A = P U.

  Args:
    a: matrices (..., m, n): square ones as for `qr`, or tall ones whose rows are sharded. The
      columns of a wide one are sharded as the rows of its transpose.
    method: "qr" or "gram". "gram" takes fewer operations and moves less, but is as accurate only
      for well-conditioned matrices.
    axes: as for `qr`, and for the longer dimension of a matrix that is not square.

  Returns:
    (U, P): U (..., m, n), sharded as A is, has orthonormal columns, or rows if m < n. P (..., k, k)
    with k = min(m, n) is Hermitian and positive semidefinite. It is on all devices; that of a
    square matrix is sharded as A is. A matrix that holds NaN or Inf has NaN in both.

  Algorithm: "qr" takes Q R by TSQR and the singular values of R. U is orthonormal to rounding at
  any condition and any rank.

  "qr" of a square matrix is the QDWH iteration: three steps with QR factors and three with Cholesky
  factors, in the layout of `qr`, and no device holds the matrix. Nakatsukasa and Higham, Stable and
  efficient spectral divide and conquer algorithms for the symmetric eigenvalue decomposition and
  the SVD, SIAM J. Sci. Comput. 35 (2013). It begins with A and random numbers below eps ‖A‖, the
  same for every call, so that U is unitary at any rank. P has errors of eps ‖A‖: its least
  eigenvalues may be as negative.

  "gram" takes the eigenvalues of Aᴴ A, or of A Aᴴ, with A scaled. The rounding error of U grows as
  the square of the ratio of singular values. Singular values below √(8 √k eps) of the largest, 0.3%
  of it for k = 128 in float32, are shrunk instead of orthonormalized. For A = 0, U is 0. Optimizers
  that orthogonalize gradients need no more. A device receives k² numbers, and with "qr" as many as
  for `qr`.

  Derivatives, to any order, are those of `linalg.polar`. They need full rank, and with "gram" no
  singular value that small. They move k² numbers for each sum.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.random.normal(jax.random.key(0), (64, 2), out_sharding=jax.P("x"))
    ...   u, p = dist.polar(a)
    ...   print(u.shape, p.shape)
    (64, 2) (2, 2)
  """
  if method not in _METHODS:
    raise ValueError(f"polar: method={method!r} must be 'qr' or 'gram'.")
  (a,), dtype = as_arrays("polar", a)
  check_matrix("polar", a)
  if method == "qr" and a.shape[-1] == a.shape[-2]:
    found = rows_or_blocks("polar", a, axes)
    if a.shape[-1] == 0:
      return a.astype(dtype), a.astype(dtype)
    if isinstance(found, Shared):
      u, p = _square(found, a)
      return u.astype(dtype), p.astype(dtype)
  rows, is_wide = tall_or_wide("polar", a, axes)
  u, p = _compiled_polar(rows, is_wide, method, a)
  return u.astype(dtype), p.astype(dtype)
