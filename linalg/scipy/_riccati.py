"""Algebraic Riccati equations, by the matrix sign.

The solution is a function of A, G = B R⁻¹ Bᴴ and Q alone. It is that which makes the closed loop
stable, and is found by an iteration without derivatives, which a step of Newton's method then makes
as accurate as the equation lets it be. Its derivatives are those of the equation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg import ffi
from linalg._core.algebra import (
  adjoint,
  diagonal_of,
  identities_like,
  identity,
  symmetrized,
  without_none,
  zeros_like,
)
from linalg._core.checks import check
from linalg._core.implicit_functions import given_factors
from linalg._core.operands import as_arrays, as_complex, check_batches, check_square, incompatible
from linalg._core.public import public
from linalg._factorizations.matmul import congruence, product
from linalg._factorizations.qr import qr
from linalg._factorizations.schur import triangular_schur
from linalg._factorizations.solve import inv, solve
from linalg._factorizations.triangular import triangular_solve
from linalg._functions.norms import matrix_norm
from linalg._functions.sylvester import adjoint_schur, stein_p, sylvester_p

__all__ = ["solve_continuous_are", "solve_discrete_are"]

# The iteration converges quadratically: these many steps serve spectra that are spread, or as close
# to the imaginary axis, as 2⁻²⁴. Fixed, for a condition on the whole batch would be a collective.
_STEPS = 24


def _frobenius(x):
  return matrix_norm(x, keepdims=True)


def _sign(a):
  """The matrix sign, by Newton's iteration, scaled by norms, until it moves by rounding alone.

  Higham, Functions of matrices (2008), section 5.5.
  """

  def step(carry, _):
    z, done = carry
    inverse = inv(z)
    scale = jnp.sqrt(_frobenius(inverse) / _frobenius(z)).astype(z.dtype)
    new = (scale * z + inverse / scale) / 2
    rounding = 10 * z.shape[-1] * jnp.finfo(z.dtype).eps * _frobenius(z)
    return (jnp.where(done, z, new), done | (_frobenius(new - z) <= rounding)), None

  undone = zeros_like(_frobenius(a)) > 0
  return jax.lax.scan(step, (a, undone), length=_STEPS)[0][0]


def _stable_graph(a):
  """X such that [I; X] is the subspace of the eigenvalues of A to the left of the imaginary axis.

  On it the sign of A is -I: Roberts, Int. J. Control 32 (1980).
  """
  n = a.shape[-1] // 2
  shifted = _sign(a) + identity(a)
  q, r = qr(shifted[..., n:])
  right = product(q, shifted[..., :n], adjoint_a=True)
  return -triangular_solve(r, right, left_side=True, lower=False)


# Continuous time: Aᴴ X + X A - X G X + Q = 0, the closed loop being A - G X.


def _continuous_start(a, g, q):
  return _stable_graph(jnp.block([[a, -g], [-q, -adjoint(a)]]))


def _continuous_loop(a, g, x):
  return a - product(g, x)


def _continuous_linear(loop, t, z, c):
  """Y of Fᴴ Y + Y F = C for the closed loop F."""
  return sylvester_p(adjoint(loop), *adjoint_schur(t, z), loop, t, z, c)


def _continuous_residual(a, g, q, x):
  half = product(x, a - product(g, x) / 2)
  return half + adjoint(half) + q


def _continuous_change(loop, x, da, dg, dq):
  half = product(x, da)
  return half + adjoint(half) - product(x, product(dg, x)) + dq


# Discrete time: Aᴴ X (I + G X)⁻¹ A - X + Q = 0, the closed loop being (I + G X)⁻¹ A.


def _discrete_start(a, g, q):
  # [I; X] is the subspace of the eigenvalues in the unit circle of the pencil M - z L, and of those
  # on the left of (M + L)⁻¹ (M - L).
  one, zero = identities_like(a), zeros_like(a)
  m, l = jnp.block([[a, zero], [-q, one]]), jnp.block([[one, g], [zero, adjoint(a)]])
  return _stable_graph(solve(m + l, m - l))


def _discrete_loop(a, g, x):
  return solve(identity(a) + product(g, x), a)


def _discrete_linear(loop, t, z, c):
  """Y of Fᴴ Y F - Y = C for the closed loop F."""
  return stein_p(adjoint(loop), *adjoint_schur(t, z), c)


def _discrete_residual(a, g, q, x):
  return product(a, product(x, _discrete_loop(a, g, x)), adjoint_a=True) - x + q


def _discrete_change(loop, x, da, dg, dq):
  half = product(product(loop, x, adjoint_a=True), da)
  after = product(x, loop)
  return half + adjoint(half) - congruence(after, dg, adjoint_a=True) + dq


class _Equation(NamedTuple):
  """A Riccati equation F(A, G, Q, X) = 0, whose derivative by X is L: L dX + dF = 0."""

  start: Callable[..., Any]  # (A, G, Q) to nearly X
  loop: Callable[..., Any]  # (A, G, X) to the closed loop
  linear: Callable[..., Any]  # (closed loop, its Schur factors, C) to L⁻¹ C
  residual: Callable[..., Any]  # F
  change: Callable[..., Any]  # (closed loop, X, dA, dG, dQ) to dF
  stable: Callable[..., Any]  # eigenvalues of the closed loop to whether it is stable


def _solved(equation, loop, factors, c):
  """L⁻¹ C, real if C is."""
  x = equation.linear(as_complex(loop), *factors, as_complex(c))
  return x if jnp.iscomplexobj(c) else x.real


def _jvp(equation, operation, primals, tangents):
  a, g, _, _, *factors = primals
  x = operation()(*primals)
  loop = equation.loop(a, g, x)
  change = equation.change(loop, x, *without_none(primals[:3], tangents[:3]))
  return x, _solved(equation, loop, factors, -change)


def _operation(name, equation):
  operation: ffi.Operation = given_factors(
      name, "n n, n n, n n, n n, n n, n n -> n n", [0], lambda g, q, x, t, z: x,
      jvp=lambda primals, tangents: _jvp(equation, lambda: operation, primals, tangents))
  return operation


_CONTINUOUS = _Equation(
    _continuous_start, _continuous_loop, _continuous_linear, _continuous_residual,
    _continuous_change, lambda w: w.real < 0)
_DISCRETE = _Equation(
    _discrete_start, _discrete_loop, _discrete_linear, _discrete_residual, _discrete_change,
    lambda w: jnp.abs(w) < 1)
# X, given A, G and Q, and X with the Schur factors of the closed loop.
_continuous_p = _operation("solve_continuous_are", _CONTINUOUS)
_discrete_p = _operation("solve_discrete_are", _DISCRETE)


def _solve_standard(equation, operation, a, g, q):
  """X for given A, G and Q, and whether it is a solution that makes the closed loop stable."""
  constants = [jax.lax.stop_gradient(x) for x in (a, g, q)]
  x = symmetrized(equation.start(*constants))
  before = equation.loop(*constants[:2], x)
  x = symmetrized(x + _solved(
      equation, before, triangular_schur(before), -equation.residual(*constants, x)))
  after = equation.loop(*constants[:2], x)
  t, z = triangular_schur(after)
  stable = jnp.all(equation.stable(diagonal_of(t)), axis=-1)
  bound = jnp.finfo(x.dtype).eps ** 0.25 * (_frobenius(after) + _frobenius(constants[0]))
  settled = _frobenius(after - before) <= bound
  return operation(a, g, q, x, t, z), stable & settled[..., 0, 0]


def _check_shapes(name, matrices):
  for x in (matrices[key] for key in "aqre" if key in matrices):
    check_square(name, x)
  n, m = matrices["a"].shape[-1], matrices["r"].shape[-1]
  expected = {"a": (n, n), "b": (n, m), "q": (n, n), "r": (m, m), "e": (n, n), "s": (n, m)}
  if any(x.ndim < 2 or x.shape[-2:] != expected[key] for key, x in matrices.items()):
    raise incompatible(name, *matrices.values(), names=tuple(matrices))
  check_batches(name, *matrices.values(), names=tuple(matrices))


def _solve(name, equation, operation, **operands):
  given = {key: x for key, x in operands.items() if x is not None}
  arrays, dtype = as_arrays(name, *given.values())
  _check_shapes(name, dict(zip(given, arrays, strict=True)))
  ffi.refuse_sharded(name, *arrays)
  arrays = ffi.broadcast_batches(name, arrays, (2,) * len(arrays))
  matrices = dict(zip(given, arrays, strict=True))
  a, b, q, r = matrices["a"], matrices["b"], symmetrized(matrices["q"]), symmetrized(matrices["r"])
  s = matrices.get("s")
  if "e" in matrices:  # from the right by E⁻¹, and from the left by E⁻ᴴ
    eh = adjoint(matrices["e"])
    a = adjoint(solve(eh, adjoint(a)))
    q = solve(eh, adjoint(solve(eh, q)))
    s = None if s is None else solve(eh, s)
  if s is not None:
    feedback = solve(r, adjoint(s))
    a, q = a - product(b, feedback), symmetrized(q - product(s, feedback))
  g = symmetrized(product(b, solve(r, adjoint(b))))
  x, found = _solve_standard(equation, operation, a, g, q)
  check((~found).astype(jnp.int32), "has no solution that makes the closed loop stable.")
  return jnp.where(found[..., None, None], x, jnp.nan).astype(dtype)


@public("balanced", lists=True)
def solve_continuous_are(
    a: ArrayLike,
    b: ArrayLike,
    q: ArrayLike,
    r: ArrayLike,
    e: ArrayLike | None = None,
    s: ArrayLike | None = None,
    balanced: bool = True,
) -> jax.Array:
  """X of Aᴴ X + X A - X B R⁻¹ Bᴴ X + Q = 0; `scipy.linalg.solve_continuous_are`, batched.

  Args:
    a: matrices (..., n, n).
    b: matrices (..., n, m).
    q, r: Hermitian matrices (..., n, n) and (..., m, m); (Q + Qᴴ) / 2 and (R + Rᴴ) / 2 are meant. R
      must have an inverse. The batches broadcast.
    e: matrices (..., n, n) that have inverses, the identity by default.
    s: matrices (..., n, m), zero by default. With both the equation is
      Eᴴ X A + Aᴴ X E - (Eᴴ X B + S) R⁻¹ (Bᴴ X E + Sᴴ) + Q = 0.
    balanced: not used.

  Returns:
    The Hermitian X (..., n, n) for which all eigenvalues of A - B R⁻¹ Bᴴ X are to the left of the
    imaginary axis, as those of a regulator; NaN where there is none, or a matrix holds NaN or Inf;
    see `checked`.

  float16 and bfloat16 are solved in float32, and X rounded.

  Algorithm: Newton's iteration for the sign of the Hamiltonian matrix (Roberts, 1980), and a step
  of Newton's method for the equation (Kleinman, IEEE Trans. Automat. Control 13, 1968). Derivative:
  the Lyapunov equation of the closed loop, to any order.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> one = jnp.eye(1)
    >>> linalg.scipy.solve_continuous_are(0 * one, one, 4 * one, one)
    Array([[2.]], dtype=float32)
  """
  del balanced
  return _solve(
      "solve_continuous_are", _CONTINUOUS, _continuous_p, a=a, b=b, q=q, r=r, e=e, s=s)


@public("balanced", lists=True)
def solve_discrete_are(
    a: ArrayLike,
    b: ArrayLike,
    q: ArrayLike,
    r: ArrayLike,
    e: ArrayLike | None = None,
    s: ArrayLike | None = None,
    balanced: bool = True,
) -> jax.Array:
  """X of Aᴴ X A - X - Aᴴ X B (R + Bᴴ X B)⁻¹ Bᴴ X A + Q = 0; `scipy.linalg.solve_discrete_are`,
  batched.

  Args:
    a, b, q, r, e, s, balanced: as for `solve_continuous_are`. With E and S the equation is
      Aᴴ X A - Eᴴ X E - (Aᴴ X B + S) (R + Bᴴ X B)⁻¹ (Bᴴ X A + Sᴴ) + Q = 0.

  Returns:
    The Hermitian X (..., n, n) for which all eigenvalues of the closed loop
    A - B (R + Bᴴ X B)⁻¹ Bᴴ X A are within the unit circle; NaN where there is none, or a matrix
    holds NaN or Inf; see `checked`.

  float16 and bfloat16 are solved in float32, and X rounded.

  Algorithm: the bilinear transform to a continuous problem, Newton's iteration for the sign
  (Roberts, 1980), and a step of Newton's method for the equation (Hewer, IEEE Trans. Automat.
  Control 16, 1971). Derivative: the discrete Lyapunov equation of the closed loop, to any order.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> one = jnp.eye(1)
    >>> linalg.scipy.solve_discrete_are(0 * one, one, 4 * one, one)
    Array([[4.]], dtype=float32)
  """
  del balanced
  return _solve("solve_discrete_are", _DISCRETE, _discrete_p, a=a, b=b, q=q, r=r, e=e, s=s)
