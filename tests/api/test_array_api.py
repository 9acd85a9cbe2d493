"""The linear algebra extension of the Python array API standard, version 2023.12.

Names, parameters and values are those of the standard.
"""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

import linalg
import matrices

# Maps each function to the standard's parameters, including "/" and "*".
EXTENSION = {
    "cholesky": "x / * upper",
    "cross": "x1 x2 / * axis",
    "det": "x /",
    "diagonal": "x / * offset",
    "eigh": "x /",
    "eigvalsh": "x /",
    "inv": "x /",
    "matmul": "x1 x2 /",
    "matrix_norm": "x / * keepdims ord",
    "matrix_power": "x n /",
    "matrix_rank": "x / * rtol",
    "matrix_transpose": "x /",
    "outer": "x1 x2 /",
    "pinv": "x / * rtol",
    "qr": "x / * mode",
    "slogdet": "x /",
    "solve": "x1 x2 /",
    "svd": "x / * full_matrices",
    "svdvals": "x /",
    "tensordot": "x1 x2 / * axes",
    "trace": "x / * offset dtype",
    "vecdot": "x1 x2 / * axis",
    "vector_norm": "x / * axis keepdims ord",
}


@pytest.mark.parametrize("name", EXTENSION)
def test_names(name):
  """All 23 functions take arrays by position and options by keyword, as in the standard."""
  assert len(EXTENSION) == 23
  arrays, _, options = EXTENSION[name].partition("/")
  signature = inspect.signature(getattr(linalg, name))
  signature.bind(*arrays.split(), **dict.fromkeys(options.replace("*", "").split()))


def test_fields():
  """Results have the standard's field names."""
  a = jnp.eye(2)
  assert linalg.eigh(a)._fields == ("eigenvalues", "eigenvectors")
  assert linalg.qr(a)._fields == ("Q", "R")
  assert linalg.slogdet(a)._fields == ("sign", "logabsdet")
  assert linalg.svd(a)._fields == ("U", "S", "Vh")


@pytest.mark.parametrize("dtype", [np.float32, np.complex128], ids=lambda dtype: dtype.__name__)
def test_values(dtype, rng):
  """Results for stacks of matrices agree with NumPy's, whose values follow the standard."""
  a = matrices.general(rng, (2, 3), 4, 4, dtype)
  b = matrices.general(rng, (2, 3), 4, 2, dtype)
  x, y = matrices.general(rng, (2, 5), 6, 3, dtype), matrices.general(rng, (2, 5), 6, 3, dtype)
  positive = matrices.positive_definite(rng, (2, 3), 4, dtype)

  def close(actual, expected):
    scale = np.max(np.abs(expected), initial=1) * np.finfo(dtype).eps
    np.testing.assert_allclose(actual, expected, rtol=0, atol=300 * scale)

  for name, operands, options in (
      ("cholesky", (positive,), {"upper": True}), ("cross", (x, y), {}), ("det", (a,), {}),
      ("cross", (x.swapaxes(1, 3), y.swapaxes(1, 3)), {"axis": 1}),
      ("diagonal", (b,), {"offset": -1}), ("diagonal", (a,), {"offset": 5}),
      ("eigvalsh", (positive,), {}), ("inv", (a,), {}), ("matmul", (a, b), {}),
      ("matrix_norm", (b,), {"keepdims": True, "ord": "nuc"}),
      ("matrix_power", (a, -2), {}), ("matrix_power", (a, 0), {}), ("matrix_power", (a, 5), {}),
      ("matrix_rank", (b,), {"rtol": 1e-3}), ("matrix_transpose", (b,), {}),
      ("outer", (a[0, 0, 0], b[0, 0, :, 1]), {}), ("pinv", (b,), {"rtol": 1e-3}),
      ("solve", (a, b), {}), ("svdvals", (b,), {}),
      ("tensordot", (a, b), {"axes": ((0, 1, 3), (0, 1, 2))}), ("trace", (b,), {"offset": 1}),
      ("vecdot", (x, y), {"axis": -2}), ("vector_norm", (b,), {"axis": (0, 2), "ord": 3}),
      ("multi_dot", ([a[0, 0], a[0, 1], b[0, 2]],), {}),
      ("tensorinv", (a[0, 0].reshape(2, 2, 4),), {}),
      ("tensorsolve", (a[0, 0].reshape(2, 2, 4), b[0, 0, :, 0].reshape(2, 2)), {})):
    close(getattr(linalg, name)(*operands, **options),
          getattr(np.linalg, name)(*operands, **options))
  sign, logabsdet = linalg.slogdet(a)
  close(np.asarray(sign) * np.exp(logabsdet), np.linalg.det(a))
