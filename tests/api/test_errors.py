"""Wrong arguments raise an error at the call, which names the function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import linalg.scipy

EYE = np.eye(3)
PIVOTS = np.arange(3, dtype=np.int32)
ONES = np.ones(3)

ONE_MATRIX = (
    "cholesky", "cholesky_ex", "cho_factor", "det", "eig", "eig_ex", "eigh", "eigh_ex",
    "eigh_generalized", "eigvals", "eigvals_ex", "eigvalsh", "hessenberg", "inv", "inv_ex", "schur",
    "schur_ex", "slogdet")
ANY_MATRIX = ("lu", "lu_ex", "lu_factor", "qr", "svd", "svd_ex", "svdvals", "svdvals_ex")


def _refuses(kind, message, function, *operands, **options):
  with pytest.raises(kind, match=message) as caught:
    function(*operands, **options)
  assert type(caught.value) is kind
  # Traced arguments raise the same error.
  arrays = [k for k, x in enumerate(operands) if isinstance(x, np.ndarray)]
  if len(arrays) == len(operands):
    with pytest.raises(kind, match=message):
      jax.eval_shape(lambda *x: function(*x, **options), *operands)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (4, 3, 2)], ids=str)
@pytest.mark.parametrize("name", ONE_MATRIX)
def test_not_square(name, shape):
  _refuses(
      ValueError,
      rf"{name}\(\) must have shape \[\.\.\., n, n\], got \({', '.join(map(str, shape))}",
      getattr(linalg, name), np.ones(shape))


@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
@pytest.mark.parametrize("name", ANY_MATRIX)
def test_not_a_matrix(name, shape):
  _refuses(
      ValueError, rf"{name}\(\) must have shape \[\.\.\., m, n\]", getattr(linalg, name),
      np.ones(shape))


# Functions of two operands: a matching matrix, and how to call them.
SOLVES = {
    "solve": lambda a, b: linalg.solve(a, b),
    "solve_ex": lambda a, b: linalg.solve_ex(a, b),
    "solve_triangular": lambda a, b: linalg.solve_triangular(a, b),
    "cho_solve": lambda a, b: linalg.cho_solve((a, True), b),
    "lu_solve": lambda a, b: linalg.lu_solve((a, PIVOTS), b),
    "triangular_solve": lambda a, b: linalg.triangular_solve(a, b, left_side=True),
}


@pytest.mark.parametrize("name", SOLVES)
def test_shapes_of_solves(name):
  """Matrices that are not square, and right-hand sides that are scalars or have other lengths or
  batches."""
  solve = SOLVES[name]
  _refuses(ValueError, rf"{name}\(\) must have shape", solve, np.ones((3, 2)), np.ones((3, 1)))
  _refuses(ValueError, rf"{name}\(\) must have shape", solve, ONES, ONES)
  _refuses(ValueError, name, solve, EYE, np.ones((2, 2)))
  _refuses(ValueError, name, solve, EYE, np.ones(()))
  _refuses(
      ValueError, rf"Incompatible.*{name}", solve, np.ones((4, 3, 3)),
      np.ones((5, 3, 2)))


def test_a_batch_of_vectors_is_ambiguous():
  """The error names the alternative, as in jax.numpy since 0.5."""
  way_out = r"pass b\[\.\.\., None\]"
  _refuses(ValueError, way_out, linalg.solve, np.ones((4, 3, 3)), np.ones((4, 3)))
  _refuses(ValueError, way_out, SOLVES["cho_solve"], EYE, np.ones((4, 3)))
  _refuses(ValueError, way_out, linalg.tridiagonal_solve, *[np.ones((4, 3))] * 4)
  assert linalg.solve(np.stack([EYE] * 4), np.ones((4, 3))[..., None]).shape == (4, 3, 1)


def test_shapes_of_others():
  _refuses(ValueError, "lu_solve.*pivots", linalg.lu_solve, (EYE, PIVOTS[:2]), ONES)
  _refuses(
      ValueError, r"householder_product\(\)", linalg.householder_product, np.ones((2, 3)), ONES)
  _refuses(ValueError, r"householder_product\(\)", linalg.householder_product, EYE, np.ones(4))
  _refuses(ValueError, r"householder_product\(\)", linalg.householder_product, EYE, np.ones(()))
  _refuses(ValueError, r"householder_product\(\)", linalg.householder_product, ONES, ONES)
  _refuses(ValueError, r"to ormqr\(\): a \(3, 3\), taus \(4,\)", linalg.ormqr, EYE, np.ones(4), EYE)
  _refuses(
      ValueError, r"taus \(3,\) and c \(3, 2\)", linalg.ormqr, EYE, ONES, np.ones((3, 2)),
      left=False)
  for pivots, size in ((PIVOTS, 2), (PIVOTS[:0], -1)):
    _refuses(
        ValueError, f"the number of pivots, {len(pivots)}, got {size}",
        linalg.lu_pivots_to_permutation, pivots, size)
  _refuses(ValueError, "must be integers", linalg.lu_pivots_to_permutation, ONES, 3)
  _refuses(ValueError, "must be integers", linalg.lu_pivots_to_permutation, np.int32(1), 3)


def test_batches_that_do_not_broadcast():
  two, three = np.stack([EYE] * 2), np.stack([EYE] * 3)
  _refuses(ValueError, r"Incompatible.*ormqr\(\): a \(2", linalg.ormqr, two, np.ones((2, 3)), three)
  _refuses(
      ValueError, r"Incompatible.*cholesky_update\(\): r \(2", linalg.cholesky_update, two,
      three[0])
  for function, operands in (
      (linalg.scipy.solve_sylvester, (two, two, three)),
      (linalg.scipy.solve_continuous_lyapunov, (two, three)),
      (linalg.scipy.solve_discrete_lyapunov, (two, three)),
      (linalg.scipy.solve_continuous_are, (two, two, two, three)),
      (linalg.scipy.solve_discrete_are, (two, two, two, three)),
      (linalg.scipy.expm_frechet, (two, three))):
    _refuses(ValueError, rf"Incompatible.*{function.__name__}\(\)", function, *operands)


def test_names_of_options():
  """The message names the function and the option, and lists what it takes."""
  for function in (linalg.eigh, linalg.eigh_ex, linalg.eigvalsh):
    for uplo in ("X", "l", ""):
      message = f"{function.__name__}: UPLO must be one of None, 'L', or 'U', got {uplo!r}"
      _refuses(ValueError, message, function, EYE, uplo)
  _refuses(ValueError, "qr: mode must be 'reduced', .* got 'x'", linalg.qr, EYE, "x")
  _refuses(ValueError, "pivoting=True .* 'raw'", linalg.qr, EYE, "raw", pivoting=True)
  _refuses(
      ValueError, "slogdet: method must be None, 'lu' or 'qr', got 'x'", linalg.slogdet, EYE,
      method="x")
  for trans in ("X", 3, "n"):
    _refuses(
        ValueError, f"solve_triangular: trans must be .* got {trans!r}", linalg.solve_triangular,
        EYE, ONES, trans)
  for trans in (3, -1, "N"):
    _refuses(
        ValueError, f"lu_solve: trans must be 0, 1 or 2, got {trans!r}", linalg.lu_solve,
        (EYE, PIVOTS), ONES, trans)


def test_options_of_decompositions():
  _refuses(ValueError, "schur: output must be 'real' or 'complex'", linalg.schur, EYE, "x")
  rectangle = np.ones((3, 2))
  _refuses(ValueError, "must be square", linalg.svd, rectangle, hermitian=True)
  _refuses(
      ValueError, "subset_by_index needs full_matrices=False", linalg.svd, EYE,
      subset_by_index=(0, 2))
  for subset in ((-1, 2), (2, 1), (0, 4)):
    _refuses(
        ValueError, r"subset_by_index must be \(start, stop\) with 0 <= start <= stop <= 3",
        linalg.svd, EYE, full_matrices=False, subset_by_index=subset)
  _refuses(ValueError, "type must be 1, 2 or 3", linalg.eigh_generalized, EYE, EYE, type=4)
  _refuses(ValueError, "Incompatible shapes", linalg.eigh_generalized, EYE, np.eye(2))
  _refuses(ValueError, r"T must have shape \[\.\.\., n, n\]", linalg.rsf2csf, rectangle, EYE)
  _refuses(ValueError, r"Z must have shape \[\.\.\., n, n\]", linalg.rsf2csf, EYE, rectangle)
  _refuses(ValueError, "T and Z must have the same n", linalg.rsf2csf, EYE, np.eye(2))


def test_options_of_eigh_tridiagonal():
  refuses = lambda kind, message, *operands, **options: _refuses(
      kind, message, linalg.eigh_tridiagonal, *operands, **options)
  refuses(ValueError, r"shapes \[\.\.\., n\] and \[\.\.\., n - 1\]", ONES, ONES)
  refuses(TypeError, "d and e must have the same dtype", ONES, ONES[1:].astype(np.float32))
  refuses(TypeError, "must have a floating or complex dtype", PIVOTS, PIVOTS[1:])
  refuses(ValueError, "select must be 'a' or 'i', got 'x'", ONES, ONES[1:], select="x")
  refuses(ValueError, "first <= last", ONES, ONES[1:], select="i", select_range=(2, 1))
  refuses(NotImplementedError, "depends on its values", ONES, ONES[1:], select="v")


LIST = [[1.0, 0.0], [0.0, 1.0]]


# Functions after jax.scipy.linalg, which takes lists.
OF_LISTS = {
    "cho_factor", "cho_solve", "expm", "hessenberg", "lu_factor", "lu_solve", "polar", "schur",
    "solve_triangular", "sqrtm"}


@pytest.mark.parametrize("name", [x for x in ONE_MATRIX + ANY_MATRIX if x not in OF_LISTS])
def test_lists(name):
  """jax.numpy takes no lists, because each element would be a separate argument to the compiler."""
  for operand in (LIST, None):
    _refuses(
        TypeError,
        f"{name} requires ndarray or scalar arguments, got {type(operand)} at position 0",
        getattr(linalg, name), operand)


@pytest.mark.parametrize("name", ["solve", "solve_ex", "triangular_solve", "householder_product"])
def test_lists_in_either_place(name):
  call = SOLVES.get(name, linalg.householder_product)
  for place, operands in enumerate([(LIST, np.eye(2)), (np.eye(2), LIST)]):
    message = f"{name} requires ndarray or scalar arguments.*at position {place}"
    _refuses(TypeError, message, call, *operands)


@pytest.mark.parametrize("name", sorted(OF_LISTS - {"cho_solve", "lu_solve", "solve_triangular"}))
def test_lists_of_one_matrix(name):
  function = getattr(linalg, name)
  for x, y in zip(jax.tree.leaves(function(LIST)), jax.tree.leaves(function(np.array(LIST)))):
    np.testing.assert_array_equal(x, y)
  with pytest.raises((TypeError, ValueError)):
    function([["a"]])


@pytest.mark.parametrize("maker, name", [("cho_factor", "cho_solve"), ("lu_factor", "lu_solve")])
def test_lists_of_factors(maker, name):
  function, factors = getattr(linalg, name), getattr(linalg, maker)(np.eye(2))
  np.testing.assert_array_equal(function(factors, b=LIST), np.eye(2))
  message = f"{name} takes .* that {maker} returns, got <class 'list'> and "
  _refuses(TypeError, message, function, (LIST, factors[1]), np.eye(2))


def test_lists_of_pivots():
  """Catches an AttributeError from inside the function."""
  message = "requires ndarray or scalar arguments"
  _refuses(TypeError, message, linalg.lu_pivots_to_permutation, [0, 1, 2], 3)
  _refuses(
      TypeError, "the two values that lu_factor returns", linalg.lu_solve, (EYE, [0, 1, 2]), ONES)


def test_dtypes():
  """Dtypes without a LAPACK routine, or without a dtype to compute in, raise an error before
  compilation."""
  for operand in (np.array([["a"]]), np.array([[None]], dtype=object)):
    _refuses(TypeError, ".", linalg.cholesky, operand)
  key = jax.random.split(jax.random.key(0), (2, 2))
  with pytest.raises((TypeError, ValueError)):
    linalg.cholesky(key)
  with pytest.raises((TypeError, ValueError)):
    linalg.lu_solve((EYE, PIVOTS + 0.5), ONES)


def test_dynamic_options():
  """A traced option is JAX's error, not a wrong answer."""
  with pytest.raises((TypeError, ValueError, jax.errors.TracerBoolConversionError)):
    jax.jit(lambda flag: linalg.cholesky(EYE, upper=flag))(jnp.asarray(True))
