"""Names of `linalg.scipy` that users may look for in `linalg`."""

from typing import NoReturn

# This list is kept by hand, because `import linalg` does not import that module. A test compares.
OF_SCIPY = """
    cho_solve_banded cholesky_banded circulant companion convolution_matrix dft expm_frechet fiedler
    fiedler_companion fractional_matrix_power funm hadamard hankel helmert hilbert invhilbert
    invpascal ldl leslie logm matmul_toeplitz null_space orth pascal pinvh qr_multiply solve_banded
    solve_continuous_are solve_continuous_lyapunov solve_discrete_are solve_discrete_lyapunov
    solve_sylvester solve_toeplitz solveh_banded toeplitz
"""


def refuse(name: str) -> NoReturn:
  """Raises the error for a name that the package does not have."""
  known = name in OF_SCIPY.split()
  place = f": it is linalg.scipy.{name}, after `import linalg.scipy`." if known else ""
  raise AttributeError(f"module 'linalg' has no attribute {name!r}{place}", name=name)
