"""JAX's own linear algebra by this package's handlers, in programs that need not be changed.

JAX's functions, and the libraries that call them, bottom out in primitives. While acceleration is
on, those that a handler computes are lowered to it. Their derivatives and `vmap` are JAX's rules,
which bottom out in the same primitives; but the derivative of a Cholesky factor is a handler's, by
the formula that JAX has.
"""

import contextlib
import functools
import inspect
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from linalg._accelerate.matchers import OTHER_VIEWS, CallView, lower_triangle
from linalg._accelerate.reroute import rederive, reroute
from linalg._accelerate.routes import PRODUCTS, ROUTES, Call, Route, dot_general
from linalg._core import primitive
from linalg._factorizations.cholesky import cholesky_full_jvp_p, cholesky_lower_jvp_p
from linalg._factorizations.matmul import exact_matmul_p

__all__ = ["accelerate", "accelerated", "routed"]

_PLATFORMS = ("cpu", "cuda")
_DTYPES = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128", "int32")))
_log = logging.getLogger("linalg.accelerate")


# The rule that JAX has since 0.11.2 reads the lower triangle of dA, those before all of it.
_CHOLESKY_JVP = (
    cholesky_lower_jvp_p if jax.__version_info__ >= (0, 11, 2) else cholesky_full_jvp_p)


def _cholesky_jvp(bind, primals, tangents):
  (a,), (da,) = primals, tangents
  types = jax.typeof(a), jax.typeof(da)
  if not _switch().enabled or _reason_of_types(types) is not None:
    return None
  if not _CHOLESKY_JVP.runs_on("cpu", *types):  # elsewhere it is JAX's formula, or a handler too
    return None
  factor = bind(a)
  return factor, _CHOLESKY_JVP(factor, da)


# Derivatives in one call that take many by JAX's rules, which they have the formulas of.
_DERIVATIVES = {"cholesky": _cholesky_jvp}


def _reason_of_types(types: Any) -> str | None:
  """Why operands of these types stay JAX's, if they do."""
  if any(x.dtype not in _DTYPES for x in types):
    return "no handler takes this dtype"
  if any(0 in x.shape for x in types):
    return "an operand is empty"
  return None


def _names(types: Any) -> str:
  return ", ".join(f"{x.dtype}{list(x.shape)}" for x in types)


def _call(
    route: Route | str, platform: str, types: Any, automatic: bool, parameters: Mapping[str, Any]
) -> Call | str:
  """The call of a handler on `platform`, or the reason why there is none."""
  if isinstance(route, str):
    return route
  if automatic and route is dot_general:
    return "the compiler may shard its matrices"
  if (reason := _reason_of_types(types)) is not None:
    return reason
  try:
    inspect.signature(route).bind(*types, **parameters)
  except TypeError as error:
    return f"this version of JAX has other parameters: {error}"
  call = route(*types, **parameters)
  if isinstance(call, Call) and not call.operation.runs_on(platform, *types, **call.attributes):
    return f"{call.operation.name} does not run on {platform} for these operands"
  return call


class _Switch(NamedTuple):
  """What is accelerated."""

  enabled: bool
  products: bool


_OFF = _Switch(enabled=False, products=False)


class _Process:
  """What `accelerate` has chosen."""

  lock = threading.Lock()
  switch = _OFF


# What a thread has chosen for itself; part of the key of JAX's caches.
_thread = jax.make_user_context(None)


def _switch() -> _Switch:
  return _Process.switch if _thread.value is None else _thread.value


def _router(name: str, route: Route | str) -> Callable[..., Any]:
  """What is asked each time that a primitive is lowered, for the rule to lower it by."""

  def router(platform, automatic, parameters):
    switch = _switch()
    if not (switch.products if name in PRODUCTS else switch.enabled):
      return None
    return functools.partial(_lower, name, route, platform, automatic, parameters)

  return router


def _lower(name, route, platform, automatic, parameters, ctx, *operands):
  """A lowering rule, which returns None where the primitive stays JAX's."""
  here = CallView(ctx.avals_in, operands, parameters)
  others = OTHER_VIEWS[name](here) if name in OTHER_VIEWS else ()
  for view in itertools.chain(others, [here]):
    call = _call(route, platform, view.types, automatic, view.parameters)
    if isinstance(call, Call):
      results = _lower_call(call, view, platform, ctx)
      went = "stays JAX's: its results are of other types" if results is None else (
          call.operation.name)
      _log.debug("%s(%s) on %s: %s", name, _names(view.types), platform, went)
      return results
  _log.debug("%s(%s) on %s stays JAX's: %s", name, _names(ctx.avals_in), platform, call)
  return None


def _lower_call(call, view, platform, ctx):
  ctx = ctx.replace(avals_in=view.types)
  arrange = [f for f in (call.arrange, view.arrange) if f is not None]
  one_for_all = call.operation in exact_matmul_p and len({x.ndim for x in view.types}) > 1
  if arrange or one_for_all:

    def product(*operands):
      result = call.operation(*operands, **call.attributes)
      return functools.reduce(lambda x, f: f(x), arrange, result)

    return primitive.lower_composed(product, ctx, *view.operands)
  lower = call.operation.lowering(platform, call.results, **call.attributes)
  return lower(ctx, *view.operands)


def _route_triangle(platform, automatic, parameters):
  return lower_triangle if _switch().enabled else None


@functools.cache
def _install(products: bool) -> None:
  """Puts routers in the place of JAX's lowerings, which leave programs as they were while
  acceleration is off."""
  for name, route in (PRODUCTS if products else ROUTES).items():
    reroute(
        name, _PLATFORMS, _router(name, route), looks_back=name in OTHER_VIEWS)
  if not products:
    reroute("select_n", _PLATFORMS, _route_triangle, looks_back=True)
    for name, rule in _DERIVATIVES.items():
      rederive(name, rule)


def _prepared(enabled: bool, products: bool) -> _Switch:
  if not isinstance(enabled, bool) or not isinstance(products, bool):
    raise TypeError(f"enabled and products must be bool, got {enabled!r} and {products!r}.")
  with _Process.lock:
    if enabled:
      _install(products=False)
    if enabled and products:
      _install(products=True)
  return _Switch(enabled, enabled and products)


def accelerate(enabled: bool = True, *, products: bool = False) -> None:
  """Has JAX's own linear algebra computed by this package's handlers, in the whole process.

  From here on programs that call `jax.numpy.linalg`, `jax.scipy.linalg` or `jax.lax.linalg`, or a
  library that does, are compiled with this package's handlers where JAX would call LAPACK or
  cuSOLVER: Cholesky, LU, QR, eigh, eig, SVD, Schur, triangular and tridiagonal solves, Householder
  products and permutations from pivots, and with them what JAX composes of these, `vmap` and
  derivatives. Results are JAX's to rounding, in JAX's conventions, but for what a decomposition
  leaves open: signs of vectors, and the order of the eigenvalues of general matrices. A matrix that
  holds NaN or Inf has NaN in its results, where LAPACK may leave some finite; but an infinite pivot
  of Cholesky is LAPACK's. Derivatives are JAX's formulas: where those are NaN at degenerate points,
  call this package's functions instead.

  What no handler computes stays JAX's: half precision, empty operands, an algorithm or a subset
  that was asked for, TPUs, and programs that are exported or for several platforms, whose custom
  calls JAX promises to keep.
  The logger "linalg.accelerate" tells of each call that is compiled, at level DEBUG, where it went;
  `show_config` lists what is accelerated.

  Args:
    enabled: whether to accelerate, or to leave all to JAX again. Asking for what is already so
      does nothing; a change empties JAX's caches, so that programs are compiled anew when they are
      called next. Those that were compiled ahead of time stay as they are.
    products: whether batches of products of matrices with at most 64 rows and columns, on a GPU at
      most 16, go to a handler too, also where one matrix serves the whole batch: XLA takes up to 37
      times as long for them on the CPU, but fuses them with what stands around. On meshes with Auto
      axes they stay XLA's, which may share a product among devices.

  A program that another thread is compiling meanwhile is compiled one way or the other. Processes
  that this one starts decide for themselves. To accelerate one thread for some time, see
  `accelerated`.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> linalg.accelerate()
    >>> jnp.linalg.cholesky(4 * jnp.eye(2)).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    >>> linalg.accelerate(False)
  """
  switch = _prepared(enabled, products)
  with _Process.lock:
    changed = switch != _Process.switch
    _Process.switch = switch
  if changed:
    jax.clear_caches()


@contextlib.contextmanager
def accelerated(enabled: bool = True, *, products: bool = False) -> Iterator[None]:
  """A context in which this thread's programs are compiled as after `accelerate`.

  Programs that are called within it and outside are compiled for each, once. It is to stand around
  calls of compiled functions: within a function that `jax.jit` traces it does nothing, for what is
  traced there is compiled after it has ended. As JAX's own contexts it is a thread's, not a task's:
  it must not last across an `await`.

  Args:
    enabled, products: as for `accelerate`. With `enabled=False` programs are JAX's within it.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> with linalg.accelerated():
    ...   l = jnp.linalg.cholesky(4 * jnp.eye(2))
    >>> l.tolist()
    [[2.0, 0.0], [0.0, 2.0]]
  """
  with _thread(_prepared(enabled, products)):
    yield


def routed() -> list[str]:
  """The primitives of JAX that this thread's programs have computed by handlers now."""
  switch = _switch()
  routes = (ROUTES if switch.enabled else {}) | (PRODUCTS if switch.products else {})
  return [name for name, route in routes.items() if not isinstance(route, str)]
