"""Hessenberg form of general matrices."""

from typing import Literal, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import adjoint, column_of, expand, imaginary, with_column, zeros_like
from linalg._core.operands import as_arrays, check_square
from linalg._core.public import public
from linalg._factorizations.matmul import congruence, product

__all__ = ["hessenberg"]


def _rotation(h, f):
  """The skew-Hermitian X, its first column zero, with F + H X - X H in Hessenberg form.

  Column j of that form gives column j + 1 of X from those before it. Below the diagonal, xᵢ,ⱼ₊₁ =
  (F + H X - X H)ᵢⱼ / hⱼ₊₁,ⱼ. On the diagonal, x keeps hⱼ₊₁,ⱼ real. Where hⱼ₊₁,ⱼ is zero, the
  reduction is discontinuous, and the column is taken to be zero.
  """
  n = h.shape[-1]
  row = expand(jnp.arange(n)[:, None], h)

  def step(x, j):
    column = column_of(h, j)
    pivot = jnp.sum(jnp.where(row == j + 1, column, 0), axis=-2, keepdims=True)
    known = jnp.where(row <= j, column, 0)
    rest = column_of(f, j) + product(h, column_of(x, j)) - product(x, known)
    rest = jnp.where(pivot == 0, 0, rest / jnp.where(pivot == 0, 1, pivot))
    at_pivot = row == j + 1
    if jnp.iscomplexobj(h):
      rest = jnp.where(at_pivot, imaginary(rest.imag), rest)
    else:
      rest = jnp.where(at_pivot, 0, rest)
    # X is skew-Hermitian, so the earlier columns, negated and conjugated, are above the diagonal.
    above = -adjoint(jnp.sum(jnp.where(at_pivot, x, 0), axis=-2, keepdims=True))
    return with_column(x, j + 1, jnp.where(row <= j, above, rest)), None

  return jax.lax.scan(step, zeros_like(f), jnp.arange(n - 1))[0]


def _hessenberg_jvp(primals, tangents):
  # Let F = Qᴴ dA Q. Then dQ = Q X and dH = F + H X - X H. Q's first column is fixed and H's
  # subdiagonal is real, which determines X by the implicit Q theorem.
  (a,), (da,) = primals, tangents
  h, q = hessenberg_p(a)
  if h.shape[-1] == 0:
    return (h, q), (da, da)
  f = congruence(q, da, adjoint_a=True)
  x = _rotation(h, f)
  return (h, q), (jnp.triu(f + product(h, x) - product(x, h), -1), product(q, x))


def _hessenberg_fallback(a):
  return list(jax.scipy.linalg.hessenberg(a, calc_q=True))


hessenberg_p = ffi.operation(
    "linalg_hessenberg",
    "n n -> n n, n n",
    [0, 0],
    jvp=_hessenberg_jvp,
    fallback=_hessenberg_fallback)


def _hessenberg_h_jvp(primals, tangents):
  (h, _), (dh, _) = _hessenberg_jvp(primals, tangents)
  return h, dh


hessenberg_h_p = ffi.operation(
    "linalg_hessenberg_h",
    "n n -> n n",
    [0],
    jvp=_hessenberg_h_jvp,
    fallback=lambda a: [jax.scipy.linalg.hessenberg(a, calc_q=False)])


@overload
def hessenberg(
    a: ArrayLike,
    *,
    calc_q: Literal[False] = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> jax.Array: ...


@overload
def hessenberg(
    a: ArrayLike, *, calc_q: Literal[True], overwrite_a: bool = False, check_finite: bool = True
) -> tuple[jax.Array, jax.Array]: ...


@overload
def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> jax.Array | tuple[jax.Array, jax.Array]: ...


@public("calc_q", "overwrite_a", "check_finite", lists=True)
def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> jax.Array | tuple[jax.Array, jax.Array]:
  """Hessenberg form of general matrices, A = Q H Qᴴ; `jax.scipy.linalg.hessenberg`.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.
    calc_q: whether to return Q.
    overwrite_a, check_finite: not used.

  Returns:
    H, zero below the first subdiagonal, which is real. If `calc_q`, the result is the tuple (H, Q):
    Q is unitary, and its first column is the first unit vector.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: Householder reflectors. Small matrices are reduced one per lane, and others by LAPACK
  gehrd and orghr. The derivative needs a subdiagonal without zeros.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> h, q = linalg.hessenberg(jnp.arange(16.0).reshape(4, 4), calc_q=True)
    >>> print(jnp.tril(h, -2))
    [[0. 0. 0. 0.]
     [0. 0. 0. 0.]
     [0. 0. 0. 0.]
     [0. 0. 0. 0.]]
    >>> print(jnp.allclose(q @ h @ q.mT, jnp.arange(16.0).reshape(4, 4), atol=1e-4))
    True
  """
  del overwrite_a, check_finite
  (a,), dtype = as_arrays("hessenberg", a)
  check_square("hessenberg", a)
  if not calc_q:
    return hessenberg_h_p(a).astype(dtype)
  h, q = hessenberg_p(a)
  return h.astype(dtype), q.astype(dtype)
