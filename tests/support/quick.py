"""Compilation for tests, in which nearly all the time goes into it.

Half of it goes into optimisations that concern neither the partitioner nor what a handler is asked.
"""

import functools

import jax

quick_jit = functools.partial(jax.jit, compiler_options={
    "xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True})


def quick_compile(function, operands, **options):
  return quick_jit(function, **options).lower(*operands).compile()
