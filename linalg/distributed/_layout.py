"""The layout of a distributed function's operand: its mesh, and the axes of each dimension."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from linalg import ffi

Axes = tuple[str, ...]
# The axes of a matrix: those of its rows, a pair for its rows and columns, or the specification of
# the whole array.
Places = str | tuple[Any, ...] | PartitionSpec | None


class Layout(NamedTuple):
  """A mesh, and for each dimension of an array the axes that it is sharded over.

  The mesh is always abstract, for traced and for concrete arrays, so that their factors have the
  same type. The devices are those of the operands.
  """

  mesh: AbstractMesh
  spec: tuple[Axes, ...]

  def devices(self, axes: Axes) -> int:
    return math.prod(self.mesh.shape[axis] for axis in axes)


def partition(spec: Sequence[Axes]) -> PartitionSpec:
  return PartitionSpec(*(axes or None for axes in spec))


def map_parts(
    mesh: AbstractMesh, specs: Mapping[str, PartitionSpec], function: Callable[..., Any],
    operands: str, results: str, *arrays: Any
) -> Any:
  """Applies `function` to each device's parts of `arrays`.

  `operands` and `results` have a letter for each array. `specs` says how an array of that letter is
  sharded.
  """
  mapped = jax.shard_map(
      lambda *arrays: jax.tree.leaves(function(*arrays)), mesh=mesh,
      in_specs=tuple(specs[x] for x in operands), out_specs=[specs[x] for x in results])
  found = mapped(*arrays)
  return tuple(found) if len(results) > 1 else found[0]


def layout_of(name: str, x: jax.Array) -> Layout:
  """The mesh and the sharding of an array, as far as they can be known.

  The type of an array has them on Explicit axes, and a concrete array has them itself. For a traced
  array on Auto axes only the compiler will know them. Then no sharding is returned, and the mesh is
  the context's.
  """
  sharding = _sharding_of(x)
  mesh = jax.sharding.get_abstract_mesh() if sharding.mesh.empty else sharding.mesh
  if mesh.empty:
    raise ValueError(
        f"{name} needs a mesh: an array that is sharded over one, or jax.set_mesh(mesh).")
  if all(kind == AxisType.Manual for kind in mesh.axis_types):
    raise ValueError(
        f"{name}: inside jax.shard_map an array is a device's own; call linalg's functions of it "
        "there, and those of linalg.distributed outside.")
  return Layout(mesh.abstract_mesh, _axes_of(x, sharding))


def placed_layout(name: str, x: jax.Array, axes: Places) -> tuple[Layout, Any]:
  """`layout_of`, and axes of rows and columns.

  A specification among `axes` takes the place of the array's sharding. Then no axes are left.
  """
  layout = layout_of(name, x)
  if not isinstance(axes, PartitionSpec):
    return layout, axes
  entries = [*axes] + [None] * (x.ndim - len(axes))
  found = [() if entry is None else _names(entry) for entry in entries]
  spec = tuple(entry for entry in found if entry is not None)
  named = sum(spec, ())
  if (len(found) != x.ndim or len(spec) != x.ndim or len(named) != len(set(named))
      or not set(named) <= set(layout.mesh.axis_names)):
    raise ValueError(
        f"{name}: axes={axes} must have at most {x.ndim} entries, one for each dimension, of "
        f"different axes of the mesh, {layout.mesh.axis_names}.")
  _refuse_otherwise(name, x, layout, axes, spec)
  return Layout(layout.mesh, spec), None


def _sharding_of(x):
  own = None if isinstance(x, jax.core.Tracer) else getattr(x, "sharding", None)
  return own if isinstance(own, NamedSharding) else jax.typeof(x).sharding


def _axes_of(x, sharding) -> tuple[Axes, ...]:
  spec = tuple(sharding.spec) + (None,) * (x.ndim - len(sharding.spec))
  as_axes = lambda entry: entry if isinstance(entry, tuple) else (entry,) if entry else ()
  return tuple(map(as_axes, spec))


def check_columns(name: str, operand: str, b: jax.Array) -> None:
  """Refuses right-hand sides or changes whose columns are known to be sharded.

  Each device uses all columns, so they would be gathered silently.
  """
  sharding = _sharding_of(b)
  spec = _axes_of(b, sharding)
  if b.ndim > 1 and math.prod(sharding.mesh.shape[axis] for axis in spec[-1]) > 1:
    whole = partition((*spec[:-1], ()))
    more = ", or multiply them by the inverse" if operand == "b" else ""
    what = "the columns" if operand == "columns" else f"the columns of {operand}"
    raise ffi.ShardingTypeError(
        f"{name}: {what} are sharded, {partition(spec)}, and each device would "
        f"have to hold all of them; reshard it first: jax.sharding.reshard({operand}, {whole}), a "
        f"few columns at a time if they are many{more}.")


def check_divides(
    name: str, layout: Layout, k: int,
    advice: str = "solve, logdet and changes take any size, and so do Auto axes"
) -> None:
  """Refuses k rows and columns of results that Explicit axes would share unevenly."""
  if not layout.mesh.are_all_axes_explicit:
    return
  counts = [layout.devices(axes) for axes in layout.spec]
  if any(k % count for count in counts):
    raise ffi.ShardingTypeError(
        f"{name}: on Explicit axes the {k} rows and columns of results, sharded by "
        f"{partition(layout.spec)}, must be multiples of the devices, {counts}; {advice}.")


def _explicit(mesh: AbstractMesh, spec: Sequence[Axes]) -> tuple[Axes, ...]:
  """The Explicit axes of each dimension, which the type of an array shows."""
  kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
  return tuple(
      tuple(axis for axis in entry if kinds[axis] == AxisType.Explicit) for entry in spec)


def _refuse_otherwise(name, a, layout, axes, spec):
  """Raises if `axes` contradict the type of a matrix on Explicit axes."""
  if _explicit(layout.mesh, layout.spec) != _explicit(layout.mesh, spec):
    given = "" if axes is None else f"with axes={axes!r} "
    raise ffi.ShardingTypeError(
        f"{name}: {given}the matrix is to be sharded by {partition(spec)}, and is "
        f"{jax.typeof(a).str_short(True)}; reshard it first: "
        f"jax.sharding.reshard(a, {partition(spec)}).")


def _names(entry: Any) -> Axes | None:
  """The axes that a caller gives for one dimension, or None if the value is not axes."""
  entries = (entry,) if isinstance(entry, str) else entry
  is_names = isinstance(entries, tuple | list) and all(isinstance(x, str) for x in entries)
  return tuple(entries) if is_names else None


def _different(chosen: Axes, allowed: Axes) -> bool:
  """Whether the chosen axes are among those allowed, each at most once."""
  return 0 < len(chosen) == len(set(chosen)) and set(chosen) <= set(allowed)


class SquareOverBothError(NotImplementedError, ffi.ShardingTypeError):
  """A function for tall matrices got a square one that is sharded over both dimensions."""


def rows_of(
    name: str, a: jax.Array, axes: Places, dimension: int = -2, any_shape: bool = False
) -> Layout:
  """The layout of matrices whose rows are sharded, or with dimension -1 their columns.

  The axes are `axes`, or else those of the array's sharding. Where that is not known, they are all
  axes of the mesh that no batch dimension has. Square matrices that are sharded over both
  dimensions are refused by name, except with `any_shape`.
  """
  layout, axes = placed_layout(name, a, axes)
  batch, rows, columns = layout.spec[:-2], layout.spec[dimension], layout.spec[-3 - dimension]
  whole, sharded = ("columns", "rows") if dimension == -2 else ("rows", "columns")
  spec_of = lambda own: (*batch, own, ()) if dimension == -2 else (*batch, (), own)
  if rows and columns and a.shape[-2] == a.shape[-1] and not any_shape:
    raise SquareOverBothError(
        f"{name} of a square matrix that is sharded over both dimensions is not there: "
        f"{jax.typeof(a).str_short(True)}. Use linalg.distributed.lu_factor, solve or inv for "
        f"systems, batched for a stack; or {name} of jax.sharding.reshard(a, "
        f"{partition(spec_of(rows))}), which takes the memory of the whole matrix on each device.")
  if columns:
    raise ffi.ShardingTypeError(
        f"{name}: the {whole} of the matrix are sharded: {jax.typeof(a).str_short(True)}. Its "
        f"{sharded} may be; reshard it first: jax.sharding.reshard(a, "
        f"{partition(spec_of(rows or columns))}).")
  free = _free(layout)
  chosen = (rows or free) if axes is None else _names(axes)
  if chosen is None or not _different(chosen, free):
    raise ValueError(
        f"{name}: axes={axes!r} must be different axes of the mesh that no batch dimension is "
        f"sharded over, {free}: a name or names.")
  if chosen != rows:
    _refuse_otherwise(name, a, layout, axes, spec_of(chosen))
  return Layout(layout.mesh, (*batch, chosen, ()))


def placed_as_rows(layout: Layout, x: jax.Array) -> jax.Array:
  """Returns `x` with its rows sharded like those of `rows_of`, on Explicit axes."""
  spec = partition(_explicit(layout.mesh, layout.spec))
  if not any(spec) or jax.typeof(x).sharding.spec == spec:
    return x
  return jax.sharding.reshard(x, NamedSharding(layout.mesh, spec))


def square_of(name: str, a: jax.Array, axes: Places) -> Layout:
  """The layout of one square matrix.

  `axes` is a name or names of the rows' axes, a pair for the rows and the columns, or a
  specification. The default is the array's sharding. Where that is not known, the rows are sharded
  over all axes of the mesh.
  """
  if a.ndim != 2 or a.shape[0] != a.shape[1]:
    raise ValueError(
        f"{name} takes one square matrix [n, n] that several devices share, got {a.shape}. A stack "
        "is for linalg's functions, or for linalg.distributed.batched.")
  return shared_of(name, a, axes)


def check_square(name: str, a: jax.Array) -> None:
  if a.ndim < 2 or a.shape[-2] != a.shape[-1]:
    raise ValueError(
        f"{name} takes square matrices [..., n, n] that several devices share, got {a.shape}.")


def shared_of(name: str, a: jax.Array, axes: Places) -> Layout:
  """The layout of matrices of any shape whose rows, columns or both are sharded.

  `axes` is as for `square_of`. Where nothing is known, the rows are sharded over all axes of the
  mesh that no batch dimension has.
  """
  layout, axes = placed_layout(name, a, axes)
  own = layout.spec[-2:]
  if axes is not None:
    own = placed(name, a, layout, axes)
  elif not any(own):
    own = (_free(layout), ())
    if not own[0]:
      raise ValueError(
          f"{name}: the batch is sharded over all axes of the mesh; use linalg.{name}.")
    _refuse_otherwise(name, a, layout, axes, (*layout.spec[:-2], *own))
  return Layout(layout.mesh, (*layout.spec[:-2], *own))


def _free(layout: Layout) -> Axes:
  """The axes of the mesh that no batch dimension has."""
  taken = [axis for entry in layout.spec[:-2] for axis in entry]
  return tuple(axis for axis in layout.mesh.axis_names if axis not in taken)


def placed(name: str, a: jax.Array, layout: Layout, axes: Places) -> tuple[Axes, Axes]:
  """The axes of rows and columns that `axes` names."""
  names = _free(layout)
  is_pair = isinstance(axes, tuple) and len(axes) == 2 and not all(
      isinstance(x, str) for x in axes)
  pair: Any = axes if is_pair else (axes, None)
  rows, columns = (() if x is None else _names(x) for x in pair)
  if rows is None or columns is None or not _different(rows + columns, names):
    raise ValueError(
        f"{name}: axes={axes!r} must be different axes of the mesh, {tuple(names)}: a name, "
        "names for the rows, or a pair (rows, columns) of either, of which one may be None.")
  if (rows, columns) != layout.spec[-2:]:
    _refuse_otherwise(name, a, layout, axes, (*layout.spec[:-2], rows, columns))
  return rows, columns
