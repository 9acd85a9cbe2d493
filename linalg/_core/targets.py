"""Loads the compiled module for this machine and registers its handlers, once, at import."""

import importlib.metadata
import importlib.util
import os
import pathlib
import pkgutil
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

import jax
import jax.export

from linalg._version import __version__

try:
  from linalg import _isa
except ImportError:
  raise ImportError(
      "linalg's compiled modules are missing: `linalg` was imported from a source tree that is not "
      "installed. Run `pip install -e .` in it, or leave the tree.") from None


class _Module(Protocol):
  """The functions of every compiled module. `load` opens the libraries that its handlers call."""

  __name__: str
  __file__: str

  def targets(self) -> dict[str, object]: ...
  def load(self) -> None: ...
  def ffi_version(self) -> tuple[int, int]: ...


class _CpuModule(_Module, Protocol):
  """The modules linalg._cpu_*, one for each level of the instruction set."""

  def blas_threads(self) -> int: ...
  def allow_blas_threads(self, allowed: bool) -> None: ...


class _CudaModule(_Module, Protocol):
  """The module _cuda, from a build with nvcc or from a wheel such as jax-linalg-cuda13."""

  def captured_targets(self) -> dict[str, object]: ...
  def runs_without_scratch(
      self, target: str, dtype: str, operands: list[list[int]], results: list[list[int]],
      shared: bool) -> bool: ...
  def set_library_directories(self, directories: list[str]) -> None: ...
  def device_count(self) -> int: ...
  def runtime_version(self) -> tuple[int, int]: ...
  def driver_version(self) -> tuple[int, int]: ...


def _load_cpu() -> tuple[str, _CpuModule]:
  """The level of the instruction set to use, and the module that was compiled for it.

  The level is the best that the machine and the installation have. The environment variable
  LINALG_ISA overrides it.
  """
  levels = usable_levels()
  level = os.environ.get("LINALG_ISA", levels[0] if levels else None)
  if level not in levels:
    raise ImportError(
        f"linalg has no module for LINALG_ISA={level}: built for this machine are "
        f"{', '.join(levels) or 'none'}, and it could run {', '.join(_isa.levels())}.")
  return level, cast(_CpuModule, importlib.import_module(f"linalg._cpu_{level}"))


def usable_levels() -> list[str]:
  """The levels of the instruction set that this machine and this installation have, best first."""
  return [level for level in _isa.levels() if importlib.util.find_spec(f"linalg._cpu_{level}")]


def _load_cuda() -> _CudaModule | None:
  """The CUDA module. Loading it needs neither a GPU nor CUDA's libraries.

  It is this package's own module if there is one, else a plugin's. The plugin's version must be
  this package's. jax finds its own plugins' modules in the same way. The plugin for jax's version
  of CUDA is taken, or the newer one.
  """
  package = "linalg"
  if importlib.util.find_spec("linalg._cuda") is None:
    wanted = _cuda_plugins()
    found = [major for major in sorted(_LIBRARY_FOLDERS, key=lambda x: (x not in wanted, -x))
             if importlib.util.find_spec(f"jax_linalg_cuda{major}")]
    if not found:
      return None
    package, name = f"jax_linalg_cuda{found[0]}", f"jax-linalg-cuda{found[0]}"
    version = importlib.metadata.version(name)
    if version != __version__:
      warnings.warn(
          f"{name} {version} is left out, as linalg is of version {__version__}: "
          "functions run stock JAX on GPUs. Install both of one version.", stacklevel=2)
      return None
  module = cast(_CudaModule, importlib.import_module(f"{package}._cuda"))
  wheels = importlib.util.find_spec("nvidia")
  roots = wheels.submodule_search_locations if wheels else None
  folders = _LIBRARY_FOLDERS.get(module.runtime_version()[0], ())
  module.set_library_directories(
      [str(pathlib.Path(root) / folder) for root in roots or [] for folder in folders])
  return module


# Major version of CUDA -> the folders of cuBLAS and cuSOLVER in NVIDIA's wheels.
_LIBRARY_FOLDERS = {12: ("cublas/lib", "cusolver/lib"), 13: ("cu13/lib",)}


def plugin_refusal(built: tuple[int, int], plugins: Iterable[int]) -> str | None:
  """Why handlers built with CUDA `built` are not registered, or None if they are.

  `plugins` are the major versions of CUDA that jax has plugins for. The handlers call libraries
  that come with the plugin, so the versions must match. Without any plugin they are registered:
  programs are then lowered and exported for another machine's GPU.
  """
  others = sorted(set(plugins))
  if not others or built[0] in others:
    return None
  return f"jax's plugin is for CUDA {others[-1]}"


def device_refusal(
    built: tuple[int, int], driver: tuple[int, int], capabilities: Iterable[str]) -> str | None:
  """Why handlers built with CUDA `built` do not run with this driver on GPUs of these compute
  capabilities, or None if they do."""
  if driver < (built[0], 0):
    return f"the driver is for CUDA {driver[0]}.{driver[1]}"
  for capability in capabilities:
    if tuple(map(int, capability.split("."))) < _LEAST_CAPABILITY:
      return f"there is a GPU of compute capability {capability}"
  return None


# The least compute capability that the kernels are compiled for.
_LEAST_CAPABILITY = (8, 0)


def _cuda_plugins() -> list[int]:
  """The major versions of CUDA that jax has a plugin for here, found as jax finds them."""
  namespace = importlib.util.find_spec("jax_plugins")
  folders = namespace.submodule_search_locations if namespace else None
  names = (module.name for module in pkgutil.iter_modules(folders or []))
  return [int(match[1]) for name in names if (match := re.fullmatch(r"xla_cuda(\d+)", name))]


isa, _cpu = _load_cpu()
_cuda = _load_cuda()
_names = frozenset(_cpu.targets())


def _installed_ffi_version() -> tuple[int, int]:
  """The FFI version of the installed jaxlib, read from its headers."""
  header = pathlib.Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h"
  text = header.read_text()

  def number(name: str) -> int:
    match = re.search(rf"#define XLA_FFI_API_{name} (\d+)", text)
    if match is None:
      raise ImportError(f"linalg cannot read the version of XLA's FFI from {header}.")
    return int(match.group(1))

  return number("MAJOR"), number("MINOR")


def check_ffi_version(built: tuple[int, int], installed: tuple[int, int]) -> None:
  """Raises ImportError if the installed jaxlib would refuse handlers built with version `built`.

  XLA checks this too, but only when the first computation of the process is compiled. JAX is
  unusable then, and the error does not say why.
  """
  if built[0] != installed[0] or built[1] > installed[1]:
    raise ImportError(
        f"linalg was built with version {built[0]}.{built[1]} of XLA's FFI, and the installed "
        f"jaxlib provides {installed[0]}.{installed[1]}. Install a jaxlib at least as new as the "
        "one linalg was built with, or build linalg from source with this one.")


# The platforms of each registered target, in jax.jit's names.
_registered: dict[str, list[str]] = {}
_XLA_NAMES = {"cuda": "CUDA", "rocm": "ROCM"}


def register(name: str, handler: object, platform: str) -> None:
  """Registers `handler` so that XLA partitions it along its batch dimensions."""
  jax.ffi.register_ffi_target(name, handler, platform=_XLA_NAMES.get(platform, platform))
  if name not in _registered:
    jax.ffi.register_ffi_target_as_batch_partitionable(name)
  _registered.setdefault(name, []).append(platform)


def platforms(name: str) -> tuple[str, ...]:
  """The platforms that the target `name` is registered for."""
  return tuple(dict.fromkeys(_registered.get(name, ())))


def refusal(name: str, platform: str) -> str | None:
  """Why a program for `platform` should not call our handler of `name`, or None if it should.

  This is asked when a call is lowered: listing the GPUs initializes JAX's backends, which an import
  must not do. All processes of a program get the same answer.
  """
  if platform != "cuda" or _cuda is None or name not in _names:
    return None
  try:
    gpus = jax.devices("cuda")
  except RuntimeError:
    return None  # lowered for a platform that this process does not have
  capabilities = (gpu.compute_capability for gpu in gpus)
  return device_refusal(_cuda.runtime_version(), _cuda.driver_version(), capabilities)


# Target -> the target of the same handler for calls that XLA may record in a command buffer.
_captured: dict[str, str] = {}


def call_target(
    name: str, platform: str, dtype: str, operands: Sequence[Sequence[Any]],
    results: Sequence[Sequence[Any]], shared: bool) -> str:
  """The target that a program for `platform` calls where an operation calls `name`.

  On CUDA, some calls only launch kernels and need no scratch memory. They use a target that is
  registered as safe to record in a command buffer.

  Args:
    dtype: of the first operand.
    operands, results: the shape of one matrix of each.
    shared: whether an operand serves a whole batch.
  """
  if platform != "cuda" or _cuda is None or name not in _captured:
    return name
  if not all(isinstance(size, int) for shape in (*operands, *results) for size in shape):
    return name  # symbolic, in jax.export
  suits = _cuda.runs_without_scratch(
      name, dtype, list(map(list, operands)), list(map(list, results)), shared)
  return _captured[name] if suits else name


def prepare(name: str, platform: str) -> None:
  """Loads the libraries that the handler of `name` calls, before a program that uses it can run.

  BLAS may use its own threads only in a process with one device. On several devices, a large matrix
  would get a varying number of threads, and so different bits from run to run.

  SciPy is imported here rather than at `import linalg`, which would take longer. The handlers can
  import it themselves, but not in an interpreter that is shutting down.
  """
  if name in _names and platform == "cpu":
    _cpu.load()
    try:
      devices = len(jax.local_devices(backend="cpu"))
    except RuntimeError:  # lowered for a platform that this process does not have
      devices = 0
    _cpu.allow_blas_threads(devices == 1)


def include_dir() -> str:
  """The directory to compile handlers of your own with: `#include "linalg/ffi.h"`.

  Example:
    >>> import linalg
    >>> linalg.include_dir()
    '...include'
  """
  return str(pathlib.Path(_cpu.__file__).parent / "include")


def export_disabled_checks() -> list[jax.export.DisabledSafetyCheck]:
  """The `disabled_checks` that `jax.export.export` needs for functions that use this package.

  JAX promises no stability for custom calls that it does not know. The targets of this package keep
  their name, operands and attributes within a minor version. The process that runs the exported
  program must first import `linalg` and register your own targets.

  Example:
    >>> import jax, jax.numpy as jnp, linalg
    >>> from jax import export
    >>> exported = export.export(
    ...   jax.jit(linalg.cholesky), disabled_checks=linalg.export_disabled_checks())(jnp.eye(2))
    >>> print(export.deserialize(exported.serialize()).call(4 * jnp.eye(2)))
    [[2. 0.]
     [0. 2.]]
  """
  return [jax.export.DisabledSafetyCheck.custom_call(name) for name in _registered]


def ffi_versions() -> tuple[tuple[int, int], tuple[int, int]]:
  """The versions of XLA's FFI that this package was built with and that jaxlib provides."""
  return _cpu.ffi_version(), _installed_ffi_version()


def blas_threads() -> int:
  """The user's number of OpenBLAS threads, or 0 if SciPy's BLAS is not OpenBLAS. Imports SciPy."""
  return _cpu.blas_threads()


def cuda_version() -> tuple[int, int] | None:
  """The version of CUDA that the CUDA handlers were built with, or None without them."""
  return None if _cuda is None else _cuda.runtime_version()


def cuda_refusal() -> str | None:
  """Why the CUDA handlers are not used here, or None if they are."""
  if _cuda is None:
    return None
  plugin = plugin_refusal(_cuda.runtime_version(), _cuda_plugins())
  return plugin or refusal(next(iter(_names)), "cuda")


def cuda_devices() -> int:
  """The number of GPUs that CUDA finds."""
  return 0 if _cuda is None else _cuda.device_count()


def load_cuda_libraries() -> None:
  """Opens cuSOLVER and cuBLAS, as the handlers do on demand. Raises RuntimeError if that fails."""
  if _cuda is not None:
    _cuda.load()


def _register_all(module: _Module, platform: str) -> None:
  check_ffi_version(module.ffi_version(), _installed_ffi_version())
  for name, handler in module.targets().items():
    register(name, handler, platform)


_register_all(_cpu, "cpu")
if _cuda is not None and plugin_refusal(_cuda.runtime_version(), _cuda_plugins()) is None:
  _register_all(_cuda, "cuda")
  for _name, _handler in _cuda.captured_targets().items():
    _captured[_name] = f"{_name}_captured"
    register(_captured[_name], _handler, "cuda")
