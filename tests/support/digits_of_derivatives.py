"""Compares derivatives in every mode, to second order, with those in many digits.

The unit of an error is the change of the exact derivative that a rounding of the operands makes. So
one limit holds for every kind of operand.
"""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

import hard_operands
import many_digits
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


def _ratio(found, expected, near, floors, together):
  """The largest error over what roundings do to the results, or to all of them together."""
  if not all(np.isfinite(x).all() for x in found):
    return np.inf
  errors, units = [], []
  for i, (y, floor) in enumerate(zip(expected, floors, strict=True)):
    x = np.asarray(many_digits.exact(np.asarray(found[i])), object).reshape(np.shape(y))
    errors.append(_size(x - y))
    units.append(max(_size(other[i] - y) for other in near) + floor)
  if together:
    units = [max(units)] * len(units)
  return max(float(e / u) if e else 0.0 for e, u in zip(errors, units, strict=True))


def _floors(here, speed, eps):
  """The rounding of each result: eps, times its size or that of the derivatives it is made of."""
  values, firsts, seconds = ([_size(y) for y in here[k]] for k in ("value", "forward", "second"))
  first = [max(x, speed * v) for x, v in zip(firsts, values, strict=True)]
  second = [max(x, speed * v) for x, v in zip(seconds, first, strict=True)]
  sizes = {
      "value": values, "forward": first, "second": second, "reverse": [sum(first)],
      "forward over reverse": [sum(second)], "reverse over reverse": [sum(second)]}
  return {mode: [eps * x for x in xs] for mode, xs in sizes.items()}


# Functions whose errors in graded matrices are measured by roundings of each element. Errors of the
# others are measured by the largest element, as they are for other kinds of matrices.
BY_ELEMENTS = {
    "cholesky", "cholesky_upper", "cholesky_jittered", "cho_solve", "inv", "solve", "solve_pos",
    "solve_her", "det", "slogdet", "lu_slogdet", "cho_logdet", "triangular_solve",
    "triangular_solve_right", "tridiagonal_solve", "norm", "vector_norm_3", "vector_norm_2",
    "vector_norm_0.5", "vector_norm_-1", "matrix_norm_1", "matrix_norm_inf", "cond_1", "matmul",
    "congruence", "congruence_adjoint", "cross", "vecdot", "diagonal", "trace", "matrix_transpose",
    "block_diag", "matrix_power", "matrix_power_-2", "ldl", "matmul_toeplitz", "solve_banded",
    "solveh_banded", "cholesky_banded", "cho_solve_banded"}


# Functions whose results are projectors onto vectors. An error of one vector is an error of all.
TOGETHER = {"eigh", "eigh_tridiagonal", "eigh_generalized", "svd", "svd_thin"}


def errors(case, kinds, dtype, rng):
  """{kind: {mode: error}} of a case's derivatives. NaN and Inf in a result count as infinite."""
  dtype = np.dtype(dtype).type
  points = [hard_operands.make(case.name, kind, rng, dtype) for kind in kinds]
  stack = hard_operands.stacked(points)
  function = lambda *x: case.invariant(case.results(*x))
  cotangents = tuple(
      matrices.general(rng, x.shape, 1, 1, np.dtype(x.dtype))[..., 0, 0]
      for x in _inexact(jax.eval_shape(function, *stack.operands)))
  found = jax.device_get(_all_modes(function, stack.operands, stack.tangents, cotangents))
  return {
      kind: _errors_at(
          case, points[k], {mode: [x[k] for x in xs] for mode, xs in found.items()},
          [c[k] for c in cotangents], rng,
          "elements" if kind in hard_operands.GRADED and case.name in BY_ELEMENTS else "largest")
      for k, kind in enumerate(kinds)}


def _errors_at(case, point, found, cotangents, rng, how):
  inexact = [(x, dx) for x, dx in zip(*point, strict=True) if dx is not None]
  eps = float(np.finfo(inexact[0][0].dtype).eps)
  speed = max(float(_size(dx) / max(_size(x), 1e-30)) for x, dx in inexact)
  exact = lambda xs: [
      many_digits.exact(x) if x is not None and x.dtype.kind in "fc" else x for x in xs]
  with mpmath.workdps(many_digits.DIGITS):
    exactly = lambda *xs: _exactly(
        many_digits.ORACLES[case.name], *(exact(x) for x in xs), cotangents)
    here = exactly(*point)
    near = [exactly(*(hard_operands.perturbed(rng, x, how) for x in point))
            for _ in range(SAMPLES)]
    floors = _floors(here, speed, eps)
    return {
        mode: _ratio(found[mode], here[mode], [x[mode] for x in near], floors[mode],
                     case.name in TOGETHER)
        for mode in found}
