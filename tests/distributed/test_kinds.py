"""Matrices that several devices share, of all kinds, against SciPy: see support/kinds.py."""

import functools

import jax
import numpy as np
import pytest

import cases
import kinds
import linalg.distributed as dist
import losses
from distributed_kinds import DISTRIBUTED, DISTRIBUTED_SQUARES
from one_matrix import AXES, PANEL, mesh_of
from quick import quick_jit

TALL = {
    "qr", "svd", "svdvals", "lstsq", "pinv", "polar", "gram_inverse_pth_root", "newton_schulz",
    "randomized_svd"}
# Layouts of (4, 2), (8,) and (2, 4) devices, with the axes of a square matrix.
PLACES = {"both": AXES, "rows": (("x",), None), "turned": AXES[::-1]}
QUICK = {("lstsq", 7, np.complex128), ("cho_solve", 33, np.float32), ("eigh", 7, np.complex64)}


def _each():
  names = (*DISTRIBUTED, *DISTRIBUTED_SQUARES)
  for name in names:
    for i, n in enumerate(kinds.SIZES):
      for j, dtype in enumerate(cases.DTYPES):
        # Each function, size and dtype takes each layout in turn.
        layout = list(PLACES)[(i + j) % len(PLACES)]
        yield pytest.param(
            name, n, dtype, layout, id=f"{name}-{n}-{dtype.__name__}-{layout}",
            marks=() if (name, n, dtype) in QUICK else pytest.mark.extended)


def program_of(name, layout):
  """How a function is tested, and its program, which is called on the mesh of the layout."""
  squares = name in DISTRIBUTED_SQUARES
  tested, call = (DISTRIBUTED_SQUARES if squares else DISTRIBUTED)[name]
  mesh, _ = mesh_of(layout)
  options = {"axes": mesh.axis_names if name in TALL else PLACES[layout]}
  options |= {} if squares or name in TALL else {"panel": PANEL}
  return tested, quick_jit(functools.partial(call, dist, **options))


@pytest.mark.parametrize("name, n, dtype, layout", list(_each()))
def test_errors(name, n, dtype, layout):
  """Errors are at most ten times SciPy's, or within what the docstring says."""
  tested, program = program_of(name, layout)
  operands, reasons = kinds.operands_of(tested, n, dtype)
  with jax.set_mesh(mesh_of(layout)[0]):
    results = [jax.tree.leaves(jax.device_get(program(*one))) for _, one in operands]
  found, reasons = losses.worst_of(tested, operands, results, reasons)
  assert found and set(found) | set(reasons) == set(kinds.KINDS)
  assert not losses.faults_of(tested, found, reasons)


# The functions that take batches.
STACKS = (*sorted(TALL), *DISTRIBUTED_SQUARES)


@pytest.mark.parametrize("name, dtype", [
    pytest.param(name, dtype, marks=() if name == "eigh_generalized" and dtype == np.float64
                 else pytest.mark.extended)
    for name in STACKS for dtype in (np.float64, np.complex64)])
def test_neighbours(name, dtype):
  """NaN in one matrix of a batch gives NaN for it alone. The others keep their bits."""
  tested, program = program_of(name, "both")
  good = kinds.stacked(kinds.operands_of(tested, 7, dtype, ("random",))[0])
  bad = [good[0].copy(), *good[1:]]
  bad[0][1, 3, 2] = np.nan
  with jax.set_mesh(mesh_of("both")[0]):
    expected, found = (jax.tree.leaves(jax.device_get(program(*x))) for x in (good, bad))
  for mine, theirs in zip(found, expected, strict=True):
    spoilt = np.isnan(mine[1])
    # Columns of Q and R before the NaN do not depend on it.
    assert np.isfinite(theirs).all() and (spoilt.any() if "qr" in name else spoilt.all())
    np.testing.assert_array_equal(mine[::2], theirs[::2])
