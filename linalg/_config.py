"""The configuration of this installation."""

import importlib.metadata
import os

import jax

from linalg._accelerate.switch import routed
from linalg._core import targets


def _cuda() -> str:
  version = targets.cuda_version()
  if version is None:
    return "no handlers in this build; other platforms run stock JAX"
  built = f"{version[0]}.{version[1]} built, {targets.cuda_devices()} GPUs"
  if reason := targets.cuda_refusal():
    return f"{built}; not used, stock JAX runs there: {reason}"
  try:
    targets.load_cuda_libraries()
    libraries = "found"
  except RuntimeError:
    libraries = f"not found (pip install 'jax-linalg[cuda{version[0]}]')"
  return f"{built}; cuSOLVER and cuBLAS {libraries}"


def show_config() -> None:
  """Prints what was loaded, and which of JAX's own primitives are accelerated.

  The lines are the instruction set, LAPACK and its threads, cores, JAX, and CUDA.

  Example:
    >>> import linalg
    >>> linalg.show_config()
    instruction set: ...
    LAPACK:          ...
  """
  threads = targets.blas_threads()
  blas = f"{threads} threads for one large matrix" if threads else "not OpenBLAS, threads unknown"
  cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
  built, installed = targets.ffi_versions()
  lines = {
      "instruction set": f"{targets.isa} (LINALG_ISA forces another)",
      "LAPACK": f"SciPy {importlib.metadata.version('scipy')}'s; {blas}",
      "batches": f"XLA's intra-op pool, at most {cores} threads",
      "XLA FFI": f"{built[0]}.{built[1]} built, {installed[0]}.{installed[1]} installed",
      "JAX": f"{jax.__version__} on {jax.default_backend()}, {jax.device_count()} devices",
      "CUDA": _cuda(),
      "accelerated": ", ".join(routed()) or "nothing of JAX's own (linalg.accelerate)",
  }
  for name, value in lines.items():
    print(f"{name + ':':17}{value}")
