"""Reference results in long double, 11 bits more than float64, with its range of 10^±4932.

They are solved for by elimination, or refined: the residual is in long double, and the corrections
are SciPy's. None reads a result of the package.
"""

import numpy as np
import scipy.linalg

DIGITS = float(np.finfo(np.longdouble).eps)


def wide(x):
  x = np.asarray(x)
  return x.astype(np.clongdouble if np.iscomplexobj(x) else np.longdouble)


def adjoint(a):
  return a.conj().T


def size(x):
  """The largest magnitude, or 0."""
  return np.max(np.abs(x), initial=np.longdouble(0))


def _power_of_two(x):
  """A power of two near `x`, in long double."""
  return np.ldexp(np.longdouble(1), np.frexp(np.where(x > 0, x, 1))[1])


def _unscaled(a):
  """The matrix over a power of two near its size, and that."""
  scale = _power_of_two(size(a))
  return a / scale, scale


def narrow(x):
  return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def eliminated(a, b):
  """Returns A⁻¹ B, the phase of det A and log |det A|; NaN where a pivot is 0.

  Rows and columns are scaled by powers of two before the pivots are chosen.
  """
  a, b = wide(a).copy(), wide(b).copy()
  n = len(a)
  dtype = np.result_type(a, b)
  a, b = a.astype(dtype), b.astype(dtype)
  rows = _power_of_two(np.max(np.abs(a), axis=1, initial=0))
  a /= rows[:, None]
  b /= rows[:, None]
  columns = _power_of_two(np.max(np.abs(a), axis=0, initial=0))
  a /= columns
  phase, logarithm = dtype.type(1), np.sum(np.log(rows)) + np.sum(np.log(columns))
  for k in range(n):
    pivot = k + np.argmax(np.abs(a[k:, k]))
    if a[pivot, k] == 0:
      return np.full_like(b, np.nan), phase * 0, np.longdouble(-np.inf)
    if pivot != k:
      a[[k, pivot]], b[[k, pivot]] = a[[pivot, k]], b[[pivot, k]]
      phase = -phase
    own = np.abs(a[k, k])
    phase, logarithm = phase * a[k, k] / own, logarithm + np.log(own)
    factors = a[k + 1 :, k] / a[k, k]
    a[k + 1 :, k:] -= factors[:, None] * a[k, k:]
    b[k + 1 :] -= factors[:, None] * b[k]
  for k in reversed(range(n)):
    b[k] = (b[k] - a[k, k + 1 :] @ b[k + 1 :]) / a[k, k]
  return b / columns[:, None], phase, logarithm


def solved(a, b):
  return eliminated(a, b)[0]


def inverse(a):
  return solved(a, np.eye(len(a)))


def power(a, n):
  a = wide(a)
  return np.linalg.matrix_power(inverse(a) if n < 0 else a, abs(n))


def least_squares(a, b):
  """The solution for a tall A of full rank, by reflectors."""
  dtype = np.result_type(wide(a), wide(b))
  n = a.shape[1]
  r = np.concatenate([wide(a), wide(b)], axis=1).astype(dtype)
  columns = _power_of_two(np.max(np.abs(r[:, :n]), axis=0, initial=0))
  r[:, :n] /= columns
  for k in range(n):
    v = r[k:, k].copy()
    length = np.sqrt(np.sum(np.abs(v) ** 2))
    v[0] += length * (v[0] / np.abs(v[0]) if v[0] != 0 else 1)
    norm = np.sum(np.abs(v) ** 2)
    if norm != 0:
      r[k:, k:] -= np.outer(v, (2 / norm) * (v.conj() @ r[k:, k:]))
  return solved(np.triu(r[:n, :n]), r[:n, n:]) / columns[:, None]


def _balanced(a):
  """D⁻¹ A D and the diagonal of D, of powers of two, that SciPy finds."""
  a = wide(a)
  _, (scale, _) = scipy.linalg.matrix_balance(
      narrow(_unscaled(np.abs(a))[0]), permute=False, separate=True)
  scale = wide(scale)
  return a * scale / scale[:, None], scale


def _in_balance(function):
  def of_balanced(a, *rest):
    a, scale = _balanced(a)
    return function(a, *rest) * scale[:, None] / scale

  return of_balanced


@_in_balance
def expm(a):
  """Scaled to a norm of at most 1/4, Taylor's polynomial, and squared."""
  norm = float(np.max(np.abs(a).sum(0), initial=0))
  squarings = max(int(np.ceil(np.log2(norm))) + 2, 0) if norm > 0 else 0
  if squarings > 60:
    return np.full_like(a, np.nan)
  a = np.ldexp(np.longdouble(1), -squarings) * a
  # exp(A) - I is squared, which keeps the digits of small entries: (I + X)² = I + 2X + X².
  term, x = a, a
  for k in range(2, 20):
    term = term @ a / k
    x = x + term
  for _ in range(squarings):
    x = 2 * x + x @ x
  return x + np.eye(len(a))


def expm_frechet(a, e):
  n = len(a)
  scale = _power_of_two(size(e))
  whole = np.block([[a, e / scale], [np.zeros_like(a), a]])
  return expm(whole)[:n, n:] * scale


def coshm_and_sinhm(a):
  """From the exponential of [[0, A], [A, 0]], which keeps the digits of a small sine."""
  n = len(a)
  whole = expm(np.block([[np.zeros_like(a), a], [a, np.zeros_like(a)]]))
  return whole[:n, :n], whole[:n, n:]


def cosm_and_sinm(a):
  """From the exponential of [[0, A], [-A, 0]]."""
  n = len(a)
  whole = expm(np.block([[np.zeros_like(a), a], [-a, np.zeros_like(a)]]))
  return whole[:n, :n], whole[:n, n:]


def sinm(a):
  """The sine of a Hermitian matrix."""
  forth, back = expm(1j * wide(a)), expm(-1j * wide(a))
  result = (forth - back) / np.clongdouble(2j)
  return result if np.iscomplexobj(a) else result.real


def _refined(x, residual, correction, steps=8):
  """x refined until the residual falls no more; NaN where it did not become small."""
  best, least = x, np.inf
  for _ in range(steps):
    r = residual(x)
    now = float(size(r))
    if not now < least / 2:
      break
    best, least = x, now
    if now == 0:
      break
    scale = _power_of_two(now)
    change = correction(x, narrow(r / scale))
    if not np.isfinite(change).all():
      break
    x = x + scale * change
  return best


@_in_balance
def sqrtm(a):
  """The principal root, refined by X dX + dX X = A - X²."""
  a, scale = _unscaled(a)
  odd = np.frexp(scale)[1] % 2 == 0  # the scale is 2^(e - 1)
  a, scale = (a / 2, scale * 2) if odd else (a, scale)
  a = a.astype(np.clongdouble)
  t, z = scipy.linalg.schur(narrow(a), output="complex")
  root = np.zeros_like(t)
  for j in range(len(t)):
    root[j, j] = np.sqrt(t[j, j])
    for i in reversed(range(j)):
      between = root[i, i + 1 : j] @ root[i + 1 : j, j]
      sums = root[i, i] + root[j, j]
      root[i, j] = (t[i, j] - between) / sums if sums != 0 else np.nan
  if not np.isfinite(root).all():
    return np.full_like(a, np.nan)
  z = wide(z)

  def correction(x, r):
    y, scale, info = _trsyl(root, root, narrow(adjoint(z) @ r @ z))
    return z @ (y / scale) @ adjoint(z)

  x = _refined(z @ root @ adjoint(z), lambda x: a - x @ x, correction)
  return x * np.sqrt(scale)


_trsyl = scipy.linalg.get_lapack_funcs("trsyl", dtype=np.complex128)


@_in_balance
def logm(a):
  """Roots until A is near to I, and Gauss's rule for the integral of the logarithm."""
  a, scale = _unscaled(a)
  a = a.astype(np.clongdouble)
  eye = np.eye(len(a))
  roots = 0
  while np.max(np.abs(a - eye).sum(0)) > 0.25 and roots < 40:
    a, roots = sqrtm(a), roots + 1
  if not np.isfinite(a).all() or roots == 40:
    return np.full_like(a, np.nan)
  nodes, weights = _GAUSS
  x = a - eye
  found = sum(weight * solved(eye + node * x, x) for node, weight in zip(nodes, weights))
  return found * np.longdouble(2) ** roots + np.log(scale) * eye


def _gauss_legendre(count):
  """Nodes and weights on [0, 1] in long double, by Newton's method for Legendre's polynomial."""
  x = wide(np.polynomial.legendre.leggauss(count)[0])
  for _ in range(3):
    before, p = np.ones_like(x), x
    for k in range(2, count + 1):
      before, p = p, ((2 * k - 1) * x * p - (k - 1) * before) / k
    slope = count * (x * p - before) / (x * x - 1)
    x = x - p / slope
  before, p = np.ones_like(x), x
  for k in range(2, count + 1):
    before, p = p, ((2 * k - 1) * x * p - (k - 1) * before) / k
  slope = count * (x * p - before) / (x * x - 1)
  return (1 + x) / 2, 1 / ((1 - x * x) * slope * slope)


_GAUSS = _gauss_legendre(12)


@_in_balance
def fractional_power(a, exponent):
  a, scale = _unscaled(a)
  return expm(np.longdouble(exponent) * logm(a)) * scale ** np.longdouble(exponent)


@_in_balance
def signm(a):
  """The sign, by Newton's method with scaled steps; NaN where it does not converge."""
  s, _ = _unscaled(wide(a))
  for step in range(80):
    other = inverse(s)
    if not np.isfinite(other).all():
      return other
    mean = 1.0
    if step < 60:
      norm = lambda x: float(np.sqrt(np.abs(x).sum(0).max() * np.abs(x).sum(1).max()))
      mean = np.sqrt(norm(other) / norm(s))
      mean = mean if abs(mean - 1) > 0.01 else 1.0
    before, s = s, (mean * s + other / mean) / 2
    if size(s - before) < 4 * DIGITS * len(a) * size(s):
      return s
  return np.full_like(s, np.nan)


def expm_condition(a):
  """‖L‖₂ ‖A‖ / ‖exp(A)‖ with the derivative L of exp. The 2-norm is in float64."""
  n = len(a)
  basis = np.eye(n * n).reshape(n * n, n, n)
  columns = [expm_frechet(wide(a), wide(e)).ravel() for e in basis]
  k, scale = _unscaled(np.stack(columns, -1))
  root = lambda x: np.sqrt(np.sum(np.abs(x) ** 2))
  a, of_a = _unscaled(wide(a))
  return wide(scipy.linalg.svdvals(narrow(k))[0]) * scale * root(a) * of_a / root(expm(a * of_a))


def orthonormal(a):
  """A basis of the range of a matrix of full column rank, by two rounds of Gram and Schmidt."""
  a = wide(a) / _power_of_two(np.max(np.abs(a), axis=0, initial=0))
  q = np.zeros_like(a)
  for j in range(a.shape[1]):
    x = a[:, j]
    for _ in range(2):
      x = x - q[:, :j] @ (adjoint(q[:, :j]) @ x)
      x = x / np.sqrt(np.sum(np.abs(x) ** 2))
    q[:, j] = x
  return q


def angles(a, b):
  """The angles between the ranges. Their cosines and sines are in float64."""
  p, q = sorted((orthonormal(a), orthonormal(b)), key=lambda x: -x.shape[1])
  overlap = adjoint(p) @ q
  cosines = scipy.linalg.svdvals(narrow(overlap))[::-1]
  sines = scipy.linalg.svdvals(narrow(q - p @ overlap))
  return wide(np.where(cosines**2 >= 0.5, np.arcsin(np.minimum(sines, 1)), np.arccos(
      np.minimum(cosines, 1))))


def inverse_fourth_root(a):
  root = inverse(sqrtm(sqrtm(a)))
  root = (root + adjoint(root)) / 2
  return root if np.iscomplexobj(a) else root.real


def polar(a):
  """The unitary and the Hermitian factor, A = U P, by Newton's method with scaled steps."""
  a, scale = _unscaled(wide(a))
  u = a
  for step in range(60):
    other = adjoint(inverse(u))
    if not np.isfinite(other).all():
      return other, other
    mean = 1.0
    if step < 50:
      norm = lambda x: float(np.sqrt(np.abs(x).sum(0).max() * np.abs(x).sum(1).max()))
      mean = np.sqrt(norm(other) / norm(u))
      mean = mean if abs(mean - 1) > 0.01 else 1.0
    before, u = u, (mean * u + other / mean) / 2
    if size(u - before) < 4 * DIGITS * len(a):
      break
  p = adjoint(u) @ a
  return u, (p + adjoint(p)) / 2 * scale


def sylvester(a, b, c):
  """X of A X + X B = C, refined."""
  return _linear(lambda x: c - a @ x - x @ b, lambda r: scipy.linalg.solve_sylvester(
      narrow(a), narrow(b), r), c)


def _linear(residual, solve, c):
  """The solution of a linear equation, refined; NaN where no step is one towards it."""
  c, scale = _unscaled(wide(c))
  of = lambda x: residual(x * scale) / scale
  x = _refined(np.zeros_like(c), of, lambda x, r: solve(r))
  return x * scale if size(of(x)) < 1e-6 else np.full_like(x, np.nan)


def _in_balanced_states(function):
  """`function` of D⁻¹ A D and D⁻¹ Q D⁻¹, whose solution is D⁻¹ X D⁻¹."""

  def of_balanced(a, q):
    a, scale = _balanced(a)
    both = scale[:, None] * scale
    return function(a, wide(q) / both) * both

  return of_balanced


@_in_balanced_states
def continuous_lyapunov(a, q):
  """X of A X + X Aᴴ = Q."""
  scale = _power_of_two(size(a))
  a = wide(a) / scale
  return sylvester(a, adjoint(a), wide(q)) / scale


@_in_balanced_states
def discrete_lyapunov(a, q):
  """X of A X Aᴴ - X + Q = 0, for an A of moderate size."""
  a, q = wide(a), wide(q)
  t, z = scipy.linalg.schur(narrow(a), output="complex")

  def solve(r):
    # T Y Tᴴ - Y = -Zᴴ R Z, column by column from the last.
    n = len(t)
    right = -(adjoint(z) @ r @ z)
    y = np.zeros_like(t)
    for j in reversed(range(n)):
      own = right[:, j] - t @ (y[:, j + 1 :] @ t[j, j + 1 :].conj())
      y[:, j] = scipy.linalg.solve_triangular(t[j, j].conj() * t - np.eye(n), own)
    x = z @ y @ adjoint(z)
    return x if np.iscomplexobj(r) else x.real

  return _linear(lambda x: a @ x @ adjoint(a) - x + q, solve, q)


def riccati(theirs, discrete):
  """X of SciPy's function, refined by Newton's method; NaN where SciPy has none.

  SciPy solves an equation of the scale of 1.
  """

  def exact(a, b, q, r):
    scale = _power_of_two(size(q))
    if discrete:
      return of_scaled(wide(a), wide(b), wide(q) / scale, wide(r) / scale) * scale
    return of_scaled(wide(a) / scale, wide(b) / np.sqrt(scale), wide(q) / scale, wide(r))

  def of_scaled(a, b, q, r):
    wanting = np.full_like(wide(a), np.nan)
    try:
      x = theirs(*(narrow(wide(y)) for y in (a, b, q, r)))
    except (np.linalg.LinAlgError, ValueError):
      return wanting
    a, b, q, r = map(wide, (a, b, q, r))
    x = wide((x + adjoint(x)) / 2)

    def gain(x):
      if discrete:
        return solved(r + adjoint(b) @ x @ b, adjoint(b) @ x @ a)
      return solved(r, adjoint(b) @ x)

    def residual(x):
      k = gain(x)
      loop = a - b @ k
      costs = q + adjoint(k) @ r @ k
      half = adjoint(loop) @ x
      found = half @ loop - x + costs if discrete else half + adjoint(half) + costs
      return (found + adjoint(found)) / 2

    def correction(x, res):
      loop = narrow(a - b @ gain(x))
      if discrete:
        return narrow(discrete_lyapunov(adjoint(loop), res))
      return scipy.linalg.solve_continuous_lyapunov(adjoint(loop), -res)

    return _refined(x, residual, correction)

  return exact


def extreme_singular_values(a):
  """The largest and the smallest of a square matrix, each from a norm in float64."""
  a, scale = _unscaled(wide(a))
  other, of_other = _unscaled(inverse(a))
  largest = lambda x: wide(scipy.linalg.svdvals(narrow(x))[0])
  smallest = 1 / (largest(other) * of_other) if np.isfinite(other).all() else np.longdouble(0)
  return largest(a) * scale, smallest * scale
