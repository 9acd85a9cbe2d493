"""The suites that run with the handlers of tests/ptx_emulator, and the kernels they must reach."""

import pathlib
import re

TESTS = pathlib.Path(__file__).parents[2]
# Test files, by their names without `test_`.
SUITES = {
    path.stem.removeprefix("test_"): path for path in (
        *(TESTS / f"ptx_emulator/{name}.py" for name in ("paths", "structures", "vendor_faults")),
        TESTS / "derivatives/test_linear.py",
        *(TESTS / f"values/test_{name}.py" for name in (
            "banded", "extremes", "factorisations", "failures", "in_place", "matmul",
            "solve_logdet", "svd", "tridiagonal")))}
# Suites that launch every kernel.
EVERY_KERNEL = (
    "paths", "structures", "linear", "matmul", "banded", "solve_logdet", "vendor_faults")
# Stock JAX's residuals on the CPU are no reference. LAPACK sums by blocks, which rounds less than
# the teams' sums. The gates of the other tests hold. A value and its derivative may differ in bits
# where no program for CUDA calls the derivative's handler. A matrix may also differ in a batch
# where XLA computes the derivative of a large Cholesky factor.
# Banded systems of 100,003 rows would take hours in chunks. structures.py has shorter ones.
ALL_DTYPES = (
    "not gradients and not no_worse_than_stock and not test_large_cholesky"
    " and not (test_banded.py and test_long_systems)")
TWO_DTYPES = f"not float64 and not complex64 and {ALL_DTYPES}"
# The run at each change leaves out the slowest tests, and tests whose kernels other tests launch
# too. Hard matrices stay in float32. Suites go by the names of their files.
SLOW = (
    "cholesky_update",
    "(structures.py and test_long_general_block_tridiagonal and 18)",
    "(paths.py and (eigh_generalized or svd_thin or schur_complex or eig_left))",
    "(paths.py and test_residuals and complex128 and (eig] or schur] or svd))",
    "(paths.py and test_residuals and (eigvals] or qr_raw or qr_complete or householder_product))",
    "(paths.py and test_residuals and ormqr)",
    "(paths.py and test_svd_by_blocks and not (float32 and 70) and not (complex128 and 75))",
    "(paths.py and test_matrices_of_blocks)",
    "(paths.py and test_eigh_by_panels and (140 or 70 and complex128))",
    "(paths.py and test_panels and (qr_complete or householder_product))",
    "(test_factorisations.py and test_large_residuals and (eig_left or schur or hessenberg))",
    "(test_factorisations.py and test_large_residuals and qr_pivoted)",
    "(test_factorisations.py and test_residuals_of_many_large)",
    "(test_factorisations.py and test_large_residuals and complex128 and (svd_thin or eigvals))",
    "(test_factorisations.py and test_large_residuals and (ormqr or eigh_generalized))",
    "((test_extremes.py or test_failures.py or test_in_place.py or test_svd.py) and complex128)",
    "(test_failures.py and test_iterations_return and 70 and (schur or eig_left))",
    "(test_svd.py and test_ranks and 40)",
    "(test_svd.py and test_large and not test_large_batch)",
    "(test_svd.py and test_bits_do_not_depend_on_the_batch)",
    "(test_solve_logdet.py and (gen or derivatives or density or sharded or wrong or one_matrix))",
    "(test_linear.py and cholesky and (-33- or -70- or 33] or 70]))",
    "(test_linear.py and (test_svd or test_bits_do_not) and complex128 and 32])")
QUICK = f"{TWO_DTYPES} and not ({' or '.join(SLOW)})"


def is_of_two_dtypes(kernel: str) -> bool:
  """Whether only float32 and complex128 launch the kernel of this mangled name."""
  if found := re.search(r"omplexI([fd])E", kernel):
    return found[1] == "d"
  found = re.search(r"I([fd])[EL]", kernel)
  return found is None or found[1] == "f"


class Launched:
  """The kernels that suites have launched.

  Each suite has a file in a folder that the processes of a test run share.
  """

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    folder.mkdir(exist_ok=True)

  def of(self, name: str) -> "Launched":
    """Returns the record of other runs of the same suites."""
    return Launched(self._folder / name)

  def file(self, suite: str) -> pathlib.Path:
    return self._folder / f"{suite}.running"

  def ended(self, suite: str) -> None:
    self.file(suite).touch()
    self.file(suite).rename(self._folder / f"{suite}.launched")

  def by_none(self, library: pathlib.Path, suites, counts=lambda kernel: True) -> list[str]:
    """Returns the library's kernels that no suite has launched, once all suites have ended."""
    files = [self._folder / f"{suite}.launched" for suite in suites]
    if not all(file.exists() for file in files):
      return []
    seen = {kernel for file in files for kernel in file.read_text().split()}
    listed = [line.split()[0] for line in (library / "kernels.txt").read_text().splitlines()]
    return [kernel for kernel in listed if kernel not in seen and counts(kernel)]
