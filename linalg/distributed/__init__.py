"""Matrices that lie on several devices, worked on where they lie, with derivatives.

  import linalg.distributed as dist

  q, r = dist.qr(a)  # a tall matrix, its rows sharded

The functions of `linalg` share a batch among devices, a matrix being worked on by one. Here one
matrix is shared: tall matrices whose rows are sharded, square ones that are sharded over rows,
columns or both, and stacks whose matrix dimensions are. `report` says what a compiled program moves
between devices, and the memory that it takes.
"""

from linalg.distributed._general import LUFactor, lu_factor, lu_solve
from linalg.distributed._gram import gram_inverse_pth_root
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
from linalg.distributed._randomized import RandomizedSVDResult, randomized_svd
from linalg.distributed._report import Report, report
from linalg.distributed._solve import det, inv, inv_ex, slogdet, solve, solve_ex
from linalg.distributed._stacks import batched
from linalg.distributed._tall import lstsq, pinv, qr, svd, svdvals
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
    "gram_inverse_pth_root",
    "inv",
    "inv_ex",
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
    "svdvals",
]
