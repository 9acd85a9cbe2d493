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
    expm,
    hessenberg,
    lu_factor,
    lu_solve,
    polar,
    rsf2csf,
    solve_triangular,
    sqrtm,
)
from linalg.scipy._angles import orthogonal_procrustes, subspace_angles
from linalg.scipy._balance import matrix_balance
from linalg.scipy._banded import (
    cho_solve_banded,
    cholesky_banded,
    solve_banded,
    solveh_banded,
)
from linalg.scipy._circulant import solve_circulant
from linalg.scipy._composed import cdf2rdf, diagsvd, khatri_rao
from linalg.scipy._cossin import cossin
from linalg.scipy._counterparts import (
    cholesky,
    det,
    eigh,
    lu,
    qr,
    qr_multiply,
    svd,
)
from linalg.scipy._eig import eig, eigvals
from linalg.scipy._eig_banded import eig_banded, eigvals_banded
from linalg.scipy._expm_frechet import expm_cond, expm_frechet
from linalg.scipy._forms import (
    eigh_tridiagonal,
    eigvalsh,
    eigvalsh_tridiagonal,
    lstsq,
    norm,
    svdvals,
)
from linalg.scipy._funm import funm
from linalg.scipy._ldl import ldl
from linalg.scipy._logm import fractional_matrix_power, logm
from linalg.scipy._pinv import pinv, pinvh
from linalg.scipy._qr_updates import qr_delete, qr_insert, qr_update
from linalg.scipy._qz import ordqz, qz
from linalg.scipy._riccati import solve_continuous_are, solve_discrete_are
from linalg.scipy._rq import rq
from linalg.scipy._schur import schur
from linalg.scipy._signm import signm
from linalg.scipy._sketch import clarkson_woodruff_transform
from linalg.scipy._solve import inv, solve
from linalg.scipy._structure import bandwidth, ishermitian, issymmetric
from linalg.scipy._subspaces import null_space, orth
from linalg.scipy._sylvester import (
    solve_continuous_lyapunov,
    solve_discrete_lyapunov,
    solve_lyapunov,
    solve_sylvester,
)
from linalg.scipy._toeplitz import matmul_toeplitz, solve_toeplitz
from linalg.scipy._trigonometric import coshm, cosm, sinhm, sinm, tanhm, tanm

__all__ = [
    "bandwidth",
    "block_diag",
    "cdf2rdf",
    "cho_factor",
    "cho_solve",
    "cho_solve_banded",
    "cholesky",
    "cholesky_banded",
    "circulant",
    "clarkson_woodruff_transform",
    "companion",
    "convolution_matrix",
    "coshm",
    "cosm",
    "cossin",
    "det",
    "dft",
    "diagsvd",
    "eig",
    "eig_banded",
    "eigh",
    "eigh_tridiagonal",
    "eigvals",
    "eigvals_banded",
    "eigvalsh",
    "eigvalsh_tridiagonal",
    "expm",
    "expm_cond",
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
    "ishermitian",
    "issymmetric",
    "khatri_rao",
    "ldl",
    "leslie",
    "logm",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul_toeplitz",
    "matrix_balance",
    "norm",
    "null_space",
    "ordqz",
    "orth",
    "orthogonal_procrustes",
    "pascal",
    "pinv",
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
    "signm",
    "sinhm",
    "sinm",
    "solve",
    "solve_banded",
    "solve_circulant",
    "solve_continuous_are",
    "solve_continuous_lyapunov",
    "solve_discrete_are",
    "solve_discrete_lyapunov",
    "solve_lyapunov",
    "solve_sylvester",
    "solve_toeplitz",
    "solve_triangular",
    "solveh_banded",
    "sqrtm",
    "subspace_angles",
    "svd",
    "svdvals",
    "tanhm",
    "tanm",
    "toeplitz",
]
