"""`linalg.scipy`: factorisations that JAX lacks, by SciPy's names and signatures."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.linalg

import linalg
import linalg.scipy
from linalg._catalogue import checks, matrices
from linalg._catalogue.case import Case
from linalg._catalogue.record import Behaviour, Function, Kind

EYE = np.eye(3)
BELOW = 2  # diagonals of the Hermitian band matrices

_function = functools.partial(
    Function, kind=Kind("scipy", "By SciPy's signatures, beyond JAX"), module="linalg.scipy")

RQ = Behaviour(
    "batches; derivatives for any shape, as those of `qr`",
    ("values/test_scipy_factors.py::test_rq",))
UPDATES = Behaviour(
    "batches; vectors or several columns or rows; derivatives as those of `qr`",
    ("values/test_scipy_factors.py::test_updates",
     "values/test_scipy_factors.py::test_wrong_updates"))
BAND = Behaviour(
    "batches; under `jit` with a fixed number of eigenvalues in an interval; finite first "
    "derivatives at equal eigenvalues",
    ("values/test_scipy_factors.py::test_eig_banded",
     "values/test_scipy_factors.py::test_eigenvalues_in_an_interval"))
COSINES = Behaviour(
    "batches; small sines and small cosines to the last bits; derivatives along unitary matrices",
    ("values/test_scipy_factors.py::test_cossin",
     "values/test_scipy_factors.py::test_cossin_of_small_angles"))


def _tall(rng, batch, m, n, dtype):
  del m
  return (matrices.general(rng, batch, n + 2, n, dtype),)

def _wide(rng, batch, m, n, dtype):
  del m
  return (matrices.general(rng, batch, n, n + 2, dtype),)

def _larger(rng, batch, m, n, dtype):
  del m
  return (matrices.well_conditioned(rng, batch, n + 2, dtype),)

def _factors(rng, batch, m, n, dtype):
  q, r = np.linalg.qr(*_tall(rng, batch, m, n, dtype))
  return q.astype(dtype), r.astype(dtype)

def _with_vectors(rng, batch, m, n, dtype):
  u = matrices.general(rng, batch, n + 2, 1, dtype)
  return *_factors(rng, batch, m, n, dtype), u, matrices.general(rng, batch, n, 1, dtype)

def _with_row(rng, batch, m, n, dtype):
  return *_factors(rng, batch, m, n, dtype), matrices.general(rng, batch, 1, n, dtype)

def _sign_of_diagonal(r):
  """Phases of the diagonal of R. Signs of a real one are constant, however small it is."""
  x = jnp.where(jnp.eye(*r.shape[-2:], dtype=bool), r, 0).sum(-2)[..., : r.shape[-2]]
  if not jnp.iscomplexobj(x):
    return jnp.where(x < 0, -1, 1).astype(x.dtype)
  size = jnp.abs(x)
  return jnp.where(size == 0, 1, x / jnp.where(size == 0, 1, size).astype(x.dtype))


# RQ and QR: the factors with a positive diagonal of R are unique.


def _rq_invariant(results):
  r, q = map(jnp.asarray, results)
  phase = _sign_of_diagonal(r)
  return r * phase.conj()[..., None, :], q * phase[..., :, None]

def _qr_invariant(results):
  q, r = map(jnp.asarray, results)
  phase = _sign_of_diagonal(r)
  return q * phase[..., None, :], r * phase.conj()[..., :, None]

def _rq_ratio(operands, results):
  (a,), (r, q) = operands, results
  np.testing.assert_array_equal(r, np.triu(r))
  return max(
      checks.orthogonality(checks.adjoint(np.asarray(q))),
      checks.factorisation(a, checks.wide(r) @ checks.wide(q), checks.eps(q)))

def _rq_oracle(a):
  n = a.shape[0]
  if not a.size:
    return np.zeros((n, n), a.dtype), np.zeros((n, a.shape[1]), a.dtype)
  return scipy.linalg.rq(a, mode="economic")

def _economic(a):
  if not a.size:
    return np.zeros(a.shape, a.dtype), np.zeros((a.shape[1],) * 2, a.dtype)
  return np.linalg.qr(a)

def _qr_of(changed: Any) -> tuple[Any, Any]:
  """The ratio and the oracle of factors of changed(*operands)."""

  def ratio(operands, results):
    q, r = results
    np.testing.assert_array_equal(r, np.triu(r))
    a = changed(*map(checks.wide, operands))
    return max(
        checks.orthogonality(q),
        checks.factorisation(a, checks.wide(q) @ checks.wide(r), checks.eps(q)))

  return ratio, lambda *operands: _economic(changed(*operands))

def _updated(q, r, u, v):
  return q @ r + u @ checks.adjoint(v)

def _with_row_inserted(q, r, u):
  a = q @ r
  return np.concatenate([a[..., :1, :], u, a[..., 1:, :]], -2)

def _with_row_deleted(q, r):
  a = q @ r
  return np.concatenate([a[..., :1, :], a[..., 2:, :]], -2)


# Hermitian band matrices


def _band(rng, batch, m, n, dtype):
  del m
  return (matrices.general(rng, batch, BELOW + 1, n, dtype),)

def dense_band(ab):
  """The Hermitian matrix whose lower diagonals these are."""
  count, n = ab.shape[-2:]
  a = np.zeros((*ab.shape[:-2], n, n), ab.dtype)
  for t in range(min(count, n)):
    for j in range(n - t):
      a[..., j + t, j] = ab[..., t, j]
  strict = np.tril(a, -1)
  return strict + checks.adjoint(strict) + np.eye(n) * ab[..., :1, :].real

def _band_ratio(operands, results):
  (ab,), (w, v) = operands, results
  assert np.all(np.diff(w) >= 0)
  wide_v = checks.wide(v)
  product = (wide_v * checks.wide(w)[..., None, :]) @ checks.adjoint(wide_v)
  return max(
      checks.orthogonality(v), checks.factorisation(dense_band(ab), product, checks.eps(v)))

def _band_values_ratio(operands, results):
  (ab,), (w,) = operands, results
  expected = np.linalg.eigvalsh(checks.wide(dense_band(ab)))
  scale = np.max(np.abs(expected), axis=-1, initial=0) * max(ab.shape[-1], 1) * checks.eps(w)
  return checks.worst(np.max(np.abs(w - expected), axis=-1, initial=0), scale)

def _band_invariant(results):
  w, v = results
  return w, v.mT[..., :, None] * v.mT.conj()[..., None, :]


# Cosines and sines


def _unitary(a):
  """The unitary factor of A that is smooth."""
  q, r = linalg.qr(a)
  return q * _sign_of_diagonal(r.real)[..., None, :].astype(q.dtype)

def _cossin_call(a):
  x = _unitary(a)
  half = x.shape[-1] // 2
  (u1, u2), theta, (v1, v2) = linalg.scipy.cossin(x, p=half, q=half, separate=True)
  return x, u1, u2, theta, v1, v2

def _cossin_oracle(a):
  q, r = np.linalg.qr(a)
  x = q * np.sign(np.diagonal(r)) if not np.iscomplexobj(r) else q * (
      np.diagonal(r) / np.abs(np.diagonal(r)))
  half = len(x) // 2
  (u1, u2), theta, (v1, v2) = scipy.linalg.cossin(x, p=half, q=half, separate=True)
  return x, u1, u2, theta, v1, v2

def joined(u1, u2, theta, v1, v2):
  """(U, D, Vᴴ) of a matrix whose first block is square and no larger than the last one."""
  r, m = theta.shape[-1], v1.shape[-1] + v2.shape[-1]
  shape = (*theta.shape[:-1], m, m)
  u, d, vh = np.zeros(shape, u1.dtype), np.zeros(shape, theta.dtype), np.zeros(shape, u1.dtype)
  u[..., :r, :r], u[..., r:, r:], vh[..., :r, :r], vh[..., r:, r:] = u1, u2, v1, v2
  at, last = np.arange(r), np.arange(m - r, m)
  d[..., at, at] = d[..., last, last] = np.cos(theta)
  d[..., last, at] = np.sin(theta)
  d[..., at, last] = -np.sin(theta)
  ones = np.arange(r, m - r)
  d[..., ones, ones] = 1
  return u, d, vh

def _cossin_ratio(operands, results):
  del operands
  x, *factors = results
  assert np.all(np.diff(factors[2]) >= 0)
  u, d, vh = joined(*map(np.asarray, factors))
  product = checks.wide(u) @ checks.wide(d) @ checks.wide(vh)
  return max(
      checks.orthogonality(u), checks.orthogonality(vh),
      checks.factorisation(x, product, checks.eps(x)))

def _cossin_invariant(results):
  # Columns of U and V share a phase. The columns of ones rotate in their space.
  _, u1, u2, theta, v1, v2 = results
  r = theta.shape[-1]
  dyads = lambda u, vh: u.mT[..., :, None] * vh[..., :, None, :]
  return theta, dyads(u1[..., :r], v1[..., :r, :]), dyads(u2[..., -r:], v2[..., -r:, :])


SCIPY_FACTORS: tuple[Function, ...] = (
    _function(
        "rq", behaviours=(RQ,), results={"rq(a)": "Array | Arrays2"},
        cases=(
            Case("rq", lambda a: linalg.scipy.rq(a, mode="economic"), _wide, (2,), _rq_ratio,
                 _rq_oracle, invariant=_rq_invariant, zeros=True),
        )),
    _function(
        "qr_update", behaviours=(UPDATES,), arguments=(EYE, EYE, EYE[0], EYE[0]),
        results={"qr_update(a, a, a, a)": "Arrays2"},
        cases=(
            Case("qr_update", linalg.scipy.qr_update, _with_vectors, (2, 2, 2, 2),
                 *_qr_of(_updated), invariant=_qr_invariant, zeros=True),
        )),
    _function(
        "qr_insert", behaviours=(UPDATES,), arguments=(EYE, EYE, EYE[0], 1),
        results={"qr_insert(a, a, a, 1)": "Arrays2"},
        cases=(
            Case("qr_insert", lambda q, r, u: linalg.scipy.qr_insert(q, r, u, 1), _with_row,
                 (2, 2, 2),
                 *_qr_of(_with_row_inserted), invariant=_qr_invariant, zeros=True),
        )),
    _function(
        "qr_delete", behaviours=(UPDATES,), arguments=(EYE, EYE, 1),
        results={"qr_delete(a, a, 1)": "Arrays2"},
        cases=(
            Case("qr_delete", lambda q, r: linalg.scipy.qr_delete(q, r, 1), _factors, (2, 2),
                 *_qr_of(_with_row_deleted), invariant=_qr_invariant, zeros=True),
        )),
    _function(
        "eig_banded", behaviours=(BAND,), results={"eig_banded(a)": "Array | Arrays2"},
        cases=(
            Case("eig_banded", lambda ab: linalg.scipy.eig_banded(ab, lower=True), _band, (2,),
                 _band_ratio, lambda ab: np.linalg.eigh(dense_band(ab)), invariant=_band_invariant,
                 limit=60.0, slow=True, empty=False),
        )),
    _function(
        "eigvals_banded", behaviours=(BAND,),
        cases=(
            Case("eigvals_banded", lambda ab: linalg.scipy.eigvals_banded(ab, lower=True), _band,
                 (2,), _band_values_ratio, lambda ab: (np.linalg.eigvalsh(dense_band(ab)),),
                 limit=60.0, slow=True, empty=False),
        )),
    _function(
        "cossin", behaviours=(COSINES,),
        arguments=(EYE, 1, 1),
        results={"cossin(a, 1, 1)":
                 "tuple[Array | tuple[Array, ...], Array, Array | tuple[Array, ...]]"},
        cases=(
            Case("cossin", _cossin_call, _larger, (2,), _cossin_ratio, _cossin_oracle,
                 invariant=_cossin_invariant, slow=True, any_size=False),
        )),
)
