"""Orthogonal factors, singular values, and functions of these."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg

import linalg
from linalg._catalogue import checks, matrices, sharded
from linalg._catalogue.case import Case
from linalg._catalogue.distance import case_of, composed
from linalg._catalogue.factors import reflectors, solved, take
from linalg._catalogue.operands import (
  columns_beside,
  general,
  square,
  unitary_beside,
  with_columns,
)
from linalg._catalogue.record import NO_SINGULAR_VALUES, Behaviour, Failure, Function, Kind
from linalg._catalogue.timed import GENERAL, Timed, called
from linalg._catalogue.why import SUMS

EYE = np.eye(3)
QR = Kind("orthogonal", "QR")
SINGULAR_VALUES = Kind("orthogonal", "Singular values")
POLAR = Kind("orthogonal", "Polar decomposition")
RANK = Kind("orthogonal", "Rank and condition")

SPECTRUM = Behaviour(
    "derivatives at equal singular values, U Vᴴ's exact; NaN and Inf return",
    ("derivatives/test_degenerate.py::test_polar_factor_at_equal_singular_values",
     "values/test_failures.py::test_iterations_return"))


# QR


def _reflectors(rng, batch, m, n, dtype):
  m = max(m, n)
  h, taus = linalg.qr(matrices.general(rng, batch, m, n, dtype), mode="raw")
  return np.swapaxes(np.asarray(h), -1, -2), np.asarray(taus)

def _reflectors_beside(left):
  """The reflectors of square matrices, and a matrix to multiply by their product."""

  def operands(rng, batch, m, n, dtype):
    del m
    c = matrices.general(rng, batch, *((n, 2) if left else (2, n)), dtype)
    return *_reflectors(rng, batch, n, n, dtype), c

  return operands

def _qr_ratio(operands, results):
  (a,), (q, r) = operands, results
  np.testing.assert_array_equal(r, np.triu(r))
  return max(
      checks.orthogonality(q),
      checks.factorisation(a, checks.wide(q) @ checks.wide(r), checks.eps(q)))

def _qr_r_ratio(operands, results):
  # Rᴴ R = Aᴴ A up to the rounding of the products. They are scaled, since squares may overflow.
  (a,), (r,) = operands, results
  scale = 2.0 ** -np.frexp(np.max(np.abs(a), initial=0))[1]
  a, wide_r = scale * checks.wide(a), scale * checks.wide(r)
  return checks.factorisation(
      checks.adjoint(a) @ a, checks.adjoint(wide_r) @ wide_r, 2 * checks.eps(r))

def _qr_raw_ratio(operands, results):
  (a,), (h, taus) = operands, results
  m, n = a.shape[-2:]
  packed = np.swapaxes(np.asarray(h), -1, -2)
  full = np.zeros((*a.shape[:-2], m, m), packed.dtype)
  full[..., : min(m, n)] = packed[..., : min(m, n)]
  q = linalg.householder_product(full, taus)
  return _qr_ratio(operands, (np.asarray(q), np.triu(packed)))

def _qr_pivoted_ratio(operands, results):
  (a,), (q, r, permutation) = operands, results
  diagonal = np.abs(np.diagonal(r, axis1=-2, axis2=-1))
  # The diagonal descends, up to rounding errors of its largest element. geqp3 updates norms by
  # subtraction until half the digits are lost. The order of many columns then holds to half the
  # digits, times their number (Drmač and Bujanović, On the failure of rank-revealing QR software,
  # 2008).
  eps = checks.eps(r)
  slack = eps * (10 * diagonal[..., :-1] + diagonal[..., :1])
  if r.shape[-1] > 300:
    slack = slack + r.shape[-1] * eps**0.5 * diagonal[..., :-1]
  assert np.all(diagonal[..., 1:] <= diagonal[..., :-1] + slack)
  return _qr_ratio((take(a, permutation, -1),), (q, r))

def _qr_oracle(mode):
  def oracle(a):
    k = a.shape[0] if mode == "full" else min(a.shape)
    if not a.size:
      return np.eye(a.shape[0], k, dtype=a.dtype), np.zeros((k, a.shape[1]), a.dtype)
    return scipy.linalg.qr(a, mode=mode)

  return oracle

def _qr_raw_oracle(a):
  if not a.size:
    return a.T, np.zeros(0, a.dtype)
  (packed, taus), _ = scipy.linalg.qr(a, mode="raw")
  return packed.T, taus

def _qr_pivoted_oracle(a):
  if not a.size:
    return *_qr_oracle("economic")(a), np.arange(a.shape[1])
  return scipy.linalg.qr(a, mode="economic", pivoting=True)

def _householder_ratio(operands, results):
  # Q is orthogonal, since the reflectors have LAPACK's scales. The oracle checks its values.
  (q,) = results
  return checks.orthogonality(q)

def _householder_oracle(a, taus):
  q = np.eye(*a.shape, dtype=np.complex128 if np.iscomplexobj(a) else np.float64)
  for k in reversed(range(len(taus))):
    v = np.concatenate([np.zeros(k), [1.0], a[k + 1 :, k]])
    q = q - taus[k] * np.outer(v, v.conj() @ q)
  return (q.astype(a.dtype),)

def _reflectors_beside_unitary(a):
  return *reflectors(a), unitary_beside(a)


# Singular values


def _svd_ratio(operands, results):
  (a,), (u, s, vh) = operands, results
  k = s.shape[-1]
  s = checks.wide(s)
  assert np.all(s >= 0)
  assert np.all(np.diff(s) <= 0)
  product = checks.wide(u)[..., :k] * s[..., None, :] @ checks.wide(vh)[..., :k, :]
  return max(
      checks.orthogonality(u), checks.orthogonality(checks.adjoint(np.asarray(vh))),
      checks.factorisation(a, product, checks.eps(u)))

def _svdvals_ratio(operands, results):
  (a,), (s,) = operands, results
  assert np.all(s >= 0)
  assert np.all(np.diff(checks.wide(s)) <= 0)
  scale = 2.0 ** -np.frexp(np.max(np.abs(a), initial=0))[1]
  expected = np.linalg.svd(scale * checks.wide(a), compute_uv=False)
  bound = np.max(expected, axis=-1, initial=0) * max(*a.shape[-2:], 1) * checks.eps(s)
  error = np.max(np.abs(scale * checks.wide(s) - expected), axis=-1, initial=0)
  return checks.worst(error, bound)

def _svd_invariant(results):
  # A pair of vectors has a free common phase. The columns that complete a basis may be rotated.
  u, s, vh = results
  k = s.shape[-1]
  pairs = u[..., :k].mT[..., :, None] * vh[..., :k, None, :]
  parts = [x for v in (u, vh.mT.conj()) for x in (v[..., :k], v[..., k:])]
  # A part without columns is left out: its product would be a constant without the batch.
  return s, pairs, *(x @ x.mT.conj() for x in parts if x.shape[-1] != 0)

def _svd_oracle(full_matrices):
  return lambda a: tuple(np.linalg.svd(a, full_matrices=full_matrices))

def _polar_oracle(side):
  def oracle(a):
    if not a.size:
      n = a.shape[1] if side == "right" else a.shape[0]
      return a, np.zeros((n, n))
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    p = vh.conj().T * s @ vh if side == "right" else u * s @ u.conj().T
    return u @ vh, p

  return oracle


_DEPENDENT = Failure(0, "has no QR factors of full rank (info 2).")


def _of_qr_factor(a, b):
  return linalg.factorize_qr(a).solve(b)

ORTHOGONAL: tuple[Function, ...] = (
    Function(
        "qr", QR, classes=("QRResult",),
        differs="`pivoting=`; a complete Q has a derivative everywhere",
        behaviours=(Behaviour(
            "complete Q at a matrix that is triangular already",
            ("derivatives/test_degenerate.py::test_qr_of_an_upper_triangle",)),),
        results={
            "qr(a)": "linalg.QRResult",
            'qr(a, "complete")': "linalg.QRResult",
            'qr(a, "r")': "Array",
            "qr(a, pivoting=True)": "Arrays3",
            'qr(a, mode="r", pivoting=True)': "Arrays2",
        },
        cases=(
            Case("qr", linalg.qr, general, (2,), _qr_ratio, _qr_oracle("economic"), jnp.linalg.qr,
                 rectangular=True, lapack=True,
                 timed=Timed((GENERAL,), lambda n: 8 * n**3 / 3,
                             called("linalg.qr", "numpy", "torch", "cupy", "mkl", "mkl_compact"))),
            Case("qr_complete", lambda a: linalg.qr(a, mode="complete"), general, (2,), _qr_ratio,
                 _qr_oracle("full"), lambda a: jnp.linalg.qr(a, mode="complete"), rectangular=True,
                 variant=True),
            Case("qr_r", lambda a: linalg.qr(a, mode="r"), general, (2,), _qr_r_ratio,
                 lambda a: (_qr_oracle("economic")(a)[1],), lambda a: jnp.linalg.qr(a, mode="r"),
                 rectangular=True),
            Case("qr_raw", lambda a: linalg.qr(a, mode="raw"), general, (2,), _qr_raw_ratio,
                 _qr_raw_oracle, lambda a: jnp.linalg.qr(a, mode="raw"), rectangular=True,
                 slow=True, scan=True),
            Case("qr_pivoted", lambda a: linalg.qr(a, pivoting=True), general, (2,),
                 _qr_pivoted_ratio, _qr_pivoted_oracle,
                 lambda a: jax.lax.linalg.qr(a, pivoting=True, full_matrices=False),
                 rectangular=True, absent=(("tpu",), "geqp3")),
        )),
    Function(
        "householder_product", QR,
        behaviours=(Behaviour("", (
            "derivatives/test_operations.py::test_triangular_solve",
            "values/test_factorisations.py::test_agrees_with_scipy")),),
        sharded="Q itself, linalg.distributed.qr", arguments=(EYE, EYE[0]),
        calls={
            "": lambda m, a, p, b: m.householder_product(
                b, b[0] / (2 * jnp.abs(b[0]) + 1).astype(b.dtype)),
        },
        cases=(
            Case("householder_product", linalg.householder_product, _reflectors, (2, 1),
                 _householder_ratio, _householder_oracle, jax.lax.linalg.householder_product,
                 scan=True, matrix="general", of_matrix=reflectors),
        )),
    Function(
        "factorize_qr", QR, classes=("QRFactor",),
        behaviours=(Behaviour(
            "an object that follows changes of the matrix; rows and columns at an index that may "
            "be traced",
            ("values/test_factors.py::test_changes_of_qr_factors",)),),
        sharded="linalg.distributed.qr",
        results={
            "factorize_qr(a)": "linalg.QRFactor", "factorize_qr(a).solve(a)": "Array",
            "factorize_qr(a).append_rows(a).delete_row(0)": "linalg.QRFactor"},
        fails=_DEPENDENT,
        cases=(
            composed("factorize_qr", _of_qr_factor, with_columns(square), (2, 2), solved, None, 20,
                     matrix="nonsingular", of_matrix=lambda a: (a, columns_beside(a))),
        )),
    Function(
        "ormqr", QR,
        behaviours=(Behaviour(
            "what stands beside the reflectors is not read",
            ("values/test_matrix_functions.py::test_ormqr",)),),
        sharded="Q itself, linalg.distributed.qr", arguments=(EYE, EYE[0], EYE),
        results={"ormqr(a, a, a, left=False)": "Array"},
        calls={
            "": lambda m, a, p, b: m.ormqr(
                b, b[0] / (2 * jnp.abs(b[0]) + 1).astype(b.dtype), a, left=False, transpose=True),
        },
        cases=(
            case_of("ormqr", linalg.ormqr, _reflectors_beside(left=True), (2, 1, 2),
                    lambda a, taus, c: (_householder_oracle(a, taus)[0] @ c,),
                    jax.lax.linalg.ormqr, 4, matrix="general",
                    of_matrix=_reflectors_beside_unitary),
            case_of("ormqr_right_adjoint",
                    lambda a, taus, c: linalg.ormqr(a, taus, c, left=False, transpose=True),
                    _reflectors_beside(left=False), (2, 1, 2),
                    lambda a, taus, c: (c @ _householder_oracle(a, taus)[0].conj().T,),
                    lambda a, taus, c: jax.lax.linalg.ormqr(
                        a, taus, c, left=False, transpose=True),
                    4, matrix="general", of_matrix=_reflectors_beside_unitary, variant=True),
        )),
    Function(
        "svd", SINGULAR_VALUES, classes=("SVDResult",),
        differs="derivatives for every shape, and at equal singular values",
        behaviours=(SPECTRUM,),
        results={
            "svd(a)": "linalg.SVDResult",
            "svd(a, False)": "linalg.SVDResult",
            "svd(a, full_matrices=False, hermitian=True).U": "Array",
            "svd(a, compute_uv=False)": "Array",
            "svd(a, False, False)": "Array",
            "svd(a, compute_uv=flag)": "linalg.SVDResult | Array",
            "svd_ex(a)": "Arrays4",
            "svd_ex(a, compute_uv=False)": "Arrays2",
        },
        fails=NO_SINGULAR_VALUES,
        cases=(
            Case("svd", linalg.svd, general, (2,), _svd_ratio, _svd_oracle(full_matrices=True),
                 jnp.linalg.svd, invariant=_svd_invariant, rectangular=True, limit=50.0, slow=True,
                 timed=Timed((GENERAL,), lambda n: 22 * n**3,
                             called("linalg.svd", "numpy", "torch", "mkl"))),
            Case("svd_thin", lambda a: linalg.svd(a, full_matrices=False), general, (2,),
                 _svd_ratio, _svd_oracle(full_matrices=False),
                 lambda a: jnp.linalg.svd(a, full_matrices=False), invariant=_svd_invariant,
                 rectangular=True, limit=50.0, slow=True, variant=True),
        )),
    Function(
        "svdvals", SINGULAR_VALUES, behaviours=(SPECTRUM,), sharded=sharded.VALUES,
        results={"svdvals(a)": "Array", "svdvals_ex(a)": "Arrays2"},
        fails=NO_SINGULAR_VALUES,
        cases=(
            Case("svdvals", linalg.svdvals, general, (2,), _svdvals_ratio,
                 lambda a: (np.linalg.svd(a, compute_uv=False),), jnp.linalg.svdvals,
                 rectangular=True, limit=50.0, slow=True,
                 timed=Timed((GENERAL,), lambda n: 8 * n**3 / 3,
                             called("linalg.svdvals", "numpy", "torch", "mkl"))),
        )),
    Function(
        "polar", POLAR,
        behaviours=(Behaviour(
            "derivative at equal singular values, to second order",
            ("values/test_matrix_functions.py::test_polar_at_equal_singular_values",)),),
        results={"polar(a)": "Arrays2"},
        calls={"": lambda m, a, p, b: m.polar(a)},
        fails=NO_SINGULAR_VALUES,
        cases=(
            composed("polar", linalg.polar, square, (2,), _polar_oracle("right"),
                     jax.vmap(jax.scipy.linalg.polar), 20, stock_hangs=True),
            composed("polar_left", lambda a: linalg.polar(a, "left"), square, (2,),
                     _polar_oracle("left"), jax.vmap(lambda a: jax.scipy.linalg.polar(a, "left")),
                     20, variant=True, stock_hangs=True),
        )),
    Function(
        "matrix_rank", RANK, differs="`rtol=` is relative and `tol=` absolute, as in NumPy",
        behaviours=(Behaviour(
            "`rtol` is relative, `tol` absolute, as in NumPy",
            ("values/test_lstsq.py::test_options_of_rank_and_tolerance",)),),
        sharded=sharded.VALUES,
        calls={
            "": lambda m, a: m.matrix_rank(a),
            "of a vector": lambda m, a: m.matrix_rank(a[0, 0]),
        },
        fails=NO_SINGULAR_VALUES,
        cases=(
            composed("matrix_rank", linalg.matrix_rank, square, (2,),
                     lambda a: (np.linalg.matrix_rank(a),), jnp.linalg.matrix_rank,
                     differentiable=False),
        )),
    Function(
        "cond", RANK, differs="the derivative at a singular matrix is finite",
        behaviours=(Behaviour(
            "inf at singular matrices, with finite derivatives",
            ("values/test_norms.py::test_cond_at_degenerate_matrices",)),),
        sharded=sharded.VALUES,
        fails=NO_SINGULAR_VALUES,
        cases=(
            composed("cond", linalg.cond, square, (2,), lambda a: (np.linalg.cond(a),),
                     jnp.linalg.cond, 20, empty=False,
                     timed=Timed((GENERAL,), lambda n: 8 * n**3 / 3,
                                 called("linalg.cond", "numpy", "torch", "cupy"))),
            composed("cond_1", lambda a: linalg.cond(a, 1), square, (2,),
                     lambda a: (np.linalg.cond(a, 1),), lambda a: jnp.linalg.cond(a, 1), 20,
                     empty=False, variant=True, varying={0: SUMS}),
        )),
)
