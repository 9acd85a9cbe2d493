"""Operands: what they may be, the dtype to compute in, and the matrix algebra of derivative
rules."""

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

# Derivative rules multiply in full precision, whatever the user's default for matmul is.
matmul = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


def check_arrays(name: str, *operands: Any) -> None:
  """Raises TypeError for what is no array of numbers."""
  for i, x in enumerate(operands):
    if not (hasattr(x, "dtype") or hasattr(x, "__jax_array__") or jnp.isscalar(x)):
      raise TypeError(
          f"{name} requires ndarray or scalar arguments, got {type(x)} at position {i}.")
    dtype = getattr(x, "dtype", np.dtype(bool))
    if not (jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_)):
      raise TypeError(f"{name} takes arrays of numbers, got {dtype} at position {i}.")


def as_arrays(name: str, *operands: ArrayLike) -> tuple[list[jax.Array], Any]:
  """The operands as arrays of one dtype that LAPACK computes in, and the dtype to return.

  64-bit integers become float64, other integers and booleans float32, as in jax.numpy. float16 and
  bfloat16 are computed in float32, and the results rounded to the operands' dtype.
  """
  check_arrays(name, *operands)
  dtype = jnp.result_type(*operands)
  if not jnp.issubdtype(dtype, jnp.inexact):
    dtype = np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
  compute = jnp.promote_types(dtype, jnp.float32)
  return [jnp.asarray(x, dtype=compute) for x in operands], dtype


def check_square(name: str, a: jax.Array) -> None:
  if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
    raise ValueError(f"Argument to {name}() must have shape [..., n, n], got {a.shape}")


def check_matrix(name: str, a: jax.Array) -> None:
  if a.ndim < 2:
    raise ValueError(f"Argument to {name}() must have shape [..., m, n], got {a.shape}")


def expand(x: jax.Array, a: jax.Array) -> jax.Array:
  """`x` with unit dimensions in front, to the rank of `a`."""
  return jax.lax.expand_dims(x, tuple(range(a.ndim - x.ndim)))


def identity(a: jax.Array, rows: Any = None, cols: Any = None) -> jax.Array:
  """An identity matrix of the dtype and rank of `a`, by default of its shape."""
  rows = a.shape[-2] if rows is None else rows
  cols = a.shape[-1] if cols is None else cols
  return expand(jnp.eye(rows, cols, dtype=a.dtype), a)


def on_diagonal(a: jax.Array) -> jax.Array:
  """A mask of the diagonal, of the rank of `a`."""
  return expand(jnp.eye(*a.shape[-2:], dtype=bool), a)


def diagonal(a: jax.Array) -> jax.Array:
  """The diagonal of square matrices, as a sum: a gather's transpose has no sharding."""
  return jnp.sum(jnp.where(on_diagonal(a), a, 0), axis=-1)


def permutation_matrix(permutation: jax.Array, dtype: Any) -> jax.Array:
  """P with (P A)[i] = A[permutation[i]]. A gather would not know how its result is sharded."""
  index = jnp.arange(permutation.shape[-1], dtype=permutation.dtype)
  return (permutation[..., None] == expand(index, permutation[..., None])).astype(dtype)


def adjoint(a: jax.Array) -> jax.Array:
  return a.mT.conj()


def triangle(a: jax.Array, *, lower: bool, unit_diagonal: bool = False) -> jax.Array:
  """One triangle of `a`; that of a unit triangular matrix has no diagonal of its own."""
  if lower:
    return jnp.tril(a, -1 if unit_diagonal else 0)
  return jnp.triu(a, 1 if unit_diagonal else 0)


def symmetrized(a: jax.Array) -> jax.Array:
  """(A + Aᴴ) / 2"""
  return (a + adjoint(a)) / 2


def hermitian_part(a: jax.Array, *, lower: bool, symmetrize: bool) -> jax.Array:
  """The Hermitian matrix that a handler reads from `a`, as a function to differentiate."""
  if symmetrize:
    return symmetrized(a)
  strict = triangle(a, lower=lower, unit_diagonal=True)
  diagonal = jnp.where(on_diagonal(a), a.real, 0)
  return strict + adjoint(strict) + diagonal.astype(a.dtype)


def nan_where(failed: jax.Array, x: jax.Array, core: int) -> jax.Array:
  """`x` with NaN in place of the matrices (or vectors: core=1) that `failed` marks."""
  failed = failed.reshape(failed.shape + (1,) * core)
  return jnp.where(failed, jnp.nan, x)


def info_of_nan(x: jax.Array, core: int) -> jax.Array:
  """-1 for what holds NaN among its last `core` dimensions, else 0."""
  return jnp.where(jnp.isnan(x).any(tuple(range(-core, 0))), -1, 0).astype(jnp.int32)


def reciprocal(x: jax.Array, keep: jax.Array) -> jax.Array:
  """1 / x where `keep`, else 0."""
  return jnp.where(keep, 1 / jnp.where(keep, x, 1), 0)


def smallest_gap(norm: jax.Array, n: Any) -> jax.Array:
  """8 √n eps ‖A‖: eigenvalues or singular values of A that are as close as this count as equal."""
  return 8 * n**0.5 * jnp.finfo(norm.dtype).eps * norm


def as_columns(name: str, a: jax.Array, b: jax.Array) -> tuple[jax.Array, bool]:
  """The right-hand sides as columns (..., n, k), and whether they were vectors (..., n).

  As in jax.scipy.linalg: a one-dimensional `b` is a vector, and so, with a warning, is one that has
  a dimension less than `a` and ends in n.
  """
  if b.ndim == 0:
    raise ValueError(f"Argument b to {name}() must have rank at least 1, got shape {b.shape}")
  vector = b.ndim == 1
  if not vector and a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1]:
    warnings.warn(
        f"{name}: batched 1D solves with b.ndim > 1 are deprecated, and in the future will be "
        f"treated as a batched 2D solve. Use b[..., None] and .squeeze(-1) to avoid this warning.",
        FutureWarning, stacklevel=3)
    vector = True
  columns = b[..., None] if vector else b
  if columns.shape[-2] != a.shape[-1]:
    raise ValueError(f"Incompatible shapes for arguments to {name}(): {a.shape} and {b.shape}")
  return columns, vector


def binade(x: jax.Array) -> jax.Array:
  """The power of two at or below `x` >= 0, a constant to derivatives; 1 of 0, Inf and NaN.

  Dividing by it is exact. `jnp.exp2` is not.
  """
  x = jax.lax.stop_gradient(x)
  finfo = jnp.finfo(x.dtype)
  integer = np.dtype(f"int{finfo.bits}")
  exponent = jax.lax.bitcast_convert_type(x, integer) & integer.type(
      ((1 << finfo.nexp) - 1) << finfo.nmant)
  power = jax.lax.bitcast_convert_type(exponent, x.dtype)
  return jnp.where((x > 0) & (power > 0) & jnp.isfinite(power), power, 1)
