"""Counts what spectra of one matrix over many devices move, hold and compute.

  python benchmarks/distributed_spectra.py --output \
    benchmarks/results/amd-epyc-distributed-spectra-DATE.json
  python benchmarks/distributed_spectra.py --work --output \
    benchmarks/results/amd-epyc-distributed-work-DATE.json

The first compiles the programs for virtual CPU devices, each in a process of its own, and counts by
`linalg.distributed.report` what one device receives and holds. The second runs some of them on
eight devices, and compares the processor time of all devices with that of one stock call. XLA
spreads no operation of either over threads. docs/distributed_spectra.md has the results.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

PROGRAMS = ("eigh", "eigvalsh", "gradient of eigh", "svd", "svdvals", "qr", "polar")
# Devices, n and dtype.
SIZES = (
    (8, 1024, "float32"), (8, 2048, "float64"), (8, 4096, "float32"), (64, 65536, "float32"))
DEVICES = 8  # of the programs that run
WORK = (  # program, n and dtype
    *((name, n, "float64") for name in ("eigh", "eigvalsh", "svd", "svdvals")
      for n in (1024, 2048)),
    ("eigh", 4096, "float32"))
# LLVM changes neither the memory nor the traffic of a program.
LITTLE_OF_LLVM = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
CALLS = 4


def functions() -> dict[str, Any]:
  import jax
  import jax.numpy as jnp

  import linalg.distributed as dist

  def loss(a):
    w, v = dist.eigh(a)
    return jnp.sum(w**2) + jnp.sum(v**4)

  return {
      "eigh": lambda a: tuple(dist.eigh(a)), "eigvalsh": dist.eigvalsh,
      "gradient of eigh": jax.grad(loss), "svd": lambda a: tuple(dist.svd(a)),
      "svdvals": dist.svdvals, "qr": lambda a: tuple(dist.qr(a)), "polar": dist.polar}


def sharding_of(devices: int) -> Any:
  import jax
  from jax.sharding import AxisType, NamedSharding, PartitionSpec

  columns = max(k for k in range(1, int(devices**0.5) + 1) if devices % k == 0)
  mesh = jax.make_mesh(
      (devices // columns, columns), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
  return NamedSharding(mesh, PartitionSpec("x", "y"))


def count(name: str, devices: int, n: int, dtype: str) -> dict[str, Any]:
  """The costs of one program: shares n² / P that are held, words in n² / √P, and messages."""
  import jax

  import linalg.distributed as dist

  sharding = sharding_of(devices)
  bytes_of = n * n * jax.numpy.dtype(dtype).itemsize
  with jax.set_mesh(sharding.mesh):
    begin = time.process_time()
    program = jax.jit(functions()[name]).lower(
        jax.ShapeDtypeStruct((n, n), dtype, sharding=sharding)).compile()
    compiling = time.process_time() - begin
    found = dist.report(program)
  held = found.arguments + found.results + found.temporaries
  return {
      "words": found.moved / (bytes_of / devices**0.5), "held": held / (bytes_of / devices),
      "messages": sum(found.collectives.values()), "unknown_loops": found.unknown_loops,
      "compiling": compiling}


def work(name: str, devices: int, n: int, dtype: str) -> dict[str, Any]:
  """The least processor seconds of some calls; on one device, those of stock JAX."""
  import jax
  import jax.numpy as jnp
  import numpy as np

  a = np.random.default_rng(0).standard_normal((n, n)).astype(dtype)
  a = a + a.T if name.startswith("eig") else a
  if devices == 1:
    stock = {
        "eigh": jnp.linalg.eigh, "eigvalsh": jnp.linalg.eigvalsh,
        "svd": jnp.linalg.svd, "svdvals": jnp.linalg.svdvals}
    function, x = jax.jit(lambda a: tuple(jax.tree.leaves(stock[name](a)))), jnp.asarray(a)
  else:
    sharding = sharding_of(devices)
    jax.set_mesh(sharding.mesh)
    function, x = jax.jit(functions()[name]), jax.device_put(a, sharding)
  seconds = []
  for _ in range(CALLS):
    begin = time.process_time()
    jax.block_until_ready(function(x))
    seconds.append(time.process_time() - begin)
  return {"processor_seconds": min(seconds[1:])}


def alone(task: str, name: str, devices: int, n: int, dtype: str, limit: float) -> dict[str, Any]:
  """A task in a process of its own, or the reason why there is no result."""
  flags = LITTLE_OF_LLVM if task == "count" else ONE_THREAD
  environment = os.environ | {
      "JAX_ENABLE_X64": str(int(dtype == "float64")), "OPENBLAS_NUM_THREADS": "1",
      "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} {flags}"}
  command = [sys.executable, __file__, "--task", task, name, str(devices), str(n), dtype]
  cell = {"task": task, "program": name, "devices": devices, "n": n, "dtype": dtype}
  try:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
  except subprocess.TimeoutExpired:
    return cell | {"skipped": f"over {limit:g} s"}
  if done.returncode:
    lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
    return cell | {"skipped": lines[-1]}
  return cell | json.loads(done.stdout.splitlines()[-1])


def main() -> None:
  parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
  parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=PROGRAMS)
  parser.add_argument("--devices", type=int, help="count programs for this number alone")
  parser.add_argument("--work", action="store_true", help="run programs, and count nothing")
  parser.add_argument("--limit", type=float, default=300, help="seconds for one row")
  parser.add_argument("--output", type=pathlib.Path, help="a JSON file")
  parser.add_argument("--task", nargs=5, help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.task:
    task, name, devices, n, dtype = args.task
    print(json.dumps({"count": count, "work": work}[task](name, int(devices), int(n), dtype)))
    return
  rows = [
      ("work", name, devices, n, dtype) for name, n, dtype in WORK if name in args.programs
      for devices in (1, DEVICES)
  ] if args.work else [
      ("count", name, *size) for name in args.programs for size in SIZES
      if args.devices in (None, size[0])]
  cells = []
  for row in rows:
    cells.append(alone(*row, args.limit))
    print(cells[-1], flush=True)
  if args.output:
    from records import describe_run, write

    write(args.output, describe_run("distributed_spectra.py", ()), cells)


if __name__ == "__main__":
  main()
