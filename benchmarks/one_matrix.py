"""Counts what `linalg.distributed` moves and holds for one square matrix on many devices.

  python benchmarks/one_matrix.py --devices 8 --n 4096
  python benchmarks/one_matrix.py --scaling

compiles the programs for virtual CPU devices. It prints what one device receives, what the
algorithm needs on paper, and the memory that it takes. `--scaling` does so for 1 to 64 devices with
equal shares, for the tables of docs/distributed_costs.md.

`--run` also times the programs, and stock JAX on as many devices and on one. Each runs in a process
of its own, within `--limit` seconds: stock JAX gathers the matrix, and may never return. The
devices share the machine's cores, so the processor time of a call is the work of all devices.
"""

import argparse
import functools
import multiprocessing
import os
import statistics
import time

# Changes of a Cholesky factor, with the operands that follow it.
CHANGES = {
    "update": lambda factor, w: factor.update(w), "downdate": lambda factor, w: factor.downdate(w),
    "append": lambda factor, w: factor.append(w, 2 * w[0] + 3),
    "delete": lambda factor, w: factor.delete(w.astype(int)[0]),
    "replace": lambda factor, w: factor.replace(w.astype(int)[0], w.at[0].set(2))}
PROGRAMS = (
    "cho_factor", "cholesky", "inv", "value", "gradient", "gradient of L", "lu_factor",
    "gradient by LU", *CHANGES)
# Stock JAX lacks these or names them otherwise.
OWN = ("cho_factor", "lu_factor", "gradient by LU", *CHANGES)
SCALING = ((1, 2048), (4, 4096), (8, 4096), (16, 8192), (64, 16384))  # devices, n


def paper(name, rows, columns):
  """The shares n² / P that a device receives, to leading order.

  In each step these are a panel's rows and columns, half of which the device has. The moves to the
  block-cyclic layout and back are added. A single device receives nothing.
  """
  if rows * columns == 1:
    return 0.0
  sweep = (rows + columns) / 2
  return {
      "cho_factor": sweep + 1, "cholesky": sweep + 2, "inv": 3 * sweep + 2, "value": sweep + 1,
      "gradient": 3 * sweep + 2, "gradient of L": 4.5 * sweep + 4.5,
      "update": 1, "downdate": 1, "append": 0, "delete": 1, "replace": 2,
      "lu_factor": columns + 2 * rows + 2, "gradient by LU": 2 * columns + 4 * rows + 4.5}[name]


def columns_of(devices):
  """The number of columns of the squarest grid."""
  return max(k for k in range(1, int(devices**0.5) + 1) if devices % k == 0)


def measure(name, devices, n, stock, rounds):
  """The costs of one program.

  They are the shares that it receives and gathers, its collectives, its memory, and times. The
  times are the seconds to compile it, and the wall-clock and processor seconds of each call.
  """
  os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
  if stock and devices > 1:
    # Otherwise the LAPACK threads of the devices may wait for each other.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
  import jax
  import jax.numpy as jnp
  import numpy as np
  from jax.sharding import AxisType, NamedSharding, PartitionSpec

  import linalg.distributed as dist

  columns = columns_of(devices)
  mesh = jax.make_mesh((devices // columns, columns), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
  axes = ("x",), ("y",)

  def likelihood(a, factor=dist.cho_factor):
    b = jnp.ones(n, a.dtype)
    if stock:
      l = jnp.linalg.cholesky(a)
      x = jax.scipy.linalg.cho_solve((l, True), b)
      return b @ x + 2 * jnp.sum(jnp.log(jnp.diagonal(l)))
    factors = factor(a, axes=axes)
    return b @ factors.solve(b) + factors.slogdet().logabsdet

  cholesky = jnp.linalg.cholesky if stock else lambda a: dist.cholesky(a, axes=axes)
  function = {
      "cho_factor": lambda a: dist.cho_factor(a, axes=axes).blocks,
      "lu_factor": lambda a: dist.lu_factor(a, axes=axes).blocks, "cholesky": cholesky,
      "inv": jnp.linalg.inv if stock else lambda a: dist.inv(a, assume_a="pos", axes=axes),
      "value": likelihood, "gradient": jax.value_and_grad(likelihood),
      "gradient by LU": jax.value_and_grad(functools.partial(likelihood, factor=dist.lu_factor)),
      "gradient of L": jax.grad(lambda a: jnp.sum(cholesky(a) ** 2)), **CHANGES}[name]
  sharding = NamedSharding(mesh, PartitionSpec("x", "y"))

  def placed(x):
    spec = PartitionSpec(("x", "y")) if x.ndim == 3 else PartitionSpec()
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

  operands = [jax.ShapeDtypeStruct((n, n), np.float32, sharding=sharding)]
  with jax.set_mesh(mesh):
    if name in CHANGES:
      factor = jax.eval_shape(lambda a: dist.cho_factor(a, axes=axes), *operands)
      operands = [jax.tree.map(placed, factor), placed(jnp.ones(n, np.float32))]
    begin = time.perf_counter()
    program = jax.jit(function).lower(*operands).compile()
    compilation = time.perf_counter() - begin
    found = dist.report(program)
    share = n * n * 4 / devices
    held = (found.arguments + found.results + found.temporaries) / share
    calls = []
    if rounds:
      a = np.eye(n, dtype=np.float32) + np.full((n, n), 1 / n, np.float32)
      a = jax.device_put(a, sharding)
      given = [a]
      if name in CHANGES:
        w = jax.device_put(np.full(n, n**-0.5, np.float32), NamedSharding(mesh, PartitionSpec()))
        given = [dist.cho_factor(a, axes=axes), w]
      for _ in range(rounds + 1):
        begin = time.perf_counter(), time.process_time()
        jax.block_until_ready(program(*given))
        calls.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
  messages = sum(found.collectives.values())
  gathered = found.received.get("all-gather", 0)
  return found.moved / share, gathered / share, messages, held, compilation, calls[1:]


def within(limit, *arguments):
  """`measure`, or None if it takes longer than the limit."""
  with multiprocessing.get_context("spawn").Pool(1) as pool:
    try:
      return pool.apply_async(measure, arguments).get(limit)
    except multiprocessing.TimeoutError:
      return None


def main():
  parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
  parser.add_argument("--devices", type=int, default=8)
  parser.add_argument("--n", type=int, default=4096)
  parser.add_argument("--scaling", action="store_true", help="1 to 64 devices, n² / P alike")
  parser.add_argument("--programs", nargs="+", default=PROGRAMS, choices=PROGRAMS)
  parser.add_argument("--run", action="store_true")
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--limit", type=float, default=60)
  options = parser.parse_args()
  sizes = SCALING if options.scaling else ((options.devices, options.n),)
  print("float32; in shares n² / P of the matrix:")
  print("| Program | P, n | On paper | Received | In n² / √P | Gathered of it | Collectives | Held "
        "| Compiled in | Median time | Of the processor |")
  print("|---|---|---|---|---|---|---|---|---|---|---|")
  for name in options.programs:
    for devices, n in sizes:
      ways = [(devices, False)]
      if options.run and name not in OWN:
        ways += [(count, True) for count in sorted({devices, 1}, reverse=True)]
      for count, stock in ways:
        title = f"{name}, stock" if stock else name
        found = within(
            options.limit, name, count, n, stock, options.rounds if options.run else 0)
        if found is None:
          print(
              f"| {title} | {count}, {n} | | | | | | | | over {options.limit:g} s | |", flush=True)
          continue
        received, gathered, messages, held, compilation, calls = found
        columns = columns_of(count)
        expected = "" if stock else f"{paper(name, count // columns, columns):.1f}"
        times = [f"{statistics.median(x):.2f} s" for x in zip(*calls, strict=True)] or ["", ""]
        print(
            f"| {title} | {count}, {n} | {expected} | {received:.1f} | "
            f"{received / count**0.5:.2f} | {gathered / count**0.5:.2f} | {messages} | "
            f"{held:.1f} | {compilation:.1f} s | {' | '.join(times)} |", flush=True)


if __name__ == "__main__":
  main()
