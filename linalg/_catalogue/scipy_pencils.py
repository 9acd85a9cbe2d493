"""`linalg.scipy`: pencils A - λ B, and Schur forms in a chosen order."""

import functools

import jax.numpy as jnp
import numpy as np
import scipy.linalg

import linalg
import linalg.scipy
from linalg._catalogue import checks, matrices
from linalg._catalogue.case import Case
from linalg._catalogue.eigen import NOT_CPU, schur_ratio, unitary_similarity_invariant
from linalg._catalogue.invariants import triangular
from linalg._catalogue.operands import square_general
from linalg._catalogue.record import Behaviour, Function, Kind

EYE = np.eye(3)

def _right_as_left(a, b):
  """The results of `eig`, from left vectors of the adjoint matrices."""
  w, v = linalg.scipy.eig(a.mT.conj(), b.mT.conj(), left=True, right=False)
  return w.conj(), v

_function = functools.partial(
    Function, kind=Kind("scipy", "By SciPy's signatures, beyond JAX"), module="linalg.scipy")

_tests = lambda *names: tuple(f"values/test_pencils.py::test_{name}" for name in names)
QZ = Behaviour(
    "batches; infinite eigenvalues; NaN where a matrix holds NaN or Inf, for that pencil alone; "
    "derivatives for distinct eigenvalues",
    _tests("qz", "singular_pencils", "derivatives_of_factors", "rational_expectations"))
EIG = Behaviour(
    "batches; zero and infinite eigenvalues, as pairs too; derivatives of values and vectors, of "
    "pairs at infinite ones",
    _tests("eigenvalues_of_pencils", "singular_pencils", "derivatives_at_infinite_eigenvalues"))
ORDER = Behaviour(
    "`sort=`, a function of arrays too; derivatives at this order", _tests("sorted_schur_forms"))


def _pencil(rng, batch, m, n, dtype):
  del m
  return (matrices.general(rng, batch, n, n, dtype),
          matrices.well_conditioned(rng, batch, n, dtype))


# QZ


def _qz_ratio(operands, results):
  (a, b), (s, t, q, z) = operands, results
  below, upper = np.tril(np.asarray(s), -1), np.asarray(t)
  assert not np.tril(upper, -1).any()
  diagonal = np.diagonal(upper, axis1=-2, axis2=-1)
  assert np.all(diagonal.real >= 0) and not np.any(diagonal.imag)
  blocks = np.diagonal(below, -1, -2, -1) != 0
  assert np.count_nonzero(below) == np.count_nonzero(blocks)
  assert not np.any(blocks[..., 1:] & blocks[..., :-1])
  assert not np.any(np.diagonal(upper, 1, -2, -1)[blocks])
  if np.iscomplexobj(s):
    assert not blocks.any()
  q, z = checks.wide(q), checks.wide(z)
  product = lambda x: q @ checks.wide(x) @ checks.adjoint(z)
  eps = checks.eps(s)
  return max(
      *(checks.orthogonality(np.asarray(x)) for x in (results[2], results[3])),
      checks.factorisation(a, product(s), eps), checks.factorisation(b, product(t), eps))

def _qz_invariant(results):
  # Columns of Q and Z share a sign or phase, since the diagonal of T is not negative.
  s, t, q, z = results
  dyads = lambda u: u.mT[..., :, None] * u.mT.conj()[..., None, :]
  return abs(s) ** 2, abs(t) ** 2, dyads(q), dyads(z)

def _ordqz_ratio(operands, results):
  s, t, alpha, beta, q, z = map(np.asarray, results)
  chosen = np.abs(alpha) < np.abs(beta)
  assert np.all(chosen[..., :-1] | ~chosen[..., 1:])
  return _qz_ratio(operands, (s, t, q, z))

def _ordqz_invariant(results):
  s, t, alpha, beta, q, z = results
  return *_qz_invariant((s, t, q, z)), alpha / beta.astype(alpha.dtype)

def _qz_oracle(a, b):
  return scipy.linalg.qz(a, b) if a.size else (a,) * 4

def _ordqz_oracle(a, b):
  if not a.size:
    w = np.zeros(0, np.result_type(a, np.complex64))
    return a, a, w, w.real + 0 * a[:, :0].sum(-1), a, a
  return scipy.linalg.ordqz(a, b, "iuc")


# Eigenvalues


def _eig_ratio(operands, results):
  (a, b), (w, v) = operands, results
  precision = checks.eps(v)
  a, b, w, v = map(checks.wide, (a, b, w, v))
  # β A v - α B v for a pair of length 1.
  length = np.sqrt(1 + np.abs(w) ** 2)
  alpha, beta = (w / length)[..., None, :], (1 / length)[..., None, :]
  scale = (checks.norm1(a) + checks.norm1(b)) * checks.norm1(v) * precision
  return max(
      checks.worst(checks.norm1((a @ v) * beta - (b @ v) * alpha), scale),
      checks.worst(np.abs(np.linalg.norm(v, axis=-2) - 1), precision * max(v.shape[-1], 1)))

def _eigvals_ratio(operands, results):
  # Compare the traces of B⁻¹ A: single eigenvalues may be ill-conditioned.
  (a, b), (w,) = operands, results
  n = max(a.shape[-1], 1)
  quotient = np.linalg.solve(checks.wide(b), checks.wide(a))
  error = np.abs(np.trace(quotient, axis1=-2, axis2=-1) - checks.wide(w).sum(-1))
  condition = np.linalg.cond(checks.wide(b)) if a.size else 1
  return checks.worst(error, n * checks.frobenius(quotient) * checks.eps(w) * condition)

def _eig_invariant(results):
  # LAPACK chooses the phase of a vector.
  w, v = results
  return w, v.mT[..., :, None] * v.mT.conj()[..., None, :]

def _eig_oracle(a, b):
  if not a.size:
    empty = a.astype(np.result_type(a, np.complex64))
    return empty[0:0, 0], empty
  return scipy.linalg.eig(a, b)

def _eigvals_oracle(a, b):
  return (_eig_oracle(a, b)[0],)


# Schur forms


def _sorted_ratio(operands, results):
  t, z, count = map(np.asarray, results)
  left = np.diagonal(t, axis1=-2, axis2=-1).real < 0
  assert np.array_equal(left.sum(-1), count) and np.all(left[..., :-1] | ~left[..., 1:])
  return schur_ratio(operands, (t, z))

def _sorted_oracle(a):
  return scipy.linalg.schur(a, sort="lhp") if a.size else (a, a, np.int32(0))

def _sorted_invariant(results):
  t, z, count = results
  return *unitary_similarity_invariant(linalg.rsf2csf(t, z)), jnp.asarray(count)


_NO_SCHUR = (NOT_CPU, "schur")
_NO_EIG = (("tpu",), "eig")

SCIPY_PENCILS: tuple[Function, ...] = (
    _function(
        "qz", behaviours=(QZ,), results={"qz(a, a)": "Arrays4"},
        cases=(
            Case("qz", linalg.scipy.qz, _pencil, (2, 2), _qz_ratio, _qz_oracle,
                 invariant=_qz_invariant, slow=True, scan=True, unordered=True, absent=_NO_SCHUR,
                 zeros=True),
        )),
    _function(
        "ordqz", behaviours=(QZ,),
        results={"ordqz(a, a)": "tuple[Array, Array, Array, Array, Array, Array]"},
        cases=(
            Case("ordqz", lambda a, b: linalg.scipy.ordqz(a, b, "iuc"), _pencil, (2, 2),
                 _ordqz_ratio, _ordqz_oracle, invariant=_ordqz_invariant, complex=True, slow=True,
                 scan=True, unordered=True, absent=_NO_SCHUR, zeros=True),
        )),
    _function(
        "eig", behaviours=(EIG,), results={"eig(a, a)": "Array | tuple[Array, ...]"},
        cases=(
            Case("eig_generalized", linalg.scipy.eig, _pencil, (2, 2), _eig_ratio, _eig_oracle,
                 invariant=_eig_invariant, complex=True, slow=True, unordered=True,
                 absent=_NO_EIG),
            Case("eig_left_generalized", _right_as_left, _pencil, (2, 2), _eig_ratio, _eig_oracle,
                 invariant=_eig_invariant, complex=True, slow=True, unordered=True,
                 absent=_NO_EIG),
        )),
    _function(
        "eigvals", behaviours=(EIG,), results={"eigvals(a, a)": "Array"},
        cases=(
            Case("eigvals_generalized", linalg.scipy.eigvals, _pencil, (2, 2), _eigvals_ratio,
                 _eigvals_oracle, complex=True, slow=True, unordered=True, absent=_NO_EIG),
        )),
    _function(
        "schur", behaviours=(ORDER,), results={"schur(a)": "tuple[Array, ...]"},
        calls={"": lambda m, a, p, b: triangular(*m.schur(a, output="complex"))},
        cases=(
            Case("schur_sorted", lambda a: linalg.scipy.schur(a, sort="lhp"), square_general, (2,),
                 _sorted_ratio, _sorted_oracle, invariant=_sorted_invariant, slow=True, scan=True,
                 unordered=True, absent=_NO_SCHUR),
        )),
)
