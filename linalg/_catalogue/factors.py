"""Factors as operands, and their products."""

import numpy as np

import linalg
from linalg._catalogue import checks
from linalg._catalogue.operands import positive_definite, square


def take(a, order, axis):
  """Returns the rows (axis -2) or columns of each matrix in its own order."""
  order = np.expand_dims(np.asarray(order), -1 if axis == -2 else -2)
  return np.take_along_axis(np.asarray(a), order, axis=axis)


def cholesky_factor(rng, batch, m, n, dtype):
  (a,) = positive_definite(rng, batch, m, n, dtype)
  return (np.linalg.cholesky(a),) if n else (a,)


def cholesky_product(l):
  return checks.wide(l) @ checks.adjoint(checks.wide(l))


def lu_factors(rng, batch, m, n, dtype):
  return lu_operands(*square(rng, batch, m, n, dtype))


def unpack_lu(packed):
  """L and U of packed factors (..., m, n)."""
  packed = checks.wide(packed)
  m, n = packed.shape[-2:]
  k = min(m, n)
  l = np.tril(packed[..., :k], -1) + np.eye(m, k)
  return l, np.triu(packed[..., :k, :])


def lu_product(packed, pivots):
  l, u = unpack_lu(packed)
  permutation = linalg.lu_pivots_to_permutation(pivots, packed.shape[-1])
  return take(l @ u, np.argsort(permutation), -2)


def solved(a, b):
  """NumPy's solution, as an oracle's result."""
  return (np.linalg.solve(a, b),)


def lu_operands(a):
  """The factors of a stack of matrices, as `linalg.lu_solve` takes them."""
  packed, pivots, _ = linalg.lu(a)
  return np.asarray(packed), np.asarray(pivots)


def reflectors(a):
  """The reflectors of QR of a stack of matrices, as LAPACK packs them, and their scales."""
  h, taus = linalg.qr(a, mode="raw")
  return np.swapaxes(np.asarray(h), -1, -2), np.asarray(taus)
