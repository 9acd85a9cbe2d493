"""Times each primitive that `linalg.accelerate` routes against JAX's own, in small batches.

  python benchmarks/routed.py --minutes 15 --output times.json

A program calls the primitive for one batch after another in a scan, as a simulation or a filter
does. The cost to start the program is then shared by `--calls` calls. Cells that are slower than
`--below` are measured again. The last figure counts, and the table at the end lists what is left.

Single matrices come first. Cells for which `--minutes` leaves no time are counted and named.
A row of the file is one cell: the times of a call in microseconds, and the median and the
quartiles of the ratios.
"""

import argparse
import itertools
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import linalg
import records
import timing
from linalg._catalogue import matrices

SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
BATCHES = (1, 2, 4, 8)

Operands = list[np.ndarray]


def _general(rng, batch, n, dtype) -> Operands:
  return [matrices.general(rng, batch, n, n, dtype)]


def _hermitian(rng, batch, n, dtype) -> Operands:
  a = matrices.general(rng, batch, n, n, dtype)
  return [a + a.conj().mT]


def _positive(rng, batch, n, dtype) -> Operands:
  return [matrices.positive_definite(rng, batch, n, dtype)]


def _update(rng, batch, n, dtype) -> Operands:
  r = np.linalg.cholesky(matrices.positive_definite(rng, batch, n, dtype)).mT.astype(dtype)
  return [np.ascontiguousarray(r), matrices.general(rng, batch, n, 1, dtype)[..., 0]]


def _triangle(columns: int | None) -> Callable[..., Operands]:
  def make(rng, batch, n, dtype):
    a = matrices.general(rng, batch, n, n, dtype) / n + 2 * np.eye(n, dtype=dtype)
    return [a.astype(dtype), matrices.general(rng, batch, n, columns or n, dtype)]

  return make


def _reflectors(columns: int | None) -> Callable[..., Operands]:
  def make(rng, batch, n, dtype):
    h, taus = jnp.linalg.qr(matrices.general(rng, batch, n, n, dtype), mode="raw")
    c = [] if columns == 0 else [matrices.general(rng, batch, n, columns or n, dtype)]
    return [np.array(h.mT), np.asarray(taus), *c]

  return make


def _tridiagonal(rng, batch, n, dtype) -> Operands:
  diagonals = [matrices.general(rng, batch, n, 1, dtype)[..., 0] for _ in range(3)]
  return [*diagonals[:1], diagonals[1] + 4, diagonals[2], matrices.general(rng, batch, n, 1, dtype)]


def _pivots(rng, batch, n, dtype) -> Operands:
  steps = rng.integers(n, size=(*batch, n), dtype=np.int32)
  return [np.maximum(steps, np.arange(n, dtype=np.int32))]


def _permutation(rng, batch, n, dtype) -> Operands:
  return [np.argsort(rng.random((*batch, n)), axis=-1).astype(np.int32)]


def _inverse_permutation(p):
  return lax.sort_key_val(p, lax.broadcasted_iota(p.dtype, p.shape, p.ndim - 1))


def _solve(transpose: bool, left: bool) -> Callable[..., Any]:
  def solve(a, b):
    b = b if left else b.mT
    return lax.linalg.triangular_solve(
        a, b, left_side=left, lower=True, transpose_a=transpose, conjugate_a=transpose)

  return solve


Case = tuple[Callable[..., Any], Callable[..., Operands]]

CASES: dict[str, Case] = {
    "cholesky": (lambda a: lax.linalg.cholesky(a, symmetrize_input=False), _positive),
    "cholesky_update": (lambda r, w: lax.linalg.cholesky_update(r[0], w[0]), _update),
    "eig": (lambda a: lax.linalg.eig(a, compute_left_eigenvectors=False), _general),
    "eigvals": (
        lambda a: lax.linalg.eig(
            a, compute_left_eigenvectors=False, compute_right_eigenvectors=False), _general),
    "eigh": (lambda a: lax.linalg.eigh(a, symmetrize_input=False), _hermitian),
    "geqrf": (lambda a: jnp.linalg.qr(a, mode="raw"), _general),
    "householder_product": (lax.linalg.householder_product, _reflectors(0)),
    "inverse_permutation": (_inverse_permutation, _permutation),
    "lu": (lax.linalg.lu, _general),
    "lu_pivots_to_permutation": (
        lambda p: lax.linalg.lu_pivots_to_permutation(p, p.shape[-1]), _pivots),
    "ormqr, one column": (lax.linalg.ormqr, _reflectors(1)),
    "ormqr, three columns": (lax.linalg.ormqr, _reflectors(3)),
    "ormqr, n columns": (lax.linalg.ormqr, _reflectors(None)),
    "qr": (lambda a: lax.linalg.qr(a, full_matrices=False), _general),
    "qr, pivoted": (
        lambda a: lax.linalg.qr(a, full_matrices=False, pivoting=True), _general),
    "schur": (lax.linalg.schur, _general),
    "solve": (jnp.linalg.solve, _triangle(1)),
    "svd": (lambda a: lax.linalg.svd(a, full_matrices=False), _general),
    "svdvals": (lambda a: lax.linalg.svd(a, compute_uv=False), _general),
    "triangular_solve, one column": (_solve(False, True), _triangle(1)),
    "triangular_solve, n columns": (_solve(False, True), _triangle(None)),
    "triangular_solve, adjoint": (_solve(True, True), _triangle(1)),
    "triangular_solve, right": (_solve(False, False), _triangle(None)),
    "tridiagonal_solve": (lax.linalg.tridiagonal_solve, _tridiagonal),
}

# JAX's cholesky_update takes one real matrix. Some operands are integers.
ONE_REAL = {"cholesky_update"}
INTEGER = {"inverse_permutation", "lu_pivots_to_permutation"}


def cells_of(args: argparse.Namespace) -> list[dict[str, Any]]:
  def exists(op, dtype, batch):
    if op in ONE_REAL:
      return dtype[0] == "f" and batch == 1
    return op not in INTEGER or dtype == args.dtypes[0]

  return [
      {"op": op, "n": n, "batch": batch, "dtype": dtype}
      for batch, op, dtype, n in itertools.product(
          args.batches, args.ops, args.dtypes, args.sizes) if exists(op, dtype, batch)]


def measure_cell(cell: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
  function, make = CASES[cell["op"]]
  rng = np.random.default_rng(0)
  dtype = records.DTYPES[cell["dtype"]]
  operands = make(rng, (args.calls, cell["batch"]), cell["n"], dtype)
  placed = [jax.device_put(x) for x in operands]

  def program(*operands):
    return lax.scan(lambda carry, x: (carry, function(*x)), None, operands)[1]

  def contestant(enabled):
    with linalg.accelerated(enabled):
      compiled = jax.jit(program).lower(*operands).compile()
    return lambda: jax.block_until_ready(compiled(*placed))

  result = timing.summarise(timing.measure(
      {"ours": contestant(True), "stock": contestant(False)}, args.rounds, args.seconds_per_cell,
      clock=time.process_time if args.cpu_time else time.perf_counter))
  result["seconds"] = {
      name: timing.rounded(seconds / args.calls) for name, seconds in result["seconds"].items()}
  return result


def speedup(row: dict[str, Any]) -> float:
  return row["speedup"]["stock"]["median"]


def line_of(row: dict[str, Any]) -> str:
  times = " / ".join(f"{row['seconds'][name] * 1e6:.2f}" for name in ("ours", "stock"))
  return (f"{speedup(row):.2f}  {row['op']} n={row['n']} batch={row['batch']} {row['dtype']}  "
          f"{times} µs")


def measure_all(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
  """The rows, and the cells for which no time was left."""
  rows: list[dict[str, Any]] = []
  end = time.monotonic() + 60 * args.minutes
  for index, cell in enumerate(cells := cells_of(args)):
    if time.monotonic() > end:
      return rows, cells[index:]
    if index == 0 or cell["op"] != cells[index - 1]["op"]:
      jax.clear_caches()  # a process can map only so many compiled programs
      print(f"{index} of {len(cells)} cells, next {cell['op']}", flush=True)
    result: dict[str, Any] = {}
    for _ in range(1 + args.repeats):
      try:
        result = measure_cell(cell, args)
      except (NotImplementedError, TypeError, ValueError) as error:
        print(f"{cell}: skipped, {type(error).__name__}: {str(error)[:100]}", flush=True)
        break
      if speedup(result) >= args.below:
        break
    if result:
      rows.append(cell | result)
      if speedup(rows[-1]) < args.below:
        print(line_of(rows[-1]), flush=True)
  return rows, []


def compact(row: dict[str, Any]) -> dict[str, Any]:
  """A row with fewer names, for a file of thousands."""
  microseconds = {name: timing.rounded(1e6 * x) for name, x in row["seconds"].items()}
  ratio = row["speedup"]["stock"]
  return {key: row[key] for key in ("op", "n", "batch", "dtype")} | {
      "us": [microseconds["ours"], microseconds["stock"]],
      "ratio": [ratio["median"], ratio["q1"], ratio["q3"]]}


def main() -> None:
  parser = argparse.ArgumentParser(description="Times all routed operations of small batches.")
  add = parser.add_argument
  add("--ops", nargs="+", choices=list(CASES), default=list(CASES), metavar="OP",
      help=", ".join(CASES))
  add("--sizes", nargs="+", type=int, default=SIZES, metavar="N")
  add("--batches", nargs="+", type=int, default=BATCHES, metavar="BATCH")
  add("--dtypes", nargs="+", choices=["f32", "f64", "c64", "c128"],
      default=["f32", "f64", "c64", "c128"], metavar="DTYPE")
  add("--calls", type=int, default=16, help="of the primitive in a program")
  add("--rounds", type=int, default=15)
  add("--seconds-per-cell", type=float, default=0.2)
  add("--below", type=float, default=0.95, help="slower cells are measured again and listed")
  add("--minutes", type=float, default=float("inf"), help="no further cell after this time")
  add("--cpu-time", action="store_true",
      help="seconds of this process on processors, for a busy machine: pin it to one core")
  add("--repeats", type=int, default=2, help="of slower cells")
  add("--output", type=pathlib.Path, help="a file of JSON for all rows")
  args = parser.parse_args()
  jax.config.update("jax_enable_x64", True)
  jax.config.update("jax_platforms", "cpu")
  rows, left = measure_all(args)
  if args.output:
    header = records.describe_run("routed.py", ["jax", "scipy"])
    records.write(args.output, header | {"not_measured": len(left)}, [compact(row) for row in rows])
  slow = sorted((row for row in rows if speedup(row) < args.below), key=speedup)
  print()
  for row in slow:
    print(line_of(row))
  for batch in args.batches:
    of_batch = [row for row in rows if row["batch"] == batch]
    below = sum(speedup(row) < args.below for row in of_batch)
    print(f"batch {batch}: {below} of {len(of_batch)} cells below {args.below}")
  if left:
    names = ", ".join(dict.fromkeys(f"{cell['op']} of batch {cell['batch']}" for cell in left))
    print(f"Not measured for lack of time: {len(left)} cells: {names}")
  print(f"{len(slow)} of {len(rows)} cells below {args.below}")


if __name__ == "__main__":
  main()
