"""The table of operations: what `python -m linalg`, the tests and the benchmarks run.

Each has its operands, a measure of its error, SciPy's answer, stock JAX's function of the same
meaning, and what suites and benchmarks must know of it. `import linalg` does not read it.
"""

from linalg._cases.case import DTYPES, Case
from linalg._cases.composed import COMPOSED
from linalg._cases.decompositions import DECOMPOSITIONS
from linalg._cases.scipy import SCIPY
from linalg._cases.timed import Timed

__all__ = ["COMPOSED", "DECOMPOSITIONS", "DTYPES", "SCIPY", "TABLE", "Case", "Timed"]

TABLE = (*DECOMPOSITIONS, *COMPOSED, *SCIPY)
