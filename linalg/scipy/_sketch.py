"""Random sketches of matrices."""

from typing import Any

import jax
import jax.numpy as jnp
import scipy.linalg
import scipy.sparse
from jax.typing import ArrayLike

from linalg._core.operands import as_arrays, as_integer, check_matrix
from linalg._core.public import public
from linalg._factorizations.matmul import product

__all__ = ["clarkson_woodruff_transform"]


def _from_key(key, rows, cols):
  """For each column of the sketch, the place of its one element, and its sign."""
  of_place, of_sign = jax.random.split(jnp.asarray(key))
  return (
      jax.random.randint(of_place, (cols,), 0, rows), jax.random.rademacher(of_sign, (cols,)))


def _from_scipy(rows, cols, **seed):
  """`_from_key` by SciPy's generators. The transform of an identity matrix is the sketch itself."""
  sketch = scipy.linalg.clarkson_woodruff_transform(
      scipy.sparse.identity(cols, format="csc", dtype="int32"), rows, **seed).tocsc()
  return sketch.indices, sketch.data


def _sketch(rows, cols, rng, seed):
  if rng is not None and seed is not None:
    raise TypeError("clarkson_woodruff_transform: only one of rng and seed may be specified.")
  if isinstance(rng, jax.Array):
    return _from_key(rng, rows, cols)
  if isinstance(seed, jax.Array):
    return _from_key(seed, rows, cols)
  return _from_scipy(rows, cols, **({"rng": rng} if seed is None else {"seed": seed}))


@public("sketch_size", compiled=False)
def clarkson_woodruff_transform(
    input_matrix: ArrayLike, sketch_size: int, rng: Any = None, *, seed: Any = None
) -> jax.Array:
  """Random sums of rows, S A; `scipy.linalg.clarkson_woodruff_transform`, batched.

  Each column of S has one element, 1 or -1, in a random place. ‖S A x‖ is near to ‖A x‖ for most
  S. S is the same for the whole batch.

  Args:
    input_matrix: matrices A (..., m, n).
    sketch_size: the number of rows of S.
    rng: None, an integer or a NumPy generator, from which SciPy draws S. That happens once when a
      function is traced. Or a key of `jax.random`, which may be traced.
    seed: SciPy's former name of `rng`, with its former meaning of integers.

  Returns:
    The sketches (..., sketch_size, n).

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: a product with the dense S.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.scipy
    >>> a = jnp.ones((100, 3))
    >>> linalg.scipy.clarkson_woodruff_transform(a, 20, jax.random.key(0)).shape
    (20, 3)
  """
  (a,), dtype = as_arrays("clarkson_woodruff_transform", input_matrix)
  check_matrix("clarkson_woodruff_transform", a, "input_matrix")
  sketch_size = as_integer("clarkson_woodruff_transform", "sketch_size", sketch_size, 1)
  rows, signs = _sketch(sketch_size, a.shape[-2], rng, seed)
  place = jnp.arange(sketch_size, dtype=jnp.int32)
  at = place[:, None] == jnp.asarray(rows, jnp.int32)[None, :]
  s = jnp.where(at, jnp.asarray(signs, a.dtype)[None, :], 0)
  return product(s, a).astype(dtype)
