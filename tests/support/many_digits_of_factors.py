"""LAPACK's factors and solutions by block recursions, in many digits: see many_digits.py.

LAPACK's choices, such as pivots, signs and the order of eigenvalues, are made at the rounded
matrix. An oracle is smooth where that choice stays.
"""

import math

import mpmath
import numpy as np

import linalg
import linalg.scipy
from linalg.scipy._qz import pencil_values
from many_digits import ORACLES as ORACLES_OF_MATRICES
from many_digits import (
  _adjoint,
  _as_array,
  _as_matrix,
  _eye,
  _log,
  _of_each,
  _phase_and_logarithm,
  _plain,
  cholesky,
  det,
  eig,
  exact,
  inv,
  rounded,
  solve,
  svd,
)


def _norm(x):
  return mpmath.sqrt((abs(x) ** 2).sum()) if len(x) else mpmath.mpf(0)


# Reflectors


def _reflector(x):
  """(beta, tau, v) with Hᴴ x = beta e₁ and H = I - tau v vᴴ, v₁ = 1; LAPACK's larfg."""
  alpha, rest = x[0], x[1:]
  if _norm(rest) == 0 and mpmath.im(alpha) == 0:
    return alpha, mpmath.mpf(0), np.concatenate([_eye(1)[0], rest])
  beta = _norm(x) * (-1 if mpmath.re(alpha) >= 0 else 1)
  return beta, (beta - alpha) / beta, np.concatenate([_eye(1)[0], rest / (alpha - beta)])


def _reflected(a, first):
  """(packed, taus) of the reduction of each column k below row k + `first`.

  Rows alone are reflected for QR, and columns too, by a similarity, for Hessenberg's form.
  """
  a = a.copy() + a.ravel()[0] * 0
  m, n = a.shape
  taus = []
  for k in range(min(m, n) - first):
    row = k + first
    beta, tau, v = _reflector(a[row:, k])
    rest = slice(k + 1, None)
    a[row:, rest] = a[row:, rest] - _conjugate(tau) * np.outer(v, v.conj() @ a[row:, rest])
    if first:
      a[:, row:] = a[:, row:] - tau * np.outer(a[:, row:] @ v, v.conj())
    a[row, k], a[row + 1 :, k] = beta, v[1:]
    taus.append(tau)
  return a, np.array(taus, object)


def _conjugate(x):
  return mpmath.conj(x) if isinstance(x, mpmath.mpc) else x


def _product_of_reflectors(packed, taus, size):
  """The first `size` columns of H₁ H₂ …"""
  m = len(packed)
  q = _eye(m)[:, :size]
  for k in reversed(range(len(taus))):
    v = np.concatenate([exact(np.zeros(k)), _eye(1)[0], packed[k + 1 :, k]])
    q = q - taus[k] * np.outer(v, v.conj() @ q)
  return q


def _qr(a):
  """The factors with a positive diagonal of R, by Cholesky's of Aᴴ A.

  Reflectors would have no derivative at a triangular matrix.
  """
  k = min(a.shape)
  first = a[:, :k]
  r = _adjoint(cholesky(_adjoint(first) @ first))
  q = first @ inv(r)
  return q, np.concatenate([r, _adjoint(q) @ a[:, k:]], axis=1)


def _qr_complete(a):
  packed, taus = _reflected(a, 0)
  return _product_of_reflectors(packed, taus, len(a)), np.triu(packed)


def _qr_raw(a):
  packed, taus = _reflected(a, 0)
  return packed.T, taus


def _qr_pivoted(a):
  (plain,) = _plain(a)
  return _qr(a[:, np.asarray(linalg.qr(plain, pivoting=True)[2])])


def _q_of(a, taus):
  return _product_of_reflectors(a, taus, a.shape[1])


def _hessenberg(a):
  packed, taus = _reflected(a, 1)
  # The reflectors of Hessenberg's form begin one row below.
  inner = _product_of_reflectors(packed[1:], taus, len(a) - 1)
  q = _eye(len(a)) + inner[0, 0] * 0
  q[1:, 1:] = inner
  return np.triu(packed, -1), q


# LU


def _lu(a):
  """The packed factors at LAPACK's pivots."""
  (plain,) = _plain(a)
  order = np.asarray(linalg.lu(plain)[2])
  a = a[order].copy()
  m, n = a.shape
  for k in range(min(m, n)):
    a[k + 1 :, k] = a[k + 1 :, k] / a[k, k]
    rest = slice(k + 1, None)
    a[rest, rest] = a[rest, rest] - np.outer(a[rest, k], a[k, rest])
  return a


def _lu_solve(packed, pivots, b):
  n = len(packed)
  order = np.arange(n)
  for k, pivot in enumerate(np.asarray(pivots)):
    order[[k, pivot]] = order[[pivot, k]]
  l = np.tril(packed, -1) + _eye(n)
  return solve(l @ np.triu(packed), b[order])


def _updated(sign):
  def of(r, w):
    r = np.triu(r)
    return _adjoint(cholesky(_adjoint(r) @ r + sign * np.outer(w, w.conj())))

  return of


def _solve_logdet(a, b):
  return solve(a, b), *_phase_and_logarithm(a)


# Eigenvalues of general matrices


def place(w):
  """Numbers that order eigenvalues. Roundings of conjugate pairs do not change the order."""
  return w.real + math.sqrt(2) * w.imag


def _by_order(w):
  return np.argsort(place(rounded(w)))


def _normalized(v):
  """Vectors of length 1 with a real largest element: up to a sign, those of LAPACK."""
  columns = []
  for x in v.T:
    x = x / _norm(x)
    largest = x[np.argmax(abs(rounded(x)))]
    columns.append(x * mpmath.conj(largest) / abs(largest))
  return np.array(columns, object).T


def _products(v):
  """v vᵀ of each column, which has no sign."""
  v = _normalized(v)
  return v.T[:, :, None] * v.T[:, None, :]


def _eigenvalues(a):
  w = eig(a)[0]
  return w[_by_order(w)]


def _eig(left):
  def of(a):
    w, v = eig(a)
    order = _by_order(w)
    w, v = w[order], v[:, order]
    vectors = [_adjoint(inv(v)), v] if left else [v]
    return w, *map(_products, vectors)

  return of


def _nearest(values, w):
  """The order of w in which it is nearest to the values."""
  order = []
  for distance in abs(values[:, None] - rounded(w)):
    distance[order] = np.inf
    order.append(np.argmin(distance))
  return order


def _schur(form, factors=linalg.schur):
  """The invariants of the complex form: |T|², and the projectors onto the columns of Z.

  The columns are the orthonormal form of the eigenvectors in the order of our eigenvalues.
  """

  def of(a):
    (plain,) = _plain(a)
    values = np.diagonal(linalg.rsf2csf(*factors(plain, form))[0])
    w, v = eig(a)
    z = _as_array(mpmath.qr(_as_matrix(v[:, _nearest(values, w)]), mode="skinny")[0])
    t = np.triu(_adjoint(z) @ a @ z)
    return abs(t) ** 2, z.T[:, :, None] * z.T.conj()[:, None, :]

  return of


# Pencils


def _pencil_eig(a, b):
  """Eigenvalues and right vectors of a pencil with a regular B."""
  return eig(inv(b) @ a)


def _generalized(a, b):
  w, v = _pencil_eig(a, b)
  order = _by_order(w)
  v = _normalized(v[:, order])
  return w[order], v.T[:, :, None] * v.T.conj()[:, None, :]


def _values_of(s, t):
  alpha, beta = map(np.asarray, pencil_values(s, t))
  return alpha / beta


def _qz(factors):
  """|S|², |T|² and the projectors onto columns of Q and Z, in the order of our eigenvalues."""

  def of(a, b):
    plain = _plain(a, b)
    s, t, *_ = map(np.asarray, factors(*plain))
    values = _values_of(s, t)
    w, v = _pencil_eig(a, b)
    v = v[:, _nearest(values, w)]
    real = not np.iscomplexobj(s)
    if real:
      for k in np.flatnonzero(np.diagonal(s, -1)):
        v[:, k], v[:, k + 1] = _of_each(mpmath.re)(v[:, k]), _of_each(mpmath.im)(v[:, k])
      # Others are real up to a phase.
      turned = [x * mpmath.conj(x[np.argmax(abs(rounded(x)))]) for x in v.T]
      v = np.array([_of_each(mpmath.re)(x) for x in turned], object).T
    orthonormal = lambda x: _as_array(mpmath.qr(_as_matrix(x), mode="skinny")[0])
    z = orthonormal(v)
    q = orthonormal(b @ z)
    if real:
      for k in np.flatnonzero(np.diagonal(s, -1)):
        own = slice(k, k + 2)
        u, _, wh = svd((q.T @ b @ z)[own, own])
        q[:, own], z[:, own] = q[:, own] @ u, z[:, own] @ wh.T
    square = lambda x: abs(_adjoint(q) @ x @ z) ** 2
    dyads = lambda x: x.T[:, :, None] * x.T.conj()[:, None, :]
    s2, t2 = square(a), square(b)
    return (np.triu(s2, -1), np.triu(t2), dyads(q), dyads(z))

  return of


def _ordqz(a, b):
  results = _qz(lambda a, b: _reordered(a, b))(a, b)
  s, t, *_ = map(np.asarray, _reordered(*_plain(a, b)))
  values = _values_of(s, t)
  w = _pencil_eig(a, b)[0]
  return *results, w[_nearest(values, w)]


def _reordered(a, b):
  s, t, _, _, q, z = linalg.scipy.ordqz(a, b, "iuc")
  return s, t, q, z


# Block-tridiagonal systems and state-space models


def dense_blocks(lower, diagonal, upper):
  steps, d, _ = diagonal.shape
  a = exact(np.zeros((steps * d, steps * d))) + diagonal.ravel()[0] * 0
  at = lambda t: slice(t * d, (t + 1) * d)
  for t in range(steps):
    a[at(t), at(t)] = diagonal[t]
    if t + 1 < steps:
      a[at(t + 1), at(t)], a[at(t), at(t + 1)] = lower[t], upper[t]
  return a


def _definite_blocks(diagonal, lower):
  a = dense_blocks(lower, diagonal, lower.swapaxes(1, 2).conj())
  return (a + _adjoint(a)) / 2


def _logdet(a):
  return _log(abs(det(a)))


def _block_tridiagonal_logdet(diagonal, lower, b):
  a = _definite_blocks(diagonal, lower)
  return solve(a, b.reshape(len(a), -1)).reshape(b.shape), _logdet(a)


def _block_tridiagonal_cholesky(diagonal, lower, b):
  steps, d, k = b.shape
  a = _definite_blocks(diagonal, lower)
  columns = b.reshape(steps * d, k)
  inverse = inv(a)
  blocks = inverse.reshape(steps, d, steps, d)
  half = solve(_adjoint(cholesky(a)), columns)
  return (
      (inverse @ columns).reshape(b.shape), _logdet(a),
      np.stack([blocks[t, :, t] for t in range(steps)]),
      np.stack([blocks[t + 1, :, t] for t in range(steps - 1)]), half.reshape(b.shape))


def _block_tridiagonal_solve(lower, diagonal, upper, b):
  a = dense_blocks(lower, diagonal, upper)
  return solve(a, b.reshape(len(a), -1)).reshape(b.shape)


def _filtered(y, f, q, h, r, mean, cov):
  """(means, covariances) filtered and ahead, and the logarithm of the density, by the textbook."""
  q, r, cov = ((x + x.T) / 2 for x in (q, r, cov))
  means, covs, ahead, density = [], [], [], mpmath.mpf(0)
  for t in range(len(y)):
    if t:
      mean, cov = f[t - 1] @ mean, f[t - 1] @ cov @ f[t - 1].T + q
      ahead.append((mean, cov))
    v, s = y[t] - h @ mean, h @ cov @ h.T + r
    inverse = inv(s)
    gain = cov @ h.T @ inverse
    density -= (v @ inverse @ v + _logdet(s) + len(v) * mpmath.log(2 * mpmath.pi)) / 2
    mean, cov = mean + gain @ v, cov - gain @ h @ cov
    means.append(mean)
    covs.append(cov)
  return means, covs, ahead, density


def _kalman_filter(*operands):
  means, covs, _, density = _filtered(*operands)
  return np.stack(means), np.stack(covs), density


def _kalman_smoother(*operands):
  """Rauch, Tung and Striebel, AIAA J. 3 (1965)."""
  means, covs, ahead, density = _filtered(*operands)
  f = operands[1]
  for t in reversed(range(len(ahead))):
    mean, cov = ahead[t]
    gain = covs[t] @ f[t].T @ inv(cov)
    means[t] = means[t] + gain @ (means[t + 1] - mean)
    covs[t] = covs[t] + gain @ (covs[t + 1] - cov) @ gain.T
  return np.stack(means), np.stack(covs), density


# For each case of the catalogue, its function in many digits; and for functions without cases.
ORACLES = {
    "cholesky_update": _updated(1),
    "cholesky_update_down": _updated(-1),
    "solve_logdet": _solve_logdet,
    "solve_logdet_pos": _solve_logdet,
    "factorize_cholesky": lambda a, b: (solve(a, b), _phase_and_logarithm(a)[1]),
    "factorize_lu": _solve_logdet,
    "factorize_qr": solve,
    "lu": _lu,
    "lu_solve": _lu_solve,
    "qr": _qr,
    "qr_r": lambda a: _qr(a)[1],
    "qr_complete": _qr_complete,
    "qr_raw": _qr_raw,
    "qr_pivoted": _qr_pivoted,
    "householder_product": _q_of,
    "ormqr": lambda a, taus, c: _q_of(a, taus) @ c,
    "ormqr_right_adjoint": lambda a, taus, c: c @ _adjoint(_q_of(a, taus)),
    "eigvals": _eigenvalues,
    "eig": _eig(left=False),
    "eig_left": _eig(left=True),
    "schur": _schur("real"),
    "schur_complex": _schur("complex"),
    "schur_sorted": _schur("real", lambda a, form: linalg.scipy.schur(a, form, sort="lhp")[:2]),
    "qz": _qz(linalg.scipy.qz),
    "ordqz": _ordqz,
    "eig_generalized": _generalized,
    "eig_left_generalized": _generalized,
    "eigvals_generalized": lambda a, b: _generalized(a, b)[0],
    "hessenberg": _hessenberg,
    "hessenberg_h": lambda a: _hessenberg(a)[0],
    "block_tridiagonal_cholesky": _block_tridiagonal_cholesky,
    "block_tridiagonal_logdet": _block_tridiagonal_logdet,
    "block_tridiagonal_solve": _block_tridiagonal_solve,
    "gram_inverse_pth_root": lambda a: ORACLES_OF_MATRICES["inverse_pth_root"](_adjoint(a) @ a),
    "kalman_filter": _kalman_filter,
    "kalman_smoother": _kalman_smoother,
}
