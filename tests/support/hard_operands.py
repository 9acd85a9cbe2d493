"""Operands at which derivatives are hard, in double precision, with directions to move them along.

The kinds are random, scaled, graded, permuted, triangular, nearly singular, clustered and nearly
defective. A direction has the structure and the scales of its operand.
"""

from typing import Any, NamedTuple

import numpy as np

import linalg
import many_digits
import matrices

N = 3
KINDS = (
    "random", "large", "small", "graded", "permuted", "triangular", "nearly_singular", "clustered",
    "nearly_defective")
GRADED = ("graded", "permuted")


class Point(NamedTuple):
  """Operands, and the directions of those that move; None for integers."""

  operands: tuple[np.ndarray, ...]
  tangents: tuple[Any, ...]


ORDER = np.array([2, 0, 1])


def _grades(kind, dtype, count=N):
  """Factors of rows or columns. The elements of a matrix then span 10^±8, or 10^±4 in single
  precision and of mild kinds. The smallest singular values of mild kinds must not count as zero."""
  mild = kind.startswith("mildly") or np.finfo(dtype).eps > 1e-10
  return 10.0 ** np.linspace(*((2, -2) if mild else (4, -4)), count)


def _similar(rng, block, dtype):
  x = matrices.well_conditioned(rng, (), N, dtype)
  return x @ block @ np.linalg.inv(x)


def _double(dtype):
  return np.promote_types(dtype, np.float64)


def _near(dtype, gap):
  """A gap that the dtype resolves: `gap` in double precision, and its root in single."""
  return gap if np.finfo(dtype).eps < 1e-10 else gap**0.5


def _triangle(rng, dtype):
  a = np.triu(matrices.well_conditioned(rng, (), N, dtype))
  np.fill_diagonal(a, [1.5, 3, 2])
  return a


def general(rng, kind, dtype):
  """A square matrix of a kind, and a direction."""
  wide = _double(dtype)
  a = matrices.well_conditioned(rng, (), N, wide)
  e = matrices.general(rng, (), N, N, wide)
  unitary = lambda: matrices.unitary(rng, N, wide)
  near = _near(dtype, 1e-8)
  if kind in ("large", "small"):
    scale = 1e8 if kind == "large" else 1e-8
    return scale * a, scale * e
  if "graded" in kind or "permuted" in kind:
    grades = _grades(kind, dtype)
    a, e = (grades[:, None] * x * grades for x in (a, e))
    return (a[ORDER], e[ORDER]) if "permuted" in kind else (a, e)
  if kind == "triangular":
    return _triangle(rng, wide), e
  if kind == "nearly_singular":
    return (unitary() * [1, 0.5, near]) @ unitary(), e
  if kind == "clustered":
    return _similar(rng, np.diag([1, 1 + near, 2]), wide), e
  if kind == "nearly_defective":
    return _similar(rng, np.array([[1, 1, 0], [near, 1, 0], [0, 0, 2]]), wide), e
  return a, e


def right(rng, kind, dtype):
  """A matrix whose eigenvalues are far from the negative axis, and a direction."""
  if kind in ("random", "large", "small", "triangular") or "graded" in kind or "permuted" in kind:
    a, e = positive(rng, kind, dtype)
    return a + 0.2 * e, np.triu(e) if kind == "triangular" else e
  a, e = general(rng, kind, dtype)
  if kind == "nearly_singular":
    return _similar(rng, np.diag([1, 0.5, _near(dtype, 1e-8)]), a.dtype), e
  return a, e


def _hermitian(x):
  return (x + x.conj().T) / 2


def positive(rng, kind, dtype):
  """A Hermitian positive definite matrix, and a Hermitian direction."""
  wide = _double(dtype)
  a = matrices.positive_definite(rng, (), N, wide)
  e = _hermitian(matrices.general(rng, (), N, N, wide))
  near = _near(dtype, 1e-8)
  turned = lambda values: matrices.with_eigenvalues(rng, np.array(values), wide)
  if kind in ("large", "small"):
    scale = 1e8 if kind == "large" else 1e-8
    return scale * a, scale * e
  if "graded" in kind or "permuted" in kind:
    grades = _grades(kind, dtype)
    a, e = (grades[:, None] * x * grades for x in (a, e))
    return (a[ORDER][:, ORDER], e[ORDER][:, ORDER]) if "permuted" in kind else (a, e)
  if kind == "triangular":
    return np.diag([1.5, 3, 2]).astype(wide), e
  if kind == "nearly_singular":
    return turned([near, 0.5, 1]), e
  if kind == "clustered":
    return turned([1, 1 + near, 2]), e
  if kind == "nearly_defective":  # a Hermitian matrix is not; its eigenvalues may be equal
    return np.diag([2, 2, 5]).astype(wide), e
  return a, e


def hermitian(rng, kind, dtype):
  """A Hermitian matrix with eigenvalues of both signs, and a Hermitian direction."""
  a, e = positive(rng, kind, dtype)
  if kind in ("random", "large", "small") or "graded" in kind or "permuted" in kind:
    return a - 1.3 * np.diag(np.diag(a)), e
  return a, e


def tall(rng, kind, dtype):
  """A matrix with two more rows than columns, and a direction."""
  wide = _double(dtype)
  shape = (N + 2, N)
  e = matrices.general(rng, (), *shape, wide)
  near = _near(dtype, 1e-8)
  values = {
      "nearly_singular": [1, 0.5, near], "clustered": [1 + near, 1, 0.5],
      "nearly_defective": [2, 2, 2]}.get(kind, [3, 2, 1])
  a = matrices.with_singular_values(rng, np.array(values), *shape, wide)
  if kind == "nearly_defective":
    a = 2 * np.eye(*shape, dtype=wide)
  if kind in ("large", "small"):
    scale = 1e8 if kind == "large" else 1e-8
    return scale * a, scale * e
  if "graded" in kind or "permuted" in kind:
    rows, columns = _grades(kind, dtype, N + 2), _grades(kind, dtype)
    a, e = (rows[:, None] * x * columns for x in (a, e))
    return (a[::-1], e[::-1]) if "permuted" in kind else (a, e)
  if kind == "triangular":
    return np.triu(a) + np.eye(*shape), e
  return a, e


def _wide(rng, kind, dtype):
  a, e = tall(rng, kind, dtype)
  return a.T, e.T


def _columns(rng, dtype, m, n=2):
  return matrices.general(rng, (), m, n, dtype)


def _with_columns(make, rows=N):
  def of(rng, kind, dtype):
    a, e = make(rng, kind, dtype)
    return (a, _columns(rng, a.dtype, rows)), (e, _columns(rng, a.dtype, rows))

  return of


def _alone(make):
  def of(rng, kind, dtype):
    a, e = make(rng, kind, dtype)
    return (a,), (e,)

  return of


def _factor(rng, kind, dtype):
  """A Cholesky factor, whose direction is that of its matrix."""
  a, e = positive(rng, kind, dtype)
  l = np.linalg.cholesky(a)
  inverse = np.linalg.inv(l)
  c = np.tril(inverse @ e @ inverse.conj().T)
  np.fill_diagonal(c, np.diag(c).real / 2)
  return l, l @ c


def _triangular(rng, kind, dtype):
  a, e = general(rng, kind, dtype)
  return np.tril(np.linalg.qr(a)[1].T), np.tril(e)


def _upper_and_rows(rng, kind, dtype):
  (a, b), (e, f) = _with_columns(_triangular)(rng, kind, dtype)
  return (a.T, b.T), (e.T, f.T)


def _lu(rng, kind, dtype):
  a, e = general(rng, kind, dtype)
  packed, pivots, _ = map(np.asarray, linalg.lu(a))
  del a
  return (packed, pivots), (e * np.abs(packed) / np.abs(packed).max(), None)


def _pair(rng, kind, dtype):
  (a, e), (b, f) = hermitian(rng, kind, dtype), positive(rng, "random", dtype)
  return (a, b), (e, f)


def _two(rng, kind, dtype):
  (a, e), (b, f) = general(rng, kind, dtype), general(rng, kind, dtype)
  return (a, b), (e, f)


def _two_vectors(rng, kind, dtype):
  (a, b), (e, f) = _two(rng, kind, dtype)
  return (a[0], b[1]), (e[0], f[1])


def _vector(rng, kind, dtype):
  a, e = general(rng, kind, dtype)
  return (a[0],), (e[0],)


def _sylvester(rng, kind, dtype):
  (a, b), (e, f) = _two(rng, kind, dtype)
  small = lambda x: 0.3 * x[:2, :2]
  columns = lambda: _columns(rng, a.dtype, N)
  return (a, small(b), columns()), (e, small(f), columns())


def _left(rng, kind, dtype):
  """Minus `right`, and a general matrix."""
  a, e = right(rng, kind, dtype)
  return (-a, _columns(rng, a.dtype, N, N)), (-e, _columns(rng, a.dtype, N, N))


def _in_the_circle(rng, kind, dtype):
  a, e = general(rng, kind, dtype)
  size = 0.7 / np.abs(np.linalg.eigvals(a)).max()
  return (size * a, _columns(rng, a.dtype, N, N)), (size * e, _columns(rng, a.dtype, N, N))


def _regulator(rng, kind, dtype):
  """The norm of A is 1, because the weights are not scaled with it."""
  a, e = general(rng, kind, dtype)
  a, e = (x / np.linalg.norm(a, 2) for x in (a, e))
  (q, dq), (r, dr) = (positive(rng, "random", dtype) for _ in range(2))
  columns = lambda: _columns(rng, a.dtype, N)
  return (a, columns(), q, r[:2, :2]), (e, columns(), dq, dr[:2, :2])


def _toeplitz(rng, kind, dtype):
  a, e = general(rng, kind, dtype)
  columns = lambda: _columns(rng, a.dtype, N)
  return (a[:, 0], a[0], columns()), (e[:, 0], e[0], columns())


def _bands(a, below, above):
  """The diagonals of a matrix, with 7 where none is stored."""
  ab = np.full((below + above + 1, N), 7, a.dtype)
  for t in range(below + above + 1):
    for j in range(N):
      if 0 <= j + t - above < N:
        ab[t, j] = a[j + t - above, j]
  return ab


def _banded(rng, kind, dtype):
  a, e = general(rng, kind, dtype)
  columns = lambda: _columns(rng, a.dtype, N)
  return (_bands(a, 2, 1), columns()), (_bands(e, 2, 1), columns())


def _lower_bands(make):
  def of(rng, kind, dtype):
    a, e = make(rng, kind, dtype)
    return (_bands(a, 2, 0),), (_bands(e, 2, 0),)

  return of


def _beside_columns(make):
  def of(rng, kind, dtype):
    operands, tangents = make(rng, kind, dtype)
    columns = lambda: _columns(rng, operands[0].dtype, N)
    return (*operands, columns()), (*tangents, columns())

  return of


def _three_diagonals(rng, kind, dtype):
  a, e = general(rng, kind, dtype)
  ab, de = _bands(a, 1, 1), _bands(e, 1, 1)
  rows = lambda x: (x[2][ORDER], x[1], np.roll(x[0], -1))
  columns = lambda: _columns(rng, a.dtype, N)
  return (*rows(ab), columns()), (*rows(de), columns())


def _hermitian_diagonals(rng, kind, dtype):
  a, e = hermitian(rng, kind, dtype)
  rows = lambda x: (np.diag(x).real.astype(x.dtype), np.diag(x, 1))
  return rows(a), rows(e)


# How the operands of each case are made. Others are of their `matrix` kind.
_MAKERS = {
    "cholesky": _alone(positive),
    "cholesky_upper": _alone(positive),
    "cholesky_jittered": _alone(positive),
    "cho_solve": _with_columns(_factor),
    "solve": _with_columns(general),
    "solve_pos": _with_columns(positive),
    "solve_her": _with_columns(hermitian),
    "lu_slogdet": _lu,
    "cho_logdet": _alone(_factor),
    "lstsq": _with_columns(tall, N + 2),
    "pinv_hermitian": _alone(hermitian),
    "pinvh": _alone(hermitian),
    "triangular_solve": _with_columns(_triangular),
    "triangular_solve_right": _upper_and_rows,
    "tridiagonal_solve": _three_diagonals,
    "eigh": _alone(hermitian),
    "eigvalsh": _alone(hermitian),
    "eigh_tridiagonal": _hermitian_diagonals,
    "eigvalsh_tridiagonal": _hermitian_diagonals,
    "eigh_generalized": _pair,
    "svd_thin": _alone(tall),
    "svdvals": _alone(tall),
    "vector_norm_3": _vector,
    "vector_norm_2": _vector,
    "vector_norm_0.5": _vector,
    "vector_norm_-1": _vector,
    "matmul": _two,
    "congruence": _two,
    "congruence_adjoint": _two,
    "cross": _two_vectors,
    "vecdot": _two_vectors,
    "block_diag": _two,
    "sqrtm": _alone(right),
    "funm_hermitian": _alone(hermitian),
    "inverse_pth_root": _alone(positive),
    "solve_sylvester": _sylvester,
    "solve_continuous_lyapunov": _left,
    "solve_discrete_lyapunov": _in_the_circle,
    "solve_continuous_are": _regulator,
    "solve_discrete_are": _regulator,
    "ldl": _alone(hermitian),
    "solve_toeplitz": _toeplitz,
    "matmul_toeplitz": _toeplitz,
    "logm": _alone(right),
    "funm": _alone(right),
    "fractional_matrix_power": _alone(right),
    "expm_frechet": _two,
    "null_space": _alone(_wide),
    "orth": _alone(tall),
    "solve_banded": _banded,
    "solveh_banded": _beside_columns(_lower_bands(positive)),
    "cholesky_banded": _lower_bands(positive),
    "cho_solve_banded": _beside_columns(_lower_bands(_factor)),
}


# Functions that compare singular values, or sums of eigenvalues, with rounding errors.
_RANK = {
    "pinv", "pinv_hermitian", "pinvh", "lstsq", "null_space", "orth", "solve_continuous_lyapunov"}
# Functions that overflow at large matrices.
_TAMED = {"expm", "expm_frechet", "funm_hermitian"}


def _tamed(x):
  size = np.linalg.norm(x) if x is not None else 0
  return x / max(size, 1)


def make(name, kind, rng, dtype) -> Point:
  """The operands of a case of the catalogue, rounded to the dtype, and directions."""
  if name in _RANK and kind in GRADED:
    kind = f"mildly_{kind}"
  operands, tangents = _MAKERS.get(name, _alone(general))(rng, kind, dtype)
  if name in _TAMED:
    operands, tangents = (tuple(map(_tamed, x)) for x in (operands, tangents))
  cast = lambda x: x if x is None or x.dtype.kind not in "fc" else x.astype(dtype)
  return Point(tuple(map(cast, operands)), tuple(map(cast, tangents)))


def stacked(points) -> Point:
  """Several points of one case as one, of batches."""
  together = lambda columns: tuple(
      None if x[0] is None else np.stack(x) for x in zip(*columns, strict=True))
  return Point(
      together([p.operands for p in points]), together([p.tangents for p in points]))


def perturbed(rng, operands, how):
  """Arrays with errors of one rounding, in proportion to each element or to the largest.

  Hermitian operands stay Hermitian.
  """

  def moved(x):
    if x is None or x.dtype.kind not in "fc":
      return x
    noise = np.sign(rng.standard_normal(x.shape)) * float(np.finfo(x.dtype).eps)
    change = noise * (np.abs(x) if how == "elements" else np.abs(x).max())
    if x.ndim == 2 and x.shape[0] == x.shape[1] and np.array_equal(x, x.conj().T):
      change = np.triu(change) + np.triu(change, 1).T
    return many_digits.exact(x) + many_digits.exact(change)

  return [moved(x) for x in operands]
