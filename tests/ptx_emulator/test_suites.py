"""Runs the kernels' PTX on the CPU, through the test suites of their handlers.

Everything that a GPU runs is covered except machine code and NVIDIA's libraries. Launches have
their blocks, threads and shared memory, and each thread executes each instruction. Each memory
access is checked for bounds, for initialised data and for order by barriers.
"""

import pytest

import ptx_suites as suites

pytestmark = pytest.mark.extended


SETTINGS = {"order": "random", "preempt": 50}


@pytest.mark.timeout(1800)
def test_quick(library, run_suites, launched):
  """All suites pass in one run, without the slowest tests. It runs at every change."""
  run_suites("quick", suites.SUITES.values(), suites.QUICK, launched, **SETTINGS)
  unseen = launched.by_none(library, ["quick"], suites.is_of_two_dtypes)
  assert not unseen, f"no suite launches {unseen}"


@pytest.mark.timeout(1800)
def test_older_libraries(run_suites, launched):
  """Without routines that came after CUDA 12.1, older ones run, or our own kernels."""
  run_suites("older", [suites.SUITES["factorisations"]],
             "test_large_residuals and float32 and (eigh- or eigvalsh- or eig-)", launched,
             older=1, **SETTINGS)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("suite", suites.EVERY_KERNEL)
def test_every_kernel(suite, library, run_suite, launched):
  """Two dtypes. Whichever suite ends last asks for kernels that no suite has launched."""
  run_suite(suite, suites.TWO_DTYPES, launched, **SETTINGS)
  unseen = launched.by_none(library, suites.EVERY_KERNEL, suites.is_of_two_dtypes)
  assert not unseen, f"no suite launches {unseen}"


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", [x for x in suites.SUITES if x not in suites.EVERY_KERNEL])
def test_others(suite, run_suite, launched):
  run_suite(suite, suites.TWO_DTYPES, launched, **SETTINGS)
