"""The catalogue: one record of each public function.

`python -m linalg`, the tests, the benchmarks and the generated tables of the documentation use it.
`import linalg` does not import it.
"""

import linalg.distributed
from linalg._catalogue.case import DTYPES, Case
from linalg._catalogue.distributed import DISTRIBUTED
from linalg._catalogue.eigen import EIGEN
from linalg._catalogue.functions_of_matrices import FUNCTIONS
from linalg._catalogue.lax import LAX_FUNCTIONS
from linalg._catalogue.orthogonal import ORTHOGONAL
from linalg._catalogue.package import PACKAGE
from linalg._catalogue.positive import POSITIVE
from linalg._catalogue.products import PRODUCTS_AND_NORMS
from linalg._catalogue.record import FOLLOWED, MODULES, Behaviour, Function, functions_of
from linalg._catalogue.scipy import SCIPY_FUNCTIONS
from linalg._catalogue.scipy_composed import SCIPY_COMPOSED
from linalg._catalogue.solving import SOLVING
from linalg._catalogue.structured import STRUCTURED_FUNCTIONS
from linalg._catalogue.timed import Timed

__all__ = [
    "CATALOGUE", "COMPOSED", "DECOMPOSITIONS", "DTYPES", "FOLLOWED", "MODULES", "SCIPY",
    "STRUCTURED", "TABLE", "Behaviour", "Case", "Function", "Timed", "functions_of",
    "instead_when_sharded"]

CATALOGUE: tuple[Function, ...] = (
    *POSITIVE, *SOLVING, *ORTHOGONAL, *EIGEN, *FUNCTIONS, *PRODUCTS_AND_NORMS, *PACKAGE,
    *SCIPY_FUNCTIONS, *SCIPY_COMPOSED, *LAX_FUNCTIONS, *STRUCTURED_FUNCTIONS, *DISTRIBUTED)

TABLE: tuple[Case, ...] = tuple(case for function in CATALOGUE for case in function.cases)
"""The cases of all functions."""

SCIPY: tuple[Case, ...] = tuple(
    case for function in (*SCIPY_FUNCTIONS, *SCIPY_COMPOSED) for case in function.cases)
"""The cases of the functions that `linalg.scipy` adds."""

STRUCTURED: tuple[Case, ...] = tuple(
    case for function in STRUCTURED_FUNCTIONS for case in function.cases)
"""The cases of `linalg.structured`, whose operands are blocks rather than matrices."""

COMPOSED: tuple[Case, ...] = tuple(case for case in TABLE if case.composed)
"""The cases of functions that are composed of others in Python."""

DECOMPOSITIONS: tuple[Case, ...] = tuple(
    case for case in TABLE if not case.composed and case not in SCIPY + STRUCTURED)
"""The cases of functions that have handlers of their own."""


def instead_when_sharded() -> dict[str, str]:
  """For each name of `linalg` that `linalg.distributed` lacks, what to use for it."""
  return {
      name: function.sharded.replace("{name}", name)
      for function in CATALOGUE if function.sharded for name in function.names
      if name not in linalg.distributed.__all__}
