"""Schur form of general matrices."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  column_of,
  diagonal_of,
  expand,
  info_of_nan,
  norm_of_rows,
  on_diagonal,
  one_of_first_order,
  ones_of_first_order,
  smallest_gap,
  stored_diagonal,
  with_column,
  zeros_like,
)
from linalg._core.checks import check_converged
from linalg._core.operands import as_arrays, as_complex, check_square, complex_dtype
from linalg._core.public import public
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.triangular import triangular_solve_p

__all__ = ["rsf2csf", "schur", "schur_ex"]


def next_along(x, offset=1):
  """Returns y with yᵢ = xᵢ₊ₒ, and zeros beyond the end.

  It pads, because a shift would be a gather.
  """
  shift = (*((0, 0, 0),) * (x.ndim - 1), (-offset, offset, 0))
  return jax.lax.pad(x, jnp.zeros((), x.dtype), shift)


def blocks_of(t):
  """Returns (Tᵢᵢ, Tᵢ,ᵢ₊₁, Tᵢ₊₁,ᵢ, Tᵢ₊₁,ᵢ₊₁) for each row i, with 0 for elements outside."""
  # XLA would read the whole matrices for the sums of `diagonal_of`.
  d, above, below = (stored_diagonal(t, offset) for offset in (0, 1, -1))
  return d, above, below, next_along(d)


def block_vectors(t, first):
  """(x, y) for each row i: a normalized eigenvector of the 2 by 2 block that begins there.

  `first` marks the blocks' rows. The vector (λ - d, c) of [[a, b], [c, d]] belongs to the
  eigenvalue λ with the positive imaginary part. x and y are 0 where no block begins.
  """
  a, b, c, d = (jnp.where(first, x, 0) for x in blocks_of(t))
  half = (a - d) / 2
  size = jnp.maximum(jnp.abs(half), jnp.maximum(jnp.abs(b), jnp.abs(c)))
  size = jnp.where(size == 0, 1, size).astype(t.dtype)
  half, b, c = half / size, b / size, c / size
  square = half * half + b * c
  complex_square = as_complex(square)
  root = jnp.sqrt(jnp.where(square == 0, 1, complex_square))
  root = jnp.where(square == 0, 0, root)
  root = jnp.where((half.real < 0) & (root.real > 0), -root, root)
  x = half.astype(root.dtype) + root
  length = jnp.sqrt(jnp.where(first, jnp.abs(x) ** 2 + jnp.abs(c) ** 2, 1))
  cosine, sine = (y.astype(x.dtype) / length.astype(x.dtype) for y in (x, c))
  return jnp.where(first, cosine, 0), jnp.where(first, sine, 0)


def in_blocks(cosine, sine, first):
  """The unitary matrix with the block [[x, -ȳ], [y, x̄]] where `first` marks its row, and else
  ones."""
  second = next_along(first.astype(cosine.dtype), -1)
  on = cosine + next_along(cosine, -1).conj() + jnp.where(first, 0, 1 - second)
  square = jax.ShapeDtypeStruct((*on.shape, on.shape[-1]), on.dtype)
  return (
      jnp.where(on_diagonal(square), on[..., None], 0)
      + jnp.where(on_diagonal(square, -1), sine[..., None, :], 0)
      - jnp.where(on_diagonal(square, 1), sine.conj()[..., :, None], 0))


def triangulating(t, first):
  """The unitary matrix that makes each 2 by 2 block of T triangular; `first` marks the blocks'
  rows."""
  return in_blocks(*block_vectors(t, first), first)


def _real_triangulating(t, first):
  """Returns `triangulating` of real T as real (R, d) with W = R + i diag(d)."""
  a, b, c, d = (jnp.where(first, x, 0) for x in blocks_of(t))
  half = (a - d) / 2
  size = jnp.maximum(jnp.abs(half), jnp.maximum(jnp.abs(b), jnp.abs(c)))
  size = jnp.where(size == 0, 1, size)
  half, b, c = half / size, b / size, c / size
  square = half * half + b * c
  root = jnp.where(square == 0, 0, jnp.sqrt(jnp.where(square == 0, 1, jnp.abs(square))))
  # The eigenvector's first element is x + iy.
  y = jnp.where(square < 0, root, 0)
  x = half + jnp.where(square < 0, 0, jnp.where(half < 0, -root, root))
  length = jnp.sqrt(jnp.where(first, x * x + y * y + c * c, 1))
  cosine, turned, sine = (jnp.where(first, z / length, 0) for z in (x, y, c))
  alone = ~(first | (next_along(first.astype(t.dtype), -1) != 0))
  own = cosine + next_along(cosine, -1) + alone.astype(t.dtype)
  real = (
      jnp.where(on_diagonal(t), own[..., None], 0)
      + jnp.where(on_diagonal(t, -1), sine[..., None, :], 0)
      - jnp.where(on_diagonal(t, 1), sine[..., :, None], 0))
  return real, turned - next_along(turned, -1)


def _begins_block(t):
  a, _, below, d = blocks_of(t)
  return jnp.abs(below) > jnp.finfo(t.dtype).eps * (jnp.abs(a) + jnp.abs(d))


def _real_to_complex(t, z):
  """Returns Wᴴ T W and Z W for real T and Z, by real products."""
  r, d = _real_triangulating(t, _begins_block(t))
  column, row = d[..., None], d[..., None, :]
  by_r = product(t, r)
  real = product(r, by_r, adjoint_a=True) + column * t * row
  imaginary = product(r, t, adjoint_a=True) * row - column * by_r
  return jnp.triu(jax.lax.complex(real, imaginary)), jax.lax.complex(product(z, r), z * row)


def lower_rotation(t, f):
  """The strictly lower X with T X - X T + F upper triangular, for an upper triangular T.

  Column by column: (T - Tⱼⱼ) xⱼ = Σ_{k<j} xₖ Tₖⱼ - fⱼ in the rows below j. Where |Tᵢᵢ - Tⱼⱼ| is
  within 8 √n eps ‖T‖, the two vectors are not determined and Xᵢⱼ is 0.
  """
  n = t.shape[-1]
  row, col = expand(jnp.arange(n)[:, None], t), expand(jnp.arange(n), t)
  norm = norm_of_rows(t)[..., None]
  threshold = smallest_gap(norm, n)

  def step(x, j):
    own = jnp.sum(jnp.where((col == j) & (row == j), t, 0), axis=(-2, -1), keepdims=True)
    gap = jnp.where(on_diagonal(t), t - own, t)
    fixed = (jnp.abs(diagonal_of(gap)) <= threshold)[..., None] | (row <= j)
    matrix = jnp.where(fixed, on_diagonal(t).astype(t.dtype), gap)
    rhs = jnp.where(fixed, 0, product(x, column_of(t, j)) - column_of(f, j))
    column = triangular_solve_p(matrix, rhs, left_side=True, lower=False)
    return with_column(x, j, column), None

  return jax.lax.scan(step, zeros_like(f), jnp.arange(n))[0]


def skew_of(lower):
  return lower - adjoint(lower)


def schur_tangents(
    t: jax.Array, z: jax.Array, da: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """(dT, dZ) of A = Z T Zᴴ.

  Let F = Zᴴ dA Z. Then dZ = Z X and dT = F + T X - X T. X is skew-Hermitian and leaves dT upper
  triangular. The diagonal of X is free in the complex case, and 0. For a real matrix, the blocks
  are made triangular first; within a block X is the rotation that keeps the diagonal equal.
  """
  f = congruence(z, da, adjoint_a=True)
  if jnp.iscomplexobj(t):
    triangular = t
    x = skew_of(lower_rotation(t, f))
    dt = jnp.triu(f + product(t, x) - product(x, t))
  else:
    _, above, below, _ = blocks_of(t)
    first = below != 0
    w = triangulating(t, first)
    triangular = jnp.triu(congruence(w, t.astype(w.dtype), adjoint_a=True))
    lower = lower_rotation(triangular, congruence(w, f.astype(w.dtype), adjoint_a=True))
    in_block = on_diagonal(t, -1) & first[..., None, :]
    lower = jnp.where(in_block, 0, jnp.tril(congruence(w, lower).real, -1))
    x = skew_of(lower)
    change = diagonal_of(f + product(t, x) - product(x, t))
    flexible = first & (above + below != 0)
    angle = (next_along(change) - change) / (2 * jnp.where(flexible, above + below, 1))
    angle = jnp.where(flexible, angle, 0)
    x = x + skew_of(jnp.where(in_block, angle[..., None, :], 0))
    dt = f + product(t, x) - product(x, t)
    dt = jnp.triu(dt) + jnp.where(in_block, dt, 0)
  # Second derivatives at equal eigenvalues would lack the rotation that is not determined.
  ones = ones_of_first_order(diagonal_of(triangular), norm_of_rows(t)[..., None])
  one = one_of_first_order(ones)[..., None].astype(t.dtype)
  return one * dt, one * product(z, x)


def _schur_jvp(primals, tangents):
  (a,), (da,) = primals, tangents
  t, z, info = schur_p(a)
  return (t, z, info), (*schur_tangents(t, z, da), None)


def _schur_fallback(a):
  t, z = jax.lax.linalg.schur(a)
  return [t, z, info_of_nan(t, 2)]


schur_p = ffi.operation(
    "linalg_schur",
    "n n -> n n, n n, ()",
    [0, 0, jnp.int32],
    jvp=_schur_jvp,
    fallback=_schur_fallback)


def _schur(name, a, output):
  if output not in ("real", "complex"):
    raise ValueError(f"{name}: output must be 'real' or 'complex', got {output!r}.")
  (a,), dtype = as_arrays(name, a)
  check_square(name, a)
  if output == "complex":
    a = as_complex(a)
    dtype = a.dtype
  t, z, info = schur_p(a)
  return t.astype(dtype), z.astype(dtype), info


@public("output", lists=True)
def schur(a: ArrayLike, output: str = "real") -> tuple[jax.Array, jax.Array]:
  """Schur form of general matrices, A = Z T Zᴴ; `jax.scipy.linalg.schur`.

  Args:
    a: matrices (..., n, n) of any floating, complex or integer dtype.
    output: 'real' keeps real matrices real: T is quasi-triangular, and has a diagonal 2 by 2 block
      for each pair of complex eigenvalues. 'complex' computes in complex numbers, and T is
      triangular.

  Returns:
    (T, Z), with a unitary Z. Where A holds NaN or Inf, or the iteration does not converge, both are
    NaN for that matrix; see `schur_ex` and `checked`.

  A block of a real T is [[a, b], [c, a]] with b c < 0. Once the order of the eigenvalues is fixed,
  the columns of Z are determined up to signs or phases. A derivative takes the phases to be
  constant. It needs distinct eigenvalues: no rotation is taken between eigenvalues that are equal
  up to rounding. Second derivatives are NaN for a matrix that has such.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: Hessenberg form and the shifted QR iteration; for small matrices one per lane, for
  others LAPACK gees.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> t, z = linalg.schur(a)
    >>> print(jnp.allclose(z @ t @ z.mT, a, atol=1e-5))
    True
    >>> linalg.schur(a, output="complex")[0].dtype
    dtype('complex64')
  """
  t, z, info = _schur("schur", a, output)
  check_converged(info, "Schur form")
  return t, z


@public("output")
def schur_ex(
    a: ArrayLike, output: str = "real"
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """`schur`, with an info for each matrix.

  Args:
    a, output: as for `schur`.

  Returns:
    (T, Z, info). info is int32 of shape (...): 0 on success, -1 if the matrix holds NaN or Inf,
    positive if the iteration did not converge. Where it is not 0, the results are NaN.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.stack([jnp.eye(2), jnp.full((2, 2), jnp.nan)])
    >>> t, z, info = linalg.schur_ex(a)
    >>> print(info)
    [ 0 -1]
  """
  return _schur("schur_ex", a, output)


@public("check_finite", lists=True)
def rsf2csf(
    T: ArrayLike, Z: ArrayLike, check_finite: bool = True
) -> tuple[jax.Array, jax.Array]:
  """The complex Schur form from the real one; `jax.scipy.linalg.rsf2csf`.

  Args:
    T, Z: the factors (..., n, n) of A = Z T Zᵀ that `schur` returns.
    check_finite: not used.

  Returns:
    (T, Z), complex, T upper triangular.

  Each 2 by 2 block is made triangular by a rotation of its own.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> t, z = linalg.schur(jnp.array([[0.0, 1.0], [-1.0, 0.0]]))
    >>> t, z = linalg.rsf2csf(t, z)
    >>> print(jnp.sort(jnp.diag(t).imag).round(4))
    [-1.  1.]
  """
  del check_finite
  (t, z), dtype = as_arrays("rsf2csf", T, Z)
  for name, x in (("T", t), ("Z", z)):
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
      raise ValueError(f"rsf2csf: {name} must have shape [..., n, n], got {x.shape}.")
  if t.shape[-1] != z.shape[-1]:
    raise ValueError(f"rsf2csf: T and Z must have the same n, got {t.shape} and {z.shape}.")
  dtype = complex_dtype(dtype)
  if jnp.iscomplexobj(t):
    w = triangulating(t, _begins_block(t))
    triangular = jnp.triu(congruence(w, t.astype(w.dtype), adjoint_a=True))
    z = product(z.astype(w.dtype), w)
    triangular, z = ffi.broadcast_batches("rsf2csf", (triangular, z), (2, 2))
  else:
    t, z = ffi.broadcast_batches("rsf2csf", (t, z), (2, 2))
    triangular, z = _real_to_complex(t, z)
  return triangular.astype(dtype), z.astype(dtype)


def triangular_schur(a: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns the complex Schur form, which is a constant for derivatives.

  A real matrix's complex form is made from its real one, whose real eigenvalues are exactly real.
  Rounding then does not decide on which side of a branch cut negative eigenvalues are.
  """
  a = jax.lax.stop_gradient(a)
  return schur(a, "complex") if jnp.iscomplexobj(a) else rsf2csf(*schur(a))
