"""One matrix on more devices than the tests have: 16, 32 and 64."""

import pytest

import processes


@pytest.mark.extended
def test_many_devices(tmp_path):
  text = processes.run("many_devices_process.py", 1, 400, tmp_path)
  for line in (
      "computed on 32 devices, n = 232", "the same bits on 16 devices",
      "counted cholesky on 32 devices, n = 8200", "counted gradient on 32 devices, n = 8200",
      "counted cholesky on 64 devices, n = 16384", "counted cholesky on 64 devices, n = 16424",
      "counted gradient on 64 devices, n = 16424", "counted eigh on 64 devices, n = 65536",
      "counted eigvalsh on 64 devices, n = 65536"):
    assert line in text
