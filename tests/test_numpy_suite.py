"""NumPy's own tests of numpy.linalg, as they ship in its wheel, with this package in its place.

A copy of NumPy's test module is loaded in which `np.linalg`, `linalg` and the names imported from it
are ours, wrapped so that they take what NumPy's take and give NumPy arrays and exceptions.
"""

import functools
import importlib.util
import types

import jax
import numpy as np
import numpy.linalg.tests.test_linalg as original

import linalg

# What is NumPy's alone: its C implementation, memory and threads, array subclasses, dtypes that
# JAX lacks.
FOREIGN = {
    "TestMultiDot.test_three_arguments_and_out": "out=",
    "TestMultiDot.test_two_arguments_and_out": "out=",
    "TestMultiDot.test_dynamic_programming_optimization_and_out": "out=",
    "TestMultiDot.test_dynamic_programming_logic": "a private function of NumPy's",
    "test_byteorder_check": "operands of foreign byte order",
    "test_generalized_raise_multiloop": "floating-point flags and views of memory",
    "test_xerbla_override": "NumPy's own LAPACK",
    "test_sdot_bug_8577": "NumPy's own BLAS",
    "test_unsupported_commontype": "float128",
    "test_blas64_dot": "NumPy's own BLAS",
    "test_blas64_geqrf_lwork_smoketest": "NumPy's own LAPACK",
}

# Test -> why this package, like jax.numpy.linalg, does otherwise. Each must fail.
DEVIATIONS: dict[str, str] = {}


# Where a failure is NaN here, it is an exception there.
RAISES = ("cholesky", "inv", "solve", "matrix_power", "tensorinv", "tensorsolve", "eigh")


def _has_nan(arrays):
  return any(np.isnan(x).any() for x in jax.tree.leaves(arrays))


def _to_numpy(x):
  return np.asarray(x)[()] if isinstance(x, jax.Array) else x


def _wrap(name):
  function = getattr(linalg, name)

  @functools.wraps(function)
  def wrapper(*args, **kwargs):
    operands = [
        np.asarray(x) if isinstance(x, (list, np.ndarray)) and name != "multi_dot" else x
        for x in args]
    options = {
        key: tuple(x) if isinstance(x, list) else np.asarray(x) if isinstance(x, np.ndarray) else x
        for key, x in kwargs.items()}
    results = jax.tree.map(_to_numpy, function(*operands, **options))
    if name in RAISES and _has_nan(results) and not _has_nan(operands):
      raise np.linalg.LinAlgError(name)
    return results

  return wrapper


class _Linalg:
  """numpy.linalg with our functions."""

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
