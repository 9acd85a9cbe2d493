"""One square matrix on several devices: the tests' layouts and tolerances."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import linalg.distributed as dist
from quick import optimised_jit
from sharded import make_mesh

# Blocks of two on eight devices. The size is no multiple of such panels, so everything is padded.
PANEL, N = 16, 40

# The mesh's shape and axes, and how the matrix is sharded.
LAYOUTS = {
    "both": ((4, 2), ("x", "y"), P("x", "y")),
    "turned": ((2, 4), ("x", "y"), P("y", "x")),
    "rows": ((8,), ("x",), P("x", None)),
    "rows twice": ((4, 2), ("x", "y"), P(("x", "y"), None)),
    "columns": ((4, 2), ("x", "y"), P(None, ("x", "y"))),
    "some": ((4, 2), ("x", "y"), P("x", None)),
    "one device": ((1,), ("x",), P("x", None)),
}
AXES = (("x",), ("y",))  # of "both"
# On Explicit axes the layout is read from an array's type, and on Auto axes from the array. Layouts
# by rows, by columns and by both are read in each way, and each layout in one.
KIND_OF = {
    "both": AxisType.Explicit, "turned": AxisType.Auto, "rows": AxisType.Auto,
    "rows twice": AxisType.Explicit, "columns": AxisType.Auto, "some": AxisType.Explicit,
    "one device": AxisType.Auto}
# The other dtypes take the same path as complex128, so one layout is enough.
_RESULTS = [
    *[(layout, kind, np.complex128) for layout, kind in KIND_OF.items()],
    ("columns", AxisType.Explicit, np.complex128),
    *[("both", AxisType.Auto, dtype) for dtype in (np.float32, np.float64, np.complex64)]]


def _named(cases, quick):
  """Cases that are not among the quick ones are extended."""
  return [
      pytest.param(*x, id=f"{x[0]}-{x[1].name}-{x[2].__name__}",
                   marks=() if x in quick else pytest.mark.extended) for x in cases]


each_result = pytest.mark.parametrize("layout, kind, dtype", _named(
    _RESULTS, [("both", AxisType.Explicit, np.complex128)]))


def each_derivative(names, *quick):
  """Each name has a complex dtype on one kind of axes and a real dtype on the other.

  A rule conjugates, and its results have the types of its operands. The complex dtype tests the
  former and the kinds of axes the latter, independently.
  """
  kinds = itertools.cycle(((AxisType.Explicit, AxisType.Auto), (AxisType.Auto, AxisType.Explicit)))
  return pytest.mark.parametrize("name, kind, dtype", _named(
      [(name, kind, dtype) for name, both in zip(names, kinds)
       for kind, dtype in zip(both, (np.complex128, np.float64), strict=True)], quick))


def mesh_of(layout, kind=AxisType.Auto):
  shape, names, spec = LAYOUTS[layout]
  devices = jax.devices()[: np.prod(shape)]
  return make_mesh(shape, names, kind, devices=devices), spec


def place(x, layout, kind=AxisType.Auto):
  return jax.device_put(x, NamedSharding(*mesh_of(layout, kind)))


def close(actual, expected, dtype, factor=1e3):
  expected = np.asarray(expected)
  atol = factor * float(jnp.finfo(dtype).eps) * max(np.max(np.abs(expected), initial=0), 1)
  np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


# LLVM compiles the program that XLA has made. It changes neither the memory nor the traffic of a
# program.
_LITTLE_OF_LLVM = {
    "xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def counted(call, sharding, n):
  """The memory and the traffic of a program of one float32 matrix.

  Memory is a device's arguments, results and temporaries, in shares n² / P of the matrix. Traffic
  is the data that it receives, and the gathered part of that, in n² / √P.
  """
  with jax.set_mesh(sharding.mesh):
    program = optimised_jit(call).lower(
        jax.ShapeDtypeStruct((n, n), np.float32, sharding=sharding)).compile(_LITTLE_OF_LLVM)
  found = dist.report(program)
  assert found.unknown_loops == 0 and f"f32[{n},{n}]" not in program.as_text()
  devices = sharding.mesh.size
  held = found.arguments + found.results + found.temporaries
  unit = n * n * 4 / devices**0.5
  gathered = found.received.get("all-gather", 0)
  return held / (n * n * 4 / devices), found.moved / unit, gathered / unit
