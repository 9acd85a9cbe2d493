"""Kinds of matrices, and for each composed function those that it is tested on and how.

TESTED has a row for each case of the catalogue that is composed in Python or of `linalg.scipy`.
The error of a result is measured against long double (long_double.py). SciPy's error of the same
operands is the standard.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import long_double as exact
from linalg._catalogue.scipy import ABOVE, BELOW, dense, dense_hermitian
from linalg._catalogue.scipy_composed import SKETCH, real_form_of_scipy
from linalg._catalogue.scipy_factors import dense_band, joined
from long_double import adjoint, size, wide
from matrices import general, unitary

SIZES = (1, 2, 7, 33, 64, 65, 130)
_SAMPLES = 3

OVERFLOW = "the operands overflow"
NO_RANGE = "no result is in range"
NO_REFERENCE = "long double finds no result"
CUT_OFF = "a singular value is below the cut-off"
_CAN_LACK = (OVERFLOW, NO_RANGE, NO_REFERENCE, CUT_OFF)


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


def _one(spectrum):
  def operands(kind, rng, n, dtype):
    return (matrix(kind, rng, n, dtype, spectrum),)

  return operands


def _and(spectrum, *beside):
  """A matrix of the kind, and other operands made from (rng, a)."""

  def operands(kind, rng, n, dtype):
    a = matrix(kind, rng, n, dtype, spectrum)
    return a, *(np.asarray(make(rng, a)).astype(dtype) for make in beside)

  return operands


def _columns(rng, a):
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
  return _diagonals(a, BELOW, ABOVE), _columns(rng, a)


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


# Errors of results, relative to their size.


def distance(found, expected):
  """The largest of the distances of results, each relative to its largest element."""
  worst = 0.0
  for x, y in zip(found, expected, strict=True):
    scale = size(y)
    error = size(wide(x) - y)
    worst = max(worst, float(error / scale) if scale != 0 else float(error != 0))
    if np.isnan(np.asarray(x)).any():
      return np.inf
  return worst


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


def _tuple(x):
  return x if isinstance(x, tuple) else (x,)


def _solve_by_qr(a, b):
  q, r = scipy.linalg.qr(a)
  return scipy.linalg.solve_triangular(r, q.conj().T @ b)


def _hermitian_function(function):
  def theirs(a):
    w, v = scipy.linalg.eigh(a)
    return (v * function(w).astype(w.dtype)) @ adjoint(v)

  return theirs


def _polar_error(side):
  """The residual and the orthonormality; and the distance, where U is determined."""

  def error(operands, results):
    (a,), (u, p) = operands, (wide(x) for x in results)
    if not (np.isfinite(u).all() and np.isfinite(p).all()):
      return np.inf
    product = u @ p if side == "right" else p @ u
    worst = max(
        _relative(product - wide(a), size(a)), _relative(adjoint(u) @ u - np.eye(len(a)), 1),
        _relative(p - adjoint(p), size(p)))
    if not _is_of_full_rank(a):
      return worst
    return max(worst, distance((u, p), (exact.polar if side == "right" else _left_polar)(a)))

  return error


def _relative(error, *sizes):
  scale = np.prod([np.longdouble(x) for x in sizes])
  return float(size(error) / scale) if scale != 0 else float(size(error) != 0)


def _rotation_error(operands, results):
  """R is unitary, and Rᴴ Aᴴ B Hermitian; and the distance, where R is determined."""
  (a, b), (r, scale) = (tuple(map(wide, x)) for x in (operands, results))
  if not (np.isfinite(r).all() and np.isfinite(scale)):
    return np.inf
  c, terms = adjoint(a) @ b, size(np.abs(adjoint(a)) @ np.abs(b))
  p = adjoint(r) @ c
  worst = max(
      _relative(p - adjoint(p), terms), _relative(adjoint(r) @ r - np.eye(len(r)), 1),
      _relative(scale - _nuclear(c), terms))
  if not _is_of_full_rank(operands[0]):
    return worst
  return max(worst, distance((r, scale), _rotation(*operands)))


def _rotation(a, b):
  r, p = exact.polar(adjoint(wide(a)) @ wide(b))
  return r, np.trace(p).real


def _ldl_error(operands, results):
  (a,), (l, d) = operands, (wide(x) for x in results)
  product = l @ d @ adjoint(l) - wide(a)
  return _relative(product, size(a)) if np.isfinite(product).all() else np.inf


def _balance_error(operands, results):
  """B is T⁻¹ A T, whose elements powers of two scale."""
  (a,), (b, t) = operands, (wide(x) for x in results)
  order, scale = np.argmax(t != 0, axis=0), np.max(t.real, axis=0)
  exact = wide(a)[np.ix_(order, order)] * scale / scale[:, None]
  return _relative(b - exact, np.max(np.abs(exact))) if np.isfinite(b).all() else np.inf


def _factors_error(changed, left=True):
  """The residual against the changed matrix's parts, and the orthonormality."""

  def error(operands, results):
    results = tuple(map(wide, results))
    if not all(np.isfinite(x).all() for x in results):
      return np.inf
    q = results[0] if left else adjoint(results[1])
    a, scale = changed(*map(wide, operands))
    return max(_relative(results[0] @ results[1] - a, scale), _orthogonality(q))

  return error


def _changed_by_vectors(q, r, u, v):
  return q @ r + u @ adjoint(v), size(r) + size(u) * size(v)


def _with_row(q, r, u):
  a = np.insert(q @ r, 1, u[0], 0)
  return a, size(a)


def _without_row(q, r):
  return np.delete(q, 1, 0) @ r, size(r)


def _band_error(operands, results):
  (ab,), (w, *v) = operands, map(wide, results)
  a, scale = exact._unscaled(wide(dense_band(ab)))
  w = w / scale
  if not all(np.isfinite(x).all() for x in (w, *v)):
    return np.inf
  if not v:
    expected = scipy.linalg.eigvalsh(exact.narrow(a))
    return _relative(w - expected, size(expected))
  return max(_relative((v[0] * w) @ adjoint(v[0]) - a, size(w)), _orthogonality(v[0]))


def _cossin_error(operands, results):
  x, *factors = results
  u, d, vh = map(wide, joined(*factors))
  if not np.isfinite(u @ d @ vh).all():
    return np.inf
  return max(_relative(u @ d @ vh - wide(x), 1), _orthogonality(u), _orthogonality(vh))


def _their_cossin(a):
  x = np.linalg.qr(a)[0]
  half = len(x) // 2
  (u1, u2), theta, (v1, v2) = scipy.linalg.cossin(x, half, half, separate=True)
  return x, u1, u2, theta, v1, v2


def _schur_error(operands, results):
  (a,), (t, z) = operands, map(wide, results[:2])
  if not (np.isfinite(t).all() and np.isfinite(z).all()):
    return np.inf
  return max(_relative(z @ t @ adjoint(z) - wide(a), size(a)), _orthogonality(z))


def _qz_error(operands, results):
  a, b = map(wide, operands)
  s, t, *_, q, z = map(wide, results)
  if not all(np.isfinite(x).all() for x in (s, t, q, z)):
    return np.inf
  return max(
      _relative(q @ s @ adjoint(z) - a, size(a)), _relative(q @ t @ adjoint(z) - b, size(b)),
      _orthogonality(q), _orthogonality(z))


def _eig_error(operands, results):
  """The residual β A v - α B v for pairs (α, β) of length 1 in the units of A and B."""
  (a, b), (w, v) = (tuple(map(wide, x)) for x in (operands, results))
  if not (np.isfinite(w).all() and np.isfinite(v).all()):
    return np.inf
  w = w * (size(b) / size(a))
  length = np.sqrt(1 + np.abs(w) ** 2)
  residual = (a / size(a)) @ v / length - (b / size(b)) @ v * (w / length)
  return float(size(residual))


def _trace_error(operands, results):
  """The sum of the eigenvalues is the trace of B⁻¹ A."""
  (a, b), (w,) = operands, map(wide, results)
  a, of_a = exact._unscaled(wide(a))
  b, of_b = exact._unscaled(wide(b))
  quotient = exact.solved(b, a)
  error = np.sum(w * (of_b / of_a)) - np.trace(quotient)
  return _relative(error, size(quotient)) if np.isfinite(w).all() else np.inf


def _projector_error(null):
  def error(operands, results):
    """The projector on the range has (I - P) A = 0, that on the null space A P = 0."""
    (a,), (p,) = operands, (wide(x) for x in results)
    if not np.isfinite(p).all():
      return np.inf
    a = wide(a)
    rest = a @ p if null else a - p @ a
    return max(_relative(rest, size(a)), _relative(p @ p - p, 1))

  return error


def _factor_error(operands, results):
  (ab,), (factor,) = operands, results
  a, scale = exact._unscaled(wide(dense_hermitian(ab)))
  l = wide(np.tril(dense(factor, 0)))
  product = (l / np.sqrt(scale)) @ (adjoint(l) / np.sqrt(scale)) - a
  # Each element is near that of A against its diagonal, which is the largest in its row of L Lᴴ.
  d = np.sqrt(np.abs(np.diagonal(a)))
  return _relative(product / d / d[:, None], 1) if np.isfinite(product).all() else np.inf


def _pencil_error(operands, results):
  """The residual and the orthonormality, against the sizes of the terms."""
  (a, b), (w, v) = (tuple(map(wide, x)) for x in (operands, results))
  if not (np.isfinite(w).all() and np.isfinite(v).all()):
    return np.inf
  terms = np.abs(a) @ np.abs(v) + np.abs(b) @ np.abs(v * w)
  identity = np.abs(adjoint(v)) @ np.abs(b) @ np.abs(v)
  return max(
      float(size(a @ v - b @ v * w) / size(terms)),
      float(size(adjoint(v) @ b @ v - np.eye(len(a))) / size(identity)))


def _is_of_full_rank(a):
  """Whether no singular value is near to the largest of the functions' cut-offs, 10 n eps."""
  s = scipy.linalg.svdvals(exact.narrow(exact._unscaled(wide(a))[0]))
  return s[-1] > 20 * max(a.shape) * float(np.finfo(a.dtype).eps) * s[0]


def _log_determinant(a):
  _, phase, logarithm = exact.eliminated(a, np.zeros((len(a), 0)))
  return phase, logarithm


def _of_lu(packed, pivots):
  diagonal = np.diagonal(packed)
  sign = (-1) ** np.count_nonzero(pivots != np.arange(len(pivots)))
  return sign * np.prod(diagonal / np.abs(diagonal)), np.sum(np.log(np.abs(diagonal)))


def _nuclear(a):
  a, scale = exact._unscaled(wide(a))
  return wide(scipy.linalg.svdvals(exact.narrow(a)).sum()) * scale


def _vector_norm(order):
  def norm(x):
    x, scale = exact._unscaled(wide(x))
    x = np.abs(x)
    if order < 0 and (x == 0).any():
      return np.longdouble(0)
    return np.sum(x ** np.longdouble(order)) ** (1 / np.longdouble(order)) * scale

  return norm


def _condition(a):
  largest, smallest = exact.extreme_singular_values(a)
  return largest / smallest if smallest else np.longdouble(np.inf)


def _frobenius(a):
  a, scale = exact._unscaled(wide(a))
  return np.sqrt(np.sum(np.abs(a) ** 2)) * scale


def _real_form(x, v):
  """The real form of conjugate pairs, whose numbers are only moved, or 0, or change their signs."""
  w, vectors = real_form_of_scipy(x, v)
  return wide(w), wide(vectors)


def _solves(dense_of):
  return lambda ab, b: exact.solved(dense_of(ab), b)


def _dense_general(ab):
  return dense(ab, ABOVE)


def _projected(q):
  return q @ adjoint(q)


def _product_of_factor(cb):
  l = wide(np.tril(dense(cb, 0)))
  return l @ adjoint(l)


def _left_polar(a):
  u, _ = exact.polar(a)
  p = wide(a) @ adjoint(u)
  return u, (p + adjoint(p)) / 2


def _exactly(function):
  """One formula, in long double."""
  return lambda *operands: function(*(wide(x) for x in operands))


_norm_1 = lambda a: np.abs(a).sum(0).max()

_SINGULAR = {"graded": CUT_OFF, "graded rows": CUT_OFF}
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
      _one(STABLE), of, getattr(scipy.linalg, name), not_of=_NO_DIGIT_IF_LARGE,
      told={"graded": Told("far larger than others cost digits")})


TESTED: dict[str, Tested] = {
    "expm": Tested(
        _one(STABLE), exact.expm, scipy.linalg.expm, not_of=_NO_DIGIT_IF_LARGE,
        told={"graded": Told("far larger than others cost digits")}),
    "sqrtm": Tested(_one(RIGHT), exact.sqrtm, scipy.linalg.sqrtm),
    "matrix_power": Tested(
        _one(ANY), lambda a: exact.power(a, 3), lambda a: np.linalg.matrix_power(a, 3),
        lacks=_POWERS),
    "matrix_power_-2": Tested(
        _one(ANY), lambda a: exact.power(a, -2), lambda a: np.linalg.matrix_power(a, -2),
        lacks=_POWERS),
    "funm_hermitian": Tested(
        _one(HERMITIAN), exact.sinm, _hermitian_function(np.sin),
        not_of=_NO_DIGIT_IF_LARGE | {"graded": "the sine of 1e8 keeps no digit in float32"}),
    "inverse_pth_root": Tested(
        _one(POSITIVE), exact.inverse_fourth_root, _hermitian_function(lambda w: w**-0.25),
        told={"graded": Told("are rounding errors")}),
    "solve_pos": Tested(_and(POSITIVE, _columns), exact.solved,
                        lambda a, b: scipy.linalg.solve(a, b, assume_a="pos")),
    "solve_her": Tested(_and(HERMITIAN, _columns), exact.solved,
                        lambda a, b: scipy.linalg.solve(a, b, assume_a="her")),
    "factorize_cholesky": Tested(
        _and(POSITIVE, _columns), lambda a, b: (exact.solved(a, b), _log_determinant(a)[1]),
        lambda a, b: (scipy.linalg.solve(a, b, assume_a="pos"), np.linalg.slogdet(a)[1])),
    "factorize_lu": Tested(
        _and(ANY, _columns), lambda a, b: (exact.solved(a, b), *_log_determinant(a)),
        lambda a, b: (np.linalg.solve(a, b), *np.linalg.slogdet(a))),
    "factorize_qr": Tested(
        _and(ANY, _columns), exact.solved, _solve_by_qr,
        told={kind: Told("beside rows that are far larger") for kind in ("graded", "graded rows")}),
    "lstsq": Tested(_tall_and_columns, exact.least_squares,
                    lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], cut_off=True,
                    lacks=_SINGULAR, told={"graded rows": Told("beside rows that are far larger")}),
    "pinv": Tested(_one(ANY), exact.inverse, np.linalg.pinv, cut_off=True, lacks=_SINGULAR),
    "pinv_hermitian": Tested(
        _one(POSITIVE), exact.inverse, lambda a: np.linalg.pinv(a, hermitian=True),
        cut_off=True, lacks=_SINGULAR),
    "lu_slogdet": Tested(_lu_factors, lambda lu, pivots: _of_lu(wide(lu), pivots), _of_lu),
    "cho_logdet": Tested(
        _cholesky_factor, lambda l: 2 * np.sum(np.log(wide(np.diagonal(l).real))),
        lambda l: 2 * np.sum(np.log(np.diagonal(l).real))),
    "polar": Tested(_one(ANY), exact.polar, scipy.linalg.polar, _polar_error("right")),
    "polar_left": Tested(
        _one(ANY), _left_polar, lambda a: scipy.linalg.polar(a, "left"), _polar_error("left")),
    "matrix_rank": Tested(_one(ANY), lambda a: np.longdouble(len(a)), np.linalg.matrix_rank,
                          cut_off=True, lacks=_SINGULAR),
    "cond": Tested(_one(ANY), _condition, np.linalg.cond,
                   told={"graded": _TO_ROUNDING, "graded rows": _TO_ROUNDING}),
    "cond_1": Tested(_one(ANY), lambda a: _norm_1(wide(a)) * _norm_1(exact.inverse(a)),
                     lambda a: np.linalg.cond(a, 1)),
    "norm": Tested(_one(ANY), _frobenius, np.linalg.norm),
    **{f"vector_norm_{order}": Tested(
        _vector, _vector_norm(order), lambda x, order=order: np.linalg.norm(x, order))
       for order in (3, 2, 0.5, -1)},
    "matrix_norm_2": Tested(
        _one(ANY), lambda a: exact.extreme_singular_values(a)[0], lambda a: np.linalg.norm(a, 2)),
    "matrix_norm_-2": Tested(
        _one(ANY), lambda a: exact.extreme_singular_values(a)[1], lambda a: np.linalg.norm(a, -2),
        told={"graded": _IS_ROUNDING, "graded rows": _IS_ROUNDING}),
    "matrix_norm_nuc": Tested(_one(ANY), _nuclear, lambda a: np.linalg.norm(a, "nuc")),
    "matrix_norm_1": Tested(_one(ANY), _exactly(_norm_1), _norm_1),
    "matrix_norm_inf": Tested(
        _one(ANY), _exactly(lambda a: _norm_1(a.T)), lambda a: _norm_1(a.T)),
    "congruence": Tested(_two(ANY), _exactly(lambda a, x: a @ x @ adjoint(a)),
                         lambda a, x: a @ x @ adjoint(a)),
    "congruence_adjoint": Tested(_two(ANY), _exactly(lambda a, x: adjoint(a) @ x @ a + a),
                                 lambda a, x: adjoint(a) @ x @ a + a),
    "cross": Tested(_triples, _exactly(np.cross), np.cross),
    "vecdot": Tested(_vectors, _exactly(lambda x, y: np.sum(x.conj() * y)), np.vdot),
    "diagonal": Tested(_one(ANY), lambda a: wide(np.diagonal(a, 1)), lambda a: np.diagonal(a, 1)),
    "trace": Tested(_one(ANY), _exactly(np.trace), np.trace),
    "matrix_transpose": Tested(_one(ANY), _exactly(np.transpose), np.transpose),
    "block_diag": Tested(_two(ANY), _exactly(scipy.linalg.block_diag), scipy.linalg.block_diag),
    "eigh_generalized": Tested(_pair, None, scipy.linalg.eigh, error=_pencil_error),
    "solve_sylvester": Tested(
        _sylvester, exact.sylvester, scipy.linalg.solve_sylvester,
        told={"small": Told("less than `tol` in magnitude", is_nan=True)}),
    "solve_continuous_lyapunov": Tested(
        _and(STABLE, _like), exact.continuous_lyapunov, scipy.linalg.solve_continuous_lyapunov),
    "solve_discrete_lyapunov": Tested(
        _and(STABLE, _like), exact.discrete_lyapunov, scipy.linalg.solve_discrete_lyapunov,
        not_of=_NO_DIGIT_IF_LARGE),
    "solve_continuous_are": Tested(
        _regulator(discrete=False), exact.riccati(scipy.linalg.solve_continuous_are, False),
        scipy.linalg.solve_continuous_are, told={"graded": _SCALES_OR_NAN}),
    "solve_discrete_are": Tested(
        _regulator(discrete=True), exact.riccati(scipy.linalg.solve_discrete_are, True),
        scipy.linalg.solve_discrete_are, told={"graded": _SCALES_OR_NAN}),
    "matrix_balance": Tested(
        _one(ANY), None, scipy.linalg.matrix_balance, error=_balance_error),
    "schur_sorted": Tested(
        _one(ANY), None, lambda a: scipy.linalg.schur(a, sort="lhp")[:2], error=_schur_error),
    "qz": Tested(_pencil, None, scipy.linalg.qz, error=_qz_error),
    "ordqz": Tested(
        _pencil, None, lambda a, b: scipy.linalg.ordqz(a, b, "iuc"), error=_qz_error),
    "eig_generalized": Tested(_pencil, None, scipy.linalg.eig, error=_eig_error),
    "eig_left_generalized": Tested(_pencil, None, scipy.linalg.eig, error=_eig_error),
    "eigvals_generalized": Tested(_pencil, None, scipy.linalg.eigvals, error=_trace_error),
    "rq": Tested(
        _wide, None, lambda a: scipy.linalg.rq(a, mode="economic"),
        error=_factors_error(lambda a: (a, size(a)), left=False)),
    "qr_update": Tested(
        _factors_and(lambda n: (n + 2, 1), lambda n: (n, 1)), None, scipy.linalg.qr_update,
        error=_factors_error(_changed_by_vectors)),
    "qr_insert": Tested(
        _factors_and(lambda n: (1, n)), None,
        lambda q, r, u: scipy.linalg.qr_insert(q, r, u[0], 1),
        error=_factors_error(_with_row)),
    "qr_delete": Tested(
        _factors_and(), None, lambda q, r: scipy.linalg.qr_delete(q, r, 1),
        error=_factors_error(_without_row)),
    "eig_banded": Tested(
        _hermitian_band, None, lambda ab: scipy.linalg.eig_banded(ab, lower=True),
        error=_band_error),
    "eigvals_banded": Tested(
        _hermitian_band, None, lambda ab: scipy.linalg.eigvals_banded(ab, lower=True),
        error=_band_error),
    "cossin": Tested(_larger, None, _their_cossin, error=_cossin_error),
    "ldl": Tested(
        _one(HERMITIAN), None, lambda a: scipy.linalg.ldl(a)[:2], error=_ldl_error),
    "solve_toeplitz": Tested(
        _toeplitz, lambda c, r, b: exact.solved(scipy.linalg.toeplitz(c, r), b),
        lambda c, r, b: scipy.linalg.solve_toeplitz((c, r), b)),
    "matmul_toeplitz": Tested(
        _toeplitz, lambda c, r, x: wide(scipy.linalg.toeplitz(c, r)) @ wide(x),
        lambda c, r, x: scipy.linalg.matmul_toeplitz((c, r), x)),
    "logm": Tested(_one(RIGHT), exact.logm, scipy.linalg.logm),
    "funm": Tested(_one(RIGHT), exact.logm, scipy.linalg.logm, told={"graded": _SCALES}),
    "fractional_matrix_power": Tested(
        _one(RIGHT), lambda a: exact.fractional_power(a, 0.7),
        lambda a: scipy.linalg.fractional_matrix_power(a, 0.7)),
    "expm_frechet": Tested(
        _and(STABLE, _like), lambda a, e: exact.expm_frechet(wide(a / 4), wide(e)),
        lambda a, e: scipy.linalg.expm_frechet(a / 4, e, compute_expm=False),
        not_of=_NO_DIGIT_IF_LARGE),
    **{name: _trigonometric(name, exact.cosm_and_sinm, place)
       for name, place in (("cosm", 0), ("sinm", 1), ("tanm", None))},
    **{name: _trigonometric(name, exact.coshm_and_sinhm, place)
       for name, place in (("coshm", 0), ("sinhm", 1), ("tanhm", None))},
    "signm": Tested(
        _one(ANY), exact.signm, scipy.linalg.signm,
        told={"graded rows": Told("on the imaginary axis up to rounding")}),
    "expm_cond": Tested(
        _one(STABLE), exact.expm_condition, scipy.linalg.expm_cond, largest=7,
        not_of=_NO_DIGIT_IF_LARGE, told={"graded": Told("far larger than others cost digits")}),
    "solve_circulant": Tested(
        _circulant, lambda c, b: exact.solved(scipy.linalg.circulant(c), b[:, None])[:, 0],
        scipy.linalg.solve_circulant),
    "subspace_angles": Tested(
        _tall_and_two, exact.angles, scipy.linalg.subspace_angles, cut_off=True, lacks=_SINGULAR,
        told={"graded rows": Told("beside rows that are far larger")}),
    "orthogonal_procrustes": Tested(
        _nearly_rotated, _rotation, scipy.linalg.orthogonal_procrustes, error=_rotation_error),
    "khatri_rao": Tested(
        _two(ANY), _exactly(scipy.linalg.khatri_rao), scipy.linalg.khatri_rao),
    "cdf2rdf": Tested(_vector_and_matrix, _real_form, real_form_of_scipy),
    "diagsvd": Tested(
        _vector, lambda s: wide(np.eye(len(s), len(s) + 1) * s[:, None]),
        lambda s: scipy.linalg.diagsvd(s, len(s), len(s) + 1)),
    "bandwidth": Tested(
        _one(ANY), lambda a: tuple(map(np.asarray, scipy.linalg.bandwidth(a))),
        scipy.linalg.bandwidth),
    "issymmetric": Tested(
        _equal_to_transpose, lambda a: np.asarray((a == a.T).all(), float),
        scipy.linalg.issymmetric),
    "ishermitian": Tested(
        _one(HERMITIAN), lambda a: np.asarray((a == adjoint(a)).all(), float),
        scipy.linalg.ishermitian),
    "clarkson_woodruff_transform": Tested(
        _tall, _sketched, lambda a: scipy.linalg.clarkson_woodruff_transform(a, SKETCH, rng=0)),
    "pinvh": Tested(
        _one(POSITIVE), exact.inverse, scipy.linalg.pinvh, cut_off=True, lacks=_SINGULAR),
    "null_space": Tested(
        _wide, None, lambda a: _projected(scipy.linalg.null_space(a)), _projector_error(True)),
    "orth": Tested(
        _tall, None, lambda a: _projected(scipy.linalg.orth(a)), _projector_error(False)),
    "solve_banded": Tested(
        _banded, _solves(_dense_general),
        lambda ab, b: scipy.linalg.solve_banded((BELOW, ABOVE), ab, b)),
    "solveh_banded": Tested(
        _banded_positive_and_columns, _solves(dense_hermitian),
        lambda ab, b: scipy.linalg.solveh_banded(ab, b, lower=True)),
    "cholesky_banded": Tested(
        _banded_positive, None, lambda ab: scipy.linalg.cholesky_banded(ab, lower=True),
        error=_factor_error),
    "cho_solve_banded": Tested(
        _banded_factor_and_columns,
        lambda cb, b: exact.solved(_product_of_factor(cb), b),
        lambda cb, b: scipy.linalg.cho_solve_banded((cb, True), b)),
}


class Loss(NamedTuple):
  """The error of one matrix's result in units of eps, and what there is to compare it with."""

  kind: str
  size: int
  eps: float
  ours: float
  theirs: float
  reach: float  # how far rounding the operands moves the result

  @property
  def excess(self) -> float:
    """The error over ten times the largest of the others. 0 where SciPy has no digit either.

    SciPy's failure excuses NaN alone: other results must be within the reach.
    """
    failed = self.theirs == np.inf
    theirs = 0.0 if failed else self.theirs
    if (failed and self.ours == np.inf) or max(theirs, self.reach) >= 0.1 / self.eps:
      return 0.0
    return self.ours / (10 * max(theirs, self.reach, self.size, 4))


def operands_of_kind(tested, kind, rng, n, dtype):
  if kind in tested.not_of:
    raise LeftOut(tested.not_of[kind])
  with np.errstate(all="ignore"):
    operands = tested.operands(kind, rng, n, dtype)
  if not all(np.isfinite(x).all() for x in operands):
    raise LeftOut(OVERFLOW)
  if tested.cut_off and not _is_of_full_rank(operands[0]):
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
  return found, _without(reasons, {kind for kind, _ in found})


def _without(reasons, kinds):
  return {kind: reason for kind, reason in reasons.items() if kind not in kinds}


def stacked(operands):
  return [np.stack(x) for x in zip(*(one for _, one in operands), strict=True)]


def _is_in_range(x, dtype):
  """Whether the dtype holds the results, with all of its digits."""
  finfo = np.finfo(dtype)
  return np.isfinite(x).all() and size(x) < finfo.max / 8 and (
      size(x) == 0 or size(x) > float(finfo.tiny) / float(finfo.eps))


def _their(tested, operands, error):
  try:
    with np.errstate(all="ignore"), warnings.catch_warnings():
      warnings.simplefilter("ignore")
      return error(tuple(map(np.asarray, _tuple(tested.theirs(*operands)))))
  except (np.linalg.LinAlgError, ValueError, ZeroDivisionError):
    return np.inf


def _double(x):
  return x.astype(np.result_type(x, np.float64)) if x.dtype.kind in "fc" else x


def _rounded(rng, x, in_norm, eps):
  """x with its elements changed by up to eps, of themselves or of the largest."""
  if x.dtype.kind not in "fc":
    return x
  change = rng.uniform(-1, 1, x.shape)
  if x.dtype.kind == "c":
    change = (change + 1j * rng.uniform(-1, 1, x.shape)) / np.sqrt(2)
  if x.ndim == 2 and x.shape[0] == x.shape[1]:  # a Hermitian matrix stays one
    change = np.tril(change) + adjoint(np.tril(change, -1))
    change = change - 1j * np.diag(np.diag(change).imag) if x.dtype.kind == "c" else change
  return wide(x) + (size(x) if in_norm else wide(x)) * (eps * change)


def _with_least_changed(rng, x, eps):
  """x with its least singular value changed by eps times the largest."""
  if x.ndim != 2 or x.shape[0] != x.shape[1] or x.dtype.kind not in "fc":
    return x
  u, s, vh = np.linalg.svd(exact.narrow(x))
  phase = rng.choice([-1, 1])
  if x.dtype.kind == "c" and size(x - adjoint(x)) != 0:
    phase = np.exp(2j * np.pi * rng.uniform())
  return wide(x) + phase * eps * s[0] * np.outer(u[:, -1], vh[-1])


def _reach(tested, kind, operands, eps):
  """How far rounding the operands moves the result: the furthest of some tries."""
  worst = 0.0
  told = tested.told.get(kind)
  in_norm = told is not None
  rounded = lambda rng, *operands: tested.exact(*(_rounded(rng, x, in_norm, eps) for x in operands))
  if told and told.moved:
    rounded = told.moved
  elif kind == "nearly singular":
    # No factorization promises more than eps ‖A‖. The random changes are hardly along the vectors.
    rounded = lambda rng, *operands: tested.exact(
        *(_with_least_changed(rng, x, eps) for x in operands))
  with np.errstate(all="ignore"):
    expected = _tuple(tested.exact(*operands))
    n = operands[0].shape[-1]
    for seed in range(10 if n < 10 else 3 if n < 50 else 1):
      moved = _tuple(rounded(np.random.default_rng(seed), *operands))
      if not any(np.isnan(x).any() for x in moved):
        worst = max(worst, distance(moved, expected))
  return worst


def loss(tested, kind, operands, results):
  """The Loss of one matrix. Raises LeftOut where no result is in range."""
  inexact = [x for x in operands if x.dtype.kind in "fc"]
  dtype = inexact[0].dtype
  eps = float(np.finfo(dtype).eps)
  if tested.error is None:
    with np.errstate(all="ignore"):
      expected = _tuple(tested.exact(*operands))
    if any(np.isnan(x).any() for x in expected):
      raise LeftOut(NO_REFERENCE)
    if not all(_is_in_range(x, dtype) for x in expected):
      raise LeftOut(NO_RANGE)
    results = results[: len(expected)]
    error = lambda found: distance(found[: len(expected)], expected)
  else:
    error = lambda found: tested.error(operands, found)
  with np.errstate(all="ignore"):
    ours = error(results) / eps
  ours = np.inf if np.isnan(ours) else ours
  n = operands[0].shape[-1]
  if ours <= 4 * n:
    return Loss(kind, n, eps, ours, 0, 0)
  theirs = _their(tested, operands, error) / eps
  if np.finfo(dtype).bits == 32:
    # SciPy computes some functions of float32 in float64, others in float32.
    wider = _their(tested, tuple(map(_double, operands)), error)
    theirs = max(theirs, wider / float(np.finfo(np.float64).eps))
  reach = 0.0
  determined = tested.error is None or _is_of_full_rank(operands[0])
  if tested.exact is not None and determined:
    reach = _reach(tested, kind, operands, eps) / eps
  return Loss(kind, n, eps, ours, theirs, reach)


def losses(tested, n, dtype, function, kinds=tuple(KINDS)):
  """`worst_of` of a function that takes the operands of all matrices at once."""
  operands, reasons = operands_of(tested, n, dtype, kinds)
  if not operands:
    return {}, reasons
  results = [np.asarray(x) for x in function(*stacked(operands))]
  return worst_of(
      tested, operands, [[x[i] for x in results] for i in range(len(operands))], reasons)


def worst_of(tested, operands, results, reasons):
  """kind -> the Loss of its matrix with the largest excess, and kind -> why there is none.

  Args:
    tested: how.
    operands, reasons: as from `operands_of`.
    results: those of each matrix.
  """
  found, reasons = {}, dict(reasons)
  for (kind, one), own in zip(operands, results, strict=True):
    try:
      new = loss(tested, kind, one, own)
    except LeftOut as reason:
      reasons[kind] = str(reason)
      continue
    if kind not in found or new.excess > found[kind].excess:
      found[kind] = new
  return found, _without(reasons, found)


def faults_of(tested, found, reasons):
  """The Losses and reasons that no docstring and no row of the table accounts for."""

  def is_told(x):
    told = tested.told.get(x.kind)
    return told is not None and (
        told.is_nan if x.ours == np.inf else x.ours * x.eps <= told.most)

  return [x for x in found.values() if x.excess > 1 and not is_told(x)] + [
      (kind, reason) for kind, reason in reasons.items()
      if reason in _CAN_LACK and tested.lacks.get(kind) != reason]


# linalg.distributed


def _share(kind, rng, n, dtype):
  """A tall matrix of eight rows for each column: the rows of one of the kind, eight times."""
  a = matrix(kind, rng, n, dtype, ANY)
  return np.concatenate([(-1) ** i * a[rng.permutation(n)] for i in range(8)])


def _tall_share(kind, rng, n, dtype):
  return (_share(kind, rng, n, dtype),)


def _tall_share_and_columns(kind, rng, n, dtype):
  return _share(kind, rng, n, dtype), general(rng, (), 8 * n, 2, dtype)


def _orthogonality(q):
  return _relative(adjoint(q) @ q - np.eye(q.shape[1]), 1)


def _product_error(operands, results):
  """The residual of Q R or U diag(S) Vᴴ, and whether the factors are orthonormal."""
  (a,), results = operands, [wide(x) for x in results]
  if not all(np.isfinite(x).all() for x in results):
    return np.inf
  q, *rest = results
  scaled = q if len(rest) == 1 else q * rest[0]
  others = _orthogonality(adjoint(rest[1])) if len(rest) == 2 else 0
  return max(_relative(scaled @ rest[-1] - wide(a), size(a)), _orthogonality(q), others)


def _tall_polar_error(operands, results):
  (a,), (u, p) = operands, (wide(x) for x in results)
  if not (np.isfinite(u).all() and np.isfinite(p).all()):
    return np.inf
  return max(_relative(u @ p - wide(a), size(a)), _orthogonality(u))


def _values_error(operands, results):
  """Singular values against those of SciPy in float64."""
  (a,), (s,) = operands, results
  a, scale = exact._unscaled(wide(a))
  expected = scipy.linalg.svdvals(exact.narrow(a))
  return _relative(wide(s) / scale - expected, expected[0])


def cholesky_error(operands, results):
  """The residual of L Lᴴ, each element against the diagonal."""
  (a,), (l,) = (tuple(map(wide, x)) for x in (operands, results))
  a, scale = exact._unscaled(a)
  product = (l / np.sqrt(scale)) @ (adjoint(l) / np.sqrt(scale)) - a
  d = np.sqrt(np.abs(np.diagonal(a)))
  return _relative(product / d / d[:, None], 1) if np.isfinite(product).all() else np.inf


def _tall_inverse(a):
  return exact.least_squares(a, np.eye(len(a)))


def _gram_root(a):
  a = wide(a)
  return exact.inverse_fourth_root(adjoint(a) @ a)


def _moved_gram_root(rng, a):
  """The root of the rounded Gram matrix, which has the squares of the singular values."""
  gram = adjoint(wide(a)) @ wide(a)
  return exact.inverse_fourth_root(
      _rounded(rng, gram, in_norm=True, eps=float(np.finfo(a.dtype).eps)))


def _polynomials(a, norm):
  """Five steps of Muon's polynomial of A over its norm."""
  x = a / norm
  for _ in range(5):
    gram = adjoint(x) @ x
    x = 3.4445 * x + x @ (-4.7750 * gram + 2.0315 * gram @ gram)
  return x


def _orthogonalized(a):
  a = wide(a)
  return _polynomials(a, _frobenius(a) + np.longdouble(1e-8))


def _moved_orthogonalized(rng, a):
  """All steps by one Gram matrix, which is rounded."""
  x = wide(a) / (_frobenius(a) + np.longdouble(1e-8))
  gram = _rounded(rng, adjoint(x) @ x, in_norm=True, eps=float(np.finfo(a.dtype).eps))
  for _ in range(5):
    step = 3.4445 * np.eye(len(gram)) - 4.7750 * gram + 2.0315 * gram @ gram
    x, gram = x @ step, step @ gram @ step
  return x


def _their_orthogonalized(a):
  scale = np.abs(a).max()
  a = a / scale
  return _polynomials(a, np.linalg.norm(a) + a.dtype.type(1e-8).real / scale)


def _determinant(a):
  phase, logarithm = _log_determinant(a)
  return phase * np.exp(logarithm)


_SINGULAR_IF_TALL = _SINGULAR | {"nearly singular": CUT_OFF}
_BY_GRAM = Told(
    "multiplies the rounding errors of eigenvalues near 0 by a²", moved=_moved_orthogonalized)
_OF_GRAM = Told("are rounding errors", moved=_moved_gram_root)


def _their_gram_root(a):
  w, v = np.linalg.eigh(adjoint(a) @ a)
  return (v * w**-0.25) @ adjoint(v)


def _lower(kind, rng, n, dtype):
  a = matrix(kind, rng, n, dtype, RIGHT)
  return np.tril(a), _columns(rng, a)


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
    "cholesky": (Tested(_one(POSITIVE), None, np.linalg.cholesky, cholesky_error),
                 lambda d, a, **k: d.cholesky(a, **k)),
    "cho_solve": (Tested(_and(POSITIVE, _columns), exact.solved,
                         lambda a, b: scipy.linalg.solve(a, b, assume_a="pos")),
                  lambda d, a, b, **k: d.cho_solve(d.cho_factor(a, **k), b)),
    "solve": (Tested(_and(ANY, _columns), exact.solved, np.linalg.solve),
              lambda d, a, b, **k: d.solve(a, b, **k)),
    "lu_solve": (Tested(_and(ANY, _columns), exact.solved, np.linalg.solve),
                 lambda d, a, b, **k: d.lu_solve(d.lu_factor(a, **k), b)),
    "slogdet": (Tested(_one(ANY), _log_determinant, np.linalg.slogdet),
                lambda d, a, **k: tuple(d.slogdet(a, **k))),
    "det": (Tested(_one(ANY), _determinant, np.linalg.det, lacks=dict.fromkeys(KINDS, NO_RANGE)),
            lambda d, a, **k: d.det(a, **k)),
    "inv": (Tested(_one(ANY), exact.inverse, np.linalg.inv), lambda d, a, **k: d.inv(a, **k)),
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
  return max(_relative((v * w) @ adjoint(v) - wide(a), size(a)), _orthogonality(v))


def _eigenvalues_error(operands, results):
  """Eigenvalues against those of SciPy in float64."""
  (a,), (w,) = operands, results
  a, scale = exact._unscaled(wide(a))
  expected = scipy.linalg.eigvalsh(exact.narrow(a))
  return _relative(wide(w) / scale - expected, size(expected))


# Functions of linalg.distributed that take square matrices, sharded over both dimensions, and whose
# grid has no panel. A second word keeps names apart from those of tall matrices.
DISTRIBUTED_SQUARES: dict[str, tuple[Tested, Callable[..., Any]]] = {
    "eigh": (Tested(_one(HERMITIAN), None, np.linalg.eigh, _spectrum_error),
             lambda d, a, **k: d.eigh(a, **k)),
    "eigvalsh": (Tested(_one(HERMITIAN), None, scipy.linalg.eigvalsh, _eigenvalues_error),
                 lambda d, a, **k: d.eigvalsh(a, **k)),
    "funm_hermitian": (TESTED["funm_hermitian"],
                       lambda d, a, **k: d.funm_hermitian(a, jnp.sin, **k)),
    "inverse_pth_root": (TESTED["inverse_pth_root"],
                         lambda d, a, **k: d.inverse_pth_root(a, 4, **k)),
    "eigh_generalized": (TESTED["eigh_generalized"],
                         lambda d, a, b, **k: d.eigh_generalized(a, b, **k)),
    "qr square": (Tested(_one(ANY), None, np.linalg.qr, _product_error),
                  lambda d, a, **k: d.qr(a, **k)),
    "svd square": (Tested(_one(ANY), None, np.linalg.svd, _product_error),
                   lambda d, a, **k: d.svd(a, **k)),
    "svdvals square": (Tested(_one(ANY), None, scipy.linalg.svdvals, _values_error),
                       lambda d, a, **k: d.svdvals(a, **k)),
    "lstsq square": (Tested(_and(ANY, _columns), exact.solved,
                            lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], cut_off=True,
                            lacks=_SINGULAR),
                     lambda d, a, b, **k: d.lstsq(a, b, **k)[0]),
    "pinv square": (Tested(_one(ANY), exact.inverse, np.linalg.pinv, cut_off=True,
                           lacks=_SINGULAR),
                    lambda d, a, **k: d.pinv(a, **k)),
    "polar square": (TESTED["polar"], lambda d, a, **k: d.polar(a, **k)),
}
