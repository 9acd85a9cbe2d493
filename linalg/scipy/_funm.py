"""Functions of general matrices.

Parlett's recurrence gives f(T) of a triangle from f of its eigenvalues, and divides by what is
between them. So those that are close are moved apart, and f(T) is the mean over circles on which
they are: _contours.py.

The derivatives are the same recurrence for a matrix of blocks, with the directions beside its
diagonal. Its function has the derivative in the corner (Mathias, SIAM J. Matrix Anal. Appl. 17,
1996).
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax.core import Tracer, eval_jaxpr
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  binade,
  diagonal_of,
  expand,
  identity,
  largest_element,
  norm_of_columns,
  norm_of_rows,
  on_diagonal,
  plus,
  smallest_gap,
  with_column,
  zeros_like,
)
from linalg._core.checks import check
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, check_square, complex_dtype
from linalg._core.public import public, with_types_of
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.schur import triangular_schur
from linalg._factorizations.triangular import triangular_solve_p
from linalg._functions.sylvester import columns, shifted_triangle, transposed_schur
from linalg.scipy._contours import moved_apart

__all__ = ["funm"]


def _parlett(t, x, values, tolerance):
  # T F = F T gives column j from those before it: (T - xⱼ I) fⱼ = F tⱼ - fⱼⱼ tⱼ in rows above j.
  # And the eigenvector of xⱼ has (T - xⱼ I) v = -tⱼ there.
  row = expand(jnp.arange(t.shape[-1]), values)
  tolerance = tolerance[..., None, None, None]
  t = jnp.where(on_diagonal(t)[..., None, :, :], x[..., None], t[..., None, :, :])

  def step(f, column):
    j, tj, own, value = column
    above = jnp.where(row < j, tj, 0)[..., None]
    matrix = shifted_triangle(t, -own, from_row=j)
    equal = (diagonal_of(matrix) == 0)[..., None]
    solve = lambda rhs, known: triangular_solve_p(
        jnp.where(equal, identity(matrix), matrix), jnp.where(equal, known, rhs),
        left_side=True, lower=False)
    # Any element does in rows of equal eigenvalues, if there is an eigenvector: 0.
    rest = product(matrix, solve(-above, 0)) + above
    known = jnp.where(jnp.abs(rest) <= tolerance, 0, jnp.nan).astype(t.dtype)
    fj = solve(product(f, above) - value[..., None, None] * above, known)[..., 0]
    return with_column(f, j, jnp.where(row == j, value[..., None], fj)[..., None]), None

  places = (jnp.arange(t.shape[-1]), columns(t), columns(x), columns(values))
  return [jnp.mean(jax.lax.scan(step, zeros_like(t), places)[0], axis=-3)]


# The mean of f of the upper triangular matrices with the diagonals x, which is known of their
# eigenvalues. Where two of those are equal, it is 0 if they have an eigenvector each up to the
# tolerance, and else NaN. Parlett, Linear Algebra Appl. 14 (1976).
parlett_p = ffi.operation(
    "linalg_parlett", "n n, m n, m n, () -> n n", [0], fallback=_parlett)


def _over(a, size):
  return a / size[..., None, None].astype(a.dtype)


def _in_range(t, moved):
  """T and its moved eigenvalues over a power of two, and that: no products leave the range then."""
  size = binade(jnp.maximum(largest_element(t), largest_element(moved)))
  return _over(t, size), _over(moved, size), size


@jax.jit
def _corner(t, z, moved, values, middle, directions):
  """f[A; E₁; A; ...; Eₖ; A], the corner of f of a block matrix. That matrix has k + 1 times A on
  the diagonal and the directions beside it. The result is linear in f, and in each direction."""
  n, last = t.shape[-1], len(directions)
  t, moved, size = _in_range(t, moved)
  directions = [congruence(z, e, adjoint_a=True) for e in directions]
  sizes = [binade(largest_element(e)) for e in directions]
  directions = list(map(_over, directions, sizes))
  # A direction tells equal eigenvalues apart however small it is.
  norm = norm_of_rows(t)
  tolerance = zeros_like(norm) if directions else smallest_gap(norm, n)
  block = lambda i, j: t if i == j else directions[i] if j == i + 1 else zeros_like(t)
  blocks = jnp.block([[block(i, j) for j in range(last + 1)] for i in range(last + 1)])
  corner = parlett_p(blocks, moved, values, tolerance)[..., :n, last * n :]
  if not directions:
    corner = jnp.where(on_diagonal(t), middle[..., None], corner)
  for own in sizes:
    corner = corner * (own / size)[..., None, None].astype(t.dtype)
  return congruence(z, corner)


@dataclasses.dataclass(frozen=True, eq=False)
class _Traced:
  """A function of a vector of one eigenvalue, and of the traced numbers that it refers to."""

  jaxpr: Any
  consts: Sequence[Any]  # None for a number

  def __call__(self, x, *numbers):
    rest = iter(numbers)
    consts = [next(rest) if c is None else c for c in self.consts]
    (values,) = eval_jaxpr(self.jaxpr, consts, x)
    return jnp.broadcast_to(values, x.shape).astype(x.dtype)


def _traced(func, t):
  """`func` as a function of vectors and numbers, and those numbers."""
  one = jax.ShapeDtypeStruct((1,), t.dtype)
  if isinstance(t, Tracer):
    one = jnp.sum(t)[None]  # which varies over the same manual axes
  # The trace of `func` itself would be kept by JAX, and it may refer to what will change.
  traced = jax.make_jaxpr(functools.partial(func))(one)
  if [x.shape for x in traced.out_avals] not in ([()], [(1,)]):
    given = ", ".join(x.str_short() for x in traced.out_avals)
    raise ValueError(f"funm: func must give a number for each eigenvalue; of one it gave {given}.")
  numbers = [jnp.asarray(x) for x in traced.consts if isinstance(x, Tracer)]
  consts = [None if isinstance(x, Tracer) else x for x in traced.consts]
  return _Traced(traced.jaxpr, consts), numbers


@dataclasses.dataclass(frozen=True)
class _Change:
  """The change of f, from the eigenvalues, the numbers, and the changes of those at `places`."""

  f: Callable[..., Any]
  places: tuple[int, ...]

  def __call__(self, x, *operands):
    numbers, changes = operands[: -len(self.places)], operands[-len(self.places) :]

    def of_moved(*moved):
      new = dict(zip(self.places, moved, strict=True))
      return self.f(x, *(new.get(i, number) for i, number in enumerate(numbers)))

    return jax.jvp(of_moved, tuple(numbers[i] for i in self.places), changes)[1]


# The number of groups of a number's elements. Each group has one derivative of f that must be
# analytic.
_GROUPS = 4


@dataclasses.dataclass(frozen=True)
class _Slope:
  """The derivative of f along a direction in one group of the elements of number `place`."""

  f: Callable[..., Any]
  place: int
  group: int
  unit: complex  # 1, or i of complex numbers, in whose parts f need not be analytic

  def __call__(self, x, *numbers):
    number = numbers[self.place]
    element = np.arange(number.size)
    along = (element % _GROUPS == self.group) * (1 + element * 0.5**0.5 % 1) * self.unit
    along = jnp.asarray(along.reshape(number.shape)).astype(number.dtype)
    return _Change(self.f, (self.place,))(x, *numbers, along)


def _slopes(f, number):
  """The slopes of f by one of its numbers."""
  units = (1, 1j) if jnp.issubdtype(number.dtype, jnp.complexfloating) else (1,)
  groups = range(min(_GROUPS, np.prod(number.shape, dtype=int)))
  return [_Slope(f, number.root, group, unit) for group in groups for unit in units]


@dataclasses.dataclass(frozen=True)
class _First:
  """A function of the first of the numbers."""

  f: Callable[..., Any]
  count: int

  def __call__(self, x, *numbers):
    return self.f(x, *numbers[: self.count])


class _Number(NamedTuple):
  """The type of a number, or of the change of the number at `root`."""

  shape: tuple[int, ...]
  dtype: Any
  root: int


def _of_numpy(func):
  def call(x):
    with np.errstate(all="ignore"):  # any values around the eigenvalues will do
      values = np.asarray(func(np.asarray(x).reshape(-1)))
    return jnp.asarray(np.broadcast_to(values, x.size).reshape(x.shape).astype(x.dtype))

  return call


def _of_batch(f, numbers, ranks, batch):
  """f of each x (*batch, ...), with the numbers of each matrix, or those that all share."""
  own = [0 if x.ndim > rank else None for x, rank in zip(numbers, ranks, strict=True)]

  def call(x):
    each = f
    for _ in range(x.ndim - batch):
      each = jax.vmap(each, (0, *(None for _ in numbers)))
    for _ in range(batch):
      each = jax.vmap(each, (0, *own))
    return each(x[..., None], *numbers)[..., 0]

  return call


def _value(analytic, values, t, z, directions=()):
  """`_corner` of the function `values` of eigenvalues.

  `values` is analytic wherever all functions in `analytic` are.
  """
  moved, _ = moved_apart(analytic, t, len(directions) + 1)
  return _corner(t, z, moved, values(moved), values(diagonal_of(t)), directions)


@functools.cache
def _operation(types, order):
  """`_value` of A with its factors, so many directions, and numbers of these types.

  The functions are its attributes, of eigenvalues and the numbers. `values` is linear in the
  changes of numbers, and the functions in `analytic` do not use them.
  """
  count = len(types)
  ranks = [len(x.shape) for x in types]

  def split(operands):
    return operands[3 : 3 + count], operands[3 + count :]

  def value(t, z, *rest, analytic, values):
    numbers, directions = rest[:count], rest[count:]
    of_batch = lambda f: _of_batch(f, numbers, ranks, t.ndim - 2)
    return _value([of_batch(f) for f in analytic], of_batch(values), t, z, directions)

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

  def changed(known, numbers, dnumbers, directions, places, analytic, values):
    """The change of the result with the numbers at `places`."""
    slopes = [x for f in analytic for i in places for x in _slopes(f, types[i])]
    return _operation((*types, *(types[i] for i in places)), order)(
        *known, *numbers, *(dnumbers[i] for i in places), *directions,
        analytic=tuple(dict.fromkeys([*analytic, *slopes])), values=_Change(values, places))

  def transpose(cotangents, operands, **functions):
    a, t, z, *_ = operands
    (ct,) = cotangents
    numbers, directions = split(operands)
    place = next(i for i, x in enumerate(operands) if x is None)
    found: list[Any] = [None] * len(operands)
    if (i := place - 3 - count) >= 0:
      # tr Cᵀ f[A; E₁; ...; Eₖ; A] = tr Eᵢ f[A; Eᵢ₊₁; ...; Eₖ; A; Cᵀ; A; E₁; ...; Eᵢ₋₁; A]
      before, after = ([e.mT for e in reversed(x)] for x in (directions[:i], directions[i + 1 :]))
      found[place] = operation(
          a.mT, *transposed_schur(t, z), *numbers, *before, ct, *after, **functions)
      return found
    # Linear in the changes that are not known: what a basis of each of them gives.
    unknown = {
        i: np.zeros(y.shape, y.dtype) for i, (x, y) in enumerate(zip(numbers, types, strict=True))
        if x is None}

    def along(i, x):
      known: list[Any] = [x if j == i else unknown.get(j, y) for j, y in enumerate(numbers)]
      return jnp.sum(ct * operation(a, t, z, *known, *directions, **functions), axis=(-2, -1))

    for i, zero in unknown.items():
      basis = np.eye(zero.size, dtype=zero.dtype).reshape(zero.size, *zero.shape)
      slopes = lambda basis, i=i: jnp.moveaxis(
          jax.vmap(functools.partial(along, i))(basis), 0, -1).real
      slope = slopes(basis)
      if jnp.iscomplexobj(zero):  # func need not be analytic in it
        slope = jax.lax.complex(slope, -slopes(1j * basis))
      found[3 + i] = slope.reshape(*slope.shape[:-1], *zero.shape).astype(zero.dtype)
    return found

  names = [
      " ".join(f"p{i}_{j}" for j in range(rank)) or "()" for i, rank in enumerate(ranks)]
  operation: ffi.Operation = given_factors(
      "funm", ", ".join(["n n"] * 3 + names + ["n n"] * order) + " -> n n", [1], value,
      attributes={"analytic": None, "values": None}, shared=range(3, 3 + count), jvp=jvp,
      transpose=transpose)
  return operation


# The rounding errors that `_error` samples, in ulps. Larger ones would not be linear. Smaller ones
# would be lost in T.
_ULPS = 8


def _units(key, t):
  """A random matrix of the shape of T, of elements on the unit circle."""
  turns = 2 * np.pi * jax.random.uniform(key, t.shape[-2:], jnp.finfo(t.dtype).dtype)
  return jax.lax.complex(jnp.cos(turns), jnp.sin(turns))


def _rounded(key, t, moved, exact):
  """T and its moved eigenvalues, with errors of _ULPS ulps.

  The factorization leaves errors as large as an ulp of the largest element. A triangle that is
  `exact` has none of these. But the recurrence rounds its elements, and the means round their
  nodes.
  """
  keys = jax.random.split(key, 3)
  eps = _ULPS * jnp.finfo(t.dtype).eps
  middle = diagonal_of(t)
  exact, size = exact[..., None], largest_element(t)[..., None]
  change = eps.astype(t.dtype) * expand(_units(keys[0], t), t)
  unit = diagonal_of(change)
  # Real matrices have real eigenvalues on branch cuts, which their rounding errors do not leave.
  unit = jnp.where(middle.imag == 0, unit.real.astype(t.dtype), unit)
  shift = jnp.where(exact, 0, unit * size.astype(t.dtype))
  change = change * jnp.where(exact[..., None], t, size[..., None].astype(t.dtype))
  change = jnp.where(on_diagonal(t), shift[..., None], jnp.triu(change))
  parts = (
      eps * expand(jax.random.normal(key, moved.shape[-2:], size.dtype), moved) * part
      for key, part in zip(keys[1:], (moved.real, moved.imag), strict=True))
  nodes = jnp.where(moved == middle[..., None, :], 0, jax.lax.complex(*parts).astype(t.dtype))
  return t + change, moved + nodes + shift[..., None, :]


def _error(f, t, z, result):
  """An estimate of the error of f(A), relative to it in the 1-norm; Inf where it is not finite.

  It is a sum of samples. The first is the rounding of f and the error of the means, and the second
  the rounding of T and of the nodes. The third is the derivative of f(A) along a direction as large
  as the rounding of A. It is the corner of f of [[T, E], [0, T']], where T' is the rounded T, so f
  need not be analytic.
  """
  n = t.shape[-1]
  moved, off = moved_apart([f], t)
  values = f(moved)
  eps = jnp.finfo(off.dtype).eps
  count = values.shape[-2]
  keys = jax.random.split(jax.random.key(0), 3)
  changes = jax.random.normal(keys[0], values.shape[-2:], off.dtype).astype(t.dtype)
  changes = expand(changes * count**0.5, values) * values  # their mean is less by this root
  changes = changes * (eps + off)[..., None, None].astype(t.dtype)
  of_diagonal = f(diagonal_of(t)) * eps.astype(t.dtype)
  exact = (jnp.sum(z != 0, axis=-1) == 1).all(-1)  # A is a triangle, up to a permutation
  near, near_moved = _rounded(keys[1], t, moved, exact)
  near_values, of_shift = f(near_moved), f(diagonal_of(near)) - f(diagonal_of(t))
  t, moved, size = _in_range(t, moved)
  near, near_moved = _over(near, size), _over(near_moved, size)
  # Rounding makes eigenvalues equal, or tells equal ones apart.
  tolerance = jnp.inf + zeros_like(off)
  of_values = parlett_p(t, moved, changes, tolerance)
  of_values = jnp.where(on_diagonal(t), of_diagonal[..., None], of_values)
  direction = _units(keys[2], t)  # no element is small by chance: one may decide
  direction = jnp.where(exact[..., None, None], 0, expand(direction, t))
  found = parlett_p(
      jnp.block([[t, direction], [zeros_like(t), near]]),
      jnp.concatenate([moved, near_moved], axis=-1),
      jnp.concatenate([values, near_values], axis=-1), tolerance)
  of_rounding = found[..., n:, n:] - found[..., :n, :n]
  of_rounding = jnp.where(on_diagonal(t), of_shift[..., None], of_rounding)  # it is no mean there
  error = norm_of_columns(of_values) + norm_of_columns(of_rounding) / _ULPS
  error = error + norm_of_columns(found[..., :n, n:]) * 2 * eps * largest_element(t)
  size = norm_of_columns(result)
  error = error / jnp.where(size == 0, 1, size)
  # Samples this large, or without a value, do not tell the number of digits.
  error = jnp.where(error <= 1 / 32, jnp.maximum(error, eps), 1)
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
      and the result has derivatives by them. It does not see the eigenvalues side by side: it is
      called with points around each. Outside of jit, vmap and grad it may be NumPy's.
    disp: whether to leave out the estimate of the error. Nothing is printed.

  Returns:
    f(A) (..., n, n), complex, and if `disp` is false an estimate (...) of its relative error in the
    1-norm. NaN where A holds NaN or Inf. It is also NaN where equal eigenvalues share a Jordan
    block and f is not analytic near them. "Near" is within some millionths of their size, or some
    hundredths in float32. See `checked`.

  The estimate samples the rounding of f, of A and of the contour nodes. It is large beside
  singularities of f, and for long Jordan chains with large couplings. It is 1 where no digit is
  certain: the error may then have any size, also above 1. It is Inf where f(A) is not finite. The
  rounding of A is left out for a triangle, also a permuted one, whose Schur form is exact. f(A)
  loses digits where rows and columns of A are of very different scale, and the estimate says so.

  Derivatives have no estimate, and lose more digits than f(A): about twice as many beside a
  singularity of f. Do not trust them where the estimate is 1. They may be NaN where f(A) is finite,
  since they need f to be analytic around all eigenvalues: see `func`.

  float16 and bfloat16 are computed in float32.

  Algorithm: the Schur form, and Parlett's recurrence. Close eigenvalues are moved to points of a
  circle, and the mean over the points is taken: 32 in float64, 16 in float32. Their radii are
  chosen by the Fourier coefficients of f. `linalg.funm_hermitian` takes less time for Hermitian
  matrices. Derivatives: to any order, by the recurrence of blocks (Mathias, SIAM J. Matrix Anal.
  Appl. 17, 1996), right at equal eigenvalues. In reverse mode, those by an array that `func` refers
  to take the time and the memory of f(A) for each of its elements.

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
    f, numbers = _traced(func, t)
    of_values = _of_batch(
        f, jax.lax.stop_gradient(numbers), [x.ndim for x in numbers], t.ndim - 2)
  except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
    if isinstance(a, Tracer):
      raise
    numbers, of_values = [], _of_numpy(func)
  if isinstance(a, Tracer) or numbers:
    types = tuple(_Number(x.shape, x.dtype, i) for i, x in enumerate(numbers))
    result = _operation(types, 0)(
        a.astype(t.dtype), t, z, *numbers, analytic=(_First(f, len(numbers)),), values=f)
  else:  # nothing is traced, and need not be compiled for each func
    result = _value([of_values], of_values, t, z)
  check(
      jnp.isnan(result).any((-2, -1)).astype(jnp.int32),
      "has no such function: func is NaN at its eigenvalues, or not analytic where equal ones "
      "share a Jordan block.")
  if disp:
    return result.astype(complex_dtype(dtype))
  error = _error(of_values, t, z, jax.lax.stop_gradient(result))
  return result.astype(complex_dtype(dtype)), error
