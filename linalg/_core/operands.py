"""Checks and conversions of operands: arrays of numbers, of one dtype and the right shape."""

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from linalg._core.primitive import refuse_sharded_core

VECTORS = (
    "A batch of vectors is not told from a matrix by its shape: pass b[..., None], and take "
    ".squeeze(-1) of the result.")


def as_integer(
    name: str, parameter: str, value: Any, least: int | None = None, most: int | None = None
) -> int:
  """The integer that a parameter of the function takes, within limits."""
  try:
    value = operator.index(value)
  except TypeError:
    raise TypeError(f"{name}: {parameter} must be an integer, got {value!r}.") from None
  if least is not None and (value < least or (most is not None and value > most)):
    limits = f"at least {least}" if most is None else f"from {least} to {most}"
    raise ValueError(f"{name}: {parameter} must be {limits}, got {value}.")
  return value


def as_indices(name: str, parameter: str, subset: Any, n: Any) -> tuple[int, int]:
  """`subset`, which the caller gave as `parameter`, as two of n indices, the last included."""
  limits = f"must be (first, last) with 0 <= first <= last < {n}, got {subset!r}."
  try:
    first, last = subset
  except (TypeError, ValueError):
    raise ValueError(f"{name}: {parameter} {limits}") from None
  first = as_integer(name, f"{parameter}[0]", first)
  last = as_integer(name, f"{parameter}[1]", last)
  # A symbolic n has no order.
  if not 0 <= first <= last or (isinstance(n, int) and last >= n):
    raise ValueError(f"{name}: {parameter} {limits}")
  return first, last


def check_arrays(name: str, *operands: Any) -> None:
  """Raises TypeError for an operand that is not an array of numbers."""
  for i, x in enumerate(operands):
    if not _is_array(x):
      raise TypeError(not_an_array(name, x, i))
    if not holds_numbers(x):
      raise TypeError(not_of_numbers(name, x, i))


def not_an_array(name: str, x: Any, position: int) -> str:
  return f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position}."


def not_of_numbers(name: str, x: Any, position: int) -> str:
  return f"{name} takes arrays of numbers, got {x.dtype} at position {position}."


def holds_numbers(x: Any) -> bool:
  """Whether an array or a scalar is of numbers or booleans."""
  dtype = getattr(x, "dtype", np.dtype(bool))
  return jnp.issubdtype(dtype, np.number) or jnp.issubdtype(dtype, np.bool_)


def _is_array(x: Any) -> bool:
  return not isinstance(x, (str, bytes)) and (  # NumPy's have a dtype
      hasattr(x, "dtype") or hasattr(x, "__jax_array__") or jnp.isscalar(x))


def as_pair(
    name: str, parameter: str, what: str, x: Any, *, flag: bool = False
) -> tuple[Any, Any]:
  """The two members of a pair, of which the second is a flag or an array.

  An array of two matrices is not such a pair. `what` describes the pair in the error.
  """
  if not isinstance(x, (tuple, list)):
    got = str(type(x))
  elif len(x) != 2:
    got = f"{len(x)} of them"
  elif _is_array(x[0]) and _is_array(x[1]) and (getattr(x[1], "ndim", 0) == 0) == flag:
    return x[0], x[1]
  else:
    got = " and ".join(jax.typeof(y).str_short() if _is_array(y) else str(type(y)) for y in x)
  raise TypeError(f"{name} takes as {parameter} {what}, got {got}.")


def as_arrays(name: str, *operands: ArrayLike) -> tuple[list[jax.Array], Any]:
  """The operands as arrays of one dtype that LAPACK computes in, and the dtype to return.

  64-bit integers become float64, other integers and booleans float32, as in jax.numpy. float16 and
  bfloat16 are computed in float32, and the results are rounded to the operands' dtype.
  """
  check_arrays(name, *operands)
  dtype = jnp.result_type(*operands)
  if not jnp.issubdtype(dtype, jnp.inexact):
    dtype = np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
  compute = compute_dtype(dtype)
  return [jnp.asarray(x, dtype=compute) for x in operands], dtype


def compute_dtype(dtype: Any) -> np.dtype:
  """Returns the inexact dtype to compute in: float32 for float16 and bfloat16, or `dtype`."""
  return np.dtype(np.float32) if jnp.finfo(dtype).bits < 32 else np.dtype(dtype)


def real_dtype(dtype: Any) -> np.dtype:
  """The dtype of the real part of numbers of a dtype."""
  return jnp.finfo(dtype).dtype


def complex_dtype(dtype: Any) -> np.dtype:
  """The complex dtype of a dtype's precision, and at least complex64."""
  return np.dtype(np.complex128 if jnp.finfo(dtype).bits == 64 else np.complex64)


def as_complex(x: jax.Array) -> jax.Array:
  """Converts to the complex dtype of the numbers' precision."""
  return x.astype(complex_dtype(x.dtype))


def check_square(name: str, a: jax.Array, operand: str = "") -> None:
  """Raises ValueError where `a` is not square, and ShardingTypeError where devices share a matrix.

  `operand` names it in the error, if the function takes several. A function may compute with `a`
  before it calls a handler. JAX's own error about sharding would be about that computation.
  """
  if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
    raise ValueError(
        f"Argument {operand}{' ' * bool(operand)}to {name}() must have shape [..., n, n], got "
        f"{a.shape}")
  refuse_sharded_core(name, operand or 0, jax.typeof(a), 2)


def check_matrix(name: str, a: jax.Array, operand: str = "") -> None:
  """`operand` is as for `check_square`."""
  if a.ndim < 2:
    raise ValueError(
        f"Argument {operand}{' ' * bool(operand)}to {name}() must have shape [..., m, n], got "
        f"{a.shape}")


def incompatible(name: str, *operands: Any, names: Sequence[str] = ()) -> ValueError:
  """The error for operands whose shapes do not fit, each preceded by its name if given."""
  prefixes = [f"{x} " for x in names] or [""] * len(operands)
  *shapes, last = (f"{prefix}{x.shape}" for prefix, x in zip(prefixes, operands, strict=True))
  return ValueError(
      f"Incompatible shapes for arguments to {name}(): {', '.join(shapes)} and {last}")


def incompatible_changes(
    name: str, factor: Any, changes: Sequence[Any], names: Sequence[str]
) -> ValueError:
  """The error for changes of a factor that do not fit it, with a hint at vectors (..., n)."""
  error = incompatible(name, factor, *changes, names=names)
  if not any(x.ndim > 1 for x in changes):
    return error
  if isinstance(factor, jax.ShapeDtypeStruct):  # of one matrix that devices share
    hint = " and ".join(f"{x}.T" for x in names[1:])
    return ValueError(f"{error}. Where these are vectors in rows, use {hint}.")
  hint = " and ".join(f"{x}[..., None]" for x in names[1:])
  return ValueError(
      f"{error}. Where these are vectors, not columns of matrices, use {hint}.")


def as_changes(
    name: str, factor: jax.Array, dtype: Any, *operands: Any, names: Sequence[str],
    real: Sequence[str] = ()
) -> list[jax.Array]:
  """Arrays of the dtype of a factor that they change. Complex ones do not fit a real factor.

  `dtype` is that of the factor's results. Operands that do not promote with it raise
  `TypePromotionError`, as in jax.numpy. Operands named in `real` may be real where the factor is
  complex.
  """
  check_arrays(name, *operands)
  for x, what in zip(operands, names, strict=True):
    if jnp.iscomplexobj(x) and not jnp.iscomplexobj(factor):
      raise TypeError(
          f"{name}() of a real factor takes real arrays, got {jnp.result_type(x)} as {what}.")
    jnp.result_type(
        real_dtype(dtype) if what in real and not jnp.iscomplexobj(x) else dtype, x)
  return [jnp.asarray(x, factor.dtype) for x in operands]


def check_columns(
    name: str, a: Any, b: jax.Array, columns: jax.Array, what: str = "the matrix"
) -> None:
  """Raises ValueError where right-hand sides do not fit `a`; `columns` is `b` as matrices."""
  if columns.ndim < 2 or columns.shape[-2] != a.shape[-1]:
    error = incompatible(name, a, b, names=(what, "b"))
    if b.ndim > 1 and b.shape[-1] == a.shape[-1]:
      error = ValueError(f"{error}. {VECTORS}")
    raise error
  check_batches(name, a, columns, names=(what, "b"))


def check_batches(
    name: str, *operands: Any, ranks: Sequence[int] = (), names: Sequence[str] = ()
) -> None:
  """Raises ValueError where the batch dimensions of operands do not broadcast.

  `ranks` are the numbers of core dimensions, by default 2 for every operand.
  """
  ranks = ranks or [2] * len(operands)
  try:
    jnp.broadcast_shapes(
        *(x.shape[:-rank] for x, rank in zip(operands, ranks, strict=True)))
  except ValueError:
    raise incompatible(name, *operands, names=names) from None


def as_columns(
    name: str, a: jax.Array | jax.ShapeDtypeStruct, b: jax.Array
) -> tuple[jax.Array, bool]:
  """The right-hand sides as columns (..., n, k), and whether they were vectors (..., n).

  A one-dimensional `b` is a vector, as in jax.scipy.linalg. A `b` with one dimension less than `a`
  that ends in n is a batch of vectors too, with a warning.
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
  check_columns(name, a, b, columns)
  return columns, vector
