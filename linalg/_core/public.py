"""Public functions: compiled, with errors about wrong arguments in the caller's terms."""

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

import jax
import numpy as np

from linalg._core.checks import called
from linalg._core.operands import holds_numbers, not_an_array, not_of_numbers

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


def public(
    *static: str, compiled: bool = True, lists: bool = False,
    hints: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
  """A decorator of public functions, which keeps their signature.

  JAX's messages about wrong arguments name its internals: abstract arrays, hashes, or the value of
  the whole array. This decorator raises one TypeError about the function that was called. Arguments
  are inspected only after a failure, so a call costs no more for it. Only with `lists` are their
  types inspected before.

  Args:
    static: the parameters that are options, known when the function is traced, not arrays.
    compiled: whether to apply `jax.jit`. False for a function that needs a value before it calls a
      compiled one.
    lists: whether lists of numbers count as arrays, and a list of options as a tuple.
      `jax.scipy.linalg` and SciPy do so; `jax.numpy` does not.
    hints: what else to say where an array is given for an option.
  """

  def decorate(function: Callable[P, R]) -> Callable[P, R]:
    call: Any = jax.jit(function, static_argnames=static) if compiled else function
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
      try:
        with called(function.__name__):
          for subset in ("subset_by_index", "subset_by_value"):
            if isinstance(chosen := kwargs.get(subset), list):
              kwargs[subset] = tuple(chosen)
          if lists and (list in map(type, args) or list in map(type, kwargs.values())):
            return _call_without_lists(call, signature, static, args, kwargs)
          return call(*args, **kwargs)
      except Exception:
        message = _wrong(function.__name__, signature, static, compiled, hints or {}, args, kwargs)
        if message is None:
          raise
      raise TypeError(message)

    return wrapper

  return decorate


def with_types_of(counterpart: F) -> Callable[[Callable[..., Any]], F]:
  """A decorator of functions that have the signature of `counterpart`, which says their types."""
  del counterpart
  return lambda function: cast(F, function)


def _call_without_lists(call, signature, static, args, kwargs) -> Any:
  bound = signature.bind(*args, **kwargs)
  for parameter, value in bound.arguments.items():
    if type(value) is list:
      bound.arguments[parameter] = tuple(value) if parameter in static else jax.numpy.asarray(value)
  return call(*bound.args, **bound.kwargs)


def _wrong(name, signature, static, compiled, hints, args, kwargs) -> str | None:
  """The error in the arguments of a call that failed, or None if there is none."""
  try:
    arguments = signature.bind(*args, **kwargs).arguments
  except TypeError as error:
    unknown = [key for key in kwargs if key not in signature.parameters]
    what = f"got an unexpected keyword argument '{unknown[0]}'" if unknown else error
    plain = signature.replace(
        parameters=[x.replace(annotation=x.empty) for x in signature.parameters.values()],
        return_annotation=signature.empty)
    return f"{name}(): {what}; its signature is {name}{plain}."
  for place, (parameter, value) in enumerate(arguments.items()):
    if parameter in static:
      if isinstance(value, (jax.Array, np.ndarray)):
        return (
            f"{name}() takes {parameter} as an option, known when the call is traced, not as an "
            f"array; got {jax.typeof(value).str_short()}. {hints.get(parameter, '')}".rstrip())
      if not isinstance(value, Hashable) or _holds_unhashable(value):
        return (
            f"{name}() takes {parameter} as an option: a number, a string or a tuple; got "
            f"{type(value)}.")
    elif isinstance(value, (str, bytes)) or (compiled and not _may_be_array(value)):
      return not_an_array(name, value, place)
    elif signature.parameters[parameter].kind is not inspect.Parameter.VAR_POSITIONAL:
      for x in value if isinstance(value, (tuple, list)) else [value]:
        if isinstance(x, np.ndarray) and not holds_numbers(x):
          return not_of_numbers(name, x, place)
  return None


def _holds_unhashable(value: Any) -> bool:
  return isinstance(value, tuple) and not all(isinstance(x, Hashable) for x in value)


def _may_be_array(value: Any) -> bool:
  """Whether JAX traces it. Containers pass: the function itself refuses them."""
  return (
      value is None or isinstance(value, (bool, int, float, complex, list, tuple, dict))
      or hasattr(value, "dtype") or hasattr(value, "__jax_array__"))
