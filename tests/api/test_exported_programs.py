"""Exported programs that are truncated, altered or malicious raise an error, and the process
continues.

A separate process runs them and knows only their bytes. test_ffi_errors.py covers wrong calls of a
handler; here such calls come from a file.
"""

import dataclasses
import os
import pickle
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax import export

import linalg

# Runs each program and prints how it ended.
_CALLER = """
import faulthandler, pickle, sys
import linalg
import jax
import numpy as np
faulthandler.enable()
jax.config.update("jax_enable_x64", True)
for name, blob, types in pickle.load(open(sys.argv[1], "rb")):
  print("begin", name, flush=True)
  faulthandler.dump_traceback_later(60, exit=True)
  try:
    exported = jax.export.deserialize(bytearray(blob))
    jax.block_until_ready(exported.call(*(np.ones(*x) for x in types)))
    print("end", name, "result")
  except Exception as error:
    print("end", name, type(error).__name__, *str(error).split())
faulthandler.cancel_dump_traceback_later()
np.testing.assert_array_equal(linalg.cholesky(4 * np.eye(3)), 2 * np.eye(3))
print("well")
"""


def _call_all(programs, tmp_path):
  """Returns the output and the errors of a process that calls these programs."""
  path = tmp_path / "programs"
  path.write_bytes(pickle.dumps(programs))
  done = subprocess.run(
      [sys.executable, "-c", _CALLER, str(path)], capture_output=True, text=True, errors="replace",
      timeout=500, cwd=tmp_path, check=False)
  return done.stdout.splitlines(), done.stderr


def _run(programs, tmp_path):
  """Returns how each of the programs ended."""
  lines, errors = _call_all(programs, tmp_path)
  assert lines[-1] == "well", lines[-1:] + [errors[-3000:]]
  return {(x := line.split(" ", 2))[1]: x[2] for line in lines if line.startswith("end ")}


def _export(function, *types, targets=()):
  checks = [export.DisabledSafetyCheck.custom_call(x) for x in targets]
  return export.export(
      jax.jit(function), disabled_checks=[*linalg.export_disabled_checks(), *checks])(
          *(jax.ShapeDtypeStruct(*x) for x in types))


A, B, INFO = ((3, 4, 4), "float64"), ((3, 4, 2), "float64"), ((3,), "int32")


@pytest.fixture(scope="module")
def good():
  """Returns the bytes of a program that calls three handlers, with an A and a B."""
  function = lambda a, b: (linalg.solve(a, b), linalg.eigh(a).eigenvalues, linalg.qr(a).R)
  return bytes(_export(function, A, B).serialize())


def test_cut(good, tmp_path):
  """Catches a truncated program that is accepted as complete."""
  lengths = [*range(0, 64, 7), *range(64, len(good) - 16, len(good) // 40)]
  ends = _run([(f"{x}", good[:x], (A, B)) for x in (*lengths, len(good))], tmp_path)
  assert ends.pop(f"{len(good)}") == "result"
  assert len(ends) == len(lengths) and "result" not in ends.values(), ends


@pytest.mark.extended
def test_altered(good, tmp_path):
  """Catches a wrong byte in a program that crashes a handler or the code that calls it.

  JAX's own reader of modules and XLA's checks do not survive every byte. So the process may end or
  hang before the program starts. LINALG_TEST_SEED alters other bytes.
  """
  random = np.random.default_rng(int(os.environ.get("LINALG_TEST_SEED", 0)))
  programs = []
  for i in range(150):
    altered = bytearray(good)
    for place in random.integers(len(good), size=random.integers(1, 4)):
      altered[place] = random.integers(256)
    programs.append((f"{i}", bytes(altered), (A, B)))
  ends, first = [], 0
  while first < len(programs):
    lines, errors = _call_all(programs[first:], tmp_path)
    ends += [line.split(" ", 3)[2] for line in lines if line.startswith("end ")]
    if lines[-1] == "well":
      break
    crashed = int(lines[-1].removeprefix("begin "))
    at = errors.partition("(most recent call first)")[2].splitlines()[1:2]
    assert re.search(r"jax/_src/(export/_export|interpreters/mlir|compiler)\.py", "".join(at)), (
        programs[crashed][1].hex(), errors[-3000:])
    first = crashed + 1
  assert {"result", "JaxRuntimeError"} <= {*ends} and len(ends) > 100, ends


def _call(name, target, operands, results, attributes, **options):
  results = [jax.ShapeDtypeStruct(*x) for x in results]
  function = lambda *x: jax.ffi.ffi_call(
      target, results, has_side_effect=True, **options)(*x, **attributes)
  return name, bytes(_export(function, *operands, targets=[target]).serialize()), operands


PART = {"lower": True, "symmetrize": True}


def test_calls_made_to_harm(tmp_path):
  """Catches a handler that trusts a call because Python checked the original one."""
  cholesky = "linalg_cholesky"
  ends = _run([
      _call("good", cholesky, [A], [A, INFO], PART),
      _call("aliased", "linalg_solve", [A, A], [A, INFO], {}, input_output_aliases={0: 0}),
      _call("longer_result", cholesky, [A], [((3, 400, 400), "float64"), INFO], PART),
      _call("shorter_operand", cholesky, [((1, 4, 4), "float64")], [A, INFO], PART),
      _call("other_dtype", cholesky, [((3, 4, 4), "float32")], [A, INFO], PART),
      _call("not_square", "linalg_inv", [((3, 1, 16), "float64")], [A, INFO], {}),
      _call("pivots", "linalg_lu_solve", [A, ((3, 400), "int32"), A], [A],
            {"transpose": False, "conjugate": False}),
      _call("no_attribute", cholesky, [A], [A, INFO], {"lower": True}),
      _call("text_for_bool", cholesky, [A], [A, INFO], PART | {"lower": "x" * 999}),
      _call("no_info", cholesky, [A], [A], PART),
      _call("target", "linalg_nothing", [A], [A, INFO], PART),
      _call("convention", cholesky, [A], [A, INFO], {},
            custom_call_api_version=2, legacy_backend_config="0"),
  ], tmp_path)
  assert len(ends) == 12
  assert {name for name, how in ends.items() if how == "result"} == {"good", "aliased"}, ends
  for name in ("longer_result", "shorter_operand", "other_dtype", "not_square", "pivots"):
    assert "INVALID_ARGUMENT" in ends[name] and ": linalg_" in ends[name], ends[name]


def test_a_module_of_other_types_than_it_says(tmp_path):
  """Catches operands of one size that are passed to a program for another."""
  types = {n: [((3, n, n), "float64")] for n in (4, 400)}
  programs = {n: _export(linalg.inv, *x) for n, x in types.items()}

  def of(name, says, has):
    module = programs[has].mlir_module_serialized
    mixed = dataclasses.replace(programs[says], mlir_module_serialized=module)
    return name, bytes(mixed.serialize()), types[says]

  ends = _run([of("right", 4, 4), of("larger", 4, 400), of("smaller", 400, 4)], tmp_path)
  assert ends.pop("right") == "result"
  assert len(ends) == 2 and "result" not in ends.values(), ends
