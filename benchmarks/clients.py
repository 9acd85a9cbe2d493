"""Times programs of other libraries, with JAX's linear algebra and with this package's.

  pip install numpyro tinygp lineax dynamax optax diffrax qpax folx gpjax kfac-jax probdiffeq \
    optimistix dynamiqs jaxsim
  python benchmarks/clients.py

prints, for the values and for the gradients:

- JAX's median time, and the share of linear algebra in it;
- the median over rounds of JAX's time over the accelerated program's;
- the largest difference of the results, relative to the largest entry;
- the time to trace and compile the accelerated program, over JAX's;
- the number of calls of each handler.

A program is left out, and the table says so, if its library is not installed.
"""

# pyright: reportMissingImports=false

import argparse
import collections
import concurrent.futures
import functools
import glob
import json
import logging
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import linalg
from jobs import ENVIRONMENT, turn
from records import describe_machine, installed, write
from timing import measure, summarise


class Program(NamedTuple):
  library: str
  make: Callable[[], tuple[Callable[..., Any], Any]]  # a function of one operand, and the operand
  differentiable: bool = True


def _tinygp(points, kernel_name):
  """The negative log likelihood of a process at `points` points, and its parameters."""
  from tinygp import GaussianProcess, kernels

  rng = np.random.default_rng(0)
  x = jnp.asarray(np.sort(rng.uniform(0, 10, points)))
  y = jnp.sin(x) + 0.1 * jnp.asarray(rng.standard_normal(points))

  def loss(theta):
    kernel = jnp.exp(theta[0]) * getattr(kernels, kernel_name)(jnp.exp(theta[1]))
    return -GaussianProcess(kernel, x, diag=jnp.exp(theta[2])).log_probability(y)

  return loss, jnp.array([0.1, 0.2, -2.0]), rng


def tinygp_regression():
  """The first example of tinygp's documentation: one process, 100 points."""
  loss, theta, _ = _tinygp(100, "ExpSquared")
  return loss, theta


def tinygp_ensemble():
  """A process of 24 points for a batch of 512 parameters."""
  loss, theta, rng = _tinygp(24, "Matern32")
  draws = jnp.asarray(rng.normal(0, 0.1, (512, 3))) + theta
  return lambda draws: jnp.sum(jax.vmap(loss)(draws)), draws


def numpyro_normals():
  """The densities of 512 normal distributions in 8 dimensions, from their covariances."""
  import numpyro.distributions as dist

  rng = np.random.default_rng(0)
  points = jnp.asarray(rng.standard_normal((512, 8)))

  def loss(root):
    covariance = root @ root.mT + jnp.eye(8)
    normal = dist.MultivariateNormal(jnp.zeros(8), covariance_matrix=covariance)
    return -jnp.sum(normal.log_prob(points))

  return loss, jnp.asarray(rng.standard_normal((512, 8, 8)))


def numpyro_chains():
  """The potential energy of a regression with correlated effects of 6 groups, for 1000 chains."""
  import numpyro
  import numpyro.distributions as dist
  from numpyro.infer.util import potential_energy

  rng = np.random.default_rng(0)
  x, y = jnp.asarray(rng.standard_normal((50, 6))), jnp.asarray(rng.standard_normal(50))

  def model():
    scale = numpyro.sample("scale", dist.HalfNormal(jnp.ones(6)).to_event(1))
    correlation = numpyro.sample("correlation", dist.LKJ(6, 2.0))
    covariance = correlation * scale[:, None] * scale
    beta = numpyro.sample(
        "beta", dist.MultivariateNormal(jnp.zeros(6), covariance_matrix=covariance))
    numpyro.sample("y", dist.Normal(x @ beta, 1.0), obs=y)

  energy = lambda parameters: potential_energy(model, (), {}, parameters)
  parameters = {
      "scale": jnp.asarray(rng.normal(0, 0.3, (1000, 6))),
      "correlation": jnp.asarray(rng.normal(0, 0.3, (1000, 15))),
      "beta": jnp.asarray(rng.normal(0, 1, (1000, 6)))}
  return lambda parameters: jnp.sum(jax.vmap(energy)(parameters)), parameters


def _lineax(solver, rows, cols):
  import lineax

  rng = np.random.default_rng(0)
  b = jnp.asarray(rng.standard_normal((1024, rows)))

  def solve(a, b):
    return lineax.linear_solve(
        lineax.MatrixLinearOperator(a), b, getattr(lineax, solver)()).value

  a = jnp.asarray(rng.standard_normal((1024, rows, cols)))
  return lambda a: jnp.sum(jax.vmap(solve)(a, b) ** 2), a


def _dynamax(function):
  """4 states and 2 observations, for 100 steps and a batch of 256 dynamics."""
  from dynamax.linear_gaussian_ssm import LinearGaussianSSM

  model = LinearGaussianSSM(4, 2)
  emissions = jnp.asarray(np.random.default_rng(0).standard_normal((100, 2)))

  def value(dynamics):
    parameters, _ = model.initialize(
        jax.random.key(0),
        initial_mean=jnp.zeros(4),
        initial_covariance=jnp.eye(4),
        dynamics_weights=dynamics,
        dynamics_covariance=0.01 * jnp.eye(4),
        emission_weights=jnp.eye(2, 4),
        emission_covariance=0.1 * jnp.eye(2))
    return function(model, parameters, emissions)

  noise = np.random.default_rng(1).standard_normal((256, 4, 4))
  dynamics = jnp.eye(4).at[0, 2].set(0.1).at[1, 3].set(0.1) + 0.01 * jnp.asarray(noise)
  return lambda dynamics: jnp.sum(jax.vmap(value)(dynamics)), dynamics


def dynamax_filter():
  return _dynamax(lambda model, parameters, y: model.filter(parameters, y).marginal_loglik)


def dynamax_smoother():
  return _dynamax(
      lambda model, parameters, y: jnp.sum(model.smoother(parameters, y).smoothed_means**2))


def diffrax_implicit():
  """Robertson's stiff reaction from 256 initial states, by Kvaerno5."""
  import diffrax

  def vector_field(t, y, args):
    x, y, z = y
    a, b = -0.04 * x + 1e4 * y * z, 3e7 * y * y
    return jnp.array([a, -a - b, b])

  def final(start):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(vector_field), diffrax.Kvaerno5(), t0=0.0, t1=10.0, dt0=1e-4, y0=start,
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-8)).ys[0]

  start = np.array([1.0, 0, 0]) + 0.01 * np.random.default_rng(0).random((256, 3))
  return lambda start: jnp.sum(jax.vmap(final)(start) ** 2), jnp.asarray(start)


def _optax(make):
  """One step for 32 layers of 64 times 64."""
  import optax

  rng = np.random.default_rng(0)
  parameters = {f"layer{i}": jnp.asarray(rng.standard_normal((64, 64))) for i in range(32)}
  gradients = jax.tree.map(lambda x: 0.1 * x, parameters)
  optimizer = make(optax)
  state = optimizer.init(parameters)
  return lambda gradients: optimizer.update(gradients, state, parameters)[0], gradients


def qpax_programs():
  """200 quadratic programs in 10 variables with 5 equations and 20 bounds."""
  import qpax

  rng = np.random.default_rng(0)
  n, batch = 10, 200
  root = rng.standard_normal((batch, n, n))
  q = jnp.asarray(root @ root.swapaxes(-1, -2) + np.eye(n))
  a, b = (jnp.asarray(rng.standard_normal(shape)) for shape in ((batch, 5, n), (batch, 5)))
  bounds = jnp.concatenate([jnp.eye(n), -jnp.eye(n)])

  def solution(q, linear, a, b):
    # The tolerance is tight, so that all methods stop where rounding stops them.
    return qpax.solve_qp_primal(q, linear, a, b, bounds, 5 * jnp.ones(2 * n), solver_tol=1e-10)

  return lambda linear: jnp.sum(jax.vmap(solution)(q, linear, a, b) ** 2), jnp.asarray(
      rng.standard_normal((batch, n)))


def folx_energy():
  """The kinetic energies of 64 samples of 16 electrons, from the Laplacian of log |det|."""
  import folx

  rng = np.random.default_rng(0)
  weights = jnp.asarray(rng.standard_normal((48, 256)) / 7)

  def log_wave(x):
    return jnp.linalg.slogdet(jnp.tanh(x @ weights).reshape(16, 16))[1]

  def energy(x):
    found = folx.forward_laplacian(log_wave)(x)
    return -0.5 * (found.laplacian + jnp.sum(found.jacobian.dense_array**2))

  return jax.vmap(energy), jnp.asarray(rng.standard_normal((64, 48)))


def gpjax_regression():
  """The negative log marginal likelihood of a process at 300 points."""
  import gpjax

  rng = np.random.default_rng(0)
  x = np.sort(rng.uniform(0, 10, 300))
  y = np.sin(x) + 0.1 * rng.standard_normal(300)
  data = gpjax.Dataset(X=jnp.asarray(x[:, None]), y=jnp.asarray(y[:, None]))

  def loss(theta):
    kernel = gpjax.kernels.RBF(lengthscale=jnp.exp(theta[0]), variance=jnp.exp(theta[1]))
    prior = gpjax.gps.Prior(mean_function=gpjax.mean_functions.Zero(), kernel=kernel)
    model = prior * gpjax.likelihoods.Gaussian(obs_stddev=jnp.exp(theta[2]))
    return -gpjax.objectives.conjugate_mll(model, data)

  return loss, jnp.array([0.1, 0.2, -1.0])


def kfac_inverses():
  """The damped inverses of both Kronecker factors of 32 layers of 64."""
  import kfac_jax

  root = np.random.default_rng(0).standard_normal((2, 32, 64, 64))
  factors = jnp.asarray(root @ root.swapaxes(-1, -2) / 64)

  def inverses(factors):
    inverse = functools.partial(
        kfac_jax.utils.pi_adjusted_kronecker_inverse, damping=jnp.asarray(1e-2))
    return jax.vmap(inverse)(*factors)

  return inverses, factors


def probdiffeq_filter():
  """50 steps of a probabilistic solver for 64 Lotka-Volterra systems."""
  from probdiffeq import ivpsolve, probdiffeq

  @probdiffeq.ode
  def field(u, /, *, t):
    del t
    return jnp.array([0.5 * u[0] - 0.05 * u[0] * u[1], -0.5 * u[1] + 0.05 * u[0] * u[1]])

  def final(start):
    coefficients, _ = probdiffeq.jetexpand_ode_padded_scan(num=3)(field, [start], t=0.0)
    ssm = probdiffeq.state_space_model_dense()
    prior = ssm.prior_wiener_integrated(coefficients)
    solver = probdiffeq.solver(
        strategy=probdiffeq.strategy_filter(), constraint=ssm.constraint_ode_ts1(field))
    solve = ivpsolve.solve_fixed_grid(solver=solver)
    return solve(prior, grid=jnp.linspace(0.0, 2.0, 51)).u.mean[0][-1]

  start = np.array([20.0, 20.0]) + np.random.default_rng(0).random((64, 2))
  return lambda start: jnp.sum(jax.vmap(final)(start) ** 2), jnp.asarray(start)


def optimistix_fits():
  """256 fits of two decays to 20 points, by Levenberg and Marquardt's method."""
  import optimistix

  rng = np.random.default_rng(0)
  times = jnp.linspace(0, 4, 20)
  decays = lambda p: p[0] * jnp.exp(-p[1] * times) + p[2] * jnp.exp(-p[3] * times)
  true = np.array([1.0, 0.4, 2.0, 2.5]) * (1 + 0.1 * rng.standard_normal((256, 4)))
  measured = jax.vmap(decays)(jnp.asarray(true)) + 0.01 * rng.standard_normal((256, 20))
  # Values differ by what a step below the tolerance changes, so by more than rounding.
  method = optimistix.LevenbergMarquardt(rtol=1e-10, atol=1e-10)

  def fit(y):
    return optimistix.least_squares(
        lambda p, y: decays(p) - y, method, jnp.array([1.0, 0.5, 2.0, 2.0]), args=y, max_steps=64,
        throw=False).value

  return lambda measured: jnp.sum(jax.vmap(fit)(measured)), measured


def dynamiqs_rouchon():
  """100 steps of Rouchon's method for 16 damped oscillators of 16 levels."""
  import dynamiqs

  dynamiqs.set_precision("double")
  levels = 16
  a = dynamiqs.destroy(levels)
  hamiltonian = a.dag() @ a.dag() @ a @ a + 0.5 * (a + a.dag())
  times = jnp.linspace(0, 0.5, 3)

  def photons(rate):
    found = dynamiqs.mesolve(
        hamiltonian, [jnp.sqrt(rate) * a], dynamiqs.coherent(levels, 1.0), times,
        exp_ops=[a.dag() @ a], method=dynamiqs.method.Rouchon2(dt=5e-3), progress_meter=False)
    return found.expects[0, -1].real

  return lambda rates: jnp.sum(jax.vmap(photons)(rates)), jnp.linspace(0.5, 1.5, 16)


def _arm(joints):
  """An arm of equal links on the ground, in the format SDF."""
  inertia = "".join(f"<i{axes}>{0.02 * (axes[0] == axes[1])}</i{axes}>" for axes in (
      "xx", "xy", "xz", "yy", "yz", "zz"))
  link = ('<link name="link{0}"><pose relative_to="{1}">0 0 0 0 0 0</pose><inertial><pose>0 0 0.1 '
          f"0 0 0</pose><mass>1</mass><inertia>{inertia}</inertia></inertial></link>")
  joint = ('<joint name="joint{0}" type="revolute"><pose relative_to="link{0}">0 0 0.2 0 0 0</pose>'
           "<parent>link{0}</parent><child>link{1}</child><axis><xyz>{2}</xyz><limit>"
           "<lower>-3</lower><upper>3</upper><effort>9</effort></limit></axis></joint>")
  parts = [link.format(i, f"joint{i - 1}" if i else "__model__") for i in range(joints + 1)]
  parts += [joint.format(i, i + 1, "0 1 0" if i % 2 else "0 0 1") for i in range(joints)]
  base = '<joint name="base" type="fixed"><parent>world</parent><child>link0</child></joint>'
  return f'<sdf version="1.10"><model name="arm">{"".join(parts)}{base}</model></sdf>'


def jaxsim_arms():
  """The accelerations of 256 arms of 7 joints, from their mass matrices."""
  import jaxsim.api as js

  joints = 7
  model = js.model.JaxSimModel.build_from_model_description(model_description=_arm(joints))

  def accelerations(positions):
    data = js.data.JaxSimModelData.build(
        model=model, joint_positions=positions, joint_velocities=0.1 * jnp.ones(joints))
    return js.model.forward_dynamics_crb(model=model, data=data)[1]

  positions = np.random.default_rng(0).uniform(-1, 1, (256, joints))
  return lambda positions: jnp.sum(jax.vmap(accelerations)(positions) ** 2), jnp.asarray(positions)


PROGRAMS = {
    "tinygp, 1 process of 100": Program("tinygp", tinygp_regression),
    "tinygp, 512 of 24": Program("tinygp", tinygp_ensemble),
    "numpyro, 512 normals in 8": Program("numpyro", numpyro_normals),
    "numpyro, 1000 chains": Program("numpyro", numpyro_chains),
    "lineax LU, 1024 of 6": Program("lineax", lambda: _lineax("LU", 6, 6)),
    "lineax QR, 1024 of 12 by 6": Program("lineax", lambda: _lineax("QR", 12, 6)),
    "lineax SVD, 1024 of 12 by 6": Program("lineax", lambda: _lineax("SVD", 12, 6)),
    "dynamax filter, 256 of 4": Program("dynamax", dynamax_filter),
    "dynamax smoother, 256 of 4": Program("dynamax", dynamax_smoother),
    "diffrax Kvaerno5, 256 of 3": Program("diffrax", diffrax_implicit, differentiable=False),
    "optax Muon, 32 of 64": Program(
        "optax", lambda: _optax(lambda optax: optax.contrib.muon(1e-3)), differentiable=False),
    "qpax, 200 of 10": Program("qpax", qpax_programs),
    "folx, 64 of 16": Program("folx", folx_energy, differentiable=False),
    "gpjax, 300 points": Program("gpjax", gpjax_regression),
    "kfac-jax, 64 inverses of 64": Program("kfac-jax", kfac_inverses, differentiable=False),
    "probdiffeq, 64 of 2": Program("probdiffeq", probdiffeq_filter),
    "optimistix, 256 fits of 4": Program("optimistix", optimistix_fits),
    "dynamiqs Rouchon, 16 of 16": Program("dynamiqs", dynamiqs_rouchon),
    "jaxsim, 256 arms of 7": Program("jaxsim", jaxsim_arms, differentiable=False)}

MODES = {"jax": {"enabled": False}, "accelerated": {}, "products": {"products": True}}


class _Routes(logging.Handler):
  """Counts the handlers that primitives are routed to."""

  def __init__(self):
    super().__init__(logging.DEBUG)
    self.counts = collections.Counter()

  def emit(self, record):
    if match := re.fullmatch(r"linalg_(\w+)", str(record.args[-1])):  # type: ignore[index]
      self.counts[match[1]] += 1


# The names of JAX's linear algebra in a compiled program: calls of LAPACK, the operations that a
# routed primitive is otherwise lowered to, and products.
_LINEAR_ALGEBRA = re.compile(
    r"/(cholesky|lu|lu_pivots_to_permutation|geqrf|householder_product|ormqr|qr|eigh|svd|eig|schur|"
    r"triangular_solve|tridiagonal_solve|sort)(/|$)")
_PRODUCT = re.compile(r"dot_general$")
_SECONDS_PROFILED = 0.2
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = .*?[\s)}]([a-z][\w\-]*)\(")


def shares(compiled: Any, operand: Any, seconds: float) -> dict[str, float | None]:
  """The shares of linear algebra and of products in the time of JAX's program, by its profiler.

  Operations that contain others do not count. A call takes `seconds`.
  """
  kinds, names = {}, {}
  for line in compiled.as_text().splitlines():
    if instruction := _INSTRUCTION.match(line):
      kinds[instruction[1]] = instruction[2]
      name = re.search(r'op_name="([^"]*)"', line)
      names[instruction[1]] = name[1] if name else ""
  spent = collections.Counter()
  with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder):
      for _ in range(min(100, 3 + int(_SECONDS_PROFILED / seconds))):
        jax.block_until_ready(compiled(operand))
    (found,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    for plane in jax.profiler.ProfileData.from_file(found).planes:
      for event in (event for line in plane.lines for event in line.events):
        op = next((value for key, value in event.stats if key == "hlo_op"), None)
        if op not in kinds or kinds[op] in ("while", "call", "conditional"):
          continue
        product = kinds[op] == "dot" or _PRODUCT.search(names[op])
        decomposition = kinds[op] == "custom-call" or _LINEAR_ALGEBRA.search(names[op])
        spent["products" if product else "decompositions" if decomposition else "other"] += (
            event.duration_ns)
  total = sum(spent.values())  # 0 where the profiler names no operations
  return {
      kind: spent[kind] / total if total else None for kind in ("decompositions", "products")}


def compare(program: Program, gradient: bool, args: argparse.Namespace) -> dict[str, Any]:
  """The times, the routes, and the largest difference of the results from JAX's."""
  function, operand = program.make()
  if gradient:
    function = jax.grad(function)
  routes = _Routes()
  log = logging.getLogger("linalg.accelerate")
  log.addHandler(routes)
  log.setLevel(logging.DEBUG)
  compiled, results, seconds_to_compile = {}, {}, {mode: [] for mode in MODES}
  with linalg.accelerated(False):
    jax.jit(function).lower(operand).compile()  # the first in a process takes longer
  for mode, options in [*MODES.items()] * args.compilations:
    routes.counts.clear()
    with linalg.accelerated(**options):
      jax.clear_caches()
      start = time.perf_counter()
      compiled[mode] = jax.jit(function).lower(operand).compile()
      seconds_to_compile[mode].append(time.perf_counter() - start)
  log.removeHandler(routes)
  contestants = {
      mode: functools.partial(lambda f: jax.block_until_ready(f(operand)), f)
      for mode, f in compiled.items()}
  with turn(args.turns):
    for mode, call in compiled.items():
      results[mode] = [np.asarray(x) for x in jax.tree.leaves(call(operand))]
    samples = measure(
        contestants, args.rounds, args.seconds,
        clock=time.process_time if args.cpu_time else time.perf_counter)
    spent = shares(compiled["jax"], operand, float(np.median(samples["jax"])))
  times = {
      mode: summarise({"ours": samples[mode], "jax": samples["jax"]})
      for mode in ("accelerated", "products")}
  difference = max(
      float(np.max(np.abs(x - y)) / np.max(np.abs(y)))
      for x, y in zip(results["products"], results["jax"], strict=True))
  return {
      "times": times, "difference": difference, "routes": dict(routes.counts),
      "shares": spent, "seconds_to_compile": seconds_to_compile}


def geometric_mean(ratios: list[float]) -> float:
  return float(np.exp(np.mean(np.log(ratios))))


def compile_ratio(row: dict[str, Any]) -> float:
  seconds = {mode: np.median(samples) for mode, samples in row["seconds_to_compile"].items()}
  return max(seconds["accelerated"], seconds["products"]) / seconds["jax"]


def _is_installed(library: str) -> bool:
  return installed(library.replace("-", "_"))


FAILED = "ended with"
ROW = "row "  # before each row that a program's process prints


def measure_apart(
    name: str, args: argparse.Namespace, turns: str
) -> tuple[dict[str, Any], str | None]:
  """The rows of one program, and why some are missing, if so.

  It runs in a process of its own with a time limit: JAX's calls of LAPACK may deadlock (seen with
  jaxlib 0.10.2).
  """
  library = PROGRAMS[name].library
  if not _is_installed(library):
    return {}, f"{library} is not installed"
  command = [sys.executable, __file__, "--worker", "--programs", name]
  for option in ("rounds", "seconds", "compilations"):
    command += [f"--{option}", str(getattr(args, option))]
  command += ["--turns", turns, *["--cpu-time"] * args.cpu_time]
  missing = None
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
    try:
      printed, _ = process.communicate(timeout=args.limit)
      if process.returncode:
        missing = f"{FAILED} {process.returncode}"
    except subprocess.TimeoutExpired:
      process.kill()
      printed, _ = process.communicate()
      missing = f"not all within {args.limit:g} s"
  lines = [line for line in printed.splitlines(keepends=True) if line.startswith(ROW)]
  rows = [json.loads(line.removeprefix(ROW)) for line in lines if line.endswith("\n")]
  return {name: row for found in rows for name, row in found.items()}, missing


def print_rows(name: str, args: argparse.Namespace) -> None:
  jax.config.update("jax_enable_x64", True)
  program = PROGRAMS[name]
  kinds = {name: False} | ({f"grad {name}": True} if program.differentiable else {})
  for row, gradient in kinds.items():
    print(ROW + json.dumps({row: compare(program, gradient, args)}), flush=True)


def main() -> None:
  parser = argparse.ArgumentParser(
      description="Times other libraries' programs, with JAX's linear algebra and accelerated.")
  parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
  parser.add_argument("--rounds", type=int, default=9)
  parser.add_argument("--seconds", type=float, default=5, help="at most, for one row")
  parser.add_argument("--cpu-time", action="store_true",
                      help="seconds of the process on processors, for a busy machine")
  parser.add_argument("--limit", type=float, default=120,
                      help="seconds for one program in all, its waits for turns included")
  parser.add_argument("--compilations", type=int, default=3, help="of each, whose times are taken")
  parser.add_argument("--jobs", type=int, default=1,
                      help="processes that compile at a time, for a GPU; they measure in turn")
  parser.add_argument("--turns", metavar="FILE", help="what processes lock that measure in turn")
  parser.add_argument("--output", type=pathlib.Path, help="a JSON file for the times")
  parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.worker:
    print_rows(args.programs[0], args)
    return
  table = Table(title=f"float64, jax {jax.__version__}")
  for column in ("program", "JAX, ms", "decompositions", "products", "accelerated", "products too",
                 "difference", "to compile", "handlers"):
    table.add_column(column, justify="left" if column in ("program", "handlers") else "right")
  rows: dict[str, Any] = {}
  failed: list[str] = []
  with (
      tempfile.TemporaryDirectory() as folder,
      concurrent.futures.ThreadPoolExecutor(args.jobs) as pool):
    apart = functools.partial(measure_apart, args=args, turns=args.turns or f"{folder}/turns")
    for name, (found, missing) in zip(args.programs, pool.map(apart, args.programs), strict=True):
      rows |= found
      if missing:
        table.add_row(name, missing, *[""] * 7)
        failed += [name] * missing.startswith(FAILED)
  for name, row in rows.items():
    times, ratio = row["times"], lambda x: f"{x['speedup']['jax']['median']:.2f}"
    table.add_row(
        name, f"{1e3 * times['accelerated']['seconds']['jax']:.3g}",
        *("" if share is None else f"{share:.0%}" for share in row["shares"].values()),
        ratio(times["accelerated"]), ratio(times["products"]), f"{row['difference']:.0e}",
        f"{compile_ratio(row):.2f}",
        ", ".join(f"{k} {v}" for k, v in sorted(row["routes"].items())))
  console = Console(width=160)
  console.print(table)
  if args.output:
    libraries = {x for name in args.programs if _is_installed(x := PROGRAMS[name].library)}
    header = {
        "machine": describe_machine(jax.devices()[0]),
        "versions": {name: version(name) for name in sorted(libraries | {"jax", "jaxlib"})},
        "command": shlex.join(["python", "benchmarks/clients.py", *sys.argv[1:]])}
    write(args.output, header, [{"program": name} | row for name, row in rows.items()])
  if not rows:
    sys.exit("Nothing was measured.")
  bound = {
      name for name, row in rows.items()
      if sum(share or 0 for share in row["shares"].values()) >= 0.5}
  for mode in ("accelerated", "products"):
    ratios = {
        name: row["times"][mode]["speedup"]["jax"]["median"] for name, row in rows.items()}
    most = [ratios[name] for name in bound]
    of_most = f" {geometric_mean(most):.2f}" if most else ""
    console.print(
        f"{mode}: geometric mean {geometric_mean(list(ratios.values())):.2f}, least "
        f"{min(ratios.values()):.2f}; of the {len(most)} of which linear algebra is at least half"
        f"{of_most}")
  if failed:
    sys.exit(f"A process has failed: {', '.join(failed)}.")


if __name__ == "__main__":
  main()
