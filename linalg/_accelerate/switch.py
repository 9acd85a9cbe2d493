"""JAX's own linear algebra by this package's handlers, in programs that need not be changed.

JAX's functions, and the libraries that call them, end in primitives. While acceleration is on,
primitives that a handler computes are lowered to it. Derivatives and `vmap` use JAX's rules, which
end in the same primitives. The one exception is the derivative of a Cholesky factor: a handler
computes it by JAX's formula.
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
from linalg._core import primitive, targets
from linalg._factorizations.cholesky import cholesky_full_jvp_p, cholesky_lower_jvp_p
from linalg._factorizations.matmul import exact_matmul_p

__all__ = ["accelerate", "accelerated", "routed"]

_PLATFORMS = ("cpu", "cuda")
_DTYPES = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128", "int32")))
_log = logging.getLogger("linalg.accelerate")


# JAX's rule reads the lower triangle of dA since 0.11.2, and all of dA before.
_CHOLESKY_JVP = (
    cholesky_lower_jvp_p if jax.__version_info__ >= (0, 11, 2) else cholesky_full_jvp_p)


def _cholesky_jvp(bind, primals, tangents):
  (a,), (da,) = primals, tangents
  types = jax.typeof(a), jax.typeof(da)
  if not _switch().enabled or _reason_of_types(types) is not None:
    return None
  if not _CHOLESKY_JVP.runs_on("cpu", *types):  # elsewhere JAX's formula is used, or a handler too
    return None
  factor = bind(a)
  return factor, _CHOLESKY_JVP(factor, da)


# Derivatives in one call, by JAX's formulas, where JAX's rules take many calls.
_DERIVATIVES = {"cholesky": _cholesky_jvp}


def _reason_of_types(types: Any) -> str | None:
  """Why operands of these types stay JAX's, or None."""
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
    return _reason_of_operation(call.operation.name, platform)
  return call


def _reason_of_operation(name: str, platform: str) -> str:
  """Why an operation that does not take some operands on `platform` leaves them to JAX."""
  if platform not in targets.platforms(name):
    return f"{name} does not run on {platform}"
  return targets.refusal(name, platform) or f"XLA was chosen for these operands on {platform}"


class _Switch(NamedTuple):
  """The settings of acceleration."""

  enabled: bool
  products: bool


_OFF = _Switch(enabled=False, products=False)


class _Process:
  """The settings of the process, made by `accelerate`."""

  lock = threading.Lock()
  switch = _OFF


# The settings of a thread. They are part of the key of JAX's caches.
_thread = jax.make_user_context(None)


def _switch() -> _Switch:
  return _Process.switch if _thread.value is None else _thread.value


def _router(name: str, route: Route | str) -> Callable[..., Any]:
  """The function that returns a lowering rule each time that a primitive is lowered."""

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
  """Puts routers in place of JAX's lowerings. Programs do not change while acceleration is off."""
  for name, route in (PRODUCTS if products else ROUTES).items():
    reroute(
        name, _PLATFORMS, _router(name, route), looks_back=name in OTHER_VIEWS)
  if not products:
    reroute("select_n", _PLATFORMS, _route_triangle, looks_back=True)
    for name, rule in _DERIVATIVES.items():
      rederive(name, rule)


def _prepared(enabled: bool, products: bool) -> _Switch:
  if not isinstance(enabled, bool) or not isinstance(products, bool):
    raise TypeError(
        f"accelerate: enabled and products must be bool, got {enabled!r} and {products!r}.")
  with _Process.lock:
    if enabled:
      _install(products=False)
    if enabled and products:
      _install(products=True)
  return _Switch(enabled, enabled and products)


def accelerate(enabled: bool = True, *, products: bool = False) -> None:
  """Has JAX's own linear algebra computed by this package's handlers, in the whole process.

  From now on, calls of `jax.numpy.linalg`, `jax.scipy.linalg` and `jax.lax.linalg` are compiled
  with this package's handlers where JAX would call LAPACK or cuSOLVER. This includes the calls that
  libraries make. Handlers compute:

  - Cholesky, LU, QR, eigh, eig, SVD and Schur;
  - triangular and tridiagonal solves;
  - Householder products and permutations from pivots;
  - JAX's compositions of these, `vmap` and derivatives.

  Results equal JAX's to rounding, in JAX's conventions. Two choices that a decomposition leaves
  open may differ: the signs of vectors, and the order of the eigenvalues of general matrices. A
  matrix that holds NaN or Inf has NaN in its results, where LAPACK may leave some finite. An
  infinite pivot of Cholesky is treated as in LAPACK. Derivatives are JAX's formulas. Where those
  are NaN at degenerate points, call this package's functions instead.

  These stay JAX's: half precision, empty operands, an explicit algorithm, subsets on a GPU, TPUs,
  and programs that are exported or for several platforms. JAX promises to keep the custom calls of
  exported programs.

  The logger "linalg.accelerate" reports at level DEBUG where each compiled call went. `show_config`
  lists the accelerated primitives.

  Args:
    enabled: whether to accelerate, or to leave all to JAX again. A call that changes nothing has no
      effect. A change empties JAX's caches, so programs are compiled again when they are next
      called. Programs that were compiled ahead of time do not change.
    products: whether batches of matrix products go to a handler too, also where one matrix serves
      the whole batch. The limit is 64 rows and columns, 16 on a GPU. The handlers are faster for
      such batches, but XLA fuses products with surrounding operations. On meshes with Auto axes
      products stay XLA's, which may share a product among devices.

  A program that another thread is compiling meanwhile is compiled one way or the other. Child
  processes decide for themselves. To accelerate one thread for some time, see `accelerated`.

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

  A program that is called both within it and outside is compiled for each, once. Put it around
  calls of compiled functions. Within a function that `jax.jit` traces it does nothing, because the
  function is compiled after the context has ended. Like JAX's own contexts it belongs to a thread,
  not to a task: it must not last across an `await`.

  Args:
    enabled, products: as for `accelerate`. If `enabled` is false, programs are JAX's within it.

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
  """The primitives of JAX that handlers now compute in this thread's programs."""
  switch = _switch()
  routes = (ROUTES if switch.enabled else {}) | (PRODUCTS if switch.products else {})
  return [name for name, route in routes.items() if not isinstance(route, str)]
