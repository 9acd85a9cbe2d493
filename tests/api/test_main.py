"""`python -m linalg` prints a line of 80 columns for each operation, and reports failures."""

import dataclasses

import jax.numpy as jnp
import pytest

from linalg import _verify


@pytest.fixture(autouse=True)
def version(monkeypatch):
  """The package may be tested without being installed."""
  monkeypatch.setattr(_verify, "version", lambda name: "1.0")


def test_output_fits_a_terminal(capsys):
  """Catches a table that wraps when it is piped, or a name that shifts the columns."""
  names = [
      "cholesky", "lu_pivots_to_permutation", "eigh_generalized", "lstsq", "inverse_pth_root",
      "cholesky_update"]
  assert _verify.main([*names, "--batch", "16", "--n", "3", "--dtype", "complex64"]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert max(map(len, lines)) <= 80
  (heading,) = (k for k, line in enumerate(lines) if line.startswith("operation "))
  table = lines[heading + 1 : -1]
  assert {line.split()[0] for line in table} == set(names)
  assert {len(line) for line in table} == {len(lines[heading])}
  assert max(len(case.name) for case in _verify.cases()) < lines[heading].index("residual") + 1


def test_failures(capsys, monkeypatch):
  """Wrong results and collectives are reported, and the exit status is 1."""
  (case,) = (case for case in _verify.cases() if case.name == "cholesky")
  wrong = dataclasses.replace(case, call=lambda a: case.call(a) + jnp.mean(a))
  monkeypatch.setattr(_verify, "cases", lambda: [wrong])
  assert _verify.main(["--batch", "16", "--n", "3"]) == 1
  told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAILED")]
  assert len(told) == 2
  assert "exceeds" in told[0] and "collectives" in told[1]


def test_unknown_operation(capsys):
  with pytest.raises(SystemExit):
    _verify.main(["choleski"])
  assert "unknown operations: choleski; did you mean cholesky" in capsys.readouterr().err
