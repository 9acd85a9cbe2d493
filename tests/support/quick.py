"""Compilation for tests, where it takes nearly all the time.

Much of it optimizes elementwise code, which affects neither the partitioner nor the handlers'
calls. Programs this small compile sooner in one piece than by several threads.
"""

import functools
from importlib import metadata

import jax

_OPTIONS = {
    "xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1}
_OPTIMISED = {  # XLA's defaults
    "xla_backend_optimization_level": 3, "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_parallel_codegen_split_count": 32}
if metadata.version("jaxlib").startswith("0.10."):  # jaxlib 0.12 has no such flag
  _OPTIONS["xla_cpu_use_fusion_emitters"] = False
  _OPTIMISED["xla_cpu_use_fusion_emitters"] = True

# The flags of all programs of the tests, unless XLA_FLAGS are set.
FLAGS = " ".join(f"--{name}={str(value).lower()}" for name, value in _OPTIONS.items())

# Always uses these options.
quick_jit = functools.partial(jax.jit, compiler_options=_OPTIONS)
# Compiles as users' programs are compiled, for tests of the bits that XLA computes.
optimised_jit = functools.partial(jax.jit, compiler_options=_OPTIMISED)


def quick_compile(function, operands, **options):
  return quick_jit(function, **options).lower(*operands).compile()
