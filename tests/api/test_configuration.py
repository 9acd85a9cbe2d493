"""Every function works under JAX's settings.

The settings detect mistakes, change the compilation, or cache compiled programs.
"""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases

# All tests use strict promotion of dtypes and ranks, by tests/conftest.py. Only test_tracing.py
# uses 32-bit mode.
SETTINGS = {
    "checks": {"jax_enable_checks": True, "jax_check_tracer_leaks": True, "jax_debug_nans": True},
    "disable_jit": {"jax_disable_jit": True},
    "two_traces": {"jax_use_direct_linearize": False},
    "low_precision": {"jax_default_matmul_precision": "bfloat16"},
}


@pytest.fixture
def set_config():
  before = {}

  def set_to(settings):
    for name, value in settings.items():
      before[name] = getattr(jax.config, name)
      jax.config.update(name, value)

  yield set_to
  for name, value in before.items():
    jax.config.update(name, value)


def _check(case, rng):
  """Results, and derivatives in both modes, hold no NaN."""
  operands = case.operands(rng, (2,), 3, 3, np.dtype(np.float32))
  places = [i for i, x in enumerate(operands) if np.issubdtype(x.dtype, np.inexact)]

  def total(*inexact):
    given = list(operands)
    for i, x in zip(places, inexact):
      given[i] = x
    results = case.results(*given)
    sizes = [jnp.sum(jnp.abs(x)) for x in results if jnp.issubdtype(x.dtype, jnp.inexact)]
    return sum(sizes), results

  @jax.jit
  def program(*inexact):
    if not case.differentiable:
      return (), (), total(*inexact)[1]
    along = jax.jvp(lambda *x: total(*x)[0], inexact, inexact)[1]
    gradient, results = jax.grad(total, argnums=tuple(range(len(inexact))), has_aux=True)(*inexact)
    return along, gradient, results

  inexact = [jnp.asarray(operands[i]) for i in places]
  along, gradient, results = program(*inexact)
  assert case.ratio(operands, [np.asarray(x) for x in results]) <= case.limit
  if case.differentiable:
    across = sum(float(jnp.vdot(x, y)) for x, y in zip(gradient, inexact))
    np.testing.assert_allclose(along, across, rtol=1e-3, atol=1e-3)


@pytest.mark.extended
@cases.each(cases.TABLE)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_settings(case, settings, set_config, rng):
  set_config(settings)
  _check(case, rng)


CACHED = """
import sys, jax, numpy as np
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
hits = []
jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None)
import linalg
a = np.eye(3, dtype=np.float32) + np.ones((3, 3), np.float32)
own = jax.jit(linalg.cholesky)
stock = jax.jit(jax.numpy.linalg.cholesky)
calls = [own.lower(a), stock.lower(a)]
with linalg.accelerated():
  jax.clear_caches()
  calls.append(stock.lower(a))
for lowered, target in zip(calls, ["linalg_cholesky", "lapack_spotrf_ffi", "linalg_cholesky"]):
  program = lowered.compile()
  assert target in program.as_text(), program.as_text()
  np.testing.assert_allclose(np.tril(program(a)), np.linalg.cholesky(a), rtol=1e-6)
print(len(hits))
"""


def test_persistent_cache(tmp_path):
  """Catches a cached program of another process that is not the requested one."""
  def run():
    done = subprocess.run([sys.executable, "-c", CACHED, str(tmp_path)], capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)

  assert run() == 0
  assert run() == 3
