"""Matrices that several devices share, computed in place, with derivatives.

import linalg.distributed as dist

q, r = dist.qr(a)  # a tall matrix, its rows sharded

The functions of `linalg` share a batch among devices, and one device computes each matrix. Here
several devices share one matrix. Tall matrices are sharded by rows. Square ones are sharded over
rows, columns or both. Stacks are sharded over matrix dimensions. `report` shows the data that a
compiled program moves between devices, and its memory.
"""

from linalg.distributed._eigh import eigh, eigh_ex, eigvalsh
from linalg.distributed._general import LUFactor, lu_factor, lu_solve
from linalg.distributed._gram import gram_inverse_pth_root
from linalg.distributed._hermitian_functions import (
  eigh_generalized,
  funm_hermitian,
  inverse_pth_root,
)
from linalg.distributed._missing import refuse as __getattr__  # noqa: F401
from linalg.distributed._newton_schulz import newton_schulz
from linalg.distributed._polar import polar
from linalg.distributed._positive_definite import (
    CholeskyFactor,
    cho_factor,
    cho_solve,
    cholesky,
    cholesky_ex,
)
from linalg.distributed._qr import qr
from linalg.distributed._randomized import RandomizedSVDResult, randomized_svd
from linalg.distributed._report import Report, report
from linalg.distributed._solve import det, inv, inv_ex, slogdet, solve, solve_ex
from linalg.distributed._stacks import batched
from linalg.distributed._svd import lstsq, pinv, svd, svd_ex, svdvals
from linalg.distributed._triangular import solve_triangular

__all__ = [
    "CholeskyFactor",
    "LUFactor",
    "RandomizedSVDResult",
    "Report",
    "batched",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "cholesky_ex",
    "det",
    "eigh",
    "eigh_ex",
    "eigh_generalized",
    "eigvalsh",
    "funm_hermitian",
    "gram_inverse_pth_root",
    "inv",
    "inv_ex",
    "inverse_pth_root",
    "lstsq",
    "lu_factor",
    "lu_solve",
    "newton_schulz",
    "pinv",
    "polar",
    "qr",
    "randomized_svd",
    "report",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svd_ex",
    "svdvals",
]
