"""`linalg.scipy`: functions that are composed in Python, by the names of SciPy alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import linalg.scipy
from linalg._catalogue import matrices
from linalg._catalogue.distance import case_of
from linalg._catalogue.operands import general, square_general, vector
from linalg._catalogue.record import Behaviour, Function
from linalg._catalogue.scipy import BEYOND, OTHERWISE
from linalg._catalogue.why import BATCHES, PRODUCTS, SUMS

EYE = np.eye(3)
SKETCH = 2  # rows

TRIGONOMETRIC = Behaviour(
    "real for a real matrix, and without complex numbers on the way; a small matrix keeps its "
    "digits",
    ("values/test_scipy_composed.py::test_trigonometric",))
SIGN = Behaviour(
    "0 for eigenvalues on the imaginary axis, where the derivative is NaN; derivatives at equal "
    "eigenvalues and at defective matrices, to any order",
    ("values/test_scipy_composed.py::test_signs",
     "values/test_scipy_composed.py::test_derivatives_of_signs"))
CIRCULANT = Behaviour(
    "NaN where a matrix is singular to rounding, for that matrix alone; the batch stays where it "
    "lies",
    ("values/test_scipy_composed.py::test_circulant",
     "values/test_scipy_composed.py::test_singular_circulant"))
ANGLES = Behaviour(
    "zeros follow the angles where a range has fewer dimensions than the result",
    ("values/test_scipy_composed.py::test_angles_at_lower_ranks",))
PROCRUSTES = Behaviour(
    "derivatives at equal singular values, to any order",
    ("values/test_scipy_composed.py::test_derivatives_of_a_rotation",))
SKETCHES = Behaviour(
    "SciPy's draws from an integer or a generator, or those of a key that may be traced",
    ("values/test_scipy_composed.py::test_sketches",))
BLOCKS = Behaviour(
    "batches whose matrices have different numbers of pairs; NaN where a pair is incomplete",
    ("values/test_scipy_composed.py::test_real_blocks",))
PLAIN = Behaviour("batches", ("values/test_scipy_composed.py::test_agrees_with_scipy",))


def _off_the_axis(rng, batch, m, n, dtype):
  """Matrices whose eigenvalues are far from the imaginary axis, on both sides."""
  (a,) = square_general(rng, batch, m, n, dtype)
  sides = np.where(np.arange(n) % 2 == 0, 2, -2) * np.sqrt(n + 1)
  return ((a / 2 + np.diag(sides)).astype(dtype),)

def _scaled(rng, batch, m, n, dtype):
  (a,) = square_general(rng, batch, m, n, dtype)
  return ((a / np.sqrt(max(n, 1))).astype(dtype),)

def _circulant(rng, batch, m, n, dtype):
  """The column of a well-conditioned matrix, and a right-hand side."""
  (c,), (b,) = (vector(rng, batch, m, n, dtype) for _ in range(2))
  c[..., :1] += 3 * np.sqrt(n + 1)
  return c, b

def _tall_and_two(rng, batch, m, n, dtype):
  return general(rng, batch, n + 2, n, dtype) + general(rng, batch, n + 2, 2, dtype)

def _nearly_rotated(rng, batch, m, n, dtype):
  a = matrices.well_conditioned(rng, batch, n, dtype)
  (b,) = square_general(rng, batch, m, n, dtype)
  return a, (a + b / 4).astype(dtype)

def _two_general(rng, batch, m, n, dtype):
  return square_general(rng, batch, m, n, dtype) + square_general(rng, batch, m, n, dtype)

def _banded(rng, batch, m, n, dtype):
  return (np.triu(np.tril(matrices.general(rng, batch, n, n, dtype), 1), -2),)

def _some_equal(turned):
  """Matrices that equal their transposes or adjoints, and others that differ in one element."""

  def operands(rng, batch, m, n, dtype):
    (a,) = square_general(rng, batch, m, n, dtype)
    corner = (np.arange(n)[:, None] == 0) & (np.arange(n) == n - 1)
    changed = rng.integers(2, size=(*batch, 1, 1)).astype(dtype)
    return (a + turned(np.swapaxes(a, -1, -2)) + changed * corner,)

  return operands

def _tall(rng, batch, m, n, dtype):
  del m
  return (matrices.general(rng, batch, n + 2, n, dtype),)

def _values_and_vectors(rng, batch, m, n, dtype):
  return vector(rng, batch, m, n, dtype) + square_general(rng, batch, m, n, dtype)

def conjugate_pairs(x, complex_of, concatenate):
  """Conjugate pairs from neighbours along the last dimension, and a real number from a last one."""
  pairs = x[..., : x.shape[-1] // 2 * 2]
  real, imag = pairs[..., ::2], pairs[..., 1::2]
  both = concatenate([complex_of(real, imag)[..., None], complex_of(real, -imag)[..., None]], -1)
  last = x[..., pairs.shape[-1] :]
  return concatenate([both.reshape(pairs.shape), complex_of(last, 0 * last)], -1)

def _real_form(x, v):
  """The real form of the pairs in the real parts of x and of the columns of V."""
  wide = lambda x: x.real if x.dtype.itemsize >= 4 else x.astype(jnp.float32)
  of = lambda x: conjugate_pairs(wide(x), jax.lax.complex, jnp.concatenate)
  return tuple(y.astype(x.real.dtype) for y in linalg.scipy.cdf2rdf(of(x), of(v)))

def real_form_of_scipy(x, v):
  of = lambda x: conjugate_pairs(x.real, lambda real, imag: real + 1j * imag, np.concatenate)
  return scipy.linalg.cdf2rdf(of(x), of(v))

def _nonempty(function, otherwise=lambda *operands: operands[0]):
  """SciPy's results, where it lacks those for matrices without entries."""

  def oracle(*operands):
    results = (function if operands[0].size else otherwise)(*operands)
    return results if isinstance(results, tuple) else (results,)

  return oracle

_function = functools.partial(Function, kind=BEYOND, module="linalg.scipy")
_form = functools.partial(
    Function, kind=OTHERWISE, module="linalg.scipy",
    no_cases="a function of linalg in another form")


def _trigonometric(name):
  return _function(
      name, behaviours=(TRIGONOMETRIC,),
      calls={"": lambda m, a, p, b: getattr(m, name)(a / 4)},
      cases=(
          case_of(name, getattr(linalg.scipy, name), _scaled, (2,),
                  _nonempty(getattr(scipy.linalg, name)), condition=20, slow=True,
                  varying={0: PRODUCTS}),
      ))

SCIPY_COMPOSED: tuple[Function, ...] = (
    *map(_trigonometric, ("cosm", "sinm", "tanm", "coshm", "sinhm", "tanhm")),
    _function(
        "signm", behaviours=(SIGN,),
        calls={"": lambda m, a, p, b: m.signm(p - p[..., 1, 1] * np.eye(len(p)))},
        cases=(
            case_of("signm", linalg.scipy.signm, _off_the_axis, (2,),
                    _nonempty(scipy.linalg.signm), condition=20, slow=True, scan=True,
                    varying={0: PRODUCTS}),
        )),
    _function(
        "expm_cond",
        behaviours=(Behaviour(
            "batches, and derivatives", ("values/test_scipy_composed.py::test_agrees_with_scipy",
                                         "values/test_composed.py::test_derivatives")),),
        calls={"": lambda m, a, p, b: m.expm_cond(a)},
        cases=(
            case_of("expm_cond", linalg.scipy.expm_cond, _scaled, (2,),
                    lambda a: (scipy.linalg.expm_cond(a),), condition=20, slow=True, empty=False,
                    varying={0: PRODUCTS}),
        )),
    _function(
        "solve_circulant", behaviours=(CIRCULANT,),
        calls={
            "": lambda m, a, p, b: m.solve_circulant(a[0], b),
            "by rows": lambda m, a, p, b: m.solve_circulant(
                a[:, None], p, baxis=1, outaxis=-1, tol=1e-9),
            "singular": lambda m, a, p, b: m.solve_circulant(
                np.ones(4), b[:, 0], singular="lstsq"),
        },
        cases=(
            case_of("solve_circulant",
                    lambda c, b: linalg.scipy.solve_circulant(c, b, baxis=-1, outaxis=-1),
                    _circulant, (1, 1),
                    _nonempty(lambda c, b: np.linalg.solve(scipy.linalg.circulant(c), b)),
                    condition=20, varying={0: BATCHES}),
        )),
    _function(
        "solve_lyapunov", no_cases="another name of solve_continuous_lyapunov",
        calls={"": lambda m, a, p, b: m.solve_lyapunov(p, a)}),
    _function(
        "subspace_angles", behaviours=(ANGLES,),
        calls={
            "": lambda m, a, p, b: m.subspace_angles(a[:, :3], b),
            "of vectors": lambda m, a, p, b: m.subspace_angles(b[:, :1], p[:, :2]),
        },
        cases=(
            case_of("subspace_angles", linalg.scipy.subspace_angles, _tall_and_two, (2, 2),
                    _nonempty(scipy.linalg.subspace_angles, lambda a, b: np.zeros(0)),
                    condition=20, slow=True, varying={0: SUMS}),
        )),
    _function(
        "orthogonal_procrustes", behaviours=(PROCRUSTES,),
        results={"orthogonal_procrustes(a, a)": "Arrays2"},
        calls={"": lambda m, a, p, b: m.orthogonal_procrustes(a, p)},
        cases=(
            case_of("orthogonal_procrustes", linalg.scipy.orthogonal_procrustes, _nearly_rotated,
                    (2, 2),
                    _nonempty(scipy.linalg.orthogonal_procrustes, lambda a, b: (a, np.zeros(()))),
                    condition=100, slow=True),
        )),
    _function(
        "khatri_rao", behaviours=(PLAIN,),
        calls={"": lambda m, a, p, b: m.khatri_rao(a, p[:2])},
        cases=(
            case_of("khatri_rao", linalg.scipy.khatri_rao, _two_general, (2, 2),
                    lambda a, b: (scipy.linalg.khatri_rao(a, b),)),
        )),
    _function(
        "cdf2rdf", behaviours=(BLOCKS,), arguments=(EYE[0], EYE),
        results={"cdf2rdf(a, a)": "Arrays2"},
        calls={"": lambda m, a, p, b: m.cdf2rdf(*np.linalg.eig(np.asarray(a).real))},
        cases=(
            case_of("cdf2rdf", _real_form, _values_and_vectors, (1, 2),
                    _nonempty(real_form_of_scipy, lambda x, v: (v.real, v.real)), zeros=True),
        )),
    _function(
        "diagsvd", behaviours=(PLAIN,), arguments=(EYE[0], 3, 4),
        results={"diagsvd(a, 3, 4)": "Array"},
        calls={
            "": lambda m, a, p, b: m.diagsvd(a[0], 4, 6),
            "tall": lambda m, a, p, b: m.diagsvd(a[0], 5, 4),
        },
        cases=(
            case_of("diagsvd", lambda s: linalg.scipy.diagsvd(s, s.shape[-1], s.shape[-1] + 1),
                    vector, (1,), lambda s: (np.eye(len(s), len(s) + 1) * s[:, None],),
                    zeros=True),
        )),
    _function(
        "bandwidth", behaviours=(PLAIN,), results={"bandwidth(a)": "Arrays2"},
        calls={"": lambda m, a, p, b: m.bandwidth(np.triu(a, -1)[:3])},
        cases=(
            case_of("bandwidth", linalg.scipy.bandwidth, _banded, (2,),
                    _nonempty(scipy.linalg.bandwidth, lambda a: (0, 0)), differentiable=False),
        )),
    _function(
        "issymmetric", behaviours=(PLAIN,),
        calls={
            "": lambda m, a, p, b: m.issymmetric(p),
            "nearly": lambda m, a, p, b: m.issymmetric(p.real, atol=1e-3),
            "of another": lambda m, a, p, b: m.issymmetric(a, rtol=1e-3),
        },
        cases=(
            case_of("issymmetric", linalg.scipy.issymmetric, _some_equal(np.asarray), (2,),
                    lambda a: (scipy.linalg.issymmetric(a),), differentiable=False),
        )),
    _function(
        "ishermitian", behaviours=(PLAIN,),
        calls={
            "": lambda m, a, p, b: m.ishermitian(p),
            "of another": lambda m, a, p, b: m.ishermitian(a),
        },
        cases=(
            case_of("ishermitian", linalg.scipy.ishermitian, _some_equal(np.conj), (2,),
                    lambda a: (scipy.linalg.ishermitian(a),), differentiable=False),
        )),
    _function(
        "clarkson_woodruff_transform", behaviours=(SKETCHES,), arguments=(EYE, 2),
        results={"clarkson_woodruff_transform(a, 2, rng=0)": "Array"},
        calls={"": lambda m, a, p, b: m.clarkson_woodruff_transform(a, 2, rng=0)},
        cases=(
            case_of("clarkson_woodruff_transform",
                    lambda a: linalg.scipy.clarkson_woodruff_transform(a, SKETCH, rng=0), _tall,
                    (2,),
                    lambda a: (scipy.linalg.clarkson_woodruff_transform(a, SKETCH, rng=0),),
                    zeros=True, varying={0: BATCHES}),
        )),
    _form(
        "norm",
        calls={
            "": lambda m, a, p, b: m.norm(a),
            "of rows": lambda m, a, p, b: m.norm(b, 3, axis=1, keepdims=True),
            "nuclear": lambda m, a, p, b: m.norm(a, "nuc"),
            "largest": lambda m, a, p, b: m.norm(a, 2),
        }),
    _form(
        "svdvals",
        calls={"": lambda m, a, p, b: m.svdvals(b)}),
    _form(
        "pinv", results={"pinv(a)": "Array", "pinv(a, return_rank=True)": "Arrays2"},
        calls={
            "": lambda m, a, p, b: m.pinv(b),
            "with rank": lambda m, a, p, b: m.pinv(p, rtol=0.5, return_rank=True),
            "absolute": lambda m, a, p, b: m.pinv(p, atol=4.0, rtol=0.0, return_rank=True),
        }),
    _form(
        "lstsq", results={"lstsq(a, a)": "Arrays4"},
        calls={
            "": lambda m, a, p, b: m.lstsq(b, a),
            "of a vector": lambda m, a, p, b: m.lstsq(b, a[0], lapack_driver="gelss"),
            "wide": lambda m, a, p, b: m.lstsq(a[:2], b[:2]),
        }),
    _form(
        "eigvalsh", results={"eigvalsh(a, a)": "Array"},
        calls={
            "": lambda m, a, p, b: m.eigvalsh(p),
            "of a triangle": lambda m, a, p, b: m.eigvalsh(np.triu(p), lower=False),
            "of a pencil": lambda m, a, p, b: m.eigvalsh(
                p, p + 3 * np.eye(len(p)), type=3, subset_by_index=[1, 2]),
        }),
    _form(
        "eigvalsh_tridiagonal",
        calls={
            "": lambda m, a, p, b: m.eigvalsh_tridiagonal(a[0].real, a[1, 1:].real),
            "by index": lambda m, a, p, b: m.eigvalsh_tridiagonal(
                a[0].real, a[1, 1:].real, "i", (1, 2)),
        }),
)
