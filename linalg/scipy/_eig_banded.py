"""Eigenvalues and eigenvectors of Hermitian band matrices."""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

import linalg
from linalg._core.algebra import expand
from linalg._core.operands import as_arrays, check_matrix
from linalg._core.public import public
from linalg.scipy._intervals import in_interval, size_of_interval

__all__ = ["eig_banded", "eigvals_banded"]


def _dense(ab, lower):
  """The matrix of these diagonals, with the other triangle 0; the corners of `ab` are not read."""
  count, n = ab.shape[-2:]
  rows = []
  for t in range(count):
    offset = t if lower else count - 1 - t  # of the diagonal beside the main one
    if offset >= n:
      continue
    # Column j of the lower form is column j of the matrix. The upper form is its mirror image.
    own = ab[..., t, : n - offset] if lower else ab[..., t, offset:]
    own = jnp.pad(own, ((0, 0),) * (own.ndim - 1) + ((0, offset),))
    mask = np.eye(n, k=-offset if lower else offset, dtype=bool)
    place = own[..., None, :] if lower else own[..., :, None]
    rows.append(jnp.where(expand(mask, place), place, 0))
  return sum(rows[1:], rows[0])


def _eig(name, a_band, lower, select, select_range, max_ev, vectors):
  """The eigenvalues, and the vectors or None."""
  (ab,), dtype = as_arrays(name, a_band)
  check_matrix(name, ab, "a_band")
  n = ab.shape[-1]
  names: dict[Any, str] = {"all": "a", "value": "v", "index": "i", 0: "a", 1: "v", 2: "i"}
  given = select.lower() if isinstance(select, str) else select
  kind = names.get(given, given)
  if kind not in ("a", "v", "i"):
    raise ValueError(f"{name}: select must be 'a', 'v' or 'i', got {select!r}.")
  if kind != "a" and (select_range is None or len(select_range) != 2
                      or select_range[1] < select_range[0]):
    raise ValueError(
        f"{name}: select_range must be (first, last) in this order, got {select_range!r}.")
  real = jnp.finfo(dtype).dtype
  if ab.shape[-2] == 0 or n == 0:
    raise ValueError(f"{name}: a_band must have at least one diagonal, got shape {ab.shape}.")
  subset = None
  if kind == "i":
    first, last = select_range
    if not all(isinstance(x, (int, np.integer)) for x in (first, last)):
      raise ValueError(
          f"{name}: with select='i' select_range must hold integers, got {select_range!r}.")
    if not 0 <= first <= last < n:
      raise ValueError(f"{name}: select_range must be within 0 and {n - 1}, got {select_range!r}.")
    subset = int(first), int(last) + 1
  a = _dense(ab, lower)
  how = {"UPLO": "L" if lower else "U", "symmetrize_input": False, "subset_by_index": subset}
  w, v = linalg.eigh(a, **how) if vectors else (linalg.eigvalsh(a, **how), None)
  if kind == "v":
    low, high = map(float, select_range)
    size = max_ev or size_of_interval(
        name, w, low, high, "Pass it as `max_ev`: where there are fewer, NaN follows.")
    w, v = in_interval(w, v, low, high, size)
  return w.astype(real), None if v is None else v.astype(dtype)


@public("lower", "eigvals_only", "overwrite_a_band", "select", "select_range", "max_ev",
        "check_finite", compiled=False, lists=True)
def eig_banded(
    a_band: ArrayLike,
    lower: bool = False,
    eigvals_only: bool = False,
    overwrite_a_band: bool = False,
    select: str | int = "a",
    select_range: Any = None,
    max_ev: int = 0,
    check_finite: bool = True,
) -> jax.Array | tuple[jax.Array, jax.Array]:
  """Eigenvalues and eigenvectors of Hermitian band matrices; `scipy.linalg.eig_banded`, batched.

  Args:
    a_band: diagonals (..., u + 1, n). In the upper form A[i, j] is a_band[u + i - j, j], in the
      lower one a_band[i - j, j]. Corners are not read, nor are imaginary parts of the main
      diagonal.
    lower: whether the form is the lower one.
    eigvals_only: whether to return the eigenvalues alone.
    select: 'a' for all; 'i' for those of the indices select_range[0] to select_range[1], the last
      included; 'v' for those in the interval (select_range[0], select_range[1]].
    select_range: two numbers.
    max_ev: for 'v', the number of eigenvalues to return. Where the interval holds fewer, NaN
      follows. By default it is their number, in a batch the largest one. That depends on values, so
      `max_ev` must be given inside of `jit` and `vmap`.
    overwrite_a_band, check_finite: not used.

  Returns:
    (eigenvalues, eigenvectors), (..., k) in ascending order and (..., n, k), or the eigenvalues.
    They are NaN for a matrix that holds NaN or Inf.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: `linalg.eigh` of the dense matrix, whose derivatives and rules at equal eigenvalues
  these are. 'i' is its `subset_by_index`. For 'v' all are computed.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> band = jnp.array([[2.0, 2.0], [-1.0, 0.0]])
    >>> w, v = linalg.scipy.eig_banded(band, lower=True)
    >>> print(w.round(4))
    [1. 3.]
    >>> print(linalg.scipy.eig_banded(band, True, True, select="v", select_range=(2, 4)).round(4))
    [3.]
  """
  del overwrite_a_band, check_finite
  size = operator.index(max_ev)
  w, v = _eig("eig_banded", a_band, lower, select, select_range, size, not eigvals_only)
  return w if v is None else (w, v)


@public("lower", "overwrite_a_band", "select", "select_range", "check_finite", compiled=False,
        lists=True)
def eigvals_banded(
    a_band: ArrayLike,
    lower: bool = False,
    overwrite_a_band: bool = False,
    select: str | int = "a",
    select_range: Any = None,
    check_finite: bool = True,
) -> jax.Array:
  """Eigenvalues of Hermitian band matrices; `scipy.linalg.eigvals_banded`, batched.

  Args:
    a_band, lower, select, select_range: as for `eig_banded`, which has `max_ev` for select='v' in
      traced functions.
    overwrite_a_band, check_finite: not used.

  Returns:
    The eigenvalues (..., k), in ascending order.

  float16 and bfloat16 are computed in float32, and the results rounded.

  Algorithm: `linalg.eigvalsh` of the dense matrix.

  Example:
    >>> import jax.numpy as jnp, linalg.scipy
    >>> band = jnp.array([[2.0, 2.0], [-1.0, 0.0]])
    >>> print(linalg.scipy.eigvals_banded(band, lower=True).round(4))
    [1. 3.]
  """
  del overwrite_a_band, check_finite
  return _eig("eigvals_banded", a_band, lower, select, select_range, 0, False)[0]
