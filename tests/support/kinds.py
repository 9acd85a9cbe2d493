"""Kinds of matrices, and for each composed function those that it is tested on and how.

TESTED has a row for each case of the catalogue that is composed in Python or of `linalg.scipy`.
losses.py measures the errors. distributed_kinds.py has the functions of `linalg.distributed`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

import long_double as exact
from linalg._catalogue.scipy import ABOVE, BELOW, dense_hermitian
from linalg._catalogue.scipy_composed import SKETCH, real_form_of_scipy
from long_double import adjoint, size, wide
from matrices import general, unitary
from result_errors import (
  balance_error,
  band_error,
  changed_by_vectors,
  condition,
  cossin_error,
  dense_general,
  eig_error,
  exactly,
  factor_error,
  factors_error,
  frobenius,
  hermitian_function,
  is_of_full_rank,
  ldl_error,
  left_polar,
  log_determinant,
  nuclear,
  of_lu,
  pencil_error,
  polar_error,
  product_of_factor,
  projected,
  projector_error,
  qz_error,
  real_form,
  rotation,
  rotation_error,
  schur_error,
  solve_by_qr,
  solves,
  their_cossin,
  trace_error,
  vector_norm,
  with_row,
  without_row,
)

SIZES = (1, 2, 7, 33, 64, 65, 130)
_SAMPLES = 3

OVERFLOW = "the operands overflow"
NO_RANGE = "no result is in range"
NO_REFERENCE = "long double finds no result"
CUT_OFF = "a singular value is below the cut-off"
CAN_LACK = (OVERFLOW, NO_RANGE, NO_REFERENCE, CUT_OFF)


class LeftOut(Exception):
  """Why a function is not tested on matrices of a kind."""


def far(dtype):
  """The scale of the largest matrices; that of the smallest is its reciprocal."""
  return 1e18 if np.finfo(dtype).bits == 32 else 1e150


class Spectrum(NamedTuple):
  """Where the eigenvalues of matrices are: in a disc, about that of a scaled random matrix."""

  center: float
  radius: float
  hermitian: bool = False

  def values(self, rng, n):
    """Real numbers in the disc, of which none is near to 0."""
    if self.center == 0:
      return self.radius * np.linspace(0.3, 1, n) * (-1) ** np.arange(n)
    return self.center + self.radius * np.linspace(-0.9, 0.9, n)

  def random(self, rng, n, dtype):
    a = general(rng, (), n, n, dtype) / np.sqrt(n)
    a = (a + adjoint(a)) / 2 if self.hermitian else a
    return self.center * np.eye(n) + self.radius * a


ANY = Spectrum(0, 1)
RIGHT = Spectrum(2, 0.6)  # right of the imaginary axis
STABLE = Spectrum(-0.5, 0.25)  # left of it, and in the unit circle
HERMITIAN = Spectrum(0, 1, hermitian=True)
POSITIVE = Spectrum(2, 0.8, hermitian=True)


def _of_values(rng, values, spectrum, dtype):
  u = unitary(rng, len(values), dtype)
  if spectrum.hermitian:
    return (u * values) @ adjoint(u)
  beside = 0.1 * spectrum.radius * np.triu(general(rng, (), len(values), len(values), dtype), 1)
  return u @ (np.diag(values) + beside / np.sqrt(len(values))) @ adjoint(u)


def _random(rng, n, dtype, spectrum):
  return spectrum.random(rng, n, dtype)


def _gradings(n):
  return 10.0 ** np.linspace(-4, 4, n) if n > 1 else np.ones(1)


def _graded(rng, n, dtype, spectrum):
  """Entries of 10^±8: D A D if Hermitian, and else D A D⁻¹, which has the eigenvalues of A."""
  d = rng.permutation(_gradings(n))
  return d[:, None] * spectrum.random(rng, n, dtype) * (d if spectrum.hermitian else 1 / d)


def _graded_rows(rng, n, dtype, spectrum):
  if spectrum != ANY:
    raise LeftOut("graded rows move the spectrum")
  return rng.permutation(_gradings(n) ** 2)[:, None] * spectrum.random(rng, n, dtype)


def _large(rng, n, dtype, spectrum):
  return far(dtype) * spectrum.random(rng, n, dtype)


def _small(rng, n, dtype, spectrum):
  return spectrum.random(rng, n, dtype) / far(dtype)


def _nearly_defective(rng, n, dtype, spectrum):
  """Jordan blocks of order 4 whose eigenvalues differ by rounding, in another basis."""
  if spectrum.hermitian:
    raise LeftOut("Hermitian matrices have no Jordan blocks")
  values = spectrum.values(rng, -(-n // 4)).repeat(4)[:n]
  values = values * (1 + 8 * float(np.finfo(dtype).eps) * np.arange(n))
  beside = spectrum.radius * (np.arange(1, n) % 4 != 0)
  u = unitary(rng, n, dtype)
  return u @ (np.diag(values) + np.diag(beside, 1)) @ adjoint(u)


def _clustered(rng, n, dtype, spectrum):
  """Three clusters, each as narrow as the root of the rounding."""
  middles = spectrum.values(rng, 3)[np.arange(n) % 3]
  near = 1 + float(np.finfo(dtype).eps) ** 0.5 * rng.standard_normal(n)
  return _of_values(rng, middles * near, spectrum, dtype)


def _nearly_singular(rng, n, dtype, spectrum):
  """The smallest singular value, or eigenvalue, is 200 n eps."""
  tiny = 200 * n * float(np.finfo(dtype).eps)
  values = np.append(spectrum.values(rng, n)[1:], tiny if spectrum.center >= 0 else -tiny)
  if spectrum == ANY:
    values = np.append(np.linspace(1, 2, n)[1:], tiny)
    return (unitary(rng, n, dtype) * values) @ unitary(rng, n, dtype)
  return _of_values(rng, values, spectrum, dtype)


def _triangular(rng, n, dtype, spectrum):
  """An upper triangle, or a diagonal."""
  a = spectrum.random(rng, n, dtype)
  if spectrum.hermitian:
    return np.diag(np.diag(a))
  return np.triu(a) + (np.eye(n) if spectrum == ANY else 0)


def _permuted(rng, n, dtype, spectrum):
  """A triangle with rows and columns in another order, or diagonal blocks of order 2."""
  order = rng.permutation(n)
  a = _triangular(rng, n, dtype, spectrum)
  if spectrum.hermitian:
    place = np.arange(n) // 2
    a = np.where(place == place[:, None], spectrum.random(rng, n, dtype), 0)
  a = a[order][:, order]
  return a[rng.permutation(n)] if spectrum == ANY else a


KINDS: dict[str, Callable[..., Any]] = {
    "random": _random, "graded": _graded, "graded rows": _graded_rows, "large": _large,
    "small": _small, "nearly defective": _nearly_defective, "clustered": _clustered,
    "nearly singular": _nearly_singular, "triangular": _triangular, "permuted": _permuted}


def matrix(kind, rng, n, dtype, spectrum):
  """A matrix of a kind. Raises LeftOut if there is none with this spectrum."""
  a = KINDS[kind](rng, n, dtype, spectrum).astype(dtype)
  return (a / 2 + adjoint(a) / 2) if spectrum.hermitian else a


# Operands: (kind, rng, n, dtype) -> one tuple. They raise LeftOut.


def one(spectrum):
  def operands(kind, rng, n, dtype):
    return (matrix(kind, rng, n, dtype, spectrum),)

  return operands


def with_others(spectrum, *beside):
  """A matrix of the kind, and other operands made from (rng, a)."""

  def operands(kind, rng, n, dtype):
    a = matrix(kind, rng, n, dtype, spectrum)
    return a, *(np.asarray(make(rng, a)).astype(dtype) for make in beside)

  return operands


def columns(rng, a):
  return general(rng, (), len(a), 2, a.dtype)


def _like(rng, a):
  return general(rng, (), len(a), len(a), a.dtype) / np.sqrt(len(a))


def _rows_of(a, dtype):
  return a[0].copy(), a[:, 0].copy()


def _two(spectrum):
  """Two matrices of the kind whose product is in range: the second has another scale."""

  def operands(kind, rng, n, dtype):
    a = matrix(kind, rng, n, dtype, spectrum)
    other = {"large": "small", "small": "large"}.get(kind, kind)
    return a, matrix(other, rng, n, dtype, spectrum)

  return operands


def _vectors(kind, rng, n, dtype):
  pair = _two(ANY)(kind, rng, n, dtype)
  return tuple(x[0].copy() for x in pair)


def _vector(kind, rng, n, dtype):
  return (matrix(kind, rng, n, dtype, ANY)[0].copy(),)


def _triples(kind, rng, n, dtype):
  return tuple(x[:, :3].copy() for x in _two(ANY)(kind, rng, max(n, 3), dtype))


def _tall(kind, rng, n, dtype):
  """n + 2 rows, two of which are of the size of the first."""
  a = matrix(kind, rng, n, dtype, ANY)
  return (np.concatenate([a, general(rng, (), 2, n, dtype) * a[:1]]).astype(dtype),)


def _wide(kind, rng, n, dtype):
  (a,) = _tall(kind, rng, n, dtype)
  return (adjoint(a),)


def _tall_and_columns(kind, rng, n, dtype):
  (a,) = _tall(kind, rng, n, dtype)
  return a, general(rng, (), n + 2, 2, dtype)


def _sylvester(kind, rng, n, dtype):
  a = matrix(kind, rng, n, dtype, RIGHT)
  b = matrix(kind if kind in ("large", "small") else "random", rng, 2, dtype, RIGHT)
  return a, b, general(rng, (), n, 2, dtype)


def _regulator(discrete):
  def operands(kind, rng, n, dtype):
    a = matrix("random" if kind in ("large", "small") else kind, rng, n, dtype, STABLE)
    b, q, r = general(rng, (), n, 2, dtype), np.eye(n), np.eye(2)
    if kind in ("large", "small"):
      scale = far(dtype) if kind == "large" else 1 / far(dtype)
      if discrete:
        q, r = q * scale, r * scale
      else:
        a, b, q = a * scale, b * scale**0.5, q * scale
    return tuple(x.astype(dtype) for x in (a, b, q, r))

  return operands


def _diagonals(a, below, above):
  n = len(a)
  ab = np.zeros((below + above + 1, n), a.dtype)
  for t in range(-below, above + 1):
    d = np.diagonal(a, t)
    ab[above - t, max(t, 0) : max(t, 0) + len(d)] = d
  return ab


def _banded(kind, rng, n, dtype):
  a = matrix(kind, rng, n, dtype, RIGHT)
  return _diagonals(a, BELOW, ABOVE), columns(rng, a)


def _banded_positive(kind, rng, n, dtype):
  """The lower diagonals of a positive definite matrix, shifted by as much as the others hold."""
  a = matrix(kind, rng, n, dtype, POSITIVE)
  ab = _diagonals(a, BELOW, 0)
  ab[1:] /= 8
  return (ab,)


def _banded_positive_and_columns(kind, rng, n, dtype):
  (ab,) = _banded_positive(kind, rng, n, dtype)
  return ab, general(rng, (), n, 2, dtype)


def _banded_factor_and_columns(kind, rng, n, dtype):
  (ab,) = _banded_positive(kind, rng, n, dtype)
  with np.errstate(all="ignore"):
    scale = np.sqrt(np.abs(ab).max())
    factor = scipy.linalg.cholesky_banded(ab / scale / scale, lower=True) * scale
  return factor.astype(dtype), general(rng, (), n, 2, dtype)


def _hermitian_band(kind, rng, n, dtype):
  return (_diagonals(matrix(kind, rng, n, dtype, HERMITIAN), BELOW, 0),)


def _pencil(kind, rng, n, dtype):
  """A matrix of the kind, and a random one that is far from singular."""
  of_b = kind if kind in ("large", "small") else "random"
  return matrix(kind, rng, n, dtype, ANY), matrix(of_b, rng, n, dtype, RIGHT)


def _larger(kind, rng, n, dtype):
  return (matrix(kind, rng, n + 2, dtype, ANY),)


def _factors_and(*shapes):
  """QR factors of a tall matrix, and vectors of the size of its rows; shapes are functions of n."""

  def operands(kind, rng, n, dtype):
    (a,) = _tall(kind, rng, n, dtype)
    beside = [general(rng, (), *shape(n), dtype) for shape in shapes]
    if beside:
      beside[-1] = beside[-1] * size(a).astype(dtype)
    return *np.linalg.qr(a), *(x.astype(dtype) for x in beside)

  return operands


def _toeplitz(kind, rng, n, dtype):
  """A column and a row whose first element is the largest."""
  a = matrix(kind, rng, n, dtype, RIGHT)
  c, r = a[:, 0].copy(), a[0].copy()
  c[0] = r[0] = max(np.abs(c).max(), np.abs(r).max()) * (3 if kind != "nearly singular" else 1.02)
  return c, r, general(rng, (), n, 2, dtype)


def _circulant(kind, rng, n, dtype):
  c, _, b = _toeplitz(kind, rng, n, dtype)
  return c, b[:, 0].copy()


def _tall_and_two(kind, rng, n, dtype):
  (a,) = _tall(kind, rng, n, dtype)
  return a, general(rng, (), n + 2, 2, dtype)


def _nearly_rotated(kind, rng, n, dtype):
  """A matrix, and a random unitary one of its order."""
  return matrix(kind, rng, n, dtype, ANY), unitary(rng, n, dtype).astype(dtype)


def _equal_to_transpose(kind, rng, n, dtype):
  a = matrix(kind, rng, n, dtype, ANY)
  return (a / 2 + a.T / 2,)


def _vector_and_matrix(kind, rng, n, dtype):
  a = matrix(kind, rng, n, dtype, ANY)
  return a[0].copy(), a


def _lu_factors(kind, rng, n, dtype):
  a = matrix(kind, rng, n, dtype, ANY)
  packed, pivots = scipy.linalg.lu_factor(a)
  return packed.astype(dtype), pivots.astype(np.int32)


def _cholesky_factor(kind, rng, n, dtype):
  return (np.linalg.cholesky(matrix(kind, rng, n, dtype, POSITIVE)),)


def _pair(kind, rng, n, dtype):
  """A is random, of the scale of B."""
  b = matrix(kind, rng, n, dtype, POSITIVE)
  of_a = kind if kind in ("large", "small", "graded") else "random"
  return matrix(of_a, rng, n, dtype, HERMITIAN), b


class Told(NamedTuple):
  """A docstring's words about a kind on which the function loses more digits than SciPy.

  Attributes:
    words: of the docstring. The error is at most ten times the change of the result when the
      operands are rounded in the norm: each element by eps of the largest one.
    is_nan: whether the result may be NaN instead.
    moved: (rng, operands) -> the results in long double after another rounding, if the docstring
      speaks of one.
    most: a relative error that the docstring allows whatever the rounding.
  """

  words: str
  is_nan: bool = False
  moved: Callable[..., Any] | None = None
  most: float = 0


@dataclasses.dataclass(frozen=True)
class Tested:
  """How one case is tested.

  Attributes:
    operands: (kind, rng, n, dtype) -> the operands of one matrix. It may raise LeftOut.
    exact: the results of one matrix in long double. Beside `error`, it only gives the reach.
    theirs: SciPy's or NumPy's results of one matrix.
    error: (operands, results) -> the error, if it is not the distance from `exact`.
    cut_off: whether small singular values count as 0. Matrices that have some are left out.
    told: kind -> what the docstring says about it.
    not_of: kind -> why the function is not tested on it.
    lacks: kind -> why there may be no matrix of it that can be compared, in some dtypes and sizes:
      OVERFLOW, NO_RANGE, NO_REFERENCE or CUT_OFF.
    largest: the largest order of its matrices.
  """

  operands: Callable[..., Any]
  exact: Callable[..., Any] | None
  theirs: Callable[..., Any]
  error: Callable[..., float] | None = None
  cut_off: bool = False
  told: Mapping[str, Told] = dataclasses.field(default_factory=dict)
  not_of: Mapping[str, str] = dataclasses.field(default_factory=dict)
  lacks: Mapping[str, str] = dataclasses.field(default_factory=dict)
  largest: int = SIZES[-1]


_norm_1 = lambda a: np.abs(a).sum(0).max()

SINGULAR = {"graded": CUT_OFF, "graded rows": CUT_OFF}
_POWERS = {"large": NO_RANGE, "small": NO_RANGE}
_NO_DIGIT_IF_LARGE = {"large": "rounding A leaves no digit of the result"}
_SCALES = Told("of very different scale")
# Errors that are estimated to be above a tenth are NaN.
_SCALES_OR_NAN = Told("of very different scale", is_nan=True, most=0.1)
_TO_ROUNDING = Told("only says that the matrix is singular to rounding")
_IS_ROUNDING = Told("a rounding error")


def _sketched(a):
  return scipy.linalg.clarkson_woodruff_transform(np.eye(len(a)), SKETCH, rng=0) @ wide(a)


def _trigonometric(name, reference, place):
  """The row of a function by the reference of its cosine and sine; None is their quotient."""
  of = lambda a: exact.solved(*reference(a)) if place is None else reference(a)[place]
  return Tested(
      one(STABLE), of, getattr(scipy.linalg, name), not_of=_NO_DIGIT_IF_LARGE,
      told={"graded": Told("far larger than others cost digits")})


TESTED: dict[str, Tested] = {
    "expm": Tested(
        one(STABLE), exact.expm, scipy.linalg.expm, not_of=_NO_DIGIT_IF_LARGE,
        told={"graded": Told("far larger than others cost digits")}),
    "sqrtm": Tested(one(RIGHT), exact.sqrtm, scipy.linalg.sqrtm),
    "matrix_power": Tested(
        one(ANY), lambda a: exact.power(a, 3), lambda a: np.linalg.matrix_power(a, 3),
        lacks=_POWERS),
    "matrix_power_-2": Tested(
        one(ANY), lambda a: exact.power(a, -2), lambda a: np.linalg.matrix_power(a, -2),
        lacks=_POWERS),
    "funm_hermitian": Tested(
        one(HERMITIAN), exact.sinm, hermitian_function(np.sin),
        not_of=_NO_DIGIT_IF_LARGE | {"graded": "the sine of 1e8 keeps no digit in float32"}),
    "inverse_pth_root": Tested(
        one(POSITIVE), exact.inverse_fourth_root, hermitian_function(lambda w: w**-0.25),
        told={"graded": Told("are rounding errors")}),
    "solve_pos": Tested(with_others(POSITIVE, columns), exact.solved,
                        lambda a, b: scipy.linalg.solve(a, b, assume_a="pos")),
    "solve_her": Tested(with_others(HERMITIAN, columns), exact.solved,
                        lambda a, b: scipy.linalg.solve(a, b, assume_a="her")),
    "factorize_cholesky": Tested(
        with_others(POSITIVE, columns), lambda a, b: (exact.solved(a, b), log_determinant(a)[1]),
        lambda a, b: (scipy.linalg.solve(a, b, assume_a="pos"), np.linalg.slogdet(a)[1])),
    "factorize_lu": Tested(
        with_others(ANY, columns), lambda a, b: (exact.solved(a, b), *log_determinant(a)),
        lambda a, b: (np.linalg.solve(a, b), *np.linalg.slogdet(a))),
    "factorize_qr": Tested(
        with_others(ANY, columns), exact.solved, solve_by_qr,
        told={kind: Told("beside rows that are far larger") for kind in ("graded", "graded rows")}),
    "lstsq": Tested(_tall_and_columns, exact.least_squares,
                    lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], cut_off=True,
                    lacks=SINGULAR, told={"graded rows": Told("beside rows that are far larger")}),
    "pinv": Tested(one(ANY), exact.inverse, np.linalg.pinv, cut_off=True, lacks=SINGULAR),
    "pinv_hermitian": Tested(
        one(POSITIVE), exact.inverse, lambda a: np.linalg.pinv(a, hermitian=True),
        cut_off=True, lacks=SINGULAR),
    "lu_slogdet": Tested(_lu_factors, lambda lu, pivots: of_lu(wide(lu), pivots), of_lu),
    "cho_logdet": Tested(
        _cholesky_factor, lambda l: 2 * np.sum(np.log(wide(np.diagonal(l).real))),
        lambda l: 2 * np.sum(np.log(np.diagonal(l).real))),
    "polar": Tested(one(ANY), exact.polar, scipy.linalg.polar, polar_error("right")),
    "polar_left": Tested(
        one(ANY), left_polar, lambda a: scipy.linalg.polar(a, "left"), polar_error("left")),
    "matrix_rank": Tested(one(ANY), lambda a: np.longdouble(len(a)), np.linalg.matrix_rank,
                          cut_off=True, lacks=SINGULAR),
    "cond": Tested(one(ANY), condition, np.linalg.cond,
                   told={"graded": _TO_ROUNDING, "graded rows": _TO_ROUNDING}),
    "cond_1": Tested(one(ANY), lambda a: _norm_1(wide(a)) * _norm_1(exact.inverse(a)),
                     lambda a: np.linalg.cond(a, 1)),
    "norm": Tested(one(ANY), frobenius, np.linalg.norm),
    **{f"vector_norm_{order}": Tested(
        _vector, vector_norm(order), lambda x, order=order: np.linalg.norm(x, order))
       for order in (3, 2, 0.5, -1)},
    "matrix_norm_2": Tested(
        one(ANY), lambda a: exact.extreme_singular_values(a)[0], lambda a: np.linalg.norm(a, 2)),
    "matrix_norm_-2": Tested(
        one(ANY), lambda a: exact.extreme_singular_values(a)[1], lambda a: np.linalg.norm(a, -2),
        told={"graded": _IS_ROUNDING, "graded rows": _IS_ROUNDING}),
    "matrix_norm_nuc": Tested(one(ANY), nuclear, lambda a: np.linalg.norm(a, "nuc")),
    "matrix_norm_1": Tested(one(ANY), exactly(_norm_1), _norm_1),
    "matrix_norm_inf": Tested(
        one(ANY), exactly(lambda a: _norm_1(a.T)), lambda a: _norm_1(a.T)),
    "congruence": Tested(_two(ANY), exactly(lambda a, x: a @ x @ adjoint(a)),
                         lambda a, x: a @ x @ adjoint(a)),
    "congruence_adjoint": Tested(_two(ANY), exactly(lambda a, x: adjoint(a) @ x @ a + a),
                                 lambda a, x: adjoint(a) @ x @ a + a),
    "cross": Tested(_triples, exactly(np.cross), np.cross),
    "vecdot": Tested(_vectors, exactly(lambda x, y: np.sum(x.conj() * y)), np.vdot),
    "diagonal": Tested(one(ANY), lambda a: wide(np.diagonal(a, 1)), lambda a: np.diagonal(a, 1)),
    "trace": Tested(one(ANY), exactly(np.trace), np.trace),
    "matrix_transpose": Tested(one(ANY), exactly(np.transpose), np.transpose),
    "block_diag": Tested(_two(ANY), exactly(scipy.linalg.block_diag), scipy.linalg.block_diag),
    "eigh_generalized": Tested(_pair, None, scipy.linalg.eigh, error=pencil_error),
    "solve_sylvester": Tested(
        _sylvester, exact.sylvester, scipy.linalg.solve_sylvester,
        told={"small": Told("less than `tol` in magnitude", is_nan=True)}),
    "solve_continuous_lyapunov": Tested(
        with_others(STABLE, _like), exact.continuous_lyapunov,
        scipy.linalg.solve_continuous_lyapunov),
    "solve_discrete_lyapunov": Tested(
        with_others(STABLE, _like), exact.discrete_lyapunov, scipy.linalg.solve_discrete_lyapunov,
        not_of=_NO_DIGIT_IF_LARGE),
    "solve_continuous_are": Tested(
        _regulator(discrete=False), exact.riccati(scipy.linalg.solve_continuous_are, False),
        scipy.linalg.solve_continuous_are, told={"graded": _SCALES_OR_NAN}),
    "solve_discrete_are": Tested(
        _regulator(discrete=True), exact.riccati(scipy.linalg.solve_discrete_are, True),
        scipy.linalg.solve_discrete_are, told={"graded": _SCALES_OR_NAN}),
    "matrix_balance": Tested(
        one(ANY), None, scipy.linalg.matrix_balance, error=balance_error),
    "schur_sorted": Tested(
        one(ANY), None, lambda a: scipy.linalg.schur(a, sort="lhp")[:2], error=schur_error),
    "qz": Tested(_pencil, None, scipy.linalg.qz, error=qz_error),
    "ordqz": Tested(
        _pencil, None, lambda a, b: scipy.linalg.ordqz(a, b, "iuc"), error=qz_error),
    "eig_generalized": Tested(_pencil, None, scipy.linalg.eig, error=eig_error),
    "eig_left_generalized": Tested(_pencil, None, scipy.linalg.eig, error=eig_error),
    "eigvals_generalized": Tested(_pencil, None, scipy.linalg.eigvals, error=trace_error),
    "rq": Tested(
        _wide, None, lambda a: scipy.linalg.rq(a, mode="economic"),
        error=factors_error(lambda a: (a, size(a)), left=False)),
    "qr_update": Tested(
        _factors_and(lambda n: (n + 2, 1), lambda n: (n, 1)), None, scipy.linalg.qr_update,
        error=factors_error(changed_by_vectors)),
    "qr_insert": Tested(
        _factors_and(lambda n: (1, n)), None,
        lambda q, r, u: scipy.linalg.qr_insert(q, r, u[0], 1),
        error=factors_error(with_row)),
    "qr_delete": Tested(
        _factors_and(), None, lambda q, r: scipy.linalg.qr_delete(q, r, 1),
        error=factors_error(without_row)),
    "eig_banded": Tested(
        _hermitian_band, None, lambda ab: scipy.linalg.eig_banded(ab, lower=True),
        error=band_error),
    "eigvals_banded": Tested(
        _hermitian_band, None, lambda ab: scipy.linalg.eigvals_banded(ab, lower=True),
        error=band_error),
    "cossin": Tested(_larger, None, their_cossin, error=cossin_error),
    "ldl": Tested(
        one(HERMITIAN), None, lambda a: scipy.linalg.ldl(a)[:2], error=ldl_error),
    "solve_toeplitz": Tested(
        _toeplitz, lambda c, r, b: exact.solved(scipy.linalg.toeplitz(c, r), b),
        lambda c, r, b: scipy.linalg.solve_toeplitz((c, r), b)),
    "matmul_toeplitz": Tested(
        _toeplitz, lambda c, r, x: wide(scipy.linalg.toeplitz(c, r)) @ wide(x),
        lambda c, r, x: scipy.linalg.matmul_toeplitz((c, r), x)),
    "logm": Tested(one(RIGHT), exact.logm, scipy.linalg.logm),
    "funm": Tested(one(RIGHT), exact.logm, scipy.linalg.logm, told={"graded": _SCALES}),
    "fractional_matrix_power": Tested(
        one(RIGHT), lambda a: exact.fractional_power(a, 0.7),
        lambda a: scipy.linalg.fractional_matrix_power(a, 0.7)),
    "expm_frechet": Tested(
        with_others(STABLE, _like), lambda a, e: exact.expm_frechet(wide(a / 4), wide(e)),
        lambda a, e: scipy.linalg.expm_frechet(a / 4, e, compute_expm=False),
        not_of=_NO_DIGIT_IF_LARGE),
    **{name: _trigonometric(name, exact.cosm_and_sinm, place)
       for name, place in (("cosm", 0), ("sinm", 1), ("tanm", None))},
    **{name: _trigonometric(name, exact.coshm_and_sinhm, place)
       for name, place in (("coshm", 0), ("sinhm", 1), ("tanhm", None))},
    "signm": Tested(
        one(ANY), exact.signm, scipy.linalg.signm,
        told={"graded rows": Told("on the imaginary axis up to rounding")}),
    "expm_cond": Tested(
        one(STABLE), exact.expm_condition, scipy.linalg.expm_cond, largest=7,
        not_of=_NO_DIGIT_IF_LARGE, told={"graded": Told("far larger than others cost digits")}),
    "solve_circulant": Tested(
        _circulant, lambda c, b: exact.solved(scipy.linalg.circulant(c), b[:, None])[:, 0],
        scipy.linalg.solve_circulant),
    "subspace_angles": Tested(
        _tall_and_two, exact.angles, scipy.linalg.subspace_angles, cut_off=True, lacks=SINGULAR,
        told={"graded rows": Told("beside rows that are far larger")}),
    "orthogonal_procrustes": Tested(
        _nearly_rotated, rotation, scipy.linalg.orthogonal_procrustes, error=rotation_error),
    "khatri_rao": Tested(
        _two(ANY), exactly(scipy.linalg.khatri_rao), scipy.linalg.khatri_rao),
    "cdf2rdf": Tested(_vector_and_matrix, real_form, real_form_of_scipy),
    "diagsvd": Tested(
        _vector, lambda s: wide(np.eye(len(s), len(s) + 1) * s[:, None]),
        lambda s: scipy.linalg.diagsvd(s, len(s), len(s) + 1)),
    "bandwidth": Tested(
        one(ANY), lambda a: tuple(map(np.asarray, scipy.linalg.bandwidth(a))),
        scipy.linalg.bandwidth),
    "issymmetric": Tested(
        _equal_to_transpose, lambda a: np.asarray((a == a.T).all(), float),
        scipy.linalg.issymmetric),
    "ishermitian": Tested(
        one(HERMITIAN), lambda a: np.asarray((a == adjoint(a)).all(), float),
        scipy.linalg.ishermitian),
    "clarkson_woodruff_transform": Tested(
        _tall, _sketched, lambda a: scipy.linalg.clarkson_woodruff_transform(a, SKETCH, rng=0)),
    "pinvh": Tested(
        one(POSITIVE), exact.inverse, scipy.linalg.pinvh, cut_off=True, lacks=SINGULAR),
    "null_space": Tested(
        _wide, None, lambda a: projected(scipy.linalg.null_space(a)), projector_error(True)),
    "orth": Tested(
        _tall, None, lambda a: projected(scipy.linalg.orth(a)), projector_error(False)),
    "solve_banded": Tested(
        _banded, solves(dense_general),
        lambda ab, b: scipy.linalg.solve_banded((BELOW, ABOVE), ab, b)),
    "solveh_banded": Tested(
        _banded_positive_and_columns, solves(dense_hermitian),
        lambda ab, b: scipy.linalg.solveh_banded(ab, b, lower=True)),
    "cholesky_banded": Tested(
        _banded_positive, None, lambda ab: scipy.linalg.cholesky_banded(ab, lower=True),
        error=factor_error),
    "cho_solve_banded": Tested(
        _banded_factor_and_columns,
        lambda cb, b: exact.solved(product_of_factor(cb), b),
        lambda cb, b: scipy.linalg.cho_solve_banded((cb, True), b)),
}


def operands_of_kind(tested, kind, rng, n, dtype):
  if kind in tested.not_of:
    raise LeftOut(tested.not_of[kind])
  with np.errstate(all="ignore"):
    operands = tested.operands(kind, rng, n, dtype)
  if not all(np.isfinite(x).all() for x in operands):
    raise LeftOut(OVERFLOW)
  if tested.cut_off and not is_of_full_rank(operands[0]):
    raise LeftOut(CUT_OFF)
  return operands


def operands_of(tested, n, dtype, kinds=tuple(KINDS)):
  """(kind, operands) of each matrix, and kind -> why there is no matrix of another kind.

  There are several small matrices of a kind, since one may be lucky.
  """
  found, reasons = [], {}
  for kind, sample in itertools.product(kinds, range(_SAMPLES)):
    if n > 50 and kind in dict(found):
      continue
    rng = np.random.default_rng([n, list(KINDS).index(kind), sample])
    try:
      found.append((kind, operands_of_kind(tested, kind, rng, n, np.dtype(dtype))))
    except LeftOut as reason:
      reasons[kind] = str(reason)
  return found, without(reasons, {kind for kind, _ in found})


def without(reasons, kinds):
  return {kind: reason for kind, reason in reasons.items() if kind not in kinds}


def stacked(operands):
  return [np.stack(x) for x in zip(*(one for _, one in operands), strict=True)]
