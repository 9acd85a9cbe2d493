"""QZ factors of pencils, and their order."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  binade,
  column_of,
  diagonal_of,
  expand,
  imaginary,
  info_of_nan,
  on_diagonal,
  one_of_first_order,
  reciprocal,
  smallest_gap,
  turn_to_real,
  with_column,
  without_none,
  zeros_like,
)
from linalg._core.checks import check_converged
from linalg._core.operands import (
  as_arrays,
  as_complex,
  check_batches,
  check_square,
  complex_dtype,
  incompatible,
)
from linalg._core.pencils import (
  are_equal,
  gaps_of_pairs,
  ones_of_distinct,
  rotated,
  rotated_back,
  scales,
  unit_pairs,
)
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg._factorizations.qr import qr_p
from linalg._factorizations.schur import (
  block_vectors,
  blocks_of,
  in_blocks,
  next_along,
  schur_p,
  skew_of,
)
from linalg._factorizations.solve import solve_p
from linalg._factorizations.triangular import triangular_solve_p
from linalg._functions.reordering import chosen_first, real_pairs, vectors_of_triangles

__all__ = ["ordqz", "qz"]


def _between(left, a, right):
  """leftᴴ A right"""
  return product(left, product(a, right), adjoint_a=True)


# Forms with blocks


def _begins_block(s):
  """Marks the rows of S at which a 2 by 2 block begins."""
  return blocks_of(s)[2] != 0


def _triangulating(s, t, first):
  """Unitary (U, W) that make the 2 by 2 blocks of a real pencil triangular: Uᴴ S W and Uᴴ T W.

  A block of T is diagonal and positive. The first eigenvalue has a positive imaginary part.
  """
  d = diagonal_of(t)
  inside = first | (next_along(first.astype(t.dtype), -1) != 0)
  d = jnp.where(inside & (d != 0), d, 1)
  x, y = block_vectors(s / d[..., :, None], first)
  w = in_blocks(x, y, first)
  x, y = x * d.astype(x.dtype), y * next_along(d).astype(x.dtype)
  length = jnp.sqrt(jnp.where(first, jnp.abs(x) ** 2 + jnp.abs(y) ** 2, 1)).astype(x.dtype)
  return in_blocks(x / length, y / length, first), w


def pencil_values(s: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
  """(α, β) of QZ forms: the diagonals once the 2 by 2 blocks of real ones are triangular."""
  alpha, beta = diagonal_of(s), diagonal_of(t)
  if jnp.iscomplexobj(s):
    return alpha, beta
  # Elements of blocks are squared.
  powers = [binade(x) for x in scales(s, t)]
  s, t = (x / power[..., None] for x, power in zip((s, t), powers, strict=True))
  first = _begins_block(s)
  u, w = _triangulating(s, t, first)
  inside = first | (next_along(first.astype(t.dtype), -1) != 0)
  of_block = lambda x, power: power.astype(u.dtype) * diagonal_of(
      _between(u, x.astype(u.dtype), w))
  return (jnp.where(inside, of_block(s, powers[0]), alpha.astype(u.dtype)),
          jnp.where(inside, of_block(t, powers[1]).real, beta))


# Derivatives


def _lower_rotations(s, t, f, g, equal):
  """The strictly lower X and Y with F - X S + S Y and G - X T + T Y upper triangular.

  Column by column, in the rows below j: (Sⱼⱼ T - Tⱼⱼ S) yⱼ = Tⱼⱼ f - Sⱼⱼ g for f = fⱼ - Σ_{k<j} xₖ
  Sₖⱼ, and g alike. Then xⱼ Sⱼⱼ = f + S yⱼ and xⱼ Tⱼⱼ = g + T yⱼ. Where two eigenvalues are
  `equal`, the vectors are not determined and both are 0.
  """
  n = s.shape[-1]
  row, col = expand(jnp.arange(n)[:, None], s), expand(jnp.arange(n), s)
  equal = equal.astype(s.real.dtype)

  def step(carry, j):
    x, y = carry
    at = (col == j) & (row == j)
    sj, tj = (jnp.sum(jnp.where(at, a, 0), axis=(-2, -1), keepdims=True) for a in (s, t))
    fj, gj = (
        column_of(b, j) - product(x, column_of(a, j)) for a, b in ((s, f), (t, g)))
    gap = sj * t - tj * s
    fixed = (column_of(equal, j) != 0) | (row <= j)
    matrix = jnp.where(fixed, on_diagonal(s).astype(s.dtype), gap)
    rhs = jnp.where(fixed, 0, tj * fj - sj * gj)
    yj = triangular_solve_p(matrix, rhs, left_side=True, lower=False)
    xj = sj.conj() * (fj + product(s, yj)) + tj.conj() * (gj + product(t, yj))
    square = (sj * sj.conj() + tj * tj.conj()).real
    xj = jnp.where(fixed, 0, xj * reciprocal(square, square != 0).astype(s.dtype))
    return (with_column(x, j, xj), with_column(y, j, yj)), None

  start = zeros_like(f), zeros_like(f)
  return jax.lax.scan(step, start, jnp.arange(n))[0]


def _pairs(s, t):
  """The pairs (α, β) of a triangular pencil, of length 1, which are equal up to rounding, and
  whether a pair is (0, 0) up to rounding, so that the pencil is singular."""
  *pairs, length = unit_pairs(diagonal_of(s), diagonal_of(t), scales(s, t))
  singular = length <= smallest_gap(jnp.ones_like(length), length.shape[-1])
  return pairs, are_equal(gaps_of_pairs(*pairs)) & ~on_diagonal(s), singular.any(-1)


def _tangents(s, t, q, z, da, db, b_varies):
  """(dS, dT, dQ, dZ) of A = Q S Zᴴ and B = Q T Zᴴ.

  Let F = Qᴴ dA Z and G = Qᴴ dB Z. Then dQ = Q X, dZ = Z Y, dS = F - X S + S Y and dT = G - X T + T
  Y, with skew-Hermitian X and Y that leave dS and dT upper triangular, but for elements that belong
  to two equal eigenvalues. One phase of each pair of columns is free. The diagonal of T stays real.
  The blocks of a real pencil are made triangular first, and rotate such that the block of T stays
  diagonal. A block of T with two equal elements has no such rotation where B varies: NaN. A
  singular pencil has no derivative: NaN.
  """
  f, g = _between(q, da, z), _between(q, db, z)
  of_rows = lambda x, y: tuple(a / norm[..., None].astype(a.dtype) for a, norm in (
      (x, norms[0]), (y, norms[1])))
  norms = scales(s, t)
  (s, t), (f, g) = of_rows(s, t), of_rows(f, g)
  changes = lambda x, y: (
      f - product(x, s) + product(s, y), g - product(x, t) + product(t, y))
  if jnp.iscomplexobj(s):
    pairs, equal, singular = _pairs(s, t)
    x, y = map(skew_of, _lower_rotations(s, t, f, g, equal))
    ds, dt = changes(x, y)
    d = diagonal_of(t).real
    phase = -diagonal_of(dt).imag * reciprocal(d, d > jnp.finfo(d.dtype).eps)
    y = y + jnp.where(on_diagonal(t), imaginary(phase)[..., None, :], 0)
    kept = expand(jnp.tri(s.shape[-1], dtype=bool).mT, s) | equal
    ds, dt = (jnp.where(kept, change, 0) for change in changes(x, y))
  else:
    first = _begins_block(s)
    u, w = _triangulating(s, t, first)
    wide = lambda a: _between(u, a.astype(u.dtype), w)
    form = jnp.triu(wide(s)), jnp.triu(wide(t))
    pairs, equal, singular = _pairs(*form)
    in_block = on_diagonal(t, -1) & first[..., None, :]
    x, y = _lower_rotations(*form, wide(f), wide(g), equal)
    x, y = (product(v, product(a, v, adjoint_b=True)).real for v, a in ((u, x), (w, y)))
    x, y = (skew_of(jnp.where(in_block, 0, jnp.tril(a, -1))) for a in (x, y))
    _, dt = changes(x, y)
    d, above, below, second = blocks_of(dt)
    d, _, _, second = blocks_of(t)
    difference = d * d - second * second
    flexible = first & (jnp.abs(d - second) > smallest_gap(d, d.shape[-1]))
    over = reciprocal(difference, flexible)
    stiff = (first & ~flexible).any(-1)
    known = stiff & (b_varies | (jnp.triu(t, 1) != 0).any((-2, -1)))
    spoilt = jnp.where(known, jnp.nan, 1).astype(t.dtype)[..., None, None]
    turn = lambda a, angle: a + skew_of(jnp.where(in_block, angle[..., None, :], 0))
    x = turn(x, (above * second + below * d) * over)
    y = turn(y, (below * second + above * d) * over)
    # Blocks of two equal pairs are kept as a whole.
    both = (on_diagonal(t) | in_block | in_block.mT).astype(t.dtype)
    equal = product(both, product(equal.astype(t.dtype), both)) > 0
    kept = expand(jnp.tri(s.shape[-1], dtype=bool).mT, s) | (equal & ~in_block)
    ds, dt = changes(x, y)
    ds = jnp.where(kept | in_block, ds, 0)
    dt = jnp.where(kept & ~in_block.mT, dt, 0)
    ds, dt, x, y = (a * spoilt for a in (ds, dt, x, y))
  # Second derivatives at equal eigenvalues would lack the rotation that is not determined.
  ones = ones_of_distinct(*pairs)
  one = jnp.where(singular[..., None], jnp.nan, one_of_first_order(ones))
  one = one[..., None].astype(s.dtype)
  ds, dt = (a * norm[..., None].astype(a.dtype) for a, norm in zip((ds, dt), norms, strict=True))
  return one * ds, one * dt, one * product(q, x), one * product(z, y)


def _factors_jvp(primals, tangents):
  a, b, *factors = primals
  da, db = without_none((a, b), tangents[:2])
  s, t, q, z = qz_factors_p(a, b, *factors)
  return (s, t, q, z), _tangents(s, t, q, z, da, db, tangents[1] is not None)


# The factors as a function of the matrices.
qz_factors_p = ffi.operation(
    "linalg_qz_factors",
    "n n, n n, n n, n n, n n, n n -> n n, n n, n n, n n",
    [0, 0, 0, 0],
    platforms=(),
    jvp=_factors_jvp,
    fallback=lambda a, b, *factors: list(factors))


# Other platforms


def _standardized(s, t, q, z, first):
  """QZ factors whose blocks of T, which begin where `first` marks them, become diagonal, and whose
  diagonal of T is not negative."""
  in_block = on_diagonal(t, -1) & first[..., None, :]
  if not jnp.iscomplexobj(t):
    # Blocks are U(φ) D U(θ), with rotations by half of the sum and the difference of two angles.
    a, b, c, d = (jnp.where(first, x, 0) for x in blocks_of(t))
    one, other = jnp.arctan2(c + b, a - d), jnp.arctan2(c - b, a + d)
    rotation = lambda angle: in_blocks(
        jnp.where(first, jnp.cos(angle), 0), jnp.where(first, jnp.sin(angle), 0), first)
    u, w = rotation((other + one) / 2), rotation((one - other) / 2)
    s, t, q, z = _between(u, s, w), _between(u, t, w), product(q, u), product(z, w)
  s = jnp.triu(s) + jnp.where(in_block, s, 0)
  t = jnp.where(in_block.mT, 0, jnp.triu(t))
  phase = turn_to_real(diagonal_of(t))
  s, t, z = (x * phase[..., None, :] for x in (s, t, z))
  if jnp.iscomplexobj(t):
    t = jnp.where(on_diagonal(t), t.real.astype(t.dtype), t)
  return s, t, q, z


def _fallback(a, b):
  """By the Schur form of a quotient: its vectors are Z, and a QR of B Z gives Q."""
  norms = scales(a, b)
  of_a, of_b = (x[..., None].astype(a.dtype) for x in norms)
  first, second = rotated(a / of_a, b / of_b)
  u, z, info = schur_p(solve_p(second, first)[0])
  q, t = qr_p(product(second, z))
  s, t = rotated_back(product(t, u), t)
  s, t, q, z = _standardized(s, t, q, z, _begins_block(u))
  s, t = s * of_a, t * of_b
  alpha, beta = pencil_values(s, t)
  return [s, t, q, z, as_complex(alpha), beta, info]


_DTYPES = lambda a, *_: [a, a, a, a, complex_dtype(a), a, jnp.int32]

qz_p = ffi.operation(
    "linalg_qz", "n n, n n -> n n, n n, n n, n n, n, n, ()", _DTYPES, fallback=_fallback)


def _reorder_fallback(s, t, q, z, select):
  """QR of the eigenvectors in the new order, and of their images."""
  order = chosen_first(select, s.dtype)
  first = jnp.zeros(s.shape[:-1], bool)
  if jnp.iscomplexobj(s):
    v, image = vectors_of_triangles(s, t)
  else:
    first = _begins_block(s)
    u, w = _triangulating(s, t, first)
    v, image = vectors_of_triangles(*(
        jnp.triu(_between(u, x.astype(u.dtype), w)) for x in (s, t)))
    v, image = (real_pairs(product(x, y), first) for x, y in ((w, v), (u, image)))
    first = jnp.sum(jnp.where(first[..., :, None], order, 0), axis=-2) != 0
  right, left = (qr_p(product(x, order))[0] for x in (v, image))
  s, t, q, z = _standardized(
      _between(left, s, right), _between(left, t, right), product(q, left), product(z, right),
      first)
  alpha, beta = pencil_values(s, t)
  return [s, t, q, z, as_complex(alpha), beta, info_of_nan(z, 2)]


qz_reorder_p = ffi.operation(
    "linalg_qz_reorder",
    "n n, n n, n n, n n, n -> n n, n n, n n, n n, n, n, ()",
    lambda s, *_: _DTYPES(s),
    fallback=_reorder_fallback)


# Public functions


def _operands(name, a, b, output):
  if output not in ("real", "complex", "r", "c"):
    raise ValueError(f"{name}: output must be 'real' or 'complex', got {output!r}.")
  (a, b), dtype = as_arrays(name, a, b)
  check_square(name, a, "A")
  check_square(name, b, "B")
  if a.shape[-1] != b.shape[-1]:
    raise incompatible(name, a, b, names=("A", "B"))
  check_batches(name, a, b, names=("A", "B"))
  if output in ("complex", "c"):
    a, b, dtype = as_complex(a), as_complex(b), complex_dtype(dtype)
  return *ffi.broadcast_batches(name, (a, b), (2, 2)), dtype


@public("output", "lwork", "sort", "overwrite_a", "overwrite_b", "check_finite", lists=True)
def qz(
    A: ArrayLike,
    B: ArrayLike,
    output: str = "real",
    lwork: Any = None,
    sort: None = None,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """QZ factors of pencils, A = Q S Zᴴ and B = Q T Zᴴ; `scipy.linalg.qz`, batched.

  Args:
    A, B: matrices (..., n, n) of any floating, complex or integer dtype.
    output: 'real' keeps real pencils real: S is quasi-triangular, and has a diagonal 2 by 2 block
      for each pair of complex eigenvalues, where T is diagonal. 'complex' computes in complex
      numbers, and S is triangular.
    sort: must be None; see `ordqz`.
    lwork, overwrite_a, overwrite_b, check_finite: not used.

  Returns:
    (S, T, Q, Z). Q and Z are unitary. T is upper triangular, and its diagonal is not negative. An
    eigenvalue is infinite where that diagonal is 0. Where A or B holds NaN or Inf, or the iteration
    does not converge, all are NaN for that pencil.

  Once the order of the eigenvalues is fixed, the columns of Q and Z are determined up to signs or
  phases. A derivative takes no rotation between eigenvalues that are equal up to rounding, finite
  or infinite. It is then right for functions of their common spaces, and S and T get elements below
  the diagonal there. Second derivatives are NaN for a pencil that has such eigenvalues. A singular
  pencil has no derivative.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: LAPACK's gges on the CPU. Elsewhere the Schur form of a quotient of two combinations of
  A and B, whose errors grow with the condition of one of them. Derivatives are linear equations for
  skew-Hermitian Qᴴ dQ and Zᴴ dZ.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> a, b = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[2.0, 0.0], [1.0, 1.0]])
    >>> s, t, q, z = linalg.scipy.qz(a, b)
    >>> print(jnp.allclose(q @ s @ z.T, a, atol=1e-5), jnp.allclose(q @ t @ z.T, b, atol=1e-5))
    True True
  """
  del lwork, overwrite_a, overwrite_b, check_finite
  if sort is not None:
    raise ValueError("qz: sort must be None. Use ordqz instead.")
  a, b, dtype = _operands("qz", A, B, output)
  *factors, _, _, info = qz_p(*map(jax.lax.stop_gradient, (a, b)))
  check_converged(info, "QZ form")
  s, t, q, z = (x.astype(dtype) for x in qz_factors_p(a, b, *factors))
  return s, t, q, z


def _ratio(alpha, beta):
  finite = beta != 0
  return alpha / jnp.where(finite, beta, 1).astype(alpha.dtype), finite


def _lhp(alpha, beta):
  w, finite = _ratio(alpha, beta)
  return finite & (w.real < 0)


def _rhp(alpha, beta):
  w, finite = _ratio(alpha, beta)
  return finite & (w.real > 0)


def _iuc(alpha, beta):
  w, finite = _ratio(alpha, beta)
  return finite & (jnp.abs(w) < 1)


def _ouc(alpha, beta):
  w, finite = _ratio(alpha, beta)
  return jnp.where(finite, jnp.abs(w) > 1, alpha != 0)


_SELECTIONS = {"lhp": _lhp, "rhp": _rhp, "iuc": _iuc, "ouc": _ouc}


@public("sort", "output", "overwrite_a", "overwrite_b", "check_finite", lists=True)
def ordqz(
    A: ArrayLike,
    B: ArrayLike,
    sort: str | Callable[[jax.Array, jax.Array], jax.Array] = "lhp",
    output: str = "real",
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
  """QZ factors of pencils with chosen eigenvalues first; `scipy.linalg.ordqz`, batched.

  Args:
    A, B, output: as for `qz`.
    sort: which eigenvalues α / β come first. 'lhp' for those left of the imaginary axis, 'rhp' for
      those right of it, 'iuc' for those inside the unit circle, 'ouc' for those outside, infinite
      ones among these. Or a function of the arrays α and β, (..., n), that returns booleans; it is
      traced. A complex pair of a real pencil is chosen if one of the two is.
    overwrite_a, overwrite_b, check_finite: not used.

  Returns:
    (S, T, α, β, Q, Z). α and β, (..., n), are the diagonals of S and T, once the blocks of a real
    pencil are made triangular: their ratios are conjugate, not they. β is not negative. All are NaN
    where `qz` gives NaN, and where eigenvalues are too close to be exchanged.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: `qz`, and LAPACK's tgsen on the CPU. Derivatives are those of `qz` at this order, and
  of α and β through S and T.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> a, b = jnp.diag(jnp.array([1.0, -2.0])), jnp.eye(2)
    >>> s, t, alpha, beta, q, z = linalg.scipy.ordqz(a, b, "lhp")
    >>> print((alpha / beta).real)
    [-2.  1.]
  """
  del overwrite_a, overwrite_b, check_finite
  if not (callable(sort) or sort in _SELECTIONS):
    raise ValueError(
        f"ordqz: sort must be 'lhp', 'rhp', 'iuc', 'ouc' or a function, got {sort!r}.")
  choose = sort if callable(sort) else _SELECTIONS[sort]
  a, b, dtype = _operands("ordqz", A, B, output)
  # LAPACK exchanges eigenvalues only where A and B are of about one size.
  of_a, of_b = (binade(x) for x in scales(a, b))
  *factors, alpha, beta, info = qz_p(*(
      jax.lax.stop_gradient(x) / power[..., None].astype(x.dtype)
      for x, power in ((a, of_a), (b, of_b))))
  check_converged(info, "QZ form")
  alpha, beta = (power.astype(x.dtype) * x for x, power in ((alpha, of_a), (beta, of_b)))
  chosen = jnp.asarray(choose(alpha, beta)).astype(bool)
  chosen = chosen | (zeros_like(beta) != 0)
  s, t, q, z, _, _, info = qz_reorder_p(*factors, chosen.astype(jnp.int32))
  check_converged(info, "QZ form in this order")
  s, t = (power[..., None].astype(x.dtype) * x for x, power in ((s, of_a), (t, of_b)))
  s, t, q, z = qz_factors_p(a, b, s, t, q, z)
  alpha, beta = pencil_values(s, t)
  s, t, beta, q, z = (x.astype(dtype) for x in (s, t, beta, q, z))
  return s, t, alpha.astype(complex_dtype(dtype)), beta, q, z
