"""`python -m linalg`: every operation on a sharded batch, checked, counted and timed.

Each operation is compiled for a batch that is sharded over all devices. Its residuals are computed,
its results compared with SciPy's, and the collectives in its compiled program counted; then it is
timed beside stock JAX.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
import scipy.linalg
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from rich.console import Console
from rich.table import Table

import linalg

VIRTUAL_DEVICES = 8
ROUNDS = 7
COMPARED = 16  # matrices of the batch that SciPy factors too
COLLECTIVES = (
    r" (all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute|reduce-scatter)"
    r"(-start)?\(")


class Case(NamedTuple):
  """An operation, ours and stock JAX's, on the same operands."""

  name: str
  ours: Callable[..., Any]
  stock: Callable[..., Any]
  operands: tuple[np.ndarray, ...]
  residual: Callable[..., np.ndarray]  # of the results: one number per matrix
  scipy: Callable[..., Any]  # of one matrix of each operand: the leading results
  limit: float = 30


class Outcome(NamedTuple):
  """What was seen of one case; times are in seconds."""

  case: Case
  residual: float
  difference: float  # from SciPy's results, relative to n eps cond(A)
  collectives: int
  in_place: bool  # whether every result is sharded as the operands are
  ours: float
  stock: float

  def accurate(self) -> bool:
    return max(self.residual, self.difference) <= self.case.limit  # NaN is not

  def failures(self) -> list[str]:
    name, found = self.case.name, []
    if not self.accurate():
      found.append(
          f"{name}: residual {self.residual:.3g} or difference from SciPy {self.difference:.3g} "
          f"exceeds {self.case.limit:g}")
    if self.collectives:
      found.append(f"{name}: {self.collectives} collectives in the compiled program")
    if not self.in_place:
      found.append(f"{name}: a result is not sharded as its operands are")
    return found


def adjoint(a: np.ndarray) -> np.ndarray:
  return a.swapaxes(-1, -2).conj()


def norm(a: np.ndarray) -> np.ndarray:
  return np.linalg.norm(a, axis=(-2, -1))


def apply_pivots(pivots: np.ndarray, size: int) -> np.ndarray:
  permutation = np.tile(np.arange(size), (len(pivots), 1))
  rows = np.arange(len(pivots))
  for i, pivot in enumerate(pivots.T):
    permutation[rows, i], permutation[rows, pivot] = (
        permutation[rows, pivot], permutation[rows, i])
  return permutation


def make_cases(batch: int, n: int, dtype: np.dtype) -> list[Case]:
  """The operations on random matrices, scaled so that no determinant overflows.

  A residual is a backward error relative to n eps ‖A‖, in Frobenius norms. A determinant's is its
  error relative to n eps cond(A), and that of a permutation the number of wrong entries. A
  difference from SciPy is relative to n eps cond(A).
  """
  rng = np.random.default_rng(0)

  def normal(*shape: int) -> np.ndarray:
    x = rng.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
      x = (x + 1j * rng.standard_normal(shape)) / np.sqrt(2)
    return x

  general = (normal(batch, n, n) * np.sqrt(np.e / n)).astype(dtype)
  positive = (general @ adjoint(general) + np.eye(n)).astype(dtype)
  lower = np.linalg.cholesky(positive)
  b = normal(batch, n, 1).astype(dtype)
  pivots = np.minimum(rng.integers(n, size=(batch, n)) + np.arange(n), n - 1).astype(np.int32)

  unit = n * np.finfo(dtype).eps
  wide = np.promote_types(dtype, np.float64)
  a, spd = general.astype(wide), positive.astype(wide)
  sign, logabsdet = np.linalg.slogdet(a)
  det_unit = unit * norm(a) * norm(np.linalg.inv(a))

  def cholesky(l):
    return norm(spd - l @ adjoint(l)) / (unit * norm(spd))

  def lu(packed, _, permutation):
    product = (np.tril(packed, -1) + np.eye(n)) @ np.triu(packed)
    permuted = np.take_along_axis(a, permutation[..., None], axis=-2)
    return norm(permuted - product) / (unit * norm(a))

  def permutation(result):
    return np.sum(result != apply_pivots(pivots, n), axis=-1)

  def orthogonality(q):
    return norm(adjoint(q) @ q - np.eye(n)) / unit

  def qr(q, r):
    return np.maximum(norm(a - q @ r) / (unit * norm(a)), orthogonality(q))

  def eigh(w, v):
    error = norm(spd @ v - v * w[..., None, :]) / (unit * norm(spd))
    return np.maximum(error, orthogonality(v))

  def svd(s, u, vh):
    error = norm(a - (u * s[..., None, :]) @ vh) / (unit * norm(a))
    return np.maximum(error, np.maximum(orthogonality(u), orthogonality(adjoint(vh))))

  def singular_values(s):
    return np.abs(s - np.linalg.svd(a, compute_uv=False)).max(axis=-1) / (unit * norm(a))

  def values_first(function):
    def call(a):
      u, s, vh = function(a)
      return s, u, vh

    return call

  def eig(w, v):
    return norm(a @ v - v * w[..., None, :]) / (unit * norm(a))

  def solution(matrix):
    return lambda x: norm(b - matrix @ x) / (unit * norm(matrix) * norm(x))

  def inv(x):
    return norm(a @ x - np.eye(n)) / (unit * norm(a) * norm(x))

  def det(d):
    return np.abs(d / (sign * np.exp(logabsdet)) - 1) / det_unit

  def slogdet(s, logabs):
    return (np.abs(s - sign) + np.abs(logabs - logabsdet)) / det_unit

  def pivots_to_permutation(function):
    return lambda pivots: function(pivots, n)

  def forward_substitution(function):
    return lambda l, b: function(l, b, left_side=True, lower=True)

  def eigenvalues(w):
    return np.abs(w - np.linalg.eigvalsh(spd)).max(axis=-1) / (unit * norm(spd))

  def product_of_reflectors(a, taus):
    name = "ungqr" if np.iscomplexobj(a) else "orgqr"
    routine: Any = scipy.linalg.get_lapack_funcs(name, (a,))
    return routine(a, taus)[:1]

  reflectors, taus = (np.asarray(x) for x in linalg.qr(general, "raw"))
  reflectors = np.ascontiguousarray(reflectors.swapaxes(-1, -2))
  packed, factor_pivots = (np.asarray(x) for x in linalg.lu_factor(general))

  stock, one = jax.lax.linalg, scipy.linalg
  return [
      Case("cholesky", linalg.cholesky, jnp.linalg.cholesky, (positive,), cholesky,
           lambda a: (one.cholesky(a, lower=True),)),
      Case("lu", linalg.lu, stock.lu, (general,), lu, one.lu_factor),
      Case("lu_pivots_to_permutation", pivots_to_permutation(linalg.lu_pivots_to_permutation),
           pivots_to_permutation(stock.lu_pivots_to_permutation), (pivots,), permutation,
           lambda p: (apply_pivots(p[None], n)[0],), limit=0),
      Case("qr", linalg.qr, jnp.linalg.qr, (general,), qr,
           lambda a: one.qr(a, mode="economic")),
      Case("qr, pivoting", lambda a: linalg.qr(a, pivoting=True)[:2],
           lambda a: stock.qr(a, full_matrices=False, pivoting=True)[:2], (general,),
           lambda q, r: orthogonality(q), lambda a: one.qr(a, mode="economic", pivoting=True)[:2]),
      Case("householder_product", linalg.householder_product, stock.householder_product,
           (reflectors, taus), orthogonality, product_of_reflectors),
      Case("eigh", linalg.eigh, jnp.linalg.eigh, (positive,), eigh,
           lambda a: (one.eigvalsh(a),), limit=60),
      Case("eigvalsh", linalg.eigvalsh, jnp.linalg.eigvalsh, (positive,), eigenvalues,
           lambda a: (one.eigvalsh(a),), limit=60),
      Case("svd", values_first(linalg.svd), values_first(jnp.linalg.svd), (general,), svd,
           lambda a: (one.svdvals(a),), limit=50),
      Case("svdvals", linalg.svdvals, jnp.linalg.svdvals, (general,), singular_values,
           lambda a: (one.svdvals(a),), limit=50),
      Case("eig", linalg.eig, jnp.linalg.eig, (general,), eig, lambda a: (one.eigvals(a),)),
      Case("solve", linalg.solve, jnp.linalg.solve, (general, b), solution(a),
           lambda a, b: (one.solve(a, b),)),
      Case("lu_solve", lambda lu, p, b: linalg.lu_solve((lu, p), b),
           lambda lu, p, b: jax.scipy.linalg.lu_solve((lu, p), b), (packed, factor_pivots, b),
           solution(a), lambda lu, p, b: (one.lu_solve((lu, p), b),)),
      Case("cho_solve", lambda l, b: linalg.cho_solve((l, True), b),
           lambda l, b: jax.scipy.linalg.cho_solve((l, True), b), (lower, b), solution(spd),
           lambda l, b: (one.cho_solve((l, True), b),)),
      Case("triangular_solve", forward_substitution(linalg.triangular_solve),
           forward_substitution(stock.triangular_solve), (lower, b), solution(lower.astype(wide)),
           lambda l, b: (one.solve_triangular(l, b, lower=True),)),
      Case("inv", linalg.inv, jnp.linalg.inv, (general,), inv, lambda a: (one.inv(a),)),
      Case("det", linalg.det, jnp.linalg.det, (general,), det, lambda a: (one.det(a),)),
      Case("slogdet", linalg.slogdet, jnp.linalg.slogdet, (general,), slogdet,
           lambda a: (np.sign(one.det(a)) if a.dtype.kind == "f" else one.det(a) / abs(one.det(a)),
                      np.log(abs(one.det(a))))),
  ]


def difference(case: Case, results: list[np.ndarray]) -> float:
  """The largest from SciPy's results, relative to their size and n eps cond(A)."""
  worst = 0.0
  for i in range(min(COMPARED, len(case.operands[0]))):
    first = case.operands[0][i]
    expected = case.scipy(*(x[i] for x in case.operands))
    for actual, one in zip(results, expected, strict=False):
      error = np.max(np.abs(actual[i] - one))
      if np.issubdtype(np.asarray(one).dtype, np.integer):
        worst = max(worst, float(error))
      else:
        unit = len(first) * np.finfo(first.dtype).eps * max(np.linalg.cond(first), 1)
        worst = max(worst, float(error / (unit * max(np.max(np.abs(one)), 1))))
  return worst


def seconds(function: Callable[..., Any], operands: list[jax.Array]) -> float:
  start = time.perf_counter()
  jax.block_until_ready(function(*operands))
  return time.perf_counter() - start


def observe(case: Case, sharding: NamedSharding) -> Outcome:
  operands = [jax.device_put(x, sharding) for x in case.operands]
  ours = jax.jit(case.ours).lower(*operands).compile()
  stock = jax.jit(case.stock).lower(*operands).compile()
  results = jax.tree.leaves(jax.block_until_ready(ours(*operands)))
  jax.block_until_ready(stock(*operands))
  # Interleaved, so that a change of the machine's pace touches both alike.
  times = [(seconds(ours, operands), seconds(stock, operands)) for _ in range(ROUNDS)]

  wide = [
      np.asarray(x, np.promote_types(x.dtype, np.float64 if x.dtype.kind in "fc" else np.int64))
      for x in results]
  residual = float(np.max(case.residual(*wide)))
  from_scipy = difference(case, [np.asarray(x) for x in results])
  in_place = all(x.sharding.is_equivalent_to(sharding, x.ndim) for x in results)
  collectives = len(re.findall(COLLECTIVES, ours.as_text() or ""))
  return Outcome(case, residual, from_scipy, collectives, in_place, *np.median(times, axis=0))


def make_table(outcomes: list[Outcome]) -> Table:
  table = Table(box=None, header_style="bold", pad_edge=False)
  table.add_column("operation", no_wrap=True)
  for title in ("residual", "from SciPy", "collectives", "ours ms", "stock ms", "speed-up"):
    table.add_column(title, justify="right")
  for o in outcomes:
    table.add_row(
        o.case.name, f"{o.residual:.2g} {'≤' if o.accurate() else '>'} {o.case.limit:g}",
        f"{o.difference:.2g}", str(o.collectives), f"{o.ours * 1e3:.2f}", f"{o.stock * 1e3:.2f}",
        f"{o.stock / o.ours:.1f}×", style="bold red" if o.failures() else None)
  return table


def describe(sharding: NamedSharding, options: argparse.Namespace) -> str:
  devices = jax.devices()
  mesh = ", ".join(f"{name}: {size}" for name, size in sharding.mesh.shape.items())
  return (
      f"{len(devices)} {devices[0].device_kind} devices, mesh ({mesh}), {options.batch} "
      f"{options.dtype} matrices with n={options.n}; linalg {version('linalg')}, "
      f"jax {jax.__version__}, jaxlib {version('jaxlib')}, SciPy {scipy.__version__}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      prog="python -m linalg", description=__doc__.partition("\n\n")[2] if __doc__ else None)
  parser.add_argument("--batch", type=int, default=4096, help="number of matrices (%(default)s)")
  parser.add_argument("--n", type=int, default=16, help="their size (%(default)s)")
  parser.add_argument(
      "--dtype", default="float64", choices=["float32", "float64", "complex64", "complex128"])
  return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
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

  console = Console()
  console.print(describe(sharding, options), highlight=False, soft_wrap=True)
  cases = make_cases(options.batch, options.n, np.dtype(options.dtype))
  outcomes = [observe(case, sharding) for case in cases]
  console.print(make_table(outcomes))
  failures = [line for outcome in outcomes for line in outcome.failures()]
  for line in failures:
    console.print(f"FAILED {line}", style="bold red", highlight=False)
  if not failures:
    console.print(
        "All residuals, and the differences from SciPy, are within their limits; no collectives.",
        style="green")
  return 1 if failures else 0


if __name__ == "__main__":
  sys.exit(main())
