"""Linear matrix equations, by the Schur forms of their matrices."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from linalg._core.algebra import adjoint, diagonal_of, expand, largest_element, nan_where
from linalg._core.balancing import balancing, in_units, similar
from linalg._core.checks import check
from linalg._core.operands import as_arrays, as_complex, check_batches, check_square, incompatible
from linalg._core.public import public
from linalg._factorizations.schur import triangular_schur
from linalg._functions.sylvester import adjoint_schur, stein_p, sylvester_p

__all__ = [
    "solve_continuous_lyapunov", "solve_discrete_lyapunov", "solve_lyapunov", "solve_sylvester"]


def _operands(name, names, *operands):
  arrays, dtype = as_arrays(name, *operands)
  *squares, right = arrays
  for operand, x in zip(names, squares, strict=False):
    check_square(name, x, operand)
  shape = (squares[0].shape[-1], squares[-1].shape[-1])
  if right.ndim < 2 or right.shape[-2:] != shape:
    raise incompatible(name, *arrays, names=names)
  check_batches(name, *arrays, names=names)
  return arrays, dtype


def _balanced(a, q):
  """D⁻¹ A D and D⁻¹ Q D⁻¹, whose solution is D⁻¹ X D⁻¹, and the exponents of D."""
  e = balancing(a)
  return similar(a, e), in_units(q, -e), e


def _solution(x, regular, dtype, what):
  """Returns `x` where the equation has one solution, and NaN elsewhere."""
  failed = ~regular
  check(failed.astype(jnp.int32), what)
  x = x if jnp.issubdtype(dtype, jnp.complexfloating) else x.real
  return nan_where(failed, x, core=2).astype(dtype)


def _least(x):
  return jnp.min(jnp.abs(x), axis=(-2, -1), initial=jnp.inf)


@public("method", lists=True)
def solve_sylvester(
    A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: ArrayLike = 1e-8
) -> jax.Array:
  """Solves A X + X B = C for X; `jax.scipy.linalg.solve_sylvester`.

  Args:
    A: matrices (..., m, m).
    B: matrices (..., n, n).
    C: matrices (..., m, n); the batches broadcast.
    method: 'schur', or 'eigen', which is computed in the same way.
    tol: a bound for the sums of an eigenvalue of A and one of B.

  Returns:
    X (..., m, n). It is NaN where such a sum is less than `tol` in magnitude, because X is not
    unique then. It is NaN too where A or B holds NaN or Inf; see `checked`.

  float16 and bfloat16 are solved in float32, and X rounded.

  Algorithm: the complex Schur forms of the balanced A and B, and substitution column by column;
  Bartels and Stewart (1972). Derivative: the same equation with the same Schur forms, right at any
  spectrum and to any order.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.solve_sylvester(2 * jnp.eye(1), jnp.eye(1), 6 * jnp.eye(1))
    Array([[2.]], dtype=float32)
  """
  if method not in ("schur", "eigen"):
    raise ValueError(f"solve_sylvester: method must be 'schur' or 'eigen', got {method!r}.")
  (a, b, c), dtype = _operands("solve_sylvester", "ABC", A, B, C)
  # The equation of D⁻¹ A D and E⁻¹ B E has the solution D⁻¹ X E.
  d, e = balancing(a), balancing(b)
  a, b, c = similar(a, d), similar(b, e), similar(c, d, e)
  (t, z), (s, w) = triangular_schur(a), triangular_schur(b)
  a, b, c = map(as_complex, (a, b, c))
  alphas, betas = diagonal_of(t), diagonal_of(s)
  sums = expand(alphas, betas)[..., :, None] + expand(betas, alphas)[..., None, :]
  return _solution(
      similar(sylvester_p(a, t, z, b, s, w, c), -d, -e), _least(sums) >= tol, dtype,
      "has no unique solution: an eigenvalue of A is one of -B.")


@public(lists=True)
def solve_continuous_lyapunov(a: ArrayLike, q: ArrayLike) -> jax.Array:
  """Solves A X + X Aᴴ = Q for X; `scipy.linalg.solve_continuous_lyapunov`, batched.

  Args:
    a: matrices (..., n, n).
    q: matrices (..., n, n), Hermitian or not; the batches broadcast.

  Returns:
    X (..., n, n). It is NaN where the sum of an eigenvalue and the conjugate of one is 0 up to
    rounding, because X is not unique then. It is NaN too where A holds NaN or Inf; see `checked`.

  float16 and bfloat16 are solved in float32, and X rounded.

  Algorithm: the complex Schur form of the balanced A, and substitution column by column; Bartels
  and Stewart (1972). Derivative: the same equation with the same Schur form, right at any spectrum
  and to any order.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.solve_continuous_lyapunov(-jnp.eye(1), -2 * jnp.eye(1))
    Array([[1.]], dtype=float32)
  """
  (matrix, right), dtype = _operands("solve_continuous_lyapunov", "aq", a, q)
  matrix, right, e = _balanced(matrix, right)
  t, z = triangular_schur(matrix)
  matrix, right = as_complex(matrix), as_complex(right)
  w = diagonal_of(t)
  sums = w[..., :, None] + w.conj()[..., None, :]
  bound = 2 * jnp.finfo(t.dtype).eps * largest_element(t)
  return _solution(
      in_units(sylvester_p(matrix, t, z, adjoint(matrix), *adjoint_schur(t, z), right), e),
      _least(sums) > bound, dtype,
      "has no unique solution: one of its eigenvalues is minus the conjugate of one.")


@public(lists=True)
def solve_lyapunov(a: ArrayLike, q: ArrayLike) -> jax.Array:
  """SciPy's older name of `solve_continuous_lyapunov`; `scipy.linalg.solve_lyapunov`.

  Args:
    a, q: matrices (..., n, n).

  Returns:
    X (..., n, n) with A X + X Aᴴ = Q.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.solve_lyapunov(-jnp.eye(1), -2 * jnp.eye(1))
    Array([[1.]], dtype=float32)
  """
  return solve_continuous_lyapunov(a, q)


@public("method", lists=True)
def solve_discrete_lyapunov(a: ArrayLike, q: ArrayLike, method: str | None = None) -> jax.Array:
  """Solves A X Aᴴ - X + Q = 0 for X; `scipy.linalg.solve_discrete_lyapunov`, batched.

  Args:
    a: matrices (..., n, n).
    q: matrices (..., n, n), Hermitian or not; the batches broadcast.
    method: None, 'direct' or 'bilinear', which are computed in the same way.

  Returns:
    X (..., n, n). It is NaN where the product of an eigenvalue and the conjugate of one is 1 up to
    rounding, because X is not unique then. It is NaN too where A holds NaN or Inf; see `checked`.

  float16 and bfloat16 are solved in float32, and X rounded.

  Algorithm: the complex Schur form of the balanced A, and substitution column by column; Kitagawa
  (1977). Derivative: the same equation with the same Schur form, right at any spectrum and to any
  order.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> linalg.scipy.solve_discrete_lyapunov(jnp.eye(1) / 2, 3 * jnp.eye(1))
    Array([[4.]], dtype=float32)
  """
  if method not in (None, "direct", "bilinear"):
    raise ValueError(
        f"solve_discrete_lyapunov: method must be None, 'direct' or 'bilinear', got {method!r}.")
  (matrix, right), dtype = _operands("solve_discrete_lyapunov", "aq", a, q)
  matrix, right, e = _balanced(matrix, right)
  t, z = triangular_schur(matrix)
  matrix, right = as_complex(matrix), as_complex(right)
  w = diagonal_of(t)
  gaps = w[..., :, None] * w.conj()[..., None, :] - 1
  bound = 2 * jnp.finfo(t.dtype).eps * jnp.maximum(largest_element(t) ** 2, 1)
  return _solution(
      in_units(stein_p(matrix, t, z, -right), e), _least(gaps) > bound, dtype,
      "has no unique solution: the product of an eigenvalue and the conjugate of one is 1.")
