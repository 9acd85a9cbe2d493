"""`python -m linalg`: checks and times every operation on a sharded batch.

Each operation is compiled for a batch that is sharded over all devices. The command computes its
residuals, compares its results with SciPy's, counts the collectives in its compiled program, and
times it against stock JAX. Functions that are composed of others in Python have no residual. Their
error is the distance from SciPy's or NumPy's result in double precision. The functions that
`linalg.scipy` adds take long to compile, and those of `linalg.structured` take blocks of that size,
so they run only when named.
"""

import argparse
import difflib
import os
import sys
import textwrap
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from rich.console import Console

import linalg
from linalg._catalogue import SCIPY, STRUCTURED, TABLE, Case
from linalg.distributed import report

VIRTUAL_DEVICES = 8
ROUNDS = 7
COMPARED = 16  # matrices of the batch that SciPy factors too
WIDTH = 80


class Outcome(NamedTuple):
  """The observations of one case. Times are in seconds."""

  case: Case
  residual: float | None  # None for a composed function
  difference: float  # from SciPy's results, scaled
  collectives: int
  in_place: bool  # whether every result is sharded as the operands are
  ours: float
  stock: float | None  # None if there is no such function

  def accurate(self) -> bool:
    return max(self.residual or 0, self.difference) <= self.case.limit  # False for NaN

  def failures(self) -> list[str]:
    name, found = self.case.name, []
    if not self.accurate():
      residual = "" if self.residual is None else f"residual {self.residual:.3g} or "
      found.append(
          f"{name}: {residual}difference from SciPy {self.difference:.3g} exceeds "
          f"{self.case.limit:g}")
    if self.collectives:
      found.append(f"{name}: {self.collectives} collectives in the compiled program")
    if not self.in_place:
      found.append(f"{name}: a result is not sharded as its operands are")
    return found

  def line(self) -> str:
    return _line(
        self.case.name, "–" if self.residual is None else f"{self.residual:.2g}",
        f"{self.difference:.2g}", f"{self.case.limit:g}", str(self.collectives),
        _milliseconds(self.ours), "–" if self.stock is None else _milliseconds(self.stock),
        "–" if self.stock is None else f"{self.stock / self.ours:.1f}×")


def _milliseconds(seconds: float) -> str:
  return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _line(name: str, *columns: str) -> str:
  widths = (8, 7, 5, 5, 7, 8, 7)
  return f"{name:<27}" + " ".join(f"{x:>{k}}" for x, k in zip(columns, widths, strict=True))


HEADING = _line("operation", "residual", "SciPy", "limit", "coll.", "ours ms", "stock ms", "ratio")


def cases() -> list[Case]:
  """The usual case of each handler and of each composed function."""
  return [case for case in TABLE if not case.variant]


def residual(case: Case, operands: tuple[np.ndarray, ...], results: list[np.ndarray]) -> float:
  """The worst scaled residual of the batch; infinite if the results have the wrong form."""
  try:
    return case.ratio(operands, results)
  except AssertionError:
    return float("inf")


def difference(case: Case, operands: tuple[np.ndarray, ...], results: list[np.ndarray]) -> float:
  """The largest difference from SciPy's results, over their size and n eps cond(A)."""
  n = max(operands[0].shape[-1], 1)
  # Invariants of eigenvectors have n³ numbers each.
  count = min(COMPARED, len(operands[0]), max(1, 2**24 // n**3))
  if case.exact:
    return case.ratio([x[:count] for x in operands], [x[:count] for x in results])
  invariant = [np.asarray(x) for x in case.invariant(tuple(x[:count] for x in results))]
  worst = 0.0
  for i in range(count):
    one = [x[i] for x in operands]
    for actual, expected in zip(invariant, case.expected(*one), strict=True):
      error = float(np.max(np.abs(actual[i] - expected), initial=0))
      if np.issubdtype(expected.dtype, np.integer):
        worst = max(worst, error)
      else:
        condition = max(np.linalg.cond(x) if x.ndim == 2 else 1 for x in one)
        unit = n * np.finfo(one[0].dtype).eps * max(condition, 1)
        worst = max(worst, error / (unit * max(np.max(np.abs(expected), initial=0), 1)))
  return worst


def seconds(function: Callable[..., Any], operands: list[jax.Array]) -> float:
  start = time.perf_counter()
  jax.block_until_ready(function(*operands))
  return time.perf_counter() - start


def observe(case: Case, sharding: NamedSharding, options: argparse.Namespace) -> Outcome:
  batch, n, dtype = (options.batch,), options.n, np.dtype(options.dtype)
  operands = case.operands(np.random.default_rng(0), batch, n, n, dtype)
  sharded = [jax.device_put(x, sharding) for x in operands]
  ours = jax.jit(case.call).lower(*sharded).compile()
  contestants = [ours]
  if case.stock is not None and dtype in case.stock_dtypes and not case.stock_hangs:
    contestants.append(jax.jit(case.stock).lower(*sharded).compile())
  results = jax.tree.leaves([jax.block_until_ready(f(*sharded)) for f in contestants][0])
  # Interleaved, so that a change of the machine's speed affects both alike.
  times = [[seconds(f, sharded) for f in contestants] for _ in range(ROUNDS)]
  medians = [float(x) for x in np.median(times, axis=0)]

  arrays = [np.asarray(x) for x in results]
  return Outcome(
      case, None if case.exact else residual(case, operands, arrays),
      difference(case, operands, arrays), sum(report(ours).collectives.values()),
      all(x.sharding.is_equivalent_to(sharding, x.ndim) for x in results),
      medians[0], medians[1] if len(medians) > 1 else None)


def describe(sharding: NamedSharding, options: argparse.Namespace) -> str:
  devices = jax.devices()
  mesh = ", ".join(f"{name}: {size}" for name, size in sharding.mesh.shape.items())
  return textwrap.fill(
      f"{len(devices)} {devices[0].device_kind} devices, mesh ({mesh}), {options.batch} "
      f"{options.dtype} matrices with n={options.n}; linalg {linalg.__version__}, "
      f"jax {jax.__version__}, jaxlib {version('jaxlib')}, SciPy {scipy.__version__}. "
      "Residuals and differences from SciPy are scaled, and have a limit; coll.: collectives in "
      "the compiled program.", WIDTH)


def parse(arguments: list[str]) -> argparse.Namespace:
  names = [case.name for case in cases()]
  parser = argparse.ArgumentParser(
      prog="python -m linalg", description=__doc__.partition("\n\n")[2] if __doc__ else None)
  parser.add_argument(
      "operations", nargs="*", metavar="OPERATION",
      help="those to run instead of all but linalg.scipy's and linalg.structured's: "
      + ', '.join(names))
  parser.add_argument("--batch", type=int, default=4096, help="number of matrices (%(default)s)")
  parser.add_argument("--n", type=int, default=16, help="their size (%(default)s)")
  parser.add_argument(
      "--dtype", default="float64", choices=["float32", "float64", "complex64", "complex128"])
  options = parser.parse_args(arguments)
  if unknown := set(options.operations) - set(names):
    near = {x for name in unknown for x in difflib.get_close_matches(name, names)}
    hint = f"; did you mean {' or '.join(sorted(near))}?" if near else ""
    parser.error(f"unknown operations: {', '.join(sorted(unknown))}{hint}")
  return options


def main(arguments: list[str]) -> int:
  options = parse(arguments)
  # JAX reads this when it first looks for devices, not when it is imported.
  flags = os.environ.get("XLA_FLAGS", "")
  if "xla_force_host_platform_device_count" not in flags:
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={VIRTUAL_DEVICES}"
  jax.config.update("jax_enable_x64", True)

  mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Auto,))
  sharding = NamedSharding(mesh, PartitionSpec("batch"))
  if options.batch < 1 or options.n < 1 or options.batch % mesh.size:
    sys.exit(f"--n must be positive, and --batch a positive multiple of the {mesh.size} devices.")

  console = Console(highlight=False, markup=False, soft_wrap=True)
  console.print(describe(sharding, options))
  console.print(HEADING, style="bold")
  failures = []
  named_only = {case.name for case in SCIPY + STRUCTURED}
  names = options.operations or {case.name for case in cases()} - named_only
  for case in cases():
    if case.name in names:
      outcome = observe(case, sharding, options)
      failures += outcome.failures()
      console.print(outcome.line(), style="bold red" if outcome.failures() else None)
  for line in failures:
    console.print(f"FAILED {line}", style="bold red")
  if not failures:
    console.print("All are within their limits; no collectives.", style="green")
  return 1 if failures else 0
