"""The functions of linalg.distributed: how each is tested on the matrices of kinds.py."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import long_double as exact
from kinds import (
  ANY,
  CUT_OFF,
  HERMITIAN,
  KINDS,
  NO_RANGE,
  POSITIVE,
  RIGHT,
  SINGULAR,
  TESTED,
  Tested,
  Told,
  columns,
  matrix,
  one,
  with_others,
)
from long_double import adjoint, size, wide
from losses import (
  noisy,
)
from matrices import general
from result_errors import (
  frobenius,
  log_determinant,
  orthogonality,
  relative,
)


def _share(kind, rng, n, dtype):
  """A tall matrix of eight rows for each column: the rows of one of the kind, eight times."""
  a = matrix(kind, rng, n, dtype, ANY)
  return np.concatenate([(-1) ** i * a[rng.permutation(n)] for i in range(8)])


def _tall_share(kind, rng, n, dtype):
  return (_share(kind, rng, n, dtype),)


def _tall_share_and_columns(kind, rng, n, dtype):
  return _share(kind, rng, n, dtype), general(rng, (), 8 * n, 2, dtype)


def _product_error(operands, results):
  """The residual of Q R or U diag(S) Vᴴ, and whether the factors are orthonormal."""
  (a,), results = operands, [wide(x) for x in results]
  if not all(np.isfinite(x).all() for x in results):
    return np.inf
  q, *rest = results
  scaled = q if len(rest) == 1 else q * rest[0]
  others = orthogonality(adjoint(rest[1])) if len(rest) == 2 else 0
  return max(relative(scaled @ rest[-1] - wide(a), size(a)), orthogonality(q), others)


def _tall_polar_error(operands, results):
  (a,), (u, p) = operands, (wide(x) for x in results)
  if not (np.isfinite(u).all() and np.isfinite(p).all()):
    return np.inf
  return max(relative(u @ p - wide(a), size(a)), orthogonality(u))


def _values_error(operands, results):
  """Singular values against those of SciPy in float64."""
  (a,), (s,) = operands, results
  a, scale = exact._unscaled(wide(a))
  expected = scipy.linalg.svdvals(exact.narrow(a))
  return relative(wide(s) / scale - expected, expected[0])


def cholesky_error(operands, results):
  """The residual of L Lᴴ, each element against the diagonal."""
  (a,), (l,) = (tuple(map(wide, x)) for x in (operands, results))
  a, scale = exact._unscaled(a)
  product = (l / np.sqrt(scale)) @ (adjoint(l) / np.sqrt(scale)) - a
  d = np.sqrt(np.abs(np.diagonal(a)))
  return relative(product / d / d[:, None], 1) if np.isfinite(product).all() else np.inf


def _tall_inverse(a):
  return exact.least_squares(a, np.eye(len(a)))


def _gram_root(a):
  a = wide(a)
  return exact.inverse_fourth_root(adjoint(a) @ a)


def _moved_gram_root(rng, a):
  """The root of the rounded Gram matrix, which has the squares of the singular values."""
  gram = adjoint(wide(a)) @ wide(a)
  return exact.inverse_fourth_root(
      noisy(rng, gram, in_norm=True, eps=float(np.finfo(a.dtype).eps)))


def _polynomials(a, norm):
  """Five steps of Muon's polynomial of A over its norm."""
  x = a / norm
  for _ in range(5):
    gram = adjoint(x) @ x
    x = 3.4445 * x + x @ (-4.7750 * gram + 2.0315 * gram @ gram)
  return x


def _orthogonalized(a):
  a = wide(a)
  return _polynomials(a, frobenius(a) + np.longdouble(1e-8))


def _moved_orthogonalized(rng, a):
  """All steps by one Gram matrix, which is rounded."""
  x = wide(a) / (frobenius(a) + np.longdouble(1e-8))
  gram = noisy(rng, adjoint(x) @ x, in_norm=True, eps=float(np.finfo(a.dtype).eps))
  for _ in range(5):
    step = 3.4445 * np.eye(len(gram)) - 4.7750 * gram + 2.0315 * gram @ gram
    x, gram = x @ step, step @ gram @ step
  return x


def _their_orthogonalized(a):
  scale = np.abs(a).max()
  a = a / scale
  return _polynomials(a, np.linalg.norm(a) + a.dtype.type(1e-8).real / scale)


def _determinant(a):
  phase, logarithm = log_determinant(a)
  return phase * np.exp(logarithm)


_SINGULAR_IF_TALL = SINGULAR | {"nearly singular": CUT_OFF}
_BY_GRAM = Told(
    "multiplies the rounding errors of eigenvalues near 0 by a²", moved=_moved_orthogonalized)
_OF_GRAM = Told("are rounding errors", moved=_moved_gram_root)


def _their_gram_root(a):
  w, v = np.linalg.eigh(adjoint(a) @ a)
  return (v * w**-0.25) @ adjoint(v)


def _lower(kind, rng, n, dtype):
  a = matrix(kind, rng, n, dtype, RIGHT)
  return np.tril(a), columns(rng, a)


# The functions of linalg.distributed: how they are tested, and the call of `d`, the module, with
# the keywords of the layout. `batched` and `report` compute no numbers. Solutions test factors.
# `randomized_svd` of full rank is the decomposition itself.
DISTRIBUTED: dict[str, tuple[Tested, Callable[..., Any]]] = {
    "qr": (Tested(_tall_share, None, np.linalg.qr, _product_error), lambda d, a, **k: d.qr(a, **k)),
    "svd": (Tested(_tall_share, None, lambda a: np.linalg.svd(a, full_matrices=False),
                   _product_error), lambda d, a, **k: d.svd(a, **k)),
    "svdvals": (Tested(_tall_share, None, scipy.linalg.svdvals, _values_error),
                lambda d, a, **k: d.svdvals(a, **k)),
    "lstsq": (Tested(_tall_share_and_columns, exact.least_squares,
                     lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], cut_off=True,
                     lacks=_SINGULAR_IF_TALL),
              lambda d, a, b, **k: d.lstsq(a, b, **k)[0]),
    "pinv": (Tested(_tall_share, _tall_inverse, np.linalg.pinv, cut_off=True,
                    lacks=_SINGULAR_IF_TALL),
             lambda d, a, **k: d.pinv(a, **k)),
    "polar": (Tested(_tall_share, None, scipy.linalg.polar, _tall_polar_error),
              lambda d, a, **k: d.polar(a, **k)),
    "gram_inverse_pth_root": (Tested(_tall_share, _gram_root, _their_gram_root,
                                     told=dict.fromkeys(KINDS, _OF_GRAM)),
                              lambda d, a, **k: d.gram_inverse_pth_root(a, 4, **k)),
    "newton_schulz": (Tested(_tall_share, _orthogonalized, _their_orthogonalized,
                             told=dict.fromkeys(KINDS, _BY_GRAM)),
                      lambda d, a, **k: d.newton_schulz(a, **k)),
    "randomized_svd": (
        Tested(_tall_share, None, lambda a: np.linalg.svd(a, full_matrices=False), _product_error),
        lambda d, a, **k: d.randomized_svd(a, a.shape[-1], jax.random.key(0), **k)[:3]),
    "cholesky": (Tested(one(POSITIVE), None, np.linalg.cholesky, cholesky_error),
                 lambda d, a, **k: d.cholesky(a, **k)),
    "cho_solve": (Tested(with_others(POSITIVE, columns), exact.solved,
                         lambda a, b: scipy.linalg.solve(a, b, assume_a="pos")),
                  lambda d, a, b, **k: d.cho_solve(d.cho_factor(a, **k), b)),
    "solve": (Tested(with_others(ANY, columns), exact.solved, np.linalg.solve),
              lambda d, a, b, **k: d.solve(a, b, **k)),
    "lu_solve": (Tested(with_others(ANY, columns), exact.solved, np.linalg.solve),
                 lambda d, a, b, **k: d.lu_solve(d.lu_factor(a, **k), b)),
    "slogdet": (Tested(one(ANY), log_determinant, np.linalg.slogdet),
                lambda d, a, **k: tuple(d.slogdet(a, **k))),
    "det": (Tested(one(ANY), _determinant, np.linalg.det, lacks=dict.fromkeys(KINDS, NO_RANGE)),
            lambda d, a, **k: d.det(a, **k)),
    "inv": (Tested(one(ANY), exact.inverse, np.linalg.inv), lambda d, a, **k: d.inv(a, **k)),
    "solve_triangular": (
        Tested(_lower, exact.solved,
               lambda a, b: scipy.linalg.solve_triangular(a, b, lower=True)),
        lambda d, a, b, **k: d.solve_triangular(a, b, lower=True, **k)),
}


def _spectrum_error(operands, results):
  """The residual of V diag(w) Vᴴ, and whether V is orthonormal."""
  (a,), (w, v) = operands, map(wide, results)
  if not (np.isfinite(w).all() and np.isfinite(v).all()):
    return np.inf
  return max(relative((v * w) @ adjoint(v) - wide(a), size(a)), orthogonality(v))


def _eigenvalues_error(operands, results):
  """Eigenvalues against those of SciPy in float64."""
  (a,), (w,) = operands, results
  a, scale = exact._unscaled(wide(a))
  expected = scipy.linalg.eigvalsh(exact.narrow(a))
  return relative(wide(w) / scale - expected, size(expected))


# Functions of linalg.distributed that take square matrices, sharded over both dimensions, and whose
# grid has no panel. A second word keeps names apart from those of tall matrices.
DISTRIBUTED_SQUARES: dict[str, tuple[Tested, Callable[..., Any]]] = {
    "eigh": (Tested(one(HERMITIAN), None, np.linalg.eigh, _spectrum_error),
             lambda d, a, **k: d.eigh(a, **k)),
    "eigvalsh": (Tested(one(HERMITIAN), None, scipy.linalg.eigvalsh, _eigenvalues_error),
                 lambda d, a, **k: d.eigvalsh(a, **k)),
    "funm_hermitian": (TESTED["funm_hermitian"],
                       lambda d, a, **k: d.funm_hermitian(a, jnp.sin, **k)),
    "inverse_pth_root": (TESTED["inverse_pth_root"],
                         lambda d, a, **k: d.inverse_pth_root(a, 4, **k)),
    "eigh_generalized": (TESTED["eigh_generalized"],
                         lambda d, a, b, **k: d.eigh_generalized(a, b, **k)),
    "qr square": (Tested(one(ANY), None, np.linalg.qr, _product_error),
                  lambda d, a, **k: d.qr(a, **k)),
    "svd square": (Tested(one(ANY), None, np.linalg.svd, _product_error),
                   lambda d, a, **k: d.svd(a, **k)),
    "svdvals square": (Tested(one(ANY), None, scipy.linalg.svdvals, _values_error),
                       lambda d, a, **k: d.svdvals(a, **k)),
    "lstsq square": (Tested(with_others(ANY, columns), exact.solved,
                            lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], cut_off=True,
                            lacks=SINGULAR),
                     lambda d, a, b, **k: d.lstsq(a, b, **k)[0]),
    "pinv square": (Tested(one(ANY), exact.inverse, np.linalg.pinv, cut_off=True,
                           lacks=SINGULAR),
                    lambda d, a, **k: d.pinv(a, **k)),
    "polar square": (TESTED["polar"], lambda d, a, **k: d.polar(a, **k)),
}
