"""Functions of a Hermitian matrix that several devices share, and pairs of such matrices."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.typing import ArrayLike

import linalg.distributed._algorithms as algorithms
from linalg import ffi
from linalg._core.algebra import one_of_first_order
from linalg._core.checks import check, check_converged
from linalg._core.divided_differences import differences_between
from linalg._core.operands import as_arrays, complex_dtype, incompatible, real_dtype
from linalg._core.public import public
from linalg._factorizations.eigh import EighResult
from linalg._functions.eigh_generalized import INDEFINITE
from linalg._functions.hermitian_functions import (
  inverse_root,
  inverse_root_from_one,
  scale_of_root,
)
from linalg.distributed._eigh import (
  Spectrum,
  columns_of_all,
  decompose_eigh,
  diagonal,
  ones_of_first_order,
  spectrum_of,
)
from linalg.distributed._layout import Axes, Places, layout_of, partition, shared_of
from linalg.distributed._operations import solve_p
from linalg.distributed._positive_definite import lower_p
from linalg.distributed._qr_cyclic import zero_of
from linalg.distributed._shared import (
  Shared,
  from_blocks,
  hermitian_part_p,
  multiply,
  to_blocks,
)
from linalg.distributed._slices import take

_Function = Callable[..., jax.Array]


def _over_batch(function, batch: int):
  """`function` of matrices, mapped over `batch` dimensions in front."""
  for _ in range(batch):
    function = jax.vmap(function)
  return function


def _with_values(shared: Shared, v, values):
  """V diag(values) Vᴴ."""
  g = shared.grid

  def body(v, values):
    _, column = g.numbers()
    return v * take(values, jnp.minimum(column, g.n - 1), 0).astype(v.dtype)

  scaled = shared.map(body, "cv", "c", v, values)
  return multiply(shared, scaled, v.conj(), (False, True))


def _weighted(shared: Shared, f, c, w, *numbers):
  """f[wᵢ, wⱼ] ∘ C."""
  g = shared.grid

  def body(c, w, *numbers):
    row, column = (take(w, jnp.minimum(x, g.n - 1), 0) for x in g.numbers())
    found, _ = differences_between(lambda x: f(x, *numbers), row, column)
    return found.astype(c.dtype) * c

  return shared.map(body, "cv" + "n" * len(numbers), "c", c, w, *numbers)


class _OfShape(NamedTuple):
  """A caller's function, whose values get the shape of the eigenvalues."""

  f: Callable[..., Any]

  def __call__(self, w: jax.Array, *numbers: jax.Array) -> jax.Array:
    return jnp.broadcast_to(self.f(w, *numbers), w.shape)


def _given(w, *numbers):
  del w
  return numbers


def _values(f, w, *numbers):
  """The values of f at the eigenvalues of each matrix."""
  return _over_batch(f, w.ndim - 1)(w, *numbers)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def _funm(s: Spectrum, shared: Shared, f: _Function, numbers_of: Callable[..., Any], a, *given):
  """f(A), where f takes the eigenvalues and `numbers_of` these and the given numbers."""
  w, v, _ = decompose_eigh(s, shared, a)
  values = _values(f, w, *numbers_of(w, *given))
  v = to_blocks(shared, v.astype(complex_dtype(v)) if jnp.iscomplexobj(values) else v)
  return from_blocks(shared, _with_values(shared, v, values))


@_funm.defjvp
def _funm_jvp(s, shared, f, numbers_of, primals, tangents):
  # dF = V (f[wᵢ, wⱼ] ∘ Vᴴ dA V) Vᴴ, as in linalg.funm_hermitian; and V diag(df) Vᴴ by parameters.
  (a, *given), (da, *changes) = primals, tangents
  w, v, _ = decompose_eigh(s, shared, a)
  is_complex = jnp.iscomplexobj(_values(f, w, *numbers_of(w, *given)))
  v, da = (x.astype(complex_dtype(x)) if is_complex else x for x in (v, da))
  v, da = to_blocks(shared, v), hermitian_part_p(to_blocks(shared, da), shared=shared)
  c = multiply(shared, v.conj(), multiply(shared, da, v), (True, False))
  dw = ones_of_first_order(w) * diagonal(shared, c)
  numbers, changes = jax.jvp(numbers_of, (w, *given), (dw, *changes))
  values, slope = jax.jvp(lambda *x: _values(f, w, *x), numbers, changes)
  found = _with_values(shared, v, values)
  # At equal eigenvalues the derivative of V is not right for a derivative of this formula.
  first_order = one_of_first_order(ones_of_first_order(w))[..., None, None]
  c = multiply(shared, v, _weighted(shared, f, c * first_order.astype(c.dtype), w, *numbers))
  change = multiply(shared, c, v.conj(), (False, True))
  if numbers:
    change = change + _with_values(shared, v, slope)
  return from_blocks(shared, found), from_blocks(shared, change)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _apply(s, shared, f, numbers_of, a, *numbers):
  a, *numbers = (
      ffi.broadcast_batches("funm_hermitian", [a, *numbers], [2, *[0] * len(numbers)])
      if numbers else [a])
  if shared.grid.n == 0:
    w, scalars = jnp.zeros(0, real_dtype(a)), [jnp.zeros((), x.dtype) for x in numbers]
    return a.astype(jnp.result_type(a, f(w, *numbers_of(w, *scalars))))
  # Numbers may bring batch dimensions, whose sharding is known on Explicit axes.
  batch = layout_of("funm_hermitian", a).spec[:-2]
  if not any(batch):
    batch = ((),) * (a.ndim - 2 - len(shared.batch)) + shared.batch
  return _funm(s, shared._replace(batch=batch), f, numbers_of, a, *numbers)


@public("f", "axes", compiled=False)
def funm_hermitian(
    a: ArrayLike, f: Callable[..., jax.Array], *, args: Sequence[ArrayLike] | ArrayLike = (),
    axes: Places = None,
) -> jax.Array:
  """f(A) of a Hermitian matrix that several devices share; `linalg.funm_hermitian`.

  Args:
    a, axes: as for `eigh`.
    f, args: as for `linalg.funm_hermitian`.

  Returns:
    f(A) (..., n, n), sharded as A is. It is NaN where A holds NaN or Inf.

  Algorithm: `eigh`, and the product V diag(f(w)) Vᴴ.

  The first derivatives by A and by `args` are exact at any eigenvalues: divided differences of f.
  Second derivatives are those of this formula. They are NaN where eigenvalues are equal, and lose
  digits where they are close. `linalg.funm_hermitian` on one device keeps them.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(4 * jnp.eye(64), jax.P("x"))
    ...   print(dist.funm_hermitian(a, jnp.sqrt).max().round(4))
    2.0
  """
  name = "funm_hermitian"
  (a,), dtype = as_arrays(name, a)
  real = real_dtype(a)
  numbers = [jnp.asarray(x, real) for x in (args if isinstance(args, tuple | list) else (args,))]
  ones = [jnp.ones(1, real)] * (1 + len(numbers))
  if any(isinstance(x, Tracer) for x in jax.make_jaxpr(f)(*ones).consts):
    raise TypeError(
        f"{name}: f refers to a value that jit, vmap or a derivative is tracing. Give it as one of "
        f"args, which f takes after the eigenvalues: {name}(a, f, args=(mu, t)) with f(w, mu, t).")
  s, shared = spectrum_of(name, a, axes)
  result = _apply(s, shared, _OfShape(f), _given, a, *numbers)
  return result.astype(complex_dtype(dtype) if jnp.iscomplexobj(result) else dtype)


@functools.cache
def _shifted_inverse_root(p):
  root = inverse_root_from_one(p)
  return lambda w, shift: root(w / shift + 1) * shift ** (-1 / p)


def _shift(w, ridge, epsilon):
  """Returns the number to add to each eigenvalue, in a tuple."""
  largest = jnp.max(w, axis=-1, initial=0)
  shift = ridge * largest + epsilon
  return (jnp.maximum(shift, jnp.finfo(largest.dtype).tiny ** 0.5 * largest),)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _root(s, shared, p, a, ridge, epsilon):
  scale, epsilon = scale_of_root(a, epsilon)
  scale = scale[..., None, None].astype(a.dtype)
  if ridge is None and epsilon is None:
    root = _apply(s, shared, inverse_root(p), _given, a / scale)
  else:
    given = [jnp.asarray(0 if x is None else x, real_dtype(a)) for x in (ridge, epsilon)]
    root = _apply(s, shared, _shifted_inverse_root(p), _shift, a / scale, *given)
  return root * (scale.real ** (-1 / p)).astype(root.dtype)


@public("p", "axes", compiled=False)
def inverse_pth_root(
    a: ArrayLike, p: float, *, ridge_epsilon: ArrayLike | None = None,
    epsilon: ArrayLike | None = None, axes: Places = None,
) -> jax.Array:
  """A^(-1/p) of a Hermitian matrix that several devices share; `linalg.inverse_pth_root`.

  Args:
    a, axes: as for `eigh`.
    p, ridge_epsilon, epsilon: as for `linalg.inverse_pth_root`.

  Returns:
    The root (..., n, n), sharded as A is. Without either epsilon, it is NaN where A is not positive
    definite. If one is given, eigenvalues below 0 count as 0 before it is added. Eigenvalues below
    n eps times the largest are rounding errors.

  Algorithm and derivatives: those of `funm_hermitian`, of A over a power of two.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(16 * jnp.eye(64), jax.P("x"))
    ...   print(dist.inverse_pth_root(a, 4).max().round(4))
    0.5
  """
  if p == 0:
    raise ValueError("Argument p to inverse_pth_root() must not be 0")
  (a,), dtype = as_arrays("inverse_pth_root", a)
  s, shared = spectrum_of("inverse_pth_root", a, axes)
  return _root(s, shared, p, a, ridge_epsilon, epsilon).astype(dtype)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _generalized(s, shared, a, b):
  g = shared.grid
  whole = s._replace(first=0, wanted=g.n)
  if g.n == 0:
    info = jnp.zeros(a.shape[:-2], jnp.int32)
    return jnp.zeros(a.shape[:-1], real_dtype(a)), a, info, info

  blocks = shared.blocks
  solve = functools.partial(solve_p, grid=blocks)
  b = to_blocks(shared, b)
  l, indefinite = shared.map(
      lambda b: algorithms.factor(g, b, zero_of(g, b)), "c", "cn", lax.stop_gradient(b))
  l = lower_p(b, l, grid=blocks)
  # L⁻¹ A L⁻ᴴ has the eigenvalues of the pair.
  a = hermitian_part_p(to_blocks(shared, a), shared=shared)
  half = solve(l, a, left=True, transpose=False)
  c = solve(l.conj(), half, left=False, transpose=True)
  w, y, info = decompose_eigh(whole, shared, from_blocks(shared, c))
  v = solve(l.conj(), to_blocks(shared, y), left=True, transpose=True)
  v = from_blocks(shared, v)
  if s != whole:
    w, v = w[..., s.first : s.first + s.wanted], columns_of_all(s, shared, v)
  return w, v, info, indefinite


def _batch_of_pair(name: str, shared: Shared, b: jax.Array) -> tuple[Axes, ...]:
  """The axes of the batch dimensions of A and B together, if B's matrices are sharded as A's."""
  own = shared.grid.layout.spec
  entries = layout_of(name, b).spec[:-2]
  whole = max(b.ndim - 2, len(shared.batch))
  of_b, of_a = (((),) * (whole - len(x)) + tuple(x) for x in (entries, shared.batch))
  # An axis that A has elsewhere cannot be that of a batch dimension too.
  taken = sum((*of_a, *own), ())
  batch = tuple(
      x or tuple(axis for axis in y if axis not in taken)
      for x, y in zip(of_a, of_b, strict=True))
  # A batch dimension of one matrix cannot be sharded.
  own_batch = (
      axes if size > 1 else ()
      for axes, size in zip(batch[whole - (b.ndim - 2) :], b.shape[:-2], strict=True))
  wanted = partition((*own_batch, *own))
  try:
    if any(x and x != y for x, y in zip(of_b, batch, strict=True)):
      raise ffi.ShardingTypeError("The batches differ.")
    shared_of(name, b, tuple(x or None for x in own))
  except (ValueError, ffi.ShardingTypeError) as error:
    raise ffi.ShardingTypeError(
        f"{name}: b is {jax.typeof(b).str_short(True)}, and must be sharded as a is; reshard it "
        f"first: jax.sharding.reshard(b, {wanted}).") from error
  return batch


@public("axes", "subset_by_index", compiled=False)
def eigh_generalized(
    a: ArrayLike, b: ArrayLike, *, subset_by_index: tuple[int, int] | None = None,
    axes: Places = None,
) -> EighResult:
  """Eigenvalues and eigenvectors of A v = w B v, of matrices that several devices share.

  Args:
    a, axes: as for `eigh`.
    b: Hermitian positive definite matrices (..., n, n), sharded as A is. Their lower triangles are
      read. Batch dimensions of A and B broadcast. Where one is not sharded, it is moved to the
      devices of the other's.
    subset_by_index: as for `eigh`. All eigenvalues are computed.

  Returns:
    EighResult(eigenvalues, eigenvectors), as `eigh` returns them, with Vᴴ B V = I. Both are NaN
    where B is not positive definite.

  Algorithm: B = L Lᴴ by `cholesky`, the Hermitian matrix L⁻¹ A L⁻ᴴ by two triangular systems,
  `eigh`, and a triangular system for V. LAPACK's sygvd. Derivatives are those of its parts.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.distributed as dist
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a, b = (jax.device_put(x * jnp.eye(64), jax.P("x")) for x in (6, 2))
    ...   print(dist.eigh_generalized(a, b).eigenvalues.max().round(4))
    3.0
  """
  name = "eigh_generalized"
  (a, b), dtype = as_arrays(name, a, b)
  s, shared = spectrum_of(name, a, axes, subset_by_index)
  if b.ndim < 2 or a.shape[-2:] != b.shape[-2:]:
    raise incompatible(name, a, b, names=("a", "b"))
  batch = _batch_of_pair(name, shared, b)
  a, b = ffi.broadcast_batches(name, [a, b], [2, 2])
  w, v, info, indefinite = _generalized(s, shared._replace(batch=batch), a, b)
  check(indefinite, INDEFINITE)
  check_converged(info.astype(jnp.int32), "eigendecomposition")
  return EighResult(w.astype(real_dtype(dtype)), v.astype(dtype))
