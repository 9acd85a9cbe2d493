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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from linalg import _primitive, ffi
from linalg._cholesky import cholesky_full_jvp_p, cholesky_lower_jvp_p, cholesky_p
from linalg._cholesky_update import cholesky_update_p
from linalg._eig import eig_left_p, eig_p, eigvals_p
from linalg._eigh import eigh_p
from linalg._householder import householder_product_p, householder_qr_p, ormqr_p
from linalg._lu import inverse_permutation_p, lu_p, lu_pivots_to_permutation_p
from linalg._matmul import are_small_matrices, exact_matmul_p
from linalg._qr import qr_complete_p, qr_p, qr_pivoted_complete_p, qr_pivoted_p
from linalg._schur import schur_p
from linalg._svd import svd_full_p, svd_p, svdvals_p
from linalg._triangular import triangular_solve_p
from linalg._tridiagonal import tridiagonal_solve_p
from linalg._tuning import MOST_OF_ONE_RIGHT_MATRIX, MOST_REFLECTORS

__all__ = ["accelerate", "accelerated", "routed"]

_PLATFORMS = ("cpu", "cuda")
_DTYPES = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128", "int32")))
_log = logging.getLogger("linalg.accelerate")


class _Call(NamedTuple):
  """The call that computes what a primitive does: an operation, which of its results are the
  primitive's, and its attributes."""

  operation: ffi.Operation
  results: tuple[int, ...]
  attributes: Mapping[str, Any] = {}
  arrange: Callable[[jax.Array], jax.Array] | None = None  # the result, as the primitive's lies


# Of the types of a primitive's operands and its parameters, the call, or the reason why it stays
# JAX's. Of a primitive with a parameter that its route does not name nothing is assumed.
_Route = Callable[..., _Call | str]

_OF_ANOTHER_ALGORITHM = "its algorithm was chosen"
_OF_A_SUBSET = "a subset was asked for"


def _cholesky(a, *, of_mean=False):
  return _Call(cholesky_p, (0,), {"lower": True, "symmetrize": of_mean})


def _cholesky_update(r, w):
  return _Call(cholesky_update_p, (0,))


def _lu(a):
  return _Call(lu_p, (0, 1, 2))


def _lu_pivots_to_permutation(pivots, *, permutation_size):
  return _Call(lu_pivots_to_permutation_p, (0,), {"permutation_size": permutation_size})


def _geqrf(a):
  return _Call(householder_qr_p, (0, 1))


def _householder_product(a, taus):
  return _Call(householder_product_p, (0,))


def _ormqr(a, taus, c, *, left, transpose):
  if taus.shape[-1] > MOST_REFLECTORS:
    return "products of many reflectors are LAPACK's"
  return _Call(ormqr_p, (0,), {"left": left, "transpose": transpose})


def _qr(a, *, pivoting, full_matrices, use_magma):
  if use_magma is not None:
    return _OF_ANOTHER_ALGORITHM
  if pivoting:
    return _Call(qr_pivoted_complete_p if full_matrices else qr_pivoted_p, (0, 1, 2))
  return _Call(qr_complete_p if full_matrices else qr_p, (0, 1))


def _eigh(a, *, lower, sort_eigenvalues, subset_by_index, algorithm):
  if algorithm is not None:
    return _OF_ANOTHER_ALGORITHM
  if subset_by_index not in (None, (0, a.shape[-1])):
    return _OF_A_SUBSET
  return _Call(eigh_p, (1, 0), {"lower": lower, "symmetrize": False})


def _svd(a, *, full_matrices, compute_uv, subset_by_index, algorithm):
  if algorithm not in (None, lax.linalg.SvdAlgorithm.DEFAULT):
    return _OF_ANOTHER_ALGORITHM
  if subset_by_index not in (None, (0, min(a.shape[-2:]))):
    return _OF_A_SUBSET
  if not compute_uv:
    return _Call(svdvals_p, (0,))
  return _Call(svd_full_p if full_matrices else svd_p, (1, 0, 2))


def _eig(
    a, *, compute_left_eigenvectors, compute_right_eigenvectors, enable_eigvec_derivs,
    implementation):
  if implementation is not None:
    return _OF_ANOTHER_ALGORITHM
  if compute_left_eigenvectors:
    return _Call(eig_left_p, (0, 1, 2) if compute_right_eigenvectors else (0, 1))
  return _Call(eig_p, (0, 1)) if compute_right_eigenvectors else _Call(eigvals_p, (0,))


def _schur(a, *, compute_schur_vectors, sort_eig_vals, select_callable):
  if sort_eig_vals:
    return "an order was asked for"
  return _Call(schur_p, (0, 1) if compute_schur_vectors else (0,))


def _sort(*operands, dimension, is_stable, num_keys):
  del is_stable  # the handler's always is
  keys = operands[0]
  if [x.dtype for x in operands] != [np.int32] * 2 or num_keys != 1 or dimension != keys.ndim - 1:
    return "it is not the inverse of a permutation"
  return _Call(inverse_permutation_p, (0, 1))


def _triangular_solve(a, b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
  return _Call(triangular_solve_p, (0,), {
      "left_side": left_side,
      "lower": lower,
      "transpose_a": transpose_a,
      "conjugate_a": conjugate_a,
      "unit_diagonal": unit_diagonal})


def _tridiagonal_solve(dl, d, du, b, *, perturb_singular):
  return _Call(tridiagonal_solve_p, (0,), {"perturb_singular": perturb_singular})


_NOT_A_BATCH = "it is not a batch of products of matrices"


def _dot_general(
    a, b, *, dimension_numbers, precision, preferred_element_type, out_sharding):
  contracted, batch = dimension_numbers
  if any(len(dims) != 1 for dims in contracted) or min(a.ndim, b.ndim) < 2:
    return _NOT_A_BATCH
  (of_a,), (of_b,) = contracted
  leading = [tuple(range(x.ndim - 2)) for x in (a, b)]
  one_for_all = a.ndim != b.ndim and () in leading and not any(batch)
  of_matrices = min(of_a - a.ndim, of_b - b.ndim) >= -2
  if not leading[0] + leading[1] or not of_matrices or not (
      one_for_all or [tuple(dims) for dims in batch] == leading):
    return _NOT_A_BATCH
  if isinstance(precision, (str, lax.DotAlgorithm, lax.DotAlgorithmPreset)):
    return _OF_ANOTHER_ALGORITHM
  if preferred_element_type is not None and preferred_element_type != a.dtype:
    return "another dtype was asked for"
  if not are_small_matrices(a, b):
    return "the matrices are not small, or of two dtypes"
  turns = of_a == a.ndim - 2, of_b == b.ndim - 1
  if (product := exact_matmul_p.turned(*turns)) is None:
    return "both operands are transposed"
  if one_for_all and b.ndim == 2 and a.dtype.kind == "f" and max(
      *a.shape[-2:], *b.shape) > MOST_OF_ONE_RIGHT_MATRIX:
    return "the compiler makes one large product of it"
  rows_first = lambda x: jnp.moveaxis(x, -2, 0)
  return _Call(
      product, (0,), arrange=rows_first if one_for_all and a.ndim == 2 else None)


# Every primitive of JAX's linear algebra, by name, and the sort that inverts permutations in its
# derivatives of solves.
_ROUTES: dict[str, _Route | str] = {
    "cholesky": _cholesky,
    "cholesky_update": _cholesky_update,
    "eig": _eig,
    "eigh": _eigh,
    "geqp3": "linalg has no packed form of pivoted QR",
    "geqrf": _geqrf,
    "hessenberg": "linalg.hessenberg has no packed form",
    "householder_product": _householder_product,
    "lu": _lu,
    "lu_pivots_to_permutation": _lu_pivots_to_permutation,
    "ormqr": _ormqr,
    "qr": _qr,
    "schur": _schur,
    "sort": _sort,
    "svd": _svd,
    "symmetric_product": "it is a product of matrices",
    "triangular_solve": _triangular_solve,
    "tridiagonal": "linalg has no handler for it",
    "tridiagonal_solve": _tridiagonal_solve,
}


_PRODUCTS: dict[str, _Route | str] = {"dot_general": _dot_general}


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


class _Sight(NamedTuple):
  """A primitive's call: as it is in the program, or of what the program makes its operands from."""

  types: Sequence[Any]
  operands: Sequence[Any]
  parameters: Mapping[str, Any]
  arrange: Callable[[jax.Array], jax.Array] | None = None  # the result, as that in the program lies


def _of_mean(call):
  """jax.numpy's function factors (A + Aᵀ) / 2 of real matrices, as the handler does if asked."""
  if call.types[0].dtype.kind != "f":
    return
  half = _primitive.made_by(call.operands[0], "divide")
  total = half and _primitive.made_by(half.operands[0], "add")
  if total is None:
    return
  a, other = total.operands
  found = _primitive.transposed_from(other)
  rank = call.types[0].ndim
  last_two = (*range(rank - 2), rank - 1, rank - 2)
  if found == (a, last_two) and _primitive.is_all(half.operands[1], call.types[0].dtype.type(2)):
    yield call._replace(operands=[a], parameters=call.parameters | {"of_mean": True})


def _as_they_lay(call):
  """Operands that the program transposes, read as they lay before: XLA's own products read them so.
  A batch that `vmap` has moved is the first dimension again."""
  found = [_primitive.transposed_from(x) for x in call.operands]
  choices = [[None] if source is None else [source, None] for source in found]
  *some, _ = itertools.product(*choices)  # the last is the call as it is
  for sources in some:
    yield _with_sources(call, sources)


def _with_sources(call, sources):
  """A product of other operands, which the program transposes to make some of its own."""
  types, operands, order = list(call.types), list(call.operands), []
  contracted, batch = map(list, call.parameters["dimension_numbers"])
  for i, source in enumerate(sources):
    permutation = tuple(range(types[i].ndim))
    if source is not None:
      operands[i], permutation = source
      types[i] = _primitive.transposed_type(types[i], permutation)
    # The result has what is neither, in the order of each operand's dimensions.
    free = [d for j, d in enumerate(permutation) if j not in (*contracted[i], *batch[i])]
    order += [len(order) + sorted(free).index(d) for d in free]
    contracted[i], batch[i] = (
        tuple(permutation[j] for j in dims) for dims in (contracted[i], batch[i]))
  before = len(batch[0])
  order = (*range(before), *(before + d for d in order))
  arrange = functools.partial(lax.transpose, permutation=order)
  return _Sight(
      types, operands, call.parameters | {"dimension_numbers": (tuple(contracted), tuple(batch))},
      arrange if order != tuple(range(len(order))) else None)


# What else a call may be seen as, which is tried before it.
_LOOK_BACK: dict[str, Callable[[_Sight], Iterator[_Sight]]] = {
    "cholesky": _of_mean, "dot_general": _as_they_lay}


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
    route: _Route | str, platform: str, types: Any, automatic: bool, parameters: Mapping[str, Any]
) -> _Call | str:
  """The call of a handler on `platform`, or the reason why there is none."""
  if isinstance(route, str):
    return route
  if automatic and route is _dot_general:
    return "the compiler may shard its matrices"
  if (reason := _reason_of_types(types)) is not None:
    return reason
  try:
    inspect.signature(route).bind(*types, **parameters)
  except TypeError as error:
    return f"this version of JAX has other parameters: {error}"
  call = route(*types, **parameters)
  if isinstance(call, _Call) and not call.operation.runs_on(platform, *types, **call.attributes):
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


def _router(name: str, route: _Route | str) -> Callable[..., Any]:
  """What is asked each time that a primitive is lowered, for the rule to lower it by."""

  def router(platform, automatic, parameters):
    switch = _switch()
    if not (switch.products if name in _PRODUCTS else switch.enabled):
      return None
    return functools.partial(_lower, name, route, platform, automatic, parameters)

  return router


def _lower(name, route, platform, automatic, parameters, ctx, *operands):
  """A lowering rule, which returns None where the primitive stays JAX's."""
  here = _Sight(ctx.avals_in, operands, parameters)
  others = _LOOK_BACK[name](here) if name in _LOOK_BACK else ()
  for sight in itertools.chain(others, [here]):
    call = _call(route, platform, sight.types, automatic, sight.parameters)
    if isinstance(call, _Call):
      results = _lower_call(call, sight, platform, ctx)
      went = "stays JAX's: its results are of other types" if results is None else (
          call.operation.name)
      _log.debug("%s(%s) on %s: %s", name, _names(sight.types), platform, went)
      return results
  _log.debug("%s(%s) on %s stays JAX's: %s", name, _names(ctx.avals_in), platform, call)
  return None


def _lower_call(call, sight, platform, ctx):
  ctx = ctx.replace(avals_in=sight.types)
  arrange = [f for f in (call.arrange, sight.arrange) if f is not None]
  one_for_all = call.operation in exact_matmul_p and len({x.ndim for x in sight.types}) > 1
  if arrange or one_for_all:

    def product(*operands):
      result = call.operation(*operands, **call.attributes)
      return functools.reduce(lambda x, f: f(x), arrange, result)

    return _primitive.lower_composed(product, ctx, *sight.operands)
  lower = call.operation.lowering(platform, call.results, **call.attributes)
  return lower(ctx, *sight.operands)


def _lower_triangle(ctx, mask, *cases):
  """JAX cuts the lower triangle out of a Cholesky factor; the handler's has nothing else, be it a
  number or NaN. Complex constants cannot be read, so that it is cut out of complex factors."""
  if len(cases) != 2 or not _primitive.is_result(cases[1], 0, "linalg_cholesky", lower=True):
    return None
  dtype = ctx.avals_in[1].dtype
  whole = (
      dtype.kind == "f" and _primitive.is_all(cases[0], dtype.type(0))
      and _primitive.is_lower_triangle(mask))
  return [cases[1]] if whole else None


def _route_triangle(platform, automatic, parameters):
  return _lower_triangle if _switch().enabled else None


@functools.cache
def _install(products: bool) -> None:
  """Puts routers in the place of JAX's lowerings, which leave programs as they were while
  acceleration is off."""
  for name, route in (_PRODUCTS if products else _ROUTES).items():
    _primitive.reroute(
        name, _PLATFORMS, _router(name, route), looks_back=name in _LOOK_BACK)
  if not products:
    _primitive.reroute("select_n", _PLATFORMS, _route_triangle, looks_back=True)
    for name, rule in _DERIVATIVES.items():
      _primitive.rederive(name, rule)


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
  routes = (_ROUTES if switch.enabled else {}) | (_PRODUCTS if switch.products else {})
  return [name for name, route in routes.items() if not isinstance(route, str)]
