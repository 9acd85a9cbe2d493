"""Structured systems and whole recursions over small blocks, each in one call.

A `lax.scan` over small matrices pays for several operations at every step. The functions here run
all steps in one handler.
"""

from linalg.structured._block_tridiagonal import (
    BlockTridiagonalFactor,
    block_tridiagonal_cholesky,
    block_tridiagonal_solve,
    block_tridiagonal_solve_ex,
    block_tridiagonal_solve_logdet,
    block_tridiagonal_solve_logdet_ex,
)
from linalg.structured._kalman import (
    KalmanFilterResult,
    KalmanSmootherResult,
    kalman_filter,
    kalman_smoother,
)

__all__ = [
    "BlockTridiagonalFactor",
    "KalmanFilterResult",
    "KalmanSmootherResult",
    "block_tridiagonal_cholesky",
    "block_tridiagonal_solve",
    "block_tridiagonal_solve_ex",
    "block_tridiagonal_solve_logdet",
    "block_tridiagonal_solve_logdet_ex",
    "kalman_filter",
    "kalman_smoother",
]
