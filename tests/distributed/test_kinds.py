"""Matrices that several devices share, of all kinds, against SciPy: see support/kinds.py."""

import functools

import jax
import numpy as np
import pytest

import cases
import kinds
import linalg.distributed as dist
from one_matrix import AXES, PANEL, mesh_of
from quick import quick_jit

TALL = {"qr", "svd", "svdvals", "lstsq", "pinv", "polar", "gram_inverse_pth_root"}
QUICK = {("lstsq", 7, np.complex128), ("cho_solve", 33, np.float32), ("eigh", 7, np.complex64)}


def _each():
  names = (*kinds.DISTRIBUTED, *kinds.DISTRIBUTED_SQUARES)
  return [
      pytest.param(name, n, dtype, id=f"{name}-{n}-{dtype.__name__}", marks=()
                   if (name, n, dtype) in QUICK else pytest.mark.extended)
      for name in names for n in kinds.SIZES for dtype in cases.DTYPES]


@pytest.mark.parametrize("name, n, dtype", _each())
def test_errors(name, n, dtype):
  """Errors are at most ten times SciPy's, or within what the docstring says."""
  squares = name in kinds.DISTRIBUTED_SQUARES
  tested, call = (kinds.DISTRIBUTED_SQUARES if squares else kinds.DISTRIBUTED)[name]
  layout = {"axes": ("x", "y")} if name in TALL else {"axes": AXES}
  layout |= {} if squares or name in TALL else {"panel": PANEL}
  operands, reasons = kinds.operands_of(tested, n, dtype)
  mesh, _ = mesh_of("both")
  with jax.set_mesh(mesh):
    program = quick_jit(functools.partial(call, dist, **layout))
    results = [jax.tree.leaves(jax.device_get(program(*one))) for _, one in operands]
  found, reasons = kinds.worst_of(tested, operands, results, reasons)
  assert found and set(found) | set(reasons) == set(kinds.KINDS)
  assert not kinds.faults_of(tested, found, reasons)
