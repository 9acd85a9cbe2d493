"""Compilation for tests, in which nearly all the time goes into it.

Half of it and more goes into optimisations of elementwise code, which concern neither the
partitioner nor what a handler is asked; and programs as small as these are compiled sooner in one
piece than by several threads.
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
if metadata.version("jaxlib").startswith("0.10."):  # jaxlib 0.12 knows no such flag
  _OPTIONS["xla_cpu_use_fusion_emitters"] = False
  _OPTIMISED["xla_cpu_use_fusion_emitters"] = True

# All programs of the tests are compiled like this, unless XLA_FLAGS say how.
FLAGS = " ".join(f"--{name}={str(value).lower()}" for name, value in _OPTIONS.items())

# And these in any case.
quick_jit = functools.partial(jax.jit, compiler_options=_OPTIONS)
# Those of tests that ask about the bits of what XLA compiles are compiled as users' are.
optimised_jit = functools.partial(jax.jit, compiler_options=_OPTIMISED)


def quick_compile(function, operands, **options):
  return quick_jit(function, **options).lower(*operands).compile()
