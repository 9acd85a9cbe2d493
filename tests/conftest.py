"""Eight virtual CPU devices and 64-bit types, for every test; and a GPU for those that ask for one
with `-m gpu`."""

import os

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8")
if "PYTEST_XDIST_WORKER" in os.environ:
  # The workers share the processors: threads of each one's OpenBLAS would spin for the others'.
  os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)

import cases  # noqa: E402
import sharded  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
  """Those of thousands of tests take gigabytes."""
  yield
  sharded.forget()
  jax.clear_caches()


@pytest.fixture
def rng() -> np.random.Generator:
  return np.random.default_rng(0)


@pytest.fixture(params=cases.CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> cases.Case:
  """Every operation in turn."""
  return request.param


# What is a matter of arithmetic is tried with every dtype that LAPACK computes in. Elsewhere two of
# them, which differ in width and in being complex, show as much.
ARITHMETIC = {"values/test_extremes.py", "values/test_factorisations.py", "cuda/test_gpu.py"}
TWO_DTYPES = (np.float32, np.complex128)


def _file(item: pytest.Item) -> str:
  return "/".join(item.path.parts[-2:])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
  marked = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
  if "dtype" in metafunc.fixturenames and not any("dtype" in names for names in marked):
    dtypes = cases.DTYPES if _file(metafunc.definition) in ARITHMETIC else TWO_DTYPES
    metafunc.parametrize("dtype", [np.dtype(x) for x in dtypes], ids=lambda dtype: dtype.name)


def _wants(config: pytest.Config, mark: str) -> bool:
  return mark in (config.option.markexpr or "")


def _wants_gpu(config: pytest.Config) -> bool:
  return _wants(config, "gpu")


# What a run leaves out unless asked for with `-m extended`, since it takes as long as all the rest:
# what is composed in Python, others' tests, CUDA's handlers. CI runs it on one version of Python.
EXTENDED_FILES = {
    "values/test_composed.py", "cuda/test_programs.py", "cuda/test_on_cpu.py",
    "api/test_numpy_suite.py", "cuda/test_phases.py", "cuda/test_races.py"}
# Suites that compile many programs take the operations named below only then.
COMPILING_FILES = {
    "derivatives/test_degenerate.py", "derivatives/test_operations.py", "sharding/test_export.py",
    "sharding/test_shard_map.py", "sharding/test_layouts.py", "sharding/test_derivatives.py",
    "sharding/test_explicit.py", "sharding/test_shared_factor.py"}
EXTENDED_OPERATIONS = ("svd", "eig_", "eigvals_", "eigh_generalized", "eigh_tridiagonal",
                       "eigvalsh_tridiagonal", "schur", "hessenberg")


def _is_extended(item: pytest.Item) -> bool:
  if _file(item) in EXTENDED_FILES:
    return True
  case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
  name = getattr(case, "name", "") + "_"
  return _file(item) in COMPILING_FILES and name.startswith(EXTENDED_OPERATIONS)


def pytest_configure(config: pytest.Config) -> None:
  # Elsewhere the operands lie on the CPU, whether or not the machine has a GPU.
  if not _wants_gpu(config):
    jax.config.update("jax_platforms", "cpu")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
  for item in items:
    if _is_extended(item):
      item.add_marker("extended")
  for mark in ("gpu", "extended"):
    left_out = {item for item in items if item.get_closest_marker(mark)}
    if left_out and not _wants(config, mark):
      config.hook.pytest_deselected(items=list(left_out))
      items[:] = [item for item in items if item not in left_out]
  _expect_deviations(items)


def _expect_deviations(items: list[pytest.Item]) -> None:
  """Tests that others wrote fail where their module says so, and why."""
  for item in items:
    module = getattr(item, "module", None)
    name = item.nodeid.partition("::")[2]
    if reason := getattr(module, "DEVIATIONS", {}).get(name):
      item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def pytest_report_header(config: pytest.Config) -> str:
  if _wants_gpu(config):
    return f"gpu: JAX finds {jax.devices()}"
  return (
      "gpu: tests of that mark are left out; `pytest -m gpu -n 0` runs them where there is one\n"
      "extended: tests of that mark are left out, for their length; `pytest -m extended` runs them")
