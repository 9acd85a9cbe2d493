"""Steps of random programs: factors as objects, structured systems, parts of spectra, SciPy."""

import jax.numpy as jnp
import mpmath
import numpy as np

import linalg
import linalg.scipy
import linalg.structured
from random_arithmetic import (
  Step,
  adjoint,
  constant,
  frobenius,
  hermitian,
  norm,
  norm_of,
  of_dtype,
  scalar,
  size,
  spectral,
  stacked,
)
from random_steps import lstsq_of, three_diagonals, tridiagonal_of


def _like(c, x):
  """The constant for each matrix of x."""
  return c + jnp.zeros_like(x)


def _outer(u, v):
  return u[:, None] * v[None, :].conj()


def _of_updated_cholesky(la, x, c):
  del la
  return linalg.factorize_cholesky(x).update(c[:, 0]).solve(constant(c, x))


def _bordered(la, x, c):
  """The matrix with a row and a column after the last, and without the first."""
  del la
  u = c[:, 0]
  x = (x + x.mT.conj()) / 2
  v = x @ u
  corner = 1 + jnp.sum(u.conj() * v, axis=-1)
  return linalg.factorize_cholesky(x).append(v, corner).delete(0).matrix()


def _bordered_of(b, a, c):
  a, u = hermitian(a), c[:, 0]
  v = a @ u
  corner = np.reshape(1 + b.real(np.sum(u.conj() * v)), (1, 1))
  above = np.concatenate([a, v[:, None]], axis=1)
  below = np.concatenate([v[None, :].conj(), corner], axis=1)
  return np.concatenate([above, below])[1:, 1:]


def _of_longer_qr(la, x, c):
  del la
  rhs = jnp.concatenate([c, -2 * c], axis=-2)
  rhs = jnp.broadcast_to(rhs, (*x.shape[:-2], 2 * len(c), len(c)))
  return linalg.factorize_qr(x).append_rows(c).solve(rhs)


def _solve_logdet(la, x, c):
  del la
  result = linalg.solve_logdet(x, constant(c, x), assume_a="pos")
  scale = result.logabsdet[..., None, None].astype(x.dtype)
  return result.x + scale * jnp.eye(x.shape[-1], dtype=x.dtype)


def _solve_logdet_of(b, a, c):
  a = hermitian(a)
  return b.inv(a) @ c + b.log(b.real(b.det(a))) * b.eye(len(a))


def _two_steps(x, c):
  """[[P, I], [I, P]] with P = X Xᴴ + 3 I, in blocks, and right-hand sides."""
  eye = jnp.eye(x.shape[-1], dtype=x.dtype)
  p = x @ x.mT.conj() + 3 * eye
  beside = _like(eye, x)[..., None, :, :]
  return jnp.stack([p, p], -3), beside, jnp.stack([_like(c, x), x], -3)


def _sum_of_steps(x):
  return x[..., 0, :, :] + x[..., 1, :, :]


def _block_tridiagonal(la, x, c):
  del la
  diagonal, beside, rhs = _two_steps(x, c)
  return _sum_of_steps(
      linalg.structured.block_tridiagonal_solve(beside, diagonal, beside, rhs))


def _definite_block_tridiagonal(la, x, c):
  del la
  diagonal, beside, rhs = _two_steps(x, c)
  factor = linalg.structured.block_tridiagonal_cholesky(diagonal, beside)
  return _sum_of_steps(factor.solve(rhs))


def _two_steps_of(b, a, c):
  n, eye = len(a), b.eye(len(a))
  p = a @ adjoint(a) + 3 * eye
  rows = [np.concatenate([p, eye], axis=1), np.concatenate([eye, p], axis=1)]
  x = b.inv(np.concatenate(rows)) @ np.concatenate([c, a])
  return x[:n] + x[n:]


_SEEN = np.array([[1.0], [-1.0], [2.0]])


def _likelihood(la, x, c):
  """The logarithm of the density of three observations of one component."""
  del la
  eye = jnp.eye(x.shape[-1], dtype=x.dtype)
  seen = jnp.asarray(_SEEN, x.dtype)
  result = linalg.structured.kalman_filter(
      jnp.broadcast_to(seen, (*x.shape[:-2], *seen.shape)),
      transition=(x / (2 * norm(x)))[..., None, :, :], transition_covariance=eye,
      observation=c[:1], observation_covariance=eye[:1, :1], initial_mean=c[:, 0],
      initial_covariance=eye)
  return scalar(result.log_likelihood)


def _likelihood_of(b, a, c):
  f, h = a / (2 * norm_of(b, a)), c[:1]
  mean, cov, value = c[:, :1], b.eye(len(a)), 0
  for y in _SEEN[:, 0]:
    off, size = y - (h @ mean)[0, 0], 1 + (h @ cov @ h.T)[0, 0]
    value = value - (off * off / size + b.log(2 * np.pi * size)) / 2
    gain = cov @ h.T / size
    mean, cov = f @ (mean + gain * off), f @ (cov - gain @ h @ cov) @ f.T + b.eye(len(a))
  return np.reshape(value, 1)


def _of_part_of_eigh(la, x, c):
  del la, c
  n = x.shape[-1]
  w, v = linalg.eigh(x, subset_by_index=(n // 2, n))
  return x + (v * w[..., None, :].astype(v.dtype)) @ v.mT.conj()


def _of_part_of_eigh_of(b, a, c):
  del c
  w, v = b.eigh(a)
  w, v = w[len(a) // 2 :], v[:, len(a) // 2 :]
  return hermitian(a) + (v * w) @ adjoint(v)


def _of_part_of_svd(la, x, c):
  del la, c
  u, s, vh = linalg.svd(x, full_matrices=False, subset_by_index=(0, (x.shape[-1] + 1) // 2))
  return x + (u * s[..., None, :].astype(u.dtype)) @ vh


def _of_part_of_svd_of(b, a, c):
  del c
  half = (len(a) + 1) // 2
  u, s, vh = b.svd(a)
  return a + (u[:, :half] * s[:half]) @ vh[:half]


def _by_eig(la, x, c):
  del la, c
  w, v = linalg.eig(x)
  return of_dtype((v * (w * w)[..., None, :]) @ linalg.inv(v), x)


def _similar(z, t):
  return z @ t @ z.mT.conj()


def _schur_again(la, x, c):
  del la, c
  t, z = linalg.schur(x)
  return _similar(z, t)


def _sorted_schur_again(la, x, c):
  del la, c
  t, z, _ = linalg.scipy.schur(x, sort="iuc")
  return _similar(z, t)


def _hessenberg_again(la, x, c):
  del la, c
  h, q = linalg.hessenberg(x, calc_q=True)
  return _similar(q, h)


def _qz_again(la, x, c):
  del la
  s, t, q, z = linalg.scipy.qz(x, _like(c, x))
  return q @ (s + t) @ z.mT.conj()


def _ordqz_again(la, x, c):
  del la
  s, t, _, _, q, z = linalg.scipy.ordqz(x, _like(c, x), "ouc")
  return q @ (s + t) @ z.mT.conj()


def _values_of_pencil(la, x, c):
  del la
  w = linalg.scipy.eigvals(x, _like(c, x))
  return scalar(jnp.sum(w * w, -1).real)


def _values_of_pencil_of(b, a, c):
  quotient = b.inv(c) @ a
  return np.reshape(b.real(np.trace(quotient @ quotient)), 1)


def _definite_constant(c, eye):
  return c @ c.T.conj() + eye


def _values_of_definite_pencil(la, x, c):
  del la
  b = _definite_constant(c, jnp.eye(len(c), dtype=x.dtype))
  return linalg.eigh_generalized(x, _like(b, x), eigvals_only=True)


def _values_of_definite_pencil_of(b, a, c):
  inverse = b.inv(b.cholesky(_definite_constant(c, b.eye(len(c)))))
  return b.eigh(inverse @ hermitian(a) @ adjoint(inverse))[0]


def _positive_rq(la, x, c):
  del la, c
  r, q = linalg.scipy.rq(x)
  d = jnp.diagonal(r, axis1=-2, axis2=-1)
  return (d / jnp.abs(d).astype(d.dtype))[..., None] * q


def _q_of_rq(b, a, c):
  del c
  r = b.cholesky((a @ adjoint(a))[::-1, ::-1])[::-1, ::-1]
  return b.inv(r) @ a


def _updated_qr(la, x, c):
  del la
  q, r = linalg.scipy.qr_update(*linalg.qr(x), c[:, 0], c[:, -1])
  return q @ r


def _row_replaced(la, x, c):
  del la
  q, r = linalg.scipy.qr_insert(*linalg.qr(x), c[0], 0)
  q, r = linalg.scipy.qr_delete(q, r, 1)
  return q @ r


def _ldl_again(la, x, c):
  del la, c
  l, d, _ = linalg.scipy.ldl(x)
  return _similar(l, d)


def _householder_again(la, x, c):
  del la, c
  packed, taus = linalg.qr(x, mode="raw")
  packed = packed.mT
  return linalg.householder_product(packed, taus) @ jnp.triu(packed)


def _ormqr_again(la, x, c):
  del la, c
  packed, taus = linalg.qr(x, mode="raw")
  packed = packed.mT
  return linalg.ormqr(packed, taus, jnp.triu(packed))


def _hermitian_diagonals(x):
  """The diagonal, whose imaginary part is 0, and the one below it."""
  diagonal = lambda k: jnp.diagonal(x, k, -2, -1)
  return diagonal(0).real.astype(x.dtype), diagonal(-1)


def _values_of_tridiagonal(la, x, c):
  del la, c
  return linalg.eigh_tridiagonal(*_hermitian_diagonals(x), eigvals_only=True)


def _lower_bands(diagonal, below):
  return jnp.stack(
      [diagonal, jnp.concatenate([below, diagonal[..., :1] * 0], -1)], -2)


def _values_of_bands(la, x, c):
  del la, c
  return linalg.scipy.eigvals_banded(_lower_bands(*_hermitian_diagonals(x)), lower=True)


def _tridiagonal_part(b, a, diagonal=None):
  """The Hermitian matrix of the two diagonals, or of another diagonal beside the one below."""
  below = np.tril(np.triu(a, -1), -1)
  diagonal = b.real(np.diagonal(a)) if diagonal is None else diagonal
  return below + adjoint(below) + b.eye(len(a)) * diagonal


def _values_of_tridiagonal_of(b, a, c):
  del c
  return b.eigh(_tridiagonal_part(b, a))[0]


def _dominant_bands(x):
  """Lower diagonals of a definite matrix."""
  diagonal, below = _hermitian_diagonals(x)
  return _lower_bands(diagonal * 0 + 3 * size(x)[..., 0], below)


def _solveh_banded(la, x, c):
  del la
  return linalg.scipy.solveh_banded(_dominant_bands(x), _like(c, x), lower=True)


def _cho_solve_banded(la, x, c):
  del la
  factor = linalg.scipy.cholesky_banded(_dominant_bands(x), lower=True)
  return linalg.scipy.cho_solve_banded((factor, True), _like(c, x))


def _solveh_banded_of(b, a, c):
  return b.inv(_tridiagonal_part(b, a, 3 * frobenius(b, a))) @ c


def _solve_banded(la, x, c):
  del la
  below, middle, above = three_diagonals(
      x, lambda x, k=0: jnp.diagonal(x, k, -2, -1), jnp.concatenate)
  bands = jnp.stack([jnp.roll(above, 1, -1), middle, jnp.roll(below, -1, -1)], -2)
  return linalg.scipy.solve_banded((1, 1), bands, _like(c, x))


def _first_column_and_row(x, size):
  """The first column and row of a dominant Toeplitz matrix."""
  first = jnp.eye(1, x.shape[-1], dtype=x.dtype)[0]
  shift = 2 * float(np.sqrt(x.shape[-1])) * size[..., 0]
  return x[..., 0] + shift * first, x[..., 0, :] + shift * first


def _solve_circulant(la, x, c):
  del la
  column, _ = _first_column_and_row(x, size(x))
  return linalg.scipy.solve_circulant(column, c[:, 0], baxis=-1, outaxis=-1)


def _solve_toeplitz(la, x, c):
  del la
  return linalg.scipy.solve_toeplitz(_first_column_and_row(x, size(x)), _like(c, x))


def _shifted_first(b, a):
  n = len(a)
  shift = 2 * float(np.sqrt(n)) * frobenius(b, a) * b.eye(n)[0]
  return a[:, 0] + shift, a[0] + shift


def _solve_circulant_of(b, a, c):
  column, _ = _shifted_first(b, a)
  return b.inv(np.stack([np.roll(column, k) for k in range(len(a))], -1)) @ c[:, 0]


def _solve_toeplitz_of(b, a, c):
  n = len(a)
  column, row = _shifted_first(b, a)
  t = np.array([[column[i - j] if i >= j else row[j - i] for j in range(n)] for i in range(n)])
  return b.inv(t) @ c


def _square_of_blocks(a, b, c, d):
  return np.concatenate([np.concatenate([a, b], axis=1), np.concatenate([c, d], axis=1)])


def _frechet_of(b, a, c):
  n, a = len(a), a / norm_of(b, a)
  return b.expm(_square_of_blocks(a, c, 0 * a, a))[:n, n:]


def _cosine_of(b, a, c):
  del c
  n, a = len(a), a / norm_of(b, a)
  return b.expm(_square_of_blocks(0 * a, a, -a, 0 * a))[:n, :n]


def _hyperbolic_sine_of(b, a, c):
  del c
  n, a = len(a), a / norm_of(b, a)
  return b.expm(_square_of_blocks(0 * a, a, a, 0 * a))[:n, n:]


def _discrete_lyapunov(la, x, c):
  del la
  return linalg.scipy.solve_discrete_lyapunov(x / (2 * size(x)), constant(c, x))


def _discrete_lyapunov_of(b, a, c):
  n, a = len(a), a / (2 * frobenius(b, a))
  kron = (a[:, None, :, None] * a.conj()[None, :, None, :]).reshape(n * n, n * n)
  return (b.inv(b.eye(n * n) - kron) @ c.reshape(-1, 1)).reshape(n, n)


def _procrustes_of(b, a, c):
  u, _, vh = b.svd(adjoint(a) @ c)
  return u @ vh


def _gram_of_khatri_rao(la, x, c):
  del la
  k = linalg.scipy.khatri_rao(x, _like(c, x))
  return k.mT.conj() @ k


def _corner_of_projector(la, x, c):
  del la
  n = x.shape[-1]
  q = linalg.scipy.orth(stacked(x, _like(c, x), jnp.concatenate), size=n)
  return (q @ q.mT.conj())[..., :n, :n]


def _corner_of_projector_of(b, a, c):
  tall = stacked(a, c, np.concatenate)
  return a @ b.inv(adjoint(tall) @ tall) @ adjoint(a)


def _subspace_angles(la, x, c):
  del la
  eye = jnp.eye(x.shape[-1], dtype=x.dtype)
  tall = lambda x, c: jnp.concatenate([x, c], -2)
  return linalg.scipy.subspace_angles(tall(x, _like(c, x)), tall(_like(eye, x), _like(c, x)))


def _subspace_angles_of(b, a, c):
  basis = lambda x: x @ adjoint(b.inv(b.cholesky(adjoint(x) @ x)))
  tall = lambda x: basis(stacked(x, c, np.concatenate))
  overlap = adjoint(tall(a)) @ tall(b.eye(len(a)))
  return b.of_each(np.arccos, mpmath.acos)(b.svd(overlap)[1][::-1])


STEPS = {
    "factorize_cholesky": Step(
        "positive", "general", _of_updated_cholesky,
        lambda b, a, c: b.inv(hermitian(a) + _outer(c[:, 0], c[:, 0])) @ c),
    "border of Cholesky": Step("positive", "positive", _bordered, _bordered_of),
    "factorize_lu": Step(
        "general", "general",
        lambda la, x, c: linalg.factorize_lu(x).solve(constant(c, x), trans=2),
        lambda b, a, c: b.inv(adjoint(a)) @ c),
    "factorize_qr": Step("general", "general", _of_longer_qr, lstsq_of),
    "solve_logdet": Step("positive", "general", _solve_logdet, _solve_logdet_of),
    "cholesky_jittered": Step(
        "positive", "lower", lambda la, x, c: linalg.cholesky_jittered(x).factor,
        lambda b, a, c: b.cholesky(hermitian(a))),
    "block_tridiagonal_solve": Step("general", "general", _block_tridiagonal, _two_steps_of),
    "block_tridiagonal_cholesky": Step(
        "general", "general", _definite_block_tridiagonal, _two_steps_of),
    "kalman_filter": Step("general", "end", _likelihood, _likelihood_of, real=True),
    "part of eigh": Step("hermitian", "hermitian", _of_part_of_eigh, _of_part_of_eigh_of),
    "part of eigvalsh": Step(
        "hermitian", "end",
        lambda la, x, c: linalg.eigvalsh(x, subset_by_index=(len(c) // 2, len(c))),
        lambda b, a, c: b.eigh(a)[0][len(c) // 2 :]),
    "part of svd": Step("general", "general", _of_part_of_svd, _of_part_of_svd_of),
    "part of svdvals": Step(
        "general", "end",
        lambda la, x, c: linalg.svdvals(x, subset_by_index=(0, (len(c) + 1) // 2)),
        lambda b, a, c: b.svd(a)[1][: (len(c) + 1) // 2]),
    "square by eig": Step("general", "general", _by_eig, lambda b, a, c: a @ a),
    "schur": Step("general", "general", _schur_again, lambda b, a, c: a),
    "sorted schur": Step("general", "general", _sorted_schur_again, lambda b, a, c: a),
    "hessenberg": Step("general", "general", _hessenberg_again, lambda b, a, c: a),
    "qz": Step("general", "general", _qz_again, lambda b, a, c: a + c, loops=True),
    "ordqz": Step("general", "general", _ordqz_again, lambda b, a, c: a + c, loops=True),
    "eigvals of a pencil": Step("general", "end", _values_of_pencil, _values_of_pencil_of),
    "eigh_generalized": Step(
        "hermitian", "end", _values_of_definite_pencil, _values_of_definite_pencil_of),
    "rq": Step("general", "general", _positive_rq, _q_of_rq),
    "qr_update": Step("general", "general", _updated_qr,
                      lambda b, a, c: a + _outer(c[:, 0], c[:, -1])),
    "qr_insert": Step("general", "general", _row_replaced,
                      lambda b, a, c: np.concatenate([c[:1], a[1:]])),
    "ldl": Step("hermitian", "hermitian", _ldl_again, lambda b, a, c: hermitian(a), loops=True),
    "householder_product": Step("general", "general", _householder_again, lambda b, a, c: a),
    "ormqr": Step("general", "general", _ormqr_again, lambda b, a, c: a),
    "eigh_tridiagonal": Step(
        "hermitian", "end", _values_of_tridiagonal, _values_of_tridiagonal_of),
    "eigvals_banded": Step("hermitian", "end", _values_of_bands, _values_of_tridiagonal_of),
    "solve_banded": Step("general", "general", _solve_banded, tridiagonal_of, loops=True),
    "solveh_banded": Step("positive", "general", _solveh_banded, _solveh_banded_of, loops=True),
    "cho_solve_banded": Step(
        "positive", "general", _cho_solve_banded, _solveh_banded_of, loops=True),
    "solve_circulant": Step("general", "end", _solve_circulant, _solve_circulant_of),
    "solve_toeplitz": Step("general", "general", _solve_toeplitz, _solve_toeplitz_of, loops=True),
    "expm_frechet": Step(
        "general", "general",
        lambda la, x, c: linalg.scipy.expm_frechet(
            x / norm(x), constant(c, x), compute_expm=False), _frechet_of, loops=True),
    "cosm": Step("general", "general", lambda la, x, c: linalg.scipy.cosm(x / norm(x)), _cosine_of,
                 loops=True),
    "sinhm": Step("general", "general", lambda la, x, c: linalg.scipy.sinhm(x / norm(x)),
                  _hyperbolic_sine_of, loops=True),
    "funm": Step(
        "positive", "hermitian",
        lambda la, x, c: of_dtype(linalg.scipy.funm(x, jnp.log), x), spectral(np.log, mpmath.log),
        loops=True),
    "fractional_matrix_power": Step(
        "positive", "positive",
        lambda la, x, c: of_dtype(linalg.scipy.fractional_matrix_power(x, 0.25), x),
        spectral(lambda w: w**0.25, lambda w: mpmath.sqrt(mpmath.sqrt(w))), loops=True),
    "discrete lyapunov": Step(
        "general", "general", _discrete_lyapunov, _discrete_lyapunov_of, loops=True),
    "orthogonal_procrustes": Step(
        "general", "general",
        lambda la, x, c: linalg.scipy.orthogonal_procrustes(x, _like(c, x))[0], _procrustes_of),
    "khatri_rao": Step("general", "positive", _gram_of_khatri_rao,
                       lambda b, a, c: (adjoint(a) @ a) * (adjoint(c) @ c)),
    "orth": Step("general", "positive", _corner_of_projector, _corner_of_projector_of),
    "subspace_angles": Step("general", "end", _subspace_angles, _subspace_angles_of),
    "lu_solve": Step(
        "general", "general",
        lambda la, x, c: linalg.lu_solve(linalg.lu_factor(x), constant(c, x), trans=1),
        lambda b, a, c: b.inv(a.T) @ c),
}
