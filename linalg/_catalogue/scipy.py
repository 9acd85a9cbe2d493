"""`linalg.scipy`: functions that jax.scipy.linalg lacks, or whose signature differs."""

import functools

import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg

import linalg.scipy
from linalg._catalogue import checks, matrices
from linalg._catalogue.case import Case
from linalg._catalogue.distance import case_of
from linalg._catalogue.invariants import singular, spectral
from linalg._catalogue.operands import (
  hermitian,
  positive_definite,
  square,
  square_general,
  with_columns,
)
from linalg._catalogue.record import Behaviour, Function, Kind
from linalg._catalogue.scipy_factors import SCIPY_FACTORS
from linalg._catalogue.scipy_pencils import SCIPY_PENCILS
from linalg._catalogue.timed import BANDS, COLUMN, Timed
from linalg._catalogue.why import BATCHES, SUMS

EYE = np.eye(3)
BEYOND = Kind("scipy", "By SciPy's signatures, beyond JAX")
OTHERWISE = Kind("scipy", "With another signature or result than in linalg")

SPACES = Behaviour(
    "batches; under `jit` with the number of columns as `size=`; derivatives at equal singular "
    "values, to any order",
    ("values/test_scipy.py::test_spaces", "values/test_scipy.py::test_size_of_spaces",
     "values/test_scipy.py::test_derivatives_of_spaces"))
EQUATIONS = Behaviour(
    "NaN where the solution is not unique, for that matrix alone; derivatives at defective "
    "matrices, to any order",
    ("values/test_scipy.py::test_equations_without_a_unique_solution",
     "values/test_scipy.py::test_derivatives_of_equations_at_defective_matrices"))
RICCATI = Behaviour(
    "NaN where no solution makes the closed loop stable, for that matrix alone; R may be singular "
    "in discrete time; derivatives of the equation, to any order",
    ("values/test_riccati.py::test_riccati",
     "values/test_riccati.py::test_riccati_of_strongly_unstable_systems",
     "values/test_riccati.py::test_riccati_of_stable_systems_without_costs",
     "values/test_riccati.py::test_cheap_inputs_of_stable_systems_without_costs",
     "values/test_riccati.py::test_continuous_riccati_with_cheap_inputs",
     "values/test_riccati.py::test_discrete_riccati_of_singular_weights",
     "values/test_riccati.py::test_riccati_equations_without_a_solution",
     "values/test_riccati.py::test_derivatives_of_riccati",
     "values/test_riccati.py::test_derivatives_at_ill_conditioned_weights"))
TOEPLITZ = Behaviour(
    "batches broadcast, and stay where they lie; NaN where a leading minor is 0, for that matrix "
    "alone; derivatives of the equation, to any order",
    ("values/test_scipy.py::test_toeplitz", "values/test_scipy.py::test_singular_toeplitz"))
LOGARITHMS = Behaviour(
    "NaN at singular matrices; derivatives at equal eigenvalues and at defective matrices",
    ("values/test_logm.py::test_logarithms_and_powers",
     "values/test_logm.py::test_derivatives_of_logarithms"))
BANDED = Behaviour(
    "NaN at singular matrices, or those that are not positive definite, for that matrix alone; "
    "corners are not read, and bands may be wider than the matrix; derivatives in the memory of "
    "the diagonals",
    ("values/test_banded.py::test_solve_banded", "values/test_banded.py::test_failures",
     "values/test_banded.py::test_corners"))

STRUCTURES = Behaviour(
    "`assume_a=` takes SciPy's names of structures; elements that a structure excludes are not "
    "read",
    ("values/test_scipy_structures.py::test_structures",
     "values/test_scipy_structures.py::test_singular_structures",
     "values/test_scipy_structures.py::test_derivatives",
     "values/test_scipy_structures.py::test_sharded"))


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
  """A, whose eigenvalues are left of the imaginary axis and in the unit circle, and another."""
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


def dense(ab, above):
  """The matrix with these diagonals. The corners of ab are not read."""
  count, n = ab.shape[-2:]
  a = np.zeros((*ab.shape[:-2], n, n), ab.dtype)
  for t in range(count):
    for j in range(max(above - t, 0), min(n + above - t, n)):
      a[..., j + t - above, j] = ab[..., t, j]
  return a

def _dense_lower(ab):
  return dense(ab, 0)

def dense_hermitian(ab):
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
  """The lower triangle of a diagonally dominant matrix. Its positive diagonal may be complex."""
  del m
  ab = matrices.general(rng, batch, BELOW + 1, n, dtype)
  ab[..., 0, :] = ab[..., 0, :] - ab[..., 0, :].real + 8 * BELOW
  return (ab,)

def _stock_solve_banded(ab, b):
  """Solves with the dense matrix, because JAX has no banded solver."""
  n = ab.shape[-1]
  a = sum(jnp.eye(n, k=ABOVE - t, dtype=ab.dtype) * ab[..., t, None, :]
          for t in range(BELOW + ABOVE + 1))
  return jnp.linalg.solve(a, b)

def _solve_of(name, call, operands, dense, **options):
  """A case whose oracle solves with the dense form of the first operand."""

  def ratio(operands, results):
    ab, b = operands
    return checks.solution(dense(ab), results[0], b)

  return Case(
      name, call, operands, (2, 2), ratio, lambda ab, b: (np.linalg.solve(dense(ab), b),),
      scan=True, **options)

def _cholesky_banded_ratio(operands, results):
  (ab,), (factor,) = operands, results
  return checks.factorisation(
      dense_hermitian(ab), _dense_of_factor(factor), checks.eps(factor))

def _cholesky_banded_oracle(ab):
  l = np.linalg.cholesky(dense_hermitian(ab))
  factor = np.zeros_like(ab)
  for t in range(min(ab.shape)):
    factor[t, : ab.shape[-1] - t] = np.diagonal(l, -t)
  return (factor,)

def _toeplitz(rng, batch, m, n, dtype):
  """A column, a row and right-hand sides of well-conditioned systems."""
  c, r = (matrices.general(rng, batch, n, 1, dtype)[..., 0] for _ in range(2))
  c[..., :1] += 3 * np.sqrt(n + 1)
  return c, r, matrices.general(rng, batch, n, 2, dtype)

def _nonempty(function):
  """SciPy has no solution of an equation without entries."""
  return lambda *operands: (function(*operands) if operands[0].size else operands[-1],)

def _balance_oracle(a):
  return scipy.linalg.matrix_balance(a) if a.size else (a, a)

def _riccati(function):
  return lambda a, *rest: (function(a, *rest) if a.size else a,)

_function = functools.partial(Function, kind=BEYOND, module="linalg.scipy")
_otherwise = functools.partial(
    Function, kind=OTHERWISE, module="linalg.scipy",
    no_cases="a function of linalg in another form")

SCIPY_FUNCTIONS: tuple[Function, ...] = (
    _function(
        "solve_sylvester", behaviours=(EQUATIONS,),
        calls={"": lambda m, a, p, b: m.solve_sylvester(a, p[:2, :2], b)},
        cases=(
            case_of("solve_sylvester", linalg.scipy.solve_sylvester, _sylvester, (2, 2, 2),
                    _nonempty(scipy.linalg.solve_sylvester), jax.scipy.linalg.solve_sylvester,
                    condition=20, slow=True, scan=True),
        )),
    _function(
        "solve_continuous_lyapunov", behaviours=(EQUATIONS,),
        cases=(
            case_of("solve_continuous_lyapunov", linalg.scipy.solve_continuous_lyapunov, _stable,
                    (2, 2), _nonempty(scipy.linalg.solve_continuous_lyapunov), condition=20,
                    slow=True, scan=True),
        )),
    _function(
        "solve_discrete_lyapunov", behaviours=(EQUATIONS,),
        cases=(
            case_of("solve_discrete_lyapunov", linalg.scipy.solve_discrete_lyapunov, _stable,
                    (2, 2), _nonempty(scipy.linalg.solve_discrete_lyapunov), condition=20,
                    slow=True, scan=True),
        )),
    _function(
        "solve_continuous_are", behaviours=(RICCATI,),
        cases=(
            case_of("solve_continuous_are", linalg.scipy.solve_continuous_are, _regulator,
                    (2, 2, 2, 2), _riccati(scipy.linalg.solve_continuous_are), condition=20,
                    slow=True, scan=True),
        )),
    _function(
        "solve_discrete_are", behaviours=(RICCATI,),
        results={"solve_discrete_are(a, a, a, a, None, a)": "Array"},
        cases=(
            case_of("solve_discrete_are", linalg.scipy.solve_discrete_are, _regulator,
                    (2, 2, 2, 2), _riccati(scipy.linalg.solve_discrete_are), condition=20,
                    slow=True, scan=True),
        )),
    _function(
        "ldl",
        behaviours=(Behaviour(
            "batches; LAPACK's pivots, of singular matrices and of complex symmetric ones too; "
            "derivatives at constant pivots, to any order",
            ("values/test_ldl.py::test_ldl", "values/test_ldl.py::test_derivatives_of_ldl")),),
        results={"ldl(a, lower=False)": "Arrays3"},
        cases=(
            case_of("ldl", lambda a: linalg.scipy.ldl(a)[:2], hermitian, (2,),
                    lambda a: scipy.linalg.ldl(a)[:2], condition=100, slow=True, scan=True,
                    zeros=True),
        )),
    _function(
        "matrix_balance",
        behaviours=(Behaviour(
            "batches; the same permutation and powers of two in any batch; derivatives of B at a "
            "constant T, to any order",
            ("values/test_balance.py::test_agrees_with_scipy",
             "values/test_balance.py::test_extremes_and_neighbours",
             "values/test_balance.py::test_derivatives")),),
        results={
            "matrix_balance(a)": "tuple[Array, Array]",
            "matrix_balance(a, separate=True)": "tuple[Array, tuple[Array, Array]]"},
        cases=(
            case_of("matrix_balance", linalg.scipy.matrix_balance, square_general, (2,),
                    _balance_oracle, zeros=True),
        )),
    _function(
        "solve_toeplitz", behaviours=(TOEPLITZ,),
        results={"solve_toeplitz((a, a), a)": "Array"},
        cases=(
            case_of("solve_toeplitz", lambda c, r, b: linalg.scipy.solve_toeplitz((c, r), b),
                    _toeplitz, (1, 1, 2),
                    lambda c, r, b: (np.linalg.solve(scipy.linalg.toeplitz(c, r), b),),
                    condition=20, scan=True, varying={0: SUMS}),
        )),
    _function(
        "matmul_toeplitz", behaviours=(TOEPLITZ,),
        cases=(
            case_of("matmul_toeplitz", lambda c, r, x: linalg.scipy.matmul_toeplitz((c, r), x),
                    _toeplitz, (1, 1, 2), lambda c, r, x: (scipy.linalg.toeplitz(c, r) @ x,),
                    condition=20, varying={0: BATCHES}),
        )),
    _function(
        "logm", behaviours=(LOGARITHMS,),
        cases=(
            case_of("logm", linalg.scipy.logm, _to_the_right, (2,),
                    lambda a: (scipy.linalg.logm(a) + 0j if a.size else a,), condition=20,
                    slow=True, scan=True),
        )),
    _function(
        "funm",
        behaviours=(Behaviour(
            "batched, of any function; right at equal and nearly equal eigenvalues, and at "
            "defective matrices; derivatives there to any order, and by what the function refers "
            "to; an estimate of the error",
            tuple(f"values/test_funm.py::test_{test}" for test in (
                "functions", "many_equal_eigenvalues", "estimated_errors",
                "estimated_errors_beside_a_pole",
                "functions_that_are_not_analytic", "derivatives_of_functions",
                "gradients_by_what_a_function_refers_to",
                "numbers_that_a_function_refers_to"))),),
        arguments=(EYE, jnp.exp), results={"funm(a, lambda x: x)": "Array | Arrays2"},
        calls={
            "": lambda m, a, p, b: m.funm(p, jnp.log),
            "and error": lambda m, a, p, b: m.funm(a, jnp.cos, disp=False)[0],
        },
        cases=(
            case_of("funm", lambda a: linalg.scipy.funm(a, jnp.log), _to_the_right, (2,),
                    lambda a: (scipy.linalg.logm(a) + 0j if a.size else a,), condition=20,
                    slow=True, scan=True),
        )),
    _function(
        "fractional_matrix_power", behaviours=(LOGARITHMS,),
        results={"fractional_matrix_power(a, 0.5)": "Array"},
        cases=(
            case_of("fractional_matrix_power",
                    lambda a: linalg.scipy.fractional_matrix_power(a, 0.7), _to_the_right, (2,),
                    lambda a: (
                        scipy.linalg.fractional_matrix_power(a, 0.7) + 0j if a.size else a,),
                    condition=20, slow=True, scan=True, varying={0: BATCHES}),
        )),
    _function(
        "expm_frechet",
        behaviours=(Behaviour(
            "batches broadcast; each matrix scaled by itself",
            ("values/test_composed.py::test_results",)),),
        results={"expm_frechet(a, a, compute_expm=True)": "Arrays2"},
        calls={"": lambda m, a, p, b: m.expm_frechet(a / 4, p)},
        cases=(
            case_of("expm_frechet",
                    lambda a, e: linalg.scipy.expm_frechet(a / 4, e, compute_expm=False),
                    _two_general, (2, 2),
                    lambda a, e: (
                        scipy.linalg.expm_frechet(a / 4, e, compute_expm=False) if a.size else a,),
                    condition=20, slow=True, varying={0: BATCHES}),
        )),
    _function(
        "pinvh",
        behaviours=(Behaviour(
            "derivatives wherever the rank is constant, at equal eigenvalues too",
            ("values/test_scipy.py::test_pinvh",)),),
        results={"pinvh(a)": "Array", "pinvh(a, return_rank=True)": "Arrays2"},
        cases=(
            case_of("pinvh", linalg.scipy.pinvh, positive_definite, (2,),
                    lambda a: (np.linalg.pinv(a),), condition=20, slow=True),
        )),
    _function(
        "null_space", behaviours=(SPACES,),
        cases=(
            case_of("null_space", lambda a: _projector(linalg.scipy.null_space(a, size=2)), _wide,
                    (2,), _null_space_oracle, condition=20, slow=True),
        )),
    _function(
        "orth", behaviours=(SPACES,), results={"orth(a, size=2)": "Array"},
        cases=(
            case_of("orth", lambda a: _projector(linalg.scipy.orth(a, size=a.shape[-1])), _tall,
                    (2,), _range_oracle, condition=20, slow=True),
        )),
    _function(
        "solve_banded", behaviours=(BANDED,), arguments=((1, 1), EYE, EYE),
        results={"solve_banded((1, 1), a, a)": "Array"},
        cases=(
            _solve_of("solve_banded",
                      lambda ab, b: linalg.scipy.solve_banded((BELOW, ABOVE), ab, b),
                      with_columns(_banded), lambda ab: dense(ab, ABOVE),
                      stock=_stock_solve_banded,
                      timed=Timed((BANDS, COLUMN),
                                  lambda n: 2 * n * (BELOW + 1) * (BELOW + ABOVE + 1))),
        )),
    _function(
        "solveh_banded", behaviours=(BANDED,),
        results={"solveh_banded(a, a, lower=True)": "Array"},
        cases=(
            _solve_of("solveh_banded",
                      lambda ab, b: linalg.scipy.solveh_banded(ab, b, lower=True),
                      with_columns(_banded_positive), dense_hermitian),
        )),
    _function(
        "cholesky_banded", behaviours=(BANDED,),
        cases=(
            Case("cholesky_banded", lambda ab: linalg.scipy.cholesky_banded(ab, lower=True),
                 _banded_positive, (2,), _cholesky_banded_ratio, _cholesky_banded_oracle,
                 scan=True),
        )),
    _function(
        "cho_solve_banded", behaviours=(BANDED,), arguments=((EYE, True), EYE),
        results={"cho_solve_banded((a, False), a)": "Array"},
        cases=(
            _solve_of("cho_solve_banded",
                      lambda cb, b: linalg.scipy.cho_solve_banded((cb, True), b),
                      with_columns(_banded_positive), _dense_of_factor),
        )),
    *SCIPY_FACTORS,
    *SCIPY_PENCILS,
    _otherwise(
        "cholesky", results={"cholesky(a, True)": "Array"},
        calls={
            "": lambda m, a, p, b: m.cholesky(p),
            "lower": lambda m, a, p, b: m.cholesky(p, True, True, False),
        }),
    _otherwise(
        "det",
        calls={"": lambda m, a, p, b: m.det(a)}),
    _otherwise(
        "eigh", results={"eigh(a)": "Arrays2", "eigh(a, eigvals_only=True)": "Array"},
        calls={
            "": lambda m, a, p, b: spectral(*m.eigh(p)),
            "of a general matrix": lambda m, a, p, b: m.eigh(a, None, False, True),
        }),
    _otherwise(
        "eigh_tridiagonal", arguments=(EYE[0], EYE[0, 1:]),
        behaviours=(Behaviour(
            "select='v', of eigenvalues in an interval, outside of `jit` and `vmap`",
            ("values/test_scipy_structures.py::test_tridiagonal_in_an_interval",)),),
        results={
            "eigh_tridiagonal(a, a)": "Arrays2",
            "eigh_tridiagonal(a, a, eigvals_only=True)": "Array"},
        calls={
            "": lambda m, a, p, b: m.eigh_tridiagonal(
                p[0].real, b[1:, 0].real, eigvals_only=True),
        }),
    _otherwise(
        "inv", behaviours=(STRUCTURES,),
        results={"inv(a)": "Array", 'inv(a, assume_a="her", lower=True)': "Array"},
        calls={"": lambda m, a, p, b: m.inv(a)}),
    _otherwise(
        "lu",
        results={
            "lu(a)": "Arrays3", "lu(a, True)": "Arrays2", "lu(a, p_indices=True)": "Arrays3"},
        calls={
            "": lambda m, a, p, b: m.lu(a),
            "permuted": lambda m, a, p, b: m.lu(b, True),
        }),
    _otherwise(
        "qr", results={'qr(a, mode="economic")': "Arrays2"},
        calls={
            "": lambda m, a, p, b: m.qr(b),
            "economic": lambda m, a, p, b: m.qr(b, mode="economic"),
            "pivoted": lambda m, a, p, b: m.qr(b, mode="economic", pivoting=True),
            "r": lambda m, a, p, b: m.qr(b, mode="r"),
            "r pivoted": lambda m, a, p, b: m.qr(b, mode="r", pivoting=True),
        }),
    _otherwise(
        "qr_multiply",
        calls={
            "": lambda m, a, p, b: m.qr_multiply(b, a),
            "left": lambda m, a, p, b: m.qr_multiply(
                b, a[:2], "left", pivoting=True, conjugate=True),
            "of a vector": lambda m, a, p, b: m.qr_multiply(a, b[:, 0]),
        }),
    _otherwise(
        "solve", behaviours=(STRUCTURES,), results={"solve(a, a, transposed=True)": "Array"},
        calls={
            "": lambda m, a, p, b: m.solve(a, b),
            "of a vector": lambda m, a, p, b: m.solve(a, b[:, 0]),
            # JAX's gradient of complex matrices assumes that A is its own transpose.
            "pos": lambda m, a, p, b: m.solve(p.real, b.real, True, assume_a="pos"),
            "her": lambda m, a, p, b: m.solve(p, b, assume_a="her"),
        }),
    _otherwise(
        "svd", results={"svd(a)": "Arrays3", "svd(a, compute_uv=False)": "Array"},
        calls={
            "full": lambda m, a, p, b: singular(*m.svd(b)),
            "": lambda m, a, p, b: singular(*m.svd(b, False)),
            "of values": lambda m, a, p, b: m.svd(b, compute_uv=False),
        }),
)
