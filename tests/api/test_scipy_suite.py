"""SciPy's own tests of scipy.linalg, from its wheel, run on linalg.scipy.

Copies of SciPy's test modules are loaded with the functions of `linalg.scipy` in the place of
SciPy's. The replacements take SciPy's arguments and return NumPy arrays. They raise LinAlgError
where a function of this package raises ValueError, or returns NaN for finite operands. They raise
ValueError where `check_finite` finds NaN or infinity. They drop options that say how SciPy computes
where ours has none, and give functions of JAX for those of NumPy.
"""

import fnmatch
import functools
import importlib.util
import inspect
import pathlib
import types
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from scipy._lib._array_api import xp_capabilities_table

import linalg.scipy

pytest.importorskip(
    "scipy.linalg.tests", reason="this installation of SciPy is without its tests")

pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("standard_promotion")]

# test_blas, test_fblas, test_lapack, test_cython_blas, test_cython_lapack and test_extending are
# about SciPy's BLAS and LAPACK, and test_interpolative about a module that has no namesake here.
FILES = (
    "basic", "batch", "cythonized_array_utils", "decomp", "decomp_cholesky", "decomp_cossin",
    "decomp_ldl", "decomp_lu", "decomp_polar", "decomp_update", "matfuncs", "matmul_toeplitz",
    "procrustes", "sketches", "solve_toeplitz", "solvers", "special_matrices")

# Functions that refuse NaN and infinity, and have no option for it.
CHECKS = ("matrix_balance",)
# Functions whose NaN is a result in SciPy, too.
RETURNS_NAN = ("fractional_matrix_power", "logm", "norm", "sqrtm")


# Tests that are not run, by file and name.
FOREIGN = {
    "*.test_non_native_byte_order*": "operands of foreign byte order",
    "*.test_overwrite*": "which operands are overwritten",
    "*.TestOverwrite*": "which operands are overwritten",
    "decomp_update.*_strides_*": "which operands are overwritten, by their strides",
    "decomp_update.TestQR*_[fFD].*": "the tests of float64, with other dtypes",
    "decomp.test_orth_memory_efficiency": "memory",
    "decomp.test_svd_gesdd_nofegfault": "a large matrix, whose factors take minutes",
    "decomp_ldl.test_permutations": "many sizes, whose programs take minutes to compile",
    "decomp.TestEigh.test_value_subsets": "many sizes, whose programs take minutes to compile",
}

_WARNING = "a warning about values, which a program that is being traced does not have"
_TEXT = "the text or the type of the error"
_DTYPE = "float16, float32 and other dtypes that SciPy refuses or widens"
_SPARSE = "sparse matrices"
_JAX = "parameters, or operands, of the namesake in jax.scipy.linalg"
_TRACED = "an argument that is an option, or a function that is traced"
_COMPLEX = "always complex, since a compiled program cannot choose"
_ZERO = "a zero, where SciPy has a rounding error"
_EMPTY = "the shape or the error of a result without entries"


class _ByTest(dict):
  """Reasons by the names of tests, without parameters."""

  def get(self, name, default=None):
    return super().get(name.partition("[")[0], default)


# A test that must fail -> why.
DEVIATIONS = _ByTest({
    "TestBasicDet::test_1by1_stacked_input_output": _DTYPE,
    "TestBasicDet::test_1x1_all_singleton_dims": _DTYPE,
    "TestBasicDet::test_empty_edge_cases": _TEXT,
    "TestBasicDet::test_incompatible_dtype_input": _TEXT,
    "TestBasicDet::test_sample_compatible_dtype_input": _DTYPE,
    "TestBasicInv::test_diagonal": _WARNING,
    "TestBasicInv::test_ill_cond": _WARNING,
    "TestBasicInv::test_wrong_assume_a": _TEXT,
    "TestBasicMatrix_Balance::test_string_arg": _TEXT,
    "TestBasicSolve::test_diagonal": _WARNING,
    "TestBasicSolve::test_ill_condition_warning": _WARNING,
    "TestBasicSolve::test_scalar_a_and_1D_b": "a scalar in the place of a matrix",
    "TestBasicSolve::test_tridiagonal": _WARNING,
    "TestBatchBatch::test_clarkson_woodruff_transform_sparse": _SPARSE,
    "TestBatchBatch::test_matrix_balance": "a tuple of arrays, which SciPy joins for a batch",
    "TestBatchBatch::test_qr_delete": _TRACED,
    "TestBatchBatch::test_qr_insert": _TRACED,
    "TestBatchBatch::test_sylvester": _JAX,
    "TestBatchBatch::test_zero_size_batch": _EMPTY,
    "TestDecompEig::test_falker": "a pair whose real parts differ by rounding, in another order",
    "TestDecompEig::test_make_eigvals":
        "a pair whose real parts differ by rounding, in another order",
    "TestDecompEigBanded::test_empty": _EMPTY,
    "TestDecompEigTridiagonal::test_degenerate": "complex elements, which SciPy refuses",
    "TestDecompEigh::test_eigh_of_sparse": _SPARSE,
    "TestDecompHessenberg::test_2x2": "a real subdiagonal, also of a complex matrix of order 2",
    "TestDecompOrdQZ::test_cef": _TRACED,
    "TestDecompOrdQZ::test_ref": _TRACED,
    "TestDecompQR::test_multiply_empty": _EMPTY,
    "TestDecompQR::test_simple_tall_complex_left": "overwrite_c=, which changes the shape of c",
    "TestDecompQR::test_simple_tall_left": "overwrite_c=, which changes the shape of c",
    "TestDecompUpdateQRdelete_d::test_unsupported_dtypes": _DTYPE,
    "TestDecompUpdateQRinsert_d::test_economic_1_col_bad_update":
        "a column in the span of Q has factors",
    "TestDecompUpdateQRinsert_d::test_unsupported_dtypes": _DTYPE,
    "TestDecompUpdateQRupdate_d::test_integer_input": _DTYPE,
    "TestDecompUpdateQRupdate_d::test_unsupported_dtypes": _DTYPE,
    "TestMatfuncsExpM::test_single_elt": _JAX,
    "TestMatfuncsFractionalMatrixPower::test_type_preservation_and_conversion": _COMPLEX,
    "TestMatfuncsLogM::test_exactly_singular": "NaN for a singular matrix, without a warning",
    "TestMatfuncsLogM::test_logm_type_preservation_and_conversion": _COMPLEX,
    "TestMatfuncsSqrtM::test_data_size_preservation_float_in_float_out": _COMPLEX,
    "TestMatfuncsSqrtM::test_data_size_preservation_int_in_comp_out":
        "complex64 for integers of 32 bits or fewer",
    "TestMatfuncsSqrtM::test_data_size_preservation_int_in_float_out": _COMPLEX,
    "TestMatfuncsSqrtM::test_data_size_preservation_uint_in_float_out": _COMPLEX,
    "TestMatfuncsSqrtM::test_gh17918": _COMPLEX,
    "TestMatfuncsSqrtM::test_sqrtm_type_preservation_and_conversion": _COMPLEX,
    "TestMatfuncsSqrtM::test_strict_upper_triangular":
        "NaN in all of a matrix without a square root",
    "TestSketchesClarksonWoodruffTransform::test_seed_returns_identically": _SPARSE,
    "TestSketchesClarksonWoodruffTransform::test_sketch_dimensions": _SPARSE,
    "TestSketchesClarksonWoodruffTransform::test_sketch_preserves_frobenius_norm": _SPARSE,
    "TestSpecialMatricesCompanion::test_bad_shapes": _JAX,
    "TestSpecialMatricesInvHilbert::test_basic": _JAX,
    "TestSpecialMatricesInvHilbert::test_inverse": _JAX,
    "TestDecompLuLU::test_empty_edge_cases": _EMPTY,
    "TestDecompLuLUFactor::test_hrectangular": _ZERO,
    "TestDecompLuLUFactor::test_hrectangular_complex": _ZERO,
    "TestDecompLuLUSolve::test_empty": "pivots that are not integers, which JAX refuses",
    "TestMatfuncsLogM::test_nearly_singular": _WARNING,
    "TestMatfuncsLogM::test_no_ZeroDivisionError": _WARNING,
    "TestSpecialMatricesPascal::test_big": _JAX,
    "TestSpecialMatricesPascal::test_cases": _JAX,
    "TestSpecialMatricesPascal::test_threshold": _JAX,
    "test_cythonized_array_utils_bandwidth_dtypes": _DTYPE,
    "test_cythonized_array_utils_issymetric_ishermitian_dtypes": _DTYPE,
    "test_decomp_cossin_cossin_error_empty_subblocks": _TEXT,
    "test_decomp_cossin_cossin_error_incorrect_subblocks": _TEXT,
    "test_decomp_cossin_cossin_error_invalid_shape": _TEXT,
    "test_decomp_cossin_cossin_error_missing_partitioning": _TEXT,
    "test_decomp_cossin_cossin_error_non_iterable": _TEXT,
    "test_decomp_cossin_cossin_error_non_square": _TEXT,
    "test_decomp_cossin_cossin_error_partitioning": _TEXT,
    "test_decomp_cossin_cossin_separate": "signs and phases of pairs of columns, which are free",
    "test_decomp_ldl_args": _WARNING,
    "test_matfuncs_blocksize_dep": "an option that SciPy deprecates",
    "test_matfuncs_disp_dep": "an option that SciPy deprecates",
    "TestSolversSolveContinuousAre::test_solve_continuous_are":
        "NaN where eigenvalues of the closed loop are within √eps of the imaginary axis",
    "test_special_matrices_fiedler_companion": _JAX,
    "test_special_matrices_invpascal": _JAX,
    "test_decomp_gesdd_nan_error_message": "NaN without check_finite, which gives NaN",
})
# Tests that may pass: their matrices are random, without a seed, or rounding decides.
VARIES = (
    "TestDecompEig::test_make_eigvals",
    "TestSolversSolveContinuousAre::test_solve_continuous_are[10-case10]")
# conftest.py runs the middle one of each test's values of parameters: all take an hour.
ONE_OF_EACH = True

# Options of SciPy that change no result.
HOW = {"check_finite", "driver", "lapack_driver", "overwrite_a", "overwrite_b"}


# SciPy computes in these for dtypes that LAPACK lacks, and JAX too.
NEAREST = {np.dtype(np.longdouble): np.float64, np.dtype(np.clongdouble): np.complex128}


def _of_jax(x):
  if isinstance(x, np.ufunc):
    return getattr(jnp, x.__name__)
  return x.astype(NEAREST[x.dtype]) if getattr(x, "dtype", None) in NEAREST else x


def _numbers(x: Any) -> bool:
  return isinstance(x, (np.ndarray, np.generic)) and np.issubdtype(x.dtype, np.inexact)


def _has(test, values) -> bool:
  return any(test(x).any() for x in jax.tree.leaves(values) if _numbers(x) and np.ndim(x))


def _is_list_of_numbers(x) -> bool:
  return isinstance(x, list) and not any(hasattr(y, "dtype") for y in jax.tree.leaves(x))


def _to_numpy(x):
  if not isinstance(x, jax.Array):
    return x
  return np.array(x)[()]


def _wrap(name):
  function, original = getattr(linalg.scipy, name), getattr(scipy.linalg, name)

  checks = name in CHECKS or "check_finite" in inspect.signature(original).parameters
  known = inspect.signature(inspect.unwrap(function)).parameters

  @functools.wraps(original)
  def wrapper(*args, **kwargs):
    numbers = jax.tree.map(np.asarray, (args, kwargs), is_leaf=_is_list_of_numbers)
    infinite = checks and _has(lambda x: ~np.isfinite(x), numbers)
    if infinite and kwargs.get("check_finite", True):
      raise ValueError("array must not contain infs or NaNs")
    kwargs = {x: y for x, y in kwargs.items() if x in known or x not in HOW}
    if function.__module__.startswith("jax."):  # JAX's own functions take no lists
      as_array = lambda x: np.asarray(x) if isinstance(x, (list, tuple)) else x
      args = list(map(as_array, args))
      kwargs = {x: as_array(y) for x, y in kwargs.items()}
    args, kwargs = jax.tree.map(_of_jax, (args, kwargs))
    try:
      results = jax.tree.map(_to_numpy, function(*args, **kwargs))
    except ValueError as error:
      raise np.linalg.LinAlgError(str(error)) from error
    if name not in RETURNS_NAN and _has(np.isnan, results) and not _has(np.isnan, numbers):
      raise np.linalg.LinAlgError(f"{name}() gives NaN: the matrix is singular, or has no factor")
    return results

  return wrapper


WRAPPERS = {
    name: _wrap(name) for name in linalg.scipy.__all__ if hasattr(scipy.linalg, name)}


class _Proxy:
  """A module with other values for some names."""

  def __init__(self, module, **others):
    self.__dict__.update(others)
    self._module = module

  def __getattr__(self, name):
    return getattr(self._module, name)


_LINALG = _Proxy(scipy.linalg, **WRAPPERS)
_SCIPY = _Proxy(scipy, linalg=_LINALG)


def _load(name: str) -> types.ModuleType:
  """SciPy's test module with our functions: those it imports, and those in its parameters."""
  path = pathlib.Path(scipy.linalg.__file__).parent / "tests" / f"test_{name}.py"
  spec = importlib.util.spec_from_file_location(f"scipy.linalg.tests.of_{name}", path)
  module = importlib.util.module_from_spec(spec)
  originals = {x: getattr(scipy.linalg, x) for x in WRAPPERS}
  try:
    for x, wrapper in WRAPPERS.items():
      setattr(scipy.linalg, x, wrapper)
      if originals[x] in xp_capabilities_table:  # SciPy's decorators look functions up there
        xp_capabilities_table[wrapper] = xp_capabilities_table[originals[x]]
    with warnings.catch_warnings():
      warnings.simplefilter("ignore", pytest.PytestUnknownMarkWarning)
      spec.loader.exec_module(module)
  finally:
    for x, original in originals.items():
      setattr(scipy.linalg, x, original)
  for x, value in list(vars(module).items()):
    if value is scipy.linalg:
      setattr(module, x, _LINALG)
    elif value is scipy:
      setattr(module, x, _SCIPY)
    elif x in originals and originals[x] is value:
      setattr(module, x, WRAPPERS[x])
  return module


@pytest.fixture
def xp():
  """SciPy's tests for several array libraries, with NumPy."""
  return np


def _is_left_out(name: str, test) -> bool:
  """Whether SciPy itself runs it only on demand, or FOREIGN has it."""
  slow = any(mark.name == "xslow" for mark in getattr(test, "pytestmark", []))
  return slow or any(fnmatch.fnmatchcase(name, x) for x in FOREIGN)


for _file in FILES:
  _title = _file.title().replace("_", "")
  for _name, _test in list(vars(_load(_file)).items()):
    if isinstance(_test, type) and _name.startswith("Test"):
      for _method in dir(_test):
        if _method.startswith("test") and _is_left_out(
            f"{_file}.{_name}.{_method}", getattr(_test, _method)):
          setattr(_test, _method, None)
      globals()[f"Test{_title}{_name[4:]}"] = _test
    elif _name.startswith("test_") and not _is_left_out(f"{_file}.{_name}", _test):
      globals()[f"test_{_file}{_name[4:]}"] = _test
