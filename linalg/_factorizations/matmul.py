"""Products of matrices.

XLA computes batches of small products slowly, so handlers compute them. linalg/_core/tuning.py has
the limits. Larger products, and those of other platforms, stay XLA's.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from linalg import ffi
from linalg._core.algebra import expand
from linalg._core.operands import as_arrays, check_arrays, check_matrix, incompatible
from linalg._core.public import public
from linalg._core.tuning import may_be_small_products, suits_products

__all__ = ["congruence", "matmul"]

# The precision of products in rules, which does not depend on the user's default.
_FULL = jax.lax.Precision.HIGHEST


class _Products(NamedTuple):
  """op(A) op(B), where op is the identity, or the transpose of A or of B.

  `conjugate_a` and `conjugate_b` say whether an operand is conjugated.
  """

  plain: ffi.Operation
  transpose_a: ffi.Operation
  transpose_b: ffi.Operation

  def turned(self, turn_a: bool, turn_b: bool) -> ffi.Operation | None:
    """Returns the operation that transposes these operands. No operation transposes both."""
    if turn_a and turn_b:
      return None
    return self.transpose_a if turn_a else self.transpose_b if turn_b else self.plain


def _xla_product(a, b, conjugate_a, conjugate_b, precision):
  return jnp.matmul(
      a.conj() if conjugate_a else a, b.conj() if conjugate_b else b, precision=precision)


# The cotangents of C = A B are C̄ Bᵀ and Aᵀ C̄, and so on. For A's and for B's cotangent: the
# operation, and whether C̄ is its first operand.
_COTANGENTS = {
    "plain": (("transpose_b", True), ("transpose_a", False)),
    "transpose_a": (("transpose_b", False), ("plain", False)),
    "transpose_b": (("plain", True), ("transpose_a", True)),
}


def _make_products(precision: Any, suits: Any = suits_products) -> _Products:
  """The operations, with the precision of XLA's products where the handlers are not called.

  `suits` is that of `ffi.operation`.
  """

  def operation(kind, target, signature, turn_a=lambda a: a, turn_b=lambda b: b):
    def jvp(primals, tangents, **conjugate):
      # d(A B) = dA B + A dB
      (a, b), (da, db) = primals, tangents
      terms = [
          multiply(x, y, **conjugate)
          for x, y in ((da, b), (a, db)) if x is not None and y is not None]
      return multiply(a, b, **conjugate), functools.reduce(jnp.add, terms)

    def transpose(cotangents, operands, conjugate_a, conjugate_b):
      (ct,), (a, b) = cotangents, operands
      (name, is_first), known, own = (
          (_COTANGENTS[kind][0], b, conjugate_a) if a is None else
          (_COTANGENTS[kind][1], a, conjugate_b))
      # The whole cotangent of a conjugated operand is conjugated.
      other = conjugate_a != conjugate_b
      multiply = getattr(products, name)
      found = (
          multiply(ct, known, conjugate_a=own, conjugate_b=other) if is_first else
          multiply(known, ct, conjugate_a=other, conjugate_b=own))
      return (found, None) if a is None else (None, found)

    def fallback(a, b, conjugate_a, conjugate_b):
      return [_xla_product(turn_a(a), turn_b(b), conjugate_a, conjugate_b, precision)]

    multiply = ffi.operation(
        target, signature, [0], attributes={"conjugate_a": False, "conjugate_b": False},
        shared=[0, 1], jvp=jvp, transpose=transpose, suits=suits, fallback=fallback)
    return multiply

  turn = lambda x: x.mT
  products = _Products(
      operation("plain", "linalg_matmul", "m k, k n -> m n"),
      operation("transpose_a", "linalg_matmul_transpose_a", "k m, k n -> m n", turn_a=turn),
      operation("transpose_b", "linalg_matmul_transpose_b", "m k, n k -> m n", turn_b=turn))
  return products


matmul_p = _make_products(None)
exact_matmul_p = _make_products(_FULL)
# Handlers for products of all sizes. XLA's may have other bits in another batch.
steady_matmul_p = _make_products(_FULL, suits=None)


def product(
    a: jax.Array, b: jax.Array, *, adjoint_a: bool = False, adjoint_b: bool = False,
    transpose_a: bool = False,
) -> jax.Array:
  """op(A) op(B) in full precision, for derivative rules and composed functions."""
  turn_a = adjoint_a or transpose_a
  multiply = exact_matmul_p.turned(turn_a, adjoint_b)
  assert multiply is not None, "no operation has both operands transposed"
  conjugate_a, conjugate_b = adjoint_a and jnp.iscomplexobj(a), adjoint_b and jnp.iscomplexobj(b)
  if are_small_matrices(jax.typeof(a), jax.typeof(b)):
    return multiply(a, b, conjugate_a=conjugate_a, conjugate_b=conjugate_b)
  a, b = a.mT if turn_a else a, b.mT if adjoint_b else b
  return _xla_product(a, b, conjugate_a, conjugate_b, _FULL)


def are_small_matrices(x1: Any, x2: Any) -> bool:
  """Whether the operations take arrays of these types.

  They leave a sharded matrix dimension to XLA.
  """
  if min(x1.ndim, x2.ndim) < 2 or x1.dtype != x2.dtype:
    return False
  sharded = any(tuple(x.sharding.spec)[x.ndim - 2 :] != (None, None) for x in (x1, x2))
  return (
      x1.dtype in (jnp.float32, jnp.float64, jnp.complex64, jnp.complex128) and not sharded
      and may_be_small_products(x1, x2))


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
    x2: matrices (..., k, n), or a vector (k,). The batch dimensions of both broadcast. A matrix
      without any serves the whole batch of the other without being copied.
    precision, preferred_element_type: as for `jax.numpy.matmul`.

  Returns:
    The products (..., m, n), of the dtype that both promote to.

  Algorithm: a handler multiplies float32, float64, complex64 and complex128 matrices. The limit is
  64 rows and columns on the CPU, and 16 on CUDA. The handler runs if neither `precision` nor
  `preferred_element_type` is given. Each element is one chain of fused products in the order of k,
  in full precision. It therefore has the same bits in any batch.

  XLA computes all other products. These include real products of a matrix and a column, and of a
  column and a row. They include real products of at most 3 rows and columns, on CUDA in float32
  alone. On CUDA they also include products of a batch and one right operand.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> linalg.matmul(jnp.eye(2), jnp.array([[1., 2.], [3., 4.]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
  """
  check_arrays("matmul", x1, x2)
  x1, x2 = jnp.asarray(x1), jnp.asarray(x2)
  if (precision is None and preferred_element_type is None
      and are_small_matrices(jax.typeof(x1), jax.typeof(x2)) and x1.shape[-1] == x2.shape[-2]):
    return matmul_p.plain(x1, x2)
  return jnp.linalg.matmul(
      x1, x2, precision=precision, preferred_element_type=preferred_element_type)


@public("adjoint_a", compiled=False)
def congruence(
    a: ArrayLike, x: ArrayLike, q: ArrayLike | None = None, *, adjoint_a: bool = False
) -> jax.Array:
  """Products of matrices with another and its adjoint: A X Aᴴ, or A X Aᴴ + Q.

  This is the covariance of A y + e where y has the covariance X and e has Q, as a Kalman filter
  predicts it. It is also a matrix in another basis, or a whitened covariance.

  Args:
    a: matrices (..., m, n); with `adjoint_a` (..., n, m).
    x: matrices (..., n, n). They need not be Hermitian.
    q: matrices (..., m, m) to add; none if None. The batch dimensions of all broadcast.
    adjoint_a: computes Aᴴ X A, from the vectors in the columns of A.

  Returns:
    The matrices (..., m, m), of the dtype that all promote to. Where X is Hermitian they are
    Hermitian to rounding; `(c + c.mT.conj()) / 2` is so exactly. NaN and Inf pass through.

  Algorithm: two products, first with X, in full precision whatever the default is. Covariances that
  are factored later need this. Handlers multiply small matrices, as in `matmul`.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> turn = jnp.array([[0., -1.], [1., 0.]])
    >>> linalg.congruence(turn, jnp.diag(jnp.array([1., 4.])), jnp.eye(2)).tolist()
    [[5.0, 0.0], [0.0, 2.0]]
  """
  operands = [x for x in (a, x, q) if x is not None]
  (a, x, *rest), dtype = as_arrays("congruence", *operands)
  for operand, y in zip("axq", (a, x, *rest), strict=False):
    check_matrix("congruence", y, operand)
  n, m = a.shape[-2:] if adjoint_a else a.shape[:-3:-1]
  if x.shape[-2:] != (n, n) or any(q.shape[-2:] != (m, m) for q in rest):
    raise incompatible("congruence", a, x, *rest, names=("a", "x", "q")[: 2 + len(rest)])
  if adjoint_a:
    found = product(a, product(x, a), adjoint_a=True)
  else:
    found = product(a, product(x, a, adjoint_b=True))
  for q in rest:
    found = expand(found, q) + expand(q, found)
  return found.astype(dtype)
