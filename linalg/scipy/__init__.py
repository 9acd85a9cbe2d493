"""`jax.scipy.linalg` on this package's functions, for `import linalg.scipy as jsl`.

This module has the names, signatures and conventions of `jax.scipy.linalg`. It also has functions
of `scipy.linalg` that JAX lacks, with SciPy's names and signatures.
"""

# JAX's own functions: matrices that are composed without linear algebra.
from jax.scipy.linalg import (
    circulant,
    companion,
    convolution_matrix,
    dft,
    fiedler,
    fiedler_companion,
    hadamard,
    hankel,
    helmert,
    hilbert,
    invhilbert,
    invpascal,
    leslie,
    pascal,
    toeplitz,
)

from linalg import (
    block_diag,
    cho_factor,
    cho_solve,
    eigh_tridiagonal,
    expm,
    hessenberg,
    lu_factor,
    lu_solve,
    polar,
    rsf2csf,
    solve_triangular,
    sqrtm,
)
from linalg.scipy._balance import matrix_balance
from linalg.scipy._banded import (
    cho_solve_banded,
    cholesky_banded,
    solve_banded,
    solveh_banded,
)
from linalg.scipy._cossin import cossin
from linalg.scipy._counterparts import (
    cholesky,
    det,
    eigh,
    inv,
    lu,
    qr,
    qr_multiply,
    solve,
    svd,
)
from linalg.scipy._eig import eig, eigvals
from linalg.scipy._eig_banded import eig_banded, eigvals_banded
from linalg.scipy._expm_frechet import expm_frechet
from linalg.scipy._funm import funm
from linalg.scipy._ldl import ldl
from linalg.scipy._logm import fractional_matrix_power, logm
from linalg.scipy._pinvh import pinvh
from linalg.scipy._qr_updates import qr_delete, qr_insert, qr_update
from linalg.scipy._qz import ordqz, qz
from linalg.scipy._riccati import solve_continuous_are, solve_discrete_are
from linalg.scipy._rq import rq
from linalg.scipy._schur import schur
from linalg.scipy._subspaces import null_space, orth
from linalg.scipy._sylvester import (
    solve_continuous_lyapunov,
    solve_discrete_lyapunov,
    solve_sylvester,
)
from linalg.scipy._toeplitz import matmul_toeplitz, solve_toeplitz

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cho_solve_banded",
    "cholesky",
    "cholesky_banded",
    "circulant",
    "companion",
    "convolution_matrix",
    "cossin",
    "det",
    "dft",
    "eig",
    "eig_banded",
    "eigh",
    "eigh_tridiagonal",
    "eigvals",
    "eigvals_banded",
    "expm",
    "expm_frechet",
    "fiedler",
    "fiedler_companion",
    "fractional_matrix_power",
    "funm",
    "hadamard",
    "hankel",
    "helmert",
    "hessenberg",
    "hilbert",
    "inv",
    "invhilbert",
    "invpascal",
    "ldl",
    "leslie",
    "logm",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul_toeplitz",
    "matrix_balance",
    "null_space",
    "ordqz",
    "orth",
    "pascal",
    "pinvh",
    "polar",
    "qr",
    "qr_delete",
    "qr_insert",
    "qr_multiply",
    "qr_update",
    "qz",
    "rq",
    "rsf2csf",
    "schur",
    "solve",
    "solve_banded",
    "solve_continuous_are",
    "solve_continuous_lyapunov",
    "solve_discrete_are",
    "solve_discrete_lyapunov",
    "solve_sylvester",
    "solve_toeplitz",
    "solve_triangular",
    "solveh_banded",
    "sqrtm",
    "svd",
    "toeplitz",
]
