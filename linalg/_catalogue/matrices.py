"""Random matrices of known kinds, seeded by the caller's generator."""

import numpy as np


def general(rng, batch, m, n, dtype):
  """Independent normal entries."""
  a = rng.standard_normal((*batch, m, n))
  if np.issubdtype(dtype, np.complexfloating):
    a = a + 1j * rng.standard_normal((*batch, m, n))
  return a.astype(dtype)


def well_conditioned(rng, batch, n, dtype):
  """Square matrices with a dominant diagonal of random phase."""
  a = general(rng, batch, n, n, dtype)
  phase = general(rng, batch, 1, n, dtype)
  phase = phase / np.abs(phase)
  return (a + 2 * np.sqrt(n + 1) * np.eye(n) * phase).astype(dtype)


def hermitian(rng, batch, n, dtype):
  a = general(rng, batch, n, n, dtype)
  return (a + np.swapaxes(a, -1, -2).conj()) / 2


def positive_definite(rng, batch, n, dtype):
  a = general(rng, batch, n, n, dtype)
  return (a @ np.swapaxes(a, -1, -2).conj() + n * np.eye(n)).astype(dtype)


def triangular(rng, batch, n, dtype, *, lower):
  """Well conditioned. The other triangle has normal entries, which must not be read."""
  a = well_conditioned(rng, batch, n, dtype) / np.sqrt(n + 1)
  strict = np.tril if lower else np.triu
  return np.where(strict(np.ones((n, n), bool)), a, general(rng, batch, n, n, dtype)).astype(dtype)


def unitary(rng, n, dtype):
  """It is in double precision, so that products with it are rounded to `dtype` once."""
  return np.linalg.qr(general(rng, (), n, n, np.promote_types(dtype, np.float64)))[0]
