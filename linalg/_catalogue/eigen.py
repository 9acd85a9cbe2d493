"""Eigenvalues of Hermitian and general matrices, and their Schur and Hessenberg forms."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg

import linalg
from linalg._catalogue import checks, matrices, sharded
from linalg._catalogue.case import Case
from linalg._catalogue.invariants import triangular
from linalg._catalogue.operands import hermitian, positive_definite, square_general
from linalg._catalogue.record import NO_SCHUR_FORM, NO_SPECTRUM, Behaviour, Failure, Function, Kind
from linalg._catalogue.timed import GENERAL, HERMITIAN, Timed, called

EYE = np.eye(3)
OF_HERMITIAN = Kind("eigen", "Hermitian matrices")
OF_GENERAL = Kind("eigen", "General matrices")

EQUAL = Behaviour(
    "finite first derivatives at equal eigenvalues",
    ("derivatives/test_degenerate.py::test_spectral_sums_at_equal_eigenvalues",
     "derivatives/test_degenerate.py::test_projectors_at_equal_eigenvalues"))
EQUAL_OF_OTHER_FORMS = Behaviour(
    "finite first derivatives at equal eigenvalues",
    ("derivatives/test_degenerate.py::test_generalised_eigenvalues_that_are_equal",
     "derivatives/test_degenerate.py::test_tridiagonal_matrices_with_equal_eigenvalues"))
SCALE = Behaviour(
    "right for what does not see the scale of the vectors",
    ("derivatives/test_degenerate.py::test_general_matrices_with_equal_eigenvalues",))
SCHUR = Behaviour(
    "finite first derivatives at equal eigenvalues",
    ("derivatives/test_degenerate.py::test_schur_form_with_equal_eigenvalues",))
GRADED = Behaviour(
    "right where rows are of very different scale: unitary vectors, and eigenvalues of the "
    "balanced matrix",
    ("values/test_graded.py::test_schur_vectors_are_unitary",
     "values/test_graded.py::test_hessenberg_vectors_are_unitary",
     "values/test_graded.py::test_eigenvalues_of_graded_rows"))

NOT_CPU = ("cuda", "rocm", "tpu")


# Hermitian matrices


def _eigh_ratio(operands, results):
  (a,), (w, v) = operands, results
  w, wide_v = checks.wide(w), checks.wide(v)
  assert np.all(np.diff(w) >= 0)
  product = (wide_v * w[..., None, :]) @ checks.adjoint(wide_v)
  return max(checks.orthogonality(v), checks.factorisation(a, product, checks.eps(v)))

def _eigvalsh_ratio(operands, results):
  (a,), (w,) = operands, results
  expected = np.linalg.eigvalsh(checks.wide(a))
  scale = np.max(np.abs(expected), axis=-1, initial=0) * max(a.shape[-1], 1) * checks.eps(w)
  return checks.worst(np.max(np.abs(w - expected), axis=-1, initial=0), scale)

def _eigh_invariant(results):
  # A spectral function and the projectors onto the eigenvectors do not depend on their phases.
  w, v = results
  projectors = v.mT[..., :, None] * v.mT.conj()[..., None, :]
  return w, projectors

def _tridiagonal(rng, batch, m, n, dtype):
  del m
  d = matrices.general(rng, batch, 1, n, dtype)[..., 0, :]
  e = matrices.general(rng, batch, 1, max(n - 1, 0), dtype)[..., 0, :]
  return d.real.astype(dtype), e

def _tridiagonal_product(d, e):
  place = np.arange(d.shape[-1])
  a = np.zeros((*d.shape, d.shape[-1]), d.dtype)
  a[..., place, place] = d
  a[..., place[:-1], place[1:]] = e
  a[..., place[1:], place[:-1]] = np.conj(e)
  return a

def _band_of(a):
  """The diagonal and the first superdiagonal of a Hermitian matrix."""
  return (np.diagonal(a, axis1=-2, axis2=-1).copy(), np.diagonal(a, 1, -2, -1).copy())


def _pair(rng, batch, m, n, dtype):
  return (*hermitian(rng, batch, m, n, dtype), *positive_definite(rng, batch, m, n, dtype))

def _pencil_ratio(operands, results):
  # ‖A V - B V W‖ / (n ‖A‖ ‖V‖ eps) and B-orthonormality, for a B of condition about 1.
  (a, b), (w, v) = operands, results
  precision = checks.eps(v)
  a, b, w, v = map(checks.wide, (a, b, w, v))
  n = max(a.shape[-1], 1)
  assert np.all(np.diff(w) >= 0)
  identity = checks.adjoint(v) @ b @ v
  scale = checks.norm1(a) * checks.norm1(v) * n * precision
  return max(
      checks.worst(checks.norm1(a @ v - b @ v * w[..., None, :]), scale),
      checks.worst(checks.norm1(identity - np.eye(a.shape[-1])), n * precision))

def _with_identity(a):
  """A pair whose B has both triangles of its own scale, so that only A is extreme."""
  return a, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)


# General matrices


def _eig_ratio(operands, results):
  (a,), (w, v) = operands, results
  precision, a, w, v = checks.eps(v), checks.wide(a), checks.wide(w), checks.wide(v)
  # Any element that is the largest up to rounding may be the real one.
  size = np.abs(v)
  largest = size >= (1 - 8 * precision) * size.max(-2, keepdims=True, initial=0)
  imaginary = np.where(largest, np.abs(v.imag), np.inf).min(-2, initial=np.inf)
  residual = checks.norm1(a @ v - v * w[..., None, :])
  return max(
      checks.worst(residual, checks.norm1(a) * checks.norm1(v) * precision),
      checks.worst(np.abs(np.linalg.norm(v, axis=-2) - 1), precision * max(v.shape[-1], 1)),
      checks.worst(imaginary, precision))

def _eig_left_ratio(operands, results):
  (a,), (w, left, right) = operands, results
  return max(
      _eig_ratio((checks.adjoint(a),), (np.conj(w), left)), _eig_ratio(operands, (w, right)))

def _eigvals_ratio(operands, results):
  # Compare the traces of A and of its powers: single eigenvalues may be ill-conditioned.
  (a,), (w,) = operands, results
  n = max(a.shape[-1], 1)
  a, wide_w = checks.wide(a), checks.wide(w)
  error = np.abs(np.trace(a, axis1=-2, axis2=-1) - wide_w.sum(-1))
  return checks.worst(error, n * checks.frobenius(a) * checks.eps(w))

def _eig_invariant(results):
  # LAPACK chooses the sign of a vector.
  w, *vectors = results
  return w, *(v.mT[..., :, None] * v.mT[..., None, :] for v in vectors)

def _eig_oracle(left):
  def oracle(a):
    if not a.size:
      empty = a.astype(np.result_type(a, np.complex64))
      return empty[0:0, 0], *[empty] * (2 if left else 1)
    return scipy.linalg.eig(a, left=left)

  return oracle

def schur_ratio(operands, results):
  (a,), (t, z) = operands, results
  below = np.tril(np.asarray(t), -1)
  if np.iscomplexobj(t):
    assert not below.any()
  else:
    # Blocks of order 2 on the diagonal do not overlap, and have equal diagonal elements.
    blocks = np.diagonal(below, -1, -2, -1) != 0
    assert np.count_nonzero(below) == np.count_nonzero(blocks)
    assert not np.any(blocks[..., 1:] & blocks[..., :-1])
    diagonal = np.diagonal(t, axis1=-2, axis2=-1)
    assert np.all((diagonal[..., 1:] == diagonal[..., :-1]) | ~blocks)
  product = checks.wide(z) @ checks.wide(t) @ checks.adjoint(checks.wide(z))
  return max(checks.orthogonality(z), checks.factorisation(a, product, checks.eps(z)))

def _hessenberg_ratio(operands, results):
  (a,), (h, q) = operands, results
  h = np.asarray(h)
  assert not np.tril(h, -2).any()
  assert not np.tril(np.triu(h, -1), -1).imag.any()
  product = checks.wide(q) @ checks.wide(h) @ checks.adjoint(checks.wide(q))
  return max(checks.orthogonality(q), checks.factorisation(a, product, checks.eps(q)))

def _hessenberg_h_ratio(operands, results):
  (a,), (h,) = operands, results
  expected, q = linalg.hessenberg(a, calc_q=True)
  np.testing.assert_array_equal(h, expected)
  return _hessenberg_ratio(operands, (h, q))

def unitary_similarity_invariant(results):
  # Rows and columns of T share a sign or phase with the columns of Z, and so do those of H and Q.
  t, z = results
  return abs(t) ** 2, z.mT[..., :, None] * z.mT.conj()[..., None, :]

def _schur_invariant(results):
  # A quarter turn within a block is free too: it exchanges the off-diagonal elements.
  t, z = results
  sums = (abs(t) ** 4).sum((-2, -1))
  return sums, *unitary_similarity_invariant(linalg.rsf2csf(t, z))

def _schur_oracle(output):
  def oracle(a):
    complex_output = output == "complex"
    dtype = np.result_type(a, np.complex64) if complex_output else a.dtype
    if not a.size:
      return a.astype(dtype), a.astype(dtype)
    return scipy.linalg.schur(a, output="complex" if np.iscomplexobj(a) else output)

  return oracle

EIGEN: tuple[Function, ...] = (
    Function(
        "eigh", OF_HERMITIAN, classes=("EighResult",),
        differs="first derivatives are finite at equal eigenvalues", behaviours=(EQUAL,),
        results={
            "eigh(a)": "linalg.EighResult",
            'eigh(a, "U")': "linalg.EighResult",
            "eigh(a).eigenvalues": "Array",
            "eigh(a, subset_by_index=(0, 1))": "linalg.EighResult",
            "eigh_ex(a)": "Arrays3",
        },
        fails=NO_SPECTRUM,
        cases=(
            Case("eigh", linalg.eigh, hermitian, (2,), _eigh_ratio,
                 lambda a: (
                     tuple(scipy.linalg.eigh(a, driver="evd")) if a.size else (a.real[0:0, 0], a)),
                 jnp.linalg.eigh, invariant=_eigh_invariant, limit=60.0, lapack=True,
                 timed=Timed((HERMITIAN,), lambda n: 9 * n**3,
                             called("linalg.eigh", "numpy", "torch", "cupy", "mkl"))),
        )),
    Function(
        "eigvalsh", OF_HERMITIAN, behaviours=(EQUAL,),
        fails=NO_SPECTRUM,
        cases=(
            Case("eigvalsh", linalg.eigvalsh, hermitian, (2,), _eigvalsh_ratio,
                 lambda a: (np.linalg.eigvalsh(a),), jnp.linalg.eigvalsh, limit=60.0,
                 timed=Timed((HERMITIAN,), lambda n: 4 * n**3 / 3,
                             called("linalg.eigvalsh", "numpy", "torch", "cupy", "mkl"))),
        )),
    Function(
        "eigh_tridiagonal", OF_HERMITIAN, behaviours=(EQUAL_OF_OTHER_FORMS,),
        sharded=sharded.ON_ONE_DEVICE, arguments=(EYE[0], EYE[0, 1:]),
        results={
            "eigh_tridiagonal(a, a)": "Arrays2",
            "eigh_tridiagonal(a, a, eigvals_only=True)": "Array",
        },
        fails=NO_SPECTRUM._replace(
            call=lambda a: linalg.eigh_tridiagonal(a[..., 1, :], a[..., 0, :-1])),
        cases=(
            Case("eigh_tridiagonal", linalg.eigh_tridiagonal, _tridiagonal, (1, 1),
                 lambda operands, results: _eigh_ratio(
                     (_tridiagonal_product(*operands),), results),
                 lambda d, e: tuple(np.linalg.eigh(_tridiagonal_product(d, e))),
                 invariant=_eigh_invariant, limit=60.0, slow=True, matrix="hermitian",
                 of_matrix=_band_of),
            Case("eigvalsh_tridiagonal",
                 lambda d, e: linalg.eigh_tridiagonal(d, e, eigvals_only=True), _tridiagonal,
                 (1, 1),
                 lambda operands, results: _eigvalsh_ratio(
                     (_tridiagonal_product(*operands),), results),
                 lambda d, e: (np.linalg.eigvalsh(_tridiagonal_product(d, e)),),
                 jax.vmap(lambda d, e: jax.scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True)),
                 limit=60.0, slow=True, matrix="hermitian", of_matrix=_band_of),
        )),
    Function(
        "eigh_generalized", OF_HERMITIAN, follows="jax.scipy.linalg.eigh",
        behaviours=(EQUAL_OF_OTHER_FORMS,),
        results={
            "eigh_generalized(a, a)": "Arrays2",
            "eigh_generalized(a, eigvals_only=True)": "Array",
            "eigh_generalized(a, a, True, True)": "Array",
        },
        fails=Failure(
            -1, "has an indefinite b: its leading minor of order 2 is not positive.",
            lambda b: linalg.eigh_generalized(EYE, b)),
        cases=(
            Case("eigh_generalized", linalg.eigh_generalized, _pair, (2, 2), _pencil_ratio,
                 lambda a, b: scipy.linalg.eigh(a, b) if a.size else (a.real[0:0, 0], a),
                 invariant=_eigh_invariant, limit=60.0, slow=True, matrix="hermitian",
                 of_matrix=_with_identity),
        )),
    Function(
        "eigh_gauge_error", OF_HERMITIAN,
        behaviours=(Behaviour(
            "tells a loss that depends on the choice of eigenvectors",
            ("derivatives/test_gauge.py::test_rotation_among_equal_eigenvalues",)),),
        sharded=sharded.ON_ONE_DEVICE, arguments=(lambda w, v: w.sum(), EYE),
        results={"eigh_gauge_error(lambda w, v: w.sum(), a)": "Array"},
        fails=NO_SPECTRUM,
        no_cases="takes a function"),
    Function(
        "eig", OF_GENERAL, classes=("EigResult",),
        differs="`left=`; eigenvectors have derivatives", behaviours=(SCALE, GRADED),
        sharded=sharded.STACK,
        results={
            "eig(a)": "linalg.EigResult",
            "eig(a, left=True)": "Arrays3",
            "eig_ex(a)": "Arrays3",
            "eig_ex(a, left=True)": "Arrays4",
        },
        fails=NO_SPECTRUM,
        cases=(
            Case("eig", linalg.eig, square_general, (2,), _eig_ratio, _eig_oracle(left=False),
                 jnp.linalg.eig, invariant=_eig_invariant, limit=20.0, complex=True, slow=True,
                 absent=(("tpu",), "eig"), unordered=True,
                 timed=Timed((GENERAL,), lambda n: 25 * n**3,
                             called("linalg.eig", "numpy", "torch"))),
            Case("eig_left", lambda a: linalg.eig(a, left=True), square_general, (2,),
                 _eig_left_ratio, _eig_oracle(left=True),
                 lambda a: jax.lax.linalg.eig(a, compute_left_eigenvectors=True),
                 invariant=_eig_invariant, limit=20.0, complex=True, slow=True,
                 absent=(("tpu",), "eig"), unordered=True),
        )),
    Function(
        "eigvals", OF_GENERAL, behaviours=(SCALE, GRADED), sharded=sharded.STACK,
        results={"eigvals(a)": "Array", "eigvals_ex(a)": "Arrays2"},
        fails=NO_SPECTRUM,
        cases=(
            Case("eigvals", linalg.eigvals, square_general, (2,), _eigvals_ratio,
                 lambda a: (scipy.linalg.eigvals(a) if a.size else np.zeros(0, complex),),
                 jnp.linalg.eigvals, limit=20.0, complex=True, slow=True,
                 absent=(("tpu",), "eig"), unordered=True,
                 timed=Timed((GENERAL,), lambda n: 10 * n**3,
                             called("linalg.eigvals", "numpy", "torch"))),
        )),
    Function(
        "schur", OF_GENERAL, behaviours=(SCHUR, GRADED), sharded=sharded.STACK,
        results={"schur(a)": "Arrays2", 'schur_ex(a, "complex")': "Arrays3"},
        calls={"": lambda m, a, p, b: triangular(*m.schur(a, output="complex"))},
        fails=NO_SCHUR_FORM,
        cases=(
            Case("schur", linalg.schur, square_general, (2,), schur_ratio, _schur_oracle("real"),
                 jax.scipy.linalg.schur, invariant=_schur_invariant, limit=20.0, slow=True,
                 absent=(NOT_CPU, "schur"), unordered=True, scan=True,
                 timed=Timed((GENERAL,), lambda n: 25 * n**3)),
            Case("schur_complex", lambda a: linalg.schur(a, "complex"), square_general, (2,),
                 schur_ratio, _schur_oracle("complex"),
                 lambda a: jax.scipy.linalg.schur(a, "complex"),
                 invariant=unitary_similarity_invariant, limit=20.0, complex=True, slow=True,
                 variant=True, absent=(NOT_CPU, "schur"), unordered=True, scan=True),
        )),
    Function(
        "rsf2csf", OF_GENERAL, behaviours=(SCHUR,), sharded=sharded.ON_ONE_DEVICE,
        results={"rsf2csf(a, a)": "Arrays2"},
        no_cases="takes two results of schur; the invariant of its case calls it"),
    Function(
        "hessenberg", OF_GENERAL,
        behaviours=(GRADED, Behaviour(
            "as LAPACK's, with a real subdiagonal",
            ("derivatives/test_operations.py::test_square",))),
        sharded=sharded.STACK,
        results={"hessenberg(a)": "Array", "hessenberg(a, calc_q=True)": "Arrays2"},
        calls={"": lambda m, a, p, b: m.hessenberg(a, calc_q=True)},
        cases=(
            Case("hessenberg", lambda a: linalg.hessenberg(a, calc_q=True), square_general, (2,),
                 _hessenberg_ratio,
                 lambda a: scipy.linalg.hessenberg(a, calc_q=True) if a.size else (a, a),
                 lambda a: jax.scipy.linalg.hessenberg(a, calc_q=True), slow=True,
                 absent=(NOT_CPU, "hessenberg"), scan=True),
            Case("hessenberg_h", linalg.hessenberg, square_general, (2,), _hessenberg_h_ratio,
                 lambda a: (scipy.linalg.hessenberg(a) if a.size else a,),
                 jax.scipy.linalg.hessenberg, slow=True, absent=(NOT_CPU, "hessenberg"), scan=True),
        )),
)
