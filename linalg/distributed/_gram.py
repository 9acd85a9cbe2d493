"""Inverse roots of Gram matrices, for preconditioned optimizers of sharded parameters."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike

import linalg
from linalg._core.algebra import adjoint, binade, expand
from linalg._core.operands import as_arrays
from linalg._core.public import public
from linalg._factorizations.matmul import product
from linalg.distributed._layout import Axes
from linalg.distributed._tall import Rows, tall_or_wide


def own_gram(a: jax.Array, axes: Axes) -> tuple[jax.Array, jax.Array, jax.Array]:
  """A device's scaled rows of A, the Gram matrix Aᴴ A of the scaled A, and the scale.

  The scale is a power of two near the largest entry of all, so that squares neither overflow nor
  underflow. It is (..., 1, 1), a constant to derivatives. The Gram matrix is the sum over the
  devices.
  """
  largest = jnp.max(jnp.abs(lax.stop_gradient(a)), axis=(-2, -1), keepdims=True)
  scale = binade(lax.pmax(largest, axes))
  a = a / scale.astype(a.dtype)
  return a, lax.psum(product(a, a, adjoint_a=True), axes), scale


def scaled_gram(rows: Rows, a: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The Gram matrix and the scale of `own_gram`."""
  return rows.map(lambda a: own_gram(a, rows.axes)[1:], "r", "ss", a)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _root(rows: Rows, is_wide, p, a, ridge, epsilon):
  gram, scale = scaled_gram(rows, rows.even(adjoint(a) if is_wide else a))
  if epsilon is not None:
    epsilon = jnp.asarray(epsilon, scale.dtype)
    # Beside a small matrix, epsilon over the square of its scale would be out of range.
    least = jnp.sqrt(epsilon)
    least = expand(jnp.where(least > 0, binade(least), 0)[..., None, None], scale)
    larger = jnp.maximum(scale, least)
    ratio = (scale / larger).astype(gram.dtype)
    gram, scale = gram * ratio * ratio, larger
    epsilon = epsilon / scale[..., 0, 0] / scale[..., 0, 0]
  root = linalg.inverse_pth_root(
      gram[..., : rows.width, : rows.width], p, ridge_epsilon=ridge, epsilon=epsilon)
  return root * (scale ** (-2 / p)).astype(root.dtype)


@public("p", "axes", compiled=False)
def gram_inverse_pth_root(
    a: ArrayLike,
    p: float,
    *,
    ridge_epsilon: ArrayLike | None = None,
    epsilon: ArrayLike | None = None,
    axes: str | tuple[str, ...] | PartitionSpec | None = None,
) -> jax.Array:
  """(Aᴴ A)^(-1/p) of tall matrices whose rows are sharded, or (A Aᴴ)^(-1/p) of wide ones.

  It is `linalg.inverse_pth_root` of the smaller Gram matrix. The columns of wide matrices are
  sharded.

  Args:
    a: matrices (..., m, n); tall ones as for `qr`. The columns of a wide one are sharded as the
      rows of its transpose.
    p: any nonzero number: 2 gives the polar factor A (Aᴴ A)^(-1/2), 4 is Shampoo's.
    ridge_epsilon, epsilon: as for `linalg.inverse_pth_root`, applied to the Gram matrix.
    axes: as for `qr`, for the longer dimension.

  Returns:
    The roots (..., k, k), k = min(m, n), on all devices. Without either epsilon, they are NaN where
    the rank of A is lower than k, up to rounding.

  Algorithm: A is scaled by a power of two. Each device multiplies its rows, receives the sum of k²
  numbers, and computes the root. Eigenvalues of Aᴴ A below k eps times the largest are rounding
  errors: `ridge_epsilon` should be larger. Derivatives, those of `linalg.inverse_pth_root`, move k²
  numbers for each sum.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(2 * jnp.eye(64)[:, :2], jax.P("x"))
    ...   print(dist.gram_inverse_pth_root(a, 2).round(4))
    [[0.5 0. ]
     [0.  0.5]]
  """
  name = "gram_inverse_pth_root"
  if p == 0:
    raise ValueError(f"Argument p to {name}() must not be 0")
  (a,), dtype = as_arrays(name, a)
  rows, is_wide = tall_or_wide(name, a, axes)
  return _root(rows, is_wide, p, a, ridge_epsilon, epsilon).astype(dtype)
