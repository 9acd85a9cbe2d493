"""Batched linear algebra for JAX that factors a sharded batch without gathering it.

The functions have the names and signatures of `jax.numpy.linalg`, `jax.lax.linalg` and
`jax.scipy.linalg`. Functions whose names end in `_ex` also return `info` for each matrix.
"""

from typing import TYPE_CHECKING

from linalg import ffi
from linalg._accelerate.switch import accelerate, accelerated
from linalg._config import show_config
from linalg._core.checks import LinAlgError, checked
from linalg._core.targets import export_disabled_checks, include_dir
from linalg._factorizations.cholesky import cho_factor, cho_solve, cholesky, cholesky_ex
from linalg._factorizations.cholesky_jittered import JitteredResult, cholesky_jittered
from linalg._factorizations.cholesky_update import cholesky_update, cholesky_update_ex
from linalg._factorizations.det import SlogdetResult, cho_logdet, det, lu_slogdet, slogdet
from linalg._factorizations.eig import EigResult, eig, eig_ex, eigvals, eigvals_ex
from linalg._factorizations.eigh import EighResult, eigh, eigh_ex, eigvalsh
from linalg._factorizations.eigh_tridiagonal import eigh_tridiagonal
from linalg._factorizations.hessenberg import hessenberg
from linalg._factorizations.householder import householder_product, ormqr
from linalg._factorizations.lu import lu, lu_ex, lu_factor, lu_pivots_to_permutation, lu_solve
from linalg._factorizations.matmul import congruence, matmul
from linalg._factorizations.qr import QRResult, qr
from linalg._factorizations.schur import rsf2csf, schur, schur_ex
from linalg._factorizations.solve import inv, inv_ex, solve, solve_ex
from linalg._factorizations.solve_logdet import SolveLogdetResult, solve_logdet
from linalg._factorizations.svd import SVDResult, svd, svd_ex, svdvals, svdvals_ex
from linalg._factorizations.triangular import solve_triangular, triangular_solve
from linalg._factorizations.tridiagonal import tridiagonal_solve, tridiagonal_solve_ex
from linalg._functions.eigh_gauge_error import eigh_gauge_error
from linalg._functions.eigh_generalized import eigh_generalized
from linalg._functions.factorize_cholesky import CholeskyFactor, factorize_cholesky
from linalg._functions.factorize_lu import LUFactor, factorize_lu
from linalg._functions.factorize_qr import QRFactor, factorize_qr
from linalg._functions.hermitian_functions import funm_hermitian, inverse_pth_root
from linalg._functions.lstsq import lstsq
from linalg._functions.norms import matrix_norm, norm, vector_norm
from linalg._functions.pinv import cond, matrix_rank, pinv
from linalg._functions.polar import polar
from linalg._functions.powers import expm, matrix_power
from linalg._functions.products import (
  block_diag,
  cross,
  diagonal,
  matrix_transpose,
  multi_dot,
  outer,
  tensordot,
  trace,
  vecdot,
)
from linalg._functions.sqrtm import sqrtm
from linalg._functions.tensors import tensorinv, tensorsolve
from linalg._version import __version__ as __version__

if not TYPE_CHECKING:  # type checkers report unknown names
  from linalg._core.suggestions import refuse as __getattr__  # noqa: F401

__all__ = [
    "CholeskyFactor",
    "EigResult",
    "EighResult",
    "JitteredResult",
    "LUFactor",
    "LinAlgError",
    "QRFactor",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "SolveLogdetResult",
    "accelerate",
    "accelerated",
    "block_diag",
    "checked",
    "cho_factor",
    "cho_logdet",
    "cho_solve",
    "cholesky",
    "cholesky_ex",
    "cholesky_jittered",
    "cholesky_update",
    "cholesky_update_ex",
    "cond",
    "congruence",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eig_ex",
    "eigh",
    "eigh_ex",
    "eigh_gauge_error",
    "eigh_generalized",
    "eigh_tridiagonal",
    "eigvals",
    "eigvals_ex",
    "eigvalsh",
    "expm",
    "export_disabled_checks",
    "factorize_cholesky",
    "factorize_lu",
    "factorize_qr",
    "ffi",
    "funm_hermitian",
    "hessenberg",
    "householder_product",
    "include_dir",
    "inv",
    "inv_ex",
    "inverse_pth_root",
    "lstsq",
    "lu",
    "lu_ex",
    "lu_factor",
    "lu_pivots_to_permutation",
    "lu_slogdet",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "ormqr",
    "outer",
    "pinv",
    "polar",
    "qr",
    "rsf2csf",
    "schur",
    "schur_ex",
    "show_config",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_logdet",
    "solve_triangular",
    "sqrtm",
    "svd",
    "svd_ex",
    "svdvals",
    "svdvals_ex",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "triangular_solve",
    "tridiagonal_solve",
    "tridiagonal_solve_ex",
    "vecdot",
    "vector_norm",
]
