"""A program that says `import linalg as jnp_linalg` meets every name and type of result.

`test_arguments.py` compares the signatures, and the dtypes of the decompositions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import linalg

NUMPY_NAMES = sorted(name for name in dir(jnp.linalg) if not name.startswith("_"))


def test_all_names():
  """jax.numpy.linalg's 31, and any that JAX adds."""
  assert len(NUMPY_NAMES) >= 31
  assert not set(NUMPY_NAMES) - set(linalg.__all__)
  for name in linalg.__all__:
    assert hasattr(linalg, name)


CALLS = {
    "cholesky": lambda m, a: m.cholesky(a @ a.mT),
    "cond": lambda m, a: m.cond(a),
    "cross": lambda m, a: m.cross(a[..., :3], a[..., :3] + 1),
    "det": lambda m, a: m.det(a),
    "diagonal": lambda m, a: m.diagonal(a),
    "eig": lambda m, a: m.eig(a),
    "eigh": lambda m, a: m.eigh(a),
    "eigvals": lambda m, a: m.eigvals(a),
    "eigvalsh": lambda m, a: m.eigvalsh(a),
    "inv": lambda m, a: m.inv(a),
    "lstsq": lambda m, a: m.lstsq(a[0], a[1]),
    "lstsq of a vector": lambda m, a: m.lstsq(a[0], a[1, 0]),
    "matmul": lambda m, a: m.matmul(a, a),
    "matrix_norm": lambda m, a: m.matrix_norm(a),
    "matrix_power": lambda m, a: m.matrix_power(a, 2),
    "matrix_power of 0": lambda m, a: m.matrix_power(a, 0),
    "matrix_power of -1": lambda m, a: m.matrix_power(a, -1),
    "matrix_rank": lambda m, a: m.matrix_rank(a),
    "matrix_rank of a vector": lambda m, a: m.matrix_rank(a[0, 0]),
    "matrix_transpose": lambda m, a: m.matrix_transpose(a),
    "multi_dot": lambda m, a: m.multi_dot([a[0], a[1], a[0]]),
    "norm": lambda m, a: m.norm(a),
    "norm of vectors": lambda m, a: m.norm(a, axis=1, keepdims=True),
    "norm 0": lambda m, a: m.norm(a, 0, axis=1),
    "outer": lambda m, a: m.outer(a[0, 0], a[0, 1]),
    "pinv": lambda m, a: m.pinv(a),
    "qr": lambda m, a: m.qr(a),
    "slogdet": lambda m, a: m.slogdet(a),
    "solve": lambda m, a: m.solve(a, a),
    "svd": lambda m, a: m.svd(a),
    "svdvals": lambda m, a: m.svdvals(a),
    "tensordot": lambda m, a: m.tensordot(a, a, axes=([1, 2], [1, 2])),
    "tensorinv": lambda m, a: m.tensorinv(a[0].reshape(2, 2, 4)),
    "tensorsolve": lambda m, a: m.tensorsolve(a[0].reshape(2, 2, 4), a[0, 0].reshape(2, 2)),
    "trace": lambda m, a: m.trace(a),
    "vecdot": lambda m, a: m.vecdot(a, a),
    "vector_norm": lambda m, a: m.vector_norm(a),
}


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.complex128], ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", CALLS)
def test_result_types(name, dtype):
  """The structure, shapes and dtypes of jax.numpy.linalg's results, integers included."""
  a = jax.ShapeDtypeStruct((2, 4, 4), dtype)
  mine, stock = (jax.eval_shape(lambda a, m=m: CALLS[name](m, a), a) for m in (linalg, jnp.linalg))
  assert [(x.shape, x.dtype) for x in jax.tree.leaves(mine)] == [
      (x.shape, x.dtype) for x in jax.tree.leaves(stock)]
  assert getattr(mine, "_fields", None) == getattr(stock, "_fields", None)
  assert isinstance(mine, tuple) == isinstance(stock, tuple)
