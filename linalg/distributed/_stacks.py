"""Stacks of matrices whose matrix dimensions are sharded: one exchange makes them a sharded
batch."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from linalg._core.public import public
from linalg.distributed._layout import Layout, Places, partition, placed, placed_layout


@public("axes", compiled=False)
def batched(function: Callable[..., Any], *, axes: Places = None) -> Callable[..., Any]:
  """`function` of a stack of matrices, for stacks whose matrix dimensions are sharded.

  Without this, XLA gathers such a stack onto every device, and every device computes all of it.
  This function uses two exchanges. One gives every device whole matrices, its share of the stack.
  After the computation, another takes the results back.

  Args:
    function: a function of one stack (k, m, n), such as `linalg.polar` or a composition of this
      package's functions. It must treat the matrices of a stack alike, and one at a time. Its
      results are arrays (k, ...).
    axes: the axes of the mesh that matrix dimensions are sharded over, as for `cholesky`. The
      default is the array's sharding. Inside `jax.jit` on Auto axes that cannot be known, and
      `axes` is needed.

  Returns:
    A function of the same stack, sharded over matrix dimensions. A result (k, m', n') is sharded as
    the stack is, where the devices divide its dimensions; others are on all devices. It has the
    derivatives of `function`.

  A stack whose length the devices do not divide is padded by repeating its matrices.
  Each device moves its share once there and once back.

  Example:
    >>> import jax, jax.numpy as jnp, linalg, linalg.distributed as dist
    >>> roots = dist.batched(lambda a: linalg.inverse_pth_root(a, 4))
    >>> with jax.set_mesh(jax.make_mesh((jax.device_count(),), ("x",))):
    ...   a = jax.device_put(jnp.broadcast_to(16 * jnp.eye(8), (3, 8, 8)), jax.P(None, "x"))
    ...   print(roots(a).shape)
    (3, 8, 8)
  """

  if not isinstance(axes, str | tuple | PartitionSpec | None):
    raise TypeError(
        "batched() takes axes as an option: a string, a tuple or a PartitionSpec; got "
        f"{type(axes)}.")

  @functools.wraps(function)
  def call(stack: jax.Array) -> Any:
    stack = jnp.asarray(stack) if not isinstance(stack, jax.Array) else stack
    if stack.ndim != 3:
      raise ValueError(f"batched takes a stack of matrices [k, m, n], got {stack.shape}")
    layout, places = placed_layout("batched", stack, axes)
    if layout.spec[0]:
      raise ValueError(
          "batched takes a stack whose matrix dimensions are sharded; one that is sharded along "
          f"itself, {jax.typeof(stack).str_short(True)}, is a batch: call the function.")
    if places is not None:
      layout = Layout(layout.mesh, ((), *placed("batched", stack, layout, places)))
    if not any(layout.spec):
      if AxisType.Auto in layout.mesh.axis_types and isinstance(stack, jax.core.Tracer):
        raise ValueError(
            "batched: inside jax.jit, on Auto axes, it cannot be known how the stack is sharded: "
            "batched(function, axes=(rows, columns)) says it.")
      return function(stack)
    for dimension, own in enumerate(layout.spec):
      if stack.shape[dimension] % layout.devices(own):
        raise ValueError(
            f"batched: dimension {dimension} of the stack, {stack.shape}, must be a multiple of "
            f"the {layout.devices(own)} devices that it is sharded over.")
    return _exchange(function, layout, stack)

  return call


def _exchange(function, layout: Layout, stack):
  rows, columns = layout.spec[1:]
  axes = rows + columns
  devices, length = layout.devices(axes), stack.shape[0]
  filled = -(-length // devices) * devices
  whole = jax.ShapeDtypeStruct((filled // devices, *stack.shape[1:]), stack.dtype)
  results = jax.eval_shape(function, whole)

  def goes_back(x):
    return x.ndim == 3 and not any(
        size % layout.devices(own) for size, own in zip(x.shape[1:], (rows, columns), strict=True))

  def body(stack):
    stack = jnp.take(stack, jnp.arange(filled) % length, axis=0)
    # The axis that varies fastest along the stack is the last. Its exchange is the inner one.
    for dimension, own in ((1, rows), (2, columns)):
      if own:
        stack = lax.all_to_all(stack, own, 0, dimension, tiled=True)
    return jax.tree.map(back, function(stack))

  def back(x):
    if not goes_back(x):
      return lax.all_gather(x, axes, axis=0, tiled=True, to="invarying")[:length]
    for dimension, own in ((2, columns), (1, rows)):
      if own:
        x = lax.all_to_all(x, own, dimension, 0, tiled=True)
    return x[:length]

  specs = jax.tree.map(
      lambda x: partition(layout.spec) if goes_back(x) else partition([()] * x.ndim), results)
  return jax.shard_map(
      body, mesh=layout.mesh, in_specs=(partition(layout.spec),), out_specs=specs)(stack)
