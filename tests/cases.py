"""The table of operations that drives every suite: a new operation needs one entry here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import scipy.linalg

import checks
import linalg
import matrices

DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


@dataclass(frozen=True)
class Case:
  """One operation, as the suites use it.

  Attributes:
    name: the test's id.
    call: the operation; an array or a tuple of arrays from arrays with any batch dimensions.
    operands: (rng, batch shape, m, n, dtype) -> operands. Square operations ignore m.
    ranks: the number of core dimensions of each operand.
    ratio: (operands, results) -> the worst scaled residual of the batch.
    oracle: SciPy's or NumPy's answer for one matrix, a tuple; its invariants equal ours up to
      rounding.
    invariant: results -> results without the choice of signs or bases that the operation leaves
      open. For derivatives the suites drop integers among the results.
    rectangular: whether m != n makes sense.
    limit: what `ratio` must not exceed.
  """

  name: str
  call: Callable[..., Any]
  operands: Callable[..., tuple[np.ndarray, ...]]
  ranks: tuple[int, ...]
  ratio: Callable[..., float]
  oracle: Callable[..., tuple[np.ndarray, ...]]
  invariant: Callable[..., Any] = lambda results: results
  rectangular: bool = False
  limit: float = 30.0

  def expected(self, *operands) -> tuple[np.ndarray, ...]:
    """The oracle's invariant results for one matrix."""
    return tuple(np.asarray(x) for x in self.invariant(self.oracle(*operands)))

  def results(self, *operands) -> tuple[jax.Array, ...]:
    results = self.call(*operands)
    return tuple(results) if isinstance(results, tuple) else (results,)


def _general(rng, batch, m, n, dtype):
  return (matrices.general(rng, batch, m, n, dtype),)


def _square(rng, batch, m, n, dtype):
  del m
  return (matrices.well_conditioned(rng, batch, n, dtype),)


def _unit_scaled(rng, batch, m, n, dtype):
  """Square, with a determinant that float32 can hold."""
  (a,) = _square(rng, batch, m, n, dtype)
  return ((a / (2 * np.sqrt(n + 1))).astype(dtype),)


def _hermitian(rng, batch, m, n, dtype):
  del m
  return (matrices.hermitian(rng, batch, n, dtype),)


def _positive_definite(rng, batch, m, n, dtype):
  del m
  return (matrices.positive_definite(rng, batch, n, dtype),)


def _pivots(rng, batch, m, n, dtype):
  del m, dtype
  low = np.broadcast_to(np.arange(n), (*batch, n))
  return (rng.integers(low, max(n, 1)).astype(np.int32),)


def _with_columns(make, k=2):
  def operands(rng, batch, m, n, dtype):
    return (*make(rng, batch, m, n, dtype), matrices.general(rng, batch, n, k, dtype))

  return operands


def _lower(rng, batch, m, n, dtype):
  del m
  return (matrices.triangular(rng, batch, n, dtype, lower=True),)


def _upper_right(rng, batch, m, n, dtype):
  """For X op(A) = B: B's columns are A's size."""
  del m
  a = matrices.triangular(rng, batch, n, dtype, lower=False)
  return a, matrices.general(rng, batch, 3, n, dtype)


def _cholesky_factor(rng, batch, m, n, dtype):
  (a,) = _positive_definite(rng, batch, m, n, dtype)
  return (np.linalg.cholesky(a),) if n else (a,)


def _lu_factors(rng, batch, m, n, dtype):
  (a,) = _square(rng, batch, m, n, dtype)
  packed, pivots, _ = linalg.lu(a)
  return np.asarray(packed), np.asarray(pivots)


def _reflectors(rng, batch, m, n, dtype):
  m = max(m, n)
  h, taus = linalg.qr(matrices.general(rng, batch, m, n, dtype), mode="raw")
  return np.swapaxes(np.asarray(h), -1, -2), np.asarray(taus)


def _unpack_lu(packed):
  packed = checks.wide(packed)
  m, n = packed.shape[-2:]
  k = min(m, n)
  l = np.tril(packed[..., :k], -1) + np.eye(m, k)
  return l, np.triu(packed[..., :k, :])


def _take(a, order, axis):
  order = np.expand_dims(np.asarray(order), -1 if axis == -2 else -2)
  return np.take_along_axis(np.asarray(a), order, axis=axis)


def _lu_ratio(operands, results):
  (a,), (packed, pivots, permutation) = operands, results
  l, u = _unpack_lu(packed)
  expected = linalg.lu_pivots_to_permutation(pivots, a.shape[-2])
  np.testing.assert_array_equal(permutation, expected)
  return checks.factorisation(_take(a, permutation, -2), l @ u, checks.eps(packed))


def _lu_oracle(a):
  if not a.size:
    return a, np.zeros(0, np.int32), np.arange(a.shape[0], dtype=np.int32)
  packed, pivots = scipy.linalg.lu_factor(a)
  permutation = np.arange(a.shape[0], dtype=np.int32)
  for i, j in enumerate(pivots):
    permutation[[i, j]] = permutation[[j, i]]
  return packed, pivots, permutation


def _permutation_oracle(pivots):
  permutation = np.arange(len(pivots), dtype=np.int32)
  for i, j in enumerate(pivots):
    permutation[[i, j]] = permutation[[j, i]]
  return (permutation,)


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
  slack = 1 + 10 * checks.eps(r)
  assert np.all(diagonal[..., 1:] <= slack * diagonal[..., :-1])
  return _qr_ratio((_take(a, permutation, -1),), (q, r))


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


def _solution_ratio(matrix):
  def ratio(operands, results):
    *a, b = operands
    (x,) = results
    return checks.solution(matrix(*a), x, b)

  return ratio


def _lower_part(a):
  return np.tril(a)


def _cholesky_product(l):
  return checks.wide(l) @ checks.adjoint(checks.wide(l))


def _lu_product(packed, pivots):
  l, u = _unpack_lu(packed)
  permutation = linalg.lu_pivots_to_permutation(pivots, packed.shape[-1])
  return _take(l @ u, np.argsort(permutation), -2)


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


def _slogdet_ratio(operands, results):
  (a,), (sign, logabsdet) = operands, results
  expected_sign, expected = np.linalg.slogdet(checks.wide(a))
  scale = max(a.shape[-1], 1) ** 2 * checks.eps(sign)
  return max(
      checks.worst(np.abs(sign - expected_sign), scale),
      checks.worst(np.abs(logabsdet - expected), scale * np.maximum(np.abs(expected), 1)))


def _solve_oracle(a, b):
  return (np.linalg.solve(a, b),)


CASES = (
    Case("cholesky", linalg.cholesky, _positive_definite, (2,), _cholesky_ratio(lower=True),
         lambda a: (np.linalg.cholesky(a),)),
    Case("cholesky_upper", lambda a: linalg.cholesky(a, upper=True), _positive_definite, (2,),
         _cholesky_ratio(lower=False), lambda a: (np.linalg.cholesky(a).conj().T,)),
    Case("lu", linalg.lu, _general, (2,), _lu_ratio, _lu_oracle, rectangular=True),
    Case("lu_pivots_to_permutation",
         lambda pivots: linalg.lu_pivots_to_permutation(pivots, pivots.shape[-1]),
         _pivots, (1,), _permutation_ratio, _permutation_oracle),
    Case("qr", linalg.qr, _general, (2,), _qr_ratio, _qr_oracle("economic"), rectangular=True),
    Case("qr_complete", lambda a: linalg.qr(a, mode="complete"), _general, (2,), _qr_ratio,
         _qr_oracle("full"), rectangular=True),
    Case("qr_r", lambda a: linalg.qr(a, mode="r"), _general, (2,), _qr_r_ratio,
         lambda a: (_qr_oracle("economic")(a)[1],), rectangular=True),
    Case("qr_raw", lambda a: linalg.qr(a, mode="raw"), _general, (2,), _qr_raw_ratio,
         _qr_raw_oracle, rectangular=True),
    Case("qr_pivoted", lambda a: linalg.qr(a, pivoting=True), _general, (2,), _qr_pivoted_ratio,
         _qr_pivoted_oracle, rectangular=True),
    Case("householder_product", linalg.householder_product, _reflectors, (2, 1),
         _householder_ratio, _householder_oracle),
    Case("eigh", linalg.eigh, _hermitian, (2,), _eigh_ratio,
         lambda a: tuple(scipy.linalg.eigh(a, driver="evd")) if a.size else (a.real[0:0, 0], a),
         invariant=_eigh_invariant, limit=60.0),
    Case("eigvalsh", linalg.eigvalsh, _hermitian, (2,), _eigvalsh_ratio,
         lambda a: (np.linalg.eigvalsh(a),), limit=60.0),
    Case("triangular_solve",
         lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True),
         _with_columns(_lower), (2, 2), _solution_ratio(_lower_part),
         lambda a, b: _solve_oracle(np.tril(a), b)),
    Case("triangular_solve_right",
         lambda a, b: linalg.triangular_solve(a, b, transpose_a=True, conjugate_a=True),
         _upper_right, (2, 2), _right_ratio,
         lambda a, b: (np.linalg.solve(np.triu(a).conj(), b.T).T,)),
    Case("cho_solve", lambda l, b: linalg.cho_solve((l, True), b),
         _with_columns(_cholesky_factor), (2, 2), _solution_ratio(_cholesky_product),
         lambda l, b: _solve_oracle(_cholesky_product(l), b)),
    Case("lu_solve", lambda lu, pivots, b: linalg.lu_solve((lu, pivots), b),
         _with_columns(_lu_factors), (2, 1, 2), _solution_ratio(_lu_product),
         lambda lu, pivots, b: _solve_oracle(_lu_product(lu, pivots), b)),
    Case("solve", linalg.solve, _with_columns(_square), (2, 2), _solution_ratio(lambda a: a),
         _solve_oracle),
    Case("inv", linalg.inv, _square, (2,), _inv_ratio, lambda a: (np.linalg.inv(a),)),
    Case("det", linalg.det, _unit_scaled, (2,), _det_ratio, lambda a: (np.linalg.det(a),)),
    Case("slogdet", linalg.slogdet, _square, (2,), _slogdet_ratio,
         lambda a: tuple(np.linalg.slogdet(a))),
)

RECTANGULAR_CASES = tuple(case for case in CASES if case.rectangular)
DIFFERENTIABLE_CASES = tuple(case for case in CASES if case.name != "lu_pivots_to_permutation")
