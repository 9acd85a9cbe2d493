"""SciPy's forms of functions that `linalg` has in those of `jax.numpy.linalg`."""

from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

import linalg
from linalg._core.operands import (
  as_arrays,
  as_indices,
  check_arrays,
  check_matrix,
  check_square,
)
from linalg._core.public import public
from linalg.scipy._drivers import (
  check_driver,
  check_driver_of_eigh,
  check_driver_of_tridiagonal,
)
from linalg.scipy._intervals import in_interval, interval, size_of_interval

__all__ = [
    "eigh_tridiagonal", "eigvalsh", "eigvalsh_tridiagonal", "lstsq", "norm", "svdvals"]


def _in(name, w, parameter, bounds):
  """The eigenvalues in the interval `bounds`."""
  low, high = interval(name, parameter, bounds)
  size = size_of_interval(name, w, low, high, "Choose eigenvalues by index there.")
  return in_interval(w, None, low, high, size)[0]


@public("ord", "axis", "keepdims", "check_finite", lists=True)
def norm(
    a: ArrayLike,
    ord: Any = None,
    axis: Any = None,
    keepdims: bool = False,
    check_finite: bool = True,
) -> jax.Array:
  """The norm of vectors or matrices; `scipy.linalg.norm`. See `linalg.norm`.

  Args:
    a: an array.
    ord, axis, keepdims: as for `linalg.norm`.
    check_finite: not used.

  Returns:
    The norms, real.

  Algorithm: that of `linalg.norm`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.norm(jnp.array([[3.0, 4.0], [0.0, 0.0]]), "fro"))
    5.0
  """
  del check_finite
  return linalg.norm(a, ord, axis, keepdims)


@public("overwrite_a", "check_finite", lists=True)
def svdvals(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> jax.Array:
  """Singular values; `scipy.linalg.svdvals`. See `linalg.svdvals`.

  Args:
    a: matrices (..., m, n).
    overwrite_a, check_finite: not used.

  Returns:
    The singular values, real (..., min(m, n)), in descending order.

  Algorithm: that of `linalg.svdvals`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.svdvals(jnp.diag(jnp.array([2.0, 3.0]))).round(4))
    [3. 2.]
  """
  del overwrite_a, check_finite
  return linalg.svdvals(a)


@public("overwrite_a", "overwrite_b", "check_finite", "lapack_driver", lists=True)
def lstsq(
    a: ArrayLike,
    b: ArrayLike,
    cond: float | None = None,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    lapack_driver: str | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
  """The shortest x among the minimizers of ‖b - A x‖; `scipy.linalg.lstsq`. See `linalg.lstsq`.

  Args:
    a: matrices (..., m, n).
    b: a vector (m,), or right-hand sides (..., m, k).
    cond: singular values below `cond` times the largest count as 0. The default is eps.
    lapack_driver: SciPy's name of a LAPACK routine. It is checked, and changes nothing.
    overwrite_a, overwrite_b, check_finite: not used.

  Returns:
    (x, residues, rank, s). x is (n,) or (..., n, k). The residues are ‖b - A x‖² for each column,
    real (...) or (..., k), also where the rank is less than n. They have no elements if m <= n,
    where `linalg.lstsq` has them. Ranks are integers (...), and s the singular values.

  Algorithm: that of `linalg.lstsq`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> a, b = jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), jnp.array([1.0, 3.0, 5.0])
    >>> x, residues, rank, s = linalg.scipy.lstsq(a, b)
    >>> print(x.round(4), residues.shape, rank)
    [1. 2.] () 2
  """
  del overwrite_a, overwrite_b, check_finite
  check_driver("lstsq", lapack_driver, ("gelsd", "gelsy", "gelss"))
  check_matrix("lstsq", a := jnp.asarray(a), "a")
  vector = jnp.ndim(b) == 1
  columns = jnp.asarray(b)[:, None] if vector else b
  x, residues, rank, s = linalg.lstsq(a, columns, -1 if cond is None else cond)
  if a.shape[-2] <= a.shape[-1]:
    residues = residues[..., :0]
  elif vector:
    residues = residues[..., 0]
  return x[..., 0] if vector else x, residues, rank, s


@public(
    "lower", "overwrite_a", "overwrite_b", "type", "check_finite", "subset_by_index",
    "subset_by_value", "driver", compiled=False, lists=True)
def eigvalsh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    *,
    lower: bool = True,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    type: int = 1,
    check_finite: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[float, float] | None = None,
    driver: str | None = None,
) -> jax.Array:
  """Eigenvalues of A v = w B v; `scipy.linalg.eigvalsh`. See `linalg.eigh_generalized`.

  Args:
    a: Hermitian matrices (..., n, n).
    b: Hermitian positive definite matrices (..., n, n); None is the identity.
    lower: which triangle of each is read.
    type: 1 for A v = w B v, 2 for A B v = w v, 3 for B A v = w v.
    subset_by_index: (first, last), the indices of the eigenvalues to return, the last
      included.
    subset_by_value: (low, high), to return the eigenvalues in the interval (low, high]. Their
      number depends on values, so that it raises TypeError inside of `jit` and `vmap`. In a batch
      it is the largest one, and NaN follows where there are fewer.
    driver: SciPy's name of a LAPACK routine. It is checked, and changes nothing.
    overwrite_a, overwrite_b, check_finite: not used.

  Returns:
    The eigenvalues, real, in ascending order; NaN where B is not positive definite.

  Algorithm: that of `linalg.eigvalsh` and `linalg.eigh_generalized`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> a, b = jnp.diag(jnp.array([2.0, 3.0])), jnp.diag(jnp.array([4.0, 1.0]))
    >>> print(linalg.scipy.eigvalsh(a, b).round(4))
    [0.5 3. ]
  """
  del overwrite_a, overwrite_b, check_finite
  if None not in (subset_by_index, subset_by_value):
    raise ValueError(
        "eigvalsh: only one of subset_by_index and subset_by_value may be specified.")
  check_driver_of_eigh(
      "eigvalsh", driver, generalized=b is not None,
      subset=subset_by_index is not None or subset_by_value is not None)
  chosen = None
  if subset_by_index is not None:
    check_arrays("eigvalsh", a)
    check_square("eigvalsh", a := jnp.asarray(a), "a")
    chosen = as_indices("eigvalsh", "subset_by_index", subset_by_index, a.shape[-1])
  w = linalg.eigh_generalized(a, b, lower, True, eigvals=chosen, type=type)
  return w if subset_by_value is None else _in(
      "eigvalsh", w, "subset_by_value", subset_by_value)


@overload
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: Literal[False] = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: ArrayLike | None = None,
    key: jax.Array | None = None,
    subset_by_index: tuple[int, int] | None = None,
    check_finite: bool = True,
    lapack_driver: str = "auto",
) -> tuple[jax.Array, jax.Array]: ...


@overload
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: Literal[True],
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: ArrayLike | None = None,
    key: jax.Array | None = None,
    subset_by_index: tuple[int, int] | None = None,
    check_finite: bool = True,
    lapack_driver: str = "auto",
) -> jax.Array: ...


@overload
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: ArrayLike | None = None,
    key: jax.Array | None = None,
    subset_by_index: tuple[int, int] | None = None,
    check_finite: bool = True,
    lapack_driver: str = "auto",
) -> jax.Array | tuple[jax.Array, jax.Array]: ...


@public(
    "eigvals_only", "select", "select_range", "subset_by_index", "check_finite", "lapack_driver",
    compiled=False, lists=True)
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: ArrayLike | None = None,
    key: jax.Array | None = None,
    subset_by_index: tuple[int, int] | None = None,
    check_finite: bool = True,
    lapack_driver: str = "auto",
) -> Any:
  """Eigenvalues and eigenvectors of Hermitian tridiagonal matrices, also those in an interval.

  `jax.scipy.linalg.eigh_tridiagonal`, with options of SciPy. See `linalg.eigh_tridiagonal`.

  Args:
    d, e, eigvals_only, subset_by_index: as for `linalg.eigh_tridiagonal`.
    select: 'a' for all eigenvalues; 'i' for those of the indices select_range[0] to
      select_range[1], the last included; 'v' for those in the interval (select_range[0],
      select_range[1]]. The number of the latter depends on values, so that 'v' raises TypeError
      inside of `jit` and `vmap`. In a batch it is the largest one, and NaN follows where there are
      fewer.
    select_range: two numbers.
    lapack_driver: SciPy's name of a LAPACK routine. It is checked, and changes nothing.
    tol, key, check_finite: not used.

  Returns:
    (eigenvalues, eigenvectors), or the eigenvalues.

  Algorithm: that of `linalg.eigh_tridiagonal`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> d, e = jnp.array([2.0, 2.0]), jnp.array([1.0])
    >>> w, v = linalg.scipy.eigh_tridiagonal(d, e, select="v", select_range=(2.0, 4.0))
    >>> print(w.round(4), v.shape)
    [3.] (2, 1)
  """
  del tol, key, check_finite
  check_driver_of_tridiagonal(
      "eigh_tridiagonal", lapack_driver, vectors=not eigvals_only,
      subset=select != "a" or subset_by_index is not None)
  if select != "v":
    return linalg.eigh_tridiagonal(
        d, e, eigvals_only=eigvals_only, select=select, select_range=select_range,
        subset_by_index=subset_by_index)
  if subset_by_index is not None:
    raise ValueError("eigh_tridiagonal: only one of select='v' and subset_by_index may be given.")
  low, high = interval("eigh_tridiagonal", "select_range", select_range)
  if eigvals_only:
    w, v = linalg.eigh_tridiagonal(d, e, eigvals_only=True), None
  else:
    w, v = linalg.eigh_tridiagonal(d, e)
  size = size_of_interval("eigh_tridiagonal", w, low, high, "Choose eigenvalues by index there.")
  w, v = in_interval(w, v, low, high, size)
  return w if v is None else (w, v)


@public(
    "select", "select_range", "check_finite", "lapack_driver", compiled=False, lists=True)
def eigvalsh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    check_finite: bool = True,
    tol: ArrayLike = 0.0,
    lapack_driver: str = "auto",
) -> jax.Array:
  """Eigenvalues of Hermitian tridiagonal matrices; `scipy.linalg.eigvalsh_tridiagonal`.

  Args:
    d, e: as for `linalg.eigh_tridiagonal`, of any dtypes.
    select: 'a' for all; 'i' for those of the indices select_range[0] to select_range[1], the last
      included; 'v' for those in the interval (select_range[0], select_range[1]], as for
      `subset_by_value` of `eigvalsh`.
    select_range: two numbers.
    lapack_driver: SciPy's name of a LAPACK routine. It is checked, and changes nothing.
    check_finite, tol: not used.

  Returns:
    The eigenvalues, real, in ascending order.

  Algorithm: that of `linalg.eigh_tridiagonal`.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> print(linalg.scipy.eigvalsh_tridiagonal([2.0, 2.0], [1.0]).round(4))
    [1. 3.]
  """
  del check_finite, tol
  check_driver_of_tridiagonal(
      "eigvalsh_tridiagonal", lapack_driver, vectors=False, subset=select != "a")
  (d, e), dtype = as_arrays("eigvalsh_tridiagonal", d, e)
  if select not in ("a", "i", "v"):
    raise ValueError(f"eigvalsh_tridiagonal: select must be 'a', 'i' or 'v', got {select!r}.")
  chosen = None
  if select == "i" and select_range is not None and d.ndim:  # a scalar is refused below
    chosen = as_indices("eigvalsh_tridiagonal", "select_range", select_range, d.shape[-1])
  of_values = select == "v"
  w = linalg.eigh_tridiagonal(
      d, e, eigvals_only=True, select="a" if of_values else select, select_range=chosen)
  if of_values:
    w = _in("eigvalsh_tridiagonal", w, "select_range", select_range)
  return w.astype(jnp.finfo(dtype).dtype)
