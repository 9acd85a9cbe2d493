"""LAPACK's scaled residuals of batches, in double precision.

Each function returns the worst ratio of the batch; a factorisation passes at 30, an
eigendecomposition at 60 (LAPACK Working Note 41). eps is that of the results' dtype.
"""

import numpy as np


def wide(x):
  x = np.asarray(x)
  return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def eps(x) -> float:
  return float(np.finfo(np.asarray(x).dtype).eps)


def adjoint(a):
  return np.swapaxes(a, -1, -2).conj()


def norm1(a):
  """Returns the 1-norm of each matrix. That of an empty matrix is 0."""
  return np.abs(a).sum(-2).max(-1, initial=0)


def frobenius(a):
  """The Frobenius norm of each matrix, where squares of its entries may be out of range."""
  largest = np.abs(a).max((-2, -1), initial=0, keepdims=True)
  scale = np.where(largest > 0, largest, 1)
  return np.linalg.norm(a / scale, axis=(-2, -1)) * scale[..., 0, 0]


def worst(error, scale) -> float:
  """Returns max(error / scale), where 0 / 0 is 0. NaN stays NaN."""
  error, scale = np.broadcast_arrays(error, scale)
  ratio = np.where(error == 0, 0.0, error / np.where(scale == 0, np.finfo(float).tiny, scale))
  return float(np.max(ratio, initial=0))


def factorisation(a, product, precision) -> float:
  """||product - A|| / (n ||A|| eps)"""
  a = wide(a)
  return worst(norm1(product - a), max(a.shape[-2:], default=1) * norm1(a) * precision)


def orthogonality(q) -> float:
  """||I - Qᴴ Q|| / (m eps)"""
  precision, q = eps(q), wide(q)
  return worst(norm1(adjoint(q) @ q - np.eye(q.shape[-1])), max(q.shape[-2], 1) * precision)


def solution(a, x, b) -> float:
  """||B - A X|| / (n ||A|| ||X|| eps)"""
  precision, a, x, b = eps(x), wide(a), wide(x), wide(b)
  scale = max(a.shape[-1], 1) * norm1(a) * norm1(x) * precision
  return worst(norm1(b - a @ x), scale)


def solution_ratio(matrix):
  """The ratio of solutions of systems whose matrix follows from the operands before b."""

  def ratio(operands, results):
    *a, b = operands
    (x,) = results
    return solution(matrix(*a), x, b)

  return ratio


def close(actual, expected, condition=1.0) -> float:
  """||actual - expected|| / (n ||expected|| eps condition), entry by entry of the result."""
  precision, actual, expected = eps(actual), wide(actual), wide(expected)
  axes = tuple(range(actual.ndim))
  scale = np.max(np.abs(expected), axis=axes, initial=0)
  return worst(
      np.max(np.abs(actual - expected), axis=axes, initial=0),
      max(actual.shape[-1:], default=1) * scale * precision * condition)
