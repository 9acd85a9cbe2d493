"""The operations that have handlers of their own, as cases."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg

import linalg
from linalg._cases import checks, matrices
from linalg._cases.case import Case
from linalg._cases.distance import case_of
from linalg._cases.factors import (
    cholesky_factor,
    cholesky_product,
    lu_factors,
    lu_product,
    take,
    unpack_lu,
)
from linalg._cases.operands import (
    general,
    hermitian,
    positive_definite,
    square,
    square_general,
    two_square,
    vector,
    with_columns,
)
from linalg._cases.timed import (
    COLUMN,
    DIAGONAL,
    FACTOR,
    GENERAL,
    HERMITIAN,
    LOWER_FACTOR,
    PIVOTS,
    POSITIVE_DEFINITE,
    UPPER_FACTOR,
    VECTOR,
    Timed,
    called,
)


def _unit_scaled(rng, batch, m, n, dtype):
  """Square, with a determinant that float32 can hold."""
  (a,) = square(rng, batch, m, n, dtype)
  return ((a / (2 * np.sqrt(n + 1))).astype(dtype),)


def _pivots(rng, batch, m, n, dtype):
  del m, dtype
  low = np.broadcast_to(np.arange(n), (*batch, n))
  return (rng.integers(low, max(n, 1)).astype(np.int32),)


def _factor_and_vector(rng, batch, m, n, dtype):
  """An upper Cholesky factor, and a vector short enough to be subtracted too."""
  (l,) = cholesky_factor(rng, batch, m, n, dtype)
  return checks.adjoint(l), vector(rng, batch, m, n, dtype)[0] * np.dtype(dtype).type(0.3)


def _lower(rng, batch, m, n, dtype):
  del m
  return (matrices.triangular(rng, batch, n, dtype, lower=True),)


def _upper_right(rng, batch, m, n, dtype):
  """For X op(A) = B: B's columns are A's size."""
  del m
  a = matrices.triangular(rng, batch, n, dtype, lower=False)
  return a, matrices.general(rng, batch, 3, n, dtype)


def _reflectors(rng, batch, m, n, dtype):
  m = max(m, n)
  h, taus = linalg.qr(matrices.general(rng, batch, m, n, dtype), mode="raw")
  return np.swapaxes(np.asarray(h), -1, -2), np.asarray(taus)


def _reflectors_beside(left):
  """Those of square matrices, and a matrix to multiply by their product."""

  def operands(rng, batch, m, n, dtype):
    del m
    c = matrices.general(rng, batch, *((n, 2) if left else (2, n)), dtype)
    return *_reflectors(rng, batch, n, n, dtype), c

  return operands


def _three_diagonals(rng, batch, m, n, dtype):
  dl, d, du = (vector(rng, batch, m, n, dtype)[0] for _ in range(3))
  return dl, d + 4 * d / np.abs(d), du, matrices.general(rng, batch, n, 2, dtype)


def _lu_ratio(operands, results):
  (a,), (packed, pivots, permutation) = operands, results
  l, u = unpack_lu(packed)
  expected = linalg.lu_pivots_to_permutation(pivots, a.shape[-2])
  np.testing.assert_array_equal(permutation, expected)
  return checks.factorisation(take(a, permutation, -2), l @ u, checks.eps(packed))


def _lu_oracle(a):
  if not a.size:
    return a, np.zeros(0, np.int32), np.arange(a.shape[0], dtype=np.int32)
  packed, pivots = scipy.linalg.lu_factor(a)
  return packed, pivots, _order(pivots, a.shape[0])


def _order(pivots, rows):
  permutation = np.arange(rows, dtype=np.int32)
  for i, j in enumerate(pivots):
    permutation[[i, j]] = permutation[[j, i]]
  return permutation


def _permutation_oracle(pivots):
  return (_order(pivots, len(pivots)),)


def _permutation_ratio(operands, results):
  (pivots,), (permutation,) = operands, results
  same = all(
      np.array_equal(_permutation_oracle(pivots[i])[0], permutation[i])
      for i in np.ndindex(pivots.shape[:-1]))
  return 0.0 if same else np.inf


def _cholesky_ratio(lower):
  def ratio(operands, results):
    (a,), (factor,) = operands, results
    f = checks.wide(factor)
    np.testing.assert_array_equal(f, np.tril(f) if lower else np.triu(f))
    product = f @ checks.adjoint(f) if lower else checks.adjoint(f) @ f
    return checks.factorisation(a, product, checks.eps(factor))

  return ratio


def _update_ratio(downdate):
  def ratio(operands, results):
    (r, w), (factor,) = map(checks.wide, operands), map(checks.wide, results)
    np.testing.assert_array_equal(factor, np.triu(factor))
    before, after = (checks.adjoint(x) @ x for x in (np.triu(r), factor))
    changed = (after if downdate else before) + w[..., :, None] * w.conj()[..., None, :]
    larger, smaller = (before, changed) if downdate else (changed, after)
    return checks.factorisation(larger, smaller, checks.eps(operands[0]))

  return ratio


def _qr_ratio(operands, results):
  (a,), (q, r) = operands, results
  np.testing.assert_array_equal(r, np.triu(r))
  return max(
      checks.orthogonality(q),
      checks.factorisation(a, checks.wide(q) @ checks.wide(r), checks.eps(q)))


def _qr_r_ratio(operands, results):
  # Rᴴ R = Aᴴ A, up to the rounding of the products; scaled, since squares overflow.
  (a,), (r,) = operands, results
  scale = 2.0 ** -np.frexp(np.max(np.abs(a), initial=0))[1]
  a, wide_r = scale * checks.wide(a), scale * checks.wide(r)
  return checks.factorisation(
      checks.adjoint(a) @ a, checks.adjoint(wide_r) @ wide_r, 2 * checks.eps(r))


def _qr_raw_ratio(operands, results):
  (a,), (h, taus) = operands, results
  m, n = a.shape[-2:]
  packed = np.swapaxes(np.asarray(h), -1, -2)
  full = np.zeros((*a.shape[:-2], m, m), packed.dtype)
  full[..., : min(m, n)] = packed[..., : min(m, n)]
  q = linalg.householder_product(full, taus)
  return _qr_ratio(operands, (np.asarray(q), np.triu(packed)))


def _qr_pivoted_ratio(operands, results):
  (a,), (q, r, permutation) = operands, results
  diagonal = np.abs(np.diagonal(r, axis1=-2, axis2=-1))
  # Descending, but for rounding errors, which are those of the largest. Of many columns geqp3,
  # which follows a norm by subtraction until half the digits are lost, keeps to half of them times
  # their number (Drmač and Bujanović, On the failure of rank-revealing QR software, 2008).
  eps = checks.eps(r)
  slack = eps * (10 * diagonal[..., :-1] + diagonal[..., :1])
  if r.shape[-1] > 300:
    slack = slack + r.shape[-1] * eps**0.5 * diagonal[..., :-1]
  assert np.all(diagonal[..., 1:] <= diagonal[..., :-1] + slack)
  return _qr_ratio((take(a, permutation, -1),), (q, r))


def _householder_ratio(operands, results):
  # The product of unit reflectors with LAPACK's scales is orthogonal; its values are the oracle's.
  (q,) = results
  return checks.orthogonality(q)


def _qr_oracle(mode):
  def oracle(a):
    k = a.shape[0] if mode == "full" else min(a.shape)
    if not a.size:
      return np.eye(a.shape[0], k, dtype=a.dtype), np.zeros((k, a.shape[1]), a.dtype)
    return scipy.linalg.qr(a, mode=mode)

  return oracle


def _qr_raw_oracle(a):
  if not a.size:
    return a.T, np.zeros(0, a.dtype)
  (packed, taus), _ = scipy.linalg.qr(a, mode="raw")
  return packed.T, taus


def _qr_pivoted_oracle(a):
  if not a.size:
    return *_qr_oracle("economic")(a), np.arange(a.shape[1])
  return scipy.linalg.qr(a, mode="economic", pivoting=True)


def _householder_oracle(a, taus):
  q = np.eye(*a.shape, dtype=np.complex128 if np.iscomplexobj(a) else np.float64)
  for k in reversed(range(len(taus))):
    v = np.concatenate([np.zeros(k), [1.0], a[k + 1 :, k]])
    q = q - taus[k] * np.outer(v, v.conj() @ q)
  return (q.astype(a.dtype),)


def _eigh_ratio(operands, results):
  (a,), (w, v) = operands, results
  w, wide_v = checks.wide(w), checks.wide(v)
  assert np.all(np.diff(w) >= 0)
  product = (wide_v * w[..., None, :]) @ checks.adjoint(wide_v)
  return max(checks.orthogonality(v), checks.factorisation(a, product, checks.eps(v)))


def _eigvalsh_ratio(operands, results):
  (a,), (w,) = operands, results
  expected = np.linalg.eigvalsh(checks.wide(a))
  scale = np.max(np.abs(expected), axis=-1, initial=0) * max(a.shape[-1], 1) * checks.eps(w)
  return checks.worst(np.max(np.abs(w - expected), axis=-1, initial=0), scale)


def _eigh_invariant(results):
  # A spectral function and the projectors onto the eigenvectors do not depend on their phases.
  w, v = results
  projectors = v.mT[..., :, None] * v.mT.conj()[..., None, :]
  return w, projectors


def _svd_ratio(operands, results):
  (a,), (u, s, vh) = operands, results
  k = s.shape[-1]
  s = checks.wide(s)
  assert np.all(s >= 0)
  assert np.all(np.diff(s) <= 0)
  product = checks.wide(u)[..., :k] * s[..., None, :] @ checks.wide(vh)[..., :k, :]
  return max(
      checks.orthogonality(u), checks.orthogonality(checks.adjoint(np.asarray(vh))),
      checks.factorisation(a, product, checks.eps(u)))


def _svdvals_ratio(operands, results):
  (a,), (s,) = operands, results
  assert np.all(s >= 0)
  assert np.all(np.diff(checks.wide(s)) <= 0)
  scale = 2.0 ** -np.frexp(np.max(np.abs(a), initial=0))[1]
  expected = np.linalg.svd(scale * checks.wide(a), compute_uv=False)
  bound = np.max(expected, axis=-1, initial=0) * max(*a.shape[-2:], 1) * checks.eps(s)
  error = np.max(np.abs(scale * checks.wide(s) - expected), axis=-1, initial=0)
  return checks.worst(error, bound)


def _svd_invariant(results):
  # A pair of vectors has a common phase, the columns that complete a basis any rotation.
  u, s, vh = results
  k = s.shape[-1]
  pairs = u[..., :k].mT[..., :, None] * vh[..., :k, None, :]
  parts = [x for v in (u, vh.mT.conj()) for x in (v[..., :k], v[..., k:])]
  # The product of a part without columns would be a constant of the whole batch.
  return s, pairs, *(x @ x.mT.conj() for x in parts if x.shape[-1] != 0)


def _svd_oracle(full_matrices):
  return lambda a: tuple(np.linalg.svd(a, full_matrices=full_matrices))


def _eig_ratio(operands, results):
  (a,), (w, v) = operands, results
  precision, a, w, v = checks.eps(v), checks.wide(a), checks.wide(w), checks.wide(v)
  # Of elements that are the largest but for rounding, any may be the real one.
  size = np.abs(v)
  largest = size >= (1 - 8 * precision) * size.max(-2, keepdims=True, initial=0)
  imaginary = np.where(largest, np.abs(v.imag), np.inf).min(-2, initial=np.inf)
  residual = checks.norm1(a @ v - v * w[..., None, :])
  return max(
      checks.worst(residual, checks.norm1(a) * checks.norm1(v) * precision),
      checks.worst(np.abs(np.linalg.norm(v, axis=-2) - 1), precision * max(v.shape[-1], 1)),
      checks.worst(imaginary, precision))


def _eig_left_ratio(operands, results):
  (a,), (w, left, right) = operands, results
  return max(
      _eig_ratio((checks.adjoint(a),), (np.conj(w), left)), _eig_ratio(operands, (w, right)))


def _eigvals_ratio(operands, results):
  # The trace of A and of its powers; eigenvalues one by one depend on their condition.
  (a,), (w,) = operands, results
  n = max(a.shape[-1], 1)
  a, wide_w = checks.wide(a), checks.wide(w)
  error = np.abs(np.trace(a, axis1=-2, axis2=-1) - wide_w.sum(-1))
  return checks.worst(error, n * checks.frobenius(a) * checks.eps(w))


def _eig_invariant(results):
  # The sign of a vector is LAPACK's choice.
  w, *vectors = results
  return w, *(v.mT[..., :, None] * v.mT[..., None, :] for v in vectors)


def _eig_oracle(left):
  def oracle(a):
    if not a.size:
      empty = a.astype(np.result_type(a, np.complex64))
      return empty[0:0, 0], *[empty] * (2 if left else 1)
    return scipy.linalg.eig(a, left=left)

  return oracle


def _schur_ratio(operands, results):
  (a,), (t, z) = operands, results
  below = np.tril(np.asarray(t), -1)
  if np.iscomplexobj(t):
    assert not below.any()
  else:
    # Two by two blocks on the diagonal, none beside another, of equal diagonals.
    blocks = np.diagonal(below, -1, -2, -1) != 0
    assert np.count_nonzero(below) == np.count_nonzero(blocks)
    assert not np.any(blocks[..., 1:] & blocks[..., :-1])
    diagonal = np.diagonal(t, axis1=-2, axis2=-1)
    assert np.all((diagonal[..., 1:] == diagonal[..., :-1]) | ~blocks)
  product = checks.wide(z) @ checks.wide(t) @ checks.adjoint(checks.wide(z))
  return max(checks.orthogonality(z), checks.factorisation(a, product, checks.eps(z)))


def _hessenberg_ratio(operands, results):
  (a,), (h, q) = operands, results
  h = np.asarray(h)
  assert not np.tril(h, -2).any()
  assert not np.tril(np.triu(h, -1), -1).imag.any()
  product = checks.wide(q) @ checks.wide(h) @ checks.adjoint(checks.wide(q))
  return max(checks.orthogonality(q), checks.factorisation(a, product, checks.eps(q)))


def _hessenberg_h_ratio(operands, results):
  (a,), (h,) = operands, results
  expected, q = linalg.hessenberg(a, calc_q=True)
  np.testing.assert_array_equal(h, expected)
  return _hessenberg_ratio(operands, (h, q))


def _unitary_similarity_invariant(results):
  # Rows and columns of the form, and columns of the vectors, have a common sign or phase.
  t, z = results
  return abs(t) ** 2, z.mT[..., :, None] * z.mT.conj()[..., None, :]


def _schur_invariant(results):
  # A quarter turn within a block, which exchanges its off-diagonal elements, is open too.
  t, z = results
  sums = (abs(t) ** 4).sum((-2, -1))
  return sums, *_unitary_similarity_invariant(linalg.rsf2csf(t, z))


def _schur_oracle(output):
  def oracle(a):
    complex_output = output == "complex"
    dtype = np.result_type(a, np.complex64) if complex_output else a.dtype
    if not a.size:
      return a.astype(dtype), a.astype(dtype)
    return scipy.linalg.schur(a, output="complex" if np.iscomplexobj(a) else output)

  return oracle


def _tridiagonal(rng, batch, m, n, dtype):
  del m
  d = matrices.general(rng, batch, 1, n, dtype)[..., 0, :]
  e = matrices.general(rng, batch, 1, max(n - 1, 0), dtype)[..., 0, :]
  return d.real.astype(dtype), e


def _tridiagonal_product(d, e):
  place = np.arange(d.shape[-1])
  a = np.zeros((*d.shape, d.shape[-1]), d.dtype)
  a[..., place, place] = d
  a[..., place[:-1], place[1:]] = e
  a[..., place[1:], place[:-1]] = np.conj(e)
  return a


def _pair(rng, batch, m, n, dtype):
  return (*hermitian(rng, batch, m, n, dtype), *positive_definite(rng, batch, m, n, dtype))


def _pencil_ratio(operands, results):
  # ‖A V - B V W‖ / (n ‖A‖ ‖V‖ eps) and B-orthonormality, for a B of condition about 1.
  (a, b), (w, v) = operands, results
  precision = checks.eps(v)
  a, b, w, v = map(checks.wide, (a, b, w, v))
  n = max(a.shape[-1], 1)
  assert np.all(np.diff(w) >= 0)
  identity = checks.adjoint(v) @ b @ v
  scale = checks.norm1(a) * checks.norm1(v) * n * precision
  return max(
      checks.worst(checks.norm1(a @ v - b @ v * w[..., None, :]), scale),
      checks.worst(checks.norm1(identity - np.eye(a.shape[-1])), n * precision))


def _solution_ratio(matrix):
  def ratio(operands, results):
    *a, b = operands
    (x,) = results
    return checks.solution(matrix(*a), x, b)

  return ratio


def _lower_part(a):
  return np.tril(a)


def _of_three_diagonals(dl, d, du):
  place = np.arange(d.shape[-1])
  a = np.zeros((*d.shape, d.shape[-1]), d.dtype)
  a[..., place, place] = d
  a[..., place[1:], place[:-1]] = dl[..., 1:]
  a[..., place[:-1], place[1:]] = du[..., :-1]
  return a


def _product_ratio(operands, results):
  # |C - A B| / (n |A| |B| eps), element by element.
  (a, b), (c,) = map(checks.wide, operands), results
  scale = max(a.shape[-1], 1) * (np.abs(a) @ np.abs(b)) * checks.eps(c)
  return checks.worst(np.abs(checks.wide(c) - a @ b), scale)


def _right_ratio(operands, results):
  # X Aᴴ = B is conj(A) Xᵀ = Bᵀ.
  (a, b), (x,) = operands, results
  swap = lambda y: np.swapaxes(np.asarray(y), -1, -2)
  return checks.solution(np.triu(a).conj(), swap(x), swap(b))


def _inv_ratio(operands, results):
  # ||I - A X|| / (n ||A|| ||X|| eps)
  (a,), (x,) = operands, results
  return checks.solution(a, x, np.broadcast_to(np.eye(a.shape[-1]), a.shape))


def _det_ratio(operands, results):
  # The determinant of a matrix near A: relative to the condition, and n steps of rounding.
  (a,), (det,) = operands, results
  expected = np.linalg.det(checks.wide(a))
  scale = np.abs(expected) * max(a.shape[-1], 1) ** 2 * checks.eps(det)
  return checks.worst(np.abs(checks.wide(det) - expected), scale)


def _update_oracle(sign):
  def oracle(r, w):
    if not r.size:
      return (r,)
    a = r.conj().T @ r + sign * np.outer(w, w.conj())
    return (np.linalg.cholesky(a).conj().T,)

  return oracle


def _slogdet_ratio(operands, results):
  (a,), (sign, logabsdet) = operands, results
  expected_sign, expected = np.linalg.slogdet(checks.wide(a))
  scale = max(a.shape[-1], 1) ** 2 * checks.eps(sign)
  return max(
      checks.worst(np.abs(sign - expected_sign), scale),
      checks.worst(np.abs(logabsdet - expected), scale * np.maximum(np.abs(expected), 1)))


def _solve_oracle(a, b):
  return (np.linalg.solve(a, b),)


NOT_CPU = ("cuda", "rocm", "tpu")

DECOMPOSITIONS: tuple[Case, ...] = (
    Case("cholesky", linalg.cholesky, positive_definite, (2,), _cholesky_ratio(lower=True),
         lambda a: (np.linalg.cholesky(a),), jnp.linalg.cholesky, lapack=True,
         timed=Timed(
             (POSITIVE_DEFINITE,), lambda n: n**3 / 3,
             called("linalg.cholesky", "numpy", "torch", "cupy", "mkl", "mkl_compact")
             | {"scale": lambda jax: jax.jit(lambda a: a * 1.5)})),
    Case("cholesky_upper", lambda a: linalg.cholesky(a, upper=True), positive_definite, (2,),
         _cholesky_ratio(lower=False), lambda a: (np.linalg.cholesky(a).conj().T,),
         lambda a: jnp.linalg.cholesky(a, upper=True), variant=True),
    Case("cholesky_update", linalg.cholesky_update, _factor_and_vector, (2, 1),
         _update_ratio(downdate=False), _update_oracle(1),
         # A loop over the batch: the primitive has no batching rule.
         lambda r, w: jax.lax.map(lambda one: jax.lax.linalg.cholesky_update(*one), (r, w)),
         stock_dtypes=(np.float32, np.float64),
         timed=Timed((UPPER_FACTOR, VECTOR), lambda n: 3 * n**2)),
    Case("cholesky_update_down", lambda r, w: linalg.cholesky_update(r, w, downdate=True),
         _factor_and_vector, (2, 1), _update_ratio(downdate=True), _update_oracle(-1),
         variant=True),
    Case("lu", linalg.lu, general, (2,), _lu_ratio, _lu_oracle, jax.lax.linalg.lu,
         rectangular=True, lapack=True,
         timed=Timed((GENERAL,), lambda n: 2 * n**3 / 3,
                     called("linalg.lu_factor", "torch", "mkl", "mkl_compact"))),
    Case("lu_pivots_to_permutation",
         lambda pivots: linalg.lu_pivots_to_permutation(pivots, pivots.shape[-1]),
         _pivots, (1,), _permutation_ratio, _permutation_oracle,
         lambda pivots: jax.lax.linalg.lu_pivots_to_permutation(pivots, pivots.shape[-1]),
         dtypes=(np.float32,),  # of integers: one dtype is as good as four
         differentiable=False, any_size=False,
         timed=Timed((PIVOTS,), lambda n: n, dtypes=(np.int32,))),
    Case("qr", linalg.qr, general, (2,), _qr_ratio, _qr_oracle("economic"), jnp.linalg.qr,
         rectangular=True, lapack=True,
         timed=Timed((GENERAL,), lambda n: 8 * n**3 / 3,
                     called("linalg.qr", "numpy", "torch", "cupy", "mkl", "mkl_compact"))),
    Case("qr_complete", lambda a: linalg.qr(a, mode="complete"), general, (2,), _qr_ratio,
         _qr_oracle("full"), lambda a: jnp.linalg.qr(a, mode="complete"), rectangular=True,
         variant=True),
    Case("qr_r", lambda a: linalg.qr(a, mode="r"), general, (2,), _qr_r_ratio,
         lambda a: (_qr_oracle("economic")(a)[1],), lambda a: jnp.linalg.qr(a, mode="r"),
         rectangular=True),
    Case("qr_raw", lambda a: linalg.qr(a, mode="raw"), general, (2,), _qr_raw_ratio,
         _qr_raw_oracle, lambda a: jnp.linalg.qr(a, mode="raw"), rectangular=True, slow=True,
         scan=True),
    Case("qr_pivoted", lambda a: linalg.qr(a, pivoting=True), general, (2,), _qr_pivoted_ratio,
         _qr_pivoted_oracle, lambda a: jax.lax.linalg.qr(a, pivoting=True, full_matrices=False),
         rectangular=True, absent=(("tpu",), "geqp3")),
    Case("householder_product", linalg.householder_product, _reflectors, (2, 1),
         _householder_ratio, _householder_oracle, jax.lax.linalg.householder_product, scan=True),
    case_of("ormqr", linalg.ormqr, _reflectors_beside(left=True), (2, 1, 2),
            lambda a, taus, c: (_householder_oracle(a, taus)[0] @ c,), jax.lax.linalg.ormqr, 4),
    case_of("ormqr_right_adjoint",
            lambda a, taus, c: linalg.ormqr(a, taus, c, left=False, transpose=True),
            _reflectors_beside(left=False), (2, 1, 2),
            lambda a, taus, c: (c @ _householder_oracle(a, taus)[0].conj().T,),
            lambda a, taus, c: jax.lax.linalg.ormqr(a, taus, c, left=False, transpose=True), 4,
            variant=True),
    Case("eigh", linalg.eigh, hermitian, (2,), _eigh_ratio,
         lambda a: tuple(scipy.linalg.eigh(a, driver="evd")) if a.size else (a.real[0:0, 0], a),
         jnp.linalg.eigh, invariant=_eigh_invariant, limit=60.0, lapack=True,
         timed=Timed((HERMITIAN,), lambda n: 9 * n**3,
                     called("linalg.eigh", "numpy", "torch", "cupy", "mkl"))),
    Case("eigvalsh", linalg.eigvalsh, hermitian, (2,), _eigvalsh_ratio,
         lambda a: (np.linalg.eigvalsh(a),), jnp.linalg.eigvalsh, limit=60.0,
         timed=Timed((HERMITIAN,), lambda n: 4 * n**3 / 3,
                     called("linalg.eigvalsh", "numpy", "torch", "cupy", "mkl"))),
    Case("svd", linalg.svd, general, (2,), _svd_ratio, _svd_oracle(full_matrices=True),
         jnp.linalg.svd, invariant=_svd_invariant, rectangular=True, limit=50.0, slow=True,
         timed=Timed((GENERAL,), lambda n: 22 * n**3,
                     called("linalg.svd", "numpy", "torch", "mkl"))),
    Case("svd_thin", lambda a: linalg.svd(a, full_matrices=False), general, (2,), _svd_ratio,
         _svd_oracle(full_matrices=False), lambda a: jnp.linalg.svd(a, full_matrices=False),
         invariant=_svd_invariant, rectangular=True, limit=50.0, slow=True, variant=True),
    Case("svdvals", linalg.svdvals, general, (2,), _svdvals_ratio,
         lambda a: (np.linalg.svd(a, compute_uv=False),), jnp.linalg.svdvals, rectangular=True,
         limit=50.0, slow=True,
         timed=Timed((GENERAL,), lambda n: 8 * n**3 / 3,
                     called("linalg.svdvals", "numpy", "torch", "mkl"))),
    Case("eig", linalg.eig, square_general, (2,), _eig_ratio, _eig_oracle(left=False),
         jnp.linalg.eig, invariant=_eig_invariant, limit=20.0, complex=True, slow=True,
         absent=(("tpu",), "eig"), unordered=True,
         timed=Timed((GENERAL,), lambda n: 25 * n**3, called("linalg.eig", "numpy", "torch"))),
    Case("eig_left", lambda a: linalg.eig(a, left=True), square_general, (2,), _eig_left_ratio,
         _eig_oracle(left=True), lambda a: jax.lax.linalg.eig(a, compute_left_eigenvectors=True),
         invariant=_eig_invariant, limit=20.0, complex=True, slow=True,
         absent=(("tpu",), "eig"), unordered=True),
    Case("eigvals", linalg.eigvals, square_general, (2,), _eigvals_ratio,
         lambda a: (scipy.linalg.eigvals(a) if a.size else np.zeros(0, complex),),
         jnp.linalg.eigvals, limit=20.0, complex=True, slow=True, absent=(("tpu",), "eig"),
         unordered=True,
         timed=Timed((GENERAL,), lambda n: 10 * n**3,
                     called("linalg.eigvals", "numpy", "torch"))),
    Case("schur", linalg.schur, square_general, (2,), _schur_ratio, _schur_oracle("real"),
         jax.scipy.linalg.schur, invariant=_schur_invariant, limit=20.0, slow=True,
         absent=(NOT_CPU, "schur"), unordered=True, scan=True,
         timed=Timed((GENERAL,), lambda n: 25 * n**3)),
    Case("schur_complex", lambda a: linalg.schur(a, "complex"), square_general, (2,),
         _schur_ratio, _schur_oracle("complex"), lambda a: jax.scipy.linalg.schur(a, "complex"),
         invariant=_unitary_similarity_invariant, limit=20.0, complex=True, slow=True,
         variant=True, absent=(NOT_CPU, "schur"), unordered=True, scan=True),
    Case("hessenberg", lambda a: linalg.hessenberg(a, calc_q=True), square_general, (2,),
         _hessenberg_ratio,
         lambda a: scipy.linalg.hessenberg(a, calc_q=True) if a.size else (a, a),
         lambda a: jax.scipy.linalg.hessenberg(a, calc_q=True), slow=True,
         absent=(NOT_CPU, "hessenberg"), scan=True),
    Case("hessenberg_h", linalg.hessenberg, square_general, (2,), _hessenberg_h_ratio,
         lambda a: (scipy.linalg.hessenberg(a) if a.size else a,), jax.scipy.linalg.hessenberg,
         slow=True, absent=(NOT_CPU, "hessenberg"), scan=True),
    Case("eigh_tridiagonal", linalg.eigh_tridiagonal, _tridiagonal, (1, 1),
         lambda operands, results: _eigh_ratio((_tridiagonal_product(*operands),), results),
         lambda d, e: tuple(np.linalg.eigh(_tridiagonal_product(d, e))),
         invariant=_eigh_invariant, limit=60.0, slow=True),
    Case("eigvalsh_tridiagonal", lambda d, e: linalg.eigh_tridiagonal(d, e, eigvals_only=True),
         _tridiagonal, (1, 1),
         lambda operands, results: _eigvalsh_ratio((_tridiagonal_product(*operands),), results),
         lambda d, e: (np.linalg.eigvalsh(_tridiagonal_product(d, e)),),
         jax.vmap(lambda d, e: jax.scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True)),
         limit=60.0, slow=True),
    Case("eigh_generalized", linalg.eigh_generalized, _pair, (2, 2), _pencil_ratio,
         lambda a, b: scipy.linalg.eigh(a, b) if a.size else (a.real[0:0, 0], a),
         invariant=_eigh_invariant, limit=60.0, slow=True),
    Case("triangular_solve",
         lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True),
         with_columns(_lower), (2, 2), _solution_ratio(_lower_part),
         lambda a, b: _solve_oracle(np.tril(a), b),
         lambda a, b: jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
         lapack=True,
         # As many right-hand sides as rows, where the other solves have one: trsm, not trsv.
         timed=Timed((LOWER_FACTOR, GENERAL), lambda n: n**3, {
             "torch": lambda torch: lambda a, b: torch.linalg.solve_triangular(
                 a, b, upper=False)})),
    Case("triangular_solve_right",
         lambda a, b: linalg.triangular_solve(a, b, transpose_a=True, conjugate_a=True),
         _upper_right, (2, 2), _right_ratio,
         lambda a, b: (np.linalg.solve(np.triu(a).conj(), b.T).T,),
         lambda a, b: jax.lax.linalg.triangular_solve(a, b, transpose_a=True, conjugate_a=True),
         variant=True),
    Case("cho_solve", lambda l, b: linalg.cho_solve((l, True), b),
         with_columns(cholesky_factor), (2, 2), _solution_ratio(cholesky_product),
         lambda l, b: _solve_oracle(cholesky_product(l), b),
         lambda l, b: jax.scipy.linalg.cho_solve((l, True), b),
         timed=Timed((LOWER_FACTOR, COLUMN), lambda n: 2 * n**2, {
             "torch": lambda torch: lambda c, b: torch.cholesky_solve(b, c)})),
    Case("lu_solve", lambda lu, pivots, b: linalg.lu_solve((lu, pivots), b),
         with_columns(lu_factors), (2, 1, 2), _solution_ratio(lu_product),
         lambda lu, pivots, b: _solve_oracle(lu_product(lu, pivots), b),
         lambda lu, pivots, b: jax.scipy.linalg.lu_solve((lu, pivots), b),
         timed=Timed((FACTOR, PIVOTS, COLUMN), lambda n: 2 * n**2, {
             "torch": lambda torch: lambda lu, p, b: torch.linalg.lu_solve(lu, p + 1, b)})),
    Case("tridiagonal_solve", linalg.tridiagonal_solve, _three_diagonals, (1, 1, 1, 2),
         _solution_ratio(_of_three_diagonals),
         lambda dl, d, du, b: _solve_oracle(_of_three_diagonals(dl, d, du), b),
         jax.lax.linalg.tridiagonal_solve,
         timed=Timed((VECTOR, DIAGONAL, VECTOR, COLUMN), lambda n: 8 * n)),
    Case("solve", linalg.solve, with_columns(square), (2, 2), _solution_ratio(lambda a: a),
         _solve_oracle, jnp.linalg.solve, lapack=True,
         timed=Timed((GENERAL, COLUMN), lambda n: 2 * n**3 / 3 + 2 * n**2,
                     called("linalg.solve", "numpy", "torch", "cupy", "mkl"))),
    Case("inv", linalg.inv, square, (2,), _inv_ratio, lambda a: (np.linalg.inv(a),),
         jnp.linalg.inv, lapack=True,
         timed=Timed((GENERAL,), lambda n: 2 * n**3,
                     called("linalg.inv", "numpy", "torch", "cupy", "mkl"))),
    Case("det", linalg.det, _unit_scaled, (2,), _det_ratio, lambda a: (np.linalg.det(a),),
         jnp.linalg.det, closed_form=3,
         timed=Timed((GENERAL,), lambda n: 2 * n**3 / 3,
                     called("linalg.det", "numpy", "torch", "cupy"))),
    Case("slogdet", linalg.slogdet, square, (2,), _slogdet_ratio,
         lambda a: tuple(np.linalg.slogdet(a)), jnp.linalg.slogdet, closed_form=3,
         timed=Timed((GENERAL,), lambda n: 2 * n**3 / 3,
                     called("linalg.slogdet", "numpy", "torch", "cupy"))),
    Case("matmul", linalg.matmul, two_square, (2, 2), _product_ratio, lambda a, b: (a @ b,),
         jnp.linalg.matmul, closed_form=3, xla=True,
         timed=Timed((GENERAL, GENERAL), lambda n: 2 * n**3,
                     called("matmul", "numpy", "torch", "cupy"))),
)
