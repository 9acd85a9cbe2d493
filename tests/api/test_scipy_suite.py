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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

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

# Functions whose NaN is a result in SciPy, too.
RETURNS_NAN = ("fractional_matrix_power", "logm", "norm", "sqrtm")


# Tests that are not run, by file and name: they are about the memory of NumPy's arrays, or about
# options that jax.scipy.linalg lacks.
FOREIGN = {
    "*.test_non_native_byte_order*": "operands of foreign byte order",
    "*.test_overwrite_*": "which operands are overwritten",
    "basic.TestSolve.test_structure_detection": "`transposed=`, and structures that are detected",
    "decomp.test_orth_memory_efficiency": "memory",
}

# Options of SciPy that change no result.
HOW = {"check_finite", "driver", "lapack_driver", "overwrite_a", "overwrite_b"}


def _of_jax(x):
  return getattr(jnp, x.__name__) if isinstance(x, np.ufunc) else x


def _numbers(x: Any) -> bool:
  return isinstance(x, (np.ndarray, np.generic)) and np.issubdtype(x.dtype, np.inexact)


def _has(test, values) -> bool:
  return any(test(x).any() for x in jax.tree.leaves(values) if _numbers(x))


def _to_numpy(x):
  if not isinstance(x, jax.Array):
    return x
  return np.array(x)[()]


def _wrap(name):
  function, original = getattr(linalg.scipy, name), getattr(scipy.linalg, name)

  checks = "check_finite" in inspect.signature(original).parameters
  known = inspect.signature(inspect.unwrap(function)).parameters

  @functools.wraps(original)
  def wrapper(*args, **kwargs):
    numbers = jax.tree.map(np.asarray, (args, kwargs))
    infinite = checks and _has(lambda x: ~np.isfinite(x), numbers)
    if infinite and kwargs.get("check_finite", True):
      raise ValueError("array must not contain infs or NaNs")
    kwargs = {x: y for x, y in kwargs.items() if x in known or x not in HOW}
    args, kwargs = jax.tree.map(_of_jax, (args, kwargs))
    try:
      results = jax.tree.map(_to_numpy, function(*args, **kwargs))
    except ValueError as error:
      raise np.linalg.LinAlgError(str(error)) from error
    if name not in RETURNS_NAN and _has(np.isnan, results) and not _has(np.isnan, numbers):
      raise np.linalg.LinAlgError(f"{name}() gives NaN")
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
  spec = importlib.util.spec_from_file_location(f"scipy_linalg_test_{name}", path)
  module = importlib.util.module_from_spec(spec)
  originals = {x: getattr(scipy.linalg, x) for x in WRAPPERS}
  try:
    for x, wrapper in WRAPPERS.items():
      setattr(scipy.linalg, x, wrapper)
    spec.loader.exec_module(module)
  finally:
    for x, original in originals.items():
      setattr(scipy.linalg, x, original)
  for x, value in vars(module).items():
    if value is scipy.linalg:
      setattr(module, x, _LINALG)
    elif value is scipy:
      setattr(module, x, _SCIPY)
    elif originals.get(x) is value:
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
        if _is_left_out(f"{_file}.{_name}.{_method}", getattr(_test, _method)):
          setattr(_test, _method, None)
      globals()[f"Test{_title}{_name[4:]}"] = _test
    elif _name.startswith("test_") and not _is_left_out(f"{_file}.{_name}", _test):
      globals()[f"test_{_file}{_name[4:]}"] = _test
