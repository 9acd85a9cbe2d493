"""Runs test_suites.py in all dtypes, with the shared memory of an H100, an A100 and an L40.

LINALG_PTX_WHOLE=1 enables these tests, which take long. Shared memory is in KiB per block.
"""

import os

import pytest

import ptx_suites as suites

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(
        "LINALG_PTX_WHOLE" not in os.environ, reason="takes long: LINALG_PTX_WHOLE=1 runs it")]


# If a launch has few blocks, a block goes on from one matrix to the next.
SETTINGS = [
    {"shared": 227, "order": "random", "preempt": 50},
    {"shared": 163, "order": "forward", "preempt": 0},
    {"shared": 99, "order": "backward", "preempt": 0, "blocks": 2}]


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("suite", suites.SUITES)
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: str(settings["shared"]))
def test_suites(suite, settings, library, run_suite, launched):
  launched = launched.of(str(settings["shared"]))
  run_suite(suite, suites.ALL_DTYPES, launched, **settings)
  unseen = launched.by_none(library, suites.SUITES)
  assert not unseen, f"no suite launches {unseen}"
