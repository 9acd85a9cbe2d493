"""Handlers called with operands and results that they cannot take: an error, and never a crash.

`jax.ffi.ffi_call` goes past every check in Python. The error names the target and the operand.
"""

import functools

import jax
import numpy as np
import pytest

F64, F32, C128, I32 = np.float64, np.float32, np.complex128, np.int32
B, N, K = 3, 4, 2

# target: (operands, results, attributes) of a good call, as (shape, dtype)
MATRIX, VECTOR, SCALAR, INFO = ((B, N, N), F64), ((B, N), F64), ((B,), F64), ((B,), I32)
COMPLEX_MATRIX, COMPLEX_VECTOR, BESIDE = ((B, N, N), C128), ((B, N), C128), ((B, N - 1), F64)
COLUMNS, INDICES = ((B, N, K), F64), ((B, N), I32)
FLAGS = {"lower": True, "symmetrize": True}
TRIANGULAR = dict.fromkeys(("lower", "transpose_a", "conjugate_a", "unit_diagonal"), False)
CALLS = {
    "cholesky": ([MATRIX], [MATRIX, INFO], FLAGS),
    "cholesky_solve": ([MATRIX, COLUMNS], [COLUMNS], {"lower": True}),
    "det": ([MATRIX], [SCALAR], {}),
    "eig": ([MATRIX], [COMPLEX_VECTOR, COMPLEX_MATRIX, INFO], {}),
    "eig_left": ([MATRIX], [COMPLEX_VECTOR, COMPLEX_MATRIX, COMPLEX_MATRIX, INFO], {}),
    "eigh": ([MATRIX], [VECTOR, MATRIX, INFO], FLAGS),
    "eigh_tridiagonal": ([VECTOR, BESIDE], [VECTOR, MATRIX, INFO], {}),
    "eigvals": ([MATRIX], [COMPLEX_VECTOR, INFO], {}),
    "eigvalsh": ([MATRIX], [VECTOR, INFO], FLAGS),
    "eigvalsh_tridiagonal": ([VECTOR, BESIDE], [VECTOR, INFO], {}),
    "hessenberg": ([MATRIX], [MATRIX, MATRIX], {}),
    "hessenberg_h": ([MATRIX], [MATRIX], {}),
    "householder_product": ([MATRIX, VECTOR], [MATRIX], {}),
    "householder_qr": ([MATRIX], [MATRIX, VECTOR], {}),
    "inv": ([MATRIX], [MATRIX, INFO], {}),
    "lu": ([MATRIX], [MATRIX, INDICES, INDICES, INFO], {}),
    "lu_pivots_to_permutation": ([INDICES], [INDICES], {"permutation_size": np.int64(N)}),
    "lu_solve": (
        [MATRIX, INDICES, COLUMNS], [COLUMNS], {"transpose": False, "conjugate": False}),
    "qr": ([MATRIX], [MATRIX, MATRIX], {}),
    "qr_pivoted": ([MATRIX], [MATRIX, MATRIX, INDICES], {}),
    "qr_r": ([MATRIX], [MATRIX], {}),
    "schur": ([MATRIX], [MATRIX, MATRIX, INFO], {}),
    "slogdet": ([MATRIX], [SCALAR, SCALAR], {}),
    "svd": ([MATRIX], [MATRIX, VECTOR, MATRIX, INFO], {}),
    "svdvals": ([MATRIX], [VECTOR, INFO], {}),
    "triangular_solve": ([MATRIX, COLUMNS], [COLUMNS], TRIANGULAR | {"left_side": True}),
}
TARGETS = pytest.mark.parametrize("target", CALLS)


def _compile(target, operands, results, attributes):
  types = [jax.ShapeDtypeStruct(*operand) for operand in operands]
  results = [jax.ShapeDtypeStruct(*result) for result in results]
  function = lambda *x: jax.ffi.ffi_call(f"linalg_{target}", results)(*x, **attributes)
  return jax.jit(function).lower(*types).compile()


def _run(compiled, operands):
  values = [
      (np.broadcast_to(np.eye(*shape[-2:]), shape) if len(shape) > 1 else
      np.ones(shape)).astype(dtype) for shape, dtype in operands]
  return jax.block_until_ready(compiled(*values))


def _call(target, operands, results, attributes):
  return _run(_compile(target, operands, results, attributes), operands)


_compile_good = functools.cache(lambda target: _compile(target, *CALLS[target]))


def _good_call(target):
  return _run(_compile_good(target), CALLS[target][0])


def _refuses(target, operands, results, attributes, names=""):
  """The call fails with an error of the handler that names the target and what is wrong."""
  with pytest.raises(Exception) as refused:  # noqa: B017, JAX's own class
    _call(target, operands, results, attributes)
  message = str(refused.value)
  assert "INVALID_ARGUMENT" in message and f"linalg_{target}" in message, message
  assert names in message, message
  _good_call(target)  # the process is well


def _bad(shape, dtype):
  """What may be wrong about an operand or a result."""
  yield "int8", (shape, np.int8)
  yield "float16", (shape, np.float16)
  yield "other dtype", (shape, I32 if dtype == F64 else F64)
  yield "scalar", ((), dtype)
  yield "longer", ((*shape[:-1], shape[-1] + 1), dtype)
  yield "other batch", ((B + 1, *shape[1:]), dtype)


@TARGETS
def test_good_call(target):
  """The calls that the others spoil."""
  _good_call(target)


@TARGETS
def test_bad_operands(target):
  """Catches an operand that is read beyond its end, or as another type."""
  operands, results, attributes = CALLS[target]
  for i, operand in enumerate(operands):
    for what, bad in _bad(*operand):
      if target == "svdvals" and what == "longer":
        continue  # a matrix of one more column has as many singular values
      _refuses(target, [*operands[:i], bad, *operands[i + 1 :]], results, attributes)


@TARGETS
def test_bad_results(target):
  """Catches a result that is written beyond its end, or as another type."""
  operands, results, attributes = CALLS[target]
  for i, result in enumerate(results):
    for what, bad in _bad(*result):
      if target.startswith("lu_pivots") and what == "longer":
        continue  # a longer permutation is another good call
      _refuses(target, operands, [*results[:i], bad, *results[i + 1 :]], attributes)


@TARGETS
def test_bad_dtype_of_operands(target):
  """The error for a dtype that LAPACK does not compute in names the operand and the dtypes."""
  operands, results, attributes = CALLS[target]
  for bad in (np.int8, I32 if operands[0][1] == F64 else F64, np.float16):
    spoilt = [((shape), bad) for shape, _ in operands]
    _refuses(target, spoilt, results, attributes, names="must")


@TARGETS
def test_mixed_precision(target):
  """Catches results whose dtype does not follow from the operands' taken as if it did."""
  operands, results, attributes = CALLS[target]
  if operands[0][1] != F64:
    return _refuses(target, [(operands[0][0], F32)], results, attributes)
  # A complex matrix has real eigenvalues if it is Hermitian, and a real one complex eigenvalues
  # otherwise: these are no mixtures.
  fitting = ("eig", "eig_left", "eigvals", "eigvalsh", "svdvals")
  for other in (F32,) if target in fitting else (F32, C128):
    _refuses(target, [(operands[0][0], other), *operands[1:]], results, attributes)


@TARGETS
def test_missing_attributes(target):
  """Catches an attribute that is read as false when it is not there, or not of its type.

  The message is XLA's.
  """
  operands, results, attributes = CALLS[target]
  for name in attributes:
    if name == "permutation_size":
      continue  # the handler reads it from the result's shape
    rest = {key: value for key, value in attributes.items() if key != name}
    for spoilt in (rest, rest | {name: 1.5}):
      with pytest.raises(Exception, match="attribute|expected PRED"):
        _call(target, operands, results, spoilt)


@pytest.mark.parametrize("target", ["cholesky", "cholesky_solve", "det", "eig", "eig_left", "eigh",
                                    "eigvals", "eigvalsh", "hessenberg", "hessenberg_h", "inv",
                                    "lu_solve", "schur", "slogdet", "triangular_solve"])
def test_not_square(target):
  """Catches a matrix of m by n elements taken for one of n by n."""
  operands, results, attributes = CALLS[target]
  _refuses(target, [((B, 2, 8), F64), *operands[1:]], results, attributes, names="square")


def test_householder_product_of_a_wide_matrix():
  """Catches LAPACK's own check, which ends the process, left to LAPACK."""
  for a, taus in (((2, 4), (2,)), ((4, 2), (3,))):
    _refuses("householder_product", [(a, F64), (taus, F64)], [(a, F64)], {}, names="a must")


def test_permutation_shorter_than_its_pivots():
  """Catches exchanges beyond the end of the permutation."""
  _refuses(
      "lu_pivots_to_permutation", [((3, 5), I32)], [((3, 4), I32)], {}, names="permutation_size")


def test_pivots_out_of_range():
  """Pivots are data: catches ones that make a handler write where it may not."""
  import linalg

  pivots = np.array([[-1, 2**31 - 1, 100, -(2**31)]], np.int32)
  np.testing.assert_array_equal(linalg.lu_pivots_to_permutation(pivots, 4), [[0, 1, 2, 3]])
  x = linalg.lu_solve((np.eye(4)[None], pivots), np.arange(4.0)[None, :, None])
  np.testing.assert_array_equal(x[0, :, 0], np.arange(4.0))
