"""Every test gets eight virtual CPU devices, 64-bit types and quick compilation.

`-m gpu` gives a GPU to the tests that need one, and `--device gpu` gives one to all.
"""

import collections
import gc
import os
import pathlib

import quick

# XLA reads these flags when the first program is compiled.
FLAGS = os.environ.get("XLA_FLAGS", "")
if "--xla_backend_optimization_level" not in FLAGS:
  FLAGS += " " + quick.FLAGS
os.environ["XLA_FLAGS"] = FLAGS + " --xla_force_host_platform_device_count=8"
if "PYTEST_XDIST_WORKER" in os.environ:
  # The workers share the cores, and OpenBLAS's idle threads spin.
  os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)
# The package must work in programs that forbid mixed dtypes and ranks.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

import cases  # noqa: E402
import selection  # noqa: E402
import sharded  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
  """The compiled programs of all tests would take gigabytes."""
  yield
  sharded.forget()
  jax.clear_caches()


@pytest.fixture
def standard_promotion():
  """JAX's defaults, for tests that mix dtypes or ranks."""
  with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
    yield


@pytest.fixture
def rng() -> np.random.Generator:
  return np.random.default_rng(0)


@pytest.fixture(params=cases.CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> cases.Case:
  """Runs the test for every operation."""
  return request.param


# These two differ in width, and only one is complex. selection.py has the other choices of a test.
TWO_DTYPES = (np.float32, np.complex128)


def _chooses_dtypes(test: pytest.Item | pytest.Function) -> bool:
  return any("dtype" in mark.args[0] for mark in test.iter_markers("parametrize"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
  test = metafunc.definition
  if "dtype" in metafunc.fixturenames and not _chooses_dtypes(test):
    chosen = lambda name: selection.chooses(name, metafunc.function, metafunc.module)
    dtypes = cases.DTYPES if chosen("all_dtypes") else TWO_DTYPES
    quick = TWO_DTYPES[:1] if chosen("one_dtype") else TWO_DTYPES
    metafunc.parametrize("dtype", [
        pytest.param(np.dtype(x), marks=() if x in quick else pytest.mark.extended)
        for x in dtypes], ids=lambda dtype: dtype.name)


class FewExtended:
  """Makes no items of values marked `extended`. A third of the time of collection would go to them.

  One item of a test stays that is `extended` as a whole.
  """

  def __init__(self):
    self.files: set[pathlib.Path] = set()

  @pytest.hookimpl(tryfirst=True)  # before parameters are read
  def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
    test, parametrize = metafunc.definition, metafunc.parametrize
    if _chooses_items(metafunc.config):
      return
    whole = test.get_closest_marker("extended") is not None
    is_extended = lambda value: any(x.name == "extended" for x in getattr(value, "marks", ()))

    def parametrize_few(names, values, *, ids=None, _param_mark=None, **options):
      del _param_mark  # pytest keeps the ids of all values there
      values = list(values)
      kept = [i for i, x in enumerate(values) if not (whole or is_extended(x))] or [0]
      if len(kept) < len(values):
        self.files.add(test.path)
        values = [values[i] for i in kept]
        if ids is not None and not callable(ids):
          ids = [x for i, x in enumerate(ids) if i in kept]
      parametrize(names, values, ids=ids, **options)

    metafunc.parametrize = parametrize_few


def _chooses_items(config: pytest.Config) -> bool:
  """Whether tests were chosen by marks or by name, so that `extended` ones may be among them."""
  return bool(config.option.markexpr) or any("::" in argument for argument in config.args)


def _wants(config: pytest.Config, mark: str) -> bool:
  return mark in (config.option.markexpr or "")


def _wants_gpu(config: pytest.Config) -> bool:
  return _wants(config, "gpu")


def _parameters(item: pytest.Item) -> tuple[cases.Case | None, np.dtype | None]:
  """Returns the case, and the dtype if conftest chose it."""
  parameters = getattr(getattr(item, "callspec", None), "params", {})
  case = parameters.get("case")
  dtype = None if _chooses_dtypes(item) else parameters.get("dtype")
  return case if isinstance(case, cases.Case) else None, dtype


def _makes_no_difference(item: pytest.Item) -> bool:
  """Whether the case ignores the dtype, so that another run would repeat the test."""
  case, dtype = _parameters(item)
  return case is not None and dtype is not None and dtype not in case.dtypes


def _is_slow(item: pytest.Item) -> bool:
  """Whether it compiles programs that take long, or that are nearly those of another case."""
  case, _ = _parameters(item)
  compiles = selection.chooses(
      "compiles", getattr(item, "function", None), getattr(item, "module", None))
  return case is not None and compiles and (case.slow or case.variant)


def _is_left_out(config: pytest.Config, item: pytest.Item) -> bool:
  """Whether its rarer mark was not asked for, or it is not for this device."""
  marks = ("gpu", "extended")
  rarer = next((mark for mark in marks if item.get_closest_marker(mark)), None)
  if item.get_closest_marker("cpu") and config.option.device != "cpu":
    return True
  parameters = getattr(getattr(item, "callspec", None), "params", {})
  if config.option.orders and parameters.get("n") not in {None, *config.option.orders}:
    return True
  return rarer is not None and not _wants(config, rarer)


_FEW_EXTENDED = pytest.StashKey[FewExtended]()


@pytest.fixture
def extended_files(request: pytest.FixtureRequest) -> set[pathlib.Path]:
  """The collected files that have tests marked `extended`."""
  return request.config.stash[_FEW_EXTENDED].files


def pytest_addoption(parser: pytest.Parser) -> None:
  parser.addoption(
      "--device", choices=("cpu", "gpu"), default="cpu",
      help="where operands lie of which a test does not say it (tests/values, tests/derivatives)")
  parser.addoption(
      "--turn", type=int, default=0,
      help="which of the tests with `selection.one_in` run by default (0, 1, ...)")
  parser.addoption(
      "--orders", type=lambda text: set(map(int, text.split(","))), metavar="N,N",
      help="the only values of the parameter n, where a test has one")


def pytest_configure(config: pytest.Config) -> None:
  config.stash[_FEW_EXTENDED] = FewExtended()
  config.pluginmanager.register(config.stash[_FEW_EXTENDED])
  if config.option.device == "gpu":
    jax.config.update("jax_platforms", "cuda,cpu")
    # References are products. By default, float32 products on a GPU keep ten bits of the fraction.
    jax.config.update("jax_default_matmul_precision", "highest")
  elif not _wants_gpu(config):
    # Operands are on the CPU, even if the machine has a GPU.
    jax.config.update("jax_platforms", "cpu")


def _one_of_each(items: list[pytest.Item]) -> list[pytest.Item]:
  """Leaves the middle one of a test's values of parameters, if its module has ONE_OF_EACH."""
  tests = collections.defaultdict(list)
  for item in items:
    chooses = getattr(getattr(item, "module", None), "ONE_OF_EACH", False)
    tests[item.nodeid.partition("[")[0] if chooses else item].append(item)
  return [some[len(some) // 2] for some in tests.values()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
  items[:] = [item for item in _one_of_each(items) if not _makes_no_difference(item)]
  for item in items:
    if _is_slow(item) or selection.is_extended_value(item):
      item.add_marker("extended")
  left = (selection.left_by_turns,
          lambda some: selection.left_by_counting(some, config.option.turn))
  for chosen in left:
    for item in chosen([x for x in items if not x.get_closest_marker("extended")]):
      item.add_marker("extended")
  config.stash[_FEW_EXTENDED].files |= {
      item.path for item in items if item.get_closest_marker("extended")}
  left_out = {item for item in items if _is_left_out(config, item)}
  config.hook.pytest_deselected(items=list(left_out))
  items[:] = [item for item in items if item not in left_out]
  _expect_deviations(items)


def pytest_collection_finish() -> None:
  """The garbage collector, and JAX's search for leaks, need not visit thousands of items again."""
  gc.collect()
  gc.freeze()


def _expect_deviations(items: list[pytest.Item]) -> None:
  """Marks tests of other projects as failing where DEVIATIONS of their module says why.

  A test in VARIES may pass, too.
  """
  for item in items:
    module = getattr(item, "module", None)
    name = item.nodeid.partition("::")[2]
    strict = name not in getattr(module, "VARIES", ())
    if reason := getattr(module, "DEVIATIONS", {}).get(name):
      item.add_marker(pytest.mark.xfail(reason=reason, strict=strict))


def pytest_report_header(config: pytest.Config) -> str:
  if _wants_gpu(config):
    return f"gpu: JAX finds {jax.devices()}"
  turn = config.option.turn
  return (
      "one operation: `pytest -k cholesky`; one folder: `pytest tests/sharding`\n"
      "gpu: tests of that mark are left out; `pytest -m gpu -n 0` runs them where there is one\n"
      "extended: tests of that mark are left out, being long; `pytest -m extended` runs them\n"
      f"turn: {turn} of the tests that take turns; `pytest --turn {turn}` runs the same")
