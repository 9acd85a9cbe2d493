"""Failures: LinAlgError, and `checked`, which turns a matrix's info into an error.

A factorization that fails gives NaN for that matrix alone, and its `_ex` form returns info. Under
`checked` the plain forms also report the failure through `jax.experimental.checkify`. Without
`checked` the program contains no checks.
"""

import contextlib
import functools
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify
from jax.sharding import PartitionSpec

P = ParamSpec("P")
R = TypeVar("R")


class LinAlgError(np.linalg.LinAlgError):
  """A matrix could not be factored. Raised by functions made with `linalg.checked`."""

  __module__ = "linalg"


_ARRAY = object()  # stands for an array among the leaves of the arguments

# A part of the key of JAX's caches: `checked` traces a function again with its checks.
_checking = jax.make_user_context(False)
_called = jax.make_user_context("")  # the public function that was called, while checking


def called(name: str) -> contextlib.AbstractContextManager[Any]:
  """A context in which failures belong to the public function `name`, or to its caller if
  public."""
  return _called(name) if _checking.value and not _called.value else contextlib.nullcontext()


def checked(function: Callable[P, R]) -> Callable[P, R]:
  """`function`, raising LinAlgError where a factorization in it fails.

  The error names the public function that was called, the index of the first matrix that failed in
  its batch, and the cause. A failure inside `pinv` names `pinv`, although the SVD failed. Functions
  in `_ex` report nothing: their caller has the `info`.

  The function is compiled with `jax.jit` and runs to its end before it raises. Use it to find a
  failure. The checks of a sharded batch take an all-reduce.

  Under `vmap`, the index begins with the position along the mapped dimension. In a step of `scan`
  or `lax.map` it is the index in that step's own batch. In the gradient of a `scan` nothing is
  found, because JAX drops the checks there; check the value instead.

  The result cannot be traced. `jax.jit` of it ends with JAX's "Cannot abstractly evaluate a
  checkify.check". Apply `checked` to the whole program, in place of `jax.jit`.

  Args:
    function: any function that JAX can trace. An argument that is not an array is an option; the
      function is compiled once for each of its values.

  Returns:
    A function of the same arguments and results.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> linalg.checked(linalg.cholesky)(-jnp.eye(2))
    Traceback (most recent call last):
    linalg.LinAlgError: cholesky: the matrix at index () is not positive definite: ...
  """
  anything: Callable[..., Any] = function

  @functools.partial(jax.jit, static_argnums=1)
  def compiled(arrays, rest):
    structure, options = rest

    def call(arrays):
      arrays = iter(arrays)
      leaves = [next(arrays) if x is _ARRAY else x for x in options]
      args, kwargs = jax.tree.unflatten(structure, leaves)
      return anything(*args, **kwargs)

    return checkify.checkify(call, errors=checkify.user_checks)(arrays)

  @functools.wraps(function)
  def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
    leaves, structure = jax.tree.flatten((args, kwargs))
    options = tuple(_ARRAY if hasattr(x, "dtype") else x for x in leaves)
    with _checking(True):
      error, result = compiled(
          [x for x in leaves if hasattr(x, "dtype")], (structure, options))
    try:
      message = error.get()
    except jax.errors.TracerBoolConversionError:  # called by another checked function
      checkify.check_error(error)
      return result
    if message:
      raise LinAlgError(_INDEX.sub(_tuple, message.partition(" (`check` failed)")[0]))
    return result

  return wrapper


# The number of indices in a message. Dimensions that the batch does not have are -1.
_MOST_DIMENSIONS = 16
_INDEX = re.compile(r"(?<=at index )\[([-\d\s]*)\]")


def _tuple(index: re.Match[str]) -> str:
  return f"({', '.join(x for x in index[1].split() if x != '-1')})"


# `vmap` maps a dimension of the operand, so that dimension is part of the index.
@jax.custom_batching.custom_vmap
def _places(info):
  """The index of each element."""
  axes = [jax.lax.broadcasted_iota(jnp.int32, info.shape, axis) for axis in range(info.ndim)]
  missing = [jnp.full_like(info, -1)] * (_MOST_DIMENSIONS - info.ndim)
  return jnp.stack(missing + axes, axis=-1)


@_places.def_vmap
def _places_of_mapped(axis_size, in_batched, info):
  del axis_size, in_batched
  return _places(info), True


def check_factors(info: jax.Array) -> None:
  """`check` for LU factors, which may be singular or hold NaN."""
  if not _checking.value:
    return
  check(jnp.maximum(info, 0), "is singular: pivot {info} of its LU factors is zero.")
  check(jnp.minimum(info, 0), "has no LU factors: they would hold NaN.")


def check_positive(info: jax.Array) -> None:
  """`check` for Cholesky factors."""
  check(info, "is not positive definite: its leading minor of order {info} is not positive.")


def check_converged(info: jax.Array, result: str) -> None:
  """`check` for iterations, whose info is -1 for NaN and Inf."""
  check(info, f"has no {result}: it holds NaN or Inf, or did not converge (info {{info}}).")


def check(info: jax.Array, what: str) -> None:
  """Under `checked`, reports the first nonzero `info`; `what` may use it as {info}."""
  if not _checking.value or info.size == 0:
    return
  spec = jax.typeof(info).sharding.spec
  if any(axis is not None for axis in spec):
    info = jax.sharding.reshard(info, PartitionSpec(*(None for _ in spec)))
  first = jnp.argmax(info.reshape(-1) != 0)
  place = _places(info).reshape(-1, _MOST_DIMENSIONS)[first]
  text = f"{_called.value}: the matrix at index {{place}} {what}"
  checkify.check(jnp.all(info == 0), text, info=info.reshape(-1)[first], place=place)
