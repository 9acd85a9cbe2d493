"""Random matrices: the catalogue's own, and LAPACK's test matrices."""

import numpy as np

from linalg._catalogue.matrices import (
  general,
  hermitian,
  positive_definite,
  triangular,
  unitary,
  well_conditioned,
)

__all__ = [
    "general", "hermitian", "positive_definite", "triangular", "unitary", "well_conditioned"]

# LAPACK's own test matrices, one of each kind in a batch: LAPACK Working Note 41, and the comments
# of DLATMS, DLATB4, DCHKPO and DDRVST.

MODES = ("one_large", "one_small", "geometric", "arithmetic", "log_random")


def spectrum(rng, mode, n, condition):
  """n values from 1 down to 1 / condition, as DLATM1 sets them; "random" ignores the condition."""
  if mode == "random":
    return np.sort(np.abs(rng.standard_normal(n)))[::-1]
  if mode == "log_random":
    return np.sort(condition ** -rng.uniform(size=n))[::-1]
  place = np.arange(n) / max(n - 1, 1)
  return {
      "one_large": np.where(np.arange(n) == 0, 1, 1 / condition),
      "one_small": np.where(np.arange(n) == n - 1, 1 / condition, 1),
      "geometric": condition ** -place,
      "arithmetic": 1 - place * (1 - 1 / condition),
  }[mode]


def with_singular_values(rng, values, m, n, dtype):
  k = min(m, n)
  return (unitary(rng, m, dtype)[:, :k] * values[:k]) @ unitary(rng, n, dtype)[:k]


def with_eigenvalues(rng, values, dtype):
  u = unitary(rng, len(values), dtype)
  a = (u * values) @ u.conj().T
  return (a + a.conj().T) / 2


def extremes(dtype):
  """LAPACK's smallest test norm is smallest normal / eps / 4. Its largest is the reciprocal."""
  finfo = np.finfo(dtype)
  small = float(finfo.tiny) / float(finfo.eps) / 4
  return small, 1 / small


def conditions(dtype):
  """LAPACK's bad and worst condition numbers."""
  eps = float(np.finfo(dtype).eps)
  return np.sqrt(0.1 / eps), 0.1 / eps


def _made(types, names, dtype):
  """Returns the matrices of `names`, or all. Each takes long to make at large orders."""
  return {
      name: np.asarray(make()).astype(dtype) for name, make in types.items()
      if names is None or name in names}


SINGULAR_TYPES = ("first_column_zero", "last_column_zero", "half_zero")


def general_types(rng, m, n, dtype, names=None) -> dict[str, np.ndarray]:
  """DLATB4's eleven types of a general matrix, and the other spectra at the worst condition."""
  k = min(m, n)
  bad, worst = conditions(dtype)
  small, large = extremes(dtype)
  mild = lambda: with_singular_values(rng, spectrum(rng, "arithmetic", k, 2), m, n, dtype)
  ill = lambda mode, condition: lambda: with_singular_values(
      rng, spectrum(rng, mode, k, condition), m, n, dtype)
  zero = lambda columns: lambda: np.where(columns, 0, mild())
  column = np.arange(n)
  return _made({
      "diagonal": lambda: np.eye(m, n) * np.resize(spectrum(rng, "arithmetic", k, 2), n),
      "upper": lambda: np.linalg.qr(mild(), mode="complete")[1],
      "lower": lambda: np.linalg.qr(mild().T, mode="complete")[1].T,
      "mild": mild,
      "first_column_zero": zero(column == 0),
      "last_column_zero": zero(column == n - 1),
      "half_zero": zero(column >= n // 2),
      "bad": ill("geometric", bad),
      "worst": ill("geometric", worst),
      "near_underflow": lambda: small * mild(),
      "near_overflow": lambda: large * mild(),
  } | {f"worst_{mode}": ill(mode, worst) for mode in MODES}, names, dtype)


def positive_types(
    rng, n, dtype, names=None) -> tuple[dict[str, np.ndarray], dict[str, int]]:
  """DCHKPO's types of a Hermitian positive definite matrix, and the info of the singular ones."""
  bad, worst = conditions(dtype)
  small, large = extremes(dtype)
  make = lambda mode, condition: lambda: with_eigenvalues(
      rng, spectrum(rng, mode, n, condition), dtype)
  mild = make("arithmetic", 2)
  place = np.arange(n)
  zero = lambda k: lambda: np.where((place == k) | (place[:, None] == k), 0, mild())
  types = {
      "diagonal": lambda: np.diag(spectrum(rng, "arithmetic", n, 2)),
      "mild": mild,
      "first_zero": zero(0),
      "last_zero": zero(n - 1),
      "middle_zero": zero(n // 2),
      "bad": make("geometric", bad),
      "worst": make("geometric", worst),
      "near_underflow": lambda: small * mild(),
      "near_overflow": lambda: large * mild(),
  } | {f"worst_{mode}": make(mode, worst) for mode in MODES}
  info = {"first_zero": 1, "last_zero": n, "middle_zero": n // 2 + 1} if n else {}
  return _made(types, names, dtype), info


def named_types(n, dtype) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
  """Hermitian and other matrices that are hard to handle, named after their authors.

  Some have eigenvalues that nearly agree in pairs, or condition numbers that no pivoting shows. In
  others, small changes move the smallest eigenvalue or all, or one eigenvector belongs to all
  eigenvalues.
  """
  row, column = np.indices((n, n))
  angle = 1.2
  hermitian = {
      "hilbert": 1 / (row + column + 1),
      "wilkinson": np.diag(np.abs(np.arange(n) - (n - 1) / 2)) + (np.abs(row - column) == 1),
  }
  others = {
      "kahan": np.sin(angle) ** row * ((row == column) - np.cos(angle) * (row < column)),
      "frank": np.where(column >= row - 1, n - np.maximum(row, column), 0),
      "grcar": np.where((column >= row) & (column <= row + 3), 1, -1 * (column == row - 1)),
      "jordan": 0.5 * (row == column) + (column == row + 1),
  }
  return tuple({name: a.astype(dtype) for name, a in x.items()} for x in (hermitian, others))


def hermitian_types(rng, n, dtype, names=None) -> dict[str, np.ndarray]:
  """DDRVST's types: spectra with and without signs, plain and near the range's square roots."""
  finfo = np.finfo(dtype)
  scales = {"": 1.0, "_large": float(finfo.max) ** 0.5, "_small": float(finfo.tiny) ** 0.5}
  even, geometric, clustered = (
      lambda mode=mode: spectrum(rng, mode, n, 1 / float(finfo.eps))
      for mode in ("arithmetic", "geometric", "one_large"))
  sign = lambda d: d * rng.choice([-1, 1], n)
  rotate = lambda d: with_eigenvalues(rng, d, dtype)

  def tridiagonal():
    a = np.diag(geometric())
    beside = rng.uniform(-0.5, 0.5, max(n - 1, 0)) * np.sqrt(geometric()[1:] * geometric()[:-1])
    return a + np.diag(beside, 1) + np.diag(beside, -1) if n > 1 else a

  types = {
      "zero": lambda: np.zeros((n, n)), "identity": lambda: np.eye(n), "tridiagonal": tridiagonal}
  for name, values in {"even": even, "geometric": geometric, "clustered": clustered}.items():
    types[f"diagonal_{name}"] = lambda values=values: np.diag(sign(values()))
    types[name] = lambda values=values: rotate(sign(values()))
    types[f"positive_{name}"] = lambda values=values: rotate(values())
  types["random"] = lambda: hermitian(rng, (), n, np.promote_types(dtype, np.float64))
  scaled = ("diagonal_geometric", "even", "random", "positive_even")
  return _made({
      name + suffix: lambda make=make, scale=scale: scale * make()
      for name, make in types.items() for suffix, scale in scales.items()
      if not suffix or name in scaled
  }, names, dtype)
