"""NumPy's own tests of numpy.linalg, from its wheel, run on this package.

A copy of NumPy's test module is loaded with `np.linalg`, `linalg` and the imported names replaced.
The replacements take NumPy's arguments and return NumPy arrays, or the operand's subclass. They
raise LinAlgError where this package raises ValueError or returns NaN. Single precision is compared
with 5 decimals instead of 6, because residuals are a few units of the sixth.
"""

import functools
import importlib.util
import types

import jax
import numpy as np
import numpy.linalg.tests.test_linalg as original
import pytest

import linalg

# Operands are lists, and mix dtypes of all kinds.
pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("standard_promotion")]

# Features of NumPy only: its C implementation, memory and threads, array subclasses, and dtypes
# that JAX lacks.
FOREIGN = {
    "TestMultiDot.test_three_arguments_and_out": "out=",
    "TestMultiDot.test_two_arguments_and_out": "out=",
    "TestMultiDot.test_dynamic_programming_optimization_and_out": "out=",
    "TestMultiDot.test_dynamic_programming_logic": "a private function of NumPy's",
    "TestMatrixPower.test_large_power": "a power of 2^100, whose products XLA compiles for minutes",
    "TestLstsq.test_rcond": "a rank of 3 that the rounding of NumPy's LAPACK makes 4",
    "test_byteorder_check": "operands of foreign byte order",
    "test_generalized_raise_multiloop": "floating-point flags and views of memory",
    "test_xerbla_override": "NumPy's own LAPACK",
    "test_sdot_bug_8577": "NumPy's own BLAS",
    "test_unsupported_commontype": "float128",
    "test_blas64_dot": "NumPy's own BLAS",
    "test_blas64_geqrf_lwork_smoketest": "NumPy's own LAPACK",
}

_DTYPE = "a dtype that JAX lacks"
_COMPLEX = "eigenvalues of general matrices are complex, whatever they are, as in jax.numpy.linalg"
_TEXT = "the text of the error"
_AXIS = "a ValueError, where NumPy has a subclass of it"

# XLA compiles hundreds of shapes here one by one. values/test_norms.py::test_against_numpy covers
# the same cases.
FOREIGN |= {
    f"TestNorm{kind}.test_{name}": "minutes of compilation"
    for kind in ("Double", "Single", "Int64") for name in ("axis", "keepdims")}

# A test that must fail -> why. jax.numpy.linalg deviates from NumPy in the same way.
DEVIATIONS: dict[str, str] = {
    "test_pinv_rtol_arg": _TEXT,
    "test_matrix_transpose": _TEXT,
    "TestMatrixRank::test_matrix_rank": _TEXT,
    "TestLstsq::test_incompatible_dims": _TEXT,
    "TestEigvalsh::test_UPLO": "UPLO is 'L' or 'U', as in jax.numpy.linalg",
    "TestEigh::test_UPLO": "UPLO is 'L' or 'U', as in jax.numpy.linalg",
    **{f"TestMatrixPower::test_exceptions_non_square[dt{i}]":
       "a TypeError, as in jax.numpy.linalg" for i in range(17)},
    **{f"TestMatrixPower::test_power_is_{power}[dt{i}]": _DTYPE
       for power in ("zero", "one", "two") for i in (12, 15, 16)},
    "TestNorm_NonSystematic::test_longdouble_norm": _DTYPE,
    "TestNorm_NonSystematic::test_complex_high_ord": _DTYPE,
    **{f"TestNorm{kind}::test_vector_return_type": _DTYPE
       for kind in ("Double", "Single", "Int64")},
    **{f"TestNorm{kind}::test_bad_args": _AXIS for kind in ("Double", "Single", "Int64")},
}

if np.lib.NumpyVersion(np.__version__) < "2.5.0":  # NumPy 2.5.0 does this itself
  DEVIATIONS |= {
      f"Test{kind}::test_{name}": _COMPLEX
      for kind in ("Eig", "Eigvals") for name in ("types[float32]", "types[float64]", "0_size")}

# NumPy accepts lists as arrays and JAX does not. This converts the first operand, and for these
# functions also the second.
BOTH = ("cross", "lstsq", "matmul", "outer", "solve", "tensordot", "tensorsolve", "vecdot")
# A failure is NaN here and an exception in NumPy.
RAISES = ("cholesky", "inv", "solve", "matrix_power", "tensorinv", "tensorsolve", "eigh")
# These also raise where the operand has NaN or infinity.
RAISES_FOR_NAN = ("lstsq", "pinv", "svd", "svdvals")


def _has_nan(arrays):
  return any(np.isnan(x).any() for x in jax.tree.leaves(arrays))


def _to_numpy(subclass, x):
  return np.array(x)[()] if x.ndim == 0 else np.array(x).view(subclass)


def _wrap(name):
  function = getattr(linalg, name)

  @functools.wraps(function)
  def wrapper(*args, **kwargs):
    operands = [
        np.asanyarray(x) if isinstance(x, list) and (i == 0 or name in BOTH) else x
        for i, x in enumerate(args)] if name != "multi_dot" else list(args)
    if name == "lstsq":
      kwargs = {"numpy_resid": True} | kwargs
    options = {
        key: tuple(x) if isinstance(x, list) else np.asarray(x) if isinstance(x, np.ndarray) else x
        for key, x in kwargs.items()}
    try:
      results = function(*operands, **options)
    except ValueError as error:
      raise np.linalg.LinAlgError(str(error)) from error
    types_of = [type(x) for x in operands if isinstance(x, np.ndarray)]
    subclass = next((x for x in types_of if x is not np.ndarray), np.ndarray)
    results = jax.tree.map(functools.partial(_to_numpy, subclass), results)
    if name in RAISES + RAISES_FOR_NAN and _has_nan(results) and (
        name in RAISES_FOR_NAN or not _has_nan(operands)):
      raise np.linalg.LinAlgError(name)
    return results

  return wrapper


class _Linalg:
  """numpy.linalg with this package's functions."""

  LinAlgError = np.linalg.LinAlgError

  def __getattr__(self, name):
    if name in linalg.__all__:
      return _wrap(name)
    return getattr(np.linalg, name)


class _NumPy:
  linalg = _Linalg()

  def __getattr__(self, name):
    return getattr(np, name)


def _load() -> types.ModuleType:
  spec = importlib.util.spec_from_file_location("numpy_linalg_tests", original.__file__)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  shim = _NumPy()
  module.np, module.linalg = shim, shim.linalg
  module.assert_almost_equal = functools.partial(module.assert_almost_equal, single_decimal=5)
  for name in ("matrix_power", "matrix_rank", "multi_dot", "norm"):
    setattr(module, name, getattr(shim.linalg, name))
  return module


_module = _load()
for _name, _test in vars(_module).items():
  if _name in FOREIGN:
    continue
  if _name.startswith("test_") or (_name.startswith("Test") and isinstance(_test, type)):
    for _method in dir(_test):
      if f"{_name}.{_method}" in FOREIGN:
        setattr(_test, _method, None)
    globals()[_name] = _test
del _name, _test
