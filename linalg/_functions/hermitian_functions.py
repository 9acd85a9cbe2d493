"""Functions of Hermitian matrices, with derivatives that are exact at any spectrum."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.typing import ArrayLike

from linalg._core.algebra import expand, identity, largest_component, normal_binade, symmetrized
from linalg._core.divided_differences import differences, second_differences
from linalg._core.matrix_function import matrix_function
from linalg._core.operands import as_arrays, check_square, complex_dtype
from linalg._core.public import public
from linalg._factorizations.eigh import eigh, smooth_eigvalsh
from linalg._factorizations.matmul import congruence, product

__all__ = ["funm_hermitian", "inverse_pth_root"]


@dataclasses.dataclass(frozen=True)
class _ByNumber:
  """The derivative of f(w, *numbers) with respect to number `i`."""

  f: Callable[..., Any]
  i: int

  def __call__(self, w, *numbers):
    with_number = lambda x: self.f(w, *numbers[: self.i], x, *numbers[self.i + 1 :])
    x = jnp.broadcast_to(numbers[self.i], w.shape)
    return jax.jvp(with_number, (x,), (jnp.ones_like(x),))[1]


def _elementwise(f, numbers):
  """f of eigenvalues x (*batch, n, ...), with the parameters (*batch) of their matrices."""
  along = lambda number, x: jax.lax.expand_dims(number, range(number.ndim, x.ndim))
  return lambda x: f(x, *(along(number, x) for number in numbers))


def _dtype_of_function(a, w, v, *numbers, f):
  numbers = [jax.ShapeDtypeStruct((1,), x) for x in (w, *numbers)]
  complex_values = jnp.issubdtype(jax.eval_shape(f, *numbers).dtype, jnp.complexfloating)
  return [complex_dtype(v) if complex_values else v]


def _function(w, v, *numbers, f):
  (dtype,) = _dtype_of_function(None, w.dtype, v.dtype, *(x.dtype for x in numbers), f=f)
  v = v.astype(dtype)
  values = jnp.broadcast_to(_elementwise(f, numbers)(w), w.shape)
  return product(v * values[..., None, :].astype(dtype), v, adjoint_b=True)


def _derivative(w, v, *operands, f):
  # dF = V (f[wᵢ, wⱼ] ∘ Vᴴ dA V) Vᴴ; Daleckii and Krein. Higham, Functions of matrices (2008),
  # theorem 3.11.
  *numbers, e = operands
  v = v.astype(e.dtype)
  quotients, _ = differences(_elementwise(f, numbers), w)
  return congruence(v, quotients.astype(e.dtype) * congruence(v, e, adjoint_a=True))


def _second_derivative(w, v, *operands, f):
  # The second derivative in the directions B and C. In the eigenvectors' basis it is the sum over k
  # of f[wᵢ, wₖ, wⱼ] (Bᵢₖ Cₖⱼ + Cᵢₖ Bₖⱼ).
  *numbers, e, c = operands
  v = v.astype(e.dtype)
  e, c = (congruence(v, x, adjoint_a=True) for x in (e, c))
  second = second_differences(_elementwise(f, numbers), w).astype(e.dtype)
  weighted = functools.partial(jnp.einsum, "...ikj,...ik,...kj->...ij", precision="highest")
  return congruence(v, weighted(second, e, c) + weighted(second, c, e))


@functools.cache
def _operation(numbers):
  """V f(w) Vᴴ of A = V diag(w) Vᴴ, where f has `numbers` parameters."""
  return matrix_function(
      "funm_hermitian",
      "n, n n",
      _dtype_of_function,
      _function,
      _derivative,
      _second_derivative,
      lambda a, w, v: (a.conj(), w, v.conj()),
      attributes={"f": None},
      parameters=numbers,
      by_parameter=lambda i, f: {"f": _ByNumber(f, i)})


def _apply(a, f, numbers=()):
  w, v = eigh(jax.lax.stop_gradient(a))
  return _operation(len(numbers))(a, w, v, *numbers, f=f)


@overload
def funm_hermitian(
    a: ArrayLike, f: Callable[[jax.Array], jax.Array], *, symmetrize_input: bool = True
) -> jax.Array: ...


@overload
def funm_hermitian(
    a: ArrayLike,
    f: Callable[..., jax.Array],
    *,
    args: Sequence[ArrayLike] | ArrayLike,
    symmetrize_input: bool = True,
) -> jax.Array: ...


@public("f", "symmetrize_input", compiled=False)
def funm_hermitian(
    a: ArrayLike,
    f: Callable[..., jax.Array],
    *,
    args: Sequence[ArrayLike] | ArrayLike = (),
    symmetrize_input: bool = True,
) -> jax.Array:
  """f(A) = V diag(f(w)) Vᴴ of Hermitian matrices A = V diag(w) Vᴴ.

  Args:
    a: Hermitian matrices (..., n, n).
    f: a function of real numbers that JAX can differentiate. It is applied elementwise to an array
      of eigenvalues: `f(w, *args)`. It must not refer to traced values: pass those as `args`.
    args: a tuple of the parameters of `f`, real numbers in the precision of `a`. Each is one
      number, or an array with one number for each matrix. `f` gets them in shapes that broadcast
      with `w`. The result has derivatives of all orders with respect to them. A value that is not a
      tuple or a list is a single parameter.
    symmetrize_input: whether to use (A + Aᴴ) / 2. If false, `a` must be exactly Hermitian, and so
      must be the directions in which it is differentiated.

  Returns:
    The matrices (..., n, n), of the dtype of `a`, or of the complex dtype if `f` gives complex
    numbers. They are NaN where A holds NaN or Inf. The batches of `a` and of `args` broadcast.

  float16 and bfloat16 are computed in float32, and the results rounded.

  The first and second derivatives by A are exact at any eigenvalues, also at equal and nearly equal
  ones. So are mixed derivatives by A and `args`. They are divided differences of `f`, whose limit
  is f' (Daleckii and Krein). Autodiff of `eigh` cannot compute them. A third derivative by A raises
  NotImplementedError.

  Example:
    >>> import jax, jax.numpy as jnp, linalg
    >>> a = jnp.diag(jnp.array([1.0, 4.0]))
    >>> print(linalg.funm_hermitian(a, jnp.sqrt).round(4))
    [[1. 0.]
     [0. 2.]]
    >>> root = lambda a: linalg.funm_hermitian(a, jnp.sqrt)[0, 1]
    >>> print(jax.grad(root)(jnp.eye(2))[0, 1].round(4))  # exact at equal eigenvalues
    0.25
    >>> fermi = lambda w, mu, t: jax.nn.sigmoid((mu - w) / t)
    >>> electrons = lambda mu: jnp.trace(linalg.funm_hermitian(a, fermi, args=(mu, 0.5)))
    >>> print(f"{jax.grad(electrons)(2.5):.4f}")  # by a parameter of f
    0.1807
  """
  (a,), dtype = as_arrays("funm_hermitian", a)
  check_square("funm_hermitian", a)
  given = args if isinstance(args, (tuple, list)) else (args,)
  numbers = [_number(i, x, a.real.dtype) for i, x in enumerate(given)]
  ones = [jnp.ones(1, a.real.dtype)] * (1 + len(numbers))
  if any(isinstance(x, Tracer) for x in jax.make_jaxpr(f)(*ones).consts):
    raise TypeError(
        "funm_hermitian: f refers to a value that jit, vmap or a derivative is tracing. Give it as "
        "one of args, which f takes after the eigenvalues: funm_hermitian(a, f, args=(mu, t)) with "
        "f(w, mu, t).")
  if symmetrize_input:
    a = symmetrized(a)
  result = _apply(a, f, numbers)
  if jnp.iscomplexobj(result):
    dtype = complex_dtype(dtype)
  return result.astype(dtype)


def _number(i, x, dtype):
  x = jnp.asarray(x)
  if jnp.iscomplexobj(x):
    raise TypeError(f"funm_hermitian: args[{i}] must be real, got {x.dtype}.")
  return x.astype(dtype)


@functools.cache
def inverse_root(p):
  def f(x):
    positive = x > 0
    return jnp.where(positive, jnp.where(positive, x, 1) ** (-1 / p), jnp.nan)

  return f


@functools.cache
def inverse_root_from_one(p):
  """x^(-1/p) of numbers that are at least 1. Numbers below 1, due to rounding, count as 1."""
  return lambda x: jnp.where(x < 1, 1, x) ** (-1 / p)


def _shift(a, ridge, epsilon):
  """The shift of the eigenvalues: one part relative to the largest, one part absolute."""
  largest = jnp.max(smooth_eigvalsh(a), axis=-1, initial=0)
  shift = sum(
      expand(jnp.asarray(x, largest.dtype), largest) * size
      for x, size in ((ridge, largest), (epsilon, 1)) if x is not None)
  # The eigenvalues are divided by the shift, and must stay in range.
  return jnp.maximum(shift, jnp.finfo(largest.dtype).tiny ** 0.5 * largest)


def scale_of_root(a: jax.Array, epsilon: Any) -> tuple[jax.Array, jax.Array | None]:
  """The power of two by which each matrix is divided before its root, and `epsilon` over that.

  Divided differences of small or large numbers leave the range before their products do.
  """
  largest = largest_component(a)
  if epsilon is not None:
    epsilon = expand(jnp.asarray(epsilon, largest.dtype), largest)
    largest = jnp.maximum(largest, epsilon)
  scale = normal_binade(largest)
  return scale, None if epsilon is None else epsilon / scale


@functools.partial(jax.jit, static_argnames=("p", "symmetrize_input"))
def _inverse_pth_root(a, p, ridge, epsilon, symmetrize_input):
  (a,), dtype = as_arrays("inverse_pth_root", a)
  check_square("inverse_pth_root", a)
  if symmetrize_input:
    a = symmetrized(a)
  scale, epsilon = scale_of_root(a, epsilon)
  scale = scale[..., None, None].astype(a.dtype)
  root = _positive_root(a / scale, p, ridge, epsilon)
  return (root * (scale.real ** (-1 / p)).astype(root.dtype)).astype(dtype)


def _positive_root(a, p, ridge, epsilon):
  if ridge is None and epsilon is None:
    return _apply(a, inverse_root(p))
  # (A + s I)^(-1/p) = s^(-1/p) (A / s + I)^(-1/p). The second factor's function must not refer to
  # s, and the eigenvalues of its argument are at least 1.
  shift = _shift(a, ridge, epsilon)[..., None, None]
  root = _apply(a / shift.astype(a.dtype) + identity(a), inverse_root_from_one(p))
  return root * (shift ** (-1 / p)).astype(root.dtype)


@public("p", "symmetrize_input", compiled=False)
def inverse_pth_root(
    a: ArrayLike,
    p: float,
    *,
    ridge_epsilon: ArrayLike | None = None,
    epsilon: ArrayLike | None = None,
    symmetrize_input: bool = True,
) -> jax.Array:
  """A^(-1/p) of Hermitian positive definite matrices, as preconditioned optimisers use.

  Args:
    a: Hermitian matrices (..., n, n).
    p: any nonzero number: 2 for the inverse square root, 4 in Shampoo for a matrix of gradients.
    ridge_epsilon: for semidefinite matrices: `ridge_epsilon` times the largest eigenvalue is added
      to the diagonal. It is a number, or one for each matrix.
    epsilon: added to the diagonal too, unscaled, for matrices that may be zero.
    symmetrize_input: as for `funm_hermitian`.

  Returns:
    The roots (..., n, n). Without either epsilon, a root is NaN where the matrix is not positive
    definite. If one is given, eigenvalues below 0 count as 0 before it is added; rounding to
    bfloat16 can make small ones negative. A root is then NaN only where A holds NaN or Inf, or is
    zero without `epsilon`. Eigenvalues below n eps times the largest are rounding errors, unless A
    is diagonal: `ridge_epsilon` should be larger.

  Statistics of gradients often begin as zero, in float32 or bfloat16. `ridge_epsilon=1e-6,
  epsilon=1e-12` is usual for them: a zero matrix has the root 1e-12^(-1/p) I. The shift is at least
  the root of the least normal number (1e-19 in float32) times the largest eigenvalue.

  Algorithm and derivatives: those of `funm_hermitian`, of A over a power of two.

  Example:
    >>> import jax.numpy as jnp, linalg
    >>> print(linalg.inverse_pth_root(16 * jnp.eye(2), 4).round(4))
    [[0.5 0. ]
     [0.  0.5]]
    >>> zero = linalg.inverse_pth_root(jnp.zeros((2, 2)), 4, ridge_epsilon=1e-6, epsilon=1e-12)
    >>> print(jnp.isfinite(zero).all())
    True
  """
  if p == 0:
    raise ValueError("Argument p to inverse_pth_root() must not be 0")
  return _inverse_pth_root(a, p, ridge_epsilon, epsilon, symmetrize_input)
