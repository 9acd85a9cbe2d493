"""Schur form with chosen eigenvalues first."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

import linalg
from linalg import ffi
from linalg._core.algebra import (
  diagonal_of,
  identities_like,
  info_of_nan,
  on_diagonal,
  without_none,
  zeros_like,
)
from linalg._core.checks import check_converged
from linalg._core.operands import as_arrays, as_complex, check_square, complex_dtype
from linalg._core.public import public
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.qr import qr_p
from linalg._factorizations.schur import (
  blocks_of,
  in_blocks,
  next_along,
  schur_p,
  schur_tangents,
  triangulating,
)
from linalg._functions.reordering import chosen_first, real_pairs, vectors_of_triangles

__all__ = ["schur"]


def _factors_jvp(primals, tangents):
  t, z = schur_factors_p(*primals)
  (da,) = without_none(primals[:1], tangents[:1])
  return (t, z), schur_tangents(t, z, da)


# The factors as a function of the matrix.
schur_factors_p = ffi.operation(
    "linalg_schur_factors",
    "n n, n n, n n -> n n, n n",
    [0, 0],
    platforms=(),
    jvp=_factors_jvp,
    fallback=lambda a, t, z: [t, z])


def _reorder_fallback(t, z, select):
  """A QR of the eigenvectors in the new order, whose errors grow with their condition."""
  order = chosen_first(select, t.dtype)
  if jnp.iscomplexobj(t):
    v, _ = vectors_of_triangles(t, identities_like(t))
    in_block = False
  else:
    first = blocks_of(t)[2] != 0
    w = triangulating(t, first)
    triangle = jnp.triu(congruence(w, t.astype(w.dtype), adjoint_a=True))
    v = product(w, vectors_of_triangles(triangle, identities_like(triangle))[0])
    v = real_pairs(v, first)
    first = jnp.sum(jnp.where(first[..., :, None], order, 0), axis=-2) != 0
    in_block = on_diagonal(t, -1) & first[..., None, :]
  q, _ = qr_p(product(v, order))
  t = congruence(q, t, adjoint_a=True)
  if not jnp.iscomplexobj(t):
    # A rotation makes the diagonal elements of a block equal.
    a, b, c, d = (jnp.where(first, x, 0) for x in blocks_of(t))
    angle = jnp.arctan2(d - a, b + c) / 2
    u = in_blocks(
        jnp.where(first, jnp.cos(angle), 0), jnp.where(first, jnp.sin(angle), 0), first)
    t, q = congruence(u, t, adjoint_a=True), product(q, u)
  t = jnp.triu(t) + jnp.where(in_block, t, 0)
  z = product(z, q)
  return [t, z, info_of_nan(z, 2)]


schur_reorder_p = ffi.operation(
    "linalg_schur_reorder",
    "n n, n n, n -> n n, n n, ()",
    [0, 0, jnp.int32],
    fallback=_reorder_fallback)


def _parts(t):
  """The real and imaginary parts of the eigenvalues of a Schur form, in its order."""
  if jnp.iscomplexobj(t):
    w = diagonal_of(t)
    return w.real, w.imag
  d, above, below, _ = blocks_of(t)
  imaginary = jnp.sqrt(jnp.where(below != 0, jnp.abs(above), 0)) * jnp.sqrt(jnp.abs(below))
  return d, imaginary - next_along(imaginary, -1)


_SELECTIONS = {
    "lhp": lambda x, y: x < 0, "rhp": lambda x, y: x >= 0,
    "iuc": lambda x, y: jnp.hypot(x, y) <= 1, "ouc": lambda x, y: jnp.hypot(x, y) > 1}


@public("output", "lwork", "overwrite_a", "sort", "check_finite", lists=True)
def schur(
    a: ArrayLike,
    output: str = "real",
    lwork: Any = None,
    overwrite_a: bool = False,
    sort: str | Callable[..., jax.Array] | None = None,
    check_finite: bool = True,
) -> tuple[jax.Array, ...]:
  """Schur form, A = Z T Zᴴ; `scipy.linalg.schur`, batched. See `linalg.schur`.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.
    output: 'real' keeps real matrices real, 'complex' computes in complex numbers.
    sort: which eigenvalues come first. 'lhp' for those left of the imaginary axis, 'rhp' for the
      others, 'iuc' for those in the unit circle, 'ouc' for those outside. Or a function that
      returns booleans; it is traced. It takes the array of eigenvalues (..., n), or with a real T
      the arrays of their real and imaginary parts. Both of a complex pair are chosen if one is.
    lwork, overwrite_a, check_finite: not used.

  Returns:
    (T, Z), and if `sort` is given the number of chosen eigenvalues, int32 (...). T and Z are NaN
    where `linalg.schur` gives NaN, and where eigenvalues are too close to be exchanged.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: `linalg.schur`, and LAPACK's trsen on the CPU. Derivatives are those of `linalg.schur`
  at this order.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> t, z, count = linalg.scipy.schur(jnp.diag(jnp.array([1.0, -2.0])), sort="lhp")
    >>> print(jnp.diag(t), count)
    [-2.  1.] 1
  """
  del lwork, overwrite_a, check_finite
  if output not in ("real", "complex", "r", "c"):
    raise ValueError(f"schur: output must be 'real' or 'complex', got {output!r}.")
  output = "complex" if output in ("complex", "c") else "real"
  if sort is None:
    return linalg.schur(a, output)
  if not (callable(sort) or sort in _SELECTIONS):
    raise ValueError(
        f"schur: sort must be None, 'lhp', 'rhp', 'iuc', 'ouc' or a function, got {sort!r}.")
  (a,), dtype = as_arrays("schur", a)
  check_square("schur", a)
  if output == "complex":
    a, dtype = as_complex(a), complex_dtype(dtype)
  t, z, info = schur_p(jax.lax.stop_gradient(a))
  check_converged(info, "Schur form")
  parts = _parts(t)
  if not callable(sort):
    chosen = _SELECTIONS[sort](*parts)
  else:
    chosen = sort(jax.lax.complex(*parts)) if jnp.iscomplexobj(t) else sort(*parts)
  chosen = jnp.asarray(chosen).astype(bool) | (zeros_like(parts[0]) != 0)
  if not jnp.iscomplexobj(t):
    first = blocks_of(t)[2] != 0
    both = first & (chosen | next_along(chosen, 1))
    chosen = chosen | both | next_along(both, -1)
  t, z, info = schur_reorder_p(t, z, chosen.astype(jnp.int32))
  check_converged(info, "Schur form in this order")
  t, z = schur_factors_p(a, t, z)
  count = jnp.sum(chosen, axis=-1, dtype=jnp.int32)
  return t.astype(dtype), z.astype(dtype), count
