"""The table of operations: what `python -m linalg`, the tests and the benchmarks run.

Each has its operands, a measure of its error, SciPy's answer, and stock JAX's function of the same
meaning. `import linalg` does not read it.
"""

from linalg._cases.case import DTYPES, Case
from linalg._cases.composed import COMPOSED
from linalg._cases.decompositions import DECOMPOSITIONS

__all__ = ["COMPOSED", "DECOMPOSITIONS", "DTYPES", "Case"]
