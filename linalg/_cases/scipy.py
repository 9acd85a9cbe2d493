"""The functions of `linalg.scipy` that jax.scipy.linalg lacks, as cases."""

import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg

import linalg.scipy
from linalg._cases import checks, matrices
from linalg._cases.case import Case
from linalg._cases.distance import case_of
from linalg._cases.operands import (
    hermitian,
    positive_definite,
    square,
    square_general,
    with_columns,
)
from linalg._cases.timed import BANDS, COLUMN, Timed


def _projector(q):
  return q @ q.mT.conj()


def _tall(rng, batch, m, n, dtype):
  del m
  return (matrices.general(rng, batch, n + 2, n, dtype),)


def _wide(rng, batch, m, n, dtype):
  del m
  return (matrices.general(rng, batch, n, n + 2, dtype),)


def _two_general(rng, batch, m, n, dtype):
  return square_general(rng, batch, m, n, dtype) + square_general(rng, batch, m, n, dtype)


def _range_oracle(a):
  return (a @ np.linalg.pinv(a),) if a.size else (np.zeros((a.shape[0],) * 2),)


def _null_space_oracle(a):
  return (np.eye(a.shape[1]) - np.linalg.pinv(a) @ a,)


def _sylvester(rng, batch, m, n, dtype):
  return (*square(rng, batch, m, n, dtype), 0.3 * matrices.general(rng, batch, 2, 2, dtype),
          matrices.general(rng, batch, n, 2, dtype))


def _to_the_right(rng, batch, m, n, dtype):
  """General matrices with eigenvalues near to the positive axis."""
  (a,) = positive_definite(rng, batch, m, n, dtype)
  return ((a + 0.3 * matrices.general(rng, batch, n, n, dtype)).astype(dtype),)


def _stable(rng, batch, m, n, dtype):
  """A matrix with eigenvalues to the left of the imaginary axis and in the unit circle, and one."""
  a, q = _two_general(rng, batch, m, n, dtype)
  norm = np.linalg.norm(a, axis=(-2, -1), keepdims=True) if n else 1
  return (0.4 * a / norm - 0.5 * np.eye(n)).astype(dtype), q


def _regulator(rng, batch, m, n, dtype):
  """A, B, Q and R of equations that are well conditioned."""
  a, _ = _stable(rng, batch, m, n, dtype)
  return (
      a, matrices.general(rng, batch, n, 2, dtype), *positive_definite(rng, batch, m, n, dtype),
      *positive_definite(rng, batch, m, 2, dtype))


BELOW, ABOVE = 2, 1  # diagonals of the banded matrices


def _dense(ab, above):
  """The matrix with these diagonals, of which the corners count for nothing."""
  count, n = ab.shape[-2:]
  a = np.zeros((*ab.shape[:-2], n, n), ab.dtype)
  for t in range(count):
    for j in range(max(above - t, 0), min(n + above - t, n)):
      a[..., j + t - above, j] = ab[..., t, j]
  return a


def _dense_lower(ab):
  return _dense(ab, 0)


def _dense_hermitian(ab):
  strict = np.tril(_dense_lower(ab), -1)
  return strict + checks.adjoint(strict) + np.eye(ab.shape[-1]) * ab[..., :1, :].real


def _dense_of_factor(cb):
  l = _dense_lower(checks.wide(cb))
  return l @ checks.adjoint(l)


def _banded(rng, batch, m, n, dtype):
  """Diagonally dominant."""
  del m
  ab = matrices.general(rng, batch, BELOW + ABOVE + 1, n, dtype)
  ab[..., ABOVE, :] *= 4 * (BELOW + ABOVE) / np.abs(ab[..., ABOVE, :])
  return (ab,)


def _banded_positive(rng, batch, m, n, dtype):
  """The lower triangle of a diagonally dominant matrix; a positive diagonal, but complex."""
  del m
  ab = matrices.general(rng, batch, BELOW + 1, n, dtype)
  ab[..., 0, :] = ab[..., 0, :] - ab[..., 0, :].real + 8 * BELOW
  return (ab,)


def _stock_solve_banded(ab, b):
  """JAX has none but that of the dense matrix."""
  n = ab.shape[-1]
  a = sum(jnp.eye(n, k=ABOVE - t, dtype=ab.dtype) * ab[..., t, None, :]
          for t in range(BELOW + ABOVE + 1))
  return jnp.linalg.solve(a, b)


def _solve_of(name, call, operands, dense, **options):
  """The case of what solves with the dense form of its first operand."""

  def ratio(operands, results):
    ab, b = operands
    return checks.solution(dense(ab), results[0], b)

  return Case(
      name, call, operands, (2, 2), ratio, lambda ab, b: (np.linalg.solve(dense(ab), b),),
      scan=True, **options)


def _cholesky_banded_ratio(operands, results):
  (ab,), (factor,) = operands, results
  return checks.factorisation(
      _dense_hermitian(ab), _dense_of_factor(factor), checks.eps(factor))


def _cholesky_banded_oracle(ab):
  l = np.linalg.cholesky(_dense_hermitian(ab))
  factor = np.zeros_like(ab)
  for t in range(min(ab.shape)):
    factor[t, : ab.shape[-1] - t] = np.diagonal(l, -t)
  return (factor,)


def _toeplitz(rng, batch, m, n, dtype):
  """A column, a row and right-hand sides, of systems that are well conditioned."""
  c, r = (matrices.general(rng, batch, n, 1, dtype)[..., 0] for _ in range(2))
  c[..., :1] += 3 * np.sqrt(n + 1)
  return c, r, matrices.general(rng, batch, n, 2, dtype)


def _nonempty(function):
  """SciPy has no solution of an equation without entries."""
  return lambda *operands: (function(*operands) if operands[0].size else operands[-1],)


def _riccati(function):
  return lambda a, *rest: (function(a, *rest) if a.size else a,)


SCIPY: tuple[Case, ...] = (
    case_of("pinvh", linalg.scipy.pinvh, positive_definite, (2,), lambda a: (np.linalg.pinv(a),),
            condition=20, slow=True),
    case_of("orth", lambda a: _projector(linalg.scipy.orth(a, size=a.shape[-1])), _tall, (2,),
            _range_oracle, condition=20, slow=True),
    case_of("null_space", lambda a: _projector(linalg.scipy.null_space(a, size=2)), _wide, (2,),
            _null_space_oracle, condition=20, slow=True),
    case_of("expm_frechet",
            lambda a, e: linalg.scipy.expm_frechet(a / 4, e, compute_expm=False), _two_general,
            (2, 2), lambda a, e: (scipy.linalg.expm_frechet(a / 4, e, compute_expm=False)
                                  if a.size else a,),
            condition=20, slow=True, varying={0: "XLA compiles products by the batch's size"}),
    case_of("logm", linalg.scipy.logm, _to_the_right, (2,),
            lambda a: (scipy.linalg.logm(a) + 0j if a.size else a,), condition=20, slow=True,
            scan=True),
    case_of("funm", lambda a: linalg.scipy.funm(a, jnp.log), _to_the_right, (2,),
            lambda a: (scipy.linalg.logm(a) + 0j if a.size else a,), condition=20, slow=True,
            scan=True),
    case_of("fractional_matrix_power", lambda a: linalg.scipy.fractional_matrix_power(a, 0.7),
            _to_the_right, (2,),
            lambda a: (scipy.linalg.fractional_matrix_power(a, 0.7) + 0j if a.size else a,),
            condition=20, slow=True, scan=True,
            varying={0: "XLA compiles products by the batch's size"}),
    _solve_of("solve_banded", lambda ab, b: linalg.scipy.solve_banded((BELOW, ABOVE), ab, b),
              with_columns(_banded), lambda ab: _dense(ab, ABOVE), stock=_stock_solve_banded,
              timed=Timed((BANDS, COLUMN), lambda n: 2 * n * (BELOW + 1) * (BELOW + ABOVE + 1))),
    _solve_of("solveh_banded", lambda ab, b: linalg.scipy.solveh_banded(ab, b, lower=True),
              with_columns(_banded_positive), _dense_hermitian),
    Case("cholesky_banded", lambda ab: linalg.scipy.cholesky_banded(ab, lower=True),
         _banded_positive, (2,), _cholesky_banded_ratio, _cholesky_banded_oracle, scan=True),
    _solve_of("cho_solve_banded", lambda cb, b: linalg.scipy.cho_solve_banded((cb, True), b),
              with_columns(_banded_positive), _dense_of_factor),
    case_of("solve_sylvester", linalg.scipy.solve_sylvester, _sylvester, (2, 2, 2),
            _nonempty(scipy.linalg.solve_sylvester), jax.scipy.linalg.solve_sylvester, condition=20,
            slow=True, scan=True),
    case_of("solve_continuous_lyapunov", linalg.scipy.solve_continuous_lyapunov, _stable, (2, 2),
            _nonempty(scipy.linalg.solve_continuous_lyapunov), condition=20, slow=True, scan=True),
    case_of("solve_discrete_lyapunov", linalg.scipy.solve_discrete_lyapunov, _stable, (2, 2),
            _nonempty(scipy.linalg.solve_discrete_lyapunov), condition=20, slow=True, scan=True),
    case_of("solve_continuous_are", linalg.scipy.solve_continuous_are, _regulator, (2, 2, 2, 2),
            _riccati(scipy.linalg.solve_continuous_are), condition=20, slow=True, scan=True),
    case_of("solve_discrete_are", linalg.scipy.solve_discrete_are, _regulator, (2, 2, 2, 2),
            _riccati(scipy.linalg.solve_discrete_are), condition=20, slow=True, scan=True),
    case_of("ldl", lambda a: linalg.scipy.ldl(a)[:2], hermitian, (2,),
            lambda a: scipy.linalg.ldl(a)[:2], condition=100, slow=True, scan=True, zeros=True),
    case_of("solve_toeplitz", lambda c, r, b: linalg.scipy.solve_toeplitz((c, r), b), _toeplitz,
            (1, 1, 2), lambda c, r, b: (np.linalg.solve(scipy.linalg.toeplitz(c, r), b),),
            condition=20, scan=True,
            varying={0: "XLA sums a few arrays in other orders than many"}),
    case_of("matmul_toeplitz", lambda c, r, x: linalg.scipy.matmul_toeplitz((c, r), x), _toeplitz,
            (1, 1, 2), lambda c, r, x: (scipy.linalg.toeplitz(c, r) @ x,), condition=20,
            varying={0: "XLA compiles products by the batch's size"}),
)
