"""Four processes with two devices each share matrices: values and gradients, over gloo."""

import pytest

import processes


@pytest.mark.extended
def test_four_processes(tmp_path):
  """Catches collectives that processes reach in different orders, and wait for in vain."""
  text = processes.run("one_matrix_process.py", 4, 600, tmp_path)
  for i in range(4):
    for function in ("square", "general", "spectrum", "tall", "stack"):
      for kind in ("Auto", "Explicit"):
        assert f"process {i} checked {function} on {kind} axes" in text
