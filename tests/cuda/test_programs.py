"""Tests of the CUDA backend that need no GPU.

The module loads and registers its targets. Programs for CUDA call them in every mode of sharding,
as programs for the CPU do. tests/cuda/gpu has the rest.
"""

import collections
import ctypes
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import cases
import linalg
import linalg.structured
import target_table
from linalg._core import targets as _targets
from linalg._factorizations import solve
from linalg.structured import _partition as partition
from sharded import BATCH, SECOND_BATCH, N, energy, make_mesh, place, split

pytestmark = pytest.mark.extended

ROOT = pathlib.Path(__file__).parents[2]

if _targets.cuda_version() is None:
  pytest.skip("this build has no CUDA module: there was no nvcc", allow_module_level=True)
if reason := _targets.cuda_refusal():
  pytest.skip(f"the CUDA module is not used here: {reason}", allow_module_level=True)

# sharding/test_export.py tests the lowering of the other cases.
HANDLED = cases.with_handlers("cuda")

# Targets that only the CPU has, by the table.
CPU_ALONE = {name for name, target in target_table.TARGETS.items() if not target.cuda}


@pytest.fixture(params=HANDLED, ids=lambda case: case.name)
def case(request):
  return request.param


def _run(code, **environment):
  return subprocess.run(
      [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True,
      timeout=120)


def test_every_target():
  """Catches an operation that silently runs stock JAX on a GPU."""
  cpu, cuda = _targets._cpu.signatures(), _targets._cuda.signatures()
  assert _targets._cuda.targets().keys() == cuda.keys()
  assert cpu.keys() - cuda.keys() == CPU_ALONE
  assert cuda == {target: cpu[target] for target in cpu if target not in CPU_ALONE}


def test_import_needs_no_library_of_nvidias():
  """No driver is needed either: libraries are opened when a handler first runs."""
  result = _run(
      "import linalg; from linalg import _cuda;"
      "maps = open('/proc/self/maps').read();"
      "assert 'cusolver' not in maps and 'cublas' not in maps and 'libcuda.' not in maps;"
      "print(_cuda.runtime_version())")
  assert result.returncode == 0, result.stderr
  assert re.fullmatch(r"\(\d+, \d+\)\n", result.stdout)


def test_missing_library_is_named():
  result = _run("from linalg import _cuda; _cuda.load()", LD_LIBRARY_PATH="")
  if result.returncode == 0:
    pytest.skip("cuSOLVER and cuBLAS are installed here")
  major = _targets._cuda.runtime_version()[0]
  assert re.search(
      rf"RuntimeError: libcublas.so.{major} cannot be opened.*cuda{major}", result.stderr)


def test_ffi_version():
  """One check covers both backends, because they are built with the same headers."""
  assert _targets._cuda.ffi_version() == _targets.ffi_versions()[0]


def test_show_config(capsys):
  linalg.show_config()
  (line,) = (x for x in capsys.readouterr().out.splitlines() if x.startswith("CUDA:"))
  assert re.search(r"\d+\.\d+ built, \d+ GPUs; cuSOLVER and cuBLAS (found|not found)", line)


@pytest.mark.parametrize("plugins, usable", [
    ([], True), ([13], True), ([12, 13], True), ([12], False), ([14], False)])
def test_plugin(plugins, usable):
  assert (_targets.plugin_refusal((13, 0), plugins) is None) is usable


@pytest.mark.parametrize("driver, capabilities, usable", [
    ((13, 0), [], True), ((13, 2), ["8.0", "12.0"], True), ((14, 0), ["9.0"], True),
    ((12, 9), ["9.0"], False), ((13, 0), ["7.5"], False), ((13, 0), ["9.0", "7.0"], False)])
def test_device(driver, capabilities, usable):
  assert (_targets.device_refusal((13, 0), driver, capabilities) is None) is usable


def test_plugin_for_another_cuda(tmp_path):
  """Under jax[cuda12], programs for a GPU are stock JAX's, and show_config says so."""
  (tmp_path / "jax_plugins/xla_cuda12").mkdir(parents=True)
  (tmp_path / "jax_plugins/xla_cuda12/__init__.py").write_text("def initialize(): pass")
  paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
  result = _run(
      "import jax, linalg;"
      "lowered = jax.jit(linalg.cholesky).trace(jax.numpy.eye(3));"
      "assert '@linalg_' in lowered.lower(lowering_platforms=('cpu',)).as_text();"
      "assert '@linalg_' not in lowered.lower(lowering_platforms=('cuda',)).as_text();"
      "linalg.show_config()", PYTHONPATH=os.pathsep.join(paths))
  assert result.returncode == 0, result.stderr
  assert re.search(r"CUDA: .*not used.*jax's plugin is for CUDA 12", result.stdout)


@pytest.fixture
def gpu_of(monkeypatch):
  """Returns a function that makes JAX find one GPU of a compute capability."""
  def find(capability):
    devices = jax.devices
    monkeypatch.setattr(jax, "devices", lambda backend=None: (
        [types.SimpleNamespace(compute_capability=capability)] if backend == "cuda"
        else devices(backend)))
    monkeypatch.setattr(_targets, "_cuda", types.SimpleNamespace(
        runtime_version=lambda: (13, 0), driver_version=lambda: (13, 0),
        device_count=lambda: 1, load=lambda: None,
        runs_without_scratch=_targets._cuda.runs_without_scratch))

  return find


@pytest.mark.parametrize("capability, handled", [("7.5", False), ("8.0", True)])
def test_old_gpu(case, capability, handled, gpu_of, rng, capsys):
  """A GPU that the kernels are not compiled for runs stock JAX where possible."""
  gpu_of(capability)
  traced = jax.jit(case.results).trace(*case.operands(rng, (3,), N, N, np.float32))
  platforms, reason = case.absent
  if not handled and "cuda" in platforms:
    with pytest.raises(NotImplementedError, match=reason):
      traced.lower(lowering_platforms=("cuda",))
  else:
    assert bool(_calls(traced.lower(lowering_platforms=("cuda",)).as_text())) is handled
  linalg.show_config()
  assert ("compute capability 7.5" in capsys.readouterr().out) is not handled


@pytest.mark.parametrize("demand", ["AUTO", "ON"])
def test_old_nvcc(demand, tmp_path):
  """Configuring the build rejects or skips an nvcc of CUDA 12."""
  cmake = shutil.which("cmake")
  if cmake is None or importlib.util.find_spec("nanobind") is None:
    pytest.skip("needs cmake and nanobind")
  nvcc = tmp_path / "nvcc"
  nvcc.write_text("#!/bin/sh\necho Cuda compilation tools, release 12.9, V12.9.86")
  nvcc.chmod(0o755)
  done = subprocess.run(
      [cmake, "-S", str(ROOT), "-B", str(tmp_path / "build"), f"-DLINALG_CUDA={demand}",
       f"-DCMAKE_CUDA_COMPILER={nvcc}", f"-DPython_EXECUTABLE={sys.executable}",
       "-DCMAKE_BUILD_TYPE=Release"], capture_output=True, text=True, check=False)
  said = " ".join((done.stdout + done.stderr).split())
  assert f"{nvcc} is not an nvcc of CUDA 13 or later" in said
  assert (done.returncode == 0) is (demand == "AUTO"), said


def _calls(text):
  """Returns the handler calls in a lowered program: targets, attributes, types, sharding rules.

  Calls that XLA may record count as calls of the same handlers.
  """
  return [
      re.sub(r"%\S+|loc\(.*\)|_captured\b", "", line).strip() for line in text.splitlines()
      if "custom_call @linalg_" in line]


def _target(call):
  return re.search(r"@(linalg_\w+)", call)[1]


def _calls_on_both(function, *operands):
  """Returns the calls in the programs for the CPU and for CUDA."""
  traced = jax.jit(function).trace(*operands)
  cpu, cuda = (
      _calls(traced.lower(lowering_platforms=(platform,)).as_text())
      for platform in ("cpu", "cuda"))
  assert cuda, "no call of a handler"
  return cpu, cuda


def _same_calls(function, *operands):
  """The programs for CUDA and for the CPU call the same targets in the same way."""
  cpu, cuda = _calls_on_both(function, *operands)
  assert cuda == cpu
  return cuda


@pytest.mark.parametrize("dtype", [np.float32, np.complex128], ids=lambda dtype: dtype.__name__)
def test_calls(case, dtype, rng):
  calls = _same_calls(case.results, *case.operands(rng, (3,), N, N, dtype))
  for call in calls:
    assert "num_batch_dims" in call
    assert "sdy.sharding_rule" in call


@cases.each([x for x in HANDLED if not x.xla])
@pytest.mark.parametrize("n", [0, 65])
def test_sizes(case, n, rng):
  """Catches a crossover in Python, because only handlers may have one."""
  _same_calls(case.results, *case.operands(rng, (2,), n, n, np.float32))


def test_recursions(rng):
  """Block-tridiagonal systems, a filter and a smoother with their gradients: the same calls."""
  structured = linalg.structured
  blocks, beside = np.stack([np.eye(3)] * 10).reshape(2, 5, 3, 3), np.zeros((2, 4, 3, 3))
  b = rng.standard_normal((2, 5, 3, 1))

  def results_of_a_factor(diagonal, lower, b):
    factor = structured.block_tridiagonal_cholesky(diagonal, lower)
    return factor.solve(b), factor.logdet(), factor.inverse_blocks(), factor.solve_half(b)

  def likelihood(y):
    return jnp.sum(structured.kalman_filter(y, **model).log_likelihood)

  def smoothness(y, transition):
    smoothed = structured.kalman_smoother(y, **model | {"transition": transition})
    return jnp.sum(smoothed.smoothed_means**2) + jnp.sum(smoothed.smoothed_covariances**2)

  eye = np.eye(3)
  model = {
      "transition": eye, "transition_covariance": eye, "observation": eye,
      "observation_covariance": eye, "initial_mean": np.zeros(3), "initial_covariance": eye}
  y = rng.standard_normal((5, 3))
  targets = set()
  for function, operands in (
      (results_of_a_factor, (blocks, beside, b)),
      (structured.block_tridiagonal_solve_logdet, (blocks, beside, b)),
      (structured.block_tridiagonal_solve, (beside, blocks, beside, b)),
      (jax.value_and_grad(likelihood), (y,)),
      (jax.grad(smoothness), (y, eye))):
    targets |= {_target(call) for call in _same_calls(function, *operands)}
  assert targets == {
      *(f"linalg_block_tridiagonal_{name}" for name in (
          "cholesky", "factor_solve", "inverse_blocks", "solve", "solve_logdet")),
      *(f"linalg_kalman_{name}" for name in (
          "filter", "filter_vjp", "smoother", "smoother_vjp"))}


@pytest.mark.parametrize("steps", [1024, 5000])
def test_no_thread_has_a_long_system(steps):
  """On CUDA each call of a definite system, or of its gradient, has chunks."""
  structured = linalg.structured
  rank = [(2, steps, 3, 3), (2, steps - 1, 3, 3), (2, steps, 3, 1)]
  shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in rank]

  def loss(*operands):
    x, logdet = structured.block_tridiagonal_solve_logdet(*operands)
    return jnp.sum(x) + jnp.sum(logdet)

  def results_of_a_factor(diagonal, lower, b):
    factor = structured.block_tridiagonal_cholesky(diagonal, lower)
    return factor.solve_half(b), factor.logdet(), factor.inverse_blocks()

  functions = [structured.block_tridiagonal_solve_logdet, jax.value_and_grad(loss, (0, 1, 2))]
  functions += [results_of_a_factor] * (steps >= partition.LONG)
  for function in functions:
    cpu, cuda = _calls_on_both(function, *shapes)
    assert any(f"x{steps}x3x3xf32" in call for call in cpu)
    recursions = [call for call in cuda if "block_tridiagonal" in _target(call)]
    assert recursions
    for call in recursions:
      sizes = [int(x) for x in re.findall(r"(\d+)x", call.rpartition(" : ")[2])]
      assert max(sizes) <= partition.chunk_width(steps), call


def _targets_of(function, *operands):
  """Returns the targets that the program for each platform calls."""
  traced = jax.jit(function).trace(*operands)
  texts = [traced.lower(lowering_platforms=(x,)).as_text() for x in ("cpu", "cuda")]
  return [
      {x.removesuffix("_captured") for x in re.findall(r"@(linalg_\w+)", text)} for text in texts]


@pytest.mark.parametrize("shapes, dtype, on_cpu, on_cuda", [
    (((9, 3, 3), (9, 3, 3)), np.float32, False, False),
    (((9, 2, 2), (9, 2, 2)), np.float64, False, True),
    (((9, 2, 2), (9, 2, 2)), np.complex64, True, True),
    (((9, 4, 1), (9, 1, 4)), np.float32, False, False),
    (((9, 4, 4), (9, 4, 1)), np.float64, False, False),
    (((9, 5, 16), (9, 16, 7)), np.float32, True, True),
    (((9, 5, 17), (9, 17, 7)), np.float32, True, False),
    (((9, 5, 65), (9, 65, 7)), np.float32, False, False),
    (((5, 5), (9, 5, 5)), np.float32, True, True),
    (((9, 5, 5), (5, 5)), np.float32, True, False),
    (((5, 5), (5, 5)), np.float32, True, True)])
def test_products_that_xla_keeps(shapes, dtype, on_cpu, on_cuda):
  """Small products go to the handlers, up to a size that depends on the platform."""
  cpu, cuda = _targets_of(linalg.matmul, *(np.ones(shape, dtype) for shape in shapes))
  assert [bool(cpu), bool(cuda)] == [on_cpu, on_cuda]


@pytest.mark.parametrize("function, target, dtype, largest", [
    (linalg.cholesky, "linalg_cholesky_vjp", np.float32, 16),
    (linalg.cholesky, "linalg_cholesky_vjp", np.float64, 12),
    (lambda a: linalg.qr(a)[0], "linalg_qr_vjp", np.float32, 8),
    (linalg.det, "linalg_det_cofactors", np.float32, 1024)])
def test_rules_that_have_handlers(function, target, dtype, largest):
  """Small matrices go to the handlers. For larger ones the program for CUDA uses the formula.

  On a CPU a limit of these is n = 512.
  """
  gradient = jax.grad(lambda a: jnp.sum(function(a)))
  for n in (largest, largest + 1):
    cpu, cuda = _targets_of(gradient, np.ones((3, n, n), dtype))
    assert target in cpu or n > 512
    assert (target in cuda) is (n == largest)


LAYOUTS = {
    "xy": ((4, 2), (BATCH,), (("x", "y"),), AxisType.Explicit),
    "x,y": ((4, 2), (BATCH, SECOND_BATCH), ("x", "y"), AxisType.Auto),
    "None,x": ((8,), (3, BATCH), (None, "x"), AxisType.Explicit),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sharded(case, layout, rng):
  shape, batch, spec, kind = LAYOUTS[layout]
  mesh = make_mesh(shape, ("x", "y")[: len(shape)], kind)
  _same_calls(case.results, *place(case.operands(rng, batch, N, N, np.float64), mesh, *spec))


def test_shard_map(case, rng):
  mesh = make_mesh(kind=AxisType.Auto)
  operands = place(case.operands(rng, (BATCH,), N, N, np.float64), mesh, "x")
  mapped = jax.shard_map(
      case.results, mesh=mesh, in_specs=tuple(P("x") for _ in operands), out_specs=P("x"))
  _same_calls(mapped, *operands)


def test_vmap(case, rng):
  mesh = make_mesh(kind=AxisType.Explicit)
  operands = place(case.operands(rng, (BATCH, 3), N, N, np.float64), mesh, "x")
  _same_calls(jax.vmap(case.results, in_axes=1), *operands)


@cases.each([x for x in HANDLED if x in cases.DIFFERENTIABLE_CASES])
def test_gradient(case, rng):
  mesh = make_mesh(kind=AxisType.Explicit)
  operands = place(case.operands(rng, (BATCH,), N, N, np.float64), mesh, "x")
  floating, merge = split(operands)
  loss = lambda x: energy(case, 1, *merge(x)).sum()
  cpu, cuda = _calls_on_both(jax.grad(loss), floating)
  # Where the CPU calls one handler, the program for CUDA may use a formula, and makes the calls of
  # that formula.
  handled = [call for call in cpu if _target(call) not in CPU_ALONE]
  assert not collections.Counter(handled) - collections.Counter(cuda)


def test_export(case, rng):
  """A program exported with a symbolic batch, for both platforms, holds the call for each."""
  operands = case.operands(rng, (3,), N, N, np.float64)
  (b,) = export.symbolic_shape("b")
  types = [jax.ShapeDtypeStruct((b, *x.shape[1:]), x.dtype) for x in operands]
  exported = export.export(
      jax.jit(case.results), platforms=["cpu", "cuda"],
      disabled_checks=linalg.export_disabled_checks())(*types)
  assert exported.platforms == ("cpu", "cuda")
  assert "linalg_" in exported.mlir_module()
  for x, y in zip(exported.call(*operands), jax.jit(case.results)(*operands), strict=True):
    np.testing.assert_array_equal(x, y)


# Command buffers


class _Extension(ctypes.Structure):
  _fields_ = [("size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.c_void_p)]


class _Metadata(ctypes.Structure):
  _fields_ = [
      ("size", ctypes.c_size_t), ("version_size", ctypes.c_size_t),
      ("version_next", ctypes.c_void_p), ("major", ctypes.c_int), ("minor", ctypes.c_int),
      ("traits", ctypes.c_uint32), ("state_type", ctypes.c_int64)]


class _MetadataExtension(ctypes.Structure):
  _fields_ = [("base", _Extension), ("metadata", ctypes.POINTER(_Metadata))]


def _may_be_recorded(handler):
  """Queries a handler as XLA does at registration; XLA's api.h and c_api.h define the
  structures."""
  get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
  get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
  call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(get_pointer(handler, None))
  metadata = _Metadata(size=ctypes.sizeof(_Metadata))
  extension = _MetadataExtension(
      _Extension(ctypes.sizeof(_MetadataExtension), 1, None), ctypes.pointer(metadata))
  # The handler reads the size of XLA_FFI_CallFrame up to the attributes, and the extension.
  frame = (ctypes.c_size_t * 22)(21 * ctypes.sizeof(ctypes.c_size_t), ctypes.addressof(extension))
  assert call(ctypes.addressof(frame)) is None
  assert (metadata.major, metadata.minor) == _targets._cuda.ffi_version()
  return bool(metadata.traits & 1)


# These handlers only launch kernels, for all arguments.
LAUNCH_ALONE = {
    f"linalg_{name}" for name in (
        "block_tridiagonal_cholesky", "block_tridiagonal_factor_solve",
        "block_tridiagonal_inverse_blocks", "cholesky_jvp", "cholesky_vjp",
        "eigh_jvp", "eigh_vjp", "kalman_filter", "kalman_filter_jvp", "kalman_filter_vjp",
        "kalman_smoother", "kalman_smoother_jvp", "kalman_smoother_vjp",
        "lu_pivots_to_permutation", "matmul", "matmul_transpose_a",
        "matmul_transpose_b", "positive_solve_logdet", "positive_solve_logdet_factor", "qr_jvp",
        "qr_vjp", "svd_jvp", "svd_vjp")}
# These always ask for scratch memory. It holds systems side by side or levels of a reduction,
# factors of blocks, full matrices, or Sturm sequences.
NEED_SCRATCH = {
    f"linalg_{name}" for name in (
        "banded_solve", "block_tridiagonal_solve", "block_tridiagonal_solve_logdet",
        "cholesky_banded", "cholesky_banded_solve", "tridiagonal_solve", "eigh_tridiagonal",
        "eigvalsh_tridiagonal")}


def test_which_handlers_may_be_recorded():
  """Only these handlers may be in a command buffer.

  Handlers called under their own name may ask for scratch memory or vendor libraries. Their second
  handlers, for recorded calls, ask for neither.
  """
  targets, captured = _targets._cuda.targets(), _targets._cuda.captured_targets()
  assert {name for name, handler in targets.items() if _may_be_recorded(handler)} == LAUNCH_ALONE
  assert all(_may_be_recorded(handler) for handler in captured.values())
  assert targets.keys() == LAUNCH_ALONE | NEED_SCRATCH | captured.keys()
  assert not captured.keys() & (LAUNCH_ALONE | NEED_SCRATCH)


SIZES_THAT_MAY_BE_RECORDED = [
    # The largest n of a thread or a warp where they have a limit, and otherwise of 64 KiB.
    (linalg.cholesky, ["linalg_cholesky"], np.float32, 127),
    (linalg.cholesky, ["linalg_cholesky"], np.complex128, 63),
    (linalg.inv, ["linalg_inv"], np.float32, 90),
    (linalg.det, ["linalg_det"], np.float64, 89),
    (lambda a: linalg.solve(a, a[..., :1]), ["linalg_solve"], np.float32, 127),
    (lambda a: linalg.qr(a, mode="r"), ["linalg_qr_r"], np.float32, 127),
    (linalg.eigvalsh, ["linalg_eigvalsh"], np.float32, 9),
    (linalg.svdvals, ["linalg_svdvals"], np.float32, 64),
    (linalg.eigvals, ["linalg_eigvals"], np.float32, 63)]


@pytest.mark.parametrize("function, targets, dtype, largest", SIZES_THAT_MAY_BE_RECORDED)
def test_sizes_that_may_be_recorded(function, targets, dtype, largest):
  for n in (1, largest, largest + 1):
    a = jax.ShapeDtypeStruct((3, n, n), dtype)
    text = jax.jit(function).trace(a).lower(lowering_platforms=("cuda",)).as_text()
    for target in targets:
      assert (f"@{target}_captured(" in text) is (n <= largest), n
      assert (f"@{target}(" in text) is (n > largest), n
    assert "_captured" not in jax.jit(function).lower(a).as_text()


def test_a_shared_matrix_is_not_recorded():
  """A shared matrix that its handler factors once for the batch needs scratch memory.

  Substitution needs none, and `solve` factors such a matrix in a separate call.
  """
  a, b = np.eye(4, dtype=np.float32), np.ones((5, 4, 1), np.float32)

  def called(function, *operands):
    text = jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",)).as_text()
    return re.findall(r"@(linalg_\w+)", text)

  assert called(solve.solve_p, a, b) == ["linalg_solve"]
  assert called(solve.solve_p, np.stack([a] * 5), b) == ["linalg_solve_captured"]
  assert called(linalg.solve_triangular, a, b) == ["linalg_triangular_solve_captured"]
  assert called(linalg.solve, a, b) == ["linalg_lu_captured", "linalg_lu_solve_captured"]


def test_symbolic_sizes_are_not_recorded():
  n, = export.symbolic_shape("n")
  exported = export.export(
      jax.jit(linalg.cholesky), platforms=["cuda"],
      disabled_checks=linalg.export_disabled_checks())(jax.ShapeDtypeStruct((n, n), np.float32))
  assert "@linalg_cholesky(" in exported.mlir_module()


def test_handles(tmp_path):
  if shutil.which("nvcc") is None:
    pytest.skip("needs nvcc, which has the headers of CUDA's runtime")
  program = tmp_path / "handles_test"
  subprocess.run(
      ["nvcc", "-std=c++20", "-cudart", "none", "-I", ROOT, ROOT / "tests/cuda/handles_test.cc",
       "-o", program], check=True)
  subprocess.run([program], check=True)


def test_largest_qr_by_panels(tmp_path):
  """Few matrices go by panels up to 512 rows each, and many up to the rows that fit."""
  if shutil.which("c++") is None:
    pytest.skip("needs a C++ compiler, c++")
  program = tmp_path / "qr_paths"
  subprocess.run(
      ["c++", "-std=c++20", "-I", ROOT, ROOT / "tests/cuda/qr_paths.cc", "-o", program], check=True)

  def largest(batch, size):
    said = subprocess.run(
        [program, str(batch), str(size)], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, said.split()))

  assert largest(1, 4) == (512, 0, 32)
  assert largest(2, 4) == (1024, 0, 32) and largest(2, 8) == (1024, 0, 16)
  assert largest(24, 4) == largest(20000, 4) == (3072, 0, 16)
  assert largest(20000, 16) == (1526, 0, 8)
