"""Products of matrices.

XLA's CPU backend takes up to 60 times as long for a batch of small matrices as it could. Those go
to handlers. Larger ones, and those of other platforms, stay XLA's.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from linalg import ffi
from linalg._operands import check_arrays
from linalg._public import public

__all__ = ["matmul"]

# Up to this size the handlers multiply 1024 matrices 1.1 to 37 times as fast as XLA, and a single
# one as fast or faster (float32, float64, complex64; Intel Xeon with AVX-512, two cores, 22
# November 2026; benchmarks/run.py --ops matmul). Whether they are called does not depend on the
# batch, so that a matrix has the same bits in any.
_LARGEST = 64
# Real products up to this size are unrolled by XLA, in the loop of what stands around them.
_UNROLLED = 3


def _suits(a: Any, b: Any) -> bool:
  """Whether operands of these types are better off in a handler."""
  is_complex = jnp.issubdtype(a.dtype, jnp.complexfloating)
  return is_complex or max(*a.shape[-2:], *b.shape[-2:]) > _UNROLLED


def _operation(name, signature, fallback, transpose):
  """A bilinear operation."""

  def jvp(primals, tangents):
    # d(A B) = dA B + A dB
    (a, b), (da, db) = primals, tangents
    terms = [multiply(*x) for x in ((da, b), (a, db)) if x[0] is not None and x[1] is not None]
    return multiply(a, b), functools.reduce(jnp.add, terms)

  multiply = ffi.operation(
      name, signature, [0], shared=[0, 1], jvp=jvp, transpose=transpose, suits=_suits,
      fallback=lambda a, b: [fallback(a, b)])
  return multiply


# The cotangents of C = A B are C̄ Bᵀ and Aᵀ C̄, and so on: each of the three has those of the others.


def _matmul_transpose(cotangents, operands):
  (ct,), (a, b) = cotangents, operands
  return (matmul_transpose_b_p(ct, b), None) if a is None else (None, matmul_transpose_a_p(a, ct))


def _transpose_a_transpose(cotangents, operands):
  (ct,), (a, b) = cotangents, operands
  return (matmul_transpose_b_p(b, ct), None) if a is None else (None, matmul_p(a, ct))


def _transpose_b_transpose(cotangents, operands):
  (ct,), (a, b) = cotangents, operands
  return (matmul_p(ct, b), None) if a is None else (None, matmul_transpose_a_p(ct, a))


matmul_p = _operation("linalg_matmul", "m k, k n -> m n", jnp.matmul, _matmul_transpose)

matmul_transpose_a_p = _operation(
    "linalg_matmul_transpose_a", "k m, k n -> m n", lambda a, b: jnp.matmul(a.mT, b),
    _transpose_a_transpose)

matmul_transpose_b_p = _operation(
    "linalg_matmul_transpose_b", "m k, n k -> m n", lambda a, b: jnp.matmul(a, b.mT),
    _transpose_b_transpose)


def _are_small_matrices(x1: jax.Array, x2: jax.Array) -> bool:
  """Whether the operations take them, which leave a sharded matrix dimension to XLA too."""
  if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-2] or x1.dtype != x2.dtype:
    return False
  sizes = (*x1.shape[-2:], *x2.shape[-2:])
  sharded = any(tuple(jax.typeof(x).sharding.spec)[x.ndim - 2 :] != (None, None) for x in (x1, x2))
  return (
      x1.dtype in (jnp.float32, jnp.float64, jnp.complex64, jnp.complex128) and not sharded
      and all(isinstance(size, int) and size <= _LARGEST for size in sizes))


@public("precision", "preferred_element_type")
def matmul(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
) -> jax.Array:
  """Products of matrices; `jax.numpy.linalg.matmul`.

  Args:
    x1: matrices (..., m, k), or a vector (k,).
    x2: matrices (..., k, n), or a vector (k,). The batch dimensions of both broadcast; a matrix
      without any serves the whole batch of the other without being copied.
    precision, preferred_element_type: as for `jax.numpy.matmul`.

  Returns:
    The products (..., m, n), of the dtype that both promote to.

  Algorithm: on the CPU, float32, float64, complex64 and complex128 matrices of at most 64 rows and
  columns are multiplied by a handler, if neither `precision` nor `preferred_element_type` is given.
  Each element is one chain of fused products in the order of k, so that it has the same bits in
  any batch. All others, and real products of at most 3 rows and columns, are XLA's.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> linalg.matmul(jnp.eye(2), jnp.array([[1., 2.], [3., 4.]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
  """
  check_arrays("matmul", x1, x2)
  x1, x2 = jnp.asarray(x1), jnp.asarray(x2)
  if precision is None and preferred_element_type is None and _are_small_matrices(x1, x2):
    return matmul_p(x1, x2)
  return jnp.linalg.matmul(
      x1, x2, precision=precision, preferred_element_type=preferred_element_type)
