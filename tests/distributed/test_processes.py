"""Four processes with two devices each share matrices: values and gradients, over gloo.

Each process compiles each program. On a busy machine that takes most of the time limit, so each
test has a few functions.
"""

import pytest

import processes


@pytest.mark.extended
@pytest.mark.parametrize("functions", [
    ("square", "general"), ("spectrum",), ("factors",), ("tall", "stack", "batch")], ids=" ".join)
def test_four_processes(functions, tmp_path):
  """Catches collectives that processes reach in different orders, and wait for in vain."""
  text = processes.run("one_matrix_process.py", 4, 500, tmp_path, functions)
  for i in range(4):
    for function in functions:
      for kind in ("Auto", "Explicit"):
        assert f"process {i} checked {function} on {kind} axes" in text
