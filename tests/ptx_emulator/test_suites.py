"""The kernels' PTX on the CPU, through the suites of the handlers for it.

All but machine code and NVIDIA's libraries is what a GPU runs: the launches, with their blocks,
threads and shared memory, and each instruction of each thread. Every access to memory is checked:
its bounds, that somebody wrote what it reads, and that barriers order it.
"""

import pytest

import ptx_suites as suites

pytestmark = pytest.mark.extended


SETTINGS = {"order": "random", "preempt": 50}


@pytest.mark.timeout(1800)
def test_quick(library, run_suites, launched):
  """All suites in one run, without what takes longest: at every change."""
  run_suites("quick", suites.SUITES.values(), suites.QUICK, launched, **SETTINGS)
  unseen = launched.by_none(library, ["quick"], suites.is_of_two_dtypes)
  assert not unseen, f"no suite launches {unseen}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("suite", suites.EVERY_KERNEL)
def test_every_kernel(suite, library, run_suite, launched):
  """In two dtypes. Whichever of them ends last asks for kernels that none has launched."""
  run_suite(suite, suites.TWO_DTYPES, launched, **SETTINGS)
  unseen = launched.by_none(library, suites.EVERY_KERNEL, suites.is_of_two_dtypes)
  assert not unseen, f"no suite launches {unseen}"


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", [x for x in suites.SUITES if x not in suites.EVERY_KERNEL])
def test_others(suite, run_suite, launched):
  run_suite(suite, suites.TWO_DTYPES, launched, **SETTINGS)
