"""Functions of matrices in many digits, for tests: values from textbook definitions by mpmath, and
derivatives along a line by central differences.

Matrices are NumPy arrays of mpmath's numbers. An oracle returns what the invariant of its case
returns, for one matrix.
"""

import functools

import mpmath
import numpy as np
import scipy.linalg

import linalg.scipy
from linalg._catalogue.scipy_composed import SKETCH
from long_double import riccati

DIGITS = 90
STEP = mpmath.mpf(10) ** -25


def _of_each(function):
  return np.frompyfunc(function, 1, 1)


_sqrt, _log, _sin = map(_of_each, (mpmath.sqrt, mpmath.log, mpmath.sin))
_real = _of_each(mpmath.re)


def exact(x):
  """The numbers of an array, exactly; real ones stay real."""
  number = mpmath.mpc if np.iscomplexobj(x) else mpmath.mpf
  x = np.asarray(x)
  wide = x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)
  return _of_each(number)(wide.astype(object))


def rounded(x):
  """The nearest complex numbers in double precision."""
  return np.array([complex(y) for y in np.ravel(x)]).reshape(np.shape(x))


def _as_matrix(a):
  return mpmath.matrix(a.tolist())


def _as_array(a):
  return np.array(a.tolist(), object).reshape(a.rows, a.cols)


def _adjoint(a):
  return a.conj().T


def _eye(n):
  return exact(np.eye(n))


def inv(a):
  return _as_array(mpmath.inverse(_as_matrix(a)))


def solve(a, b):
  return inv(a) @ b


def det(a):
  return mpmath.det(_as_matrix(a))


def eig(a):
  w, v = mpmath.eig(_as_matrix(a))
  return np.array(list(w), object), _as_array(v)


def eigh(a):
  """Eigenvalues in ascending order, and eigenvectors of the Hermitian part."""
  w, v = mpmath.eigh(_as_matrix((a + _adjoint(a)) / 2))
  w, v = np.array(list(w), object), _as_array(v)
  order = np.argsort(w)
  return w[order], v[:, order]


def svd(a):
  """The thin factors, with singular values in descending order."""
  u, s, vh = map(_as_array, mpmath.svd(_as_matrix(a), full_matrices=False))
  s = s[:, 0]
  order = np.argsort(-s)
  return u[:, order], s[order], vh[order]


def cholesky(a):
  return _as_array(mpmath.cholesky(_as_matrix((a + _adjoint(a)) / 2)))


def _function(f, a):
  """V f(w) V⁻¹. Digits are many enough for eigenvectors that are nearly dependent."""
  w, v = eig(a)
  return (v * f(w)) @ inv(v)


def _hermitian_function(f, a):
  w, v = eigh(a)
  return (v * f(w)) @ _adjoint(v)


def expm(a):
  return _as_array(mpmath.expm(_as_matrix(a)))


def pinv(a):
  """The pseudo-inverse of a matrix of full rank."""
  if a.shape[0] < a.shape[1]:
    return _adjoint(pinv(_adjoint(a)))
  return inv(_adjoint(a) @ a) @ _adjoint(a)


def _projectors(v):
  """v vᴴ of each column, as `_eigh_invariant` of the catalogue."""
  return v.T[:, :, None] * v.T.conj()[:, None, :]


def _eigh_invariant(a):
  w, v = eigh(a)
  return w, _projectors(v)


def _pencil(a, b):
  inverse = inv(cholesky(b))
  w, v = eigh(inverse @ a @ _adjoint(inverse))
  return w, _projectors(_adjoint(inverse) @ v)


def _svd_invariant(full):
  """Singular values, products of pairs of vectors, and projectors onto all, as the catalogue's."""

  def of(a):
    u, s, vh = svd(a)
    projectors = []
    for v in (u, _adjoint(vh)):
      projectors.append(v @ _adjoint(v))
      if full and len(v) > len(s):
        projectors.append(_eye(len(v)) - projectors[-1])
    return s, u.T[:, :, None] * vh[:, None, :], *projectors

  return of


def _phase_and_logarithm(a):
  d = det(a)
  return d / abs(d), mpmath.log(abs(d))


def _lstsq(a, b):
  x = pinv(a) @ b
  return x, (abs(b - a @ x) ** 2).sum(0), svd(a)[1]


def _polar(side):
  def of(a):
    u, s, vh = svd(a)
    p = _adjoint(vh) * s @ vh if side == "right" else u * s @ _adjoint(u)
    return u @ vh, p

  return of


def _slogdet_of_factors(packed, pivots):
  diagonal = np.diagonal(packed)
  product = np.prod(diagonal) * (-1) ** int(np.sum(pivots != np.arange(len(pivots))))
  return product / abs(product), sum(_log(abs(diagonal)))


def _kronecker(a, b):
  (m, n), (p, q) = a.shape, b.shape
  return (a[:, None, :, None] * b[None, :, None, :]).reshape(m * p, n * q)


def _linear(operator, rhs):
  """X of a linear equation, whose matrix acts on the rows of X one after the other."""
  return solve(operator, rhs.reshape(-1, 1)).reshape(rhs.shape)


def _sylvester(a, b, c):
  n, m = c.shape
  return _linear(_kronecker(a, _eye(m)) + _kronecker(_eye(n), b.T), c)


def _continuous_lyapunov(a, q):
  return _sylvester(a, _adjoint(a), q)


def _discrete_lyapunov(a, q):
  n = len(a)
  return _linear(_eye(n * n) - _kronecker(a, a.conj()), q)


def _newton(start, step):
  """Newton's iteration from a solution in double precision."""
  if np.isnan(start).any():
    raise ArithmeticError("no solution in double precision")
  x = exact(start)
  for _ in range(8):
    new = step(x)
    if max(abs(new - x).ravel()) <= mpmath.mpf(10) ** (5 - mpmath.mp.dps) * max(abs(x).ravel()):
      break
    x = new
  return new


def _plain(*operands):
  """Operands in double precision."""
  found = []
  for x in operands:
    y = rounded(x)
    found.append(y if any(isinstance(z, mpmath.mpc) for z in np.ravel(x)) else y.real)
  return found


def _continuous_riccati(a, b, q, r):
  """Kleinman, On an iterative technique for Riccati equation computations (1968)."""
  q, r = ((x + _adjoint(x)) / 2 for x in (q, r))
  g = b @ inv(r) @ _adjoint(b)

  def step(x):
    closed = a - g @ x
    return _continuous_lyapunov(_adjoint(closed), -(q + x @ g @ x))

  start = riccati(scipy.linalg.solve_continuous_are, discrete=False)
  return _newton(start(*_plain(a, b, q, r)), step)


def _discrete_riccati(a, b, q, r):
  """Hewer, An iterative technique for the computation of the steady state gains (1971)."""
  q, r = ((x + _adjoint(x)) / 2 for x in (q, r))

  def step(x):
    k = solve(r + _adjoint(b) @ x @ b, _adjoint(b) @ x @ a)
    return _discrete_lyapunov(_adjoint(a - b @ k), q + _adjoint(k) @ r @ k)

  start = riccati(scipy.linalg.solve_discrete_are, discrete=True)
  return _newton(start(*_plain(a, b, q, r)), step)


def _balance(a):
  """B and T for the order and powers of two of the rounded matrix."""
  _, t = linalg.scipy.matrix_balance(*_plain(a))
  return inv(exact(t)) @ a @ exact(t), exact(t)


def _ldl(a):
  """The factors at LAPACK's pivots, which it chooses at the rounded matrix."""
  l, d, order = scipy.linalg.ldl(*_plain(a))
  del l
  n = len(a)
  a = a[np.ix_(order, order)]
  factor, blocks = _eye(n), exact(np.zeros((n, n))) * a[0, 0]
  k = 0
  while k < n:
    size = 2 if k + 1 < n and d[k + 1, k] != 0 else 1
    own = slice(k, k + size)
    rest = slice(k + size, n)
    pivot = a[own, own]
    blocks[own, own] = pivot
    below = a[rest, own] @ inv(pivot)
    factor = factor.copy()
    factor[rest, own] = below
    a = a.copy()
    a[rest, rest] = a[rest, rest] - below @ a[own, rest]
    k += size
  return factor[np.argsort(order)], blocks


def _toeplitz(c, r):
  n = len(c)
  return np.array(
      [[c[i - j] if i >= j else r[j - i] for j in range(n)] for i in range(n)], object)


def _frechet(a, e):
  n = len(a)
  a = a / 4
  return expm(np.block([[a, e], [np.zeros_like(a) * a, a]]))[:n, n:]


def _cosine_and_sine(unit, a):
  """From the exponentials of A times the unit: cosh and sinh if it is 1, cos and sin if it is i."""
  forth, back = expm(unit * a), expm(-unit * a)
  return (forth + back) / 2, (forth - back) / (2 * unit)


def _tangent(unit, a):
  return solve(*_cosine_and_sine(unit, a))


def _expm_cond(a):
  """The columns of the derivative of exp are corners of the exponentials of blocks."""
  n = len(a)
  columns = []
  for e in np.eye(n * n, dtype=int).reshape(n * n, n, n):
    whole = expm(np.block([[a, exact(e)], [0 * a, a]]))
    columns.append(whole[:n, n:].ravel())
  frobenius = lambda x: mpmath.sqrt((abs(x) ** 2).sum())
  return svd(np.stack(columns, -1))[1][0] * frobenius(a) / frobenius(expm(a))


def _circulant(c):
  return np.stack([np.roll(c, k) for k in range(len(c))], -1)


def _angles(a, b):
  basis = lambda x: x @ _adjoint(inv(cholesky(_adjoint(x) @ x)))
  overlap = _adjoint(basis(a)) @ basis(b)
  return _of_each(mpmath.acos)(svd(overlap)[1][::-1])


def _procrustes(a, b):
  u, s, vh = svd(_adjoint(a) @ b)
  return u @ vh, s.sum()


def _real_form(x, v):
  """The real form of conjugate pairs: [[x₀, x₁], [-x₁, x₀]], and -v₁ and v₀ for v₀ ± i v₁."""
  n, x, v = len(x), _real(x), _real(v)
  w, vectors = exact(np.zeros((n, n))), v.copy()
  for j in range(0, n - 1, 2):
    w[j : j + 2, j : j + 2] = [[x[j], x[j + 1]], [-x[j + 1], x[j]]]
    vectors[:, j], vectors[:, j + 1] = -v[:, j + 1], v[:, j]
  if n % 2:
    w[-1, -1] = x[-1]
  return w, vectors


def _sketched(a):
  rows = scipy.linalg.clarkson_woodruff_transform(np.eye(len(a)), SKETCH, rng=0)
  return exact(rows) @ a


BELOW, ABOVE = 2, 1  # diagonals of the catalogue's banded matrices


def _dense(ab, above):
  count, n = ab.shape
  a = exact(np.zeros((n, n)))
  for t in range(count):
    for j in range(max(above - t, 0), min(n + above - t, n)):
      a[j + t - above, j] = ab[t, j]
  return a


def _dense_hermitian(ab):
  strict = _dense(ab, 0)
  np.fill_diagonal(strict, 0)
  return strict + _adjoint(strict) + np.diag(_real(ab[0]))


def _cholesky_banded(ab):
  l = cholesky(_dense_hermitian(ab))
  factor = exact(np.zeros(ab.shape))
  for t in range(min(ab.shape)):
    factor[t, : ab.shape[1] - t] = np.diagonal(l, -t)
  return factor


def _cho_solve_banded(cb, b):
  l = _dense(cb, 0)
  return solve(l @ _adjoint(l), b)


def _cho_solve(l, b):
  l = np.tril(l)
  return solve(l @ _adjoint(l), b)


def _tridiagonal(dl, d, du):
  return np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)


def _hermitian_tridiagonal(d, e):
  return np.diag(_real(d)) + np.diag(e, 1) + np.diag(e.conj(), -1)


def _block_diag(a, b):
  corner = np.zeros((len(a), len(b)), int)
  return np.block([[a, corner * a[0, 0]], [corner.T * a[0, 0], b]])


def _vector_norm(p):
  return lambda x: (abs(x) ** mpmath.mpf(p)).sum() ** (1 / mpmath.mpf(p))


def _sums(axis, choose):
  return lambda a: choose(abs(a).sum(axis))


def _cond(a):
  s = svd(a)[1]
  return s[0] / s[-1]


def _triangular_right(a, b):
  """X of X Aᴴ = B."""
  return b @ inv(_adjoint(np.triu(a)))


_one_norm = _sums(0, max)
_log_of = functools.partial(_function, _log)

def positive_qr(a):
  """The factors of a tall matrix with a positive diagonal of R."""
  r = _adjoint(cholesky(_adjoint(a) @ a))
  return a @ inv(r), r


def _qr_insert(q, r, u):
  own, new = positive_qr(np.concatenate([r, u]))
  return np.insert(q @ own[: len(r)], 1, own[len(r)], 0), new


def _rq(a):
  r = cholesky((a @ _adjoint(a))[::-1, ::-1])[::-1, ::-1]
  return r, inv(r) @ a


def _cossin(a):
  """Angles, and products of pairs of vectors, from two SVDs."""
  x = positive_qr(a)[0]
  half = len(a) // 2
  dyads = lambda u, vh: u.T[:, :, None] * vh[:, None, :]
  u1, c, v1 = svd(x[:half, :half])
  u2, _, v2 = svd(x[half:, half:])
  return _of_each(mpmath.acos)(c), dyads(u1, v1), dyads(u2[:, -half:], v2[-half:])


# For each case of the catalogue, its function in many digits.
ORACLES = {
    "cholesky": cholesky,
    "cholesky_upper": lambda a: _adjoint(cholesky(a)),
    "cholesky_jittered": cholesky,
    "cho_solve": _cho_solve,
    "inv": inv,
    "solve": solve,
    "solve_pos": solve,
    "solve_her": solve,
    "det": det,
    "slogdet": _phase_and_logarithm,
    "lu_slogdet": _slogdet_of_factors,
    "cho_logdet": lambda l: 2 * sum(_log(abs(np.diagonal(l)))),
    "lstsq": _lstsq,
    "pinv": pinv,
    "pinv_hermitian": pinv,
    "pinvh": pinv,
    "triangular_solve": lambda a, b: solve(np.tril(a), b),
    "triangular_solve_right": _triangular_right,
    "tridiagonal_solve": lambda dl, d, du, b: solve(_tridiagonal(dl, d, du), b),
    "eigh": _eigh_invariant,
    "eigvalsh": lambda a: eigh(a)[0],
    "eigh_tridiagonal": lambda d, e: _eigh_invariant(_hermitian_tridiagonal(d, e)),
    "eigvalsh_tridiagonal": lambda d, e: eigh(_hermitian_tridiagonal(d, e))[0],
    "eigh_generalized": _pencil,
    "svd": _svd_invariant(full=True),
    "svd_thin": _svd_invariant(full=False),
    "svdvals": lambda a: svd(a)[1],
    "polar": _polar("right"),
    "polar_left": _polar("left"),
    "cond": _cond,
    "cond_1": lambda a: _one_norm(a) * _one_norm(inv(a)),
    "norm": lambda a: mpmath.sqrt((abs(a) ** 2).sum()),
    "vector_norm_3": _vector_norm(3),
    "vector_norm_2": _vector_norm(2),
    "vector_norm_0.5": _vector_norm(0.5),
    "vector_norm_-1": _vector_norm(-1),
    "matrix_norm_2": lambda a: svd(a)[1][0],
    "matrix_norm_nuc": lambda a: svd(a)[1].sum(),
    "matrix_norm_1": _one_norm,
    "matrix_norm_inf": _sums(1, max),
    "matrix_norm_-2": lambda a: svd(a)[1][-1],
    "matmul": lambda a, b: a @ b,
    "congruence": lambda a, x: a @ x @ _adjoint(a),
    "congruence_adjoint": lambda a, x: _adjoint(a) @ x @ a + a,
    "cross": lambda x, y: np.cross(x, y),
    "vecdot": lambda x, y: (x.conj() * y).sum(),
    "diagonal": lambda a: np.diagonal(a, 1),
    "trace": lambda a: np.trace(a),
    "matrix_transpose": lambda a: a.T,
    "block_diag": _block_diag,
    "expm": expm,
    "sqrtm": functools.partial(_function, _sqrt),
    "matrix_power": lambda a: a @ a @ a,
    "matrix_power_-2": lambda a: inv(a @ a),
    "funm_hermitian": functools.partial(_hermitian_function, _sin),
    "inverse_pth_root": functools.partial(
        _hermitian_function, _of_each(lambda x: x ** mpmath.mpf(-0.25))),
    "solve_sylvester": _sylvester,
    "solve_continuous_lyapunov": _continuous_lyapunov,
    "solve_discrete_lyapunov": _discrete_lyapunov,
    "solve_continuous_are": _continuous_riccati,
    "solve_discrete_are": _discrete_riccati,
    "matrix_balance": _balance,
    "ldl": _ldl,
    "rq": _rq,
    "qr_update": lambda q, r, u, v: positive_qr(q @ r + u @ _adjoint(v)),
    "qr_insert": _qr_insert,
    "qr_delete": lambda q, r: positive_qr(np.delete(q, 1, 0) @ r),
    "eig_banded": lambda ab: _eigh_invariant(_dense_hermitian(ab)),
    "eigvals_banded": lambda ab: eigh(_dense_hermitian(ab))[0],
    "cossin": _cossin,
    "solve_toeplitz": lambda c, r, b: solve(_toeplitz(c, r), b),
    "matmul_toeplitz": lambda c, r, x: _toeplitz(c, r) @ x,
    "logm": _log_of,
    "funm": _log_of,
    "fractional_matrix_power": functools.partial(
        _function, _of_each(lambda x: x ** mpmath.mpf(0.7))),
    "expm_frechet": _frechet,
    "cosm": lambda a: _cosine_and_sine(1j, a)[0],
    "sinm": lambda a: _cosine_and_sine(1j, a)[1],
    "tanm": functools.partial(_tangent, 1j),
    "coshm": lambda a: _cosine_and_sine(1, a)[0],
    "sinhm": lambda a: _cosine_and_sine(1, a)[1],
    "tanhm": functools.partial(_tangent, 1),
    "signm": functools.partial(_function, _of_each(lambda x: mpmath.sign(mpmath.re(x)))),
    "expm_cond": _expm_cond,
    "solve_circulant": lambda c, b: solve(_circulant(c), b[:, None])[:, 0],
    "subspace_angles": _angles,
    "orthogonal_procrustes": _procrustes,
    "khatri_rao": lambda a, b: (a[:, None] * b[None]).reshape(-1, a.shape[1]),
    "cdf2rdf": _real_form,
    "diagsvd": lambda s: np.concatenate([np.diag(s), 0 * s[:, None]], axis=1),
    "clarkson_woodruff_transform": _sketched,
    "null_space": lambda a: _eye(a.shape[1]) - pinv(a) @ a,
    "orth": lambda a: a @ pinv(a),
    "solve_banded": lambda ab, b: solve(_dense(ab, ABOVE), b),
    "solveh_banded": lambda ab, b: solve(_dense_hermitian(ab), b),
    "cholesky_banded": _cholesky_banded,
    "cho_solve_banded": _cho_solve_banded,
}


def derivatives(oracle, operands, tangents):
  """The oracle's results and their first and second derivatives along a line, each a tuple.

  Operands and tangents are arrays of exact numbers; integer operands have the tangent None.
  """

  def at(k):
    moved = [
        x if dx is None else x + k * STEP * dx for x, dx in zip(operands, tangents, strict=True)]
    results = oracle(*moved)
    results = results if isinstance(results, tuple) else (results,)
    return [np.asarray(x, object) for x in results]

  before, here, after = map(at, (-1, 0, 1))
  first = [(y - x) / (2 * STEP) for x, y in zip(before, after)]
  second = [(z - 2 * y + x) / STEP**2 for x, y, z in zip(before, here, after)]
  return here, first, second
