"""Two processes with four devices each work on one global batch, without communication."""

import pytest

import cases
import processes


@pytest.mark.extended
def test_two_processes(tmp_path):
  """Catches a program that needs the other process's matrices, or that waits for it in vain."""
  text = processes.run("distributed_process.py", 2, 120, tmp_path)
  for i in range(2):
    assert f"process {i} checked {len(cases.CASES)} operations" in text
