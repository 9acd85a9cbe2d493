"""Operands: functions of (rng, batch shape, m, n, dtype) that return a tuple of arrays."""

import numpy as np

from linalg._catalogue import matrices


def general(rng, batch, m, n, dtype):
  return (matrices.general(rng, batch, m, n, dtype),)


def square_general(rng, batch, m, n, dtype):
  del m
  return (matrices.general(rng, batch, n, n, dtype),)


def square(rng, batch, m, n, dtype):
  """Well-conditioned square matrices."""
  del m
  return (matrices.well_conditioned(rng, batch, n, dtype),)


def two_square(rng, batch, m, n, dtype):
  return square(rng, batch, m, n, dtype) + square(rng, batch, m, n, dtype)


def hermitian(rng, batch, m, n, dtype):
  del m
  return (matrices.hermitian(rng, batch, n, dtype),)


def positive_definite(rng, batch, m, n, dtype):
  del m
  return (matrices.positive_definite(rng, batch, n, dtype),)


def vector(rng, batch, m, n, dtype):
  del m
  return (matrices.general(rng, batch, 1, n, dtype)[..., 0, :],)


def two_vectors(rng, batch, m, n, dtype):
  return vector(rng, batch, m, n, dtype) + vector(rng, batch, m, n, dtype)


def with_columns(make):
  """A matrix of `make`, and two right-hand sides."""

  def operands(rng, batch, m, n, dtype):
    return (*make(rng, batch, m, n, dtype), matrices.general(rng, batch, n, 2, dtype))

  return operands


# The kind of LAPACK's test matrices that operations on these operands take.
MATRICES = {
    general: "general", square_general: "general", square: "nonsingular",
    positive_definite: "positive", hermitian: "hermitian"}


def columns_beside(a):
  """Two right-hand sides for each matrix of a stack."""
  return matrices.general(np.random.default_rng(2), a.shape[:-2], a.shape[-1], 2, a.dtype)


def unitary_beside(a):
  """A unitary matrix, so that a product with A is in range if A is."""
  n = a.shape[-1]
  return np.broadcast_to(
      matrices.unitary(np.random.default_rng(2), n, a.dtype).astype(a.dtype), a.shape)
