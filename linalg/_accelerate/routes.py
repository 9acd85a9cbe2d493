"""The handler for each primitive of JAX's linear algebra while it is accelerated."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from linalg import ffi
from linalg._core.tuning import (
  MOST_OF_ONE_RIGHT_MATRIX,
  MOST_PIVOTS_OF_XLA,
  MOST_REFLECTORS,
  MOST_UPDATED_BY_XLA,
)
from linalg._factorizations.cholesky import cholesky_p
from linalg._factorizations.cholesky_update import cholesky_update_p
from linalg._factorizations.eig import eig_left_p, eig_p, eigvals_p
from linalg._factorizations.eigh import eigh_p, eigh_subset_p
from linalg._factorizations.householder import householder_product_p, householder_qr_p, ormqr_p
from linalg._factorizations.lu import inverse_permutation_p, lu_p, lu_pivots_to_permutation_p
from linalg._factorizations.matmul import are_small_matrices, exact_matmul_p
from linalg._factorizations.qr import qr_complete_p, qr_p, qr_pivoted_complete_p, qr_pivoted_p
from linalg._factorizations.schur import schur_p
from linalg._factorizations.svd import (
  svd_full_p,
  svd_p,
  svd_subset_p,
  svdvals_p,
  svdvals_subset_p,
)
from linalg._factorizations.triangular import triangular_solve_p
from linalg._factorizations.tridiagonal import tridiagonal_solve_p


class Call(NamedTuple):
  """The call that computes a primitive: an operation, the indices of its results, its
  attributes."""

  operation: ffi.Operation
  results: tuple[int, ...]
  attributes: Mapping[str, Any] = {}
  arrange: Callable[[jax.Array], jax.Array] | None = None  # makes the primitive's result


# A function of the operands' types and the primitive's parameters. It returns the call, or the
# reason why the primitive stays JAX's. A primitive with a parameter that its route does not name
# stays JAX's.
Route = Callable[..., Call | str]


_OF_ANOTHER_ALGORITHM = "its algorithm was chosen"


_OF_A_SUBSET = "an empty or wrong subset was asked for"


def _cholesky(a, *, of_mean=False):
  return Call(cholesky_p, (0,), {"lower": True, "symmetrize": of_mean})


_SHORTER_THAN_A_CALL = "XLA's loop is shorter than a call"


def _cholesky_update(r, w):
  if w.size <= MOST_UPDATED_BY_XLA:
    return _SHORTER_THAN_A_CALL
  return Call(cholesky_update_p, (0,))


def _lu(a):
  return Call(lu_p, (0, 1, 2))


def _lu_pivots_to_permutation(pivots, *, permutation_size):
  if pivots.size <= MOST_PIVOTS_OF_XLA and math.prod(pivots.shape[:-1]) == 1:
    return _SHORTER_THAN_A_CALL
  return Call(lu_pivots_to_permutation_p, (0,), {"permutation_size": permutation_size})


def _geqrf(a):
  return Call(householder_qr_p, (0, 1))


def _householder_product(a, taus):
  return Call(householder_product_p, (0,))


def _ormqr(a, taus, c, *, left, transpose):
  if taus.shape[-1] > MOST_REFLECTORS:
    return "products of many reflectors are LAPACK's"
  return Call(ormqr_p, (0,), {"left": left, "transpose": transpose})


def _qr(a, *, pivoting, full_matrices, use_magma):
  if use_magma is not None:
    return _OF_ANOTHER_ALGORITHM
  if pivoting:
    return Call(qr_pivoted_complete_p if full_matrices else qr_pivoted_p, (0, 1, 2))
  return Call(qr_complete_p if full_matrices else qr_p, (0, 1))


# JAX itself has no subsets on CPUs and GPUs: it raises NotImplementedError.
def _chosen(subset_by_index, n):
  start, stop = subset_by_index
  return {"start": start, "count": stop - start} if 0 <= start < stop <= n else None


def _eigh(a, *, lower, sort_eigenvalues, subset_by_index, algorithm):
  if algorithm is not None:
    return _OF_ANOTHER_ALGORITHM
  part = {"lower": lower, "symmetrize": False}
  if subset_by_index not in (None, (0, a.shape[-1])):
    if (chosen := _chosen(subset_by_index, a.shape[-1])) is None:
      return _OF_A_SUBSET
    return Call(eigh_subset_p, (1, 0), part | chosen)
  return Call(eigh_p, (1, 0), part)


def _svd(a, *, full_matrices, compute_uv, subset_by_index, algorithm):
  if algorithm not in (None, lax.linalg.SvdAlgorithm.DEFAULT):
    return _OF_ANOTHER_ALGORITHM
  if subset_by_index not in (None, (0, min(a.shape[-2:]))):
    chosen = _chosen(subset_by_index, min(a.shape[-2:]))
    if full_matrices and compute_uv or chosen is None:
      return _OF_A_SUBSET
    return (
        Call(svd_subset_p, (1, 0, 2), chosen) if compute_uv
        else Call(svdvals_subset_p, (0,), chosen))
  if not compute_uv:
    return Call(svdvals_p, (0,))
  return Call(svd_full_p if full_matrices else svd_p, (1, 0, 2))


def _eig(
    a, *, compute_left_eigenvectors, compute_right_eigenvectors, enable_eigvec_derivs,
    implementation):
  if implementation is not None:
    return _OF_ANOTHER_ALGORITHM
  if compute_left_eigenvectors:
    return Call(eig_left_p, (0, 1, 2) if compute_right_eigenvectors else (0, 1))
  return Call(eig_p, (0, 1)) if compute_right_eigenvectors else Call(eigvals_p, (0,))


def _schur(a, *, compute_schur_vectors, sort_eig_vals, select_callable):
  if sort_eig_vals:
    return "an order was asked for"
  return Call(schur_p, (0, 1) if compute_schur_vectors else (0,))


def _sort(*operands, dimension, is_stable, num_keys):
  del is_stable  # the handler's sort always is
  keys = operands[0]
  if [x.dtype for x in operands] != [np.int32] * 2 or num_keys != 1 or dimension != keys.ndim - 1:
    return "it is not the inverse of a permutation"
  return Call(inverse_permutation_p, (0, 1))


def _triangular_solve(a, b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
  return Call(triangular_solve_p, (0,), {
      "left_side": left_side,
      "lower": lower,
      "transpose_a": transpose_a,
      "conjugate_a": conjugate_a,
      "unit_diagonal": unit_diagonal})


def _tridiagonal_solve(dl, d, du, b, *, perturb_singular):
  return Call(tridiagonal_solve_p, (0,), {"perturb_singular": perturb_singular})


_NOT_A_BATCH = "it is not a batch of products of matrices"


def dot_general(
    a, b, *, dimension_numbers, precision, preferred_element_type, out_sharding):
  contracted, batch = dimension_numbers
  if any(len(dims) != 1 for dims in contracted) or min(a.ndim, b.ndim) < 2:
    return _NOT_A_BATCH
  (of_a,), (of_b,) = contracted
  leading = [tuple(range(x.ndim - 2)) for x in (a, b)]
  one_for_all = a.ndim != b.ndim and () in leading and not any(batch)
  of_matrices = min(of_a - a.ndim, of_b - b.ndim) >= -2
  if not leading[0] + leading[1] or not of_matrices or not (
      one_for_all or [tuple(dims) for dims in batch] == leading):
    return _NOT_A_BATCH
  if isinstance(precision, (str, lax.DotAlgorithm, lax.DotAlgorithmPreset)):
    return _OF_ANOTHER_ALGORITHM
  if preferred_element_type is not None and preferred_element_type != a.dtype:
    return "another dtype was asked for"
  if not are_small_matrices(a, b):
    return "the matrices are not small, or of two dtypes"
  turns = of_a == a.ndim - 2, of_b == b.ndim - 1
  if (product := exact_matmul_p.turned(*turns)) is None:
    return "both operands are transposed"
  if one_for_all and b.ndim == 2 and a.dtype.kind == "f" and max(
      *a.shape[-2:], *b.shape) > MOST_OF_ONE_RIGHT_MATRIX:
    return "the compiler makes one large product of it"
  rows_first = lambda x: jnp.moveaxis(x, -2, 0)
  return Call(
      product, (0,), arrange=rows_first if one_for_all and a.ndim == 2 else None)


# Every primitive of JAX's linear algebra, by name, and the sort that inverts permutations in JAX's
# derivatives of solves.
ROUTES: dict[str, Route | str] = {
    "cholesky": _cholesky,
    "cholesky_update": _cholesky_update,
    "eig": _eig,
    "eigh": _eigh,
    "geqp3": "linalg has no packed form of pivoted QR",
    "geqrf": _geqrf,
    "hessenberg": "linalg.hessenberg has no packed form",
    "householder_product": _householder_product,
    "lu": _lu,
    "lu_pivots_to_permutation": _lu_pivots_to_permutation,
    "ormqr": _ormqr,
    "qr": _qr,
    "schur": _schur,
    "sort": _sort,
    "svd": _svd,
    "symmetric_product": "it is a product of matrices",
    "triangular_solve": _triangular_solve,
    "tridiagonal": "linalg has no handler for it",
    "tridiagonal_solve": _tridiagonal_solve,
}


PRODUCTS: dict[str, Route | str] = {"dot_general": dot_general}
