"""JAX's own tests of linear algebra, from a checkout of its repository at the installed version.

  git clone --branch jax-v0.10.2 https://github.com/jax-ml/jax
  LINALG_JAX_TESTS=jax/tests pytest -m extended tests/api/test_jax_suite.py

The test module is loaded twice. Its functions are JAX's own under `accelerate()` in `Accelerated`,
and those of `linalg`, `linalg.scipy` and `linalg.lax` in `Replaced`. `JAX_NUM_GENERATED_CASES` sets
how many cases of a test JAX makes (10).
"""

import importlib.util
import os
import pathlib
import types

import jax
import jax.numpy as jnp
import jax.scipy
import pytest

FOLDER = os.environ.get("LINALG_JAX_TESTS")
if not FOLDER:
  pytest.skip("LINALG_JAX_TESTS does not name the folder of JAX's tests", allow_module_level=True)

import linalg  # noqa: E402
import linalg.lax  # noqa: E402
import linalg.scipy  # noqa: E402

# JAX's tests mix dtypes, and set their own configuration.
pytestmark = [pytest.mark.extended, pytest.mark.usefixtures("standard_promotion")]

# Tests that are not run, and why.
_ORDER = "compares with LAPACK's order of the eigenvalues, which is another one here"
FOREIGN = {
    "AcceleratedScipyLinalgTest.testSchur": _ORDER,
    "ReplacedScipyLinalgTest.testSchur": _ORDER,
    "ReplacedScipyLinalgTest.testRsf2csf": "operands that are no Schur forms",
    "ReplacedScipyLinalgTest.testRsf2csfBroadcast": "operands that are no Schur forms",
    "ReplacedScipyLinalgTest.testFunm": "compares estimates of the error to 15 digits",
    "ReplacedNumpyLinalgTest.testQrInvalidDtypeCPU": "half precision, which works here",
}


class _With:
  """A module with another `linalg`."""

  def __init__(self, module, functions):
    self._module, self.linalg = module, functions

  def __getattr__(self, name):
    return getattr(self._module, name)


def _load(name: str, **others: _With) -> types.ModuleType:
  path = pathlib.Path(FOLDER or "") / "linalg_test.py"
  spec = importlib.util.spec_from_file_location(name, path)
  assert spec and spec.loader, path
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  vars(module).update(others)
  return module


def _cases(module):
  return [(name, x) for name, x in vars(module).items()
          if isinstance(x, type) and x.__module__ == module.__name__ and name.endswith("Test")]


@pytest.fixture(autouse=True)
def mode(request):
  """Accelerates JAX's own functions for the tests of `Accelerated`."""
  name = f"{request.cls.__name__}.{request.node.name.rstrip('0123456789')}"
  if name in FOREIGN:
    pytest.skip(FOREIGN[name])
  accelerated = name.startswith("Accelerated")
  if accelerated:
    linalg.accelerate()
  yield
  if accelerated:
    linalg.accelerate(False)


_replaced = _load(
    "replaced_linalg_test",
    jnp=_With(jnp, linalg),
    jsp=_With(jax.scipy, linalg.scipy),
    lax=_With(jax.lax, linalg.lax))
for _kind, _module in (("Accelerated", _load("accelerated_linalg_test")), ("Replaced", _replaced)):
  for _name, _case in _cases(_module):
    globals()[_kind + _name] = type(_kind + _name, (_case,), {})
