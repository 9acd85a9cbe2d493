"""The tests here run on a GPU: `python -m pytest -m gpu -n 0`."""

import jax
import pytest

from gpu_calls import HANDLED, gpus
from linalg._core import targets


@pytest.fixture(autouse=True)
def on_gpu():
  if not gpus():
    pytest.skip("JAX finds no GPU")
  if targets.cuda_version() is None:
    pytest.skip("this build has no CUDA module")
  if reason := targets.cuda_refusal():
    pytest.skip(f"the CUDA module is not used here: {reason}")
  with jax.default_device(gpus()[0]):
    yield


@pytest.fixture(params=HANDLED, ids=lambda case: case.name)
def case(request):
  return request.param
