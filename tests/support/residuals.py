"""The errors of results."""

import numpy as np


def in_double(a):
  return np.asarray(a).astype(np.result_type(a.dtype, np.float64))


def assert_near(actual, expected, n, dtype):
  assert actual.shape == expected.shape
  error = np.abs(in_double(actual) - in_double(expected)).max()
  assert error <= 4 * n * np.finfo(dtype).eps * np.abs(expected).max()


def assert_orthonormal(q, limit):
  """The columns of q are orthonormal: products of two are off by at most `limit`."""
  assert np.abs(q.conj().T @ q - np.eye(q.shape[1])).max() <= limit
