"""The matrices of kinds.py with directions to move them along, for derivatives.

A direction has the structure and the scales of its operand.
"""

import numpy as np

import kinds
from digits_of_derivatives import OF_THE_NORM, uses_orthogonal_factors
from hard_operands import Point
from long_double import adjoint
from matrices import general

N = 5  # one Jordan block of order 4, and one eigenvalue beside it
FEW = 3  # where digits take minutes: one Jordan block

# Kinds whose elements differ in scale. A direction changes each by a part of itself.
_SCALED = {"graded", "graded rows"}
# Operands that have zeros, and keep them: factors.
_FACTORS = {
    "qr_update": (1,), "qr_insert": (1,), "qr_delete": (1,), "cho_logdet": (0,), "lu_slogdet": (0,)}


def _is_hermitian(x):
  return x.ndim == 2 and x.shape[0] == x.shape[1] and np.array_equal(x, adjoint(x))


def direction(rng, x, *, by_elements):
  """Random numbers of the size of x, or of that of each element; Hermitian if x is."""
  if x.dtype.kind not in "fc":
    return None
  e = general(rng, (), *(x.shape if x.ndim == 2 else (x.size, 1)), x.dtype).reshape(x.shape)
  if _is_hermitian(x):
    e = (e + adjoint(e)) / 2
  size = np.abs(x) if by_elements else np.abs(x).max(initial=0)
  return (e * size).astype(x.dtype)


def point(name, kind, n, dtype, sample=0):
  """The operands of a function of the table and directions. Raises LeftOut where there are none."""
  rng = np.random.default_rng([n, list(kinds.KINDS).index(kind), sample])
  operands = kinds.operands_of_kind(kinds.TESTED[name], kind, rng, n, np.dtype(dtype))
  tangents = []
  for place, x in enumerate(operands):
    factor = place in _FACTORS.get(name, ())
    e = direction(rng, x, by_elements=factor or kind in _SCALED)
    # The diagonal of Cholesky's factor stays real.
    tangents.append(e.real.astype(e.dtype) if name == "cho_logdet" else e)
  return Point(operands, tuple(tangents))


def unit(case, kind):
  """How large a rounding of the operands is: see `hard_operands.perturbed`.

  In matrices whose elements differ in scale it is relative to each element, unless the function
  uses orthogonal factors, or its docstring speaks of the norm.
  """
  if case.name in OF_THE_NORM:
    return "norm"
  by_elements = kind in _SCALED and kind not in kinds.TESTED[case.name].told
  return "elements" if by_elements and not uses_orthogonal_factors(case) else "largest"
