"""A program with `import linalg as jnp_linalg` finds every name and type of result.

`test_arguments.py` compares the signatures, and the dtypes of the decompositions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg
from linalg._catalogue import CATALOGUE

NUMPY_NAMES = sorted(name for name in dir(jnp.linalg) if not name.startswith("_"))


def test_all_names():
  """jax.numpy.linalg's 31, and any that JAX adds."""
  assert len(NUMPY_NAMES) >= 31
  assert not set(NUMPY_NAMES) - set(linalg.__all__)
  for name in linalg.__all__:
    assert hasattr(linalg, name)


CALLS = {
    name: call for function in CATALOGUE
    if (function.counterpart or "").startswith("jax.numpy.linalg.")
    for name, call in function.stock_calls().items()}


def test_every_name_is_called():
  assert set(NUMPY_NAMES) == {name.partition(" ")[0] for name in CALLS}


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.complex128], ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", CALLS)
def test_result_types(name, dtype):
  """Results have the structure, shapes and dtypes of jax.numpy.linalg's, integers included."""
  a = jax.ShapeDtypeStruct((2, 4, 4), dtype)
  mine, stock = (jax.eval_shape(lambda a, m=m: CALLS[name](m, a), a) for m in (linalg, jnp.linalg))
  assert [(x.shape, x.dtype) for x in jax.tree.leaves(mine)] == [
      (x.shape, x.dtype) for x in jax.tree.leaves(stock)]
  assert getattr(mine, "_fields", None) == getattr(stock, "_fields", None)
  assert isinstance(mine, tuple) == isinstance(stock, tuple)
