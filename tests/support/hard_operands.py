"""Operands at which derivatives are hard, in double precision, with directions to move them along.

The kinds are random, scaled, graded, permuted, triangular, nearly singular, clustered and nearly
defective. A direction has the structure and the scales of its operand.
"""

from typing import Any, NamedTuple

import numpy as np

import cases
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


def _values(first, n):
  """Eigenvalues or singular values: three given ones, and others that are apart from them."""
  return np.concatenate([first, 2.5 + 0.5 * np.arange(n - N)])


def _grades(kind, dtype, count=N):
  """Factors of rows or columns. The elements of a matrix then span 10^±8, or 10^±4 in single
  precision and of mild kinds. The smallest singular values of mild kinds must not count as zero."""
  mild = kind.startswith("mildly") or np.finfo(dtype).eps > 1e-10
  return 10.0 ** np.linspace(*((2, -2) if mild else (4, -4)), count)


def _similar(rng, block, dtype, n=N):
  """A matrix similar to a block of order 3, beside eigenvalues that are apart from it."""
  full = np.diag(_values(np.zeros(N), n))
  full[:N, :N] = block
  x = matrices.well_conditioned(rng, (), n, dtype)
  return x @ full @ np.linalg.inv(x)


def _double(dtype):
  return np.promote_types(dtype, np.float64)


def _near(dtype, gap):
  """A gap that the dtype resolves: `gap` in double precision, and its root in single."""
  return gap if np.finfo(dtype).eps < 1e-10 else gap**0.5


def _triangle(rng, dtype, n=N):
  a = np.triu(matrices.well_conditioned(rng, (), n, dtype))
  np.fill_diagonal(a, _values([1.5, 3, 2], n))
  return a


def general(rng, kind, dtype, n=N):
  """A square matrix of a kind, and a direction."""
  wide = _double(dtype)
  a = matrices.well_conditioned(rng, (), n, wide)
  e = matrices.general(rng, (), n, n, wide)
  unitary = lambda: matrices.unitary(rng, n, wide)
  near = _near(dtype, 1e-8)
  if kind in ("large", "small"):
    scale = 1e8 if kind == "large" else 1e-8
    return scale * a, scale * e
  if "graded" in kind or "permuted" in kind:
    grades = _grades(kind, dtype, n)
    a, e = (grades[:, None] * x * grades for x in (a, e))
    order = np.roll(np.arange(n), 1)
    return (a[order], e[order]) if "permuted" in kind else (a, e)
  if kind == "triangular":
    return _triangle(rng, wide, n), e
  if kind == "nearly_singular":
    return (unitary() * _values([1, 0.5, near], n)) @ unitary(), e
  if kind == "clustered":
    return _similar(rng, np.diag([1, 1 + near, 2]), wide, n), e
  if kind == "nearly_defective":
    return _similar(rng, np.array([[1, 1, 0], [near, 1, 0], [0, 0, 2]]), wide, n), e
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


def positive(rng, kind, dtype, n=N):
  """A Hermitian positive definite matrix, and a Hermitian direction."""
  wide = _double(dtype)
  a = matrices.positive_definite(rng, (), n, wide)
  e = _hermitian(matrices.general(rng, (), n, n, wide))
  near = _near(dtype, 1e-8)
  turned = lambda values: matrices.with_eigenvalues(rng, _values(values, n), wide)
  if kind in ("large", "small"):
    scale = 1e8 if kind == "large" else 1e-8
    return scale * a, scale * e
  if "graded" in kind or "permuted" in kind:
    grades = _grades(kind, dtype, n)
    a, e = (grades[:, None] * x * grades for x in (a, e))
    order = np.roll(np.arange(n), 1)
    return (a[order][:, order], e[order][:, order]) if "permuted" in kind else (a, e)
  if kind == "triangular":
    return np.diag(_values([1.5, 3, 2], n)).astype(wide), e
  if kind == "nearly_singular":
    return turned([near, 0.5, 1]), e
  if kind == "clustered":
    return turned([1, 1 + near, 2]), e
  if kind == "nearly_defective":  # a Hermitian matrix is not; its eigenvalues may be equal
    return np.diag(_values([2, 2, 5], n)).astype(wide), e
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


def _factors_and_vectors(*shapes):
  """QR factors of a tall matrix, and vectors of which the last has its scale."""

  def of(rng, kind, dtype):
    a, _ = tall(rng, kind, dtype)
    q, r = np.linalg.qr(a)
    pairs = [(q, matrices.general(rng, (), *q.shape, a.dtype)),
             (r, r * matrices.general(rng, (), N, N, a.dtype))]
    for shape in shapes:
      scale = np.abs(a).max() if shape == shapes[-1] else 1
      pairs.append([scale * matrices.general(rng, (), *shape, a.dtype) for _ in range(2)])
    return zip(*pairs, strict=True)

  return of


def _pencil(rng, kind, dtype):
  a, e = general(rng, kind, dtype)
  b, f = general(rng, "random", dtype)
  return (a, b), (e, f)


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


def _off_the_axis(rng, kind, dtype):
  """Clusters are on one side of the imaginary axis, and other eigenvalues on both."""
  a, e = general(rng, kind, dtype)
  return (a - 1.6 * np.eye(N) if kind in ("triangular", "clustered", "nearly_defective") else a), e


def _circulant(rng, kind, dtype):
  (c, _, b), (dc, _, db) = _toeplitz(rng, kind, dtype)
  return (c, b[:, 0]), (dc, db[:, 0])


def _nearly_rotated(rng, kind, dtype):
  (a, e), (b, f) = general(rng, kind, dtype), general(rng, "random", dtype)
  return (a, b), (e, f)


def _bands(a, below, above):
  """The diagonals of a matrix, with numbers of its scale where none is stored."""
  ab = np.full((below + above + 1, N), np.abs(a).max(), a.dtype)
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


def _updated(rng, kind, dtype):
  """An upper factor, and a vector with |R⁻ᴴ w| = 0.3."""
  l, dl = _factor(rng, kind, dtype)
  p = np.full(N, 0.3 / np.sqrt(N))
  w = l @ p
  return (l.conj().T, w), (dl.conj().T, l @ _columns(rng, l.dtype, N, 1)[:, 0])


def _reflectors(rng, kind, dtype):
  a, e = general(rng, kind, dtype)
  packed, taus = (np.asarray(x) for x in linalg.qr(a, mode="raw"))
  packed = packed.T
  scale = np.abs(packed) / np.abs(packed).max()
  return (packed, taus), (e * scale, taus * _columns(rng, a.dtype, N, 1)[:, 0])


def _reflectors_beside(left):
  def of(rng, kind, dtype):
    operands, tangents = _reflectors(rng, kind, dtype)
    beside = lambda: _columns(rng, operands[0].dtype, *((N, 2) if left else (2, N)))
    return (*operands, beside()), (*tangents, beside())

  return of


STEPS = 3  # of block-tridiagonal matrices with blocks of order 2


def _blocks(a):
  """(lower, diagonal, upper) blocks of a matrix of order 2 STEPS."""
  parts = a.reshape(STEPS, 2, STEPS, 2).swapaxes(1, 2)
  at = np.arange(STEPS)
  return parts[at[1:], at[:-1]], parts[at, at], parts[at[:-1], at[1:]]


def _rows_of_blocks(rng, dtype):
  return matrices.general(rng, (STEPS,), 2, 2, dtype)


def _block_system(rng, kind, dtype):
  a, e = general(rng, kind, dtype, 2 * STEPS)
  of = lambda x: (*_blocks(x), _rows_of_blocks(rng, a.dtype))
  return of(a), of(e)


def _definite_block_system(rng, kind, dtype):
  """Blocks of L Lᴴ, where L is the factor of a matrix of the kind without its corner."""
  a, e = positive(rng, kind, dtype, 2 * STEPS)
  l = np.linalg.cholesky(a)
  l[4:, :2] = 0

  def of(x):
    lower, diagonal, _ = _blocks(x)
    return diagonal, lower, _rows_of_blocks(rng, a.dtype)

  return of(l @ l.conj().T), of(e)


def _state_space(rng, kind, dtype):
  """Observations of two components, and a model of three states with a transition for each step."""
  moves = [[x / np.linalg.norm(f, 2) for x in (f, df)]
           for f, df in (general(rng, kind, dtype) for _ in range(STEPS))]
  (q, dq), (p, dp) = positive(rng, kind, dtype), positive(rng, "random", dtype)
  r, dr = positive(rng, "random", dtype)

  def of(f, q, r, p):
    y, h, mean = (matrices.general(rng, (), m, n, q.dtype) for m, n in ((STEPS, 2), (2, N), (1, N)))
    return y, np.stack(f), q, h, r[:2, :2], mean[0], p

  return of([f for f, _ in moves], q, r, p), of([df for _, df in moves], dq, dr, dp)


# How the operands of cases are made if not as `_as_in_the_catalogue` makes them.
_MAKERS = {
    "cho_solve": _with_columns(_factor),
    "solve_pos": _with_columns(positive),
    "solve_her": _with_columns(hermitian),
    "lu_solve": _beside_columns(_lu),
    "lu_slogdet": _lu,
    "cho_logdet": _alone(_factor),
    "cholesky_update": _updated,
    "cholesky_update_down": _updated,
    "householder_product": _reflectors,
    "ormqr": _reflectors_beside(left=True),
    "ormqr_right_adjoint": _reflectors_beside(left=False),
    "pinv_hermitian": _alone(hermitian),
    "pinvh": _alone(hermitian),
    "triangular_solve": _with_columns(_triangular),
    "triangular_solve_right": _upper_and_rows,
    "tridiagonal_solve": _three_diagonals,
    "eigh_tridiagonal": _hermitian_diagonals,
    "eigvalsh_tridiagonal": _hermitian_diagonals,
    "eigh_generalized": _pair,
    "sqrtm": _alone(right),
    "solve_sylvester": _sylvester,
    "solve_continuous_lyapunov": _left,
    "solve_discrete_lyapunov": _in_the_circle,
    "solve_continuous_are": _regulator,
    "solve_discrete_are": _regulator,
    "solve_toeplitz": _toeplitz,
    "matmul_toeplitz": _toeplitz,
    "signm": _alone(_off_the_axis),
    "solve_circulant": _circulant,
    "orthogonal_procrustes": _nearly_rotated,
    "logm": _alone(right),
    "funm": _alone(right),
    "fractional_matrix_power": _alone(right),
    "solve_banded": _banded,
    "solveh_banded": _beside_columns(_lower_bands(positive)),
    "cholesky_banded": _lower_bands(positive),
    **dict.fromkeys(
        ("qz", "ordqz", "eig_generalized", "eig_left_generalized", "eigvals_generalized"), _pencil),
    "qr_update": _factors_and_vectors((N + 2, 1), (N, 1)),
    "qr_insert": _factors_and_vectors((1, N)),
    "qr_delete": _factors_and_vectors(),
    "eig_banded": _lower_bands(hermitian),
    "eigvals_banded": _lower_bands(hermitian),
    "cho_solve_banded": _beside_columns(_lower_bands(_factor)),
    "block_tridiagonal_cholesky": _definite_block_system,
    "block_tridiagonal_logdet": _definite_block_system,
    "block_tridiagonal_solve": _block_system,
    "gram_inverse_pth_root": _alone(tall),
    "kalman_filter": _state_space,
    "kalman_smoother": _state_space,
}
_OF_MATRIX = {
    "general": general, "nonsingular": general, "positive": positive, "hermitian": hermitian}


def _as_in_the_catalogue(name):
  """Operands of the kinds and shapes of the case."""
  case = cases.named(name)
  shapes = [
      x.shape for x in case.operands(np.random.default_rng(0), (), N + 2, N, np.dtype(np.float64))]
  square = _OF_MATRIX[case.kind_of_matrix or "general"]

  def of(rng, kind, dtype):
    pairs = []
    for shape in shapes:
      if shape == (N + 2, N):
        pairs.append(tall(rng, kind, dtype))
      elif shape == (N, N + 2):
        pairs.append(_wide(rng, kind, dtype))
      elif shape == (N, N):
        pairs.append(square(rng, kind, dtype))
      elif shape == (N,):
        pairs.append([x[len(pairs)] for x in general(rng, kind, dtype)])
      else:  # right-hand sides
        pairs.append([matrices.general(rng, (), *shape, _double(dtype)) for _ in range(2)])
    return zip(*pairs, strict=True)

  return of


# Functions that compare singular values, or sums of eigenvalues, with rounding errors.
_RANK = {
    "pinv", "pinv_hermitian", "pinvh", "lstsq", "null_space", "orth", "solve_continuous_lyapunov",
    "gram_inverse_pth_root", "subspace_angles"}
# Functions that overflow at large matrices.
_TAMED = {
    "expm", "expm_frechet", "expm_cond", "funm_hermitian", "cosm", "sinm", "tanm", "coshm", "sinhm",
    "tanhm"}


def _tamed(x):
  size = np.linalg.norm(x) if x is not None else 0
  return x / max(size, 1)


def _maker(name):
  return _MAKERS[name] if name in _MAKERS else _as_in_the_catalogue(name)


def make(name, kind, rng, dtype) -> Point:
  """The operands of a case of the catalogue, rounded to the dtype, and directions."""
  if name in _RANK and kind in GRADED:
    kind = f"mildly_{kind}"
  operands, tangents = _maker(name)(rng, kind, dtype)
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


def perturbed(rng, operands, unit):
  """Arrays with errors of one rounding.

  The rounding is relative to "elements", to the "largest" of each operand, or to the "norm": the
  largest of all operands of its rank. Hermitian operands stay Hermitian.
  """
  inexact = [x for x in operands if x is not None and x.dtype.kind in "fc"]

  def moved(x):
    if x is None or x.dtype.kind not in "fc":
      return x
    noise = np.sign(rng.standard_normal(x.shape)) * float(np.finfo(x.dtype).eps)
    alike = [y for y in inexact if y.ndim == x.ndim] if unit == "norm" else [x]
    change = noise * (np.abs(x) if unit == "elements" else max(np.abs(y).max() for y in alike))
    if x.ndim == 2 and x.shape[0] == x.shape[1] and np.array_equal(x, x.conj().T):
      change = np.triu(change) + np.triu(change, 1).T
    return many_digits.exact(x) + many_digits.exact(change)

  return [moved(x) for x in operands]
