"""Systems of equations, inverses and determinants."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import scipy.linalg

import linalg
from linalg._catalogue import checks, matrices, sharded
from linalg._catalogue.case import Case
from linalg._catalogue.distance import composed
from linalg._catalogue.factors import (
  cholesky_factor,
  cholesky_product,
  lu_factors,
  lu_operands,
  lu_product,
  solved,
  take,
  unpack_lu,
)
from linalg._catalogue.operands import (
  columns_beside,
  general,
  positive_definite,
  square,
  vector,
  with_columns,
)
from linalg._catalogue.record import NO_SINGULAR_VALUES, SINGULAR, Behaviour, Function, Kind
from linalg._catalogue.timed import (
  COLUMN,
  DIAGONAL,
  FACTOR,
  GENERAL,
  LOWER_FACTOR,
  PIVOTS,
  TALL,
  TALL_COLUMN,
  VECTOR,
  Timed,
  called,
)
from linalg._catalogue.why import SUMS

EYE = np.eye(3)
SYSTEMS = Kind("solving", "Systems")
LU = Kind("solving", "LU factors")
TRIANGULAR = Kind("solving", "Triangular and tridiagonal systems")
DETERMINANTS = Kind("solving", "Determinants")
TENSORS = Kind("solving", "Tensors as matrices")

PLAIN = Behaviour("", ("derivatives/test_operations.py::test_square",))
AGREES = Behaviour("", (
    "derivatives/test_operations.py::test_triangular_solve",
    "values/test_factorisations.py::test_agrees_with_scipy"))
NO_MIXTURE = Behaviour(
    "NaN, not a mixture of infinities and NaN, at singular matrices",
    ("values/test_failures.py::test_singular",))
GRADED = Behaviour(
    "right where pivots are subnormal, or rows and columns of very different scale",
    ("values/test_graded.py::test_lu_of_graded_matrices",
     "values/test_graded.py::test_solutions_of_graded_systems",
     "values/test_graded.py::test_determinants_of_graded_matrices",
     "values/test_graded.py::test_inverse_beside_overflow",
     "values/test_graded.py::test_triangle_with_tiny_diagonal"))
OF_FACTORS = Behaviour(
    "from the factors that are there; in range where the determinant is not, of either triangle "
    "and of SciPy's factors",
    ("values/test_matrix_functions.py::test_determinants_of_factors",))
OF_STOCK = Behaviour(
    "", ("api/test_names.py::test_result_types", "api/test_array_api.py::test_values"))


# Systems


def _inv_ratio(operands, results):
  # ||I - A X|| / (n ||A|| ||X|| eps)
  (a,), (x,) = operands, results
  return checks.solution(a, x, np.broadcast_to(np.eye(a.shape[-1]), a.shape))

def _overdetermined(rng, batch, m, n, dtype):
  """Systems whose residuals are larger than rounding."""
  del m
  a = matrices.general(rng, batch, n + 3, n, dtype) + 3 * np.eye(n + 3, n, dtype=dtype)
  return a, matrices.general(rng, batch, n + 3, 2, dtype)

def _lstsq_oracle(a, b):
  k = min(a.shape)
  if not a.size:
    x = np.zeros((a.shape[1], b.shape[1]))
    return x, np.sum(np.abs(b) ** 2, axis=0), 0, np.zeros(0)
  x = np.linalg.pinv(a) @ b
  s = np.linalg.svd(a, compute_uv=False)
  return x, np.sum(np.abs(b - a @ x) ** 2, axis=0), k, s

# LU factors


def _pivots(rng, batch, m, n, dtype):
  del m, dtype
  low = np.broadcast_to(np.arange(n), (*batch, n))
  return (rng.integers(low, max(n, 1)).astype(np.int32),)

def _lu_ratio(operands, results):
  (a,), (packed, pivots, permutation) = operands, results
  l, u = unpack_lu(packed)
  expected = linalg.lu_pivots_to_permutation(pivots, a.shape[-2])
  np.testing.assert_array_equal(permutation, expected)
  return checks.factorisation(take(a, permutation, -2), l @ u, checks.eps(packed))

def _lu_oracle(a):
  if not a.size:
    return a, np.zeros(0, np.int32), np.arange(a.shape[0], dtype=np.int32)
  packed, pivots = scipy.linalg.lu_factor(a)
  return packed, pivots, _order(pivots, a.shape[0])

def _order(pivots, rows):
  permutation = np.arange(rows, dtype=np.int32)
  for i, j in enumerate(pivots):
    permutation[[i, j]] = permutation[[j, i]]
  return permutation

def _permutation_oracle(pivots):
  return (_order(pivots, len(pivots)),)

def _permutation_ratio(operands, results):
  (pivots,), (permutation,) = operands, results
  same = all(
      np.array_equal(_permutation_oracle(pivots[i])[0], permutation[i])
      for i in np.ndindex(pivots.shape[:-1]))
  return 0.0 if same else np.inf

# Triangular and tridiagonal systems


def _lower(rng, batch, m, n, dtype):
  del m
  return (matrices.triangular(rng, batch, n, dtype, lower=True),)

def _upper_right(rng, batch, m, n, dtype):
  """For X op(A) = B: B's columns are A's size."""
  del m
  a = matrices.triangular(rng, batch, n, dtype, lower=False)
  return a, matrices.general(rng, batch, 3, n, dtype)

def _lower_part(a):
  return np.tril(a)

def _right_ratio(operands, results):
  # X Aᴴ = B is equivalent to conj(A) Xᵀ = Bᵀ.
  (a, b), (x,) = operands, results
  swap = lambda y: np.swapaxes(np.asarray(y), -1, -2)
  return checks.solution(np.triu(a).conj(), swap(x), swap(b))

def _triangle_of(a):
  """A lower triangle of A's condition. The upper one is NaN, so that no one reads it."""
  lower = checks.adjoint(np.linalg.qr(checks.wide(a))[1]).astype(a.dtype)
  return np.where(np.tri(a.shape[-1], dtype=bool), lower, np.array(np.nan, a.dtype))


def _three_diagonals(rng, batch, m, n, dtype):
  dl, d, du = (vector(rng, batch, m, n, dtype)[0] for _ in range(3))
  return dl, d + 4 * d / np.abs(d), du, matrices.general(rng, batch, n, 2, dtype)

def _of_three_diagonals(dl, d, du):
  place = np.arange(d.shape[-1])
  a = np.zeros((*d.shape, d.shape[-1]), d.dtype)
  a[..., place, place] = d
  a[..., place[1:], place[:-1]] = dl[..., 1:]
  a[..., place[:-1], place[1:]] = du[..., :-1]
  return a

def _three_diagonals_of(a):
  """The three diagonals of general matrices, and right-hand sides."""
  diagonals = np.zeros((3, *a.shape[:-1]), a.dtype)
  diagonals[0, ..., 1:] = np.diagonal(a, -1, -2, -1)
  diagonals[1] = np.diagonal(a, 0, -2, -1)
  diagonals[2, ..., :-1] = np.diagonal(a, 1, -2, -1)
  return *diagonals, columns_beside(a)


# Determinants


def _unit_scaled(rng, batch, m, n, dtype):
  """Square, with a determinant that float32 can hold."""
  (a,) = square(rng, batch, m, n, dtype)
  return ((a / (2 * np.sqrt(n + 1))).astype(dtype),)

def _det_ratio(operands, results):
  # The result is the determinant of a matrix near A: n rounding errors, times the condition.
  (a,), (det,) = operands, results
  expected = np.linalg.det(checks.wide(a))
  scale = np.abs(expected) * max(a.shape[-1], 1) ** 2 * checks.eps(det)
  return checks.worst(np.abs(checks.wide(det) - expected), scale)

def _slogdet_ratio(operands, results):
  (a,), (sign, logabsdet) = operands, results
  expected_sign, expected = np.linalg.slogdet(checks.wide(a))
  scale = max(a.shape[-1], 1) ** 2 * checks.eps(sign)
  return max(
      checks.worst(np.abs(sign - expected_sign), scale),
      checks.worst(np.abs(logabsdet - expected), scale * np.maximum(np.abs(expected), 1)))

def _solve_logdet_ratio(operands, results):
  # The determinant is that of a matrix near A: its logarithm errs by n² eps cond(A).
  a, b = operands
  x, sign, logabsdet = results
  expected_sign, expected = np.linalg.slogdet(checks.wide(a))
  condition = np.linalg.cond(checks.wide(a)) if a.size else 1
  scale = max(a.shape[-1], 1) ** 2 * checks.eps(sign) * condition
  return max(
      checks.solution(a, x, b), checks.worst(np.abs(sign - expected_sign), scale),
      checks.worst(np.abs(logabsdet - expected), scale * np.maximum(np.abs(expected), 1)))

def _solve_logdet_oracle(a, b):
  return (np.linalg.solve(a, b), *np.linalg.slogdet(a))

def _stock_solve_logdet(a, b):
  return (jnp.linalg.solve(a, b), *jnp.linalg.slogdet(a))

def _slogdet_of_factors(packed, pivots):
  return tuple(np.linalg.slogdet(lu_product(packed, pivots)))


def _of_lu_factor(a, b):
  factor = linalg.factorize_lu(a)
  return (factor.solve(b), *factor.slogdet())

SOLVING: tuple[Function, ...] = (
    Function(
        "solve", SYSTEMS,
        differs="`assume_a=` and `lower=`; a singular matrix has NaN, not a mixture with "
                "infinities; a batch of vectors is `b[..., None]`, as in JAX",
        behaviours=(
            GRADED, NO_MIXTURE, Behaviour(
                "with `assume_a=`, one triangle is read",
                ("values/test_matrix_functions.py::test_solve_reads_one_triangle",))),
        results={'solve(a, a, assume_a="pos")': "Array", "solve_ex(a, a)": "Arrays2"},
        fails=SINGULAR,
        cases=(
            Case("solve", linalg.solve, with_columns(square), (2, 2),
                 checks.solution_ratio(lambda a: a), solved, jnp.linalg.solve, lapack=True,
                 matrix="nonsingular", of_matrix=lambda a: (a, columns_beside(a)),
                 timed=Timed((GENERAL, COLUMN), lambda n: 2 * n**3 / 3 + 2 * n**2,
                             called("linalg.solve", "numpy", "torch", "cupy", "mkl"))),
            composed("solve_pos", lambda a, b: linalg.solve(a, b, assume_a="pos"),
                     with_columns(positive_definite), (2, 2), solved,
                     lambda a, b: jax.scipy.linalg.solve(a, b, assume_a="pos"), 20, variant=True),
            composed("solve_her", lambda a, b: linalg.solve(a, b, assume_a="her"),
                     with_columns(positive_definite), (2, 2), solved,
                     lambda a, b: jax.scipy.linalg.solve(a, b, assume_a="her"), 20, variant=True),
        )),
    Function(
        "solve_logdet", SYSTEMS, classes=("SolveLogdetResult",),
        behaviours=(Behaviour(
            "x and log |det A| from one factorization; one handler for both cotangents of a small "
            "definite matrix",
            ("values/test_solve_logdet.py",)),),
        sharded="linalg.distributed.cho_factor and its methods solve and logdet, or lu_factor and "
                "its methods solve and slogdet",
        results={
            "solve_logdet(a, a)": "linalg.SolveLogdetResult",
            'solve_logdet(a, a, assume_a="pos").logabsdet': "Array",
        },
        fails=SINGULAR,
        cases=(
            Case("solve_logdet", lambda a, b: linalg.solve_logdet(a, b)[:3], with_columns(square),
                 (2, 2), _solve_logdet_ratio, _solve_logdet_oracle, _stock_solve_logdet,
                 closed_form=3, matrix="nonsingular",
                 of_matrix=lambda a: (a, columns_beside(a))),
            Case("solve_logdet_pos",
                 lambda a, b: linalg.solve_logdet(a, b, assume_a="pos")[:3],
                 with_columns(positive_definite), (2, 2), _solve_logdet_ratio,
                 _solve_logdet_oracle, _stock_solve_logdet, matrix="positive",
                 of_matrix=lambda a: (a, columns_beside(a))),
        )),
    Function(
        "inv", SYSTEMS,
        differs="a singular matrix has NaN, not a mixture with infinities; batches sharded on "
                "Explicit meshes",
        behaviours=(GRADED, NO_MIXTURE),
        results={"inv(a)": "Array", "inv_ex(a)": "Arrays2"},
        fails=SINGULAR,
        cases=(
            Case("inv", linalg.inv, square, (2,), _inv_ratio, lambda a: (np.linalg.inv(a),),
                 jnp.linalg.inv, lapack=True,
                 timed=Timed((GENERAL,), lambda n: 2 * n**3,
                             called("linalg.inv", "numpy", "torch", "cupy", "mkl"))),
        )),
    Function(
        "lstsq", SYSTEMS,
        differs="takes batches; derivatives at equal singular values; `b` of shape (..., m) is a "
                "batch of vectors, as it is not in `solve`",
        behaviours=(Behaviour(
            "batched, any shape and rank; derivative at equal singular values",
            ("values/test_lstsq.py::test_against_numpy",
             "values/test_lstsq.py::test_derivatives_at_constant_rank",
             "values/test_lstsq.py::test_derivatives_at_equal_singular_values")),),
        results={"lstsq(a, a)": "Arrays4"},
        calls={
            "": lambda m, a: m.lstsq(a[0], a[1]),
            "of a vector": lambda m, a: m.lstsq(a[0], a[1, 0]),
        },
        fails=NO_SINGULAR_VALUES._replace(call=lambda a: linalg.lstsq(a, a)),
        cases=(
            composed("lstsq", linalg.lstsq, _overdetermined, (2, 2), _lstsq_oracle,
                     jax.vmap(jnp.linalg.lstsq), 20,
                     invariant=lambda results: (results[0], results[1], results[3]),
                     varying={1: SUMS},
                     timed=Timed((TALL, TALL_COLUMN), lambda n: 56 * n**3,
                                 called("linalg.lstsq", "torch"))),
        )),
    Function(
        "pinv", SYSTEMS,
        behaviours=(Behaviour(
            "any shape and rank; derivative at equal singular values",
            ("values/test_lstsq.py::test_derivatives_at_constant_rank",)),),
        results={"pinv(a, rtol=1e-3)": "Array"},
        fails=NO_SINGULAR_VALUES,
        cases=(
            composed("pinv", linalg.pinv, square, (2,), lambda a: (np.linalg.pinv(a),),
                     jnp.linalg.pinv, 20,
                     timed=Timed((GENERAL,), lambda n: 24 * n**3,
                                 called("linalg.pinv", "numpy", "torch", "cupy"))),
            composed("pinv_hermitian", lambda a: linalg.pinv(a, hermitian=True), positive_definite,
                     (2,), lambda a: (np.linalg.pinv(a),),
                     lambda a: jnp.linalg.pinv(a, hermitian=True), 20, variant=True),
        )),
    Function(
        "factorize_lu", LU, classes=("LUFactor",),
        behaviours=(Behaviour(
            "an object; derivatives reuse the factors",
            ("values/test_factors.py::test_changes_of_lu_factors",)),),
        sharded="linalg.distributed.lu_factor",
        results={
            "factorize_lu(a)": "linalg.LUFactor", "factorize_lu(a).solve(a)": "Array",
            "factorize_lu(a).slogdet()": "linalg.SlogdetResult"},
        fails=SINGULAR,
        cases=(
            composed("factorize_lu", _of_lu_factor, with_columns(square), (2, 2),
                     _solve_logdet_oracle, None, 20, matrix="nonsingular",
                     of_matrix=lambda a: (a, columns_beside(a))),
        )),
    Function(
        "lu", LU, follows="jax.lax.linalg.lu", behaviours=(PLAIN, GRADED),
        sharded="linalg.distributed.lu_factor",
        results={"lu(a)": "Arrays3", "lu_ex(a)": "Arrays4"},
        cases=(
            Case("lu", linalg.lu, general, (2,), _lu_ratio, _lu_oracle, jax.lax.linalg.lu,
                 rectangular=True, lapack=True,
                 timed=Timed((GENERAL,), lambda n: 2 * n**3 / 3,
                             called("linalg.lu_factor", "torch", "mkl", "mkl_compact"))),
        )),
    Function(
        "lu_factor", LU, behaviours=(PLAIN,), results={"lu_factor(a)": "Arrays2"},
        fails=SINGULAR,
        no_cases="lu without the permutation"),
    Function(
        "lu_solve", LU, behaviours=(PLAIN,), arguments=((EYE, np.arange(3)), EYE),
        results={"lu_solve((a, a), a)": "Array"},
        calls={"": lambda m, a, p, b: m.lu_solve(m.lu_factor(a), b, 1)},
        cases=(
            Case("lu_solve", lambda lu, pivots, b: linalg.lu_solve((lu, pivots), b),
                 with_columns(lu_factors), (2, 1, 2), checks.solution_ratio(lu_product),
                 lambda lu, pivots, b: solved(lu_product(lu, pivots), b),
                 lambda lu, pivots, b: jax.scipy.linalg.lu_solve((lu, pivots), b),
                 matrix="nonsingular", of_matrix=lambda a: (*lu_operands(a), columns_beside(a)),
                 timed=Timed((FACTOR, PIVOTS, COLUMN), lambda n: 2 * n**2, {
                     "torch": lambda torch: lambda lu, p, b: torch.linalg.lu_solve(lu, p + 1, b)})),
        )),
    Function(
        "lu_pivots_to_permutation", LU, behaviours=(AGREES,), sharded=sharded.ON_ONE_DEVICE,
        arguments=(np.arange(3), 3), results={"lu_pivots_to_permutation(a, 3)": "Array"},
        calls={"": lambda m, a, p, b: m.lu_pivots_to_permutation(m.lu(a)[1], 5)},
        cases=(
            Case("lu_pivots_to_permutation",
                 lambda pivots: linalg.lu_pivots_to_permutation(pivots, pivots.shape[-1]),
                 _pivots, (1,), _permutation_ratio, _permutation_oracle,
                 lambda pivots: jax.lax.linalg.lu_pivots_to_permutation(pivots, pivots.shape[-1]),
                 dtypes=(np.float32,),  # the operands are integers, so one dtype is enough
                 differentiable=False, any_size=False, matrix="general",
                 of_matrix=lambda a: lu_operands(a)[1:],
                 timed=Timed((PIVOTS,), lambda n: n, dtypes=(np.int32,))),
        )),
    Function(
        "solve_triangular", TRIANGULAR, behaviours=(AGREES,),
        results={'solve_triangular(a, a, trans="T")': "Array"},
        calls={"": lambda m, a, p, b: m.solve_triangular(a, b, "T", lower=True)},
        no_cases="triangular_solve with other flags"),
    Function(
        "triangular_solve", TRIANGULAR, behaviours=(AGREES, GRADED),
        sharded="linalg.distributed.solve_triangular",
        results={"triangular_solve(a, a, lower=True)": "Array"},
        calls={
            "": lambda m, a, p, b: m.triangular_solve(
                a, b, left_side=True, lower=True, transpose_a=True),
        },
        cases=(
            Case("triangular_solve",
                 lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True),
                 with_columns(_lower), (2, 2), checks.solution_ratio(_lower_part),
                 lambda a, b: solved(np.tril(a), b),
                 lambda a, b: jax.lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
                 lapack=True, matrix="nonsingular",
                 of_matrix=lambda a: (_triangle_of(a), columns_beside(a)),
                 # There are n right-hand sides, so peers call trsm. The other solves have one.
                 timed=Timed((LOWER_FACTOR, GENERAL), lambda n: n**3, {
                     "torch": lambda torch: lambda a, b: torch.linalg.solve_triangular(
                         a, b, upper=False)})),
            Case("triangular_solve_right",
                 lambda a, b: linalg.triangular_solve(a, b, transpose_a=True, conjugate_a=True),
                 _upper_right, (2, 2), _right_ratio,
                 lambda a, b: (np.linalg.solve(np.triu(a).conj(), b.T).T,),
                 lambda a, b: jax.lax.linalg.triangular_solve(
                     a, b, transpose_a=True, conjugate_a=True),
                 matrix="nonsingular",
                 of_matrix=lambda a: (
                     np.swapaxes(_triangle_of(a), -1, -2), np.swapaxes(columns_beside(a), -1, -2)),
                 variant=True),
        )),
    Function(
        "tridiagonal_solve", TRIANGULAR,
        behaviours=(Behaviour(
            "partial pivoting; `perturb_singular`",
            ("values/test_tridiagonal.py::test_tridiagonal_solve",
             "values/test_tridiagonal.py::test_singular_tridiagonal_systems")),),
        sharded=sharded.ON_ONE_DEVICE, arguments=(EYE[0], EYE[1], EYE[2], EYE),
        results={
            "tridiagonal_solve(a, a, a, a)": "Array",
            "tridiagonal_solve_ex(a, a, a, a)": "Arrays2",
        },
        calls={"": lambda m, a, p, b: m.tridiagonal_solve(a[0], p[0], a[1], b)},
        fails=SINGULAR._replace(
            call=lambda a: linalg.tridiagonal_solve(
                jnp.zeros_like(a[..., 0]), jnp.diagonal(a, 0, -2, -1), jnp.zeros_like(a[..., 0]),
                jnp.broadcast_to(EYE[:, :1], (*a.shape[:-2], 3, 1)))),
        cases=(
            Case("tridiagonal_solve", linalg.tridiagonal_solve, _three_diagonals, (1, 1, 1, 2),
                 checks.solution_ratio(_of_three_diagonals),
                 lambda dl, d, du, b: solved(_of_three_diagonals(dl, d, du), b),
                 jax.lax.linalg.tridiagonal_solve, matrix="nonsingular",
                 of_matrix=_three_diagonals_of,
                 timed=Timed((VECTOR, DIAGONAL, VECTOR, COLUMN), lambda n: 8 * n)),
        )),
    Function(
        "det", DETERMINANTS, differs="neither overflows nor underflows on the way",
        behaviours=(Behaviour(
            "gradient and Hessian at any rank; in range whatever the order of the factors",
            ("derivatives/test_determinants.py::test_det_of_lower_rank",
             "derivatives/test_determinants.py::test_second_derivative_of_det",
             "derivatives/test_determinants.py::test_gradient_of_det_out_of_range")),),
        cases=(
            Case("det", linalg.det, _unit_scaled, (2,), _det_ratio,
                 lambda a: (np.linalg.det(a),), jnp.linalg.det, closed_form=3,
                 matrix="nonsingular",
                 timed=Timed((GENERAL,), lambda n: 2 * n**3 / 3,
                             called("linalg.det", "numpy", "torch", "cupy"))),
        )),
    Function(
        "slogdet", DETERMINANTS, classes=("SlogdetResult",),
        differs='`method="qr"` is computed by LU',
        behaviours=(
            GRADED, Behaviour(
                "the phase of a complex determinant too; at a singular matrix the gradient is not "
                "finite", ("derivatives/test_operations.py::test_square",))),
        results={"slogdet(a)": "linalg.SlogdetResult", "slogdet(a).logabsdet": "Array"},
        cases=(
            Case("slogdet", linalg.slogdet, square, (2,), _slogdet_ratio,
                 lambda a: tuple(np.linalg.slogdet(a)), jnp.linalg.slogdet, closed_form=3,
                 timed=Timed((GENERAL,), lambda n: 2 * n**3 / 3,
                             called("linalg.slogdet", "numpy", "torch", "cupy"))),
        )),
    Function(
        "lu_slogdet", DETERMINANTS, behaviours=(OF_FACTORS,),
        sharded="the method slogdet of what linalg.distributed.lu_factor returns",
        results={"lu_slogdet(linalg.lu_factor(a))": "linalg.SlogdetResult"},
        cases=(
            composed("lu_slogdet", lambda *factors: linalg.lu_slogdet(factors), lu_factors, (2, 1),
                     _slogdet_of_factors, condition=10, varying={1: SUMS}),
        )),
    Function(
        "cho_logdet", DETERMINANTS, behaviours=(OF_FACTORS,),
        sharded="the method logdet of what linalg.distributed.cho_factor returns",
        results={"cho_logdet(linalg.cho_factor(a))": "Array"},
        cases=(
            composed("cho_logdet", lambda l: linalg.cho_logdet((l, True)), cholesky_factor, (2,),
                     lambda l: (np.linalg.slogdet(cholesky_product(l))[1],), condition=10,
                     varying={0: SUMS}),
        )),
    Function(
        "tensorsolve", TENSORS, behaviours=(OF_STOCK,), sharded=sharded.ON_ONE_DEVICE,
        arguments=(np.eye(4).reshape(2, 2, 2, 2), np.ones((2, 2))),
        calls={"": lambda m, a: m.tensorsolve(a[0].reshape(2, 2, 4), a[0, 0].reshape(2, 2))},
        no_cases="takes no batch"),
    Function(
        "tensorinv", TENSORS,
        differs="NaN where there is no inverse, not a mixture with infinities",
        behaviours=(OF_STOCK,), sharded=sharded.ON_ONE_DEVICE,
        arguments=(np.eye(4).reshape(2, 2, 2, 2),),
        calls={"": lambda m, a: m.tensorinv(a[0].reshape(2, 2, 4))},
        no_cases="takes no batch"),
)
