"""Compares derivatives in every mode, to second order, with those in many digits.

The unit of an error is the change of the exact derivative that a rounding of the operands makes. So
one limit holds for every kind of operand.
"""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

import cases
import hard_operands
import many_digits
import many_digits_of_factors
import matrices
from derivatives import real_product
from quick import quick_jit

SAMPLES = 2  # roundings of the operands


def _inexact(results):
  return [x for x in jax.tree.leaves(results) if jnp.issubdtype(x.dtype, jnp.inexact)]


def _moving(operands):
  return [k for k, x in enumerate(operands) if x.dtype.kind in "fc"]


@functools.partial(quick_jit, static_argnums=0)
def _all_modes(function, operands, tangents, cotangents):
  """Values and derivatives of a stack of points, in every mode."""
  moving = _moving(operands)
  primals = tuple(operands[k] for k in moving)
  tangents = tuple(tangents[k] for k in moving)

  def f(*x):
    given = dict(zip(moving, x, strict=True))
    return tuple(_inexact(function(*(given.get(k, y) for k, y in enumerate(operands)))))

  everything = tuple(range(len(moving)))
  first = lambda *x: jax.jvp(f, x, tangents)[1]
  loss = lambda *x: real_product(cotangents, f(*x))
  gradient = jax.grad(loss, everything)
  slope = lambda *x: real_product(gradient(*x), tangents)
  values, forward = jax.jvp(f, primals, tangents)
  reverse, over_reverse = jax.jvp(gradient, primals, tangents)
  return {
      "value": values, "forward": forward, "second": jax.jvp(first, primals, tangents)[1],
      "reverse": _pairings(reverse, tangents),
      "forward over reverse": _pairings(over_reverse, tangents),
      "reverse over reverse": _pairings(jax.grad(slope, everything)(*primals), tangents)}


def _pairings(xs, ys):
  """Re Σ xᵢ yᵢ for each point of a stack."""
  each = [jnp.sum((x * y).real, axis=tuple(range(1, x.ndim))) for x, y in zip(xs, ys)]
  return (sum(each),)


def _exactly(oracle, operands, tangents, cotangents):
  """The exact values of what `_all_modes` finds for one point."""
  value, first, second = many_digits.derivatives(oracle, operands, tangents)
  pair = lambda ys: [np.asarray(
      sum((mpmath.re(c * y) for x, z in zip(cotangents, ys, strict=True)
           for c, y in zip(np.ravel(many_digits.exact(x)), np.ravel(z), strict=True)),
          mpmath.mpf(0)), object)]
  return {
      "value": value, "forward": first, "second": second, "reverse": pair(first),
      "forward over reverse": pair(second), "reverse over reverse": pair(second)}


def _size(x):
  return max((abs(y) for y in np.ravel(x)), default=mpmath.mpf(0))


def _ratio(found, expected, near, floors, together, lost):
  """The largest error over what roundings do to the results, or to all of them together.

  Results that are `lost` have NaN for a value, and must have NaN here.
  """
  errors, units = [], []
  for i, (x, y, floor) in enumerate(zip(found, expected, floors, strict=True)):
    if lost[i] or not np.isfinite(x).all():
      if not lost[i] or not np.isnan(x).any():
        return np.inf
      continue
    x = np.asarray(many_digits.exact(np.asarray(x)), object).reshape(np.shape(y))
    errors.append(_size(x - y))
    units.append(max(_size(other[i] - y) for other in near) + floor)
  if together:
    units = [max(units, default=0)] * len(units)
  return max((float(e / u) if e else 0.0 for e, u in zip(errors, units, strict=True)), default=0.0)


def _floors(here, speed, eps):
  """The rounding of each result: eps, times its size or that of the derivatives it is made of."""
  values, firsts, seconds = ([_size(y) for y in here[k]] for k in ("value", "forward", "second"))
  first = [max(x, speed * v) for x, v in zip(firsts, values, strict=True)]
  second = [max(x, speed * v) for x, v in zip(seconds, first, strict=True)]
  sizes = {
      "value": values, "forward": first, "second": second, "reverse": [sum(first)],
      "forward over reverse": [sum(second)], "reverse over reverse": [sum(second)]}
  return {mode: [eps * x for x in xs] for mode, xs in sizes.items()}


GRAM = "gram_inverse_pth_root"  # which has no case: linalg has no such function
ORACLES = many_digits.ORACLES | many_digits_of_factors.ORACLES
# Functions that scale or convolve whole matrices.
OF_THE_NORM = {
    "expm", "expm_frechet", "expm_cond", "solve_toeplitz", "solve_circulant", "cosm", "sinm",
    "tanm", "coshm", "sinhm", "tanhm"}
# Functions that add products of matrices at every step.
_RECURSIONS = {"kalman_filter", "kalman_smoother"}
_ORTHOGONAL = tuple(f"linalg_{x}" for x in ("eig", "svd", "schur", "qr", "qz", "hessenberg"))


def uses_orthogonal_factors(case):
  return any(target.startswith(_ORTHOGONAL) for target in cases.targets_of(case))


def _unit(case, kind):
  """How large a rounding of the operands is: see `hard_operands.perturbed`.

  In graded matrices it is relative to each element, unless the function uses orthogonal factors.
  """
  if case.name in OF_THE_NORM:
    return "norm"
  if kind not in hard_operands.GRADED or case.name in _RECURSIONS | {GRAM}:
    return "largest"
  return "largest" if uses_orthogonal_factors(case) else "elements"


def _with_positive_diagonal(*factors):
  """R alone, or Q and R and what follows."""
  at = min(len(factors) - 1, 1)
  r = factors[at]
  sign = jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1)).conj()
  before = [x * sign[..., None, :].conj() for x in factors[:at]]
  return *before, sign[..., None] * r, *factors[at + 1 :]


def _invariant(case):
  """The results of a case without what the operation leaves open."""

  def of(*operands):
    results = case.invariant(case.results(*operands))
    if case.name == "schur":
      return results[1:]  # a sum over the real form
    if case.name in ("qr", "qr_r", "qr_pivoted"):
      return _with_positive_diagonal(*jax.tree.leaves(results))
    if not case.unordered or case.name.startswith(("schur", "qz", "ordqz")):
      return results
    w, *vectors = results
    order = jnp.argsort(many_digits_of_factors.place(w), axis=-1)
    return (
        jnp.take_along_axis(w, order, -1),
        *(jnp.take_along_axis(v, order[..., None, None], -3) for v in vectors))

  return of


def errors(case, kinds, dtype, rng):
  """{kind: {mode: error}} of a case's derivatives. NaN and Inf in a result count as infinite."""
  dtype = np.dtype(dtype).type
  points = {kind: hard_operands.make(case.name, kind, rng, dtype) for kind in kinds}
  return errors_at(case, points, {kind: _unit(case, kind) for kind in kinds}, rng)[0]


def errors_at(case, points, units, rng, digits=many_digits.DIGITS, *, determined=False):
  """`errors` at given points, and kind -> why there are none.

  Where a value is NaN, so must be its derivatives, and only "value" has the error. Modes are left
  out where the dtype does not hold the derivatives.

  Args:
    case: of the catalogue.
    points: kind -> Point.
    units: kind -> how large a rounding is: see `hard_operands.perturbed`.
    rng: a generator.
    digits: how many the exact results are computed with.
    determined: whether to leave out kinds where a rounding changes a value by a tenth.
  """
  stack = hard_operands.stacked(list(points.values()))
  function = _invariant(case)
  shapes, whole = (jax.eval_shape(f, *stack.operands) for f in (function, case.results))
  cotangents = tuple(
      matrices.general(rng, x.shape, 1, 1, np.dtype(x.dtype))[..., 0, 0] for x in _inexact(shapes))
  # An error of one vector is an error of all projectors onto vectors.
  rank = lambda xs: max(x.ndim for x in jax.tree.leaves(xs))
  together = rank(shapes) > rank(whole)
  found = jax.device_get(_all_modes(function, stack.operands, stack.tangents, cotangents))
  errors, reasons = {}, {}
  for k, (kind, point) in enumerate(points.items()):
    own = {mode: [x[k] for x in xs] for mode, xs in found.items()}
    try:
      with mpmath.workdps(digits):
        of_kind = _errors_of(
            case, point, own, [c[k] for c in cotangents], rng, units[kind], together, determined)
    except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
      reasons[kind] = f"no result in {digits} digits, or none after a rounding: {error}"
      continue
    if of_kind:
      errors[kind] = of_kind
    else:
      reasons[kind] = "a rounding leaves no digit, or no derivative is in range"
  return errors, reasons


def _errors_of(case, point, found, cotangents, rng, unit, together, determined):
  inexact = [(x, dx) for x, dx in zip(*point, strict=True) if dx is not None]
  finfo = np.finfo(inexact[0][0].dtype)
  eps = float(finfo.eps)
  speed = max(float(_size(dx) / _size(x)) if _size(x) else 0.0 for x, dx in inexact)
  exact = lambda xs: [
      many_digits.exact(x) if x is not None and x.dtype.kind in "fc" else x for x in xs]
  exactly = lambda *xs: _exactly(ORACLES[case.name], *(exact(x) for x in xs), cotangents)
  here = exactly(*point)
  near = [exactly(*(hard_operands.perturbed(rng, x, unit) for x in point)) for _ in range(SAMPLES)]
  changes = [_size(x["value"][i] - y) / _size(y) for x in near
             for i, y in enumerate(here["value"]) if _size(y)]
  if determined and max(changes, default=0) > 0.1:
    return {}
  floors = _floors(here, speed, eps)
  lost = [bool(np.isnan(x).any()) for x in found["value"]]
  errors = {
      mode: _ratio(
          found[mode], here[mode], [x[mode] for x in near], floors[mode], together,
          [any(lost)] if "reverse" in mode else lost)
      for mode in found if _are_in_range(
          here, [_size(x) for x, _ in inexact], finfo, gradients="reverse" in mode)}
  return errors | ({"value": np.inf} if any(lost) else {})


def _are_in_range(here, sizes, finfo, *, gradients):
  """Whether the dtype holds the results, their derivatives and perhaps their gradients."""
  of_results = [_size(y) for mode in ("value", "forward", "second") for y in here[mode]]
  if gradients:
    of_results += [_size(y) / x for y in here["forward"] for x in sizes if x]
  least, most = float(finfo.tiny) / float(finfo.eps), float(finfo.max) / 8
  return all(y == 0 or least < y < most for y in of_results)
