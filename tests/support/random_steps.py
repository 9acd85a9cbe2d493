"""Steps of random programs: factorisations, solutions, and functions composed of them."""

import jax.numpy as jnp
import mpmath
import numpy as np

import linalg
import linalg.scipy
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
  spectral,
  stacked,
)


def _through_eigh(la, x, c):
  del c
  w, v = la.eigh(x)
  return (v * jnp.exp(-w * w)[..., None, :].astype(v.dtype)) @ v.mT.conj()


def _lu_again(la, x, c):
  """P⁻¹ L U, which is A."""
  del c
  packed, _, order = linalg.lu(x)
  del la
  l = jnp.tril(packed, -1) + jnp.eye(x.shape[-1], dtype=x.dtype)
  back = jnp.argsort(order, axis=-1)
  return jnp.take_along_axis(l @ jnp.triu(packed), back[..., None], axis=-2)


def _polar_of(b, a, c):
  del c
  u, _, vh = b.svd(a)
  return u @ vh


def _polar_of_svd(la, x, c):
  del c
  u, _, vh = la.svd(x, full_matrices=False)
  return u @ vh


def _modulus_of(b, a, c):
  del c
  _, s, vh = b.svd(a)
  return (adjoint(vh) * s) @ vh


def _modulus(la, x, c):
  del c
  _, s, vh = la.svd(x, full_matrices=False)
  return (vh.mT.conj() * s[..., None, :].astype(vh.dtype)) @ vh


def _positive_qr(la, x, c):
  del c
  q, r = la.qr(x)
  d = jnp.diagonal(r, axis1=-2, axis2=-1)
  phase = d / jnp.abs(d).astype(d.dtype)
  return q * phase[..., None, :]


def _q_of(b, a, c):
  del c
  r = adjoint(b.cholesky(adjoint(a) @ a))
  return a @ b.inv(r)


def _pinv_of(b, a, c):
  tall = stacked(a, c, np.concatenate)
  h = adjoint(tall)
  return (b.inv(h @ tall) @ h)[:, : len(a)]


def _lstsq(la, x, c):
  del la
  rhs = jnp.broadcast_to(jnp.concatenate([c, -2 * c], axis=-2), (*x.shape[:-2], 2 * len(c), len(c)))
  return linalg.lstsq(stacked(x, c, jnp.concatenate), rhs)[0]


def lstsq_of(b, a, c):
  tall = stacked(a, c, np.concatenate)
  h = adjoint(tall)
  return b.inv(h @ tall) @ (h @ np.concatenate([c, -2 * c]))


def _kronecker_solution(b, left, right, c):
  """X of A X + X B = C."""
  n = len(c)
  kron = lambda x, y: (x[:, None, :, None] * y[None, :, None, :]).reshape(n * n, n * n)
  eye = b.eye(n)
  return (b.inv(kron(left, eye) + kron(eye, right.T)) @ c.reshape(-1, 1)).reshape(n, n)


def three_diagonals(x, diagonal, append):
  zero = diagonal(x)[..., :1] * 0
  below, above = diagonal(x, -1), diagonal(x, 1)
  return append([zero, below], -1), diagonal(x) * 0 + 4, append([above, zero], -1)


def _tridiagonal(la, x, c):
  del la
  diagonal = lambda x, k=0: jnp.diagonal(x, k, -2, -1)
  parts = three_diagonals(x, diagonal, jnp.concatenate)
  return linalg.tridiagonal_solve(*parts, constant(c, x))


def tridiagonal_of(b, a, c):
  n = len(a)
  t = b.eye(n) * 4 + np.diag(np.diagonal(a, -1), -1) + np.diag(np.diagonal(a, 1), 1) if n > 1 else (
      b.eye(1) * 4)
  return b.inv(t) @ c


def _updated(la, x, c):
  del la
  return linalg.cholesky_update(x.mT.conj(), constant(c, x)[..., 0, :]).mT.conj()


def _updated_of(b, a, c):
  w = c[0].conj()
  a = np.tril(a)
  return b.cholesky(a @ adjoint(a) + w[:, None] * w[None, :].conj())


def _toeplitz_product(la, x, c):
  del la
  return linalg.scipy.matmul_toeplitz((x[..., 0], x[..., 0, :]), constant(c, x))


def _toeplitz_product_of(b, a, c):
  del b
  n = len(a)
  t = np.array([[a[i - j, 0] if i >= j else a[0, j - i] for j in range(n)] for i in range(n)])
  return t @ c


def _sum_of_logarithms(b, values):
  return np.sum(b.log(values), keepdims=True)


def _sylvester_call(la, x, c):
  del la
  return linalg.scipy.solve_sylvester(x, x.mT, constant(c, x))


STEPS = {
    # Scaling keeps every step's condition bounded, so that the next one is well conditioned too.
    "normalise": Step(
        "any", "same", lambda la, x, c: x / norm(x), lambda b, a, c: a / norm_of(b, a)),
    "gram": Step(
        "general", "positive",
        lambda la, x, c: la.matmul(x, x.mT.conj()) + jnp.eye(x.shape[-1], dtype=x.dtype),
        lambda b, a, c: a @ adjoint(a) + b.eye(len(a)), stock=True),
    "hermitian part": Step(
        "general", "hermitian", lambda la, x, c: (x + x.mT.conj()) / 2,
        lambda b, a, c: hermitian(a)),
    "shift": Step(
        "general", "general", lambda la, x, c: x + 3 * jnp.eye(x.shape[-1], dtype=x.dtype),
        lambda b, a, c: a + 3 * b.eye(len(a))),
    "inv": Step("general", "general", lambda la, x, c: la.inv(x), lambda b, a, c: b.inv(a),
                stock=True),
    "inv of positive": Step("positive", "positive", lambda la, x, c: la.inv(x),
                            lambda b, a, c: b.inv(a), stock=True),
    "solve": Step("general", "general", lambda la, x, c: la.solve(x, constant(c, x)),
                  lambda b, a, c: b.inv(a) @ c, stock=True),
    "solve with one factor": Step(
        "general", "general", lambda la, x, c: la.solve(constant(c, x), x),
        lambda b, a, c: b.inv(c) @ a, stock=True),
    "solve positive": Step(
        "positive", "general",
        lambda la, x, c: linalg.solve(x, constant(c, x), assume_a="pos"),
        lambda b, a, c: b.inv(hermitian(a)) @ c),
    "solve hermitian": Step(
        "positive", "general",
        lambda la, x, c: linalg.solve(x, constant(c, x), assume_a="her"),
        lambda b, a, c: b.inv(hermitian(a)) @ c),
    "pinv": Step("general", "general",
                 lambda la, x, c: la.pinv(stacked(x, c, jnp.concatenate))[..., : len(c)], _pinv_of,
                 stock=True),
    "lstsq": Step("general", "general", _lstsq, lstsq_of),
    "matrix_power": Step("general", "general", lambda la, x, c: la.matrix_power(x, 2),
                         lambda b, a, c: a @ a, stock=True),
    "inverse power": Step("general", "general", lambda la, x, c: la.matrix_power(x, -2),
                          lambda b, a, c: b.inv(a @ a), stock=True),
    "lu": Step("general", "general", _lu_again, lambda b, a, c: a),
    "qr": Step("general", "general", _positive_qr, _q_of, stock=True),
    "polar": Step("general", "general", lambda la, x, c: linalg.polar(x)[0], _polar_of),
    "polar of svd": Step("general", "general", _polar_of_svd, _polar_of, stock=True),
    "modulus of svd": Step("general", "positive", _modulus, _modulus_of, stock=True),
    "modulus": Step("general", "positive", lambda la, x, c: linalg.polar(x)[1], _modulus_of),
    "expm": Step("general", "general", lambda la, x, c: linalg.expm(x / norm(x)),
                 lambda b, a, c: b.expm(a / norm_of(b, a))),
    "sylvester": Step("positive", "general", _sylvester_call,
                      lambda b, a, c: _kronecker_solution(b, a, a.T, c), loops=True),
    "lyapunov": Step(
        "positive", "general",
        lambda la, x, c: linalg.scipy.solve_continuous_lyapunov(x, constant(c, x)),
        lambda b, a, c: _kronecker_solution(b, a, adjoint(a), c), loops=True),
    "tridiagonal_solve": Step("general", "general", _tridiagonal, tridiagonal_of),
    "matmul_toeplitz": Step("general", "general", _toeplitz_product, _toeplitz_product_of),
    "congruence": Step(
        "positive", "positive", lambda la, x, c: linalg.congruence(constant(c, x), x),
        lambda b, a, c: c @ a @ adjoint(c)),
    "cholesky": Step("positive", "lower", lambda la, x, c: la.cholesky(x),
                     lambda b, a, c: b.cholesky(hermitian(a)), stock=True),
    "cholesky_update": Step("lower", "lower", _updated, _updated_of),
    "triangular_solve": Step(
        "lower", "general",
        lambda la, x, c: linalg.triangular_solve(x, constant(c, x), left_side=True, lower=True),
        lambda b, a, c: b.inv(np.tril(a)) @ c),
    "cho_solve": Step("lower", "general",
                      lambda la, x, c: linalg.cho_solve((x, True), constant(c, x)),
                      lambda b, a, c: b.inv(np.tril(a) @ adjoint(np.tril(a))) @ c),
    "square of lower": Step("lower", "positive", lambda la, x, c: x @ x.mT.conj(),
                            lambda b, a, c: a @ adjoint(a)),
    "through eigh": Step("hermitian", "hermitian", _through_eigh,
                         spectral(lambda w: np.exp(-w * w), lambda w: mpmath.exp(-w * w)),
                         stock=True),
    "funm_hermitian": Step("hermitian", "hermitian",
                           lambda la, x, c: linalg.funm_hermitian(x, jnp.sin),
                           spectral(np.sin, mpmath.sin)),
    "exponential": Step(
        "hermitian", "positive", lambda la, x, c: linalg.funm_hermitian(x / norm(x), jnp.exp),
        lambda b, a, c: b.expm(hermitian(a) / norm_of(b, a))),
    "logarithm": Step("positive", "hermitian", lambda la, x, c: linalg.funm_hermitian(x, jnp.log),
                      spectral(np.log, mpmath.log)),
    "inverse_pth_root": Step("positive", "positive", lambda la, x, c: linalg.inverse_pth_root(x, 2),
                             spectral(lambda w: w**-0.5, lambda w: 1 / mpmath.sqrt(w))),
    "sqrtm": Step("positive", "positive",
                  lambda la, x, c: of_dtype(linalg.sqrtm(x), x), spectral(np.sqrt, mpmath.sqrt),
                  loops=True),
    "logm": Step("positive", "hermitian",
                 lambda la, x, c: of_dtype(linalg.scipy.logm(x), x), spectral(np.log, mpmath.log),
                 loops=True),
    "pinvh": Step("positive", "positive", lambda la, x, c: linalg.scipy.pinvh(x),
                  lambda b, a, c: b.inv(hermitian(a))),
    # The last ones give vectors.
    "det": Step("general", "end", lambda la, x, c: scalar(la.det(x / norm(x))),
                lambda b, a, c: np.reshape(b.det(a / norm_of(b, a)), 1), stock=True),
    "slogdet": Step(
        "general", "end", lambda la, x, c: scalar(la.slogdet(x)[1]),
        lambda b, a, c: np.reshape(b.log(abs(b.det(a))), 1), stock=True),
    "norm": Step("general", "end", lambda la, x, c: scalar(la.matrix_norm(x)),
                 lambda b, a, c: np.reshape(frobenius(b, a), 1), stock=True),
    "nuclear norm": Step(
        "general", "end", lambda la, x, c: scalar(la.matrix_norm(x, ord="nuc")),
        lambda b, a, c: np.reshape(b.svd(a)[1].sum(), 1), stock=True),
    "cond": Step("general", "end", lambda la, x, c: scalar(la.cond(x)),
                 lambda b, a, c: np.reshape(b.svd(a)[1][0] / b.svd(a)[1][-1], 1), stock=True),
    "vector_norm": Step(
        "general", "end", lambda la, x, c: linalg.vector_norm(x, ord=3, axis=-1),
        lambda b, a, c: (b.absolute(a) ** 3).sum(-1) ** (1 / b.eye(1)[0, 0] / 3)),
    "eigvalsh": Step("hermitian", "end", lambda la, x, c: la.eigvalsh(x),
                     lambda b, a, c: b.eigh(a)[0], stock=True),
    "svdvals": Step("general", "end", lambda la, x, c: la.svdvals(x), lambda b, a, c: b.svd(a)[1],
                    stock=True),
    "eigvals": Step(
        "general", "end", lambda la, x, c: scalar(jnp.sum(la.eigvals(x) ** 3, -1).real),
        lambda b, a, c: np.reshape(b.real(np.trace(a @ a @ a)), 1), stock=True),
    "cho_logdet": Step("lower", "end", lambda la, x, c: scalar(linalg.cho_logdet((x, True))),
                       lambda b, a, c: 2 * _sum_of_logarithms(b, abs(np.diagonal(a)))),
}
