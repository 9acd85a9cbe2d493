"""Batched linear algebra for JAX that factors a sharded batch where it lies.

The functions have the names and signatures of `jax.numpy.linalg`, `jax.lax.linalg` and
`jax.scipy.linalg`. Those that end in `_ex` also return `info` for each matrix.
"""

from linalg import ffi
from linalg._checks import LinAlgError, checked
from linalg._cholesky import cho_factor, cho_solve, cholesky, cholesky_ex
from linalg._config import show_config
from linalg._eig import EigResult, eig, eig_ex, eigvals, eigvals_ex
from linalg._eigh import EighResult, eigh, eigh_ex, eigvalsh
from linalg._eigh_generalized import eigh_generalized
from linalg._eigh_tridiagonal import eigh_tridiagonal
from linalg._hessenberg import hessenberg
from linalg._householder import householder_product
from linalg._lu import lu, lu_ex, lu_factor, lu_pivots_to_permutation, lu_solve
from linalg._qr import QRResult, qr
from linalg._schur import rsf2csf, schur, schur_ex
from linalg._solve import SlogdetResult, det, inv, inv_ex, slogdet, solve, solve_ex
from linalg._svd import SVDResult, svd, svd_ex, svdvals, svdvals_ex
from linalg._targets import export_disabled_checks, include_dir
from linalg._triangular import solve_triangular, triangular_solve

__all__ = [
    "EigResult",
    "EighResult",
    "LinAlgError",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "checked",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "cholesky_ex",
    "det",
    "eig",
    "eig_ex",
    "eigh",
    "eigh_ex",
    "eigh_generalized",
    "eigh_tridiagonal",
    "eigvals",
    "eigvals_ex",
    "eigvalsh",
    "export_disabled_checks",
    "ffi",
    "hessenberg",
    "householder_product",
    "include_dir",
    "inv",
    "inv_ex",
    "lu",
    "lu_ex",
    "lu_factor",
    "lu_pivots_to_permutation",
    "lu_solve",
    "qr",
    "rsf2csf",
    "schur",
    "schur_ex",
    "show_config",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svd_ex",
    "svdvals",
    "svdvals_ex",
    "triangular_solve",
]
