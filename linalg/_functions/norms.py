"""Norms of vectors and matrices.

No intermediate result overflows or underflows if the norm is in range. Where a norm has no
gradient, its derivative is a subgradient.
"""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from linalg._core.algebra import adjoint, binade, without_second_derivative
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, check_arrays, real_dtype
from linalg._core.public import public
from linalg._factorizations.svd import smooth_svdvals, svd
from linalg._functions.polar import unitary_p

__all__ = ["extreme_values", "matrix_norm", "norm", "vector_norm"]


def _root(x, function):
  """`function` of `x`, but 0 at 0 with a derivative of 0."""
  zero = x == 0
  return jnp.where(zero, 0, function(jnp.where(zero, 1, x)))


def _euclidean(x, axis, keepdims):
  parts = (x.real, x.imag) if jnp.iscomplexobj(x) else (x,)
  largest = functools.reduce(jnp.maximum, map(jnp.abs, parts))
  scale = binade(jnp.max(largest, axis=axis, keepdims=True, initial=0))
  squares = sum((part / scale) ** 2 for part in parts)
  length = _root(jnp.sum(squares, axis=axis, keepdims=True), jnp.sqrt) * scale
  return length if keepdims else jnp.squeeze(length, axis)


def _power_sum(x, p, axis, keepdims):
  """Returns (Σ |x|^p)^(1/p), computed from numbers divided by the one with the largest weight."""
  size = jnp.abs(x)
  extreme = functools.partial(jnp.max, initial=0) if p > 0 else functools.partial(
      jnp.min, initial=jnp.inf)
  scale = jax.lax.stop_gradient(extreme(size, axis=axis, keepdims=True))
  scale = jnp.where((scale == 0) | jnp.isinf(scale), 1, scale)
  size = size / scale
  zero = size == 0
  terms = jnp.where(zero, 0 if p > 0 else jnp.inf, jnp.where(zero, 1, size) ** p)
  total = jnp.sum(terms, axis=axis, keepdims=True)
  plain = (total != 0) & ~jnp.isinf(total)
  end = jax.lax.stop_gradient(total if p > 0 else 1 / total)
  result = jnp.where(plain, jnp.where(plain, total, 1) ** (1 / p), end) * scale
  return result if keepdims else jnp.squeeze(result, axis)


def _vector_norm(x, order, axis, keepdims):
  if order is None or order == 2:
    return _euclidean(x, axis, keepdims)
  if isinstance(order, str):
    hint = f" Use '{order[:-3]}jax.numpy.inf' instead." if order in ("inf", "-inf") else ""
    raise ValueError(
        f"Invalid order '{order}' for vector norm. It must be a number or None.{hint}")
  if order == np.inf:
    return jnp.max(jnp.abs(x), axis=axis, keepdims=keepdims, initial=0)
  if order == -np.inf:
    return jnp.min(jnp.abs(x), axis=axis, keepdims=keepdims)
  if order == 0:
    return jnp.sum(x != 0, axis=axis, keepdims=keepdims, dtype=real_dtype(x.dtype))
  if order == 1:
    return jnp.sum(jnp.abs(x), axis=axis, keepdims=keepdims)
  return _power_sum(x, order, axis, keepdims)


def _nuclear_given_jvp(primals, tangents):
  # d‖A‖ = Re tr(Uᴴ dA), where U is the unitary polar factor. It is smooth at equal singular values.
  slope = jnp.sum(unitary_p(*primals).conj() * tangents[0], axis=(-2, -1)).real
  return nuclear_p(*primals), slope


# The sum of the singular values of a tall A, given U, S and Vᴴ.
nuclear_p = given_factors(
    "nuclear_norm",
    "m n, m n, n, n n -> ()",
    [2],
    lambda u, s, vh: jnp.sum(s, axis=-1),
    jvp=_nuclear_given_jvp)


@jax.custom_jvp
def _nuclear(x):
  return jnp.sum(smooth_svdvals(x), axis=-1)


@_nuclear.defjvp
def _nuclear_jvp(primals, tangents):
  # One factorization gives the norm and its derivatives of any order.
  (x,), (dx,) = primals, tangents
  if x.shape[-2] < x.shape[-1]:
    x, dx = adjoint(x), adjoint(dx)
  factors = svd(jax.lax.stop_gradient(x), full_matrices=False)
  return _nuclear_given_jvp((x, *factors), (dx,))


def extreme_values(x: jax.Array) -> tuple[jax.Array, jax.Array]:
  """The largest and the smallest singular value. One that equals another has no second
  derivative."""
  s = smooth_svdvals(x)
  two = lambda values: without_second_derivative(values, values, s[..., :1])
  return two(s[..., :2])[..., 0], two(s[..., -2:])[..., -1]


def _matrix_norm(x, order, axis, keepdims):
  if order is None or order in ("f", "fro"):
    return _euclidean(x, axis, keepdims)
  if order not in ("nuc", 1, -1, 2, -2, np.inf, -np.inf):
    raise ValueError(
        f"Invalid order '{order}' for matrix norm. It must be 'fro', 'nuc', 1, -1, 2, -2, inf, "
        "-inf or None.")
  x = jnp.moveaxis(x, axis, (-2, -1))
  if order == "nuc":
    result = jnp.sum(x.real, axis=(-2, -1)) if 0 in x.shape[-2:] else _nuclear(x)
  elif order in (2, -2) and 0 not in x.shape[-2:]:
    largest, smallest = extreme_values(x)
    result = largest if order == 2 else smallest
  else:
    values = (
        smooth_svdvals(x) if abs(order) == 2 else
        jnp.sum(jnp.abs(x), axis=-2 if abs(order) == 1 else -1))
    result = jnp.max(values, axis=-1, initial=0) if order > 0 else jnp.min(values, axis=-1)
  return jnp.expand_dims(result, axis) if keepdims else result


def _canonical(axis, ndim):
  index = operator.index(axis)
  if not -ndim <= index < ndim:
    raise ValueError(f"axis must be from {-ndim} to {ndim - 1} for x of rank {ndim}, got {axis}.")
  return index % ndim


def _axes(axis, ndim):
  """The dimensions that an argument `axis` names; None names all."""
  if axis is None:
    return tuple(range(ndim))
  return tuple(_canonical(i, ndim) for i in (axis if isinstance(axis, tuple) else (axis,)))


def _operand(name, x):
  (x,), dtype = as_arrays(name, x)
  return x, real_dtype(dtype)


@public("ord", "axis", "keepdims")
def norm(
    x: ArrayLike,
    ord: int | str | None = None,
    axis: None | tuple[int, ...] | int = None,
    keepdims: bool = False,
) -> jax.Array:
  """The norm of vectors or matrices; `jax.numpy.linalg.norm`.

  Args:
    x: an array of any floating, complex or integer dtype.
    ord: for vectors as in `vector_norm`, for matrices as in `matrix_norm`. None is the 2-norm and
      the Frobenius norm.
    axis: the dimension of vectors, or the two of matrices (rows, columns). None takes `x` as one
      vector or matrix, and with `ord` None as a vector whatever its rank.
    keepdims: whether to leave dimensions of size 1 behind.

  Returns:
    The norms, real.

  Example:
    >>> import jax, jax.numpy as jnp, linalg
    >>> print(linalg.norm(jnp.array([3.0, 4.0])))
    5.0
    >>> print(linalg.norm(jnp.full(4, 1e30)))  # its square is out of range
    2e+30
    >>> print(jax.grad(linalg.norm)(jnp.zeros(2)))
    [0. 0.]
  """
  a, dtype = _operand("norm", x)
  axes = _axes(axis, a.ndim)
  if axis is None and ord is None:
    return _euclidean(a, axes, keepdims).astype(dtype)
  if len(axes) == 1:
    return _vector_norm(a, ord, axes, keepdims).astype(dtype)
  if len(axes) != 2:
    raise ValueError(
        "norm: axis must be one dimension for a vector norm, or two for a matrix norm, got "
        f"{axis!r} for x of shape {a.shape}.")
  if axes[0] == axes[1]:
    raise ValueError(f"norm: axis must name two different dimensions, got {axis!r}.")
  return _matrix_norm(a, ord, axes, keepdims).astype(dtype)


@public("axis", "keepdims", "ord")
def vector_norm(
    x: ArrayLike,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: int | str = 2,
) -> jax.Array:
  """The norm of vectors; `jax.numpy.linalg.vector_norm`.

  Args:
    x: an array of any floating, complex or integer dtype.
    axis: the dimensions that make up a vector; None takes all of `x`.
    keepdims: whether to leave dimensions of size 1 behind.
    ord: any number p: (Σ |x|^p)^(1/p); inf and -inf for the largest and smallest |x|, 0 for the
      number of nonzero entries.

  Returns:
    The norms, real. The derivative is a subgradient where there is no gradient: 0 at x = 0.

  Algorithm: sums of numbers divided by a power of two (p = 2) or by the largest number. No
  intermediate result is out of range unless the norm is.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> x = jnp.array([[3.0, 4.0], [0.0, 5.0]])
    >>> print(linalg.vector_norm(x, axis=-1))
    [5. 5.]
    >>> print(linalg.vector_norm(x, axis=-1, ord=1))
    [7. 5.]
  """
  check_arrays("vector_norm", x)
  a = jnp.asarray(x)
  if not jnp.issubdtype(a.dtype, jnp.inexact):
    a = a.astype(jnp.result_type(float))  # as in jax.numpy, not as elsewhere
  a, dtype = _operand("vector_norm", a)
  return _vector_norm(a, ord, _axes(axis, a.ndim), keepdims).astype(dtype)


@public("keepdims", "ord")
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> jax.Array:
  """The norm of matrices; `jax.numpy.linalg.matrix_norm`.

  Args:
    x: matrices (..., m, n) of any floating, complex or integer dtype.
    keepdims: whether to leave dimensions of size 1 behind.
    ord: 'fro' (or None) is the root of the sum of squares. 1 and -1 are the largest and smallest
      sum of a column's magnitudes; inf and -inf are those of a row. 2 and -2 are the largest and
      smallest singular value. 'nuc' is the sum of all. A smallest singular value below n eps times
      the largest is a rounding error.

  Returns:
    The norms, real (...). The derivative is a subgradient where there is no gradient. Second
    derivatives of the orders 2 and -2 are NaN where that singular value equals another one.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> a = jnp.array([[3.0, 0.0], [0.0, 4.0]])
    >>> print(linalg.matrix_norm(a), linalg.matrix_norm(a, ord=1))
    5.0 4.0
    >>> print(linalg.matrix_norm(a, ord=2).round(4))
    4.0
  """
  a, dtype = _operand("matrix_norm", x)
  if a.ndim < 2:
    raise ValueError(f"Argument to matrix_norm() must have shape [..., m, n], got {a.shape}")
  return _matrix_norm(a, ord, (a.ndim - 2, a.ndim - 1), keepdims).astype(dtype)
