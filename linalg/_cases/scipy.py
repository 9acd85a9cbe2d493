"""The functions of `linalg.scipy` that jax.scipy.linalg lacks, as cases."""

import jax.scipy.linalg
import numpy as np
import scipy.linalg

import linalg.scipy
from linalg._cases import matrices
from linalg._cases.case import Case
from linalg._cases.distance import case_of
from linalg._cases.operands import positive_definite, square, square_general


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
    case_of("fractional_matrix_power", lambda a: linalg.scipy.fractional_matrix_power(a, 0.7),
            _to_the_right, (2,),
            lambda a: (scipy.linalg.fractional_matrix_power(a, 0.7) + 0j if a.size else a,),
            condition=20, slow=True, scan=True,
            varying={0: "XLA compiles products by the batch's size"}),
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
)
