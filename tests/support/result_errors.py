"""Errors of results, relative to their size, with the references and formulas that they need."""


import numpy as np
import scipy.linalg

import long_double as exact
from linalg._catalogue.scipy import ABOVE, dense, dense_hermitian
from linalg._catalogue.scipy_composed import real_form_of_scipy
from linalg._catalogue.scipy_factors import dense_band, joined
from long_double import adjoint, size, wide


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


def as_tuple(x):
  return x if isinstance(x, tuple) else (x,)


def solve_by_qr(a, b):
  q, r = scipy.linalg.qr(a)
  return scipy.linalg.solve_triangular(r, q.conj().T @ b)


def hermitian_function(function):
  def theirs(a):
    w, v = scipy.linalg.eigh(a)
    return (v * function(w).astype(w.dtype)) @ adjoint(v)

  return theirs


def polar_error(side):
  """The residual and the orthonormality; and the distance, where U is determined."""

  def error(operands, results):
    (a,), (u, p) = operands, (wide(x) for x in results)
    if not (np.isfinite(u).all() and np.isfinite(p).all()):
      return np.inf
    product = u @ p if side == "right" else p @ u
    worst = max(
        relative(product - wide(a), size(a)), relative(adjoint(u) @ u - np.eye(len(a)), 1),
        relative(p - adjoint(p), size(p)))
    if not is_of_full_rank(a):
      return worst
    return max(worst, distance((u, p), (exact.polar if side == "right" else left_polar)(a)))

  return error


def relative(error, *sizes):
  scale = np.prod([np.longdouble(x) for x in sizes])
  return float(size(error) / scale) if scale != 0 else float(size(error) != 0)


def orthogonality(q):
  return relative(adjoint(q) @ q - np.eye(q.shape[1]), 1)


def rotation_error(operands, results):
  """R is unitary, and Rᴴ Aᴴ B Hermitian; and the distance, where R is determined."""
  (a, b), (r, scale) = (tuple(map(wide, x)) for x in (operands, results))
  if not (np.isfinite(r).all() and np.isfinite(scale)):
    return np.inf
  c, terms = adjoint(a) @ b, size(np.abs(adjoint(a)) @ np.abs(b))
  p = adjoint(r) @ c
  worst = max(
      relative(p - adjoint(p), terms), relative(adjoint(r) @ r - np.eye(len(r)), 1),
      relative(scale - nuclear(c), terms))
  if not is_of_full_rank(operands[0]):
    return worst
  return max(worst, distance((r, scale), rotation(*operands)))


def rotation(a, b):
  r, p = exact.polar(adjoint(wide(a)) @ wide(b))
  return r, np.trace(p).real


def ldl_error(operands, results):
  (a,), (l, d) = operands, (wide(x) for x in results)
  product = l @ d @ adjoint(l) - wide(a)
  return relative(product, size(a)) if np.isfinite(product).all() else np.inf


def balance_error(operands, results):
  """B is T⁻¹ A T, whose elements powers of two scale."""
  (a,), (b, t) = operands, (wide(x) for x in results)
  order, scale = np.argmax(t != 0, axis=0), np.max(t.real, axis=0)
  exact = wide(a)[np.ix_(order, order)] * scale / scale[:, None]
  return relative(b - exact, np.max(np.abs(exact))) if np.isfinite(b).all() else np.inf


def factors_error(changed, left=True):
  """The residual against the changed matrix's parts, and the orthonormality."""

  def error(operands, results):
    results = tuple(map(wide, results))
    if not all(np.isfinite(x).all() for x in results):
      return np.inf
    q = results[0] if left else adjoint(results[1])
    a, scale = changed(*map(wide, operands))
    return max(relative(results[0] @ results[1] - a, scale), orthogonality(q))

  return error


def changed_by_vectors(q, r, u, v):
  return q @ r + u @ adjoint(v), size(r) + size(u) * size(v)


def with_row(q, r, u):
  a = np.insert(q @ r, 1, u[0], 0)
  return a, size(a)


def without_row(q, r):
  return np.delete(q, 1, 0) @ r, size(r)


def band_error(operands, results):
  (ab,), (w, *v) = operands, map(wide, results)
  a, scale = exact._unscaled(wide(dense_band(ab)))
  w = w / scale
  if not all(np.isfinite(x).all() for x in (w, *v)):
    return np.inf
  if not v:
    expected = scipy.linalg.eigvalsh(exact.narrow(a))
    return relative(w - expected, size(expected))
  return max(relative((v[0] * w) @ adjoint(v[0]) - a, size(w)), orthogonality(v[0]))


def cossin_error(operands, results):
  x, *factors = results
  u, d, vh = map(wide, joined(*factors))
  if not np.isfinite(u @ d @ vh).all():
    return np.inf
  return max(relative(u @ d @ vh - wide(x), 1), orthogonality(u), orthogonality(vh))


def their_cossin(a):
  x = np.linalg.qr(a)[0]
  half = len(x) // 2
  (u1, u2), theta, (v1, v2) = scipy.linalg.cossin(x, half, half, separate=True)
  return x, u1, u2, theta, v1, v2


def schur_error(operands, results):
  (a,), (t, z) = operands, map(wide, results[:2])
  if not (np.isfinite(t).all() and np.isfinite(z).all()):
    return np.inf
  return max(relative(z @ t @ adjoint(z) - wide(a), size(a)), orthogonality(z))


def qz_error(operands, results):
  a, b = map(wide, operands)
  s, t, *_, q, z = map(wide, results)
  if not all(np.isfinite(x).all() for x in (s, t, q, z)):
    return np.inf
  return max(
      relative(q @ s @ adjoint(z) - a, size(a)), relative(q @ t @ adjoint(z) - b, size(b)),
      orthogonality(q), orthogonality(z))


def eig_error(operands, results):
  """The residual β A v - α B v for pairs (α, β) of length 1 in the units of A and B."""
  (a, b), (w, v) = (tuple(map(wide, x)) for x in (operands, results))
  if not (np.isfinite(w).all() and np.isfinite(v).all()):
    return np.inf
  w = w * (size(b) / size(a))
  length = np.sqrt(1 + np.abs(w) ** 2)
  residual = (a / size(a)) @ v / length - (b / size(b)) @ v * (w / length)
  return float(size(residual))


def trace_error(operands, results):
  """The sum of the eigenvalues is the trace of B⁻¹ A."""
  (a, b), (w,) = operands, map(wide, results)
  a, of_a = exact._unscaled(wide(a))
  b, of_b = exact._unscaled(wide(b))
  quotient = exact.solved(b, a)
  error = np.sum(w * (of_b / of_a)) - np.trace(quotient)
  return relative(error, size(quotient)) if np.isfinite(w).all() else np.inf


def projector_error(null):
  def error(operands, results):
    """The projector on the range has (I - P) A = 0, that on the null space A P = 0."""
    (a,), (p,) = operands, (wide(x) for x in results)
    if not np.isfinite(p).all():
      return np.inf
    a = wide(a)
    rest = a @ p if null else a - p @ a
    return max(relative(rest, size(a)), relative(p @ p - p, 1))

  return error


def factor_error(operands, results):
  (ab,), (factor,) = operands, results
  a, scale = exact._unscaled(wide(dense_hermitian(ab)))
  l = wide(np.tril(dense(factor, 0)))
  product = (l / np.sqrt(scale)) @ (adjoint(l) / np.sqrt(scale)) - a
  # Each element is near that of A against its diagonal, which is the largest in its row of L Lᴴ.
  d = np.sqrt(np.abs(np.diagonal(a)))
  return relative(product / d / d[:, None], 1) if np.isfinite(product).all() else np.inf


def pencil_error(operands, results):
  """The residual and the orthonormality, against the sizes of the terms."""
  (a, b), (w, v) = (tuple(map(wide, x)) for x in (operands, results))
  if not (np.isfinite(w).all() and np.isfinite(v).all()):
    return np.inf
  terms = np.abs(a) @ np.abs(v) + np.abs(b) @ np.abs(v * w)
  identity = np.abs(adjoint(v)) @ np.abs(b) @ np.abs(v)
  return max(
      float(size(a @ v - b @ v * w) / size(terms)),
      float(size(adjoint(v) @ b @ v - np.eye(len(a))) / size(identity)))


def is_of_full_rank(a):
  """Whether no singular value is near to the largest of the functions' cut-offs, 10 n eps."""
  s = scipy.linalg.svdvals(exact.narrow(exact._unscaled(wide(a))[0]))
  return s[-1] > 20 * max(a.shape) * float(np.finfo(a.dtype).eps) * s[0]


def log_determinant(a):
  _, phase, logarithm = exact.eliminated(a, np.zeros((len(a), 0)))
  return phase, logarithm


def of_lu(packed, pivots):
  diagonal = np.diagonal(packed)
  sign = (-1) ** np.count_nonzero(pivots != np.arange(len(pivots)))
  return sign * np.prod(diagonal / np.abs(diagonal)), np.sum(np.log(np.abs(diagonal)))


def nuclear(a):
  a, scale = exact._unscaled(wide(a))
  return wide(scipy.linalg.svdvals(exact.narrow(a)).sum()) * scale


def vector_norm(order):
  def norm(x):
    x, scale = exact._unscaled(wide(x))
    x = np.abs(x)
    if order < 0 and (x == 0).any():
      return np.longdouble(0)
    return np.sum(x ** np.longdouble(order)) ** (1 / np.longdouble(order)) * scale

  return norm


def condition(a):
  largest, smallest = exact.extreme_singular_values(a)
  return largest / smallest if smallest else np.longdouble(np.inf)


def frobenius(a):
  a, scale = exact._unscaled(wide(a))
  return np.sqrt(np.sum(np.abs(a) ** 2)) * scale


def real_form(x, v):
  """The real form of conjugate pairs, whose numbers are only moved, or 0, or change their signs."""
  w, vectors = real_form_of_scipy(x, v)
  return wide(w), wide(vectors)


def solves(dense_of):
  return lambda ab, b: exact.solved(dense_of(ab), b)


def dense_general(ab):
  return dense(ab, ABOVE)


def projected(q):
  return q @ adjoint(q)


def product_of_factor(cb):
  l = wide(np.tril(dense(cb, 0)))
  return l @ adjoint(l)


def left_polar(a):
  u, _ = exact.polar(a)
  p = wide(a) @ adjoint(u)
  return u, (p + adjoint(p)) / 2


def exactly(function):
  """One formula, in long double."""
  return lambda *operands: function(*(wide(x) for x in operands))
