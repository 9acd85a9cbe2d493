"""Functions of general matrices.

Parlett's recurrence gives f(T) of a triangle from f of its eigenvalues, and divides by what is
between them. So those that are close are moved apart, each to a point of a circle around it, and
f(T) is the mean over the circles: that of an analytic function is its value in the middle, and
equidistant points give it to rounding (Trefethen and Weideman, SIAM Rev. 56, 2014). How large the
circles may be, the Fourier coefficients of f on them say.

The derivatives are the same recurrence for blocks, of which each has its eigenvalues moved by
other amounts: of a matrix with the directions beside its diagonal the function has the derivative
in the corner (Mathias, SIAM J. Matrix Anal. Appl. 17, 1996).
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jax.typing import ArrayLike

from linalg import ffi
from linalg._algebra import (
    diagonal_of,
    expand,
    norm_of_columns,
    norm_of_rows,
    on_diagonal,
    plus,
    smallest_gap,
    with_column,
    zeros_like,
)
from linalg._checks import check
from linalg._given_factors import given_factors
from linalg._matmul import congruence, product
from linalg._operands import as_arrays, check_square, complex_dtype
from linalg._public import public, with_types_of
from linalg._schur import triangular_schur
from linalg._sylvester import columns, shifted_triangle, transposed_schur, triangular_sylvester
from linalg._triangular import triangular_solve_p

__all__ = ["funm"]

_RADII = 25
_PHASES = 16


def _points(dtype):
  """Those of the unit circle over which the means are taken, so many that they are as exact as the
  dtype for a function whose nearest singularity is three radii away."""
  count = 32 if jnp.finfo(dtype).bits == 64 else 16
  return np.exp(2j * np.pi * (np.arange(count) + 0.25) / count).astype(dtype)


def _phases(dtype):
  """0, where an eigenvalue may stay, and points of the unit circle of which the first ones are as
  far apart as they can be: van der Corput's sequence."""
  bits = range(_PHASES.bit_length() - 1)
  turns = [sum((i >> bit & 1) / 2 ** (bit + 1) for bit in bits) for i in range(_PHASES)]
  return np.append(0, np.exp(2j * np.pi * np.array(turns))).astype(dtype)


@jax.jit
def _circles(t):
  """The radii (..., _RADII, n) of the circles around each eigenvalue on which f is looked at, and
  their points (..., _RADII, m, n)."""
  eigenvalues = diagonal_of(t)
  size = jnp.max(jnp.abs(t), axis=(-2, -1), initial=0)[..., None]
  size = jnp.where(size == 0, 1, size)
  own = jnp.where(eigenvalues == 0, size, jnp.abs(eigenvalues))
  least = jnp.log(own) + 0.5 * np.log(jnp.finfo(own.dtype).eps)
  most = jnp.log(2 * size)
  share = expand(np.linspace(0, 1, _RADII).astype(own.dtype)[:, None], own[..., None, :])
  radii = jnp.exp(most[..., None, :] + share * (least - most)[..., None, :])
  steps = radii.astype(t.dtype)[..., None, :] * expand(_points(t.dtype)[:, None], radii[..., None])
  return radii, eigenvalues[..., None, None, :] + steps


def _quality(radii, values, middle):
  """Of a function on the circles: whether it is as an analytic one, the logarithm of the error of
  its second divided differences, and what its means are off by, relative to it.

  The mean of an analytic function is the one in the middle, and half of Fourier's coefficients, of
  which the last four are looked at, are 0.
  """
  limits = jnp.finfo(radii.dtype)
  points = _points(values.dtype)
  count = len(points)
  absent = points[:, None] ** np.arange(1, 5) / count
  tails = jnp.einsum("...jn,jk->...kn", values, absent.astype(values.dtype), precision="highest")
  off = jnp.abs(jnp.sum(values, axis=-2) / count - middle[..., None, :])
  error = jnp.maximum(jnp.max(jnp.abs(tails), axis=-2), off)
  largest = jnp.max(jnp.abs(values), axis=-2)
  good = jnp.isfinite(largest) & (error <= limits.eps**0.75 * largest)
  cost = jnp.log(error + limits.eps * largest) - 2 * jnp.log(radii)
  return good, cost, jnp.where(largest == 0, 0, error / jnp.where(largest == 0, 1, largest))


def _radius(radii, guides):
  """The radius (..., n) of the circles to use, and what the means are off by: the one that is best
  for all the guides, and 0 where there is none, as at an eigenvalue on the cut of a logarithm."""
  good, cost, off = zip(*(_quality(radii, *guide) for guide in guides), strict=True)
  good, off = functools.reduce(jnp.logical_and, good), functools.reduce(jnp.maximum, off)
  best = jnp.argmin(jnp.where(good, sum(cost), jnp.inf), axis=-2)[..., None, :]
  level = expand(np.arange(_RADII, dtype=best.dtype)[:, None], best)
  chosen = good & (level == best)
  return (jnp.sum(jnp.where(chosen, x, 0), axis=-2) for x in (radii, off))


def _displacements(eigenvalues, radius):
  """What each of the eigenvalues (..., n) is moved by, at most its radius.

  One after another they are moved to where their circle comes as little near as can be to those of
  the ones before, in units of the larger radius; they stay if half a unit is left then.
  """
  n = eigenvalues.shape[-1]
  phases = expand(_phases(eigenvalues.dtype), eigenvalues)[..., None]

  def step(moves, place):
    i, middle, own = place
    gap = jnp.abs(middle[..., None] - eigenvalues)[..., None, :]
    unit = jnp.maximum(own[..., None], radius)[..., None, :]
    choices = own.astype(phases.dtype)[..., None, None] * phases
    far = jnp.abs(gap - jnp.abs(choices - moves[..., None, :]))
    far = jnp.where(unit == 0, jnp.where(gap == 0, 0, 1), far / jnp.where(unit == 0, 1, unit))
    far = jnp.where(expand(jnp.arange(n), far) < i, jnp.minimum(far, 0.5), 0.5)
    best = jnp.argmax(jnp.min(far, axis=-1, keepdims=True, initial=1), axis=-2, keepdims=True)
    row = expand(np.arange(_PHASES + 1, dtype=best.dtype)[:, None], best)
    move = jnp.sum(jnp.where(row == best, choices, 0), axis=-2)
    return with_column(moves[..., None, :], i, move[..., None])[..., 0, :], None

  along = lambda x: jnp.moveaxis(x, -1, 0)
  places = (jnp.arange(n), along(eigenvalues), along(radius))
  return jax.lax.scan(step, zeros_like(eigenvalues), places)[0]


@functools.partial(jax.jit, static_argnames="copies")
def _moved(t, radii, guides, copies):
  """The eigenvalues (..., copies, m, n) of so many copies of T, all moved apart; and what the means
  are off by. A guide is a function on the circles and in their middle."""
  eigenvalues = diagonal_of(t)
  radius, error = _radius(radii, guides)
  again = lambda x: jnp.concatenate([x] * copies, axis=-1)
  moves = _displacements(again(eigenvalues), again(radius))
  error = jnp.max(jnp.where(moves == 0, 0, again(error)), axis=-1, initial=0)
  moves = moves.reshape(*moves.shape[:-1], copies, 1, eigenvalues.shape[-1])
  points = expand(_points(t.dtype)[:, None], moves)
  return eigenvalues[..., None, None, :] + moves * points, error


def _with_diagonal(t, diagonal):
  return jnp.where(on_diagonal(t), diagonal[..., None], jnp.triu(t))


def _parlett(t, values):
  """f(T) of upper triangular matrices with f of their eigenvalues.

  T F = F T gives column j from those before it: (T - Tⱼⱼ I) fⱼ = F tⱼ - fⱼⱼ tⱼ in the rows above j.
  Parlett, Linear Algebra Appl. 14 (1976). Where Tᵢᵢ = Tⱼⱼ, Fᵢⱼ is 0 if they have an eigenvector
  each, up to rounding, and else NaN.
  """
  n = t.shape[-1]
  row = expand(jnp.arange(n), values)
  rounding = smallest_gap(norm_of_rows(t), n)[..., None]

  def step(f, column):
    j, tj, own, value = column
    above = jnp.where(row < j, tj, 0)[..., None]
    matrix = shifted_triangle(t, -own, from_row=j)
    zero = diagonal_of(matrix) == 0
    matrix = jnp.where(zero[..., None] & on_diagonal(matrix), 1, matrix)
    rhs = jnp.concatenate([product(f, above) - value[..., None, None] * above, above], axis=-1)
    solved = triangular_solve_p(matrix, rhs, left_side=True, lower=False)
    fj = jnp.where(zero, jnp.where(jnp.abs(solved[..., 1]) <= rounding, 0, jnp.nan), solved[..., 0])
    return with_column(f, j, jnp.where(row == j, value[..., None], fj)[..., None]), None

  places = (jnp.arange(n), columns(t), columns(diagonal_of(t)), columns(values))
  return jax.lax.scan(step, zeros_like(t), places)[0]


@jax.jit
def _corner(t, z, moved, values, middle, directions):
  """f[A; E₁; A; ...; Eₖ; A], the corner of f of the matrix that has k + 1 times A on the diagonal
  and the directions beside it; linear in f, and in each of the directions."""
  copies = moved.shape[-3]
  triangles = _with_diagonal(t[..., None, None, :, :], moved)
  functions = _parlett(triangles, values)
  copy = lambda x, i: jax.lax.index_in_dim(x, i, x.ndim - 4, keepdims=False)
  triangles = [copy(triangles, i) for i in range(copies)]
  blocks = [copy(functions, i) for i in range(copies)]
  directions = [congruence(z, e, adjoint_a=True)[..., None, :, :] for e in directions]
  for apart in range(1, copies):
    # Tᵢ Fᵢⱼ - Fᵢⱼ Tⱼ = Fᵢ,ⱼ₋₁ Eⱼ - Eᵢ₊₁ Fᵢ₊₁,ⱼ
    blocks = [
        triangular_sylvester(
            triangles[i], -triangles[i + apart],
            product(blocks[i], directions[i + apart - 1]) - product(directions[i], blocks[i + 1]))
        for i in range(copies - apart)]
  result = jnp.mean(blocks[0], axis=-3)
  if not directions:
    result = jnp.where(on_diagonal(t), middle[..., None], result)
  return congruence(z, result)


@dataclasses.dataclass(frozen=True, eq=False)
class _Traced:
  """A function of a vector of eigenvalues, and of the traced numbers that it refers to."""

  jaxpr: Jaxpr
  consts: Sequence[Any]  # None for a number

  def __call__(self, x, *numbers):
    rest = iter(numbers)
    consts = [next(rest) if c is None else c for c in self.consts]
    (values,) = jaxpr_as_fun(ClosedJaxpr(self.jaxpr, consts))(x)
    return jnp.broadcast_to(values, x.shape).astype(x.dtype)


def _traced(func, n, dtype):
  """`func` as a function of vectors and numbers, and those numbers."""
  # The trace of `func` itself would be kept by JAX, and it may refer to what will change.
  traced = jax.make_jaxpr(functools.partial(func))(jax.ShapeDtypeStruct((n,), dtype))
  if [x.shape for x in traced.out_avals] not in ([()], [(n,)]):
    given = ", ".join(x.str_short() for x in traced.out_avals)
    raise ValueError(f"funm: func must give a number for each eigenvalue; of {n} it gave {given}.")
  numbers = [jnp.asarray(x) for x in traced.consts if isinstance(x, Tracer)]
  consts = [None if isinstance(x, Tracer) else x for x in traced.consts]
  return _Traced(traced.jaxpr, consts), numbers


@dataclasses.dataclass(frozen=True)
class _Change:
  """What f changes by, of the eigenvalues, the numbers, and the changes of those at `places`."""

  f: Callable[..., Any]
  places: tuple[int, ...]

  def __call__(self, x, *operands):
    numbers, changes = operands[: -len(self.places)], operands[-len(self.places) :]

    def of_moved(*moved):
      new = dict(zip(self.places, moved, strict=True))
      return self.f(x, *(new.get(i, number) for i, number in enumerate(numbers)))

    return jax.jvp(of_moved, tuple(numbers[i] for i in self.places), changes)[1]


@dataclasses.dataclass(frozen=True)
class _Slope:
  """The derivative of f by its number `place`, along ones."""

  f: Callable[..., Any]
  place: int

  def __call__(self, x, *numbers):
    return _Change(self.f, (self.place,))(x, *numbers, jnp.ones_like(numbers[self.place]))


@dataclasses.dataclass(frozen=True)
class _First:
  """A function of the first of the numbers."""

  f: Callable[..., Any]
  count: int

  def __call__(self, x, *numbers):
    return self.f(x, *numbers[: self.count])


class _Number(NamedTuple):
  """The type of a number, or of the change of the one at `root`."""

  shape: tuple[int, ...]
  dtype: Any
  root: int


def _of_numpy(func):
  return lambda x: jnp.broadcast_to(func(np.asarray(x)), x.shape).astype(x.dtype)


def _of_batch(f, numbers, ranks, batch):
  """f of x (*batch, ..., n), with the numbers of each matrix, or those that all share."""
  own = [0 if x.ndim > rank else None for x, rank in zip(numbers, ranks, strict=True)]

  def call(x):
    each = f
    for _ in range(x.ndim - 1 - batch):
      each = jax.vmap(each, (0, *(None for _ in numbers)))
    for _ in range(batch):
      each = jax.vmap(each, (0, *own))
    return each(x, *numbers)

  return call


def _moved_apart(guides, t, copies=1):
  radii, circles = _circles(t)
  return _moved(t, radii, [(f(circles), f(diagonal_of(t))) for f in guides], copies)


def _value(guides, values, t, z, directions=()):
  """`_corner` of the function `values` of eigenvalues, which is analytic where the guides are."""
  moved, _ = _moved_apart(guides, t, len(directions) + 1)
  return _corner(t, z, moved, values(moved), values(diagonal_of(t)), directions)


@functools.cache
def _operation(types, order):
  """`_value` of A with its factors, so many directions, and numbers of these types.

  The functions are its attributes, of eigenvalues and the numbers. `values` is linear in the
  changes of numbers, which the guides do without.
  """
  count = len(types)
  ranks = [len(x.shape) for x in types]

  def split(operands):
    return operands[3 : 3 + count], operands[3 + count :]

  def value(t, z, *rest, guides, values):
    numbers, directions = rest[:count], rest[count:]
    of_batch = lambda f: _of_batch(f, numbers, ranks, t.ndim - 2)
    return _value([of_batch(f) for f in guides], of_batch(values), t, z, directions)

  def jvp(primals, tangents, **functions):
    known, (numbers, directions) = primals[:3], split(primals)
    dnumbers, ddirections = split(tangents)
    call = functools.partial(operation, *known, *numbers, **functions)
    terms = []
    if tangents[0] is not None:  # between any two A
      longer = functools.partial(_operation(types, order + 1), *known, *numbers, **functions)
      terms += [longer(*directions[:i], tangents[0], *directions[i:]) for i in range(order + 1)]
    terms += [
        call(*directions[:i], e, *directions[i + 1 :])
        for i, e in enumerate(ddirections) if e is not None]
    if places := tuple(i for i, x in enumerate(dnumbers) if x is not None):
      terms.append(changed(known, numbers, dnumbers, directions, places, **functions))
    return call(*directions), functools.reduce(plus, terms, None)

  def changed(known, numbers, dnumbers, directions, places, guides, values):
    """What the result changes by with the numbers at `places`."""
    slopes = [_Slope(f, types[i].root) for f in guides for i in places]
    return _operation((*types, *(types[i] for i in places)), order)(
        *known, *numbers, *(dnumbers[i] for i in places), *directions,
        guides=tuple(dict.fromkeys([*guides, *slopes])), values=_Change(values, places))

  def transpose(cotangents, operands, **functions):
    a, t, z, *_ = operands
    (ct,) = cotangents
    numbers, directions = split(operands)
    place = next(i for i, x in enumerate(operands) if x is None)
    found = [None] * len(operands)
    if (i := place - 3 - count) >= 0:
      # tr Cᵀ f[A; E₁; ...; Eₖ; A] = tr Eᵢ f[A; Eᵢ₊₁; ...; Eₖ; A; Cᵀ; A; E₁; ...; Eᵢ₋₁; A]
      before, after = ([e.mT for e in reversed(x)] for x in (directions[:i], directions[i + 1 :]))
      found[place] = operation(
          a.mT, *transposed_schur(t, z), *numbers, *before, ct, *after, **functions)
      return found
    # Linear in the changes that are not known: what a basis of each of them gives.
    unknown = {i: np.zeros(*types[i][:2]) for i, x in enumerate(numbers) if x is None}

    def along(i, x):
      known = [x if j == i else unknown.get(j, y) for j, y in enumerate(numbers)]
      return jnp.sum(ct * operation(a, t, z, *known, *directions, **functions), axis=(-2, -1))

    for i, zero in unknown.items():
      basis = np.eye(zero.size, dtype=zero.dtype).reshape(zero.size, *zero.shape)
      slopes = jnp.moveaxis(jax.vmap(functools.partial(along, i))(basis), 0, -1)
      slopes = slopes if jnp.iscomplexobj(zero) else slopes.real
      found[3 + i] = slopes.reshape(*slopes.shape[:-1], *zero.shape).astype(zero.dtype)
    return found

  names = [
      " ".join(f"p{i}_{j}" for j in range(rank)) or "()" for i, rank in enumerate(ranks)]
  operation: ffi.Operation = given_factors(
      "funm", ", ".join(["n n"] * 3 + names + ["n n"] * order) + " -> n n", [1], value,
      attributes={"guides": None, "values": None}, shared=range(3, 3 + count), jvp=jvp,
      transpose=transpose)
  return operation


def _error(f, t, result):
  """SciPy's estimate, by the gaps that were divided by; Inf where the result is not finite."""
  moved, off = _moved_apart([f], t)
  moved = moved[..., 0, :, :]
  gaps = jnp.abs(moved[..., :, None] - moved[..., None, :])
  least = jnp.min(
      jnp.where(on_diagonal(gaps), jnp.inf, gaps), axis=(-3, -2, -1), initial=jnp.inf)
  eps = jnp.finfo(least.dtype).eps
  least = jnp.where(least == 0, eps, least)
  error = jnp.clip((eps + off) / least * norm_of_columns(jnp.triu(t, 1)), eps, 1)
  return jnp.where(jnp.isfinite(result).all((-2, -1)), error, jnp.inf)


@with_types_of(jax.scipy.linalg.funm)
@public("func", "disp", compiled=False, lists=True)
def funm(A: ArrayLike, func: Callable[[jax.Array], jax.Array], disp: bool = True) -> Any:
  """f(A) of general matrices; `jax.scipy.linalg.funm`, batched and right at equal eigenvalues.

  Args:
    A: square matrices (..., n, n).
    func: f, which takes a vector of complex numbers and gives f of each. It must be analytic around
      eigenvalues that are equal, or nearly so, and share a Jordan block; for derivatives, around
      all. It need not be one that JAX differentiates. It may refer to values that are being traced,
      and the result has derivatives by them. Outside of jit, vmap and grad it may be NumPy's.
    disp: whether to leave out the estimate of the error. Nothing is printed.

  Returns:
    f(A) (..., n, n), complex, and if `disp` is false SciPy's estimate (...) of its relative error,
    by the distances of the eigenvalues; Inf where f(A) is not finite. NaN where A holds NaN or Inf,
    and where f is not analytic at equal eigenvalues that share a Jordan block; see `checked`.

  float16 and bfloat16 are computed in float32.

  Algorithm: the Schur form, and Parlett's recurrence with close eigenvalues moved to points of a
  circle, of which the mean is taken: 32 in float64, 16 in float32. Their radii are chosen by the
  Fourier coefficients of f, so `func` is called with numbers around the eigenvalues.
  `linalg.funm_hermitian` takes less time for Hermitian matrices. Derivatives: to any order, by the
  recurrence of blocks (Mathias, SIAM J. Matrix Anal. Appl. 17, 1996), right at equal eigenvalues.
  In reverse mode, those by an array that `func` refers to cost f(A) for each of its elements.

  Example:
    >>> import jax, jax.numpy as jnp, linalg.scipy
    >>> a = jnp.array([[2.0, 1.0], [0.0, 2.0]])
    >>> power = lambda a, p: linalg.scipy.funm(a, lambda x: x**p).real[0, 1]
    >>> print(f"{power(a, 3.0):.4f}")  # 3 x²
    12.0000
    >>> print(f"{jax.grad(power)(a, 3.0)[0, 0]:.4f}")  # 3 x
    6.0000
    >>> print(f"{jax.grad(power, 1)(a, 3.0):.4f}")  # x² + 3 x² log x
    12.3178
  """
  if not callable(func):
    raise TypeError(f"funm: func must be a function of eigenvalues, got {type(func)}.")
  (a,), dtype = as_arrays("funm", A)
  check_square("funm", a)
  t, z = triangular_schur(a)
  try:
    f, numbers = _traced(func, a.shape[-1], t.dtype)
    of_values = _of_batch(
        f, jax.lax.stop_gradient(numbers), [x.ndim for x in numbers], t.ndim - 2)
  except jax.errors.TracerArrayConversionError:  # a function of NumPy's
    if isinstance(a, Tracer):
      raise
    numbers, of_values = [], _of_numpy(func)
  if isinstance(a, Tracer) or numbers:
    types = tuple(_Number(x.shape, x.dtype, i) for i, x in enumerate(numbers))
    result = _operation(types, 0)(
        a.astype(t.dtype), t, z, *numbers, guides=(_First(f, len(numbers)),), values=f)
  else:  # without a compilation for each func
    result = _value([of_values], of_values, t, z)
  check(
      jnp.isnan(result).any((-2, -1)).astype(jnp.int32),
      "has no such function: it holds NaN or Inf, or func gives NaN at its eigenvalues, or is not "
      "analytic where they are equal.")
  if disp:
    return result.astype(complex_dtype(dtype))
  error = _error(of_values, t, jax.lax.stop_gradient(result))
  return result.astype(complex_dtype(dtype)), error
